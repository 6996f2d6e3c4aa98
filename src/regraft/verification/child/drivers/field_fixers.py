"""Fixers of a shrunk configuration for the tables of `config_repairs`: they set, restore or cut
fields.

Each function that takes a problem is the fixer of a row of `config_repairs`: it yields whole
changed configurations, or nothing, and leaves the problem as it is. A field is unset if it is None.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any

from regraft.verification.child.drivers.field_kinds import is_layers
from regraft.verification.child.drivers.field_tables import (
    BACKBONE,
    BACKBONE_FIELDS,
    CONFIG_FIELDS,
    DERIVED,
    HEAD_FIELDS,
    KIND_FLAGS,
    MISSING_ATTRIBUTE_VALUES,
    PLURAL_FIELDS,
    PRIVATE_FIELDS,
    STAGES_FIELD,
    TIMM_BACKBONE_FLAG,
    UNSET_KEY_VALUE_FIELDS,
    UNSET_LISTS,
    UNSET_NUMBER_FIELDS,
    UNSET_SIZE_FIELDS,
    UNSET_SIZE_VALUES,
    UNSET_VALUES,
)
from regraft.verification.child.drivers.guessed_values import value_for
from regraft.verification.child.drivers.size_fixers import Change, Config, ConfigProblem

_TUPLE_LENGTHS = (2, 4)  # the lengths of tuples that are tried in place of a number
# The messages about an unset value that should be a list.
_WANTS_LIST = re.compile(r"'NoneType' object is not (subscriptable|iterable)|'NoneType' has no len")


def change_named_fields(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield other values for fields that the error names, then for those that its line names; unset
    fields come first, then long names.

    After the single fields of a text come its unset fields together, since some only make sense
    together. At the end come lists with a string for each layer.
    """
    small = problem.small
    wants_list = bool(_WANTS_LIST.search(problem.text))
    for text in (problem.text, problem.line):
        names = [name for name in small if re.search(rf"\b{re.escape(name)}\b", text)]
        for name in sorted(names, key=lambda name: (small[name] is not None, -len(name))):
            values = _values_of_named_field(name, problem, wants_list)
            yield from ({**small, name: value} for value in values)
        yield from _set_fields_together(small, names, wants_list)
    yield from _list_strings_by_layer(problem)


def _values_of_named_field(name: str, problem: ConfigProblem, wants_list: bool) -> tuple[Any, ...]:
    """Return values for a field that an error names, likely ones first.

    For an unset field they include lists where the error wants one (then these come first) or the
    name is a plural, and otherwise the names that other fields list.
    """
    value = problem.small[name]
    alternatives = _other_values(name, value, problem.original.get(name))
    if value is not None:
        return alternatives
    if wants_list:
        return ([], *UNSET_LISTS, *alternatives)
    if name in PLURAL_FIELDS:
        return (*alternatives, *UNSET_LISTS)
    return (*alternatives, *_listed_names(problem.small))


def _set_fields_together(small: Config, names: list[str], wants_list: bool) -> Iterator[Change]:
    """Yield the configuration with a value for each unset field of `names`; then with one for each
    unset field whose first word is that of such a field. A group of a single field is skipped."""
    unset = [name for name in names if small[name] is None]
    stems = {name.partition("_")[0] for name in unset}
    related = [
        name for name, value in small.items() if value is None and name.partition("_")[0] in stems
    ]
    for group in (unset, related):  # fields that only make sense together
        if len(group) > 1:
            yield {**small, **{name: _first_value(name, wants_list) for name in group}}


def _list_strings_by_layer(problem: ConfigProblem) -> Iterator[Change]:
    """Yield the configuration with a list of a string for each layer, for each unset field of which
    the line of the error reads an element: the strings that the file compares the field with, in
    turn. Nothing is yielded without a number of layers."""
    small = problem.small
    counts = [value for name, value in small.items() if is_layers(name) and isinstance(value, int)]
    for name, value in small.items():
        strings = problem.choices.get(name, ())
        is_read_by_layer = value is None and f"{name}[" in problem.line
        if is_read_by_layer and strings and counts:
            by_layer = itertools.islice(itertools.cycle(strings), max(counts))
            yield {**small, name: list(by_layer)}


def _listed_names(small: Config) -> tuple[str, ...]:
    """Return the first string of each field that lists strings, since an unset field may be one of
    them."""
    lists = (value for value in small.values() if isinstance(value, list) and value)
    return tuple(value[0] for value in lists if all(isinstance(element, str) for element in value))


def _first_value(name: str, wants_list: bool) -> Any:
    """Return the first value to try for an unset field by its name; a list of it where the error
    wants a list and the name is a plural."""
    number = 1 if name in UNSET_KEY_VALUE_FIELDS else UNSET_VALUES[0]
    value = UNSET_SIZE_VALUES[0] if name in UNSET_SIZE_FIELDS else number
    return [value] if wants_list and name in PLURAL_FIELDS else value


def _other_values(name: str, value: Any, original: Any) -> tuple[Any, ...]:
    """Return values to try for a field instead of `value`: usual ones where it is None or 0, the
    opposite of a boolean; for an integer `original`, its value before it was shrunk, then related
    numbers; for others `original`, or () where that is equal."""
    if isinstance(value, bool):
        return (not value,)
    if value is None or value == 0:
        return UNSET_SIZE_VALUES if name in UNSET_SIZE_FIELDS else UNSET_VALUES
    if isinstance(value, int):
        numbers = dict.fromkeys((original, 1, 2, 2 * value, value // 2))
        return tuple(number for number in numbers if number not in (value, 0))
    return (original,) if original != value else ()


def repeat_numbers(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield two configurations for each integer field that the error names, which may have to be a
    list: the integer as a tuple of two such integers, then of four; after the last field, two with
    all of these fields as tuples. Then do so for the fields that the line of the error names."""
    small = problem.small
    for text in (problem.text, problem.line):
        names = [
            name
            for name, value in small.items()
            if type(value) is int and re.search(rf"\b{re.escape(name)}\b", text)
        ]
        groups = [[name] for name in names] + ([names] if len(names) > 1 else [])
        for group in groups:
            for count in _TUPLE_LENGTHS:
                yield {**small, **{name: (small[name],) * count for name in group}}


def take_single_numbers(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with the number of a list or tuple that holds the same integer
    throughout, for each such field, those first that the line of the error names; then for all."""
    small = problem.small
    numbers = {
        name: value[0]
        for name, value in small.items()
        if isinstance(value, list | tuple) and value and set(value) == {value[0]}
        if type(value[0]) is int
    }
    names = sorted(numbers, key=lambda name: name not in problem.line)
    for name in names:
        yield {**small, name: numbers[name]}
    if len(names) > 1:
        yield {**small, **numbers}


def lengthen_lists(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with the elements of a list or tuple twice over, for each such field
    that the line of the error names and that is not empty."""
    for name, value in problem.small.items():
        is_list = isinstance(value, list | tuple) and bool(value)
        if is_list and re.search(rf"\b{re.escape(name)}\b", problem.line):
            yield {**problem.small, name: value + value}


def add_missing_attribute(problem: ConfigProblem, match: re.Match[str]) -> Iterator[Change]:
    """Yield `MISSING_ATTRIBUTE_VALUES` for an attribute that the error says the configuration
    lacks; nothing if it has a value already: then the error is about another configuration."""
    name = match[1] or match[2]
    if problem.small.get(name) is None:
        yield from ({**problem.small, name: value} for value in MISSING_ATTRIBUTE_VALUES)


def leave_cuda(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with the CPU in the place of each CUDA device that a field names."""
    fields = {
        name: "cpu"
        for name, value in problem.small.items()
        if re.fullmatch(r"cuda(:\d+)?", str(value))
    }
    if fields:
        yield {**problem.small, **fields}


def give_compared_words(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with each string that the file compares a field with, or under which
    it looks the field up, for the fields that the error names; then for those that its line
    names."""
    for text in (problem.text, problem.line):
        for name, value in problem.small.items():
            if re.search(rf"\b{re.escape(name)}\b", text):
                words = (word for word in problem.choices.get(name, ()) if isinstance(word, str))
                yield from ({**problem.small, name: word} for word in words if word != value)


def add_missing_key(problem: ConfigProblem, match: re.Match[str]) -> Iterator[Change]:
    """Yield values for a key that the error says is missing, as of `**kwargs` of a constructor: the
    guess by its name, then False and True; nothing if the configuration has it already."""
    name = match[1]
    if name not in problem.small:
        values: list[Any] = [False, True]
        with contextlib.suppress(LookupError):
            values.insert(0, value_for(name))
        yield from ({**problem.small, name: value} for value in values)


def give_wanted_list(problem: ConfigProblem, match: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with the list of integers that the error asks for, of the length that
    it names, and with at least as many layers; nothing for a field that the original does not have.

    The integers are numbers of layers, from 1 on. Fields that the configuration computes
    (`DERIVED`) are dropped, since they depend on the list.
    """
    if match[1] not in problem.original:
        return
    count = int(match[2])
    fields = {name: value for name, value in problem.small.items() if name not in DERIVED}
    layers = {
        name: max(count, value)
        for name, value in fields.items()
        if is_layers(name) and isinstance(value, int)
    }
    yield {**fields, **layers, match[1]: list(range(1, count + 1))}


def restore_stages(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with the original's lists, numbers of layers and derived fields,
    where the original returns several stages (`STAGES_FIELD`), as a backbone does."""
    original, small = problem.original, problem.small
    if len(original.get(STAGES_FIELD) or ()) > 1:
        lists = {
            name: original[name]
            for name, value in small.items()
            if name in original and (isinstance(value, list) or is_layers(name))
        }
        yield {**small, **lists, **derived_fields(original)}


def derived_fields(original: Config) -> Change:
    """Return by name the fields of `DERIVED`, which a configuration computes from others, that it
    has, without private ones."""
    names = sorted(DERIVED & set(original))
    return {name: original[name] for name in names if name not in PRIVATE_FIELDS}


def invert_flags(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with each of its flags inverted by itself."""
    for name, value in problem.small.items():
        if isinstance(value, bool):
            yield {**problem.small, name: not value}


def give_plain_backbone(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with `BACKBONE`, which needs no other package, as its backbone, where
    the error mentions a backbone."""
    small = problem.small
    for name in small if "backbone" in problem.text.lower() else ():
        if name in BACKBONE_FIELDS:
            flags = dict.fromkeys(small.keys() & {TIMM_BACKBONE_FLAG}, False)
            yield {**small, name: BACKBONE, **flags}


def fill_empty_lists(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with [1], then with [1.0], for each empty list."""
    for name, old in problem.small.items():
        if old == []:
            yield from ({**problem.small, name: value} for value in ([1], [1.0]))


def set_numbers(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with a number for each unset field that has the name of one: 8 for
    sizes, 1 for others."""
    for name in _unset_names(problem.small):
        if name in UNSET_NUMBER_FIELDS:
            yield {**problem.small, name: 8 if name in UNSET_SIZE_FIELDS else 1}


def set_mappings(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with an empty mapping for each unset field that has the name of a
    nested configuration; for every unset field where the error wants a mapping."""
    wants_mapping = re.search(r"no attribute '(get|items|keys|values)'", problem.text)
    for name in _unset_names(problem.small):
        if wants_mapping or name in CONFIG_FIELDS:
            yield {**problem.small, name: {}}


def invert_kind_flags(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with each flag for the kind of a model, such as `is_decoder`,
    inverted by itself."""
    for name, value in problem.small.items():
        if isinstance(value, bool) and name in KIND_FLAGS:
            yield {**problem.small, name: not value}


def _unset_names(small: Config) -> list[str]:
    """Return the names of unset fields that do not begin with an underscore."""
    return [name for name, value in small.items() if value is None and name not in PRIVATE_FIELDS]


def restore_fields(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with one shrunk field restored to its original value; lists and
    numbers of layers come first."""
    small = problem.small

    def comes_later(name: str) -> bool:
        """Return False for numbers of layers and lists, which come first."""
        return not (is_layers(name) or isinstance(small[name], list))

    for name in sorted(problem.shrunk_names, key=comes_later):
        yield {**small, name: problem.original[name]}


def restore_groups(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield the configuration with a group of shrunk fields restored: all lists, all numbers of
    layers, all fields of heads, then all fields. An empty group changes nothing."""
    small, shrunk = problem.small, problem.shrunk_names
    lists = [name for name in shrunk if isinstance(small[name], list)]
    layers = [name for name in shrunk if is_layers(name)]
    heads = [name for name in shrunk if name in HEAD_FIELDS]
    for group in (lists, layers, heads, shrunk):
        yield {**small, **{name: problem.original[name] for name in group}}


def cut_fields(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield smaller configurations: with all floats cut, with all lists cut, then with each field
    cut by itself (`_cut_value`)."""
    small = problem.small
    for kind in (float, list):
        cut = {n: _cut_value(value) for n, value in small.items() if isinstance(value, kind)}
        yield {**small, **cut}
    for name, value in small.items():
        if _cut_value(value) != value:
            yield {**small, name: _cut_value(value)}


def _cut_value(value: Any) -> Any:
    """Return a value with integers from 16 on and floats from 1 on divided by four, those in lists
    too; others unchanged."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value // 4 if value >= 16 else value
    if isinstance(value, float):
        return value / 4 if value >= 1 else value
    return [_cut_value(element) for element in value] if isinstance(value, list) else value
