"""A full disk is one line, however deep it lies in the errors of libraries."""

from __future__ import annotations

import errno

import pytest

from codegrep.errors import InfrastructureError, RepositoryError, disk_error


def of_a_library() -> Exception:
    try:
        try:
            raise OSError(errno.ENOSPC, "No space left on device", "/data/outputs/x.json")
        except OSError as error:
            raise RuntimeError("could not save") from error
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.EDQUOT, "Disk quota exceeded", "/home/me/x"), "/home/me/x"),
        (of_a_library(), "/data/outputs/x.json"),
        (RepositoryError("a/b cannot be cloned (git clone: write returned: No space left on device)"), "git clone"),
        (InfrastructureError("MLflow cannot be opened (OperationalError: database or disk is full)"), "MLflow"),
        (RuntimeError("Traceback\n  many lines\nOSError: [Errno 28] No space left on device: 'ckpt'"), "'ckpt'"),
    ],
)
def test_a_full_disk_is_one_line_that_names_where(error: Exception, named: str) -> None:
    full = disk_error(error)
    assert full is not None and named in str(full) and "Free some space" in str(full) and "many lines" not in str(full)


def test_other_errors_are_none() -> None:
    assert disk_error(OSError(errno.ENOENT, "No such file or directory", "x")) is None
    assert disk_error(None) is None
