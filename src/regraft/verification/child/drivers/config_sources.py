"""Find which parameters of a file's constructors hold a configuration, and make configurations for
them.

A configuration is made by a class of the file, or of a file that it imports, from the defaults of
its fields; or it stands in a variable of the file; else it is a namespace with the attributes that
the file reads, and the values that the repository states for them (`stated_values`).
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from regraft.verification.child.drivers import config_shrinking, stated_values
from regraft.verification.child.drivers.configuration_objects import (
    field_defaults,
    fields_of,
    has_own_fields,
    is_config,
    is_config_class,
    make_config,
    with_fields,
)
from regraft.verification.child.drivers.field_tables import CONFIG_PARAMETERS, HIDDEN
from regraft.verification.child.drivers.guessed_values import value_for
from regraft.verification.names_and_scopes import name_of

_CLASSES = 3  # the most classes of configurations that are tried for a parameter
_FEWEST = 2  # attributes that are read of a parameter whose name tells nothing
_DEPTH = 3  # of configurations in configurations


@dataclass(slots=True)
class _Reads:
    """The attributes that are read of a name, each with those that are read of the attribute.

    `defaults` are those of `getattr`; `is_called` tells that a method of it is called, or it
    itself.
    """

    attributes: dict[str, _Reads] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    is_called: bool = False

    @property
    def is_flat(self) -> bool:
        """Return whether nothing is called, and of the attributes that are read no attributes
        are."""
        return not self.is_called and not any(
            reads.attributes or reads.is_called for reads in self.attributes.values()
        )

    def merge(self, other: _Reads) -> None:
        """Add the reads of another name to these, in place."""
        self.defaults.update(other.defaults)
        for name, reads in other.attributes.items():
            self.attributes.setdefault(name, _Reads()).merge(reads)
        self.is_called |= other.is_called


def config_names(source: str) -> frozenset[str]:
    """Return the names of parameters and attributes that hold configurations in a source text;
    "config" is always among them."""
    return _reads_of_configs(source)[0]


@functools.cache
def _reads_of_configs(source: str) -> tuple[frozenset[str], _Reads]:
    """Return the names of parameters and attributes that hold configurations in a source text, and
    all attributes that are read of them together. Cached."""
    tree = ast.parse(source)
    called_names = _called_names(tree)
    reads_by_name: dict[str, _Reads] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for name, reads in _reads_of_parameters(function, called_names):
                reads_by_name.setdefault(name, _Reads()).merge(reads)
    reads_by_name.update({name: _Reads() for name in ("config",) if name not in reads_by_name})
    all_reads = _Reads()
    for name, reads in _reads_of_names(tree, frozenset(reads_by_name)).items():
        all_reads.merge(reads)
        reads_by_name[name].merge(reads)
    return frozenset(reads_by_name), all_reads


def _called_names(tree: ast.Module) -> frozenset[str]:
    """Return the names of functions and methods that a file calls."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return frozenset(name_of(call.func) for call in calls)


def _reads_of_parameters(
    function: ast.FunctionDef, called_names: frozenset[str]
) -> Iterator[tuple[str, _Reads]]:
    """Yield the parameters of a function that hold a configuration, with what is read of them.

    Their name is a usual one; or they have no annotation and no default, a constructor reads
    several attributes of them, and nothing of the name is called. A parameter that the function
    calculates with is none, whatever its name.
    """
    arguments = function.args
    with_default = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    plain_names = {
        argument.arg
        for argument in arguments.args
        if function.name == "__init__"
        and argument.annotation is None
        and argument not in with_default
        and argument.arg not in called_names
    }
    names = {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}
    names -= {"self", "cls", *_operands(function)}
    for name, reads in _reads_of_names(function, frozenset(names)).items():
        is_plain = name in plain_names and reads.is_flat and len(reads.attributes) >= _FEWEST
        if reads.attributes and (name in CONFIG_PARAMETERS or is_plain):
            yield name, reads


def _operands(function: ast.FunctionDef) -> set[str]:
    """Return the names of variables that a function adds, multiplies or raises to a power."""
    return {
        side.id
        for node in ast.walk(function)
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.BitOr)  # of dictionaries
        for side in (node.left, node.right)
        if isinstance(side, ast.Name)
    }


def _reads_of_names(tree: ast.AST, names: frozenset[str]) -> dict[str, _Reads]:
    """Return, by name, what a tree reads of each of the names, as variables (`config.size`) and as
    attributes of `self` (`self.config.size`): the paths of attributes (`config.text.size`), whether
    the name itself is called (as a variable only), and the constant defaults of `getattr` with
    three arguments. Names without any of these are missing."""
    reads_by_name: dict[str, _Reads] = {}
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ctx=ast.Load()):
                name, path = _path_of(node)
                if name in names and path:
                    reads = reads_by_name.setdefault(name, _Reads())
                    _add_path(reads, path, id(node) in called)
            case ast.Call(func=ast.Name(function)) if function in names:
                reads_by_name.setdefault(function, _Reads()).is_called = True
            case ast.Call(
                func=ast.Name("getattr"), args=[owner, ast.Constant(str(attribute)), default]
            ):
                name = name_of(owner)
                if name in names and isinstance(default, ast.Constant):
                    reads = reads_by_name.setdefault(name, _Reads())
                    reads.defaults[attribute] = default.value
    return reads_by_name


def _path_of(node: ast.expr) -> tuple[str, tuple[str, ...]]:
    """Return the variable at the beginning of a chain of attributes, or the attribute of `self`
    there, and the names after it; ("", ()) for other expressions."""
    path: list[str] = []
    while isinstance(node, ast.Attribute):
        path.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return "", ()
    return (path[0], tuple(path[1:])) if node.id == "self" and path else (node.id, tuple(path))


def _add_path(reads: _Reads, path: tuple[str, ...], is_called: bool) -> None:
    """Add a chain of attributes to what is read of a name; of a chain that is called, the last is a
    method."""
    for name in path[:-1] if is_called else path:
        reads = reads.attributes.setdefault(name, _Reads())
    reads.is_called |= is_called


def config_parameters(
    parameters: list[inspect.Parameter], module: ModuleType, source: str
) -> list[str]:
    """Return the names of the required parameters of a constructor that hold a configuration, by
    their name, their use in the source or their annotation."""
    names = config_names(source)
    return [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        if parameter.name in names
        or parameter.name.endswith("config")
        or _annotated_class(parameter, module) is not None
    ]


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
    try:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(cls.__init__)))  # type: ignore[misc]
    except (OSError, SyntaxError, TypeError):
        return set()
    return set(_reads_of_names(tree, frozenset({name})).get(name, _Reads()).attributes)


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
    calls = stated_values.calls_of(config_class.__name__, path)
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
    reads = _reads_of_configs(source)[1]
    names = [name for name, inner in reads.attributes.items() if not inner.attributes]
    return _invented_namespace(reads, stated_values.values_of(names, path))


def _invented_namespace(reads: _Reads, stated: Mapping[str, Any]) -> SimpleNamespace:
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
