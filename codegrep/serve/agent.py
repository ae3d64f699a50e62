"""A policy that searches a working tree. Imports torch and transformers."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from codegrep.compose import compose_overrides, load
from codegrep.conf_folder import cache_folder
from codegrep.config import Config, ToolsConfig
from codegrep.engines import Sampling
from codegrep.engines.models import PolicyFiles, provide
from codegrep.issues import Issue
from codegrep.pipeline.policies.engines import InProcessHandle
from codegrep.pipeline.policies.fetch import fetch_package, policy_of, recorded_config
from codegrep.protocol.calls import MalformedCall, ToolCall, ToolResult
from codegrep.protocol.parse import parse_message
from codegrep.rollout.loop import RolloutLoop
from codegrep.rollout.record import Rollout
from codegrep.sandbox.toolbox import Toolbox
from codegrep.serve.working_tree import listing
from codegrep.tracking import store
from codegrep.tracking.policy_package import MANIFEST, read_package
from codegrep.tracking.registry import is_model_uri

OnTurn = Callable[[int, Sequence[ToolResult]], None]


class Agent:
    """A policy in this process; one rollout at a time.

    Args:
        files: model and adapter.
        config: agent, tools and engine of the run that trained it.
        dtype: of the weights. context: longest prompt and completion, tokens.
    """

    def __init__(self, files: PolicyFiles, config: Config, dtype: str, context: int) -> None:
        adapter = None if files.adapter is None else str(files.adapter)
        handle = InProcessHandle(config.engine, str(files.model), adapter, dtype, context, config.seed, 1, False)
        self._served = handle.serve()
        self._config, self._context = config, context
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()  # engines are bound to the loop they first ran in

    @classmethod
    def load(cls, name: str, outputs: Path, tracking_uri: str = "") -> Agent:
        """Load a policy; see `codegrep.Retriever.load`.

        Raises:
            ModelError: there is no such model, or it cannot be used.
            InfrastructureError: MLflow cannot be reached.
        """
        folder = Path(name).expanduser()
        if is_model_uri(name):
            package = fetch_package(tracking_uri or store.sqlite_uri(outputs), name, outputs / "artifacts")
        elif (folder / MANIFEST).is_file():
            package = read_package(folder)
        else:  # a model that was not trained here answers under the settings of the third design
            config = load(compose_overrides(["+experiment=v3"]))
            return cls(PolicyFiles(provide(name)), config, config.model.dtype, config.model.context)
        files = policy_of(package, outputs / "artifacts")
        return cls(files, recorded_config(package), package.base.dtype, package.base.context)

    def rollout(self, text: str, root: Path, on_turn: OnTurn | None = None) -> Rollout:
        """Search a copy of the tree, so that its files neither change nor show what git ignores.

        Args:
            text: of the issue.
            root: folder.
            on_turn: told the number and the results of each turn with calls; what it raises beyond Exception ends the
                rollout and passes.
        """
        config = self._config
        issue = Issue("question", root.name, "0" * 40, text, "", ())
        cache_folder().mkdir(parents=True, exist_ok=True)
        with self._lock, tempfile.TemporaryDirectory(prefix="tree-", dir=cache_folder()) as copied:
            tree = Path(copied).resolve()
            copy_tree(root, tree)
            loop = RolloutLoop(
                self._served.engine,
                FolderTools(tree, config.tools, on_turn),
                self._served.chat,
                config.agent,
                config.tools,
                context=self._context,
                make_policy=self._served.make_policy,
            )
            sampling = Sampling(max_tokens=config.agent.max_turn_tokens, temperature=0.0)
            return self._loop.run_until_complete(loop.run(issue, sampling, seed=config.seed, label="search"))


class FolderTools:
    """A TurnRunner on one folder.

    Args:
        root: absolute and real.
        tools: names and limits.
        on_turn: told the number and the results of each turn.
    """

    def __init__(self, root: Path, tools: ToolsConfig, on_turn: OnTurn | None = None) -> None:
        self._root = root
        self._toolbox = Toolbox(tools)
        self._on_turn = on_turn
        self._turns = 0

    async def run_turn(self, repo: str, commit: str, calls: Sequence[ToolCall | MalformedCall]) -> list[ToolResult]:
        """See `codegrep.rollout.loop.TurnRunner`."""
        results = await asyncio.gather(*(self._run(call, number) for number, call in enumerate(calls, 1)))
        self._turns += 1
        if self._on_turn is not None:
            self._on_turn(self._turns, results)
        return results

    async def _run(self, call: ToolCall | MalformedCall, number: int) -> ToolResult:
        if isinstance(call, MalformedCall) or number > self._toolbox.limits.max_calls:
            return self._toolbox.unexecuted(call, number)
        return await self._toolbox.run(self._root, call, number)


def copy_tree(root: Path, target: Path) -> None:
    """Copy the files that git does not ignore."""
    for name in listing(root)[0]:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # gone meanwhile, or unreadable
            shutil.copyfile(root / name, target / name, follow_symlinks=False)


def answered_ranges(rollout: Rollout) -> dict[str, tuple[int, int]]:
    """Return the first line range that a rollout's answer gives for each file."""
    answer = parse_message(rollout.turns[-1].text).answer if rollout.answered and rollout.turns else None
    ranges: dict[str, tuple[int, int]] = {}
    for span in answer.ranges if answer else ():
        ranges.setdefault(span.path, (span.start, span.end))
    return ranges
