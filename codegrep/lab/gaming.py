"""The gaming suite: scripted policies under every design, ranked by reward and by update.

The update is the final advantage in a group that holds one rollout of every policy, after normalisation, factor and
masks. A finding is a gaming policy above an honest one that it must not beat, in either ranking, on any issue; for
policies that are right on some issues by luck, in the mean.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from codegrep.errors import DataError
from codegrep.issues.issue import Entity, Issue, LineRange
from codegrep.lab.designs import Design
from codegrep.lab.policies import GAMING, HONEST, ScriptedPolicy
from codegrep.lab.scripted import World, record
from codegrep.metrics.scores import ROUNDING
from codegrep.rewards.signal import batch_advantages, score_rollout
from codegrep.rollout.outcome import conduct_of, outcome_of
from codegrep.rollout.record import Rollout

Ranking = Literal["reward", "update"]
Floats = NDArray[np.float64]
MAX_WORLDS = 200
NAMING = ("none named", "one named", "a wrong one named", "one and a wrong one named")
_PATH = re.compile(r"(?<![\w/.-])(?:[\w.-]+/)+[\w-]+\.\w{1,4}\b")


@dataclass(frozen=True)
class Finding:
    """A gaming policy above an honest one.

    Attributes:
        gaming, honest: means over the issues.
        world: the issue on which the difference is largest.
        gaming_there, honest_there: on that issue.
    """

    design: str
    policy: str
    rival: str
    ranking: Ranking
    gaming: float
    honest: float
    world: str
    gaming_there: float
    honest_there: float


@dataclass(frozen=True)
class Played:
    """The result of all designs on all policies.

    Attributes:
        designs: names, in order.
        rewards: design -> policy -> mean over the issues.
        findings: worst first within a design.
        ties: (design, policy) where the policy earns exactly as much as an honest one with a good answer.
        worlds: number of issues.
    """

    designs: tuple[str, ...]
    rewards: dict[str, dict[str, float]]
    findings: tuple[Finding, ...]
    ties: frozenset[tuple[str, str]]
    worlds: int


def play(designs: Sequence[Design], worlds: Sequence[World] | None = None) -> Played:
    """Run every policy on every issue under every design. worlds: None takes the built-in ones.

    Raises:
        DataError: there are no issues.
    """
    places = list(worlds if worlds is not None else built_in_worlds())
    if not places:
        raise DataError("no issue can be played", "Give issues of a repository with a dozen gold files or more")
    names = [policy.name for policy in (*HONEST, *GAMING)]
    rollouts = [[record(world, policy.turns(world)) for policy in (*HONEST, *GAMING)] for world in places]
    rewards: dict[str, dict[str, float]] = {}
    findings: list[Finding] = []
    ties: set[tuple[str, str]] = set()
    for design in designs:
        scored = [_score(design, world, row) for world, row in zip(places, rollouts, strict=True)]
        by_reward, by_update = np.array(scored).swapaxes(0, 1)  # each (issues, policies)
        tables: tuple[tuple[Ranking, Floats], ...] = (("reward", by_reward), ("update", by_update))
        rewards[design.name] = dict(zip(names, by_reward.mean(axis=0).tolist(), strict=True))
        of_design = [
            finding
            for policy in GAMING
            for rival in policy.rivals
            for ranking, table in tables
            if (finding := _compare(design.name, policy, rival, ranking, table, names, places))
        ]
        findings += sorted(of_design, key=lambda finding: finding.honest_there - finding.gaming_there)
        flagged = {finding.policy for finding in of_design}
        ties |= {(design.name, p.name) for p in GAMING if p.name not in flagged and _ties(p, by_reward, names)}
    return Played(tuple(d.name for d in designs), rewards, tuple(findings), frozenset(ties), len(places))


def built_in_worlds() -> list[World]:
    """Return twelve issues of a repository of 60 files: 1, 2 or 3 gold files, named by the text as in NAMING."""
    files = tuple(f"pkg{i // 10}/module_{i:02d}.py" for i in range(60))
    worlds = []
    for number in range(12):
        count, naming = 1 + number % 3, number % 4
        gold = tuple(files[(7 * number + 11 * place + 3) % 60] for place in range(count))
        ranges = [LineRange(path, 10 + 5 * place, 14 + 5 * place) for place, path in enumerate(gold)]
        ranges.append(LineRange(gold[0], 90, 91))
        entities = [e for p in gold for e in (Entity(p, "Model", "class"), Entity(p, "Model.save", "function"))]
        others = [path for path in files if path not in gold]
        mentioned = {0: (), 1: (gold[0],), 2: (others[5],), 3: (gold[0], others[5])}[naming]
        worlds.append(
            World(
                f"{count} gold, {NAMING[naming]}",
                files,
                gold,
                tuple(ranges),
                tuple(entities),
                mentioned,
                most_edited=gold[0] if number % 4 == 0 else others[0],
            )
        )
    return worlds


def worlds_of(issues: Sequence[Issue]) -> list[World]:
    """Return worlds of real issues: a repository's files are the gold files of its issues, the most edited one first.

    Issues of repositories with fewer than 12 such files are left out; at most MAX_WORLDS are taken, evenly.
    """
    by_repo: dict[str, list[Issue]] = defaultdict(list)
    for issue in issues:
        if issue.gold_files:
            by_repo[issue.repo].append(issue)
    worlds = []
    for members in by_repo.values():
        counts = Counter(path for issue in members for path in issue.gold_files)
        if len(counts) < 12:
            continue
        files = tuple(sorted(counts))
        for issue in members:
            mentioned = tuple(dict.fromkeys(_PATH.findall(issue.problem_statement)))
            worlds.append(
                World(
                    issue.instance_id,
                    files,
                    issue.gold_files,
                    issue.gold_ranges,
                    issue.gold_entities,
                    mentioned,
                    most_edited=counts.most_common(1)[0][0],
                )
            )
    usable = [w for w in worlds if set(w.files) - {*w.gold, *w.mentioned, w.most_edited}]
    return usable[:: max(1, -(-len(usable) // MAX_WORLDS))]


def _score(design: Design, world: World, rollouts: Sequence[Rollout]) -> tuple[list[float], list[float]]:
    """Return reward and final advantage of every policy, in one group."""
    scores = [
        score_rollout(
            outcome_of(rollout, gold_ranges=world.gold_ranges, gold_entities=world.gold_entities),
            conduct_of(rollout),
            design.signal,
        )
        for rollout in rollouts
    ]
    batch = batch_advantages(scores, np.zeros(len(scores), dtype=np.intp), design.signal)
    kept = np.array([score.decision.handling != "full_mask" for score in scores])
    return np.nan_to_num(batch.rewards).tolist(), (np.where(kept, batch.advantages, 0.0) + 0.0).tolist()


def _compare(
    design: str,
    policy: ScriptedPolicy,
    rival: str,
    ranking: Ranking,
    table: Floats,
    names: Sequence[str],
    worlds: Sequence[World],
) -> Finding | None:
    gaming, honest = table[:, names.index(policy.name)], table[:, names.index(rival)]
    ahead = float((gaming - honest).mean() if policy.by_chance else (gaming - honest).max())
    if ahead <= ROUNDING:
        return None
    worst = int(np.argmax(gaming - honest))
    return Finding(
        design,
        policy.name,
        rival,
        ranking,
        float(gaming.mean()),
        float(honest.mean()),
        worlds[worst].name,
        float(gaming[worst]),
        float(honest[worst]),
    )


def _ties(policy: ScriptedPolicy, table: Floats, names: Sequence[str]) -> bool:
    own = table[:, names.index(policy.name)]
    good = [table[:, names.index(rival)] for rival in policy.rivals if rival != "miss"]
    if policy.same_answer or policy.by_chance:
        return any(np.allclose(own, other, atol=ROUNDING) for other in good)
    return any(bool((np.abs(own - other) <= ROUNDING).any()) for other in good)
