"""What jobs ask of a cluster and what its nodes have: one model and one packer for engines, sweeps and submissions.

Ray waits for ever for what no node has, and jobs that take their parts one after another can each hold what the other
waits for. So what a job needs at its peak is read off its configuration and placed before anything starts.
Importing this module imports neither ray nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from codegrep.config import Config
from codegrep.errors import ConfigError

# A sandbox actor sets no CPU aside in Ray, so that searches use what is free; a queue has to count what they use.
SANDBOX_CPUS = 1.0
_RETRIEVAL_CPUS = 0.5  # the scripted teacher and BM25, one actor each
_DRIVER_CPUS = 1.0  # stages that compute in the job's own process: prepare, report
_COMPUTING = {"warm_start", "train", "evaluate"}
_ROUNDING = 1e-6


@dataclass(frozen=True, order=True)
class Bundle:
    """Resources on one node."""

    gpus: float = 0.0
    cpus: float = 0.0

    def __add__(self, other: Bundle) -> Bundle:
        return Bundle(self.gpus + other.gpus, self.cpus + other.cpus)

    def __sub__(self, other: Bundle) -> Bundle:
        return Bundle(self.gpus - other.gpus, self.cpus - other.cpus)

    def __str__(self) -> str:
        return f"{self.cpus:g} CPU" + (f" + {self.gpus:g} GPU" if self.gpus else "")

    def fits(self, free: Bundle) -> bool:
        """Return whether it can be had of what is free."""
        return self.gpus <= free.gpus + _ROUNDING and self.cpus <= free.cpus + _ROUNDING


@dataclass(frozen=True)
class Request:
    """The peak of a job over its stages.

    Attributes:
        bundles: largest first.
        whole_nodes: a worker without a GPU computes with all cores of its node, whatever it asks Ray for, so the job
            should have its nodes to itself. Its sandboxes share them: they work while the workers wait.
    """

    bundles: tuple[Bundle, ...]
    whole_nodes: bool = False

    def __str__(self) -> str:
        kinds = dict.fromkeys(self.bundles)
        parts = [f"{self.bundles.count(kind)} x ({kind})" for kind in kinds]
        return " and ".join(parts) + (", nodes to itself" if self.whole_nodes else "")


@dataclass(frozen=True)
class Demand:
    """Equal processes that run at the same time, each on one node.

    Attributes:
        what: what they are, in words.
        keys: configuration keys that make them smaller or fewer.
        each: what one of them asks Ray for.
        count: how many there are.
    """

    what: str
    keys: str
    each: Bundle
    count: int = 1


@dataclass(frozen=True)
class Node:
    """A living node. others: what other users of the cluster hold on it."""

    id: str
    total: Bundle
    others: Bundle = Bundle()  # frozen


Grant = Mapping[str, Bundle]  # node id -> what is set aside there


@dataclass
class Ledger:
    """What running jobs have been granted."""

    grants: dict[str, Grant] = field(default_factory=dict)

    def admit(self, job: str, request: Request, nodes: Iterable[Node]) -> Grant | None:
        """Set aside what the job asks for; None, and nothing is set aside, when it does not fit now."""
        grant = place(request, nodes, self.grants.values())
        if grant is not None:
            self.grants[job] = grant
        return grant

    def release(self, job: str) -> None:
        """Free what a job held that has ended."""
        self.grants.pop(job, None)

    def held(self, node: str) -> Bundle:
        """Return what the running jobs may use of a node."""
        return _held(node, self.grants.values())


def place(request: Request, nodes: Iterable[Node], grants: Iterable[Grant] = ()) -> Grant | None:
    """Return nodes for all bundles at once (first fit, largest bundle first), or None.

    Args:
        request: of the job. With whole_nodes only nodes that nobody uses are taken, and all of their CPUs.
        nodes: living ones.
        grants: what is set aside already.
    """
    grants = list(grants)
    free: dict[str, Bundle] = {}
    whole: dict[str, Bundle] = {}
    for node in nodes:
        held = _held(node.id, grants)
        whole[node.id] = node.total
        if request.whole_nodes and (held != Bundle() or node.others.cpus > _ROUNDING):
            continue
        free[node.id] = node.total - held - node.others
    taken: dict[str, Bundle] = {}
    for bundle in sorted(request.bundles, reverse=True):
        # Nodes that the job already has come first; then the fullest, so that large gaps stay for large jobs.
        by_preference = sorted(free, key=lambda n: (n not in taken, free[n], n))
        node_id = next((n for n in by_preference if bundle.fits(free[n])), None)
        if node_id is None:
            return None
        free[node_id] -= bundle
        taken[node_id] = taken.get(node_id, Bundle()) + bundle
    return {node_id: whole[node_id] for node_id in taken} if request.whole_nodes else taken


def check_room(demands: Sequence[Demand], nodes: Sequence[Node]) -> None:
    """Refuse what does not fit.

    Raises:
        ConfigError: one process is larger than every node, or all of them together do not fit.
    """
    demands = [demand for demand in demands if demand.count]
    have = ", ".join(str(node.total) for node in nodes) or "nothing"
    for demand in demands:
        if not any(demand.each.fits(node.total) for node in nodes):
            raise ConfigError(
                f"{demand.what} asks for {demand.each} on one node; the nodes have {have}",
                f"Lower {demand.keys}, or use a larger cluster",
            )
    if place(Request(tuple(demand.each for demand in demands for _ in range(demand.count))), nodes) is None:
        asked = ", ".join(f"{demand.count} x {demand.what} ({demand.each})" for demand in demands)
        raise ConfigError(
            f"there is no room for {asked} together; the nodes have {have}",
            f"Lower {', '.join(sorted({demand.keys for demand in demands}))}, or use a larger cluster",
        )


def living_nodes(ledger: Ledger | None = None) -> list[Node]:
    """Return the nodes of the connected Ray.

    Args:
        ledger: what our own jobs hold; what is in use beyond that is somebody else's. Without it nothing is.
    """
    import ray

    totals = {
        node["NodeID"]: Bundle(float(node["Resources"].get("GPU", 0.0)), float(node["Resources"].get("CPU", 0.0)))
        for node in ray.nodes()
        if node["Alive"]
    }
    if ledger is None:
        return [Node(node_id, total) for node_id, total in totals.items()]
    from ray._private.state import available_resources_per_node  # no public call tells it by node

    available = available_resources_per_node()
    nodes = []
    for node_id, total in totals.items():
        free = available.get(node_id, {})
        used = total - Bundle(float(free.get("GPU", 0.0)), float(free.get("CPU", 0.0))) - ledger.held(node_id)
        nodes.append(Node(node_id, total, Bundle(max(0.0, used.gpus), max(0.0, used.cpus))))
    return nodes


def request_of(config: Config, share_nodes: bool = False) -> Request:
    """Return the largest request over the stages that the job runs: trainer, engines and sandboxes.

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
    """Return what one stage holds at the same time.

    Args:
        config: of the job.
        stage: its name.
        beside: with what works beside the models: sandboxes, the scripted teacher, BM25.
    """
    train = config.train
    worker = training_workers(config).each
    engine = engine_replicas(config)
    replicas = [engine.each] * engine.count
    extra = [Bundle(cpus=SANDBOX_CPUS)] * max(1, config.sandbox.actors) if beside else []
    retrieval = [Bundle(cpus=_RETRIEVAL_CPUS)] if beside else []
    if stage == "train" and train.grpo.enabled:
        return [worker] * train.workers + replicas + extra
    if stage == "warm_start" and train.warm_start.enabled:
        return [worker] * train.workers + extra  # the teacher's actor is gone before training begins
    if stage == "evaluate":
        agents = [worker] * config.evaluate.actors + replicas if config.evaluate.models else []
        return agents + extra + retrieval
    if stage == "label":
        return extra + retrieval
    return [Bundle(cpus=_DRIVER_CPUS)]


def training_workers(config: Config) -> Demand:
    """Return what the training workers ask for."""
    train = config.train
    each = Bundle(gpus=1.0 if train.use_gpu else 0.0, cpus=train.cpus_per_worker)
    return Demand("training workers", "train.workers or train.cpus_per_worker", each, train.workers)


def engine_replicas(config: Config) -> Demand:
    """Return what engines in actors of their own ask for; those on the trainer's GPUs ask Ray for no GPU."""
    what = f"replicas of engine={config.engine.name}"
    keys = "engine.vllm.cpus, engine.vllm.replicas or engine.vllm.tensor_parallel"
    vllm = config.engine.vllm
    if vllm is None:
        return Demand(what, keys, Bundle(), 0)
    own = vllm.device == "cuda" and vllm.placement == "own"
    gpus = float(vllm.tensor_parallel * vllm.pipeline_parallel) if own else 0.0
    return Demand(what, keys, Bundle(gpus, vllm.cpus), vllm.replicas)


def _held(node: str, grants: Iterable[Grant]) -> Bundle:
    return sum((grant.get(node, Bundle()) for grant in grants), Bundle())
