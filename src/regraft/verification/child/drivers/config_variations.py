"""Yield overrides for a configuration: other values of its fields that may reach other branches of
the code.

An override is a dictionary of fields with other values. That of a field in a nested configuration
has the whole nested configuration, with the other value in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

from regraft.verification.child.drivers import field_kinds
from regraft.verification.child.drivers.field_tables import (
    ACTIVATION_FIELDS,
    ACTIVATION_OR_PROJECTION_FIELDS,
    ACTIVATIONS,
    BLOCK_FIELDS,
    DECODER_FLAGS,
    RESULT_TYPE_FLAG,
    SECOND_SIZE_FIELDS,
    SECOND_SIZES,
    SECOND_VALUES,
    WINDOW,
)
from regraft.verification.child.drivers.opposite_numbers import opposite_numbers
from regraft.verification.child.drivers.source_hints import Choices, Hints

_LARGE = 100  # smaller whole numbers are multiples of something, such as a width
_EPSILON = 1e-3  # smaller floats are added to a divisor, and stay small


def variations(config: Mapping[str, Any], hints: Hints) -> Iterator[dict[str, Any]]:
    """Yield overrides that may reach other branches: those of fields that the text of the hints
    mentions (`mentioned_variations`), both flags of a decoder together, then those of all other
    fields. Fields that the configuration lacks and the file reads with a default count as
    fields."""
    yield from mentioned_variations(config, hints)
    if set(DECODER_FLAGS) <= set(config):
        yield dict.fromkeys(DECODER_FLAGS, True)
    named_overrides = _variations({**hints.optional, **config}, hints)
    yield from (
        override for name, override in named_overrides if not _mention_rank(hints.text, name)
    )


def mentioned_variations(config: Mapping[str, Any], hints: Hints) -> Iterator[dict[str, Any]]:
    """Yield the overrides of fields that the text of the hints mentions, each with one other value.

    Numbers that no condition asks for seldom decide what runs, and come last. Among the others,
    fields whose whole name is mentioned come before those of which a part is; then fields that a
    condition asks for and strings; then fields of the configuration before those of nested ones.
    """

    def sort_key(variation: tuple[str, Mapping[str, Any]]) -> tuple[bool, int, bool, bool]:
        """Return a key that is smallest for the override to try first."""
        name, override = variation
        value, is_asked = override.get(name), _is_in_condition(hints.text, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        decides = isinstance(value, str) or is_asked
        return (
            is_number and not is_asked,
            -_mention_rank(hints.text, name),
            not decides,
            name not in override,
        )

    named_overrides = _variations({**hints.optional, **config}, hints)
    yield from (
        override
        for _, override in sorted(
            (
                named_override
                for named_override in named_overrides
                if _mention_rank(hints.text, named_override[0])
            ),
            key=sort_key,
        )
    )


def second_values(
    config: Mapping[str, Any], words: frozenset[str], choices: Choices
) -> Iterator[dict[str, Any]]:
    """Yield, for each field whose name is in `words`, also in a nested configuration, overrides
    that give it another value.

    Several overrides of one field are alternatives: not every model can be built with each of them.
    `choices` are the strings that the file compares names with.
    """
    return _overrides(config, words, lambda name, value: _other_values(name, value, choices))


def opposite_values(config: Mapping[str, Any], words: frozenset[str]) -> Iterator[dict[str, Any]]:
    """Yield, for each number whose name is in `words`, also in a nested configuration, overrides
    that give it the opposite value or zero (`opposite_numbers`)."""
    return _overrides(config, words, opposite_numbers)


def _overrides(
    config: Mapping[str, Any],
    words: frozenset[str],
    alternatives: Callable[[str, Any], Iterable[Any]],
) -> Iterator[dict[str, Any]]:
    """Yield an override for each of the `alternatives(name, value)` of each field whose name is in
    `words`, also in a nested configuration."""
    for name, value in config.items():
        if field_kinds.is_config(name, value):
            for override in _overrides(value, words, alternatives):
                yield {name: {**value, **override}}
        elif name in words:
            yield from ({name: alternative} for alternative in alternatives(name, value))


def path_of(override: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that lead to the first field of an override, through nested configurations
    to the first field that differs from the configuration; () for an empty override."""
    for name, value in override.items():
        old_value = config.get(name)
        if isinstance(value, Mapping) and isinstance(old_value, Mapping):
            return (
                name,
                *path_of(
                    {
                        key: inner_value
                        for key, inner_value in value.items()
                        if inner_value != old_value.get(key)
                    },
                    old_value,
                ),
            )
        return (name,)
    return ()


def _other_values(name: str, value: Any, choices: Choices) -> tuple[Any, ...]:
    """Return other values for a field by its type; () for the flag of the result's type, which
    decides nothing else, and for a value of another type."""
    if name == RESULT_TYPE_FLAG:
        return ()
    for kind, alternatives in _ALTERNATIVES_BY_TYPE:
        if isinstance(value, kind):
            return alternatives(name, value, choices)
    return ()


def _inverted_flag(_: str, value: bool, __: Choices) -> tuple[bool, ...]:
    """Return the opposite of a flag as the only alternative."""
    return (not value,)


def _related_rates(_: str, value: float, __: Choices) -> tuple[float, ...]:
    """Return rates that have an effect instead of 0, an epsilon or a negative rate; half, twice, a
    quarter and 1.6 times of others, and 1. About half of a small whole number is no whole number,
    so that rounding it shows."""
    if value == 0:
        return (0.2, 0.1)
    if value < _EPSILON:
        return (0.01, 0.02)
    is_small_whole_number = value.is_integer() and 1 < value < _LARGE
    half = value / 2 + 0.25 if is_small_whole_number else value / 2
    alternatives = (half, value * 2, value / 4, 1.6 * value, 1.0)
    return tuple(number for number in alternatives if number != value)


def _related_numbers(name: str, value: int, choices: Choices) -> tuple[int, ...]:
    """Return other numbers for a field of a configuration: first those that the file looks the
    field up with. No further ones for the width of a model; 2, then 1 for 0 and -1, which stand for
    none (1 comes last, since the first of one element is all of them); twice the value, half of it,
    one and two more, and three more than twice for other values."""
    keys = tuple(key for key in choices.get(name, ()) if type(key) is int and key != value)
    if value in (0, -1):
        return (*keys, 2, 1)
    if field_kinds.is_hidden(name):
        return keys
    return (*keys, *dict.fromkeys((value * 2, value // 2, value + 1, value + 2, 2 * value + 3)))


def _alternative_strings(name: str, value: str, choices: Choices) -> tuple[str, ...]:
    """Return the strings that the file compares a name with, and `ACTIVATIONS` for a field of one,
    without the present string."""
    activations = ACTIVATIONS if name in ACTIVATION_FIELDS else ()
    strings = (*choices.get(name, ()), *activations)
    return tuple(text for text in strings if isinstance(text, str) and text != value)


def _values_of_unset(name: str, _: None, __: Choices) -> tuple[Any, ...]:
    """Return values for an unset field: `SECOND_SIZES` where its name is that of a size, else
    `SECOND_VALUES`, a rate, a number and a flag."""
    return SECOND_SIZES if name in SECOND_SIZE_FIELDS else SECOND_VALUES


def _related_lists(_: str, value: Sequence[Any], __: Choices) -> tuple[Any, ...]:
    """Return changed copies of a list or tuple, of its own type, those of its length first; () for
    an empty one. A named tuple keeps its length."""
    if not value:
        return ()
    if hasattr(value, "_make"):
        return tuple(map(value._make, _lists_of_same_length(value)))
    make_sequence: Any = type(value)
    return tuple(make_sequence(alternative) for alternative in _changed_lists(value))


def _related_mappings(_: str, value: Mapping[Any, Any], choices: Choices) -> tuple[Any, ...]:
    """Return copies of a mapping, each with the first other value of one entry; entries whose value
    has none are left out."""
    return tuple(
        {**value, key: alternative}
        for key, entry in value.items()
        for alternative in _other_values(str(key), entry, choices)[:1]
    )


# The function that gives other values for those of a type; a bool is an int, too, and comes first.
_ALTERNATIVES_BY_TYPE: tuple[tuple[Any, Callable[[str, Any, Choices], tuple[Any, ...]]], ...] = (
    (bool, _inverted_flag),
    (float, _related_rates),
    (int, _related_numbers),
    (str, _alternative_strings),
    (NoneType, _values_of_unset),
    (list | tuple, _related_lists),
    (dict, _related_mappings),
)


def _changed_lists(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield lists of the same length with other values, then one with the last value twice, one
    with the first value again at the end, where it is another, and one without the last, since
    loops may run over the list."""
    yield from _lists_of_same_length(values)
    yield [*values, values[-1]]
    if values[0] != values[-1]:
        yield [*values, values[0]]
    if len(values) > 1:
        yield list(values[:-1])


def _lists_of_same_length(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield lists of the same length with other values: of flags, with the last one inverted, then
    all; of integers, with the last one plus 1, then all plus 1, then all doubled; of floats, all
    smaller, each by another factor; of different strings, all equal to each of them in turn; of
    lists, with another last one. Nothing is yielded for other lists."""
    last = values[-1]
    if all(isinstance(value, bool) for value in values):
        yield [*values[:-1], not last]
        yield [not value for value in values]
    elif all(isinstance(value, int) for value in values):
        yield [*values[:-1], last + 1]
        yield [value + 1 for value in values]
        yield [value * 2 for value in values]
    elif all(isinstance(value, float) for value in values):
        yield [(value or 0.4) / (index + 2) for index, value in enumerate(values)]
    elif type(last) in (list, tuple):
        yield from _with_other_last(values)
    elif all(isinstance(value, str) for value in values):
        yield from _equal_strings(values)


def _with_other_last(rows: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield lists of the same rows but for the last, a list or tuple, which has other values;
    nothing where it is empty."""
    make_row: Any = type(rows[-1])
    if not rows[-1]:
        return
    for row in _lists_of_same_length(rows[-1]):
        yield [*rows[:-1], make_row(row)]


def _equal_strings(strings: Sequence[str]) -> Iterator[list[str]]:
    """Yield, for each different string, a list of the same length of this string only; nothing for
    strings that are all equal."""
    different = tuple(dict.fromkeys(strings))
    if len(different) > 1:
        yield from ([string] * len(strings) for string in different)


def shorter_blocks(config: Mapping[str, Any], hints: Hints) -> Iterator[dict[str, Any]]:
    """Yield the overrides of fields that state the number of positions in a block, because several
    blocks may run other lines than one does."""
    yield from (override for name, override in _variations(config, hints) if _is_block(name))


def _is_in_condition(text: str, name: str) -> bool:
    """Return whether a text has a name after `if` or `while` on the same line, before a colon."""
    return bool(re.search(rf"\b(?:if|while)\b[^\n:]*\b{re.escape(name)}\b", text))


def _mention_rank(text: str, name: str) -> int:
    """Return 2 where a text has a field's name as a word, 1 where it has the name within a longer
    word or has an end of the name, 0 otherwise.

    Ends are the name without its first word (`normalize_before` of `encoder_normalize_before`),
    if two words or more remain, and all ends of three words or more (`relative_position_bias` of
    `use_shared_relative_position_bias`).
    """
    if re.search(rf"\b{re.escape(name)}\b", text):
        return 2
    words = name.split("_")
    ends = (
        "_".join(words[start:])
        for start in range(1, len(words) - 1)
        if start == 1 or len(words) - start > 2
    )
    return int(name in text or any(end in text for end in ends))


def _variations(config: Mapping[str, Any], hints: Hints) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield pairs of a field's name and an override of `config`, a dictionary of one entry, that
    changes this field only.

    For a field of a nested configuration the name is the field's alone, and the entry is the whole
    nested configuration with the change.
    """
    for name, value in config.items():
        if field_kinds.is_config(name, value):
            for inner_name, override in _variations(value, hints):
                yield inner_name, {name: {**value, **override}}
        else:
            for variation in _field_variations(name, value, hints):
                yield name, {name: variation}


def _field_variations(name: str, value: Any, hints: Hints) -> Iterator[Any]:
    """Yield other values for a field that may reach other branches: the opposite of a flag, but for
    that of the result's type, or the values of all `_SUGGESTIONS`."""
    if isinstance(value, bool):
        if name != RESULT_TYPE_FLAG:
            yield not value
        return
    for suggest in _SUGGESTIONS:
        yield from (variation for variation in suggest(name, value, hints) if variation != value)


def _compared_strings_of(name: str, value: Any, hints: Hints) -> tuple[str, ...]:
    """Return the strings that the file compares a field with, and `ACTIVATIONS` for a field of one.

    () is returned for a field that holds something else than a string, and for an unset field that
    the file compares with nothing.
    """
    if not isinstance(value, str) and (value is not None or name not in hints.choices):
        return ()
    activations = ACTIVATIONS if name in ACTIVATION_OR_PROJECTION_FIELDS else ()
    choices = (text for text in hints.choices.get(name, ()) if isinstance(text, str))
    return (*choices, *activations)


def _numbers_for_none(name: str, value: Any, hints: Hints) -> tuple[float, ...]:
    """Return numbers for a field that the text of the hints mentions, and that is unset or has a
    number which stands for none (0, -1), 2 first: of one thing the first is all of them; () for
    others."""
    is_none = value is None or value in (0, -1)
    return (2, 1, 0.5) if name in hints.text and is_none else ()


def _another_layer(name: str, value: Any, hints: Hints) -> tuple[int, ...]:
    """Return one layer more for a number of layers that the text of the hints mentions, since a
    loop may run over those between the first and the last; () for other fields."""
    is_count = name in hints.text and isinstance(value, int) and field_kinds.is_layers(name)
    return (value + 1,) if is_count else ()


def _shared_heads(name: str, value: Any, _: Hints) -> tuple[int, ...]:
    """Return half of the number of heads of keys and values, each of which several heads of queries
    then share; () for other fields and for a single head."""
    is_count = field_kinds.is_key_value_heads(name) and type(value) is int and value > 1
    return (value // 2,) if is_count else ()


def _half_of_compared(name: str, value: Any, hints: Hints) -> tuple[int, ...]:
    """Return half of an integer above 2 that the file tests for equality with another name; () for
    others."""
    return (value // 2,) if name in hints.compared and type(value) is int and value > 2 else ()


def _short_block(name: str, value: Any, hints: Hints) -> tuple[int, ...]:
    """Return `WINDOW` for the number of positions in a block that is longer, where the text of the
    hints mentions it; () for other fields."""
    is_long_block = _is_block(name) and type(value) is int and value > WINDOW
    return (WINDOW,) if name in hints.text and is_long_block else ()


# The reasons for other values of a field, in the order in which these are tried.
_SUGGESTIONS: tuple[Callable[[str, Any, Hints], tuple[Any, ...]], ...] = (
    _compared_strings_of,
    _numbers_for_none,
    _another_layer,
    _shared_heads,
    _half_of_compared,
    _short_block,
)


def _is_block(name: str) -> bool:
    """Return whether a field has a name of the number of positions in a block that is processed
    together."""
    return name in BLOCK_FIELDS
