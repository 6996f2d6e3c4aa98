"""Sizes that inputs may take, as the user states them: example calls of other sizes, made from
those that are given, and tests with which the program refuses all other sizes."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from regraft.splitting.errors import Unsplittable, line_of_forward
from regraft.splitting.program.residual import Branch, HostStep, Step
from regraft.splitting.program.statements import raise_message

Call = dict[str, Any]  # the arguments of a call, by parameter


@dataclass(frozen=True, order=True)
class DynamicSize:
    """A dimension of an argument that may have any size from `low` to `high`."""

    key: str
    dim: int
    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.key}:{self.dim}={self.low}..{self.high}"

    def of(self, call: Call) -> int:
        """Return the size that a call has there."""
        return int(call[self.key].shape[self.dim])


Group = tuple[DynamicSize, ...]  # sizes that have to be equal


@dataclass(frozen=True)
class Examples:
    """Example calls.

    calls: those that regions are sampled on, and that are checked. varied: how many of them, from
    the first one on, are perturbed for further inputs. further: calls that are checked only.
    groups: the sizes that `dynamic` states, in groups that have to be equal.
    """

    calls: list[Call]
    varied: int
    further: list[Call] = field(default_factory=list)
    groups: tuple[Group, ...] = ()


def read_dynamic(dynamic: Mapping[str, Mapping[int, Any]], calls: list[Call]) -> list[DynamicSize]:
    """Return the sizes that `dynamic` states, `{argument: {dimension: (low, high)}}`, in order.

    Raises ValueError for an argument that the calls do not have or that is no tensor, for a
    dimension that it does not have, for a range that is none, and for an example call whose size is
    outside.
    """
    if not isinstance(dynamic, Mapping):
        raise ValueError(f"dynamic is {dynamic!r}; give {{argument: {{dimension: (low, high)}}}}")
    sizes = []
    for key, ranges in dynamic.items():
        check_argument(key, calls[0])
        if not isinstance(ranges, Mapping):
            raise ValueError(f"dynamic[{key!r}] is {ranges!r}; give {{dimension: (low, high)}}")
        for dim, bounds in ranges.items():
            sizes.append(
                DynamicSize(key, read_dim(key, dim, calls[0]), *read_range(key, dim, bounds))
            )
    if len({(size.key, size.dim) for size in sizes}) < len(sizes):
        raise ValueError("dynamic states a dimension twice, counted from both ends")
    for size, (number, call) in itertools.product(sizes, enumerate(calls)):
        _check_size_of_call(size, number, call)
    return sorted(sizes)


def _check_size_of_call(size: DynamicSize, number: int, call: Call) -> None:
    """Raise ValueError where an example call, by its number, has a size outside of the range of
    `size`, or no rows there although the range has other sizes."""
    if not size.low <= size.of(call) <= size.high:
        raise ValueError(
            f"dynamic: {size.key} has {size.of(call)} in dimension {size.dim} in example call"
            f" {number}, outside of {size.low} to {size.high}"
        )
    if size.of(call) == 0 < size.high:
        raise ValueError(
            f"dynamic: {size.key} has no rows in dimension {size.dim} in example call {number},"
            " so that no other sizes can be made of it"
        )


def check_argument(key: object, call: Call) -> None:
    """Raise ValueError unless the call has an argument `key`, which is a tensor."""
    tensors = [name for name, value in call.items() if isinstance(value, torch.Tensor)]
    if key not in call:
        raise ValueError(
            f"dynamic: there is no argument {key!r}; those that are tensors: {', '.join(tensors)}"
        )
    if key not in tensors:
        raise ValueError(
            f"dynamic: {key} is {call[str(key)]!r}, which is no tensor and has no sizes"
        )


def read_dim(key: str, dim: object, call: Call) -> int:
    """Return a dimension of the argument, counted from the front; raise ValueError where it has no
    such dimension."""
    count: int = call[key].ndim
    if type(dim) is not int or not -count <= dim < count:
        raise ValueError(f"dynamic: {key} has {count} dimensions, and none is {dim!r}")
    return dim % count


def read_range(key: str, dim: object, bounds: object) -> tuple[int, int]:
    """Return the smallest and the largest size; raise ValueError where these are none."""
    pair: tuple[Any, ...] = tuple(bounds) if isinstance(bounds, Sequence) else ()
    if [*map(type, pair)] != [int, int] or not 0 <= pair[0] <= pair[1]:
        raise ValueError(
            f"dynamic: the sizes of {key} in dimension {dim!r} are {bounds!r}; give two whole"
            " numbers, the smallest and the largest size"
        )
    return pair[0], pair[1]


def make_examples(
    model: torch.nn.Module, path: str, calls: list[Call], sizes: list[DynamicSize]
) -> Examples:
    """Return example calls of the sizes stated: the calls given and one of a size near to theirs,
    which are varied; the smallest and the largest sizes; and other ones for the check alone.

    Sizes that are equal in the first call and have the same range change together; they have to be
    equal unless the network takes one of them alone. Raises Unsplittable where the network fails on
    a size.
    """
    groups = [
        part
        for group in group_sizes(sizes, calls[0])
        for part in divide_group(group, calls[0], lambda call: runs(model, call))
    ]
    generator = torch.Generator().manual_seed(0)

    def resized(choice: Mapping[Group, int]) -> Call:
        """Return the first call in other sizes; raise Unsplittable where the network fails on
        it."""
        call = resize_call(calls[0], choice, generator)
        reason = reason_of_failure(model, call)
        if reason:
            texts = ", ".join(
                f"{size.key}:{size.dim} is {value}"
                for group, value in choice.items()
                for size in group
            )
            raise Unsplittable(
                path,
                line_of_forward(model),
                f"the network fails where {texts}: {reason}; narrow the range of `dynamic`, and"
                " give sizes that have to agree one range and one size in the example call",
            )
        return call

    near = resized({group: near_size(group, calls[0]) for group in groups})
    ends = [resized(choice) for choice in choices_of_ends(groups)]
    further = [resized(choice) for choice in choices_between(groups, calls[0])]
    return Examples([*calls, near, *ends], len(calls) + 1, further, tuple(groups))


def group_sizes(sizes: list[DynamicSize], call: Call) -> list[Group]:
    """Return the sizes in groups that have one range, and are equal in the call."""
    groups: dict[tuple[int, int, int], list[DynamicSize]] = {}
    for size in sizes:
        groups.setdefault((size.low, size.high, size.of(call)), []).append(size)
    return [tuple(group) for group in groups.values()]


def divide_group(group: Group, call: Call, is_taken: Callable[[Call], bool]) -> list[Group]:
    """Return a group divided into one group of the sizes that have to be equal, which comes first
    if there are such, and one for each size that may change alone. The group stays whole where it
    has one size, where its sizes cannot be others, and where one size only would have to be equal.

    is_taken: whether the network takes a call.
    """
    other = near_size(group, call)
    if len(group) == 1 or other == group[0].of(call):
        return [group]
    generator = torch.Generator().manual_seed(0)
    free = [size for size in group if is_taken(resize_call(call, {(size,): other}, generator))]
    tied = tuple(size for size in group if size not in free)
    if len(tied) == 1:
        return [group]
    return [*([tied] if tied else []), *((size,) for size in free)]


def runs(model: torch.nn.Module, call: Call) -> bool:
    """Return whether the network takes a call without an error."""
    return not reason_of_failure(model, call)


def reason_of_failure(model: torch.nn.Module, call: Call) -> str:
    """Return what the network raises for a call, "" where it takes it."""
    try:
        with torch.no_grad():
            model(**call)
    except Exception as problem:  # noqa: BLE001  (whatever the network raises)
        return " ".join(f"{type(problem).__name__}: {problem}".split())
    return ""


def near_size(group: Group, call: Call) -> int:
    """Return a size that differs from the call's, near to it: about its double, or its half; the
    call's where the range has no other."""
    size = group[0].of(call)
    larger = min(group[0].high, 2 * size + 1)
    return larger if larger != size else max(group[0].low, size // 2)


def choices_of_ends(groups: list[Group]) -> list[dict[Group, int]]:
    """Return the sizes of calls at the ends of the ranges: the smallest of all groups, the largest
    of all groups, and where there are several groups, each end of each group alone; the other
    groups are absent from the dictionary then."""
    ends = [
        {group: group[0].low for group in groups},
        {group: group[0].high for group in groups},
    ]
    if len(groups) > 1:
        ends += [{group: end} for group in groups for end in (group[0].low, group[0].high)]
    return ends


def choices_between(groups: list[Group], call: Call) -> list[dict[Group, int]]:
    """Return the sizes of calls for the check alone: next to the ends, and primes in the middle of
    the ranges, which differ between the groups."""
    beside = [
        {group: min(group[0].low + 1, group[0].high) for group in groups},
        {group: max(group[0].high - 1, group[0].low) for group in groups},
    ]
    primes = {
        group: prime_between(group[0].low, group[0].high, number)
        for number, group in enumerate(groups)
    }
    return [*beside, primes]


def prime_between(low: int, high: int, number: int) -> int:
    """Return a prime from `low` to `high`, the nearest to their geometric mean but for `number`
    others; where there are too few, the size in the middle."""
    middle = math.sqrt(max(low, 1) * max(high, 1))
    reach = range(max(low, 2, int(middle / 2)), min(high, int(2 * middle) + 64) + 1)
    ordered = sorted(filter(is_prime, reach), key=lambda size: abs(size - middle))
    return ordered[number] if number < len(ordered) else (low + high) // 2


def is_prime(number: int) -> bool:
    """Return whether a number from 2 on is a prime."""
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def resize_call(call: Call, choice: Mapping[Group, int], generator: torch.Generator) -> Call:
    """Return a call whose sizes are those chosen. The values are the call's own rows along the
    dimension, drawn at random, so that whole numbers stay in their range; sizes of a group draw the
    same rows."""
    resized = dict(call)
    for group, size in choice.items():
        rows = torch.randint(0, max(group[0].of(call), 1), (size,), generator=generator)
        for member in group:
            resized[member.key] = resized[member.key].index_select(member.dim, rows)
    return resized


def guard_sizes(steps: list[Step], path: str, groups: Sequence[Group]) -> None:
    """Let the program begin with tests that raise ValueError for sizes outside of the ranges, and
    for sizes of a group that differ; the steps are changed."""
    tests = []
    for group in groups:
        tests += [_range_test(path, size) for size in group]
        tests += [_equality_test(path, size, group[0]) for size in group[1:]]
    steps[:0] = tests


def _range_test(path: str, size: DynamicSize) -> Branch:
    """Return the test that raises ValueError for a size outside of its range."""
    return _size_test(
        path,
        f"not ({size.low} <= {_text_of(size)} and {_text_of(size)} <= {size.high})",
        f"dimension {size.dim} of {size.key} has another size than {size.low} to"
        f" {size.high}, for which the network was split",
    )


def _equality_test(path: str, size: DynamicSize, first: DynamicSize) -> Branch:
    """Return the test that raises ValueError for two sizes of a group that differ."""
    return _size_test(
        path,
        f"not ({_text_of(size)} == {_text_of(first)})",
        f"dimension {size.dim} of {size.key} and dimension {first.dim} of {first.key}"
        " have to have one size",
    )


def _text_of(size: DynamicSize) -> str:
    """Return the expression of the size in the program."""
    return f"{size.key}.shape[{size.dim}]"


def _size_test(path: str, condition: str, reason: str) -> Branch:
    """Return the branch that raises ValueError where a condition on sizes holds."""
    error: list[Step] = [HostStep(raise_message("ValueError", reason))]
    return Branch([(ast.parse(condition, mode="eval").body, error)], 0, path, [""], [-1])
