"""Measures search as it is used: the first answer of a process, a resident server, edits, memory.

    python scripts/bench/use.py --quick
    python scripts/bench/use.py --semble OTHER_PYTHON    # one that has semble, beside it in the same run

The repositories are slices of 1,500 Python files of the installed packages (500 bytes to 20 kB), the queries
first lines of their docstrings. The last line is one JSON object: seconds, milliseconds and megabytes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from mcp import Client

ROOT = Path(__file__).parents[2]
FILES, REPOSITORIES, AT_ONCE = 1_500, 5, 16
_DOCSTRING = re.compile(r'"""([A-Z][^"\n]{30,120})')


def make_repositories(folder: Path) -> list[Path]:
    """Copy slices of the installed packages, each a git repository of FILES files."""
    packages = Path(psutil.__file__).parents[1]
    small = (
        path
        for path in sorted(packages.rglob("*.py"))
        if "test" not in str(path.relative_to(packages)) and 500 < path.stat().st_size < 20_000
    )
    roots = []
    for number in range(REPOSITORIES):
        root = folder / f"repository{number}"
        for path in itertools.islice(small, FILES):
            target = root / "source" / path.relative_to(packages)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        for command in (["init", "-q"], ["add", "-A"]):
            subprocess.run(["git", "-C", str(root), *command], check=True, stderr=subprocess.DEVNULL)
        roots.append(root)
    return roots


def questions(root: Path, count: int) -> list[str]:
    """First lines of docstrings, always the same."""
    lines = {
        match.group(1) for path in root.rglob("*.py") for match in _DOCSTRING.finditer(path.read_text(errors="replace"))
    }
    return random.Random(0).sample(sorted(lines), min(count, len(lines)))


def first_answer(root: Path, text: str, environment: dict[str, str]) -> float:
    """Seconds of one `codegrep search` in a process of its own."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "codegrep", "search", text, "--repo", str(root)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - began


def edit(root: Path, stamp: str) -> None:
    """Change ten files."""
    for path in random.Random(stamp).sample(sorted(root.rglob("*.py")), 10):
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n\ndef edited_{stamp}():\n    return {stamp!r}\n")


async def ask(client: Client, root: Path, text: str) -> float:
    """Milliseconds of one find_files."""
    began = time.perf_counter()
    result = await client.call_tool("find_files", {"issue": text, "repo": str(root)})
    if result.is_error:
        raise RuntimeError(str(result.content))
    return 1000 * (time.perf_counter() - began)


async def resident(url: str, pid: int, roots: Sequence[Path], texts: Sequence[str]) -> dict[str, float]:
    """Figures of a server through the MCP package's client."""
    root = roots[0]
    async with Client(url) as client:
        first = await ask(client, root, texts[0])
        one = [await ask(client, root, text) for text in texts]
        edited = []
        for stamp in ("a", "b", "c"):
            edit(root, stamp)
            edited.append(await ask(client, root, texts[0]))
        await asyncio.sleep(1)

        async def asked_by(number: int) -> list[float]:
            async with Client(url) as own:
                return [await ask(own, root, text) for text in texts[number::4]]

        many = sorted(itertools.chain(*await asyncio.gather(*(asked_by(number) for number in range(AT_ONCE)))))
        for other in roots[1:]:
            await ask(client, other, texts[0])
    return {
        "server_first_ms": first,
        "query_p50_ms": statistics.median(one),
        "query_p95_at_16_ms": many[int(0.95 * len(many))],
        "after_10_edits_ms": statistics.median(edited),
        "server_five_repositories_mb": psutil.Process(pid).memory_info().rss / 1e6,
    }


def served(roots: Sequence[Path], texts: Sequence[str], environment: dict[str, str]) -> dict[str, float]:
    """Start a server and measure it."""
    folders = [word for root in roots for word in ("--repo", str(root))]
    command = [sys.executable, "-m", "codegrep", "serve", "--http", "--port", "0", "--seconds", "300", *folders]
    server = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        url = server.stderr.readline().split(" at ")[1].split(",")[0]
        return asyncio.run(resident(url, server.pid, roots, texts))
    finally:
        server.kill()
        server.wait()


def library(root: Path, texts: Sequence[str]) -> dict[str, float]:
    """Milliseconds of a query in this process."""
    import codegrep

    retriever = codegrep.Retriever.load("hybrid")
    retriever.refresh(root)
    times = []
    for text in texts:
        began = time.perf_counter()
        retriever.search(text, root)
        times.append(1000 * (time.perf_counter() - began))
    return {"units": sum(retriever.loaded().values()), "library_query_p50_ms": statistics.median(times)}


_SEMBLE = """
import json, sys, time, statistics
began = time.perf_counter()
from semble import SembleIndex
root, model, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
index = SembleIndex.from_path(root, model_path=model)
index.search(texts[0])
first = time.perf_counter() - began
times = []
for text in texts:
    began = time.perf_counter()
    index.search(text)
    times.append(1000 * (time.perf_counter() - began))
print(json.dumps({"semble_first_answer_s": first, "semble_query_p50_ms": statistics.median(times)}))
"""
# Speed alone is compared, so the words' vectors may be any.
_SEMBLE_MODEL = """
import sys, numpy
from pathlib import Path
from model2vec import StaticModel
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
files = [str(path) for path in sorted(Path(sys.argv[1]).rglob("*.py"))[:300]]
tokenizer.train(files, trainers.WordPieceTrainer(vocab_size=30000, special_tokens=["[PAD]", "[UNK]"]))
vectors = numpy.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 256)).astype("float32")
StaticModel(vectors, tokenizer).save_pretrained(sys.argv[2])
"""


def semble(python: str, root: Path, texts: Sequence[str], work: Path) -> dict[str, float]:
    """Measure the same with semble and a local static model of random vectors, in a process of its own."""
    environment = os.environ | {"HOME": str(work), "XDG_CACHE_HOME": str(work / "semble"), "HF_HUB_OFFLINE": "1"}
    model = str(work / "static-model")
    subprocess.run([python, "-c", _SEMBLE_MODEL, str(root), model], check=True, env=environment)
    command = [python, "-c", _SEMBLE, str(root), model, json.dumps(list(texts))]
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="40 queries in place of 400")
    parser.add_argument("--semble", default="", metavar="PYTHON", help="interpreter that has semble")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="codegrep-use-") as made:
        work = Path(made)
        roots = make_repositories(work)
        texts = questions(roots[0], 40 if options.quick else 400)
        environment = os.environ | {"XDG_CACHE_HOME": str(work / "cache")}
        os.environ.update(environment)
        figures = {"files": float(FILES), "load": os.getloadavg()[0], "cores": float(os.cpu_count() or 1)}
        figures["first_answer_s"] = first_answer(roots[0], texts[0], environment)
        figures["first_answer_indexed_s"] = statistics.median(
            first_answer(roots[0], text, environment) for text in texts[:3]
        )
        figures["megabytes"] = sum(path.stat().st_size for path in roots[0].rglob("*.py")) / 1e6
        figures |= library(roots[0], texts)
        if options.semble:
            figures |= semble(options.semble, roots[0], texts, work)
        figures |= served(roots, texts, environment)
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
