"""Watch the state that a call leaves and restore it: attributes of modules, variables of the file,
printed text."""

from __future__ import annotations

import contextlib
import functools
import io
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

from regraft.execution.compare import are_equal, identical
from regraft.execution.nested import flatten
from regraft.verification.child.file_import import COPY, ORIGINAL, SUFFIX

ATTRIBUTE, VARIABLE, PRINTED = "attribute ", "global ", "printed "
_INTERNAL = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = tuple(
    name for name, value in vars(nn.Module()).items() if "hooks" in name and isinstance(value, dict)
)
_hooks_of = itemgetter(*_HOOKS)
_SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_FIXED = frozenset(
    {bool, int, float, str, type(None), type, FunctionType, BuiltinFunctionType, ModuleType}
)
_SEQUENCES: tuple[type, ...] = (list, deque)
_MAPPINGS: tuple[type, ...] = (dict, OrderedDict, defaultdict)
GONE = "<deleted>"
_DEPTH = 6
_PARENTS = 3
# Parts of a repr that differ between equal objects: addresses, and the operation that autograd
# records.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+|(?<=grad_fn=<)\w+")
_VERSION = re.compile(rf"(?<=\w)({SUFFIX}|{COPY}|{ORIGINAL})\b")
_DECIMAL = re.compile(
    r"[+-]?(?:\d+\.\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+|\b(?:nan|inf)\b)",
    re.IGNORECASE,
)


def is_state(path: str) -> bool:
    """Return whether a path of an outcome names state that was left behind, not a result or a
    buffer."""
    return path.startswith((ATTRIBUTE, VARIABLE, PRINTED))


@dataclass(frozen=True, slots=True)
class _Saved:
    """A saved value: the object, and its content where that can change in place (None where it
    cannot)."""

    value: Any
    content: Any = None


def _save(value: Any, home: str, depth: int = _DEPTH) -> _Saved:
    """Return a value saved with a copy of its content: elements of containers and fields of objects
    of the module `home`, down to `depth` levels.

    Modules, classes and other objects are saved without content, to be bound again but not reset.
    """
    if isinstance(value, torch.Tensor):
        return _Saved(value, value.detach().clone())
    if depth == 0 or isinstance(value, nn.Module | type):
        return _Saved(value)
    if type(value) in _SEQUENCES or type(value) is tuple:
        return _Saved(value, [_save(element, home, depth - 1) for element in value])
    if type(value) in _MAPPINGS:
        return _Saved(
            value, {key: _save(element, home, depth - 1) for key, element in value.items()}
        )
    if type(value) is set:
        return _Saved(value, set(value))
    if _is_own_object(value, home):
        return _Saved(
            value, {key: _save(element, home, depth - 1) for key, element in vars(value).items()}
        )
    return _Saved(value)


def _is_own_object(value: Any, home: str) -> bool:
    """Return whether a value is an object, but no module, of a class of the file, whose attributes
    count as state of the file."""
    return (
        type(value).__module__ == home
        and hasattr(value, "__dict__")
        and not isinstance(value, nn.Module | type)
    )


def _is_unchanged(saved: _Saved, value: Any) -> bool:
    """Return whether a value has the type and content of the saved value; it may be a new object
    only if it has content or is a plain constant."""
    content = saved.content
    if type(value) is not type(saved.value):
        return False
    if content is None:
        return value is saved.value or (
            isinstance(value, _SCALARS) and are_equal(value, saved.value)
        )
    if isinstance(content, torch.Tensor):
        return identical(value.detach(), content)
    if isinstance(content, list):
        return len(value) == len(content) and all(map(_is_unchanged, content, value))
    if isinstance(content, set):
        return bool(value == content)
    current = value if type(value) in _MAPPINGS else vars(value)
    return list(current) == list(content) and all(
        _is_unchanged(content[key], element) for key, element in current.items()
    )


def _restore(saved: _Saved) -> None:
    """Set the content of a saved object back to the saved one, in place, because other objects may
    hold it, too; do nothing for a value without content."""
    value, content = saved.value, saved.content
    if content is None:
        return
    if isinstance(content, torch.Tensor):
        _restore_tensor(value, content)
    elif isinstance(content, set):
        if value != content:
            value.clear()
            value.update(content)
    elif isinstance(content, list):
        if type(value) in _SEQUENCES:
            value.clear()
            value.extend(child.value for child in content)
        for child in content:
            _restore(child)
    else:
        current = value if type(value) in _MAPPINGS else vars(value)
        current.clear()
        current.update({key: child.value for key, child in content.items()})
        for child in content.values():
            _restore(child)


def _restore_tensor(value: Any, content: Any) -> None:
    """Restore in place the content of a tensor, also its shape and format where these differ."""
    if value.shape != content.shape or value.dtype != content.dtype:
        value.data = content.clone()
    elif not identical(value.detach(), content):
        value.detach().copy_(content)


@functools.cache
def _watched_names(names: tuple[str, ...], skipped: frozenset[str]) -> tuple[str, ...]:
    """Return the names without those that are skipped or begin with two underscores; cached, since
    thousands of modules have equal names."""
    return tuple(name for name in names if name not in skipped and name[:2] != "__")


class _Namespace:
    """A dictionary of names that is watched: a module's attributes, layers or buffers, or the
    file's variables. Its changes are effects of a call if it is `reported`; it is restored in any
    case."""

    def __init__(
        self, prefix: str, owner: dict[str, Any], home: str, skipped: frozenset[str], reported: bool
    ) -> None:
        """Save the names of a dictionary (`owner`), except those in `skipped`, with copies of their
        values. `prefix` begins the paths of its changes, `home` is the module of the file."""
        self.prefix = prefix
        self.owner = owner
        self.reported = reported
        self._skipped = skipped
        self._names = tuple(owner)
        self._before = self._current_values()
        saved = {
            name: _save(value, home)
            for name, value in self._before.items()
            if type(value) not in _FIXED
        }
        self._saved = {name: copy for name, copy in saved.items() if copy.content is not None}

    def _current_values(self) -> dict[str, Any]:
        """Return the watched names with their current values."""
        owner = self.owner
        return {name: owner[name] for name in _watched_names(tuple(owner), self._skipped)}

    def _has_new_objects(self) -> bool:
        """Return whether a name is new, gone, or holds another object than before: a fast answer
        for thousands of namespaces.
        """
        old_values = self._before
        holds_saved_objects = tuple(self.owner) == self._names and all(
            map(is_, map(self.owner.__getitem__, old_values), old_values.values())
        )
        return not holds_saved_objects

    def changed(self) -> Iterator[tuple[str, Any]]:
        """Yield, sorted, `prefix` and name of those that are new or hold another value since
        construction, with the value, and of those that are gone, with `GONE`. An equal new object
        is no change."""
        if not self._saved and not self._has_new_objects():
            return
        current, old_values, saved = self._current_values(), self._before, self._saved
        candidates = [
            name
            for name, value in current.items()
            if name in saved or value is not old_values.get(name, GONE)
        ]
        changed_names = [
            name
            for name in candidates
            if not _is_unchanged(
                saved.get(name) or _Saved(old_values.get(name, GONE)), current[name]
            )
        ]
        for name in sorted(changed_names + [name for name in old_values if name not in current]):
            yield self.prefix + name, current.get(name, GONE)

    def rewind(self) -> None:
        """Restore the dictionary in place: names that are new are deleted, the others get their
        saved values with the saved content."""
        if self._has_new_objects():
            current = self._current_values()
            for name in current.keys() - self._before.keys():
                del self.owner[name]
            for name, value in self._before.items():
                if current.get(name, GONE) is not value:
                    self.owner[name] = value
        for saved in self._saved.values():
            _restore(saved)


class _Hooks:
    """The hooks of one module: a call may register hooks, and note in an attribute that it did."""

    def __init__(self, path: str, module: Any) -> None:
        """Save the hooks that a module has now."""
        self.path = path
        self._owners: tuple[dict[Any, Any], ...] = _hooks_of(vars(module))
        self._number = sum(map(len, self._owners))
        self._before = (
            [dict(owner) for owner in self._owners] if self._number else [{}] * len(self._owners)
        )

    def added_count(self) -> int:
        """Return the number of hooks that were registered since, less those that were removed."""
        return sum(map(len, self._owners)) - self._number

    def rewind(self) -> None:
        """Restore in place the hooks that the module had at construction."""
        if not self._number and not any(self._owners):
            return
        for owner, saved in zip(self._owners, self._before, strict=True):
            if owner.keys() != saved.keys():
                owner.clear()
                owner.update(saved)


class Watch:
    """Saves the state of a module tree and of a file's variables at construction, reports its
    changes, and restores it. `module` and `scope` may be None; variables in `skipped`, parameters'
    values and names with two leading underscores are not watched."""

    def __init__(
        self, module: Any, scope: ModuleType | None, skipped: frozenset[str] = frozenset()
    ) -> None:
        """Save the present state of the variables of `scope`, and of the attributes, layers,
        buffers and hooks of `module` and its submodules."""
        self._scope = scope
        self._text = io.TextIOWrapper(
            io.BytesIO(), encoding="utf-8", errors="replace", write_through=True
        )
        home = scope.__name__ if scope is not None else ""
        self._namespaces = (
            [_Namespace(VARIABLE, vars(scope), home, skipped, True)] if scope is not None else []
        )
        self._hooks: list[_Hooks] = []
        for path, submodule in module.named_modules() if isinstance(module, nn.Module) else ():
            self._hooks.append(_Hooks(path, submodule))
            prefix = f"{ATTRIBUTE}{path}." if path else ATTRIBUTE
            self._namespaces.append(_Namespace(prefix, vars(submodule), home, _INTERNAL, True))
            self._namespaces.append(_Namespace(prefix, submodule._modules, home, frozenset(), True))
            if submodule._buffers:
                self._namespaces.append(
                    _Namespace(prefix, submodule._buffers, home, frozenset(), False)
                )

    @contextmanager
    def collect_printing(self) -> Iterator[None]:
        """Collect the text that the body prints to stdout, so that it is not shown; `effects`
        returns it."""
        with contextlib.redirect_stdout(self._text):
            yield

    def effects(self, number_format: Callable[[], Any]) -> dict[str, Any]:
        """Return the changes since the watch began and the text printed since the last call of this
        method, as flat leaves whose paths `is_state` accepts; {} where nothing changed.

        Decimal numbers become tensors of `number_format`, so that they are compared as results of
        computations. Changes of buffers are not returned.
        """
        leaves: dict[str, Any] = {}
        for namespace in self._namespaces:
            if namespace.reported:
                for path, value in namespace.changed():
                    leaves.update(_leaves(path, value, self._scope, number_format))
        for hooks in self._hooks:
            if added := hooks.added_count():
                leaves[f"{ATTRIBUTE}{hooks.path}, number of hooks"] = added
        text = normalise_text(self._take_text(), self._scope)
        if text:
            leaves[f"{PRINTED}text"] = " ".join(_DECIMAL.sub("#", text).split())
            numbers = [float(number) for number in _DECIMAL.findall(text)]
            leaves[f"{PRINTED}numbers"] = torch.tensor(numbers, dtype=number_format())
        return leaves

    def _take_text(self) -> str:
        """Return the text printed so far and forget it."""
        buffer: Any = self._text.buffer
        text = buffer.getvalue().decode("utf-8", "replace")
        buffer.seek(0)
        buffer.truncate()
        return str(text)

    def rewind(self) -> None:
        """Restore in place all state as it was when the watch began; printed text stays
        collected."""
        for namespace in self._namespaces:
            namespace.rewind()
        for hooks in self._hooks:
            hooks.rewind()


def _leaves(
    path: str, value: Any, scope: ModuleType | None, number_format: Callable[[], Any] | None
) -> dict[str, Any]:
    """Return the comparable leaves of a value by path; without `number_format` decimal numbers stay
    numbers."""
    return {
        name: _comparable_leaf(leaf, scope, number_format)
        for name, leaf in flatten(value, path).items()
    }


def _comparable_leaf(
    leaf: Any, scope: ModuleType | None, number_format: Callable[[], Any] | None
) -> Any:
    """Return a leaf in a form that can be compared between the versions: a tensor detached and
    copied, a float as a tensor in the number format unless `number_format` is None, text without
    addresses and paths, anything else as it is."""
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().clone()
    if isinstance(leaf, float) and number_format is not None:
        return torch.tensor(leaf, dtype=number_format())
    return normalise_text(leaf, scope) if isinstance(leaf, str) else leaf


def normalise_text(text: str, scope: ModuleType | None) -> str:
    """Return text without the parts that differ between two copies of one file: addresses, its path
    and two folders above, its module's suffix. Without a scope that has a file, paths stay."""
    text = _VERSION.sub("", _ADDRESS.sub("...", text))
    folder = str(getattr(scope, "__file__", ""))
    for level in range(_PARENTS):
        if os.path.dirname(folder) != folder:
            text = text.replace(folder, f"<file {level}>")
            folder = os.path.dirname(folder)
    return text


def variable_leaves(scope: ModuleType) -> dict[str, Any]:
    """Return by path the plain values among a file's variables as flat leaves: numbers, strings,
    tensors, containers, fields of objects of the file's classes. Functions, classes, modules and
    names with two leading underscores are skipped."""
    return _plain_leaves(VARIABLE, vars(scope), scope, frozenset())


def attribute_leaves(module: Any, path: str, scope: ModuleType) -> dict[str, Any]:
    """Return by path the plain values among the attributes of one module, which is at `path` in its
    model, as flat leaves; parameters, buffers and submodules are not included."""
    return _plain_leaves(
        f"{ATTRIBUTE}{path}." if path else ATTRIBUTE, vars(module), scope, _INTERNAL
    )


def _plain_leaves(
    prefix: str, namespace: Mapping[str, Any], scope: ModuleType, skipped: frozenset[str]
) -> dict[str, Any]:
    """Return the plain values of a namespace, and the fields of objects of the file's classes, as
    flat leaves by `prefix` and name; names in `skipped` or with two leading underscores are
    skipped."""
    leaves: dict[str, Any] = {}
    for name, value in namespace.items():
        if name in skipped or name.startswith("__"):
            continue
        is_plain = isinstance(value, (*_SCALARS, torch.Tensor, set, tuple)) or type(value) in (
            *_SEQUENCES,
            *_MAPPINGS,
        )
        if is_plain or _is_own_object(value, scope.__name__):
            leaves.update(_leaves(prefix + name, value, scope, None))
    return leaves
