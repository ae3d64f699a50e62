"""Rows of a data set: JSON Lines, JSON, Parquet (a file or a folder), or a hub id; a bad line spoils nothing else."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codegrep.errors import DataError

Row = dict[str, Any]
#: A row with the place it stands at, or the place and what is wrong there.
Located = tuple[str, Row | str]

_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*")
_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".json", ".json.gz", ".parquet")


def read_rows(path: str, split: str | None) -> Iterator[Located]:
    """All rows of `path`.

    Args:
        path: a file, a folder of files (those whose names begin with `split`, when given), or a hub id "owner/name".
        split: split of a hub data set; in a local file the rows whose `split` or `source_splits` field says so.

    Raises:
        DataError: nothing is there, or the file as a whole cannot be read.
    """
    local = Path(path).expanduser()
    if local.is_dir():
        files = sorted(file for file in local.rglob("*") if file.is_file() and file.name.endswith(_ENDINGS))
        if split is not None:
            files = [file for file in files if re.match(rf"{re.escape(split)}(?![A-Za-z0-9])", file.name)]
        if not files:
            of_split = f" of split {split!r}" if split else ""
            raise DataError(f"no data file{of_split} in {local}", f"Expected files ending in {', '.join(_ENDINGS)}")
        for file in files:
            yield from _file_rows(file)
    elif local.is_file():
        rows = _file_rows(local)
        yield from rows if split is None else _only_split(rows, split, local)
    else:
        check_place(path)
        yield from _hub_rows(path, split)


def check_place(path: str) -> None:
    """Refuse a path that `read_rows` would not find; a hub id is taken as it is.

    Raises:
        DataError: it is no file, folder or hub id.
    """
    local = Path(path).expanduser()
    if not (local.exists() or (_HUB_ID.fullmatch(path) and not path.endswith(_ENDINGS))):
        raise DataError(
            f"issues file not found: {local.absolute()}", "Give a JSONL, JSON or Parquet file, or a hub id owner/name"
        )


def _file_rows(path: Path) -> Iterator[Located]:
    name = path.name
    try:
        if name.endswith(".parquet"):
            yield from _parquet_rows(path)
        elif name.endswith((".json", ".json.gz")):
            yield from _json_rows(path)
        else:
            yield from _jsonl_rows(path)
    except (OSError, EOFError) as error:  # also a broken gzip stream
        raise DataError(f"cannot read {path}: {error}") from error


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb")


def _decoded(where: str, text: bytes) -> Located:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return where, f"broken JSON: {error}"
    return where, value if isinstance(value, dict) else f"expected a JSON object, got {type(value).__name__}"


def _jsonl_rows(path: Path) -> Iterator[Located]:
    with _open(path) as stream:
        for number, line in enumerate(stream, start=1):
            text = line.removeprefix(b"\xef\xbb\xbf").strip() if number == 1 else line.strip()
            if text:
                yield _decoded(f"{path.name} line {number}", text)


def _json_rows(path: Path) -> Iterator[Located]:
    with _open(path) as stream:
        text = stream.read()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if "Extra data" in str(error):  # JSON Lines under the wrong ending
            yield from _jsonl_rows(path)
            return
        raise DataError(f"{path} is no JSON: {error}") from error
    if isinstance(value, dict) and isinstance(value.get("data"), list):
        value = value["data"]
    elif isinstance(value, dict) and value and all(isinstance(row, dict) for row in value.values()):
        value = list(value.values())  # {instance_id: row}
    elif isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise DataError(f"{path} holds no list of rows")
    for number, row in enumerate(value, start=1):
        where = f"{path.name} row {number}"
        yield where, row if isinstance(row, dict) else f"expected a JSON object, got {type(row).__name__}"


def _parquet_rows(path: Path) -> Iterator[Located]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"reading {path} needs pyarrow", "Run pip install pyarrow, or give a JSONL file") from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path.name} row {number}", row
    except pyarrow.ArrowException as error:
        raise DataError(f"cannot read {path} after row {number}: {error}") from error


def _only_split(rows: Iterator[Located], split: str, path: Path) -> Iterator[Located]:
    labels: set[str] = set()
    chosen = False
    for where, row in rows:
        if isinstance(row, str):
            yield where, row
            continue
        named = row.get("source_splits", row.get("split"))
        of_row = (
            {str(label) for label in named}
            if isinstance(named, list)
            else ({named} if isinstance(named, str) else set())
        )
        labels |= of_row
        if split in of_row:
            chosen = True
            yield where, row
    if not chosen:
        known = f"Known: {', '.join(sorted(labels))}" if labels else "Its rows name no split; leave split empty"
        raise DataError(f"no row of split {split!r} in {path}", known)


def _hub_rows(path: str, split: str | None) -> Iterator[Located]:
    try:
        from datasets import load_dataset  # slow to import, and only needed here
    except ImportError:
        raise DataError(
            f"{path} is no local file, and hub ids need the package datasets", "Run pip install datasets"
        ) from None
    try:
        loaded = load_dataset(path, split=split)
    except Exception as error:  # every hub and network error: the user needs one line, whatever its class
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"{path} is no local file and could not be loaded from the hub: {reason[:300]}",
            "Check the id, the split and the network, or give the path of a downloaded file",
        ) from error
    tables = loaded.items() if isinstance(loaded, dict) else [(split or "", loaded)]
    for name, table in tables:
        for number, row in enumerate(table, start=1):
            yield f"{path} {name} row {number}", dict(row)
