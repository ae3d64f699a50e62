"""What the words of a commit message say about the commit: a revert, a merge, a chore, or a fix.

Each list is one alternative of a pattern; they were tuned by reading random commits of twenty Python projects.
"""

from __future__ import annotations

import re

from codegrep.text import plain


def _any_of(*alternatives: str) -> str:
    return f"(?:{'|'.join(alternatives)})"


# Marks before the subject proper: "[3.2]", "#123:", "gh-123 -".
_MARKS = re.compile(r"^(?:\[[^\]]{1,20}\]\s*)+|^(?:#\d+|gh-\d+)\s*[:-]?\s*", re.IGNORECASE)

# Words that begin another thought, and what a sentence says of something that goes wrong.
_THEN = r"that|which|who|because|since|as|due|for|so|until|it|this|and|but|or|to (?:fix|avoid|prevent|make|not)"
_FAULTS = (
    r"(?:is|are|was|were|gets?|becomes?) (?:\w+ )?(?:wrong\w*|broken|incorrect\w*|corrupt\w*|lost|missing|ignored"
    r"|dropped|skipped|duplicated|truncated|invalid|inconsistent|unexpected\w*|never|sorted|applied)",
    r"(?:is|are|was|were|do|does|did|could|has|have|would|should)(?:n't| not)|can(?:'t|not)|won't|no longer|never",
    r"fails?|crash(?:es)?|hangs?|raises?|breaks?|leaks?|los(?:es?|t)|deadlocks?|overflows?|segfaults?|vanish(?:es)?",
    r"disappears?|throws?|corrupts?|misbehaves?|returns? (?:the )?wrong",
)
# A subject that says what goes wrong before another thought begins: "Few workers hang when". What a word list finds at
# its beginning is then what it is about, and not what was done.
_REPORT = re.compile(
    rf"(?:(?!\b(?:{_THEN})\b|\. )[^,;:()\"'])+?(?<!\bto )(?<![\w./-]){_any_of(*_FAULTS)}(?![\w-]|\.\w)", re.IGNORECASE
)

_REVERT = re.compile(r"(?:un-?)?revert(?:ed|ing|s)?\b|back(?:ed)? ?out\b|reapply\b|reland\b", re.IGNORECASE)
# "Revert" itself as what fails; else a report can only begin with "reverting" or "reverted".
_ASKS = re.compile(
    r"(?:un-?)?reverts?\b(?! (?:is|was|does|fails|crashes|hangs|raises|breaks|leaks|loses|never|no longer|cannot)\b)",
    re.IGNORECASE,
)
_REVERT_BODY = re.compile(r"^This reverts commit [0-9a-f]{7,}", re.MULTILINE)

_MERGED = "pull request|branch|remote|commit|tag|master|main|upstream|heads?"
_MERGE = re.compile(rf"(?:auto)?merge[ds]?(?: (?:{_MERGED})\b|$)", re.IGNORECASE)
_PERHAPS_MERGE = re.compile(r"(?:auto)?merge[ds]? (?:with|from|in|changes)\b", re.IGNORECASE)

# Conventional-commit kinds that never are fixes.
_KINDS = (
    "style|chore|lint(?:ing)?|fmt|format(?:ting)?|docs?|ci|build|typing|types?|tests?|deps|release|refactor(?:ing)?|perf"
    "|i18n|maint(?:enance)?|benchmarks?|meta|internal"
)
_TOOLS = (
    "pep-?8|pep-?257|flake8|pyflakes|isort|ruff|pyupgrade|black|autopep8|mypy|pyright|lint(?:ing|er|s)?|code ?style",
    "coding style|code quality|pylint (?:warnings?|errors?|issues?|fix\\w*)|(?:sphinx|rst) (?:warnings?|errors?)",
    "travis|appveyor|azure|github actions?|gha|codecov|coverage|pre-?commit|tox|readthedocs|rtd|nox|makefile|jenkins",
)
_PROSE = (
    "typos?|spelling|misspell\\w*|grammar|wording|docs?|doc(?:umentation)? build|documentation|docstrings?|doctests?",
    "comments?|readme|changelog|release notes?|whatsnew|news (?:entry|file|fragment)|copyright|licen[sc]es?",
    "(?:broken|dead|stale) (?:links?|urls?)|tutorials?",
)
_LAYOUT = (
    "white ?space|white spaces|indentation|indenting|trailing \\w+|line (?:lengths?|endings?)|long lines?|blank lines?",
    "unused (?:imports?|variables?|code)|import (?:order|sorting)|type (?:hints?|annotations?|ignores?|checking)",
    "typing|annotations",
)
_TESTING = (
    "test suite|(?:failing|broken|flaky|missing|unit|new|regression) tests?|tests? (?:cases?|failures?|should be)",
    "test_\\w+|(?:add|fix|update|improve|skip|move|clean ?up|correct)(?:e[ds]|s|ed|ing)? (?:\\w+ ){0,3}tests?",
)
_VAGUE = (
    "misc|minor|small|tiny|trivial|various|cosmetic|nit|clean(?:ed|ing|s)?[ -]?up|tidy|refactor\\w*|reformat\\w*",
    "renam\\w+|reorgani[sz]\\w+|simplif\\w+|moderni[sz]\\w+|oops|wip|work in progress|ugly|temporary",
    "(?:some|more|further|few|several)",
    "(?:a )?(?:couple|few|bunch|lot)|address\\w* (?:review|comment|feedback)|review (?:fix|comment)\\w*|initial|first",
    "apply (?:suggestion|review)\\w*|requested changes|move[ds]?|deprecat\\w+|version|next|start\\w*|continu\\w+",
)
_RELEASE = (
    r"(?:bump|release|prepar\w+|tag(?:ging)?|version|cut|pin|unpin|upgrade)\b"
    r".{0,40}(?:release|version|v?\d+\.\d+|\bdev\b|to )"
)
_CHORE = re.compile(
    _any_of(rf"\[?(?:{_KINDS})\]?(?:\([^)]*\))?!?\s*:", rf".{{0,30}}\b{_any_of(*_TOOLS, *_TESTING)}\b"),
    re.IGNORECASE,
)
# Words that a report can begin with too.
_PERHAPS_CHORE = re.compile(
    _any_of(_RELEASE, rf".{{0,30}}\b{_any_of(*_PROSE, *_LAYOUT)}\b", rf"{_any_of(*_VAGUE)}\b"), re.IGNORECASE
)

# Said anywhere in a subject, these tell of something wrong.
_WRONG = (
    "fix(?:e[sd]|ing)?|bug(?:s|gy|fix\\w*)?|errors?|crash(?:e[sd]|ing)?|regressions?|incorrect(?:ly)?|wrong(?:ly)?",
    "rais(?:e[sd]?|ing)|exceptions?|traceback|fail(?:s|ed|ing|ures?)?|broken?|breaks?|breakage|invalid",
    "leak(?:s|ed|ing)?|deadlock\\w*|hang(?:s|ing)?|race condition|infinite(?:ly)?|recursion|segfault\\w*|overflow\\w*",
    "corrupt\\w*|missing",
    "false (?:positive|negative)s?|no longer|do(?:es)?n[o']t|(?:does|do|should) not|shouldn't|should be|can(?:no|')t",
    "unable|unexpected(?:ly)?|never|inconsisten\\w+|misbehav\\w+|issues?|problems?|corner case|edge case",
    "correct(?:ed|ly|s)?|handl(?:e[sd]?|ing)|prevent(?:s|ed)?|avoid(?:s|ed)?|ensur(?:e[sd]?|ing)|resolv(?:e[sd]?|ing)",
    "(?:\\w*[a-z])?(?:Error|Exception|Warning)",
)
# In the body only plain signs count: bodies speak of many things.
_SIGNS = (
    r"(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?)[: ]+(?:issues? )?(?:#|gh-|https?://)\S+",
    r"bug|regression|traceback|crash(?:e[sd])?|incorrect(?:ly)?|\w*[a-z]Error",
)
_FIX_SUBJECT = re.compile(rf"\b{_any_of(*_WRONG)}\b|{_SIGNS[0]}", re.IGNORECASE)
_FIX_BODY = re.compile(rf"\b{_any_of(*_SIGNS)}\b", re.IGNORECASE)

# What a message says nothing with: links, issue numbers, and the words around them.
_REFERENCE = re.compile(
    r"https?://\S+|(?:\b\w+/[\w.-]+)?#\d+|gh-\d+"
    r"|\b(?:closes?|fix(?:e[sd])?|resolves?|refs?|see|issues?|ticket|bug|pr|for|the|a)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]+")


def is_revert(message: str) -> bool:
    """Return whether this is a revert or a re-applied commit."""
    subject = _bare_subject(message)
    if _ASKS.match(subject) is not None or _REVERT_BODY.search(message) is not None:
        return True
    return _begins(subject, _REVERT, report=subject)


def is_merge_message(message: str) -> bool:
    """Return whether this is a merge without a second parent (squashed, or of another version control system)."""
    subject = _bare_subject(message)
    return _MERGE.match(subject) is not None or _begins(subject, _PERHAPS_MERGE, report=subject)


def is_chore(message: str) -> bool:
    """Return whether the subject speaks of style, tools, documentation, tests, releases, or is vague."""
    bare = _bare_subject(message)
    return any(
        _CHORE.match(subject) is not None or _begins(subject, _PERHAPS_CHORE, report=bare)
        for subject in (bare, _subject(message))
    )


def tells_of_a_fix(message: str) -> bool:
    """Return whether the subject says that something was wrong, or the body says so plainly."""
    return _FIX_SUBJECT.search(_subject(message)) is not None or _FIX_BODY.search(plain(message)) is not None


def telling_words(statement: str) -> int:
    """Distinct words besides links, issue numbers and fillers."""
    return len({word.lower() for word in _WORD.findall(_REFERENCE.sub(" ", statement))})


def _begins(subject: str, words: re.Pattern[str], report: str) -> bool:
    """Whether a subject begins with one of the words, and is no report of what goes wrong."""
    return words.match(subject) is not None and _REPORT.match(report) is None


def _subject(message: str) -> str:
    return plain(message.strip().partition("\n")[0]).strip()


def _bare_subject(message: str) -> str:
    return _MARKS.sub("", _subject(message)).strip()
