"""Nested settings as flat MLflow parameters, with secrets masked. Pure."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePath

MAX_VALUE = 6000  # characters; MLflow's limit for a parameter
MAX_TAG = 8000  # characters; MLflow's limit for a tag
MAX_KEY = 250  # characters
MASK = "***"

# 'token' hides hf_token and api-token but not max_tokens, tokens_per_step or tokenizer.
_SECRET_WORDS = frozenset(
    {"password", "passwd", "passphrase", "secret", "secrets", "token", "apikey", "credential", "credentials", "bearer"}
)
_SECRET_PAIRS = frozenset({("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("auth", "key")})
_URL_PASSWORD = re.compile(r"(?<=://)[^/\s@]+(?=@)")


def is_secret(key: str) -> bool:
    """Whether a key's last part is named like a secret: 'judge.api_key', 'HF_TOKEN', 'dbPassword'."""
    last = re.split(r"[./]", key)[-1]
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last)
    words = [word for word in re.split(r"[^a-z0-9]+", spaced.lower()) if word]
    return any(word in _SECRET_WORDS for word in words) or any(pair in _SECRET_PAIRS for pair in pairwise(words))


def masked_text(text: str) -> str:
    """`text` with user and password of every URL masked: 'postgresql://me:pw@host' becomes 'postgresql://***@host'."""
    return _URL_PASSWORD.sub(MASK, text)


def masked(value: object, key: str = "") -> object:
    """Return a copy of nested settings in which every secret reads '***'. Switches, None and "" are left as they are.

    Use it for whatever is stored beside the parameters too, such as the resolved configuration.
    """
    if isinstance(value, Mapping):
        return {str(name): masked(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [masked(inner, key) for inner in value]
    if key and is_secret(key) and value not in (None, "") and not isinstance(value, bool):
        return MASK
    return masked_text(value) if isinstance(value, str) else value


def flatten(settings: Mapping[str, object]) -> dict[str, str]:
    """Nested settings as MLflow parameters.

    Args:
        settings: nested mappings; leaves are strings, numbers, None, or lists, which are written as JSON.

    Returns:
        'train.grpo.kl' -> '0.02', keys and values cut to MLflow's limits (a cut is visible), secrets masked, in the
        order given. An empty mapping is kept as '{}'.
    """
    flat: dict[str, str] = {}
    _flatten("", masked(settings), flat)
    return flat


def _flatten(prefix: str, value: object, flat: dict[str, str]) -> None:
    if isinstance(value, Mapping) and (value or not prefix):
        for name, inner in value.items():
            _flatten(f"{prefix}.{name}" if prefix else str(name), inner, flat)
    else:
        flat[allowed_key(prefix)] = cut(as_text(value), MAX_VALUE)


def as_text(value: object) -> str:
    """Return a leaf as text: strings as they are, paths in POSIX form, everything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, PurePath):
        return value.as_posix()
    return json.dumps(value, ensure_ascii=False, default=str)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters; a cut ends in an ellipsis and the number of characters left out."""
    if len(text) <= limit:
        return text
    note = f" … (+{len(text)} characters)"
    kept = text[: limit - len(note)]
    return f"{kept} … (+{len(text) - len(kept)} characters)"


def allowed_key(key: str) -> str:
    """Return a key that MLflow takes. Keys stay apart: a changed or shortened one carries a hash of the original."""
    clean = re.sub(r"[^/0-9A-Za-z_.\- ]", "_", key)
    clean = posixpath.normpath(clean).lstrip("/") if clean else "_"
    if clean.startswith(".") or len(clean) > MAX_KEY:
        clean = clean.lstrip("./")
    if clean == key and len(key) <= MAX_KEY:
        return key
    mark = hashlib.sha256(key.encode(errors="replace")).hexdigest()[:8]
    return f"{clean[: MAX_KEY - 9]}-{mark}"
