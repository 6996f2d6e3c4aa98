"""Watch the state that a call leaves and restore it: attributes of modules, variables of the file,
printed text."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import is_, itemgetter
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn

from regraft.verification.child.saved_state import FIXED, Saved, is_unchanged, restore, save
from regraft.verification.child.state_leaves import (
    ATTRIBUTE,
    DECIMAL,
    INTERNAL,
    PRINTED,
    VARIABLE,
    attribute_prefix,
    leaves_of,
    normalise_text,
)
from regraft.verification.child.watched_parameters import WatchedParameters

_HOOKS = tuple(
    name for name, value in vars(nn.Module()).items() if "hooks" in name and isinstance(value, dict)
)
_hooks_of = itemgetter(*_HOOKS)
_NO_HOOKS: list[dict[Any, Any]] = [{} for _ in _HOOKS]  # only read
GONE = "<deleted>"


def is_state(path: str) -> bool:
    """Return whether a path of an outcome names state that was left behind, not a result or a
    buffer."""
    return path.startswith((ATTRIBUTE, VARIABLE, PRINTED))


@functools.cache
def _watched_names(names: tuple[str, ...], skipped: frozenset[str]) -> tuple[str, ...]:
    """Return the names without those that are skipped or begin with two underscores; cached, since
    thousands of modules have equal names."""
    return tuple(name for name in names if name not in skipped and name[:2] != "__")


class StateChange(NamedTuple):
    """A value at a path of the state that a call left, new or other than before, or `GONE`;
    `reported` tells whether it is an effect of the call."""

    path: str
    value: Any
    reported: bool


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
        self._saved: dict[str, Saved] = {}
        for name, value in self._before.items():
            if type(value) not in FIXED:
                saved = save(value, home)
                if saved.content is not None:
                    self._saved[name] = saved

    def _current_values(self) -> dict[str, Any]:
        """Return the watched names with their current values."""
        owner = self.owner
        if not owner:  # the layers of most modules
            return {}
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
            if not is_unchanged(saved.get(name) or Saved(old_values.get(name, GONE)), current[name])
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
            restore(saved)


class _Hooks:
    """The hooks of one module: a call may register hooks, and note in an attribute that it did."""

    def __init__(self, path: str, module: Any) -> None:
        """Save the hooks that a module has now."""
        self.path = path
        self._owners: tuple[dict[Any, Any], ...] = _hooks_of(vars(module))
        self._number = sum(map(len, self._owners))
        self._before = [dict(owner) for owner in self._owners] if self._number else _NO_HOOKS

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
    changes, and restores it. `module` and `scope` may be None; variables in `skipped` and names
    with two leading underscores are not watched."""

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
        self._namespaces: list[_Namespace] = []
        if scope is not None:
            self._namespaces.append(_Namespace(VARIABLE, vars(scope), home, skipped, True))
        self._parameters = WatchedParameters(module)
        self._hooks: list[_Hooks] = []
        for path, submodule in module.named_modules() if isinstance(module, nn.Module) else ():
            self._hooks.append(_Hooks(path, submodule))
            prefix = attribute_prefix(path)
            self._namespaces.append(_Namespace(prefix, vars(submodule), home, INTERNAL, True))
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

    def changes(self) -> tuple[StateChange, ...]:
        """Return the changes of attributes, layers, buffers and variables since the watch began."""
        return tuple(
            StateChange(path, value, namespace.reported)
            for namespace in self._namespaces
            for path, value in namespace.changed()
        )

    def effects(
        self, changes: Iterable[StateChange], number_format: Callable[[], Any]
    ) -> dict[str, Any]:
        """Return these changes and those of parameters and hooks since the watch began, and the
        text printed since the last call of this method, as flat leaves whose paths `is_state`
        accepts; {} where nothing changed. Decimal numbers become tensors of `number_format`, so
        that they are compared as results of computations. Changes that are not reported, those of
        buffers, are left out."""
        leaves: dict[str, Any] = {}
        for change in changes:
            if change.reported:
                leaves.update(leaves_of(change.path, change.value, self._scope, number_format))
        for path, value in self._parameters.changed():
            leaves[f"{ATTRIBUTE}{path}"] = value
        for hooks in self._hooks:
            if added := hooks.added_count():
                leaves[f"{ATTRIBUTE}{hooks.path}, number of hooks"] = added
        leaves.update(self._printed_leaves(number_format))
        return leaves

    def _printed_leaves(self, number_format: Callable[[], Any]) -> dict[str, Any]:
        """Return the text printed since the last call, and the decimal numbers in it apart, as
        leaves; {} where nothing was printed."""
        text = normalise_text(self._take_text(), self._scope)
        if not text:
            return {}
        numbers = [float(number) for number in DECIMAL.findall(text)]
        return {
            f"{PRINTED}text": " ".join(DECIMAL.sub("#", text).split()),
            f"{PRINTED}numbers": torch.tensor(numbers, dtype=number_format()),
        }

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
        self._parameters.rewind()
        for hooks in self._hooks:
            hooks.rewind()
