"""Change a shrunk configuration after the error that it leads to, until it builds a model that runs."""

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
    "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1],
    "layer_type": "basic", "out_features": ["stage2", "stage3", "stage4"],
}  # fmt: skip


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
    original: Mapping[str, Any], small: Mapping[str, Any], text: str, line: str = "", choices: Choices | None = None
) -> Iterator[dict[str, Any]]:
    """Yield changes of a shrunk configuration that `text`, the error it leads to, suggests; likely ones first.

    Fields that the error or the `line` that raised it names get their old value back or, where they are unset, a value
    (`choices` are the strings that the file compares it with); shrunk fields that have one of the sizes in the error
    get the others; then every other shrunk field in turn gets its old value back. A model that is too large is cut
    down further. Each kind of change is tried in the nested configurations too before the next.
    """
    fault = _Fault(text, line, choices or {})
    for kind in _TOO_LARGE if "parameters when" in text else _UNFIT:
        yield from _everywhere(kind, original, small, fault)
    yield {**small, **_derived(original)}


def named_repairs(
    original: Mapping[str, Any], small: Mapping[str, Any], text: str, line: str, choices: Choices
) -> Iterator[dict[str, Any]]:
    """Yield the changes of shrunk values of a constructor that an error, or the `line` that raised it, names."""
    fault = _Fault(text, line, choices)
    for kind in (_fitted, _named, _joined, _exchanged):
        yield from kind(original, small, fault)


@dataclass(frozen=True, slots=True)
class _Fault:
    """An error's text, the source line that raised it, and the strings that names are compared with in its file."""

    text: str
    line: str
    choices: Choices

    @property
    def sizes(self) -> list[int]:
        """The numbers in the error; small ones are batches, channels and ranks, no sizes of a layer."""
        numbers = map(int, dict.fromkeys(re.findall(r"\b\d+\b", self.text)))
        return [number for number in numbers if NARROWEST <= number <= WIDEST]

    @property
    def unlike(self) -> tuple[int, int] | None:
        """The two sizes that had to be equal, where the error says so."""
        found = next((one for pattern in _UNLIKE if (one := re.search(pattern, self.text))), None)
        return (int(found[1]), int(found[2])) if found else None


_Repair = Callable[[Mapping[str, Any], Mapping[str, Any], _Fault], Iterator[dict[str, Any]]]


def _everywhere(
    kind: _Repair, original: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault
) -> Iterator[dict[str, Any]]:
    """Yield the repairs of one kind, of a configuration and of those inside."""
    yield from kind(original, small, fault)
    for name, value in small.items():
        if is_config(name, value) and value and original.get(name):
            yield from ({**small, name: changed} for changed in _everywhere(kind, original[name], value, fault))


def _named(original: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    wants_list = bool(_WANTS_LIST.search(fault.text))
    for text in (fault.text, fault.line):
        named = [name for name in small if re.search(rf"\b{re.escape(name)}\b", text)]
        for name in sorted(named, key=lambda name: (small[name] is not None, -len(name))):
            others = _others(name, small[name], original.get(name))
            lists: tuple[Any, ...] = ([8], [2], [8, 8])
            if small[name] is None and wants_list:
                others = ([], *lists, *others)
            elif small[name] is None and name.endswith("s"):
                others = (*others, *lists)
            elif small[name] is None:
                others = (*others, *_listed_names(small))
            yield from ({**small, name: value} for value in others)
        unset = [name for name in named if small[name] is None]
        stems = {name.partition("_")[0] for name in unset}
        related = [name for name, value in small.items() if value is None and name.partition("_")[0] in stems]
        for group in (unset, related):  # what only makes sense together
            if len(group) > 1:
                yield {**small, **{name: _first_value(name, wants_list) for name in group}}
    counts = [value for name, value in small.items() if is_layers(name) and isinstance(value, int)]
    for name, value in small.items():
        strings = fault.choices.get(name, ())
        if value is None and strings and counts and f"{name}[" in fault.line:  # one for each layer
            yield {**small, name: list(itertools.islice(itertools.cycle(strings), max(counts)))}


def _listed_names(small: Mapping[str, Any]) -> tuple[str, ...]:
    """The first name of each list of names, of which an unset field may be one."""
    lists = (value for value in small.values() if isinstance(value, list) and value)
    return tuple(value[0] for value in lists if all(isinstance(one, str) for one in value))


def _first_value(name: str, wants_list: bool) -> Any:
    """A value for a field that is not set."""
    value = 8 if _SIZE.search(name) else 1 if "kv_" in name else 2
    return [value] if wants_list and name.endswith("s") else value


def _unknown(_: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    found = re.search(r"Config' object has no attribute '(\w+)'|`(\w+)` argument in the config", fault.text)
    name = found and (found[1] or found[2])
    if name and small.get(name) is None:
        yield from ({**small, name: value} for value in (0.02, 1, HIDDEN, False, WINDOW))


def _listed(original: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    """Where a list of so many numbers is asked for, which are those of layers, give it and as many layers."""
    found = re.search(r"(\w+)\W+to be a list of (?:exactly )?(\d) integers", fault.text)
    if found and found[1] in original:
        count = int(found[2])
        kept = {name: value for name, value in small.items() if name not in DERIVED}
        layers = {
            name: max(count, value) for name, value in kept.items() if is_layers(name) and isinstance(value, int)
        }
        yield {**kept, **layers, found[1]: list(range(1, count + 1))}


def _stages(original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault) -> Iterator[dict[str, Any]]:
    """Give a backbone that returns several stages all its stages back."""
    if len(original.get("out_features") or ()) > 1:
        lists = {n: original[n] for n, v in small.items() if n in original and (isinstance(v, list) or is_layers(n))}
        yield {**small, **lists, **_derived(original)}


def _fitted(_: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    """Where a layer was given another size than it takes, let what has one of them have the other."""
    for old, new in (fault.unlike[::-1], fault.unlike) if fault.unlike else ():
        names = [name for name, value in small.items() if value == old and is_size(name)]
        yield from ({**small, name: new} for name in names)


def _joined(_: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    """Where a layer was given what is concatenated, let what has one part of it change by the difference."""
    if fault.unlike:
        taken, given = fault.unlike
        sizes = [(name, value) for name, value in small.items() if type(value) is int and is_size(name)]
        for more in (given - taken, taken - given):
            yield from ({**small, name: value + more} for name, value in sizes if 0 < value + more <= WIDEST)


def _alike(original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault) -> Iterator[dict[str, Any]]:
    """Sizes that were equal in several configurations, and were shrunk by different parts, are equal again."""
    found: dict[int, list[int]] = {}

    def note(old: int, now: int) -> int:
        found.setdefault(old, []).append(now)
        return now

    _resized(original, small, note)
    for place in (0, -1):
        chosen = {old: now[place] for old, now in found.items() if old >= SIZED and len(set(now)) > 1}
        if chosen:
            yield _resized(original, small, functools.partial(_chosen, chosen))


def _chosen(chosen: Mapping[int, int], old: int, now: int) -> int:
    return chosen.get(old, now)


def _resized(
    original: Mapping[str, Any], small: Mapping[str, Any], change: Callable[[int, int], int]
) -> dict[str, Any]:
    """Replace the sizes of layers, those in lists and in the configurations inside too, by what they were and are."""
    changed = dict(small)
    for name, now in small.items():
        old = original.get(name)
        if is_config(name, now) and isinstance(old, Mapping):
            changed[name] = _resized(old, now, change)
        elif is_size(name) and type(now) is type(old) is int:
            changed[name] = change(old, now)
        elif is_size(name) and isinstance(old, list) and isinstance(now, list):
            pairs = list(zip(old, now, strict=False))
            changed[name] = [change(*pair) for pair in pairs] if all(type(n) is int for n in sum(pairs, ())) else now
    return changed


def _exchanged(original: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    for name, value in small.items():
        if value in fault.sizes and original.get(name) != value and not isinstance(value, bool):
            yield from ({**small, name: size} for size in fault.sizes if size != value)


def _outgrown(_: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    """Enlarge what an index, written into the code perhaps, lies beyond."""
    found = re.search(r"index (\d+) is out of bounds for dimension \d+ with size (\d+)", fault.text)
    if found:
        index, size = int(found[1]), int(found[2])
        yield from ({**small, n: index + 1} for n, v in small.items() if v == size and not isinstance(v, bool))


def _cut_to_sections(_: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    """Where a head, or its half, is cut into sections whose sizes the code has, let heads be as wide."""
    found = re.search(r"sum exactly to (\d+) .*split_sizes=\[([\d, ]+)\]", fault.text)
    given, wanted = (int(found[1]), sum(map(int, found[2].split(",")))) if found else (0, 0)
    for is_wide in (is_head_size, is_hidden) if given else ():
        wide = {name: value * wanted // given for name, value in small.items() if is_wide(name) and type(value) is int}
        if wide:
            yield {**small, **wide}


def _filled(_: Mapping[str, Any], small: Mapping[str, Any], fault: _Fault) -> Iterator[dict[str, Any]]:
    if "ImportError" in fault.text:
        yield from ({**small, name: not value} for name, value in small.items() if isinstance(value, bool))
        for name in small if "backbone" in fault.text.lower() else ():
            if name.endswith("backbone_config"):
                yield {**small, name: BACKBONE, **dict.fromkeys(small.keys() & {"use_timm_backbone"}, False)}
    if "empty" in fault.text:
        yield from ({**small, name: value} for name, old in small.items() if old == [] for value in ([1], [1.0]))
    if "None" in fault.text:
        unset = [name for name, value in small.items() if value is None and not name.startswith("_")]
        yield from (
            {**small, name: 8 if _SIZE.search(name) else 1}
            for name in unset
            if re.search(r"^num_|_(id|length|window)$|" + _SIZE.pattern, name)
        )
        mapping = re.search(r"no attribute '(get|items|keys|values)'", fault.text)
        yield from ({**small, name: {}} for name in unset if name.endswith("config") or mapping)
        flags = [name for name, value in small.items() if isinstance(value, bool) and name.startswith("is_")]
        yield from ({**small, name: not small[name]} for name in flags if "has no attribute" in fault.text)


def _doubled(original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault) -> Iterator[dict[str, Any]]:
    """Sizes that have to multiply to another may have been shrunk by different parts."""
    for name in _shrunken(original, small):
        if isinstance(small[name], int) and not is_layers(name) and "vocab" not in name:
            yield {**small, name: 2 * small[name]}


def _restored(original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault) -> Iterator[dict[str, Any]]:
    for name in sorted(_shrunken(original, small), key=lambda n: not (is_layers(n) or isinstance(small[n], list))):
        yield {**small, name: original[name]}


def _restored_together(original: Mapping[str, Any], small: Mapping[str, Any], _: _Fault) -> Iterator[dict[str, Any]]:
    shrunk = _shrunken(original, small)
    for group in (lambda n: isinstance(small[n], list), is_layers, lambda n: "head" in n, lambda n: True):
        yield {**small, **{n: original[n] for n in shrunk if group(n)}}


def _shrunken(original: Mapping[str, Any], small: Mapping[str, Any]) -> list[str]:
    return [n for n, v in small.items() if n in original and original[n] != v and not isinstance(v, Mapping)]


def _cut_down(_: Mapping[str, Any], small: Mapping[str, Any], __: _Fault) -> Iterator[dict[str, Any]]:
    yield {**small, **{name: _cut(value) for name, value in small.items() if isinstance(value, float)}}
    yield {**small, **{name: _cut(value) for name, value in small.items() if isinstance(value, list)}}
    yield from ({**small, name: _cut(value)} for name, value in small.items() if _cut(value) != value)


_TOO_LARGE: tuple[_Repair, ...] = (_named, _cut_down, _restored)
_UNFIT: tuple[_Repair, ...] = (
    _listed, _cut_to_sections, _fitted, _named, _unknown, _alike, _stages, _joined, _exchanged, _outgrown, _filled,
    _restored, _doubled, _restored_together,
)  # fmt: skip


def _derived(original: Mapping[str, Any]) -> dict[str, Any]:
    return {name: original[name] for name in sorted(DERIVED & set(original)) if not name.startswith("_")}


def _others(name: str, value: Any, original: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if value is None or value == 0:
        return (8, 2, 1, True) if _SIZE.search(name) else (2, 1, 8, True)
    if isinstance(value, int):
        return tuple(dict.fromkeys(one for one in (original, 1, 2, 2 * value, value // 2) if one not in (value, 0)))
    return (original,) if original != value else ()


def _cut(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value // 4 if value >= 16 else value
    if isinstance(value, float):
        return value / 4 if value >= 1 else value
    return [_cut(item) for item in value] if isinstance(value, list) else value
