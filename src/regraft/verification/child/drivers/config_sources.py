"""Find which parameters of a file's constructors hold a configuration, and make configurations for
them.

A configuration is made by a class of the file, or of a file that it imports, from the defaults of
its fields; or it stands in a variable of the file; else it is a namespace with the attributes that
the file reads, and the values that the repository states for them (`values_in_repository`).
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from regraft.verification.child.drivers import config_shrinking, values_in_repository
from regraft.verification.child.drivers.config_reads import (
    Reads,
    config_names,
    reads_of_configs,
    reads_of_names,
)
from regraft.verification.child.drivers.configuration_objects import (
    field_defaults,
    fields_of,
    has_own_fields,
    is_config,
    is_config_class,
    make_config,
    with_fields,
)
from regraft.verification.child.drivers.field_tables import HIDDEN
from regraft.verification.child.drivers.guessed_values import value_for

_CLASSES = 3  # the most classes of configurations that are tried for a parameter
_DEPTH = 3  # of configurations in configurations


def config_parameters(
    parameters: list[inspect.Parameter], module: ModuleType, source: str, cls: type
) -> list[str]:
    """Return the names of the parameters of the constructor of a class that hold a configuration,
    by their name, their use in the source or their annotation: those that it requires, and those
    that are None by default and of which it reads attributes without a test of them."""
    names = config_names(source)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        or (parameter.default is None and _is_read_untested(parameter.name, cls))
        if parameter.name in names
        or parameter.name.endswith("config")
        or _annotated_class(parameter, module) is not None
    ]


def _is_read_untested(name: str, cls: type) -> bool:
    """Return whether the constructor of a class reads attributes of a parameter, and reads the
    parameter nowhere else, such as in a test for None."""
    tree = _constructor_syntax(cls)
    reads = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
    owners = [node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return bool(reads) and all(any(read is owner for owner in owners) for read in reads)


def own_configs(
    parameter: inspect.Parameter, cls: type, module: ModuleType, path: Path
) -> Iterator[Any]:
    """Yield configurations for a parameter that are of its annotated class, or have the fields that
    `cls` reads of the parameter: of at most `_CLASSES` classes a new one, then at most `_CLASSES`
    that stand in variables of the file."""
    annotated_class = _annotated_class(parameter, module)
    classes = [annotated_class] if annotated_class is not None else _classes_in(module)
    read_names = _names_read_of(parameter.name, cls)
    for config_class in classes[:_CLASSES]:
        try:
            config = _config_of_class(config_class, path)
        except Exception:  # noqa: BLE001 - a class that takes no such fields; the next source is tried
            continue
        if annotated_class is not None or all(hasattr(config, name) for name in read_names):
            yield config
    fitting_configs = (
        config
        for config in _configs_in_variables(module)
        if annotated_class is None or isinstance(config, annotated_class)
        if all(hasattr(config, name) for name in read_names)
    )
    yield from itertools.islice(fitting_configs, _CLASSES)


def _configs_in_variables(module: ModuleType) -> Iterator[Any]:
    """Yield the configurations that are values of a module's variables, or stand in a dictionary
    there. Modules are none: some have any attribute that is asked for."""
    for value in tuple(vars(module).values()):
        entries = tuple(value.values()) if type(value) is dict else (value,)
        yield from (
            entry for entry in entries if not isinstance(entry, ModuleType) and is_config(entry)
        )


def _annotated_class(parameter: inspect.Parameter, module: ModuleType) -> Any:
    """Return the class that a parameter's annotation names if it is a class of configurations, but
    not of a library (with `from_dict`); else None."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        annotation = vars(module).get(annotation.strip("\"' ").rpartition(".")[2])
    is_of_library = hasattr(annotation, "from_dict")
    return annotation if is_config_class(annotation) and not is_of_library else None


def _classes_in(module: ModuleType) -> list[type]:
    """Return the classes of configurations that a file defines or imports, its own first."""
    classes = [
        value
        for value in dict.fromkeys(filter(is_config_class, vars(module).values()))
        if not hasattr(value, "from_dict") and value is not SimpleNamespace
    ]
    return sorted(classes, key=lambda cls: cls.__module__ != module.__name__)


def _names_read_of(name: str, cls: type) -> set[str]:
    """Return the attributes that the constructor of a class reads of a parameter; none where its
    source is not available."""
    tree = _constructor_syntax(cls)
    return set(reads_of_names(tree, frozenset({name})).get(name, Reads()).attributes)


def _constructor_syntax(cls: type) -> ast.Module:
    """Return the syntax tree of the constructor of a class; an empty module where its source is
    not available."""
    try:
        return ast.parse(inspect.cleandoc("\n" + inspect.getsource(cls.__init__)))  # type: ignore[misc]
    except (OSError, SyntaxError, TypeError):
        return ast.Module([], [])


def _config_of_class(config_class: type, path: Path, depth: int = _DEPTH) -> Any:
    """Return a configuration of a class with the fields that a call in the repository states, the
    defaults of others, and guesses for those that have none."""
    fields = _stated_fields(config_class, path)
    for name, parameter in field_defaults(config_class).items():
        if parameter.default is not parameter.empty or name in fields:
            continue
        nested_class = parameter.annotation
        if is_config_class(nested_class) and depth:
            fields[name] = _config_of_class(nested_class, path, depth - 1)
        else:
            fields[name] = _guess_field(name, getattr(nested_class, "__name__", str(nested_class)))
    return make_config(config_class, fields)


def _stated_fields(config_class: type, path: Path) -> dict[str, Any]:
    """Return the fields with which the repository makes a configuration, of the call that states
    most of them; {} for none."""
    names = list(field_defaults(config_class))
    calls = values_in_repository.calls_of(config_class.__name__, path)
    return max((call.arguments(names) for call in calls), key=len, default={})


def _guess_field(name: str, annotation: str = "") -> Any:
    """Return a guess for a required field by its name or type; the size HIDDEN where neither tells
    anything."""
    try:
        return value_for(name, annotation)
    except LookupError:
        return HIDDEN


def invented_config(source: str, path: Path) -> SimpleNamespace:
    """Return an object with a value for each attribute that a source reads from configurations: one
    that the repository states, the default of `getattr`, or a guess; None without a guess."""
    reads = reads_of_configs(source)[1]
    names = [name for name, inner in reads.attributes.items() if not inner.attributes]
    return _invented_namespace(reads, values_in_repository.values_of(names, path))


def _invented_namespace(reads: Reads, stated: Mapping[str, Any]) -> SimpleNamespace:
    """Return a namespace with the attributes that are read: each has the value in `stated`, else a
    guess by its name, else None; or it is a namespace itself where attributes are read of it in
    turn. The defaults of `getattr` are added for attributes that are not read otherwise."""
    values: dict[str, Any] = {}
    for name, inner in sorted(reads.attributes.items()):
        if inner.attributes:
            values[name] = _invented_namespace(inner, stated)
        elif name in stated:
            values[name] = stated[name]
        else:
            try:
                values[name] = value_for(name)
            except LookupError:
                values[name] = (
                    None  # the class may not read it; a wrong guess shows when it is built
                )
    return SimpleNamespace(**{**reads.defaults, **values})


def shrink_config(config: Any, scale: config_shrinking.Scale) -> Any:
    """Return a configuration with its fields made small by a scale, those of configurations in it
    too; configurations of a library with `to_dict` and `from_dict` as they are."""
    if hasattr(config, "to_dict") and hasattr(config, "from_dict"):
        return config
    fields = fields_of(config)
    if not has_own_fields(config):  # its dictionary holds nested ones as dictionaries, too
        fields = {name: getattr(config, name, value) for name, value in fields.items()}
    plain = {name: value for name, value in fields.items() if not is_config(value)}
    small = config_shrinking.shrink(plain, scale)
    changed = {
        name: _match_tuple(value, small.get(name, value))
        for name, value in plain.items()
        if small.get(name, value) != value
    }
    nested = {
        name: shrink_config(value, scale) for name, value in fields.items() if is_config(value)
    }
    return with_fields(config, {**changed, **nested})


def _match_tuple(value: Any, small: Any) -> Any:
    """Return `small` as a tuple where `value` is a tuple, else as it is."""
    return tuple(small) if isinstance(value, tuple) else small
