"""Make variants of a recorded call in which parameters that default to None get values (states,
biases, positions, indices), or lose those that they have."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regraft.execution.compare import are_alike
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.checks.argument_variants import (
    bound_arguments,
    method_of,
    signature_of,
    varied_argument_calls,
    with_argument,
)
from regraft.verification.child.checks.arguments_in_source import unpacked_parts
from regraft.verification.child.checks.fitting_values import (
    feature_widths,
    pairs_like,
    tables_like,
    tensors_like,
    tuples_like,
)
from regraft.verification.child.checks.returned_values import returned_tensors, returned_tuples
from regraft.verification.child.drivers.field_tables import CHANCE_FIELDS

_PARAMETERS = 6  # the most parameters that get a value
_FLAGS = 3  # the most flags that are turned, one at a time
_ACCEPTED = 3  # the most values of a parameter that the original accepts
_BASES = 2  # the most parameters beside whose values others are tried that had no effect alone
_LISTED = re.compile(r"\b(?:[Ll]ist|[Ss]equence)\[int\]")
_INTEGER = re.compile(r"\bint\b")
_FRACTION = re.compile(r"\bfloat\b")
_PAIR = re.compile(r"\b[Tt]uple\[(torch\.)?Tensor, (torch\.)?Tensor\]")
_SEVERAL = re.compile(r"\b([Tt]uple|[Ll]ist|[Ss]equence)\[.*Tensor")
_NO_TENSORS = (
    "str",
    "int",
    "bool",
    "float",
    "dict",
    "Callable",
    "Cache",
    "tuple",
    "list",
    "Tuple",
    "List",
)


def optional_value_calls(call: Call, target: Target) -> Iterator[Call]:
    """Yield a call with a value for each of at most `_PARAMETERS` absent parameters, at most
    `_ACCEPTED` values each, where the original accepts it and its results change; each is followed
    by calls without a mask, which may hide the effect (these may be refused). Parameters without
    such a value, as the mask of a memory that is absent, too, get one beside those that have one.

    The value is a tensor whose shape follows from the other inputs; or a number, a list of one or a
    pair of tensors where the annotation names such. Where the original refuses two inputs together,
    the first integer tensor is left out (embeddings in the place of tokens), or the first mask
    (too short for a cache); where it refuses a tuple, all absent parameters of its annotation get
    it (the positions of queries and of keys).
    """
    trials = _trials_of(call, target)
    if trials is None:
        return
    parameters = trials.absent[:_PARAMETERS]
    accepted_calls: dict[str, Call] = {}
    for parameter in parameters:
        for candidate in itertools.islice(trials.accepted_calls(parameter), _ACCEPTED):
            accepted_calls.setdefault(parameter.name, candidate)
            yield candidate
            for name in trials.mask_names:
                unmasked = with_argument(candidate, trials.signature, name, None)
                label = f"{candidate.label}, without {name}"
                yield replace(unmasked, label=label, beyond="arguments")
    without_effect = [p for p in parameters if p.name not in accepted_calls]
    for base in itertools.islice(accepted_calls.values(), _BASES if without_effect else 0):
        yield from trials.calls_beside(base, without_effect)


def _trials_of(call: Call, target: Target) -> _Trials | None:
    """Return the trials of values for the absent parameters of a call; None where no parameter that
    may get a value is absent."""
    bound = bound_arguments(call, target.callable)
    if bound is None:
        return None
    signature, arguments = bound.signature, bound.arguments
    absent_parameters = [
        parameter
        for parameter in signature.parameters.values()
        if _can_get_value(parameter, arguments.get(parameter.name))
    ]
    if not absent_parameters:
        return None
    are_unpacked = any(map(_may_be_unpacked, absent_parameters))
    return _Trials(
        call,
        target,
        signature,
        execute(target, call, Plan(gradients=False)),
        list(_outputs_with_flags(call, target)) if are_unpacked else [],
        [name for name, value in arguments.items() if _is_integer(value)],
        [name for name in arguments if name.endswith("mask") and arguments[name] is not None],
        absent_parameters,
    )


def calls_without_options(call: Call, target: Target) -> Iterator[Call]:
    """Yield a call without the value of each of at most `_PARAMETERS` parameters that default to
    None, where the original accepts it and its results change."""
    bound = bound_arguments(call, target.callable)
    if bound is None:
        return
    given_names = [
        name
        for name, value in bound.arguments.items()
        if value is not None and bound.signature.parameters[name].default is None
    ]
    if not given_names:
        return
    outcome = execute(target, call, Plan(gradients=False))
    for name in given_names[:_PARAMETERS]:
        candidate = with_argument(call, bound.signature, name, None)
        outcome_without = execute(target, candidate, Plan(gradients=False))
        if outcome_without.error is None and changes_result(outcome_without, outcome):
            yield replace(candidate, label=f"{name} = None", beyond="arguments")


def _outputs_with_flags(call: Call, target: Target) -> Iterator[Mapping[str, Any]]:
    """Yield the results of the original, by path, with each of at most `_FLAGS` flags of a call
    turned: where such a flag asks for keys and values, a later call takes them."""
    parameters = signature_of(target.callable).parameters.values()
    flags = frozenset(p.name for p in parameters if isinstance(p.default, bool))
    flagged_calls = varied_argument_calls(call, target.callable, flags)
    for flagged_call in itertools.islice(flagged_calls, _FLAGS):
        outcome = execute(target, flagged_call, Plan(gradients=False))
        if outcome.error is None:
            yield outcome.outputs


def _can_get_value(parameter: inspect.Parameter, value: Any) -> bool:
    """Return whether a parameter whose argument is `value` may get a tensor, number or list."""
    if isinstance(value, torch.Tensor):
        return False
    takes_plain_value = parameter.default is None and any(_plain_values(parameter))
    return _can_be_tensor(parameter) or takes_plain_value or _may_be_unpacked(parameter)


@dataclass(frozen=True, slots=True)
class _Trials:
    """A call whose parameters get values, with the original's outcome without them, and its results
    with each flag turned; the first of `integer_names`, or of `mask_names`, is left out where both
    are refused together. `absent` are the parameters that may get values."""

    call: Call
    target: Target
    signature: inspect.Signature
    outcome_without: Outcome
    outputs_with_flags: list[Mapping[str, Any]]
    integer_names: list[str]
    mask_names: list[str]
    absent: Sequence[inspect.Parameter]

    def accepted_calls(self, parameter: inspect.Parameter) -> Iterator[Call]:
        """Yield the call with each value of a parameter that the original accepts and that changes
        its results: of tuples those that the call returned come first, of tensors last."""
        outputs = self.outcome_without.outputs
        values = values_for(parameter, self.call, self.target.module)
        if _may_be_unpacked(parameter):
            count = unpacked_parts(method_of(self.target.callable), parameter.name)
            tuples = tuples_like(self.call, count)
            returned = map(returned_tuples, (outputs, *self.outputs_with_flags))
            values = itertools.chain(*returned, tuples, values)
        if _can_be_tensor(parameter):
            values = itertools.chain(values, returned_tensors(outputs))
        for description, value in values:
            accepted = self._accepted_call(parameter, value)
            if accepted is not None:
                label = f"{parameter.name} given, {description}"
                yield replace(accepted, label=label, beyond="arguments")

    def calls_beside(self, base: Call, parameters: list[inspect.Parameter]) -> Iterator[Call]:
        """Yield a call in which a parameter already got its value, with a value for each of some
        others that the original accepts and that changes its results."""
        outcome = execute(self.target, base, Plan(gradients=False))
        trials = replace(self, call=base, outcome_without=outcome)
        for parameter in parameters:
            for candidate in itertools.islice(trials.accepted_calls(parameter), 1):
                yield replace(candidate, label=f"{base.label}; {candidate.label}")

    def _accepted_call(self, parameter: inspect.Parameter, value: Any) -> Call | None:
        """Return the call with a value that the original accepts and that changes its results, if
        necessary without the first integer tensor, or for a tuple, which may be longer than a mask
        covers, without the first mask, or with the same tuple for all absent parameters of its
        annotation; None where there is no such call."""
        with_value = with_argument(self.call, self.signature, parameter.name, value)
        names_to_omit = [
            *self.integer_names[:1],
            *(self.mask_names[:1] if isinstance(value, tuple) else ()),
        ]
        candidates = [
            with_value,
            *(with_argument(with_value, self.signature, other, None) for other in names_to_omit),
            *self._with_siblings(with_value, parameter, value),
        ]
        for candidate in candidates:
            outcome = execute(self.target, candidate, Plan(gradients=False))
            if outcome.error is None and changes_result(self.outcome_without, outcome):
                return candidate
        return None

    def _with_siblings(
        self, with_value: Call, parameter: inspect.Parameter, value: Any
    ) -> Iterator[Call]:
        """Yield the call with a tuple also for the other absent parameters of the annotation of its
        parameter; nothing for other values, and without such parameters."""
        names = [
            other.name
            for other in self.absent
            if other is not parameter and other.annotation == parameter.annotation
        ]
        if names and isinstance(value, tuple):
            for name in names:
                with_value = with_argument(with_value, self.signature, name, value)
            yield with_value


def values_for(parameter: inspect.Parameter, call: Call, module: Any) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a description and a value that a parameter may take: plain values, pairs of
    tensors, tensors, tables of positions, then two numbers where there is no annotation."""
    yield from _plain_values(parameter)
    if module is not None and _PAIR.search(str(parameter.annotation)):
        yield from pairs_like(call, module)
    if _can_be_tensor(parameter):
        yield from tensors_like(call, parameter.name, feature_widths(module))
        if module is not None:
            yield from tables_like(call, module)
    if parameter.annotation is inspect.Parameter.empty and parameter.name not in CHANCE_FIELDS:
        yield from (("2", 2), ("0.5", 0.5))


def _may_be_unpacked(parameter: inspect.Parameter) -> bool:
    """Return whether the annotation of a parameter that defaults to None allows a tuple or list of
    tensors, or is missing."""
    if parameter.default is not None:
        return False
    return parameter.annotation is parameter.empty or bool(
        _SEVERAL.search(str(parameter.annotation))
    )


def _can_be_tensor(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter may be omitted and may take a tensor.

    Its annotation names a tensor; or it defaults to None, and its annotation names no other type or
    is missing.
    """
    if parameter.default is inspect.Parameter.empty:
        return False
    if parameter.annotation is inspect.Parameter.empty:
        return parameter.default is None
    text = str(parameter.annotation)
    return "Tensor" in text or (
        parameter.default is None and not any(name in text for name in _NO_TENSORS)
    )


def _plain_values(parameter: inspect.Parameter) -> Iterator[tuple[str, Any]]:
    """Yield numbers, and lists of one integer, each after its text, where the annotation of a
    parameter names them; no fractions for rates of chance."""
    text = str(parameter.annotation)
    if _LISTED.search(text):
        yield "[0]", [0]
    if _INTEGER.search(_LISTED.sub("", text)):
        yield from (("1", 1), ("2", 2), ("0", 0))
    if _FRACTION.search(text) and parameter.name not in CHANCE_FIELDS:
        yield from (("0.5", 0.5), ("3.0", 3.0), ("0.0", 0.0))


def _is_integer(value: Any) -> bool:
    """Return whether a value is a tensor of integers, booleans excluded."""
    return (
        isinstance(value, torch.Tensor)
        and not value.is_floating_point()
        and value.dtype != torch.bool
    )


def changes_result(outcome_without: Outcome, outcome_with: Outcome) -> bool:
    """Return whether an input changes an output, or lets the original return a result where it
    raises without the input; an output that is no tensor counts as changed."""
    if outcome_without.error is not None:
        return True
    for path, value in outcome_with.outputs.items():
        value_without = outcome_without.outputs.get(path)
        are_like_tensors = are_alike(value, value_without, dtype=False)
        if not are_like_tensors or not torch.equal(value, value_without):
            return True
    return False
