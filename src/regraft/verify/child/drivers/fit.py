"""Change a shrunk configuration in response to the error that it leads to, until it builds a model
that runs."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regraft.verify.child.drivers.guess import HIDDEN
from regraft.verify.child.drivers.tiny import (
    DERIVED,
    NARROWEST,
    SIZED,
    WIDEST,
    WINDOW,
    is_config,
    is_head_size,
    is_hidden,
    is_layers,
    is_size,
)
from regraft.verify.child.drivers.vary import Choices

# For models whose own backbone comes from a package that is missing.
BACKBONE = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 8, 16, 16],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
}


# Unset sizes of layers; kernels may want a multiple of 8.
_SIZE = re.compile(r"_(size|dim|width)$")

# What is said of a value that should be a list.
_WANTS_LIST = re.compile(r"'NoneType' object is not (subscriptable|iterable)|'NoneType' has no len")

# Two sizes of layers that had to be equal.
_UNLIKE = (
    r"shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)",
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)",
    r"to have (\d+) channels, but got (\d+) channels",
    r"normalized_shape=\[(\d+)\].* input of size\[(?:\d+, )*(\d+)\]",
)


def repairs(
    original: Mapping[str, Any],
    small: Mapping[str, Any],
    text: str,
    line: str = "",
    choices: Choices | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield changes of a shrunk configuration that `text`, the error it leads to, suggests; likely
    ones first.

    Fields that the error or the `line` that raised it names get their old value back or, where they
    are unset, a value (`choices` are the strings that the file compares it with); shrunk fields
    that have one of the sizes in the error get the other sizes; then every other shrunk field in
    turn gets its old value back. A model that is too large is cut down further. Each kind of change
    is tried in the nested configurations too before the next kind.
    """
    fault = _Fault(text, line, choices or {})
    for kind in _TOO_LARGE if "parameters when" in text else _UNFIT:
        yield from _nested_repairs(kind, original, small, fault)
    yield {**small, **_derived_fields(original)}


def named_repairs(
    original: Mapping[str, Any], small: Mapping[str, Any], text: str, line: str, choices: Choices
) -> Iterator[dict[str, Any]]:
    """Yield changes of a constructor's shrunk values that an error, or the `line` that raised it,
    names."""
    fault = _Fault(text, line, choices)
    for kind in (_match_sizes, _change_named_fields, _adjust_part_sizes, _exchange_sizes):
        yield from kind(original, small, fault)


@dataclass(frozen=True, slots=True)
class _Fault:
    """An error's text, the source line that raised it, and the strings that names are compared with
    in its file."""

    text: str
    line: str
    choices: Choices

    @property
    def sizes(self) -> list[int]:
        """The numbers in the error that may be sizes of a layer; smaller ones are batches, channels
        and ranks."""
        numbers = map(int, dict.fromkeys(re.findall(r"\b\d+\b", self.text)))
        return [number for number in numbers if NARROWEST <= number <= WIDEST]

    @property
    def unlike(self) -> tuple[int, int] | None:
        """The two sizes that had to be equal, where the error says so; otherwise None."""
        mismatch = next(
            (match_ for pattern in _UNLIKE if (match_ := re.search(pattern, self.text))), None
        )
        return (int(mismatch[1]), int(mismatch[2])) if mismatch else None


_Repair = Callable[[Mapping[str, Any], Mapping[str, Any], _Fault], Iterator[dict[str, Any]]]


def _nested_repairs(
    kind: _Repair, original: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield the repairs of one kind, for a configuration and for those nested in it."""
    yield from kind(original, small, fault)
    for name, value in small.items():
        if is_config(name, value) and value and original.get(name):
            yield from (
                {**small, name: repaired}
                for repaired in _nested_repairs(kind, original[name], value, fault)
            )


def _change_named_fields(
    original: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield other values for fields that the error or its line names.

    Unset fields that only make sense together, by their names, get values together; a list of
    strings has one string for each layer.
    """
    wants_list = bool(_WANTS_LIST.search(fault.text))
    for text in (fault.text, fault.line):
        named_fields = [name for name in small if re.search(rf"\b{re.escape(name)}\b", text)]
        for name in sorted(named_fields, key=lambda name: (small[name] is not None, -len(name))):
            alternatives = _alternatives(name, small[name], original.get(name))
            lists: tuple[Any, ...] = ([8], [2], [8, 8])
            if small[name] is None and wants_list:
                alternatives = ([], *lists, *alternatives)
            elif small[name] is None and name.endswith("s"):
                alternatives = (*alternatives, *lists)
            elif small[name] is None:
                alternatives = (*alternatives, *_listed_names(small))
            yield from ({**small, name: value} for value in alternatives)
        unset = [name for name in named_fields if small[name] is None]
        stems = {name.partition("_")[0] for name in unset}
        related = [
            name
            for name, value in small.items()
            if value is None and name.partition("_")[0] in stems
        ]
        for group in (unset, related):  # fields that only make sense together
            if len(group) > 1:
                yield {**small, **{name: _first_value(name, wants_list) for name in group}}
    counts = [value for name, value in small.items() if is_layers(name) and isinstance(value, int)]
    for name, value in small.items():
        strings = fault.choices.get(name, ())
        if (
            value is None and strings and counts and f"{name}[" in fault.line
        ):  # one string for each layer
            yield {**small, name: list(itertools.islice(itertools.cycle(strings), max(counts)))}


def _listed_names(small: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the first name of each list of names, since an unset field may be one of them."""
    lists = (value for value in small.values() if isinstance(value, list) and value)
    return tuple(value[0] for value in lists if all(isinstance(element, str) for element in value))


def _first_value(name: str, wants_list: bool) -> Any:
    """Return the first value to try for an unset field; a list where the error wants one and the
    name is a plural."""
    value = 8 if _SIZE.search(name) else 1 if "kv_" in name else 2
    return [value] if wants_list and name.endswith("s") else value


def _add_missing_attribute(
    _: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield values for an attribute that the error says the configuration lacks."""
    missing = re.search(
        r"Config' object has no attribute '(\w+)'|`(\w+)` argument in the config", fault.text
    )
    name = missing and (missing[1] or missing[2])
    if name and small.get(name) is None:
        yield from ({**small, name: value} for value in (0.02, 1, HIDDEN, False, WINDOW))


def _give_wanted_list(
    original: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield a list of as many numbers as the error asks for, with at least as many layers.

    The numbers are those of layers, from 1 on.
    """
    demand = re.search(r"(\w+)\W+to be a list of (?:exactly )?(\d) integers", fault.text)
    if demand and demand[1] in original:
        count = int(demand[2])
        fields = {name: value for name, value in small.items() if name not in DERIVED}
        layers = {
            name: max(count, value)
            for name, value in fields.items()
            if is_layers(name) and isinstance(value, int)
        }
        yield {**fields, **layers, demand[1]: list(range(1, count + 1))}


def _restore_stages(
    original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield the configuration with all its stages, for a backbone that returns several of them."""
    if len(original.get("out_features") or ()) > 1:
        lists = {
            name: original[name]
            for name, value in small.items()
            if name in original and (isinstance(value, list) or is_layers(name))
        }
        yield {**small, **lists, **_derived_fields(original)}


def _match_sizes(
    _: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield changes of one field so that a layer takes the size that it was given.

    The error names two sizes that had to be equal; a field that has one of them gets the other.
    """
    for old, new in (fault.unlike[::-1], fault.unlike) if fault.unlike else ():
        names = [name for name, value in small.items() if value == old and is_size(name)]
        yield from ({**small, name: new} for name in names)


def _adjust_part_sizes(
    _: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield changes of one field by the difference of the two sizes that had to be equal.

    A layer may take a concatenation of which the field is the size of one part.
    """
    if fault.unlike:
        expected, actual = fault.unlike
        sizes = [
            (name, value) for name, value in small.items() if type(value) is int and is_size(name)
        ]
        for difference in (actual - expected, expected - actual):
            yield from (
                {**small, name: value + difference}
                for name, value in sizes
                if 0 < value + difference <= WIDEST
            )


def _equalise_sizes(
    original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield configurations in which sizes are equal again.

    They were equal in several configurations, and were shrunk by different factors.
    """
    new_sizes_by_old: dict[int, list[int]] = {}

    def record_size(old: int, new: int) -> int:
        new_sizes_by_old.setdefault(old, []).append(new)
        return new

    _map_sizes(original, small, record_size)
    for index in (0, -1):
        new_size_by_old = {
            old: new[index]
            for old, new in new_sizes_by_old.items()
            if old >= SIZED and len(set(new)) > 1
        }
        if new_size_by_old:
            yield _map_sizes(original, small, functools.partial(_new_size_or_same, new_size_by_old))


def _new_size_or_same(new_size_by_old: Mapping[int, int], old: int, new: int) -> int:
    """Return the size that is chosen for an old size; the present one where none is."""
    return new_size_by_old.get(old, new)


def _map_sizes(
    original: Mapping[str, Any], small: Mapping[str, Any], change: Callable[[int, int], int]
) -> dict[str, Any]:
    """Return a configuration with each size of a layer replaced by `change(original size, present
    size)`.

    Sizes in lists and in nested configurations are replaced too.
    """
    changed = dict(small)
    for name, present in small.items():
        old = original.get(name)
        if is_config(name, present) and isinstance(old, Mapping):
            changed[name] = _map_sizes(old, present, change)
        elif is_size(name) and type(present) is type(old) is int:
            changed[name] = change(old, present)
        elif is_size(name) and isinstance(old, list) and isinstance(present, list):
            pairs = list(zip(old, present, strict=False))
            changed[name] = (
                [change(*pair) for pair in pairs]
                if all(type(number) is int for number in sum(pairs, ()))
                else present
            )
    return changed


def _exchange_sizes(
    original: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield changes of one field: a shrunk one that has a size of the error gets the error's other
    sizes."""
    for name, value in small.items():
        if value in fault.sizes and original.get(name) != value and not isinstance(value, bool):
            yield from ({**small, name: size} for size in fault.sizes if size != value)


def _enlarge_fields(
    _: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield changes that enlarge fields with the size that an index, perhaps written into the code,
    lies beyond."""
    mismatch = re.search(
        r"index (\d+) is out of bounds for dimension \d+ with size (\d+)", fault.text
    )
    if mismatch:
        index, size = int(mismatch[1]), int(mismatch[2])
        yield from (
            {**small, name: index + 1}
            for name, value in small.items()
            if value == size and not isinstance(value, bool)
        )


def _widen_heads(
    _: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield wider heads where a head, or half of it, is cut into sections whose sizes the code
    contains."""
    mismatch = re.search(r"sum exactly to (\d+) .*split_sizes=\[([\d, ]+)\]", fault.text)
    width, wanted_width = (
        (int(mismatch[1]), sum(map(int, mismatch[2].split(",")))) if mismatch else (0, 0)
    )
    for is_wide in (is_head_size, is_hidden) if width else ():
        wider_sizes = {
            name: value * wanted_width // width
            for name, value in small.items()
            if is_wide(name) and type(value) is int
        }
        if wider_sizes:
            yield {**small, **wider_sizes}


def _fill_fields(
    _: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield values for unset and empty fields, and inverted flags, as the error suggests.

    An ImportError also suggests a backbone that needs no other package.
    """
    if "ImportError" in fault.text:
        yield from (
            {**small, name: not value} for name, value in small.items() if isinstance(value, bool)
        )
        for name in small if "backbone" in fault.text.lower() else ():
            if name.endswith("backbone_config"):
                yield {
                    **small,
                    name: BACKBONE,
                    **dict.fromkeys(small.keys() & {"use_timm_backbone"}, False),
                }
    if "empty" in fault.text:
        yield from (
            {**small, name: value}
            for name, old in small.items()
            if old == []
            for value in ([1], [1.0])
        )
    if "None" in fault.text:
        unset = [
            name for name, value in small.items() if value is None and not name.startswith("_")
        ]
        yield from (
            {**small, name: 8 if _SIZE.search(name) else 1}
            for name in unset
            if re.search(r"^num_|_(id|length|window)$|" + _SIZE.pattern, name)
        )
        mapping = re.search(r"no attribute '(get|items|keys|values)'", fault.text)
        yield from ({**small, name: {}} for name in unset if name.endswith("config") or mapping)
        flags = [
            name
            for name, value in small.items()
            if isinstance(value, bool) and name.startswith("is_")
        ]
        yield from (
            {**small, name: not small[name]} for name in flags if "has no attribute" in fault.text
        )


def _double_sizes(
    original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield changes that double one shrunk size.

    Sizes of which one is a product of others may have been shrunk by different factors.
    """
    for name in _shrunk_names(original, small):
        if isinstance(small[name], int) and not is_layers(name) and "vocab" not in name:
            yield {**small, name: 2 * small[name]}


def _restore_fields(
    original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield changes that give one shrunk field its old value back; lists and numbers of layers come
    first."""
    for name in sorted(
        _shrunk_names(original, small),
        key=lambda n: not (is_layers(n) or isinstance(small[n], list)),
    ):
        yield {**small, name: original[name]}


def _restore_groups(
    original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield changes that give groups of shrunk fields their old values back: lists, layers, heads,
    all."""
    shrunk = _shrunk_names(original, small)
    for group in (
        lambda n: isinstance(small[n], list),
        is_layers,
        lambda n: "head" in n,
        lambda n: True,
    ):
        yield {**small, **{n: original[n] for n in shrunk if group(n)}}


def _shrunk_names(original: Mapping[str, Any], small: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields that differ from the original's and are no mappings."""
    return [
        name
        for name, value in small.items()
        if name in original and original[name] != value and not isinstance(value, Mapping)
    ]


def _cut_fields(
    _: Mapping[str, Any], small: Mapping[str, Any], __: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield smaller versions: all floats cut, all lists cut, then one field cut."""
    yield {
        **small,
        **{name: _cut_value(value) for name, value in small.items() if isinstance(value, float)},
    }
    yield {
        **small,
        **{name: _cut_value(value) for name, value in small.items() if isinstance(value, list)},
    }
    yield from (
        {**small, name: _cut_value(value)}
        for name, value in small.items()
        if _cut_value(value) != value
    )


_TOO_LARGE: tuple[_Repair, ...] = (_change_named_fields, _cut_fields, _restore_fields)
_UNFIT: tuple[_Repair, ...] = (
    _give_wanted_list,
    _widen_heads,
    _match_sizes,
    _change_named_fields,
    _add_missing_attribute,
    _equalise_sizes,
    _restore_stages,
    _adjust_part_sizes,
    _exchange_sizes,
    _enlarge_fields,
    _fill_fields,
    _restore_fields,
    _double_sizes,
    _restore_groups,
)


def _derived_fields(original: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration that it computes from others."""
    return {
        name: original[name] for name in sorted(DERIVED & set(original)) if not name.startswith("_")
    }


def _alternatives(name: str, value: Any, original: Any) -> tuple[Any, ...]:
    """Return values to try for a field instead of `value`; `original` is its value before it was
    shrunk."""
    if isinstance(value, bool):
        return (not value,)
    if value is None or value == 0:
        return (8, 2, 1, True) if _SIZE.search(name) else (2, 1, 8, True)
    if isinstance(value, int):
        return tuple(
            dict.fromkeys(
                number
                for number in (original, 1, 2, 2 * value, value // 2)
                if number not in (value, 0)
            )
        )
    return (original,) if original != value else ()


def _cut_value(value: Any) -> Any:
    """Return a value with its large numbers divided by four, those in lists too."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value // 4 if value >= 16 else value
    if isinstance(value, float):
        return value / 4 if value >= 1 else value
    return [_cut_value(element) for element in value] if isinstance(value, list) else value
