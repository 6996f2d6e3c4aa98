"""Lowering of values inside other values: elements of module lists, loop targets and the parts of
tuples."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.structure import calls
from regraft.structure.frame import Frame
from regraft.structure.model import Value


def element(frame: Frame, container: Value, expr: ast.AST) -> Value:
    """Return one module of a `ModuleList`; its type is known when all modules have the same
    type."""
    modules = tuple(module for layer in container.layers for module in layer.items)
    value = frame.node("py.item", {"base": container}, expr, "module").output
    if modules and len({module.type for module in modules}) == 1:
        value.layers = modules[:1]
    return value


def loop_element(frame: Frame, source: Value, expr: ast.AST) -> Value:
    """Return the value that a loop over `source` binds at each step."""
    if source.layers and source.layers[0].type in calls.CONTAINERS:
        return element(frame, source, expr)
    kind = "tensor" if source.kind == "tensor" else "unknown"
    call = source.node
    value = frame.node("py.next", {"source": source}, expr, kind).output  # type: ignore[arg-type]
    if call is not None and call.op == "py.call" and call.spelling == "enumerate":
        value.items = (frame.value("unknown", "int"), loop_element(frame, call.args["0"], expr))
    elif call is not None and call.op == "py.call" and call.spelling == "zip":
        value.items = tuple(loop_element(frame, iterable, expr) for iterable in call.args.values())
    elif call is not None and call.op == "py.call" and call.spelling == "range":
        value.kind = "int"
    return value


def unpack(frame: Frame, target: ast.expr, value: Value) -> Iterator[tuple[ast.expr, Value]]:
    """Yield the names, attributes and subscripts inside an assignment target, each with its part of
    the value."""
    if isinstance(target, ast.Starred):
        yield from unpack(
            frame, target.value, frame.node("py.item", {"base": value}, target, "tuple").output
        )
    elif isinstance(target, ast.Tuple | ast.List):
        for inner_target, part in zip(target.elts, _parts(frame, target, value), strict=True):
            yield from unpack(frame, inner_target, part)
    else:
        yield target, value


def _parts(frame: Frame, target: ast.Tuple | ast.List, value: Value) -> tuple[Value, ...]:
    """Return one value for each element of a target, which become the `items` of `value` unless one
    is starred."""
    has_star = any(isinstance(element, ast.Starred) for element in target.elts)
    if value.items is not None and len(value.items) == len(target.elts) and not has_star:
        return value.items
    kind = "int" if value.kind == "tuple" and value.attribute() is not None else "unknown"
    kind = (
        "tensor"
        if value.node is not None and value.node.op in ("split", "chunk", "unbind")
        else kind
    )
    parts = tuple(
        frame.node(
            "py.item",
            {"base": value, **_index(frame, number, has_star)},
            element,
            kind,  # type: ignore[arg-type]
        ).output
        for number, element in enumerate(target.elts)
    )
    value.items = None if has_star else parts
    return parts


def _index(frame: Frame, number: int, has_star: bool) -> dict[str, Value]:
    """Return the `index` argument of a part; there is none beside a starred target, as the index is
    unknown."""
    return {} if has_star else {"index": frame.constant(number)}
