"""The input and the parameters of a Linear layer whose output is postponed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.nn import functional

from regraft.ops.plain import versions_of


@dataclass(eq=False)  # without slots, to be referred to weakly on Python 3.10, too
class LinearSources:
    """The sources of a Linear layer's output.

    tensors   the layer's input, weight, and bias or None
    versions  the version counters of the tensors when the output was postponed
    aliases   the views of the tensors from which the output was computed; no view leads to another
              in the graph
    bit_sums  a checksum of each tensor when a loss was differentiated, because some optimizers
              write past the versions; None before
    """

    tensors: tuple[torch.Tensor | None, ...]
    versions: tuple[int, ...] = field(init=False)
    aliases: tuple[torch.Tensor | None, ...] = ()
    bit_sums: list[torch.Tensor] | None = None

    def __post_init__(self) -> None:
        self.versions = versions_of(self.tensors)

    def are_current(self) -> bool:
        """Return whether the version counters are those at the time when the output was
        postponed."""
        return self.versions == versions_of(self.tensors)

    def remember_bits(self) -> None:
        """Keep the checksums of the tensors, at the first call."""
        if self.bit_sums is None:
            self.bit_sums = _bit_sums(self.tensors)

    def compute_output(self) -> torch.Tensor:
        """Compute the layer's output; RuntimeError if a source was changed in place or its memory
        was freed."""
        if self._are_overwritten() or self._are_freed():
            raise RuntimeError(
                "the input or the parameters of a postponed Linear layer were changed in place"
            )
        x, weight, bias = self.aliases = tuple(
            source if source is None else source.view_as(source) for source in self.tensors
        )
        return functional.linear(x, weight, bias)

    def _are_overwritten(self) -> bool:
        """Return whether a tensor has another version, or another checksum than the kept one."""
        if not self.are_current():
            return True
        return bool(self.bit_sums) and self.bit_sums != _bit_sums(self.tensors)

    def _are_freed(self) -> bool:
        """Return whether the memory of a tensor was freed."""
        return any(
            source is not None and not source.untyped_storage().size() for source in self.tensors
        )


def source_gradients(
    result: torch.Tensor,
    aliases: tuple[torch.Tensor | None, ...],
    needed: tuple[bool, ...],
    gradient: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of a layer's sources, where they are needed, for a result that depends
    on its output."""
    differentiated = [
        alias
        for alias, is_needed in zip(aliases, needed, strict=True)
        if is_needed and alias is not None
    ]
    gradients = iter(
        torch.autograd.grad(result, differentiated, gradient, True, torch.is_grad_enabled())
    )
    return tuple(next(gradients) if is_needed else None for is_needed in needed)


def _bit_sums(tensors: tuple[torch.Tensor | None, ...]) -> list[torch.Tensor]:
    """Return the sum of each tensor's bits read as integers, a checksum of its elements."""
    integer_dtypes = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    return [
        tensor.detach().view(integer_dtypes[tensor.itemsize]).sum(dtype=torch.int64)
        for tensor in tensors
        if tensor is not None
    ]
