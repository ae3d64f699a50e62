"""From what Hydra composed to a checked `Config`, and from Hydra's errors to one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from codegrep.config import BASELINES, MODELS, PROMPTS, RAIL_ACTIONS, STAGES, Config
from codegrep.config.folder import CONF
from codegrep.engines.cpu import resolve_dtype
from codegrep.errors import ConfigError
from codegrep.issues.splits import check_split
from codegrep.overrides import override as written
from codegrep.rewards.load import load_advantage, load_reward
from codegrep.rewards.needs import needs
from codegrep.tracking.registry import check_name
from codegrep.training.signals import load_governance, load_process, load_verdicts

_GRPO_CHOICES = {
    "loss_type": ("grpo", "dapo", "bnpo", "dr_grpo"),
    "kl_estimator": ("k3", "k3_corrected", "k2"),
    "importance": ("token", "sequence"),
    "denominator": ("all", "in_loss"),
    "dead_groups": ("keep", "drop"),
    "sampling_correction": ("none", "sequence"),
}


def compose_overrides(overrides: Sequence[str], first_of_many: bool = False) -> DictConfig:
    """What Hydra composes for a command line, outside of a run of it.

    Args:
        overrides: as they are typed.
        first_of_many: take the first value of each override that has several (a sweep).

    Raises:
        ConfigError: an override that Hydra does not understand, or that names what is not there.
    """
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        # Inside a run of Hydra its own search path (--config-dir) counts.
        inside = GlobalHydra.instance().is_initialized()
        with nullcontext() if inside else initialize_config_dir(str(CONF), version_base="1.3"):
            parsed = OverridesParser.create().parse_overrides(list(overrides))
            chosen = []
            for override in parsed:
                if not override.is_sweep_override():
                    chosen.append(str(override.input_line))
                elif not first_of_many:
                    raise ConfigError(f"'{override.input_line}' has several values", "Give one, or use -m for a sweep")
                else:
                    chosen.append(_first_value(override))
            return compose("config", chosen)
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error) from None


def _first_value(override: Any) -> str:
    """One job's form of a sweep's override."""
    sign, group = ("+" if str(override.input_line).startswith("+") else ""), override.key_or_group
    if override.is_discrete_sweep() and not hasattr(override.value(), "include"):
        return f"{sign}{group}={next(iter(override.sweep_string_iterator()))}"
    known = sorted(path.stem for path in (CONF / group).glob("*.yaml"))  # glob(…) over a group
    if not known:
        raise ConfigError(f"'{override.input_line}' names no group of the configuration", "See conf/")
    return f"{sign}{group}={known[0]}"


def load(cfg: DictConfig, fill_missing: bool = False) -> Config:
    """Turn a composed configuration into a checked Config.

    Args:
        cfg: as Hydra composed it.
        fill_missing: names of data and models that have to be given may be missing, where nothing of them is opened.

    Raises:
        ConfigError: an unknown key, a wrong type, a missing value, or an impossible combination.
    """
    try:
        merged = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.create(OmegaConf.to_container(cfg)))
        missing = sorted(OmegaConf.missing_keys(merged))
        if missing and not fill_missing:
            raise ConfigError(
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
                f"Give {'it' if len(missing) == 1 else 'them'} on the command line: {missing[0]}=…",
            )
        for key in missing:
            OmegaConf.update(merged, key, ["unset"] if key == "labels.trajectories" else "unset")
        config = cast(Config, OmegaConf.to_object(merged))
    except OmegaConfBaseException as error:
        raise explain(error) from None
    train = config.train
    config.model.dtype = resolve_dtype(config.model.dtype, use_gpu=train.use_gpu, all_weights=train.full_parameters)
    check(config)
    return config


def check(config: Config) -> None:
    """Refuse combinations that cannot run, each with the key and the fix.

    Raises:
        ConfigError: see above.
    """

    def need(ok: bool, what: str, fix: str) -> None:
        if not ok:
            raise ConfigError(what, fix)

    unknown = [s for s in config.stages if s not in STAGES]
    need(not unknown, f"stages holds {unknown}", f"Known stages: {', '.join(STAGES)}")
    need(bool(config.stages), "stages is empty", f"Name at least one of {', '.join(STAGES)}")
    labels = config.labels
    need(labels.granularity in ("trajectory", "issue"), "labels.granularity is wrong", "Use trajectory or issue")
    need(labels.weights_over in ("mined", "judged"), "labels.weights_over is wrong", "Use mined or judged")
    need(config.judge.where in ("miners", "actors", "driver"), "judge.where is wrong", "Use miners, actors or driver")
    need(
        not labels.enabled or bool(labels.trajectories),
        "labels.trajectories is empty",
        "Name files or folders of agent trajectories",
    )
    need(
        labels.enabled or config.stages != ["label"],
        "the stage label has nothing to do",
        "Add labels=catm and labels.trajectories=[…]",
    )
    check_split(config.data.split)
    need(0 <= config.data.max_missing_gold <= 1, "data.max_missing_gold is no share", "Use a share in [0, 1]")
    need(bool(config.data.sources), "data.sources is empty", "Name at least one source")
    need(config.model.dtype in ("bfloat16", "float32"), "model.dtype is wrong", "Use auto, bfloat16 or float32")
    need(config.tools.observation in ("results", "table"), "tools.observation is wrong", "Use results or table")
    need(config.agent.prompt in PROMPTS, "agent.prompt is wrong", f"Use {', '.join(PROMPTS)}")
    need(
        config.tools.table_order in ("score", "path", "shuffled"),
        "tools.table_order is wrong",
        "Use score, path or shuffled",
    )
    need(config.tools.max_calls >= 1, "tools.max_calls is below 1", "The paper uses 8")
    need(config.agent.exploration_turns >= 1, "agent.exploration_turns is below 1", "The paper uses 3")
    grpo = config.train.grpo
    need(grpo.group_size >= 2, "train.grpo.group_size is below 2", "A group needs at least two rollouts to be compared")
    need(
        grpo.prompts_per_step % grpo.prompts_per_microbatch == 0,
        "train.grpo.prompts_per_step is not a multiple of train.grpo.prompts_per_microbatch",
        "Change one of the two",
    )
    need(
        grpo.prompts_per_step % config.train.workers == 0,
        "train.grpo.prompts_per_step is not a multiple of train.workers",
        "Change one of the two",
    )
    need(0 < grpo.top_p <= 1, "train.grpo.top_p is out of range", "Use a value in (0, 1]")
    need(config.advantage.baseline in ("mean", "loo"), "advantage.baseline is wrong", "Use mean or loo")
    need(config.advantage.scale in ("group", "batch", "none"), "advantage.scale is wrong", "Use group, batch or none")
    for field, known_values in _GRPO_CHOICES.items():
        value = getattr(grpo, field)
        need(value in known_values, f"train.grpo.{field} is {value}", f"Use {', '.join(known_values)}")
    need(
        0 <= grpo.adam_beta1 < 1 and 0 <= grpo.adam_beta2 < 1,
        "train.grpo.adam_beta1 or adam_beta2 is out of range",
        "Use values in [0, 1), for example 0.9 and 0.999",
    )
    need(grpo.weight_decay >= 0, "train.grpo.weight_decay is negative", "0 switches it off")
    need(
        not config.train.full_parameters or config.model.dtype == "float32",
        f"train.full_parameters trains the weights themselves, and model.dtype={config.model.dtype} loses small steps",
        "Set model.dtype=float32; GPUs compute in bfloat16 all the same",
    )
    need(grpo.kl >= 0, "train.grpo.kl is negative", "The paper uses 0.02; 0 switches KL off")
    need(
        grpo.importance == "token" or grpo.loss_type == "grpo",
        f"train.grpo.importance=sequence does not go with loss_type={grpo.loss_type}",
        "GSPO is the mean over sequences: use loss_type=grpo",
    )
    need(
        grpo.denominator == "all" or grpo.loss_type in ("grpo", "dr_grpo"),
        f"train.grpo.denominator=in_loss does not go with loss_type={grpo.loss_type}, which divides by tokens",
        "Use denominator=all",
    )
    need(grpo.refill_rounds >= 0, "train.grpo.refill_rounds is negative", "0 leaves a step with dropped groups smaller")
    need(
        not grpo.refill_rounds or grpo.dead_groups == "drop",
        "train.grpo.refill_rounds does nothing without dropped groups",
        "Set train.grpo.dead_groups=drop, or refill_rounds=0",
    )
    need(
        grpo.sampling_correction == "none" or grpo.temperature == 1.0,
        "train.grpo.sampling_correction compares log-probabilities at temperature 1",
        "Set train.grpo.temperature=1.0 or sampling_correction=none",
    )
    need(
        grpo.sampling_correction == "none" or config.engine.sync.max_staleness == 0,
        "train.grpo.sampling_correction and engine.sync.max_staleness both correct for the sampler",
        "Set sampling_correction=none, or max_staleness=0",
    )
    need(
        0 <= grpo.sampling_low < (grpo.sampling_high or float("inf")),
        "train.grpo.sampling_low and sampling_high are no interval",
        "Use for example 0.5 and 2.0; null is no upper limit",
    )
    rails = config.train.guard_rails
    need(rails.window >= 1, "train.guard_rails.window is below 1", "Use the number of steps to average")
    for name, rail in rails.rails.items():
        key = f"train.guard_rails.rails.{name}"
        need(rail.action in RAIL_ACTIONS, f"{key}.action is {rail.action}", f"Use {', '.join(RAIL_ACTIONS)}")
        need(
            (rail.above is None) != (rail.times_start is None),
            f"{key} needs one limit: above or times_start",
            "Set the other one to null",
        )
    need(grpo.temperature > 0, "train.grpo.temperature must be positive", "The paper uses 1.0")
    early, ladder = config.train.early_stop, config.train.ladder
    need(early.window >= 1, "train.early_stop.window is below 1", "Use some tens of steps")
    need(
        not ladder.every or ladder.issues >= 1,
        "train.ladder.issues is below 1",
        "Use about half of the held-out issues",
    )
    most = config.data.split.max_held_out
    need(
        not ladder.every or not most or bool(config.data.split.validation) or ladder.issues < most,
        f"train.ladder.issues={ladder.issues} takes all {most} held-out issues (data.split.max_held_out)",
        "Use about half of them, so that some are left to report on",
    )
    if config.sweep is not None:
        need(ladder.every > 0, "a search needs train.ladder.every", "Give the optimiser steps between two measurements")
        need(grpo.enabled, "a search needs train.grpo.enabled", "Set it to true")
        need(config.sweep.trials >= 1, "sweep.trials is below 1", "Use at least 1")
        need(config.sweep.reduction >= 2, "sweep.reduction is below 2", "ASHA goes on with one trial in 2 to 4")
        for key, values in config.sweep.space.items():
            good = bool(values.get("choices")) or {"low", "high"} <= values.keys()
            need(good, f"sweep.space.{key} has no values", "Give low and high, or choices")
            for choice in values.get("choices", ()):
                written(key, choice)  # refuses what cannot be handed to a trial
    for key, named, known in (
        ("models", config.evaluate.models, MODELS),
        ("baselines", config.evaluate.baselines, BASELINES),
    ):
        wrong = [name for name in named if name not in known]
        need(not wrong, f"evaluate.{key} holds {wrong}", f"Known: {', '.join(known)}")
    need(
        ("loaded" in config.evaluate.models) == bool(config.evaluate.loaded),
        "evaluate.models and evaluate.loaded do not fit together",
        "Measure a model of MLflow with python -m codegrep evaluate model=models:/NAME@ALIAS",
    )
    latency = config.evaluate.latency_issues
    need(latency >= 0, f"evaluate.latency_issues={latency} is negative", "Use 0 for none")
    need(bool(config.evaluate.models or config.evaluate.baselines), "nothing is to be evaluated", "See evaluate.models")
    if config.tracking.register:
        check_name(config.tracking.register)
    # A misspelt function or parameter shows here, and not after the warm start.
    load_reward(config.reward)
    load_advantage(config.advantage)
    load_governance(config.governance)
    load_process(config.process)
    load_verdicts(config.verdict)


def cautions(config: Config) -> list[str]:
    """What will run but hardly mean what it seems to, one line each."""
    wanted = needs(load_reward(config.reward))
    name, prompt = config.reward.name, config.agent.prompt
    said = []
    if "line_ranges" in wanted and prompt != "detailed":
        said.append(
            f"reward={name} scores line ranges, and agent.prompt={prompt} does not ask for them: "
            "its line score says nothing. Use agent.prompt=detailed"
        )
    if "entities" in wanted and prompt != "entities":
        said.append(
            f"reward={name} scores classes and functions, and agent.prompt={prompt} does not ask for them. "
            "Use agent.prompt=entities"
        )
    if "entities" in wanted and not config.data.gold_entities:
        said.append(
            f"reward={name} scores classes and functions, and those of the issues are not looked up. "
            "Use data.gold_entities=true"
        )
    if "verdict" in wanted and config.verdict.judge is None:
        said.append(
            f"reward={name} wants a judge's verdict, and verdict={config.verdict.name} asks nobody: nothing beyond its "
            "first half is given. Use verdict=llm, or reward.params.judge=score"
        )
    if "verdict" not in wanted and config.verdict.judge is not None:
        said.append(f"verdict={config.verdict.name} has a judge, and reward={name} wants no verdict: nobody is asked")
    return said


def explain(error: Exception) -> ConfigError:
    """One line for an error of Hydra or OmegaConf, with the nearest known name where one is near."""
    text = " ".join(str(error).split())
    found = re.search(
        r"Could not find '([^']+)'|Could not find \"([^\"]+)\"|In '[^']*': Could not find '([^']+)'", text
    )
    if found:
        wanted = next(g for g in found.groups() if g)
        group, _, choice = wanted.rpartition("/")
        known = sorted(p.stem for p in (CONF / group).glob("*.yaml")) if group else []
        if known:
            near = difflib.get_close_matches(choice, known, n=1)
            hint = f"Did you mean {group}={near[0]}?" if near else f"Known: {', '.join(known)}"
            return ConfigError(f"there is no {group} called '{choice}'", hint)
        groups = sorted(p.name for p in CONF.iterdir() if p.is_dir())
        return ConfigError(f"there is no configuration called '{wanted}'", f"Groups: {', '.join(groups)}")
    override = re.search(r"Could not override '([^']+)'", text)
    key = override.group(1) if override else _key_of(error, text)
    if key and (override or "not in struct" in text or "not in '" in text):
        near = difflib.get_close_matches(key, _known_keys(), n=1, cutoff=0.5) or _near_by_last_part(key)
        hint = f"Did you mean {near[0]}?" if near else "See python -m codegrep --cfg job"
        if near == [key]:  # known, but not in the YAML file of this choice
            hint = f"Add it with a plus sign: +{key}=…"
        return ConfigError(f"unknown key '{key}'", hint)
    if key:
        first = re.split(r" full_key:| object_type=| reference_type=", text)[0]
        return ConfigError(f"{key}: {first}", "See python -m codegrep --cfg job")
    return ConfigError(text[:300], "See python -m codegrep --help")


def _key_of(error: Exception, text: str) -> str:
    key = getattr(error, "full_key", None)
    if key:
        return str(key)
    found = re.search(r"full_key: (\S+)", text)
    return found.group(1) if found else ""


def _known_keys() -> list[str]:
    from dataclasses import fields, is_dataclass
    from typing import get_type_hints

    def walk(kind: Any, prefix: str) -> list[str]:
        hints = get_type_hints(kind)
        out: list[str] = []
        for f in fields(kind):
            out.append(prefix + f.name)
            if is_dataclass(hints[f.name]):
                out.extend(walk(hints[f.name], f"{prefix}{f.name}."))
        return out

    return walk(Config, "")


def _near_by_last_part(key: str) -> list[str]:
    last = key.rpartition(".")[2]
    by_last = {k.rpartition(".")[2]: k for k in _known_keys()}
    return [by_last[n] for n in difflib.get_close_matches(last, list(by_last), n=1)]
