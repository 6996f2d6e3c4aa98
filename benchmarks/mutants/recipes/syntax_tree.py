"""Edits that are generated from the syntax tree, with no eye for what the code means."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mutants.core import Finder, Function, Module, Recipe, Site
from mutants.recipes.templates import MIXED, computes, exchange

_SKIPPED = (
    ast.Raise,
    ast.Assert,
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.ClassDef,
    ast.Lambda,
)
_ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"}
_COMPARISONS = {"Lt": ">=", "LtE": ">", "Gt": "<=", "GtE": "<", "Eq": "!=", "NotEq": "=="}


def _nodes(module: Module) -> Iterator[tuple[Function, ast.AST]]:
    """Yield what `forward` methods and functions compute, without messages, annotations and
    docstrings."""
    for function in module.functions:
        if function.node.name == "forward" or (function.owner is None and computes(function)):
            for statement in function.body:
                yield from ((function, node) for node in _walk(statement))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, _SKIPPED) or (
        isinstance(node, ast.Call) and "logg" in ast.unparse(node.func)
    ):
        return
    yield node
    for name, child in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for part in child if isinstance(child, list) else [child]:
                if isinstance(part, ast.AST):
                    yield from _walk(part)


def _operator(module: Module) -> Iterator[Site]:
    for function, node in _nodes(module):
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node):
            left, right = module.text(node.left), module.text(node.right)
            yield exchange(
                function, module, node, f"({left}) {_ARITHMETIC[type(node.op)]} ({right})"
            )


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(side, ast.Tuple | ast.List | ast.JoinedStr) for side in sides) or any(
        isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides
    )


def _term(module: Module) -> Iterator[Site]:
    for function, node in _nodes(module):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Add | ast.Sub)
            and not _is_text(node)
        ):
            yield exchange(function, module, node, module.text(node.left))


def _factor(module: Module) -> Iterator[Site]:
    for function, node in _nodes(module):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
            yield exchange(function, module, node, module.text(node.left))


def _whole_number(module: Module) -> Iterator[Site]:
    for function, node in _nodes(module):
        if isinstance(node, ast.Constant) and type(node.value) is int:
            yield exchange(function, module, node, str(node.value + 1))


def _real_number(module: Module) -> Iterator[Site]:
    for function, node in _nodes(module):
        if isinstance(node, ast.Constant) and type(node.value) is float and node.value:
            yield exchange(function, module, node, repr(node.value * 2))


def _condition(module: Module) -> Iterator[Site]:
    for function, node in _nodes(module):
        if isinstance(node, ast.If | ast.IfExp):
            yield exchange(function, module, node.test, f"not ({module.text(node.test)})")


def _comparison(module: Module) -> Iterator[Site]:
    for function, node in _nodes(module):
        if (
            isinstance(node, ast.Compare)
            and len(node.ops) == 1
            and type(node.ops[0]).__name__ in _COMPARISONS
        ):
            sign = _COMPARISONS[type(node.ops[0]).__name__]
            yield exchange(
                function,
                module,
                node,
                f"{module.text(node.left)} {sign} {module.text(node.comparators[0])}",
            )


def _and_or(module: Module) -> Iterator[Site]:
    for function, node in _nodes(module):
        if isinstance(node, ast.BoolOp):
            sign = " or " if isinstance(node.op, ast.And) else " and "
            yield exchange(
                function, module, node, f"({sign.join(f'({module.text(v)})' for v in node.values)})"
            )


def _keyword(module: Module) -> Iterator[Site]:
    """Find keyword arguments that are a truth value or a dimension."""
    for function, node in _nodes(module):
        if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant | ast.UnaryOp):
            text = module.text(node.value)
            changed = {
                "True": "False",
                "False": "True",
                "-1": "-2",
                "1": "0",
                "0": "1",
                "2": "1",
            }.get(text)
            if node.arg and changed:
                yield exchange(function, module, node.value, changed)


def _dropped_keyword(module: Module) -> Iterator[Site]:
    """Find calls whose last argument is by keyword, and leave it out."""
    for function, node in _nodes(module):
        if (
            isinstance(node, ast.Call)
            and len(node.args) + len(node.keywords) > 1
            and node.keywords
            and node.keywords[-1].arg
            and isinstance(node.func, ast.Attribute)
        ):
            rest = (*node.args, *node.keywords[:-1])
            inside = ", ".join(map(module.text, rest))
            yield exchange(function, module, node, f"{module.text(node.func)}({inside})")


def _swapped(module: Module) -> Iterator[Site]:
    """Find calls with two names as their first arguments."""
    for function, node in _nodes(module):
        if isinstance(node, ast.Call) and len(node.args) >= 2 and _are_names(node.args[:2]):
            first, second = node.args[:2]
            edits = (
                module.replace(first, module.text(second)),
                module.replace(second, module.text(first)),
            )
            yield Site(
                function.name,
                node.lineno,
                edits,
                f"first two arguments of {module.text(node.func)} exchanged",
            )


def _are_names(nodes: list[ast.expr]) -> bool:
    return (
        all(isinstance(node, ast.Name) for node in nodes)
        and len({ast.unparse(node) for node in nodes}) == 2
    )


def _statement(module: Module) -> Iterator[Site]:
    """Find statements that change a variable by itself, `x = f(x)`."""
    for function, node in _nodes(module):
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AugAssign)
            else None
        )
        if isinstance(target, ast.Name) and isinstance(node, ast.Assign | ast.AugAssign):
            used = isinstance(node, ast.AugAssign) or any(
                isinstance(part, ast.Name) and part.id == target.id for part in ast.walk(node.value)
            )
            if used:
                edit = module.replace(node, "pass")
                yield Site(
                    function.name,
                    node.lineno,
                    (edit,),
                    f"statement that changes {target.id} removed",
                )


def _other_name(module: Module) -> Iterator[Site]:
    """Find operands that are the argument of the function, and take another argument of the same
    annotation."""
    for function, node in _nodes(module):
        if not (
            isinstance(node, ast.BinOp)
            and isinstance(node.left, ast.Name)
            and isinstance(node.right, ast.Name)
        ):
            continue
        if node.left.id != node.right.id:
            yield exchange(function, module, node.right, node.left.id)


def _recipe(name: str, finder: Finder, count: int = 5) -> Recipe:
    return Recipe(
        name, "syntax-tree", "every input that reaches it", finder, count, (b"def forward",), MIXED
    )


RECIPES = (
    _recipe("operator-exchanged", _operator, 7),
    _recipe("term-dropped", _term, 7),
    _recipe("factor-dropped", _factor, 7),
    _recipe("whole-number-plus-one", _whole_number, 7),
    _recipe("real-number-doubled", _real_number),
    _recipe("condition-negated", _condition, 7),
    _recipe("comparison-reversed", _comparison),
    _recipe("and-or", _and_or),
    _recipe("keyword-changed", _keyword, 7),
    _recipe("keyword-dropped", _dropped_keyword, 6),
    _recipe("arguments-swapped", _swapped, 6),
    _recipe("statement-removed", _statement, 8),
    _recipe("operand-exchanged", _other_name),
)
