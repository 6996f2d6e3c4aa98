"""Values inside other values: elements of module lists, what loops bind, and what tuples unpack into."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.structure import calls
from regraft.structure.frame import Frame
from regraft.structure.model import Value


def element(frame: Frame, container: Value, expr: ast.AST) -> Value:
    """One module of a `ModuleList`: known when all its modules are of one type."""
    items = tuple(item for layer in container.layers for item in layer.items)
    value = frame.node("py.item", {"base": container}, expr, "module").output
    if items and len({item.type for item in items}) == 1:
        value.layers = items[:1]
    return value


def loop_element(frame: Frame, source: Value, expr: ast.AST) -> Value:
    """What a loop over `source` binds at each step."""
    if source.layers and source.layers[0].type in calls.CONTAINERS:
        return element(frame, source, expr)
    kind = "tensor" if source.kind == "tensor" else "unknown"
    enumerated = source.node
    value = frame.node("py.next", {"source": source}, expr, kind).output  # type: ignore[arg-type]
    if enumerated is not None and enumerated.op == "py.call" and enumerated.spelling == "enumerate":
        value.items = (frame.value("unknown", "int"), loop_element(frame, enumerated.args["0"], expr))
    elif enumerated is not None and enumerated.op == "py.call" and enumerated.spelling == "zip":
        value.items = tuple(loop_element(frame, one, expr) for one in enumerated.args.values())
    elif enumerated is not None and enumerated.op == "py.call" and enumerated.spelling == "range":
        value.kind = "int"
    return value


def unpack(frame: Frame, target: ast.expr, value: Value) -> Iterator[tuple[ast.expr, Value]]:
    """The names, attributes and subscripts inside a target, each with the part of the value that it gets."""
    if isinstance(target, ast.Starred):
        yield from unpack(frame, target.value, frame.node("py.item", {"base": value}, target, "tuple").output)
    elif isinstance(target, ast.Tuple | ast.List):
        for one, part in zip(target.elts, _parts(frame, target, value), strict=True):
            yield from unpack(frame, one, part)
    else:
        yield target, value


def _parts(frame: Frame, target: ast.Tuple | ast.List, value: Value) -> tuple[Value, ...]:
    starred = any(isinstance(one, ast.Starred) for one in target.elts)
    if value.items is not None and len(value.items) == len(target.elts) and not starred:
        return value.items
    kind = "int" if value.kind == "tuple" and value.attribute() is not None else "unknown"
    kind = "tensor" if value.node is not None and value.node.op in ("split", "chunk", "unbind") else kind
    parts = tuple(
        frame.node("py.item", {"base": value, **_index(frame, number, starred)}, one, kind).output  # type: ignore[arg-type]
        for number, one in enumerate(target.elts)
    )
    value.items = None if starred else parts
    return parts


def _index(frame: Frame, number: int, starred: bool) -> dict[str, Value]:
    """Which part a target takes; not known beside a starred one."""
    return {} if starred else {"index": frame.constant(number)}
