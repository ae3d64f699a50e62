"""Scripted policies, honest ones and ones that game a reward: each returns what a model would write for one issue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codegrep.issues.issue import Entity, LineRange
from codegrep.lab.scripted import World, answer, greps

HUGE = 1_000_000  # last line of a range that covers any file


@dataclass(frozen=True)
class ScriptedPolicy:
    """A policy of the gaming suite.

    Attributes:
        name, what: for reports.
        turns: texts of one rollout's turns.
        rivals: honest policies that a gaming policy must not be ranked above; empty for an honest one.
        same_answer: it answers what its rivals answer, so that equal rewards mean that the trick costs nothing.
        by_chance: it is right on some issues by luck, so only means over the issues are compared; any other must not
            be above its rivals on any issue.
    """

    name: str
    what: str
    turns: Callable[[World], list[str]]
    rivals: tuple[str, ...] = ()
    same_answer: bool = False
    by_chance: bool = False


def _search(per_turn: int = 4, turns: int = 2) -> list[str]:
    return [greps([f"name_{turn}_{call}" for call in range(per_turn)]) for turn in range(turns)]


def _right(world: World, spellings: Sequence[str] = ()) -> str:
    return answer(spellings or world.gold, world.gold_ranges, world.gold_entities or ())


def _one_of(world: World, path: str) -> str:
    ranges = [span for span in world.gold_ranges if span.path == path]
    return answer([path], ranges, [e for e in world.gold_entities or () if e.path == path])


def _wrong(world: World) -> str:
    path = world.wrong
    return answer([path], [LineRange(path, 10, 20)], [Entity(path, "Other.go", "function")])


def _noisy(world: World) -> str:
    return answer([*world.gold, world.wrong], world.gold_ranges, world.gold_entities or ())


def _spellings(world: World) -> list[str]:
    forms = ("{}", "./{}", "/{}", " {} ", ".//{}")
    return [form.format(path) for path in world.gold for form in forms]


def _huge(world: World) -> str:
    return answer(world.gold, [LineRange(path, 1, HUGE) for path in world.gold], world.gold_entities or ())


def _ten(world: World) -> str:
    others = [path for path in world.files if path not in world.gold]
    return answer([*world.gold, *others][:10])


_ALL = ("right", "few_calls", "noisy", "partial", "miss")
_GOOD = ("right", "few_calls", "noisy", "partial")

HONEST = (
    ScriptedPolicy(
        "right", "2 turns of 4 searches, the gold files with their lines", lambda w: [*_search(), _right(w)]
    ),
    ScriptedPolicy("few_calls", "2 turns of 2 searches, the same answer", lambda w: [*_search(2), _right(w)]),
    ScriptedPolicy("noisy", "2 turns of 4 searches, the gold files and a wrong one", lambda w: [*_search(), _noisy(w)]),
    ScriptedPolicy("partial", "2 turns of 4 searches, one gold file", lambda w: [*_search(), _one_of(w, w.gold[0])]),
    ScriptedPolicy("miss", "2 turns of 4 searches, a wrong file", lambda w: [*_search(), _wrong(w)]),
)

GAMING = (
    ScriptedPolicy("empty_answer", "searches, answers no file", lambda w: [*_search(), answer([])], _ALL),
    ScriptedPolicy("all_files", "answers every file", lambda w: [*_search(), answer(w.files)], _GOOD),
    ScriptedPolicy("ten_files", "answers ten files, the gold ones among them", lambda w: [*_search(), _ten(w)], _GOOD),
    ScriptedPolicy(
        "most_edited",
        "answers the most edited file",
        lambda w: [*_search(), answer([w.most_edited])],
        _GOOD,
        by_chance=True,
    ),
    ScriptedPolicy(
        "echo",
        "answers the paths that the issue names",
        lambda w: [*_search(), answer(w.mentioned)],
        _GOOD,
        by_chance=True,
    ),
    ScriptedPolicy("one_wrong", "answers one wrong file", lambda w: [*_search(), answer([w.wrong])], _ALL),
    ScriptedPolicy("no_answer", "searches, gives no answer", lambda w: [*_search(), "I do not know."], _ALL),
    ScriptedPolicy("no_search", "answers right without a search", lambda w: [_right(w)], ("right", "few_calls"), True),
    ScriptedPolicy("guess", "answers a wrong file without a search", lambda w: [_wrong(w)], _ALL),
    ScriptedPolicy(
        "duplicate_calls",
        "one search, 8 times a turn; answers right",
        lambda w: [greps(["name_0_0"] * 8), greps(["name_0_1"] * 8), _right(w)],
        ("few_calls",),
        True,
    ),
    ScriptedPolicy(
        "junk_calls",
        "2 searches and 6 for nothing a turn; answers right",
        lambda w: [greps([f"name_{t}_{c}" if c < 2 else f"zq{t}{c}" for c in range(8)]) for t in (0, 1)] + [_right(w)],
        ("few_calls",),
        True,
    ),
    ScriptedPolicy(
        "huge_range", "right files, each from line 1 to its end", lambda w: [*_search(), _huge(w)], ("right",), True
    ),
    ScriptedPolicy(
        "five_spellings",
        "each right file in five spellings",
        lambda w: [*_search(), _right(w, _spellings(w))],
        ("right",),
        True,
    ),
)
