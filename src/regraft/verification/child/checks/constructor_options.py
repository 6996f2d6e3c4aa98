"""Build parts with two values of each constructor argument and configuration field that a changed
definition reads."""

from __future__ import annotations

import ast
import inspect
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from regraft.verification.child.checks.code_constants import changed_nodes
from regraft.verification.child.checks.code_replacement import syntax_tree
from regraft.verification.child.checks.size_variants import is_affordable, resize_dimensions
from regraft.verification.child.drivers import (
    config_sources,
    config_variations,
    source_hints,
    standalone_parts,
)
from regraft.verification.child.drivers.configuration_objects import (
    fields_of,
    is_config,
    with_fields,
)
from regraft.verification.child.drivers.opposite_numbers import opposite_numbers
from regraft.verification.child.drivers.standalone_parts import Part, accepts
from regraft.verification.child.session import Session
from regraft.verification.definition_changes import Change
from regraft.verification.names_and_scopes import name_of

SECONDS = 6.0  # for building one definition with other values
_OPPOSITES = 12  # the most parts with a negative number, or zero, that are tried
_SIMPLE = (
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)


@dataclass(frozen=True, slots=True)
class Option:
    """A constructor argument or, where `config` is True, a field of a configuration."""

    name: str
    config: bool

    @property
    def shown(self) -> str:
        """Return the option in words for a message: `config.name`, or the constructor's name."""
        return f"config.{self.name}" if self.config else f"the constructor's {self.name}"


@dataclass(frozen=True, slots=True)
class Variation:
    """A part built with other values of the options `names`.

    `switches` tells that the first of them is a boolean or a string, which may also change the
    number format.
    """

    part: Part
    names: tuple[str, ...]
    switches: bool = False


def note_options(definition: str, arguments: Mapping[str, Any], session: Session) -> None:
    """Add to `session.options` the values that the options of a definition take in a comparison,
    each as at most 200 characters of its repr; fields of configurations count by their own name."""
    for name, value in _plain_values(arguments):
        session.options.setdefault((definition, name), set()).add(repr(value)[:200])


def _plain_values(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a name and a value: the arguments of a constructor, with the fields of
    configurations, nested ones included, in their place. A mapping whose name ends with "config" is
    a configuration, too."""
    for name, value in arguments.items():
        if is_config(value):
            yield from _plain_values(fields_of(value))
        elif isinstance(value, Mapping) and name.endswith("config"):
            yield from _plain_values(
                {str(key): nested_value for key, nested_value in value.items()}
            )
        else:
            yield name, value


def varied_parts(part: Part, words: frozenset[str], session: Session) -> Iterator[Variation]:
    """Yield variations of a part that have other values of the options whose names are in `words`,
    where the original accepts these values.

    Floats change together where that is accepted; every other option changes alone. Strings get
    each accepted value, other options only the first. At the end numbers become negative and zero,
    where the results stay finite. The search ends after SECONDS of processor time. Options that
    are tried, also without success, are added to `session.tried_options`.
    """
    deadline = session.ledger.deadline_within(SECONDS)
    choices = source_hints.compared_strings(inspect.getsource(session.original))
    overrides = _overrides(part, words, choices, session)
    varied_names: set[str] = set()
    for names, candidates in (*_all_floats_changed(part, overrides), *overrides):
        if set(names) <= varied_names:
            continue
        session.tried_options.update((part.definition, name) for name in names)
        for candidate in candidates:
            if time.process_time() > deadline or session.ledger.is_late():
                return
            if accepts(candidate, session):
                varied_names.update(names)
                started = time.process_time()
                yield Variation(
                    candidate, names, isinstance(_plain_value(part, names[0]), bool | str)
                )
                deadline += time.process_time() - started  # comparing it is no search
                if not isinstance(_plain_value(part, names[0]), str):
                    break
    for names, candidate in _parts_with_opposite_numbers(part, words):
        if time.process_time() > deadline or session.ledger.is_late():
            return
        if accepts(candidate, session, finite=True):
            started = time.process_time()
            yield Variation(candidate, names)
            deadline += time.process_time() - started


Overrides = list[tuple[tuple[str, ...], list[Part]]]


def _plain_value(part: Part, name: str) -> Any:
    """Return the value of an option in the arguments of a part, fields of configurations included;
    None where it has none."""
    return dict(_plain_values(part.arguments)).get(name)


def _overrides(
    part: Part, words: frozenset[str], choices: source_hints.Choices, session: Session
) -> Overrides:
    """Return pairs of an option's names and the parts with another value of it, at most six for
    each option; those of `_pair_overrides` come first. Nothing is tried yet."""
    parts_by_option: dict[str, list[Part]] = {}
    for name, argument in part.arguments.items():
        if is_config(argument):
            fields = fields_of(argument)
            for override in config_variations.second_values(fields, words, choices):
                path = config_variations.path_of(override, fields)
                changed_part = _with_argument(part, name, with_fields(argument, override))
                parts_by_option.setdefault(path[-1], []).extend(
                    _with_fitting_inputs(changed_part, part, path[-1])
                )
        elif name in words:
            for alternative in _other_values(name, argument, choices):
                parts_by_option.setdefault(name, []).extend(
                    _with_fitting_inputs(_with_argument(part, name, alternative), part, name)
                )
    return [
        *_pair_overrides(part, session),
        *(((name,), parts[:6]) for name, parts in parts_by_option.items()),
    ]


def _parts_with_opposite_numbers(
    part: Part, words: frozenset[str]
) -> Iterator[tuple[tuple[str, ...], Part]]:
    """Yield, for each numeric option of a part (argument of its constructor, or field of a
    configuration among these) whose name is in `words`, the pair ((name,), part) of the part with
    the opposite number, and with zero; at most `_OPPOSITES` pairs."""
    pairs: list[tuple[tuple[str, ...], Part]] = []
    for name, argument in part.arguments.items():
        if is_config(argument):
            fields = fields_of(argument)
            for override in config_variations.opposite_values(fields, words):
                path = config_variations.path_of(override, fields)
                changed_part = _with_argument(part, name, with_fields(argument, override))
                pairs.append((path[-1:], changed_part))
        elif name in words:
            pairs += [
                ((name,), _with_argument(part, name, number))
                for number in opposite_numbers(name, argument)
            ]
    yield from pairs[:_OPPOSITES]


def _pair_overrides(part: Part, session: Session) -> Overrides:
    """Return, for each boolean or float argument from which the text of the file makes a tuple,
    overrides by a pair of unlike values, once in each order; such a tuple may have one value for
    each layer."""
    text = inspect.getsource(session.original)
    overrides: Overrides = []
    for name, value in part.arguments.items():
        if isinstance(value, bool | float) and re.search(rf"tuple\(\s*{re.escape(name)}\b", text):
            alternative = (
                (not value) if isinstance(value, bool) else 0.2 if value == 0 else value / 2
            )
            overrides += [
                ((name, f"{name}[{index}]"), [_with_argument(part, name, pair)])
                for index, pair in enumerate(((value, alternative), (alternative, value)))
            ]
    return overrides


def _with_argument(part: Part, name: str, value: Any) -> Part:
    """Return a copy of a part with another value of one constructor argument."""
    return replace(part, arguments={**part.arguments, name: value})


def _with_fitting_inputs(changed_part: Part, part: Part, name: str) -> Iterator[Part]:
    """Yield a changed part, and for a changed size (an integer above 2) also the part with inputs
    of that size, where these are affordable."""
    yield changed_part
    old_size, new_size = _plain_value(part, name), _plain_value(changed_part, name)
    are_sizes = type(old_size) is int and type(new_size) is int and old_size > 2 and new_size > 0
    if are_sizes and all(is_affordable(call, {old_size: new_size}) for call in part.calls):
        yield standalone_parts.with_calls(
            changed_part, lambda call: resize_dimensions(call, {old_size: new_size})
        )


def _other_values(name: str, value: Any, choices: source_hints.Choices) -> Iterator[Any]:
    """Yield other values for the argument `name` whose value is `value`: for a class of layers
    another class, for any other value those of `config_variations.second_values`, such as the
    opposite of a flag."""
    if isinstance(value, type) and issubclass(value, nn.Module):
        is_activation = value.__module__.endswith("activation")
        yield from (
            cls
            for cls in ((nn.ReLU, nn.Tanh) if is_activation else (nn.Identity,))
            if cls is not value
        )
    for override in config_variations.second_values({name: value}, frozenset({name}), choices):
        yield override[name]


def _all_floats_changed(part: Part, overrides: Overrides) -> Overrides:
    """Return a single override: the part in which all options that are floating point numbers have
    the first other value of theirs; [] for fewer than two such options."""
    single_overrides = ((names, parts[0]) for names, parts in overrides if len(names) == 1)
    floats = [
        (names, changed_part)
        for names, changed_part in single_overrides
        if isinstance(_plain_value(part, names[0]), float)
    ]
    if len(floats) < 2:
        return []
    arguments = dict(part.arguments)
    for names, changed_part in floats:
        arguments = _with_values_of(changed_part, names, arguments)
    all_names = tuple(name for names, _ in floats for name in names)
    return [(all_names, [replace(part, arguments=arguments)])]


def _with_values_of(
    changed_part: Part, names: tuple[str, ...], arguments: dict[str, Any]
) -> dict[str, Any]:
    """Return a copy of `arguments` with the values that a changed part has for the options `names`,
    those in configurations too."""
    values: dict[str, Any] = {}
    for name, value in changed_part.arguments.items():
        if is_config(value):
            fields = fields_of(value)
            new_fields = {field: fields[field] for field in fields if field in names}
            values[name] = with_fields(arguments[name], new_fields)
        elif name in names:
            values[name] = value
    return {**arguments, **values}


def options_read(definition: str, session: Session) -> dict[str, Option]:
    """Return by name the options (parameters of the constructor, or fields of a configuration) that
    changed lines of a definition read in either version, also through attributes of `self`."""
    option_by_name: dict[str, Option] = {}
    for changes, module in (
        (session.changes, session.changed),
        (session.original_tracer.changes, session.original),
    ):
        for change in changes:
            if change.definition == definition:
                option_by_name.update(
                    (option.name, option) for option in _options_in_lines(change, module)
                )
    return option_by_name


def _options_in_lines(change: Change, module: ModuleType) -> Iterator[Option]:
    """Yield the options (parameters of the constructor, or fields of a configuration) that the
    changed lines of a definition in one module read, also through attributes of `self`; an option
    may come several times."""
    path = str(module.__file__)
    tree = syntax_tree(path)
    definition = next(
        (node for node in tree.body if getattr(node, "name", "") == change.definition), None
    )
    configs = config_sources.config_names(Path(path).read_text(encoding="utf-8", errors="replace"))
    construction = _Construction.of(definition, tree, configs)
    for node in changed_nodes(change, module):
        yield from construction.options_in(node)


@dataclass(frozen=True, slots=True)
class _Construction:
    """The constructor of a definition: its parameters, its lines, and the attributes that it and
    the constructors of its base classes assign, with the parameters of all of these.

    `configs` are the names that hold configurations in the file.
    """

    parameters: frozenset[str]
    lines: range
    attributes: Mapping[str, ast.expr]
    all_parameters: frozenset[str]
    configs: frozenset[str]

    @classmethod
    def of(
        cls, definition: ast.AST | None, tree: ast.Module, configs: frozenset[str]
    ) -> _Construction:
        """Return the construction of a class of a file, from its own constructor and those of its
        bases in the file; that of a function, or of None, is empty."""
        classes = [definition, *_base_classes(definition, tree)]
        attributes = {
            name: value for node in reversed(classes) for name, value in _assigned_attributes(node)
        }
        all_parameters = frozenset(
            name for node in classes for name in _parameter_names(node, configs)
        )
        return cls(
            _parameter_names(definition, configs),
            _constructor_lines(definition),
            attributes,
            all_parameters,
            configs,
        )

    def options_in(self, node: ast.AST) -> Iterator[Option]:
        """Yield the options that a name or attribute reads: a parameter in the constructor, a field
        of a configuration, or what an attribute of `self` was assigned from. Nothing for other
        expressions."""
        match node:
            case ast.Name(name) if node.lineno in self.lines and name in self.parameters:
                yield Option(name, False)
            case ast.Attribute(owner, name) if self._is_config(owner):
                yield Option(name, True)
            case ast.Attribute(owner, name) if name_of(owner) == "self" and name in self.attributes:
                yield from self._options_in_expression(self.attributes[name])

    def _options_in_expression(self, value: ast.expr) -> Iterator[Option]:
        """Yield the options in an expression that is assigned to an attribute; nothing where it
        calls a function or makes an object, except `getattr(config, "NAME")`."""
        match value:
            case ast.Call(func=ast.Name("getattr"), args=[owner, ast.Constant(str(name)), *_]) if (
                self._is_config(owner)
            ):
                yield Option(name, True)
                return
        if all(isinstance(node, _SIMPLE) for node in ast.walk(value)):
            for node in ast.walk(value):
                if isinstance(node, ast.Attribute) and self._is_config(node.value):
                    yield Option(node.attr, True)
                elif isinstance(node, ast.Name) and node.id in self.all_parameters:
                    yield Option(node.id, False)

    def _is_config(self, node: ast.expr) -> bool:
        """Return whether an expression is named as a configuration."""
        return _is_config_name(name_of(node), self.configs)


def _base_classes(node: ast.AST | None, tree: ast.Module) -> list[ast.AST]:
    """Return the classes of the file that a class inherits from, directly or through others,
    without the class itself; [] for a function or None."""
    bases: list[ast.AST] = []
    for base in node.bases if isinstance(node, ast.ClassDef) else ():
        base_class = next(
            (
                cls
                for cls in tree.body
                if isinstance(cls, ast.ClassDef) and cls.name == name_of(base)
            ),
            None,
        )
        if base_class is not None and base_class is not node:
            bases += [base_class, *_base_classes(base_class, tree)]
    return bases


def _constructor(node: ast.AST | None) -> ast.FunctionDef | None:
    """Return the `__init__` that a class defines itself; None where it has none."""
    body = node.body if isinstance(node, ast.ClassDef) else ()
    return next(
        (
            method
            for method in body
            if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        ),
        None,
    )


def _constructor_lines(node: ast.AST | None) -> range:
    """Return the lines of a class's own constructor; an empty range where it has none."""
    function = _constructor(node)
    if function is None:
        return range(0)
    return range(function.lineno, (function.end_lineno or function.lineno) + 1)


def _parameter_names(node: ast.AST | None, configs: frozenset[str]) -> frozenset[str]:
    """Return the names of the parameters of the `__init__` that a class defines itself, without
    `self`, configurations, *args and **kwargs; none where it defines no `__init__`, and for a
    function or None."""
    function = _constructor(node)
    if function is None:
        return frozenset()
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return frozenset(
        argument.arg for argument in arguments[1:] if not _is_config_name(argument.arg, configs)
    )


def _assigned_attributes(node: ast.AST | None) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes of `self` that a class's own constructor assigns by a single `=`, each
    with its value."""
    for statement in ast.walk(_constructor(node) or ast.Pass()):
        match statement:
            case ast.Assign(targets=[ast.Attribute(ast.Name("self"), attr)], value=value):
                yield attr, value


def _is_config_name(name: str, configs: frozenset[str]) -> bool:
    """Return whether a name is that of a configuration: a usual one, or one of `configs`."""
    return name == "config" or name.endswith("_config") or name in configs


def unvaried_options(definition: str, session: Session) -> tuple[str, ...]:
    """Return the options, as shown and sorted, that changed lines of a definition read and that had
    only one value, or none, in all comparisons.

    A size of which the original accepted no other value is left out, since the inputs have that
    size, and so is a constructor argument of which no value was noted.
    """
    constant_options = []
    for name, option in options_read(definition, session).items():
        values = session.options.get((definition, name), set())
        is_unknown = not values and not option.config
        is_varied = len(values) > 1 or (option.config and name in session.varied_fields)
        is_fixed_size = (definition, name) in session.tried_options and all(
            text.lstrip("-").isdigit() for text in values
        )
        if not (is_varied or is_unknown or is_fixed_size):
            constant_options.append(option.shown)
    return tuple(sorted(constant_options))
