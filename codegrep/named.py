"""Classes that the configuration names: imported, their arguments checked, made."""

from __future__ import annotations

import inspect
import pkgutil
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from codegrep.errors import CodegrepError, ConfigError


def named_class(name: str, key: str, method: str, what: str) -> type:
    """Import the class of a dotted name.

    Args:
        name: package.module.Class, or package.module:Class.
        key: of the configuration, for errors.
        method: that the class must have.
        what: the class should be, for errors.

    Raises:
        ConfigError: there is no such class, its module fails, or it has no such method.
    """
    try:
        kind = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{key} {name!r} cannot be found: {error}", "Give a dotted name package.module.Class"
        ) from error
    except Exception as error:  # whatever a user's module raises
        raise ConfigError(f"{key}: the module of {name!r} fails: {type(error).__name__}: {error}", "Mend it") from error
    if not inspect.isclass(kind) or not callable(getattr(kind, method, None)):
        raise ConfigError(f"{key} {name!r} is no {what}", f"It must be a class with a method {method}()")
    return kind


def make_named(kind: Callable[..., Any], arguments: Mapping[str, Any], key: str, offered: Mapping[str, Any]) -> Any:
    """Make an instance with checked arguments, and with what is offered as far as it takes that.

    Raises:
        ConfigError: one line that names the argument, or says what the constructor refused.
    """
    check_arguments(kind, arguments, key, offered)
    taken = inspect.signature(kind).parameters
    try:
        return kind(**arguments, **{name: value for name, value in offered.items() if name in taken})
    except ConfigError as error:
        raise ConfigError(f"{key}: {error.what}", error.fix) from error
    except CodegrepError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key}: {error}") from error


def check_arguments(
    kind: Callable[..., Any], arguments: Mapping[str, Any], key: str, offered: Collection[str] = ()
) -> None:
    """Refuse arguments that a constructor does not take, lacks, or annotates otherwise.

    Args:
        kind: the class.
        arguments: plain YAML values by name.
        key: of the configuration, for errors.
        offered: names of further arguments that are no settings.

    Raises:
        ConfigError: one line that names the argument.
    """
    parameters = inspect.signature(kind).parameters
    known = [name for name in parameters if name not in offered]
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    for name, value in arguments.items():
        if name not in known and not takes_any:
            raise ConfigError(
                f"{key}.{name} is not known to {kind.__name__}", f"Known: {', '.join(known) or 'no arguments'}"
            )
        if value == "???":
            raise ConfigError(f"{key}.{name} is not set", f"Set {key}.{name}=...")
    try:
        inspect.signature(kind).bind(**arguments, **{name: None for name in offered if name in parameters})
    except TypeError as error:
        raise ConfigError(f"{key}: {error}", f"Known: {', '.join(known)}") from error
    hints = typing.get_type_hints(vars(kind).get("__init__", kind))
    for name, value in arguments.items():
        if name in hints and not _fits(value, hints[name]):
            raise ConfigError(f"{key}.{name} is {value!r}", f"Expected {_shown(hints[name])}")


def _fits(value: object, hint: Any) -> bool:
    """Check a plain YAML value shallowly against an annotation; unknown annotations accept all."""
    origin = typing.get_origin(hint)
    if origin in {types.UnionType, typing.Union}:
        return any(_fits(value, part) for part in typing.get_args(hint))
    if hint is type(None):
        return value is None
    if origin in {list, tuple, Sequence, Collection}:
        items = typing.get_args(hint)[:1]
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and all(_fits(one, part) for part in items for one in value)
        )
    if hint in {int, float}:
        allowed = (int, float) if hint is float else int
        return isinstance(value, allowed) and not isinstance(value, bool)
    if hint in {str, bool}:
        return isinstance(value, hint)
    return True


def _shown(hint: Any) -> str:
    return (
        hint.__name__
        if isinstance(hint, type) and not typing.get_args(hint)
        else str(hint).replace("collections.abc.", "")
    )
