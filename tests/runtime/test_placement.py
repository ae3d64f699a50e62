from __future__ import annotations

import pytest

from codegrep.errors import ConfigError
from codegrep.runtime.placement import Demand, Node, admit

TRAIN = Demand("training workers", "train.workers", 1.0, 0.0, 1)
ENGINE = Demand("replicas", "engine.vllm.cpus", 0.5, 0.0, 2)


def test_what_fits_is_admitted() -> None:
    admit([TRAIN, ENGINE], [Node(2)])
    admit([], [])
    admit([Demand("none", "x", 99, 99, 0)], [Node(1)])
    admit([Demand("tp", "x", 1, 8), Demand("t", "y", 1, 1, 8)], [Node(16, 8), Node(16, 8)])


def test_one_process_larger_than_every_node_names_the_key_and_the_largest() -> None:
    with pytest.raises(ConfigError, match=r"tp asks for 1 CPUs and 8 GPUs on one node; .*4 GPUs.*engine\.vllm\.tensor"):
        admit([Demand("tp", "engine.vllm.tensor_parallel", 1, 8)], [Node(64, 4), Node(64, 4)])
    with pytest.raises(ConfigError, match="have nothing"):
        admit([TRAIN], [])


def test_all_of_them_together_are_too_much() -> None:
    with pytest.raises(ConfigError, match=r"room for 1 of 2 x replicas.*train\.workers"):
        admit([TRAIN, ENGINE], [Node(1.5)])


def test_gpus_are_packed_by_the_largest_first() -> None:
    # first come, first served would put a worker onto each node and leave no room for the engine
    admit([Demand("t", "y", 1, 1, 2), Demand("tp", "x", 1, 3)], [Node(8, 3), Node(8, 2)])
