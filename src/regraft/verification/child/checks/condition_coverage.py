"""Check that the conditions in arithmetic of changed lines take every result: comparisons, masks,
bounds and minima.

A branch that never ran shows in the lines; `x * (1 - 0.1 * (n > 64))` does not. Functions with such
conditions run from a syntax tree in which each condition reports its results.
"""

from __future__ import annotations

import ast
import copy
import operator
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from regraft.verification.child.checks.code_replacement import (
    compile_definition,
    definition_node,
    edited_codes,
    replace_code,
)
from regraft.verification.child.checks.condition_instrumentation import (
    BINARY,
    CALL,
    COMPARE,
    DIFFER,
    RECORD,
    UNLIKE,
    Condition,
    ReportingTransformer,
)
from regraft.verification.child.checks.condition_kinds import (
    CHOICE,
    PRESENT,
    SPANNED,
    TIED,
    TRUTH,
    UNLIKE_FIRST,
    UNLIKE_SECOND,
    VARIED,
    WRAPPED,
    anonymous_form,
    conditions_of,
    functions_along_other_dimensions,
    order_operands,
)
from regraft.verification.child.checks.condition_results import (
    NUMBERS,
    RAN,
    any_differs,
    bound_results,
    choice_results,
    span_results,
    truth_results,
    variety_results,
)
from regraft.verification.child.checks.exchanged_names import (
    exchanged_names,
    have_differed,
    value_in,
)
from regraft.verification.child.checks.fixed_values import fixed_expressions, is_unlike
from regraft.verification.child.checks.replaced_roundings import (
    ROUNDED,
    replaced_roundings,
    rounding_results,
)
from regraft.verification.child.checks.tensor_equivalence import (
    NEITHER,
    NUMERIC,
    callable_torch_functions,
)
from regraft.verification.definition_changes import Change
from regraft.verification.top_level_definitions import Definition

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Mod": operator.mod,
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
}
_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
}
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)  # the numbers of a run with symbolic sizes


class Conditions:
    """The new conditions in the changed lines of one version of a file; as a context manager it
    records results, of the definitions that still miss some or are the same program on tensors.
    The context may be entered several times."""

    def __init__(
        self,
        module: ModuleType,
        changes: tuple[Change, ...],
        counterpart: ModuleType,
        late: Mapping[str, frozenset[str]] | None = None,
        *,
        by_hand: bool = False,
        is_original: bool = False,
        equal_for_tensors: frozenset[str] = frozenset(),
    ) -> None:
        """Prepare the conditions of `module` that `counterpart`, the second version, lacks, and add
        the functions that report results to the variables of `module`.

        late: by definition, the attributes of which changed lines have to read a second value.
        by_hand: whether functions that `counterpart` calls along another dimension have to see
        several elements along theirs, roundings that it lacks numbers that others round
        differently, and variables another value than those in whose place they stand.
        is_original: whether `module` is the original: then, for a change by hand, expressions have
        to have another value than the literals that the changed version has in their place.
        equal_for_tensors: definitions that are the same program where the operands of their new
        expressions are tensors, as `are_equal_for_tensors` decides.
        """
        self._module, self._late = module, late or {}
        self._by_hand, self._is_original = by_hand, is_original
        self._equal_for_tensors = equal_for_tensors
        self._conditions: dict[str, list[Condition]] = {}
        self._edited: dict[str, Definition] = {}
        self._codes: dict[tuple[str, int], dict[FunctionType, CodeType]] = {}
        self._stacks: list[ExitStack] = []
        for change in changes:
            self._prepare(change, counterpart)
        vars(module).update(
            {
                RECORD: self._record_result,
                CALL: self._record_call,
                BINARY: self._record_operation,
                COMPARE: self._record_comparison,
                DIFFER: self._record_difference,
                UNLIKE: self._record_unlike,
            }
        )

    def gaps(self, definition: str) -> tuple[str, ...]:
        """Return a sentence for each condition of a definition that ran and did not take all of its
        results, without duplicates.

        Return () for a definition without new conditions, and for one that is the same program on
        tensors and ran on nothing else.
        """
        if self.has_shown_equality(definition):
            return ()
        conditions = self._conditions.get(definition, [])
        return tuple(
            dict.fromkeys(
                condition.sentence
                for condition in conditions
                if condition.results and condition.missing and not condition.is_of_type
            )
        )

    def absent_arguments(self, definition: str) -> frozenset[str]:
        """Return the parameters that decide what changed lines of a definition compute and never
        were given, where `gaps` has a sentence for them."""
        if self.has_shown_equality(definition):
            return frozenset()
        conditions = self._conditions.get(definition, [])
        return frozenset(
            condition.text
            for condition in conditions
            if condition.required == PRESENT and condition.results and condition.missing
        )

    def has_shown_equality(self, definition: str) -> bool:
        """Return whether a definition is the same program on tensors in both versions, and the
        operands of its new expressions in this version all ran and were nothing else."""
        conditions = self._conditions.get(definition, [])
        return definition in self._equal_for_tensors and _ran_on_tensors_only(conditions)

    def results(self) -> tuple[tuple[frozenset[str], Any], ...]:
        """Return, for each condition, the results that it has taken so far and its first value."""
        return tuple(
            (frozenset(condition.results), condition.first_value)
            for condition in self._all_conditions()
        )

    def restore_results(self, results_before: tuple[tuple[frozenset[str], Any], ...]) -> None:
        """Set the results of all conditions back to what `results` returned before."""
        for condition, (results, first_value) in zip(
            self._all_conditions(), results_before, strict=True
        ):
            condition.results, condition.first_value = set(results), first_value

    def _all_conditions(self) -> list[Condition]:
        """Return the conditions of all definitions in one list."""
        return [condition for conditions in self._conditions.values() for condition in conditions]

    def __enter__(self) -> Conditions:
        """Replace the code of the functions that still report something by code that does."""
        stack = ExitStack()
        for name, conditions in self._conditions.items():
            reports_types = name in self._equal_for_tensors
            if reports_types or any(condition.missing for condition in conditions):
                stack.enter_context(replace_code(self._reporting_codes(name)))
        self._stacks.append(stack)
        return self

    def __exit__(self, *_: object) -> None:
        """Put back the code that the last `__enter__` replaced."""
        self._stacks.pop().close()

    def _prepare(self, change: Change, counterpart: ModuleType) -> None:
        """Store, for a definition, the conditions of its changed lines that occur more often than
        in the counterpart, and a copy of the definition in which these conditions report their
        results.

        Stores nothing where no condition is new, or the definition is missing.
        """
        name = change.definition
        node, counterpart_node = (
            definition_node(self._module, name),
            definition_node(counterpart, name),
        )
        if node is None:
            return
        counterpart_counts = (
            Counter(map(anonymous_form, conditions_of(counterpart_node)))
            if counterpart_node is not None
            else Counter[str]()
        )
        own_counts = Counter(map(anonymous_form, conditions_of(node)))
        expressions = ast.walk(counterpart_node) if counterpart_node is not None else ()
        ordered = {order_operands(node) for node in expressions if isinstance(node, ast.expr)}
        turned, rounding, exchanged, fixed = frozenset[str](), frozenset[str](), {}, {}
        if self._by_hand and counterpart_node is not None:
            turned = functions_along_other_dimensions(node, counterpart_node)
            rounding = replaced_roundings(node, counterpart_node)
            exchanged = exchanged_names(node, counterpart_node)
            fixed = fixed_expressions(node, counterpart_node) if self._is_original else {}
        transformer = ReportingTransformer(
            change,
            frozenset(form for form in own_counts if own_counts[form] > counterpart_counts[form]),
            frozenset(ordered - {frozenset()}),
            self._late.get(name, frozenset()),
            turned,
            rounding,
            callable_torch_functions(self._module, node)
            if name in self._equal_for_tensors
            else None,
            exchanged,
            fixed,
        )
        edited = copy.deepcopy(node)
        transformer.visit(edited)
        if transformer.conditions:
            self._conditions[name] = transformer.conditions
            self._edited[name] = ast.fix_missing_locations(edited)

    def _reporting_codes(self, name: str) -> dict[FunctionType, CodeType]:
        """Return by function the reporting code of the functions that a definition has at present:
        once the definition is reverted, they are new functions. Cached for each object."""
        value = vars(self._module).get(name.partition("#")[0])
        key = name, id(value)
        if key not in self._codes:
            codes = compile_definition(self._edited[name], self._module)
            self._codes[key] = edited_codes(value, codes, str(self._module.__file__))
        return self._codes[key]

    def _record_result(self, name: str, number: int, value: Any) -> Any:
        """Note the result of a condition by its value, and return the value; a symbolic number only
        notes that the condition ran."""
        condition = self._conditions[name][number]
        if isinstance(value, _SYMBOLS):
            condition.results.add(RAN)
        elif condition.required == PRESENT:
            condition.results.update(PRESENT if value is not None else (RAN,))
        elif condition.is_of_type:
            types = NUMBERS if condition.required == NUMERIC else torch.Tensor
            condition.results.update(condition.required if isinstance(value, types) else (NEITHER,))
        elif VARIED[0] in condition.required:
            condition.results.update(
                variety_results(value, condition.first_value if condition.results else value)
            )
            condition.first_value = value if VARIED[0] not in condition.results else None
        else:
            condition.results.update(truth_results(value))
        return value

    def _record_operation(
        self, name: str, number: int, operation: str, first: Any, second: Any
    ) -> Any:
        """Return the result of an operation on two operands, and note whether plain numbers among
        them change the other operand. Symbolic numbers note nothing, operands that are no numbers
        all results."""
        result = _OPERATIONS[operation](first, second)
        condition = self._conditions[name][number]
        if isinstance(first, _SYMBOLS) or isinstance(second, _SYMBOLS):
            return result
        if not isinstance(first, NUMBERS) or not isinstance(second, NUMBERS):
            condition.results.update(condition.required)
            return result
        if condition.required == WRAPPED:
            condition.results.update(WRAPPED[1:] * any_differs(result, first))
            return self._record_result(name, number, result)
        neutral = 0 if operation in ("Add", "Sub") else 1
        condition.results.add(RAN)
        if isinstance(second, torch.Tensor) or second != neutral:
            condition.results.add(UNLIKE_FIRST)
        if isinstance(first, torch.Tensor) or first != neutral:
            condition.results.add(UNLIKE_SECOND)
        return result

    def _record_comparison(
        self, name: str, number: int, operation: str, first: Any, second: Any
    ) -> Any:
        """Return the result of a comparison by order, and note whether an element of one operand is
        equal to its counterpart. Symbolic numbers, and tensors that cannot be read, only note that
        the condition ran, operands that are no numbers all results."""
        result = _ORDERS[operation](first, second)
        condition = self._conditions[name][number]
        condition.results.add(RAN)
        if isinstance(first, _SYMBOLS) or isinstance(second, _SYMBOLS):
            return result
        are_numbers = isinstance(first, NUMBERS) and isinstance(second, NUMBERS)
        if not are_numbers or TRUTH[0] in truth_results(first == second):
            condition.results.update(TIED)
        return result

    def _record_difference(self, name: str, number: int, other_name: str, value: Any) -> Any:
        """Note whether the value of a variable differs from that of another one, or the other one
        has none yet, and return the value; a symbolic number only notes that the condition ran."""
        condition = self._conditions[name][number]
        condition.results.add(RAN)
        if condition.missing and not isinstance(value, _SYMBOLS):
            try:
                differs = have_differed(value, value_in(sys._getframe(1), other_name))
            except LookupError:
                differs = True
            condition.results.update(condition.required * differs)
        return value

    def _record_unlike(self, name: str, number: int, fixed: Any, value: Any) -> Any:
        """Note whether the value of an expression is another one than a fixed value, and return the
        value; a symbolic number only notes that the condition ran."""
        condition = self._conditions[name][number]
        condition.results.add(RAN)
        if not isinstance(value, _SYMBOLS):
            condition.results.update(condition.required * is_unlike(value, fixed))
        return value

    def _record_call(
        self, name: str, number: int, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Call a function that chooses or bounds, note in condition `number` of definition `name`
        what it did to its operands, and return its result."""
        result = function(*args, **kwargs)
        condition = self._conditions[name][number]
        owner = getattr(function, "__self__", None)
        operands = (owner, *args) if isinstance(owner, torch.Tensor) else args
        if condition.required == SPANNED:
            condition.results.update(span_results(operands, kwargs))
        elif not ROUNDED.isdisjoint(condition.required):
            condition.results.update(rounding_results(operands, result))
            return self._record_result(name, number, result)
        elif condition.required == CHOICE:
            condition.results.update(choice_results(operands, result))
        else:
            condition.results.update(bound_results(operands, result))
        return result


def _ran_on_tensors_only(conditions: list[Condition]) -> bool:
    """Return whether the operands that report their types all ran, and were tensors or numbers as
    required each time; True where none reports its type."""
    return all(
        not condition.missing and NEITHER not in condition.results
        for condition in conditions
        if condition.is_of_type
    )
