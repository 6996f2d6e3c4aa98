"""Constructor arguments and fields of configurations: each that a changed definition reads takes two values."""

from __future__ import annotations

import ast
import inspect
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from torch import nn

from regraft.verify.changes import Change
from regraft.verify.child.checks.constants import changed_nodes
from regraft.verify.child.checks.edited import syntax_tree
from regraft.verify.child.checks.sizes import is_affordable, with_sizes
from regraft.verify.child.drivers import alone, vary
from regraft.verify.child.drivers.alone import Part, accepts, fields_of, is_config, with_fields
from regraft.verify.child.session import Session
from regraft.verify.syntax import name_of

SECONDS = 6.0  # for building one definition with other values
_SIMPLE = (
    ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.operator,
    ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Option:
    """A constructor argument, or a field of the configuration that is the argument `config`."""

    name: str
    config: bool

    @property
    def shown(self) -> str:
        return f"config.{self.name}" if self.config else f"the constructor's {self.name}"


@dataclass(frozen=True, slots=True)
class Variation:
    """A part built with other values of some options, named as `names`; one that `switches` may cast numbers, too."""

    part: Part
    names: tuple[str, ...]
    switches: bool = False


def note_options(definition: str, arguments: Mapping[str, Any], session: Session) -> None:
    """Note the values that options of a definition take in a comparison."""
    for name, value in _plain_values(arguments):
        session.options.setdefault((definition, name), set()).add(repr(value)[:200])


def _plain_values(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in arguments.items():
        if is_config(value):
            yield from _plain_values(fields_of(value))
        elif isinstance(value, Mapping) and name.endswith("config"):
            yield from _plain_values({str(key): inner for key, inner in value.items()})
        else:
            yield name, value


def varied_parts(part: Part, words: frozenset[str], session: Session) -> Iterator[Variation]:
    """Yield a part with other values of the options that `words` name, where its original takes them.

    Numbers that are no sizes change together where that is accepted; everything else by itself.
    """
    deadline = session.ledger.share(SECONDS)
    choices = vary.compared_strings(inspect.getsource(session.original))
    overrides = _overrides(part, words, choices, session)
    done: set[str] = set()
    for names, candidates in (*_together(part, overrides), *overrides):
        if set(names) <= done:
            continue
        session.fixed.update((part.definition, name) for name in names)
        for candidate in candidates:
            if time.process_time() > deadline or session.ledger.late():
                return
            if accepts(candidate, session):
                done.update(names)
                before = time.process_time()
                yield Variation(candidate, names, isinstance(_value(part, names[0]), bool | str))
                deadline += time.process_time() - before  # comparing it is no search
                if not isinstance(_value(part, names[0]), str):
                    break


Overrides = list[tuple[tuple[str, ...], list[Part]]]


def _value(part: Part, name: str) -> Any:
    return dict(_plain_values(part.arguments)).get(name)


def _overrides(part: Part, words: frozenset[str], choices: vary.Choices, session: Session) -> Overrides:
    """Return, by option, the parts with another value of it; strings take each of a few."""
    found: dict[str, list[Part]] = {}
    for name, argument in part.arguments.items():
        if is_config(argument):
            fields = fields_of(argument)
            for override in vary.second_values(fields, words, choices):
                path = vary.path_of(override, fields)
                changed = _with(part, name, with_fields(argument, override))
                found.setdefault(path[-1], []).extend(_fitted(changed, part, path[-1]))
        elif name in words:
            for other in _others(name, argument, choices):
                found.setdefault(name, []).extend(_fitted(_with(part, name, other), part, name))
    return [*_pairs(part, session), *(((name,), parts[:6]) for name, parts in found.items())]


def _pairs(part: Part, session: Session) -> Overrides:
    """Return the part with two unlike values for arguments of which the file makes tuples: one for each layer, say."""
    text = inspect.getsource(session.original)
    found: Overrides = []
    for name, value in part.arguments.items():
        if isinstance(value, bool | float) and re.search(rf"tuple\(\s*{re.escape(name)}\b", text):
            other = (not value) if isinstance(value, bool) else 0.2 if value == 0 else value / 2
            found += [
                ((name, f"{name}[{place}]"), [_with(part, name, pair)])
                for place, pair in enumerate(((value, other), (other, value)))
            ]
    return found


def _with(part: Part, name: str, value: Any) -> Part:
    return replace(part, arguments={**part.arguments, name: value})


def _fitted(changed: Part, part: Part, name: str) -> Iterator[Part]:
    """Yield a changed part, and for a size the same with inputs of that size."""
    yield changed
    before, now = _value(part, name), _value(changed, name)
    numbers = type(before) is int and type(now) is int and before > 2 and now > 0
    if numbers and all(is_affordable(call, {before: now}) for call in part.calls):
        yield alone.with_calls(changed, lambda call: with_sizes(call, {before: now}))


def _others(name: str, value: Any, choices: vary.Choices) -> Iterator[Any]:
    """Yield other values for an argument: of a class of layers, another one."""
    if isinstance(value, type) and issubclass(value, nn.Module):
        activation = value.__module__.endswith("activation")
        yield from (cls for cls in ((nn.ReLU, nn.Tanh) if activation else (nn.Identity,)) if cls is not value)
    for override in vary.second_values({name: value}, frozenset({name}), choices):
        yield override[name]


def _together(part: Part, overrides: Overrides) -> Overrides:
    """Return a part in which all options that are floating point numbers have another value."""
    single = ((names, parts[0]) for names, parts in overrides if len(names) == 1)
    floats = [(names, changed) for names, changed in single if isinstance(_value(part, names[0]), float)]
    if len(floats) < 2:
        return []
    arguments = dict(part.arguments)
    for names, changed in floats:
        for name, value in changed.arguments.items():
            if is_config(value):
                new = {k: v for k, v in fields_of(value).items() if k in names}
                arguments[name] = with_fields(arguments[name], new)
            elif name in names:
                arguments[name] = value
    return [(tuple(name for names, _ in floats for name in names), [replace(part, arguments=arguments)])]


def options_read(definition: str, session: Session) -> dict[str, Option]:
    """Return the options that the changed lines of a definition read in either version, also through attributes."""
    found: dict[str, Option] = {}
    for changes, module in ((session.changes, session.changed), (session.older.changes, session.original)):
        for change in changes:
            if change.definition == definition:
                found.update((option.name, option) for option in _options_of(change, module))
    return found


def _options_of(change: Change, module: ModuleType) -> Iterator[Option]:
    tree = syntax_tree(str(module.__file__))
    own = next((node for node in tree.body if getattr(node, "name", "") == change.definition), None)
    chain = [own, *_bases(own, tree)]
    parameters = _parameters(own)
    assigned = {name: value for node in reversed(chain) for name, value in _attributes(node)}
    every = frozenset(name for node in chain for name in _parameters(node))
    first, last = _constructor_lines(own)
    for node in changed_nodes(change, module):
        if isinstance(node, ast.Name) and first <= node.lineno <= last and node.id in parameters:
            yield Option(node.id, False)
        elif isinstance(node, ast.Attribute) and _is_config(node.value):
            yield Option(node.attr, True)
        elif isinstance(node, ast.Attribute) and name_of(node.value) == "self" and node.attr in assigned:
            yield from _in_expression(assigned[node.attr], every)


def _in_expression(value: ast.expr, parameters: frozenset[str]) -> Iterator[Option]:
    """Yield the options that an attribute holds: nothing where it holds a layer, or what a function returns."""
    match value:
        case ast.Call(func=ast.Name("getattr"), args=[of, ast.Constant(str(name)), *_]) if _is_config(of):
            yield Option(name, True)
            return
    if all(isinstance(node, _SIMPLE) for node in ast.walk(value)):
        for node in ast.walk(value):
            if isinstance(node, ast.Attribute) and _is_config(node.value):
                yield Option(node.attr, True)
            elif isinstance(node, ast.Name) and node.id in parameters and not _is_config(node):
                yield Option(node.id, False)


def _bases(node: ast.AST | None, tree: ast.Module) -> list[ast.AST]:
    """Return the classes of the file that a class inherits from."""
    found: list[ast.AST] = []
    for base in node.bases if isinstance(node, ast.ClassDef) else ():
        above = next((one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name_of(base)), None)
        if above is not None and above is not node:
            found += [above, *_bases(above, tree)]
    return found


def _constructor(node: ast.AST | None) -> ast.FunctionDef | None:
    body = node.body if isinstance(node, ast.ClassDef) else ()
    return next((one for one in body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)


def _constructor_lines(node: ast.AST | None) -> tuple[int, int]:
    function = _constructor(node)
    return (function.lineno, function.end_lineno or function.lineno) if function is not None else (0, 0)


def _parameters(node: ast.AST | None) -> frozenset[str]:
    function = _constructor(node)
    if function is None:
        return frozenset()
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return frozenset(argument.arg for argument in arguments[1:] if not argument.arg.endswith("config"))


def _attributes(node: ast.AST | None) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes of `self` that a constructor assigns."""
    for inner in ast.walk(_constructor(node) or ast.Pass()):
        match inner:
            case ast.Assign(targets=[ast.Attribute(ast.Name("self"), attr)], value=value):
                yield attr, value


def _is_config(node: ast.expr) -> bool:
    name = name_of(node)
    return name == "config" or name.endswith("_config")


def options_with_one_value(definition: str, session: Session) -> tuple[str, ...]:
    """Return what the changed lines of a definition read of its options and that kept its value in all comparisons.

    A size of which the original took no other value is left alone: the inputs have it.
    """
    kept = []
    for name, option in options_read(definition, session).items():
        values = session.options.get((definition, name), set())
        unknown = not values and not option.config
        fixed = (definition, name) in session.fixed and all(text.lstrip("-").isdigit() for text in values)
        if not (len(values) > 1 or unknown or fixed or (option.config and name in session.varied_fields)):
            kept.append(option.shown)
    return tuple(sorted(kept))
