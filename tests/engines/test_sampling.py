from __future__ import annotations

import math

import pytest
import torch

from codegrep.engines.engine import Sampling
from codegrep.engines.sampling import draw
from codegrep.errors import InfrastructureError

PROBABILITIES = [0.4, 0.3, 0.15, 0.1, 0.05]
LOGITS = torch.log(torch.tensor(PROBABILITIES))


def frequencies(sampling: Sampling, number: int = 4000) -> list[float]:
    uniforms = [(i + 0.5) / number for i in range(number)]
    ids, logprobs = draw(LOGITS.expand(number, -1), [sampling] * number, uniforms)
    assert logprobs == pytest.approx([math.log(PROBABILITIES[i]) for i in ids], abs=1e-5)
    return [ids.count(i) / number for i in range(len(PROBABILITIES))]


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(1), 5),
        (Sampling(1, 0.0), 1),
        (Sampling(1, 0.0, 0.1, 3), 1),
        (Sampling(1, top_k=2), 2),
        (Sampling(1, top_k=9), 5),
        (Sampling(1, top_p=0.7), 2),
        (Sampling(1, top_p=0.71), 3),
        (Sampling(1, top_p=0.01), 1),
        (Sampling(1, top_p=0.5, top_k=2), 1),  # 0.4 / 0.7 > 0.5 after top-k
        (Sampling(1, top_p=0.6, top_k=2), 2),
    ],
)
def test_distribution(sampling: Sampling, kept: int) -> None:
    total = sum(PROBABILITIES[:kept])
    expected = [p / total if i < kept else 0.0 for i, p in enumerate(PROBABILITIES)]
    assert frequencies(sampling) == pytest.approx(expected, abs=0.002)


def test_temperature() -> None:
    weights = [p**2 for p in PROBABILITIES]
    assert frequencies(Sampling(1, 0.5)) == pytest.approx([w / sum(weights) for w in weights], abs=0.002)


def test_rows_do_not_touch_each_other() -> None:
    settings = [Sampling(1), Sampling(1, 0.0), Sampling(1, top_p=0.5), Sampling(1, 0.7, 0.9, 3)]
    logits = torch.randn(4, 2000, generator=torch.Generator().manual_seed(0))
    uniforms = [0.1, 0.5, 0.9, 0.99]
    together = draw(logits, settings, uniforms)[0]
    assert together == [draw(logits[i : i + 1], [settings[i]], [uniforms[i]])[0][0] for i in range(4)]


def test_flat_distribution_wider_than_the_window() -> None:
    number, vocabulary = 300, 3000
    ids, _ = draw(
        torch.zeros(number, vocabulary), [Sampling(1, top_p=0.9)] * number, [(i + 0.5) / number for i in range(number)]
    )
    assert len(set(ids)) == number


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_ends_of_the_interval(uniform: float) -> None:
    logits = torch.tensor([[float("-inf"), 0.0, 0.0, float("-inf")]])
    ids, logprobs = draw(logits, [Sampling(1)], [uniform])
    assert ids[0] in (1, 2) and math.isfinite(logprobs[0])


def test_garbage_is_infrastructure() -> None:
    with pytest.raises(InfrastructureError, match="not finite"):
        draw(torch.tensor([[0.0, float("nan")]]), [Sampling(1)], [0.5])
