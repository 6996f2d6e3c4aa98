"""Mixture of gated experts, in two grouped products of all experts by PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from regraft.ops.activation_recognition import activation_kind, is_gelu
from regraft.ops.experts import (
    chooses_experts,
    do_choices_fit,
    expert_width,
    experts_reference,
)
from regraft.ops.plain import are_tensors, can_read

_ALIGNMENT = 16  # bytes of which the grouped product requires multiples in strides, on CPU, too
_GROUPED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


grouped_experts_reference = experts_reference


def grouped_experts(
    x: torch.Tensor,
    index: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    activation: Any,
    number: int,
) -> torch.Tensor:
    """Sum `weight * (down @ (activation(gate @ row) * (up @ row)))` for each row over its experts.

    Shapes: `x` and the result are `(T, H)`, `index` (numbers of experts) and `weights` are `(T,
    K)`, `gate_up` is `(E, 2 * I, H)` with the gate first, `down` `(E, H, I)`. `number` is E; the
    index E chooses no expert. The op runs `torch.nn.functional.grouped_mm` (PyTorch 2.10 and later)
    on the rows in the order of their experts if all tensors are on CPU, `x`, `gate_up` and `down`
    have one dtype and widths of a multiple of 16 bytes, every index chooses an expert, and the
    model's activation provably is SiLU or GELU, which can be applied to all rows at once. Any other
    arguments run one expert after the other. All `T * K` intermediate rows are in memory at once,
    even in inference.
    """
    if (
        grouped_experts_implementation(x, index, weights, gate_up, down, activation, number)
        != "torch-native"
    ):
        return experts_reference(x, index, weights, gate_up, down, activation, number)
    order = index.flatten().argsort(stable=True)
    row = order // index.shape[1]
    ends = torch.bincount(index.flatten(), minlength=number).cumsum(0).to(torch.int32)
    gate, up = functional.grouped_mm(x[row], gate_up.transpose(1, 2), offs=ends).chunk(2, dim=-1)
    contributions = functional.grouped_mm(activation(gate) * up, down.transpose(1, 2), offs=ends)
    contributions = contributions * weights.flatten()[order, None]
    return torch.zeros_like(x).index_add_(0, row, contributions.to(x.dtype))


def grouped_experts_implementation(
    x: torch.Tensor,
    index: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    activation: Any,
    number: int,
) -> str:
    """Name the implementation for these arguments: "torch-native" or "reference"."""
    tensors = (x, index, weights, gate_up, down)
    if not hasattr(functional, "grouped_mm") or not are_tensors(*tensors) or not can_read():
        return "reference"
    if any(tensor.device.type != "cpu" for tensor in tensors) or torch.is_autocast_enabled("cpu"):
        return "reference"
    if not _do_dtypes_fit(*tensors) or not do_choices_fit(x, index, weights):
        return "reference"
    width = expert_width(x, gate_up, down, number)
    if not width or not index.numel() or not (is_gelu(activation) or activation_kind(activation)):
        return "reference"
    if not _are_aligned(x, gate_up, down, width):
        return "reference"
    return "torch-native" if chooses_experts(index, number) else "reference"


def _do_dtypes_fit(
    x: torch.Tensor,
    index: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
) -> bool:
    """Return whether the grouped product takes the dtype of the rows and parameters, and the
    weights are floating point."""
    return (
        x.dtype in _GROUPED_DTYPES
        and x.dtype == gate_up.dtype == down.dtype
        and index.dtype == torch.int64
        and weights.is_floating_point()
    )


def _are_aligned(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, width: int) -> bool:
    """Return whether the parameters are contiguous, and start and continue at multiples of
    _ALIGNMENT bytes."""
    row_sizes = (x.shape[1] * x.element_size(), width * x.element_size())
    starts = (gate_up.data_ptr(), down.data_ptr())
    if any(size % _ALIGNMENT for size in (*row_sizes, *starts)):
        return False
    return bool(gate_up.is_contiguous() and down.is_contiguous())
