"""Local files of unsent entries."""

from __future__ import annotations

import subprocess
import sys

from codegrep.tracking.outbox import Entry, UnsentFiles


def _all(files):
    taken = []
    for path, entries in files.take():
        taken += entries
        path.unlink()
    return taken


def test_entries_come_back_once_and_in_order(tmp_path):
    files = UnsentFiles(tmp_path / "new", "r1")
    entries = [Entry("metrics", {"rows": [["a", 0.1, 1, step]]}) for step in range(5)]
    for entry in entries:
        files.keep(entry)
    assert _all(files) == entries
    assert _all(files) == []
    assert list((tmp_path / "new").iterdir()) == []


def test_other_runs_are_left_alone(tmp_path):
    UnsentFiles(tmp_path, "r1").keep(Entry("tags", {"tags": {}}))
    assert _all(UnsentFiles(tmp_path, "r2")) == []
    assert len(_all(UnsentFiles(tmp_path, "r1"))) == 1


def test_what_a_dead_process_left_is_found(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from codegrep.tracking.outbox import *\n"
        "UnsentFiles(Path(sys.argv[1]), 'r1').keep(Entry('tags', {'tags': {'a': 'b'}})); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert _all(UnsentFiles(tmp_path, "r1")) == [Entry("tags", {"tags": {"a": "b"}})]


def test_a_sender_that_dies_loses_nothing(tmp_path):
    files = UnsentFiles(tmp_path, "r1")
    files.keep(Entry("tags", {"tags": {}}))
    next(files.take())  # claimed, then killed before it was sent
    assert len(_all(UnsentFiles(tmp_path, "r1"))) == 1


def test_lines_cut_off_by_a_crash_are_counted(tmp_path):
    files = UnsentFiles(tmp_path, "r1")
    files.keep(Entry("tags", {"tags": {}}))
    with files.path.open("ab") as file:
        file.write(b'{"kind": "metr\xff\n[1]\n{"no": "kind"}\n"x"\n')
    assert len(_all(files)) == 1
    assert files.unreadable == 4


def test_a_temporary_file_is_moved_to_where_it_can_wait(tmp_path):
    files = UnsentFiles(tmp_path / "outbox", "r1")
    temporary = tmp_path / "figure.png"
    temporary.write_bytes(b"png")
    kept = files.adopt(temporary)
    assert kept.read_bytes() == b"png" and kept.name == "figure.png" and not temporary.exists()
    files.discard(kept)
    assert list((tmp_path / "outbox").iterdir()) == []


_KEEP = (
    "import sys; from pathlib import Path; from codegrep.tracking.outbox import *\n"
    "files = UnsentFiles(Path(sys.argv[1]), 'r1')\n"
    "for number in range(5000): files.keep(Entry('tags', {'tags': {'n': number}}))"
)


def test_what_is_kept_while_another_process_sends_is_not_lost(tmp_path):
    keeper = subprocess.Popen([sys.executable, "-c", _KEEP, str(tmp_path)])
    files, found = UnsentFiles(tmp_path, "r1"), []
    while keeper.poll() is None:
        found += _all(files)
    found += _all(files)
    assert sorted(entry.body["tags"]["n"] for entry in found) == list(range(5000))
