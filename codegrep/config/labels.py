"""conf/labels: what the gold files of training issues are."""

from __future__ import annotations

from typing import Literal

from codegrep.config.setting import group, setting


@group
class LabelsConfig:
    """conf/labels: gold of training issues from the patch, or from the patch and mined files (CodeGrep 3.4)."""

    name: str = setting("label")
    enabled: bool = setting("mine trajectories; false leaves gold to the patches")
    trajectories: list[str] = setting("files or folders of agent trajectories", paper="the Nebius set")
    format: str = setting("form of the trajectories, a name of codegrep.labels.adapters; auto: recognised")
    instances: list[str] = setting(
        "SWE-bench-like files with base commit and gold patch; empty: the experiment's issues", paper="SWE-rebench"
    )
    gold_suffixes: list[str] = setting("endings of gold files of those patches; empty: all")
    gold_tests: bool = setting("test files of those patches are gold")
    editors: list[str] = setting("tools whose `view` reads a file")
    shells: list[str] = setting("tools that run a command")
    shell_readers: list[str] = setting("shell commands that count as reads", paper="none")
    think_tool: str = setting("tool whose argument holds reasoning")
    with_thought: bool = setting("its text counts as post-reasoning", paper="false")
    workspaces: list[str] = setting("regular expressions of the folder that holds the repository")
    documents: list[str] = setting("endings of prose, never a target", paper="prose")
    suffixes: list[str] = setting("endings of targets; empty: all", paper="all")
    tests: bool = setting("test files can be targets", paper="true")
    drop_created: bool = setting("leave out files that the agent made")
    only_resolved: bool = setting("only attempts that passed", paper="false")
    tokenizer: str | None = setting("of lengths; null: the policy's; words: no model; or a folder")
    min_tokens: int = setting("shortest post-reasoning, tokens", ge=0, paper="30")
    min_weight: float = setting("smallest weight", ge=0, paper="0.15")
    weights_over: Literal["mined", "judged"] = setting(
        "candidates of β and μ: all, or those long enough and judged relevant", paper="mined"
    )
    count_empty: bool = setting("candidates without text count in β and μ, with length 0", paper="true; LRAT: false")
    granularity: Literal["trajectory", "issue"] = setting(
        "one sample a trajectory, or one an issue (union over its attempts)", paper="trajectory"
    )
    exclude_repositories: list[str] = setting("never mined, beside those held out or kept for evaluation by role")
    keep_unlabelled: bool = setting("training issues without a sample keep the patch's gold", paper="false")
    spot_check: int = setting("candidates on the sheet for checking by hand", ge=0)
    workers: int | None = setting("shards at once; null: the cluster's CPUs", ge=1)
