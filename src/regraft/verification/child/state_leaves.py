"""The leaves of a state: plain values of modules, variables and attributes, and their texts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import nn

from regraft.execution.nested import flatten
from regraft.verification.child.file_import import COPY, ORIGINAL, SUFFIX
from regraft.verification.child.saved_state import (
    MAPPINGS,
    PARENTS,
    SCALARS,
    SEQUENCES,
    is_own_object,
)

ATTRIBUTE, VARIABLE, PRINTED = "attribute ", "global ", "printed "
INTERNAL = frozenset(vars(nn.Module())) - {"training"}

# Parts of a repr that differ between equal objects: addresses, and the operation that autograd
# records.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+|(?<=grad_fn=<)\w+")
_VERSION = re.compile(rf"(?<=\w)({SUFFIX}|{COPY}|{ORIGINAL})\b")
DECIMAL = re.compile(
    r"[+-]?(?:\d+\.\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+|\b(?:nan|inf)\b)",
    re.IGNORECASE,
)


def leaves_of(
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
    for level in range(PARENTS):
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
    return _plain_leaves(attribute_prefix(path), vars(module), scope, INTERNAL)


def attribute_prefix(path: str) -> str:
    """Return the beginning of the paths of the attributes of the module at `path` in its model, ""
    for the model itself."""
    return f"{ATTRIBUTE}{path}." if path else ATTRIBUTE


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
        is_plain = isinstance(value, (*SCALARS, torch.Tensor, set, tuple)) or type(value) in (
            *SEQUENCES,
            *MAPPINGS,
        )
        if is_plain or is_own_object(value, scope.__name__):
            leaves.update(leaves_of(prefix + name, value, scope, None))
    return leaves
