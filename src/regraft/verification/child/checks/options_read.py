"""Find the constructor arguments and configuration fields that changed lines read, and those that
had a single value in all comparisons."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from regraft.verification.child.checks.argument_reads import deciding_expressions
from regraft.verification.child.checks.changes_by_version import versions_of
from regraft.verification.child.checks.code_constants import changed_nodes
from regraft.verification.child.checks.code_replacement import syntax_tree
from regraft.verification.child.checks.constructor_flow import (
    Flow,
    all_keyword_defaults,
    base_classes,
    constructor_of,
    flow_of,
    is_plain,
    key_of,
)
from regraft.verification.child.drivers import config_reads
from regraft.verification.child.session import Session
from regraft.verification.definition_changes import Change
from regraft.verification.names_and_scopes import name_of

_SMALLEST_SIZE = 8  # the smallest integer that counts as a size where a layer is made with it


@dataclass(frozen=True, slots=True)
class Option:
    """A constructor argument or, where `config` is True, a field of a configuration.

    `makes_object` tells that changed lines read it only through an object that is made with it.
    """

    name: str
    config: bool
    makes_object: bool = False

    @property
    def shown(self) -> str:
        """Return the option in words for a message: `config.name`, or the constructor's name."""
        return f"config.{self.name}" if self.config else f"the constructor's {self.name}"


def unvaried_options(definition: str, session: Session) -> tuple[str, ...]:
    """Return the options, as shown and sorted, that changed lines of a definition read and that had
    only one value, or none, in all comparisons. A size of which the original accepted no other
    value is left out, since the inputs have that size, and so are sizes of layers that the changed
    lines call, and a constructor argument of which no value was noted."""
    constant_options = []
    for name, option in options_read(definition, session).items():
        values = session.options.get((definition, name), set())
        is_unknown = not values and not option.config
        is_varied = len(values) > 1 or (option.config and name in session.varied_fields)
        is_whole_number = all(text.lstrip("-").isdigit() for text in values)
        is_fixed_size = is_whole_number and (
            (definition, name) in session.tried_options
            or (option.makes_object and all(int(text) >= _SMALLEST_SIZE for text in values))
        )
        if not (is_varied or is_unknown or is_fixed_size):
            constant_options.append(option.shown)
    return tuple(sorted(constant_options))


def options_deciding(definition: str, session: Session) -> frozenset[str]:
    """Return the names of the options that decide what changed lines of a definition compute in
    either version, also through local variables and the branches around the lines."""
    return frozenset(options_read(definition, session, through_variables=True))


def options_read(
    definition: str, session: Session, *, through_variables: bool = False
) -> dict[str, Option]:
    """Return by name the options (parameters of the constructor, or fields of a configuration) that
    changed lines of a definition read in either version, also through attributes of `self`, and
    with `through_variables` also those that reach the lines through local variables."""
    option_by_name: dict[str, Option] = {}
    for change, module in versions_of(definition, session):
        for option in _options_in_lines(
            change,
            module,
            through_objects=not session.by_rules,
            through_variables=through_variables,
        ):
            if option.name not in option_by_name or not option.makes_object:
                option_by_name[option.name] = option
    return option_by_name


@functools.cache
def _options_in_lines(
    change: Change, module: ModuleType, *, through_objects: bool, through_variables: bool
) -> tuple[Option, ...]:
    """Return the options (parameters of the constructor, or fields of a configuration) that the
    changed lines of a definition in one module read, also through attributes of `self`; an option
    may come several times. They are cached: every instance of a class asks for them.

    An attribute that holds an object, such as a layer or a list of layers, reads the options that
    the object is made with; these count with `through_objects` only. With `through_variables` the
    options count that decide local variables which the lines read.
    """
    path = str(module.__file__)
    tree = syntax_tree(path)
    definition = next(
        (node for node in tree.body if getattr(node, "name", "") == change.definition), None
    )
    configs = config_reads.config_names(Path(path).read_text(encoding="utf-8", errors="replace"))
    construction = _Construction.of(definition, tree, configs)
    nodes: Iterable[ast.AST] = changed_nodes(change, module)
    if through_variables:
        nodes = itertools.chain(nodes, deciding_expressions(definition, change.statements))
    return tuple(
        option
        for node in nodes
        for option in construction.options_in(node, through_objects=through_objects)
    )


@dataclass(frozen=True, slots=True)
class _Construction:
    """The constructor of a definition: its parameters, its lines, and how it and the constructors
    of its base classes make the attributes (`flow`), with the parameters of all of these and the
    options that they read from `**kwargs`.

    `configs` are the names that hold configurations in the file.
    """

    parameters: frozenset[str]
    lines: range
    flow: Flow
    all_parameters: frozenset[str]
    keywords: Mapping[str, object]
    configs: frozenset[str]

    @classmethod
    def of(
        cls, definition: ast.AST | None, tree: ast.Module, configs: frozenset[str]
    ) -> _Construction:
        """Return the construction of a class of a file, from its own constructor and those of its
        bases in the file; that of a function, or of None, is empty."""
        classes = [definition, *base_classes(definition, tree)]
        all_parameters = frozenset(
            name for node in classes for name in _parameter_names(node, configs)
        )
        return cls(
            _parameter_names(definition, configs),
            _constructor_lines(definition),
            flow_of(classes),
            all_parameters,
            all_keyword_defaults(classes),
            configs,
        )

    def options_in(self, node: ast.AST, *, through_objects: bool) -> Iterator[Option]:
        """Yield the options that a name or attribute reads: a parameter in the constructor, a field
        of a configuration, or what decides an attribute of `self`. Nothing for other
        expressions."""
        match node:
            case ast.Name(name) if node.lineno in self.lines and name in self.parameters:
                yield Option(name, False)
            case ast.Attribute(owner, name) if self._is_config(owner):
                yield Option(name, True)
            case ast.Attribute(value=ast.Name("self")):
                for source in self.flow.expressions(key_of(node), through_objects=through_objects):
                    yield from self._options_in_expression(source, through_objects)

    def _options_in_expression(self, value: ast.expr, through_objects: bool) -> Iterator[Option]:
        """Yield the options in an expression that decides an attribute; without `through_objects`
        nothing where it calls a function or makes an object, except `getattr(config, "NAME")`."""
        makes_object = not is_plain(value)
        for node in ast.walk(value) if through_objects or not makes_object else (value,):
            match node:
                case ast.Call(func=ast.Name("getattr"), args=[owner, ast.Constant(str(name)), *_]):
                    if self._is_config(owner):
                        yield Option(name, True)
                case ast.Call(
                    func=ast.Attribute(attr="get" | "pop"), args=[ast.Constant(str(name)), *_]
                ) if through_objects and name in self.keywords:
                    yield Option(name, False)
                case ast.Attribute(value=owner, attr=name) if self._is_config(owner):
                    yield Option(name, True, makes_object)
                case ast.Name(id=name) if name in self.all_parameters:
                    yield Option(name, False, makes_object)

    def _is_config(self, node: ast.expr) -> bool:
        """Return whether an expression is named as a configuration."""
        return _is_config_name(name_of(node), self.configs)


def _constructor_lines(node: ast.AST | None) -> range:
    """Return the lines of a class's own constructor; an empty range where it has none."""
    function = constructor_of(node)
    if function is None:
        return range(0)
    return range(function.lineno, (function.end_lineno or function.lineno) + 1)


def _parameter_names(node: ast.AST | None, configs: frozenset[str]) -> frozenset[str]:
    """Return the names of the parameters of the `__init__` that a class defines itself, without
    `self`, configurations, *args and **kwargs; none where it defines no `__init__`, and for a
    function or None."""
    function = constructor_of(node)
    if function is None:
        return frozenset()
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return frozenset(
        argument.arg for argument in arguments[1:] if not _is_config_name(argument.arg, configs)
    )


def _is_config_name(name: str, configs: frozenset[str]) -> bool:
    """Return whether a name is that of a configuration: a usual one, or one of `configs`."""
    return name == "config" or name.endswith("_config") or name in configs
