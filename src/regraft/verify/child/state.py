"""What a call leaves behind besides its result: attributes of modules, variables of the file, printed text."""

from __future__ import annotations

import contextlib
import functools
import io
import math
import os
import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import is_, itemgetter
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from regraft.verify.child import tree
from regraft.verify.child.load import AGAIN, ORIGINAL, SUFFIX

ATTRIBUTE, VARIABLE, PRINTED = "attribute ", "global ", "printed "
_INTERNAL = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = tuple(name for name, value in vars(nn.Module()).items() if "hooks" in name and isinstance(value, dict))
_hooks_of = itemgetter(*_HOOKS)
_SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_FIXED = frozenset({bool, int, float, str, type(None), type, FunctionType, BuiltinFunctionType, ModuleType})
_SEQUENCES: tuple[type, ...] = (list, deque)
_MAPPINGS: tuple[type, ...] = (dict, OrderedDict, defaultdict)
GONE = "<deleted>"
_DEPTH = 6
_PARENTS = 3
# What repr writes for objects of one kind but not of one run: their addresses and how autograd made them.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+|(?<=grad_fn=<)\w+")
_VERSION = re.compile(rf"(?<=\w)({SUFFIX}|{AGAIN}|{ORIGINAL})\b")
_DECIMAL = re.compile(
    r"[+-]?(?:\d+\.\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+|\b(?:nan|inf)\b)", re.IGNORECASE
)


def is_state(path: str) -> bool:
    """Whether a path of an outcome names something left behind, not a result or a buffer."""
    return path.startswith((ATTRIBUTE, VARIABLE, PRINTED))


@dataclass(frozen=True, slots=True)
class _Kept:
    """A value as it was: the object, and its content where that can change in place (None where it cannot)."""

    value: Any
    content: Any = None


def _keep(value: Any, home: str, depth: int = _DEPTH) -> _Kept:
    if isinstance(value, torch.Tensor):
        return _Kept(value, value.detach().clone())
    if depth == 0 or isinstance(value, nn.Module | type):
        return _Kept(value)
    if type(value) in _SEQUENCES or type(value) is tuple:
        return _Kept(value, [_keep(item, home, depth - 1) for item in value])
    if type(value) in _MAPPINGS:
        return _Kept(value, {key: _keep(item, home, depth - 1) for key, item in value.items()})
    if type(value) is set:
        return _Kept(value, set(value))
    if _own(value, home):
        return _Kept(value, {key: _keep(item, home, depth - 1) for key, item in vars(value).items()})
    return _Kept(value)


def _own(value: Any, home: str) -> bool:
    """Whether a value is an object of a class of the file itself, whose attributes count as the file's data."""
    return type(value).__module__ == home and hasattr(value, "__dict__") and not isinstance(value, nn.Module | type)


def _same(kept: _Kept, value: Any) -> bool:
    """Whether a value is still what was kept; an equal value in a new object is."""
    content = kept.content
    if type(value) is not type(kept.value):
        return False
    if content is None:
        return value is kept.value or (isinstance(value, _SCALARS) and _equal(value, kept.value))
    if isinstance(content, torch.Tensor):
        return identical(value.detach(), content)
    if isinstance(content, list):
        return len(value) == len(content) and all(map(_same, content, value))
    if isinstance(content, set):
        return bool(value == content)
    items = value if type(value) in _MAPPINGS else vars(value)
    return list(items) == list(content) and all(_same(content[key], item) for key, item in items.items())


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def identical(a: Any, b: Any) -> bool:
    """Whether two tensors hold the same values in the same format; NaN equals NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a, b) or bool(((a == b) | (torch.isnan(a) & torch.isnan(b))).all())


def _rewind(kept: _Kept) -> None:
    """Give an object back the content that it had, in place: others may hold it too."""
    value, content = kept.value, kept.content
    if content is None:
        return
    if isinstance(content, torch.Tensor):
        _rewind_tensor(value, content)
    elif isinstance(content, set):
        if value != content:
            value.clear()
            value.update(content)
    elif isinstance(content, list):
        if type(value) in _SEQUENCES:
            value.clear()
            value.extend(child.value for child in content)
        for child in content:
            _rewind(child)
    else:
        items = value if type(value) in _MAPPINGS else vars(value)
        items.clear()
        items.update({key: child.value for key, child in content.items()})
        for child in content.values():
            _rewind(child)


def _rewind_tensor(value: Any, content: Any) -> None:
    if value.shape != content.shape or value.dtype != content.dtype:
        value.data = content.clone()
    elif not identical(value.detach(), content):
        value.detach().copy_(content)


@functools.cache
def _watched(names: tuple[str, ...], skipped: frozenset[str]) -> tuple[str, ...]:
    """Those of a dictionary's names that are watched; modules by the thousand have the same ones."""
    return tuple(name for name in names if name not in skipped and name[:2] != "__")


class _Place:
    """One dictionary of names that is watched: a module's attributes, layers or buffers, or the file's variables."""

    def __init__(self, prefix: str, owner: dict[str, Any], home: str, skipped: frozenset[str], reported: bool) -> None:
        self.prefix = prefix
        self.owner = owner
        self.reported = reported
        self._skipped = skipped
        self._names = tuple(owner)
        self._before = self._now()
        kept = {name: _keep(value, home) for name, value in self._before.items() if type(value) not in _FIXED}
        self._kept = {name: one for name, one in kept.items() if one.content is not None}

    def _now(self) -> dict[str, Any]:
        owner = self.owner
        return {name: owner[name] for name in _watched(tuple(owner), self._skipped)}

    def _moved(self) -> bool:
        """Whether a name is new, gone, or holds another object than before: a short answer for thousands of places."""
        before = self._before
        same = tuple(self.owner) == self._names and all(map(is_, map(self.owner.__getitem__, before), before.values()))
        return not same

    def changed(self) -> Iterator[tuple[str, Any]]:
        """Yield the names that are new or hold another value, with it, and those that are gone, with `GONE`."""
        if not self._kept and not self._moved():
            return
        now, before, kept = self._now(), self._before, self._kept
        moved = [name for name, value in now.items() if name in kept or value is not before.get(name, GONE)]
        found = [name for name in moved if not _same(kept.get(name) or _Kept(before.get(name, GONE)), now[name])]
        for name in sorted(found + [name for name in before if name not in now]):
            yield self.prefix + name, now.get(name, GONE)

    def rewind(self) -> None:
        if self._moved():
            now = self._now()
            for name in now.keys() - self._before.keys():
                del self.owner[name]
            for name, value in self._before.items():
                if now.get(name, GONE) is not value:
                    self.owner[name] = value
        for kept in self._kept.values():
            _rewind(kept)


class _Hooks:
    """The hooks of one module: a call may register some, and keep in an attribute that it did."""

    def __init__(self, path: str, part: Any) -> None:
        self.path = path
        self._owners: tuple[dict[Any, Any], ...] = _hooks_of(vars(part))
        self._number = sum(map(len, self._owners))
        self._before = [dict(owner) for owner in self._owners] if self._number else [{}] * len(self._owners)

    def more(self) -> int:
        """How many hooks were registered since, less those that were removed."""
        return sum(map(len, self._owners)) - self._number

    def rewind(self) -> None:
        if not self._number and not any(self._owners):
            return
        for owner, before in zip(self._owners, self._before, strict=True):
            if owner.keys() != before.keys():
                owner.clear()
                owner.update(before)


class Watch:
    """Keeps the state of a module tree and of the file's variables; says what changed since, and takes it back."""

    def __init__(self, module: Any, scope: ModuleType | None, skipped: frozenset[str] = frozenset()) -> None:
        self._scope = scope
        self._text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace", write_through=True)
        home = scope.__name__ if scope is not None else ""
        self._places = [_Place(VARIABLE, vars(scope), home, skipped, True)] if scope is not None else []
        self._hooks: list[_Hooks] = []
        for path, part in module.named_modules() if isinstance(module, nn.Module) else ():
            self._hooks.append(_Hooks(path, part))
            prefix = f"{ATTRIBUTE}{path}." if path else ATTRIBUTE
            self._places.append(_Place(prefix, vars(part), home, _INTERNAL, True))
            self._places.append(_Place(prefix, part._modules, home, frozenset(), True))
            if part._buffers:
                self._places.append(_Place(prefix, part._buffers, home, frozenset(), False))

    @contextmanager
    def printing(self) -> Iterator[None]:
        """Keep what is printed to stdout meanwhile."""
        with contextlib.redirect_stdout(self._text):
            yield

    def effects(self, number_format: Callable[[], Any]) -> dict[str, Any]:
        """Return what changed since the watch began and what was printed since the last question, as flat leaves.

        Decimal numbers become tensors of `number_format`, so that they are compared as results of computations.
        """
        found: dict[str, Any] = {}
        for place in self._places:
            if place.reported:
                for path, value in place.changed():
                    found.update(_leaves(path, value, self._scope, number_format))
        for hooks in self._hooks:
            if more := hooks.more():
                found[f"{ATTRIBUTE}{hooks.path}, number of hooks"] = more
        text = normal(self._take(), self._scope)
        if text:
            found[f"{PRINTED}text"] = " ".join(_DECIMAL.sub("#", text).split())
            numbers = [float(number) for number in _DECIMAL.findall(text)]
            found[f"{PRINTED}numbers"] = torch.tensor(numbers, dtype=number_format())
        return found

    def _take(self) -> str:
        raw: Any = self._text.buffer
        text = raw.getvalue().decode("utf-8", "replace")
        raw.seek(0)
        raw.truncate()
        return str(text)

    def rewind(self) -> None:
        """Put everything back as it was when the watch began."""
        for place in self._places:
            place.rewind()
        for hooks in self._hooks:
            hooks.rewind()


def _leaves(
    path: str, value: Any, scope: ModuleType | None, number_format: Callable[[], Any] | None
) -> dict[str, Any]:
    return {name: _leaf(leaf, scope, number_format) for name, leaf in tree.flatten(value, path).items()}


def _leaf(leaf: Any, scope: ModuleType | None, number_format: Callable[[], Any] | None) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().clone()
    if isinstance(leaf, float) and number_format is not None:
        return torch.tensor(leaf, dtype=number_format())
    return normal(leaf, scope) if isinstance(leaf, str) else leaf


def normal(text: str, scope: ModuleType | None) -> str:
    """Return text without what differs between two copies of one file: addresses, its folder, its module's suffix."""
    text = _VERSION.sub("", _ADDRESS.sub("...", text))
    folder = str(getattr(scope, "__file__", ""))
    for level in range(_PARENTS):
        if os.path.dirname(folder) != folder:
            text = text.replace(folder, f"<file {level}>")
            folder = os.path.dirname(folder)
    return text


def variables(scope: ModuleType) -> dict[str, Any]:
    """Return the plain data among a file's variables as flat leaves: numbers, strings, tensors, containers of them."""
    return _plain_leaves(VARIABLE, vars(scope), scope, frozenset())


def attributes(part: Any, path: str, scope: ModuleType) -> dict[str, Any]:
    """Return the plain data among the attributes of one module, which is at `path` in its model, as flat leaves."""
    return _plain_leaves(f"{ATTRIBUTE}{path}." if path else ATTRIBUTE, vars(part), scope, _INTERNAL)


def _plain_leaves(prefix: str, owner: Mapping[str, Any], scope: ModuleType, skipped: frozenset[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in owner.items():
        if name in skipped or name.startswith("__"):
            continue
        data = isinstance(value, (*_SCALARS, torch.Tensor, set, tuple)) or type(value) in (*_SEQUENCES, *_MAPPINGS)
        if data or _own(value, scope.__name__):
            found.update(_leaves(prefix + name, value, scope, None))
    return found
