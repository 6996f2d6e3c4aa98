"""Determine which results a condition takes from its value and operands at run time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from regraft.verification.child.checks.condition_kinds import (
    CHOICE,
    LOWERED,
    PASSED,
    RAISED,
    SPANNED,
    TRUTH,
    VARIED,
)

RAN = "ran"  # reported by a condition whose result cannot be determined
NUMBERS = (torch.Tensor, int, float)
_PLAIN = (bool, int, float, str, list, tuple, dict)


def truth_results(value: Any) -> Iterator[str]:
    """Yield the truth values that a condition has: true, false, or both for different elements, and
    for an object whose truth is not looked at. Yield nothing for an empty tensor and a tensor on a
    device."""
    if isinstance(value, torch.Tensor):
        if value.numel() and value.device.type == "cpu":
            truth = value.detach() != 0
            yield from TRUTH[:1] * bool(truth.any())
            yield from TRUTH[1:] * (not bool(truth.all()))
    elif value is None or isinstance(value, _PLAIN):
        yield TRUTH[0] if value else TRUTH[1]
    else:
        yield from TRUTH


def variety_results(value: Any, first_value: Any) -> Iterator[str]:
    """Yield `RAN`, and `VARIED` where the elements of a value differ, or the value is not equal to
    `first_value`; it may be yielded twice.

    Of a tensor the first element counts for this. A value that is no plain number, text or None
    counts as varied; a tensor that cannot be read counts as None.
    """
    yield RAN
    if isinstance(value, torch.Tensor):
        is_readable = _is_readable(value)
        elements = value.detach().flatten()
        if is_readable and bool((elements != elements[0]).any()):
            yield from VARIED
        value = elements[0].item() if is_readable else None
    if isinstance(first_value, torch.Tensor):
        is_readable = _is_readable(first_value)
        first_value = first_value.flatten()[0].item() if is_readable else value
    if not isinstance(value, bool | int | float | str | None.__class__) or value != first_value:
        yield from VARIED


def _is_readable(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has elements that can be read without a transfer."""
    return bool(tensor.numel()) and tensor.device.type == "cpu"


def choice_results(operands: tuple[Any, ...], result: Any) -> Iterator[str]:
    """Yield `RAN`, the first result of `CHOICE` where an element of `result` differs from the
    second operand, and the second result of `CHOICE` where an element differs from the first
    operand.

    A call that is no choice between two numbers or tensors, such as a minimum along a dimension,
    yields both results of `CHOICE` only.
    """
    if len(operands) != 2 or not all(isinstance(value, NUMBERS) for value in (*operands, result)):
        yield from CHOICE
        return
    yield RAN
    first, second = operands
    yield from CHOICE[:1] * any_differs(result, second)
    yield from CHOICE[1:] * any_differs(result, first)


def bound_results(operands: tuple[Any, ...], result: Any) -> Iterator[str]:
    """Yield `RAN`, and what happened to at least one element of the first operand: RAISED, LOWERED,
    PASSED (finite and not 0). Only `RAN` where operand or result is no tensor or the shapes differ.

    All three are yielded where the bound worked in place, because the old value is lost.
    """
    yield RAN
    if operands and isinstance(operands[0], torch.Tensor) and isinstance(result, torch.Tensor):
        value = operands[0]
        if value is result:
            yield from (RAISED, LOWERED, PASSED)  # in place: the old value is lost
        elif value.shape == result.shape:
            yield from (RAISED,) * bool((result > value).any())
            yield from (LOWERED,) * bool((result < value).any())
            yield from (PASSED,) * bool(
                ((result == value) & (result != 0) & torch.isfinite(result)).any()
            )


def span_results(operands: tuple[Any, ...], keywords: Mapping[str, Any]) -> Iterator[str]:
    """Yield `RAN`, and `SPANNED` where the first operand has more than one element along each
    dimension that the call names. What is no tensor, and what is no number of a dimension, counts
    as spanned; symbolic sizes do not."""
    yield RAN
    dimensions = keywords.get("dim", keywords.get("axis", operands[1] if operands[1:] else None))
    dimensions = dimensions if isinstance(dimensions, tuple | list) else (dimensions,)
    tensor = operands[0] if operands else None
    if (
        not isinstance(tensor, torch.Tensor)
        or not all(type(dim) is int for dim in dimensions)
        or all(type(size) is int and size > 1 for size in (tensor.shape[dim] for dim in dimensions))
    ):
        yield from SPANNED


def any_differs(result: Any, operand: Any) -> bool:
    """Return whether any element of a result differs from the operand's."""
    return bool(torch.as_tensor(result != operand).any())
