"""vLLM itself, on a CPU, with a tiny model: tokens, log-probabilities, adapters, death."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from codegrep.engines.adapter import AdapterPackage, check_receipt
from codegrep.engines.engine import EngineLostError, Generation, GenerationRequest, Sampling
from codegrep.engines.models import load_model
from codegrep.errors import InfrastructureError
from codegrep.training.lora import attach_lora, package_adapter
from tests.engines.vllm_nano import make, spec
from tests.training.made_rollouts import LORA

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (make cpu-engine installs it)"
    ),
    pytest.mark.timeout(900),
]
GREEDY, WARM = Sampling(24, 0.0), Sampling(24, 1.0, 0.9, 50)
PROMPT = tuple(range(10, 80))
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    loop = asyncio.new_event_loop()
    yield loop.run_until_complete
    loop.close()


@pytest.fixture(scope="module")
def engine(model: Path, run: Run) -> Iterator[Any]:
    from codegrep.engines.vllm_engine import VLLMEngine

    made = run(VLLMEngine.start(spec(model)))
    yield made
    run(made.close())
    run(made.close())


def policy(model: Path, scale: float) -> Any:
    """The model with an adapter whose B is not zero."""
    made = attach_lora(load_model(model, "float32"), LORA, seed=1)
    generator = torch.Generator().manual_seed(2)
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            parameter.data = scale * torch.randn(parameter.shape, generator=generator)
    return made.eval()


def logprobs_of(model: Any, prompt: tuple[int, ...], ids: tuple[int, ...]) -> list[float]:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt + ids])).logits[0].float()
    steps = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
    return steps.gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


def gap(model: Any, prompt: tuple[int, ...], answer: Generation) -> float:
    wanted = logprobs_of(model, prompt, answer.token_ids)
    return max(abs(a - b) for a, b in zip(answer.logprobs, wanted, strict=True))


def ask(engine: Any, sampling: Sampling = WARM, prompt: tuple[int, ...] = PROMPT, seed: int | None = 1) -> Any:
    return engine.generate(GenerationRequest(prompt, sampling, seed))


def test_tokens_and_raw_logprobs_are_the_models(engine: Any, model: Path, run: Run) -> None:
    plain = load_model(model, "float32")

    async def many() -> list[Generation]:
        prompts = [(seed + 5, *PROMPT) for seed in range(8)]
        return await asyncio.gather(*(ask(engine, WARM, p, seed) for seed, p in enumerate(prompts)))

    answers = run(many())
    assert len({a.token_ids for a in answers}) > 1
    for seed, answer in enumerate(answers):
        assert gap(plain, (seed + 5, *PROMPT), answer) < 1e-3  # raw: top-p and top-k are not in it
        stopped = answer.token_ids[-1] == 2
        assert answer.finish_reason == ("stop" if stopped else "length")
        assert stopped or len(answer.token_ids) == 24
    greedy = run(ask(engine, GREEDY))
    with torch.no_grad():
        logits = plain(input_ids=torch.tensor([PROMPT + greedy.token_ids])).logits[0]
    assert logits[len(PROMPT) - 1 : -1].argmax(-1).tolist() == list(greedy.token_ids)


def test_the_same_seed_gives_the_same_tokens(engine: Any, run: Run) -> None:
    assert run(ask(engine, seed=5)) == run(ask(engine, seed=5))
    assert run(ask(engine, seed=5)).token_ids != run(ask(engine, seed=6)).token_ids
    assert run(ask(engine, GREEDY, seed=None)) == run(ask(engine, GREEDY, seed=3))


def test_limits(engine: Any, run: Run) -> None:
    full = tuple(10 + n % 300 for n in range(1024))
    assert run(ask(engine, prompt=full)) == Generation((), (), "length", engine.weights_version)
    assert len(run(ask(engine, prompt=full[:-3])).token_ids) <= 3
    with pytest.raises(InfrastructureError, match="without tokens"):
        run(ask(engine, prompt=()))


def test_a_cancelled_request_leaves_its_place(engine: Any, run: Run) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(ask(engine, Sampling(900, 1.0)))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    assert engine._active == 0


def test_an_adapter_arrives_takes_effect_and_replaces_the_last_one(engine: Any, model: Path, run: Run) -> None:
    before = run(ask(engine, GREEDY))
    small, large = policy(model, 0.05), policy(model, 0.5)
    for version, trained in ((1, small), (2, large), (3, small)):
        package = package_adapter(trained, version)
        receipt = run(engine.load_adapter(package))
        check_receipt(package, receipt)
        assert (receipt.version, receipt.slots) == (version, 1)
        # PROMPT is in the prefix cache under every earlier version: nothing of them may be found
        answer = run(ask(engine, GREEDY))
        assert answer.weights_version == version
        assert gap(trained, PROMPT, answer) < 1e-3
        assert gap(small if trained is large else large, PROMPT, answer) > 1e-2
    assert run(ask(engine, GREEDY)).token_ids != before.token_ids or gap(small, PROMPT, before) > 1e-3
    assert len(list(engine._adapters.iterdir())) == 1


def test_a_slot_that_holds_something_else_is_seen(engine: Any, model: Path, run: Run) -> None:
    package = package_adapter(policy(model, 0.1), 4)
    run(engine.load_adapter(package))
    found = run(engine._llm.collective_rpc("read_adapter", args=(1,)))
    assert found[0]["factors"] == package.factors_sha256(torch.float32)
    other = package_adapter(policy(model, 0.11), 5)
    assert found[0]["factors"] != other.factors_sha256(torch.float32)
    assert run(engine._llm.collective_rpc("read_adapter", args=(7,)))[0]["factors"] == ""


def test_an_adapter_waits_for_running_requests_and_lets_new_ones_wait(engine: Any, model: Path, run: Run) -> None:
    first, second = (package_adapter(policy(model, s), v) for v, s in ((10, 0.1), (11, 0.2)))

    async def together() -> list[Generation]:
        await engine.load_adapter(first)
        early = [asyncio.create_task(ask(engine, WARM, (n + 5, *PROMPT))) for n in range(4)]
        await asyncio.sleep(0.01)
        sync = asyncio.create_task(engine.load_adapter(second))
        await asyncio.sleep(0)
        late = [asyncio.create_task(ask(engine, WARM, (n + 5, *PROMPT))) for n in range(4)]
        await sync
        return await asyncio.gather(*early, *late)

    versions = [answer.weights_version for answer in run(together())]
    assert versions[-1] == 11 and versions == sorted(versions)


def test_a_damaged_adapter_changes_nothing(engine: Any, model: Path, run: Run) -> None:
    package = package_adapter(policy(model, 0.1), 20)
    run(engine.load_adapter(package))
    broken = AdapterPackage(21, package.sha256, package.config, package.tensors[:-8] + bytes(8))
    with pytest.raises(InfrastructureError):
        run(engine.load_adapter(broken))
    assert engine.weights_version == 20
    assert run(ask(engine)).weights_version == 20


@pytest.mark.slow
def test_a_dead_engine_says_so(model: Path, run: Run) -> None:
    from codegrep.engines.vllm_engine import VLLMEngine

    async def work() -> None:
        engine = await VLLMEngine.start(spec(model))
        task = asyncio.create_task(ask(engine, Sampling(900, 1.0)))
        await asyncio.sleep(0.2)
        for pid in _children(os.getpid()):
            if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineLostError, match="gone"):
            await task
        await engine.close()

    run(work())
    time.sleep(0.1)


@pytest.mark.slow
def test_an_engine_that_is_killed_while_it_starts_can_be_started_again(model: Path, run: Run) -> None:
    from codegrep.engines.vllm_engine import VLLMEngine

    killed: list[int] = []
    others = set(_children(os.getpid()))

    def hunt() -> None:
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            for pid in set(_children(os.getpid())) - others:
                with suppress(OSError):
                    if "EngineCore" in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
            time.sleep(0.05)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    with pytest.raises(EngineLostError, match="killed while it started"):
        run(VLLMEngine.start(spec(model)))
    hunter.join()
    assert len(killed) == 1


def _children(pid: int) -> list[int]:
    return [int(p) for task in Path(f"/proc/{pid}/task").iterdir() for p in (task / "children").read_text().split()]
