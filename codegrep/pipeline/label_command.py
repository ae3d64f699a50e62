"""`python -m codegrep label`: the stage alone. `python -m codegrep label_audit`: a judge against a checked sheet."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codegrep.errors import DataError

_YES, _NO = frozenset({"relevant", "yes", "y", "1", "true"}), frozenset({"not_relevant", "no", "n", "0", "false"})


def label(argv: list[str]) -> int:
    """Mine target files from trajectories, judge, weight, join the gold patches; write samples and a data card."""
    parser = argparse.ArgumentParser(
        prog="python -m codegrep label",
        description="Mine target files from agent trajectories (CATM): samples as Parquet, and a data card. An "
        "interrupted run continues with the same command.",
        epilog="Anything else in KEY=VALUE form overrides the configuration, for example judge=llm "
        "judge.params.model=NAME labels.with_thought=true (see conf/labels and conf/judge).",
    )
    parser.add_argument("trajectories", nargs="+", help="files or folders: Parquet, JSONL, JSON, .traj; then overrides")
    parser.add_argument("--instances", action="append", default=[], help="SWE-bench-like file with the gold patches")
    parser.add_argument("--outputs", default="outputs", help="everything is written under this folder")
    parser.add_argument("--tokenizer", help="words, or a folder with tokenizer.json; default: the policy model's")
    given, rest = parser.parse_known_args(argv)
    words = [*given.trajectories, *rest]
    overrides = [word for word in words if "=" in word and not Path(word).exists()]
    trajectories = [word for word in words if word not in overrides]
    unknown = [word for word in trajectories if word.startswith("-")]
    if unknown:
        parser.error(f"unknown option {unknown[0]}")
    if not trajectories:
        parser.error("name at least one file or folder of trajectories")
    if not given.instances:
        parser.error("give --instances, a file with instance_id, base_commit and patch")

    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    from codegrep.cluster.hydra_settings import refuse_in_command
    from codegrep.compose import CONF, load

    refuse_in_command(overrides)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", overrides=["labels=catm", "labels.trajectories=[]", "name=label", *overrides])
    OmegaConf.set_struct(cfg, False)
    cfg.labels.trajectories = trajectories
    cfg.labels.instances = given.instances
    cfg.outputs = given.outputs
    cfg.stages = ["label"]
    if given.tokenizer:
        cfg.labels.tokenizer = given.tokenizer
    config = load(cfg)
    from codegrep.pipeline.run import run_experiment  # heavy

    run_experiment(config)
    return 0


def audit(argv: list[str]) -> int:
    """Read a spot-check sheet with a person's verdicts in its column `human`, and say how far the judge is right."""
    parser = argparse.ArgumentParser(
        prog="python -m codegrep label_audit",
        description="Agreement of a judge with a spot-check sheet whose column `human` says RELEVANT or NOT_RELEVANT: "
        "Cohen's kappa with its interval, and the corrected share of relevant files (Rogan-Gladen).",
    )
    parser.add_argument("sheet", help="spot_check.csv, filled in")
    sheet = Path(parser.parse_args(argv).sheet)
    for line in audited(_checked_rows(sheet), str(sheet)):
        print(line)
    return 0


def _checked_rows(sheet: Path) -> list[dict[str, Any]]:
    try:
        with sheet.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"cannot read {sheet}: {error}", "Give a spot-check sheet of the stage label") from None


def audited(rows: Sequence[Mapping[str, Any]], name: str = "the sheet") -> list[str]:
    """Lines for people.

    Raises:
        DataError: no row has both verdicts, or a verdict is unreadable.
    """
    from codegrep.labels.agreement import agreement, rogan_gladen

    uniform: list[tuple[bool, bool]] = []
    rejected: list[bool] = []
    for number, row in enumerate(rows, start=2):
        human, judge = _verdict(row.get("human"), number), _verdict(row.get("verdict"), number)
        if human is None or judge is None:
            continue
        if row.get("drawn") == "rejected":
            rejected.append(human)
        else:
            uniform.append((judge, human))
    if not uniform:
        raise DataError(
            f"no row of {name} has a verdict of a person", "Fill the column human: RELEVANT or NOT_RELEVANT"
        )
    judges, humans = [j for j, _ in uniform], [h for _, h in uniform]
    found = agreement(judges, humans)
    kappa = found.kappa
    lines = [
        f"{found.items} candidates drawn uniformly: equal on {found.both + found.neither} "
        f"({100 * found.observed.estimate:.0f} % [{100 * found.observed.low:.0f}, {100 * found.observed.high:.0f}])",
        f"  both relevant {found.both}, only the judge {found.first_only}, only the person {found.second_only}, "
        f"neither {found.neither}",
        "  Cohen's kappa "
        + ("cannot be told (one answer only)" if math.isnan(kappa.estimate) else f"{kappa.estimate:.2f} ")
        + ("" if math.isnan(kappa.estimate) else f"[{kappa.low:.2f}, {kappa.high:.2f}]"),
    ]
    try:
        share = sum(judges) / len(judges)
        corrected = rogan_gladen(share, judges, humans)
    except ValueError as error:
        lines.append(f"  Rogan-Gladen: not possible ({error})")
    else:
        sens, spec = corrected.sensitivity, corrected.specificity
        lines.append(
            f"  sensitivity {sens.estimate:.2f} [{sens.low:.2f}, {sens.high:.2f}], specificity {spec.estimate:.2f} "
            f"[{spec.low:.2f}, {spec.high:.2f}]; share relevant {share:.2f} as judged, "
            + ("no better than chance, so it cannot be corrected" if math.isnan(corrected.true) else "")
            + ("" if math.isnan(corrected.true) else f"{corrected.true:.2f} corrected")
        )
    if rejected:
        lines.append(
            f"{len(rejected)} further candidates that the judge rejected: {sum(rejected)} are relevant after all"
        )
    return lines


def _verdict(value: object, number: int) -> bool | None:
    text = str(value or "").strip().lower().replace(" ", "_")
    if not text:
        return None
    if text in _YES:
        return True
    if text in _NO:
        return False
    raise DataError(f"row {number} has the verdict {str(value)[:40]!r}", "Use RELEVANT or NOT_RELEVANT")
