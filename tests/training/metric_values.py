"""What one GRPO step on the rollouts of `hand_made` logs, worked out by hand.

Design v3 (file F0.5, 0 without a search) with factor s = sqrt(c̄/4); rollouts out of tokens or context are masked and
outside their group; dead groups are dropped. Rewards of group 0: 1, 5/6, none, none. Of group 1: 0, 0, 0, none.

F0.5 of one right file of two: 1.25·1·0.5 / (0.25·1 + 0.5) = 5/6. Standard deviation of 1 and 5/6: 1/(6·sqrt(2)).
Sampled tokens: 8, 7, 13, 2 and 4, 5, 8, 7. Tool text: 10, 6, 4, 0 and 0, 5, 8, 20. Every prompt has 10 tokens.
"""

from __future__ import annotations

from math import sqrt

STD = 1 / (6 * sqrt(2))
ADVANTAGE = (1 / 12) / (STD + 1e-4)  # of the first rollout before its factor, and minus that of the second

# rollout/, reward/, group/, completions/ and errors/ of the two groups.
DRAWN = {
    "reward/total": (1 + 5 / 6) / 5,
    "reward/file_f": (1 + 5 / 6) / 5,
    "reward/searched": 4 / 5,
    "reward/precision": 2 / 5,
    "reward/recall": 1.5 / 5,
    "group/scored": (2 + 3) / 2,
    "group/reward_range": (1 / 6 + 0) / 2,
    "group/dead_rate": 1 / 2,
    "group/reward_std": (STD + 0) / 2,
    "group/best": (1 + 0) / 2,
    # Of the seven rollouts that the machine did not lose.
    "completions/mean_length": (18 + 13 + 17 + 4 + 10 + 16 + 27) / 7,
    "completions/generated": (8 + 7 + 13 + 4 + 5 + 8 + 7) / 7,
    "completions/sampled": 8 + 7 + 13 + 2 + 4 + 5 + 8 + 7,
    "completions/clipped_ratio": 2 / 7,
    "rollout/turns": 13 / 7,
    "rollout/tool_turns": 6 / 7,
    "rollout/calls_per_turn": (4 + 1 + 1 + 0 + 2 + 1 + 1) / 7,
    "rollout/calls": (4 + 1 + 1 + 0 + 2 + 1 + 1) / 7,
    "rollout/duplicate_calls": 1 / 10,
    "rollout/f05": (1 + 5 / 6) / 7,
    "rollout/precision": 2 / 7,
    "rollout/recall": 1.5 / 7,
    "rollout/files": (2 + 1 + 1) / 7,
    "rollout/answered": 3 / 7,
    "rollout/exit_answer": 3 / 8,
    "rollout/exit_no_tool_call": 1 / 8,
    "rollout/exit_max_turns": 1 / 8,
    "rollout/exit_max_tokens": 1 / 8,
    "rollout/exit_malformed": 0,
    "rollout/exit_context_limit": 1 / 8,
    "rollout/exit_prompt_too_long": 0,
    "rollout/exit_infrastructure": 1 / 8,
    "errors/parse": 1 / 12,
    "errors/infrastructure": 1,
    "errors/refused_calls": 1,
}
STEP = {
    **DRAWN,
    "advantage/factor": (1 + 1 / 2 + 0 + sqrt(2 / 4) + 1 / 2) / 5,
    "advantage/mean_abs": ADVANTAGE * (1 + 1 / 2) / 5,
    "advantage/positive_rate": 1 / 5,
    "advantage/mass": ADVANTAGE * (8 + 7 / 2) / 54,
    **dict.fromkeys(("masked/answer", "masked/no_tool_call", "masked/max_turns", "masked/malformed"), 0),
    **dict.fromkeys(
        ("masked/excessive_calls", "masked/repetition", "masked/judge_failed", "masked/prompt_too_long"), 0
    ),
    "masked/max_tokens": 1,
    "masked/context_limit": 1,
    "masked/infrastructure": 1,
    "masked/dead_group": 3,
    "masked/tokens": 1 - (8 + 7) / 54,
    "turn_scores/invalid": 0,
    "group/drawn": 2,
    "group/refilled": 0,
    "optim/learning_rate": 2e-2,
    "optim/epoch": 1.0,
    "optim/tokens": 7 * 10 + 18 + 13 + 17 + 4 + 10 + 16 + 27,
}
# The second group is dropped and a third one, equal to it, drawn in its place: it is dead too, and what is left is as
# above. Of the eleven rollouts that were not lost four have answered and three ran out.
REFILLED = {
    "reward/total": (1 + 5 / 6) / 8,
    "group/dead_rate": 2 / 3,
    "group/drawn": 3,
    "group/refilled": 0,
    "completions/sampled": 54 + 24,
    "completions/clipped_ratio": 3 / 11,
    "rollout/answered": 4 / 11,
    "errors/infrastructure": 1,
    "masked/dead_group": 3,
    **{f"kept/{name}": value for name, value in DRAWN.items()},
}
# Compared with what the model itself says of these rollouts, and with the clock.
BY_THE_MODEL = (
    *("policy/kl", "policy/entropy", "policy/clip_ratio_low", "policy/clip_ratio_high", "policy/clip_ratio_region"),
    *("policy/logprob_gap", "policy/logprob_gap_max", "policy/ess", "policy/importance_ratio"),
    *("policy/sequence_ratio", "policy/sequence_masked", "optim/loss", "optim/grad_norm"),
)
PHASES = ("generation", "rollouts", "tools", "scoring", "reference", "update", "step")
SECONDS = (*(f"seconds/{phase}" for phase in PHASES), "judge/seconds")
