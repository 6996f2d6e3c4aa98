"""The arguments of recorded calls: copy them, prepare them for another model, list their tensors,
describe them."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any

import numpy
import torch
from torch import nn

from regraft.execution.nested import iterate_leaves, map_leaves
from regraft.verification.child.file_import import plain_module_name

_DEPTH = 6


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """A reference in recorded arguments to a module of the recorded model, by its dotted path
    there."""

    path: str


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of one call, free of references into any model.

    `label` describes the call. `beyond` names the kind of a call that was made from a recorded
    call, and that the original may refuse; "" for a recorded one and its plain variants.
    `exact_values` are numbers that its tensors hold rounded, because code compares with them: in
    float64 they are not rounded, and no rounding moves them.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    label: str = ""
    beyond: str = ""
    exact_values: tuple[float, ...] = ()


def snapshot(args: tuple[Any, ...], kwargs: Mapping[str, Any], model: Any, label: str = "") -> Call:
    """Return a call with copies of the arguments in their current state; modules of `model` become
    references (`ModuleRef`). Tensors lose their gradient history; objects that cannot be copied are
    shared."""
    paths = (
        {id(module): path for path, module in model.named_modules()} if model is not None else {}
    )

    def freeze(leaf: Any) -> Any:
        """Return a detached copy of a tensor, a ModuleRef for a module of the model, and a deep
        copy of any other argument (the argument itself where it cannot be copied)."""
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone()
        if isinstance(leaf, nn.Module) and id(leaf) in paths:
            return ModuleRef(paths[id(leaf)])
        return duplicate(leaf)

    return map_call(Call(args, kwargs), freeze, label)


def map_call(call: Call, fn: Callable[[Any], Any], label: str = "", beyond: str = "") -> Call:
    """Return a new call with `fn` applied to the leaves of its arguments, and with `label` and
    `beyond` instead of the call's own. `fn` gets an array of NumPy as a tensor, and the tensor that
    it returns becomes an array."""

    def apply(leaf: Any) -> Any:
        """Return what `fn` makes of a leaf, of an array as an array."""
        tensor = tensor_of(leaf)
        result = fn(leaf if tensor is None else tensor)
        return array_of(result) if tensor is not None else result

    return Call(map_leaves(call.args, apply), map_leaves(dict(call.kwargs), apply), label, beyond)


def tensor_of(leaf: Any) -> Any:
    """Return an array of NumPy as a tensor, which shares its memory where it can; None for any
    other leaf, and for an array of what tensors do not hold."""
    if not isinstance(leaf, numpy.ndarray):
        return None
    try:
        return torch.from_numpy(leaf)
    except (TypeError, ValueError):  # words, or strides that are negative
        return None


def array_of(value: Any) -> Any:
    """Return a tensor as an array of NumPy, in float32 where NumPy lacks its format; any other
    value as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach().cpu()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()


def map_tensors(call: Call, fn: Callable[[Any], Any], label: str = "", beyond: str = "") -> Call:
    """Return a new call with `fn` applied to the tensors and arrays among its arguments, and with
    `label` and `beyond` instead of the call's own."""
    return map_call(
        call, lambda leaf: fn(leaf) if isinstance(leaf, torch.Tensor) else leaf, label, beyond
    )


def duplicate(leaf: Any) -> Any:
    """Return a deep copy of a leaf; the leaf itself where it is a plain constant, a class or a
    dtype, or cannot be copied."""
    if leaf is None or isinstance(
        leaf, bool | int | float | str | torch.dtype | torch.device | type
    ):
        return leaf
    try:
        return copy.deepcopy(leaf)
    except Exception:  # noqa: BLE001 - arbitrary objects of model code; sharing them is the only alternative
        return leaf


@dataclass(frozen=True, slots=True)
class LiveArguments:
    """A call made ready for one model.

    `leaves` are the tensors that collect gradients, `passed` the tensors that the model gets, and
    those that share the memory of the arrays that it gets, each with its content before the call;
    both by "input NUMBER".
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: dict[str, Any]
    passed: dict[str, tuple[Any, Any]]


def build_arguments(
    call: Call, model: Any, *, gradients: bool, dtype: Any = None, scope: ModuleType | None = None
) -> LiveArguments:
    """Return fresh copies of a call's arguments for `model`; references become its modules. Float
    tensors pass through a copy so that in-place writes do not change a leaf.

    With `gradients` floating tensors except masks collect gradients; with `dtype` floating tensors,
    also inside objects, are cast to it. Objects of a class of the file become objects of that class
    in `scope`, the version that the call is for, by default the module of the model's class.
    """
    scope = scope or sys.modules.get(type(model).__module__)
    leaves: dict[str, Any] = {}
    passed: dict[str, tuple[Any, Any]] = {}

    def copy_for_model(leaf: Any) -> Any:
        """Return a copy of one argument that fits the model and `dtype`; note a tensor in `passed`,
        and in `leaves` where it collects gradients."""
        if isinstance(leaf, ModuleRef):
            return model.get_submodule(leaf.path)
        tensor = tensor_of(leaf)
        if tensor is not None:
            shared = tensor.clone()
            passed[f"input {len(passed)}"] = (shared, tensor)
            return shared.numpy()
        if not isinstance(leaf, torch.Tensor):
            private_copy = adopt_classes(duplicate(leaf), scope)
            return private_copy if dtype is None else _cast_inside(private_copy, dtype)
        is_floating = leaf.is_floating_point()
        base = leaf.detach().clone()
        if is_floating and dtype is not None:
            base = _unrounded(base, dtype, call.exact_values)
        name = f"input {len(passed)}"
        argument = base
        if gradients and is_floating and not is_mask(leaf):
            leaves[name] = base.requires_grad_()
            argument = base.clone()
        passed[name] = (argument, leaf if dtype is None else argument.detach().clone())
        return argument

    args = map_leaves(call.args, copy_for_model)
    kwargs = map_leaves(dict(call.kwargs), copy_for_model)
    return LiveArguments(args, kwargs, leaves, passed)


def _unrounded(tensor: Any, dtype: Any, exact_values: tuple[float, ...]) -> Any:
    """Return a copy of a floating tensor in another format; in float64, numbers that are equal to
    one of `exact_values` after rounding get that value itself."""
    cast = tensor.to(dtype).clone()
    for value in exact_values if dtype == torch.float64 else ():
        cast[holds_value(tensor, value)] = value
    return cast


def holds_value(tensor: Any, value: float) -> Any:
    """Return a boolean tensor that is true where a floating tensor holds a number, rounded to its
    format."""
    return tensor == torch.tensor(value, dtype=tensor.dtype, device=tensor.device)


def adopt_classes(value: Any, scope: ModuleType | None, depth: int = _DEPTH) -> Any:
    """Give a private copy, and the objects in it down to `depth` levels, in place the classes that
    `scope`, another version of their file, defines; return the copy, or a new tuple of the class
    for a named tuple, or the member of the same name for a member of an enumeration. Modules,
    classes and tensors stay."""
    cls = type(value)
    if scope is None or depth == 0 or isinstance(value, nn.Module | type | torch.Tensor):
        return value
    own_class = getattr(scope, cls.__qualname__, None)
    if (
        cls.__module__ != scope.__name__
        and plain_module_name(cls.__module__) == plain_module_name(scope.__name__)
        and isinstance(own_class, type)
    ):
        if isinstance(value, Enum):  # there is one of each member, and deep copies are the member
            return getattr(own_class, value.name, value)
        try:
            # past a class whose instances are frozen
            object.__setattr__(value, "__class__", own_class)
        except TypeError:  # another layout keeps the class that it was recorded with
            return own_class._make(value) if hasattr(own_class, "_make") else value
    _adopt_inner_classes(value, scope, depth - 1)
    return value


def _adopt_inner_classes(value: Any, scope: ModuleType, depth: int) -> None:
    """Give the elements and attributes of an object the classes of `scope`, in place."""
    for element in value if isinstance(value, tuple) else ():
        adopt_classes(element, scope, depth)
    owners: list[Any] = [value] if isinstance(value, dict | list) else []
    for owner in (*owners, getattr(value, "__dict__", {})):
        entries = owner.items() if isinstance(owner, Mapping) else enumerate(owner)
        for key, element in list(entries):
            own_element = adopt_classes(element, scope, depth)
            if own_element is not element:
                owner[key] = own_element


def _cast_inside(value: Any, dtype: Any) -> Any:
    """Cast in place the floating tensors held by an object such as a key-value cache (the object is
    already a private copy); return the object."""
    for owner, key, tensor in _tensors_inside(value, _DEPTH, set()):
        if tensor.is_floating_point():
            if isinstance(owner, list | dict):
                owner[key] = tensor.to(dtype)
            else:
                setattr(owner, key, tensor.to(dtype))
    return value


def _tensors_inside(value: Any, depth: int, visited: set[int]) -> list[tuple[Any, Any, Any]]:
    """Return (owner, key, tensor) for every tensor in an object, in its lists, dictionaries and
    attributes, down to `depth`; objects in `visited` are left out."""
    if depth == 0 or id(value) in visited or isinstance(value, nn.Module | type):
        return []
    visited.add(id(value))
    if isinstance(value, list):
        entries: list[tuple[Any, Any]] = list(enumerate(value))
        owner: Any = value
    else:
        owner = value if isinstance(value, dict) else getattr(value, "__dict__", None)
        entries = list(owner.items()) if isinstance(owner, dict) else []
    places = []
    for key, element in entries:
        if isinstance(element, torch.Tensor):
            places.append((owner, key, element))
        else:
            places.extend(_tensors_inside(element, depth - 1, visited))
    return places


def is_mask(tensor: Any) -> bool:
    """Return whether a float tensor is an additive attention mask: it holds only zero and values of
    at most -1e4, and at least one of the latter."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return False
    hidden = tensor <= -1e4
    return bool(hidden.any()) and bool(((tensor == 0) | hidden).all())


def structure(call: Call) -> str:
    """Return a text that is equal for calls with equal nesting, flags, floats and strings; tensors
    and whole numbers are shown by type alone."""

    def describe_leaf(leaf: Any) -> Any:
        """Return None, a boolean, a float or a string as it is, of any other leaf the name of its
        type."""
        return leaf if leaf is None or isinstance(leaf, bool | float | str) else type(leaf).__name__

    return str(map_leaves((call.args, dict(call.kwargs)), describe_leaf))


def shapes(call: Call) -> list[list[int]]:
    """Return the shapes of a call's tensors in order, positional arguments first."""
    return [list(tensor.shape) for tensor in tensors(call)]


def tensors(call: Call) -> list[Any]:
    """Return the tensors of a call, and its arrays as tensors, also inside containers, in order,
    positional arguments first."""
    leaves = argument_leaves(call)
    values = (leaf if isinstance(leaf, torch.Tensor) else tensor_of(leaf) for leaf in leaves)
    return [value for value in values if value is not None]


def argument_leaves(call: Call) -> Iterator[Any]:
    """Yield the leaves of a call's arguments in order, positional arguments first."""
    return iterate_leaves((call.args, dict(call.kwargs)))
