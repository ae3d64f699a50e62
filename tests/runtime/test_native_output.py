from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from codegrep.runtime.native_output import native_output_to

CODE = """
import logging, os, subprocess, sys, warnings
from pathlib import Path
from codegrep.runtime.native_output import native_output_to

held = {held}
try:
    with native_output_to(Path(sys.argv[1])):
        os.write(2, b"native\\n")
        subprocess.run(["sh", "-c", "echo child >&2"], check=True)
        print("python", file=sys.stderr)
        warnings.warn("TRL supports other versions")
        if held:
            logging.getLogger("kept").addHandler(logging.StreamHandler())
        raise KeyError("inside")
except KeyError:
    pass
logging.getLogger("kept").warning("later")
os.write(2, b"native again\\n")
print("python again", file=sys.stderr)
"""


@pytest.mark.parametrize("held", [True, False])
def test_native_output_goes_to_the_file_and_ours_to_the_terminal(held: bool, tmp_path: Path) -> None:
    log = tmp_path / "folder" / "log"
    command = [sys.executable, "-c", CODE.format(held=held), str(log)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stderr == "python\nlater\nnative again\npython again\n"
    native, child, warned, *_ = log.read_text().splitlines()
    assert (native, child) == ("native", "child") and warned.endswith("UserWarning: TRL supports other versions")


def test_nothing_is_changed_where_standard_error_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stderr
    with native_output_to(tmp_path / "log"):
        assert sys.stderr is before
        print("seen", file=sys.stderr)
    assert capsys.readouterr().err == "seen\n"
