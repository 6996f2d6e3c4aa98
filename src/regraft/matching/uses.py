"""The uses of a value: their nodes, the conditions under which they run, and whether they look at
its elements."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from regraft.structure import guards
from regraft.structure.guards import Guard
from regraft.structure.values_and_nodes import MISSING, Node, Value

# Attributes that do not depend on the elements of a tensor: a match may leave other uses of them
# out of account.
METADATA = frozenset({"device", "dtype", "shape", "ndim", "size", "dim"})
# Operations whose result is a new tensor: nothing else holds the tensor, and so nothing else sees
# writes into it.
_ALLOCATING_OPS = frozenset(
    {"matmul", "bmm", "baddbmm", "add", "sub", "mul", "div", "softmax", "linear", "zeros_like"}
)


def is_branching(phi: Value) -> bool:
    """Return whether a φ joins branches of conditions, rather than the steps of a loop or the ends
    of a `try`."""
    return bool(phi.options) and all(
        atom.time for guard, _ in phi.options for atom in guards.atoms(guard)
    )


def uses(value: Value) -> Iterator[tuple[Guard, Node]]:
    """Yield the nodes that may take the value, directly or through φ values, each with the
    condition of that."""
    yield from ((use.guard, use) for use in value.uses)
    visited = {value}
    pending: list[tuple[Guard, Value]] = [(guards.TRUE, value)]
    while pending:
        guard, current = pending.pop()
        for phi in current.joins:
            if phi in visited:
                continue
            visited.add(phi)
            if not is_branching(phi):  # in another step of a loop
                yield from ((guards.TRUE, use) for use in phi.every_use())
                continue
            conditions = [condition for condition, option in phi.options if option is current]
            for condition in conditions or [guards.TRUE]:
                chosen = guards.conjoin(guard, condition)
                yield from ((guards.conjoin(chosen, use.guard), use) for use in phi.uses)
                pending.append((chosen, phi))


def uses_under(guard: Guard, value: Value) -> tuple[Node, ...]:
    """Return the nodes that may take the value where the guard holds."""
    users = (
        use
        for condition, use in uses(value)
        if guards.satisfiable(guards.conjoin(guard, condition))
    )
    return tuple(dict.fromkeys(users))


def is_metadata(use: Node) -> bool:
    """Return whether a node reads only what does not depend on the elements: device, dtype,
    shape."""
    if use.op == "py.attr":
        return use.spelling in METADATA
    if use.op == "py.tuple" and use.inner is not None and not use.output.every_use():
        return True  # what an inlined function returned, taken apart where it was called
    return use.op == "call" and use.spelling.rpartition(".")[2] in METADATA


def only_reads_shapes(use: Node, matched: Collection[Node]) -> bool:
    """Return whether a node reads the shape (or dtype, device) of an inner value for matched nodes
    alone.

    Of several reads in an inlined call only the first has uses; the others vanish together with the
    call.
    """
    if not is_metadata(use):
        return False
    readers = use.output.every_use()
    is_inlined_with_match = use.inner is not None and any(node.expr is use.expr for node in matched)
    return all(reader in matched for reader in readers) if readers else is_inlined_with_match


def is_size(node: Node) -> bool:
    """Return whether a node reads a size of a shape, or computes a number from such sizes and
    constants alone: other code may use it beside a match, which leaves it in place."""
    if node.op == "py.item":
        attribute = node.args["base"].attribute()
        return attribute is not None and attribute[1] == "shape" and node.output.kind == "int"
    return node.op == "py.binary" and all(
        value.const is not MISSING or (value.node is not None and is_size(value.node))
        for value in node.args.values()
    )


def needs_nothing(use: Node) -> bool:
    """Return whether a node only binds a part of an unpacked tuple to a name that nothing reads, as
    `_` in `values, _ = x.sort()`."""
    is_name = use.op == "py.item" and isinstance(use.expr, ast.Name)
    return is_name and not use.output.every_use()


def writes_privately(node: Node) -> bool:
    """Return whether an in-place operation writes into a new tensor that nothing else but reads of
    its shape and the like uses."""
    target = node.args.get("input")
    if (
        target is None
        or target.node is None
        or target.node.op not in _ALLOCATING_OPS
        or target.joins
    ):
        return False
    return all(use is node or is_metadata(use) for use in target.uses)
