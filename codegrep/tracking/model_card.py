"""The card that travels with a trained adapter. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegrep.tracking.parameters import masked_text
from codegrep.tracking.rows import EvaluationRow


@dataclass(frozen=True)
class ModelCard:
    """What somebody needs who finds the adapter without the run.

    Attributes:
        name: of the run.
        base_model: folder name or hub id that the adapter belongs to (no machine path).
        warm_started: the adapter sits on the base with another adapter, in warm_start/, merged into it.
        licence: of the base model, "" where it is not known.
        design: one line of facts each, by label: reward, advantage, steps, group size, KL coefficient, seed …
        data: source name -> fingerprint of the training issues.
        commit: of the project, "" where it is not known.
        run_id: MLflow's, "" outside a run.
        evaluation: rows on the held-out issues.
        command: that makes the run again.
    """

    name: str
    base_model: str
    design: Mapping[str, object]
    data: Mapping[str, str]
    evaluation: Sequence[EvaluationRow]
    command: str
    warm_started: bool = False
    licence: str = ""
    commit: str = ""
    run_id: str = ""


def markdown(card: ModelCard) -> str:
    """The card as Markdown, for README.md in the adapter's folder."""
    front = ["---", "library_name: peft", f"base_model: {card.base_model}"]
    front += [f"license: {card.licence}"] if card.licence else []
    front += ["tags: [code-retrieval, grpo, lora]", "---"]
    sections = [
        "\n".join(front),
        f"# {card.name}",
        f"A LoRA adapter for `{card.base_model}` that answers an issue with the source files to change. It searches a "
        "repository with grep, glob and read over a few turns; outside that protocol it is of no use.",
        "## How it was trained\n\n" + _table(("", ""), [(key, _plain(value)) for key, value in card.design.items()]),
        "## Data\n\n" + _table(("source", "fingerprint"), [(key, f"`{value}`") for key, value in card.data.items()]),
        "## On held-out issues\n\n" + _evaluation(card.evaluation),
        "## Loading\n\n" + _loading(card),
        f"## Again\n\n```\n{masked_text(card.command)}\n```",
    ]
    origin = [f"commit `{card.commit}`"] if card.commit else []
    origin += [f"MLflow run `{card.run_id}`"] if card.run_id else []
    if origin:
        sections[-1] += "\n\n" + ", ".join(origin)
    return "\n\n".join(sections) + "\n"


def _loading(card: ModelCard) -> str:
    lines = [
        "from peft import PeftModel",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        f'model = AutoModelForCausalLM.from_pretrained("{card.base_model}")  # a folder or hub id',
        f'tokenizer = AutoTokenizer.from_pretrained("{card.base_model}")',
    ]
    if card.warm_started:
        lines.append('model = PeftModel.from_pretrained(model, "warm_start").merge_and_unload()')
    lines.append('model = PeftModel.from_pretrained(model, "adapter")')
    code = "\n".join(lines)
    return (
        "Measured again, on the held-out issues of its training or on others:\n\n"
        "```\npython -m codegrep evaluate model=runs:/" + (card.run_id or "RUN_ID") + "\n```\n\n"
        f"In Python, from this folder:\n\n```python\n{code}\n```"
    )


def _evaluation(rows: Sequence[EvaluationRow]) -> str:
    if not rows:
        return "Not measured."
    cells = [
        (
            _plain(row.retriever),
            f"{row.f05_mean:.3f}",
            "" if row.f05_low is None or row.f05_high is None else f"{row.f05_low:.3f} to {row.f05_high:.3f}",
            _number(row.precision),
            _number(row.recall),
            str(row.issues),
        )
        for row in rows
    ]
    return _table(("retriever", "F0.5", "95% interval", "precision", "recall", "issues"), cells)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _plain(value: object) -> str:
    return masked_text(str(value)).replace("|", "\\|").replace("\n", " ")
