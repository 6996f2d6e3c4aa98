"""Require that a rounding which only one version has meets numbers that others round differently.

`round(x)` and `floor(x + 0.5)` differ for halves alone, `ceil(x)` and `floor(x) + 1` for whole
numbers alone: random inputs hold neither.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch

from regraft.verification.child.checks.condition_kinds import called_name

MET_HALVES = ("rounded a half up", "rounded a half down")
MET_WHOLE = ("rounded a whole number",)
ROUNDED = frozenset((*MET_HALVES, *MET_WHOLE))
_EVENTS = {
    "round": MET_HALVES,
    "round_": MET_HALVES,
    "floor": MET_WHOLE,
    "floor_": MET_WHOLE,
    "ceil": MET_WHOLE,
    "ceil_": MET_WHOLE,
    "trunc": MET_WHOLE,
    "trunc_": MET_WHOLE,
}


def rounding_of(node: ast.AST) -> str:
    """Return the name of the function or method that rounds if a node is a call of one, else ""."""
    name = called_name(node) if isinstance(node, ast.Call) else ""
    return name if name in _EVENTS else ""


def replaced_roundings(own: ast.AST, other: ast.AST) -> frozenset[str]:
    """Return the functions that round in one definition, and not in its other version."""
    own_names = {rounding_of(node) for node in ast.walk(own)}
    other_names = {rounding_of(node).rstrip("_") for node in ast.walk(other)}
    return frozenset(name for name in own_names if name.rstrip("_") not in other_names)


def required_of_rounding(name: str) -> tuple[str, ...]:
    """Return the events that a test has to see at a call of a function that rounds."""
    return _EVENTS[name]


def rounding_results(operands: tuple[Any, ...], result: Any) -> Iterator[str]:
    """Yield the events that the first operand of a rounding shows: those of MET_HALVES where one of
    its elements is halfway between whole numbers and the next even number is above or below,
    MET_WHOLE where one is whole; all where it is no tensor of real numbers, and where the rounding
    worked in place, because the old numbers are lost. In half precision none counts, since another
    result may be taken for the noise of the format there.
    """
    tensor = operands[0] if operands else None
    if tensor is result or not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        yield from (*MET_HALVES, *MET_WHOLE)
    elif tensor.device.type == "cpu" and tensor.dtype.itemsize > 2:
        rise = tensor.detach().round() - tensor.detach()
        yield from MET_HALVES[:1] * bool((rise == 0.5).any())
        yield from MET_HALVES[1:] * bool((rise == -0.5).any())
        yield from MET_WHOLE * bool((rise == 0.0).any())
