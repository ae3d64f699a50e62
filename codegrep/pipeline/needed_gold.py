"""Gold lines and entities that a reward scores have to be there, or its term is a constant that nobody asked for."""

from __future__ import annotations

from collections.abc import Sequence

from codegrep.config import Config
from codegrep.errors import DataError
from codegrep.issues import Issue
from codegrep.rewards.load import load_reward
from codegrep.rewards.needs import needs


def check(config: Config, training: Sequence[Issue]) -> None:
    """Refuse to train where more than data.max_missing_gold of the training issues lack what the reward scores.

    Without gold lines F_line is 1 for an answer without lines, so that the empty answer earns half of the reward of v1,
    v2 and swe_grep; without known entities their terms are 0. Nothing is asked of a run that does not train.

    Raises:
        DataError: names the reward, how many issues lack what, and the key.
    """
    if not (training and config.train.grpo.enabled and "train" in config.stages):
        return
    wanted = needs(load_reward(config.reward))
    for need, what, missing in (
        ("line_ranges", "line ranges, and {} have no gold lines", [not i.gold_ranges for i in training]),
        (
            "entities",
            "classes and functions, and {} have no gold entities",
            [i.gold_entities is None for i in training],
        ),
    ):
        count = sum(missing)
        if need in wanted and count / len(training) > config.data.max_missing_gold:
            raise DataError(
                f"reward={config.reward.name} scores " + what.format(f"{count} of {len(training)} training issues"),
                f"{_fix(config, need)}, or data.max_missing_gold=1 to train all the same",
            )


def _fix(config: Config, need: str) -> str:
    if need == "entities" and not config.data.gold_entities:
        return "Set data.gold_entities=true"
    off = [name for name, source in config.data.sources.items() if source.args.get("gold_ranges") is False]
    if off:
        return f"Set data.sources.{off[0]}.args.gold_ranges=true"
    return "Use issues with a gold patch" + (" of Python files" if need == "entities" else "")
