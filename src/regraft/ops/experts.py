"""Gated experts, of which each row chooses some: all of them in a few grouped products by Liger's kernels."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import torch

from regraft.ops.activations import activation_kind
from regraft.ops.liger import LigerKernel, liger, takes

_ANY_SIZE = 1 << 30
_KEPT = ("T", "K", "E", "H", "intermediate_dim", "TK", "num_m_tiles")


def experts(
    x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor,
    activation: Any, number: int,
) -> torch.Tensor:  # fmt: skip
    """For each row the sum over its experts of `weight * (down @ (activation(gate @ row) * (up @ row)))`.

    Shapes: `x` is `(T, H)`, `index` (numbers of experts) and `weights` are `(T, K)`, `gate_up` is `(E, 2 * I, H)` with
    the gate first, `down` `(E, H, I)`. `number` is E; the index E chooses no expert. `activation` is the model's own
    module or function, called as the model does unless it provably is SiLU. Liger's kernels take float32 (on CUDA only
    where PyTorch's products may use TF32, too) and half precision; they add up in float32.
    """
    if experts_implementation(x, index, weights, gate_up, down, activation, number) != "liger":
        return experts_reference(x, index, weights, gate_up, down, activation, number)
    return _experts_kernel()(x, gate_up, down, index, weights)


def experts_reference(
    x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor,
    activation: Any, number: int,
) -> torch.Tensor:  # fmt: skip
    """The composition that the op replaces: one expert after the other, on the rows that chose it."""
    result = torch.zeros_like(x)
    with torch.no_grad():
        mask = torch.nn.functional.one_hot(index, num_classes=number + 1).permute(2, 1, 0)
        chosen = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    for one in chosen:
        expert = one[0]
        if expert == number:
            continue
        place, row = torch.where(mask[expert])
        gate, up = torch.nn.functional.linear(x[row], gate_up[expert]).chunk(2, dim=-1)
        given = torch.nn.functional.linear(activation(gate) * up, down[expert]) * weights[row, place, None]
        result.index_add_(0, row, given.to(result.dtype))
    return result


def experts_implementation(
    x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor,
    activation: Any, number: int,
) -> str:  # fmt: skip
    """Name of what runs for these arguments: "liger" or "reference"."""
    given = (x, gate_up, down, weights)
    if any(not isinstance(one, torch.Tensor) for one in (*given, index)) or not takes(*given, columns=_ANY_SIZE):
        return "reference"
    if any(one.dtype != x.dtype for one in given) or activation_kind(activation, "none") != "silu":
        return "reference"
    if x.is_cuda and x.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32:
        return "reference"
    if type(index) is not torch.Tensor or index.dtype != torch.int64 or index.device != x.device:
        return "reference"
    if torch.is_autocast_enabled(x.device.type) or x.dim() != 2 or index.dim() != 2 or weights.shape != index.shape:
        return "reference"
    inner = gate_up.shape[1] // 2 if gate_up.dim() == 3 else 0
    fits = gate_up.shape == (number, 2 * inner, x.shape[1]) and down.shape == (number, x.shape[1], inner)
    if not fits or index.shape[0] != x.shape[0] or liger("fused_moe") is None:
        return "reference"
    least, most = index.aminmax()
    return "liger" if least >= 0 and most < number else "reference"


class _Context(SimpleNamespace):
    """What Liger's function asks of autograd: it keeps tensors and sizes."""

    def save_for_backward(self, *tensors: torch.Tensor) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None:
        pass

    def set_materialize_grads(self, value: bool) -> None:
        pass


@functools.cache
def _experts_kernel() -> LigerKernel:
    module = liger("fused_moe")
    assert module is not None
    function = module.LigerFusedMoEFunction

    def forward(
        x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, index: torch.Tensor, weights: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        context = _Context()
        result = function.forward(context, x, gate_up, down, index.to(torch.int32), weights)
        sizes = torch.tensor([getattr(context, name) for name in _KEPT])
        return result, (*context.saved_tensors[3:], sizes)  # the first three are inputs

    def backward(
        inputs: tuple[torch.Tensor, ...], kept: tuple[torch.Tensor, ...], gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        *tensors, sizes = kept
        context = _Context(saved_tensors=(*(one.contiguous() for one in inputs[:3]), *tensors))
        for name, size in zip(_KEPT, sizes.tolist(), strict=True):
            setattr(context, name, size)
        *slopes, _, weights = function.backward(context, gradient)
        return *slopes, None, weights

    def reference(
        x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, index: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        silu = torch.nn.functional.silu
        return experts_reference(x, index, weights, gate_up, down, silu, gate_up.shape[0])

    return LigerKernel(forward, backward, reference)
