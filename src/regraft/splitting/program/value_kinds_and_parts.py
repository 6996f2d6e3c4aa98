"""What values have in common: their kind, their parts, and the lists in their examples."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from regraft.splitting.program.values import (
    NO_TWIN,
    EitherValue,
    HostValue,
    StaticValue,
    TensorValue,
    Value,
    ValueBase,
)


def list_parts(value: Value) -> list[tuple[Any, Any]]:
    """Return the elements of a tuple, list or tensor, each as a pair of its example and its value
    in the second world (NO_TWIN where that is the example); elements that only one world has are
    left out."""
    examples = list_until_error(value.example)
    if value.twin is NO_TWIN:
        return [(example, NO_TWIN) for example in examples]
    return list(zip(examples, list_until_error(value.second_example), strict=False))


def list_until_error(values: Iterable[Any]) -> list[Any]:
    """Return the elements of an iterable; of a strict `zip` those before the end of the shortest
    list, since lists that are equally long wherever an input leads may not be so on a side of a
    branch that the example does not take, nor in the second world."""
    elements: list[Any] = []
    with contextlib.suppress(ValueError):
        for element in values:
            elements.append(element)
    return elements


def has_kind(values: Iterable[Value], value_class: type[ValueBase]) -> bool:
    """Return whether any of the values is of the class `value_class`."""
    return any(isinstance(value, value_class) for value in values)


def are_static(values: Iterable[Value]) -> bool:
    """Return whether all of the values are known now."""
    return all(isinstance(value, StaticValue) for value in values)


def get_alternative(value: Value) -> Value:
    """Return the alternative of an EitherValue, a tensor or a value of the host; any other value as
    it is."""
    if isinstance(value, EitherValue):
        return replace(value.alternative, partial=value.partial)
    return value


def is_independent(value: Value) -> bool:
    """Return whether a computed value is noted as one that no input decides; False for a value that
    is known now."""
    computed = value.alternative if isinstance(value, EitherValue) else value
    return isinstance(computed, (HostValue, TensorValue)) and computed.constant


def is_truth_of_operand(value: Value) -> bool:
    """Return whether a value is the truth of what may be a tensor in the original, as the value of
    `and` or `or` is; of an EitherValue, whether its alternative is."""
    single = value.alternative if isinstance(value, EitherValue) else value
    return isinstance(single, (StaticValue, HostValue)) and single.truth


def lists_in(example: Any) -> Iterator[Any]:
    """Yield the lists and sets in lists, tuples and dictionaries, `example` itself among them."""
    if isinstance(example, (list, set)):
        yield example
    if isinstance(example, (list, tuple, dict)):
        for element in example.values() if isinstance(example, dict) else example:
            yield from lists_in(element)


def list_lengths(example: Any) -> tuple[Any, ...]:
    """Return the lengths of the lists in lists, tuples and dictionaries, in the order of
    `lists_in`; of a set its elements."""
    return tuple(
        frozenset(container) if isinstance(container, set) else len(container)
        for container in lists_in(example)
    )
