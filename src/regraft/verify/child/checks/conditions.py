"""Conditions in arithmetic: comparisons, masks, bounds and minima of changed lines have to take every result.

A branch that never ran shows in the lines; `x * (1 - 0.1 * (n > 64))` does not. Functions with such conditions run
from a syntax tree in which each condition reports its results.
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
from regraft.verify.child.checks.edited import compile_definition, definition_node, replacements, running
from regraft.verify.child.checks.influence import deciding_parameters

TRUTH = ("was true", "was false")
CHOICE = ("gave its first operand", "gave its second operand")
RAISED, LOWERED, PASSED = "raised a value", "lowered a value", "let a value pass"
VARIED, GIVEN = ("took a second value",), ("was given",)
OTHER_THAN_FIRST, OTHER_THAN_SECOND = (f"was another number than its {place} operand" for place in ("first", "second"))
WRAPPED = ("took a second value", OTHER_THAN_FIRST)
_RAN = "ran"  # reported by a condition of which no result can be told
_RECORD, _CALL, _BINARY = "__regraft_record__", "__regraft_call__", "__regraft_binary__"
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Mod": operator.mod, "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
}  # fmt: skip
_PREDICATES = frozenset({
    "gt", "lt", "ge", "le", "eq", "ne", "greater", "less", "greater_equal", "less_equal", "not_equal", "equal",
    "isnan", "isinf", "isfinite", "isclose", "allclose", "logical_and", "logical_or", "logical_not", "logical_xor",
    "isinstance", "hasattr",
})  # fmt: skip
_CHOICES = frozenset({"min", "max", "minimum", "maximum", "fmin", "fmax"})
_LOWER = frozenset({"clamp", "clip", "clamp_min", "clamp_", "clamp_min_", "hardtanh"})
_UPPER = frozenset({"clamp", "clip", "clamp_max", "clamp_", "clamp_max_", "hardtanh"})
_RECTIFIERS = frozenset({"relu", "relu_", "relu6", "threshold"})
_STEPS = frozenset({
    "floor", "ceil", "trunc", "round", "sign", "sgn", "heaviside", "floor_divide", "remainder", "fmod", "bucketize",
    "searchsorted",
})  # fmt: skip
_NAMESPACES = frozenset({"torch", "F", "functional"})
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)  # what a run with symbolic sizes computes with
_TEXT = 80  # characters of a condition that a message shows


@dataclass(slots=True)
class Condition:
    """A condition of a changed line with the results that it has to take and those that it has taken."""

    line: int
    text: str
    wanted: tuple[str, ...]
    taken: set[str] = field(default_factory=set)
    first: Any = None

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(result for result in self.wanted if result not in self.taken)

    @property
    def sentence(self) -> str:
        return f"on line {self.line}, `{self.text}` never {' and never '.join(self.missing)}"


class Conditions:
    """The new conditions in the changed lines of one version of a file; as a context manager it records results."""

    def __init__(self, module: ModuleType, changes: tuple[Change, ...], other: ModuleType) -> None:
        """`other` is the other version of the file: conditions that it has as well are left out."""
        self._module = module
        self._conditions: dict[str, list[Condition]] = {}
        self._edited: dict[str, Definition] = {}
        self._codes: dict[tuple[str, int], dict[FunctionType, CodeType]] = {}
        self._stacks: list[ExitStack] = []
        for change in changes:
            self._prepare(change, other)
        vars(module).update({_RECORD: self._record, _CALL: self._call, _BINARY: self._binary})

    def gaps(self, definition: str) -> tuple[str, ...]:
        """Return a sentence for each condition of a definition that ran and did not take all of its results."""
        conditions = self._conditions.get(definition, [])
        return tuple(dict.fromkeys(entry.sentence for entry in conditions if entry.taken and entry.missing))

    def results(self) -> tuple[tuple[frozenset[str], Any], ...]:
        """Return what all conditions have taken so far."""
        return tuple((frozenset(condition.taken), condition.first) for condition in self._all())

    def take(self, results: tuple[tuple[frozenset[str], Any], ...]) -> None:
        """Go back to what `results` returned."""
        for condition, (taken, first) in zip(self._all(), results, strict=True):
            condition.taken, condition.first = set(taken), first

    def _all(self) -> list[Condition]:
        return [condition for conditions in self._conditions.values() for condition in conditions]

    def __enter__(self) -> Conditions:
        stack = ExitStack()
        for name, conditions in self._conditions.items():
            if any(entry.missing for entry in conditions):
                stack.enter_context(running(self._reporting(name)))
        self._stacks.append(stack)
        return self

    def __exit__(self, *_: object) -> None:
        self._stacks.pop().close()

    def _prepare(self, change: Change, other: ModuleType) -> None:
        name = change.definition
        node, before = definition_node(self._module, name), definition_node(other, name)
        if node is None:
            return
        known = Counter(map(_shape, _conditions_of(before))) if before is not None else Counter[str]()
        own = Counter(map(_shape, _conditions_of(node)))
        reporting = _Reporting(change, frozenset(shape for shape in own if own[shape] > known[shape]))
        edited = copy.deepcopy(node)
        reporting.visit(edited)
        if reporting.conditions:
            self._conditions[name] = reporting.conditions
            self._edited[name] = ast.fix_missing_locations(edited)

    def _reporting(self, name: str) -> dict[FunctionType, CodeType]:
        """Return the reporting code of a definition's functions as they are now: a definition may be restored."""
        value = vars(self._module).get(name.partition("#")[0])
        key = name, id(value)
        if key not in self._codes:
            codes = compile_definition(self._edited[name], self._module)
            self._codes[key] = replacements(value, codes, str(self._module.__file__))
        return self._codes[key]

    def _record(self, name: str, number: int, value: Any) -> Any:
        condition = self._conditions[name][number]
        if isinstance(value, _SYMBOLS):
            condition.taken.add(_RAN)
        elif condition.wanted == GIVEN:
            condition.taken.update(GIVEN if value is not None else (_RAN,))
        elif VARIED[0] in condition.wanted:
            condition.taken.update(_variety(value, condition.first if condition.taken else value))
            condition.first = value if VARIED[0] not in condition.taken else None
        else:
            condition.taken.update(_truth_of(value))
        return value

    def _binary(self, name: str, number: int, operation: str, left: Any, right: Any) -> Any:
        """Compute with two operands, and note whether plain numbers among them change the other one."""
        result = _OPERATIONS[operation](left, right)
        condition, numbers = self._conditions[name][number], (torch.Tensor, int, float)
        if isinstance(left, _SYMBOLS) or isinstance(right, _SYMBOLS):
            return result
        if not isinstance(left, numbers) or not isinstance(right, numbers):
            condition.taken.update(condition.wanted)
            return result
        if condition.wanted == WRAPPED:
            condition.taken.update(WRAPPED[1:] * _differs(result, left))
            return self._record(name, number, result)
        condition.taken.add(_RAN)
        neutral = 0 if operation in ("Add", "Sub") else 1
        condition.taken.update((OTHER_THAN_FIRST,) * (isinstance(right, torch.Tensor) or right != neutral))
        condition.taken.update((OTHER_THAN_SECOND,) * (isinstance(left, torch.Tensor) or left != neutral))
        return result

    def _call(self, name: str, number: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        condition = self._conditions[name][number]
        owner = getattr(function, "__self__", None)
        operands = (owner, *args) if isinstance(owner, torch.Tensor) else args
        condition.taken.update(
            _choice_of(operands, result) if condition.wanted == CHOICE else _moves(operands, result)
        )
        return result


def _truth_of(value: Any) -> Iterator[str]:
    """Yield whether a condition was true, was false, or was both for different elements."""
    if isinstance(value, torch.Tensor):
        if value.numel() and value.device.type == "cpu":
            truth = value.detach() != 0
            yield from TRUTH[:1] * bool(truth.any())
            yield from TRUTH[1:] * (not bool(truth.all()))
    elif isinstance(value, bool | int | float):
        yield TRUTH[0] if value else TRUTH[1]


def _variety(value: Any, first: Any) -> Iterator[str]:
    """Yield whether a value has elements that differ, or is another than the first one that was seen."""
    yield _RAN
    if isinstance(value, torch.Tensor):
        flat = value.detach().flatten()
        if flat.numel() and flat.device.type == "cpu" and bool((flat != flat[0]).any()):
            yield from VARIED
        value = flat[0].item() if flat.numel() and flat.device.type == "cpu" else None
    if isinstance(first, torch.Tensor):
        first = first.flatten()[0].item() if first.numel() and first.device.type == "cpu" else value
    if not isinstance(value, bool | int | float | str | None.__class__) or value != first:
        yield from VARIED


def _choice_of(operands: tuple[Any, ...], result: Any) -> Iterator[str]:
    """Yield which of two operands were the result; both for what is no choice: a minimum along a dimension."""
    numbers = (torch.Tensor, int, float)
    if len(operands) != 2 or not all(isinstance(value, numbers) for value in (*operands, result)):
        yield from CHOICE
        return
    yield _RAN
    first, second = operands
    yield from CHOICE[:1] * _differs(result, second)
    yield from CHOICE[1:] * _differs(result, first)


def _moves(operands: tuple[Any, ...], result: Any) -> Iterator[str]:
    """Yield whether a bound raised or lowered an element of the first operand."""
    yield _RAN
    if operands and isinstance(operands[0], torch.Tensor) and isinstance(result, torch.Tensor):
        value = operands[0]
        if value is result:
            yield from (RAISED, LOWERED, PASSED)  # in place: what it was is gone
        elif value.shape == result.shape:
            yield from (RAISED,) * bool((result > value).any())
            yield from (LOWERED,) * bool((result < value).any())
            yield from (PASSED,) * bool(((result == value) & (result != 0) & torch.isfinite(result)).any())


def _differs(result: Any, operand: Any) -> bool:
    return bool(torch.as_tensor(result != operand).any())


class _Reporting(ast.NodeTransformer):
    """Wraps the conditions of changed lines into calls that report their results.

    Tests of `if`, `while` and conditional expressions are left out: both of their sides have to run anyway. The
    operands of `and` and `or` in a test are conditions like others.
    """

    def __init__(self, change: Change, shapes: frozenset[str]) -> None:
        self.conditions: list[Condition] = []
        self._change, self._shapes = change, shapes

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Report whether the parameters that decide what changed lines compute, and default to None, are given."""
        reports: list[ast.stmt] = []
        for name in deciding_parameters(node, self._change.statements):
            value = ast.copy_location(ast.Name(name, ast.Load()), node)
            reports.append(ast.Expr(self._recorded(value, name, GIVEN)))
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
        new, text = self._is_new(node), ast.unparse(node)
        self.generic_visit(node)
        return self._operated(node, text, wanted) if new else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Report the operands that decide: of `or` the last is a result."""
        new = self._is_new(node)
        deciding = node.values if isinstance(node.op, ast.And) else node.values[:-1]
        texts = {id(value): ast.unparse(value) for value in deciding if new and not _reports_itself(value)}
        node.values = [
            self._recorded(self.visit(value), texts[id(value)]) if id(value) in texts else self.visit(value)
            for value in node.values
        ]
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self._visit_predicate(node) if _is_step(node) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if _called(node) in _PREDICATES or _is_step(node):
            return self._visit_predicate(node)
        wanted, mask = _required_results(node), _mask_of(node)
        if not self._is_new(node) or (not wanted and mask is None):
            return self.generic_visit(node)
        text = ast.unparse(node)
        if wanted:
            number = self._add(node.lineno, text, wanted)
            self.generic_visit(node)
            arguments = [ast.Constant(self._change.definition), ast.Constant(number), node.func, *node.args]
            return ast.copy_location(ast.Call(ast.Name(_CALL, ast.Load()), arguments, node.keywords), node)
        assert mask is not None
        shown, reported = ast.unparse(node.args[mask]), _is_predicate(node.args[mask])
        self.generic_visit(node)
        if not reported:
            node.args[mask] = self._recorded(node.args[mask], shown)
        return node

    def _visit_without_test(self, node: ast.If | ast.While | ast.IfExp) -> ast.AST:
        test = node.test
        node.test = ast.Constant(True)
        self.generic_visit(node)
        node.test = self.visit(test) if isinstance(test, ast.BoolOp) else test
        return node

    def _visit_predicate(self, node: ast.expr) -> ast.AST:
        text, wanted = ast.unparse(node), VARIED if _is_step(node) else TRUTH
        new = self._is_new(node)
        self.generic_visit(node)
        return self._recorded(node, text, wanted) if new else node

    def _recorded(self, node: ast.expr, text: str, wanted: tuple[str, ...] = TRUTH) -> ast.expr:
        number = self._add(node.lineno, text, wanted)
        arguments = [ast.Constant(self._change.definition), ast.Constant(number), node]
        return ast.copy_location(ast.Call(ast.Name(_RECORD, ast.Load()), arguments, []), node)

    def _operated(self, node: ast.BinOp, text: str, wanted: tuple[str, ...]) -> ast.expr:
        where = [ast.Constant(self._change.definition), ast.Constant(self._add(node.lineno, text, wanted))]
        arguments = [*where, ast.Constant(type(node.op).__name__), node.left, node.right]
        return ast.copy_location(ast.Call(ast.Name(_BINARY, ast.Load()), arguments, []), node)

    def _add(self, line: int, text: str, wanted: tuple[str, ...]) -> int:
        self.conditions.append(Condition(line, text[:_TEXT], wanted))
        return len(self.conditions) - 1

    def _is_new(self, node: ast.expr) -> bool:
        changed = any(start <= node.lineno <= end for start, end in self._change.statements)
        return changed and _shape(node) in self._shapes


def _conditions_of(definition: ast.AST) -> Iterator[ast.expr]:
    expressions = (node for node in ast.walk(definition) if isinstance(node, ast.expr))
    kinds = (_is_predicate, _is_step, _bounds_or_chooses, _is_boolean, _required_of_operands)
    return (node for node in expressions if any(kind(node) for kind in kinds))


def _is_step(node: ast.expr) -> bool:
    """Whether an expression may have one value over a wide range: a whole quotient, a rounded or looked-up number."""
    match node:
        case ast.BinOp(left, ast.FloorDiv() | ast.Mod() | ast.RShift(), right):
            return not (isinstance(left, ast.Constant) and isinstance(left.value, str | bytes)) and not (
                isinstance(left, ast.Constant) and isinstance(right, ast.Constant)
            )
        case ast.Subscript(ast.Dict(), key, ast.Load()):
            return not isinstance(key, ast.Constant)
        case ast.Call(ast.Attribute(_, "get"), [key, *_]):
            return not isinstance(key, ast.Constant)
        case ast.Call():
            return _called(node) in _STEPS
    return False


def _is_boolean(node: ast.expr) -> bool:
    return isinstance(node, ast.BoolOp)


def _reports_itself(node: ast.expr) -> bool:
    """Whether a condition is reported where it is visited, or is none."""
    return _is_predicate(node) or isinstance(node, ast.BoolOp | ast.Constant)


def _required_of_operands(node: ast.expr) -> tuple[str, ...]:
    """Return what has to happen at a sum, product or remainder, so that a lost operand shows; nothing elsewhere.

    A remainder has to take two values and to be less than its first operand at some time. A plain number that is added
    is not always 0, one that is multiplied or divided by not always 1.
    """
    match node:
        case ast.BinOp(op=ast.Mod()):
            return WRAPPED if _is_step(node) else ()
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as op, right):
            first = (OTHER_THAN_FIRST,) * (not isinstance(right, ast.Constant))
            second = isinstance(op, ast.Add | ast.Mult) and not isinstance(left, ast.Constant)
            return first + (OTHER_THAN_SECOND,) * second
    return ()


def _bounds_or_chooses(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and (bool(_required_results(node)) or _mask_of(node) is not None)


def _is_predicate(node: ast.expr) -> bool:
    negation = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return negation or isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and _called(node) in _PREDICATES)


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _on_namespace(node: ast.Call) -> bool:
    """Whether a call is of a function of torch and not of a method."""
    owner = getattr(node.func, "value", None)
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return not isinstance(node.func, ast.Attribute) or name in _NAMESPACES


def _required_results(node: ast.Call) -> tuple[str, ...]:
    """Return what has to happen at a call that bounds its input or chooses between two; nothing for other calls."""
    name, starred = _called(node), any(isinstance(argument, ast.Starred) for argument in node.args)
    if name in _CHOICES:
        return CHOICE if 1 <= len(node.args) <= 2 and not node.keywords and not starred else ()
    if name in _RECTIFIERS and not starred and (node.args or not _on_namespace(node)):
        return RAISED, PASSED
    if name not in _LOWER | _UPPER or starred:
        return ()
    bounds = node.args[1 if _on_namespace(node) else 0 :]
    names = {str(keyword.arg).removesuffix("_val"): keyword.value for keyword in node.keywords}
    alone = name.rstrip("_").endswith(("_min", "_max"))
    first, second = (bounds[:1], bounds[:1]) if alone else (bounds[:1], bounds[1:2])
    low = [*first, *([names["min"]] if "min" in names else [])] if name in _LOWER else []
    high = [*second, *([names["max"]] if "max" in names else [])] if name in _UPPER else []
    return (RAISED,) * any(map(_is_finite, low)) + (LOWERED,) * any(map(_is_finite, high))


def _is_finite(bound: ast.expr) -> bool:
    """Whether a bound may move a value: it is neither None nor infinite."""
    value = bound.value if isinstance(bound, ast.Constant) else 0.0
    return value is not None and not (isinstance(value, float) and math.isinf(value))


def _mask_of(node: ast.Call) -> int | None:
    """Return the position of the argument that chooses between values, or None for other calls."""
    name = _called(node)
    place = {"where": 0, "masked_fill": int(_on_namespace(node)), "masked_fill_": 0}.get(name)
    present = place is not None and len(node.args) > place + 1
    return place if present and not any(isinstance(argument, ast.Starred) for argument in node.args) else None


def _shape(node: ast.expr) -> str:
    """Return a condition in a form that does not depend on the names of variables."""
    anonymous = copy.deepcopy(node)
    for inner in ast.walk(anonymous):
        if isinstance(inner, ast.Name):
            inner.id = "_"
    return ast.dump(anonymous)
