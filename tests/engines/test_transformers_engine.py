from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from codegrep.engines.engine import Engine, Generation, GenerationRequest, Sampling
from codegrep.engines.transformers_engine import TransformersEngine
from codegrep.errors import InfrastructureError, ModelError

GREEDY = Sampling(max_tokens=12, temperature=0.0)
STOP = 7
SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 4096,
}


def make_model(kind: str = "llama") -> Any:
    torch.manual_seed(0)
    model: Any = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
        "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES)),
    }[kind]()
    with torch.no_grad():  # the default initialisation is so small that every prompt gives the same token
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(12)
    return model


def make_engine(model: Any, **changes: Any) -> TransformersEngine:
    settings = {
        "pad_id": 0,
        "stop_ids": frozenset({STOP}),
        "context": 512,
        "max_batch": 4,
        "max_wait_ms": 1.0,
    } | changes
    return TransformersEngine(model, **settings)


def prompts(number: int, seed: int = 0) -> list[tuple[int, ...]]:
    draws = random.Random(seed)
    return [tuple(draws.randrange(8, 97) for _ in range(draws.randrange(1, 40))) for _ in range(number)]


def run(engine: TransformersEngine, requests: list[GenerationRequest]) -> list[Generation]:
    async def all_of_them() -> list[Generation]:
        return list(await asyncio.gather(*(engine.generate(request) for request in requests)))

    return asyncio.run(all_of_them())


def closing(engine: TransformersEngine, work: Coroutine[Any, Any, Any]) -> Any:
    async def both() -> Any:
        try:
            return await work
        finally:
            await engine.close()

    return asyncio.run(both())


def reference(model: Any, prompt: tuple[int, ...], max_tokens: int) -> tuple[list[int], list[float]]:
    """Greedy decoding without any cache, one sequence."""
    ids, logprobs = list(prompt), []
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for _ in range(max_tokens):
            distribution = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0, -1].float(), dim=-1)
            token = int(distribution.argmax())
            ids.append(token)
            logprobs.append(float(distribution[token]))
            if token == STOP:
                break
    model.train(was_training)
    return ids[len(prompt) :], logprobs


def assert_same(generation: Generation, expected: tuple[list[int], list[float]]) -> None:
    assert list(generation.token_ids) == expected[0]
    assert generation.logprobs == pytest.approx(expected[1], abs=1e-4)


def test_meets_the_protocol() -> None:
    assert isinstance(make_engine(make_model()), Engine)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("prefix_gib", [0.0, 1.0])
def test_many_rows_of_all_lengths_equal_one_by_one_without_cache(kind: str, prefix_gib: float) -> None:
    model = make_model(kind)
    engine = make_engine(model, prefix_gib=prefix_gib)
    draws = random.Random(1)
    # more requests than places, so that rows come and go in the middle
    requests = [GenerationRequest(p, Sampling(draws.randrange(1, 30), 0.0)) for p in prompts(17)]
    results = run(engine, requests)
    for request, result in zip(requests, results, strict=True):
        assert_same(result, reference(model, request.prompt_ids, request.sampling.max_tokens))
        expected = "stop" if result.token_ids[-1] == STOP else "length"
        assert result.finish_reason == expected
    assert len({result.token_ids for result in results}) > 5
    # next turns: each prompt continues an earlier one, and some share a beginning
    later = [
        GenerationRequest((*q.prompt_ids, *r.token_ids, *p), GREEDY)
        for q, r, p in zip(requests, results, prompts(17, 2), strict=True)
    ]
    later += [GenerationRequest((*requests[0].prompt_ids, 9, 9, k), GREEDY) for k in range(10, 14)]
    for request, result in zip(later, run(engine, later), strict=True):
        assert_same(result, reference(model, request.prompt_ids, 12))
    asyncio.run(engine.close())


def test_equal_prompts_of_a_group_and_longer_prompts_than_a_prefill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codegrep.engines.decoder.PREFILL_TOKENS", 16)
    model = make_model()
    engine = make_engine(model, max_batch=8)
    (long,) = prompts(1, 5)
    long = (long * 40)[:100]
    requests = [GenerationRequest(long, GREEDY)] * 8 + [GenerationRequest(p, GREEDY) for p in prompts(5)]
    for request, result in zip(requests, run(engine, requests), strict=True):
        assert_same(result, reference(model, request.prompt_ids, 12))
    asyncio.run(engine.close())


def test_logprobs_are_raw_under_any_sampling() -> None:
    model = make_model()
    engine = make_engine(model)
    settings = [Sampling(10, 1.0, 0.9, 50), Sampling(10, 0.5), Sampling(10, 2.0, 0.5), Sampling(10, 0.0)]
    requests = [GenerationRequest(p, s, seed=i) for i, (p, s) in enumerate(zip(prompts(4), settings, strict=True))]
    for request, result in zip(requests, run(engine, requests), strict=True):
        ids = torch.tensor([[*request.prompt_ids, *result.token_ids]])
        with torch.no_grad():
            distribution = torch.log_softmax(model.eval()(input_ids=ids).logits[0].float(), dim=-1)
        start = len(request.prompt_ids)
        expected = [float(distribution[start + i - 1, token]) for i, token in enumerate(result.token_ids)]
        assert result.logprobs == pytest.approx(expected, abs=1e-4)
    asyncio.run(engine.close())


def test_a_seed_gives_the_same_draw_in_any_company() -> None:
    model = make_model()
    sampling = Sampling(20, 1.0)
    alone = run(make_engine(model), [GenerationRequest(prompts(1)[0], sampling, seed=3)])[0]
    crowd = [GenerationRequest(p, sampling, seed=i) for i, p in enumerate(prompts(6, 9))]
    together = run(make_engine(model), [*crowd, GenerationRequest(prompts(1)[0], sampling, seed=3)])[-1]
    other = run(make_engine(model), [GenerationRequest(prompts(1)[0], sampling, seed=4)])[0]
    assert alone.token_ids == together.token_ids != other.token_ids


def test_without_seeds_draws_differ_and_follow_the_engines_seed() -> None:
    model = make_model()
    request = GenerationRequest(prompts(1)[0], Sampling(10, 1.0))
    first = [g.token_ids for g in run(make_engine(model, seed=1), [request] * 3)]
    assert len(set(first)) == 3
    assert first == [g.token_ids for g in run(make_engine(model, seed=1), [request] * 3)]


def test_context_limits() -> None:
    engine = make_engine(make_model(), context=20)
    requests = [GenerationRequest(tuple(range(8, 8 + n)), Sampling(50, 0.0)) for n in (19, 20, 25, 15)]
    results = run(engine, requests)
    assert [len(result.token_ids) <= room for result, room in zip(results, (1, 0, 0, 5), strict=True)] == [True] * 4
    assert results[1] == results[2] == Generation((), (), "length")
    asyncio.run(engine.close())


def test_training_model_is_given_back_as_it_was() -> None:
    model = make_model()
    model.gradient_checkpointing_enable()
    model.train()
    model.model.layers[0].eval()
    flags = [module.training for module in model.modules()]
    engine = make_engine(model)
    result = run(engine, [GenerationRequest(prompts(1)[0], GREEDY)])[0]
    asyncio.run(engine.close())
    assert [module.training for module in model.modules()] == flags
    assert model.config._attn_implementation == "sdpa"
    assert_same(result, reference(make_model(), prompts(1)[0], 12))
    model(input_ids=torch.tensor([[9, 10]]), labels=torch.tensor([[9, 10]])).loss.backward()
    assert model.lm_head.weight.grad is not None


@pytest.mark.parametrize("announce", [True, False])
def test_changed_weights_are_used_at_once(announce: bool) -> None:
    model = make_model()
    engine = make_engine(model)
    request = GenerationRequest(prompts(1)[0], GREEDY)
    before = run(engine, [request])[0]
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.weight.mul_(-3)
    if announce:
        engine.weights_version = 5
    after = run(engine, [request])[0]
    assert_same(after, reference(model, request.prompt_ids, 12))
    assert before.token_ids != after.token_ids and after.weights_version == (5 if announce else 0)
    asyncio.run(engine.close())


def test_peft_model() -> None:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(make_model(), LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    request = GenerationRequest(prompts(1)[0], GREEDY)
    engine = make_engine(model)
    assert_same(run(engine, [request])[0], reference(model, request.prompt_ids, 12))
    asyncio.run(engine.close())


def test_failure_reaches_everyone_and_the_engine_recovers() -> None:
    model = make_model()
    engine = make_engine(model)
    weight = model.lm_head.weight
    saved = weight.detach().clone()

    async def all_fail() -> list[Any]:
        requests = [GenerationRequest(p, GREEDY) for p in prompts(9)]
        return await asyncio.gather(*(engine.generate(r) for r in requests), return_exceptions=True)

    with torch.no_grad():
        weight.fill_(float("nan"))
    assert all(isinstance(outcome, InfrastructureError) for outcome in asyncio.run(all_fail()))
    with torch.no_grad():
        weight.copy_(saved)
    assert_same(run(engine, [GenerationRequest(prompts(1)[0], GREEDY)])[0], reference(model, prompts(1)[0], 12))
    asyncio.run(engine.close())


def test_cancelled_requests_leave_the_batch() -> None:
    engine = make_engine(make_model(), stop_ids=frozenset(), context=4096)

    async def cancel_one() -> tuple[Generation, bool]:
        endless = asyncio.create_task(engine.generate(GenerationRequest(prompts(1)[0], Sampling(4000, 0.0))))
        short = asyncio.create_task(engine.generate(GenerationRequest(prompts(2)[1], Sampling(5, 0.0))))
        result = await short
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        for _ in range(500):
            await asyncio.sleep(0.01)
            if not engine._running:
                break
        return result, engine._running

    result, still_running = closing(engine, cancel_one())
    assert len(result.token_ids) == 5 and not still_running


def test_closing_fails_what_runs_and_what_comes() -> None:
    engine = make_engine(make_model(), stop_ids=frozenset(), context=4096)

    async def close_early() -> None:
        task = asyncio.create_task(engine.generate(GenerationRequest(prompts(1)[0], Sampling(4000, 0.0))))
        await asyncio.sleep(0.05)
        await engine.close()
        with pytest.raises(InfrastructureError, match="closed"):
            await task
        with pytest.raises(InfrastructureError, match="closed"):
            await engine.generate(GenerationRequest(prompts(1)[0], GREEDY))
        await engine.close()

    asyncio.run(close_early())


def test_models_that_cannot_run_here_are_refused() -> None:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    with pytest.raises(ModelError, match="sliding"):
        make_engine(Gemma3ForCausalLM(Gemma3TextConfig(**SIZES)))


def test_prefix_memory_is_bounded() -> None:
    token_bytes = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, width, float32
    engine = make_engine(make_model(), prefix_gib=40 * token_bytes / 2**30)
    run(engine, [GenerationRequest(p, GREEDY) for p in prompts(20)])
    assert 0 < engine._store._held <= 40 * token_bytes
    asyncio.run(engine.close())
