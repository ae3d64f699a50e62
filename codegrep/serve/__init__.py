"""One question, one answer: for people, scripts and coding agents."""
