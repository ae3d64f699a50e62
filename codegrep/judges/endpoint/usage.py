"""What asking a language model took."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Usage:
    """Counts since a judge was opened.

    Attributes:
        requests: sent, tries again included. retries: those among them that were tries again.
        cached: answers that were there already, and cost nothing.
        prompt_tokens, completion_tokens: as the server counted them.
        failures: requests without a usable answer, by reason.
    """

    requests: int = 0
    retries: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    failures: dict[str, int] = field(default_factory=dict)
