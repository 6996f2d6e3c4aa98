"""Which operations on tensors may raise for other inputs than the example."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from regraft.splitting.worlds import is_mask

# on values: an index out of range, a division of whole numbers by zero, a matrix without inverse
BY_VALUES = (
    "index_", "gather", "take", "embedding", "_embedding_bag", "scatter", "put", "bincount", "repeat_interleave",
    "nll_loss", "linalg_", "_linalg", "cholesky", "inverse", "_assert",
)  # fmt: skip
DIVISIONS = frozenset({"div", "floor_divide", "remainder", "fmod"})
READS = "_local_scalar_dense"  # by the host, where it needs the value
ANY_SIZE = frozenset({"sum", "mean", "any", "all", "slice", "nonzero", "clone", "_to_copy", "detach", "alias", READS})


def fails_by_values(func: Any, args: Any, result: Any) -> bool:
    """Whether an operation on tensors of these sizes may raise, by their values."""
    called = func.overloadpacket.__name__
    if called == "index":
        return any(one is not None and not is_mask(one) for one in args[1])
    if called in DIVISIONS:
        return isinstance(result, torch.Tensor) and not (result.is_floating_point() or result.is_complex())
    return bool(called.startswith(BY_VALUES))


def fails_by_sizes(func: Any, args: Any) -> bool:
    """Whether an operation may raise where a size or a whole number given to it is another one."""
    if func.overloadpacket.__name__ in ANY_SIZE:
        return False
    sized = [one for one in pytree.tree_leaves(args) if isinstance(one, torch.Tensor) and one.ndim]
    return torch.Tag.pointwise not in func.tags or len({id(one) for one in sized}) > 1
