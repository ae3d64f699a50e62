"""Let one agent answer one question: python examples/run_agent.py REPOSITORY "QUESTION" [MODEL].

REPOSITORY is a git repository; its HEAD is searched. MODEL is a folder, a hub id or the default model.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from codegrep.compose import compose_overrides, load
from codegrep.engines import Sampling
from codegrep.engines.models import load_model, load_tokenizer, provide
from codegrep.engines.transformers_engine import TransformersEngine
from codegrep.issues import Issue
from codegrep.protocol.chat import ChatFormat
from codegrep.rollout.loop import RolloutLoop
from codegrep.sandbox import RepositoryLocation, Sandbox


def main(repository: str, question: str, model: str = "provided:smollm2-135m-instruct") -> None:
    """Print what the agent called, turn by turn, and the files that it answers."""
    config = load(compose_overrides(["+experiment=v3", f"model.path={model}"]))
    folder = provide(config.model.path)
    tokenizer = load_tokenizer(folder)
    chat = ChatFormat(tokenizer)
    engine = TransformersEngine(
        load_model(folder, "float32"),
        pad_id=int(tokenizer.pad_token_id),
        stop_ids=chat.stop_ids,
        context=config.model.context,
        max_batch=1,
    )
    head = subprocess.run(
        ["git", "-C", repository, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    issue = Issue("question", "local/repository", head, question, "", ())
    with tempfile.TemporaryDirectory() as work:
        location = RepositoryLocation(local=Path(repository).absolute())
        sandbox = Sandbox.under(Path(work), config.tools, locations={issue.repo: location})
        loop = RolloutLoop(engine, sandbox, chat, config.agent, config.tools, context=config.model.context)
        sampling = Sampling(max_tokens=config.agent.max_turn_tokens, temperature=0.0)
        rollout = asyncio.run(loop.run(issue, sampling, seed=0))
        sandbox.close()
    for number, turn in enumerate(rollout.turns, start=1):
        for call in turn.calls:
            print(f"turn {number}: {call.name} {call.arguments} -> {call.status}")
    print(f"{rollout.exit_cause}: {', '.join(rollout.answer) or 'no file'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
