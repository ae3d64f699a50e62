"""`python -m codegrep export RUN OUT`: a trained policy as a folder for transformers, peft, vLLM, or a hub."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from codegrep.config import Config
from codegrep.engines.models import PROVIDED_PREFIX, load_tokenizer
from codegrep.errors import ConfigError, InfrastructureError
from codegrep.issues import Issue
from codegrep.pipeline.policies.fetch import fetch_package, policy_of, recorded_config
from codegrep.protocol.chat import ChatFormat
from codegrep.rollout.loop import RolloutLoop
from codegrep.serve.agent import FolderTools
from codegrep.tracking import identity, store
from codegrep.tracking.policy_package import MANIFEST, PolicyPackage, read_package
from codegrep.tracking.registry import is_model_uri

_SCRIPTS = Path(__file__).parent / "exported"
_USE = """
## Use

| | |
| --- | --- |
| `merged/` | the whole model with its tokenizer |
| {adapters} | the LoRA adapters, one on top of the other, for the base model |
| `prompt.json` | system and user message, tools and limits, exactly as in training |
| `use.py`, `use_vllm.py` | the first turn with transformers and peft, with vLLM |

With codegrep, the whole search: `python -m codegrep search "ISSUE" --model THIS_FOLDER`.
"""


def main(argv: list[str]) -> int:
    """Write the folder, and push it where that is asked for; the exit code.

    Raises:
        ConfigError: OUT is not empty, or there is no token to push with.
        ModelError: there is no such policy, or its base is not here.
        InfrastructureError: MLflow or the hub cannot be reached.
    """
    options = _parser().parse_args(argv)
    out = options.out.expanduser().absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is there already", "Name a new folder")
    if options.push and not options.dry_run:
        _check_token(options.push)
    package = _package(options.run, options.outputs, options.uri)
    export(package, out, options.outputs / "artifacts", base=options.base, licence=options.license)
    files = sorted(path for path in out.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    print(f"{out}: {len(files)} files, {size / 1e6:.1f} MB")
    if options.dry_run and options.push:
        for path in files:
            print(f"would push {path.relative_to(out)} ({path.stat().st_size} bytes) to {options.push}")
    elif options.push:
        _push(out, options.push)
    return 0


def export(package: PolicyPackage, out: Path, artifacts: Path, *, base: str = "", licence: str = "") -> None:
    """Write a policy with all that its use needs; the folder appears when it is whole.

    Args:
        package: of the policy; the folder is one too.
        out: new folder.
        artifacts: where the merge of a warm start is kept.
        base: folder or hub id of the base, where it lies elsewhere than in training.
        licence: SPDX name of the base's; "" for that of a provided model, or "other".

    Raises:
        ModelError: the base is not here, or it is another model.
    """
    from codegrep.training.lora import merge_adapter

    files = policy_of(package, artifacts, base)
    config = recorded_config(package)
    partial = out.with_name(f".{out.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(package.folder, partial)
    if files.adapter is None:
        shutil.copytree(files.model, partial / "merged")
    else:
        merge_adapter(str(files.model), files.adapter, partial / "merged", package.base.dtype)
    adapters = [path.name for path in (package.warm_start, package.adapter) if path is not None]
    prompt = prompt_of(config, partial / "merged", package.base.context) | {"adapters": adapters}
    (partial / "prompt.json").write_text(json.dumps(prompt, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for script in _SCRIPTS.glob("*.txt"):
        shutil.copyfile(script, partial / script.stem)
    licence = licence or ("apache-2.0" if package.base.path.startswith(PROVIDED_PREFIX) else "other")
    own = next(iter(sorted(files.model.glob("LICENSE*"))), None)
    text = own.read_text(encoding="utf-8", errors="replace") if own else f"Licence of the base model: {licence}\n"
    (partial / "LICENSE").write_text(text, encoding="utf-8")
    card = partial / "README.md"
    written = _with_licence(card.read_text(encoding="utf-8"), licence)
    named = ", ".join(f"`{name}/`" for name in adapters)
    card.write_text(written.rstrip() + "\n" + _USE.format(adapters=named), encoding="utf-8")
    if out.exists():
        out.rmdir()
    partial.rename(out)


def prompt_of(config: Config, model: Path, context: int) -> dict[str, object]:
    """Return what a policy is told before its first turn, with {issue} where the issue goes, and its limits.

    Args:
        config: of the run that trained it.
        model: folder with the tokenizer, whose template decides how tools are described.
        context: longest prompt and completion, tokens.
    """
    chat = ChatFormat(load_tokenizer(model))
    runner = FolderTools(Path("/"), config.tools)
    loop = RolloutLoop(None, runner, chat, config.agent, config.tools, context=context)
    system, user, tools = loop.prompt(Issue("", "{repository}", "", "{issue}", "", ()))
    return {
        "system": system,
        "user": user,
        "tools": list(tools),
        "context": context,
        "max_turn_tokens": config.agent.max_turn_tokens,
        "exploration_turns": config.agent.exploration_turns,
        "max_calls": config.tools.max_calls,
    }


def _package(run: str, outputs: Path, tracking_uri: str) -> PolicyPackage:
    folder = Path(run).expanduser()
    if (folder / MANIFEST).is_file():
        return read_package(folder)
    if not tracking_uri and not (outputs / "mlflow.db").is_file():
        raise ConfigError(f"there is no mlflow.db in {outputs}", "Name it with --outputs, or a server with --uri")
    wanted = run
    if not is_model_uri(run):
        wanted = f"runs:/{identity.recorded(outputs / 'runs' / run / 'mlflow_run_id') or run}"
    return fetch_package(tracking_uri or store.sqlite_uri(outputs), wanted, outputs / "artifacts")


def _with_licence(card: str, licence: str) -> str:
    """Return the card with the licence in its front matter."""
    if card.startswith("---\n"):
        head, _, rest = card.removeprefix("---\n").partition("\n---\n")
        if "license:" in head:
            return card
        return f"---\n{head}\nlicense: {licence}\n---\n{rest}"
    return f"---\nlicense: {licence}\n---\n\n{card}"


def _check_token(repo_id: str) -> None:
    from huggingface_hub import get_token

    if not get_token():
        raise ConfigError(f"there is no token to push {repo_id} with", "Set HF_TOKEN, or try --dry-run")


def _push(out: Path, repo_id: str) -> None:
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        api.create_repo(repo_id, exist_ok=True)
        commit = api.upload_folder(repo_id=repo_id, folder_path=out)
    except Exception as error:  # whatever a network or the hub's client raises
        reason = " ".join(str(error).split())[:200]
        raise InfrastructureError(f"the hub refuses {repo_id} ({type(error).__name__}: {reason})") from error
    print(f"pushed: {commit}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m codegrep export", description=__doc__)
    parser.add_argument("run", help="MLflow run id, name of a run's folder, models:/NAME@ALIAS, or a policy's folder")
    parser.add_argument("out", type=Path, help="new folder")
    parser.add_argument("--base", default="", help="folder or hub id of the base model, where it is elsewhere now")
    parser.add_argument("--license", default="", help="SPDX name of the base model's licence")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="outputs folder (default: outputs)")
    parser.add_argument("--uri", default="", help="MLflow tracking URI (default: the SQLite file under OUTPUTS)")
    parser.add_argument("--push", default="", metavar="OWNER/NAME", help="push the folder to this model on the hub")
    parser.add_argument("--dry-run", action="store_true", help="say what --push would send, and send nothing")
    return parser
