"""Guess arguments that are dictionaries, or objects of a class which an annotation names."""

from __future__ import annotations

import ast
import enum
import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from regraft.verification.child.checks.argument_variants import method_of
from regraft.verification.child.checks.arguments_in_source import syntax_of
from regraft.verification.child.drivers.argument_slots import (
    Dim,
    Sizes,
    Slot,
    Spec,
    annotation_text,
    slot_for,
)
from regraft.verification.child.drivers.model_attempts import SIZE
from regraft.verification.child.drivers.slot_values import make_call

# Modules of Python and of libraries whose classes are values of other kinds.
_OTHER_MODULES = frozenset({"builtins", "typing", "collections", "torch", "numpy", "enum"})
_OTHER_CLASSES = (nn.Module, torch.Tensor, int, float, str, bytes, dict, list, set, enum.Enum)
_MOST_ARGUMENTS = 8


def object_slots(model: Any, parameter: inspect.Parameter, sizes: Sizes) -> dict[str, Slot]:
    """Return the slot of an object for a parameter without a default of a model's `forward`, and
    the slots of what it is built from (`Slot`): of a dictionary whose entries the source reads, as
    in `batch["image"]`, of a list of these, as in `for target in targets: target["boxes"]`, or of
    the class that the annotation names.

    Return {} where neither is so, no value is guessed for a part, or the constructor refuses the
    values.
    """
    if parameter.default is not parameter.empty:
        return {}
    function = method_of(model)
    keys = _keys_read(function, frozenset({parameter.name}))
    row_keys = _keys_read(function, _element_names(function, parameter.name)) if not keys else []
    kind = "rows" if row_keys else "object"
    keys = keys or row_keys
    parts = dict.fromkeys(keys, "_empty")
    cls = dict if keys else _class_of(parameter.annotation, getattr(function, "__globals__", {}))
    if cls is None:
        return {}
    try:
        parts = parts or _constructor_parts(cls)
        slots = {
            f"{parameter.name}.{name}": _part_slot(name, note, sizes)
            for name, note in parts.items()
        }
    except (LookupError, TypeError, ValueError):
        return {}
    if len(slots) > _MOST_ARGUMENTS:
        return {}
    spec = {parameter.name: Slot(kind, value=cls), **slots}
    return spec if _is_made(spec) else {}


def _keys_read(function: Any, names: frozenset[str]) -> list[str]:
    """Return the texts with which the source of a function reads entries of some variables, each
    once."""
    keys = (
        node.slice.value
        for node in ast.walk(syntax_of(function))
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in names
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    )
    return list(dict.fromkeys(keys))


def _element_names(function: Any, name: str) -> frozenset[str]:
    """Return the variables of loops and comprehensions in a function that stand for the elements of
    a parameter, also where `enumerate` or `zip` is given it."""
    names: set[str] = set()
    for loop in ast.walk(syntax_of(function)):
        if isinstance(loop, ast.For | ast.comprehension):
            iterated = {part.id for part in ast.walk(loop.iter) if isinstance(part, ast.Name)}
            if name in iterated:
                targets = ast.walk(loop.target)
                names |= {part.id for part in targets if isinstance(part, ast.Name)}
    return frozenset(names)


def _constructor_parts(cls: type) -> dict[str, str]:
    """Return the annotations of the arguments that a class needs, as text, by name. Raises
    ValueError or TypeError where the class has no signature."""
    return {
        argument.name: annotation_text(argument)
        for argument in inspect.signature(cls).parameters.values()
        if argument.default is argument.empty and argument.kind not in _VARIADIC
    }


def _part_slot(name: str, annotation: str, sizes: Sizes) -> Slot:
    """Return the slot of a part of an object; boxes have real numbers there, since no embedding
    gets them."""
    slot = slot_for(name, annotation, sizes)
    return replace(slot, kind="corners") if slot.kind == "boxes" else slot


def _is_made(spec: Spec) -> bool:
    """Return whether the values that a specification describes are made without an error."""
    try:
        make_call(spec, SIZE, 0)
    except Exception:  # noqa: BLE001 - the constructor is any code; the parameter gets another guess
        return False
    return True


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _class_of(annotation: Any, names: Mapping[str, Any]) -> type | None:
    """Return the class that an annotation is, or names by a dotted name in a module with some
    variables; None for another annotation, and for tensors, modules and plain values."""
    value = annotation
    if isinstance(annotation, str):
        first, *attributes = re.sub(r"[\s\"']", "", annotation).split(".")
        value = names.get(first)
        for attribute in attributes:
            value = getattr(value, attribute, None)
    if not isinstance(value, type) or value is inspect.Parameter.empty:
        return None
    if value.__module__.partition(".")[0] in _OTHER_MODULES or issubclass(value, _OTHER_CLASSES):
        return None
    return value


def with_masks_of_images(slots: Mapping[str, Slot]) -> dict[str, Slot]:
    """Return slots in which the masks of an object, by their names, say what is padding in the
    object's first tensor: of images the pixels, (batch, height, width), of other tensors the
    positions, (batch, length)."""
    fitted = dict(slots)
    for name, slot in slots.items():
        prefix = f"{name}."
        parts = [key for key in slots if key.startswith(prefix)]
        tensors = [key for key in parts if slots[key].kind == "normal" and len(slots[key].dims) > 1]
        if slot.kind != "object" or not tensors:
            continue
        dims: tuple[Dim, ...] = slots[tensors[0]].dims
        places = (dims[0], *dims[2:]) if len(dims) > 3 else dims[:2]
        for key in parts:
            if re.search(r"masks?$", key):
                fitted[key] = replace(slots[key], kind="padding", dims=places)
    return fitted
