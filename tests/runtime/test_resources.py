"""What jobs ask for, what fits where, and that nothing is promised twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.errors import ConfigError
from codegrep.runtime.resources import (
    Bundle,
    Demand,
    Ledger,
    Node,
    Request,
    check_room,
    place,
    request_of,
    stage_bundles,
)
from tests.sweeps.composed import PATHS, composed


def cluster(*nodes: tuple[float, float]) -> list[Node]:
    """Nodes of so many CPUs and GPUs."""
    return [Node(str(n), Bundle(gpus, cpus)) for n, (cpus, gpus) in enumerate(nodes)]


TRAIN = Demand("training workers", "train.workers", Bundle(cpus=1))
ENGINE = Demand("replicas", "engine.vllm.cpus", Bundle(cpus=0.5), 2)


def test_what_fits_is_admitted() -> None:
    check_room([TRAIN, ENGINE], cluster((2, 0)))
    check_room([], [])
    check_room([Demand("none", "x", Bundle(99, 99), 0)], cluster((1, 0)))
    check_room([Demand("tp", "x", Bundle(8, 1)), Demand("t", "y", Bundle(1, 1), 8)], cluster((16, 8), (16, 8)))


def test_one_process_larger_than_every_node_names_the_key_and_the_largest() -> None:
    with pytest.raises(ConfigError, match=r"tp asks for 1 CPU \+ 8 GPU on one node; .*4 GPU.*engine\.vllm\.tensor"):
        check_room([Demand("tp", "engine.vllm.tensor_parallel", Bundle(8, 1))], cluster((64, 4), (64, 4)))
    with pytest.raises(ConfigError, match="have nothing"):
        check_room([TRAIN], [])


def test_all_of_them_together_are_too_much() -> None:
    with pytest.raises(
        ConfigError,
        match=r"no room for 1 x training workers \(1 CPU\), 2 x replicas \(0.5 CPU\) together.*train\.workers",
    ):
        check_room([TRAIN, ENGINE], cluster((1.5, 0)))


def test_gpus_are_packed_by_the_largest_first() -> None:
    # first come, first served would put a worker onto each node and leave no room for the engine
    check_room([Demand("t", "y", Bundle(1, 1), 2), Demand("tp", "x", Bundle(3, 1))], cluster((8, 3), (8, 2)))


LAPTOP = [Node("laptop", Bundle(cpus=2))]
GPUS = [Node("a", Bundle(4, 16)), Node("b", Bundle(4, 16))]
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
    busy = [Node("a", Bundle(4, 16), Bundle(3, 0)), Node("b", Bundle(4, 16), Bundle(0, 15))]
    assert place(Request((GPU,)), busy) == {"a": GPU}
    assert place(Request((GPU, GPU)), busy) is None
    assert place(Request((Bundle(cpus=1),), whole_nodes=True), [Node("a", Bundle(cpus=4), Bundle(cpus=1))]) is None


def test_a_request_of_nothing_fits_always() -> None:
    assert place(Request(()), []) == {}


BUNDLES = st.builds(Bundle, st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from([0.5, 1.0, 4.0]))
REQUESTS = st.builds(Request, st.lists(BUNDLES, min_size=1, max_size=5).map(tuple), st.booleans())
NODES = st.lists(st.tuples(st.integers(1, 16), st.integers(0, 4)).map(lambda pair: pair), min_size=1, max_size=4).map(
    lambda pairs: [Node(str(i), Bundle(float(gpus), float(cpus))) for i, (cpus, gpus) in enumerate(pairs)]
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
            assert held.cpus <= node.total.cpus + 1e-6 and held.gpus <= node.total.gpus + 1e-6
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


def test_the_laptop_asks_for_its_node() -> None:
    request = request_of(composed("+experiment=v3"))
    assert request.whole_nodes and request.bundles == (Bundle(cpus=1.0),)
    assert str(request) == "1 x (1 CPU), nodes to itself"


def test_shared_nodes_count_trainer_sandbox_and_retrieval() -> None:
    request = request_of(composed("+experiment=v3"), share_nodes=True)
    assert request.bundles == (Bundle(cpus=1.0), Bundle(cpus=1.0), Bundle(cpus=0.5)) and not request.whole_nodes


def test_the_papers_scale_asks_for_eight_gpus_and_its_sandboxes() -> None:
    config = composed("+experiment=v3", "scale=paper", *PATHS, "sandbox.actors=4", "evaluate.actors=2")
    request = request_of(config)
    assert [b.gpus for b in request.bundles] == [1.0] * 8 + [0.0] * 5
    assert all(b.cpus == 8.0 for b in request.bundles[:9]), "trainer and the engine on its GPUs"
    assert all(b.cpus == 1.0 for b in request.bundles[9:]), "sandboxes"
    assert not request.whole_nodes


def test_the_peak_is_over_stages_not_their_sum() -> None:
    config = composed("+experiment=v3", "scale=paper", *PATHS, "evaluate.actors=3", "stages=[evaluate]")
    assert [b.gpus for b in request_of(config).bundles[:4]] == [1.0, 1.0, 1.0, 0.0]
    both = composed("+experiment=v3", "scale=paper", *PATHS, "evaluate.actors=3", "stages=[train,evaluate]")
    assert sum(b.gpus for b in request_of(both).bundles) == 8.0


def test_stages_without_models_ask_for_a_core() -> None:
    config = composed("+experiment=v3", "stages=[prepare]")
    assert request_of(config).bundles == (Bundle(cpus=1.0),) and not request_of(config).whole_nodes
    assert stage_bundles(composed("train.grpo.enabled=false"), "train") == [Bundle(cpus=1.0)]


def test_replicas_of_an_engine_count_with_the_gpus_of_their_own() -> None:
    own = composed(
        "+experiment=v3",
        "engine=vllm",
        "engine.vllm.device=cuda",
        "engine.vllm.tensor_parallel=2",
        "engine.vllm.replicas=3",
    )
    train = stage_bundles(own, "train", beside=False)
    assert train == [Bundle(cpus=1.0)] + [Bundle(gpus=2.0, cpus=0.5)] * 3
    assert stage_bundles(own, "evaluate", beside=False) == train
    cpu = composed("+experiment=v3", "engine=vllm")
    assert stage_bundles(cpu, "train", beside=False) == [Bundle(cpus=1.0), Bundle(cpus=0.5)]
    assert stage_bundles(composed("+experiment=v3"), "train", beside=False) == [Bundle(cpus=1.0)]
