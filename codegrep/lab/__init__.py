"""Reward lab: what a reward design would do, before a GPU is paid for.

`replay` judges stored rollouts again under any set of designs, `gaming` runs scripted policies through them, `bandit`
trains a small softmax policy on them. No model, no tool, no Ray.
"""
