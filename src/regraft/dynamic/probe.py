"""What a call does besides computing: reading a tensor's value into Python, random numbers, in-place changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regraft.dynamic.worlds import sized_by_data


class _Reads(TorchDispatchMode):  # type: ignore[misc]
    """Notes operations whose Python result, or whose shape, depends on the values of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.scalars: list[str] = []
        self.shapes: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.data_dependent_output in func.tags:
            self.scalars.append(str(func))
        if sized_by_data(func, args):
            self.shapes.append(str(func))
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class Observed:
    """A call's result and what was seen of it."""

    result: Any
    reads: bool
    shapes: tuple[str, ...]
    random: bool
    changed: bool


def observe(call: Callable[[], Any], watched: Iterable[torch.Tensor]) -> Observed:
    """Run `call` without gradients; `watched` are the tensors that it must not change in place."""
    tensors = list(watched)
    versions = [tensor._version for tensor in tensors]
    before = torch.get_rng_state()
    with torch.no_grad(), _Reads() as reads:
        result = call()
    random = not torch.equal(before, torch.get_rng_state())
    changed = any(tensor._version != old for tensor, old in zip(tensors, versions, strict=True))
    return Observed(result, bool(reads.scalars), tuple(reads.shapes), random, changed)
