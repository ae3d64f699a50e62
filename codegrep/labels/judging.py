"""What a judge is asked and answers (LRAT 2.3, CodeGrep 3.4 stage 2): RELEVANT unless clearly NOT_RELEVANT."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from codegrep.judges.endpoint import Usage, shortened
from codegrep.labels.candidates import NOT_RELEVANT, RELEVANT
from codegrep.text import plain, without_thoughts

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
        label: RELEVANT, NOT_RELEVANT, or "" where no answer could be had.
        reason: the rule that spoke, or the model's words.
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
    """Answers many questions."""

    @property
    def label(self) -> str:
        """Names the judge in every label that it gave."""
        ...

    @property
    def version(self) -> str:
        """Changes when the same question may get another answer for the judge's own reasons: its rules, its prompt."""
        ...

    @property
    def usage(self) -> Usage:
        """What was used so far."""
        ...

    def judge(self, questions: Sequence[Question]) -> list[Relevance]:
        """A verdict for each question, in order. An outage is a Relevance with an error; it is never raised."""
        ...


class PromptedJudge:
    """What judges that ask a language model with `prompt` have in common.

    Args:
        label: see Judge.
    """

    def __init__(self, label: str, usage: Usage) -> None:
        self._label, self._usage = label, usage

    @property
    def label(self) -> str:
        """See Judge."""
        return self._label

    @property
    def version(self) -> str:
        """See Judge: the prompt's."""
        return PROMPT_VERSION

    @property
    def usage(self) -> Usage:
        """See Judge."""
        return self._usage


def prompt(question: Question, max_task_chars: int = 6000, max_evidence_chars: int = 8000) -> str:
    """The text for a language model. Long parts are cut in the middle, and the cut is shown."""
    return _PROMPT.format(
        task=shortened(question.task, max_task_chars) or "(not known)",
        path=question.path,
        evidence=shortened(question.evidence, max_evidence_chars),
    )


_NEGATIVE = re.compile(r"\b(?:NOT[\s_-]*RELEVANT|IRRELEVANT)\b")
_POSITIVE = re.compile(r"\bRELEVANT\b")
# What is said in one breath: a doubt in it is about the word in it.
_CLAUSES = re.compile(
    r"[.,;:!()\[\]{}\n\u2014]+|(?<=\?)|\s-+\s"
    r"|\b(?:SO|HENCE|THUS|THEREFORE|BECAUSE|SINCE|BUT|THOUGH|ALTHOUGH|WHILE|WHEREAS)\b"
)
_DOUBT = re.compile(
    r"\b(?:NOT|CANNOT|NEVER|NO|NOR|NEITHER|HARDLY|MAYBE|PERHAPS|IF|WHETHER|UNLESS|MIGHT|MAY|COULD|WOULD|UNSURE|UNCLEAR"
    r"|UNCERTAIN)\b|N'T\b|\?"
)


def parse_answer(text: str) -> tuple[str, bool] | None:
    """(label, ambiguous) of a model's answer; None where it holds no answer at all and has to be asked again.

    One of the two words that stands alone in its clause decides, else the first clause that says one without doubt (the
    first word decides in LRAT's code). What names neither, both, or one in doubt is RELEVANT (CodeGrep's rule).
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
    """(label, whether the clause says nothing else) of a clause; "" in doubt, None where it names neither word."""
    rest = _NEGATIVE.sub(" ", text)
    negative, positive = rest != text, _POSITIVE.search(rest) is not None
    if not negative and not positive:
        return None
    if (negative and positive) or _DOUBT.search(rest):
        return "", False
    others = re.sub(r"[\W_]+", "", _POSITIVE.sub(" ", rest))
    return (NOT_RELEVANT if negative else RELEVANT), not others


def majority(labels: Sequence[str]) -> str:
    """The label of most votes; RELEVANT where they are equal."""
    against = sum(1 for label in labels if label == NOT_RELEVANT)
    return NOT_RELEVANT if against * 2 > len(labels) else RELEVANT
