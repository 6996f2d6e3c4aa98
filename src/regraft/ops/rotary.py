"""Rotary position embedding in the half style: the first half of the last dimension is turned with the second."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from regraft.ops.liger import liger, takes

_MIRRORED: Any = WeakIdKeyDictionary()  # tensors whose halves have been compared → what was compared, and the answer


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """`x * cos + rotate_half(x) * sin`, where `rotate_half` puts the negated second half before the first.

    Shapes: `x` and the result are `(..., D)` with an even `D`; `cos` and `sin` broadcast to `x`. As `rotary_pair`,
    whose kernel takes two tensors: the second is one head of `x`, and is thrown away.
    """
    if rotary_implementation(x, cos, sin) != "liger":
        return rotary_reference(x, cos, sin)
    return _through_liger((x,), cos, sin)[0]


def rotary_reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The composition that the op replaces; ValueError for an odd size, which different sources halve differently."""
    half = x.shape[-1] // 2
    if isinstance(x, torch.Tensor) and x.shape[-1] % 2:  # a size that `torch.fx` traces is no number
        raise ValueError(f"a rotary embedding needs an even size, not {x.shape[-1]}")
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def rotary_implementation(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> str:
    """Name of what runs for these arguments: "liger" or "reference"."""
    return rotary_pair_implementation(x, x, cos, sin)


def rotary_pair(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """`rotary` of query and key, by Liger's kernel.

    Shapes: `query` is `(B, H, T, D)` and `cos` `(B or 1, 1, T, D)`, or `(B, T, H, D)` and `(B or 1, T, 1, D)`, each
    also without `B`; `key` may have another number of heads. The kernel reads one half of `cos` and `sin` only, so
    both are compared, once for each tensor; where the halves differ, and for anything else that the kernel does not
    take, the composition runs. Unlike Liger's own function, the op does not write into the tensors that `query`, `key`
    and the gradients are views of.
    """
    if rotary_pair_implementation(query, key, cos, sin) != "liger":
        return rotary_pair_reference(query, key, cos, sin)
    first, second = _through_liger((query, key), cos, sin)
    return first, second


def rotary_pair_reference(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The composition that the op replaces."""
    return rotary_reference(query, cos, sin), rotary_reference(key, cos, sin)


def rotary_pair_implementation(query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> str:
    """Name of what runs for these arguments: "liger" or "reference"."""
    if not takes(query, key, cos, sin) or len({one.dtype for one in (query, key, cos, sin)}) > 1:
        return "reference"
    if cos.requires_grad or sin.requires_grad or query.shape[-1] % 2 or cos.shape != sin.shape:
        return "reference"
    heads = _heads(query, cos)
    others = [[size for place, size in enumerate(one.shape) if place != one.dim() - heads] for one in (query, key)]
    if not heads or heads != _heads(key, cos) or others[0] != others[1]:
        return "reference"
    return "liger" if _is_mirrored(cos) and _is_mirrored(sin) else "reference"


def _heads(x: torch.Tensor, cos: torch.Tensor) -> int:
    """The dimension of the heads, counted from the end: 3 or 2; 0 where the shapes are none that the kernel takes."""
    if x.dim() not in (3, 4) or cos.dim() > x.dim() or cos.dim() < 3 or cos.shape[-1] != x.shape[-1]:
        return 0
    if x.dim() == 4 and cos.dim() == 4 and cos.shape[0] not in (1, x.shape[0]):
        return 0
    for heads, length in ((3, 2), (2, 3)):
        if cos.shape[-heads] == 1 and cos.shape[-length] == x.shape[-length]:
            return heads
    return 0


def _is_mirrored(table: torch.Tensor) -> bool:
    """Whether both halves of the last dimension are equal; asked of the device once for each tensor."""
    if table.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    base = table if table._base is None else table._base
    half = table.shape[-1] // 2
    if base.is_inference():
        return bool(torch.equal(table[..., :half], table[..., half:]))
    key = (base._version, table.storage_offset(), table.shape, table.stride())
    known = _MIRRORED.get(base)
    if known is None or known[0] != key:
        known = _MIRRORED[base] = key, torch.equal(table[..., :half], table[..., half:])
    answer: bool = known[1]
    return answer


def _through_liger(
    tensors: tuple[torch.Tensor, ...], cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The tensors as `(B, T, H, D)`, `cos` and `sin` as `(B, T, D)`, through the kernel, and back."""
    heads = _heads(tensors[0], cos)
    table = [one.squeeze(-heads).reshape(-1, *one.squeeze(-heads).shape[-2:]) for one in (cos, sin)]
    rows = [one.unsqueeze(0) if one.dim() == 3 else one for one in tensors]
    rows = [one.transpose(1, 2) if heads == 3 else one for one in rows]
    if len(rows) == 1:
        rows.append(rows[0].detach()[:, :, :1])
    turned = _Rotary.apply(*rows, *table)
    back = [one.transpose(1, 2) if heads == 3 else one for one in turned]
    return tuple(one.reshape(given.shape) for one, given in zip(back, tensors, strict=False))


class _Rotary(torch.autograd.Function):  # type: ignore[misc]
    """Its gradient turns the other way, so it can be differentiated as often as wanted."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(cos, sin)
        return launch_rotary(query, key, cos, sin)

    @staticmethod
    def backward(ctx: Any, query: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return *_Rotary.apply(query, key, cos, -sin), None, None


def launch_rotary(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One launch of the kernel, which writes over copies."""
    module = liger("rope")
    assert module is not None
    copies = [one.clone(memory_format=torch.contiguous_format).transpose(1, 2) for one in (query, key)]
    with torch.cuda.device_of(query):  # Triton launches on the current device
        first, second, *_ = module.rope_forward(*copies, cos, sin)
    return first.transpose(1, 2), second.transpose(1, 2)
