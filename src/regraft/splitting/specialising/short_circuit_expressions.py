"""Expressions whose parts need not all run: `and`, `or`, `a if c else b`, chained comparisons; and
`(x := y)`."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from regraft.splitting.program.possible_constants import TRUTHS, is_truth
from regraft.splitting.program.residual import Step, TensorStep
from regraft.splitting.program.residual_expressions import name
from regraft.splitting.program.statements import read_names
from regraft.splitting.program.value_kinds_and_parts import is_truth_of_operand
from regraft.splitting.program.values import HostValue, Names, StaticValue, TensorValue, Value
from regraft.splitting.specialising.assignment_targets import store
from regraft.splitting.specialising.branches import (
    decide_value,
    evaluate_truth,
    is_numeric_tensor,
    is_used_as_truth,
    specialise_apart,
)
from regraft.splitting.specialising.operators import evaluate_operator
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import is_size, store_name


def evaluate_bool_op(state: Specialisation, node: ast.BoolOp) -> Value:
    """Return the value of `and` or `or` (`follow_bool_op`); meanwhile its first operand stands in
    `state.first_operands`, so that it does not count as pending."""
    first_operand = state.evaluate(node.values[0])
    state.first_operands.append(first_operand)
    try:
        return follow_bool_op(state, node, first_operand)
    finally:
        state.first_operands.pop()


@dataclass(frozen=True)
class FollowedOperand:
    """An operand that was followed apart: its value, its steps, the names after them and the names
    that change in it.

    may_fail: whether an operation in it may raise for other inputs.
    """

    value: Value
    steps: list[Step]
    names: Names
    changes: set[str]
    may_fail: bool


def follow_bool_op(state: Specialisation, node: ast.BoolOp, first_operand: Value) -> Value:
    """Return the value of `and` or `or`, given the first operand: an operand where the first is
    known; else one expression of both if it is safe to run both, or a new name, to which a branch
    that may skip the others assigns it."""
    remaining = write_remaining_operands(node)
    is_and = isinstance(node.op, ast.And)
    first_truth = evaluate_truth(state, first_operand)
    if isinstance(first_truth, StaticValue):
        return state.evaluate(remaining) if bool(first_truth.example) == is_and else first_operand
    first_truth = replace(
        first_truth,
        truth=is_truth_of_operand(first_operand) or isinstance(first_operand, TensorValue),
    )
    check_only_truth(state, node, first_operand)
    second = follow_second_operand(state, node, remaining, first_truth)
    if can_run_both(node, first_truth, second):
        return combine_truths(state, node, first_truth, second)
    return skip_second_operand(state, node, first_truth, second)


def write_remaining_operands(node: ast.BoolOp) -> ast.expr:
    """Return the expression of all operands of an `and` or `or` but the first."""
    remaining = node.values[1] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[1:])
    ast.copy_location(remaining, node.values[1])
    if len(node.values) > 2:
        remaining.truth_only = is_used_as_truth(node)  # type: ignore[attr-defined]
    return remaining


def follow_second_operand(
    state: Specialisation, node: ast.BoolOp, remaining: ast.expr, first_truth: HostValue
) -> FollowedOperand:
    """Follow the operands after the first, in the case that the first does not decide, and return
    what came of them; the state's own steps, names and pending values stay as they are."""
    results: list[Value] = []
    pending = state.pending[-1]
    pending_count, fallible_count = len(pending or ()), state.fallible_operations
    (steps, names), changes = state.track_changes(
        lambda: specialise_apart(
            state,
            lambda: results.append(evaluate_last_operand(state, node, remaining)),
            state.names,
            first_truth.code,
            isinstance(node.op, ast.And),
        )
    )
    if pending is not None:
        del pending[pending_count:]
    may_fail = state.fallible_operations != fallible_count
    return FollowedOperand(results[0], steps, names, changes, may_fail)


def can_run_both(node: ast.BoolOp, first_truth: HostValue, second: FollowedOperand) -> bool:
    """Return whether the second operand may run where the first decides: only regions compute it,
    it changes nothing and cannot fail, and the result has the same type."""
    has_only_tensors = all(isinstance(step, TensorStep) for step in second.steps)
    has_one_type = is_used_as_truth(node) or type(first_truth.example) is type(second.value.example)
    return has_only_tensors and not second.changes and not second.may_fail and has_one_type


def combine_truths(
    state: Specialisation, node: ast.BoolOp, first_truth: HostValue, followed: FollowedOperand
) -> Value:
    """Return `and` or `or` of two operands that both run; the second's steps are appended, unless a
    constant second operand makes them needless."""
    is_and, second = isinstance(node.op, ast.And), followed.value
    is_plain_truth = type(second.example) is bool and is_truth(first_truth)
    if isinstance(second, StaticValue) and (is_used_as_truth(node) or is_plain_truth):
        return first_truth if bool(second.example) == is_and else state.static(not is_and)
    state.steps.extend(followed.steps)
    # the first operand narrows names in the second only
    state.names = {**followed.names, **state.names}
    examples = first_truth.example, second.example
    example = (examples[0] and examples[1]) if is_and else (examples[0] or examples[1])
    among = TRUTHS if is_truth(first_truth) and is_truth(second) else None
    value = HostValue(example, ast.BoolOp(node.op, [first_truth.code, second.code]), among=among)
    is_ambiguous = not is_used_as_truth(node) and (first_truth.truth or is_truth_of_operand(second))
    if not is_ambiguous:
        return value
    bound = state.bind_in_host(value)
    assert isinstance(bound, HostValue)
    return replace(bound, truth=True)


def skip_second_operand(
    state: Specialisation, node: ast.BoolOp, first_truth: HostValue, second: FollowedOperand
) -> Value:
    """Evaluate `and` or `or` as a branch on the first operand: the steps of the second run only
    where the first does not decide. Return the result under a new name."""
    is_and = isinstance(node.op, ast.And)
    key = state.fresh_name()

    def store_result(value: Value) -> None:
        """Store a value, or its truth if only that counts, under the name of the result."""
        value = convert_to_bool(state, value) if is_used_as_truth(node) else value
        store_name(state, key, state.bind_in_host(value) if is_size(state, value) else value)

    def store_second() -> None:
        """Make the second operand's steps and names those of the state, and store its value."""
        state.steps, state.names = second.steps, second.names
        store_result(second.value)

    skipped = (
        state.static(not is_and)
        if is_used_as_truth(node) or type(first_truth.example) is bool
        else first_truth
    )
    sides = [store_second, lambda: store_result(skipped)]
    labels = ["the condition holds", ""] if is_and else ["", "the condition does not hold"]
    value = decide_value(state, node, first_truth, key, sides if is_and else sides[::-1], labels)
    if not read_names(first_truth.code) & second.changes:
        state.implied_tests[key, is_and] = first_truth.code
    return value


def check_only_truth(state: Specialisation, node: ast.BoolOp, value: Value) -> None:
    """Raise Unsplittable for a tensor that is not of truth values as an operand of `and` or `or`,
    if more than the truth of the result is used."""
    if is_numeric_tensor(value) and not is_used_as_truth(node):
        raise state.refuse(
            node,
            "the value of and and or, where a tensor decides, is not supported; only its truth",
        )


def evaluate_last_operand(state: Specialisation, node: ast.BoolOp, remaining: ast.expr) -> Value:
    """Return the last operand, or its truth if only the truth counts or it is a tensor; raise
    Unsplittable for a numeric tensor of which more than the truth is used."""
    value = state.evaluate(remaining)
    check_only_truth(state, node, value)
    if isinstance(value, (StaticValue, HostValue)) and not is_used_as_truth(node):
        return value
    return replace(evaluate_truth(state, value), truth=not is_used_as_truth(node))


def convert_to_bool(state: Specialisation, value: Value) -> Value:
    """Return `bool(value)` as a value: the constant for a static value, a truth value as it is,
    else a call of `bool` for the host."""
    if isinstance(value, StaticValue):
        return state.static(bool(value.example))
    if type(value.example) is bool:
        return value
    code = ast.Call(name("bool"), [value.code], [])
    return HostValue(bool(value.example), code, bool(value.second_example), among=TRUTHS)


def find_crop(node: ast.IfExp) -> tuple[ast.Subscript, ast.expr] | None:
    """Return the slice `x[..., -n:]` and `n` of `x if x.size(d) <= n else x[..., -n:]`, where the
    slice is of dimension `d`: a slice from before the start is all there is, so that it stands for
    both sides. None for any other expression."""
    match node:
        case ast.IfExp(
            ast.Compare(size, [ast.LtE()], [limit]),
            ast.Name(key) as body,
            ast.Subscript(ast.Name(other_key), index) as crop,
        ) if key == other_key:
            indices = index.elts if isinstance(index, ast.Tuple) else [index]
            dim = len(indices) - 1
            sizes = (f"{key}.size({dim})", f"{key}.shape[{dim}]")
            bounds = [":"] * dim + [f"-{ast.unparse(limit)}:"]
            is_crop = [ast.unparse(part) for part in indices] == bounds
            if ast.unparse(size) in sizes and is_crop and body.id == key:
                return crop, limit
    return None


def is_positive(state: Specialisation, node: ast.expr) -> bool:
    """Return whether an expression, a name or attributes of one, is a known whole number above
    0."""
    if not all(isinstance(part, (ast.Name, ast.Attribute, ast.Load)) for part in ast.walk(node)):
        return False
    value = state.evaluate(node)
    return isinstance(value, StaticValue) and type(value.example) is int and value.example > 0


def evaluate_conditional(state: Specialisation, node: ast.IfExp) -> Value:
    """Return the value of `a if c else b`: that of the side that runs where the test is known now,
    else a new name, under which a branch stores the value of either side."""
    cropped = find_crop(node)
    if cropped is not None and is_positive(state, cropped[1]):
        return state.evaluate(cropped[0])
    test = evaluate_truth(state, state.evaluate(node.test))
    if isinstance(test, StaticValue):
        return state.evaluate(node.body if test.example else node.orelse)
    key = state.fresh_name()
    sides = [
        lambda: store_name(state, key, state.evaluate(node.body)),
        lambda: store_name(state, key, state.evaluate(node.orelse)),
    ]
    return decide_value(state, node, test, key, sides)


def evaluate_named_expression(state: Specialisation, node: ast.NamedExpr) -> Value:
    """Store the value of `(x := y)` under the variable's name, and return it; raise Unsplittable
    where a pending value of the same expression reads the old one."""
    key = state.variable_name(node.target.id)
    value = state.evaluate(node.value)
    old_names = {
        candidate
        for candidate in state.names
        if candidate == key or candidate.startswith(f"{key}__")
    }
    if any(old_names & read_names(waiting.code) for waiting in state.pending_values()):
        raise state.refuse(
            node, f"{node.target.id} changes within an expression that reads it, too"
        )
    store(state, node.target, value)
    state.changed_names.add(key)
    return state.evaluate(ast.copy_location(ast.Name(node.target.id, ast.Load()), node))


def evaluate_comparison(state: Specialisation, node: ast.Compare) -> Value:
    """Return the value of a single comparison (`evaluate_operator`), and of `a < b < c` that of `a
    < b and b < c`, with b computed once. All operands but the last are computed, also where Python
    would stop at a comparison before them."""
    if len(node.ops) == 1:
        return evaluate_operator(state, node)
    parts: list[ast.expr] = [node.left]
    for comparator in node.comparators[:-1]:
        key = state.fresh_name()
        store(state, ast.Name(key, ast.Store()), state.evaluate(comparator))
        parts.append(ast.copy_location(ast.Name(key, ast.Load()), comparator))
    parts.append(node.comparators[-1])
    pairs: list[ast.expr] = [
        ast.copy_location(ast.Compare(left, [op], [right]), node)
        for left, op, right in zip(parts, node.ops, parts[1:], strict=False)
    ]
    conjunction = ast.copy_location(ast.BoolOp(ast.And(), pairs), node)
    conjunction.truth_only = is_used_as_truth(node)  # type: ignore[attr-defined]
    return state.evaluate(conjunction)
