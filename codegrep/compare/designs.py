"""Runs that differ only by seed are one design. Pure."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass

from codegrep.compare.runs import LeftOut, RunRecord
from codegrep.config import Config
from codegrep.config.reading import walk
from codegrep.tracking.parameters import as_text

# What does not change a result, by prefix of the parameter's name. The seed is what runs of one design differ in.
_NO_CHOICE = (
    "outputs",
    "stages",
    "cluster.",
    "sandbox.",
    "tracking.",
    "scale.",
    "name",
    "train.max_failures",
    "evaluate.bootstrap",
    "evaluate.batch",
    "evaluate.actors",
    "evaluate.models",
    "evaluate.retrievers",
    "retrievers.",
    "data.max_missing_gold",
    "evaluate.latency_issues",
    "evaluate.targets",
)
_SEED = "seed"
_REWARD = ("reward.function", "reward.params")
_LONGEST = 60  # characters of a setting in a label or a table


@dataclass(frozen=True)
class ComparedDesign:
    """Runs with the same configuration but for the seed.

    Attributes:
        label: unique among the compared designs.
        runs: one a seed, ordered by seed.
        settings: the parameters in which the compared designs differ, and this design's values ("" where it has none).
        reward: identity of the reward's definition: curves of reward share an axis only where it is the same.
        reward_label: its name, for people.
    """

    label: str
    runs: tuple[RunRecord, ...]
    settings: Mapping[str, str]
    reward: str
    reward_label: str

    @property
    def seeds(self) -> tuple[str, ...]:
        """Of its runs."""
        return tuple(run.seed for run in self.runs)


def group(records: Sequence[RunRecord]) -> tuple[list[ComparedDesign], list[LeftOut]]:
    """Designs in order of their labels, and runs that repeat a seed of their design (the latest one stays).

    A run from before there was a setting counts as one with its default: a setting comes with a default that changes
    nothing.
    """
    choices = [_choices(record.params) for record in records]
    keys = sorted({key for choice in choices for key in choice})
    choices = [{key: choice.get(key, default_of(key)) for key in keys} for choice in choices]
    differing = [key for key in keys if len({choice[key] for choice in choices}) > 1]
    members: dict[tuple[str, ...], list[RunRecord]] = {}
    for record, choice in zip(records, choices, strict=True):
        members.setdefault(tuple(choice[key] for key in differing), []).append(record)
    names = {values: _name(runs[0]) for values, runs in members.items()}
    designs, left_out = [], []
    for values, runs in members.items():
        once, repeated = _one_a_seed(runs)
        left_out += repeated
        settings = dict(zip(differing, values, strict=True))
        rivals = [other for other, name in names.items() if name == names[values] and other != values]
        designs.append(
            ComparedDesign(
                label=_label(names[values], settings, [dict(zip(differing, r, strict=True)) for r in rivals]),
                runs=tuple(once),
                settings=settings,
                reward=" ".join(f"{key}={value}" for key, value in sorted(once[0].params.items()) if _is_reward(key)),
                reward_label=once[0].params.get("reward.name", "reward"),
            )
        )
    return sorted(designs, key=lambda design: design.label), left_out


def changes_results(key: str) -> bool:
    """Whether a parameter of this name can change what comes out of a run; the seed can."""
    return not key.startswith(_NO_CHOICE)


@functools.cache
def default_of(key: str) -> str:
    """Return a setting's default as MLflow's parameters show it; "" without one, as for arguments of a reward."""
    for known, (group, name) in walk(Config):
        if known == key:
            field = group.__pydantic_fields__[name]  # type: ignore[attr-defined]
            value = None if field.is_required() else field.get_default(call_default_factory=True)
            return "" if field.is_required() or is_dataclass(value) else as_text(value)
    return ""


def _choices(params: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in params.items() if key != _SEED and changes_results(key)}


def _is_reward(key: str) -> bool:
    return key.startswith(_REWARD)


def _name(record: RunRecord) -> str:
    return record.params.get("name") or record.name.partition("-seed")[0] or "design"


def _label(name: str, settings: Mapping[str, str], rivals: Sequence[Mapping[str, str]]) -> str:
    """Return the run's name; where other designs have it too, with the settings that tell them apart."""
    apart = [key for key, value in settings.items() if any(rival[key] != value for rival in rivals)]
    if not apart:
        return name
    shown = ", ".join(f"{key.rpartition('.')[2]}={shorten(settings[key])}" for key in apart[:3])
    return f"{name} ({shown}{', …' if len(apart) > 3 else ''})"


def _one_a_seed(runs: Sequence[RunRecord]) -> tuple[list[RunRecord], list[LeftOut]]:
    latest: dict[str, RunRecord] = {}
    repeated = []
    for run in runs:  # in the order in which they started
        if run.seed in latest:
            old = latest[run.seed]
            repeated.append(LeftOut(old.name, old.run_id, f"seed {run.seed} was run again later ({run.run_id[:8]})"))
        latest[run.seed] = run
    return sorted(latest.values(), key=lambda run: (len(run.seed), run.seed)), repeated


def shorten(value: str) -> str:
    """Return a setting's value, cut where it is long."""
    return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"
