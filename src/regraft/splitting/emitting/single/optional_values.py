"""Values that may be None: a truth value of run time says whether they are not."""

from __future__ import annotations

import ast

from regraft.splitting.emitting.single.graph import Graph, element_type
from regraft.splitting.emitting.single.graph_values import (
    Const,
    Items,
    Maybe,
    Names,
    Number,
    Tensor,
    Value,
    describe_value,
    number_kind,
)
from regraft.splitting.emitting.single.path_types import Inexpressible, name_of


def require_present(graph: Graph, value: Value) -> Value:
    """Return what a value is that may be None, with a check that fails at run time where it is
    None; any other value as it is."""
    if not isinstance(value, Maybe):
        return value
    zero = graph.add_check(value.present.name, "TypeError: None where a value is needed")
    return depend_on(graph, value.value, zero)


def depend_on(graph: Graph, value: Value, zero: str) -> Value:
    """Return a number, a tensor or a tuple of these as it is, computed in such a way that it fails
    where `zero`, the name of an int that is 0, does. Raises Inexpressible for other values."""
    if isinstance(value, Items):
        return Items(value.kind, tuple(depend_on(graph, part, zero) for part in value.values))
    if isinstance(value, Tensor):
        shape = graph.add("Add", graph.add("Shape", value.name), zero)
        return Tensor(graph.add("Reshape", value.name, shape), value.dtype, value.rank)
    kind = number_kind(value)
    if kind is None:
        raise Inexpressible(f"{describe_value(value)} or None")
    operation = "Or" if kind == "bool" else "Add"
    dtype = {"bool": "bool", "int": "int64", "float": "float64"}[kind]
    own_zero = zero if kind == "int" else graph.add("Cast", zero, to=element_type(dtype))
    name = graph.add(operation, name_of(graph, value), own_zero)
    return Number(name, kind, value.bound if isinstance(value, Number) else 2**63)


def test_presence(graph: Graph, value: Value, is_none: bool) -> Value:
    """Return the truth of `value is None`, or of `value is not None` without `is_none`."""
    if not isinstance(value, Maybe):
        return Const((isinstance(value, Const) and value.value is None) == is_none)
    return Number(graph.add("Not", value.present.name), "bool") if is_none else value.present


def join_with_presence(graph: Graph, value: Maybe, truth: Value) -> Value:
    """Return whether a value is not None and `truth`, which is computed from it, holds."""
    if isinstance(truth, Const):
        return value.present if truth.value else Const(False)
    return Number(graph.add("And", value.present.name, name_of(graph, truth)), "bool")


def narrow_names(names: Names, test: ast.expr, holds: bool) -> Names:
    """Return the names on a path where the test of a branch holds, or does not: what may be None,
    and is tested for it, is known to be it or not."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, not holds
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
        for operand in test.values:
            names = narrow_names(names, operand, holds)
    match test:
        case ast.Compare(ast.Name(key), [ast.Is() | ast.IsNot() as op], [ast.Constant(None)]):
            value = names.get(key)
            if isinstance(value, Maybe):
                is_none = isinstance(op, ast.Is) == holds
                return {**names, key: Const(None) if is_none else value.value}
    return names
