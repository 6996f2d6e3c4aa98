"""Heads of keys and values that are repeated for groups of queries, and that attention reads
without the repetition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from regraft.ops.plain import are_kernels_forced, are_tensors, can_read, versions_of
from regraft.ops.postponed import PostponedTensor, creation_modes

# from so many repeated elements on, the copy takes longer than its postponement
_LEAST_REPEATED = 1 << 18
_HAS_GROUPS = torch.__version__ >= (2, 5)
_ATTENTION = functional.scaled_dot_product_attention
_TRANSPOSES = (torch.Tensor.transpose, torch.transpose)
_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_WATCHED = (
    "the gradient of repeated heads is asked for after attention has read the heads without the"
    " repetition: ask for it before (register_hook, retain_grad)"
)
_CHANGED = (
    "heads were changed in place after they were repeated, and before the repetition was read"
)


def repeated_heads(x: torch.Tensor, count: int, dim: int) -> torch.Tensor:
    """Return `x.repeat_interleave(count, dim)`, and postpone it until its elements are needed
    beyond attention.

    Shapes: `x` is `(B, heads, S, E)` for `dim` 1 and `(B, S, heads, E)` for `dim` 2; the result has
    `count` times as many heads. On CPU the result of at least 2**18 elements, or any with
    REGRAFT_KERNELS=always in the environment, is a `PostponedTensor`. It stays postponed while it
    is transposed; `scaled_dot_product_attention` of a query with such a key and value gets the
    heads with `enable_gqa`, unless it stores them for gradients and they were written in place, as
    in a cache. Any other operation computes the elements and continues with the ordinary tensor.
    This raises RuntimeError if `x` was changed in place before. So does the request for gradients
    of the repeated heads after attention has read them. Other arguments, calls that are traced or
    compiled, and PyTorch before 2.5 get the repetition at once.
    """
    if repeated_heads_implementation(x, count, dim) != "postponed":
        return repeated_heads_reference(x, count, dim)
    return _postponed(x, count, dim)


def repeated_heads_reference(x: torch.Tensor, count: int, dim: int) -> torch.Tensor:
    """Repeat the heads at once."""
    return x.repeat_interleave(count, dim)


def repeated_heads_implementation(x: torch.Tensor, count: int, dim: int) -> str:
    """Name the implementation for these arguments: "postponed" or "reference"."""
    if not are_tensors(x) or type(count) is not int or count < 2 or not can_read():
        return "reference"
    if dim not in (1, 2, -2, -3) or not _can_be_postponed(x):
        return "reference"
    is_large = x.numel() * count >= _LEAST_REPEATED or (x.numel() and are_kernels_forced())
    return "postponed" if is_large else "reference"


def _can_be_postponed(x: torch.Tensor) -> bool:
    """Return whether attention on CPU takes such heads as exactly as their copies: gradients of a
    group are added in their own precision, which half precision is not enough for."""
    if x.dim() != 4 or not x.is_cpu or x.is_nested or x.layout is not torch.strided:
        return False
    if not _HAS_GROUPS or not x.dtype.is_floating_point or torch.is_autocast_enabled("cpu"):
        return False
    return x.dtype.itemsize >= 4 or not (torch.is_grad_enabled() and x.requires_grad)


def expanded_heads(x: torch.Tensor, count: int, dim: int) -> torch.Tensor:
    """Return `x.unsqueeze(dim + 1)`, expanded to `count` copies and reshaped to the dimensions of
    `x`, postponed as by `repeated_heads`.

    Shapes: as for `repeated_heads`. The result is `x` itself for a count of one, and a view of `x`
    for a single head, of which nothing is copied.
    """
    if expanded_heads_implementation(x, count, dim) != "postponed":
        return expanded_heads_reference(x, count, dim)
    return _postponed(x, count, dim)


def expanded_heads_reference(x: torch.Tensor, count: int, dim: int) -> torch.Tensor:
    """Expand and reshape the heads at once."""
    if type(count) is int and count == 1:
        return x
    sizes = [-1, -1, -1, -1, -1]
    sizes[dim + 1] = count
    return x.unsqueeze(dim + 1).expand(sizes).flatten(dim, dim + 1)


def expanded_heads_implementation(x: torch.Tensor, count: int, dim: int) -> str:
    """Name the implementation for these arguments: "postponed" or "reference"."""
    implementation = repeated_heads_implementation(x, count, dim)
    is_view = implementation == "postponed" and x.shape[dim] == 1
    return "reference" if is_view else implementation


def _postponed(x: torch.Tensor, count: int, dim: int) -> torch.Tensor:
    """Return the repetition of a tensor with four dimensions as a postponed tensor."""
    record = _Heads(x, count, dim % 4, versions_of((x,)))
    result: torch.Tensor = _HeadsEdge.apply(record, x)
    return result


@dataclass(slots=True, eq=False)
class _Heads:
    """The record of repeated heads.

    source     the heads, and `dim` the dimension that is repeated
    versions   the version counter of the source when it was repeated
    gradients  whether gradients were enabled then, and `inference` the inference mode
    value      the repeated elements; None until they are computed
    attended   whether attention has read the source
    """

    source: torch.Tensor
    count: int
    dim: int
    versions: tuple[int, ...]
    gradients: bool = False
    inference: bool = False
    value: torch.Tensor | None = None
    attended: bool = False

    def __post_init__(self) -> None:
        self.gradients = torch.is_grad_enabled()
        self.inference = torch.is_inference_mode_enabled()

    @property
    def heads(self) -> _Heads:
        """The record itself, which is that of no transposed tensor."""
        return self

    def compute(self) -> torch.Tensor:
        """Compute the elements in the graph of the source, once, and return them."""
        if self.value is None:
            if versions_of((self.source,)) != self.versions:
                raise RuntimeError(_CHANGED)
            with creation_modes(self.source, None, self.gradients, self.inference):
                self.value = self.source.repeat_interleave(self.count, self.dim)
        return self.value

    def ordinary_tensor(self, tensor: PostponedTensor) -> torch.Tensor:
        return self.compute()

    def defer(self, function: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
        return _defer(self, function, args, kwargs)

    def watch(self, tensor: PostponedTensor, function: Any, args: Any, kwargs: Any) -> bool:
        if self.attended and self.source.requires_grad:
            raise RuntimeError(_WATCHED)
        return False

    def small(self) -> torch.Tensor:
        """Return the heads as `(B, heads, S, E)` or `(B, S, heads, E)`, as they were given."""
        return self.source

    def is_current(self) -> bool:
        """Return whether nothing was computed or changed yet, in the modes that are the current
        ones."""
        return (
            self.value is None
            and self.gradients == torch.is_grad_enabled()
            and self.inference == torch.is_inference_mode_enabled()
            and versions_of((self.source,)) == self.versions
            and can_read()
        )


@dataclass(slots=True, eq=False)
class _TransposedHeads:
    """The record of repeated heads of which the dimensions 1 and 2 are exchanged; `ordinary` is the
    ordinary tensor once it was needed."""

    heads: _Heads
    ordinary: torch.Tensor | None = None

    @property
    def value(self) -> torch.Tensor | None:
        return self.heads.value

    @property
    def dim(self) -> int:
        """The dimension that is repeated."""
        return 3 - self.heads.dim

    def ordinary_tensor(self, tensor: PostponedTensor) -> torch.Tensor:
        heads = self.heads
        if self.ordinary is None:
            whole = heads.compute()
            with creation_modes(heads.source, None, heads.gradients, heads.inference):
                self.ordinary = whole.transpose(1, 2)
        return self.ordinary

    def defer(self, function: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
        return _defer(self, function, args, kwargs)

    def watch(self, tensor: PostponedTensor, function: Any, args: Any, kwargs: Any) -> bool:
        return self.heads.watch(tensor, function, args, kwargs)

    def small(self) -> torch.Tensor:
        """Return the heads, with the dimensions exchanged."""
        return self.heads.source.transpose(1, 2)


class _HeadsEdge(torch.autograd.Function):  # type: ignore[misc]
    """The node of repeated heads in the graph, for other code that differentiates them."""

    @staticmethod
    def forward(ctx: Any, record: Any, source: torch.Tensor) -> torch.Tensor:
        heads = record.heads
        ctx.count, ctx.dim = heads.count, heads.dim
        ctx.transposes = record is not heads
        shape = list(heads.source.shape)
        shape[heads.dim] *= heads.count
        meta = torch.empty(shape, dtype=source.dtype, device="meta")
        meta = meta.transpose(1, 2) if ctx.transposes else meta
        return PostponedTensor.of(record, meta, source.device)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        gradient = gradient.transpose(1, 2) if ctx.transposes else gradient
        return None, gradient.unflatten(ctx.dim, (-1, ctx.count)).sum(ctx.dim + 1)


def _defer(record: Any, function: Any, args: Any, kwargs: Any) -> torch.Tensor | None:
    """Return the result of a transposition or of attention without the repetition; None where it is
    another function or needs the elements."""
    if function in _TRANSPOSES and not kwargs and record.heads.is_current():
        exchanges = args[1:] in ((1, 2), (2, 1), (-3, -2), (-2, -3))
        if exchanges and record is record.heads:
            result: torch.Tensor = _HeadsEdge.apply(_TransposedHeads(record), record.source)
            return result
    return _attend(args, kwargs) if function is _ATTENTION else None


def _attend(args: Any, kwargs: Any) -> torch.Tensor | None:
    """Return attention to heads that are not repeated; None where the kernel does not take them."""
    named = dict(zip(_PARAMETERS, args, strict=False)) | kwargs
    key, value = _record_of(named.get("key")), _record_of(named.get("value"))
    query, mask = named.get("query"), named.get("attn_mask")
    if key is None or value is None or named.pop("enable_gqa", False):
        return None
    if not are_tensors(query) or not (mask is None or are_tensors(mask)):
        return None
    if key.dim != 1 or value.dim != 1 or key.heads.count != value.heads.count:
        return None
    small_key, small_value = key.small(), value.small()
    shape = (query.shape[0], query.shape[1] // key.heads.count) if query.dim() == 4 else ()
    if not shape == small_key.shape[:2] == small_value.shape[:2]:
        return None
    if _needs_copy(query, small_key, small_value, mask):
        return None
    if query.shape[1] % key.heads.count:
        return None
    named.update(key=small_key, value=small_value)
    result: torch.Tensor = _ATTENTION(**named, enable_gqa=True)
    key.heads.attended = value.heads.attended = True
    return result


def _needs_copy(query: Any, key: torch.Tensor, value: torch.Tensor, mask: Any) -> bool:
    """Return whether attention needs the repeated heads: under autocast, without queries, and where
    it would store heads for its gradients that were written in place. Those are of a cache, which
    may be written again before the backward pass."""
    if torch.is_autocast_enabled("cpu") or not query.numel():
        return True
    if not torch.is_grad_enabled() or not any(versions_of((key, value))):
        return False
    return any(tensor is not None and tensor.requires_grad for tensor in (query, key, value, mask))


def _record_of(value: Any) -> Any:
    """Return the record of repeated heads whose elements are not computed; None for any other
    value."""
    record = value.record if isinstance(value, PostponedTensor) else None
    is_pending = isinstance(record, _Heads | _TransposedHeads) and record.heads.is_current()
    return record if is_pending else None
