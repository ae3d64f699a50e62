"""Sizes of models: parameters, and bytes that a token takes in the key-value cache."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from codegrep.config import Config
from codegrep.errors import ConfigError


@dataclass(frozen=True)
class Shape:
    """parameters: of the base. linear_width: sum of in + out features of all linear projections, which LoRA adapts."""

    parameters: float
    layers: int
    kv_heads: int
    head_size: int
    linear_width: int

    def kv_bytes(self, bytes_per_value: int = 2) -> float:
        """Return the bytes of one token: keys and values of all layers."""
        return 2.0 * self.layers * self.kv_heads * self.head_size * bytes_per_value

    def lora_parameters(self, rank: int) -> float:
        """Count the parameters of A and B of every projection."""
        return float(rank * self.linear_width)


def _shape(
    layers: int, hidden: int, inner: int, heads: int, kv_heads: int, head: int, vocabulary: int, tied: bool
) -> Shape:
    queries, keys = heads * head, kv_heads * head
    projections = [(hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden), *[(hidden, inner)] * 3]
    weights = layers * sum(a * b for a, b in projections) + vocabulary * hidden * (1 if tied else 2)
    return Shape(float(weights), layers, kv_heads, head, layers * sum(a + b for a, b in projections))


# From the models' own configuration files.
KNOWN = {
    "Qwen/Qwen3-14B": _shape(40, 5120, 17408, 40, 8, 128, 151_936, False),
    "Qwen/Qwen3-1.7B": _shape(28, 2048, 6144, 16, 8, 128, 151_936, True),
    "provided:smollm2-135m-instruct": _shape(30, 576, 1536, 9, 3, 64, 49_152, True),
    "provided:nano": _shape(2, 64, 128, 4, 2, 16, 512, True),
}


def shape_of(config: Config) -> Shape:
    """Return the model's shape: a known one, or read from the folder's config.json.

    Raises:
        ConfigError: neither is there.
    """
    path = config.model.path
    if path in KNOWN:
        return KNOWN[path]
    try:
        said = json.loads((Path(path).expanduser() / "config.json").read_text(encoding="utf-8"))
        heads = int(said["num_attention_heads"])
        return _shape(
            int(said["num_hidden_layers"]),
            int(said["hidden_size"]),
            int(said["intermediate_size"]),
            heads,
            int(said.get("num_key_value_heads", heads)),
            int(said.get("head_dim") or said["hidden_size"] // heads),
            int(said["vocab_size"]),
            bool(said.get("tie_word_embeddings", False)),
        )
    except (OSError, ValueError, KeyError, TypeError):
        known = ", ".join(KNOWN)
        raise ConfigError(
            f"the size of model.path={path} is not known", f"Give a local folder, or one of {known}"
        ) from None
