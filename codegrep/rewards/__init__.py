"""Reward designs, advantages, governance and turn scores: pure functions of plain data."""
