"""The rewriting of a match whose last node is the first module of a Sequential: the op takes the
Sequential in the place of that module, and calls the others afterwards.

y = self.mlp(torch.cat(parts, -1))      becomes      y = linear_of_parts(parts, self.mlp, -1)
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from regraft.matching.layer_calls import TAKING_CONTAINERS
from regraft.matching.result import Holds, Match, Test
from regraft.rewriting.single_output import Rewriter
from regraft.source.imports import Imports
from regraft.source.qualified_names import dotted
from regraft.structure.values_and_nodes import Layer, Node, Value


def ends_in_sequential(match: Match) -> bool:
    """Return whether the last node of a match, and no other one, is the first module of a
    Sequential that an attribute of the instance holds, and the match's op takes that container.
    False for a call with other than one positional argument, and for a match with conditions to
    test at run time."""
    call = match.root.expr
    if match.pattern.kernel not in TAKING_CONTAINERS or not isinstance(call, ast.Call):
        return False
    if not match.root.member or match.root.possible or _container_path(match, call) is None:
        return False
    if len(call.args) != 1 or call.keywords or call not in match.body.compound:
        return False
    if any(isinstance(test, Test | Holds) for test in match.tests):
        return False
    members = [node for node in match.body.nodes if node.expr is call and node.member]
    return members[0] is match.root and members.count(match.root) == 1


class SequentialHeadRewriter(Rewriter):
    """A maker of the patch of one match that ends in the first module of a Sequential."""

    def __init__(self, match: Match, imports: Imports) -> None:
        self.call = match.root.expr
        super().__init__(_with_container(match), imports)

    def _check_matched_call(
        self, expr: ast.AST, value: Value, matched_nodes: Sequence[Node]
    ) -> None:
        """Check nothing for the Sequential, all of whose modules the op calls."""
        if expr is not self.call:
            super()._check_matched_call(expr, value, matched_nodes)

    def _elided_layer_nodes(self) -> list[Node]:
        """Return the nodes of layers that the kernel is not given, as for any match, but without
        those of the Sequential's call: the op is given all of its modules."""
        return [node for node in super()._elided_layer_nodes() if node.expr is not self.call]


def _container_path(match: Match, call: ast.Call) -> str | None:
    """Return the path of the Sequential that is called, such as `self.mlp`; None where it is no
    attribute of the instance."""
    path = dotted(call.func) if isinstance(call.func, ast.Attribute) else None
    if path is None or path[0] != match.body.receiver or not path[1]:
        return None
    return f"self.{path[1]}"


def _with_container(match: Match) -> Match:
    """Return the match, whose root is the first module of a Sequential, as one of the whole call.

    The nodes of its other modules are added; the root becomes the node of the last module, with the
    call's result as its output. Bindings to the first module's layer and output become bindings to
    the Sequential and the call's result.
    """
    call = match.root.expr
    assert isinstance(call, ast.Call)
    path, output = _container_path(match, call), match.body.compound[call]
    assert path is not None
    members = [node for node in match.body.nodes if node.expr is call and node.member]
    nodes = sorted({*match.nodes, *members}, key=lambda node: node.time)
    container = Value(0, "path", "module", path, layers=(Layer("torch.nn.Sequential", path),))
    container.born = match.root.time
    root = replace(members[-1], output=output)
    bindings = dict(match.bindings)
    for name, value in match.bindings.items():
        if value is match.root.layer:
            bindings[name] = container
        elif value is match.root.output:
            bindings[name] = output
    nodes[nodes.index(members[-1])] = root
    return replace(match, bindings=bindings, nodes=tuple(nodes), root=root, roots=(root,))
