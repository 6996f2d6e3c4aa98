"""The product of an activation and a second value: the inner step of a gated MLP."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from regraft.ops.activation_recognition import activation_kind
from regraft.ops.liger import LigerKernel, can_run_liger, liger_module

_MODULES = {"silu": "swiglu", "gelu-tanh": "geglu"}


@dataclass(frozen=True, slots=True, eq=False)
class OpenGate:
    """A gate whose activation is left to Liger's kernel for the product: SiLU or GELU by tanh,
    without hooks."""

    gate: torch.Tensor
    activation: Any


def open_gate(gate: torch.Tensor, activation: Any) -> torch.Tensor | OpenGate:
    """Return `activation(gate)`, or an OpenGate of both if `gated_product` has a kernel for them.

    The model computes the other factor after this call, so it runs after the activation and its
    hooks, as in the model.
    """
    if gated_activation_implementation(gate, gate, activation) == "liger":
        return OpenGate(gate, activation)
    result: torch.Tensor = activation(gate)
    return result


def gated_product(opened: torch.Tensor | OpenGate, up: torch.Tensor) -> torch.Tensor:
    """Return `opened * up`, by Liger's kernels if `open_gate` left the activation to them.

    Shapes: the gate, `up` and the result have one shape for the kernels; else the factors
    broadcast.
    """
    if isinstance(opened, OpenGate):
        return gated_activation(opened.gate, up, opened.activation)
    return gated_product_reference(opened, up)


def gated_product_reference(opened: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Compute the product that the op replaces."""
    return opened * up


def gated_product_implementation(opened: torch.Tensor | OpenGate, up: torch.Tensor) -> str:
    """Name the implementation for these arguments: "liger" or "reference"."""
    if isinstance(opened, OpenGate):
        return gated_activation_implementation(opened.gate, up, opened.activation)
    return "reference"


def gated_activation(
    gate: torch.Tensor, up: torch.Tensor, activation: Any, *, approximate: str = ""
) -> torch.Tensor:
    """Return `activation(gate) * up`, by Liger's kernels if the activation is SiLU or GELU by tanh.

    Shapes: `gate`, `up` and the result have one shape. `activation` is the model's own module or
    function, called as the model calls it (with `approximate`, unless it is "") if it is not
    provably one of the two. Unlike Liger's own function, the backward pass does not overwrite
    `gate` and `up`, so it can be run again.
    """
    if gated_activation_implementation(gate, up, activation, approximate=approximate) != "liger":
        return gated_activation_reference(gate, up, activation, approximate=approximate)
    return _gated_kernel(activation_kind(activation, approximate or "none"))(gate, up)


def gated_activation_reference(
    gate: torch.Tensor, up: torch.Tensor, activation: Any, *, approximate: str = ""
) -> torch.Tensor:
    """Compute the composition that the op replaces, with the activation called as the model calls
    it."""
    result: torch.Tensor = (
        activation(gate, approximate=approximate) if approximate else activation(gate)
    ) * up
    return result


def gated_activation_implementation(
    gate: torch.Tensor, up: torch.Tensor, activation: Any, *, approximate: str = ""
) -> str:
    """Name the implementation for these arguments: "liger" or "reference"."""
    if not can_run_liger(gate, up) or gate.shape != up.shape or gate.dtype != up.dtype:
        return "reference"
    return "liger" if activation_kind(activation, approximate or "none") else "reference"


@functools.cache
def _gated_kernel(kind: str) -> LigerKernel:
    """Make the kernel for an activation of a kind in _MODULES; Liger has to be installed."""
    module = liger_module(_MODULES[kind])
    assert module is not None
    run_forward, run_backward = (
        getattr(module, f"{_MODULES[kind]}_{direction}") for direction in ("forward", "backward")
    )

    def forward(
        gate: torch.Tensor, up: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        return run_forward(gate.contiguous(), up.contiguous())[2], ()

    def backward(
        inputs: tuple[torch.Tensor, torch.Tensor],
        _: tuple[torch.Tensor, ...],
        gradient: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        # the kernel writes the gradients over its arguments
        gate, up = (tensor.clone(memory_format=torch.contiguous_format) for tensor in inputs)
        gradients: tuple[torch.Tensor | None, ...] = run_backward(gate, up, gradient.contiguous())
        return gradients

    def reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        if kind == "silu":
            return torch.nn.functional.silu(gate) * up
        return torch.nn.functional.gelu(gate, approximate="tanh") * up

    return LigerKernel(forward, backward, reference)
