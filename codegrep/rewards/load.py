"""From a YAML file of conf/reward or conf/advantage to a function: found by its name, checked, parameters bound."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import math
import pkgutil
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

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


def load_reward(config: FunctionConfig, key: str = "reward") -> RewardDesign:
    """Reward design of `config`, tried on sample rollouts.

    Args:
        config: dotted name and parameters.
        key: the config group, named in errors.

    Raises:
        ConfigError: no such function, a wrong parameter, or a function that does not give finite RewardParts.
    """
    function = load_function(config, key)
    for sample in _SAMPLES:
        reward = _try_on(function, sample, config, key)
        if not isinstance(reward, RewardParts):
            raise ConfigError(
                f"{key}.function: {config.function} returns {type(reward).__name__}",
                "A reward design returns codegrep.rewards.outcome.RewardParts",
            )
        _check_finite(reward.total, config, key)
    return function


def load_advantage(config: FunctionConfig, key: str = "advantage") -> AdvantageFactor:
    """Advantage factor of `config`, tried on sample rollouts; it gives a float. Otherwise as `load_reward`."""
    function = load_function(config, key)
    for sample in _SAMPLES:
        factor = _try_on(function, sample, config, key)
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            raise ConfigError(
                f"{key}.function: {config.function} returns {type(factor).__name__}",
                "An advantage factor returns a float",
            )
        _check_finite(factor, config, key)
    return function


def load_function(config: FunctionConfig, key: str) -> functools.partial[Any]:
    """The function of `config` with its parameters bound; pickles wherever the function itself is importable.

    Raises:
        ConfigError: the name leads nowhere, is no function of one Outcome, or a parameter is unknown, missing or of
            the wrong type. The message names the key and, where there is one, the nearest name.
    """
    function = _resolve(config.function, key)
    signature = inspect.signature(function)
    _check_parameters(config, signature, _hints(function), key)
    # Hydra's containers are copied into plain ones, so that nothing of it travels to the workers.
    return functools.partial(function, **{str(name): value for name, value in config.params.items()})


def _resolve(name: str, key: str) -> Callable[..., Any]:
    try:
        function = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise ConfigError(f"{key}.function: there is no {name!r} ({problem})", _nearest_function(name)) from problem
    except Exception as problem:  # a user's module does not import: a syntax error, a name that is not there …
        kind = type(problem).__name__
        raise ConfigError(f"{key}.function: the module of {name!r} fails: {kind}: {problem}", "Mend it") from problem
    if not callable(function):
        raise ConfigError(
            f"{key}.function: {name!r} is {type(function).__name__}, not a function", _nearest_function(name)
        )
    resolved: Callable[..., Any] = function
    return resolved


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
    by_position = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if not by_position:
        raise ConfigError(
            f"{key}.function: {config.function} takes no rollout", "Its first argument must be an Outcome"
        )
    settable = {
        parameter.name: parameter
        for parameter in list(signature.parameters.values())
        if parameter is not by_position[0]
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values())
    for name, value in config.params.items():
        if name in settable:
            if name in hints and not _fits(value, hints[name]):
                raise ConfigError(
                    f"{key}.params.{name}: {value!r} is not {_type_name(hints[name])}",
                    f"{config.function} needs {_type_name(hints[name])} there",
                )
        elif not takes_any:
            near = difflib.get_close_matches(str(name), settable, n=1)
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


def _fits(value: object, hint: Any) -> bool:
    """Whether `value` may stand where `hint` is asked for; hints other than plain ones accept everything."""
    origin = get_origin(hint)
    if origin is Literal:
        return value in get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (bool, str, type(None)):
        return isinstance(value, hint)
    return True


def _type_name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(repr(option) for option in get_args(hint))
    return {"float": "a number", "int": "a whole number", "bool": "true or false", "str": "text"}.get(
        getattr(hint, "__name__", ""), str(hint)
    )
