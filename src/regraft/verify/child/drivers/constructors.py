"""Guess the values from which a class of a file is built."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from regraft.verify.child.drivers import inputs, tiny
from regraft.verify.child.drivers.guess import HIDDEN, value_for

CONFIGS = 6  # the most configurations from which a class that takes one is built


class Guess(NamedTuple):
    """Values for the parameters of a constructor, and the values from which they were shrunk."""

    values: dict[str, Any]
    original: dict[str, Any]


def guesses(
    cls: type, source: str, configs: tuple[Any, ...], noted: Mapping[str, Any]
) -> Iterator[Guess]:
    """Yield guesses of a class's constructor values: for each configuration, the defaults made
    small, then unchanged.

    `source` is the file of the class, `configs` are configurations that built models of it, and
    `noted` are values by parameter that the file itself gives.
    """
    parameters = _constructor_parameters(cls)
    config_parameters = [
        candidate
        for candidate in parameters
        if candidate.default is candidate.empty and candidate.name.endswith("config")
    ]
    configs_to_try: list[Any] = (
        [*_configs_for(config_parameters[0], configs), _invented_config(source)]
        if config_parameters
        else [None]
    )
    for config in configs_to_try:
        values: dict[str, Any] = {}
        for parameter in parameters:
            if parameter in config_parameters:
                values[parameter.name] = config
            elif parameter.default is parameter.empty:
                values[parameter.name] = noted.get(parameter.name) or _guess_value(
                    parameter, config
                )
            elif parameter.default is None or isinstance(
                parameter.default, bool | int | float | str | list | tuple
            ):
                values[parameter.name] = parameter.default
        distinct_values = [values]
        for scale in tiny.SCALES:
            small_values = shrink_values(values, scale)
            if small_values not in distinct_values:
                distinct_values.append(small_values)
        sizes = (*distinct_values[1:], values)
        yield from (Guess(small_values, values) for small_values in sizes)
        unset_parameters = [
            candidate
            for candidate in parameters
            if values.get(candidate.name, 0) is None and not _is_text(candidate)
        ]
        suggested_values = {
            candidate.name: value
            for candidate in unset_parameters
            if (value := _suggestion(candidate, config)) is not None
        }
        if suggested_values:  # the class uses such an argument only where a caller passes it
            yield from (
                Guess({**small_values, **suggested_values}, {**values, **suggested_values})
                for small_values in sizes
            )


def _constructor_parameters(cls: type) -> list[inspect.Parameter]:
    """Return the parameters of a class, with those of the base class where it passes on `*args,
    **kwargs`."""
    parameter_by_name: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        if "__init__" in vars(base):
            kinds = {
                parameter.kind
                for parameter in inspect.signature(vars(base)["__init__"]).parameters.values()
            }
            parameter_by_name = {
                parameter.name: parameter
                for parameter in inputs.parameters(inspect.signature(base))
            } | parameter_by_name
            if not {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds:
                break
    return [*parameter_by_name.values()]


def shrink_values(values: Mapping[str, Any], scale: tiny.Scale) -> dict[str, Any]:
    """Shrink constructor values like a configuration; every value is kept, and tuples stay
    tuples."""
    small = tiny.shrink(
        {key: value for key, value in values.items() if not is_config(value)}, scale
    )
    new_values = {key: small.get(key, value) for key, value in values.items()}
    return {
        key: tuple(new_values[key]) if isinstance(value, tuple) else new_values[key]
        for key, value in values.items()
    }


def _guess_value(parameter: inspect.Parameter, config: Any) -> Any:
    """Return a value for a parameter: a suggested one, or a size."""
    suggested = _suggestion(parameter, config)
    return HIDDEN if suggested is None else suggested


def _is_text(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a string other than an activation."""
    return inputs.annotation(parameter) == "str" and not re.search("act", parameter.name)


def _suggestion(parameter: inspect.Parameter, config: Any) -> Any:
    """Return the configuration's value under the name of a parameter, or what the name suggests;
    None for neither."""
    config_value = getattr(config, parameter.name, None)
    if isinstance(config_value, bool | int | float | str):
        return config_value
    try:
        return value_for(parameter.name, inputs.annotation(parameter))
    except LookupError:
        return None


def _configs_for(parameter: inspect.Parameter, configs: tuple[Any, ...]) -> list[Any]:
    """Return configurations, nested ones included, one of each class.

    Those of the parameter's annotated class come first.
    """
    config_by_class: dict[str, Any] = {}
    level = [config for config in configs if hasattr(config, "to_dict")]
    while level:
        for config in level:
            config_by_class.setdefault(type(config).__name__, config)
        level = [
            value
            for config in level
            for value in vars(config).values()
            if hasattr(value, "to_dict")
        ]
    class_name = inputs.annotation(parameter)
    return sorted(config_by_class.values(), key=lambda config: type(config).__name__ != class_name)[
        :CONFIGS
    ]


def _invented_config(source: str) -> SimpleNamespace:
    """Return an object with a guess for each attribute that a source reads from a configuration;
    None for no guess."""
    values: dict[str, Any] = {}
    for name in _config_attributes(source):
        try:
            values[name] = value_for(name)
        except LookupError:
            values[name] = (
                # an attribute that the class may not read; a wrong guess shows when it is built
                None
            )
    return SimpleNamespace(**values)


def _config_attributes(source: str) -> tuple[str, ...]:
    """Return the names of the attributes that a source reads from `config` or `self.config`,
    sorted."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    return tuple(
        sorted(
            {node.attr for node in nodes if ast.unparse(node.value) in ("config", "self.config")}
        )
    )


def is_config(value: Any) -> bool:
    """Return whether a constructor value is a configuration, an invented one included."""
    return isinstance(value, SimpleNamespace) or hasattr(value, "to_dict")
