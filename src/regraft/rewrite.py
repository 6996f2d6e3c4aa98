"""Rewriting: a match becomes byte edits, or a reason why not."""

from __future__ import annotations

from regraft.imports import Imports
from regraft.match import Match
from regraft.render import Withheld
from regraft.several import SeveralRewriter
from regraft.substitute import Mode, Patch, Rewriter

__all__ = ["Mode", "Patch", "rewrite"]


def rewrite(match: Match, imports: Imports) -> Patch | Withheld:
    """The patch for a match, or why it is withheld."""
    try:
        rewriter = SeveralRewriter if len(match.roots) > 1 else Rewriter
        return rewriter(match, imports).patch()
    except Withheld as reason:
        return reason
