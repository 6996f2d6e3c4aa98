"""Parts of a concatenation that are larger copies of a small tensor: the small tensor, and what
enlarges it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from regraft.ops.plain import are_kernels_forced, are_tensors, can_read, versions_of

# Elements of an enlarged tensor below which hardly any layer takes longer than the decisions.
_LEAST_ENLARGED = 1 << 12


@dataclass(slots=True, eq=False)
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
        return math.prod(self.source.shape[:-1])


def expanded_part(x: Any, sizes: Any) -> Any:
    """Return `x.expand(sizes)` for `linear_of_parts`, which uses what `x` was before.

    The result is an `EnlargedPart`, which is no tensor; it is the expanded tensor where `x` is no
    plain tensor on CPU, and where the call is traced or compiled.
    """
    shape = _expanded_shape(x, sizes)
    if shape is None or not _can_postpone(x):
        return expanded_part_reference(x, sizes)
    return EnlargedPart(_in_graph(x), shape)


def expanded_part_reference(x: Any, sizes: Any) -> Any:
    """Expand the tensor."""
    return x.expand(sizes)


def expanded_part_implementation(x: Any, sizes: Any) -> str:
    """Name the implementation for these arguments: "postponed" or "reference"."""
    fits = _expanded_shape(x, sizes) is not None and _can_postpone(x)
    return "postponed" if fits else "reference"


def repeated_part(x: Any, repeats: Any) -> Any:
    """Return `x.repeat(repeats)` for `linear_of_parts`, which uses what `x` was before.

    As `expanded_part`; it is the repeated tensor where a dimension of more than one, other than the
    first, is repeated.
    """
    pair = _sizes_of(x, repeats)
    if pair is None or not is_worth_deciding(x.numel() * math.prod(pair[1])):
        return repeated_part_reference(x, repeats)
    shape = _repeated_shape(x, repeats)
    if shape is not None and _can_postpone(x) and not x.is_inference():
        return EnlargedPart(_in_graph(x), shape, version=_version(x, None))
    if repeated_part_implementation(x, repeats) == "reference":
        return repeated_part_reference(x, repeats)
    return _part_of_rows(x, _row_numbers(x).repeat(repeats[0]))


def repeated_part_reference(x: Any, repeats: Any) -> Any:
    """Repeat the tensor."""
    return x.repeat(repeats)


def repeated_part_implementation(x: Any, repeats: Any) -> str:
    """Name the implementation for these arguments: "postponed" or "reference"."""
    if _repeated_shape(x, repeats) is None and not _repeats_rows(x, repeats):
        return "reference"
    return "postponed" if _can_postpone(x) and not x.is_inference() else "reference"


def interleaved_part(x: Any, repeats: Any, dim: Any) -> Any:
    """Return `x.repeat_interleave(repeats, dim)` for `linear_of_parts`, which uses what `x` was
    before.

    As `expanded_part`; it is the repeated tensor for another dimension of more than one than the
    first.
    """
    if interleaved_part_implementation(x, repeats, dim) == "postponed":
        if dim % x.dim() == 0:
            return _part_of_rows(x, _row_numbers(x).repeat_interleave(repeats))
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
    if not are_tensors(x) or type(dim) is not int or x.dim() < 2 or not _can_postpone(x):
        return "reference"
    if x.is_inference() or not -x.dim() <= dim < x.dim():
        return "reference"
    if type(repeats) is int:
        return "postponed" if repeats > 0 else "reference"
    is_count = _can_name_rows(repeats) and repeats.shape == (x.shape[dim],)
    return "postponed" if is_count and bool((repeats > 0).all()) else "reference"


def interleaved_rows_part(x: Any, repeats: Any, rows: Any, width: Any) -> Any:
    """Return `x.repeat(1, repeats).view(rows, width)` for `linear_of_parts`, which uses what `x`
    was before: each row of a matrix several times.

    As `expanded_part`; it is the tensor where the view does not have the rows of `x`.
    """
    if interleaved_rows_part_implementation(x, repeats, rows, width) == "postponed":
        return _part_of_rows(x, _row_numbers(x).repeat_interleave(repeats))
    return interleaved_rows_part_reference(x, repeats, rows, width)


def interleaved_rows_part_reference(x: Any, repeats: Any, rows: Any, width: Any) -> Any:
    """Repeat the columns of a matrix, and view them as rows."""
    return x.repeat(1, repeats).view(rows, width)


def interleaved_rows_part_implementation(x: Any, repeats: Any, rows: Any, width: Any) -> str:
    """Name the implementation for these arguments: "postponed" or "reference"."""
    pair = _sizes_of(x, (1, repeats))
    if pair is None or x.dim() != 2 or repeats < 1:
        return "reference"
    count, columns = pair[0]
    if (rows, width) not in ((count * repeats, columns), (count * repeats, -1), (-1, columns)):
        return "reference"
    if not is_worth_deciding(count * repeats * columns) or not _can_postpone(x):
        return "reference"
    return "reference" if x.is_inference() else "postponed"


def rows_part(x: Any, index: Any, *, wraps: bool = True, whole: bool = False) -> Any:
    """Return `x[index]` for `linear_of_parts`, which may multiply all rows of `x` before it reads
    these.

    As `expanded_part`; it is `x[index]` where `index` is no tensor of integers, or a row does not
    exist.

    wraps  negative numbers count rows from the end; if False, the result is
           `x.index_select(0, index)`, which raises IndexError for them
    whole  the result is `x[index, :]`, which is another tensor, or an error, for a tuple and for a
           mask of two dimensions
    """
    if rows_part_implementation(x, index, wraps=wraps) == "postponed":
        return _part_of_rows(x, index)
    return rows_part_reference(x, index, wraps=wraps, whole=whole)


def rows_part_reference(x: Any, index: Any, *, wraps: bool = True, whole: bool = False) -> Any:
    """Read the rows."""
    if whole:
        return x[index, :]
    return x[index] if wraps else torch.index_select(x, 0, index)


def rows_part_implementation(x: Any, index: Any, *, wraps: bool = True, whole: bool = False) -> str:
    """Name the implementation for these arguments: "postponed" or "reference"."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or not are_tensors(x, index):
        return "reference"
    if x.dim() < 2 or not is_worth_deciding(index.numel() * x.shape[-1]) or not _can_postpone(x):
        return "reference"
    if not _can_name_rows(index) or x.is_inference() or (not wraps and index.dim() != 1):
        return "reference"
    first, last = torch.aminmax(index)
    are_rows = first.item() >= 0 and last.item() < x.shape[0]
    return "postponed" if are_rows else "reference"


def _part_of_rows(x: torch.Tensor, index: torch.Tensor) -> EnlargedPart:
    """Return the part that has the rows of `x` that an index names, all of which exist."""
    return EnlargedPart(_in_graph(x), index.shape + x.shape[1:], index, _version(x, index))


def _row_numbers(x: torch.Tensor) -> torch.Tensor:
    """Return the numbers of the rows of a tensor, on its device whatever the default is."""
    return torch.arange(len(x), device=x.device)


def _in_graph(x: torch.Tensor) -> torch.Tensor:
    """Return the tensor, without its graph where no gradients are recorded now."""
    return x if torch.is_grad_enabled() or not x.requires_grad else x.detach()


def _version(source: torch.Tensor, index: torch.Tensor | None) -> int:
    """Return the sum of the version counters of two tensors, which only grow."""
    versions = versions_of((source, index))
    return sum(versions)


def _can_postpone(x: torch.Tensor) -> bool:
    """Return whether a plain tensor is on CPU with elements, outside of tracing."""
    return bool(can_read() and x.is_cpu and x.layout is torch.strided and x.numel())


def _can_name_rows(index: Any) -> bool:
    """Return whether an index is a plain tensor of integers on CPU with elements."""
    if not are_tensors(index) or index.dtype is not torch.int64 or not index.is_cpu:
        return False
    return bool(index.numel() and index.dim()) and not index.is_inference()


def is_worth_deciding(count: int) -> bool:
    """Return whether an enlarged tensor of so many elements may be worth the decisions, or
    REGRAFT_KERNELS=always demands kernels."""
    return count >= _LEAST_ENLARGED or are_kernels_forced()


def _sizes_of(x: Any, sizes: Any) -> tuple[list[int], list[int]] | None:
    """Return the sizes of a plain tensor, with 1 for each dimension that a call adds in front, and
    the numbers that the call is given for them; None where they do not fit, and while something
    traces, which would keep what was asked of sizes."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or not are_tensors(x):
        return None
    if type(sizes) not in (int, tuple, list, torch.Size):
        return None
    numbers, shape = [sizes] if type(sizes) is int else list(sizes), list(x.shape)
    if len(numbers) != len(shape):
        shape = [1] * (len(numbers) - len(shape)) + shape
    if len(numbers) != len(shape) or not x.dim():
        return None
    for number in (*shape, *numbers):
        if type(number) is not int:
            return None
    return shape, numbers


def _expanded_shape(x: Any, sizes: Any) -> torch.Size | None:
    """Return the shape of `x.expand(sizes)`; None where it needs a look of PyTorch, or is small."""
    pair = _sizes_of(x, sizes)
    if pair is None:
        return None
    shape, wanted = pair
    added = len(shape) - x.dim()
    for place, (source, size) in enumerate(zip(shape, wanted, strict=True)):
        if size == -1 and place >= added:
            wanted[place] = source
        elif size < 1 or source not in (1, size):
            return None
    fits = shape[-1] == wanted[-1] and is_worth_deciding(math.prod(wanted))
    return torch.Size(wanted) if fits else None


def _repeats_rows(x: Any, repeats: Any) -> bool:
    """Return whether `x.repeat(repeats)` repeats the first dimension of several, no other one, and
    is not small."""
    pair = _sizes_of(x, repeats)
    if pair is None or len(pair[0]) != x.dim() or x.dim() < 2:
        return False
    first, *inner_counts = pair[1]
    return first > 0 and set(inner_counts) == {1} and is_worth_deciding(first * x.numel())


def _repeated_shape(x: Any, repeats: Any) -> torch.Size | None:
    """Return the shape of `x.repeat(repeats)`; None where that has a dimension of more than one, or
    the last one, several times, or is small."""
    pair = _sizes_of(x, repeats)
    if pair is None or pair[1][-1] != 1:
        return None
    shape, counts = pair
    for place, count in enumerate(counts):
        if count != 1:
            if count < 1 or shape[place] != 1:
                return None
            shape[place] = count
    return torch.Size(shape) if is_worth_deciding(math.prod(shape)) else None
