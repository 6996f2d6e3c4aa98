"""Fixers of a shrunk configuration for the tables of `config_repairs`: they change sizes which do
not fit each other.

Each function that takes a problem is the fixer of a row of `config_repairs`: it yields whole
changed configurations, or nothing, and leaves the problem as it is.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from regraft.verification.child.drivers.field_kinds import (
    is_config,
    is_head_size,
    is_hidden,
    is_layers,
    is_size,
)
from regraft.verification.child.drivers.field_tables import (
    NARROWEST,
    SIZED,
    VOCABULARY_FIELDS,
    WIDEST,
)
from regraft.verification.child.drivers.source_hints import Choices

Config = Mapping[str, Any]
Change = dict[str, Any]
# The pattern for a message that a layer got a width, the first group, and takes another.
WIDTH_MISMATCH = r"shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)"
# Patterns for messages that two sizes of layers, the groups, had to be equal; each with such a
# message.
SIZE_MISMATCHES = (
    (
        WIDTH_MISMATCH,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x16 and 32x20)",
    ),
    (
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)",
        "RuntimeError: The size of tensor a (16) must match the size of tensor b (32) at"
        " non-singleton dimension 1",
    ),
    (
        r"to have (\d+) channels, but got (\d+) channels",
        "RuntimeError: Given groups=1, weight of size [8, 16, 3, 3], expected input[1, 32, 8, 8]"
        " to have 16 channels, but got 32 channels instead",
    ),
    (
        r"normalized_shape=\[(\d+)\].* input of size\[(?:\d+, )*(\d+)\]",
        "RuntimeError: Given normalized_shape=[16], expected input with shape [*, 16], but got"
        " input of size[1, 5, 32]",
    ),
)
_SIZE_OF_UNKNOWN = 128  # for a size that is negative until something else is loaded
_SMALLEST_DIVIDED = 8  # the smallest number that may be divided; smaller ones are counts
ANY_MISMATCH = "|".join(pattern for pattern, _ in SIZE_MISMATCHES)


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """A shrunk configuration that leads to an error.

    `original` is the configuration before it was shrunk, `small` the shrunk one, `text` the error's
    class and message, `line` the source that raised it ("" for none), and `choices` the strings
    that its file compares names with. `small` may also be the values of a constructor.
    """

    original: Config
    small: Config
    text: str
    line: str
    choices: Choices

    def within(self, name: str) -> ConfigProblem:
        """Return the same problem for the nested configuration in a field that both have; KeyError
        is raised where one lacks it."""
        return replace(self, original=self.original[name], small=self.small[name])

    @property
    def shrunk_names(self) -> list[str]:
        """Return the names of the fields whose values differ from the original's and are no
        mappings; fields that the original lacks are left out."""
        return [
            name
            for name, value in self.small.items()
            if name in self.original
            and self.original[name] != value
            and not isinstance(value, Mapping)
        ]

    @property
    def sizes(self) -> list[int]:
        """Return the numbers in the error from `NARROWEST` to `WIDEST`, which may be sizes of a
        layer; smaller ones are batches, channels and ranks."""
        numbers = map(int, dict.fromkeys(re.findall(r"\b\d+\b", self.text)))
        return [number for number in numbers if NARROWEST <= number <= WIDEST]

    @property
    def mismatched_sizes(self) -> tuple[int, int] | None:
        """Return the two sizes that had to be equal, in the order of the message, where the error
        says so; otherwise None."""
        for pattern, _ in SIZE_MISMATCHES:
            mismatch = re.search(pattern, self.text)
            if mismatch is not None:
                return int(mismatch[1]), int(mismatch[2])
        return None


def set_negative_sizes(problem: ConfigProblem, match: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with a size for each field that has the negative one of the error: a
    size that is only known once something else is loaded."""
    for name, value in problem.small.items():
        if type(value) is int and value == int(match[1]):
            yield {**problem.small, name: _SIZE_OF_UNKNOWN}


def match_sizes(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with one size changed so that a layer takes what it gets: where the
    error names two sizes that had to be equal, a size that is one of them becomes the other."""
    small, unlike = problem.small, problem.mismatched_sizes
    for old, new in (unlike[::-1], unlike) if unlike else ():
        names = [name for name, value in small.items() if value == old and is_size(name)]
        yield from ({**small, name: new} for name in names)


def divide_sides(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with one sequence of equal integers, such as the sides of an image,
    made once and twice as large as a number of the error that does not divide them, such as the
    side of a window."""
    numbers = [int(text) for text in dict.fromkeys(re.findall(r"\b\d+\b", problem.text))]
    for name, value in problem.small.items():
        if isinstance(value, tuple | list) and len(set(value)) == 1 and type(value[0]) is int:
            sides = [n for n in numbers if 1 < n <= 2 * value[0] and value[0] % n]
            for side in (factor * n for n in sides for factor in (1, 2)):
                yield {**problem.small, name: type(value)([side] * len(value))}


def adjust_part_sizes(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with one size changed by the difference of the two that had to be
    equal: a layer may take a concatenation, and the field be the size of one of its parts. Results
    that are not positive or exceed `WIDEST` are left out; nothing is yielded where the error names
    no two sizes."""
    small, unlike = problem.small, problem.mismatched_sizes
    if unlike is None:
        return
    expected, actual = unlike
    sizes = [(name, value) for name, value in small.items() if type(value) is int and is_size(name)]
    for difference in (actual - expected, expected - actual):
        for name, value in sizes:
            if 0 < value + difference <= WIDEST:
                yield {**small, name: value + difference}


def equalise_sizes(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield two versions of the configuration in which sizes that were equal in the original, and
    were shrunk by different factors, are equal again, also in nested configurations: all equal to
    the first of the small sizes, then all equal to the last. Nothing is yielded where there are no
    such sizes."""
    new_sizes_by_old: dict[int, list[int]] = {}

    def record_size(old: int, new: int) -> int:
        """Record a shrunk size by its original, and return it unchanged."""
        new_sizes_by_old.setdefault(old, []).append(new)
        return new

    _map_sizes(problem.original, problem.small, record_size)
    unequal = {
        old: new for old, new in new_sizes_by_old.items() if old >= SIZED and len(set(new)) > 1
    }
    for index in (0, -1) if unequal else ():
        new_size_by_old = {old: new[index] for old, new in unequal.items()}
        change = functools.partial(_chosen_or_present_size, new_size_by_old)
        yield _map_sizes(problem.original, problem.small, change)


def _chosen_or_present_size(new_size_by_old: Mapping[int, int], old: int, new: int) -> int:
    """Return the size that is chosen for the original size `old`; the present size `new` where none
    is."""
    return new_size_by_old.get(old, new)


def _map_sizes(
    original: Config, small: Config, change: Callable[[int, int], int]
) -> dict[str, Any]:
    """Return a copy of the configuration `small` with each size of a layer replaced by
    `change(original size, present size)`, also in lists and in nested configurations; `change` is
    called in the order of the fields."""
    changed = dict(small)
    for name, present in small.items():
        old = original.get(name)
        if is_config(name, present) and isinstance(old, Mapping):
            changed[name] = _map_sizes(old, present, change)
        elif is_size(name) and type(present) is type(old) is int:
            changed[name] = change(old, present)
        elif is_size(name) and isinstance(old, list) and isinstance(present, list):
            changed[name] = _map_list(old, present, change)
    return changed


def _map_list(old: list[Any], present: list[Any], change: Callable[[int, int], int]) -> list[Any]:
    """Return a list with each size replaced, as long as the shorter of the two lists; `present`
    itself where not all elements are integers."""
    pairs = list(zip(old, present, strict=False))
    if all(type(number) is int for pair in pairs for number in pair):
        return [change(*pair) for pair in pairs]
    return present


def exchange_sizes(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with one shrunk field, whose value is a size in the error, set to
    each other size in the error."""
    small, sizes = problem.small, problem.sizes
    for name, value in small.items():
        is_shrunk = value in sizes and problem.original.get(name) != value
        if is_shrunk and not isinstance(value, bool):
            yield from ({**small, name: size} for size in sizes if size != value)


def enlarge_fields(problem: ConfigProblem, match: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with one field enlarged to hold an index that the error says is
    beyond its size; such an index may be written into the code."""
    index, size = int(match[1]), int(match[2])
    for name, value in problem.small.items():
        if value == size and not isinstance(value, bool):
            yield {**problem.small, name: index + 1}


def widen_heads(problem: ConfigProblem, match: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with wider heads, then with a wider model, where a head, or half of
    it, is split into sections whose sizes the code contains.

    Widths grow by the ratio of the sum of the sections to the size that was split. A kind of width
    that the configuration does not state is left out.
    """
    width, wanted_width = int(match[1]), sum(map(int, match[2].split(",")))
    for is_wide in (is_head_size, is_hidden) if width else ():
        wider_sizes = {
            name: value * wanted_width // width
            for name, value in problem.small.items()
            if is_wide(name) and type(value) is int
        }
        if wider_sizes:
            yield {**problem.small, **wider_sizes}


def enlarge_divided_sizes(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with one integer twice, then four times as large, since a fixed
    fraction of it became zero; numbers below `_SMALLEST_DIVIDED` and vocabularies stay."""
    for name, value in problem.small.items():
        if type(value) is int and value >= _SMALLEST_DIVIDED and name not in VOCABULARY_FIELDS:
            yield from ({**problem.small, name: factor * value} for factor in (2, 4))


def enlarge_to_multiples(problem: ConfigProblem, match: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with one integer multiplied by what the first number of the error
    lacks to be divisible by the second; numbers below `_SMALLEST_DIVIDED` and vocabularies stay.
    Nothing is yielded where either number is 0."""
    size, divisor = int(match[1]), int(match[2])
    if not size or not divisor:
        return
    factor = math.lcm(size, divisor) // size
    for name, value in problem.small.items():
        if type(value) is int and value >= _SMALLEST_DIVIDED and name not in VOCABULARY_FIELDS:
            yield {**problem.small, name: factor * value}


def double_sizes(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with one shrunk size or count doubled; vocabularies and numbers of
    layers stay.

    A size that is a product of others may have been shrunk by another factor than these.
    """
    small = problem.small
    for name in problem.shrunk_names:
        is_size_or_count = isinstance(small[name], int) and name not in VOCABULARY_FIELDS
        if is_size_or_count and not is_layers(name):
            yield {**small, name: 2 * small[name]}
