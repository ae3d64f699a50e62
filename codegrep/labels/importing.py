"""Files of trajectories of any known kind, as Parquet files in the common form. Those that are in it already stay."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from codegrep.errors import DataError
from codegrep.issues.rows import Located, read_rows
from codegrep.labels.adapters import ADAPTERS, AUTO, AdapterError, convert
from codegrep.labels.shards import is_common
from codegrep.labels.trajectory import SCHEMA, Trajectory, to_arrow

ENDINGS = (".parquet", ".jsonl", ".jsonl.gz", ".ndjson", ".json", ".json.gz", ".traj")
_GROUP_BYTES = 64 * 2**20  # text of a row group
#: Raised when the same file would be converted differently.
_VERSION = 2


def trajectory_files(paths: Sequence[str]) -> list[Path]:
    """All files of trajectories below some paths, each folder's in the order of their names.

    Raises:
        DataError: a path is not there, or holds no such file.
    """
    found: list[Path] = []
    for path in paths:
        local = Path(path).expanduser()
        if local.is_file():
            found.append(local)
            continue
        if not local.is_dir():
            raise DataError(f"no trajectories at {local.absolute()}", "Set labels.trajectories to files or folders")
        inside = sorted(file for file in local.rglob("*") if file.is_file() and file.name.endswith(ENDINGS))
        if not inside:
            raise DataError(f"no file of trajectories in {local}", f"Known endings: {', '.join(ENDINGS)}")
        found += inside
    if not found:
        raise DataError("labels.trajectories is empty", "Name at least one file or folder of trajectories")
    return list(dict.fromkeys(found))


def imported(
    path: Path, content: str, folder: Path, form: str, told: Callable[[int], None]
) -> tuple[Path, list[dict[str, str]]]:
    """Return a Parquet file in the common form with the trajectories of `path`, made now if it is not there.

    Args:
        content: SHA-256 of the file; names the copy.
        folder: for the copy. form: key of ADAPTERS, or AUTO.
        told: is called with the number of rows done so far.

    Returns:
        The file, and the rows that were quarantined: where and reason.

    Raises:
        DataError: the file as a whole cannot be read.
    """
    if form != AUTO and form not in ADAPTERS:
        raise DataError(f"labels.format is {form!r}", f"Known: {AUTO}, {', '.join(ADAPTERS)}")
    if path.name.endswith(".parquet") and form in (AUTO, "nebius") and _common_file(path):
        return path, []
    made = folder / f"{content[:16]}-{form}-{_VERSION}.parquet"
    beside = made.with_suffix(".json")
    if made.is_file() and beside.is_file():
        return made, list(json.loads(beside.read_text(encoding="utf-8")))
    folder.mkdir(parents=True, exist_ok=True)
    partial = made.with_name(f".{made.name}.{os.getpid()}")
    bad: list[dict[str, str]] = []
    try:
        with parquet.ParquetWriter(partial, SCHEMA, compression="zstd", use_dictionary=["repo", "instance_id"]) as out:
            for group in _groups(path, form, bad, told):
                out.write_table(group, row_group_size=max(1, group.num_rows))
        beside.write_text(json.dumps(bad), encoding="utf-8")
        shutil.move(partial, made)
    finally:
        partial.unlink(missing_ok=True)
    return made, bad


def _common_file(path: Path) -> bool:
    try:
        return is_common(parquet.read_schema(path))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {path}: {str(error)[:200]}") from error


def _groups(path: Path, form: str, bad: list[dict[str, str]], told: Callable[[int], None]) -> Iterator[pa.Table]:
    group: list[Trajectory] = []
    size = 0
    for number, (where, row) in enumerate(located_rows(path), start=1):
        told(number)
        if isinstance(row, str):
            bad.append({"where": where, "reason": row})
            continue
        try:
            trajectory = convert(row, path.name.partition(".")[0] + (f"-{number}" if number > 1 else ""), form)
            table = to_arrow([trajectory])  # one by one, so that a value that Arrow refuses is that of its row
        except (AdapterError, pa.ArrowException, UnicodeError, OverflowError) as error:
            bad.append({"where": where, "reason": str(error)[:300]})
            continue
        group.append(trajectory)
        size += table.nbytes
        if size >= _GROUP_BYTES:
            yield to_arrow(group)
            group, size = [], 0
    if group:
        yield to_arrow(group)


def located_rows(path: Path) -> Iterator[Located]:
    """Yield (place, row) of a file of trajectories; in place of a row that cannot be read, the reason as text."""
    if not path.name.endswith(".traj"):
        yield from read_rows(str(path), None)
        return
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        yield path.name, f"broken JSON: {str(error)[:200]}"
        return
    yield path.name, value if isinstance(value, dict) else "expected a JSON object"
