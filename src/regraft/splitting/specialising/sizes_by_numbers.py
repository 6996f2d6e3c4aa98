"""Sizes that depend on numbers of the host, such as those of `x[s:e]`: they are open in regions."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from regraft.splitting.program.residual_expressions import is_read_number
from regraft.splitting.program.statements import read_names
from regraft.splitting.program.type_patterns import (
    open_dimensions,
    open_sizes_of_all,
    type_pattern,
)
from regraft.splitting.program.values import NO_TWIN, HostValue, TensorValue, Value
from regraft.splitting.specialising.state import Specialisation

# no rows and all rows, the bounds in place of those that a number decides: where the number can
# change the size of the slice, one of them has another size
OTHER_BOUNDS = (ast.Slice(None, ast.Constant(0)), ast.Slice())


def open_sizes_by_numbers(state: Specialisation, node: ast.AST, value: TensorValue) -> TensorValue:
    """Return the value with those sizes open that depend on a number that the host computes, such
    as `x[:n]` with `n = int(t)`.

    The code runs once more for each of `write_variants`: sizes that then differ are opened; an
    empty list has none. Raises Unsplittable where a number decides how many results there are.
    """
    numbers = {key for key in read_names(value.code) if is_decisive(state, key)}
    for code, changed_numbers in write_variants(state, value.code, numbers):
        try:
            other_example = run_variant(state, code, changed_numbers)
        except Exception:  # noqa: BLE001  (another number does not fit)
            continue
        if (isinstance(other_example, list) and not other_example) or (
            type_pattern(value.example, value.example) == type_pattern(other_example, other_example)
        ):
            continue
        widened = open_sizes_of_all(value, other_example)
        if widened is None:
            reason = "a number that is read from a tensor decides how many results there are"
            raise state.refuse(node, reason)
        value = widened
        if not state.derived_from_sizes.issuperset(numbers):
            state.values_decide_sizes = True
    return value


def is_decisive(state: Specialisation, key: str) -> bool:
    """Return whether a name holds an integer of the host that inputs decide and that is no size: it
    is equal in both worlds, or is computed from a size and something else."""
    value = state.names.get(key)
    if not isinstance(value, HostValue) or type(value.example) is not int or value.constant:
        return False
    return is_read_number(value) or key not in state.size_names | state.derived_from_sizes


def write_variants(
    state: Specialisation, code: ast.expr, numbers: set[str]
) -> Iterator[tuple[ast.expr, dict[str, Any]]]:
    """Yield variants of the code whose results may have other sizes, each with what some names hold
    instead in it: those of slices, of numbers and, where values decide sizes, of sizes."""
    for place, bounds in itertools.product(find_slices(code, numbers), OTHER_BOUNDS):
        yield replace_slice(code, place, bounds), {}
    for other_numbers in vary_numbers(state, numbers):
        yield code, other_numbers
    if state.values_decide_sizes and has_varying_bounds(code):
        for key in sorted(read_names(code)):
            for smaller in list_smaller(state.names.get(key)):
                yield code, {key: smaller}


def vary_numbers(state: Specialisation, numbers: set[str]) -> Iterator[dict[str, int]]:
    """Yield other values of those numbers that are equal in both worlds: all are one larger, one
    smaller, 0 and 1, and so is each of several alone."""
    examples = {
        key: state.names[key].example for key in sorted(numbers) if is_read_number(state.names[key])
    }
    groups = [examples] if examples else []
    if len(examples) > 1:
        groups += [{key: example} for key, example in examples.items()]
    for group in groups:
        for change in (1, -1):
            yield {key: example + change for key, example in group.items()}
        for number in (0, 1):
            yield dict.fromkeys(group, number)


def find_slices(code: ast.expr, numbers: set[str]) -> list[int]:
    """Return the places, in the order of `ast.walk`, of the slices whose bounds read one of the
    numbers."""
    return [
        place
        for place, child in enumerate(ast.walk(code))
        if isinstance(child, ast.Slice) and not numbers.isdisjoint(read_names(child))
    ]


def has_varying_bounds(code: ast.expr) -> bool:
    """Return whether the code takes a slice whose bounds are more than constants."""
    return any(isinstance(child, ast.Slice) and read_names(child) for child in ast.walk(code))


def list_smaller(value: Value | None) -> list[Any]:
    """Return other values that a name may have, of smaller sizes than in the example: of a whole
    number that differs between the worlds 1 and the number before it, of a tensor with open sizes
    one with as little there; empty for any other value."""
    if not isinstance(value, (HostValue, TensorValue)) or value.twin is NO_TWIN:
        return []
    if type(value.example) is int:
        return [value.example - 1, 1]
    if not isinstance(value.example, torch.Tensor):
        return []
    smaller = [value.example, value.example]
    for dim in open_dimensions(value):
        size = value.example.shape[dim]
        smaller = [
            tensor.narrow(dim, 0, min(size, count))
            for tensor, count in zip(smaller, (max(size - 1, 0), 1), strict=True)
        ]
    return list(smaller)


def replace_slice(code: ast.expr, place: int, bounds: ast.Slice) -> ast.expr:
    """Return a copy of the code with other bounds in the slice at this place of `ast.walk`."""
    variant = copy.deepcopy(code)
    target = next(itertools.islice(ast.walk(variant), place, None))
    assert isinstance(target, ast.Slice)
    target.lower, target.upper, target.step = bounds.lower, bounds.upper, bounds.step
    return variant


def run_variant(state: Specialisation, code: ast.expr, changed_numbers: dict[str, Any]) -> Any:
    """Return what the code gives on the example, with other numbers under some names."""
    scope = state.scope({key: operand.example for key, operand in state.names.items()})
    scope.update(changed_numbers)
    with torch.no_grad():
        return eval(compile(ast.fix_missing_locations(ast.Expression(code)), "", "eval"), scope)
