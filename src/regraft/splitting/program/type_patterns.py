"""Compare the types of values in both worlds: say which values fit one variable, and which sizes of
tensors are open, which means that they differ between the worlds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.program.values import TensorValue, Value
from regraft.splitting.program.worlds import lengthen


def type_pattern(example: Any, second_example: Any) -> Any:
    """Return the type of a value in both worlds, to be compared: dtype and shape of tensors (None:
    an open size), the set of the element types of a list, the types of all elements of a tuple or
    dictionary, the class of anything else."""
    if isinstance(example, torch.Tensor) and isinstance(second_example, torch.Tensor):
        sizes = zip(example.shape, second_example.shape, strict=False)
        return (
            "tensor",
            example.dtype,
            example.ndim,
            tuple(size if size == second_size else None for size, second_size in sizes),
        )
    if isinstance(example, list):
        pairs = (
            zip(example, second_example, strict=False)
            if len(example) <= len(second_example)
            else zip(example, example, strict=True)
        )
        return ("list", frozenset(type_pattern(*pair) for pair in pairs))
    if isinstance(example, tuple):
        return ("tuple", tuple(map(type_pattern, example, second_example)))
    if isinstance(example, dict):
        return (
            "dict",
            tuple(
                (key, type_pattern(element, second_example[key]))
                for key, element in example.items()
            ),
        )
    return type(example)


def same_type(left: Value, right: Value) -> bool:
    """Return whether both values fit one variable, by their types in both worlds; an empty list
    fits every list."""
    if (
        isinstance(left.example, list)
        and isinstance(right.example, list)
        and not (left.example and right.example)
    ):
        return True
    return bool(
        type_pattern(left.example, left.second_example)
        == type_pattern(right.example, right.second_example)
    )


def open_dimensions(value: Value) -> tuple[int, ...]:
    """Return the open dimensions of a tensor: those whose sizes differ between the worlds. The
    value has to be a tensor in both, with as many dimensions."""
    sizes = zip(value.example.shape, value.second_example.shape, strict=True)
    return tuple(dim for dim, (size, second_size) in enumerate(sizes) if size != second_size)


def open_differing_sizes(value: Value, other: Value) -> TensorValue | None:
    """Return a copy of `value` in which each dimension is open (has another size in the second
    world) where the sizes of both differ, or that is open in `other`; None if they differ in more
    than sizes, or are not both one tensor."""
    example, other_example = value.example, other.example
    if not (isinstance(value, TensorValue) and isinstance(other_example, torch.Tensor)):
        return None
    if not isinstance(example, torch.Tensor):
        return None
    if example.dtype != other_example.dtype or example.ndim != other_example.ndim:
        return None
    differing = {
        dim for dim in range(example.ndim) if example.shape[dim] != other_example.shape[dim]
    } | set(open_dimensions(other))
    return replace(
        value, twin=lengthen(value.second_example, sorted(differing - set(open_dimensions(value))))
    )
