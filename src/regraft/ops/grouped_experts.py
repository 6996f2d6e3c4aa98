"""Gated experts, of which each row chooses some: all of them in two grouped products of PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from regraft.ops.activations import activation_kind, is_gelu
from regraft.ops.experts import experts_reference
from regraft.ops.plain import are_tensors, is_transformed

_ALIGNED = 16  # bytes: what the grouped product asks of strides, on CPU, too
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def grouped_experts(
    x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor,
    activation: Any, number: int,
) -> torch.Tensor:  # fmt: skip
    """For each row the sum over its experts of `weight * (down @ (activation(gate @ row) * (up @ row)))`.

    Shapes: `x` is `(T, H)`, `index` (numbers of experts) and `weights` are `(T, K)`, `gate_up` is `(E, 2 * I, H)` with
    the gate first, `down` `(E, H, I)`. `number` is E; the index E chooses no expert. On CPU, where rows, gates and
    products have one dtype and widths of a multiple of 16 bytes, every index chooses an expert, and the model's
    activation provably is SiLU or GELU, which all rows can go through at once: `torch.nn.functional.grouped_mm`
    (PyTorch 2.10 and later) on the rows in the order of their experts. Anything else runs one expert after the other.
    All intermediate rows are in memory at once, in inference, too: `T * K` of them.
    """
    if grouped_experts_implementation(x, index, weights, gate_up, down, activation, number) != "torch-native":
        return experts_reference(x, index, weights, gate_up, down, activation, number)
    order = index.flatten().argsort(stable=True)
    row = order // index.shape[1]
    ends = torch.bincount(index.flatten(), minlength=number).cumsum(0).to(torch.int32)
    gate, up = functional.grouped_mm(x[row], gate_up.transpose(1, 2), offs=ends).chunk(2, dim=-1)
    given = functional.grouped_mm(activation(gate) * up, down.transpose(1, 2), offs=ends)
    given = given * weights.flatten()[order, None]
    return torch.zeros_like(x).index_add_(0, row, given.to(x.dtype))


def grouped_experts_implementation(
    x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor,
    activation: Any, number: int,
) -> str:  # fmt: skip
    """Name of what runs for these arguments: "torch-native" or "reference"."""
    given = (x, index, weights, gate_up, down)
    if not hasattr(functional, "grouped_mm") or not are_tensors(*given) or is_transformed():
        return "reference"
    if any(one.device.type != "cpu" for one in given) or torch.is_autocast_enabled("cpu"):
        return "reference"
    if x.dtype not in _DTYPES or not x.dtype == gate_up.dtype == down.dtype or index.dtype != torch.int64:
        return "reference"
    if x.dim() != 2 or index.dim() != 2 or weights.shape != index.shape or index.shape[0] != x.shape[0]:
        return "reference"
    inner = gate_up.shape[1] // 2 if gate_up.dim() == 3 else 0
    fits = gate_up.shape == (number, 2 * inner, x.shape[1]) and down.shape == (number, x.shape[1], inner)
    known = is_gelu(activation) or activation_kind(activation)
    if not fits or not known or not inner or not index.numel() or not weights.is_floating_point():
        return "reference"
    widths = (x.shape[1] * x.element_size(), inner * x.element_size())
    starts = (gate_up.data_ptr(), down.data_ptr())
    if any(one % _ALIGNED for one in (*widths, *starts)) or not (gate_up.is_contiguous() and down.is_contiguous()):
        return "reference"
    least, most = index.aminmax()
    return "torch-native" if least >= 0 and most < number else "reference"
