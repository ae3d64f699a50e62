"""From a dotted name and parameters in a configuration to a checked function."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import json
import math
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from codegrep.config import FunctionConfig
from codegrep.errors import ConfigError
from codegrep.issues.issue import Entity, LineRange
from codegrep.rewards.outcome import AdvantageFactor, Outcome, RewardDesign, RewardParts

# What a function is tried on before a run starts: a good, a bad and an empty rollout.
_SAMPLES = (
    Outcome(
        predicted=("a.py", "b.py"),
        gold=frozenset({"a.py"}),
        predicted_ranges=(LineRange("a.py", 1, 9),),
        gold_ranges=(LineRange("a.py", 2, 3),),
        calls_per_turn=(8, 2, 0),
        unique_calls_per_turn=(7, 2, 0),
        generated_tokens=300,
        predicted_entities=(Entity("a.py", "A.go", "function"),),
        gold_entities=frozenset({Entity("a.py", "A", "class"), Entity("a.py", "A.go", "function")}),
        judgement=True,
    ),
    Outcome(
        ("c.py",),
        frozenset({"a.py"}),
        calls_per_turn=(1, 0),
        unique_calls_per_turn=(1, 0),
        malformed_calls=2,
        malformed_answers=1,
    ),
    Outcome((), frozenset({"a.py"}), answered=False, exit_cause="max_turns", unique_calls_per_turn=()),
)


def load_reward(config: FunctionConfig) -> RewardDesign:
    """Return the reward design of `config`, tried on sample rollouts.

    Raises:
        ConfigError: no such function, a wrong parameter, or a function that does not give finite RewardParts.
    """
    function = load_function(config, "reward")
    for sample in _SAMPLES:
        reward = _try_on(function, sample, config, "reward")
        if not isinstance(reward, RewardParts):
            raise ConfigError(
                f"reward.function: {config.function} returns {type(reward).__name__}",
                "A reward design returns codegrep.rewards.outcome.RewardParts",
            )
        _check_finite(reward.total, config, "reward")
    return function


def load_advantage(config: FunctionConfig) -> AdvantageFactor:
    """Return the advantage factor of `config`, tried on sample rollouts.

    Raises:
        ConfigError: no such function, a wrong parameter, or a function that does not give a finite number.
    """
    function = load_function(config, "advantage")
    for sample in _SAMPLES:
        factor = _try_on(function, sample, config, "advantage")
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            raise ConfigError(
                f"advantage.function: {config.function} returns {type(factor).__name__}",
                "An advantage factor returns a float",
            )
        _check_finite(factor, config, "advantage")
    return function


def load_function(config: FunctionConfig, key: str) -> functools.partial[Any]:
    """Return the function of `config` with its parameters bound; it pickles where the function itself is importable.

    Args:
        config: dotted name and parameters.
        key: the config group, named in errors.

    Raises:
        ConfigError: the name leads nowhere, is no function with an argument, or a parameter is unknown, missing or of
            the wrong type. The message names the key and, where there is one, the nearest name.
    """
    try:
        function = pkgutil.resolve_name(config.function)
    except (ImportError, AttributeError, ValueError) as problem:
        raise ConfigError(
            f"{key}.function: there is no {config.function!r} ({problem})", _nearest_function(config.function)
        ) from problem
    except Exception as problem:  # a user's module does not import: a syntax error, a name that is not there …
        raise ConfigError(
            f"{key}.function: the module of {config.function!r} fails: {type(problem).__name__}: {problem}", "Mend it"
        ) from problem
    if not callable(function):
        raise ConfigError(
            f"{key}.function: {config.function!r} is {type(function).__name__}, not a function",
            _nearest_function(config.function),
        )
    _check_parameters(config, inspect.signature(function), _hints(function), key)
    return functools.partial(function, **config.params)


def _nearest_function(name: str) -> str:
    module_name, _, last = name.replace(":", ".").rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError):
        return "Give the dotted name of a function whose module can be imported from the folder of the run"
    own = [
        label
        for label, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not label.startswith("_")
    ]
    near = difflib.get_close_matches(last, own, n=1)
    if near:
        return f"Did you mean {module_name}.{near[0]}?"
    return f"{module_name} has: {', '.join(sorted(own)) or 'no public function'}"


def _check_parameters(config: FunctionConfig, signature: inspect.Signature, hints: Mapping[str, Any], key: str) -> None:
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise ConfigError(
            f"{key}.function: {config.function} takes no rollout", "Its first argument must be an Outcome"
        )
    settable = {p.name: p for p in parameters[1:] if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name, value in config.params.items():
        if name in settable:
            _check_value(value, hints.get(name, Any), f"{key}.params.{name}")
        elif not takes_any:
            near = difflib.get_close_matches(name, settable, n=1)
            known = ", ".join(settable) or "no parameters"
            raise ConfigError(
                f"{key}.params.{name}: {config.function} has no such parameter",
                f"Did you mean {near[0]}?" if near else f"It takes: {known}",
            )
    missing = [name for name, p in settable.items() if p.default is p.empty and name not in config.params]
    if missing:
        raise ConfigError(
            f"{key}.params: {config.function} needs {', '.join(missing)}", f"Set {key}.params.{missing[0]}"
        )


def _check_value(value: object, hint: Any, key: str) -> None:
    try:
        TypeAdapter(hint).validate_json(json.dumps(value), strict=True)  # a list of YAML may stand for a tuple
    except ValidationError as error:
        raise ConfigError(
            f"{key} is {value!r}", error.errors()[0]["msg"].replace("Input should", "It should")
        ) from None


def _try_on(function: Callable[[Outcome], Any], sample: Outcome, config: FunctionConfig, key: str) -> Any:
    try:
        return function(sample)
    except Exception as problem:  # whatever a user's function raises, before anything is started
        raise ConfigError(
            f"{key}: {config.function} failed on a sample rollout: {type(problem).__name__}: {problem}",
            f"Check {key}.params, or the function",
        ) from problem


def _check_finite(value: float, config: FunctionConfig, key: str) -> None:
    if not math.isfinite(value):
        raise ConfigError(f"{key}: {config.function} gave {value} for a sample rollout", "It must be a finite number")


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return {}  # annotations that cannot be read are not checked
