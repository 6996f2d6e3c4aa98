"""The arguments of nodes beside the operands of a rule: equal values, defaults, orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from regraft.dsl.syntax import Attr, Const, Operand, Var
from regraft.matching.pattern import PatternNode
from regraft.matching.result import Assumes, Condition
from regraft.structure import guards
from regraft.structure.guards import Atom, Guard
from regraft.structure.optable import INTERCHANGEABLE, table
from regraft.structure.rank import same_dimension
from regraft.structure.values_and_nodes import MISSING, Body, Node, Value


def describe_node(node: Node) -> str:
    """Return a name of a node for messages: its layer, its spelling, or its operation."""
    if node.layer is not None and node.layer.name:
        return node.layer.name
    return node.spelling or node.op


def is_same_value(left: Value, right: Value) -> bool:
    """Return whether two values are certainly equal: they are one value, equal constants of one
    type, or one path to a layer or a global."""
    if left is right:
        return True
    if left.const is not MISSING and right.const is not MISSING:
        return type(left.const) is type(right.const) and left.const == right.const
    # other attributes may change between two reads
    fixed_path = left.origin == "path" and left.is_layer
    return (
        left.origin == right.origin
        and (fixed_path or left.origin == "global")
        and left.name == right.name
    )


def is_same_view(left: Value, right: Value, body: Body) -> bool:
    """Return whether two values are the same elements of one value, read twice by constant indices
    (`x[..., 0]`), with nothing between the reads that could change them."""
    first, second = left.node, right.node
    if first is None or second is None or first.op != "py.item" or second.op != "py.item":
        return False
    is_same_place = first.guard == second.guard and first.loop == second.loop
    if not is_same_place or "index" not in first.args or "index" not in second.args:
        return False
    start, end = sorted((first.time, second.time))
    return (
        is_same_value(first.args["base"], second.args["base"])
        and _is_same_index(first.args["index"], second.args["index"])
        and not any(node.effect and start < node.time < end for node in body.nodes)
    )


def _is_same_index(left: Value, right: Value) -> bool:
    """Return whether two indices are the same constants, slices with constant bounds, or tuples of
    these."""
    if left.const is not MISSING or right.const is not MISSING:
        return is_same_value(left, right)
    if left.items is not None and right.items is not None:
        return len(left.items) == len(right.items) and all(
            map(_is_same_index, left.items, right.items)
        )
    first, second = left.node, right.node
    if first is None or second is None or first.op != "py.slice" or second.op != "py.slice":
        return False
    return all(is_same_value(first.args[name], second.args[name]) for name in first.args)


def default_arguments(op: str) -> dict[str, Value]:
    """Return the defaults of an operation's optional parameters, as constant values."""
    signature = table().operation(op).signatures[0]
    return {
        parameter.name: Value(0, "const", const=parameter.default)
        for parameter in signature
        if parameter.optional
    }


def unmentioned_argument(pattern_node: PatternNode, node: Node, args: Mapping[str, Value]) -> str:
    """Return why an argument that the pattern does not mention forbids a match; "" where none does.

    Nothing is dropped silently: such an argument must have its default.
    """
    mentioned = {name for name, _ in pattern_node.args}
    if pattern_node.is_glue:
        return (
            "" if mentioned == args.keys() else f"{describe_node(node)} has another number of parts"
        )
    for name, value in args.items():
        if name in mentioned or name in node.defaults or name.isdigit():
            continue
        default = _default_of(pattern_node.op, name)
        if value.const is MISSING or value.const != default:
            return f"{describe_node(node)} also has {name}"
    return ""


def _default_of(op: str, name: str) -> object:
    """Return the default of an operation's parameter; MISSING where it has none, and for a call of
    a function whose parameters are not known."""
    if op == "call":
        return MISSING
    for signature in table().operation(op).signatures:
        for parameter in signature:
            if parameter.name == name and parameter.optional:
                return parameter.default
    return MISSING


def argument_orders(
    pattern_node: PatternNode, node: Node, args: Mapping[str, Value]
) -> Iterator[Mapping[str, Value]]:
    """Yield the arguments in each form that means the same: operands of commutative operations,
    transposed dims, an element of a sequence counted from its end."""
    yield args
    first, second = INTERCHANGEABLE.get(pattern_node.op, ("", ""))
    if first in args and second in args:
        yield {**args, first: args[second], second: args[first]}
    if pattern_node.op == "py.item":
        index = _index_from_end(node)
        if index is not None:
            yield {**args, "index": index}


def _index_from_end(node: Node) -> Value | None:
    """Return the index of an element, counted from the end, where the node is a name of several
    that a sequence is unpacked into; None elsewhere."""
    parts = node.args["base"].items
    if parts is None or all(part is not node.output for part in parts):
        return None
    return Value(0, "const", "int", const=parts.index(node.output) - len(parts))


def attribute_base(operand: Attr, value: Value) -> Value | None:
    """Return `base` where `value` is the attribute `base.NAME` with the operand's name; None where
    it is not."""
    attribute = value.attribute()
    if attribute is not None and attribute[1] == operand.name:
        return attribute[0]
    return None


def is_outdated(value: Value, user: Node, body: Body) -> bool:
    """Return whether a value that `user` takes is a shape or data type that may have changed since
    it was read."""
    read = value.node
    if read is None or read.op != "py.attr" or read.spelling not in _CHANGING:
        return False
    may_change = _CHANGING[read.spelling]
    changes = (node for node in body.nodes if node.time > read.time and may_change(node))
    return any(node.time < user.time or user.loop != read.loop for node in changes)


# Attributes of a tensor that may change, with the nodes that may change them.
_CHANGING: Mapping[str, Callable[[Node], bool]] = {
    "shape": lambda node: node.may_change_attributes,
    "dtype": lambda node: node.op == "py.store" and node.spelling == "data",
}


def dimension_conditions(
    operand: Operand, name: str, args: Mapping[str, Value]
) -> tuple[Condition, ...] | None:
    """Return the conditions under which an argument is the pattern's dimension counted from the
    other end (`1` for `-1` of a matrix): none where the rank of the tensor is certain, else an
    Assumes. Return None for an argument that is no such dimension."""
    if not name.startswith("dim") or not isinstance(operand, Const) or "input" not in args:
        return None
    input_rank = same_dimension(args["input"], operand.value, args[name].const)
    if input_rank is None:
        return None
    return (
        ()
        if input_rank.certain
        else (Assumes(f"it is not certain that the tensor has {input_rank.number} dimensions"),)
    )


def none_subject(guard: Guard) -> str | None:
    """Return the key of the value that a guard requires not to be None; None for another guard."""
    none_test = guard.operand if isinstance(guard, guards.Not) else None
    return none_test.subject if isinstance(none_test, Atom) and none_test.kind == "none" else None


def is_skipped_on_none(
    pattern_node: PatternNode,
    node: Node,
    bypassing: Value,
    bindings: Mapping[str, Value],
    subject: str,
) -> bool:
    """Return whether `bypassing`, an argument of a node, is the result where the argument with the
    key `subject`, which has to be the only one beside it, is None."""
    names = [
        operand.name
        for name, operand in pattern_node.args
        if isinstance(operand, Var) and name != pattern_node.bypass
    ]
    if [bindings[name].key() for name in names] != [subject]:
        return False
    has_argument = any(argument is bypassing for argument in node.args.values())
    return has_argument and isinstance(dict(pattern_node.args)[pattern_node.bypass], Var)
