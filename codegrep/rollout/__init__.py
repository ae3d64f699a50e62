"""Rollouts: the record, and the loop that makes it from an engine, a sandbox and the protocol."""
