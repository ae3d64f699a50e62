"""The card that travels with a trained adapter. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegrep.tracking import pages
from codegrep.tracking.parameters import masked_text
from codegrep.tracking.rows import EvaluationRow


@dataclass(frozen=True)
class ModelCard:
    """What a reader needs who has the adapter and not the run.

    Attributes:
        name: of the run.
        base_model: hub id or folder name that the adapter belongs to (no machine path).
        base_path: "provided:NAME" of a model that this project makes, else "": base_model loads by itself.
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
    base_path: str = ""
    warm_started: bool = False
    licence: str = ""
    commit: str = ""
    run_id: str = ""


def markdown(card: ModelCard) -> str:
    """Return the card as Markdown, for README.md in the adapter's folder."""
    origin = [f"commit `{card.commit}`"] if card.commit else []
    origin += [f"MLflow run `{card.run_id}`"] if card.run_id else []
    return pages.render(
        "model_card.md",
        card=card,
        design=[(key, masked_text(str(value))) for key, value in card.design.items()],
        evaluation=[_cells(row) for row in card.evaluation],
        origin=", ".join(origin),
    )


def _cells(row: EvaluationRow) -> tuple[str, ...]:
    interval = "" if row.f05_low is None or row.f05_high is None else f"{row.f05_low:.3f} to {row.f05_high:.3f}"
    scores = ("" if value is None else f"{value:.3f}" for value in (row.precision, row.recall))
    return masked_text(row.retriever), f"{row.f05_mean:.3f}", interval, *scores, str(row.issues)
