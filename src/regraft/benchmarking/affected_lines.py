"""The lines that a rewrite makes faster, which are more than the lines that it changes where it
postpones a computation."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.scanning import Finding

_POSTPONING = "regraft.ops.postponed_"
_PRODUCTS = ("matmul", "bmm", "mm", "einsum", "baddbmm")


def affected_lines(finding: Finding, tree: ast.Module) -> frozenset[int]:
    """Return the lines of a finding's file that its rewrite makes faster.

    These are the lines of what it matches. A product that is postponed (scores of attention) is
    computed with the next product of what becomes of it; then they are all lines from the first to
    the second product on which a name holds what became of it.
    """
    lines = frozenset(finding.lines)
    if not finding.kernel.startswith(_POSTPONING):
        return lines
    statements = list(_statements_around(tree, finding))
    return lines | _lines_between_products(statements, finding)


def _statements_around(tree: ast.Module, finding: Finding) -> Iterator[ast.stmt]:
    """Yield the simple statements of the innermost function around a finding, in their order."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and finding.start[0] in _lines(node)
    ]
    if functions:
        innermost = max(functions, key=lambda node: node.lineno)
        simple = (
            node
            for node in ast.walk(innermost)
            if isinstance(node, ast.stmt) and not hasattr(node, "body")
        )
        yield from sorted(simple, key=lambda node: node.lineno)


def _lines_between_products(statements: list[ast.stmt], finding: Finding) -> frozenset[int]:
    """Return the lines of the statement of a finding, and of those that use its result until a
    product has it."""
    lines: set[int] = set()
    holders: set[str] = set()
    for statement in statements:
        if finding.start[0] in _lines(statement):
            holders = _stored(statement)
        elif holders & _loaded(statement):
            holders -= _stored(statement)
            holders |= set() if _has_product(statement) else _stored(statement)
        else:
            holders -= _stored(statement)
            continue
        lines.update(_lines(statement))
    return frozenset(lines)


def _has_product(statement: ast.stmt) -> bool:
    """Return whether a statement multiplies matrices."""
    return any(
        (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
        or (isinstance(node, ast.Call) and _function_name(node) in _PRODUCTS)
        for node in ast.walk(statement)
    )


def _function_name(call: ast.Call) -> str:
    """Return the name of a called function or method, without what stands before its dot."""
    return ast.unparse(call.func).rpartition(".")[2]


def _loaded(statement: ast.stmt) -> set[str]:
    """Return the names that a statement reads."""
    names = {node.id for node in _names(statement) if isinstance(node.ctx, ast.Load)}
    return names | (_stored(statement) if isinstance(statement, ast.AugAssign) else set())


def _stored(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds."""
    return {node.id for node in _names(statement) if isinstance(node.ctx, ast.Store)}


def _names(statement: ast.stmt) -> Iterator[ast.Name]:
    """Yield the names in a statement."""
    return (node for node in ast.walk(statement) if isinstance(node, ast.Name))


def _lines(node: ast.stmt) -> range:
    """Return the lines of a statement."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
