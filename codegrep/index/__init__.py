"""Indexes of a tree: units, rankings by words and vectors, their fusion."""
