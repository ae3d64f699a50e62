"""Judges of files that an agent read (LRAT, arXiv 2604.04949, §2.3; CodeGrep §3.4 stage 2).

A file is RELEVANT unless its notes say clearly that it is not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from codegrep.judges.endpoint import Usage, shortened
from codegrep.text import plain, without_thoughts

RELEVANT, NOT_RELEVANT = "RELEVANT", "NOT_RELEVANT"
# The wording is ours: neither paper prints its prompt. A change of it changes every cache key.
_PROMPT = """\
A software engineer works on the task below, has just opened one file of the repository, and then wrote the notes \
below. Decide from the notes alone whether the file matters for the task.

Answer NOT_RELEVANT only if the notes say clearly that the file has nothing to do with the task: unrelated, the wrong \
file, nothing useful in it, or a different file is where the work lies. In every other case answer RELEVANT: also when \
the file is only partly useful, when the notes are unsure, and when the engineer goes on searching.

Task:
{task}

File: {path}

Notes written after opening it:
{evidence}

Answer with one word, RELEVANT or NOT_RELEVANT."""
#: Raised when the same answer would be read as another label; part of the key of kept answers, which hold the label.
READING = 2
#: Names the wording and the reading; part of what decides a set of labels.
PROMPT_VERSION = hashlib.sha256(f"{_PROMPT}\n{READING}".encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Question:
    """One candidate as a judge sees it. task: the issue's text; "" where it is not known."""

    path: str
    evidence: str
    task: str = ""


@dataclass(frozen=True)
class Relevance:
    """A judge's answer.

    Attributes:
        label: RELEVANT, NOT_RELEVANT, or "" without an answer.
        reason: the rule that matched, or the model's words.
        votes: answers for RELEVANT and for NOT_RELEVANT.
        error: why there is no answer; an outage is an error of its row, never a label.
        ambiguous: the answer named neither, and counts as RELEVANT.
    """

    label: str
    reason: str = ""
    votes: tuple[int, int] = (0, 0)
    error: str = ""
    ambiguous: bool = False


class Judge(Protocol):
    """Judges files."""

    @property
    def label(self) -> str:
        """Name of the judge in every label that it gives."""
        ...

    @property
    def version(self) -> str:
        """Hash of the judge's rules or prompt: when it changes, the same question may get another answer."""
        ...

    @property
    def usage(self) -> Usage:
        """Requests and tokens so far."""
        ...

    def judge(self, questions: Sequence[Question]) -> list[Relevance]:
        """Return a relevance for each question, in order. An outage is a Relevance with an error, never raised."""
        ...


class PromptedJudge:
    """The part that judges share which ask a language model with `prompt`."""

    def __init__(self, label: str, usage: Usage) -> None:
        self._label, self._usage = label, usage

    @property
    def label(self) -> str:
        """Name of the judge."""
        return self._label

    @property
    def version(self) -> str:
        """Hash of the prompt and of the reading of answers."""
        return PROMPT_VERSION

    @property
    def usage(self) -> Usage:
        """Requests and tokens so far."""
        return self._usage


def prompt(question: Question, max_task_chars: int = 6000, max_evidence_chars: int = 8000) -> str:
    """Return the text for a language model. Long parts are cut in the middle, with a note."""
    return _PROMPT.format(
        task=shortened(question.task, max_task_chars) or "(not known)",
        path=question.path,
        evidence=shortened(question.evidence, max_evidence_chars),
    )


_NEGATIVE = re.compile(r"\b(?:NOT[\s_-]*RELEVANT|IRRELEVANT)\b")
_POSITIVE = re.compile(r"\bRELEVANT\b")
# Ends of clauses: a doubt is about the word in its own clause.
_CLAUSES = re.compile(
    r"[.,;:!()\[\]{}\n\u2014]+|(?<=\?)|\s-+\s"
    r"|\b(?:SO|HENCE|THUS|THEREFORE|BECAUSE|SINCE|BUT|THOUGH|ALTHOUGH|WHILE|WHEREAS)\b"
)
_DOUBT = re.compile(
    r"\b(?:NOT|CANNOT|NEVER|NO|NOR|NEITHER|HARDLY|MAYBE|PERHAPS|IF|WHETHER|UNLESS|MIGHT|MAY|COULD|WOULD|UNSURE|UNCLEAR"
    r"|UNCERTAIN)\b|N'T\b|\?"
)


def parse_answer(text: str) -> tuple[str, bool] | None:
    """Return (label, ambiguous) of a model's answer; None for an empty answer, which has to be asked again.

    A word that stands alone in its clause decides, else the first clause that names one without doubt (in LRAT's code
    the first word decides). An answer that names neither, both, or one in doubt is RELEVANT (CodeGrep §3.4).
    """
    shown = plain(without_thoughts(text)).strip().upper()
    if not shown:
        return None
    clauses = [verdict for clause in _CLAUSES.split(shown) if (verdict := _clause(clause))]
    alone = {label for label, is_alone in clauses if is_alone}
    if len(alone) > 1:
        return RELEVANT, True
    label = alone.pop() if alone else next((label for label, _ in clauses if label), "")
    return label or RELEVANT, not label


def _clause(text: str) -> tuple[str, bool] | None:
    """Return (label, whether it says nothing else) of a clause; label "" in doubt, None if it names neither word."""
    rest = _NEGATIVE.sub(" ", text)
    negative, positive = rest != text, _POSITIVE.search(rest) is not None
    if not negative and not positive:
        return None
    if (negative and positive) or _DOUBT.search(rest):
        return "", False
    others = re.sub(r"[\W_]+", "", _POSITIVE.sub(" ", rest))
    return (NOT_RELEVANT if negative else RELEVANT), not others


def majority(labels: Sequence[str]) -> str:
    """Return the label of most votes; RELEVANT when they are equal."""
    against = sum(1 for label in labels if label == NOT_RELEVANT)
    return NOT_RELEVANT if against * 2 > len(labels) else RELEVANT
