"""Conditions about the shapes of tensors: what is broadcast, joined, reduced, or viewed as a
matrix or patches."""

from __future__ import annotations

from regraft.dsl.syntax import Const
from regraft.matching.conditions.values_for_conditions import Arguments, Scope, variable_text
from regraft.matching.constants import operand_text
from regraft.matching.convolution_patches import is_of_patches
from regraft.matching.enlarged_parts import (
    is_enlarged,
    is_exposed,
    is_part_of,
    may_be_last_dimension,
)
from regraft.matching.matrices import is_column_product, is_matrix_attribute, may_be_matrix
from regraft.matching.reductions import is_call_of_torch
from regraft.structure.unit_dimensions import are_crossed, meets_rows


def pairwise(args: Arguments, scope: Scope, *, expanded: bool = False) -> str:
    """Return a reason unless two tensors are certainly broadcast against each other, by dimensions
    of size one that the source gives them, or gives one of them before the rows of a matrix of the
    model.

    expanded: passed on to `are_crossed`; whether `expand` may give them, too.
    """
    first, second = scope.value(args[0]), scope.value(args[1])
    if first is None or second is None or are_crossed(first, second, expanded=expanded):
        return ""
    pairs = ((first, second), (second, first))
    if any(
        meets_rows(value) and is_matrix_attribute(other, scope.structure) for value, other in pairs
    ):
        return ""
    names = " and ".join(map(variable_text, args))
    return f"{names} are not known to be broadcast against each other"


def joins_enlarged(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the first value is a list of tensors of which one is enlarged, and the
    second may be the number of their last dimension."""
    parts, dim = scope.value(args[0]), scope.value(args[1])
    if parts is None or parts.items is None or len(parts.uses) != 1:
        return f"{variable_text(args[0])} is no list that is written for this call alone"
    if not any(is_enlarged(part) and len(part.every_use()) == 1 for part in parts.items):
        return f"no part of {variable_text(args[0])} is expanded, repeated or read by rows for it"
    if dim is None or not may_be_last_dimension(parts.items, dim.const):
        return f"{variable_text(args[1])} is not the last dimension"
    return ""


def part_of(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is used as a part of the list that the named op of Regraft
    is given, and for nothing else."""
    value, name = scope.value(args[0]), operand_text(args[1])
    if value is None or not is_part_of(value, name):
        return f"{variable_text(args[0])} is no part that only {name} uses"
    if not is_enlarged(value):
        return f"{variable_text(args[0])} is not expanded, repeated or read by rows"
    if is_exposed(value, scope.structure.bodies):
        return f"a tensor may be changed in place between {variable_text(args[0])} and {name}"
    return ""


def reduces_tensor(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the first value is a reduction of a tensor along the dimensions that
    the second value is, by a call that is PyTorch's rather than NumPy's."""
    result, dim = scope.value(args[0]), scope.value(args[1])
    if dim is None or dim.const is None or isinstance(dim.const, bool):
        return f"{variable_text(args[0])} is of all elements"
    node = result.node if result is not None else None
    if node is None or not is_call_of_torch(node, scope.module):
        return f"{variable_text(args[0])} is not known to be of a tensor"
    return ""


def different_dimensions(args: Arguments, scope: Scope) -> str:
    """Return a reason unless two values are numbers of different dimensions of any tensor: both
    counted from the front, or both from the end."""
    constants = [value.const for value in map(scope.value, args) if value is not None]
    match constants:
        case [int(first), int(second)] if first != second and (first < 0) == (second < 0):
            return ""
    names = " and ".join(map(variable_text, args))
    return f"{names} are not known to be different dimensions"


def matrix(args: Arguments, scope: Scope) -> str:
    """Return a reason unless a tensor has two dimensions as far as the source says."""
    value = scope.value(args[0])
    if value is None or may_be_matrix(value, scope.structure):
        return ""
    return f"{variable_text(args[0])} is not known to be a matrix"


def sums_columns(args: Arguments, scope: Scope) -> str:
    """Return a reason unless a constant equation of `einsum` multiplies columns by a matrix; the
    second argument is the position of the columns among its two terms."""
    equation, position = scope.value(args[0]), args[1]
    if equation is None or not isinstance(position, Const):
        return ""
    if is_column_product(equation.const, 1 if position.value else 0):
        return ""
    return f"{variable_text(args[0])} does not multiply columns by a matrix"


def patches_of(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the source views a tensor in sizes of which the last are those of a
    kernel."""
    patches, conv = scope.value(args[0]), scope.value(args[1])
    if patches is None or conv is None or is_of_patches(patches, conv.layers, scope.structure):
        return ""
    return (
        f"{variable_text(args[0])} is not viewed in patches of the size of the kernel of"
        f" {variable_text(args[1])}"
    )
