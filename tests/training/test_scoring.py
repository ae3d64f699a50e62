from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from codegrep.engines.models import load_model
from codegrep.training import scoring
from codegrep.training.lora import attach_lora
from codegrep.training.scoring import add_scoring
from tests.training.made_rollouts import LORA


def _model(nano: Path) -> torch.nn.Module:
    model = load_model(nano, "float32")
    model.requires_grad_(False)
    add_scoring(model)
    tuned = attach_lora(model, LORA, 0)
    for name, parameter in tuned.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    return tuned


def _plain(model: torch.nn.Module, ids: Tensor, mask: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Whole logits, for each row by itself without padding."""
    logprobs, entropy = torch.zeros(ids.shape), torch.zeros(ids.shape)
    for row in range(len(ids)):
        real = mask[row].bool()
        logits = model(input_ids=ids[row][real][None]).logits[0, :-1] / temperature
        log_p = torch.log_softmax(logits.float(), -1)
        places = real.nonzero()[1:, 0]
        logprobs[row, places] = log_p.gather(1, ids[row][real][1:, None])[:, 0]
        entropy[row, places] = -(log_p.exp() * log_p).sum(-1)
    return logprobs, entropy


@pytest.mark.parametrize("shape", [1, 4, 64])  # the prompt of 8 is shared up to 7, up to 4, not at all
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("shared", [True, False])
def test_scores_and_gradients_equal_whole_logits(
    nano: Path, shared: bool, temperature: float, shape: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "SHAPE", shape)
    model = _model(nano)
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 300, (5, 20), generator=generator)
    mask = torch.ones_like(ids)
    prompt = 8
    ids[1, :prompt] = ids[0, :prompt]  # rows 0, 1 and 3 share a prompt
    ids[3, :prompt] = ids[0, :prompt]
    mask[1, 15:] = 0
    mask[4, 9:] = 0  # one completion token
    if shared:
        mask[2, :3] = 0  # a shorter prompt, left-padded
    scored = torch.rand(ids.shape, generator=generator) < 0.6
    scored &= mask.bool()
    scored[:, :prompt] = False
    scored[0] = False  # nothing of row 0
    wanted, wanted_entropy = _plain(model, ids, mask, temperature)
    weights = torch.rand(ids.shape, generator=generator)
    (wanted * scored * weights).sum().backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()

    scores = model(
        input_ids=ids,
        attention_mask=mask,
        scored=scored,
        prompt_length=prompt if shared else 0,
        temperature=temperature,
    )
    assert torch.allclose(scores.logprobs, wanted * scored, atol=1e-5)
    assert torch.allclose(scores.entropy, wanted_entropy * scored, atol=1e-5)
    (scores.logprobs * weights).sum().backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert torch.allclose(parameter.grad, expected[name], atol=1e-5, rtol=1e-4), name


def test_nothing_to_score_is_a_differentiable_zero(nano: Path) -> None:
    model = _model(nano)
    ids = torch.randint(5, 300, (2, 6))
    scores = model(input_ids=ids, scored=torch.zeros_like(ids, dtype=torch.bool))
    scores.logprobs.sum().backward()
    assert all((p.grad is None or not p.grad.any()) for p in model.parameters())


def test_the_ordinary_forward_is_untouched(nano: Path) -> None:
    ids = torch.arange(10)[None]
    plain = load_model(nano, "float32")
    patched = load_model(nano, "float32")
    add_scoring(patched)
    assert torch.equal(plain(input_ids=ids).logits, patched(input_ids=ids).logits)
    assert torch.equal(
        plain.generate(ids, max_new_tokens=4, do_sample=False), patched.generate(ids, max_new_tokens=4, do_sample=False)
    )


@pytest.mark.parametrize("shared", [True, False])
def test_bfloat16_scores_are_near_float32(nano: Path, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "SHAPE", 8)
    exact = _model(nano)
    model = load_model(nano, "bfloat16")
    model.requires_grad_(False)
    add_scoring(model)
    rough = attach_lora(model, LORA, 0)
    rough.load_state_dict({n: p for n, p in exact.state_dict().items() if "lora" in n}, strict=False)
    ids = torch.randint(5, 300, (4, 40), generator=torch.Generator().manual_seed(6))
    ids[:, :12] = ids[0, :12]
    scored = torch.ones_like(ids, dtype=torch.bool)
    scored[:, :12] = False
    gradients = []
    for policy in (exact, rough):
        scores = policy(
            input_ids=ids, attention_mask=torch.ones_like(ids), scored=scored, prompt_length=12 if shared else 0
        )
        scores.logprobs.mean().backward()
        flat = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
        gradients.append((scores.logprobs.detach(), flat))
    (exact_scores, exact_gradient), (rough_scores, rough_gradient) = gradients
    assert (exact_scores - rough_scores).abs().max() < 0.1
    assert torch.cosine_similarity(exact_gradient, rough_gradient, dim=0) > 0.99
