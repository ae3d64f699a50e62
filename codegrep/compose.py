"""From what Hydra composed to a checked `Config`, and from Hydra's errors to one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from codegrep.conf_folder import CONF
from codegrep.config import SCRIPTED, Config
from codegrep.config.reading import checked, unknown_key
from codegrep.engines.cpu import resolve_dtype
from codegrep.errors import ConfigError
from codegrep.issues.splits import check_split
from codegrep.overrides import override as written
from codegrep.retrievers.registry import check_retriever
from codegrep.rewards.load import load_reward
from codegrep.rewards.needs import needs
from codegrep.tracking.registry import check_name
from codegrep.training.signals import load_answer_judge, load_signal, load_turn_scoring

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader

_WITH_PLUS = ("experiment", "sweep")  # groups that no default chooses from


def compose_overrides(overrides: Sequence[str], first_of_many: bool = False) -> DictConfig:
    """Return what Hydra composes for a command line, outside of a run of it.

    Args:
        overrides: as they are typed.
        first_of_many: take the first value of each override that has several (a sweep).

    Raises:
        ConfigError: an override that Hydra does not understand, or that names what is not there.
    """
    from hydra import compose
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        with _search_path():
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


@contextmanager
def _search_path() -> Iterator[ConfigLoader]:
    """Look configurations up in conf/; inside a run of Hydra its own search path (--config-dir) counts."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    inside = GlobalHydra.instance().is_initialized()
    with nullcontext() if inside else initialize_config_dir(str(CONF), version_base="1.3"):
        yield GlobalHydra.instance().config_loader()


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
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing and not fill_missing:
        raise ConfigError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            f"Give {'it' if len(missing) == 1 else 'them'} on the command line: {missing[0]}=…",
        )
    filled = OmegaConf.create(OmegaConf.to_container(cfg))  # a copy without Hydra's lock on new keys
    for key in missing:
        OmegaConf.update(filled, key, ["unset"] if key == "labels.trajectories" else "unset")
    try:
        _fill_in_retrievers(cast(DictConfig, filled))
        values = cast(dict[str, Any], OmegaConf.to_container(filled, resolve=True))
    except OmegaConfBaseException as error:
        raise explain(error) from None
    config = checked(Config, values)
    train = config.train
    config.model.dtype = resolve_dtype(config.model.dtype, use_gpu=train.use_gpu, all_weights=train.full_parameters)
    check(config)
    return config


def _fill_in_retrievers(composed: DictConfig) -> None:
    """Replace `retrievers` by those that are asked for: their files of conf/retriever with what is said beside them.

    Raises:
        ConfigError: there is no such retriever, or one is changed that is not asked for.
    """
    alone, changes = composed.pop("retriever", None), composed.get("retrievers") or {}
    if alone is not None:
        composed.evaluate.retrievers, changes = [alone.name], {alone.name: alone}
    asked = [name for name in composed.evaluate.retrievers or [] if name not in SCRIPTED]
    for name in changes:
        if name not in asked:
            raise _no_retriever(
                f"retrievers.{name} changes what evaluate.retrievers does not ask for", str(name), asked
            )
    composed.retrievers = {name: OmegaConf.merge(_retriever_file(str(name)), changes.get(name, {})) for name in asked}


def _retriever_file(name: str) -> Any:
    from hydra import compose

    with _search_path() as loader:
        known = loader.get_group_options("retriever")
        if name not in known:
            raise _no_retriever(f"there is no retriever called '{name}'", name, [*known, *SCRIPTED])
        settings = compose(f"retriever/{name}").retriever
    if settings.get("name") != name:
        raise ConfigError(f"retriever/{name}.yaml has the name {settings.get('name')}", f"Give it name: {name}")
    OmegaConf.set_struct(settings, False)  # arguments that the file does not have may be added
    return settings


def _no_retriever(what: str, name: str, known: Sequence[str]) -> ConfigError:
    near = difflib.get_close_matches(name, known, n=1)
    return ConfigError(what, f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}")


def check(config: Config) -> None:
    """Refuse what a group alone cannot know: roles of repositories, names, functions and their parameters.

    Raises:
        ConfigError: one line with the key and the fix.
    """
    check_split(config.data.split)
    if config.sweep is not None:
        for key, values in config.sweep.space.items():
            if not (values.get("choices") or {"low", "high"} <= values.keys()):
                raise ConfigError(f"sweep.space.{key} has no values", "Give low and high, or choices")
            for choice in values.get("choices", ()):
                written(key, choice)  # refuses what cannot be handed to a trial
    if config.tracking.register:
        check_name(config.tracking.register)
    # A misspelt function or parameter shows here, and not after the warm start.
    load_signal(config.reward, config.advantage, config.governance)
    load_turn_scoring(config.turn_scores)
    load_answer_judge(config.answer_judge)
    for settings in config.retrievers.values():
        check_retriever(settings)


def cautions(config: Config) -> list[str]:
    """Return what will run but hardly mean what it seems to, one line each."""
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
    if "judgement" in wanted and config.answer_judge.judge is None:
        said.append(
            f"reward={name} needs a judge of answers, and answer_judge={config.answer_judge.name} asks nobody: nothing "
            "beyond its first half is given. Use answer_judge=llm, or reward.params.judge=score"
        )
    if "judgement" not in wanted and config.answer_judge.judge is not None:
        said.append(
            f"answer_judge={config.answer_judge.name} has a judge that reward={name} does not need: nobody is asked"
        )
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
            plus = "+" * (group in _WITH_PLUS)
            hint = f"Did you mean {plus}{group}={near[0]}?" if near else f"Known: {', '.join(known)}"
            return ConfigError(f"there is no {group} called '{choice}'", hint)
        groups = sorted(p.name for p in CONF.iterdir() if p.is_dir())
        return ConfigError(f"there is no configuration called '{wanted}'", f"Groups: {', '.join(groups)}")
    override = re.search(r"Could not override '([^']+)'", text)
    key = override.group(1) if override else _key_of(error, text)
    if key in _WITH_PLUS and override:
        chosen = str(getattr(error, "value", "") or "NAME")
        return ConfigError(f"{key} is chosen with a plus sign", f"Use +{key}={chosen}")
    if key and (override or "not in struct" in text or "not in '" in text):
        return unknown_key(key, _choices_with(key), _keys_in_files(key.partition(".")[0]))
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


def _keys_in_files(group: str) -> set[str]:
    """Return the keys that the choices of a group set."""
    keys: set[str] = set()

    def walk(node: Any, prefix: str) -> None:
        for name, inner in node.items() if isinstance(node, dict) else ():
            keys.add(f"{prefix}.{name}")
            walk(inner, f"{prefix}.{name}")

    for file in (CONF / group).glob("*.yaml") if group not in _WITH_PLUS else ():
        walk(OmegaConf.to_container(OmegaConf.load(file)), group)
    return keys


def _choices_with(key: str) -> list[str]:
    """Return the choices of the key's group whose YAML file has the key: `engine=vllm` for engine.vllm.replicas."""
    group, *path = key.split(".")
    choices = []
    for file in sorted((CONF / group).glob("*.yaml")):
        node: Any = OmegaConf.to_container(OmegaConf.load(file))
        for name in path if group != "sweep" else key.split("."):
            node = node.get(name, ...) if isinstance(node, dict) else ...
        if node is not ...:
            choices.append(f"{'+' * (group in _WITH_PLUS)}{group}={file.stem}")
    return choices
