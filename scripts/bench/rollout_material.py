"""What the rollout benchmark works on: issues, a sandbox with their repositories, and a model with its chat format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra import compose, initialize_config_dir

from codegrep.compose import load
from codegrep.conf_folder import CONF
from codegrep.config import Config
from codegrep.engines.models import load_tokenizer, provide
from codegrep.issues.issue import Issue
from codegrep.issues.load import load_issues
from codegrep.protocol.chat import ChatFormat
from codegrep.sandbox import Sandbox


@dataclass(frozen=True)
class Material:
    """issues: `group` times each. model: folder. source: in words."""

    config: Config
    issues: list[Issue]
    sandbox: Sandbox
    model: Path
    chat: ChatFormat
    pad_id: int
    source: str


def prepare(
    work: Path, overrides: Sequence[str], issues: Path | None, repositories: Path | None, prompts: int, group: int
) -> Material:
    """Issues of a SWE-bench file with clones, or of the demo, at scale=laptop."""
    chosen = [f"outputs={work}", "scale=laptop", "seed=1", *overrides]
    if issues and repositories:
        chosen += [
            "data=swe_bench",
            f"data.sources.swe_bench.args.path={issues}",
            f"data.sources.swe_bench.args.repositories={repositories}",
        ]
    else:
        chosen += ["data=demo"]
    with initialize_config_dir(str(CONF), version_base=None):
        config = load(compose("config", ["+experiment=v3", *chosen]))
    loaded = load_issues(config.data)
    by_repo: dict[str, list[Issue]] = {}
    for issue in loaded.issues:
        by_repo.setdefault(issue.repo, []).append(issue)
    # Repositories take turns, so that no one repository makes up the sample.
    taken: list[Issue] = []
    while len(taken) < prompts and any(by_repo.values()):
        for found in by_repo.values():
            if found and len(taken) < prompts:
                taken.append(found.pop(0))
    model = provide(config.model.path)
    tokenizer = load_tokenizer(model)
    sandbox = Sandbox.under(work / "sandbox", config.tools, config.sandbox, loaded.repositories)
    return Material(
        config,
        [issue for issue in taken for _ in range(group)],
        sandbox,
        model,
        ChatFormat(tokenizer),
        int(tokenizer.pad_token_id),
        f"{len(taken)} issues of {'SWE-bench' if issues else 'the demo'}, {group} rollouts each",
    )
