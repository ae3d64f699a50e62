"""Published answers of other systems as rows of an evaluation."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path

from codegrep.errors import DataError
from codegrep.issues.issue import Issue
from codegrep.issues.jsonl import json_lines
from codegrep.issues.patch import PatchError, parse_patch
from codegrep.issues.paths import is_test_path
from codegrep.retrievers.retriever import Retrieved
from codegrep.runtime.artifacts import file_content


class Predictions:
    """Answers from a JSON Lines file with an `instance_id` in each row; a Retriever for evaluations only.

    An issue without a row counts as not answered. Of several rows of one issue the first counts.

    Args:
        path: the file.
        column: of the answer: a list of paths, or a patch, whose changed files without tests are the answer.
    """

    evaluation_only = True

    def __init__(self, path: str, column: str = "model_patch") -> None:
        self._path = Path(path).expanduser()
        self._column = column

    def identity(self) -> str:
        """Hash of the file."""
        _ = self._answers
        return file_content(self._path)[:16]

    def retrieve(self, issue: Issue, tree: Path) -> Retrieved:
        """Look the issue up. See `Retriever.retrieve`."""
        answer = self._answers.get(issue.instance_id)
        return Retrieved(answer or (), 0.0, {} if answer is not None else {"unanswered": 1.0})

    @cached_property
    def _answers(self) -> dict[str, tuple[str, ...]]:
        answers: dict[str, tuple[str, ...]] = {}
        try:
            for _, line in json_lines(self._path):
                answer = _answer(line, self._column)
                if answer is not None:
                    answers.setdefault(*answer)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"predictions {self._path} cannot be read: {error}", "Check its path") from None
        if not answers:
            raise DataError(
                f"predictions {self._path} have no row with instance_id and {self._column}", "Name the column of files"
            )
        return answers


def _answer(line: str, column: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the issue and the files of a row; None where it has none, or cannot be read."""
    try:
        row = json.loads(line)
        given = row[column] or []
        files = _changed(given) if isinstance(given, str) else given
        return str(row["instance_id"]), tuple(dict.fromkeys(str(path) for path in files))
    except (ValueError, KeyError, TypeError, PatchError):
        return None


def _changed(patch: str) -> list[str]:
    return [path for path in parse_patch(patch).old_files if not is_test_path(path)]
