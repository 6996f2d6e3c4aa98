"""Guess the values that a class of a file is built from."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from regraft.verify.child.drivers import inputs, tiny
from regraft.verify.child.drivers.guess import HIDDEN, value_for

CONFIGS = 6  # that a class which takes one is built from


class Guess(NamedTuple):
    """Values for the parameters of a constructor, and those that they were made small from."""

    values: dict[str, Any]
    original: dict[str, Any]


def guesses(cls: type, source: str, configs: tuple[Any, ...], noted: Mapping[str, Any]) -> Iterator[Guess]:
    """Yield guesses of a class's constructor values: for each configuration, the defaults made small, then unchanged.

    `source` is the file of the class, `configs` are configurations that built models of it, and `noted` are values by
    parameter that the file itself gives.
    """
    parameters = _constructor(cls)
    wanted = [p for p in parameters if p.default is p.empty and p.name.endswith("config")]
    choices: list[Any] = [*_fitting(wanted[0], configs), _made_up(source)] if wanted else [None]
    for config in choices:
        values: dict[str, Any] = {}
        for parameter in parameters:
            if parameter in wanted:
                values[parameter.name] = config
            elif parameter.default is parameter.empty:
                values[parameter.name] = noted.get(parameter.name) or _guess(parameter, config)
            elif parameter.default is None or isinstance(parameter.default, bool | int | float | str | list | tuple):
                values[parameter.name] = parameter.default
        seen = [values]
        for scale in tiny.SCALES:
            small = shrunk(values, scale)
            if small not in seen:
                seen.append(small)
        sizes = (*seen[1:], values)
        yield from (Guess(small, values) for small in sizes)
        unset = [p for p in parameters if values.get(p.name, 0) is None and not _is_text(p)]
        chosen = {p.name: value for p in unset if (value := _suggested(p, config)) is not None}
        if chosen:  # that the class does without only where a caller chooses
            yield from (Guess({**small, **chosen}, {**values, **chosen}) for small in sizes)


def _constructor(cls: type) -> list[inspect.Parameter]:
    """The parameters of a class, those that it passes on (`*args, **kwargs`) from the class above it included."""
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if "__init__" in vars(base):
            kinds = {parameter.kind for parameter in inspect.signature(vars(base)["__init__"]).parameters.values()}
            found = {parameter.name: parameter for parameter in inputs.parameters(inspect.signature(base))} | found
            if not {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds:
                break
    return [*found.values()]


def shrunk(values: Mapping[str, Any], scale: tiny.Scale) -> dict[str, Any]:
    """Shrink constructor values as if they were a configuration; none is left out, and tuples stay tuples."""
    small = tiny.shrink({key: value for key, value in values.items() if not is_config(value)}, scale)
    kept = {key: small.get(key, value) for key, value in values.items()}
    return {key: tuple(kept[key]) if isinstance(value, tuple) else kept[key] for key, value in values.items()}


def _guess(parameter: inspect.Parameter, config: Any) -> Any:
    """A value for a parameter: what is suggested, or a size."""
    suggested = _suggested(parameter, config)
    return HIDDEN if suggested is None else suggested


def _is_text(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is a string that its name says nothing about: no activation."""
    return inputs.annotation(parameter) == "str" and not re.search("act", parameter.name)


def _suggested(parameter: inspect.Parameter, config: Any) -> Any:
    """What the configuration has under the name of a parameter, or what the name suggests; None for neither."""
    own = getattr(config, parameter.name, None)
    if isinstance(own, bool | int | float | str):
        return own
    try:
        return value_for(parameter.name, inputs.annotation(parameter))
    except LookupError:
        return None


def _fitting(parameter: inspect.Parameter, configs: tuple[Any, ...]) -> list[Any]:
    """Configurations, those inside others included, of the annotated class first; one of each class."""
    found: dict[str, Any] = {}
    level = [config for config in configs if hasattr(config, "to_dict")]
    while level:
        for config in level:
            found.setdefault(type(config).__name__, config)
        level = [value for config in level for value in vars(config).values() if hasattr(value, "to_dict")]
    note = inputs.annotation(parameter)
    return sorted(found.values(), key=lambda config: type(config).__name__ != note)[:CONFIGS]


def _made_up(source: str) -> SimpleNamespace:
    values: dict[str, Any] = {}
    for name in _config_attributes(source):
        try:
            values[name] = value_for(name)
        except LookupError:
            values[name] = None  # an attribute that the class may not read; a wrong guess shows when it is built
    return SimpleNamespace(**values)


def _config_attributes(source: str) -> tuple[str, ...]:
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    return tuple(sorted({node.attr for node in nodes if ast.unparse(node.value) in ("config", "self.config")}))


def is_config(value: Any) -> bool:
    """Whether a constructor value is a configuration, made up ones included."""
    return isinstance(value, SimpleNamespace) or hasattr(value, "to_dict")
