"""The number of dimensions of tensors, as far as it follows from the source."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from regraft.structure.model import MISSING, Value

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
_SHAPED = {
    "view": "size",
    "reshape": "shape",
    "permute": "dims",
    "expand": "size",
    "repeat": "repeats",
}
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
        option_ranks = [_rank(option, budget) for _, option in value.options]
        numbers = {option_rank.number for option_rank in option_ranks if option_rank is not None}
        certain = bool(value.options) and all(
            option_rank is not None and option_rank.certain for option_rank in option_ranks
        )
        return Rank(numbers.pop(), certain) if len(numbers) == 1 else None
    node = value.node
    if node is None:
        return None
    args = node.args
    if node.op in _SHAPED:
        size = args.get(_SHAPED[node.op])
        has_items = size is not None and size.items is not None and size.node is not None
        if (
            size is None
            or not has_items
            or isinstance(size.node.expr if size.node else None, ast.List)
        ):
            return None  # a list may change before its use
        return Rank(len(size.items or ()))
    if node.op == "einsum" or (
        node.op == "call" and node.spelling in ("torch.einsum", "torch.functional.einsum")
    ):
        equation = args.get("equation", args.get("0"))
        text = equation.const if equation is not None else MISSING
        match = (
            re.fullmatch(r"[a-zA-Z, ]*->\s*([a-zA-Z ]*)", text) if isinstance(text, str) else None
        )
        return Rank(len(match[1].replace(" ", ""))) if match else None
    if node.op in _BROADCASTING:
        ranks = [
            _rank(operand, budget) for name, operand in args.items() if name in ("input", "other")
        ]
        scalars = [
            operand
            for name, operand in args.items()
            if name in ("input", "other") and operand.kind in ("int", "scalar")
        ]
        known_ranks = [operand_rank for operand_rank in ranks if operand_rank is not None]
        if not known_ranks or (
            node.op == "matmul" and min(operand_rank.number for operand_rank in known_ranks) < 2
        ):
            return None
        is_complete = len(known_ranks) + len(scalars) == len(ranks)
        number = max(operand_rank.number for operand_rank in known_ranks)
        return Rank(
            number, is_complete and all(operand_rank.certain for operand_rank in known_ranks)
        )
    first = args.get("input")
    if first is None:
        return None
    input_rank = _rank(first, budget)
    if input_rank is None:
        return None
    if node.op in _KEEPING:
        return input_rank
    return Rank(input_rank.number + 1, input_rank.certain) if node.op == "unsqueeze" else None


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
