"""Trains the static embeddings that the index ships with, and writes codegrep/index/data/static.npz.

python scripts/train_static.py --repositories FOLDER

Each word once through MiniLM as [CLS] w [SEP], the mean of its states; then contrastive training on commits of the
training repositories of conf/roles.yaml: the message is to find the functions that the commit changes among the units
of the tree around it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch
from search_material import Texts, commits_of, material

from codegrep.engines.models import provide
from codegrep.errors import CodegrepError
from codegrep.index.static import SHIPPED, save_static

TEMPERATURE = 0.05
BATCH, NEGATIVES = 128, 2_048
VOCABULARY, DIMENSION = 36_000, 256


def prepare(folder: Path, issues: Sequence, snapshots: int, target: Path) -> None:  # type: ignore[type-arg]
    """Write the training texts as arrays: queries, units, the stretches that they belong to."""
    vocabulary: dict[str, int] = {}
    texts = Texts(vocabulary)
    files: dict[str, int] = {}
    queries: list[tuple[int, int, int]] = []  # stretch, whole message, subject
    golds: list[tuple[int, int]] = []  # query, file
    positives: list[tuple[int, int, int]] = []  # query, text, file
    units: list[tuple[int, int, int]] = []  # stretch, text, file
    repos: list[str] = []
    known: dict[tuple[str, int, int], int] = {}
    for stretch, part in enumerate(material(folder, issues, snapshots)):
        repos.append(part["repo"])
        for path, path_words, counted in part["tree"]:
            file = files.setdefault(f"{part['repo']}:{path}", len(files))
            for position, words in enumerate(counted):
                key = (path, id(counted), position)
                if key not in known:
                    known[key] = texts.add(words, path_words)
                units.append((stretch, known[key], file))
        for gold, whole, subject, changed in part["queries"]:
            query = len(queries)
            queries.append((stretch, texts.add(whole), texts.add(subject)))
            golds += [(query, files.setdefault(f"{part['repo']}:{path}", len(files))) for path in gold]
            for path, words, path_words in changed:
                positives.append((query, texts.add(words, path_words), files[f"{part['repo']}:{path}"]))
        print(f"  {part['repo']}: stretch {stretch}, {len(queries)} queries, {len(texts)} texts", flush=True)
    np.savez(
        target,
        repos=np.array(repos),
        queries=np.array(queries),
        golds=np.array(golds),
        positives=np.array(positives),
        units=np.array(units),
        words=np.frombuffer("\n".join(vocabulary).encode(), np.uint8),
        **texts.arrays(),
    )


def choose_vocabulary(data: dict[str, np.ndarray], words: list[str], own: list[str], size: int) -> list[str]:
    """Return the words that most texts have, after those of the distilled model's vocabulary that occur in any text."""
    frequency = np.bincount(data["ids"], minlength=len(words))
    wanted = {word for word in own if word.isalnum() and len(word) > 1}
    ranked = sorted(range(len(words)), key=lambda i: -frequency[i] - (5 if words[i] in wanted else 0))
    chosen = dict.fromkeys(words[i] for i in ranked[:size] if frequency[i] > 2 or words[i] in wanted)
    for word in own:  # what remains of the room: words of prose that the training texts do not have
        if len(chosen) < size and word in wanted:
            chosen.setdefault(word)
    return list(chosen)


@torch.inference_mode()
def distil(words: list[str], folder: Path) -> np.ndarray:
    """(V, DIMENSION) mean states of each word, centred, on the main axes, of length 1."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    order = sorted(range(len(words)), key=lambda i: len(words[i]))
    states = np.zeros((len(words), model.config.hidden_size), np.float32)
    for start in range(0, len(words), 512):
        some = order[start : start + 512]
        batch = tokenizer(
            [words[i].replace("_", " ") for i in some],
            padding=True,
            truncation=True,
            max_length=16,
            return_tensors="pt",
        )
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        states[some] = ((hidden * mask).sum(1) / mask.sum(1)).numpy()
    states -= states.mean(axis=0)
    _, axes = np.linalg.eigh(states.T @ states)
    states = states @ axes[:, ::-1][:, :DIMENSION]
    return np.asarray(states / np.linalg.norm(states, axis=1, keepdims=True), np.float32)


class Embeddings(torch.nn.Module):
    """Vectors of words; weights and query weights as logarithms."""

    def __init__(self, vectors: np.ndarray, weights: np.ndarray) -> None:
        super().__init__()
        self.vectors = torch.nn.Parameter(torch.from_numpy(vectors))
        self.weights = torch.nn.Parameter(torch.from_numpy(np.log(weights).astype(np.float32)))
        self.query = torch.nn.Parameter(torch.zeros(len(weights)))

    def forward(self, texts: list[tuple[np.ndarray, np.ndarray]], as_query: bool) -> torch.Tensor:
        """(n, D) unit vectors of (ids, weights) of texts."""
        ids = torch.from_numpy(np.concatenate([ids for ids, _ in texts]).astype(np.int64))
        counts = torch.from_numpy(np.concatenate([weights for _, weights in texts]))
        starts = torch.tensor(np.cumsum([0, *(len(ids) for ids, _ in texts[:-1])]))
        logs = self.weights[ids] + (self.query[ids] if as_query else 0)
        summed = torch.nn.functional.embedding_bag(
            ids, self.vectors, starts, mode="sum", per_sample_weights=counts * logs.exp()
        )
        return torch.nn.functional.normalize(summed, dim=1)


def train(
    data: dict[str, np.ndarray], rows: np.ndarray, model: Embeddings, epochs: int, stretches: set[int], seed: int
) -> None:
    """Symmetric in the batch, one-sided over the tree's other units; files that a query changes are no negatives."""
    random = np.random.default_rng(seed)
    queries, positives, units = data["queries"], data["positives"], data["units"]
    golds: dict[int, set[int]] = {}
    for query, file in data["golds"]:
        golds.setdefault(int(query), set()).add(int(file))
    of_query: dict[int, list[int]] = {}
    for row, (query, _, _) in enumerate(positives):
        of_query.setdefault(int(query), []).append(row)
    trees = {s: units[units[:, 0] == s] for s in stretches}
    members = {s: np.flatnonzero(queries[:, 0] == s) for s in stretches}

    def text(number: int) -> tuple[np.ndarray, np.ndarray]:
        span = slice(data["starts"][number], data["starts"][number + 1])
        ids = rows[data["ids"][span]]
        return ids[ids >= 0], data["weights"][span][ids >= 0]

    optimizer = torch.optim.AdamW(
        [{"params": [model.vectors], "lr": 2e-3}, {"params": [model.weights, model.query], "lr": 1e-2}],
        weight_decay=0.0,
        fused=True,
    )
    batches_of = {s: max(1, round(len(members[s]) / BATCH)) for s in stretches}
    total = epochs * sum(batches_of.values())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.02, 1 - step / total))
    for epoch in range(epochs):
        began, losses = time.perf_counter(), []
        batches = [
            (s, part)
            for s in stretches
            for part in np.array_split(random.permutation(members[s]), batches_of[s])
            if len(part) > 1
        ]
        random.shuffle(batches)
        for stretch, batch in batches:
            chosen = [positives[random.choice(of_query[int(q)])] for q in batch]
            tree = trees[stretch]
            others = tree[random.choice(len(tree), min(NEGATIVES, len(tree)), replace=False)]
            files = np.array([c[2] for c in chosen] + list(others[:, 2]))
            asked = [text(queries[q][2 if random.random() < 0.25 else 1]) for q in batch]
            given = [text(c[1]) for c in chosen] + [text(n) for n in others[:, 1]]
            scores = model(asked, True) @ model(given, False).T / TEMPERATURE
            hidden = np.stack([np.isin(files, list(golds[int(q)])) for q in batch])
            hidden[np.arange(len(batch)), np.arange(len(batch))] = False
            scores = scores.masked_fill(torch.from_numpy(hidden), -1e4)
            target = torch.arange(len(batch))
            loss = torch.nn.functional.cross_entropy(scores, target)
            loss = (2 * loss + torch.nn.functional.cross_entropy(scores[:, : len(batch)].T, target)) / 3
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        print(f"  epoch {epoch + 1}: loss {np.mean(losses):.3f}, {time.perf_counter() - began:.0f} s", flush=True)


def main() -> int:
    """Return 0, or 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(description="Train the static embeddings of the index.")
    parser.add_argument("--repositories", type=Path, required=True, help="folder of bare clones, owner__name.git")
    parser.add_argument("--work", type=Path, default=Path("outputs/search"), help="folder of intermediate files")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--commits", type=int, default=1_500, help="most commits of a repository")
    parser.add_argument("--snapshots", type=int, default=6, help="trees of a repository")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--only", nargs="*", default=[], help="train on these repositories alone (cross-fitting)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    try:
        given.work.mkdir(parents=True, exist_ok=True)
        texts = given.work / "texts.npz"
        if not texts.is_file():
            issues = commits_of(given.repositories, "train", given.commits, only_fixes=False)
            prepare(given.repositories, issues, given.snapshots, given.work / "unfinished.npz")
            (given.work / "unfinished.npz").rename(texts)
        with np.load(texts, allow_pickle=False) as arrays:
            data = dict(arrays)
        folder = provide("provided:all-minilm-l6-v2")
    except CodegrepError as error:
        print(f"codegrep: {error}", file=sys.stderr)
        return 2
    stretches = {s for s, repo in enumerate(data["repos"]) if not given.only or repo in given.only}
    all_words = data["words"].tobytes().decode().split("\n")
    own = list(json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"])
    words = choose_vocabulary(data, all_words, own, VOCABULARY)
    position = {word: i for i, word in enumerate(words)}
    rows = np.array([position.get(word, -1) for word in all_words], np.int64)
    states = given.work / "distilled.npz"
    if not states.is_file():
        np.savez(states, vectors=distil(words, folder), words=np.array(words))
    vectors = np.load(states)["vectors"]
    share = np.bincount(rows[data["ids"]][rows[data["ids"]] >= 0], minlength=len(words)) / len(data["ids"])
    model = Embeddings(vectors, 1e-3 / (1e-3 + share))
    print(f"{len(words)} words, {len(data['queries'])} queries, {len(stretches)} trees", flush=True)
    train(data, rows, model, given.epochs, stretches, given.seed)
    with torch.no_grad():
        final = (model.vectors * model.weights.exp()[:, None]).numpy()
        save_static(given.out, words, final, model.query.exp().numpy())
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
