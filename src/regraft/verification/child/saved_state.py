"""The content of containers and tensors, saved to be compared and restored."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from regraft.execution.compare import are_equal, identical

SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
FIXED = frozenset(
    {bool, int, float, str, type(None), type, FunctionType, BuiltinFunctionType, ModuleType}
)
_PLAIN = frozenset(SCALARS)  # of these types elements of a tuple or list cannot change themselves
SEQUENCES: tuple[type, ...] = (list, deque)
MAPPINGS: tuple[type, ...] = (dict, OrderedDict, defaultdict)
_DEPTH = 6
PARENTS = 3


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved value: the object, and its content where that can change in place (None where it
    cannot): a tuple for a sequence of plain constants, else a list, dictionary, set or tensor."""

    value: Any
    content: Any = None


def save(value: Any, home: str, depth: int = _DEPTH) -> Saved:
    """Return a value saved with a copy of its content: elements of containers and fields of objects
    of the module `home`, down to `depth` levels.

    Modules, classes and other objects are saved without content, to be bound again but not reset.
    """
    if isinstance(value, torch.Tensor):
        return Saved(value, value.detach().clone())
    if depth == 0 or isinstance(value, nn.Module | type):
        return Saved(value)
    if type(value) in SEQUENCES or type(value) is tuple:
        if _PLAIN.issuperset(map(type, value)):
            return Saved(value, None if type(value) is tuple else tuple(value))
        return Saved(value, [save(element, home, depth - 1) for element in value])
    if type(value) in MAPPINGS:
        return Saved(value, {key: save(element, home, depth - 1) for key, element in value.items()})
    if type(value) is set:
        return Saved(value, set(value))
    if is_own_object(value, home):
        return Saved(
            value, {key: save(element, home, depth - 1) for key, element in vars(value).items()}
        )
    return Saved(value)


def is_own_object(value: Any, home: str) -> bool:
    """Return whether a value is an object, but no module, of a class of the file, whose attributes
    count as state of the file."""
    return (
        type(value).__module__ == home
        and hasattr(value, "__dict__")
        and not isinstance(value, nn.Module | type)
    )


def is_unchanged(saved: Saved, value: Any) -> bool:
    """Return whether a value has the type and content of the saved value; it may be a new object
    only if it has content or is a plain constant."""
    content = saved.content
    if type(value) is not type(saved.value):
        return False
    if content is None:
        return value is saved.value or _are_equal_constants(value, saved.value)
    if isinstance(content, tuple):
        return _are_equal_constants(tuple(value), content)
    if isinstance(content, torch.Tensor):
        return identical(value.detach(), content)
    if isinstance(content, list):
        return len(value) == len(content) and all(map(is_unchanged, content, value))
    if isinstance(content, set):
        return bool(value == content)
    current = value if type(value) in MAPPINGS else vars(value)
    return list(current) == list(content) and all(
        is_unchanged(content[key], element) for key, element in current.items()
    )


def _are_equal_constants(value: Any, saved_value: Any) -> bool:
    """Return whether two values of one type are equal constants, or tuples of such."""
    if type(value) is tuple:
        return len(value) == len(saved_value) and all(
            isinstance(element, SCALARS) and are_equal(element, saved_element)
            for element, saved_element in zip(value, saved_value, strict=True)
        )
    return isinstance(value, SCALARS) and are_equal(value, saved_value)


def restore(saved: Saved) -> None:
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
    elif isinstance(content, tuple):
        value.clear()
        value.extend(content)
    elif isinstance(content, list):
        if type(value) in SEQUENCES:
            value.clear()
            value.extend(child.value for child in content)
        for child in content:
            restore(child)
    else:
        current = value if type(value) in MAPPINGS else vars(value)
        current.clear()
        current.update({key: child.value for key, child in content.items()})
        for child in content.values():
            restore(child)


def _restore_tensor(value: Any, content: Any) -> None:
    """Restore in place the content of a tensor, also its shape and format where these differ."""
    if value.shape != content.shape or value.dtype != content.dtype:
        value.data = content.clone()
    elif not identical(value.detach(), content):
        value.detach().copy_(content)
