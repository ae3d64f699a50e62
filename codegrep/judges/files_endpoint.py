"""The judge of files behind an OpenAI-compatible endpoint; an outage is an error of its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codegrep.errors import ConfigError
from codegrep.judges.endpoint import AnswerCache, ChatClient, Endpoint, Prompt, Reply
from codegrep.judges.files import READING, PromptedJudge, Question, Relevance, majority, parse_answer, prompt


class EndpointJudge(PromptedJudge):
    """Ask a language model over HTTP.

    Args:
        cache: folder of earlier answers; None keeps none.
        votes: answers asked for each candidate; the majority counts.
        settings: fields of `Endpoint`.

    Raises:
        ConfigError: a setting is unknown, missing or out of range.
    """

    def __init__(self, cache: str | None = None, votes: int = 1, **settings: Any) -> None:
        if votes < 1:
            raise ConfigError(f"judge.params.votes is {votes}", "LRAT uses 1")
        endpoint = Endpoint.from_params(settings, "judge")
        self._client = ChatClient(endpoint, AnswerCache(Path(cache)) if cache else None, READING)
        self._votes = votes
        super().__init__(f"llm:{endpoint.model}", self._client.usage)

    def judge(self, questions: Sequence[Question]) -> list[Relevance]:
        """Return a relevance for each question, in order; an outage is an error of its row."""
        prompts = [Prompt(prompt(question), vote) for question in questions for vote in range(self._votes)]
        answers = self._client.ask([(one, _read) for one in prompts])
        return [_relevance(answers[start : start + self._votes]) for start in range(0, len(answers), self._votes)]


def _read(text: str) -> Mapping[str, Any] | None:
    parsed = parse_answer(text)
    if parsed is None:
        return None
    return {"label": parsed[0], "ambiguous": parsed[1], "text": text.strip()[-200:]}


def _relevance(answers: Sequence[Reply]) -> Relevance:
    values = []
    for answer in answers:
        if answer.value is None:
            return Relevance("", error=answer.error)
        values.append(answer.value)
    labels = [str(value["label"]) for value in values]
    label = majority(labels)
    against = sum(1 for one in labels if one != "RELEVANT")
    words = next((str(value["text"]) for value in values if value["text"]), "")
    ambiguous = any(bool(value["ambiguous"]) for value in values)
    return Relevance(label, words, (len(labels) - against, against), ambiguous=ambiguous)
