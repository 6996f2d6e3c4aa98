"""Edit the syntax tree of a definition so that the conditions in its changed lines report their
results at run time."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from regraft.verification.child.checks.attribute_variants import read_attributes
from regraft.verification.child.checks.condition_kinds import (
    PRESENT,
    SPANNED,
    TIED,
    TRUTH,
    VARIED,
    anonymous_form,
    dimension_of,
    is_predicate,
    is_step,
    is_truth_call,
    mask_position,
    order_operands,
    required_operand_events,
    required_results,
)
from regraft.verification.child.checks.deciding_parameters import deciding_parameters
from regraft.verification.child.checks.exchanged_names import DIFFERED, Place, place_of
from regraft.verification.child.checks.replaced_roundings import required_of_rounding, rounding_of
from regraft.verification.child.checks.tensor_equivalence import (
    NUMERIC,
    TENSOR,
    operands_of_respelling,
)
from regraft.verification.definition_changes import Change

# the functions that the calls name
RECORD, CALL, BINARY = "__regraft_record__", "__regraft_call__", "__regraft_binary__"
COMPARE, DIFFER = "__regraft_compare__", "__regraft_differ__"
UNLIKE = "__regraft_unlike__"
Node = TypeVar("Node", bound=ast.AST)
_TEXT = 80  # the most characters of a condition that a message shows


@dataclass(slots=True)
class Condition:
    """A condition of a changed line with the results that it has to take and those that it has
    shown.

    `results` may also hold "ran". `first_value` is the first value of a condition that has to take
    a second value.
    """

    line: int
    text: str
    required: tuple[str, ...]
    results: set[str] = field(default_factory=set)
    first_value: Any = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the results that the condition has to take and has not taken."""
        return tuple(result for result in self.required if result not in self.results)

    @property
    def is_of_type(self) -> bool:
        """Return whether the condition is about the type of a value."""
        return self.required in (NUMERIC, TENSOR)

    @property
    def sentence(self) -> str:
        """Return a sentence that names the missing results; to be read only where there are
        some."""
        return f"on line {self.line}, `{self.text}` never {' and never '.join(self.missing)}"


class ReportingTransformer(ast.NodeTransformer):
    """Wraps the conditions of changed lines into calls that report their results, in place, and
    appends them to `conditions`, whose positions are their numbers in the calls.

    Tests of `if`, `while` and conditional expressions are left out, because both of their sides
    have to run anyway. The operands of `and` and `or` in a test are conditions like others. `forms`
    are the anonymous forms of new conditions, `ordered` the operands of comparisons by order in the
    counterpart: a new comparison of these has to see equal operands, also in a test. `late` are
    attributes of the instance of which changed lines have to read a second value. `turned` are
    the functions that the counterpart calls along another dimension: new calls of these have to see
    several elements along theirs. `rounding` are functions that round, which the counterpart does
    not call: new calls of these have to see numbers that others round differently. `exchanged` are
    the variables that the counterpart has in the place of others, which have to differ from them
    once, and `fixed` the literals that it has in the place of expressions, which have to have
    another value once.
    """

    def __init__(
        self,
        change: Change,
        forms: frozenset[str],
        ordered: frozenset[frozenset[str]] = frozenset(),
        late: frozenset[str] = frozenset(),
        turned: frozenset[str] = frozenset(),
        rounding: frozenset[str] = frozenset(),
        identities: frozenset[str] | None = None,
        exchanged: Mapping[Place, str] | None = None,
        fixed: Mapping[Place, ast.expr] | None = None,
    ) -> None:
        """Start without conditions. `change` is the changed definition; `identities` are the
        functions of `callable_torch_functions`, whose operands report their types, None where none
        do."""
        self.conditions: list[Condition] = []
        self._identities = identities
        # the numbers of the conditions of operands that report their types, by the operands' ids
        self._typed_operands: dict[int, int] = {}
        self._reports_types_only = False
        self._turned, self._rounding = turned, rounding
        self._exchanged, self._fixed = exchanged or {}, fixed or {}
        self._change, self._forms, self._ordered, self._late = change, forms, ordered, late

    def visit(self, node: ast.AST) -> Any:
        """Visit a node and return it, wrapped into a call that reports its type where it is an
        operand whose type decides whether the change computes the same. In a statement that
        computes no result, conditions are left as they are."""
        if self._identities is not None and isinstance(node, ast.expr):
            self._add_typed_operands(node, self._identities)
        number = self._typed_operands.pop(id(node), None)
        literal = self._literal_for(node)
        text = "" if literal is None else ast.unparse(node)
        visited = self.generic_visit(node) if self._reports_types_only else super().visit(node)
        if isinstance(visited, ast.Name) and not self._reports_types_only:
            visited = self._wrap_exchanged(visited, self._exchanged.get(place_of(visited), ""))
        if literal is not None and isinstance(visited, ast.expr) and not self._reports_types_only:
            visited = self._wrap_fixed(visited, text, literal)
        if number is None or not isinstance(visited, ast.expr):
            return visited
        return self._report(visited, number)

    def _literal_for(self, node: ast.AST) -> ast.expr | None:
        """Return the literal that the counterpart has in the place of an expression; None for none,
        and for a node that is not from the file."""
        if not isinstance(node, ast.expr) or not hasattr(node, "lineno"):
            return None
        return self._fixed.get(place_of(node))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Report at the start of the body whether parameters are given that default to None and
        decide what changed lines compute; visit the parts of the function."""
        reports: list[ast.stmt] = []
        for name in deciding_parameters(node, self._change.statements):
            value = ast.copy_location(ast.Name(name, ast.Load()), node)
            reports.append(ast.Expr(self._wrap_value(value, name, PRESENT)))
        self.generic_visit(node)
        start = int(ast.get_docstring(node, clean=False) is not None)
        node.body[start:start] = reports
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """Visit the branch in place without its test (of an `and` or `or` the operands report), and
        return it."""
        return self._visit_without_test(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        """Visit the loop in place without its test (of an `and` or `or` the operands report), and
        return it."""
        return self._visit_without_test(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Visit the conditional expression in place without its test (of an `and` or `or` the
        operands report), and return it."""
        return self._visit_without_test(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Let no condition of an assertion report its result, because it computes none."""
        return self._visit_types_only(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Let no condition of a raised error report its result, because it computes none."""
        return self._visit_types_only(node)

    def _visit_types_only(self, node: Node) -> Node:
        """Visit a statement or expression and return it, changed so that its operands report their
        types, and no condition reports a result."""
        outer, self._reports_types_only = self._reports_types_only, True
        visited: Node = self.visit(node)
        self._reports_types_only = outer
        return visited

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Let a new comparison report its truth value, and whether its operands were equal where
        the counterpart compares them by another operator."""
        if not self._is_reordered(node):
            return self._visit_predicate(node)
        text = ast.unparse(node)
        return self._wrap_value(self._visit_order(node), text)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Let a new negation by `not` report its truth value; visit the operand of any other
        operator."""
        return self._visit_predicate(node) if is_predicate(node) else self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Visit the parts of an operation, and wrap it, if it is new, into a call that reports the
        effects of its operands, or, for a step such as `//`, its value; return the result."""
        wanted = required_operand_events(node)
        if not wanted:
            return self._visit_predicate(node) if is_step(node) else self.generic_visit(node)
        is_new, text = self._is_new(node), ast.unparse(node)
        self.generic_visit(node)
        return self._wrap_operation(node, text, wanted) if is_new else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Let the operands that decide report their truth values: all of `and`, all but the last of
        `or`, whose last operand is a result. The other operands are visited."""
        is_new = self._is_new(node)
        deciding = node.values if isinstance(node.op, ast.And) else node.values[:-1]
        texts = {
            id(value): ast.unparse(value)
            for value in deciding
            if is_new and not _is_reported_when_visited(value)
        }
        node.values = [
            self._wrap_value(self.visit(value), texts[id(value)])
            if id(value) in texts
            else self.visit(value)
            for value in node.values
        ]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Let a new lookup in a dictionary display report its value; visit the parts of any other
        subscript."""
        return self._visit_predicate(node) if is_step(node) else self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Let an attribute of the instance that code assigns late report its value; visit the parts
        of any other one."""
        names = read_attributes((node,)) if isinstance(node.ctx, ast.Load) else frozenset()
        if self._is_changed(node) and not names.isdisjoint(self._late):
            return self._wrap_value(node, ast.unparse(node), VARIED)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Visit the parts of a call; wrap it, if it is new and tests, rounds, bounds, chooses or
        runs along a dimension, into one that reports what it does, or, if it selects by a mask,
        wrap the mask. Return the result."""
        if rounding_of(node) in self._rounding and self._is_new(node):
            wanted = VARIED + required_of_rounding(rounding_of(node))
            return self._visit_bound_or_choice(node, wanted)
        if is_truth_call(node) or is_step(node):
            return self._visit_predicate(node)
        wanted, position = required_results(node), mask_position(node)
        if self._turned.intersection(dimension_of(node)[:1]):
            wanted = wanted or SPANNED
        if not self._is_new(node) or (not wanted and position is None):
            return self.generic_visit(node)
        if wanted:
            return self._visit_bound_or_choice(node, wanted)
        assert position is not None
        return self._visit_selection(node, position)

    def _visit_bound_or_choice(self, node: ast.Call, wanted: tuple[str, ...]) -> ast.AST:
        """Return a call of the reporting function that makes the call `node`, which bounds, rounds,
        chooses or runs along a dimension, and records the events of `wanted`; a condition is added
        for it."""
        number = self._add_condition(node.lineno, ast.unparse(node), wanted)
        self.generic_visit(node)
        arguments = (node.func, *node.args)
        return self._reporting_call(CALL, node, number, *arguments, keywords=node.keywords)

    def _visit_selection(self, node: ast.Call, position: int) -> ast.AST:
        """Return a call that selects by a mask, the argument at `position`, so that the mask
        reports its values."""
        mask = node.args[position]
        mask_text, is_reported = ast.unparse(mask), is_predicate(mask)
        self.generic_visit(node)
        if not is_reported:
            node.args[position] = self._wrap_value(node.args[position], mask_text)
        return node

    def _visit_without_test(self, node: ast.If | ast.While | ast.IfExp) -> ast.AST:
        """Visit a branch in place without its test, and return it; of a test with `and` or `or`,
        the operands report."""
        test = node.test
        node.test = ast.Constant(True)
        self.generic_visit(node)
        node.test = self.visit(test) if isinstance(test, ast.BoolOp) else self._visit_order(test)
        return node

    def _visit_order(self, node: ast.expr) -> ast.expr:
        """Return a test that is a new comparison by order, perhaps under `not`, so that it reports
        equal operands; any other test so that it reports the types of operands only."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node.operand = self._visit_order(node.operand)
            return node
        if not self._is_reordered(node):
            return self._visit_types_only(node)
        assert isinstance(node, ast.Compare)
        number = self._add_condition(node.lineno, ast.unparse(node), TIED)
        self.generic_visit(node)
        operator = ast.Constant(type(node.ops[0]).__name__)
        operands = (node.left, *node.comparators)
        return self._reporting_call(COMPARE, node, number, operator, *operands)

    def _visit_predicate(self, node: ast.expr) -> ast.AST:
        """Return a new condition or step so that it reports its value; others with their parts
        visited."""
        text, wanted = ast.unparse(node), VARIED if is_step(node) else TRUTH
        is_new = self._is_new(node)
        self.generic_visit(node)
        return self._wrap_value(node, text, wanted) if is_new else node

    def _wrap_exchanged(self, node: ast.expr, other_name: str) -> ast.expr:
        """Return a call that records whether a variable of a changed line differs from the one that
        the counterpart has in its place, and returns it; the node itself for ""."""
        if not other_name or not self._is_changed(node):
            return node
        wanted = (DIFFERED.format(other_name),)
        number = self._add_condition(node.lineno, ast.unparse(node), wanted)
        return self._reporting_call(DIFFER, node, number, ast.Constant(other_name), node)

    def _wrap_fixed(self, node: ast.expr, text: str, literal: ast.expr) -> ast.expr:
        """Return a call that records whether an expression of a changed line has another value than
        the literal that the counterpart has in its place, and returns that value."""
        if not self._is_changed(node):
            return node
        wanted = (DIFFERED.format(ast.unparse(literal)),)
        number = self._add_condition(node.lineno, text, wanted)
        return self._reporting_call(UNLIKE, node, number, literal, node)

    def _wrap_value(self, node: ast.expr, text: str, wanted: tuple[str, ...] = TRUTH) -> ast.expr:
        """Return a call that records the value of an expression as a condition's result and returns
        it."""
        return self._report(node, self._add_condition(node.lineno, text, wanted))

    def _report(self, node: ast.expr, number: int) -> ast.expr:
        """Return a call that records the value of an expression for the condition `number` and
        returns it."""
        return self._reporting_call(RECORD, node, number, node)

    def _reporting_call(
        self,
        function: str,
        node: ast.expr,
        number: int,
        *arguments: ast.expr,
        keywords: Sequence[ast.keyword] = (),
    ) -> ast.expr:
        """Return a call, in the place of `node`, of a reporting function for the condition `number`
        of the changed definition."""
        condition_id = (ast.Constant(self._change.definition), ast.Constant(number))
        call = ast.Call(ast.Name(function, ast.Load()), [*condition_id, *arguments], list(keywords))
        return ast.copy_location(call, node)

    def _add_typed_operands(self, node: ast.expr, functions: frozenset[str]) -> None:
        """Add a condition for the types of the operands of an expression of a changed line that has
        another spelling for tensors."""
        operands, wanted = operands_of_respelling(node, functions)
        if operands and self._is_changed(node):
            number = self._add_condition(node.lineno, ast.unparse(node), wanted)
            self._typed_operands.update((id(operand), number) for operand in operands)

    def _wrap_operation(self, node: ast.BinOp, text: str, wanted: tuple[str, ...]) -> ast.expr:
        """Return a call of the reporting function that computes a binary operation and records
        which events of `wanted` its operands cause; a condition with the text `text` is added for
        it."""
        number = self._add_condition(node.lineno, text, wanted)
        operator = ast.Constant(type(node.op).__name__)
        return self._reporting_call(BINARY, node, number, operator, node.left, node.right)

    def _add_condition(self, line: int, text: str, wanted: tuple[str, ...]) -> int:
        """Append a condition to `conditions`, with its text cut to `_TEXT` characters, and return
        its number."""
        self.conditions.append(Condition(line, text[:_TEXT], wanted))
        return len(self.conditions) - 1

    def _is_reordered(self, node: ast.expr) -> bool:
        """Return whether an expression is a new comparison of operands that the counterpart
        compares by order, too."""
        return bool(self._ordered) and order_operands(node) in self._ordered and self._is_new(node)

    def _is_new(self, node: ast.expr) -> bool:
        """Return whether an expression is in a changed line, and its form is one of those that the
        definition has more often than its counterpart."""
        return self._is_changed(node) and anonymous_form(node) in self._forms

    def _is_changed(self, node: ast.expr) -> bool:
        """Return whether an expression is in a changed line."""
        return any(start <= node.lineno <= end for start, end in self._change.statements)


def _is_reported_when_visited(node: ast.expr) -> bool:
    """Return whether an expression is reported by the visit of itself, or is no condition."""
    return is_predicate(node) or isinstance(node, ast.BoolOp | ast.Constant)
