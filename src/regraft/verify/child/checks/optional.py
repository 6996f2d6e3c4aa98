"""Calls with values for the parameters that default to None: states, biases, positions, indices."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from regraft.verify.child.checks.arguments import bound_arguments, with_argument
from regraft.verify.child.replay import Outcome, Plan, Target, execute
from regraft.verify.child.tree import Call, tensors

_PARAMETERS = 6  # that are given a tensor
_ACCEPTED = 2  # tensors of a parameter
_LISTED = re.compile(r"\b(?:[Ll]ist|[Ss]equence)\[int\]")
_WHOLE = re.compile(r"\bint\b")
_OTHER = ("str", "int", "bool", "float", "dict", "Callable", "Cache", "tuple", "list", "Tuple", "List")


def given_calls(call: Call, target: Target) -> Iterator[Call]:
    """Yield a call with a value for each parameter that may be left out, where the original takes it and uses it.

    The value is a tensor, or a whole number or a list of one where the annotation names such.

    Masks are left out then, too, since a mask may hide what the other input does. Shapes are those of the other
    inputs, as a whole or in part. Where the original refuses two inputs together, the first integers make room
    (embeddings in the place of tokens).
    """
    bound = bound_arguments(call, target.callable)
    if bound is None:
        return
    signature, arguments = bound.signature, bound.arguments
    absent = [
        parameter
        for parameter in signature.parameters.values()
        if not isinstance(arguments.get(parameter.name), torch.Tensor)
        and (_may_be_tensor(parameter) or (parameter.default is None and any(_numbers(parameter))))
    ]
    if not absent:
        return
    without = execute(target, call, Plan(gradients=False))
    integers = [name for name, value in arguments.items() if _is_integer(value)]
    masks = [name for name in arguments if name.endswith("mask") and arguments[name] is not None]
    for parameter in absent[:_PARAMETERS]:
        accepted = 0
        tensors_like = _tensors_like(call, parameter.name, _width(target.module)) if _may_be_tensor(parameter) else ()
        for shown, value in (*_numbers(parameter), *tensors_like):
            given = with_argument(call, signature, parameter.name, value)
            choices = [given, *(with_argument(given, signature, name, None) for name in integers[:1])]
            for choice in choices:
                outcome = execute(target, choice, Plan(gradients=False))
                if outcome.error is None and _differs(without, outcome):
                    accepted += 1
                    label = f"{parameter.name} given, {shown}"
                    yield replace(choice, label=label, beyond="arguments")
                    for name in masks:
                        unmasked = with_argument(choice, signature, name, None)
                        yield replace(unmasked, label=f"{label}, without {name}", beyond="arguments")
                    break
            if accepted == _ACCEPTED:
                break


def _may_be_tensor(parameter: inspect.Parameter) -> bool:
    """Whether a parameter may be left out or take a tensor: its annotation names one, or nothing else."""
    if parameter.default is inspect.Parameter.empty:
        return False
    if parameter.annotation is inspect.Parameter.empty:
        return parameter.default is None
    text = str(parameter.annotation)
    return "Tensor" in text or (parameter.default is None and not any(name in text for name in _OTHER))


def _numbers(parameter: inspect.Parameter) -> Iterator[tuple[str, Any]]:
    """Yield whole numbers, and lists of one, where the annotation of a parameter names them."""
    text = str(parameter.annotation)
    if _LISTED.search(text):
        yield "[0]", [0]
    if _WHOLE.search(_LISTED.sub("", text)):
        yield from (("1", 1), ("2", 2))


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and value.dtype != torch.bool


def _width(module: Any) -> int:
    """Return the most frequent last dimension of a module's matrices, 0 where it has none."""
    matrices = [p for p in module.parameters() if p.dim() > 1] if module is not None else []
    widths = Counter(int(matrix.shape[-1]) for matrix in matrices)
    return widths.most_common(1)[0][0] if widths else 0


def _tensors_like(call: Call, name: str, width: int) -> Iterator[tuple[str, Any]]:
    """Yield tensors that fit the inputs of a call, those that the name of the parameter suggests first.

    `width` is that of the features of the module.
    """
    inputs = [tensor for tensor in tensors(call) if tensor.dim()]
    if not inputs:
        return
    generator = torch.Generator().manual_seed(0)
    floats = [tensor for tensor in inputs if tensor.is_floating_point()]
    first = (floats or inputs)[0]
    dtype = first.dtype if floats else torch.float32

    def drawn(*shape: int) -> tuple[str, Any]:
        return f"shape {list(shape)}", torch.randn(shape, generator=generator).to(dtype)

    rows, length = first.shape[0], first.shape[1] if first.dim() > 1 else first.shape[0]
    restarting = torch.arange(length).remainder(max(2, length // 2)).expand(rows, length).clone()
    integers = [("whole numbers that start again", restarting), ("one number each", restarting[:, 0].clone())]
    if name.endswith(("ids", "index", "indices", "positions")):
        yield from integers
    if not floats and first.dim() == 2 and width:
        yield drawn(rows, length, width)
    yield drawn(*first.shape)
    if first.dim() > 1:
        yield drawn(*first.shape[:-1])
        yield drawn(length, length)
        yield drawn(rows, 1, length, length)
        yield drawn(rows, first.shape[-1])
    yield drawn(first.shape[-1])
    yield drawn(rows)
    yield drawn()
    yield from integers


def _differs(without: Outcome, given: Outcome) -> bool:
    """Whether an input changes a result, or lets the original give one."""
    if without.error is not None:
        return True
    for path, value in given.outputs.items():
        other = without.outputs.get(path)
        alike = isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor) and value.shape == other.shape
        if not alike or not torch.equal(value, other):
            return True
    return False
