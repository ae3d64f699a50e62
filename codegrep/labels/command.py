"""`python -m codegrep label`: the stage alone. `python -m codegrep label_audit`: a judge against a checked sheet."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegrep.errors import ConfigError, DataError

if TYPE_CHECKING:
    from codegrep.config import Config

# Columns of a sheet that figures are made of.
_NEEDED = ("drawn", "verdict", "human")
_YES, _NO = frozenset({"relevant", "yes", "y", "1", "true"}), frozenset({"not_relevant", "no", "n", "0", "false"})


# Keys that options of `label` set too.
_OPTIONS = {"labels.instances": "instances", "outputs": "outputs", "labels.tokenizer": "tokenizer"}


def label(argv: list[str]) -> int:
    """Mine target files from trajectories, judge, weight, join the gold patches; write samples and a data card."""
    config = configuration(argv)
    from codegrep.pipeline.run import run_experiment  # heavy

    run_experiment(config)
    return 0


def configuration(argv: list[str]) -> Config:
    """Return what the command line asks for.

    Raises:
        ConfigError: a word cannot be honoured.
    """
    parser = argparse.ArgumentParser(
        prog="python -m codegrep label",
        description="Mine target files from agent trajectories (CATM): samples as Parquet, and a data card. An "
        "interrupted run continues with the same command.",
        epilog="Anything else in KEY=VALUE form overrides the configuration, for example judge=llm "
        "judge.params.model=NAME labels.with_thought=true (see conf/labels and conf/judge).",
    )
    parser.add_argument("trajectories", nargs="+", help="files or folders: Parquet, JSONL, JSON, .traj; then overrides")
    parser.add_argument("--instances", action="append", help="SWE-bench-like file with the gold patches")
    parser.add_argument("--outputs", help="everything is written under this folder (default: outputs)")
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

    from omegaconf import OmegaConf

    from codegrep.compose import compose_overrides, load
    from codegrep.hydra_settings import refuse_in_command

    refuse_in_command(overrides)
    cfg = compose_overrides(["labels=catm", "labels.trajectories=[]", "name=label", *overrides])
    named = {word.partition("=")[0].lstrip("+") for word in overrides}
    if "labels.trajectories" in named:
        raise ConfigError("labels.trajectories is set beside files that the command names", "Name all files, no key")
    if "stages" in named:
        raise ConfigError("stages is set, but this command runs the stage label alone", "See docs/labels.md for more")
    OmegaConf.set_struct(cfg, False)
    cfg.labels.trajectories, cfg.stages = trajectories, ["label"]
    for key, option in _OPTIONS.items():
        value = getattr(given, option)
        if value is not None and key in named:
            raise ConfigError(f"{key} is set beside --{option}", "Give one of them")
        if value is not None:
            OmegaConf.update(cfg, key, value)
    if not cfg.labels.enabled:
        raise ConfigError("labels.enabled is false, so there is nothing to mine", "Leave it out")
    if not cfg.labels.instances:
        raise ConfigError("no gold patches are named", "Give --instances, a file with instance_id, base_commit, patch")
    return load(cfg)


def audit(argv: list[str]) -> int:
    """Read a spot-check sheet with a person's verdicts in its column `human`, and say how far the judge is right."""
    parser = argparse.ArgumentParser(
        prog="python -m codegrep label_audit",
        description="Agreement of a judge with a spot-check sheet whose column `human` says RELEVANT or NOT_RELEVANT: "
        "Cohen's kappa with its interval, and the corrected share of relevant files (Rogan-Gladen).",
    )
    parser.add_argument("sheet", help="spot_check.csv, filled in")
    parser.add_argument("--summary", help="summary.json of the stage; default: the one beside the sheet")
    given = parser.parse_args(argv)
    from codegrep.labels.data_card import SUMMARY  # draws figures, so it is slow to import

    sheet = Path(given.sheet)
    beside = sheet.with_name(SUMMARY)
    summary = Path(given.summary) if given.summary else beside if beside.is_file() else None
    for line in audited(checked_rows(sheet), str(sheet), _judged(summary) if summary else None):
        print(line)
    return 0


def checked_rows(sheet: Path) -> list[dict[str, Any]]:
    """Rows of a sheet, as a spreadsheet may have saved it: with a byte-order mark, in UTF-16, with semicolons or tabs.

    Raises:
        DataError: the file cannot be read, or lacks a column.
    """
    try:
        raw = sheet.read_bytes()
        text = raw.decode("utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
        head = text.splitlines()[0] if text else ""
        separator = max(",;\t", key=head.count)
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
        missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
        if missing:
            raise DataError(
                f"{sheet} has no column {', '.join(missing)}", "Give a spot-check sheet with its first line, as CSV"
            )
        return list(reader)
    except (OSError, UnicodeError, csv.Error) as error:
        raise DataError(f"cannot read {sheet}: {error}", "Give a spot-check sheet saved as CSV in UTF-8") from None


def _judged(summary: Path) -> tuple[int, int]:
    """Files that the judge called relevant, and files that it judged, over the whole set."""
    try:
        counts = json.loads(summary.read_text(encoding="utf-8-sig"))
        relevant, judged = int(counts["relevant"]), int(counts["relevant"]) + int(counts["not_relevant"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{summary} has no counts of judged files ({type(error).__name__})", "Give the stage's summary.json"
        ) from None
    return relevant, judged


def audited(
    rows: Sequence[Mapping[str, Any]], name: str = "the sheet", judged: tuple[int, int] | None = None
) -> list[str]:
    """Lines for people.

    Args:
        judged: files that the judge called relevant and files that it judged, over the whole set. None: not known.

    Raises:
        DataError: no row has both verdicts, or a verdict or a draw is unreadable.
    """
    from codegrep.labels.agreement import agreement

    uniform: list[tuple[bool, bool]] = []
    rejected: list[bool] = []
    for number, row in enumerate(rows, start=2):
        human, judge = _verdict(row.get("human"), number), _verdict(row.get("verdict"), number)
        if human is None or judge is None:
            continue
        drawn = str(row.get("drawn") or "").strip()
        if drawn not in ("uniform", "rejected"):
            raise DataError(f"row {number} is drawn as {drawn[:40]!r}", "Leave the column drawn as it was written")
        if drawn == "rejected":
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
    lines.append(_corrected(judges, humans, judged))
    if rejected:
        lines.append(
            f"{len(rejected)} further candidates that the judge rejected: {sum(rejected)} are relevant after all"
        )
    return lines


def _corrected(judges: Sequence[bool], humans: Sequence[bool], judged: tuple[int, int] | None) -> str:
    """Return the line on the judge's errors, and on the share of the whole set that is corrected for them.

    The share of the sample alone would come out as the person's share of it, whatever the judge does.
    """
    from codegrep.labels.agreement import rogan_gladen

    relevant, total = judged or (0, 0)
    try:
        found = rogan_gladen(relevant / total if total else math.nan, judges, humans)
    except ValueError as error:
        return f"  Rogan-Gladen: not possible ({error})"
    sens, spec = found.sensitivity, found.specificity
    line = (
        f"  sensitivity {sens.estimate:.2f} [{sens.low:.2f}, {sens.high:.2f}], specificity {spec.estimate:.2f} "
        f"[{spec.low:.2f}, {spec.high:.2f}]; "
    )
    if not total:
        return line + "the share of the whole set is not known (no summary.json beside the sheet; give --summary)"
    line += f"share relevant {found.observed:.2f} as judged over {total:,} files, "
    if math.isnan(found.true):
        return line + "no better than chance, so it cannot be corrected"
    return line + f"{found.true:.2f} corrected"


def _verdict(value: object, number: int) -> bool | None:
    text = str(value or "").strip().lower().replace(" ", "_")
    if not text:
        return None
    if text in _YES:
        return True
    if text in _NO:
        return False
    raise DataError(f"row {number} has the verdict {str(value)[:40]!r}", "Use RELEVANT or NOT_RELEVANT")
