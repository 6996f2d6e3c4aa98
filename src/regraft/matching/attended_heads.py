"""The condition of rules that postpone the repetition of heads of keys and values: who uses the
repeated heads besides attention."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.matching.enlarged_parts import may_change, tensor_origins
from regraft.matching.uses import is_metadata
from regraft.structure import guards
from regraft.structure.calls import own_op
from regraft.structure.values_and_nodes import Body, Node, Value

_ATTENTION = "scaled_dot_product_attention"
_OWN = frozenset({"regraft.ops.repeated_heads", "regraft.ops.expanded_heads"})
_PAUSES = (ast.Yield, ast.YieldFrom, ast.Await)
# operations that may share memory with their input, and so may be changed with it
_VIEWS = frozenset({"transpose", "permute", "view", "reshape", "unsqueeze", "squeeze", "to"})


def postponing_objection(heads: Value, bodies: tuple[Body, ...]) -> str:
    """Return why the repetition of `heads` must not be postponed; "" where it may: each use is
    attention that takes them as its key or value, or an operation of PyTorch in a branch, nothing
    changes them before, and the other of key and value is made of repeated heads, too.

    bodies: the functions of the class, in which uses are looked up.
    """
    reason = _use_objection(heads, bodies)
    if reason:
        return reason
    calls = [use for use, value in _uses(heads) if _is_attended(use, value)]
    for call in calls:
        for name in ("key", "value"):
            sources = _repeated_sources(call.args[name])
            if not sources:
                return f"is beside a {name} whose heads are not repeated"
            for source in sources:
                if source is not heads and _use_objection(source, bodies):
                    return f"is beside a {name} that {_use_objection(source, bodies)}"
    return ""


def _use_objection(heads: Value, bodies: tuple[Body, ...]) -> str:
    """Return why the uses of `heads` alone, without those of the value beside them, forbid to
    postpone the repetition; "" where they allow it, and for heads that are postponed already."""
    if heads.node is not None and heads.node.op == "call":
        return ""  # they are postponed already
    uses = tuple(_uses(heads))
    if not any(_is_attended(use, value) for use, value in uses):
        return f"is not the key or value of {_ATTENTION}"
    for use, value in uses:
        if not _is_allowed(use, value, heads):
            return f"is also used at line {_line(use)}"
    if _is_exposed(heads, [use for use, _ in uses], bodies):
        return "may be changed in place before attention reads it"
    return ""


def _repeated_sources(value: Value) -> list[Value]:
    """Return the values of repeated heads that `value`, a key or value of attention, is in some
    branch, directly or transposed."""
    sources: list[Value] = []
    pending, visited = list(value.alternatives()), set(value.alternatives())
    while pending:
        current = pending.pop()
        node = current.node
        if node is None:
            continue
        if _repeats(node):
            sources.append(current)
        elif node.op == "transpose":
            options = node.args["input"].alternatives()
            pending += [option for option in options if option not in visited]
            visited.update(options)
    return sources


def _repeats(node: Node) -> bool:
    """Return whether a node repeats heads: `repeat_interleave`, a reshape of what is expanded, or
    the op of Regraft."""
    if node.op in ("reshape", "flatten"):
        source = node.args["input"].node
        return source is not None and source.op == "expand"
    is_own = node.op == "call" and own_op(node.spelling) in _OWN
    return is_own or node.op == "repeat_interleave"


def _uses(heads: Value) -> Iterator[tuple[Node, Value]]:
    """Yield the nodes that use repeated heads or views of them, each with the value it uses."""
    pending, visited = [heads], {heads}
    while pending:
        value = pending.pop()
        for use in value.every_use():
            yield use, value
            if use.op in _VIEWS and use.output not in visited:
                visited.add(use.output)
                pending.append(use.output)


def _is_attended(use: Node, value: Value) -> bool:
    """Return whether a node is attention of which a value is the key or the value."""
    return use.op == _ATTENTION and any(
        name in use.args and value in (use.args[name], *use.args[name].alternatives())
        for name in ("key", "value")
    )


def _is_allowed(use: Node, value: Value, heads: Value) -> bool:
    """Return whether repeated heads may be postponed in spite of a use: attention, the shape, an
    exchange of dimensions, or an operation of PyTorch in a branch, which computes the elements."""
    if use.op == _ATTENTION:
        return _is_attended(use, value) and use.args["query"] is not value
    if is_metadata(use) or use.op == "transpose":
        return True
    if use.op == "call" or use.op.startswith("py.") or use.op.endswith("_") or use.effect:
        return False
    node = heads.node
    return node is not None and not guards.implies(node.guard, use.guard)


def _is_exposed(heads: Value, uses: list[Node], bodies: tuple[Body, ...]) -> bool:
    """Return whether something that may share memory with the heads or with what they repeat may be
    changed in place between the repetition and a use, or a use is in another loop."""
    node = heads.node
    if node is None or any(use.loop != node.loop for use in uses):
        return True
    body = next((body for body in bodies if node in body.nodes), None)
    if body is None or any(isinstance(inner, _PAUSES) for inner in ast.walk(body.node)):
        return True  # other code may run in between
    last, origins = max(use.time for use in uses), tensor_origins(node)
    return any(node.time < other.time < last and may_change(other, origins) for other in body.nodes)


def _line(node: Node) -> int:
    """Return the line of a node."""
    line: int = getattr(node.expr, "lineno", node.statement.node.lineno)
    return line
