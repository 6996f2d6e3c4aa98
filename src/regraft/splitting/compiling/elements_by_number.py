"""Elements and slices of tensors at whole numbers that a region gets, in runs without data."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from regraft.splitting.program.residual_expressions import is_integer_scalar


class ElementsByNumber(TorchFunctionMode):  # type: ignore[misc]
    """Runs `x[i]` and `x[i:j]`, of which `i` and `j` are whole numbers in tensors, without reading
    the numbers, which a run without data cannot: the size of the slice is one that values
    decide."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what the function gives; elements are taken by `index_select`."""
        if func is torch.Tensor.__getitem__:
            args = select_numbers(*args)
        return func(*args, **(kwargs or {}))


def select_numbers(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
    """Return a tensor and an index that give a tensor of the sizes of `tensor[index]`, in which no
    whole number in a tensor is left: the tensor has the elements at these numbers, or as many rows
    as values decide, alone in their dimensions.

    Numbers that follow an Ellipsis, None, a mask or a list stay as they are.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    for dim, item in enumerate(items):
        if is_integer_scalar(item):
            tensor = tensor.index_select(dim, item.reshape(1))
            items[dim] = 0
        elif isinstance(item, slice):
            numbers = [*filter(is_integer_scalar, (item.start, item.stop, item.step))]
            if numbers:
                rows = torch.nonzero(numbers[0].reshape(1)).flatten()
                tensor = tensor.index_select(dim, rows)
                items[dim] = slice(None)
        elif type(item) is not int and getattr(item, "dtype", None) != torch.int64:
            break
    return tensor, tuple(items) if isinstance(index, tuple) else items[0]
