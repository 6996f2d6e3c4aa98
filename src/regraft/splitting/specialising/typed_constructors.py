"""Constructors of tensors of one type, such as `torch.LongTensor` and `x.new`, which take a size or
values."""

from __future__ import annotations

import ast
from typing import Any

import torch

from regraft.splitting.program.values import Value
from regraft.splitting.specialising.state import Specialisation

# the class of torch.LongTensor and its like
TENSOR_TYPE = type(torch.LongTensor)


def get_constructed_dtype(function: Any) -> torch.dtype | None:
    """Return the dtype of the tensors that `torch.LongTensor` or its like, or `torch.Tensor`,
    makes; None for any other function."""
    if function is torch.Tensor:
        return torch.get_default_dtype()
    is_of_cpu = isinstance(function, TENSOR_TYPE) and not function.is_cuda
    return function.dtype if is_of_cpu else None


def takes_size(state: Specialisation, node: ast.Call, args: list[Value]) -> bool | None:
    """Return whether the arguments of a constructor are a size, of a tensor without values, rather
    than a list or tuple of values; None for arguments of other kinds. Raise Unsplittable for a
    tuple that may be either, since torch tells them apart by their class.
    """
    examples = [argument.example for argument in args]
    if examples and all(type(example) is int for example in examples):
        return True
    if len(examples) != 1 or not isinstance(examples[0], (list, tuple)):
        return None
    if isinstance(examples[0], list) or isinstance(node.args[0], ast.Tuple):
        return False
    if gives_shape(node.args[0]):
        return True
    raise state.refuse(
        node,
        "a tuple that may be a size or values goes into a constructor: write torch.empty(size,"
        " dtype=...) or torch.tensor(values, dtype=...)",
    )


def gives_shape(node: ast.expr) -> bool:
    """Return whether an expression is `x.shape` or `x.size()`."""
    if isinstance(node, ast.Call):
        is_size = isinstance(node.func, ast.Attribute) and node.func.attr == "size"
        return is_size and not node.args and not node.keywords
    return isinstance(node, ast.Attribute) and node.attr == "shape"
