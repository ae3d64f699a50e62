"""A run: its stages, their artifacts, the models in them."""
