"""A judge of files in vLLM engines of Ray Data (ray.data.llm). Never run: docs/not-yet-run.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from codegrep.errors import ConfigError
from codegrep.judges.endpoint import Usage
from codegrep.judges.files import PromptedJudge, Question, Relevance, parse_answer, prompt


class VLLMJudge(PromptedJudge):
    """Judge all candidates in one Ray Data pipeline: prompts, engines, answers. For judge.where=driver.

    Args:
        model: hub id or folder.
        engines: copies of the model.
        batch: prompts an engine takes at once.
        temperature: of sampling.
        max_tokens: of an answer.
        engine: arguments of vLLM's engine.
    """

    def __init__(
        self, model: str, engines: int, batch: int, temperature: float, max_tokens: int, engine: dict[str, Any]
    ) -> None:
        if engines < 1 or batch < 1:
            raise ConfigError("judge.params: engines and batch must be positive", "See conf/judge/vllm.yaml")
        self._model, self._engines, self._batch, self._engine = model, engines, batch, dict(engine)
        self._sampling = {"temperature": temperature, "max_tokens": max_tokens}
        super().__init__(f"vllm:{model}", Usage())

    def judge(self, questions: Sequence[Question]) -> list[Relevance]:
        """Refuse: starting an engine for a single list costs minutes.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("VLLMJudge judges whole sets only", "Set judge.where=driver")

    def judge_files(self, paths: Sequence[str], min_tokens: int) -> Iterator[tuple[str, int, Relevance]]:
        """Yield (file, row, relevance) of all candidates in Parquet files that have `min_tokens` of evidence."""
        if not paths:
            return
        import ray.data
        from ray.data.llm import build_processor, vLLMEngineProcessorConfig

        config = vLLMEngineProcessorConfig(
            model_source=self._model,
            concurrency=self._engines,
            batch_size=self._batch,
            engine_kwargs=self._engine,
            should_continue_on_error=True,  # a failed prompt is an error of its row
        )
        sampling = self._sampling
        processor = build_processor(
            config,
            preprocess=lambda row: {
                "messages": [{"role": "user", "content": prompt(Question(row["file"], row["evidence"], row["task"]))}],
                "sampling_params": sampling,
                "from_path": row["from_path"],
                "position": row["position"],
            },
            postprocess=lambda row: {
                "answer": row.get("generated_text") or "",
                "from_path": row["from_path"],
                "position": row["position"],
            },
        )
        dataset = ray.data.from_items([{"from_path": path} for path in paths]).flat_map(_Rows(min_tokens), num_cpus=0.5)
        for row in processor(dataset).iter_rows():
            yield str(row["from_path"]), int(row["position"]), _relevance(str(row["answer"]))


class _Rows:
    """Ray Data's function: the candidates of one file that are long enough, with their row numbers."""

    def __init__(self, min_tokens: int) -> None:
        self._min_tokens = min_tokens

    def __call__(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        from pyarrow import parquet

        table = parquet.read_table(row["from_path"], columns=["path", "evidence", "task", "tokens"])
        return [
            {
                "from_path": row["from_path"],
                "position": n,
                "file": one["path"],
                "evidence": one["evidence"],
                "task": one["task"],
            }
            for n, one in enumerate(table.to_pylist())
            if one["tokens"] >= self._min_tokens
        ]


def _relevance(answer: str) -> Relevance:
    parsed = parse_answer(answer)
    if parsed is None:
        return Relevance("", error="empty answer")
    label, ambiguous = parsed
    votes = (1, 0) if label == "RELEVANT" else (0, 1)
    return Relevance(label, answer.strip()[-200:], votes, ambiguous=ambiguous)
