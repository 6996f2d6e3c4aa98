"""Values while a network is specialised: each carries what it holds in the example that is followed."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

import torch

Names = dict[str, "Value"]


@dataclass(frozen=True)
class Value:
    """What a name or an expression holds.

    kind: "static" (known now, whatever the input), "host" (a Python value that the host computes) or
    "tensor" (computed by regions). example: its value in the example. code: the expression for it.
    """

    kind: str
    example: Any
    code: ast.expr


def signature(value: Any) -> Any:
    """The type of an example: dtype and shape of tensors, the element types of a list in any number."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, tuple(value.shape))
    if isinstance(value, list):
        return ("list", frozenset(signature(item) for item in value))
    if isinstance(value, tuple):
        return ("tuple", tuple(signature(item) for item in value))
    if isinstance(value, dict):
        return ("dict", tuple((key, signature(item)) for key, item in value.items()))
    return type(value)


def same_type(left: Any, right: Any) -> bool:
    """Whether both fit one variable; an empty list fits every list."""
    if isinstance(left, list) and isinstance(right, list) and not (left and right):
        return True
    return bool(signature(left) == signature(right))


def literal(value: Any) -> ast.expr | None:
    """The source text of a constant that needs no import; None where there is none."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return ast.parse(repr(value), mode="eval").body if finite(value) else None
    if isinstance(value, (tuple, list)):
        items = [literal(item) for item in value]
        if all(item is not None for item in items):
            make = ast.Tuple if isinstance(value, tuple) else ast.List
            return make([item for item in items if item is not None], ast.Load())
    return None


def finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def fork(names: Names) -> Names:
    """The same names with containers of their own, so that one branch's changes stay out of the other's."""
    memo: dict[int, Any] = {}

    def copy(value: Any) -> Any:
        if type(value) not in (list, dict):
            return value
        if id(value) not in memo:
            memo[id(value)] = made = type(value)()
            if isinstance(value, list):
                made.extend(copy(item) for item in value)
            else:
                made.update((key, copy(item)) for key, item in value.items())
        return memo[id(value)]

    return {
        name: Value(value.kind, copy(value.example), value.code) if value.kind == "host" else value
        for name, value in names.items()
    }
