"""Whether the cluster can hold what a run asks for. Ray itself waits for ever for what no node has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegrep.errors import ConfigError

_EPSILON = 1e-6


@dataclass(frozen=True)
class Demand:
    """`count` equal processes that run at the same time, each on one node.

    Attributes:
        what: what they are, in words. keys: configuration keys that make them smaller.
        cpus, gpus: of each.
    """

    what: str
    keys: str
    cpus: float
    gpus: float = 0.0
    count: int = 1


@dataclass(frozen=True)
class Node:
    """What one node has altogether."""

    cpus: float
    gpus: float = 0.0


def admit(demands: Sequence[Demand], nodes: Sequence[Node]) -> None:
    """Refuse what does not fit, largest first onto the node that is left with least.

    Raises:
        ConfigError: one process is larger than every node, or all of them together do not fit.
    """
    for demand in demands:
        if demand.count and not any(_fits(demand, node) for node in nodes):
            raise ConfigError(
                f"{demand.what} asks for {_amount(demand.cpus, demand.gpus)} on one node; the nodes have "
                f"{_listed(nodes)}",
                f"Lower {demand.keys}, or use a larger cluster",
            )
    left = list(nodes)
    for demand in sorted(demands, key=lambda d: (d.gpus, d.cpus), reverse=True):
        for placed in range(demand.count):
            able = [index for index, node in enumerate(left) if _fits(demand, node)]
            if not able:
                asked = ", ".join(f"{d.count} x {d.what} ({_amount(d.cpus, d.gpus)})" for d in demands if d.count)
                raise ConfigError(
                    f"there is room for {placed} of {demand.count} x {demand.what}: asked for are {asked}; the nodes "
                    f"have {_listed(nodes)}",
                    f"Lower {', '.join(sorted({d.keys for d in demands if d.count}))}, or use a larger cluster",
                )
            best = min(able, key=lambda index: (left[index].gpus, left[index].cpus))
            left[best] = Node(left[best].cpus - demand.cpus, left[best].gpus - demand.gpus)


def nodes_of_ray() -> list[Node]:
    """The living nodes of the running Ray."""
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Node(float(has.get("CPU", 0.0)), float(has.get("GPU", 0.0))) for has in alive]


def _fits(demand: Demand, node: Node) -> bool:
    return demand.cpus <= node.cpus + _EPSILON and demand.gpus <= node.gpus + _EPSILON


def _amount(cpus: float, gpus: float) -> str:
    return f"{cpus:g} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")


def _listed(nodes: Sequence[Node]) -> str:
    return ", ".join(f"{node.cpus:g} CPUs and {node.gpus:g} GPUs" for node in nodes) or "nothing"
