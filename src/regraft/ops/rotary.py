"""Rotary position embedding in the half style: the first half of the last dimension is turned with
the second."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from regraft.ops.liger import can_run_liger, liger_module

# tensor → its compared version and layout, and whether its halves are equal
_MIRRORED: Any = WeakIdKeyDictionary()


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return `x * cos + rotate_half(x) * sin`, where `rotate_half` puts the negated second half
    before the first.

    Shapes: `x` and the result are `(..., D)`; `cos` and `sin` broadcast to `x`. An odd `D` raises
    ValueError. The kernel of `rotary_pair` takes two tensors: here its second tensor is one head of
    `x`, whose result is discarded.
    """
    if rotary_implementation(x, cos, sin) != "liger":
        return rotary_reference(x, cos, sin)
    return _rotate_by_liger((x,), cos, sin)[0]


def rotary_reference(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, larger_first: bool | None = None
) -> torch.Tensor:
    """Compute the composition that the op replaces.

    `larger_first` tells which half of an odd `D` is the larger one: the first, as `torch.chunk`
    cuts, or the second, as slices at `D // 2` do. None raises ValueError for an odd `D`.
    """
    size = x.shape[-1]
    is_odd = isinstance(x, torch.Tensor) and size % 2  # while `torch.fx` traces, it is no number
    if is_odd and larger_first is None:
        raise ValueError(f"a rotary embedding needs an even size, not {size}")
    half = size // 2 + 1 if is_odd and larger_first else size // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def rotary_implementation(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> str:
    """Name the implementation for these arguments: "liger" or "reference"."""
    return rotary_pair_implementation(x, x, cos, sin)


def rotary_pair(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `rotary` of query and key, by Liger's kernel.

    Shapes: `query` is `(B, H, T, D)` and `cos` `(B or 1, 1, T, D)`, or `(B, T, H, D)` and `(B or 1,
    T, 1, D)`, each also without `B`; `key` may have another number of heads. The kernel reads one
    half of `cos` and `sin` only, so both halves are compared, once for each tensor; if they differ,
    and for any other arguments that the kernel does not take, the composition runs. Unlike Liger's
    own function, the op does not write into the tensors of which `query`, `key` and the gradients
    are views.
    """
    if rotary_pair_implementation(query, key, cos, sin) != "liger":
        return rotary_pair_reference(query, key, cos, sin)
    first, second = _rotate_by_liger((query, key), cos, sin)
    return first, second


def rotary_pair_reference(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the composition that the op replaces."""
    return rotary_reference(query, cos, sin), rotary_reference(key, cos, sin)


def rotary_pair_implementation(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> str:
    """Name the implementation for these arguments: "liger" or "reference"."""
    tensors = (query, key, cos, sin)
    if not can_run_liger(*tensors) or len({tensor.dtype for tensor in tensors}) > 1:
        return "reference"
    if cos.requires_grad or sin.requires_grad or query.shape[-1] % 2 or cos.shape != sin.shape:
        return "reference"
    heads = _heads_dimension(query, cos)
    if not heads or heads != _heads_dimension(key, cos):
        return "reference"
    if _sizes_beside_heads(query, heads) != _sizes_beside_heads(key, heads):
        return "reference"
    return "liger" if _is_mirrored(cos) and _is_mirrored(sin) else "reference"


def _sizes_beside_heads(x: torch.Tensor, heads: int) -> list[int]:
    """Return the sizes of all dimensions but that of the heads, `heads` counted from the end."""
    return [size for dimension, size in enumerate(x.shape) if dimension != x.dim() - heads]


def _heads_dimension(x: torch.Tensor, cos: torch.Tensor) -> int:
    """Return the dimension of the heads, counted from the end: 3 or 2; 0 if the kernel does not
    take the shapes."""
    if (
        x.dim() not in (3, 4)
        or cos.dim() > x.dim()
        or cos.dim() < 3
        or cos.shape[-1] != x.shape[-1]
    ):
        return 0
    if x.dim() == 4 and cos.dim() == 4 and cos.shape[0] not in (1, x.shape[0]):
        return 0
    for heads, length in ((3, 2), (2, 3)):
        if cos.shape[-heads] == 1 and cos.shape[-length] == x.shape[-length]:
            return heads
    return 0


def _is_mirrored(table: torch.Tensor) -> bool:
    """Return whether both halves of the last dimension are equal; the device is asked once for each
    version of a tensor.

    A write by `table.data[...] = ` that makes the halves differ is not counted as a version.
    """
    if table.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    base = table if table._base is None else table._base
    half = table.shape[-1] // 2
    if base.is_inference():
        return bool(torch.equal(table[..., :half], table[..., half:]))
    key = (base._version, table.data_ptr(), table.shape, table.stride())
    entry = _MIRRORED.get(base)
    if entry is None or entry[0] != key:
        entry = _MIRRORED[base] = key, torch.equal(table[..., :half], table[..., half:])
    is_mirrored: bool = entry[1]
    return is_mirrored


def _rotate_by_liger(
    tensors: tuple[torch.Tensor, ...], cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Bring the tensors to `(B, T, H, D)`, `cos` and `sin` to `(B, T, D)`, run the kernel, and
    restore the shapes."""
    heads = _heads_dimension(tensors[0], cos)
    tables = [
        tensor.squeeze(-heads).reshape(-1, *tensor.squeeze(-heads).shape[-2:])
        for tensor in (cos, sin)
    ]
    rows = [tensor.unsqueeze(0) if tensor.dim() == 3 else tensor for tensor in tensors]
    rows = [tensor.transpose(1, 2) if heads == 3 else tensor for tensor in rows]
    if len(rows) == 1:
        rows.append(rows[0].detach()[:, :, :1])
    rotated = _Rotary.apply(*rows, *tables)
    restored = [tensor.transpose(1, 2) if heads == 3 else tensor for tensor in rotated]
    return tuple(
        tensor.reshape(original.shape) for tensor, original in zip(restored, tensors, strict=False)
    )


class _Rotary(torch.autograd.Function):  # type: ignore[misc]
    """The rotation, whose gradient is the inverse rotation, so that it can be differentiated any
    number of times."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(cos, sin)
        return launch_rotary(query, key, cos, sin)

    @staticmethod
    def backward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return *_Rotary.apply(query, key, cos, -sin), None, None


def launch_rotary(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Launch the kernel once; it overwrites copies of the query and the key, which are `(B, T, H,
    D)`."""
    module = liger_module("rope")
    assert module is not None
    copies = [
        tensor.clone(memory_format=torch.contiguous_format).transpose(1, 2)
        for tensor in (query, key)
    ]
    with torch.cuda.device_of(query):  # Triton launches on the current device
        first, second, *_ = module.rope_forward(*copies, cos, sin)
    return first.transpose(1, 2), second.transpose(1, 2)
