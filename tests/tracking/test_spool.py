"""The file of unsent entries."""

from __future__ import annotations

import subprocess
import sys

from codegrep.tracking.spool import Entry, Spool


def _all(spool):
    taken = []
    for path, entries in spool.take():
        taken += entries
        path.unlink()
    return taken


def test_entries_come_back_once_and_in_order(tmp_path):
    spool = Spool(tmp_path / "new", "r1")
    assert not spool.waiting()
    entries = [Entry("metrics", {"rows": [["a", 0.1, 1, step]]}) for step in range(5)]
    for entry in entries:
        spool.keep(entry)
    assert spool.waiting()
    assert _all(spool) == entries
    assert _all(spool) == []
    assert list((tmp_path / "new").iterdir()) == []


def test_other_runs_are_left_alone(tmp_path):
    Spool(tmp_path, "r1").keep(Entry("tags", {"tags": {}}))
    assert _all(Spool(tmp_path, "r2")) == []
    assert Spool(tmp_path, "r1").waiting()


def test_what_a_dead_process_left_is_found(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from codegrep.tracking.spool import *\n"
        "Spool(Path(sys.argv[1]), 'r1').keep(Entry('tags', {'tags': {'a': 'b'}})); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert _all(Spool(tmp_path, "r1")) == [Entry("tags", {"tags": {"a": "b"}})]


def test_a_sender_that_dies_loses_nothing(tmp_path):
    spool = Spool(tmp_path, "r1")
    spool.keep(Entry("tags", {"tags": {}}))
    next(spool.take())  # claimed, then killed before it was sent
    assert len(_all(Spool(tmp_path, "r1"))) == 1


def test_lines_cut_off_by_a_crash_are_counted(tmp_path):
    spool = Spool(tmp_path, "r1")
    spool.keep(Entry("tags", {"tags": {}}))
    with spool.path.open("ab") as file:
        file.write(b'{"kind": "metr\xff\n[1]\n{"no": "kind"}\n"x"\n')
    assert len(_all(spool)) == 1
    assert spool.unreadable == 4


def test_a_temporary_file_is_moved_to_where_it_can_wait(tmp_path):
    spool = Spool(tmp_path / "spool", "r1")
    temporary = tmp_path / "figure.png"
    temporary.write_bytes(b"png")
    kept = spool.adopt(temporary)
    assert kept.read_bytes() == b"png" and kept.name == "figure.png" and not temporary.exists()
    spool.discard(kept)
    assert list((tmp_path / "spool").iterdir()) == []


_KEEP = (
    "import sys; from pathlib import Path; from codegrep.tracking.spool import *\n"
    "spool = Spool(Path(sys.argv[1]), 'r1')\n"
    "for number in range(5000): spool.keep(Entry('tags', {'tags': {'n': number}}))"
)


def test_what_is_kept_while_another_process_sends_is_not_lost(tmp_path):
    keeper = subprocess.Popen([sys.executable, "-c", _KEEP, str(tmp_path)])
    spool, found = Spool(tmp_path, "r1"), []
    while keeper.poll() is None:
        found += _all(spool)
    found += _all(spool)
    assert sorted(entry.body["tags"]["n"] for entry in found) == list(range(5000))
