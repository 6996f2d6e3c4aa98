"""Rewriting: a match becomes byte edits, or the reason why it is not rewritten."""

from __future__ import annotations

import ast
import functools

from regraft.matching.result import Assumes, Holds, Match
from regraft.rewriting.decorator_rewriting import decorate
from regraft.rewriting.guarded_rewriting import GuardedRewriter
from regraft.rewriting.hoisted_rewriting import HoistedRewriter
from regraft.rewriting.multiple_outputs import MultipleOutputRewriter
from regraft.rewriting.recurrence_rewriting import RecurrenceRewriter
from regraft.rewriting.sequential_head import SequentialHeadRewriter, ends_in_sequential
from regraft.rewriting.sequential_rewriting import SequentialRewriter, is_inside_sequential
from regraft.rewriting.single_output import Mode, Patch, Rewriter
from regraft.rewriting.withheld import Withheld
from regraft.source.imports import Imports

__all__ = ["Mode", "Patch", "rewrite"]

MOST_LEVELS = 40  # of an expression: a person writes 10, and each takes longer than the one before


def rewrite(match: Match, imports: Imports) -> Patch | Withheld:
    """Return the patch for a match, or the Withheld with the reason why it must not be rewritten,
    which is returned, not raised. The file is not changed.

    imports: the source file of the match, and how it imports names.
    """
    try:
        assumption = next((test.reason for test in match.tests if isinstance(test, Assumes)), None)
        if assumption is not None:
            raise Withheld(assumption, match.root.statement.node.lineno)
        if _is_nested_deeper(match, MOST_LEVELS):
            reason = f"the expression is nested more than {MOST_LEVELS} levels deep"
            raise Withheld(reason, match.root.statement.node.lineno)
        if match.pattern.decorator is not None:
            return decorate(match, imports)
        return _patch_of_expressions(match, imports)
    except Withheld as reason:
        return reason


def _patch_of_expressions(match: Match, imports: Imports) -> Patch:
    """Return the patch for a match of expressions, by the rewriter for its form; raise Withheld
    where it must not be rewritten."""
    if match.pattern.carried:
        return RecurrenceRewriter(match, imports).patch()
    if match.pattern.index:
        return HoistedRewriter(match, imports).patch()
    if len(match.roots) > 1:
        return MultipleOutputRewriter(match, imports).patch()
    if is_inside_sequential(match):
        return SequentialRewriter(match, imports).patch()
    if ends_in_sequential(match):
        return SequentialHeadRewriter(match, imports).patch()
    rewriter = Rewriter(match, imports)
    is_conditional = any(isinstance(test, Holds) for test in match.tests)
    is_guarded = is_conditional or rewriter.has_branches()
    return (GuardedRewriter(match, imports) if is_guarded else rewriter).patch()


def _is_nested_deeper(match: Match, levels: int) -> bool:
    """Return whether the syntax tree of the expression that a match rewrites has more than so many
    levels."""
    expression = match.root.expr
    heights = _heights(match.root.statement.node)
    if expression not in heights:  # inlined, from another statement
        heights = _heights(expression)
    return heights[expression] > levels


@functools.lru_cache(maxsize=64)
def _heights(root: ast.AST) -> dict[ast.AST, int]:
    """Return the number of levels of the syntax tree below each node of a tree, itself included.
    Cached."""
    parts_by_node: dict[ast.AST, list[ast.AST]] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        parts_by_node[node] = [*ast.iter_child_nodes(node)]
        pending += parts_by_node[node]
    heights: dict[ast.AST, int] = {}
    # parts come after what holds them, except for leaves that several nodes share (operators)
    for node in reversed(parts_by_node):
        heights[node] = 1 + max((heights.get(part, 1) for part in parts_by_node[node]), default=0)
    return heights
