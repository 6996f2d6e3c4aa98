"""Change a shrunk configuration in response to the error that it leads to, until it builds a model
that runs.

Another message is a row of a table, with its example, and a case in `tests/verify/test_repairs.py`.
The rows answer the text of an error, its class and message on one line; the functions of the rows
are in `field_fixers` and `size_fixers`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from regraft.verification.child.drivers import field_fixers as fields
from regraft.verification.child.drivers import size_fixers as sizes
from regraft.verification.child.drivers.field_kinds import is_config
from regraft.verification.child.drivers.repair_table import ANY_ERROR, Fixer, Repair, changes
from regraft.verification.child.drivers.size_fixers import Change, ConfigProblem
from regraft.verification.child.drivers.source_hints import Choices

_Table = tuple[Repair[ConfigProblem, Change], ...]

# Values for unset and empty fields, and inverted flags. All rows are tried for a configuration
# before the first is tried for the configurations nested in it.
FILLINGS: _Table = (
    Repair(
        r"ImportError",
        fields.invert_flags,
        "ImportError: this attention needs the package flash_attn, which is not installed",
    ),
    Repair(
        r"ImportError",
        fields.give_plain_backbone,
        "ImportError: TimmBackbone requires the timm library but it was not found",
    ),
    Repair(
        r"empty",
        fields.fill_empty_lists,
        "ValueError: max() arg is an empty sequence",
    ),
    Repair(
        r"None",
        fields.set_numbers,
        "TypeError: unsupported operand type(s) for *: 'int' and 'NoneType'",
    ),
    Repair(
        r"None",
        fields.set_mappings,
        "AttributeError: 'NoneType' object has no attribute 'items'",
    ),
    Repair(
        r"^(?=.*None).*has no attribute",
        fields.invert_kind_flags,
        "AttributeError: 'NoneType' object has no attribute 'update'",
    ),
)


def _fill_fields(problem: ConfigProblem, _: re.Match[str]) -> Iterator[Change]:
    """Yield configurations with values for unset and empty fields, or with inverted flags, by the
    rows of `FILLINGS`."""
    return changes(FILLINGS, problem, problem.text)


# For a model that has too many parameters (`config_trials.refuse_large`).
CUTS: _Table = (
    Repair(
        ANY_ERROR,
        fields.change_named_fields,
        "_TooLarge: it still has 99,000,000 parameters when its configuration is shrunk",
    ),
    Repair(
        ANY_ERROR,
        fields.cut_fields,
        "_TooLarge: it still has 88,000,000 parameters when its configuration is shrunk",
    ),
    Repair(
        ANY_ERROR,
        fields.restore_fields,
        "_TooLarge: it still has 77,000,000 parameters when its configuration is shrunk",
    ),
)
# For all other errors, likely changes first.
FITS: _Table = (
    Repair(
        r"CUDA|NVIDIA",
        fields.leave_cuda,
        "AssertionError: Torch not compiled with CUDA enabled",
    ),
    Repair(
        r"negative dimension (-\d+)",
        sizes.set_negative_sizes,
        "RuntimeError: Trying to create tensor with negative dimension -1: [-1, 32]",
    ),
    Repair(
        r"(\w+)\W+to be a list of (?:exactly )?(\d) integers",
        fields.give_wanted_list,
        "ValueError: Net requires config.out_indices to be a list of 4 integers, specifying which"
        " features to use",
    ),
    Repair(
        r"sum exactly to (\d+) .*split_sizes=\[([\d, ]+)\]",
        sizes.widen_heads,
        "RuntimeError: split_with_sizes expects split_sizes to sum exactly to 4 (input tensor's"
        " size at dimension -1), but got split_sizes=[8, 12, 12]",
    ),
    Repair(
        sizes.ANY_MISMATCH,
        sizes.match_sizes,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x16 and 32x20)",
    ),
    Repair(
        r"is invalid for input of size",
        sizes.divide_sides,
        "RuntimeError: shape '[3, 1, 7, 1, 7, 16]' is invalid for input of size 3072",
    ),
    Repair(
        r"\b(tuple|list|sequence)\b(?! index)|non-iterable int|type 'int' has no len"
        r"|'int' object is not (subscriptable|iterable)",
        fields.repeat_numbers,
        "AssertionError: depths needs to be a tuple with the number of blocks at each stage",
    ),
    Repair(
        r"unsupported operand type\(s\) for .*'(tuple|list)'"
        r"|'(tuple|list)' object cannot be interpreted",
        fields.take_single_numbers,
        "TypeError: unsupported operand type(s) for //: 'tuple' and 'int'",
    ),
    Repair(
        r"(tuple|list) index out of range",
        fields.lengthen_lists,
        "IndexError: tuple index out of range",
    ),
    Repair(
        r"\((\d+)\) must be divisible by \w+ \((\d+)\)",
        sizes.enlarge_to_multiples,
        "ValueError: num_channels (8) must be divisible by num_groups (32)",
    ),
    Repair(
        r"by zero|must be greater than 0",
        sizes.enlarge_divided_sizes,
        "ZeroDivisionError: integer modulo by zero",
    ),
    Repair(
        ANY_ERROR,
        fields.change_named_fields,
        "ValueError: `window` needs to be set",
    ),
    Repair(
        r"Config' object has no attribute '(\w+)'|`(\w+)` argument in the config",
        fields.add_missing_attribute,
        "AttributeError: 'SmallConfig' object has no attribute 'initializer_range'",
    ),
    Repair(
        r"^KeyError: '(\w+)'",
        fields.add_missing_key,
        "KeyError: 'with_bias'",
    ),
    Repair(
        ANY_ERROR,
        fields.give_compared_words,
        "AssertionError: unknown mode",
    ),
    Repair(
        ANY_ERROR,
        sizes.equalise_sizes,
        "RuntimeError: Given groups=1, weight of size [8, 768, 1, 1], expected input[1, 256, 8, 8]"
        " to have 768 channels, but got 256 channels instead",
    ),
    Repair(
        ANY_ERROR,
        fields.restore_stages,
        "IndexError: list index out of range",
    ),
    Repair(
        sizes.ANY_MISMATCH,
        sizes.adjust_part_sizes,
        "RuntimeError: Given groups=1, weight of size [256, 576, 3, 3], expected input[1, 960, 8,"
        " 8] to have 576 channels, but got 960 channels instead",
    ),
    Repair(
        r"\d",
        sizes.exchange_sizes,
        "RuntimeError: The size of tensor a (32) must match the size of tensor b (20) at"
        " non-singleton dimension 1",
    ),
    Repair(
        r"index (\d+) is out of bounds for dimension \d+ with size (\d+)",
        sizes.enlarge_fields,
        "IndexError: index 10784 is out of bounds for dimension 0 with size 99",
    ),
    Repair(
        r"ImportError|empty|None",
        _fill_fields,
        "TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'",
    ),
    Repair(
        ANY_ERROR,
        fields.restore_fields,
        "KeyError: 'stage4'",
    ),
    Repair(
        ANY_ERROR,
        sizes.double_sizes,
        "ValueError: dimensions do not match",
    ),
    Repair(
        ANY_ERROR,
        fields.restore_groups,
        "ValueError: the layers do not fit each other",
    ),
)
# The repairs that also answer an error of a class which is built from plain values.
_CONSTRUCTOR_FIXERS = (
    fields.leave_cuda,
    sizes.match_sizes,
    sizes.divide_sides,
    fields.repeat_numbers,
    fields.take_single_numbers,
    fields.lengthen_lists,
    sizes.enlarge_divided_sizes,
    sizes.enlarge_to_multiples,
    fields.change_named_fields,
    fields.add_missing_key,
    fields.give_compared_words,
    sizes.adjust_part_sizes,
    sizes.exchange_sizes,
)
CONSTRUCTOR_FITS: _Table = tuple(repair for repair in FITS if repair.fixer in _CONSTRUCTOR_FIXERS)


def repairs(
    original: Mapping[str, Any],
    small: Mapping[str, Any],
    text: str,
    line: str = "",
    choices: Choices | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield changed versions of a shrunk configuration that may avoid an error, likely ones first.

    original: the configuration before it was shrunk. small: the shrunk one, which is not changed.
    text: the error's class and message; that of a too large model selects `CUTS`, any other `FITS`.
    line: the source that raised the error ("" for none), which may name fields. choices: the
    strings that the file compares names with.

    Each version is a whole configuration; a change may be in a nested one. A version may be equal
    to another or to `small`, and may lead to the same error. The last has the original's fields
    that are derived from others.
    """
    problem = ConfigProblem(original, small, text, line, choices or {})
    table = CUTS if "parameters when" in text else FITS
    yield from changes(table, problem, text, _apply_to_nested)
    yield {**small, **fields.derived_fields(original)}


def constructor_repairs(
    original: Mapping[str, Any], small: Mapping[str, Any], text: str, line: str, choices: Choices
) -> Iterator[dict[str, Any]]:
    """Yield changed versions of a constructor's shrunk values by the rows of `CONSTRUCTOR_FITS`:
    other sizes where the error says that two had to be equal, and other values of parameters that
    the error, or the `line` that raised it, names. The arguments are those of `repairs`."""
    problem = ConfigProblem(original, small, text, line, choices)
    return changes(CONSTRUCTOR_FITS, problem, text)


def _apply_to_nested(
    fixer: Fixer[ConfigProblem, Change], problem: ConfigProblem, match: re.Match[str]
) -> Iterator[Change]:
    """Yield the changes of one fixer for a configuration, then for those nested in it at any depth;
    each change is a whole version of the outer configuration. Nested configurations that are empty,
    or that the original has not, are left out."""
    yield from fixer(problem, match)
    for name, value in problem.small.items():
        if is_config(name, value) and value and problem.original.get(name):
            for changed in _apply_to_nested(fixer, problem.within(name), match):
                yield {**problem.small, name: changed}
