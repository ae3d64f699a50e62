"""Retrieval scores and paired, clustered statistics. Pure."""
