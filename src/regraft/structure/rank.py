"""The number of dimensions of tensors, as far as it follows from the source."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from regraft.structure.values_and_nodes import Node, Value

# Operations whose result has as many dimensions as their first operand.
_KEEPING = frozenset(
    {
        "abs",
        "clamp",
        "clone",
        "contiguous",
        "cos",
        "cumsum",
        "detach",
        "dropout",
        "elu",
        "exp",
        "gelu",
        "layer_norm",
        "leaky_relu",
        "linear",
        "log",
        "log_softmax",
        "neg",
        "normalize",
        "pad",
        "relu",
        "rms_norm",
        "rsqrt",
        "sigmoid",
        "silu",
        "sin",
        "softmax",
        "softplus",
        "sqrt",
        "tanh",
        "to",
        "transpose",
        "tril",
        "triu",
    }
)
# Operations whose result has as many dimensions as the operand with the most.
_BROADCASTING = frozenset({"add", "sub", "mul", "div", "maximum", "minimum", "matmul"})
# Operations whose result has as many dimensions as a tuple argument has elements, with its name.
_SHAPED = {
    "view": "size",
    "reshape": "shape",
    "permute": "dims",
    "expand": "size",
    "repeat": "repeats",
}
# Operations whose result has more dimensions than their first operand, with the difference.
_ADDED_DIMENSIONS = {**dict.fromkeys(_KEEPING, 0), "unsqueeze": 1}
# Operations with operands of at least as many dimensions; vectors follow other rules.
_LEAST_DIMENSIONS = {"matmul": 2}
# Products of batches of matrices, which take and give three dimensions.
_BATCHED_PRODUCTS = frozenset({"torch.bmm", "torch.Tensor.bmm"})
_EINSUM_CALLS = ("torch.einsum", "torch.functional.einsum")
_EINSUM_RESULT = re.compile(r"[a-zA-Z, ]*->\s*([a-zA-Z ]*)")
_NUMBERS = ("int", "scalar")  # kinds of values without dimensions
MAX_STEPS = 200


@dataclass(frozen=True, slots=True)
class Rank:
    """A number of dimensions; `certain` is False when only some of the branches have it."""

    number: int
    certain: bool = True


def rank(value: Value) -> Rank | None:
    """Return the number of dimensions of a tensor; None when it does not follow from the source."""
    return _rank(value, [MAX_STEPS])


def _rank(value: Value, budget: list[int]) -> Rank | None:
    """Return the number of dimensions of a value; None when unknown or when the budget of steps is
    used up."""
    budget[0] -= 1
    if budget[0] < 0:
        return None
    if value.origin == "phi":
        return _phi_rank(value, budget)
    node = value.node
    if node is None or _is_of_container(node):
        return None
    if node.op in _SHAPED:
        return _shape_rank(node.args.get(_SHAPED[node.op]))
    if node.op == "einsum" or (node.op == "call" and node.spelling in _EINSUM_CALLS):
        return _einsum_rank(node)
    if node.op == "cat":
        return _cat_rank(node, budget)
    if node.op == "baddbmm" or node.spelling in _BATCHED_PRODUCTS:
        return Rank(3)
    if node.op in _BROADCASTING:
        return _broadcast_rank(node, budget)
    return _elementwise_rank(node, budget)


def _is_of_container(node: Node) -> bool:
    """Return whether a module of a `Sequential` or a list computes a node: containers may get other
    modules in more ways than are followed."""
    layer = node.layer
    is_element = layer is not None and layer.node is not None and layer.node.op == "py.item"
    return node.member or is_element


def _phi_rank(phi: Value, budget: list[int]) -> Rank | None:
    """Return the rank of the options of a φ that have one; None where they have none or differ."""
    ranks = [_rank(option, budget) for _, option in phi.options]
    numbers = {rank.number for rank in ranks if rank is not None}
    if len(numbers) != 1:
        return None
    return Rank(numbers.pop(), all(rank is not None and rank.certain for rank in ranks))


def _shape_rank(shape: Value | None) -> Rank | None:
    """Return the rank of a tensor of this shape; None unless the source shows it as a tuple."""
    if shape is None or shape.items is None or shape.node is None:
        return None
    if isinstance(shape.node.expr, ast.List):
        return None  # a list may change before its use
    return Rank(len(shape.items))


def _einsum_rank(node: Node) -> Rank | None:
    """Return the rank of the result of `einsum`; None where its equation is no constant."""
    equation = node.args.get("equation", node.args.get("0"))
    if equation is None or not isinstance(equation.const, str):
        return None
    match = _EINSUM_RESULT.fullmatch(equation.const)
    return Rank(len(match[1].replace(" ", ""))) if match else None


def _cat_rank(node: Node, budget: list[int]) -> Rank | None:
    """Return the rank of the parts that a `cat` joins; None where they are no display of tensors
    in the call, where no rank of theirs is known, or where they differ. A vector among them may be
    empty, and is then left out whatever the others are."""
    parts = node.args.get("tensors")
    if parts is None or parts.items is None or parts.node is None or node.expr is None:
        return None
    is_variable = all(part is not parts.node.expr for part in ast.walk(node.expr))
    if is_variable and isinstance(parts.node.expr, ast.List):
        return None  # a list may change before its use
    ranks = [part_rank for part in parts.items if (part_rank := _rank(part, budget)) is not None]
    numbers = {part_rank.number for part_rank in ranks}
    if len(numbers) != 1 or numbers == {1}:
        return None
    return Rank(numbers.pop(), any(part_rank.certain for part_rank in ranks))


def _broadcast_rank(node: Node, budget: list[int]) -> Rank | None:
    """Return the greatest rank of the operands; it is certain if each operand has a certain rank or
    is a number."""
    operands = [value for name, value in node.args.items() if name in ("input", "other")]
    ranks = [_rank(operand, budget) for operand in operands]
    tensor_ranks = [rank for rank in ranks if rank is not None]
    least = _LEAST_DIMENSIONS.get(node.op, 0)
    if not tensor_ranks or min(rank.number for rank in tensor_ranks) < least:
        return None
    number_count = sum(operand.kind in _NUMBERS for operand in operands)
    is_complete = len(tensor_ranks) + number_count == len(operands)
    certain = is_complete and all(rank.certain for rank in tensor_ranks)
    return Rank(max(rank.number for rank in tensor_ranks), certain)


def _elementwise_rank(node: Node, budget: list[int]) -> Rank | None:
    """Return the rank of the first operand with the dimensions that the operation adds; None for
    other operations."""
    first = node.args.get("input")
    if first is None or node.op not in _ADDED_DIMENSIONS:
        return None
    operand_rank = _rank(first, budget)
    if operand_rank is None:
        return None
    return Rank(operand_rank.number + _ADDED_DIMENSIONS[node.op], operand_rank.certain)


def same_dimension(tensor: Value, first: object, second: object) -> Rank | None:
    """Return the rank of `tensor` if a dimension counted from the start and one counted from the
    end are the same.

    The result is None when they differ, when both are counted from one side, or when the rank is
    unknown.
    """
    if type(first) is not int or type(second) is not int or (first < 0) == (second < 0):
        return None
    tensor_rank = rank(tensor)
    if (
        tensor_rank is None
        or tensor_rank.number == 0
        or first % tensor_rank.number != second % tensor_rank.number
        or not -tensor_rank.number <= min(first, second)
    ):
        return None
    return tensor_rank if max(first, second) < tensor_rank.number else None


def exchanges_last_dimensions(node: Node) -> bool:
    """Return whether a node gives its input with the last two dimensions in the other order, as far
    as constants of the source and the rank say."""
    if node.op == "py.attr":
        return node.spelling == "mT"
    if node.op == "transpose":
        return _are_last_dimensions(node)
    if node.op == "permute":
        dims = node.args["dims"].items or ()
        order = [dim.const for dim in dims]
        count = len(order)
        return count > 1 and order == [*range(count - 2), count - 1, count - 2]
    return node.spelling == "einops.rearrange" and _exchanges_last_names(node.args.get("1"))


def _are_last_dimensions(transpose: Node) -> bool:
    """Return whether a `transpose` is of the last two dimensions; counted from the start they have
    to be, without a known rank, two dimensions after the first."""
    first, second = (transpose.args[name].const for name in ("dim0", "dim1"))
    if not isinstance(first, int) or not isinstance(second, int):
        return False
    dims = {first, second}
    if min(dims) < 0:
        return dims == {-1, -2}
    tensor_rank = rank(transpose.args["input"])
    last = tensor_rank.number - 1 if tensor_rank is not None else max(2, *dims)
    return dims == {last, last - 1}


def _exchanges_last_names(pattern: Value | None) -> bool:
    """Return whether a pattern of einops, such as "b i j -> b j i", exchanges the last two
    names."""
    if pattern is None or not isinstance(pattern.const, str):
        return False
    left, _, right = (side.split() for side in pattern.const.partition("->"))
    return len(left) > 1 and right == [*left[:-2], left[-1], left[-2]]
