"""Names that hold one module, function or weight on some of the paths that lead here, and another
one, or None, on others: the host knows which, and a statement that reads one is specialised for
each."""

from __future__ import annotations

import ast
import copy

import torch

from regraft.splitting.program.residual import HostStep, Step, append_before_exit
from regraft.splitting.program.residual_expressions import is_static_object, name
from regraft.splitting.program.statements import Assign
from regraft.splitting.program.values import LostValue, StaticValue, Value
from regraft.splitting.specialising.either_values import is_equal_constant
from regraft.splitting.specialising.objects_made_in_forward import is_stand_in
from regraft.splitting.specialising.state import Specialisation

DIFFERENT_SIDES = "the sides of this expression have different types or shapes"


class ObjectChoice(Exception):
    """Signals that a statement reads a name that holds one of several objects: it is specialised
    once for each. key: the name."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


class ObjectSides(Exception):
    """Signals that the sides of a conditional expression are different objects."""

    def __init__(self, node: ast.IfExp) -> None:
        super().__init__()
        self.node = node


def join_objects(
    state: Specialisation, key: str, path_values: list[tuple[list[Step], Value]]
) -> LostValue | None:
    """Return the value of a name that holds different modules, functions, weights or None on the
    paths, each of which assigns, at its end, the number of its object to a new variable of the
    host; None where a path holds anything else, and where all hold one object."""
    values = [value for _, value in path_values]
    objects = merge_objects(values)
    if len(objects) < 2 or not all(holds_objects(state, value) for value in values):
        return None
    position = state.fresh_name()
    for steps, value in path_values:
        append_before_exit(steps, HostStep(Assign(position, write_position(value, objects))))
    return LostValue(name(key), objects=tuple(objects), position=position)


def holds_objects(state: Specialisation, value: Value) -> bool:
    """Return whether a value is a known module, function or weight, None, or one of several of
    these."""
    if isinstance(value, LostValue):
        return bool(value.objects)
    if not isinstance(value, StaticValue) or value.partial:
        return False
    is_object = is_static_object(value) and not is_stand_in(state, value.example)
    is_used_whole = isinstance(value.example, torch.Tensor) or callable(value.example)
    return value.example is None or (is_object and is_used_whole)


def merge_objects(values: list[Value]) -> list[StaticValue]:
    """Return the objects that the values are, or may be, each once and in the order of the
    values."""
    objects: list[StaticValue] = []
    for value in values:
        for candidate in list_objects(value):
            if find_object(candidate, objects) is None:
                objects.append(candidate)
    return objects


def list_objects(value: Value) -> list[StaticValue]:
    """Return the objects that a value is, or may be; [] for one that is no object."""
    if isinstance(value, LostValue):
        return list(value.objects)
    return [value] if isinstance(value, StaticValue) else []


def find_object(candidate: StaticValue, objects: list[StaticValue]) -> int | None:
    """Return the position of an object; None where it is not among the objects."""
    positions = (
        position
        for position, listed_object in enumerate(objects)
        if is_equal_constant(listed_object.example, candidate.example)
    )
    return next(positions, None)


def write_position(value: Value, objects: list[StaticValue]) -> ast.expr:
    """Return the expression of the position, among `objects`, of what a value holds."""
    numbers = [find_object(candidate, objects) or 0 for candidate in list_objects(value)]
    if not isinstance(value, LostValue):
        return ast.Constant(numbers[0])
    position = name(value.position)
    if numbers == [*range(len(numbers))]:
        return position
    total: ast.expr = ast.Constant(0)  # a single file takes no table
    for old, new in enumerate(numbers):
        is_old = ast.Compare(position, [ast.Eq()], [ast.Constant(old)])
        total = ast.BinOp(total, ast.Add(), ast.BinOp(is_old, ast.Mult(), ast.Constant(new)))
    return total


def list_cases(state: Specialisation, key: str) -> list[tuple[StaticValue, ast.expr | None, str]]:
    """Return the objects that a name may hold, each with the test by which the host tells that,
    None for the last one, and the text of the condition."""
    value = state.names[key]
    assert isinstance(value, LostValue)
    cases: list[tuple[StaticValue, ast.expr | None, str]] = []
    for number, object_value in enumerate(value.objects):
        is_last = number == len(value.objects) - 1
        test = ast.Compare(name(value.position), [ast.Eq()], [ast.Constant(number)])
        cases.append(
            (object_value, None if is_last else test, f"{key} is {ast.unparse(object_value.code)}")
        )
    return cases


def split_conditional(node: ast.stmt, conditional: ast.IfExp) -> ast.If | None:
    """Return a statement as an `if` whose sides have one side of the conditional expression each;
    None where the statement evaluates something else before the expression."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)):
        return None
    sides = []
    for side in (conditional.body, conditional.orelse):
        value = replace_first_part(node.value, conditional, side)
        if value is None:
            return None
        statement = copy.copy(node)
        statement.value = value
        sides.append(statement)
    return ast.copy_location(ast.If(conditional.test, [sides[0]], [sides[1]]), node)


def replace_first_part(
    expression: ast.expr | None, part: ast.expr, replacement: ast.expr
) -> ast.expr | None:
    """Return a copy of an expression with `replacement` for `part`, the expression itself, what it
    calls, or that of which it takes an attribute, as `p` in `p.f(x)`; None where `part` is none of
    these."""
    if expression is part:
        return replacement
    if not isinstance(expression, ast.Call | ast.Attribute):
        return None
    field = "func" if isinstance(expression, ast.Call) else "value"
    changed_value = replace_first_part(getattr(expression, field), part, replacement)
    if changed_value is None:
        return None
    changed = copy.copy(expression)
    setattr(changed, field, changed_value)
    return changed
