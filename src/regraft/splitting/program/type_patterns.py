"""Compare the types of values in both worlds: say which values fit one variable, and which sizes of
tensors are open, which means that they differ between the worlds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.program.example_with_larger_sizes import lengthen
from regraft.splitting.program.values import NO_TWIN, HostValue, TensorValue, Value


def type_pattern(example: Any, second_example: Any) -> Any:
    """Return the type of a value in both worlds, to be compared: dtype and shape of tensors (None:
    an open size), the set of the element types of a list or set, the types of all elements of a
    tuple or dictionary, the class of anything else."""
    if isinstance(example, torch.Tensor) and isinstance(second_example, torch.Tensor):
        pairs = zip(example.shape, second_example.shape, strict=False)
        sizes = tuple(size if size == second_size else None for size, second_size in pairs)
        return "tensor", example.dtype, example.ndim, sizes
    if isinstance(example, list):
        second_elements = second_example if len(example) <= len(second_example) else example
        elements = zip(example, second_elements, strict=False)
        return "list", frozenset(type_pattern(*pair) for pair in elements)
    if isinstance(example, set):
        return "set", frozenset(map(type, example))
    if isinstance(example, tuple):
        return "tuple", tuple(map(type_pattern, example, second_example))
    if isinstance(example, dict):
        items = [(key, type_pattern(value, second_example[key])) for key, value in example.items()]
        return "dict", tuple(items)
    return type(example)


def fit_one_variable(left: Value, right: Value) -> bool:
    """Return whether both values fit one variable, by their types in both worlds; an empty list
    or set fits every other one."""
    is_growable = type(left.example) in (list, set) and type(left.example) is type(right.example)
    if is_growable and not (left.example and right.example):
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


def open_sizes_of_all(value: TensorValue, other_example: Any) -> TensorValue | None:
    """Return a copy of `value`, a tensor or a tuple of tensors, with each dimension open in which
    `other_example`, of the same structure, has another size; None where they differ in more."""
    if not isinstance(value.example, tuple):
        return open_differing_sizes(value, replace(value, example=other_example, twin=NO_TWIN))
    if type(other_example) is not type(value.example) or len(other_example) != len(value.example):
        return None
    twins = []
    for example, twin, other in zip(
        value.example, value.second_example, other_example, strict=True
    ):
        part = open_sizes_of_all(replace(value, example=example, twin=twin), other)
        if part is None:
            return None
        twins.append(part.second_example)
    kind = type(value.example)
    return replace(value, twin=kind(*twins) if hasattr(kind, "_fields") else kind(twins))


def open_list_sizes(values: list[Value]) -> bool:
    """Open each size in which elements of these lists of the host differ, in place: the elements in
    the second world get larger; return whether all elements then have one type, and some had
    another before. Nothing changes for values that are no lists, and elements that differ in more
    than sizes."""
    if not all(isinstance(value, HostValue) and type(value.example) is list for value in values):
        return False
    if any(value.twin is NO_TWIN for value in values if value.example):
        return False
    pairs = [
        pair
        for value in values
        for pair in zip(value.example, twins_of_elements(value), strict=True)
    ]
    twins = open_element_sizes(pairs) if pairs else None
    if twins is None:
        return False
    for value in values:
        count = len(value.example)
        value.second_example[:count] = twins[:count]
        twins = twins[count:]
    return True


def twins_of_elements(value: Value) -> list[Any]:
    """Return what stands for each element of a list in the second world: the element there, or the
    one of the example where that list is shorter."""
    count = len(value.second_example)
    return [*value.second_example[: len(value.example)], *value.example[count:]]


def open_element_sizes(pairs: list[tuple[Any, Any]]) -> list[Any] | None:
    """Return, for elements in both worlds, new ones of the second world, in which each size is open
    in which the elements differ, or that is open in one of them; None where they differ in more
    than sizes, and for lists and dictionaries. Elements without tensors stay as they are."""
    examples = [example for example, _ in pairs]
    if len({type(example) for example in examples}) > 1 or isinstance(examples[0], (list, dict)):
        return None
    if isinstance(examples[0], torch.Tensor):
        return open_tensor_sizes(pairs)
    if isinstance(examples[0], tuple):
        return open_tuple_sizes(pairs)
    return [twin for _, twin in pairs]


def open_tensor_sizes(pairs: list[tuple[Any, Any]]) -> list[Any] | None:
    """Return, for tensors in both worlds, the second ones with each size open in which the tensors
    differ, or that is open in one of them; None for several dtypes or numbers of dimensions."""
    first = pairs[0][0]
    if len({(example.dtype, example.ndim) for example, _ in pairs}) > 1:
        return None
    open_dims = {
        dim
        for example, twin in pairs
        for dim in range(first.ndim)
        if not example.shape[dim] == twin.shape[dim] == first.shape[dim]
    }
    return [
        lengthen(twin, sorted(dim for dim in open_dims if example.shape[dim] == twin.shape[dim]))
        for example, twin in pairs
    ]


def open_tuple_sizes(pairs: list[tuple[Any, Any]]) -> list[Any] | None:
    """Return, for pairs of a tuple and what it is in the second world, the tuples of the second
    world with sizes opened position by position, as `open_element_sizes` opens them; None where it
    does so at one position, for tuples of several lengths, and for empty ones."""
    length = len(pairs[0][0])
    if length == 0 or any(len(example) != length for example, _ in pairs):
        return None
    columns = [
        open_element_sizes([(example[place], twin[place]) for example, twin in pairs])
        for place in range(length)
    ]
    full_columns = [column for column in columns if column is not None]
    return [*zip(*full_columns, strict=True)] if len(full_columns) == length else None
