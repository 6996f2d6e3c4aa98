"""Who uses a value, under which condition, and whether the use looks at its elements."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from regraft.structure import guards
from regraft.structure.guards import Guard
from regraft.structure.model import Node, Value

# What the kernel need not see: the attributes of an inner value that do not depend on its elements.
METADATA = frozenset({"device", "dtype", "shape", "ndim", "size", "dim"})
# Operations that make a tensor of their own: writing into it is seen by nobody else.
_FRESH = frozenset({"matmul", "bmm", "baddbmm", "add", "sub", "mul", "div", "softmax", "linear"})


def is_branching(phi: Value) -> bool:
    """Whether a φ joins branches of conditions, and not the steps of a loop or the ends of a `try`."""
    return bool(phi.options) and all(one.time for guard, _ in phi.options for one in guards.atoms(guard))


def uses(value: Value) -> Iterator[tuple[Guard, Node]]:
    """Nodes that may take the value, directly or through φ values, each with the condition under which it does."""
    yield from ((use.guard, use) for use in value.uses)
    seen = {value}
    pending: list[tuple[Guard, Value]] = [(guards.TRUE, value)]
    while pending:
        guard, one = pending.pop()
        for phi in one.joins:
            if phi in seen:
                continue
            seen.add(phi)
            if not is_branching(phi):
                yield from ((guards.TRUE, use) for use in phi.every_use())  # in another step of a loop
                continue
            for condition in [condition for condition, option in phi.options if option is one] or [guards.TRUE]:
                chosen = guards.conjoin(guard, condition)
                yield from ((guards.conjoin(chosen, use.guard), use) for use in phi.uses)
                pending.append((chosen, phi))


def uses_under(guard: Guard, value: Value) -> tuple[Node, ...]:
    """Nodes that may take the value where the guard holds."""
    found = (use for condition, use in uses(value) if guards.satisfiable(guards.conjoin(guard, condition)))
    return tuple(dict.fromkeys(found))


def is_metadata(use: Node) -> bool:
    """Whether a node reads only what does not depend on the elements: device, dtype, shape."""
    if use.op == "py.attr":
        return use.spelling in METADATA
    if use.op == "py.tuple" and use.inner is not None and not use.output.every_use():
        return True  # what an inlined function returned, taken apart where it was called
    return use.op == "call" and use.spelling.rpartition(".")[2] in METADATA


def only_shapes(use: Node, matched: Collection[Node]) -> bool:
    """Whether a node reads the shape (or dtype, device) of an inner value for matched nodes alone.

    Of several reads only the first has uses; the others go with the call that they are inlined from.
    """
    if not is_metadata(use):
        return False
    read = use.output.every_use()
    gone = use.inner is not None and any(one.expr is use.expr for one in matched)
    return all(one in matched for one in read) if read else gone


def is_private(node: Node) -> bool:
    """Whether an in-place operation writes into a tensor that only the pattern sees."""
    target = node.args.get("input")
    if target is None or target.node is None or target.node.op not in _FRESH or target.joins:
        return False
    return all(use is node or is_metadata(use) for use in target.uses)
