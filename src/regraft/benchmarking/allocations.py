"""The memory of a step by the source line that allocates it."""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regraft.benchmarking.line_timer import Location
from regraft.execution.nested import flatten


class Allocations(TorchDispatchMode):  # type: ignore[misc]  # torch does not type it
    """Records when the results of operators are allocated and released while it is entered, and the
    line that is current then.

    location  returns the current line
    existing  the tensors that are not counted, such as parameters and inputs

    has_uncounted  whether there were tensors whose memory cannot be told, such as sparse ones
    """

    only_observes = True  # operations of Regraft run as they do without it

    def __init__(self, location: Callable[[], Location], existing: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.has_uncounted = False
        self._location = location
        self._changes: list[tuple[Location, int]] = []
        self._existing = [_storage(tensor) for tensor in existing]
        self._alive: dict[int, weakref.ref[Any]] = {}
        self._existing_keys = {storage._cdata for storage in self._existing if storage is not None}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in flatten(result).values():
            if isinstance(tensor, torch.Tensor):
                self._add(tensor)
        return result

    def peak(self) -> Counter[Location]:
        """Return the bytes that are allocated when most are, by line."""
        totals = list(itertools.accumulate((size for _, size in self._changes), initial=0))
        at_peak: Counter[Location] = Counter()
        for location, size in self._changes[: totals.index(max(totals))]:
            at_peak[location] += size
        return +at_peak

    def _add(self, tensor: torch.Tensor) -> None:
        """Record the storage of a result, unless it is known."""
        storage = _storage(tensor)
        if storage is None:
            self.has_uncounted = True
            return
        key, size, location = storage._cdata, storage.nbytes(), self._location()
        if key in self._existing_keys or key in self._alive:
            return

        def release(_: object) -> None:
            del self._alive[key]
            self._changes.append((location, -size))

        self._alive[key] = weakref.ref(storage, release)
        self._changes.append((location, size))


def _storage(tensor: torch.Tensor) -> Any:
    """Return the storage of a tensor; None for one without, such as a sparse one."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None
