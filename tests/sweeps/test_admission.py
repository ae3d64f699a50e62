"""The ledger of a queue: what fits where, and that nothing is promised twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codegrep.runtime.resource_requests import Bundle, Request
from codegrep.sweeps.admission import Ledger, Node, place

LAPTOP = [Node("laptop", cpus=2)]
GPUS = [Node("a", cpus=16, gpus=4), Node("b", cpus=16, gpus=4)]
GPU = Bundle(gpus=1, cpus=2)


def test_a_laptop_runs_one_job_at_a_time() -> None:
    ledger, request = Ledger(), Request((Bundle(cpus=1),), whole_nodes=True)
    assert ledger.admit("first", request, LAPTOP) == {"laptop": Bundle(cpus=2)}
    assert ledger.admit("second", request, LAPTOP) is None
    ledger.release("first")
    assert ledger.admit("second", request, LAPTOP) is not None


def test_several_share_a_node_when_they_are_told_to() -> None:
    ledger, request = Ledger(), Request((Bundle(cpus=1),))
    assert [ledger.admit(name, request, LAPTOP) is not None for name in "abc"] == [True, True, False]


def test_a_gang_is_taken_whole_or_not_at_all() -> None:
    """Two jobs of six GPUs on eight: one runs, and the other holds nothing meanwhile."""
    ledger, request = Ledger(), Request((GPU,) * 6)
    grant = ledger.admit("first", request, GPUS)
    assert grant == {"a": Bundle(4, 8), "b": Bundle(2, 4)}
    assert ledger.admit("second", request, GPUS) is None
    assert ledger.held("a") == Bundle(4, 8) and ledger.held("b") == Bundle(2, 4)
    assert ledger.admit("third", Request((GPU,) * 2), GPUS) == {"b": Bundle(2, 4)}


def test_a_bundle_is_never_split_over_nodes() -> None:
    assert place(Request((Bundle(cpus=20),)), GPUS) is None
    assert place(Request((Bundle(cpus=16), Bundle(cpus=16))), GPUS) is not None


def test_what_others_use_is_not_ours() -> None:
    busy = [Node("a", cpus=16, gpus=4, others_cpus=0, others_gpus=3), Node("b", cpus=16, gpus=4, others_cpus=15)]
    assert place(Request((GPU,)), busy) == {"a": GPU}
    assert place(Request((GPU, GPU)), busy) is None
    assert place(Request((Bundle(cpus=1),), whole_nodes=True), [Node("a", cpus=4, others_cpus=1)]) is None


def test_a_request_of_nothing_fits_always() -> None:
    assert place(Request(()), []) == {}


BUNDLES = st.builds(Bundle, st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from([0.5, 1.0, 4.0]))
REQUESTS = st.builds(Request, st.lists(BUNDLES, min_size=1, max_size=5).map(tuple), st.booleans())
NODES = st.lists(st.tuples(st.integers(1, 16), st.integers(0, 4)).map(lambda pair: pair), min_size=1, max_size=4).map(
    lambda pairs: [Node(str(i), float(cpus), float(gpus)) for i, (cpus, gpus) in enumerate(pairs)]
)


@given(st.lists(st.tuples(REQUESTS, st.booleans()), max_size=12), NODES)
def test_no_node_is_ever_promised_more_than_it_has(steps: list[tuple[Request, bool]], nodes: list[Node]) -> None:
    ledger = Ledger()
    for number, (request, release) in enumerate(steps):
        grant = ledger.admit(str(number), request, nodes)
        if grant is not None and not request.whole_nodes:
            assert sum(b.cpus for b in grant.values()) == sum(b.cpus for b in request.bundles)
            assert sum(b.gpus for b in grant.values()) == sum(b.gpus for b in request.bundles)
        if grant is None:
            assert str(number) not in ledger.grants
        for node in nodes:
            held = ledger.held(node.id)
            assert held.cpus <= node.cpus + 1e-6 and held.gpus <= node.gpus + 1e-6
        if release and ledger.grants:
            ledger.release(next(iter(ledger.grants)))


@given(REQUESTS, NODES)
def test_what_fits_an_empty_cluster_is_admitted_in_the_end(request: Request, nodes: list[Node]) -> None:
    """So a queue that is not empty moves: when all running jobs have ended the first one fits, or never will."""
    ledger = Ledger()
    fits = place(request, nodes) is not None
    other = ledger.admit("other", Request((Bundle(cpus=1.0),)), nodes)
    assert other is not None
    ledger.release("other")
    assert (ledger.admit("job", request, nodes) is not None) == fits
