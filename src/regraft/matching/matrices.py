"""Tensors that have two dimensions, and products of matrices with columns by `einsum`."""

from __future__ import annotations

import ast
import re

from regraft.structure.rank import rank
from regraft.structure.values_and_nodes import Node, Structure, Value

_FACTORIES = frozenset(
    f"torch.{name}" for name in ("empty", "ones", "rand", "randn", "zeros", "normal")
)
_PARAMETERS = ("torch.nn.Parameter", "torch.nn.parameter.Parameter", "torch.Tensor")

_MATRIX_LAYERS = frozenset({"torch.nn.Embedding", "torch.nn.Linear"})

_EQUATION = re.compile("([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)")


def may_be_matrix(value: Value, structure: Structure) -> bool:
    """Return whether a tensor has two dimensions as far as the source says: by its operations, or
    because it is an attribute that the constructor does not give another number of dimensions."""
    node = value.node
    if node is not None and (node.op == "t" or _flattens_kernels(node)):
        return True
    if node is not None and node.op == "py.attr" and node.spelling == "T":
        return may_be_matrix(node.args["input"], structure)
    number = rank(value)
    if number is not None:
        return number.number == 2 and number.certain
    if value.origin != "path":
        return False
    stored = [layer.args.get("value") for layer in structure.layers.get(value.name, ())]
    return all(_created_dimensions(argument) in (None, 2) for argument in stored)


def is_matrix_attribute(value: Value, structure: Structure) -> bool:
    """Return whether a tensor is an attribute that the constructor creates with two sizes, in one
    of its branches at least and with no other number in any, or the weight of an `Embedding` or a
    `Linear` layer."""
    if value.origin != "path":
        return False
    owner, _, name = value.name.rpartition(".")
    types = {layer.type for layer in structure.layers.get(owner, ())}
    if name == "weight" and types:
        return types <= _MATRIX_LAYERS
    stored = [layer.args.get("value") for layer in structure.layers.get(value.name, ())]
    numbers = {_created_dimensions(option) for item in stored for option in _options(item)}
    return 2 in numbers <= {2, None}


def _options(value: Value | None) -> tuple[Value | None, ...]:
    """Return what a value, or the value that a parameter is made of, may be in branches."""
    if value is None or value.node is None or value.node.spelling not in _PARAMETERS[:2]:
        return (value,) if value is None else value.alternatives()
    data = _positional(value.node)
    return data[0].alternatives() if len(data) == 1 else (value,)


def _flattens_kernels(node: Node) -> bool:
    """Return whether a node flattens all dimensions but the first."""
    if node.op != "flatten":
        return False
    return node.args["start_dim"].const == 1 and node.args["end_dim"].const == -1


def _created_dimensions(value: Value | None) -> int | None:
    """Return the number of dimensions of a tensor that a constructor creates with its sizes written
    out, as in `nn.Parameter(torch.empty(n, m))`; None for another value."""
    while value is not None and value.node is not None and value.node.spelling in _PARAMETERS:
        sizes = _positional(value.node)
        if value.node.spelling == "torch.Tensor" or len(sizes) != 1:
            return len(sizes) if len(sizes) > 1 else None
        value = sizes[0]
    if value is None or value.node is None or value.node.spelling not in _FACTORIES:
        return None
    sizes = _positional(value.node)
    if len(sizes) == 1 and sizes[0].items is not None:
        return len(sizes[0].items)
    return len(sizes) if len(sizes) > 1 else None


def _positional(node: Node) -> list[Value]:
    """Return the positional arguments of a call; numbers name keyword arguments, too, where the
    call has no effect."""
    count = len(node.expr.args) if isinstance(node.expr, ast.Call) else 0
    return [value for name, value in node.args.items() if name.isdigit()][:count]


def is_column_product(equation: object, position: int) -> bool:
    """Return whether an equation of `einsum` multiplies columns `(N, rows, positions)`, its term at
    `position`, by a matrix that has neither a batch nor positions."""
    match = _EQUATION.fullmatch(equation.replace(" ", "")) if isinstance(equation, str) else None
    if match is None:
        return False
    columns, matrix, result = match[position + 1], match[2 - position], match[3]
    letters = (len(columns), len(matrix), len(result))
    if letters != (3, 2, 3) or len(set(columns)) != 3 or columns[1] not in matrix:
        return False
    out = matrix.replace(columns[1], "")
    batch, _, place = tuple(columns)
    return (
        len(out) == 1
        and out not in columns
        and result in (batch + out + place, batch + place + out)
    )
