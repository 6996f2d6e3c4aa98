"""A residual addition and the RMSNorm of its sum."""

from __future__ import annotations

from typing import Any

import torch

from regraft.ops.liger import can_run_liger
from regraft.ops.plain import is_hooked
from regraft.ops.postponed_sum import postponed_sum


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, norm: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `x + residual` and `norm(x + residual)`.

    Shapes: `x` and `residual` broadcast to `(..., H)`, the shape of both results. `norm` is the
    model's own module, and it is called in any case. Where Liger's kernels run, its argument is a
    postponed sum: if the module calls `regraft.ops.rms_norm` with a weight on it, one kernel reads
    both terms and writes the sum and its norm; any other function that needs the elements gets the
    ordinary sum. A module with hooks gets the ordinary sum from the start.
    """
    if add_rms_norm_implementation(x, residual, norm) != "liger":
        return add_rms_norm_reference(x, residual, norm)
    total, record = postponed_sum(x, residual)
    normed = norm(total)
    return record.compute(), normed


def add_rms_norm_reference(
    x: torch.Tensor, residual: torch.Tensor, norm: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the composition that the op replaces."""
    total = x + residual
    return total, norm(total)


def add_rms_norm_implementation(x: torch.Tensor, residual: torch.Tensor, norm: Any) -> str:
    """Name the implementation for these arguments: "liger" (if the module is an RMSNorm by Liger)
    or "reference"."""
    if not can_run_liger(x, residual) or x.shape != residual.shape or x.dtype != residual.dtype:
        return "reference"
    is_outside_inference = (
        x.is_inference() or residual.is_inference()
    ) and not torch.is_inference_mode_enabled()
    return (
        "reference"
        if is_outside_inference or not isinstance(norm, torch.nn.Module) or is_hooked(norm)
        else "liger"
    )
