"""Tell which operands of a sum may be lists, tuples or texts for some inputs, by the expressions
that a function assigns to its variables."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.verification.names_and_scopes import name_of

_DISPLAYS = (
    ast.List
    | ast.Tuple
    | ast.Set
    | ast.Dict
    | ast.ListComp
    | ast.SetComp
    | ast.DictComp
    | ast.GeneratorExp
    | ast.JoinedStr
    | ast.Starred
)
# functions and methods that return lists, tuples or texts
_SEQUENCE_FUNCTIONS = frozenset(
    {
        "bytes",
        "copy",
        "deepcopy",
        "dict",
        "dirname",
        "format",
        "get",
        "getattr",
        "input",
        "items",
        "join",
        "keys",
        "list",
        "lower",
        "next",
        "pop",
        "range",
        "read",
        "replace",
        "repr",
        "reversed",
        "set",
        "sorted",
        "split",
        "str",
        "strip",
        "tolist",
        "tuple",
        "upper",
        "values",
        "zip",
    }
)


class OperandKinds:
    """The expressions that a function assigns to its variables, which tell what the operands of its
    sums may be. A variable without such an expression, such as a parameter, may be anything."""

    def __init__(self, function: ast.FunctionDef | None = None) -> None:
        """Collect the assignments of a function; there are none for None."""
        self._values: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function) if function is not None else ():
            for name, value in _assignments(node):
                self._values.setdefault(name, []).append(value)

    def may_be_sequence(self, node: ast.expr | None, visited: frozenset[str] = frozenset()) -> bool:
        """Return whether an expression may be a list, tuple or text for some input.

        A sum may be one if both of its operands may. `visited` are variables whose expressions are
        being looked into.
        """
        match node:
            case ast.Name(name):
                values = self._values.get(name, []) if name not in visited else []
                return not values or any(
                    self.may_be_sequence(value, visited | {name}) for value in values
                )
            case ast.Constant(value):
                return not isinstance(value, int | float | complex)
            case ast.BinOp(left, ast.Add(), right):
                return all(self.may_be_sequence(side, visited) for side in (left, right))
            case ast.BinOp(left, ast.Mult() | ast.Mod(), right):
                return any(_is_display(side) for side in (left, right))
            case ast.BinOp() | ast.UnaryOp() | ast.Compare():
                return False
            case ast.Subscript(_, ast.Tuple()):
                return False
            case ast.Subscript(ast.Attribute(_, "shape"), index):
                return isinstance(index, ast.Slice)
            case ast.Call(function):
                return name_of(function) in _SEQUENCE_FUNCTIONS
        return True


def _is_display(node: ast.expr) -> bool:
    """Return whether an expression is written as a list, tuple, set, dictionary or text."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, _DISPLAYS)


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the variables that a node assigns, each with the expression of its value or, for a part
    of a value or an element of a loop, with the whole expression."""
    match node:
        case ast.Assign(targets, value):
            for target in targets:
                yield from _pair_with_values(target, value)
        case ast.AnnAssign(target, _, ast.expr() as value) | ast.NamedExpr(target, value):
            yield from _pair_with_values(target, value)
        case ast.AugAssign(ast.Name(name), _, value) if _is_display(value):
            yield name, value


def _pair_with_values(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the variables of a target, each with the expression of its value: element by element
    where both are written as tuples of equal lengths, else with the whole value."""
    match target, value:
        case ast.Name(name), _:
            yield name, value
        case (ast.Tuple(parts), ast.Tuple(values)) if len(parts) == len(values):
            for part, part_value in zip(parts, values, strict=True):
                yield from _pair_with_values(part, part_value)
        case ast.Tuple(parts) | ast.List(parts), _:
            for part in parts:
                yield from _pair_with_values(part, value)
        case ast.Starred(ast.Name(name)), _:
            yield name, ast.List([], ast.Load())
