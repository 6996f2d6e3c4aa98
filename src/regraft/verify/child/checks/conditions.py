"""Check that the conditions in arithmetic of changed lines take every result: comparisons, masks,
bounds and minima.

A branch that never ran shows in the lines; `x * (1 - 0.1 * (n > 64))` does not. Functions with such
conditions run from a syntax tree in which each condition reports its results.
"""

from __future__ import annotations

import ast
import copy
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from regraft.verify.changes import Change, Definition
from regraft.verify.child.checks.edited import (
    code_swapped,
    compile_definition,
    definition_node,
    replacements,
)
from regraft.verify.child.checks.influence import deciding_parameters

TRUTH = ("was true", "was false")
CHOICE = ("gave its first operand", "gave its second operand")
RAISED, LOWERED, PASSED = "raised a value", "lowered a value", "let a value pass"
VARIED, GIVEN = ("took a second value",), ("was given",)
OTHER_THAN_FIRST, OTHER_THAN_SECOND = (
    f"was another number than its {place} operand" for place in ("first", "second")
)
WRAPPED = ("took a second value", OTHER_THAN_FIRST)
_RAN = "ran"  # reported by a condition whose result cannot be determined
_RECORD, _CALL, _BINARY = "__regraft_record__", "__regraft_call__", "__regraft_binary__"
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Mod": operator.mod,
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
}
_PREDICATES = frozenset(
    {
        "gt",
        "lt",
        "ge",
        "le",
        "eq",
        "ne",
        "greater",
        "less",
        "greater_equal",
        "less_equal",
        "not_equal",
        "equal",
        "isnan",
        "isinf",
        "isfinite",
        "isclose",
        "allclose",
        "logical_and",
        "logical_or",
        "logical_not",
        "logical_xor",
        "isinstance",
        "hasattr",
    }
)
_CHOICES = frozenset({"min", "max", "minimum", "maximum", "fmin", "fmax"})
_LOWER = frozenset({"clamp", "clip", "clamp_min", "clamp_", "clamp_min_", "hardtanh"})
_UPPER = frozenset({"clamp", "clip", "clamp_max", "clamp_", "clamp_max_", "hardtanh"})
_RECTIFIERS = frozenset({"relu", "relu_", "relu6", "threshold"})
_STEPS = frozenset(
    {
        "floor",
        "ceil",
        "trunc",
        "round",
        "sign",
        "sgn",
        "heaviside",
        "floor_divide",
        "remainder",
        "fmod",
        "bucketize",
        "searchsorted",
    }
)
_NAMESPACES = frozenset({"torch", "F", "functional"})
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)  # the numbers of a run with symbolic sizes
_TEXT = 80  # the most characters of a condition that a message shows


@dataclass(slots=True)
class Condition:
    """A condition of a changed line with the results that it has to take and those that it has
    taken.

    `first_value` is the first value of a condition that has to take a second one.
    """

    line: int
    text: str
    required: tuple[str, ...]
    taken_results: set[str] = field(default_factory=set)
    first_value: Any = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The results that the condition has to take and has not taken."""
        return tuple(result for result in self.required if result not in self.taken_results)

    @property
    def sentence(self) -> str:
        """A sentence that names the missing results."""
        return f"on line {self.line}, `{self.text}` never {' and never '.join(self.missing)}"


class Conditions:
    """The new conditions in the changed lines of one version of a file; as a context manager it
    records results."""

    def __init__(
        self, module: ModuleType, changes: tuple[Change, ...], other_version: ModuleType
    ) -> None:
        """Prepare the conditions of `module` that `other_version` of the file does not have."""
        self._module = module
        self._conditions: dict[str, list[Condition]] = {}
        self._edited: dict[str, Definition] = {}
        self._codes: dict[tuple[str, int], dict[FunctionType, CodeType]] = {}
        self._stacks: list[ExitStack] = []
        for change in changes:
            self._prepare(change, other_version)
        vars(module).update(
            {
                _RECORD: self._record_result,
                _CALL: self._record_call,
                _BINARY: self._record_operation,
            }
        )

    def gaps(self, definition: str) -> tuple[str, ...]:
        """Return a sentence for each condition of a definition that ran and did not take all of its
        results."""
        conditions = self._conditions.get(definition, [])
        return tuple(
            dict.fromkeys(
                condition.sentence
                for condition in conditions
                if condition.taken_results and condition.missing
            )
        )

    def results(self) -> tuple[tuple[frozenset[str], Any], ...]:
        """Return, for each condition, the results that it has taken so far and its first value."""
        return tuple(
            (frozenset(condition.taken_results), condition.first_value)
            for condition in self._all_conditions()
        )

    def restore_results(self, results_before: tuple[tuple[frozenset[str], Any], ...]) -> None:
        """Set all conditions back to what `results` returned before."""
        for condition, (taken_results, first_value) in zip(
            self._all_conditions(), results_before, strict=True
        ):
            condition.taken_results, condition.first_value = set(taken_results), first_value

    def _all_conditions(self) -> list[Condition]:
        """Return the conditions of all definitions."""
        return [condition for conditions in self._conditions.values() for condition in conditions]

    def __enter__(self) -> Conditions:
        stack = ExitStack()
        for name, conditions in self._conditions.items():
            if any(condition.missing for condition in conditions):
                stack.enter_context(code_swapped(self._reporting_codes(name)))
        self._stacks.append(stack)
        return self

    def __exit__(self, *_: object) -> None:
        self._stacks.pop().close()

    def _prepare(self, change: Change, other_version: ModuleType) -> None:
        """Store the new conditions of a definition, and its syntax tree in which they report."""
        name = change.definition
        node, other_node = definition_node(self._module, name), definition_node(other_version, name)
        if node is None:
            return
        other_counts = (
            Counter(map(_anonymous_form, _conditions_of(other_node)))
            if other_node is not None
            else Counter[str]()
        )
        own_counts = Counter(map(_anonymous_form, _conditions_of(node)))
        transformer = _ReportingTransformer(
            change, frozenset(form for form in own_counts if own_counts[form] > other_counts[form])
        )
        edited = copy.deepcopy(node)
        transformer.visit(edited)
        if transformer.conditions:
            self._conditions[name] = transformer.conditions
            self._edited[name] = ast.fix_missing_locations(edited)

    def _reporting_codes(self, name: str) -> dict[FunctionType, CodeType]:
        """Return the reporting code of a definition's present functions, since a definition may be
        restored."""
        value = vars(self._module).get(name.partition("#")[0])
        key = name, id(value)
        if key not in self._codes:
            codes = compile_definition(self._edited[name], self._module)
            self._codes[key] = replacements(value, codes, str(self._module.__file__))
        return self._codes[key]

    def _record_result(self, name: str, number: int, value: Any) -> Any:
        """Note the result of a condition by its value, and return the value."""
        condition = self._conditions[name][number]
        if isinstance(value, _SYMBOLS):
            condition.taken_results.add(_RAN)
        elif condition.required == GIVEN:
            condition.taken_results.update(GIVEN if value is not None else (_RAN,))
        elif VARIED[0] in condition.required:
            condition.taken_results.update(
                _variety_results(value, condition.first_value if condition.taken_results else value)
            )
            condition.first_value = value if VARIED[0] not in condition.taken_results else None
        else:
            condition.taken_results.update(_truth_results(value))
        return value

    def _record_operation(
        self, name: str, number: int, operation: str, left: Any, right: Any
    ) -> Any:
        """Compute with two operands, and note whether plain numbers among them change the other
        operand."""
        result = _OPERATIONS[operation](left, right)
        condition, numbers = self._conditions[name][number], (torch.Tensor, int, float)
        if isinstance(left, _SYMBOLS) or isinstance(right, _SYMBOLS):
            return result
        if not isinstance(left, numbers) or not isinstance(right, numbers):
            condition.taken_results.update(condition.required)
            return result
        if condition.required == WRAPPED:
            condition.taken_results.update(WRAPPED[1:] * _any_differs(result, left))
            return self._record_result(name, number, result)
        condition.taken_results.add(_RAN)
        neutral = 0 if operation in ("Add", "Sub") else 1
        condition.taken_results.update(
            (OTHER_THAN_FIRST,) * (isinstance(right, torch.Tensor) or right != neutral)
        )
        condition.taken_results.update(
            (OTHER_THAN_SECOND,) * (isinstance(left, torch.Tensor) or left != neutral)
        )
        return result

    def _record_call(
        self, name: str, number: int, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function that chooses or bounds, note the result, and return what it returns."""
        result = function(*args, **kwargs)
        condition = self._conditions[name][number]
        owner = getattr(function, "__self__", None)
        operands = (owner, *args) if isinstance(owner, torch.Tensor) else args
        condition.taken_results.update(
            _choice_results(operands, result)
            if condition.required == CHOICE
            else _bound_results(operands, result)
        )
        return result


def _truth_results(value: Any) -> Iterator[str]:
    """Yield the truth values that a condition has: true, false, or both for different elements."""
    if isinstance(value, torch.Tensor):
        if value.numel() and value.device.type == "cpu":
            truth = value.detach() != 0
            yield from TRUTH[:1] * bool(truth.any())
            yield from TRUTH[1:] * (not bool(truth.all()))
    elif isinstance(value, bool | int | float):
        yield TRUTH[0] if value else TRUTH[1]


def _variety_results(value: Any, first_value: Any) -> Iterator[str]:
    """Yield that a condition ran, and that it varied: its elements differ, or its value is not the
    first one."""
    yield _RAN
    if isinstance(value, torch.Tensor):
        elements = value.detach().flatten()
        if (
            elements.numel()
            and elements.device.type == "cpu"
            and bool((elements != elements[0]).any())
        ):
            yield from VARIED
        value = elements[0].item() if elements.numel() and elements.device.type == "cpu" else None
    if isinstance(first_value, torch.Tensor):
        first_value = (
            first_value.flatten()[0].item()
            if first_value.numel() and first_value.device.type == "cpu"
            else value
        )
    if not isinstance(value, bool | int | float | str | None.__class__) or value != first_value:
        yield from VARIED


def _choice_results(operands: tuple[Any, ...], result: Any) -> Iterator[str]:
    """Yield the operands, first or second, that are the result.

    A call that is no choice between two, such as a minimum along a dimension, yields both.
    """
    numbers = (torch.Tensor, int, float)
    if len(operands) != 2 or not all(isinstance(value, numbers) for value in (*operands, result)):
        yield from CHOICE
        return
    yield _RAN
    first, second = operands
    yield from CHOICE[:1] * _any_differs(result, second)
    yield from CHOICE[1:] * _any_differs(result, first)


def _bound_results(operands: tuple[Any, ...], result: Any) -> Iterator[str]:
    """Yield whether a bound raised, lowered or let pass an element of the first operand.

    All three are yielded where the bound worked in place, because the old value is lost.
    """
    yield _RAN
    if operands and isinstance(operands[0], torch.Tensor) and isinstance(result, torch.Tensor):
        value = operands[0]
        if value is result:
            yield from (RAISED, LOWERED, PASSED)  # in place: the old value is lost
        elif value.shape == result.shape:
            yield from (RAISED,) * bool((result > value).any())
            yield from (LOWERED,) * bool((result < value).any())
            yield from (PASSED,) * bool(
                ((result == value) & (result != 0) & torch.isfinite(result)).any()
            )


def _any_differs(result: Any, operand: Any) -> bool:
    """Return whether any element of a result is not the operand's."""
    return bool(torch.as_tensor(result != operand).any())


class _ReportingTransformer(ast.NodeTransformer):
    """Wraps the conditions of changed lines into calls that report their results.

    Tests of `if`, `while` and conditional expressions are left out, because both of their sides
    have to run anyway. The operands of `and` and `or` in a test are conditions like others. `forms`
    are the anonymous forms of new conditions.
    """

    def __init__(self, change: Change, forms: frozenset[str]) -> None:
        self.conditions: list[Condition] = []
        self._change, self._forms = change, forms

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Report whether parameters are given that default to None and decide what changed lines
        compute."""
        reports: list[ast.stmt] = []
        for name in deciding_parameters(node, self._change.statements):
            value = ast.copy_location(ast.Name(name, ast.Load()), node)
            reports.append(ast.Expr(self._wrap_value(value, name, GIVEN)))
        self.generic_visit(node)
        start = int(ast.get_docstring(node, clean=False) is not None)
        node.body[start:start] = reports
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._visit_without_test(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._visit_without_test(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._visit_without_test(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return self._visit_predicate(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        return self._visit_predicate(node) if _is_predicate(node) else self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        wanted = _required_of_operands(node)
        if not wanted:
            return self._visit_predicate(node) if _is_step(node) else self.generic_visit(node)
        is_new, text = self._is_new(node), ast.unparse(node)
        self.generic_visit(node)
        return self._wrap_operation(node, text, wanted) if is_new else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Report the operands that decide; the last one of `or` is a result."""
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
        return self._visit_predicate(node) if _is_step(node) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if _called_name(node) in _PREDICATES or _is_step(node):
            return self._visit_predicate(node)
        wanted, mask_position = _required_results(node), _mask_position(node)
        if not self._is_new(node) or (not wanted and mask_position is None):
            return self.generic_visit(node)
        text = ast.unparse(node)
        if wanted:
            number = self._add_condition(node.lineno, text, wanted)
            self.generic_visit(node)
            arguments = [
                ast.Constant(self._change.definition),
                ast.Constant(number),
                node.func,
                *node.args,
            ]
            return ast.copy_location(
                ast.Call(ast.Name(_CALL, ast.Load()), arguments, node.keywords), node
            )
        assert mask_position is not None
        mask_text, is_reported = (
            ast.unparse(node.args[mask_position]),
            _is_predicate(node.args[mask_position]),
        )
        self.generic_visit(node)
        if not is_reported:
            node.args[mask_position] = self._wrap_value(node.args[mask_position], mask_text)
        return node

    def _visit_without_test(self, node: ast.If | ast.While | ast.IfExp) -> ast.AST:
        """Visit a branch without its test; of a test with `and` or `or`, the operands report."""
        test = node.test
        node.test = ast.Constant(True)
        self.generic_visit(node)
        node.test = self.visit(test) if isinstance(test, ast.BoolOp) else test
        return node

    def _visit_predicate(self, node: ast.expr) -> ast.AST:
        """Return a new condition or step so that it reports its value; others with their parts
        visited."""
        text, wanted = ast.unparse(node), VARIED if _is_step(node) else TRUTH
        is_new = self._is_new(node)
        self.generic_visit(node)
        return self._wrap_value(node, text, wanted) if is_new else node

    def _wrap_value(self, node: ast.expr, text: str, wanted: tuple[str, ...] = TRUTH) -> ast.expr:
        """Return a call that records the value of an expression as a condition's result and returns
        it."""
        number = self._add_condition(node.lineno, text, wanted)
        arguments = [ast.Constant(self._change.definition), ast.Constant(number), node]
        return ast.copy_location(ast.Call(ast.Name(_RECORD, ast.Load()), arguments, []), node)

    def _wrap_operation(self, node: ast.BinOp, text: str, wanted: tuple[str, ...]) -> ast.expr:
        """Return a call that computes a binary operation and records its operands' effects."""
        condition_id = [
            ast.Constant(self._change.definition),
            ast.Constant(self._add_condition(node.lineno, text, wanted)),
        ]
        arguments = [*condition_id, ast.Constant(type(node.op).__name__), node.left, node.right]
        return ast.copy_location(ast.Call(ast.Name(_BINARY, ast.Load()), arguments, []), node)

    def _add_condition(self, line: int, text: str, wanted: tuple[str, ...]) -> int:
        """Add a condition and return its number."""
        self.conditions.append(Condition(line, text[:_TEXT], wanted))
        return len(self.conditions) - 1

    def _is_new(self, node: ast.expr) -> bool:
        """Return whether an expression is in a changed line and its form is new."""
        is_changed = any(start <= node.lineno <= end for start, end in self._change.statements)
        return is_changed and _anonymous_form(node) in self._forms


def _conditions_of(definition: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions of a definition that are conditions of any kind."""
    expressions = (node for node in ast.walk(definition) if isinstance(node, ast.expr))
    kinds = (_is_predicate, _is_step, _is_bound_or_choice, _is_bool_op, _required_of_operands)
    return (node for node in expressions if any(kind(node) for kind in kinds))


def _is_step(node: ast.expr) -> bool:
    """Return whether an expression may have one value over a wide range.

    It is an integer quotient, a remainder, or a number that is rounded or looked up.
    """
    match node:
        case ast.BinOp(left, ast.FloorDiv() | ast.Mod() | ast.RShift(), right):
            return not (
                isinstance(left, ast.Constant) and isinstance(left.value, str | bytes)
            ) and not (isinstance(left, ast.Constant) and isinstance(right, ast.Constant))
        case ast.Subscript(ast.Dict(), key, ast.Load()):
            return not isinstance(key, ast.Constant)
        case ast.Call(ast.Attribute(_, "get"), [key, *_]):
            return not isinstance(key, ast.Constant)
        case ast.Call():
            return _called_name(node) in _STEPS
    return False


def _is_bool_op(node: ast.expr) -> bool:
    """Return whether an expression is an `and` or `or`."""
    return isinstance(node, ast.BoolOp)


def _is_reported_when_visited(node: ast.expr) -> bool:
    """Return whether an expression is reported by the visit of itself, or is no condition."""
    return _is_predicate(node) or isinstance(node, ast.BoolOp | ast.Constant)


def _required_of_operands(node: ast.expr) -> tuple[str, ...]:
    """Return what has to happen at a sum, product or remainder, so that a lost operand shows; ()
    elsewhere.

    A remainder has to take two values, and to be less than its first operand at some time. A plain
    number that is added must not always be 0, one that is multiplied or divided by not always 1.
    """
    match node:
        case ast.BinOp(op=ast.Mod()):
            return WRAPPED if _is_step(node) else ()
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as op, right):
            first_results = (OTHER_THAN_FIRST,) * (not isinstance(right, ast.Constant))
            has_second = isinstance(op, ast.Add | ast.Mult) and not isinstance(left, ast.Constant)
            return first_results + (OTHER_THAN_SECOND,) * has_second
    return ()


def _is_bound_or_choice(node: ast.expr) -> bool:
    """Return whether a call bounds its input, chooses between two, or selects by a mask."""
    return isinstance(node, ast.Call) and (
        bool(_required_results(node)) or _mask_position(node) is not None
    )


def _is_predicate(node: ast.expr) -> bool:
    """Return whether an expression is a negation, a comparison or a call with a truth value."""
    is_negation = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return (
        is_negation
        or isinstance(node, ast.Compare)
        or (isinstance(node, ast.Call) and _called_name(node) in _PREDICATES)
    )


def _called_name(node: ast.Call) -> str:
    """Return the name of the called function or method; "" where it has none."""
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_namespace_call(node: ast.Call) -> bool:
    """Return whether a call is of a function of torch and not of a method."""
    owner = getattr(node.func, "value", None)
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return not isinstance(node.func, ast.Attribute) or name in _NAMESPACES


def _required_results(node: ast.Call) -> tuple[str, ...]:
    """Return what has to happen at a call that bounds its input or chooses between two; () for
    other calls."""
    name, has_starred = (
        _called_name(node),
        any(isinstance(argument, ast.Starred) for argument in node.args),
    )
    if name in _CHOICES:
        return CHOICE if 1 <= len(node.args) <= 2 and not node.keywords and not has_starred else ()
    if name in _RECTIFIERS and not has_starred and (node.args or not _is_namespace_call(node)):
        return RAISED, PASSED
    if name not in _LOWER | _UPPER or has_starred:
        return ()
    bounds = node.args[1 if _is_namespace_call(node) else 0 :]
    bound_by_keyword = {
        str(keyword.arg).removesuffix("_val"): keyword.value for keyword in node.keywords
    }
    has_one_bound = name.rstrip("_").endswith(("_min", "_max"))
    first_bound, second_bound = (
        (bounds[:1], bounds[:1]) if has_one_bound else (bounds[:1], bounds[1:2])
    )
    lower_bounds = (
        [*first_bound, *([bound_by_keyword["min"]] if "min" in bound_by_keyword else [])]
        if name in _LOWER
        else []
    )
    upper_bounds = (
        [*second_bound, *([bound_by_keyword["max"]] if "max" in bound_by_keyword else [])]
        if name in _UPPER
        else []
    )
    return (RAISED,) * any(map(_is_finite, lower_bounds)) + (LOWERED,) * any(
        map(_is_finite, upper_bounds)
    )


def _is_finite(bound: ast.expr) -> bool:
    """Return whether a bound may change a value: it is neither None nor infinite."""
    value = bound.value if isinstance(bound, ast.Constant) else 0.0
    return value is not None and not (isinstance(value, float) and math.isinf(value))


def _mask_position(node: ast.Call) -> int | None:
    """Return the position of the argument that selects between values; None for other calls."""
    name = _called_name(node)
    position = {"where": 0, "masked_fill": int(_is_namespace_call(node)), "masked_fill_": 0}.get(
        name
    )
    is_present = position is not None and len(node.args) > position + 1
    return (
        position
        if is_present and not any(isinstance(argument, ast.Starred) for argument in node.args)
        else None
    )


def _anonymous_form(node: ast.expr) -> str:
    """Return a condition as text that does not depend on the names of variables."""
    anonymous = copy.deepcopy(node)
    for name_node in ast.walk(anonymous):
        if isinstance(name_node, ast.Name):
            name_node.id = "_"
    return ast.dump(anonymous)
