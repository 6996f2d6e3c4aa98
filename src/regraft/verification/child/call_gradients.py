"""The gradients of a call, and their own gradients."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from regraft.execution.nested import copy_leaf
from regraft.verification.child import call_arguments
from regraft.verification.child.call_outcomes import Outcome, Plan, drop_traceback


def run_backward(
    flat_result: Mapping[str, Any], arguments: call_arguments.LiveArguments, module: Any, plan: Plan
) -> Outcome:
    """Return an outcome with only the gradients, or second derivatives (`plan.twice`), of a result
    with respect to inputs and parameters; without either where nothing depends on them. An error in
    backward is in the outcome. Gradients are repeated where the plan repeats."""
    outputs = {
        p: v for p, v in flat_result.items() if isinstance(v, torch.Tensor) and v.requires_grad
    }
    inputs = dict(arguments.leaves)
    parameters = module.named_parameters() if isinstance(module, nn.Module) else ()
    inputs.update({f"parameter {name}": p for name, p in parameters if p.requires_grad})
    if not outputs or not inputs:
        return Outcome()
    try:
        if plan.twice:
            return Outcome(second=_second_derivatives(outputs, inputs))
        gradients = _copy_all(_gradients(outputs, inputs, keep_graph=plan.repeat))
        if not plan.repeat:
            return Outcome(gradients=gradients)
        repeated = _copy_all(_gradients(outputs, inputs, keep_graph=False))
        return Outcome(gradients=gradients, repeated_gradients=repeated)
    except Exception as error:  # noqa: BLE001 - arbitrary backward code; the error is the result
        return Outcome(backward_error=drop_traceback(error))


def _gradients(
    outputs: Mapping[str, Any], inputs: Mapping[str, Any], *, keep_graph: bool, graph: bool = False
) -> Mapping[str, Any]:
    """Return, by input, the gradient of the sum of the outputs' products with fixed cotangents;
    None for an input without a gradient. `keep_graph` allows a second backward, `graph` a second
    derivative."""
    cotangents = [cotangent(path, value) for path, value in outputs.items()]
    gradients = torch.autograd.grad(
        list(outputs.values()),
        list(inputs.values()),
        cotangents,
        retain_graph=keep_graph or graph,
        allow_unused=True,
        create_graph=graph,
    )
    return dict(zip(inputs, gradients, strict=True))


def _second_derivatives(outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return by input the gradients of the gradients' products with fixed cotangents, as copies; {}
    where no gradient depends on an input, None for an input without influence."""
    gradients = _gradients(outputs, inputs, keep_graph=True, graph=True)
    differentiable = {
        f"gradient of {p}": v for p, v in gradients.items() if v is not None and v.requires_grad
    }
    return _copy_all(_gradients(differentiable, inputs, keep_graph=False)) if differentiable else {}


def _copy_all(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return detached copies of tensors by name."""
    return {name: copy_leaf(value) for name, value in values.items()}


def cotangent(path: str, value: Any) -> Any:
    """Return a fixed random direction for an output, of its shape and format and the same in each
    call for a path, so that no gradient cancels by symmetry."""
    generator = torch.Generator().manual_seed(zlib.crc32(path.encode()))
    return torch.randn(value.shape, generator=generator).to(value.dtype)
