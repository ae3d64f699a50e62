"""Which design is better on what, by how much, how sure that is, and what would settle it: in words. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from codegrep.compare.analysis import STARTS, Analysis, Contrast
from codegrep.compare.measures import MEASURES, PRIMARY, measure
from codegrep.metrics.bootstrap import Interval
from codegrep.metrics.runs import detectable, least_repositories, repositories_needed, runs_needed

ALPHA = 0.05
MARGIN = 0.02  # F0.5; a smaller difference matters to nobody (--margin)
_MOSTLY_DEAD = 0.9  # share of groups without spread beyond which training has next to no gradient
_MANY = 1000  # "about 4,812 runs" is no plan


class Claim(Enum):
    """What may be said about a pair of designs."""

    BETTER = "better"  # a is better than b
    WORSE = "worse"
    ALIKE = "alike"  # the whole interval lies within the margin
    OPEN = "open"
    ONE_RUN = "one run"  # one of the two has a single run: nothing may be said about the design
    UNMOVED = "unmoved"  # both score what the model they started from scores, on every issue


@dataclass(frozen=True)
class PairVerdict:
    """The verdict on one pair of designs.

    Attributes:
        what: the claim on the primary measure, one or two sentences.
        also: other measures on which the two differ for sure.
        settle: what would settle an open question; "" where it is settled.
    """

    a: str
    b: str
    claim: Claim
    what: str
    also: tuple[str, ...]
    settle: str


@dataclass(frozen=True)
class Verdict:
    """The page's answer. headline: one sentence."""

    headline: str
    pairs: tuple[PairVerdict, ...]
    against: tuple[str, ...]


def verdict(analysis: Analysis, margin: float = MARGIN, dead_groups: Mapping[str, float] | None = None) -> Verdict:
    """Put the analysis into words.

    Args:
        analysis: of the runs.
        margin: smallest difference of F0.5 that counts.
        dead_groups: share of the groups whose rollouts all had the same reward, by design, where it was recorded.
    """
    unmoved = _unmoved(analysis)
    dead = dead_groups or {}
    pairs = tuple(
        _pair_that_has_not_moved(contrast.a, contrast.b, min(dead.get(contrast.a, 0.0), dead.get(contrast.b, 0.0)))
        if {contrast.a, contrast.b} <= unmoved
        else _pair(contrast, analysis, margin)
        for contrast in analysis.primary
    )
    against = tuple(_against(contrast) for contrast in analysis.against)
    return Verdict(_headline(analysis, pairs), pairs, against)


def claim_of(contrast: Contrast, margin: float = MARGIN) -> Claim:
    """Return what may be said: a claim needs the corrected p-value and the interval, both."""
    d = contrast.result.difference
    if contrast.p_holm is None:
        return Claim.ONE_RUN
    if contrast.p_holm <= ALPHA and (d.low > 0 or d.high < 0):
        return Claim.BETTER if d.estimate > 0 else Claim.WORSE
    if -margin < d.low and d.high < margin:
        return Claim.ALIKE
    return Claim.OPEN


def _unmoved(analysis: Analysis) -> set[str]:
    """Designs that score exactly what their start scores: equal results of such a training are no result."""
    return {c.a for c in analysis.against if c.b in STARTS and c.result.better == c.result.worse == 0}


def _pair_that_has_not_moved(a: str, b: str, dead: float) -> PairVerdict:
    """dead: share of the groups without spread, of the design that had fewer."""
    what = (
        f"Nothing can be said about {a} and {b}: on every issue both score what the model they started from scores. "
        "They have hardly been trained."
    )
    if dead > _MOSTLY_DEAD:
        settle = (
            f"In {100 * dead:.0f} % of the groups all rollouts had the same reward, so there was no gradient: more "
            "steps or a larger learning rate do not help. Make rewards differ within a group: larger groups, a higher "
            "sampling temperature, issues that the warm start solves sometimes, or a reward with partial credit."
        )
    else:
        settle = "Train for more steps or with a larger learning rate, until KL to the reference rises."
    return PairVerdict(a, b, Claim.UNMOVED, what, (), settle)


def _pair(contrast: Contrast, analysis: Analysis, margin: float) -> PairVerdict:
    a, b, claim = contrast.a, contrast.b, claim_of(contrast, margin)
    d = contrast.result.difference
    counts = _counts(contrast, of_a=True)
    if claim in (Claim.BETTER, Claim.WORSE):
        winner, loser = (a, b) if claim is Claim.BETTER else (b, a)
        size = _turned(d) if claim is Claim.WORSE else d
        what = (
            f"{winner} is better than {loser}: {PRIMARY.label} {_with_interval(size)}, p {_p(contrast.p_holm)} after "
            f"Holm's correction. It holds for other seeds (p {_p(contrast.result.p_runs)}) and for other repositories "
            f"(p {_p(contrast.result.p_issues)}); {_counts(contrast, of_a=winner == a)}."
        )
    elif claim is Claim.ALIKE:
        what = (
            f"{a} and {b} are alike: the difference in {PRIMARY.label} is {_with_interval(d)}, all of it within "
            f"±{margin:g}, the smallest difference that counts here."
        )
    elif claim is Claim.ONE_RUN:
        what = (
            f"No claim about {a} and {b} as designs: {_single(a, b, analysis)}, and one training run does not "
            f"say what another seed would have given. These very adapters differ by {_with_interval(d)} in "
            f"{PRIMARY.label} (p {_p(contrast.result.p_issues)} over repositories; {counts})."
        )
    else:
        lean = a if d.estimate > 0 else b
        leaning = f"it leans to {lean}" if abs(d.estimate) >= 0.0005 else "it leans to neither"
        what = (
            f"Whether {a} or {b} is better is open; {leaning}: the difference {a} − {b} in {PRIMARY.label} is "
            f"{_with_interval(d)}, p {_p(contrast.p_holm)} after Holm's correction ({counts})."
        )
    settled = claim in (Claim.BETTER, Claim.WORSE, Claim.ALIKE)
    return PairVerdict(
        a, b, claim, what, tuple(_also(a, b, analysis)), "" if settled else settle(contrast, analysis, margin)
    )


def settle(contrast: Contrast, analysis: Analysis, margin: float = MARGIN) -> str:
    """Return what would settle an open pair: more seeds, more repositories, or both, with numbers."""
    runs = {line.label: line.runs for line in analysis.designs}
    fewest = min(runs[contrast.a], runs[contrast.b])
    repositories = len(set(analysis.repositories))
    least = least_repositories(ALPHA)
    said = []
    if fewest < 3:
        said.append(f"Train {'both designs' if fewest < 2 else 'each design'} with at least three seeds")
    if repositories < least:
        said.append(
            f"Hold out at least {least} repositories: with {repositories} no result can get below "
            f"p {_p(contrast.result.p_issues_floor)}"
        )
    if said and fewest < 2:
        return ". ".join(said) + "."
    variance = contrast.result.variance
    observed = abs(contrast.result.difference.estimate)
    seen = observed >= margin
    aim, which = (
        (observed, "as large as the one seen") if seen else (margin, f"of {margin:g}, the smallest that counts,")
    )
    if variance.total <= 0:
        said.append("Every issue came out the same in every run; more of the same data will not change that")
        return ". ".join(said) + "."
    said.append(f"With what is here a true difference of {detectable(variance):.3f} would be found four times in five")
    plan = _plan(contrast, fewest, repositories, aim)
    said.append(
        f"One {which} would take {plan}" if detectable(variance) > aim else "A difference of that size would be seen"
    )
    return ". ".join(said) + "."


def _plan(contrast: Contrast, runs: int, repositories: int, aim: float) -> str:
    variance = contrast.result.variance
    options = []
    more_runs = runs_needed(variance, runs, aim) if variance.runs else math.inf
    if more_runs <= _MANY:
        options.append(f"about {math.ceil(max(more_runs, 3))} seeds a design on these issues")
    more_repositories = repositories_needed(variance, repositories, aim)
    if more_repositories <= _MANY:
        options.append(f"about {math.ceil(more_repositories)} held-out repositories like these with these runs")
    if options:
        return ", or ".join(options)
    factor = (detectable(variance) / aim) ** 2
    main = "repositories" if variance.issues > variance.runs else "seeds"
    return f"about {factor:,.0f} times as many seeds and repositories together; most of the uncertainty is from {main}"


def _also(a: str, b: str, analysis: Analysis) -> list[str]:
    said = []
    for other in MEASURES[1:]:
        contrast = analysis.contrast(a, b, other.column)
        if contrast is None or contrast.p_holm is None or contrast.p_holm > ALPHA:
            continue
        d = contrast.result.difference
        if d.low <= 0 <= d.high:
            continue
        more = a if d.estimate > 0 else b
        first, second = (more, b if more == a else a)
        word = {"higher": "better", "lower": "costlier", "": "more"}[other.better]
        shown = other.text(abs(d.estimate))
        if other.partial:
            shown += f" on {contrast.result.better + contrast.result.equal + contrast.result.worse} issues"
        said.append(f"{other.label}: {first} {'has' if word == 'more' else 'is'} {word} than {second} by {shown}")
    return said


def _against(contrast: Contrast) -> str:
    d = contrast.result.difference
    head = f"{contrast.a} − {contrast.b}: {_with_interval(d)}"
    if contrast.p_holm is None:
        return f"{head}; one run, so this is about that adapter alone (p {_p(contrast.result.p_issues)})"
    sure = contrast.p_holm <= ALPHA and (d.low > 0 or d.high < 0)
    words = ("better" if d.estimate > 0 else "worse") if sure else "not shown to differ"
    return f"{head}, p {_p(contrast.p_holm)}: {words}"


def _headline(analysis: Analysis, pairs: Sequence[PairVerdict]) -> str:
    designs = [line.label for line in analysis.designs]
    if len(designs) < 2:
        line = analysis.designs[0]
        mean = f"{PRIMARY.label} {_plain_interval(line.interval)}"
        return f"One design, {line.label}: {mean}. There is no second design to compare it with."
    better = [
        (p.a, p.b) if p.claim is Claim.BETTER else (p.b, p.a) for p in pairs if p.claim in (Claim.BETTER, Claim.WORSE)
    ]
    if all(pair.claim is Claim.ONE_RUN for pair in pairs):
        return "No claim: one run a design cannot tell a design from its seed. The numbers below are of these adapters."
    best = next((d for d in designs if sum(winner == d for winner, _ in better) == len(designs) - 1), None)
    if best is not None:
        others = [design for design in designs if design != best]
        return f"{best} finds files better than {_list(others)}."
    if better:
        return "; ".join(f"{winner} is better than {loser}" for winner, loser in better) + "; the other pairs are open."
    if all(pair.claim is Claim.UNMOVED for pair in pairs):
        return f"No verdict: {_list(designs)} score what the model they started from scores, on every issue."
    if all(pair.claim is Claim.ALIKE for pair in pairs):
        return f"{_list(designs)} are alike in {PRIMARY.label}, within the margin that counts."
    return f"Not settled: no design can be called better than another in held-out {PRIMARY.label} yet."


def _single(a: str, b: str, analysis: Analysis) -> str:
    single = [line.label for line in analysis.designs if line.label in (a, b) and line.runs == 1]
    return f"{_list(single)} {'have' if len(single) > 1 else 'has'} one run {'each' if len(single) > 1 else 'only'}"


def _counts(contrast: Contrast, of_a: bool) -> str:
    """On how many issues a, or else b, is better."""
    r = contrast.result
    better, worse = (r.better, r.worse) if of_a else (r.worse, r.better)
    return f"better on {better} of {better + r.equal + worse} issues, equal on {r.equal}, worse on {worse}"


def _turned(d: Interval) -> Interval:
    return Interval(-d.estimate, -d.high, -d.low, d.level, d.method)


def _with_interval(d: Interval) -> str:
    text = measure(PRIMARY.column).text
    return f"{text(d.estimate, True)} [{text(d.low, True)}, {text(d.high, True)}]"


def _plain_interval(d: Interval) -> str:
    return f"{d.estimate:.3f} [{d.low:.3f}, {d.high:.3f}]"


def _p(value: float | None) -> str:
    if value is None:
        return "unknown"
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
