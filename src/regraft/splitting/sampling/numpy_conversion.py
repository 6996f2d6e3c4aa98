"""Tensors as arrays of NumPy, as which the host holds them, and back."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from regraft.execution.nested import map_leaves
from regraft.splitting.program.record_classes import is_namedtuple
from regraft.splitting.program.result_classes import convert_fields


def to_numpy(value: Any) -> Any:
    """Return a tensor as an array; anything else as it is. Raise TypeError for a tensor of a type
    that NumPy lacks."""
    if not isinstance(value, torch.Tensor):
        return value
    try:
        return value.detach().numpy()
    except TypeError as problem:
        if "ScalarType" not in str(problem):
            raise
        raise TypeError(
            f"NumPy has no {value.dtype}, which inputs, results, and what goes from one sub-network"
            " to another therefore cannot be; convert it, for example by float()"
        ) from problem


def to_torch(value: Any) -> Any:
    """Return the value with tensors for the arrays and NumPy numbers in it, at any depth."""

    def convert(leaf: Any) -> Any:
        """Return an array or NumPy number as a tensor; an object with its fields converted; any
        other leaf as it is."""
        is_array = isinstance(leaf, (numpy.ndarray, numpy.generic))
        return torch.from_numpy(numpy.asarray(leaf)) if is_array else convert_fields(to_torch, leaf)

    return map_leaves(value, convert, is_container=is_plain_container)


def is_plain_container(value: Any) -> bool:
    """Return whether a value is a list, tuple or dictionary of no other class, or a named tuple."""
    return type(value) in (list, tuple, dict) or is_namedtuple(type(value))
