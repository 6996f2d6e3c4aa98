"""The attributes of imported modules and classes, and of the file's own classes, that a file
replaces: `F.gelu = gelu`, `setattr(F, "gelu", gelu)`, `del nn.GELU.forward`."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from regraft.source.qualified_names import Names, import_bindings
from regraft.source.syntax_iterators import statements, walk

_INSTANCES = frozenset({"self", "cls"})
_SETTERS = frozenset({"setattr", "delattr"})
# Every statement that replaces an attribute by another expression than a target has one of these.
_CALL_WORDS = (b"setattr", b"delattr", b"__dict__", b"vars(")
_CALL_PART = re.compile(rb"setattr|delattr|__dict__|vars|[^\x00-\x7f]")


@dataclass(frozen=True, slots=True)
class AttributeStores:
    """The attributes that a file assigns anywhere, also in functions, but for those of the instance
    itself (`self.x = x`).

    lines  qualified names of attributes of modules and classes, with the line of each. An attribute
           whose name is computed stands for all of its object: the name is the object's. Names of
           the file's own classes are not qualified.
    paths  the last two parts of each path of three or more: `norm.eps` of `self.norm.eps`
    names  the names of attributes of any other object, such as a local variable
    """

    lines: Mapping[str, int]
    paths: frozenset[str]
    names: frozenset[str]


def attribute_stores(tree: ast.Module, text: bytes, names: Names, package: str) -> AttributeStores:
    """Return the attributes that a file assigns or deletes, given its names and package."""
    collected = _collect(tree)
    places = [place for target in collected.targets for place in _assigned_places(target)]
    if any(word in text for word in _CALL_WORDS):
        places += _places_of_calls(tree, _lines_of_calls(text))
    places = [place for place in places if not _is_instance(place[0])]
    lines: dict[str, int] = {}
    paths, other_names = set(), set()
    objects = _objects_by_name(collected, names, package) if places else {}
    for place, attribute in places:
        qualified_names = _qualified_names(place, objects)
        for name in qualified_names:
            replaced = f"{name}.{attribute}" if attribute else name
            lines[replaced] = min(place.lineno, lines.get(replaced, place.lineno))
        if isinstance(place, ast.Attribute):
            paths.add(f"{place.attr}.{attribute}")
        elif not qualified_names:
            other_names.add(attribute)
    return AttributeStores(lines, frozenset(paths), frozenset(other_names))


def _is_instance(expr: ast.expr) -> bool:
    """Return whether an expression is the instance or the class of a method."""
    return isinstance(expr, ast.Name) and expr.id in _INSTANCES


@dataclass(slots=True)
class _Collected:
    """The statements of a file that matter here.

    targets  the targets of assignments, loops, `with` and `del` that are no names
    imports  the imports
    classes  the names of the file's classes
    aliases  the assignments of a name or attribute to names
    """

    targets: list[ast.expr] = field(default_factory=list)
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    aliases: list[ast.Assign] = field(default_factory=list)


def _collect(tree: ast.Module) -> _Collected:
    """Return the statements of a file that matter here, at any level."""
    collected = _Collected()
    for statement in statements(tree.body):
        kind = type(statement)
        if kind is ast.Expr or kind is ast.Return or kind is ast.If:
            continue  # most statements, which bind nothing
        if isinstance(statement, ast.Assign):
            if isinstance(statement.value, ast.Name | ast.Attribute):
                collected.aliases.append(statement)
            collected.targets += [
                target for target in statement.targets if not isinstance(target, ast.Name)
            ]
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            collected.imports.append(statement)
        elif isinstance(statement, ast.ClassDef):
            collected.classes.append(statement.name)
        else:
            collected.targets += _other_targets(statement)
    return collected


def _other_targets(statement: ast.stmt) -> Sequence[ast.expr]:
    """Return the targets of a statement that is no plain assignment."""
    if isinstance(statement, ast.Delete):
        return statement.targets
    if isinstance(statement, ast.AugAssign | ast.For | ast.AsyncFor):
        return (statement.target,)
    if isinstance(statement, ast.AnnAssign):
        return (statement.target,) if statement.value is not None else ()
    if isinstance(statement, ast.With | ast.AsyncWith):
        return [item.optional_vars for item in statement.items if item.optional_vars]
    return ()


# An object and the name of its attribute that is replaced; "" for a computed name.
_Place = tuple[ast.expr, str]


def _assigned_places(target: ast.expr) -> Iterator[_Place]:
    """Yield the attributes that a target assigns or deletes, also through the dictionary of an
    object."""
    if isinstance(target, ast.Attribute):
        yield target.value, target.attr
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _assigned_places(element)
    elif isinstance(target, ast.Starred):
        yield from _assigned_places(target.value)
    elif isinstance(target, ast.Subscript):
        owner = _owner_of_dictionary(target.value)
        if owner is not None:
            yield owner, _constant_text(target.slice)


def _lines_of_calls(text: bytes) -> Sequence[int]:
    """Return the numbers of the lines on which a call may replace an attribute; Python normalises
    identifiers that are not ASCII."""
    plain_text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    numbers, number, position = [], 1, 0
    for match in _CALL_PART.finditer(plain_text):
        number += plain_text.count(b"\n", position, match.start())
        numbers.append(number)
        position = match.start()
    return numbers


def _places_of_calls(tree: ast.Module, lines: Sequence[int]) -> Iterator[_Place]:
    """Yield the attributes that calls on some of the lines replace: `setattr` and `delattr`, also
    as methods (`monkeypatch.setattr`), and `F.__dict__.update(...)`."""
    for node in walk(tree, lines):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        last_name = function.attr if isinstance(function, ast.Attribute) else _root(function)
        if last_name in _SETTERS and node.args:
            yield node.args[0], _constant_text(node.args[1]) if len(node.args) > 1 else ""
        elif last_name == "update" and isinstance(function, ast.Attribute):
            owner = _owner_of_dictionary(function.value)
            if owner is not None:
                yield owner, ""


def _owner_of_dictionary(expr: ast.expr) -> ast.expr | None:
    """Return the object of `F.__dict__` or `vars(F)`; None for another expression."""
    if isinstance(expr, ast.Attribute) and expr.attr == "__dict__":
        return expr.value
    if isinstance(expr, ast.Call) and _root(expr.func) == "vars" and len(expr.args) == 1:
        return expr.args[0]
    return None


def _constant_text(expr: ast.expr) -> str:
    """Return a constant string; "" for another expression."""
    return expr.value if isinstance(expr, ast.Constant) and isinstance(expr.value, str) else ""


def _root(expr: ast.expr) -> str:
    """Return the first name of a chain of attributes; "" for another expression."""
    while isinstance(expr, ast.Attribute):
        expr = expr.value
    return expr.id if isinstance(expr, ast.Name) else ""


def _objects_by_name(
    collected: _Collected, names: Names, package: str
) -> Mapping[str, Collection[str]]:
    """Return the qualified names of the objects that each name may stand for anywhere in the file:
    imported ones, other names for these, and the file's own classes."""
    objects = {name: {qualified} for name, qualified in names.qualified.items()}
    for statement in collected.imports:
        for local, qualified in import_bindings(statement, package):
            objects.setdefault(local, set()).add(qualified)
    for name in collected.classes:
        objects.setdefault(name, set()).add(name)
    for alias in reversed(collected.aliases):  # `statements` yields blocks from their end
        meant = _qualified_names(alias.value, objects)
        for target in alias.targets if meant else ():
            if isinstance(target, ast.Name):
                objects.setdefault(target.id, set()).update(meant)
    return objects


def _qualified_names(expr: ast.expr, objects: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return the qualified names that a chain of attributes may have; none for another
    expression."""
    attributes: list[str] = []
    while isinstance(expr, ast.Attribute):
        attributes.append(expr.attr)
        expr = expr.value
    if not isinstance(expr, ast.Name):
        return frozenset()
    return frozenset(".".join((base, *reversed(attributes))) for base in objects.get(expr.id, ()))
