"""Files of commits, read from a repository: what retrievers are trained on."""

from __future__ import annotations

from functools import partial

from codegrep.index.tree import SKIPPED_FOLDERS, SourceFile, is_indexed
from codegrep.issues.git import Repo, blob


def commit_files(repo: Repo, commit: str) -> list[SourceFile]:
    """Return the files of a commit that an index holds.

    Raises:
        GitError: there is no such commit.
    """
    listing: str = repo.git.ls_tree("-r", "-z", "--full-tree", commit)
    files = []
    for entry in listing.split("\0"):
        head, _, path = entry.partition("\t")
        mode, _, name = head.split(" ") if path else ("", "", "")
        skipped = SKIPPED_FOLDERS.intersection(path.split("/")[:-1])
        if mode in ("100644", "100755") and not skipped and is_indexed(path):
            files.append(SourceFile(path, name, partial(blob, repo, name)))
    return files
