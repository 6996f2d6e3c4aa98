"""The number of dimensions of tensors, as far as the source tells."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from regraft.structure.model import MISSING, Value

# Operations whose result has as many dimensions as their first operand.
_KEEPING = frozenset({
    "abs", "clamp", "clone", "contiguous", "cos", "cumsum", "detach", "dropout", "elu", "exp", "gelu", "layer_norm",
    "leaky_relu", "linear", "log", "log_softmax", "neg", "normalize", "pad", "relu", "rms_norm", "rsqrt", "sigmoid",
    "silu", "sin", "softmax", "softplus", "sqrt", "tanh", "to", "transpose", "tril", "triu",
})  # fmt: skip
# Operations whose result has as many dimensions as the operand with the most.
_BROADCASTING = frozenset({"add", "sub", "mul", "div", "maximum", "minimum", "matmul"})
_SHAPED = {"view": "size", "reshape": "shape", "permute": "dims", "expand": "size", "repeat": "repeats"}
MAX_STEPS = 200


@dataclass(frozen=True, slots=True)
class Rank:
    """A number of dimensions; `certain` unless it is that of some branches only."""

    number: int
    certain: bool = True


def rank(value: Value) -> Rank | None:
    """How many dimensions a tensor has; None where the source does not say."""
    return _rank(value, [MAX_STEPS])


def _rank(value: Value, budget: list[int]) -> Rank | None:
    budget[0] -= 1
    if budget[0] < 0:
        return None
    if value.origin == "phi":
        known = [_rank(option, budget) for _, option in value.options]
        numbers = {one.number for one in known if one is not None}
        certain = bool(value.options) and all(one is not None and one.certain for one in known)
        return Rank(numbers.pop(), certain) if len(numbers) == 1 else None
    node = value.node
    if node is None:
        return None
    args = node.args
    if node.op in _SHAPED:
        size = args.get(_SHAPED[node.op])
        written = size is not None and size.items is not None and size.node is not None
        if size is None or not written or isinstance(size.node.expr if size.node else None, ast.List):
            return None  # a list may be changed before it is used
        return Rank(len(size.items or ()))
    if node.op == "einsum" or (node.op == "call" and node.spelling in ("torch.einsum", "torch.functional.einsum")):
        equation = args.get("equation", args.get("0"))
        text = equation.const if equation is not None else MISSING
        found = re.fullmatch(r"[a-zA-Z, ]*->\s*([a-zA-Z ]*)", text) if isinstance(text, str) else None
        return Rank(len(found[1].replace(" ", ""))) if found else None
    if node.op in _BROADCASTING:
        operands = [_rank(one, budget) for name, one in args.items() if name in ("input", "other")]
        scalar = [one for name, one in args.items() if name in ("input", "other") and one.kind in ("int", "scalar")]
        known_operands = [one for one in operands if one is not None]
        if not known_operands or (node.op == "matmul" and min(one.number for one in known_operands) < 2):
            return None
        everything = len(known_operands) + len(scalar) == len(operands)
        number = max(one.number for one in known_operands)
        return Rank(number, everything and all(one.certain for one in known_operands))
    first = args.get("input")
    if first is None:
        return None
    inner = _rank(first, budget)
    if inner is None:
        return None
    if node.op in _KEEPING:
        return inner
    return Rank(inner.number + 1, inner.certain) if node.op == "unsqueeze" else None


def same_dimension(tensor: Value, one: object, other: object) -> Rank | None:
    """The number of dimensions of `tensor` for which two dimensions are the same one; None when they are not."""
    if type(one) is not int or type(other) is not int or (one < 0) == (other < 0):
        return None
    found = rank(tensor)
    if found is None or one % found.number != other % found.number or not -found.number <= min(one, other):
        return None
    return found if max(one, other) < found.number else None
