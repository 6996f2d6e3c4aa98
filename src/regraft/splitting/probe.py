"""What a call does besides computing: reading a tensor's value into Python, random numbers, in-place changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from regraft.splitting.failing import fails_by_sizes, fails_by_values
from regraft.splitting.worlds import first_shape, sized_by_data

LIKE = frozenset(
    {"zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty"}
)


class _Reads(TorchDispatchMode):  # type: ignore[misc]
    """Notes operations whose Python result, or whose shape, depends on the values of tensors.

    What is made during the call from no tensor, such as torch.arange(5), holds the same for every input; reading it
    is no decision on a value.
    """

    def __init__(self, known: Iterable[torch.Tensor], most: float) -> None:
        super().__init__()
        self.operations, self.most = 0, most
        self.scalars: list[str] = []
        self.shapes: list[torch.Size] = []
        self.by_values = self.by_sizes = False  # whether an operation may raise, and by what
        storages = [one.untyped_storage() for one in known]  # referenced, so that their addresses stay their own
        self.constant = {one._cdata: one for one in storages}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += 1
        if self.operations > self.most:
            raise RuntimeError(f"more than {self.most} operations")
        given = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        constant = all(one.untyped_storage()._cdata in self.constant for one in given)
        if torch.Tag.data_dependent_output in func.tags and not constant:
            self.scalars.append(str(func))
        result = func(*args, **(kwargs or {}))
        if sized_by_data(func, args):
            self.shapes.append(first_shape(result))
        self.by_values = self.by_values or fails_by_values(func, args, result)
        self.by_sizes = self.by_sizes or fails_by_sizes(func, args)
        constant = constant or func.overloadpacket.__name__ in LIKE
        for one in pytree.tree_leaves(result):
            if isinstance(one, torch.Tensor) and torch.Tag.nondeterministic_seeded not in func.tags:
                storage = one.untyped_storage()
                if constant:
                    self.constant[storage._cdata] = storage
                else:
                    self.constant.pop(storage._cdata, None)
        return result


class _Checked(TorchFunctionMode):  # type: ignore[misc]
    """`one_hot` with a number of classes reads values to check its argument only."""

    def __init__(self, reads: _Reads) -> None:
        super().__init__()
        self.reads = reads

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        before = list(self.reads.scalars)
        result = func(*args, **kwargs)
        if func is torch.nn.functional.one_hot and kwargs.get("num_classes", args[1] if len(args) > 1 else -1) > 0:
            self.reads.scalars[:] = before
        return result


@dataclass(frozen=True)
class Observed:
    """A call's result and what was seen of it.

    shapes: those that data decided, in turn. constant: the result is a tensor that no tensor's values decide.
    by_values: for other values it may raise; by_sizes: for other sizes or whole numbers. operations: how many.
    """

    result: Any
    reads: bool
    shapes: tuple[torch.Size, ...]
    random: bool
    changed: bool
    constant: bool = False
    by_values: bool = False
    by_sizes: bool = False
    operations: int = 0


def observe(
    call: Callable[[], Any], watched: Iterable[torch.Tensor], known: Iterable[torch.Tensor] = (),
    most: float = math.inf,
) -> Observed:  # fmt: skip
    """Run `call` without gradients; `watched` are tensors that it must not change in place, `known` are constants.

    Raises RuntimeError beyond so many operations.
    """
    reads = _Reads(known, most)

    def noted() -> Any:
        with reads, _Checked(reads):
            return call()

    seen = effects(noted, watched)
    result = seen.result
    constant = isinstance(result, torch.Tensor) and result.untyped_storage()._cdata in reads.constant
    return replace(
        seen, reads=bool(reads.scalars), shapes=tuple(reads.shapes), constant=constant,
        by_values=reads.by_values, by_sizes=reads.by_sizes, operations=reads.operations,
    )  # fmt: skip


def effects(call: Callable[[], Any], watched: Iterable[torch.Tensor]) -> Observed:
    """The same without looking at single operations, which takes a tenth of the time: only `random` and `changed`."""
    tensors = list(watched)
    versions = [tensor._version for tensor in tensors]
    before = torch.get_rng_state()
    with torch.no_grad():
        result = call()
    random = not torch.equal(before, torch.get_rng_state())
    changed = any(tensor._version != old for tensor, old in zip(tensors, versions, strict=True))
    return Observed(result, False, (), random, changed)
