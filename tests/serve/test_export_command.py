"""An exported policy is used without this project, and says what it says here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

import codegrep
from codegrep.cli import COMMANDS, run
from codegrep.engines.models import load_tokenizer, provide
from codegrep.errors import ConfigError
from codegrep.issues import Issue
from codegrep.protocol.chat import ChatFormat
from codegrep.rollout.loop import RolloutLoop
from codegrep.serve.agent import Agent, FolderTools
from codegrep.tracking.policy_package import BaseReference, model_checksum, read_package, write_package
from codegrep.training.lora import merge_adapter
from tests.pipeline.policies.test_fetch import composed, random_adapter

ISSUE = "The basket total is wrong"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("package")
    patch = pytest.MonkeyPatch()
    patch.setenv("CODEGREP_MODELS", str(root / "models"))
    base = provide("provided:nano")
    warm = random_adapter(base, root / "warm", 1)
    merge_adapter(str(base), warm, root / "merged", "float32")
    adapter = random_adapter(root / "merged", root / "grpo", 2)
    config = composed(f"outputs={root}")
    reference = BaseReference("provided:nano", None, "float32", config.model.context, model_checksum(base))
    settings = asdict(config)
    write_package(root / "model", reference, warm_start=warm, adapter=adapter, config=settings, card="# A policy")
    yield root
    patch.undo()


@pytest.fixture(scope="module")
def exported(package: Path) -> Path:
    out = package / "out"
    words = [str(package / "model"), str(out), "--outputs", str(package), "--push", "me/policy", "--dry-run"]
    assert run(COMMANDS["export"], words) == 0
    return out


def test_the_folder_has_what_its_use_needs(exported: Path) -> None:
    names = {path.name for path in exported.iterdir()}
    assert {"merged", "adapter", "warm_start", "prompt.json", "README.md", "LICENSE", "use.py", "use_vllm.py"} <= names
    card = (exported / "README.md").read_text()
    assert "license: apache-2.0" in card and "# A policy" in card and "`merged/`" in card
    compile((exported / "use_vllm.py").read_text(), "use_vllm.py", "exec")


def test_the_prompt_is_the_one_of_training(exported: Path) -> None:
    prompt = json.loads((exported / "prompt.json").read_text())
    config = composed()
    chat = ChatFormat(load_tokenizer(exported / "merged"))
    runner = FolderTools(Path("/"), config.tools)
    loop = RolloutLoop(None, runner, chat, config.agent, config.tools, context=config.model.context)
    ours = loop.prompt_ids(Issue("i", "{repository}", "0", ISSUE, "", ()))
    messages = [
        {"role": "system", "content": prompt["system"]},
        {"role": "user", "content": prompt["user"].replace("{issue}", ISSUE)},
    ]
    tokenizer: Any = load_tokenizer(exported / "merged")
    theirs = tokenizer.apply_chat_template(messages, tools=prompt["tools"] or None, add_generation_prompt=True)
    assert ours == list(theirs["input_ids"] if hasattr(theirs, "keys") else theirs)


def test_its_script_says_the_same_with_the_merged_model_and_with_peft(exported: Path, package: Path) -> None:
    def said(*words: str) -> str:
        command = [sys.executable, str(exported / "use.py"), ISSUE, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    merged = said()
    assert merged.strip() and said(str(package / "models" / "nano")) == merged


def test_it_is_a_policy_for_search_and_for_another_export(
    exported: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    read_package(exported)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "basket.py").write_text("def total():\n    pass\n")
    retriever = codegrep.Retriever.load(str(exported), outputs=package)
    rollout = retriever.rollout(ISSUE, tmp_path / "shop")
    assert rollout.generated_tokens and not rollout.error
    words = [ISSUE, "--repo", str(tmp_path / "shop"), "--model", str(exported), "--outputs", str(package)]
    assert run(COMMANDS["search"], words) == 1  # the weights are random
    assert "named no file" in capsys.readouterr().err
    assert isinstance(retriever._agent, Agent)


def test_what_would_be_pushed_is_said_and_without_a_token_nothing_is(
    package: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match="is there already"):
        run(COMMANDS["export"], [str(package / "model"), str(exported)])
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    words = [str(package / "model"), str(tmp_path / "a"), "--outputs", str(package), "--push", "me/policy"]
    with pytest.raises(ConfigError, match="no token"):
        run(COMMANDS["export"], words)
    words[1] = str(tmp_path / "b")
    assert run(COMMANDS["export"], [*words, "--dry-run"]) == 0
    assert "would push merged/model.safetensors" in capsys.readouterr().out
