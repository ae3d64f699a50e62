"""An index of file contents by blob: which files of a tree can match a pattern at all.

git names contents by their hash, so what is known about a blob holds in every commit and under every path. For each
blob the index keeps a signature of 4 KiB: one bit for each hash of three neighbouring bytes. A search looks up the
bytes that its pattern requires and hands ripgrep the files that may match; ripgrep gives the answer, so the index can
cost time but never a match. Commits of one repository share almost all blobs: only the first tree is indexed at length.

Kept in memory: signatures of a tree are made in a fraction of a second, about as fast as they could be read back.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from codegrep.issues.git import GitError, Limits, open_repository
from codegrep.sandbox.literals import ANYTHING, FOLDS_TO_ASCII, required_literals, trigrams

_log = logging.getLogger(__name__)
_BITS = 1 << 15
_BYTES = _BITS // 8
# A signature costs about as much as ripgrep's look at this many files (docs/benchmarks.md: break-even).
_COST_OF_A_SIGNATURE = 13
# A larger share of the files, or a longer command, is left to ripgrep's own walk.
_WORTH_NAMING = 0.5
_MOST_COMMAND = 96 << 10
_LARGEST = 8 << 20
# Lists of paths that are kept; making one again takes milliseconds.
_MOST_TREES = 256
_SUFFIX_GLOB = re.compile(r"\*(\.[A-Za-z0-9_.]+)")
_TRANSCODED = (b"\xff\xfe", b"\xfe\xff")
_SECONDS = 60.0


@dataclass
class _Signatures:
    """The signatures of one repository's blobs, a row each."""

    rows: dict[str, int] = field(default_factory=dict)
    bits: np.ndarray = field(default_factory=lambda: np.zeros((0, _BYTES), np.uint8))
    # Blobs with a NUL byte: ripgrep treats such a file differently when it is named, so they need a whole search.
    binary: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    guard: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class _Tree:
    """A commit's regular files. rows: into the signatures, once they are made."""

    root: Path
    signatures: _Signatures
    blobs: list[str]
    paths: list[str]
    rows: np.ndarray | None = None
    included: dict[tuple[str, ...], np.ndarray] = field(default_factory=dict)
    guard: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class IndexCounts:
    """blobs: signatures made. answered: searches that were narrowed down. passed: those that were not."""

    blobs: int = 0
    answered: int = 0
    passed: int = 0


class ContentIndex:
    """The index of the trees that were `add`ed. Safe to use from several threads.

    Args:
        max_bytes: of signatures; a tree that would go beyond it is not indexed. 0 switches the index off.
    """

    def __init__(self, max_bytes: int = 512 << 20) -> None:
        self.counts = IndexCounts()
        self._max = max_bytes
        self._repositories: dict[Path, _Signatures] = {}
        self._commits: dict[str, tuple[Path, str, str]] = {}
        self._trees: OrderedDict[str, _Tree] = OrderedDict()
        self._searches: Counter[str] = Counter()
        self._guard = threading.Lock()

    def add(self, root: Path, bare: Path, commit: str, digest: str = "") -> None:
        """Says that `root` holds, unchanged, the tree of `commit` in the clone `bare`.

        Args:
            digest: another one whenever something has changed in the tree.
        """
        key = os.fspath(root)
        if self._max and self._commits.get(key) != (bare, commit, digest):
            with self._guard:
                self._commits[key] = (bare, commit, digest)
                self._trees.pop(key, None)
                self._searches.pop(key, None)

    def state_at(self, root: Path) -> tuple[str, str] | None:
        """The commit of which this is the tree, and the tree's digest; None where nobody said so."""
        known = self._commits.get(os.fspath(root))
        return known[1:] if known is not None else None

    def is_ready(self, root: Path) -> bool:
        """Whether `candidates` answers at once."""
        key = os.fspath(root)
        if key not in self._commits:
            return True
        tree = self._trees.get(key)
        return tree is not None and tree.rows is not None

    @property
    def size(self) -> int:
        """Bytes of all signatures."""
        return sum(s.bits.nbytes for s in self._repositories.values())

    def candidates(
        self, root: Path, path: str, pattern: str, include: list[str], ignore_case: bool
    ) -> list[str] | None:
        """The files below `path`, relative to the root, that can match; None when the index cannot say.

        May make signatures first (a fraction of a second), once enough searches have asked for it.
        """
        if os.fspath(root) not in self._commits:
            return None
        found = self._candidates(root, path, pattern, include, ignore_case)
        if found is None:
            self.counts.passed += 1
        else:
            self.counts.answered += 1
        return found

    def _candidates(
        self, root: Path, path: str, pattern: str, include: list[str], ignore_case: bool
    ) -> list[str] | None:
        suffixes = _suffixes(include)
        if suffixes is None or (required := required_literals(pattern, ignore_case)) == ANYTHING:
            return None
        tree = self._tree(root)
        if tree is None or not self._is_ready(tree, self._searches[os.fspath(root)]):
            return None
        alive = np.zeros(len(tree.paths), bool)
        within = self._included(tree, suffixes)
        signatures = tree.signatures.bits
        assert tree.rows is not None
        for pieces in required:
            left = within
            for trigram in trigrams(pieces):
                byte, mask = _place(trigram)
                left = left[(signatures[tree.rows[left], byte] & mask) != 0]
                if not len(left):
                    break
            alive[left] = True
        numbers = np.flatnonzero(alive)
        prefix = "" if path == "." else path + "/"
        chosen = [n for n in numbers.tolist() if tree.paths[n].startswith(prefix)]
        chosen = [n for n in chosen if _is_searched(tree.paths[n][len(prefix) :], suffixes)]
        names = [tree.paths[n] for n in chosen]
        if len(names) > _WORTH_NAMING * len(within) or sum(map(len, names)) > _MOST_COMMAND:
            return None
        if tree.signatures.binary[tree.rows[chosen]].any():
            return None
        return names

    def _included(self, tree: _Tree, suffixes: tuple[str, ...]) -> np.ndarray:
        if suffixes not in tree.included:
            wanted = [n for n, p in enumerate(tree.paths) if _is_searched(p, suffixes) or _is_below_hidden(p, suffixes)]
            tree.included[suffixes] = np.array(wanted, np.int64)
        return tree.included[suffixes]

    def _tree(self, root: Path) -> _Tree | None:
        key = os.fspath(root)
        with self._guard:
            self._searches[key] += 1
            if key in self._trees:
                self._trees.move_to_end(key)
                return self._trees[key]
            bare, commit, _ = self._commits[key]
            signatures = self._repositories.setdefault(bare, _Signatures())
            if not signatures.rows and self._searches[key] < _COST_OF_A_SIGNATURE:
                return None  # all blobs are missing, however many there are: they need not be listed
        try:
            tree = _Tree(root, signatures, *_listed(bare, commit))
        except GitError as error:
            _log.warning("no index for %s (%s); the whole tree is searched", root, error)
            return None
        with self._guard:
            while len(self._trees) >= _MOST_TREES:
                self._trees.popitem(last=False)
            return self._trees.setdefault(key, tree)

    def _is_ready(self, tree: _Tree, searches: int) -> bool:
        with tree.guard:
            if tree.rows is not None:
                return True
            known = tree.signatures.rows
            missing = {blob: path for blob, path in zip(tree.blobs, tree.paths, strict=True) if blob not in known}
            # Like renting skis until they would have cost as much as buying them.
            if searches * len(tree.blobs) < _COST_OF_A_SIGNATURE * len(missing):
                return False
            if missing and self.size + len(missing) * _BYTES > self._max:
                return False
            with tree.signatures.guard:
                self._sign(tree, missing)
            tree.rows = np.array([known[blob] for blob in tree.blobs], np.int64)
            return True

    def _sign(self, tree: _Tree, missing: dict[str, str]) -> None:
        signatures = tree.signatures
        missing = {blob: path for blob, path in missing.items() if blob not in signatures.rows}
        start, end = len(signatures.rows), len(signatures.rows) + len(missing)
        if end > len(signatures.bits):
            room = max(end, min(2 * len(signatures.bits), end + 4096))
            grown, binary = np.zeros((room, _BYTES), np.uint8), np.zeros(room, bool)
            grown[:start], binary[:start] = signatures.bits[:start], signatures.binary[:start]
            signatures.bits, signatures.binary = grown, binary
        for row, (blob, path) in enumerate(missing.items(), start):
            signatures.bits[row], signatures.binary[row] = _signature(tree.root / path, blob)
            signatures.rows[blob] = row
        self.counts.blobs += len(missing)


def _listed(bare: Path, commit: str) -> tuple[list[str], list[str]]:
    blobs: list[str] = []
    paths: list[str] = []
    with open_repository(bare, Limits(_SECONDS)) as repo:
        listed = repo.git.ls_tree("-r", "-z", "--full-tree", commit)
    for line in listed.split("\0"):
        described, _, path = line.partition("\t")
        if described.startswith("100"):  # no links, no submodules: ripgrep does not follow them
            blobs.append(described.rpartition(" ")[2])
            paths.append(path)
    return blobs, paths


def _signature(file: Path, blob: str) -> tuple[np.ndarray, bool]:
    """The bits of a file's contents, and whether it holds a NUL byte. All bits where ripgrep may see other text.

    All bits too where the file does not hold the blob: a signature is kept for every tree that has the blob.
    """
    everything = np.full(_BYTES, 255, np.uint8)
    try:
        with file.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except OSError:
        return everything, True
    if content.startswith(_TRANSCODED):
        return everything, "\0" in content.decode("utf-16", "replace")
    binary = b"\0" in content
    if len(content) <= _LARGEST and _blob(content) != blob:
        return everything, binary
    if len(content) > _LARGEST or any(letter in content for letter in FOLDS_TO_ASCII):
        return everything, binary or len(content) > _LARGEST
    # bytes.lower changes ASCII letters only, like the pieces of a pattern.
    numbers = np.frombuffer(content.lower(), np.uint8).astype(np.uint16)
    flags = np.zeros(_BITS, np.uint8)
    if len(numbers) > 2:
        # As intp, the type that NumPy indexes with: two thirds of the time.
        flags[_hashed(numbers[:-2], numbers[1:-1], numbers[2:]).astype(np.intp)] = 1
    return np.packbits(flags, bitorder="little"), binary


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _hashed(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    # Lower-case letters differ in their last five bits, so words keep apart.
    return ((a << 10) ^ (b << 5) ^ c) & (_BITS - 1)


def _place(trigram: bytes) -> tuple[int, int]:
    a, b, c = trigram
    bit = ((a << 10) ^ (b << 5) ^ c) & (_BITS - 1)
    return bit >> 3, 1 << (bit & 7)


def _suffixes(include: list[str]) -> tuple[str, ...] | None:
    """`*.py`, `*.pyi` as suffixes; None for globs of any other form."""
    found = [_SUFFIX_GLOB.fullmatch(glob) for glob in include]
    return None if any(match is None for match in found) else tuple(match.group(1) for match in found if match)


def _is_searched(path: str, suffixes: tuple[str, ...]) -> bool:
    """Whether ripgrep looks into a file below the folder it was given: hidden ones only where a glob names them."""
    *folders, name = path.split("/")
    if any(folder.startswith(".") and not folder.endswith(suffixes or ("\0",)) for folder in folders):
        return False
    return name.endswith(suffixes) if suffixes else not name.startswith(".")


def _is_below_hidden(path: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a file may be searched when a hidden folder itself is named as the path."""
    name = path.rpartition("/")[2]
    return "/." in f"/{path}" and (not suffixes or name.endswith(suffixes))
