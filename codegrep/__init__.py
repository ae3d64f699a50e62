"""Reinforcement-learned code retrieval: train a small agent that finds the files an issue is about."""

__version__ = "0.1.0"
