"""The judge without a model: NOT_RELEVANT only where the post-reasoning says so in so many words.

Deterministic, in microseconds, and coarse: it sees phrases, not sense. Labels that it gave say `rules` everywhere. How
often it agrees with a reader is measured in docs/results.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from codegrep.labels.candidates import NOT_RELEVANT, RELEVANT
from codegrep.labels.judging import Question, Usage, Verdict

_THIS = r"(?:this|that|it|the (?:file|module|code|class|test|tests|function|content|contents)|(?:this|that) \w+)"
_PHRASES = {
    "called irrelevant": (
        r"\b(?:is|are|was|seems?|looks?|appears?)(?: to be)? (?:\w+ )?(?:irrelevant|unrelated|off[- ]topic)\b"
    ),
    "called not relevant": (
        r"\b(?:isn't|is not|aren't|are not|wasn't|was not|doesn't (?:seem|look|appear)|not)(?: to be)?(?: \w+)? "
        r"(?:relevant|related)\b(?! to (?:only|just)\b)"
    ),
    "wrong file": (
        r"\b(?:(?:isn't|is not|not|wasn't) (?:in )?(?:the|a) (?:right|correct) (?:file|place|module|location)"
        r"|(?:the|a) wrong (?:file|place|module|location)|not (?:the file|what) (?:we|I)(?:'re| are|'m| am) looking for"
        r"|not the (?:file|one|code) (?:we|I) (?:need|want))\b"
    ),
    "nothing in it": (
        rf"\b{_THIS} (?:doesn't|does not|didn't|did not) (?:seem to |appear to |actually )?"
        r"(?:contain|have|include|show|define|hold)(?: anything| any of)?"
        r"(?: (?:the )?(?:\w+ )?(?:relevant|useful|related|needed)\b| anything\b| what (?:we|I) (?:need|want))"
    ),
    "nothing found in it": (
        r"\b(?:nothing|no) (?:relevant|useful|interesting|related)(?: \w+)? (?:here|in (?:this|that|the) file)\b"
    ),
    "no need": r"\b(?:don't|do not|won't) need to (?:change|modify|touch|look at|edit) this (?:file|module)\b",
}
_RULES = {name: re.compile(phrase, re.IGNORECASE) for name, phrase in _PHRASES.items()}
_ANY = re.compile("|".join(f"(?:{phrase})" for phrase in _PHRASES.values()), re.IGNORECASE)
# A cheap test that every phrase passes: most texts hold none of these.
_HINT = re.compile(r"n't|not\b|wrong|nothing|\bno\b|irrelevant|unrelated|off[- ]topic", re.IGNORECASE)


class RulesJudge:
    """Phrases. Needs no task and no path.

    Where the same text also names the place of the work ("the problem is here"), it stays RELEVANT: anything ambiguous
    is.
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
        """See Judge."""
        return "rules"

    @property
    def usage(self) -> Usage:
        """See Judge."""
        return self._usage

    def judge(self, questions: Sequence[Question]) -> list[Verdict]:
        """See Judge."""
        self._usage.requests += len(questions)
        return [self._one(question.evidence) for question in questions]

    def _one(self, text: str) -> Verdict:
        if not _HINT.search(text) or not (found := _ANY.search(text)):
            return Verdict(RELEVANT, "no clear rejection", (1, 0))
        if self._AGREES.search(text):
            return Verdict(RELEVANT, "rejection and confirmation in one text", (1, 0), ambiguous=True)
        rule = next(name for name, pattern in _RULES.items() if pattern.match(text, found.start()))
        return Verdict(NOT_RELEVANT, f"{rule}: {found[0][:80]}", (0, 1))
