"""The difference of two results, in the tolerances of torch.testing."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from regraft.execution.compare import are_alike, describe_mismatch
from regraft.splitting.program.result_classes import comparable_contents, is_same_kind

# number formats in which torch.allclose decides as torch.testing does
FORMATS = (torch.float32, torch.float64, torch.int64, torch.bool, torch.int32, torch.float16)


def difference(got: Any, expected: Any) -> str:
    """Return a description of how a result, or an exception, differs from the expected one; ""
    where it does not. The tolerances are those of torch.testing for the type, but the absolute one
    grows with the largest value of a tensor: a sum of large terms that ends near zero carries their
    rounding, in every order of summation. Exceptions of one type are equal."""
    if isinstance(expected, Exception) or isinstance(got, Exception):
        if type(got) is type(expected):
            return ""
        return f"{describe_outcome(got)} instead of {describe_outcome(expected)}"
    if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
        return difference_of_tensors(got, expected)
    got, expected = as_plain_value(got), as_plain_value(expected)
    if not is_same_kind(got, expected):
        return f"a {type(got).__name__} instead of a {type(expected).__name__}"
    if isinstance(expected, float):
        return difference(torch.tensor(got), torch.tensor(expected))
    got, expected = (elements_in_order(comparable_contents(value)) for value in (got, expected))
    if isinstance(expected, (tuple, list)):
        return difference_of_elements(got, expected)
    return "" if got == expected else f"{got!r} instead of {expected!r}"


def describe_outcome(outcome: Any) -> str:
    """Return class and message of an exception, and "a result" for anything else."""
    if isinstance(outcome, Exception):
        return f"{type(outcome).__name__} ({outcome})"
    return "a result"


def difference_of_tensors(got: torch.Tensor, expected: torch.Tensor) -> str:
    """Describe how a tensor differs from the expected one, in dtype, shape or values beyond the
    tolerances that `difference` describes; "" where it does not."""
    rtol, atol = torch.testing._comparison.default_tolerances(expected)
    if expected.is_floating_point() and expected.numel():
        atol *= max(1.0, float(expected.detach().nan_to_num(0, 0, 0).abs().max()))
    if are_plain(got, expected) and torch.allclose(
        got, expected, rtol=rtol, atol=atol, equal_nan=True
    ):
        return ""  # torch.testing takes several times as long for the same answer
    return " ".join(describe_mismatch(got, expected, rtol=rtol, atol=atol).split())


def are_plain(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether two tensors differ in nothing but their values: both are dense, on the CPU, of
    one shape and of one of the `FORMATS`, and of no subclass."""
    return (
        type(got) is type(expected) is torch.Tensor
        and are_alike(got, expected)
        and got.dtype in FORMATS
        and all(
            tensor.device.type == "cpu" and tensor.layout == torch.strided
            for tensor in (got, expected)
        )
    )


def difference_of_elements(got: Any, expected: Any) -> str:
    """Describe the first difference of two lists or tuples; "" where there is none.

    Only the lengths are described where these differ; a description does not say the position.
    """
    if len(got) != len(expected):
        return f"{len(got)} elements instead of {len(expected)}"
    return next(filter(None, map(difference, got, expected)), "")


def as_plain_value(value: Any) -> Any:
    """Return a torch.Size as a tuple, a whole number of NumPy as one of Python, anything else as it
    is: the host gives these."""
    if isinstance(value, numpy.integer):
        return int(value)
    return tuple(value) if isinstance(value, torch.Size) else value


def elements_in_order(value: Any) -> Any:
    """Return the keys and then the values of a dictionary as a list, anything else as it is."""
    return [*value.keys(), *value.values()] if isinstance(value, dict) else value


def first_difference(left: list[int], right: list[int]) -> int | None:
    """Return the first position at which the lists differ; None where they are equal.

    Where the shorter list begins the longer list, the position is the shorter list's length.
    """
    if left == right:
        return None
    differing = (
        position
        for position, (first, second) in enumerate(zip(left, right, strict=False))
        if first != second
    )
    return next(differing, min(len(left), len(right)))
