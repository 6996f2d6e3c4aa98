"""Tests whether a match depends on a function, class or method that the file replaces, so that the
source does not mean what it says."""

from __future__ import annotations

import ast

from regraft.matching.result import Match
from regraft.matching.whole_bodies import BodyMatch
from regraft.source.syntax_iterators import walk
from regraft.structure.module_structures import Module
from regraft.structure.values_and_nodes import Replacement


def match_replacement(match: Match, module: Module) -> Replacement | None:
    """Return a replacement on which a match or its kernel may depend; None where there is none.

    What a rule asks of the operations around a match depends on these, too, so all operations of
    the function count; those of the match come first.
    """
    for node in (*match.nodes, *match.body.nodes):
        if node.replacement is not None:
            return node.replacement
    return _kernel_replacement(match.pattern.kernel, module)


def body_replacement(match: BodyMatch, module: Module) -> Replacement | None:
    """Return a replacement on which the match of a whole body or its kernel depends; None where
    there is none."""
    if module.replacements is None:
        return None
    for statement in match.statements:
        for node in walk(statement):
            if not isinstance(node, ast.Name | ast.Attribute):
                continue
            name = module.names.resolve(node)
            if name is None and isinstance(node, ast.Attribute):
                name = f"torch.Tensor.{node.attr}"
            replacement = module.replacements.of_function(name or "")
            if replacement is not None:
                return replacement
    return _kernel_replacement(getattr(match.pattern.target.apply.callee, "path", ""), module)


def _kernel_replacement(kernel: str, module: Module) -> Replacement | None:
    """Return the replacement of a kernel; None where there is none."""
    return None if module.replacements is None else module.replacements.of_name(kernel)
