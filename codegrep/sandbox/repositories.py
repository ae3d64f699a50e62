"""One bare clone per repository (CodeGrep 3.3): made once, checked, and asked for commits."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codegrep.errors import RepositoryError
from codegrep.issues.git import GitError, Limits, clone, open_repository, remote_commit, without_credentials
from codegrep.issues.source import RepositoryLocation
from codegrep.sandbox.locks import FileLock

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"\w[\w./@+-]*")
_PLAIN_REPO = re.compile(r"(?!.*(?:__|\.\.))[A-Za-z0-9][A-Za-z0-9.-]*/[A-Za-z0-9.][A-Za-z0-9._-]*")
_NETWORK = re.compile(r"(?:https?|ssh|git|file)://.+|[\w.-]+@[\w.-]+:(?!/?/).+")
_DESCRIPTION = "codegrep.json"
# Attributes named here win over those of the tree: line endings, filters and encodings leave every file as it is
# stored.
_ATTRIBUTES = "* -text -eol -filter -ident -working-tree-encoding\n"
_ROOTS = "codegrep-roots.json"
_LOST_SHARE = 0.001
_SHORT = 60.0  # seconds for commands that touch no network and no tree


@dataclass(frozen=True)
class BareClone:
    """A usable bare clone. path: its folder, real path."""

    repo: str
    path: Path

    @property
    def lock_path(self) -> Path:
        """The lock between processes for everything that changes the clone or its list of worktrees.

        It follows from the clone's real path alone, so roots that reach one clone by different names share it.
        """
        return self.path.parent / ".locks" / f"{self.path.name}.lock"


class Repositories:
    """The bare clones under one folder; any number of processes may use one folder at the same time.

    A clone from a folder on this machine is git's own local clone, which hard-links the object files: fast, no disk,
    and it stays whole when the source is deleted or repacked. `--shared` would break in both cases, copying costs the
    disk once more. Where the source itself borrows objects, they are copied in (`--dissociate`).

    Args:
        root: folder of the clones, one folder `owner__name` each.
        clone_timeout: seconds for a clone or a fetch (600 in the paper).
        locations: where repositories can be had that `open` does not find; optional.
        stop: once set, clones and fetches that are going on fail at once.
    """

    def __init__(
        self,
        root: Path,
        clone_timeout: float,
        locations: Mapping[str, RepositoryLocation] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.root = root.expanduser().absolute()
        self.clone_timeout = clone_timeout
        self._locations = dict(locations or {})
        self._stop = stop

    def open(self, repo: str) -> BareClone:
        """Return the clone of `repo`, made first if it is missing and its location is known.

        Raises:
            RepositoryError: not there and location unknown, or the clone failed.
        """
        if (location := self._locations.get(repo)) is not None:
            return self.ensure(repo, location)
        path = self._path(repo)
        if not _is_complete(path):
            raise RepositoryError(f"there is no clone of {repo} under {self.root}", "Run the stage 'prepare' first.")
        return self._checked(repo, path)

    def ensure(self, repo: str, location: RepositoryLocation | None) -> BareClone:
        """Return the clone of `repo`, made from `location` if it is missing. Safe to call from many processes at once.

        Without a location it has to be there already. A clone that was made from a folder needs that no more.

        Raises:
            RepositoryError: one line with the reason; nothing half-made is left behind.
        """
        path = self._path(repo)
        if location is None:
            return self.open(repo)
        if location.local is not None and _came_from(path, str(location.local.expanduser().absolute())):
            return self._checked(repo, path)  # also when its source is gone since
        source = _source(repo, location)
        if _came_from(path, source):
            return self._checked(repo, path)
        self.root.mkdir(parents=True, exist_ok=True)
        path = self._path(repo)
        with FileLock(BareClone(repo, path).lock_path, self.clone_timeout + _SHORT, self._stop):
            if not _is_complete(path):
                self._clone(repo, source, path)
            clone = self._checked(repo, path)
            if _description(path).get("source_hash") != _hash(source):
                self._point_at(clone, source)
        return clone

    def commit_time(self, clone: BareClone, commit: str) -> int | None:
        """When a commit was made, seconds since the epoch; None where the clone does not hold it."""
        require_full_hash(clone.repo, commit)
        try:
            with open_repository(clone.path, Limits(_SHORT)) as repo:
                return max(0, int(repo.git.show(f"{commit}^{{commit}}", no_patch=True, format="%ct")))
        except (GitError, ValueError):
            return None

    def roots(self, clone: BareClone) -> tuple[str, ...]:
        """Return the first commits that branches and tags reach, sorted: forks and renamed copies share them.

        The oldest commits of a shallow clone only look like first ones and are left out. The result is kept in the
        clone until a branch or tag changes.

        Raises:
            RepositoryError: git cannot list them.
        """
        kept = clone.path / _ROOTS
        try:
            with open_repository(clone.path, Limits(self.clone_timeout, self._stop)) as repo:
                refs = _hash(repo.git.for_each_ref(format="%(objectname)"))
                known = _json(kept)
                if known.get("refs") == refs:
                    return tuple(known["roots"].split())
                listed = repo.git.rev_list(max_parents=0, all=True).split()
        except GitError as error:
            raise RepositoryError(f"the first commits of {clone.repo} cannot be listed ({error})") from error
        shallow = clone.path / "shallow"
        cut_off = shallow.read_text("ascii").split() if shallow.is_file() else []
        roots = sorted(set(listed) - set(cut_off))
        fresh = kept.with_name(f"{_ROOTS}.{uuid.uuid4().hex[:8]}.new")
        fresh.write_text(json.dumps({"refs": refs, "roots": " ".join(roots)}), "utf-8")
        fresh.replace(kept)
        return tuple(roots)

    def resolve(self, repo: str, revision: str) -> str:
        """Return the full hash of a commit that the repository's source has: a hash as it is, or HEAD, a branch, a tag.

        Raises:
            RepositoryError: the source has none of that name, cannot be read, or its location is unknown.
        """
        if _COMMIT.fullmatch(revision):
            return revision
        source = _source(repo, self._locations.get(repo, RepositoryLocation()))
        try:
            limits = Limits(self.clone_timeout, self._stop, isolated=False)
            commit = remote_commit(source, revision, limits) if _REVISION.fullmatch(revision) else None
        except GitError as error:
            raise RepositoryError(f"{without_credentials(source)} cannot be read ({error})") from error
        if commit is None:
            raise RepositoryError(
                f"{without_credentials(source)} has no branch or tag {revision[:80]!r}",
                "Give HEAD, a branch, a tag or a full commit hash.",
            )
        return commit

    def fetch_commit(self, clone: BareClone, commit: str) -> int:
        """Make sure that the clone holds the commit: fetch of it alone, then of everything.

        `git fetch` and not `git.Remote.fetch`, which cannot be stopped and reads the fate of every branch and tag.

        Returns:
            When the commit was made, seconds since the epoch.

        Raises:
            RepositoryError: no full hash, or the commit is nowhere to be had.
        """
        if (made := self.commit_time(clone, commit)) is not None:
            return made
        reason = ""
        limits = Limits(self.clone_timeout, self._stop, isolated=False)
        # Fetches walk the list of worktrees, so they take the same lock as the code that changes it.
        with FileLock(clone.lock_path, self.clone_timeout + _SHORT, self._stop):
            for what in (["origin", commit], ["--all", "--tags", "--force"]):
                if (made := self.commit_time(clone, commit)) is not None:
                    return made
                try:
                    with open_repository(clone.path, limits) as repo:
                        repo.git.fetch(*what, quiet=True, no_write_fetch_head=True, no_auto_maintenance=True)
                except GitError as error:
                    reason = f" ({error})"
        if (made := self.commit_time(clone, commit)) is not None:
            return made
        raise RepositoryError(
            f"commit {commit} of {clone.repo} is neither in the clone nor in its source{reason}",
            "Check base_commit, or give a clone with full history.",
        )

    def _path(self, repo: str) -> Path:
        root = self.root.resolve()
        return root / folder_name(repo)

    def _checked(self, repo: str, path: Path) -> BareClone:
        owner = _description(path).get("repo")
        if owner != repo:
            raise RepositoryError(f"{path} holds {owner}, not {repo}", "Give the repositories names that differ.")
        return BareClone(repo, path)

    def _clone(self, repo: str, source: str, path: Path) -> None:
        incoming = self.root / ".incoming"
        incoming.mkdir(exist_ok=True)
        # The lock is ours, so whatever lies here under this repository's name was left behind by a killed process.
        for old in incoming.glob(f"{path.name}@*"):
            shutil.rmtree(old, ignore_errors=True)
        if path.exists():
            raise RepositoryError(f"{path} exists but is no clone made here", "Move it away.")
        fresh = incoming / f"{path.name}@{uuid.uuid4().hex[:8]}"
        try:
            clone(source, fresh, Limits(self.clone_timeout, self._stop, isolated=False))
            self._refuse_partial(repo, source, fresh)
            (fresh / "info").mkdir(exist_ok=True)
            (fresh / "info" / "attributes").write_text(_ATTRIBUTES)
            _set(fresh, "remote.origin.fetch", "+refs/heads/*:refs/heads/*")
            _describe(fresh, repo, source)
            fresh.rename(path)
        except (GitError, OSError) as error:
            where = without_credentials(source)
            raise RepositoryError(
                f"{repo} cannot be cloned from {where} ({error})", "Check the address, or give a local clone."
            ) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _refuse_partial(self, repo: str, source: str, path: Path) -> None:
        """Refuse a blobless clone: every checkout would fail, or go to the network file by file."""
        # A local clone takes the marks of the source's packs along. They say where packs came from, not that something
        # is missing, so marked clones are looked through once. A few lost objects spoil their own commits only.
        marks = list((path / "objects" / "pack").glob("*.promisor"))
        if not marks:
            return
        with open_repository(path, Limits(self.clone_timeout, self._stop)) as opened:
            listed = opened.git.rev_list(objects=True, all=True, no_object_names=True, missing="print")
        total, missing = listed.count("\n") + 1, listed.count("?")
        if missing > total * _LOST_SHARE:
            raise RepositoryError(
                f"{repo} at {source} is a partial clone, {missing} of {total} objects are missing", "Give a full clone."
            )
        for mark in marks:
            mark.unlink(missing_ok=True)

    def _point_at(self, clone: BareClone, source: str) -> None:
        try:
            _set(clone.path, "remote.origin.url", source)
        except GitError as error:
            raise RepositoryError(f"the clone of {clone.repo} cannot be changed ({error})") from error
        _describe(clone.path, clone.repo, source)


def folder_name(repo: str) -> str:
    """`owner__name`; a name that could be confused with another's is followed by a hash of the exact name."""
    if _PLAIN_REPO.fullmatch(repo):
        return repo.replace("/", "__")
    plain = re.sub(r"[^A-Za-z0-9_-]+", "__", repo).strip("_-")[:80] or "repo"
    return f"{plain}-{_hash(repo)[:8]}"


def require_full_hash(repo: str, commit: str) -> None:
    """Raise RepositoryError unless `commit` is a full lower-case hash; nothing else ever reaches a git command."""
    if _COMMIT.fullmatch(commit) is None:
        raise RepositoryError(f"{commit[:80]!r} is no full commit hash of {repo}", "Give all 40 hexadecimal digits.")


def _source(repo: str, location: RepositoryLocation) -> str:
    if location.local is not None:
        local = location.local.expanduser().absolute()
        if local.exists():
            return str(local)
        if location.url is None:
            raise RepositoryError(f"{repo} is not at {local}", "Give the path of a clone or a bundle.")
    if location.url is None:
        raise RepositoryError(f"nothing says where {repo} can be had", "Give a folder of clones or a URL.")
    if _NETWORK.fullmatch(location.url) is None:
        raise RepositoryError(
            f"{without_credentials(location.url)[:200]!r} is no address of a repository",
            "Use https://, ssh:// or file://.",
        )
    return location.url


def _is_complete(path: Path) -> bool:
    return (path / _DESCRIPTION).is_file()


def _came_from(path: Path, source: str) -> bool:
    """Whether there is a whole clone, made from this very source."""
    return _is_complete(path) and _description(path).get("source_hash") == _hash(source)


def _description(path: Path) -> dict[str, str]:
    return _json(path / _DESCRIPTION)


def _json(path: Path) -> dict[str, str]:
    try:
        loaded = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in loaded.items()} if isinstance(loaded, dict) else {}


def _describe(path: Path, repo: str, source: str) -> None:
    fresh = path / f"{_DESCRIPTION}.{os.getpid()}.new"
    record = {"repo": repo, "source": without_credentials(source), "source_hash": _hash(source)}
    fresh.write_text(json.dumps(record), "utf-8")
    fresh.replace(path / _DESCRIPTION)


def _set(path: Path, key: str, value: str) -> None:
    with open_repository(path, Limits(_SHORT)) as repo:
        repo.git.config(key, value, replace_all=True)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
