"""label_audit: figures of a filled-in sheet against hand-worked values, however a spreadsheet saved it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codegrep.errors import DataError
from codegrep.labels.command import audit, audited, checked_rows

COLUMNS = ("drawn", "path", "verdict", "human", "note")


def sheet_rows(both: int, judge_only: int, person_only: int, neither: int) -> list[tuple[str, ...]]:
    kinds = (("RELEVANT", "RELEVANT"), ("RELEVANT", "NOT_RELEVANT"), ("NOT_RELEVANT", "RELEVANT"))
    counts = (both, judge_only, person_only, neither)
    return [
        ("uniform", "a.py", judge, human, "a; note, with both")
        for (judge, human), count in zip((*kinds, ("NOT_RELEVANT", "NOT_RELEVANT")), counts, strict=True)
        for _ in range(count)
    ]


def write(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "spot_check.csv"
    path.write_bytes(text.encode(encoding))
    return path


def as_csv(rows: list[tuple[str, ...]], separator: str = ",", end: str = "\n") -> str:
    return "".join(separator.join(f'"{value}"' for value in row) + end for row in (COLUMNS, *rows))


def printed(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert audit([str(path)]) == 0
    return capsys.readouterr().out


def test_the_share_of_the_whole_set_is_corrected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Sensitivity 18/20 = 0.9, specificity 16/20 = 0.8; the judge calls 5,200 of 10,000 files of the whole set relevant:
    # (0.52 + 0.8 - 1) / (0.9 + 0.8 - 1) = 0.32 / 0.7 = 0.457. On the sheet alone: (0.55 - 0.2) / 0.7 = 0.5, which is
    # the person's own share of it, 20/40, whatever the judge does.
    path = write(tmp_path, as_csv(sheet_rows(18, 4, 2, 16)))
    (tmp_path / "summary.json").write_text(json.dumps({"relevant": 5200, "not_relevant": 4800}))
    said = printed(path, capsys)
    assert "sensitivity 0.90" in said and "specificity 0.80" in said
    assert "share relevant 0.52 as judged over 10,000 files, 0.46 corrected" in said


def test_without_the_whole_set_nothing_is_corrected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, as_csv(sheet_rows(18, 4, 2, 16)))
    said = printed(path, capsys)
    assert "corrected" not in said and "--summary" in said
    elsewhere = tmp_path / "stage" / "summary.json"
    elsewhere.parent.mkdir()
    elsewhere.write_text(json.dumps({"relevant": 52, "not_relevant": 48}))
    assert audit([str(path), "--summary", str(elsewhere)]) == 0
    assert "0.46 corrected" in capsys.readouterr().out
    elsewhere.write_text("{}")
    with pytest.raises(DataError, match="no counts"):
        audit([str(path), "--summary", str(elsewhere)])


@pytest.mark.parametrize(
    ("encoding", "separator", "end"),
    [
        ("utf-8", ",", "\n"),
        ("utf-8-sig", ",", "\r\n"),
        ("utf-8-sig", ";", "\r\n"),
        ("utf-8", "\t", "\r"),
        ("utf-16", "\t", "\r\n"),
    ],
)
def test_any_spreadsheet_gives_the_same_figures(tmp_path: Path, encoding: str, separator: str, end: str) -> None:
    # A third of the rows was drawn from what the judge rejected: it must not count with the uniform ones.
    rows = [*sheet_rows(6, 0, 0, 6), *[("rejected", "b.py", "NOT_RELEVANT", "RELEVANT", "")] * 5]
    path = write(tmp_path, as_csv(rows, separator, end), encoding)
    lines = audited(checked_rows(path))
    assert lines[0].startswith("12 candidates drawn uniformly: equal on 12")
    assert "Cohen's kappa 1.00" in lines[2]
    assert lines[-1].startswith("5 further candidates")


def test_what_is_missing_is_an_error(tmp_path: Path) -> None:
    rows = as_csv(sheet_rows(3, 1, 1, 3))
    for column in ("drawn", "verdict", "human"):
        path = write(tmp_path, rows.replace(f'"{column}"', '"other"'))
        with pytest.raises(DataError, match=f"no column {column}"):
            checked_rows(path)
    with pytest.raises(DataError, match="no column"):
        checked_rows(write(tmp_path, ""))
    with pytest.raises(DataError, match="cannot read"):
        checked_rows(write(tmp_path, rows.replace("note", "nöte"), "latin-1"))
    path = write(tmp_path, rows.replace('"uniform"', '"unifrom"', 1))
    with pytest.raises(DataError, match="row 2 is drawn as 'unifrom'"):
        audited(checked_rows(path))
