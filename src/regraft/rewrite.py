"""Rewriting: a match becomes byte edits, or a reason why not."""

from __future__ import annotations

from regraft.decorate import decorate
from regraft.found import Assumes, Holds, Match
from regraft.guarded import GuardedRewriter
from regraft.imports import Imports
from regraft.render import Withheld
from regraft.several import SeveralRewriter
from regraft.substitute import Mode, Patch, Rewriter

__all__ = ["Mode", "Patch", "rewrite"]


def rewrite(match: Match, imports: Imports) -> Patch | Withheld:
    """The patch for a match, or why it is withheld."""
    try:
        assumed = next((test.reason for test in match.tests if isinstance(test, Assumes)), None)
        if assumed is not None:
            raise Withheld(assumed, match.root.statement.node.lineno)
        if match.pattern.decorator is not None:
            return decorate(match, imports)
        if len(match.roots) > 1:
            return SeveralRewriter(match, imports).patch()
        rewriter = Rewriter(match, imports)
        conditional = any(isinstance(test, Holds) for test in match.tests)
        return (GuardedRewriter(match, imports) if conditional or rewriter.has_branches() else rewriter).patch()
    except Withheld as reason:
        return reason
