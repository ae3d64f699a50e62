"""Traces: one attempt at an issue, or two side by side, in the terminal and as a page."""
