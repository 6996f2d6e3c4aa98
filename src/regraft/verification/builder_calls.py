"""Find the calls with which one class builds another, where the calls are all that it does to it.

A class that only builds another from plain values, and then calls it, decides nothing but the
values and the inputs: `self.proj = Projection(dim, act="silu")`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

# (parameter, repr of its value) for each argument; "" where the value is no constant or a size.
Construction = tuple[tuple[str, str], ...]
# Callables that keep a module as it is.
_CONTAINERS = frozenset({"ModuleList", "ModuleDict", "Sequential"})
# Functions whose results are plain values if their arguments are.
_NUMERIC = frozenset({"int", "float", "bool", "str", "len", "min", "max", "round", "sum", "abs"})
_GROUPS = (
    ast.List,
    ast.Tuple,
    ast.Dict,
    ast.Starred,
    ast.ListComp,
    ast.GeneratorExp,
    ast.IfExp,
)
_PLAIN = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Subscript,
    ast.Tuple,
    ast.List,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)


def constructions_in(builder: ast.AST, built: ast.ClassDef) -> tuple[Construction, ...] | None:
    """Return the constructions of the class `built` in the text of `builder`, each once;
    annotations and type tests do not count.

    None where the builder does more with the class or its instances than to build them from plain
    values and to return them or store them as attributes, variables or elements of containers of
    modules.
    """
    parameters = _constructor_parameters(built)
    if parameters is None:
        return None
    parents = {child: node for node in ast.walk(builder) for child in ast.iter_child_nodes(node)}
    annotations = set(_annotation_nodes(builder))
    constructions: dict[Construction, None] = {}
    for mention in _mentions(builder, built.name):
        if mention in annotations or _is_type_test(mention, parents):
            continue
        call = parents[mention]
        if not isinstance(call, ast.Call) or call.func is not mention:
            return None
        construction = _construction(call, parameters)
        if construction is None or not _is_only_stored(call, parents):
            return None
        constructions[construction] = None
    return tuple(constructions)


def _mentions(builder: ast.AST, name: str) -> Iterator[ast.Name]:
    """Yield the `ast.Name` nodes with a name in a syntax tree."""
    for node in ast.walk(builder):
        if isinstance(node, ast.Name) and node.id == name:
            yield node


def _constructor_parameters(built: ast.ClassDef) -> list[str] | None:
    """Return the parameters of a class's own `__init__` without `self`; None where it has none,
    takes a variable number, or the class has a decorator."""
    init = next(
        (
            node
            for node in built.body
            if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        ),
        None,
    )
    if init is None or init.args.vararg or init.args.kwarg or built.decorator_list:
        return None
    positional = [*init.args.posonlyargs, *init.args.args][1:]
    return [argument.arg for argument in (*positional, *init.args.kwonlyargs)]


def _annotation_nodes(builder: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes inside the annotations of a text."""
    for node in ast.walk(builder):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if annotation is not None:
                yield from ast.walk(annotation)


def _is_type_test(mention: ast.Name, parents: dict[ast.AST, ast.AST]) -> bool:
    """Return whether a name stands in the second argument of `isinstance`, alone or with others."""
    node: ast.AST = mention
    while isinstance(parents.get(node), ast.Tuple | ast.BinOp):
        node = parents[node]
    test = parents.get(node)
    return (
        isinstance(test, ast.Call)
        and isinstance(test.func, ast.Name)
        and test.func.id == "isinstance"
        and len(test.args) == 2
        and test.args[1] is node
    )


def _construction(call: ast.Call, parameters: list[str]) -> Construction | None:
    """Return (parameter, repr or "" as of `_constant`) for each argument of a call, in the order of
    the call; None where an argument is unpacked, has no parameter or is no plain value."""
    if len(call.args) > len(parameters) or any(
        isinstance(argument, ast.Starred) for argument in call.args
    ):
        return None
    arguments = dict(zip(parameters, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg not in parameters:
            return None
        arguments[keyword.arg] = keyword.value
    if not all(map(_is_plain, arguments.values())):
        return None
    return tuple((name, _constant(value)) for name, value in arguments.items())


def _is_plain(expression: ast.expr) -> bool:
    """Return whether an expression computes from constants, variables and attributes alone, perhaps
    by `int`, `len` and the like."""
    return all(
        isinstance(node, _PLAIN)
        or (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in _NUMERIC
            and not node.keywords
        )
        for node in ast.walk(expression)
    )


def _constant(expression: ast.expr) -> str:
    """Return the repr of a constant expression; "" for a whole number and for any other expression.
    A whole number is a size, of which one value stands for any other: sizes at which the class
    decides are tried in any case."""
    try:
        value = ast.literal_eval(expression)
    except (ValueError, TypeError):
        return ""
    return "" if type(value) is int else repr(value)


def _is_only_stored(call: ast.Call, parents: dict[ast.AST, ast.AST]) -> bool:
    """Return whether a new instance is assigned, returned, appended, or becomes an element of a
    container of modules."""
    node: ast.AST = call
    parent = parents[node]
    while isinstance(parent, _GROUPS):
        node, parent = parent, parents[parent]
    if isinstance(parent, ast.Assign | ast.AnnAssign | ast.Return):
        return True
    if not isinstance(parent, ast.Call) or node is parent.func:
        return False
    function = parent.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in _CONTAINERS or (name == "append" and isinstance(function, ast.Attribute))
