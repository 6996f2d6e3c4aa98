"""Context managers for the modes of PyTorch under which calls are compared beside the plain way,
such as autocast and inference mode."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import nn

from regraft.verification.child import weights

AUTOCAST, INFERENCE, FROZEN = "autocast", "inference mode", "frozen parameters"
DETERMINISTIC, WIDE = "deterministic algorithms", "float64 as the default format"
MODES = (AUTOCAST, INFERENCE, FROZEN, DETERMINISTIC, WIDE)
SWITCHED = "submodules in the other mode"


@contextmanager
def _frozen_parameters(model: Any) -> Iterator[None]:
    """Let no parameter of a model need gradients in the body."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


@contextmanager
def apply_mode(model: Any, mode: str) -> Iterator[None]:
    """Run the body under one of MODES, in place and restored at its end; change nothing where
    `mode` is "" or SWITCHED. Only FROZEN touches the model: its parameters need no gradients
    meanwhile."""
    with ExitStack() as stack:
        if mode == FROZEN:
            stack.enter_context(_frozen_parameters(model))
        elif mode == AUTOCAST:
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        elif mode == INFERENCE:
            stack.enter_context(torch.inference_mode())
        elif mode == DETERMINISTIC:
            stack.callback(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
            torch.set_deterministic_debug_mode("error")
        elif mode == WIDE:
            stack.enter_context(default_format(torch.float64))
        yield


@contextmanager
def default_format(dtype: torch.dtype) -> Iterator[None]:
    """Make a number format the default one in the body."""
    former = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(former)


@contextmanager
def with_switched_submodules(module: Any, mode: str) -> Iterator[None]:
    """Run the body, if `mode` is SWITCHED, with some submodules in evaluation while the module is
    in training, or in training while it is in evaluation; under another mode change nothing. These
    are the direct submodules that read their mode, or contain a submodule that does, with
    everything below them. Their dropout rates are weights.RATE where the module is in training,
    else 0. All is restored at the end."""
    children = switched_submodules(module) if mode == SWITCHED else ()
    submodules = [submodule for child in children for submodule in child.modules()]
    modes_before = [submodule.training for submodule in submodules]
    rate = weights.RATE if children and module.training else 0.0
    try:
        with ExitStack() as stack:
            for submodule in submodules:
                submodule.training = not module.training
                stack.enter_context(weights.set_own_dropout_rate(submodule, rate))
            yield
    finally:
        for submodule, training in zip(submodules, modes_before, strict=True):
            submodule.training = training


def switched_submodules(module: Any) -> tuple[Any, ...]:
    """Return the direct submodules of a module whose classes read `training`, or that contain such
    submodules, in order; () for a value that is no module, like None."""
    if not isinstance(module, nn.Module):
        return ()
    classes_by_child: dict[Any, set[Any]] = {
        child: {type(submodule) for submodule in child.modules()} for child in module.children()
    }
    return tuple(
        child for child, classes in classes_by_child.items() if any(map(_reads_its_mode, classes))
    )


@functools.cache
def _reads_its_mode(cls: type) -> bool:
    """Return whether methods of a class of modules, or of its bases, read an attribute `training`.
    Cached."""
    bases = [base for base in cls.__mro__ if base not in nn.Module.__mro__]
    methods = [value for base in bases for value in vars(base).values()]
    return any(
        "training" in method.__code__.co_names
        for method in methods
        if isinstance(method, FunctionType)
    )
