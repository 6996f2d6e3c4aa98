"""Operations on tensors that may raise for other inputs than the example."""

from __future__ import annotations

from typing import Any

import torch

from regraft.splitting.program.example_with_larger_sizes import is_mask
from regraft.splitting.program.residual_expressions import tensors_in

# Operations that may raise by values: an index out of range, a division of whole numbers by zero, a
# matrix without inverse.
BY_VALUES = (
    "index_",
    "gather",
    "take",
    "embedding",
    "_embedding_bag",
    "scatter",
    "put",
    "bincount",
    "repeat_interleave",
    "nll_loss",
    "linalg_",
    "_linalg",
    "cholesky",
    "inverse",
    "_assert",
)
DIVISIONS = frozenset({"div", "floor_divide", "remainder", "fmod"})
SCALAR_READ = "_local_scalar_dense"  # the read by which the host gets a value
ANY_SIZE = frozenset(
    {
        "sum",
        "mean",
        "any",
        "all",
        "slice",
        "nonzero",
        "clone",
        "_to_copy",
        "detach",
        "alias",
        SCALAR_READ,
    }
)


def fails_by_values(func: Any, args: Any, result: Any) -> bool:
    """Return whether an operation may raise for other values of tensors of the same sizes: indexing
    by integers, integer division, and the operations of `BY_VALUES`."""
    name = func.overloadpacket.__name__
    if name == "index":
        return any(index is not None and not is_mask(index) for index in args[1])
    if name in DIVISIONS:
        return isinstance(result, torch.Tensor) and not (
            result.is_floating_point() or result.is_complex()
        )
    return bool(name.startswith(BY_VALUES))


def fails_by_sizes(func: Any, args: Any) -> bool:
    """Return whether an operation may raise where a size, or a whole number among its arguments, is
    another one; a pointwise one may if it takes several tensors."""
    if func.overloadpacket.__name__ in ANY_SIZE:
        return False
    sized_tensors = [tensor for tensor in tensors_in(args) if tensor.ndim]
    return torch.Tag.pointwise not in func.tags or len({id(tensor) for tensor in sized_tensors}) > 1
