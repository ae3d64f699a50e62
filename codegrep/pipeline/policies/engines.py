"""How an experiment's engine is opened: one class for each kind, named by engine.backend.

A backend is used in the driver. What it gives out is picklable and is used in workers: `follow` in those that train,
`serve` in those that evaluate.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from codegrep.config import Config, EngineConfig
from codegrep.engines.engine import Engine
from codegrep.engines.models import PolicyFiles
from codegrep.engines.weight_sync import FollowingReplicas, PolicyEngine, SharedModelEngine
from codegrep.errors import ConfigError
from codegrep.protocol.chat import ChatFormat
from codegrep.rollout.loop import MakePolicy
from codegrep.rollout.policy import ChatPolicy, EnginePolicy
from codegrep.runtime.resources import Demand, check_room, engine_replicas, living_nodes

if TYPE_CHECKING:
    from codegrep.engines.replicas import RemoteEngine
    from codegrep.training.loops import LivePolicy


@dataclass(frozen=True)
class Served:
    """A model that does not change, ready to answer. make_policy: makes the policy of a rollout (RolloutLoop)."""

    engine: Engine
    chat: ChatFormat
    make_policy: MakePolicy = EnginePolicy


class EngineHandle(Protocol):
    """An opened engine; picklable."""

    def follow(self, policy: LivePolicy) -> PolicyEngine:
        """Return, in a training worker, an engine that generates with the model in training."""
        ...

    def serve(self) -> Served:
        """Return, in an evaluation worker, an engine that generates with the files it was opened for."""
        ...

    def end(self) -> None:
        """Free, in the driver, what runs outside the workers. Safe to call twice."""
        ...


class Backend(Protocol):
    """Opens engines in the driver."""

    def check(self, config: Config) -> None:
        """Refuse what cannot work, before anything is started.

        Raises:
            ConfigError: names the key.
        """
        ...

    def open(self, config: Config, files: PolicyFiles, *, lora_rank: int, beside: Sequence[Demand]) -> EngineHandle:
        """Start what runs outside the workers.

        Args:
            config: of the run.
            files: model and adapter.
            lora_rank: of adapters that will be sent later; 0 for none.
            beside: what runs at the same time; all of it must fit into the cluster.

        Raises:
            ConfigError: there are not the resources, or not the packages.
            ModelError: the engine cannot run the model.
        """
        ...


def backend_of(config: EngineConfig) -> Backend:
    """Return the backend that engine.backend names.

    Raises:
        ConfigError: there is no such class.
    """
    module, _, name = config.backend.rpartition(".")
    try:
        return cast(Backend, getattr(importlib.import_module(module), name)())
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        what = f"engine.backend={config.backend} cannot be loaded ({error})"
        raise ConfigError(what, "Use engine=transformers, vllm or openai") from error


class InProcess:
    """The transformers engine, in each worker's own process."""

    def check(self, config: Config) -> None:
        """Refuse stale weights: this engine is the model in training."""
        if config.engine.sync.max_staleness:
            raise ConfigError(
                "engine.sync.max_staleness needs an engine with weights of its own",
                "Use engine=vllm, or engine.sync.max_staleness=0",
            )

    def open(self, config: Config, files: PolicyFiles, *, lora_rank: int, beside: Sequence[Demand]) -> EngineHandle:
        """Return a handle; nothing is started."""
        return InProcessHandle(
            config.engine,
            str(files.model),
            None if files.adapter is None else str(files.adapter),
            config.model.dtype,
            config.model.context,
            config.seed,
            config.evaluate.actors,
            config.train.use_gpu,
        )


@dataclass(frozen=True)
class InProcessHandle:
    """EngineHandle of `InProcess`. actors: evaluation workers that share the cores of a node."""

    config: EngineConfig
    model: str
    adapter: str | None
    dtype: str
    context: int
    seed: int
    actors: int
    use_gpu: bool

    def follow(self, policy: LivePolicy) -> PolicyEngine:
        """Return an engine around the model in training itself: there is nothing to send."""
        return SharedModelEngine(self._engine(policy.model, policy.tokenizer))

    def serve(self) -> Served:
        """Load the model into this process."""
        import os

        import torch

        from codegrep.engines.models import load_model, load_tokenizer

        # The actors of a node share its cores; Ray's own default is one thread a promised CPU.
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // self.actors))
        tokenizer = load_tokenizer(Path(self.model))
        loaded: Any = load_model(Path(self.model), self.dtype)
        if self.adapter is not None:
            from codegrep.training.lora import load_adapter

            loaded = load_adapter(loaded, Path(self.adapter))
        return Served(self._engine(loaded.to("cuda") if self.use_gpu else loaded, tokenizer), ChatFormat(tokenizer))

    def end(self) -> None:
        """Nothing runs outside the workers."""

    def _engine(self, model: Any, tokenizer: Any) -> Any:
        from codegrep.engines.transformers_engine import TransformersEngine

        return TransformersEngine(
            model,
            pad_id=int(tokenizer.pad_token_id),
            stop_ids=ChatFormat(tokenizer).stop_ids,
            context=self.context,
            max_batch=self.config.max_batch,
            max_wait_ms=self.config.max_wait_ms,
            seed=self.seed,
        )


class Replicas:
    """vLLM in Ray actors."""

    def check(self, config: Config) -> None:
        """Refuse settings that vLLM or the trainer's adapters cannot follow."""
        from codegrep.engines.vllm_arguments import check_vllm

        if config.engine.vllm is None:
            raise ConfigError("engine.backend is that of vLLM, and engine.vllm is not set", "Use engine=vllm")
        check_vllm(config.engine.vllm)
        if config.train.full_parameters and config.train.grpo.enabled and "train" in config.stages:
            raise ConfigError(
                "train.full_parameters=true trains all weights, and engine=vllm is sent adapters only",
                "Use engine=transformers, or train.full_parameters=false",
            )
        if config.engine.sync.max_staleness and config.train.grpo.temperature != 1.0:
            raise ConfigError(
                "engine.sync.max_staleness needs train.grpo.temperature=1: engines give log-probabilities before "
                "temperature",
                "Use train.grpo.temperature=1.0, or engine.sync.max_staleness=0",
            )

    def open(self, config: Config, files: PolicyFiles, *, lora_rank: int, beside: Sequence[Demand]) -> EngineHandle:
        """Start the replicas; return when every one answers, with the adapter of `files` if there is one."""
        import asyncio
        import json

        from codegrep.engines.actor import ReplicaResources, start_replicas
        from codegrep.engines.adapter import CONFIG_FILE, AdapterPackage
        from codegrep.engines.models import load_tokenizer
        from codegrep.engines.replicas import RetryPolicy
        from codegrep.engines.vllm_arguments import VLLMSpec, environment, gpus_of
        from codegrep.engines.vllm_engine import VLLMEngine, need_vllm

        need_vllm()
        tokenizer = load_tokenizer(files.model)
        if files.adapter is not None:
            lora_rank = int(json.loads((files.adapter / CONFIG_FILE).read_text(encoding="utf-8"))["r"])
        spec = VLLMSpec(
            model=str(files.model),
            dtype=config.model.dtype,
            context=config.model.context,
            stop_ids=tuple(sorted(ChatFormat(tokenizer).stop_ids)),
            vocabulary=_vocabulary(files.model),
            config=config.engine,
            lora_rank=lora_rank,
            seed=config.seed,
        )
        vllm = spec.vllm
        variables = environment(vllm, vllm.replicas)
        if vllm.device == "cuda" and vllm.placement == "shared":
            # Ray sets nothing aside; the replica sees the GPUs that the trainer has, and keeps to its share.
            variables |= {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(gpus_of(vllm))))}
        demand = engine_replicas(config)
        check_room([*beside, demand], living_nodes())
        remote = start_replicas(
            vllm.replicas,
            partial(VLLMEngine.start, spec),
            ReplicaResources(demand.each.cpus, demand.each.gpus, variables),
            RetryPolicy(vllm.start_seconds, vllm.request_seconds, vllm.attempts),
        )
        handle = ReplicasHandle(remote, config.engine, str(files.model))
        try:
            package = None if files.adapter is None else AdapterPackage.read(files.adapter)
            asyncio.run(_started(remote, package))
        except BaseException:
            handle.end()
            raise
        return handle


@dataclass(frozen=True)
class ReplicasHandle:
    """EngineHandle of `Replicas`."""

    remote: RemoteEngine
    config: EngineConfig
    model: str

    def follow(self, policy: LivePolicy) -> PolicyEngine:
        """Return the replicas. Every worker sends the same adapter, and a replica takes it once."""
        from peft import PeftModel

        from codegrep.training.lora import package_adapter

        assert isinstance(policy.model, PeftModel)  # see Replicas.check
        return FollowingReplicas(self.remote, partial(package_adapter, policy.model), self.config.sync)

    def serve(self) -> Served:
        """Return the replicas."""
        from codegrep.engines.models import load_tokenizer

        return Served(self.remote, ChatFormat(load_tokenizer(Path(self.model))))

    def end(self) -> None:
        """End the replicas."""
        with suppress(Exception):  # Ray may be gone already
            self.remote.end()


class EndpointBackend:
    """A compatible endpoint, for evaluation. Its model is the `base` of the results; nothing can be trained on it."""

    def check(self, config: Config) -> None:
        """Refuse training, and models that the endpoint does not have."""
        if config.engine.openai is None:
            raise ConfigError(
                "engine.backend is that of an endpoint, and engine.openai is not set", "Use engine=openai"
            )
        if "train" in config.stages and config.train.grpo.enabled:
            raise ConfigError(
                "engine=openai gives text and no tokens, so GRPO cannot train on it",
                "Use engine=vllm or engine=transformers, or stages=[prepare,evaluate,report]",
            )
        if set(config.evaluate.models) - {"base"}:
            raise ConfigError(
                "engine=openai answers with its own model only", "Set evaluate.models=[base]: the endpoint's model"
            )

    def open(self, config: Config, files: PolicyFiles, *, lora_rank: int, beside: Sequence[Demand]) -> EngineHandle:
        """Return a handle; nothing is started."""
        return EndpointHandle(config.engine, str(files.model))


@dataclass(frozen=True)
class EndpointHandle:
    """EngineHandle of `EndpointBackend`. model: folder whose tokenizer counts the tokens of the records."""

    config: EngineConfig
    model: str

    def follow(self, policy: LivePolicy) -> PolicyEngine:
        """Refuse: there are no weights to train.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("engine=openai cannot be trained on", "Use engine=vllm or engine=transformers")

    def serve(self) -> Served:
        """Return a client of the endpoint."""
        from codegrep.engines.models import load_tokenizer
        from codegrep.engines.openai_engine import OpenAIEngine

        assert self.config.openai is not None
        chat = ChatFormat(load_tokenizer(Path(self.model)))
        endpoint = OpenAIEngine(self.config.openai)
        return Served(endpoint, chat, lambda engine, sampling, seed: ChatPolicy(endpoint, chat, sampling, seed))

    def end(self) -> None:
        """Nothing runs outside the workers."""


async def _started(remote: RemoteEngine, package: Any) -> None:
    await remote.start()
    if package is not None:
        await remote.sync(package)


def _vocabulary(model: Path) -> int:
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(model, local_files_only=True).get_text_config().vocab_size)
