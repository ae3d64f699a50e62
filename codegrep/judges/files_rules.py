"""A judge of files without a model: NOT_RELEVANT only where the post-reasoning says so in known phrases.

Deterministic, fast and coarse: it matches phrases, not meaning. docs/results.md measures how often it agrees with a
reader.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from codegrep.judges.endpoint import Usage
from codegrep.judges.files import NOT_RELEVANT, RELEVANT, Question, Relevance
from codegrep.text import plain

# The rejected thing must be the file: "the failure is unrelated" says nothing of it.
_FILE = (
    r"(?:\b(?:this|that|the) (?:whole |entire |test )?(?:file|module|script|package)"
    r"|(?<![\w/.-])[\w/.-]+\.(?:py|pyx|js|ts|go|rs|java|c|h|cpp|rb)`?)"
)
_BE = r"(?:is|was|seems?|looks?|appears?)(?: to be)?"
_PHRASES = {
    "called irrelevant": rf"{_FILE} {_BE}(?: \w+ly| not| quite| also)? (?:irrelevant|unrelated|off[- ]topic)\b",
    "called not relevant": (
        rf"{_FILE} (?:isn't|is not|wasn't|was not|doesn't (?:seem|look|appear)|does not (?:seem|look|appear))"
        r"(?: to be)?(?: \w+ly)? (?:relevant|related)\b(?! to (?:only|just)\b)"
    ),
    "wrong file": (
        r"\b(?:this|that|it)(?:'s| is| was)(?:n't| not) (?:in )?the (?:right|correct) (?:file|place|module)\b"
        r"|\b(?:this|that|it)(?:'s| is| was) the wrong (?:file|module)\b"
        r"|\b(?:this|that|it)(?:'s| is| was)(?:n't| not) (?:the file|what) (?:we|I)(?:'re| are|'m| am) looking for\b"
    ),
    "nothing in it": (
        rf"(?:\bthis|{_FILE}) (?:doesn't|does not|didn't|did not) (?:seem to |appear to |actually )?"
        r"(?:contain|have|include|show|define|hold) (?:anything (?:about|relevant|useful|related|of use)"
        r"|what (?:we|I) (?:need|want)|any(?:thing)? relevant)"
    ),
    "nothing found in it": (
        r"\b(?:nothing|no) (?:relevant|useful|interesting|related)(?: \w+)? (?:here|in (?:this|that|the) file)\b"
    ),
}
# A sentence that doubts is no clear statement.
_DOUBT = re.compile(r"\b(?:maybe|perhaps|if|might|could|whether|not sure|unless|may)\b|\?", re.IGNORECASE)
_SENTENCE = re.compile(r"[.!?](?:\s|$)|\n\n")
_RULES = {name: re.compile(phrase, re.IGNORECASE) for name, phrase in _PHRASES.items()}
_ANY = re.compile("|".join(f"(?:{phrase})" for phrase in _PHRASES.values()), re.IGNORECASE)
# Emphasis, and line ends inside a paragraph: phrases are written with single spaces.
_EMPHASIS, _WRAP = re.compile(r"\*+"), re.compile(r"(?<!\n)[ \t]*\n[ \t]*(?!\s)|[ \t]{2,}")
# A cheap test that every phrase passes: most texts hold none of these.
_HINT = re.compile(r"n't|not\b|wrong|nothing|\bno\b|irrelevant|unrelated|off[- ]topic", re.IGNORECASE)


class RulesJudge:
    """Judge by phrases, without the task and the path.

    A text that also names the place of the work ("the problem is here") is ambiguous, and so RELEVANT.
    """

    _AGREES = re.compile(
        r"\b(?:the (?:issue|problem|bug|culprit|cause|fix) is (?:here|in (?:this|the) |that )"
        r"|I (?:can )?see the (?:issue|problem|bug)"
        r"|found the (?:issue|problem|bug|relevant|code)|I (?:now )?understand the (?:issue|problem))",
        re.IGNORECASE,
    )

    def __init__(self) -> None:
        self._usage = Usage()

    @property
    def label(self) -> str:
        """Name of the judge."""
        return "rules"

    @property
    def version(self) -> str:
        """Hash of the phrases."""
        parts = [_PHRASES, self._AGREES.pattern, _DOUBT.pattern, _EMPHASIS.pattern, _WRAP.pattern]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]

    @property
    def usage(self) -> Usage:
        """Questions so far, counted as requests."""
        return self._usage

    def judge(self, questions: Sequence[Question]) -> list[Relevance]:
        """Return a relevance for each question, in order."""
        self._usage.requests += len(questions)
        return [self._one(question.evidence) for question in questions]

    def _one(self, text: str) -> Relevance:
        text = _WRAP.sub(" ", _EMPHASIS.sub("", plain(text)))
        if not _HINT.search(text) or not (rejection := _ANY.search(text)):
            return Relevance(RELEVANT, "no clear rejection", (1, 0))
        if _DOUBT.search(_sentence(text, rejection.start(), rejection.end())):
            return Relevance(RELEVANT, "a rejection in doubt", (1, 0), ambiguous=True)
        if self._AGREES.search(text):
            return Relevance(RELEVANT, "rejection and confirmation in one text", (1, 0), ambiguous=True)
        rule = next(name for name, pattern in _RULES.items() if pattern.match(text, rejection.start()))
        return Relevance(NOT_RELEVANT, f"{rule}: {rejection[0][:80]}", (0, 1))


def _sentence(text: str, start: int, end: int) -> str:
    """Return the sentence around a place, with its final mark."""
    before = [match.end() for match in _SENTENCE.finditer(text, 0, start)]
    after = _SENTENCE.search(text, end)
    return text[before[-1] if before else 0 : after.end() if after else len(text)]
