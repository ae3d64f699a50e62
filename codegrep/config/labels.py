"""conf/labels: what the gold files of training issues are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class LabelsConfig:
    """conf/labels: what the training issues' gold files are: those of the patch, or those and mined ones (SPEC 1.3).

    Attributes:
        enabled: False leaves gold to the patches, and the stage `label` with nothing to do.
        trajectories: files or folders of agent trajectories. format: one of codegrep.labels.adapters, or "auto".
        instances: SWE-bench-like files with base commit and gold patch, joined by instance_id; empty takes the
            experiment's own issues.
        gold_suffixes, gold_tests: which files of those patches are gold; no suffix takes all.
        editors: tools whose `view` reads a file. shells: tools that run a command.
        shell_readers: commands that count as reads too; empty as in the paper.
        think_tool: tool whose argument holds reasoning.
        with_thought: its text counts as post-reasoning; False as in the paper.
        workspaces: regular expressions of the folder that holds the repository.
        documents: endings of prose, never a target. suffixes: endings of targets; empty takes all.
        tests: test files can be targets.
        drop_created: leave out files that the agent had made itself.
        only_resolved: only attempts that passed.
        tokenizer: for l(f): None is the policy's, "words" needs no model, or a folder with tokenizer.json.
        min_tokens: shortest post-reasoning (30). min_weight: smallest weight (0.15).
        weights_over: candidates that β and μ are taken from: "mined" (all), or "judged" (long enough and relevant).
        count_empty: candidates without any text count in β and μ, with length 0; False as in LRAT's code.
        granularity: "trajectory" (one sample each) or "issue" (union over its attempts).
        exclude_repositories: never mined, besides the repositories that are held out, or kept for evaluation by role.
        keep_unlabelled: training issues without a sample keep the gold of their patch; False leaves them out.
        spot_check: candidates on the sheet for checking by hand.
        workers: shards at once; None takes the cluster's CPUs.
    """

    name: str
    enabled: bool
    trajectories: list[str]
    format: str
    instances: list[str]
    gold_suffixes: list[str]
    gold_tests: bool
    editors: list[str]
    shells: list[str]
    shell_readers: list[str]
    think_tool: str
    with_thought: bool
    workspaces: list[str]
    documents: list[str]
    suffixes: list[str]
    tests: bool
    drop_created: bool
    only_resolved: bool
    tokenizer: str | None
    min_tokens: int
    min_weight: float
    weights_over: str
    count_empty: bool
    granularity: str
    exclude_repositories: list[str]
    keep_unlabelled: bool
    spot_check: int
    workers: int | None
