"""Which jobs of a queue may start: a ledger of the cluster's nodes. Pure.

Jobs take their parts one after another (a trainer's placement group, then engines, then Ray Data's actors). Started
without a plan, two of them can each hold what the other waits for. So a job starts only when its whole peak fits beside
the peaks of the jobs that run, node by node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from codegrep.runtime.resource_requests import Bundle, Request

_ROUNDING = 1e-6


@dataclass(frozen=True)
class Node:
    """A living node: what it has, and what other users of the cluster hold on it."""

    id: str
    cpus: float
    gpus: float = 0.0
    others_cpus: float = 0.0
    others_gpus: float = 0.0


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
        """The job has ended."""
        self.grants.pop(job, None)

    def held(self, node: str) -> Bundle:
        """What our jobs may use of a node."""
        return _held(node, self.grants.values())


def place(request: Request, nodes: Iterable[Node], grants: Iterable[Grant] = ()) -> Grant | None:
    """Nodes for all bundles at once (first fit, largest bundle first), or None.

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
        whole[node.id] = Bundle(node.gpus, node.cpus)
        if request.whole_nodes and (held != Bundle() or node.others_cpus > _ROUNDING):
            continue
        free[node.id] = Bundle(node.gpus - held.gpus - node.others_gpus, node.cpus - held.cpus - node.others_cpus)
    taken: dict[str, Bundle] = {}
    for bundle in sorted(request.bundles, reverse=True):
        node_id = next((n for n in _nearest(free, taken) if _fits(bundle, free[n])), None)
        if node_id is None:
            return None
        free[node_id] = _minus(free[node_id], bundle)
        taken[node_id] = _plus(taken.get(node_id, Bundle()), bundle)
    if request.whole_nodes:
        return {node_id: whole[node_id] for node_id in taken}
    return taken


def _nearest(free: Mapping[str, Bundle], taken: Mapping[str, Bundle]) -> list[str]:
    """Nodes that the job already has come first; then the fullest, so that large gaps stay for large jobs."""
    return sorted(free, key=lambda n: (n not in taken, free[n].gpus, free[n].cpus, n))


def _held(node: str, grants: Iterable[Grant]) -> Bundle:
    total = Bundle()
    for grant in grants:
        total = _plus(total, grant.get(node, Bundle()))
    return total


def _fits(bundle: Bundle, free: Bundle) -> bool:
    return bundle.gpus <= free.gpus + _ROUNDING and bundle.cpus <= free.cpus + _ROUNDING


def _plus(a: Bundle, b: Bundle) -> Bundle:
    return Bundle(a.gpus + b.gpus, a.cpus + b.cpus)


def _minus(a: Bundle, b: Bundle) -> Bundle:
    return Bundle(a.gpus - b.gpus, a.cpus - b.cpus)
