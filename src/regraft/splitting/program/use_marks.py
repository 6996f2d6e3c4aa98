"""Marks on the expressions of a function's source that say how their values are used."""

from __future__ import annotations

import ast

# functions that read all of a view of a dictionary during the call
AT_ONCE = frozenset(
    {
        "list",
        "tuple",
        "dict",
        "sorted",
        "len",
        "sum",
        "max",
        "min",
        "any",
        "all",
        "set",
        "extend",
        "join",
    }
)
# methods and operators by which a function may change a set
SET_CHANGES = frozenset(
    {
        "add",
        "clear",
        "difference_update",
        "discard",
        "intersection_update",
        "pop",
        "remove",
        "update",
    }
)
# functions that pass a view on
LAZY = frozenset({"zip", "enumerate", "reversed", "map", "filter"})


def mark_uses(definition: ast.AST) -> None:
    """Note in attributes of the expressions in `definition` how they are used.

    `truth_only`: only the truth counts. `at_once`: nothing keeps the value. `either`: the value may
    be a constant on some paths and a tensor on others. `changes`: of a new set, that the function
    may change one.
    """
    if any(map(may_change_set, ast.walk(definition))):
        for node in ast.walk(definition):
            if isinstance(node, (ast.Set, ast.Call)):
                node.changes = True  # type: ignore[union-attr]
    for node in ast.walk(definition):
        for part in either_operands(node):
            part.either = True  # type: ignore[attr-defined]
        for part in operands_used_as_truth(node):
            mark_truth_use(part)
        for part, reader in operands_read_at_once(node):
            mark_at_once(part, reader)


def may_change_set(node: ast.AST) -> bool:
    """Return whether a node may change a set: a method of SET_CHANGES, or `|=`, `&=` or `-=`."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, (ast.BitOr, ast.BitAnd, ast.Sub))
    return isinstance(node, ast.Attribute) and node.attr in SET_CHANGES


def operands_used_as_truth(node: ast.AST) -> list[ast.expr]:
    """Return the parts of a statement or expression whose truth is all that counts: tests, the
    operand of `not`, the argument of `bool()`."""
    if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
        return [node.test]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    if isinstance(node, ast.comprehension):
        return node.ifs
    return node.args if isinstance(node, ast.Call) and called_name(node) == "bool" else []


def operands_read_at_once(node: ast.AST) -> list[tuple[ast.expr, str]]:
    """Return the parts of a node whose value nothing keeps, each with what reads it: iterables of
    loops and comprehensions with "loop"; starred parts, what is unpacked, arguments of the
    functions of `AT_ONCE`, and what a last `in` or `not in` looks into, with "call". [] for other
    nodes."""
    if isinstance(node, (ast.comprehension, ast.For)):
        return [(node.iter, "loop")]
    if isinstance(node, ast.Starred):
        return [(node.value, "call")]
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List)):
        return [(node.value, "call")] if len(node.targets) == 1 else []
    if isinstance(node, ast.Call) and called_name(node) in AT_ONCE:
        return [(argument, "call") for argument in node.args]
    if isinstance(node, ast.Compare) and isinstance(node.ops[-1], (ast.In, ast.NotIn)):
        return [(node.comparators[-1], "call")]
    return []


def called_name(node: ast.Call) -> str:
    """Return the name of the function or method that is called; "" for another expression."""
    if isinstance(node.func, ast.Name):
        return node.func.id
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def either_operands(node: ast.AST) -> list[ast.expr]:
    """Return the parts of a statement or expression in whose place a value is supported that is a
    constant on some paths and a tensor on others.

    These are operands of operators other than `and`, `or` and `not`, elements of tuples, values of
    dictionaries, both results of a conditional expression, objects whose attribute or element is
    read, and values that are assigned or returned.
    """
    if isinstance(node, (ast.Return, ast.Assign, ast.AnnAssign, ast.Attribute, ast.Subscript)):
        return [node.value] if node.value is not None else []
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value]
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
        return node.elts
    if isinstance(node, ast.Dict):
        return node.values
    return (
        [node.operand] if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not) else []
    )


def mark_truth_use(node: ast.expr) -> None:
    """Set `truth_only` of an expression, of which only the truth counts; in an `and` or `or`, of
    the operands, too."""
    node.truth_only = True  # type: ignore[attr-defined]
    if isinstance(node, ast.BoolOp):
        for operand in node.values:
            mark_truth_use(operand)


def mark_at_once(node: ast.expr, reader: str) -> None:
    """Mark an expression as one whose value nothing keeps, with what reads it, "loop" or "call"; in
    a call of a function in LAZY, the arguments, too."""
    node.at_once = reader  # type: ignore[attr-defined]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LAZY:
        for argument in node.args:
            mark_at_once(argument, reader)
