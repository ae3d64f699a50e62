"""Log-probabilities of chosen tokens only.

Two savings over scoring whole sequences, both without changing a number beyond rounding:
- The output head (49,152 rows in SmolLM2, a fifth of the forward pass) is applied only where a token is trained on.
  Prompt, tool text and padding are most of a rollout. TRL 1.16 skips them on GPUs alone.
- The rollouts of a group share their prompt: it goes through the model once, and the completions attend to its keys and
  values (gradients included).
"""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel

from codegrep.engines.cpu.causal_attention import causal_attention
from codegrep.errors import ModelError

# Lengths are rounded up to multiples of this. The CPU's matrix library compiles a product for each new shape and keeps
# it: with free lengths a step takes half as long again, and memory grows.
SHAPE = 64
_CHUNK = 1024  # rows of (rows, vocabulary) logits that exist at once


@dataclass
class TokenScores:
    """Scores of tokens, 0 where a token was not scored.

    Attributes:
        logprobs: (B, T) log-probability of each token given those before it; differentiable.
        entropy: (B, T) entropy of the distribution it was drawn from, without gradient.
    """

    logprobs: Tensor
    entropy: Tensor


def add_scoring(model: PreTrainedModel) -> None:
    """Let `model(input_ids, scored=..., prompt_length=..., temperature=...)` return TokenScores.

    It is a keyword of the model's own forward, and no function beside it, so that PEFT and DistributedDataParallel see
    an ordinary forward pass. Call it before PEFT wraps the model.

    Keywords of the new call:
        input_ids: (B, T). Left padding only inside the prompt, right padding only after it; neither is ever scored.
        attention_mask: (B, T), needed with a prompt_length.
        scored: (B, T) bool, tokens that are scored; never the first of a sequence.
        prompt_length: the first so many columns are prompts, each computed once for equal rows; 0 means no sharing.
        temperature: logits are divided by it.

    Raises:
        ModelError: the model scales or caps its logits, or its head has a bias.
    """
    text = model.config.get_text_config()
    odd = [
        name
        for name in (
            "final_logit_softcapping",
            "logit_scale",
            "output_multiplier",
            "lm_head_multiplier",
            "logits_scaling",
        )
        if getattr(text, name, None) not in (None, 1.0)
    ]
    if odd:
        raise ModelError(
            f"models that change their logits ({', '.join(odd)}) cannot be trained yet", "Use another model"
        )
    original = model.forward

    @functools.wraps(type(model).forward)
    def forward(self: PreTrainedModel, *args: Any, scored: Tensor | None = None, **kwargs: Any) -> Any:
        if scored is None:
            return original(*args, **kwargs)
        return _score(self, scored=scored, **_known(kwargs))

    model.forward = types.MethodType(forward, model)


def _known(kwargs: dict[str, Any]) -> dict[str, Any]:
    # PEFT adds its own keywords (labels=None, return_dict=None, …).
    return {k: kwargs[k] for k in ("input_ids", "attention_mask", "prompt_length", "temperature") if k in kwargs}


def _score(
    model: PreTrainedModel,
    input_ids: Tensor,
    scored: Tensor,
    attention_mask: Tensor | None = None,
    prompt_length: int = 0,
    temperature: float = 1.0,
) -> TokenScores:
    with causal_attention(model):
        if prompt_length and attention_mask is not None:
            hidden = _hidden_shared(model, input_ids, attention_mask, scored, prompt_length)
        else:
            # Right padding under a causal mask cannot be seen by the tokens before it: no attention mask is needed.
            states = model.base_model(input_ids=input_ids, use_cache=False).last_hidden_state
            hidden = states[:, :-1][scored[:, 1:]]
    head, targets = _head(model), input_ids[scored]
    if head.requires_grad and torch.is_grad_enabled():
        values, entropy = _through_the_head(hidden, head, targets, temperature)
    else:
        values, entropy = _TokenLogProbs.apply(hidden, head, targets, temperature)  # type: ignore[no-untyped-call]
    empty = values.new_zeros(input_ids.shape)
    return TokenScores(empty.masked_scatter(scored, values), empty.masked_scatter(scored, entropy))


def _hidden_shared(
    model: PreTrainedModel, input_ids: Tensor, attention_mask: Tensor, scored: Tensor, prompt_length: int
) -> Tensor:
    """(N, H) hidden states that predict the scored tokens, in row-major order of `scored`."""
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    # What is not scored needs no pass, but one row has to go through: every worker takes part in the backward pass.
    has_scored = scored.any(1).tolist()
    for row in [row for row, needed in enumerate(has_scored) if needed] or [0]:
        prompt = input_ids[row, :prompt_length][attention_mask[row, :prompt_length].bool()]
        by_prompt.setdefault(tuple(prompt.tolist()), []).append(row)
    pieces: list[Tensor | None] = [None] * len(input_ids)
    for prompt_ids, rows in by_prompt.items():
        longest = max(int(attention_mask[row, prompt_length:].sum()) for row in rows)
        completions = input_ids[rows, prompt_length : prompt_length + longest]
        states = _group_states(model, input_ids.new_tensor(prompt_ids), completions)
        for place, row in enumerate(rows):
            pieces[row] = states[place][scored[row, prompt_length : prompt_length + longest]]
    return torch.cat([piece for piece in pieces if piece is not None])


def _group_states(model: PreTrainedModel, prompt: Tensor, completions: Tensor) -> Tensor:
    """(n, C, H) states that predict completions[i, t]; prompt (P,), completions (n, C).

    What is computed once is the prompt's largest multiple of SHAPE tokens; the rest of it goes with each completion,
    which is padded on the right. So every product has one of few shapes.
    """
    count, length = completions.shape
    once = (len(prompt) - 1) // SHAPE * SHAPE
    rest = prompt[once:].expand(count, -1)
    rows = torch.cat([rest, completions[:, :-1]], dim=1)  # the last token predicts nothing that is scored
    rows = torch.nn.functional.pad(rows, (0, -rows.shape[1] % SHAPE))
    cache = None
    if once:
        cache = DynamicCache(config=model.config)
        model.base_model(input_ids=prompt[None, :once], past_key_values=cache, use_cache=True)
        cache.batch_repeat_interleave(count)
    states = model.base_model(input_ids=rows, past_key_values=cache, use_cache=cache is not None).last_hidden_state
    first = len(prompt) - once - 1
    return cast(Tensor, states[:, first : first + length])


def _head(model: PreTrainedModel) -> Tensor:
    head = model.get_output_embeddings()
    weight = getattr(head, "weight", None)
    if not isinstance(weight, Tensor) or getattr(head, "bias", None) is not None:
        raise ModelError("the model's output head has a bias", "Only heads without bias are supported")
    return weight


def _through_the_head(hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """As `_TokenLogProbs`, with a gradient to the head too; logits are computed again in the backward pass."""

    def scores(rows: Tensor, head: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        log_p = torch.log_softmax((rows @ head.T).float() / temperature, dim=-1)
        entropy = -torch.linalg.vecdot(log_p.detach().exp(), log_p.detach())
        return log_p.gather(1, labels[:, None])[:, 0], entropy

    parts = [
        checkpoint(scores, hidden[start : start + _CHUNK], weight, targets[start : start + _CHUNK], use_reentrant=False)
        for start in range(0, max(1, len(targets)), _CHUNK)
    ]
    return torch.cat([values for values, _ in parts]), torch.cat([entropy for _, entropy in parts])


class _TokenLogProbs(torch.autograd.Function):
    """log softmax(h Wᵀ / τ)[target] for rows h, with the gradient to h made on the way.

    The head is frozen, so d log p / d h = (W[target] - p W) / τ is all that backward needs: (rows, H) numbers instead
    of (rows, vocabulary). Shapes: hidden (N, H), weight (V, H), targets (N,); two outputs (N,) float32.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        count = len(targets)
        hidden = torch.nn.functional.pad(hidden, (0, 0, 0, -count % (4 * SHAPE)))
        targets = torch.nn.functional.pad(targets, (0, -count % (4 * SHAPE)))
        logprobs = hidden.new_empty(len(targets), dtype=torch.float32)
        entropy = torch.empty_like(logprobs)
        slopes = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        for start in range(0, len(targets), _CHUNK):
            part = slice(start, start + _CHUNK)
            logits = (hidden[part] @ weight.T).float()
            if temperature != 1.0:
                logits /= temperature
            log_p = torch.log_softmax(logits, dim=-1)
            logprobs[part] = log_p.gather(1, targets[part, None])[:, 0]
            p = log_p.exp()
            entropy[part] = -torch.linalg.vecdot(p, log_p)
            if slopes is not None:
                slopes[part] = (weight[targets[part]].float() - (p.to(weight.dtype) @ weight).float()) / temperature
        if slopes is not None:
            ctx.save_for_backward(slopes[:count])
        logprobs, entropy = logprobs[:count].clone(), entropy[:count].clone()
        ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _entropy: Tensor) -> tuple[Tensor, None, None, None]:
        (slopes,) = ctx.saved_tensors
        return (grad[:, None] * slopes).to(slopes.dtype), None, None, None
