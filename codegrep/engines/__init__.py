"""Engines: token ids in, token ids and log-probabilities out."""

from codegrep.engines.engine import Engine, Generation, GenerationRequest, Sampling

__all__ = ["Engine", "Generation", "GenerationRequest", "Sampling"]
