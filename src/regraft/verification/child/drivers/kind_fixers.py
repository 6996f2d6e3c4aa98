"""Fixers of a model's inputs for errors about kinds of values: indices, token ids, real numbers,
whole numbers.

Each function that takes a problem is the fixer of a row of `input_repairs`, as in `input_fixers`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from regraft.verification.child.drivers.argument_slots import (
    BATCH,
    LENGTH,
    NO_TENSORS,
    Dim,
    Slot,
    Spec,
)
from regraft.verification.child.drivers.described_shapes import parsed_statement
from regraft.verification.child.drivers.input_fixers import InputProblem, with_changed_slot
from regraft.verification.child.drivers.model_attempts import SIZE

_BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor)
_STEPS = 2  # a whole number in the place of a tensor


def give_whole_numbers(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs in which whole numbers take the place of the tensors that the innermost
    statement of the error uses whole, as `range(steps)` does and `x.shape` does not: of those that
    it multiplies or adds, as in `[1, height * width]`, of all of them, of each, and of each other
    tensor that the statement names."""
    tree = parsed_statement(problem.statement)
    names = _names_in(tree)
    partly_used = _names_with_parts(tree)
    tensors = [name for name, slot in problem.spec.items() if slot.kind not in NO_TENSORS]
    named = [name for name in tensors if name in names]
    whole = [name for name in named if name not in partly_used]
    sums = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp)]
    summands = frozenset().union(*map(_names_in, sums))
    groups = [[name for name in whole if name in summands], whole]
    number = Slot("plain", value=_STEPS)
    for changed in [group for group in groups if len(group) > 1] + [[n] for n in (*whole, *named)]:
        yield {**problem.spec, **dict.fromkeys(changed, number)}


def _names_in(tree: ast.AST) -> frozenset[str]:
    """Return the names of the variables in a syntax tree."""
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def _names_with_parts(tree: ast.AST) -> frozenset[str]:
    """Return the names of the variables of which a syntax tree reads attributes or elements."""
    return frozenset(
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Name)
    )


def give_arrays(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs in which arrays of NumPy take the place of all tensors: with token ids in all of
    them, where the innermost statement of the error names one with token ids, then with what they
    hold; then of those that the statement names."""
    tensors = {k: slot for k, slot in problem.spec.items() if slot.kind not in NO_TENSORS}
    names = _names_in(parsed_statement(problem.statement))
    named = {name: slot for name, slot in tensors.items() if name in names}
    tokens = next((slot for slot in named.values() if slot.kind == "ids"), None)
    alternatives = [tensors, named]
    if tokens is not None:
        # `torch.LongTensor` takes an array of real numbers without an error
        whole = {k: tokens if slot.kind == "normal" else slot for k, slot in tensors.items()}
        alternatives.insert(0, whole)
    for changed in alternatives:
        arrays = {name: replace(slot, is_array=True) for name, slot in changed.items()}
        yield {**problem.spec, **arrays}


def give_indices(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with one tensor of real numbers as an index for each row, such as a time step,
    for each such tensor."""
    for name, slot in problem.spec.items():
        if slot.kind == "normal":
            yield with_changed_slot(
                problem.spec, name, kind="ids", limit=slot.limit or 2, dims=(BATCH,)
            )


def give_truth_values(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs in which each tensor of real numbers that the innermost statement of the error
    inverts, or joins by `&`, `|` or `^`, holds truth values: one for each position of a row, then
    of its own shape."""
    operands: list[ast.AST] = []
    for node in ast.walk(parsed_statement(problem.statement)):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            operands.append(node.operand)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, _BITWISE):
            operands += [node.left, node.right]
    names = {node.id for part in operands for node in ast.walk(part) if isinstance(node, ast.Name)}
    for name, slot in problem.spec.items():
        if name in names and slot.kind in ("normal", "additive", "ones", "zeros"):
            for dims in dict.fromkeys(((BATCH, LENGTH), slot.dims)):
                yield with_changed_slot(problem.spec, name, kind="every other", dims=dims)


def give_features(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs in which one tensor of token ids that a matrix was multiplied with has features
    of the width that the matrix takes in place of each token, for each such tensor."""
    shape = tuple(map(int, match.groups()[:2]))
    for name, slot in problem.spec.items():
        if slot.kind == "ids" and tuple(dim.at(SIZE) for dim in slot.dims) == shape:
            dims = (*slot.dims, Dim(int(match[3])))
            yield with_changed_slot(problem.spec, name, kind="normal", dims=dims)


def change_kinds(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with one tensor of another kind (`specs_of_other_kinds`)."""
    yield from specs_of_other_kinds(problem.spec)


def specs_of_other_kinds(spec: Spec) -> Iterator[Spec]:
    """Yield a specification with one tensor of another kind, for each tensor and kind: token ids
    (below 2 where it has no limit), real numbers or booleans."""
    for name, slot in spec.items():
        for kind in ("ids", "normal", "bool") if slot.kind not in NO_TENSORS else ():
            if kind != slot.kind:
                yield with_changed_slot(spec, name, kind=kind, limit=slot.limit or 2)


def lower_numbers(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with 1 in place of one larger integer that is passed as a plain value, for each
    such integer."""
    for name, slot in problem.spec.items():
        if type(slot.value) is int and slot.value > 1:
            yield with_changed_slot(problem.spec, name, value=1)


def lower_token_ids(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with one parameter's token ids below 2, then below the size that the error
    states, for each such parameter."""
    stated_size = re.search(r"out of bounds for dimension \d+ with size (\d+)", problem.failed.text)
    for limit in (2, *((int(stated_size[1]),) if stated_size else ())):
        for name, slot in problem.spec.items():
            if slot.kind == "ids" and slot.limit > limit:
                yield with_changed_slot(problem.spec, name, limit=limit)
