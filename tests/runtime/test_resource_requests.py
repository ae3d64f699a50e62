"""What a job asks for, read off its configuration."""

from __future__ import annotations

from codegrep.runtime.resource_requests import Bundle, request_of, stage_bundles
from tests.sweeps.composed import PATHS, composed


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
