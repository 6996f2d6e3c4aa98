"""Nested inputs and outputs: copy them, feed them to another model, take them apart for comparison."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import nn

from regraft.verify.child.load import plain

_DEPTH = 6


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """Stands in recorded arguments for a module of the recorded model: its dotted path there."""

    path: str


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of one call, free of references into any model.

    `beyond` names the kind of a call that was made from a recorded one, and that the original may refuse.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    label: str = ""
    beyond: str = ""


def map_leaves(value: Any, fn: Callable[[Any], Any]) -> Any:
    """Rebuild nested lists, tuples, named tuples and mappings with `fn` applied to everything else."""
    if isinstance(value, Mapping):
        items = {key: map_leaves(item, fn) for key, item in value.items()}
        return items if type(value) is dict else type(value)(**items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(item, fn) for item in value))
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(map_leaves(item, fn) for item in value)
    return fn(value)


def snapshot(args: tuple[Any, ...], kwargs: Mapping[str, Any], model: Any, label: str = "") -> Call:
    """Copy a call's arguments as they are now; modules of `model` become references."""
    paths = {id(module): path for path, module in model.named_modules()} if model is not None else {}

    def freeze(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone()
        if isinstance(leaf, nn.Module) and id(leaf) in paths:
            return ModuleRef(paths[id(leaf)])
        return duplicate(leaf)

    return Call(map_leaves(args, freeze), map_leaves(dict(kwargs), freeze), label)


def duplicate(leaf: Any) -> Any:
    """Copy a mutable object deeply; what cannot be copied is shared."""
    if leaf is None or isinstance(leaf, bool | int | float | str | torch.dtype | torch.device | type):
        return leaf
    try:
        return copy.deepcopy(leaf)
    except Exception:  # noqa: BLE001 - arbitrary objects of model code; sharing them is the only alternative
        return leaf


@dataclass(frozen=True, slots=True)
class Live:
    """A call made ready for one model: `leaves` collect gradients, `passed` are the tensors that the model sees."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: dict[str, Any]
    passed: dict[str, tuple[Any, Any]]


def thaw(call: Call, model: Any, *, gradients: bool, dtype: Any = None, scope: ModuleType | None = None) -> Live:
    """Make fresh arguments; float tensors pass through a copy so that in-place writes do not hit a leaf.

    Objects of a class of the file become objects of that class in `scope`, the version that the call is for.
    """
    scope = scope or sys.modules.get(type(model).__module__)
    leaves: dict[str, Any] = {}
    passed: dict[str, tuple[Any, Any]] = {}

    def revive(leaf: Any) -> Any:
        if isinstance(leaf, ModuleRef):
            return model.get_submodule(leaf.path)
        if not isinstance(leaf, torch.Tensor):
            copied = at_home(duplicate(leaf), scope)
            return copied if dtype is None else _cast_inside(copied, dtype)
        floating = leaf.is_floating_point()
        base = leaf.detach().to(dtype).clone() if floating and dtype is not None else leaf.detach().clone()
        name = f"input {len(passed)}"
        given = base
        if gradients and floating and not is_mask(leaf):
            leaves[name] = base.requires_grad_()
            given = base.clone()
        passed[name] = (given, leaf if dtype is None else given.detach().clone())
        return given

    args = map_leaves(call.args, revive)
    kwargs = map_leaves(dict(call.kwargs), revive)
    return Live(args, kwargs, leaves, passed)


def at_home(value: Any, scope: ModuleType | None, depth: int = _DEPTH) -> Any:
    """Give a private copy, and what it holds, the classes that `scope`, another version of their file, defines."""
    cls = type(value)
    if scope is None or depth == 0 or isinstance(value, nn.Module | type | torch.Tensor):
        return value
    own = getattr(scope, cls.__qualname__, None)
    if cls.__module__ != scope.__name__ and plain(cls.__module__) == plain(scope.__name__) and isinstance(own, type):
        try:
            value.__class__ = own
        except TypeError:  # an enumeration's member or another layout: it stays what the call was recorded with
            return value
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for item in (*held, *getattr(value, "__dict__", {}).values()):
        at_home(item, scope, depth - 1)
    return value


def _cast_inside(value: Any, dtype: Any) -> Any:
    """Cast tensors held by an object such as a key-value cache (the object is already a private copy)."""
    for owner, key, tensor in _held(value, _DEPTH, set()):
        if tensor.is_floating_point():
            if isinstance(owner, list | dict):
                owner[key] = tensor.to(dtype)
            else:
                setattr(owner, key, tensor.to(dtype))
    return value


def _held(value: Any, depth: int, seen: set[int]) -> list[tuple[Any, Any, Any]]:
    if depth == 0 or id(value) in seen or isinstance(value, nn.Module | type):
        return []
    seen.add(id(value))
    if isinstance(value, list):
        items: list[tuple[Any, Any]] = list(enumerate(value))
        owner: Any = value
    else:
        owner = value if isinstance(value, dict) else getattr(value, "__dict__", None)
        items = list(owner.items()) if isinstance(owner, dict) else []
    found = []
    for key, item in items:
        if isinstance(item, torch.Tensor):
            found.append((owner, key, item))
        else:
            found.extend(_held(item, depth - 1, seen))
    return found


def is_mask(tensor: Any) -> bool:
    """Whether a float tensor is an additive attention mask: nothing but zero and hugely negative values."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return False
    low = tensor <= -1e4
    return bool(low.any()) and bool(((tensor == 0) | low).all())


def flatten(value: Any, path: str = "output", depth: int = _DEPTH, seen: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return every comparable leaf by its path; containers and objects add their type's name as a leaf."""
    if value is None or isinstance(value, torch.Tensor | bool | int | float | str | torch.dtype | torch.device):
        return {path: value}
    found: dict[str, Any] = {f"type of {path}": type(value).__qualname__}
    if depth == 0 or id(value) in seen or isinstance(value, nn.Module | ModuleType | type) or callable(value):
        return found
    for key, item in _children(value):
        found.update(flatten(item, f"{path}[{key!r}]", depth - 1, (*seen, id(value))))
    return found


def _children(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, set | frozenset):
        return list(enumerate(sorted(map(repr, value))))
    return sorted(getattr(value, "__dict__", {}).items())


def structure(call: Call) -> str:
    """Return which arguments a call has, with flags, names and factors, whatever the tensors and sizes are."""

    def shown(leaf: Any) -> Any:
        return leaf if leaf is None or isinstance(leaf, bool | float | str) else type(leaf).__name__

    return str(map_leaves((call.args, dict(call.kwargs)), shown))


def shapes(call: Call) -> list[list[int]]:
    """Return the shapes of a call's tensors in order."""
    return [list(tensor.shape) for tensor in tensors(call)]


def tensors(call: Call) -> list[Any]:
    """Return the tensors of a call in order."""
    leaves: list[Any] = []
    map_leaves((call.args, dict(call.kwargs)), leaves.append)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
