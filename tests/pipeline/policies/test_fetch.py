"""A policy through MLflow and back, with real adapters: it says the same as the one that was trained."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from peft import PeftModel

from codegrep.compose import CONF, load
from codegrep.config import Config, LoraSettings
from codegrep.engines.models import PolicyFiles, load_model, provide
from codegrep.errors import ConfigError, ModelError
from codegrep.issues import Issue
from codegrep.pipeline import evaluate_command
from codegrep.pipeline.policies import pyfunc
from codegrep.pipeline.policies.engines import InProcessHandle
from codegrep.pipeline.policies.fetch import fetch_package, policy_of
from codegrep.pipeline.workers import AgentSettings, AgentWorker
from codegrep.sandbox import Sandbox
from codegrep.tracking import store
from codegrep.tracking.model_card import ModelCard, markdown
from codegrep.tracking.policy_package import BaseReference, model_checksum, write_package
from codegrep.tracking.run import Tracker
from codegrep.training.lora import attach_lora, merge_adapter
from tests.sandbox.trees import Made, make_repository

CARD = markdown(ModelCard("v3-seed0", "nano", {}, {}, [], "codegrep", base_path="provided:nano", warm_started=True))
LORA = LoraSettings(r=4, alpha=8, dropout=0.0)
OVERRIDES = (
    "model=nano",
    "tools=table",
    "agent.max_turn_tokens=40",
    "agent.max_completion_tokens=120",
    "agent.exploration_turns=2",
    "sandbox.min_free_gib=0.1",
)


def composed(*overrides: str) -> Config:
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return load(compose("config", [*OVERRIDES, *overrides]))


def random_adapter(model: Path, folder: Path, seed: int) -> Path:
    """An adapter that changes what the model says."""
    tuned = attach_lora(load_model(model, "float32"), LORA, seed)
    with torch.no_grad():
        for name, values in tuned.named_parameters():
            if "lora_B" in name:
                torch.manual_seed(seed)
                values.normal_(std=0.5)
    tuned.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that has logged its policy: outputs, URI, run id, the files that it was trained into, its configuration."""
    torch.set_num_threads(1)
    outputs = tmp_path_factory.mktemp("outputs")
    patch = pytest.MonkeyPatch()
    patch.setenv("CODEGREP_MODELS", str(outputs / "models"))
    patch.setenv("CODEGREP_OUTPUTS", str(outputs / "served"))
    base = provide("provided:nano")
    warm = random_adapter(base, outputs / "warm", 1)
    merged = outputs / "merged"
    merge_adapter(str(base), warm, merged, "float32")
    adapter = random_adapter(merged, outputs / "grpo", 2)
    config = composed(f"outputs={outputs}")
    reference = BaseReference("provided:nano", None, "float32", config.model.context, model_checksum(base), "nano")
    package = write_package(
        outputs / "runs" / "r" / "model",
        reference,
        warm_start=warm,
        adapter=adapter,
        config=asdict(config),
        card=CARD,
    )
    uri = store.sqlite_uri(outputs)
    tracker = Tracker.start(uri, "codegrep", "v3-seed0", {}, outputs / "runs" / "r" / "mlflow_run_id")
    tracker.policy(package.folder, name="v3-seed0", held_out_f05=0.5, data="abc", register="retriever")
    tracker.finish("FINISHED")
    assert tracker.unsent == tracker.rejected == 0
    yield outputs, uri, tracker.run_id, PolicyFiles(merged, adapter), config
    patch.undo()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    tree = {f"shop/{name}.py": f"def average_{name}(x):\n    return x\n".encode() for name in ("invoice", "parser")}
    return make_repository(tmp_path_factory.mktemp("made") / "shop.git", [tree])


def said(files: PolicyFiles, config: Config, made: Made, root: Path) -> list[tuple[Any, ...]]:
    """What the policy samples for two issues: tokens and answers."""
    sandbox = Sandbox.under(root, config.tools, config.sandbox, {"acme/shop": made})
    engine = InProcessHandle(
        config.engine, str(files.model), str(files.adapter), "float32", config.model.context, 0, 1, False
    )
    settings = AgentSettings(config.agent, config.tools, config.model.context)
    worker = AgentWorker(engine, settings, sandbox, temperature=0.0, seed=0, label="x")
    issues = [Issue(f"i{n}", "acme/shop", made.commits[0], f"average_{n} fails") for n in ("invoice", "parser")]
    try:
        rollouts = [row["rollout"] for row in worker.answer(issues)]
    finally:
        sandbox.close()
    return [(rollout["completion_ids"], rollout["answer"], rollout["error"]) for rollout in rollouts]


def test_the_fetched_policy_says_what_the_trained_one_says(trained: Any, made: Made, tmp_path: Path) -> None:
    _, uri, run_id, files, config = trained
    package = fetch_package(uri, "models:/retriever@best", tmp_path / "artifacts")
    assert package == fetch_package(uri, f"runs:/{run_id}", tmp_path / "artifacts")
    loaded = policy_of(package, tmp_path / "artifacts")
    weights = [(folder / "model.safetensors").read_bytes() for folder in (files.model, loaded.model)]
    assert weights[0] == weights[1]  # the merge made again is the merge that was trained on
    expected = said(files, config, made, tmp_path / "one")
    assert said(loaded, config, made, tmp_path / "two") == expected
    assert all(tokens and not error for tokens, _, error in expected)
    base = PolicyFiles(provide("provided:nano"), files.adapter)
    assert said(base, config, made, tmp_path / "three") != expected  # the warm start matters


def test_mlflow_itself_loads_it(trained: Any, made: Made, tmp_path: Path) -> None:
    import mlflow.pyfunc
    import pandas as pd

    _, uri, run_id, _, _ = trained
    package = fetch_package(uri, f"runs:/{run_id}", tmp_path / "artifacts")
    model = mlflow.pyfunc.load_model(str(package.folder))
    rows = pd.DataFrame(
        {
            "problem_statement": ["average_invoice fails"],
            "repository": [str(made.local)],
            "base_commit": [made.commits[0]],
        }
    )
    answers = model.predict(rows)
    assert len(answers) == 1 and isinstance(answers[0], list)
    assert model.predict(rows.assign(base_commit="HEAD")) == answers
    with pytest.raises(Exception, match="no branch or tag 'nowhere'"):
        model.predict(rows.assign(base_commit="nowhere"))
    with pytest.raises(Exception, match="base_commit"):  # the signature is enforced
        model.predict(rows.drop(columns="base_commit"))


def test_the_lines_of_the_card_load_the_policy(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, uri, run_id, files, _ = trained
    package = fetch_package(uri, f"runs:/{run_id}", tmp_path / "artifacts")
    card = (package.folder / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(package.folder)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    expected = PeftModel.from_pretrained(load_model(files.model, "float32"), str(files.adapter))
    ids = torch.tensor([names["tokenizer"]("average_invoice fails").input_ids])
    with torch.no_grad():
        assert torch.equal(names["model"](ids).logits, expected(ids).logits)
    settings = json.loads((package.folder / "adapter" / "adapter_config.json").read_text(encoding="utf-8"))
    assert settings["base_model_name_or_path"] == "nano" and str(tmp_path.parent) not in json.dumps(settings)


def test_answered_paths_that_the_commit_does_not_have_are_left_out(made: Made) -> None:
    answered = ["shop/invoice.py", "shop/invoices.py", "shop/parser.py\nshop/invoice.py", "shop/parser.py"]
    assert pyfunc._existing(made.local, made.commits[0], answered) == ["shop/invoice.py", "shop/parser.py"]


def test_another_base_is_refused(trained: Any, tmp_path: Path) -> None:
    _, uri, run_id, files, _ = trained
    package = fetch_package(uri, f"runs:/{run_id}", tmp_path / "artifacts")
    with pytest.raises(ModelError, match="not the one that this policy was trained on"):
        policy_of(package, tmp_path / "artifacts", str(files.model))


def evaluated(monkeypatch: pytest.MonkeyPatch, *words: str) -> Config:
    """The configuration that `codegrep evaluate` runs."""
    seen: list[Config] = []
    monkeypatch.setattr("codegrep.pipeline.run.run_experiment", lambda config, experiment: seen.append(config))
    assert evaluate_command.main(list(words)) == 0
    return seen[0]


def test_the_command_takes_agent_tools_and_data_from_the_training(
    trained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs, _, run_id, _, config = trained
    found = evaluated(monkeypatch, "model=models:/retriever@best", f"outputs={outputs}", "agent.max_turn_tokens=77")
    assert found.evaluate.loaded.startswith("models:/m-") and found.evaluate.models == ["loaded"]
    assert found.stages == ["prepare", "evaluate", "report"] and found.name == "evaluate"
    assert found.model == config.model and found.tools == config.tools and found.data == config.data
    assert (found.agent.exploration_turns, found.agent.max_turn_tokens) == (2, 77)  # the second as on the command line
    other = evaluated(
        monkeypatch, f"model=runs:/{run_id}", f"outputs={outputs}", "tools=grep_glob_read", "evaluate.retrievers=[bm25]"
    )
    assert other.tools.observation == "results" and config.tools.observation == "table"
    assert other.evaluate.retrievers == ["bm25"]


def test_a_run_is_named_as_for_register_and_compare(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs, _, run_id, _, _ = trained
    by_id = evaluated(monkeypatch, f"model={run_id}", f"outputs={outputs}").evaluate.loaded
    assert by_id == evaluated(monkeypatch, "model=r", f"outputs={outputs}").evaluate.loaded  # its folder
    assert by_id == evaluated(monkeypatch, f"model={run_id[:8]}", f"outputs={outputs}").evaluate.loaded
    with pytest.raises(ConfigError, match="no run called 'q'"):
        evaluated(monkeypatch, "model=q", f"outputs={outputs}")


def test_the_command_without_a_model_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match="not named"):
        evaluate_command.main(["data=demo"])


def test_loaded_is_measured_only_where_it_is_named() -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.loaded"):
        composed("evaluate.models=[loaded]")
    with pytest.raises(ConfigError, match="cannot be the name"):
        composed("tracking.register=a/b")


@pytest.mark.slow
def test_mlflow_models_serve_answers_over_http(trained: Any, made: Made, tmp_path: Path) -> None:
    _, uri, _, _, _ = trained
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "models",
        "serve",
        "-m",
        "models:/retriever@best",
        "--env-manager",
        "local",
    ]
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it starts uvicorn by name
    environment = os.environ | {"MLFLOW_TRACKING_URI": uri, "PYTHONPATH": str(CONF.parent), "PATH": programs}
    server = subprocess.Popen([*command, "-p", str(port)], env=environment, start_new_session=True, cwd=tmp_path)
    try:
        row = ["average_invoice fails", str(made.local), made.commits[0]]
        columns = ["problem_statement", "repository", "base_commit"]
        body = json.dumps({"dataframe_records": [dict(zip(columns, row, strict=True))]}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/invocations", body, headers)
        deadline = time.monotonic() + 240
        while True:
            try:
                with urllib.request.urlopen(request, timeout=120) as answer:
                    given = json.load(answer)
                break
            except urllib.error.URLError:
                assert server.poll() is None and time.monotonic() < deadline
                time.sleep(0.5)
        assert len(given["predictions"]) == 1
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
