"""Lengths of texts in tokens, by the tokenizer that the configuration names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from codegrep.errors import ModelError

WORDS = "words"
_WORD = re.compile(r"\w+|[^\w\s]")


class TokenCounter(Protocol):
    """Counts tokens of many texts at once."""

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, without special tokens; 0 for a blank one."""
        ...


class WordCounter:
    """Words and single punctuation marks, for machines without a model: a little fewer than a BPE's tokens."""

    def counts(self, texts: Sequence[str]) -> list[int]:
        """See TokenCounter."""
        return [len(_WORD.findall(text)) for text in texts]


class FolderCounter:
    """The `tokenizer.json` of a model folder, as LRAT counts: by the policy's own tokenizer, without special tokens."""

    def __init__(self, folder: Path) -> None:
        """Load the tokenizer.

        Raises:
            ModelError: the folder has no readable tokenizer.json.
        """
        from tokenizers import Tokenizer  # compiled code, slow to load where nothing is counted

        file = folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises bare Exception
            raise ModelError(
                f"no tokenizer could be read from {file}: {str(error)[:200]}",
                "Set labels.tokenizer to a folder with tokenizer.json, or to words",
            ) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def counts(self, texts: Sequence[str]) -> list[int]:
        """See TokenCounter."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [len(one) if text.strip() else 0 for one, text in zip(encoded, texts, strict=True)]


def open_counter(tokenizer: str) -> TokenCounter:
    """WORDS, or a folder with a tokenizer.json.

    Raises:
        ModelError: see FolderCounter.
    """
    return WordCounter() if tokenizer == WORDS else FolderCounter(Path(tokenizer).expanduser())
