"""Guess values for the parameters of a class's constructor."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import torch

from regraft.verification.child.checks.arguments_in_source import syntax_of_class
from regraft.verification.child.drivers import (
    calls_in_file,
    config_shrinking,
    config_sources,
    guessed_slots,
    values_in_repository,
)
from regraft.verification.child.drivers.argument_slots import annotation_text
from regraft.verification.child.drivers.configuration_objects import has_own_fields, is_config
from regraft.verification.child.drivers.field_tables import ACTIVATION_PARAMETERS, HIDDEN
from regraft.verification.child.drivers.guessed_values import value_for
from regraft.verification.child.drivers.stand_in_network import StandInNetwork

_PLAIN = (bool, int, float, str, list, tuple)
_TUPLE = re.compile(r"(?:typing\.)?[Tt]uple\[(int(?:,int)*)\]")  # of integers, of a certain length
CONFIGS = 6  # the most configurations from which a class that takes one is built
EXAMPLES = 3  # the most calls in the repository whose arguments are tried


class Guess(NamedTuple):
    """Values for the parameters of a constructor, and the values from which they were shrunk."""

    values: dict[str, Any]
    original: dict[str, Any]


def guesses(
    cls: type,
    module: ModuleType,
    source: str,
    configs: tuple[Any, ...],
    noted: Mapping[str, Any],
) -> Iterator[Guess]:
    """Yield guesses of a class's constructor values: of arguments among which the file gives it
    classes or functions, or else for each configuration, an invented one last, the defaults made
    small, then unchanged; then both with values for unset parameters; then the arguments of calls
    in the repository.

    `source` is the file of the class, which is imported as `module`, `configs` are configurations
    that built models of it, and `noted` are values by parameter that the file itself gives.
    """
    parameters = _constructor_parameters(cls)
    path = Path(str(module.__file__))
    config_names = config_sources.config_parameters(parameters, module, source, cls)
    noted = {**_networks(cls, parameters), **_activation_classes(cls, parameters), **noted}
    for values in calls_in_file.stated_arguments(cls, module, source):
        if not config_names:
            yield from _guesses_with_config(parameters, None, noted, values)
    for config in _configs_to_try(cls, parameters, config_names, module, source, configs):
        fixed_values = {**noted, **dict.fromkeys(config_names, config)}
        yield from _guesses_with_config(parameters, config, fixed_values)
    for values in _example_values(cls.__name__, parameters, path) if not config_names else ():
        yield from _guesses_with_config(parameters, None, noted, values)


def _networks(cls: type, parameters: list[inspect.Parameter]) -> dict[str, StandInNetwork]:
    """Return a stand-in by name for each required parameter of a class, without a type or of the
    type `Module`, that the class calls: as an attribute of `self` of the same value, or in its
    constructor. It gives as many results as an assignment unpacks a call into."""
    nodes = list(ast.walk(syntax_of_class(cls)))
    called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    assignments = [node for node in nodes if isinstance(node, ast.Assign)]
    networks = {}
    for parameter in parameters:
        names = {parameter.name, *_targets_of(parameter.name, assignments)}
        is_unknown = annotation_text(parameter).rpartition(".")[2] in ("_empty", "Module")
        if _is_required(parameter) and is_unknown and not called.isdisjoint(names):
            networks[parameter.name] = StandInNetwork(_number_of_results(names, assignments))
    return networks


def _activation_classes(
    cls: type, parameters: list[inspect.Parameter]
) -> dict[str, type[torch.nn.Module]]:
    """Return a class of activations by name for each parameter without a default, or with None,
    from which the constructor of a class makes a layer without arguments (`activation()`)."""
    constructors = (
        node
        for node in ast.walk(syntax_of_class(cls))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    called = {
        node.func.id
        for constructor in constructors
        for node in ast.walk(constructor)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if not node.args and all(keyword.arg == "inplace" for keyword in node.keywords)
    }
    return {
        parameter.name: torch.nn.SiLU
        for parameter in parameters
        if parameter.name in called and parameter.default in (None, parameter.empty)
    }


def _targets_of(name: str, assignments: list[ast.Assign]) -> Iterator[str]:
    """Yield the targets to which the value of a name is assigned, as text."""
    for node in assignments:
        if isinstance(node.value, ast.Name) and node.value.id == name:
            yield from map(ast.unparse, node.targets)


def _number_of_results(names: set[str], assignments: list[ast.Assign]) -> int:
    """Return into how many names the first assignment that unpacks a call of one of the names puts
    its results; 1 for none."""
    for node in assignments:
        target = node.targets[0]
        if (
            isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) in names
            and isinstance(target, ast.Tuple | ast.List)
            and not any(isinstance(element, ast.Starred) for element in target.elts)
        ):
            return len(target.elts)
    return 1


def takes_config(cls: type, module: ModuleType, source: str) -> bool:
    """Return whether the constructor of a class needs a configuration."""
    parameters = _constructor_parameters(cls)
    return bool(config_sources.config_parameters(parameters, module, source, cls))


def _configs_to_try(
    cls: type,
    parameters: list[inspect.Parameter],
    config_names: list[str],
    module: ModuleType,
    source: str,
    configs: tuple[Any, ...],
) -> Iterator[Any]:
    """Yield configurations for a class: those that built models, those of a class of the file, an
    invented one; None for a class that takes none."""
    if not config_names:
        yield None
        return
    path = Path(str(module.__file__))
    first = next(parameter for parameter in parameters if parameter.name == config_names[0])
    yield from _configs_for(first, configs)
    yield from config_sources.own_configs(first, cls, module, path)
    yield config_sources.invented_config(source, path)


def _example_values(
    name: str, parameters: list[inspect.Parameter], path: Path
) -> Iterator[dict[str, Any]]:
    """Yield the literal arguments, by parameter, of calls of a class in the repository, those with
    most arguments first, at most `EXAMPLES`."""
    names = [parameter.name for parameter in parameters]
    examples = [call.arguments(names) for call in values_in_repository.calls_of(name, path)]
    distinct = {repr(sorted(example.items())): example for example in examples if example}
    yield from sorted(distinct.values(), key=len, reverse=True)[:EXAMPLES]


def _is_required(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter has no default."""
    return parameter.default is parameter.empty


def _guesses_with_config(
    parameters: list[inspect.Parameter],
    config: Any,
    fixed_values: Mapping[str, Any],
    stated: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Guess]:
    """Yield guesses that take values from a configuration: the defaults made small, then
    unchanged; then the same with values for unset parameters. `stated` are arguments of a call."""
    values = {**_values_of_parameters(parameters, config, fixed_values), **stated}
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
    defaults of the others where these are plain or None; parameters with another default are left
    out. A class or a configuration among `fixed_values` also takes the place of None."""
    values: dict[str, Any] = {}
    for parameter in parameters:
        if _is_required(parameter):
            fixed_value = fixed_values.get(parameter.name)
            values[parameter.name] = (
                _guess_value(parameter, config) if fixed_value is None else fixed_value
            )
        elif parameter.default is None and _replaces_none(fixed_values.get(parameter.name)):
            values[parameter.name] = fixed_values[parameter.name]
        elif parameter.default is None or isinstance(parameter.default, _PLAIN):
            values[parameter.name] = parameter.default
    return values


def _replaces_none(value: Any) -> bool:
    """Return whether a value is a class or a configuration, which takes the place of the default
    None of a parameter."""
    return isinstance(value, type) or is_config(value)


def _shrunk_values(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the values shrunk by each scale of `config_shrinking.SCALES`, without repetitions and
    without results equal to `values`."""
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
                for parameter in guessed_slots.parameters(inspect.signature(base))
            } | parameter_by_name
            if not {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds:
                break
    return [*parameter_by_name.values()]


def shrink_values(values: Mapping[str, Any], scale: config_shrinking.Scale) -> dict[str, Any]:
    """Return constructor values shrunk like a configuration, and configurations among them;
    values that shrinking drops stay as they are, and tuples stay tuples.

    A value that is also a field of a configuration is that of the small one.
    """
    small_configs = {
        key: config_sources.shrink_config(value, scale)
        for key, value in values.items()
        if is_config(value)
    }
    plain = {key: value for key, value in values.items() if key not in small_configs}
    small = config_shrinking.shrink(plain, scale)
    shared = {
        key: getattr(small_config, key)
        for name, small_config in small_configs.items()
        for key, value in plain.items()
        if value is not None and has_own_fields(small_config)
        if getattr(values[name], key, None) == value
    }
    tuples = {key: tuple(small[key]) for key, value in plain.items() if isinstance(value, tuple)}
    new_values = {**values, **small, **tuples, **shared, **small_configs}
    return {key: new_values[key] for key in values}


def _guess_value(parameter: inspect.Parameter, config: Any) -> Any:
    """Return a value for a parameter: a suggested one, or a size; for a tuple of integers of a
    certain length, such as `tuple[int, int]`, a whole number that many times."""
    suggested = _suggestion(parameter, config)
    value = HIDDEN if suggested is None else suggested
    elements = _TUPLE.fullmatch(str(parameter.annotation).replace(" ", ""))
    if elements is None or type(value) is not int:
        return value
    return (value,) * elements[1].count("int")


def _is_text(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is annotated as a string and has no name of an activation."""
    return annotation_text(parameter) == "str" and parameter.name not in ACTIVATION_PARAMETERS


def _suggestion(parameter: inspect.Parameter, config: Any) -> Any:
    """Return the configuration's number, boolean or string under the name of a parameter, else what
    the name and annotation suggest; None for neither."""
    config_value = getattr(config, parameter.name, None)
    if isinstance(config_value, bool | int | float | str):
        return config_value
    try:
        return value_for(parameter.name, annotation_text(parameter))
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
    class_name = annotation_text(parameter)
    return sorted(config_by_class.values(), key=lambda config: type(config).__name__ != class_name)[
        :CONFIGS
    ]
