"""Attributes of tensors, records, objects and modules."""

from __future__ import annotations

import ast

import torch

from regraft.splitting.program.residual_expressions import is_named_result, method_call
from regraft.splitting.program.values import HostValue, RecordValue, TensorValue, Value
from regraft.splitting.specialising.code_running import run_operation
from regraft.splitting.specialising.either_values import require_tensor
from regraft.splitting.specialising.elements import get_element, get_shape
from regraft.splitting.specialising.object_changes import is_scratch, read_scratch
from regraft.splitting.specialising.object_methods import read_object_attribute
from regraft.splitting.specialising.objects_made_in_forward import (
    BOUND_TYPES,
    holds_local_function,
    holds_stand_in,
    is_stand_in,
)
from regraft.splitting.specialising.record_fields import read_field
from regraft.splitting.specialising.state import Specialisation

# attributes that are equal in both worlds, so that they are constants
SHAPE_ATTRIBUTES = frozenset({"ndim", "dtype", "device", "is_cuda"})

# attributes that an operation of a region computes
VIEW_ATTRIBUTES = frozenset({"T", "mT", "real", "imag"})


def read_attribute(state: Specialisation, node: ast.Attribute, base: Value) -> Value:
    """Return the attribute of `base` that `node` names. Where `base` may be None, steps are added
    with which the host raises AttributeError.

    Raises Unsplittable for attributes of values computed at run time, except the fields of named
    results such as that of torch.sort, and attributes that an object lacks.
    """
    base = require_tensor(state, node, base, "AttributeError")
    if isinstance(base, TensorValue):
        return read_tensor_attribute(state, node, base)
    if isinstance(base, RecordValue):
        return read_field(state, node, base, node.attr)
    is_named = bool(base.fields) and is_named_result(base.example)
    if is_named and node.attr in type(base.example).__match_args__:
        place = type(base.example).__match_args__.index(node.attr)
        return state.require_single_type(node, node.attr, get_element(state, base, place))
    if isinstance(base, HostValue):
        reason = f"the attribute {node.attr} of a value known only at run time is not supported"
        raise state.refuse(node, reason)
    return read_static_attribute(state, node, base)


def read_tensor_attribute(state: Specialisation, node: ast.Attribute, base: TensorValue) -> Value:
    """Return an attribute of a tensor, or of a tuple of tensors, that a region computes: shape,
    ndim, dtype, device and is_cuda, data, and views such as `T`; raise Unsplittable for other
    attributes of a tensor."""
    if node.attr == "data":  # a change of `data` in place is refused, as of any view
        return run_operation(state, node, method_call(base.code, "detach"), [base])
    if node.attr == "shape":
        return get_shape(state, base)
    if node.attr in SHAPE_ATTRIBUTES:
        return state.static(getattr(base.example, node.attr))
    if node.attr in VIEW_ATTRIBUTES or not isinstance(base.example, torch.Tensor):
        view = ast.Attribute(base.code, node.attr, ast.Load())
        return run_operation(state, node, view, [base])
    raise state.refuse(node, f"the attribute {node.attr} of a tensor is not supported")


def read_attribute_of_stand_in(
    state: Specialisation, node: ast.Attribute, base: Value
) -> Value | None:
    """Return an attribute of an object that forward makes, or a method by its `super()`; None for
    any other object. Raise Unsplittable for an attribute that it lacks."""
    if is_stand_in(state, base.example):
        attribute = read_object_attribute(state, node, base.example, node.attr)
        if attribute is None:
            raise state.refuse(
                node, f"this {type(base.example).__name__} has no attribute {node.attr} here"
            )
        return attribute
    if isinstance(base.example, super) and holds_stand_in(state, base.example):
        inherited = getattr(base.example, node.attr, None)
        if not isinstance(inherited, BOUND_TYPES):
            raise state.refuse(node, f"super().{node.attr} is no method")
        return state.static(inherited)
    return None


def read_static_attribute(state: Specialisation, node: ast.Attribute, base: Value) -> Value:
    """Return an attribute of an object that is known, or that forward makes; raise Unsplittable for
    one that it lacks, and attributes of functions that forward makes."""
    own = read_attribute_of_stand_in(state, node, base)
    if own is not None:
        return own
    if holds_local_function(state, base.example):
        raise state.refuse(node, "an attribute of a function that forward makes is not supported")
    if node.attr == "data" and isinstance(base.example, torch.Tensor):
        return base  # changes of `data` in place cannot be seen, changes of the tensor can
    if is_scratch(state, base.example, node.attr):
        return read_scratch(state, node, base.example, node.attr)
    try:
        value = getattr(base.example, node.attr)
    except AttributeError as problem:
        raise state.refuse(node, str(problem)) from problem
    return state.static(value, ast.Attribute(base.code, node.attr, ast.Load()))


def evaluate_attribute(state: Specialisation, node: ast.Attribute) -> Value:
    """Return the value of `x.y`."""
    return read_attribute(state, node, state.evaluate(node.value))
