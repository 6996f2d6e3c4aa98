"""Linear layers of one input as one batched matrix product."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regraft.ops.plain import compiles, is_plain


def stacks(x: torch.Tensor, *layers: Any) -> bool:
    """Whether these layers run as one product: plain ones of one size, on CUDA, where no gradient is wanted."""
    if torch.compiler.is_compiling() or not all(is_plain(one, nn.Linear) for one in layers):
        return False  # the compiler around it fuses, and sees the hooks
    kinds = {(one.weight.dtype, one.weight.device, one.weight.shape, one.bias is None) for one in layers}
    first = layers[0]
    if kinds != {(x.dtype, x.device, first.weight.shape, first.bias is None)}:
        return False
    wanted = torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type)
    return not wanted and compiles(x) and x.numel() > 0


def stacked_linear(x: torch.Tensor, *layers: nn.Linear) -> tuple[torch.Tensor, ...]:
    """`tuple(layer(x) for layer in layers)`; `x` is `(..., in_features)`, the layers are of one size."""
    number = len(layers)
    weights = torch.stack([one.weight for one in layers]).transpose(1, 2)
    rows = x.reshape(1, -1, x.shape[-1]).expand(number, -1, -1)
    if layers[0].bias is None:
        product = torch.bmm(rows, weights)
    else:
        product = torch.baddbmm(torch.stack([one.bias for one in layers]).unsqueeze(1), rows, weights)
    results: tuple[torch.Tensor, ...] = product.view(number, *x.shape[:-1], -1).unbind()
    return results
