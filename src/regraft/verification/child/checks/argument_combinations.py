"""Make variants of a recorded call in which several arguments that changed lines read have another
value at once, and note which of these arguments were given together."""

from __future__ import annotations

import ast
import inspect
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute, frames_of
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.checks.argument_reads import ArgumentReads
from regraft.verification.child.checks.argument_variants import (
    bound_arguments,
    other_plain_values,
    with_argument,
)
from regraft.verification.child.checks.code_replacement import syntax_tree
from regraft.verification.child.checks.mask_variants import strong_masks
from regraft.verification.child.checks.optional_values import changes_result, values_for
from regraft.verification.child.drivers.field_tables import CHANCE_FIELDS

NAMES = 6  # the most arguments that change together with others
_ALL = 4  # up to this number of arguments, all combinations are tried
_CONDITION = 5  # the most arguments of one condition that change together
_COMBINED = 24  # the most calls that are made of one call
_ACCEPTED = 3  # the most calls in which the same arguments have another value
_VALUES, _TRIED = 4, 16  # the most values of an argument in combinations, and those tried alone
_TRIALS = 16  # the most runs of the original for one set of arguments
_SECONDS = 4.0  # of processor time, for the trials of one call


@dataclass(slots=True)
class Combinations:
    """The calls in which several arguments have another value, and by their names the sets of
    arguments that the original itself refuses together, each with a call that it refused."""

    calls: list[Call] = field(default_factory=list)
    refused: dict[frozenset[str], Call] = field(default_factory=dict)


def combined_calls(call: Call, target: Target, reads: ArgumentReads) -> Combinations:
    """Return calls in which two or more of the arguments that changed lines read have another value
    than in a recorded call of `target`, the original, which accepts them; and calls that leave out
    an argument that may be left out.

    At most `NAMES` arguments are combined: all sets of them where there are at most `_ALL`, else
    all pairs, and those sets that one condition reads. A set has at most `_ACCEPTED` calls; no
    further set is tried after `_COMBINED` calls, or after `_SECONDS` of processor time. An argument
    that is None gets masks, tensors and numbers, any other the values of `other_plain_values`, or
    its default. A set of which the original accepted no values that were tried is in `refused`, if
    its own code refuses them. The result is empty where the arguments of `call` do not fit.
    """
    search = _search_of(call, target, reads)
    combinations = Combinations()
    if search is None:
        return combinations
    combinations.calls += search.calls_without_arguments()
    for names in _sets_of(search.names, reads):
        if len(combinations.calls) >= _COMBINED or search.is_late():
            break
        combinations.calls += search.accepted_calls(names, combinations.refused)
    return combinations


def single_calls(call: Call, target: Target, reads: ArgumentReads) -> list[Call]:
    """Return for each argument that changed lines read a call with another value of it that the
    original, `target`, accepts; those for which there is none are left out."""
    search = _search_of(call, target, reads)
    if search is None:
        return []
    calls = (search.accepted_calls((name,), {})[:1] for name in search.names)
    return list(itertools.chain.from_iterable(calls))


def changed_names(call: Call, function: Any, reads: ArgumentReads) -> frozenset[str]:
    """Return which of the arguments that changed lines read a call gives another value than their
    default; one without a default counts unless it is False or None. Empty where the arguments do
    not fit the function."""
    bound = bound_arguments(call, function)
    if bound is None:
        return frozenset()
    return frozenset(
        name
        for name in reads.names
        if name in bound.arguments
        and not _is_same(bound.arguments[name], _default_of(bound.signature.parameters[name]))
    )


def sets_read_together(names: frozenset[str], reads: ArgumentReads) -> tuple[frozenset[str], ...]:
    """Return the pairs of those of some arguments that changed lines name themselves, and the sets
    of three or more that a condition names."""
    direct = sorted(names & reads.direct)
    pairs = (frozenset(pair) for pair in itertools.combinations(direct, 2))
    conditions = (condition & names for condition in reads.conditions)
    return (*pairs, *sorted((c for c in conditions if len(c) > 2), key=sorted))


def optional_names(call: Call, function: Any, reads: ArgumentReads) -> tuple[str, ...]:
    """Return those of the arguments that changed lines read that may be left out, or are flags, in
    a call; rates of chance and modes are left out."""
    bound = bound_arguments(call, function)
    if bound is None:
        return ()
    parameters = bound.signature.parameters
    return tuple(
        name
        for name in reads.names
        if name in parameters
        and not (name in CHANCE_FIELDS or "training" in name)
        and (
            parameters[name].default is not inspect.Parameter.empty
            or isinstance(bound.arguments.get(name, 0), bool | None)
        )
    )


def _sets_of(names: tuple[str, ...], reads: ArgumentReads) -> Iterator[tuple[str, ...]]:
    """Yield the sets of arguments that change together: the pairs, then the larger sets, of all
    names where there are at most `_ALL`, else of those names that one condition reads."""
    yield from itertools.combinations(names, 2)
    if len(names) <= _ALL:
        for size in range(3, len(names) + 1):
            yield from itertools.combinations(names, size)
        return
    for condition in sorted(reads.conditions, key=sorted):
        members = tuple(name for name in names if name in condition)
        for size in range(3, min(len(members), _CONDITION) + 1):
            yield from itertools.combinations(members, size)


def _search_of(call: Call, target: Target, reads: ArgumentReads) -> _Search | None:
    """Return the search for values of at most `NAMES` arguments of a call; None where there are
    none."""
    bound = bound_arguments(call, target.callable)
    names = optional_names(call, target.callable, reads)[:NAMES]
    if bound is None or not names:
        return None
    signature = bound.signature
    bound.apply_defaults()
    return _Search(call, target, signature, dict(bound.arguments), names)


@dataclass(slots=True)
class _Search:
    """A search for values of some arguments of a call that the original accepts together.

    `values` are those to combine, by name; `outcome` is that of the call itself.
    """

    call: Call
    target: Target
    signature: inspect.Signature
    arguments: dict[str, Any]
    names: tuple[str, ...]
    values: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    outcome: Outcome | None = None
    deadline: float = field(default_factory=lambda: time.process_time() + _SECONDS)

    def is_late(self) -> bool:
        """Return whether the time of the search is up."""
        return time.process_time() > self.deadline

    def accepted_calls(
        self, names: tuple[str, ...], refused: dict[frozenset[str], Call]
    ) -> list[Call]:
        """Return at most `_ACCEPTED` calls with other values of all arguments `names` that the
        original accepts, after at most `_TRIALS` runs. A set without such a call that the
        original's own code refuses is added to `refused`."""
        accepted: list[Call] = []
        products = itertools.product(*(enumerate(self._values_of(name)) for name in names))
        ordered = sorted(products, key=lambda product: sum(number for number, _ in product))
        for product in ordered[:_TRIALS]:
            if len(accepted) == _ACCEPTED or self.is_late():
                break
            values = dict(zip(names, (value for _, value in product), strict=True))
            candidate = self._call_with(values)
            outcome = self._run(candidate)
            if outcome.error is None:
                accepted.append(candidate)
            elif not accepted and _is_refusal(outcome.error, names, self.target):
                refused.setdefault(frozenset(names), candidate)
        if accepted:
            refused.pop(frozenset(names), None)
        return accepted

    def calls_without_arguments(self) -> list[Call]:
        """Return a call for each argument that has another value than its default, with the
        default, where the original accepts it."""
        defaults = {name: _default_of(self.signature.parameters[name]) for name in self.names}
        calls = (
            self._call_with({name: default})
            for name, default in defaults.items()
            if not _is_same(self.arguments[name], default)
        )
        return [call for call in calls if self._run(call).error is None]

    def _call_with(self, values: dict[str, Any]) -> Call:
        """Return the call with other values of some arguments, and a label that says so."""
        changed = self.call
        for name, value in values.items():
            changed = with_argument(changed, self.signature, name, value)
        label = " and ".join(f"{name} {_shown(value)}" for name, value in values.items())
        return replace(changed, label=label, beyond="arguments")

    def _run(self, call: Call) -> Outcome:
        """Return the outcome of the original without gradients."""
        return execute(self.target, call, Plan(gradients=False))

    def _values_of(self, name: str) -> tuple[Any, ...]:
        """Return at most `_VALUES` other values of an argument: those that change the results come
        first, then those that the original accepts alone; the default comes before all."""
        if name not in self.values:
            self.values[name] = self._ranked_values(name)
        return self.values[name]

    def _ranked_values(self, name: str) -> tuple[Any, ...]:
        """Return the values of `_values_of`, after the original has run with those to choose
        from."""
        parameter, value = self.signature.parameters[name], self.arguments[name]
        candidates = list(itertools.islice(self._candidates(parameter, value), _TRIED))
        if len(candidates) <= _ACCEPTED:
            return tuple(candidates)
        if self.outcome is None:
            self.outcome = self._run(self.call)
        ranks: list[tuple[int, int]] = []
        for number, candidate in enumerate(candidates):
            if self.is_late() or [rank for rank, _ in ranks].count(0) == _VALUES:
                break
            outcome = self._run(self._call_with({name: candidate}))
            rank = 2
            if outcome.error is None:
                rank = 0 if changes_result(self.outcome, outcome) else 1
            ranks.append((rank, number))
        return tuple(candidates[number] for _, number in sorted(ranks)[:_VALUES])

    def _candidates(self, parameter: inspect.Parameter, value: Any) -> Iterator[Any]:
        """Yield other values of a parameter: its default, masks, plain values, then tensors."""
        default = _default_of(parameter)
        if not _is_same(value, default):
            yield default
        if value is None:
            if parameter.name.endswith("mask"):
                yield from strong_masks(self.call)
            described = values_for(parameter, self.call, self.target.module)
            yield from (candidate for _, candidate in described)
            if parameter.annotation is inspect.Parameter.empty or "bool" in str(
                parameter.annotation
            ):
                yield True
        else:
            yield from (
                candidate
                for candidate in other_plain_values(parameter, value, self.target.callable)
                if not _is_same(candidate, default) or isinstance(value, bool)
            )


def _default_of(parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter; False for one without."""
    return False if parameter.default is inspect.Parameter.empty else parameter.default


def _is_same(value: Any, default: Any) -> bool:
    """Return whether an argument is None, a flag, a number or a string and equal to a default."""
    if value is None or default is None:
        return value is default
    return isinstance(value, bool | int | float | str) and bool(value == default)


def _shown(value: Any) -> str:
    """Return a value in words for a label: shape and format of a tensor, the repr of another."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"given, shape {list(shape)}, {str(value.dtype).removeprefix('torch.')}"
    return f"= {value!r}"[:60] if isinstance(value, bool | int | float | str | None) else "given"


def _is_refusal(error: BaseException, names: Sequence[str], target: Target) -> bool:
    """Return whether an error comes from a `raise` or `assert` of the original's file for a test
    that reads all arguments `names`: they do not go together."""
    path = str(getattr(target.scope, "__file__", ""))
    frames = frames_of(error)
    if not frames or frames[-1].filename != path:
        return False
    line = frames[-1].lineno or 0
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.If | ast.Assert) and any(
            isinstance(part, ast.Raise | ast.Assert)
            and part.lineno <= line <= (part.end_lineno or part.lineno)
            for part in ast.walk(node)
        ):
            read = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
            if read >= set(names):
                return True
    return False
