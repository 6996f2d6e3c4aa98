"""How calls with certain labels replace the parameters of a model while they run: by zeros, by 1000
times their values, and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

ZERO, LARGE, TINY = "parameters that are zero", "parameters x 1000", "parameters x 1e-6"
LOW, HALF = "biases of -100", "parameters in bfloat16, inputs in float32"
PAIRED = "parameters with rows that are equal in pairs"
FEW_ROWS = "parameters with three rows that count"
BUFFERS = "other buffers of the checkpoint"
BIASES = "parameters that are zero, biases of "  # followed by a number
# by label, the new value of a parameter by its name and value; None leaves it alone
ALTERATIONS: dict[str, Callable[[str, Any], Any]] = {
    ZERO: lambda name, value: torch.zeros_like(value),
    LARGE: lambda name, value: value * 1e3,
    TINY: lambda name, value: value * 1e-6,
    LOW: lambda name, value: torch.full_like(value, -100.0) if name.endswith("bias") else None,
    HALF: lambda name, value: value.to(torch.bfloat16),
    PAIRED: lambda name, value: (
        value[::2].repeat_interleave(2, 0)[: len(value)] if value.dim() else None
    ),
    FEW_ROWS: lambda name, value: (
        torch.cat([value[:3], value[3:] * 1e-2]) if value.dim() and len(value) > 3 else None
    ),
}


def alteration_of(label: str) -> Callable[[str, Any], Any] | None:
    """Return the function that gives, from a floating parameter's name and value, its value while a
    call with this label runs (None: unchanged); return None for a label that alters no
    parameters."""
    if not label.startswith(BIASES):
        return ALTERATIONS.get(label)
    number = float(label.removeprefix(BIASES))
    return lambda name, value: torch.full_like(value, number if name.endswith("bias") else 0.0)
