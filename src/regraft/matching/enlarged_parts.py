"""Conditions of rules on concatenated tensors: whether a part is an enlarged copy of another
tensor, and whether the concatenation alone uses it, unchanged."""

from __future__ import annotations

from regraft.matching.shared_memory_of_tensors import freshly_written_values
from regraft.structure.calls import own_op, writes
from regraft.structure.rank import rank
from regraft.structure.values_and_nodes import MISSING, Body, Node, Value

# Operations that enlarge a tensor by copies of its rows.
_ENLARGING = frozenset({"expand", "expand_as", "repeat", "repeat_interleave", "index_select"})
_NUMBERS = ("int", "scalar", "bool", "none", "str")


def is_enlarged(value: Value) -> bool:
    """Return whether an operation of the function makes a value of copies of another tensor's
    rows."""
    node = value.node
    if node is None or value.origin == "phi":
        return False
    if node.op == "view":
        wide = node.args["input"].node
        return wide is not None and wide.op == "repeat"
    return node.op in _ENLARGING or (node.op == "py.item" and _may_read_rows(node))


def _may_read_rows(item: Node) -> bool:
    """Return whether a subscript may read rows that a tensor of integers names: the index is no
    constant, no number and no slice, nor a tuple other than `index, :`."""
    index, base = item.args.get("index"), item.args["base"]
    if index is None or base.items is not None or base.layers or base.kind in ("tuple", "int"):
        return False
    if index.items is not None and len(index.items) == 2 and _is_slice(index.items[1]):
        index = index.items[0]
    if index.const is not MISSING or index.items is not None or index.kind in _NUMBERS:
        return False
    # the comparison of tensors gives a mask
    made_by = "" if index.node is None else index.node.op
    return made_by not in ("py.slice", "py.compare", "py.next", "py.tuple")


def _is_slice(value: Value) -> bool:
    """Return whether a value is a slice."""
    return value.node is not None and value.node.op == "py.slice"


def may_be_last_dimension(parts: tuple[Value, ...], dim: object) -> bool:
    """Return whether a dimension may be the last one of all parts, as far as the source shows how
    many these have."""
    if type(dim) is not int:
        return False
    ranks = [part_rank.number for part in parts if (part_rank := rank(part)) is not None]
    return dim == -1 or (dim > 0 and all(dim == number - 1 for number in ranks))


def is_part_of(value: Value, op: str) -> bool:
    """Return whether a value is used once: as a part of the list that is the first argument of a
    call of an op of Regraft."""
    uses = value.every_use()
    if len(uses) != 1 or uses[0].op != "py.tuple" or value.joins:
        return False
    calls = uses[0].output.every_use()
    return (
        len(calls) == 1
        and not uses[0].output.joins
        and calls[0].op == "call"
        and own_op(calls[0].spelling) == op
        and calls[0].args.get("0") is uses[0].output
        and calls[0].loop == uses[0].loop
    )


def is_exposed(part: Value, bodies: tuple[Body, ...]) -> bool:
    """Return whether something may be changed in place between a part and the call that takes it,
    or the call is in a loop that the part is not in."""
    call = part.every_use()[0].output.every_use()[0]
    node = part.node
    if node is None or node.loop != call.loop:
        return True
    body = next((body for body in bodies if node in body.nodes), None)
    if body is None:
        return True
    origins = tensor_origins(node)
    return any(
        node.time < other.time < call.time and may_change(other, origins) for other in body.nodes
    )


def tensor_origins(node: Node) -> set[Value]:
    """Return the tensor that a node enlarges, and those that it may be a view of: the first
    argument of the operation that makes it, and so on."""
    origins: set[Value] = set()
    pending = [next(iter(node.args.values()))]
    while pending:
        value = pending.pop()
        if value not in origins:
            origins.add(value)
            pending += [option for _, option in value.options]
            if value.node is not None and value.node.op != "call":
                pending += list(value.node.args.values())[:1]
    return origins


def may_change(node: Node, origins: set[Value]) -> bool:
    """Return whether a node may change one of several tensors: it works in place, other than on a
    new tensor, assigns `data`, writes a result into `out`, or is an unknown call that is given one
    of them, or by which a method may change an attribute of the instance."""
    if writes(node):
        fresh = freshly_written_values(node)
        return not fresh or not fresh.isdisjoint(origins)
    if node.op == "py.store":
        return node.spelling.rpartition(".")[2] == "data"
    if "out" in node.args or not node.effect:
        return "out" in node.args
    arguments = set(node.args.values())
    arguments.update(element for value in node.args.values() for element in value.items or ())
    return not origins.isdisjoint(arguments) or any(value.origin == "path" for value in origins)
