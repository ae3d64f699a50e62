"""A turn scorer that asks a language model behind an OpenAI-compatible endpoint (SPEC 4.2; arXiv 2605.07276).

The paper's judge reads the whole trajectory beside the reference and gives every step a score for what it brought; its
prompt is not printed, so this one is reconstructed. The answer is scored by the reward, so the submitting
turn has no score here.

An outage is no error of training: after its retries a rollout has no scores, keeps equal weights, and is counted.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable

from codegrep.rewards.turn_credit import Trajectory, TurnFacts

_PROMPT = """\
You judge the steps of a search agent. It was given a problem report and searched a code repository for the files that
have to be changed. Score each step with a number from 0 to 1 for how much it helped:
1.0  it showed something new that leads to the files that had to be found
0.5  it showed something new that does not lead there
0.2  it showed again what was known already
0.0  it failed, was empty, or repeated an earlier call
Numbers in between are allowed. The files that had to be found are for you alone; the agent did not know them.

Problem report:
{statement}

Files that had to be found: {gold}

Steps:
{steps}

Answer with one JSON object and nothing else, with one number for each of the {count} steps in their order:
{{"scores": [...]}}"""
_OBJECT = re.compile(r"\{[^{}]*\}")
_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_MAX_STATEMENT, _MAX_STEP, _MAX_PATHS = 6000, 1500, 20  # characters, characters, paths of a result
_LARGEST = 4_000_000  # bytes of an answer; more is garbage

Ask = Callable[[str], str]


def judged(
    trajectory: Trajectory,
    *,
    url: str,
    model: str,
    key_variable: str = "",
    temperature: float = 0.0,
    max_tokens: int = 1024,
    timeout: float = 60.0,
    retries: int = 2,
    backoff: float = 1.0,
) -> list[float | None] | None:
    """Scores by a model; None where no usable answer was had.

    Args:
        trajectory: with the issue's text and the gold files.
        url: base of the API, up to and with /v1. model: as the server knows it.
        key_variable: environment variable with the key; "" sends none.
        temperature, max_tokens: of the request. timeout: seconds of one try.
        retries: tries after the first (2 in the paper's training). backoff: seconds before the second try, doubled for
            each further one.
    """

    def ask(text: str) -> str:
        return _post(url, key_variable, timeout, model, text, temperature, max_tokens)

    return scores_by(trajectory, ask, retries=retries, backoff=backoff)


# Not tried on samples before a run starts: that would ask the model.
judged.asks_a_model = True  # type: ignore[attr-defined]


def scores_by(trajectory: Trajectory, ask: Ask, *, retries: int = 2, backoff: float = 0.0) -> list[float | None] | None:
    """As `judged`, with any way to ask. ask: text -> answer; it raises OSError where there is none."""
    steps = [turn for turn in trajectory.turns if turn.submission is None]
    if not steps:
        return [None] * len(trajectory.turns)
    text = prompt(trajectory)
    for attempt in range(retries + 1):
        if attempt and backoff:
            time.sleep(backoff * 2 ** (attempt - 1))
        try:
            scores = parse_scores(ask(text), len(steps))
        except OSError:
            continue
        if scores is not None:
            left = iter(scores)
            return [next(left) if turn.submission is None else None for turn in trajectory.turns]
    return None


def prompt(trajectory: Trajectory) -> str:
    """What the model is asked. Long parts are cut, visibly."""
    steps = [turn for turn in trajectory.turns if turn.submission is None]
    return _PROMPT.format(
        statement=_cut(trajectory.statement, _MAX_STATEMENT) or "(not known)",
        gold=", ".join(sorted(trajectory.gold)) or "(none)",
        steps="\n\n".join(f"Step {number}\n{_step(turn)}" for number, turn in enumerate(steps, 1)),
        count=len(steps),
    )


def parse_scores(text: str, count: int) -> list[float] | None:
    """The scores of the last object of that form in an answer; None without one, with another number of scores, or with
    one outside [0, 1].
    """
    for found in reversed(_OBJECT.findall(_THINKING.sub("", text))):
        try:
            scores = json.loads(found).get("scores")
        except (ValueError, RecursionError):
            continue
        if not isinstance(scores, list):
            continue
        fine = all(isinstance(s, int | float) and not isinstance(s, bool) and 0 <= s <= 1 for s in scores)
        return [float(score) for score in scores] if fine and len(scores) == count else None
    return None


def _step(turn: TurnFacts) -> str:
    lines = [_cut(turn.text, _MAX_STEP)]
    for call in turn.calls:
        paths = ", ".join(call.paths[:_MAX_PATHS]) or "nothing"
        more = f" and {len(call.paths) - _MAX_PATHS} more" if len(call.paths) > _MAX_PATHS else ""
        lines.append(f"- {_cut(call.key, 300)} -> {paths + more if call.ok else 'failed'}")
    return "\n".join(lines)


def _cut(text: str, limit: int) -> str:
    text = text.strip()
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n[… {len(text) - limit} characters …]\n{text[-(limit // 2) :]}"


def _post(
    url: str, key_variable: str, timeout: float, model: str, text: str, temperature: float, max_tokens: int
) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url is {url!r}, not an address http://HOST:PORT/v1")
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "temperature": temperature,
        "max_tokens": max_tokens,
    }
    headers = {"Content-Type": "application/json"}
    key = os.environ.get(key_variable, "") if key_variable else ""
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(
        url.rstrip("/") + "/chat/completions", json.dumps(body).encode("utf-8"), headers, method="POST"
    )
    with urllib.request.urlopen(request, timeout=timeout) as response:  # http and https only, see above
        raw = response.read(_LARGEST)
    try:
        content = json.loads(raw)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return ""
    return content if isinstance(content, str) else ""
