"""Measures rollouts: the loop against the bare engine, against transformers, against TRL's way; and a GRPO step.

    python scripts/bench/rollout.py --quick
    python scripts/bench/rollout.py --issues instances.jsonl --repositories clones

All figures are of this run, on one machine, one after another. A throughput is sampled tokens by wall time. The last
line is one JSON object of ratios; what needs vLLM is null where it is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from codegrep.engines.adapter import AdapterPackage, check_receipt
from codegrep.engines.engine import Engine, Generation, GenerationRequest, Sampling
from codegrep.engines.vllm_arguments import VLLMSpec
from codegrep.errors import ConfigError
from codegrep.issues.issue import Issue
from codegrep.rollout.loop import RolloutLoop
from codegrep.rollout.policy import Policy
from codegrep.rollout.record import Rollout
from codegrep.rollout.store import write_rollouts
from scripts.bench.rollout_material import Material, prepare

TEMPERATURE, TOP_P, TOP_K = 1.0, 0.9, 50  # the paper's


@dataclass(frozen=True)
class Pace:
    """tokens: sampled. wall: seconds. cpu: of this process and of those it started."""

    tokens: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.wall


def say(text: str) -> None:
    """One line of the report."""
    print(text, flush=True)


class Recorder:
    """Passes requests on and keeps them, by rollout, to be asked again without a loop around them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.made: list[tuple[GenerationRequest, Generation]] = []

    async def generate(self, request: GenerationRequest) -> Generation:
        """See Engine."""
        generation = await self._engine.generate(request)
        self.made.append((request, generation))
        return generation

    async def close(self) -> None:
        """See Engine."""
        await self._engine.close()

    def chains(self) -> list[list[GenerationRequest]]:
        """Turn of each rollout in order: a later turn's prompt begins with that of the turn before it."""
        chains: list[list[GenerationRequest]] = []
        heads: list[tuple[int, ...]] = []  # what the next request of each chain begins with
        for request, generation in sorted(self.made, key=lambda pair: len(pair[0].prompt_ids)):
            sampling = replace(request.sampling, max_tokens=max(1, len(generation.token_ids)))
            exact, said = replace(request, sampling=sampling), (*request.prompt_ids, *generation.token_ids)
            found = next((i for i, head in enumerate(heads) if request.prompt_ids[: len(head)] == head), None)
            if found is None:
                chains.append([exact])
                heads.append(said)
            else:
                chains[found].append(exact)
                heads[found] = said
        return chains


class TimedLoop(RolloutLoop):
    """The loop, with the wall time of every rollout from its first line to its last."""

    spent = 0.0

    async def run_policy(self, issue: Issue, policy: Policy, **named: Any) -> Rollout:
        """See RolloutLoop."""
        began = time.perf_counter()
        try:
            return await super().run_policy(issue, policy, **named)
        finally:
            self.spent += time.perf_counter() - began


async def roll(
    material: Material, engine: Engine, sampling: Sampling, seed: int
) -> tuple[list[Rollout], Pace, dict[str, float]]:
    """All rollouts through the loop, and where their time went."""
    config = material.config
    loop = TimedLoop(engine, material.sandbox, material.chat, config.agent, config.tools, context=config.model.context)
    seeds = [seed * 10_000 + place for place in range(len(material.issues))]
    before, began = _cpu(), time.perf_counter()
    rollouts = await loop.run_many(material.issues, sampling, seeds=seeds)
    wall = time.perf_counter() - began
    lost = [r.error for r in rollouts if r.error]
    if lost:
        raise SystemExit(f"{len(lost)} rollouts were lost: {lost[0]}")
    pace = Pace(sum(r.generated_tokens for r in rollouts), wall, _cpu() - before)
    return rollouts, pace, shares(rollouts, loop.spent, wall)


async def replay(engine: Engine, chains: Sequence[Sequence[GenerationRequest]]) -> Pace:
    """Measure the same prompts with the same seeds and lengths, each rollout's next as soon as its last has ended."""

    async def one(chain: Sequence[GenerationRequest]) -> int:
        return sum([len((await engine.generate(request)).token_ids) for request in chain])

    before, began = _cpu(), time.perf_counter()
    tokens = await asyncio.gather(*(one(chain) for chain in chains))
    return Pace(sum(tokens), time.perf_counter() - began, _cpu() - before)


def shares(rollouts: Sequence[Rollout], spent: float, wall: float) -> dict[str, float]:
    """Where the time of the rollouts goes, all of them from the start to the end of the last.

    generation (the engine's queue included) and tools by the rollouts' own clocks; protocol is the rest of their time:
    prompts, parsing, rendering, and waiting for the event loop; waiting is what came before and after a rollout.

    Args:
        spent: wall time of every rollout, summed. wall: of all together.
    """
    generation = sum(t.seconds_generation for r in rollouts for t in r.turns)
    tools = sum(t.seconds_tools for r in rollouts for t in r.turns)
    whole = wall * len(rollouts)
    parts = {"generation": generation, "tools": tools, "protocol": spent - generation - tools, "waiting": whole - spent}
    return {name: round(max(0.0, seconds) / whole, 4) for name, seconds in parts.items()}


async def with_vllm(material: Material, sampling: Sampling, adapter: Path | None) -> dict[str, Any]:
    """Rollouts and their ceiling, without and with an adapter. Raises ConfigError where vLLM is not installed."""
    from codegrep.engines.vllm_engine import VLLMEngine, need_vllm

    need_vllm()
    model, config = material.model, material.config
    vocabulary = json.loads((model / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    spec = VLLMSpec(
        str(model), config.model.dtype, config.model.context, tuple(material.chat.stop_ids), vocabulary, config.engine
    )
    engine = await VLLMEngine.start(replace(spec, lora_rank=32 if adapter else 0))
    found: dict[str, Any] = {}
    try:
        if adapter:
            package = AdapterPackage.read(adapter, version=1)
            check_receipt(package, await engine.load_adapter(package))
        await engine.generate(GenerationRequest(tuple(range(100, 400)), replace(sampling, max_tokens=8)))
        recorder = Recorder(engine)
        rollouts, pace, split = await roll(material, recorder, sampling, seed=1)
        await engine.forget_prefixes()
        chains = recorder.chains()
        ceiling = await replay(engine, chains)
        assert len(chains) == len(rollouts), (len(chains), len(rollouts))
        say(f"vLLM{' with LoRA' if adapter else ''}: {_shown(pace)}; bare engine {_shown(ceiling)}; "
            f"time of the rollouts {split}")  # fmt: skip
        found = {"pace": pace, "ceiling": ceiling, "rollouts": rollouts, "shares": split}
    finally:
        await engine.close()
    return found


async def with_transformers(material: Material, sampling: Sampling) -> tuple[list[Rollout], Pace]:
    """Measure the same rollouts with the engine of a trainer's process."""
    from codegrep.engines.models import load_model
    from codegrep.engines.transformers_engine import TransformersEngine

    engine = TransformersEngine(
        load_model(material.model, material.config.model.dtype),
        pad_id=material.pad_id,
        stop_ids=material.chat.stop_ids,
        context=material.config.model.context,
        max_batch=material.config.engine.max_batch,
    )
    try:
        await engine.generate(GenerationRequest(tuple(range(100, 400)), replace(sampling, max_tokens=8)))
        rollouts, pace, split = await roll(material, engine, sampling, seed=1)
        say(f"transformers engine: {_shown(pace)}; time of the rollouts {split}")
        return rollouts, pace
    finally:
        await engine.close()


class TRLEngine:
    """Generate with tools as TRL does it itself.

    One padded batch for each turn of all rollouts, nobody goes on before the last has ended, tools of one rollout after
    another.

    The batch goes through GRPOTrainer's own method for a turn. Its `tools=` itself refuses this model's chat template.
    """

    def __init__(self, material: Material, folder: Path, sampling: Sampling) -> None:
        from codegrep.engines.models import load_model, load_tokenizer
        from scripts.bench.rollout_step import trl_trainer

        self._trainer = trl_trainer(
            load_model(material.model, material.config.model.dtype), load_tokenizer(material.model), folder, sampling
        )

    def turn(self, prompts: list[list[int]]) -> list[list[int]]:
        """Return the sampled ids of one turn of every rollout."""
        ids, _logprobs = self._trainer._generate_single_turn(prompts, None, {}, 1)[:2]
        return [list(one) for one in ids]


def with_trl(material: Material, folder: Path, sampling: Sampling) -> Pace:
    """Rollouts the way TRL makes them, with our tools and our protocol."""
    from codegrep.protocol.observation import render
    from codegrep.protocol.parse import parse_message

    config, chat = material.config, material.chat
    loop = RolloutLoop(None, material.sandbox, chat, config.agent, config.tools, context=config.model.context)
    engine = TRLEngine(material, folder, sampling)
    contexts = [loop.prompt_ids(issue) for issue in material.issues]
    alive = list(range(len(contexts)))
    before, began, tokens = _cpu(), time.perf_counter(), 0
    tools = asyncio.new_event_loop()
    for turn in range(config.agent.exploration_turns + 1):
        said = engine.turn([contexts[i] for i in alive])
        tokens += sum(map(len, said))
        going_on = []
        for i, ids in zip(alive, said, strict=True):
            message = parse_message(chat.decode(ids))
            closed = bool(ids) and ids[-1] in chat.stop_ids
            if message.answer is not None or not message.calls or not closed or turn == config.agent.exploration_turns:
                continue
            issue = material.issues[i]
            work = material.sandbox.run_turn(issue.repo, issue.base_commit, message.calls)
            observation = render(tools.run_until_complete(work), config.tools, key=issue.instance_id, note="")
            contexts[i] = [*contexts[i], *ids, *chat.observation_ids(observation.segments, closed)]
            if len(contexts[i]) < config.model.context - sampling.max_tokens:
                going_on.append(i)
        alive = going_on
        if not alive:
            break
    tools.close()
    pace = Pace(tokens, time.perf_counter() - began, _cpu() - before)
    say(f"TRL's generation: {_shown(pace)}")
    return pace


def main() -> int:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="8 rollouts of 48 tokens a turn; mostly starts")
    parser.add_argument("--issues", type=Path, help="JSONL in SWE-bench form")
    parser.add_argument("--repositories", type=Path, help="folder with their clones")
    parser.add_argument("--model", default="", help="model.path; a warm-started model makes rollouts of several turns")
    parser.add_argument("--adapter", type=Path, help="LoRA folder: measures vLLM with it too")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--parts", default="vllm,transformers,trl,step", help="which parts, for a look at one")
    parser.add_argument("--keep", type=Path, help="folder for vLLM's rollouts, to be replayed: sandbox.py --rollouts")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides")
    options = parser.parse_args()
    overrides = ["engine=vllm", "agent.parallel_rollouts=64", *options.overrides]
    if options.model:
        overrides.append(f"model.path={options.model}")
    prompts, group = (2, 4) if options.quick else (options.prompts, options.group)
    if options.quick:
        overrides += ["agent.max_turn_tokens=48", "agent.max_completion_tokens=96"]
    parts = set(options.parts.split(","))
    result: dict[str, Any] = {
        "rollout_vs_bare_engine": None,
        "rollout_vs_trl": None,
        "rollout_vs_transformers": None,
        "step_vs_trl": None,
    }
    with tempfile.TemporaryDirectory(prefix="codegrep-bench-") as folder:
        work = Path(folder)
        material = prepare(work, overrides, options.issues, options.repositories, prompts, group)
        agent = material.config.agent
        sampling = Sampling(agent.max_turn_tokens, TEMPERATURE, TOP_P, TOP_K)
        say(f"{material.source}; {len(material.issues)} at once, at most {agent.max_turn_tokens} tokens a turn")
        vllm: dict[str, Any] = {}
        if "vllm" in parts:
            try:
                vllm = asyncio.run(with_vllm(material, sampling, None))
                result["rollout_vs_bare_engine"] = _ratio(vllm["pace"], vllm["ceiling"])
                result["shares"] = vllm["shares"]
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    write_rollouts(options.keep, vllm["rollouts"])
                if options.adapter:
                    adapted = asyncio.run(with_vllm(material, sampling, options.adapter))
                    result["lora_vs_base"] = _ratio(adapted["pace"], vllm["pace"])
            except ConfigError as error:
                say(f"left out: {error}")
                result["without"] = "vllm"
        gc.collect()
        rollouts: list[Rollout] = vllm.get("rollouts", [])
        if "transformers" in parts:
            rollouts, own = asyncio.run(with_transformers(material, sampling))
            result["rollout_vs_transformers"] = _ratio(vllm.get("pace"), own)
        if "trl" in parts:
            trl = with_trl(material, work, sampling)
            result["rollout_vs_trl"] = _ratio(vllm.get("pace"), trl)
            if "transformers" in parts:
                result["transformers_vs_trl"] = _ratio(own, trl)
        if "step" in parts and rollouts:
            from scripts.bench.rollout_step import step_ratio

            batch = rollouts[: 4 if options.quick else 8]
            result["step_vs_trl"] = round(step_ratio(material, batch, work, say), 3)
        material.sandbox.close()
    result["peak_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    say(json.dumps(result))
    return 0


def _ratio(ours: Pace | None, other: Pace | None) -> float | None:
    return None if ours is None or other is None else round(ours.rate / other.rate, 3)


def _shown(pace: Pace) -> str:
    return f"{pace.tokens} tokens in {pace.wall:.1f} s ({pace.rate:.0f} a second, {pace.cpu:.1f} CPU s)"


def _cpu() -> float:
    # Children that still run are not in RUSAGE_CHILDREN: the engine's process is read from the system.
    import psutil

    own = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in [own, *own.children(recursive=True)])


if __name__ == "__main__":
    sys.exit(main())
