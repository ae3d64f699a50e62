"""Retrievers: from an issue to ranked files."""
