"""Guess the values from which a class of a file is built."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from regraft.verify.child.drivers import config_shrinking, inputs
from regraft.verify.child.drivers.field_tables import (
    ACTIVATION_PARAMETERS,
    CONFIG_PARAMETERS,
    HIDDEN,
)
from regraft.verify.child.drivers.guessed_values import value_for

_PLAIN = (bool, int, float, str, list, tuple)
CONFIGS = 6  # the most configurations from which a class that takes one is built


class Guess(NamedTuple):
    """Values for the parameters of a constructor, and the values from which they were shrunk."""

    values: dict[str, Any]
    original: dict[str, Any]


def guesses(
    cls: type, source: str, configs: tuple[Any, ...], noted: Mapping[str, Any]
) -> Iterator[Guess]:
    """Yield guesses of a class's constructor values: for each configuration, an invented one last,
    the defaults made small, then unchanged; then both with values for unset parameters.

    `source` is the file of the class, `configs` are configurations that built models of it, and
    `noted` are values by parameter that the file itself gives.
    """
    parameters = _constructor_parameters(cls)
    config_names = [p.name for p in parameters if _is_required(p) and p.name in CONFIG_PARAMETERS]
    configs_to_try: list[Any] = [None]
    if config_names:
        first = next(p for p in parameters if p.name == config_names[0])
        configs_to_try = [*_configs_for(first, configs), _invented_config(source)]
    for config in configs_to_try:
        fixed_values = {**noted, **dict.fromkeys(config_names, config)}
        yield from _guesses_with_config(parameters, config, fixed_values)


def _is_required(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter has no default."""
    return parameter.default is parameter.empty


def _guesses_with_config(
    parameters: list[inspect.Parameter], config: Any, fixed_values: Mapping[str, Any]
) -> Iterator[Guess]:
    """Yield guesses that take values from a configuration: the defaults made small, then
    unchanged; then the same with values for unset parameters."""
    values = _values_of_parameters(parameters, config, fixed_values)
    sizes = (*_shrunk_values(values), values)
    yield from (Guess(small_values, values) for small_values in sizes)
    suggested_values = _values_of_unset(parameters, values, config)
    if suggested_values:  # the class uses such an argument only where a caller passes it
        original = {**values, **suggested_values}
        yield from (Guess({**small, **suggested_values}, original) for small in sizes)


def _values_of_parameters(
    parameters: list[inspect.Parameter], config: Any, fixed_values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a value for each required parameter, from `fixed_values` or else a guess, and the
    plain defaults of the others; parameters with another default are left out."""
    values: dict[str, Any] = {}
    for parameter in parameters:
        if _is_required(parameter):
            fixed_value = fixed_values.get(parameter.name)
            values[parameter.name] = (
                _guess_value(parameter, config) if fixed_value is None else fixed_value
            )
        elif parameter.default is None or isinstance(parameter.default, _PLAIN):
            values[parameter.name] = parameter.default
    return values


def _shrunk_values(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the values shrunk by each scale, where they differ from each other and from the
    values."""
    distinct_values = [values]
    for scale in config_shrinking.SCALES:
        small_values = shrink_values(values, scale)
        if small_values not in distinct_values:
            distinct_values.append(small_values)
    return distinct_values[1:]


def _values_of_unset(
    parameters: list[inspect.Parameter], values: Mapping[str, Any], config: Any
) -> dict[str, Any]:
    """Return suggested values for parameters that are None and no strings; those without a
    suggestion are left out."""
    unset = [p for p in parameters if values.get(p.name, 0) is None and not _is_text(p)]
    suggestions = {parameter.name: _suggestion(parameter, config) for parameter in unset}
    return {name: value for name, value in suggestions.items() if value is not None}


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


def shrink_values(values: Mapping[str, Any], scale: config_shrinking.Scale) -> dict[str, Any]:
    """Return constructor values shrunk like a configuration; configurations and values that
    shrinking drops stay as they are, and tuples stay tuples."""
    small = config_shrinking.shrink(
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
    return inputs.annotation(parameter) == "str" and parameter.name not in ACTIVATION_PARAMETERS


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
    """Return configurations, nested ones included, one of each class, at most `CONFIGS`.

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
    """Return an object with a guess for each attribute that a source reads from a configuration; an
    attribute without a guess is None."""
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
