"""The place of a kernel call: which expressions of the source give there what they give where they
stand."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass

from regraft.matching.result import Match
from regraft.source.imports import Imports
from regraft.structure.unit_dimensions import UnitDimensions, unit_dimensions
from regraft.structure.values_and_nodes import Node, Statement, Value

_ARITHMETIC_SYNTAX = (
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.Call,
    ast.Tuple,
    ast.expr_context,
    ast.keyword,
    ast.operator,
    ast.unaryop,
)
# Layers without parameters, hooks or random numbers of their own, which may be built anywhere.
_STATELESS_LAYERS = frozenset({"torch.nn.Softmax"})
_VIEWING_OPS = frozenset({"transpose", "t", "permute", "unsqueeze", "view"})
_VIEW_SYNTAX = (
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.UnaryOp,
    ast.Slice,
    ast.Tuple,
    ast.expr_context,
    ast.unaryop,
)
_SUM_OPS = frozenset({"add", "sub", "mul", "div", "neg", "py.binary"})
# Elements that arithmetic on values of any kind may consist of besides.
_SUM_SYNTAX = (ast.BinOp, ast.operator)


@dataclass(frozen=True, slots=True)
class CallPlace:
    """The place where the kernel call of a match stands.

    deleted  the statements that will be gone when the call runs
    time     the time at which the call runs
    can_run  whether a node can run where the call does
    """

    match: Match
    imports: Imports
    deleted: Collection[Statement]
    time: int
    can_run: Callable[[Node], bool]

    def repeatable_text(self, value: Value) -> str | None:
        """Return the source text of a value if, repeated where the call stands, it is cheap and
        certain to give the same value: arithmetic on numbers, and on other values that stands in
        the same block, a new layer without state, a view of a tensor, or its size, format or
        device; else None."""
        text = self._number_text(value)
        return self._view_text(value) if text is None else text

    def _number_text(self, value: Value) -> str | None:
        """Return the text of the source, as it stands there, of a value that is computed by
        arithmetic on numbers, where all its names and attributes certainly have the same numbers at
        the call; else None."""
        node = value.node
        if node is None or not isinstance(node.expr, ast.expr) or node.inner is not None:
            return None
        if not all(self._keeps_number(ast_node, node.time) for ast_node in ast.walk(node.expr)):
            return None
        if self.can_change_attributes(*sorted((self.time, node.time))):
            return None
        return self.imports.source.segment(node.expr)

    def _keeps_number(self, ast_node: ast.AST, time: int) -> bool:
        """Return whether a syntax node, its parts aside, lets arithmetic on numbers have the same
        value at the call as at `time`: a name that keeps its number or is the receiver, an
        attribute, a constant or an operator. Whether attributes change is not looked at."""
        if isinstance(ast_node, ast.Name) and ast_node.id in self.match.body.log:
            binding = self._stable_binding(ast_node.id, time)
            return binding is not None and (
                binding.kind in ("int", "scalar")
                or (binding.origin, binding.name) == ("param", self.match.body.receiver)
            )
        if isinstance(ast_node, ast.Call) and not self._is_arithmetic(ast_node):
            return False
        return isinstance(ast_node, _ARITHMETIC_SYNTAX)

    def _stable_binding(self, name: str, time: int) -> Value | None:
        """Return the value that a local name has at `time`, if it has the same at the call; else
        None."""
        body = self.match.body
        binding = body.reaching(name, time)
        if binding is None or body.reaching(name, self.time, self.deleted) is not binding:
            return None
        return binding

    def _view_text(self, value: Value) -> str | None:
        """Return the source text of a value that is a view of a tensor, a size, the format or the
        device of a tensor, or computed by arithmetic in the block of the match, where that text
        gives the same at the call; else None."""
        node = value.node
        if node is None or node.inner is not None:
            return None
        is_sum = self._is_sum(node)
        if not (is_sum or _is_view(value, node) or _reads_metadata(node)):
            return None
        first, last = sorted((self.time, node.time))
        between = self.match.between(first - 1, last + 1)
        if any(step.effect and self.can_run(step) for step in between):
            return None
        syntax = (*_VIEW_SYNTAX, *_SUM_SYNTAX) if is_sum else _VIEW_SYNTAX
        inner = (ast_node for ast_node in ast.walk(node.expr) if ast_node is not node.expr)
        if not all(self._keeps_value(ast_node, node.time, syntax) for ast_node in inner):
            return None
        return self.imports.source.segment(node.expr)

    def _keeps_value(self, ast_node: ast.AST, time: int, syntax: tuple[type[ast.AST], ...]) -> bool:
        """Return whether a syntax node is a local name that has the same value at the call as at
        `time`, or of the classes `syntax`."""
        if isinstance(ast_node, ast.Name) and ast_node.id in self.match.body.log:
            return self._stable_binding(ast_node.id, time) is not None
        return isinstance(ast_node, syntax)

    def _is_sum(self, node: Node) -> bool:
        """Return whether operators of arithmetic compute a node, as often as the root of the match
        and in the same modes: in the same block."""
        is_written = isinstance(node.expr, ast.BinOp | ast.UnaryOp)
        return (
            is_written
            and node.op in _SUM_OPS
            and node.statement.block == self.match.root.statement.block
        )

    def can_change_attributes(self, first: int, last: int) -> bool:
        """Return whether an unmatched call or store with an effect, which can run where the call
        does, stands between the times `first` and `last`."""
        return any(
            node.effect and node.op in ("call", "py.store") and self.can_run(node)
            for node in self.match.between(first, last)
        )

    def _is_arithmetic(self, call: ast.Call) -> bool:
        """Return whether a call is that of a function of `math`, of `int` or of `float`, or builds
        a layer without state."""
        qualified = self.imports.names.resolve(call.func) or ""
        is_known = qualified.startswith("math.") or qualified in _STATELESS_LAYERS
        return is_known or (isinstance(call.func, ast.Name) and call.func.id in ("int", "float"))


def _is_view(value: Value, node: Node) -> bool:
    """Return whether the node that computes `value` makes a view of a tensor: a call that exchanges
    or adds dimensions, or a subscript that adds some."""
    if node.op == "py.item":
        return unit_dimensions(value) != UnitDimensions()
    return node.op in _VIEWING_OPS and isinstance(node.expr, ast.Call)


def _reads_metadata(node: Node) -> bool:
    """Return whether a node reads the format or the device of a tensor, or a size by its number:
    `x.dtype`, `x.shape[0]`."""
    expression = node.expr
    if isinstance(expression, ast.Subscript) and isinstance(expression.slice, ast.Constant):
        read = expression.value
        return isinstance(read, ast.Attribute) and read.attr == "shape"
    return isinstance(expression, ast.Attribute) and expression.attr in ("dtype", "device")
