"""Lists that a function builds step by step: the values that they may contain, such as modules for
a `Sequential`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regraft.structure.lowering_state import Frame
from regraft.structure.values_and_nodes import Node, Value

# Methods that add elements to a list.
CHANGES = frozenset({"append", "extend", "insert"})
# Built-in functions whose result has the elements of their argument.
_COPIES = frozenset({"list", "tuple"})


def record_elements(frame: Frame, method: Value, arguments: Sequence[Value]) -> None:
    """Record what `append`, `insert` or `extend` adds to a list; `method` is the value of
    `modules.append`."""
    attribute = method.attribute()
    if attribute is None or attribute[0].kind != "tuple" or not arguments:
        return
    modules, name = attribute
    added = elements(frame, arguments[0]) if name == "extend" else arguments[-1:]
    frame.added.setdefault(modules, []).extend(added)


def elements(frame: Frame, source: Value) -> tuple[Value, ...]:
    """Return the values that a list or tuple may contain, in the order in which the function
    computes them.

    A part of it of which nothing is known, such as the result of a call, stands for its elements.
    """
    members: dict[Value, None] = {}
    visited: set[Value] = set()
    pending = [source]
    while pending:
        value = pending.pop()
        if value in visited:
            continue
        visited.add(value)
        members.update(dict.fromkeys(frame.added.get(value, ())))
        if value.items is not None:
            members.update(dict.fromkeys(value.items))
            continue
        parts = [option for _, option in value.options]
        if value.node is not None:
            parts += _parts(value.node)
            members.update(dict.fromkeys(_unstarred(value.node)))
        pending += parts
        if not parts:
            members[value] = None
    return tuple(sorted(members, key=lambda value: value.id))


def _parts(node: Node) -> Iterator[Value]:
    """Yield the lists whose elements are those of a sum, a copy, a slice or a display with
    stars."""
    if node.op == "py.binary" or (node.op == "py.call" and node.spelling in _COPIES):
        yield from node.args.values()
    elif node.op == "py.item":
        index = node.args.get("index")
        if index is not None and index.node is not None and index.node.op == "py.slice":
            yield node.args["base"]
    elif node.op == "py.tuple":
        for value in node.args.values():
            if _is_starred(value):
                assert value.node is not None
                yield value.node.args["0"]


def _unstarred(node: Node) -> Iterator[Value]:
    """Yield the elements of a display without a star."""
    if node.op == "py.tuple":
        yield from (value for value in node.args.values() if not _is_starred(value))


def _is_starred(value: Value) -> bool:
    """Return whether a value stands for the elements of another one (`*modules`)."""
    return value.node is not None and value.node.op == "py.star"
