"""What a job asks of a cluster, read off its configuration before anything starts. Imports neither ray nor torch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from codegrep.config import Config

# A sandbox actor sets no CPU aside in Ray, so that searches use what is free; a queue has to count what they use.
SANDBOX_CPUS = 1.0
_RETRIEVAL_CPUS = 0.5  # the scripted teacher and BM25, one actor each (pipeline.flow)
_DRIVER_CPUS = 1.0  # stages that compute in the job's own process: prepare, report
_COMPUTING = {"warm_start", "train", "evaluate"}


@dataclass(frozen=True, order=True)
class Bundle:
    """Resources that must be free on one node."""

    gpus: float = 0.0
    cpus: float = 0.0

    def __str__(self) -> str:
        return f"{self.cpus:g} CPU" + (f" + {self.gpus:g} GPU" if self.gpus else "")


@dataclass(frozen=True)
class Request:
    """The peak of a job over its stages.

    Attributes:
        bundles: largest first.
        whole_nodes: a worker without a GPU computes with all cores of its node, whatever it asks Ray for; so the job
            should have its nodes to itself. Its sandboxes share them: they work while the workers wait.
    """

    bundles: tuple[Bundle, ...]
    whole_nodes: bool = False

    def __str__(self) -> str:
        kinds = dict.fromkeys(self.bundles)
        parts = [f"{self.bundles.count(kind)} x ({kind})" for kind in kinds]
        return " and ".join(parts) + (", nodes to itself" if self.whole_nodes else "")


def request_of(config: Config, share_nodes: bool = False) -> Request:
    """The largest request over the stages that the job runs: trainer, engines and sandboxes.

    Stages follow one another, so bundles are not added up over stages: the n-th largest of the job is the largest of
    the n-th largest of its stages.

    Args:
        config: of the job.
        share_nodes: count a worker without a GPU as `train.cpus_per_worker` instead of as a whole node.
    """
    computes = bool(set(config.stages) & _COMPUTING)
    whole_nodes = computes and not config.train.use_gpu and not share_nodes
    peak: list[Bundle] = []
    for stage in config.stages:
        bundles = sorted(stage_bundles(config, stage, beside=not whole_nodes), reverse=True)
        pairs = zip_longest(peak, bundles, fillvalue=Bundle())
        peak = [Bundle(max(a.gpus, b.gpus), max(a.cpus, b.cpus)) for a, b in pairs]
    return Request(tuple(peak), whole_nodes)


def stage_bundles(config: Config, stage: str, beside: bool = True) -> list[Bundle]:
    """What one stage holds at the same time.

    Args:
        beside: with what works beside the models: sandboxes, the scripted teacher, BM25.
    """
    train = config.train
    worker = Bundle(gpus=1.0 if train.use_gpu else 0.0, cpus=train.cpus_per_worker)
    extra = [Bundle(cpus=SANDBOX_CPUS)] * max(1, config.sandbox.actors) if beside else []
    retrieval = [Bundle(cpus=_RETRIEVAL_CPUS)] if beside else []
    if stage == "train" and train.grpo.enabled:
        return [worker] * train.workers + _replicas(config) + extra
    if stage == "warm_start" and train.warm_start.enabled:
        return [worker] * train.workers + extra  # the teacher's actor is gone before training begins
    if stage == "evaluate":
        agents = [worker] * config.evaluate.actors + _replicas(config) if config.evaluate.models else []
        return agents + extra + retrieval
    if stage == "label":
        return extra + retrieval
    return [Bundle(cpus=_DRIVER_CPUS)]


def _replicas(config: Config) -> list[Bundle]:
    """Engines in actors of their own; those on the trainer's GPUs ask Ray for none."""
    vllm = config.engine.vllm
    if vllm is None:
        return []
    own = vllm.device == "cuda" and vllm.placement == "own"
    gpus = float(vllm.tensor_parallel * vllm.pipeline_parallel) if own else 0.0
    return [Bundle(gpus=gpus, cpus=vllm.cpus)] * vllm.replicas
