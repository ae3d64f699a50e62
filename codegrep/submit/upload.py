"""What of a checkout goes to the cluster: listed, weighed and shown before anything is sent."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory

from codegrep.errors import ConfigError, RepositoryError
from codegrep.issues.git import open_repository

# What a run needs and a checkout has; all else stays here, whatever lies about.
_PARTS = ("codegrep", "conf", "hydra_plugins", "ray_jobs", "scripts", "pyproject.toml", "constraints.txt")
_NEVER = ("*.pyc", "__pycache__", ".env", "*.pem", "*.key", "auth_token", ".netrc")
_MIB = 2**20


@dataclass(frozen=True)
class Upload:
    """Files under a root, with their sizes in bytes."""

    root: Path
    files: tuple[tuple[str, int], ...]

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(size for _, size in self.files)

    def check(self, max_mib: float) -> None:
        """Refuse to send too much.

        Raises:
            ConfigError: with the largest files and the key that leaves them out.
        """
        if self.bytes > max_mib * _MIB:
            largest = sorted(self.files, key=lambda file: -file[1])[:3]
            named = ", ".join(f"{name} ({size / _MIB:.1f} MiB)" for name, size in largest)
            raise ConfigError(
                f"{self.bytes / _MIB:.1f} MiB would be sent, more than cluster.submit.max_upload_mib={max_mib:g}; the "
                f"largest are {named}",
                "Add patterns to cluster.submit.excludes, or raise the limit",
            )

    @contextmanager
    def copied(self) -> Iterator[Path]:
        """Yield a folder with exactly these files; it is removed afterwards."""
        with TemporaryDirectory(prefix="codegrep-upload-") as folder:
            for name, _ in self.files:
                target = Path(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.root / name, target)
            yield Path(folder)


def upload_of(root: Path, excludes: Sequence[str] = ()) -> Upload:
    """List the parts of a checkout that a run needs, without what git ignores and what `excludes` names.

    Args:
        root: of the checkout.
        excludes: glob patterns; one without '/' is matched against every part of a path.

    Raises:
        ConfigError: `root` is no checkout.
    """
    if not (root / "conf").is_dir():
        raise ConfigError(
            f"{root} is no checkout that could be sent", "Submit from a checkout, or set cluster.submit.upload=false"
        )
    files = []
    for name in _listed(root):
        path = root / name
        if path.is_symlink() or not path.is_file() or excluded(name, (*_NEVER, *excludes)):
            continue
        files.append((name, path.stat().st_size))
    return Upload(root, tuple(sorted(files)))


def excluded(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a path is left out by one of the patterns."""
    parts = name.split("/")
    for pattern in (p.rstrip("/") for p in patterns):
        if "/" in pattern:
            plain = pattern.lstrip("/")
            if fnmatchcase(name, plain) or fnmatchcase(name, f"{plain}/*"):
                return True
        elif any(fnmatchcase(part, pattern) for part in parts):
            return True
    return False


def _listed(root: Path) -> list[str]:
    parts = [part for part in _PARTS if (root / part).exists()]
    try:
        with open_repository(root) as repo:
            listed = repo.git.ls_files("--cached", "--others", "--exclude-standard", "-z", "--", *parts)
        return [name for name in listed.split("\0") if name]
    except RepositoryError:  # no git, or no repository of it: everything in those parts
        single = [root / part for part in parts if (root / part).is_file()]
        found = [*single, *(path for part in parts for path in (root / part).rglob("*"))]
        return [path.relative_to(root).as_posix() for path in found if path.is_file()]
