"""A place outside the machines of a run for what must outlive them: finished artifacts and training checkpoints.

Any place that fsspec knows: `s3://bucket/path` (package s3fs; works with every S3-compatible store), `gs://…`, or a
path. Credentials and endpoints come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL),
never from the address.
"""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from codegrep.errors import ConfigError, InfrastructureError

if TYPE_CHECKING:
    import pyarrow.fs

_MARK = "artifact.json"
# A training's checkpoints have their own place in the storage (`checkpoints`); its folder here is only their shadow.
_LEFT_OUT = ("training",)


@dataclass(frozen=True)
class Storage:
    """url: as in cluster.storage."""

    url: str

    def push(self, folder: Path) -> None:
        """Copy a finished artifact; the file that makes it complete goes last. One that is there stays as it is.

        Raises:
            InfrastructureError: the storage cannot be written.
        """
        filesystem, root = self._open()
        target = f"{root}/artifacts/{folder.name}"
        try:
            if filesystem.exists(f"{target}/{_MARK}"):
                return
            files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != _MARK]
            for path in [p for p in files if p.relative_to(folder).parts[0] not in _LEFT_OUT] + [folder / _MARK]:
                remote = f"{target}/{path.relative_to(folder).as_posix()}"
                filesystem.makedirs(remote.rpartition("/")[0], exist_ok=True)
                filesystem.put_file(str(path), remote)
        except Exception as error:  # of whatever library serves the address
            raise self._trouble("written", error) from error

    def pull(self, folder: Path) -> bool:
        """Fetch a finished artifact into `folder`; False when the storage has none of this name.

        Raises:
            InfrastructureError: the storage cannot be read.
        """
        filesystem, root = self._open()
        source = f"{root}/artifacts/{folder.name}"
        fresh = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
        try:
            if not filesystem.exists(f"{source}/{_MARK}"):
                return False
            for remote in filesystem.find(source):
                name = PurePosixPath(str(remote)).relative_to(source)
                if ".." in name.parts:
                    raise ValueError(f"odd name {name}")
                local = fresh / name
                local.parent.mkdir(parents=True, exist_ok=True)
                filesystem.get_file(remote, str(local))
            for path in sorted(p for p in fresh.rglob("*") if p.is_file() and p.name != _MARK):
                _move(path, folder / path.relative_to(fresh))
            _move(fresh / _MARK, folder / _MARK)
        except Exception as error:
            raise self._trouble("read", error) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return True

    def checkpoints(self, artifact: str) -> tuple[str, pyarrow.fs.FileSystem]:
        """Return where the checkpoints of a training go: path and file system, as Ray Train takes them."""
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        filesystem, root = self._open()
        return f"{root}/checkpoints/{artifact}", PyFileSystem(FSSpecHandler(filesystem))

    def _open(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        parts = urlsplit(self.url)
        if parts.password or parts.username:
            raise ConfigError("cluster.storage holds a login", "Give it in the environment; the address is logged")
        try:
            filesystem, root = url_to_fs(self.url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            problem = f"cluster.storage={self.url} cannot be used: {error}"
            raise ConfigError(problem, "Install the package that it names") from None
        return filesystem, root.rstrip("/")

    def _trouble(self, done: str, error: Exception) -> InfrastructureError:
        first = (str(error).strip().partition("\n")[0] or type(error).__name__)[:200]
        return InfrastructureError(f"the storage {self.url} cannot be {done}: {first}", "The same command tries again")


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)
