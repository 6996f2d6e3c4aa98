"""Parts of a concatenation that are larger copies of a small tensor: the small tensor, and what
enlarges it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regraft.ops.plain import are_tensors, can_read


@dataclass(frozen=True, slots=True, eq=False)
class EnlargedPart:
    """A tensor that is made only where somebody needs it whole.

    source   the small tensor
    shape    the shape of the enlarged tensor
    index    the rows of `source` that the enlarged tensor has; None for one that `source` is
             broadcast to
    version  the version counters of `source` and `index`, added up, when the elements were read; -1
             for a view, which follows later changes
    """

    source: torch.Tensor
    shape: torch.Size
    index: torch.Tensor | None = None
    version: int = -1

    def tensor(self) -> torch.Tensor:
        """Return the enlarged tensor; RuntimeError if the source was changed in place since its
        elements were read."""
        if self.is_outdated():
            raise RuntimeError(
                "a tensor was changed in place after it was repeated or its rows were read, and"
                " before these were concatenated"
            )
        if self.index is None:
            return self.source.expand(self.shape)
        if self.index.dim() == 1:
            return self.source.index_select(0, self.index)  # its gradient takes less time
        return self.source[self.index]

    def is_outdated(self) -> bool:
        """Return whether a tensor was changed in place after its elements were read."""
        if self.version < 0:
            return False
        return self.version != _version(self.source, self.index)

    def row_count(self) -> int:
        """Return the number of rows of the small tensor."""
        return self.source.numel() // self.source.shape[-1]


def expanded_part(x: Any, sizes: Any) -> Any:
    """Return `x.expand(sizes)` for `linear_of_parts`, which uses what `x` was before.

    The result is an `EnlargedPart`, which is no tensor; it is the expanded tensor where `x` is no
    plain tensor on CPU, and where the call is traced or compiled.
    """
    if expanded_part_implementation(x, sizes) == "postponed":
        shape = _expanded_shape(x, sizes)
        if shape is not None:
            return EnlargedPart(_in_graph(x), shape)
    return expanded_part_reference(x, sizes)


def expanded_part_reference(x: Any, sizes: Any) -> Any:
    """Expand the tensor."""
    return x.expand(sizes)


def expanded_part_implementation(x: Any, sizes: Any) -> str:
    """Name the implementation for these arguments: "postponed" or "reference"."""
    return "postponed" if _can_postpone(x) else "reference"


def repeated_part(x: Any, repeats: Any) -> Any:
    """Return `x.repeat(repeats)` for `linear_of_parts`, which uses what `x` was before.

    As `expanded_part`; it is the repeated tensor where a dimension of more than one, other than the
    first, is repeated.
    """
    if repeated_part_implementation(x, repeats) == "postponed":
        shape = _repeated_shape(x, repeats)
        if shape is not None:
            return EnlargedPart(_in_graph(x), shape, version=_version(x, None))
        if _repeats_rows(x, repeats):
            return _part_of_rows(x, torch.arange(len(x)).repeat(repeats[0]))
    return repeated_part_reference(x, repeats)


def repeated_part_reference(x: Any, repeats: Any) -> Any:
    """Repeat the tensor."""
    return x.repeat(repeats)


def repeated_part_implementation(x: Any, repeats: Any) -> str:
    """Name the implementation for these arguments: "postponed" or "reference"."""
    return "postponed" if _can_postpone(x) and not x.is_inference() else "reference"


def interleaved_part(x: Any, repeats: Any, dim: Any) -> Any:
    """Return `x.repeat_interleave(repeats, dim)` for `linear_of_parts`, which uses what `x` was
    before.

    As `expanded_part`; it is the repeated tensor for another dimension of more than one than the
    first.
    """
    if interleaved_part_implementation(x, repeats, dim) == "postponed":
        if dim % x.dim() == 0:
            return _part_of_rows(x, torch.arange(len(x)).repeat_interleave(repeats))
        if x.shape[dim] == 1 and type(repeats) is int and dim % x.dim() < x.dim() - 1:
            counts = [1] * x.dim()
            counts[dim] = repeats
            return repeated_part(x, counts)
    return interleaved_part_reference(x, repeats, dim)


def interleaved_part_reference(x: Any, repeats: Any, dim: Any) -> Any:
    """Repeat the elements of a tensor along a dimension."""
    return torch.repeat_interleave(x, repeats, dim)


def interleaved_part_implementation(x: Any, repeats: Any, dim: Any) -> str:
    """Name the implementation for these arguments: "postponed" or "reference"."""
    if not _can_postpone(x) or x.dim() < 2 or x.is_inference():
        return "reference"
    if type(dim) is not int or not -x.dim() <= dim < x.dim():
        return "reference"
    if type(repeats) is int:
        return "postponed" if repeats > 0 else "reference"
    is_count = _can_name_rows(repeats) and repeats.shape == (x.shape[dim],)
    return "postponed" if is_count and bool((repeats > 0).all()) else "reference"


def rows_part(x: Any, index: Any, *, wraps: bool = True) -> Any:
    """Return `x[index]` for `linear_of_parts`, which may multiply all rows of `x` before it reads
    these.

    As `expanded_part`; it is `x[index]` where `index` is no tensor of integers, or a row does not
    exist.

    wraps  negative numbers count rows from the end; if False, the result is
           `x.index_select(0, index)`, which raises IndexError for them
    """
    if rows_part_implementation(x, index, wraps=wraps) == "postponed":
        return _part_of_rows(x, index)
    return rows_part_reference(x, index, wraps=wraps)


def rows_part_reference(x: Any, index: Any, *, wraps: bool = True) -> Any:
    """Read the rows."""
    return x[index] if wraps else torch.index_select(x, 0, index)


def rows_part_implementation(x: Any, index: Any, *, wraps: bool = True) -> str:
    """Name the implementation for these arguments: "postponed" or "reference"."""
    if not _can_postpone(x) or x.dim() < 2 or not _can_name_rows(index):
        return "reference"
    if x.is_inference() or (not wraps and index.dim() != 1):
        return "reference"
    first, last = torch.aminmax(index)
    return "postponed" if 0 <= first.item() and last.item() < x.shape[0] else "reference"


def _part_of_rows(x: torch.Tensor, index: torch.Tensor) -> EnlargedPart:
    """Return the part that has the rows of `x` that an index names, all of which exist."""
    return EnlargedPart(_in_graph(x), index.shape + x.shape[1:], index, _version(x, index))


def _in_graph(x: torch.Tensor) -> torch.Tensor:
    """Return the tensor, without its graph where no gradients are recorded now."""
    return x if torch.is_grad_enabled() or not x.requires_grad else x.detach()


def _version(source: torch.Tensor, index: torch.Tensor | None) -> int:
    """Return the sum of the version counters of two tensors, which only grow."""
    return source._version if index is None else source._version + index._version


def _can_postpone(x: Any) -> bool:
    """Return whether a tensor is a plain one on CPU with elements, outside of tracing."""
    if not are_tensors(x) or not x.is_cpu or x.layout is not torch.strided or not x.dim():
        return False
    return bool(x.numel()) and can_read()


def _can_name_rows(index: Any) -> bool:
    """Return whether an index is a plain tensor of integers on CPU with elements."""
    if not are_tensors(index) or index.dtype is not torch.int64 or not index.is_cpu:
        return False
    return bool(index.numel() and index.dim()) and not index.is_inference()


def _expanded_shape(x: torch.Tensor, sizes: Any) -> torch.Size | None:
    """Return the shape of `x.expand(sizes)`; None where it needs a look of PyTorch."""
    wanted = [sizes] if type(sizes) is int else list(sizes)
    added = len(wanted) - x.dim()
    if added < 0 or any(type(size) is not int for size in wanted):
        return None
    sources = [1] * added + list(x.shape)
    for place, (size, source) in enumerate(zip(wanted, sources, strict=True)):
        if size == -1 and place >= added:
            wanted[place] = source
        elif size < 1 or source not in (1, size):
            return None
    return torch.Size(wanted) if sources[-1] == wanted[-1] else None


def _repeats_rows(x: torch.Tensor, repeats: Any) -> bool:
    """Return whether `x.repeat(repeats)` repeats the first dimension, and no other one."""
    if type(repeats) is int or x.dim() < 2 or len(repeats) != x.dim():
        return False
    if any(type(count) is not int for count in repeats):
        return False
    return bool(repeats[0] > 0) and all(count == 1 for count in repeats[1:])


def _repeated_shape(x: torch.Tensor, repeats: Any) -> torch.Size | None:
    """Return the shape of `x.repeat(repeats)`; None where that has a dimension of more than one, or
    the last one, several times."""
    counts: Sequence[Any] = [repeats] if type(repeats) is int else list(repeats)
    added = len(counts) - x.dim()
    if added < 0 or any(type(count) is not int or count < 1 for count in counts):
        return None
    sources = [1] * added + list(x.shape)
    pairs = list(zip(sources, counts, strict=True))
    if pairs[-1][1] != 1 or any(size > 1 and count > 1 for size, count in pairs):
        return None
    return torch.Size([size * count for size, count in pairs])
