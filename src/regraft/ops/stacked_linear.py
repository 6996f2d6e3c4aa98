"""Linear layers that share one input, as one batched matrix product."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from regraft.ops.plain import compiles, is_plain


def can_stack(x: torch.Tensor, *layers: Any) -> bool:
    """Return whether these layers can run as one product: plain ones of one size, on CUDA, with
    gradients disabled."""
    # the surrounding compiler fuses by itself, and sees the hooks
    if not compiles(x) or torch.is_grad_enabled() or not x.numel():
        return False
    if not all(is_plain(layer, nn.Linear) for layer in layers):
        return False
    kinds = {
        (layer.weight.dtype, layer.weight.device, layer.weight.shape, layer.bias is None)
        for layer in layers
    }
    first = layers[0]
    if kinds != {(x.dtype, x.device, first.weight.shape, first.bias is None)}:
        return False
    return not torch.is_autocast_enabled(x.device.type)


def stacked_linear(x: torch.Tensor, *layers: nn.Linear) -> tuple[torch.Tensor, ...]:
    """Compute `tuple(layer(x) for layer in layers)`; `x` is `(..., in_features)`, and the layers
    have one size."""
    layer_count = len(layers)
    weights = torch.stack([layer.weight for layer in layers]).transpose(1, 2)
    rows = x.reshape(1, -1, x.shape[-1]).expand(layer_count, -1, -1)
    if layers[0].bias is None:
        product = torch.bmm(rows, weights)
    else:
        product = torch.baddbmm(
            torch.stack([layer.bias for layer in layers]).unsqueeze(1), rows, weights
        )
    results: tuple[torch.Tensor, ...] = product.view(layer_count, *x.shape[:-1], -1).unbind()
    return results
