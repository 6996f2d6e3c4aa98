"""The rewriting of a match inside one call of a Sequential: the call becomes that of an op that
fuses neighbours when the model runs.

x = self.net(x)      becomes      x = sequential(x, self.net)

See docs/decisions/0036-neighbours-in-a-sequential.md.
"""

from __future__ import annotations

import ast

from regraft.matching.result import Condition, Match, Test
from regraft.rewriting.match_checks import MatchChecks
from regraft.rewriting.single_output import Patch
from regraft.source.layout import Layout, indentation
from regraft.source.text import Edit
from regraft.structure.optable import table
from regraft.structure.values_and_nodes import Node

OP = "regraft.ops.sequential"
# the ops that this op calls for two neighbours
FUSED = frozenset(
    {
        "regraft.ops.conv_batch_norm",
        "regraft.ops.linear_batch_norm",
        "regraft.ops.linear_gelu",
    }
)


def is_inside_sequential(match: Match) -> bool:
    """Return whether one call of a Sequential computes all nodes of a match, and the op
    `sequential` can do what the match's kernel does for neighbours in it."""
    expr = match.root.expr
    is_container_call = expr in match.body.compound and expr not in match.body.inlined
    is_fused = match.pattern.kernel in FUSED and all(map(_is_tested_by_op, match.tests))
    return is_fused and is_container_call and all(node.expr is expr for node in match.nodes)


def _is_tested_by_op(condition: Condition) -> bool:
    """Return whether the op `sequential` itself tests a condition of a match when the model runs:
    the condition is a Test of a layer that may be of a type of torch.nn."""
    return isinstance(condition, Test) and any(
        table().layer(layer.type) is not None for layer in condition.subject.layers
    )


class SequentialRewriter(MatchChecks):
    """A maker of the patch of one match inside one call of a Sequential, which becomes a call of
    the op `sequential`."""

    def patch(self) -> Patch:
        """Return the patch that replaces the call of the Sequential by a call of the op; the file
        is not changed. Raises Withheld where that is not safe."""
        call = self.root.expr
        if not isinstance(call, ast.Call) or len(call.args) != 1 or call.keywords:
            raise self._withholding("the nn.Sequential is not called with one argument", self.root)
        if not _is_path(call.func):
            raise self._withholding(
                "the nn.Sequential that is called has no name or attribute", self.root
            )
        self._check_places(call, self.root)
        span = self.source.span(call)
        layout = Layout(self.source, span, indentation(self.source, span.start))
        arguments = self._arguments(call)
        text = layout.call(self.imports.spell(OP), arguments)
        extent = self.source.span(self.root.statement.node)
        return Patch(self.match, "substitute", (Edit(span, text),), extent, frozenset({OP}))

    def _arguments(self, call: ast.Call) -> list[str]:
        """Return the texts of the op's arguments, the input and the container.

        The container comes first, as in the call, where evaluating the input may have effects that
        change which object the container's name is.
        """
        value, container = call.args[0], call.func
        value_text, container_text = self.source.segment(value), self.source.segment(container)
        is_local = isinstance(container, ast.Name) and b"global " not in self.source.text
        if is_local or not self._may_have_effects(value):
            return [value_text, container_text]
        return [f"container={container_text}", f"x={value_text}"]

    def _may_have_effects(self, expression: ast.expr) -> bool:
        """Return whether the evaluation of an expression may have effects; True for any
        comprehension or lambda, whose calls are not analysed."""
        inner = set(ast.walk(expression))
        if any(isinstance(node, ast.comprehension | ast.Lambda) for node in inner):
            return True
        return any(node.effect and node.expr in inner for node in self.match.body.nodes)

    def _check_compound(self) -> None:
        """Check nothing: the call is replaced as a unit, and calls all modules that it called."""

    def _elided_layer_nodes(self) -> list[Node]:
        """Return no nodes: the op is given the modules of all of them."""
        return []


def _is_path(expression: ast.expr) -> bool:
    """Return whether an expression only reads names, attributes and elements."""
    allowed = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.UnaryOp, ast.USub)
    return all(isinstance(node, (*allowed, ast.expr_context)) for node in ast.walk(expression))
