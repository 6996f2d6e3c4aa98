"""Yield variations of an instance of a class: with other flags of its modules, calls, arguments,
and configurations."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from regraft.verification.child.drivers import (
    config_variations,
    further_calls,
    guessed_slots,
    source_hints,
)
from regraft.verification.child.drivers.argument_slots import Slot, Spec
from regraft.verification.child.drivers.class_instances import (
    Failure,
    Instance,
    subject_of,
    try_values,
)
from regraft.verification.child.drivers.configuration_objects import (
    fields_of,
    is_config,
    with_fields,
)
from regraft.verification.child.drivers.driver_protocol import Subject, yield_until_error
from regraft.verification.child.drivers.layers_of_inputs import names_tested_for
from regraft.verification.child.drivers.module_flags import inverted_flags
from regraft.verification.child.drivers.preparations import preparations
from regraft.verification.child.drivers.size_fixers import WIDTH_MISMATCH
from regraft.verification.child.drivers.subject_reach import measure_reach
from regraft.verification.child.session import Session, build_seeded, switch_mode

SECONDS = 15.0  # for trying variations of a class
_SEARCH_SECONDS = 2.0  # of these, for inputs of one variation
_FLAGS = 4  # the most flags that are tried with values that do not run
_TRIALS = 24  # the most pairs of an option and a shape that are tried for one argument
_SMALLEST_SIZE = 8  # the smallest number that counts as a width


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The facts about a file that the driver knows before it builds anything.

    text: the source of the file; hints: what it says about the changed definitions; configs: the
    configurations that built models of it; noted: lists and dictionaries, by parameter, that its
    functions give the classes that they build
    """

    text: str
    hints: source_hints.Hints
    configs: tuple[Any, ...]
    noted: dict[str, Any] = field(default_factory=dict)


def variation_subjects(instance: Instance, facts: FileFacts, session: Session) -> Iterator[Subject]:
    """Yield variations of an instance that reach lines which have not run yet, and variations of
    these in turn, for `SECONDS` and until all lines have run; those without a changed flag as light
    subjects."""
    if session.is_covered():
        return
    deadline = time.process_time() + SECONDS
    starts, reached_lines = [instance], measure_reach(subject_of(instance), session).lines
    for start in starts:
        for variant in yield_until_error(
            _variants(start, facts, session), session.ledger, f"variations of {start.name}"
        ):
            if session.is_covered() or time.process_time() > deadline:
                return
            reached = measure_reach(subject_of(variant), session)
            if reached.is_worth_comparing:
                started = time.process_time()
                yield replace(subject_of(variant), light=not variant.flags)
                deadline += time.process_time() - started  # comparing it is no search
            if (
                reached.lines - reached_lines
            ):  # a step on the way, even where others ran these lines before
                starts.append(variant)
                reached_lines |= reached.lines


def _variants(instance: Instance, facts: FileFacts, session: Session) -> Iterator[Instance]:
    """Yield the instance with another flag of its modules, with a method called before, with other
    inputs, another argument or another configuration."""
    model = switch_mode(build_seeded(0, instance.build, session.original), False)
    for name, value in inverted_flags(model, session.original, session.changed, facts.hints.text):
        if name not in instance.flags:
            yield replace(instance, flags={**instance.flags, name: value})
    for preparation in preparations(model, session.original) if not instance.prepared else ():
        prepared = replace(instance, prepared=preparation)
        outcome = _with_spec(prepared, instance.values, instance.accepted.spec, session)
        if isinstance(outcome, Instance):
            yield replace(outcome, flags=instance.flags)
    for paired in _with_option_and_argument(instance, model, session):
        yield replace(paired, flags=instance.flags)
    call_variants = further_calls.more_calls(
        model, instance.accepted, facts.hints.text, guessed_slots.width_of(model)
    )
    for calls in yield_until_error(
        call_variants, session.ledger, f"{instance.name} with other inputs"
    ):
        yield replace(instance, calls=calls)
    for values in _value_variations(instance, facts):
        outcome = _with_values(instance, values, session)
        variant = outcome if isinstance(outcome, Instance) else None
        if isinstance(outcome, Failure) and outcome.built:
            variant = _with_another_flag(instance, values, session) or _with_other_inputs(
                instance, values, session
            )
        if variant is not None:
            yield replace(variant, flags=instance.flags)


def _with_option_and_argument(
    instance: Instance, model: Any, session: Session
) -> Iterator[Instance]:
    """Yield the instance with an argument that no comparison gave, or with a pair in the place of a
    tensor, alone and together with another value of an option that is 0, False or None: it may
    accept neither alone (the width of a second input and that input, say)."""
    for name, slots in _slots_to_try(instance, model, session):
        options = itertools.chain([{}], _opened_options(instance, model))
        trials = itertools.product(options, slots)
        for option, slot in itertools.islice(trials, _TRIALS):
            spec = {**instance.accepted.spec, name: slot}
            values = {**instance.values, **option}
            variant = _with_spec(instance, values, spec, session)
            if isinstance(variant, Failure) and (sizes := _fitting_sizes(variant, values)):
                variant = _with_spec(instance, {**values, **sizes}, spec, session)
            if isinstance(variant, Instance) and variant.accepted.spec.get(name) == slot:
                yield variant


def _with_spec(
    instance: Instance, values: Mapping[str, Any], spec: Spec, session: Session
) -> Instance | Failure:
    """Return the instance with other values and inputs, or its failure."""
    return try_values(
        instance.name,
        values,
        session,
        0.0,
        spec,
        instance.function_values,
        instance.prepared or None,
    )


def _fitting_sizes(failure: Failure, values: Mapping[str, Any]) -> dict[str, int]:
    """Return the options whose value is the width that a layer got and does not take, with the
    width that it takes; {} for another failure."""
    mismatch = re.search(WIDTH_MISMATCH, str(failure.error))
    if mismatch is None:
        return {}
    width, wanted_width = map(int, mismatch.groups())
    return {name: wanted_width for name, value in values.items() if value == width}


def _slots_to_try(
    instance: Instance, model: Any, session: Session
) -> Iterator[tuple[str, list[Slot]]]:
    """Yield names of parameters with the slots to try for them: the shapes of other inputs and a
    guessed one for a parameter that no comparison gave, a pair for one that `forward` tests for
    being a tuple."""
    spec = instance.accepted.spec
    guessed = guessed_slots.guess_slots(model, True, guessed_slots.width_of(model))
    wanted = {name for _, name in session.absent_arguments()} - spec.keys()
    given_shapes = [slot.dims for slot in spec.values() if slot.dims]
    for name in sorted(wanted & guessed.keys()):
        shapes = dict.fromkeys((*given_shapes, guessed[name].dims))
        yield name, [replace(guessed[name], dims=dims) for dims in shapes]
    for name in sorted(names_tested_for(model, "tuple") & spec.keys()):
        if spec[name].kind == "normal":
            yield name, [Slot("pair", spec[name].dims)]


def _opened_options(instance: Instance, model: Any) -> Iterator[dict[str, Any]]:
    """Yield options of an instance that are False as True, and those that are 0 or None as the
    width of the model and as each size that another option has."""
    values = {**instance.function_values, **instance.values}
    sizes = dict.fromkeys(
        value
        for value in (guessed_slots.width_of(model), *values.values())
        if type(value) is int and value >= _SMALLEST_SIZE
    )
    for name, value in values.items():
        if value is False:
            yield {name: True}
        elif value is None or (type(value) is int and value == 0):
            yield from ({name: size} for size in sizes)


def _with_values(
    instance: Instance, values: Mapping[str, Any], session: Session
) -> Instance | Failure:
    """Return the instance with other values, if it accepts the same inputs, or its failure."""
    return _with_spec(instance, values, instance.accepted.spec, session)


def _with_another_flag(
    instance: Instance, values: Mapping[str, Any], session: Session
) -> Instance | None:
    """Return the instance with `values`, with which it does not run as it is, and with the first of
    its first `_FLAGS` flags that lets it run when it is turned (a block of another stride has no
    residual, say); None where none does."""
    all_values = {**instance.function_values, **values}
    flags = [name for name, value in all_values.items() if isinstance(value, bool)]
    for name in flags[:_FLAGS]:
        variant = _with_values(instance, {**values, name: not all_values[name]}, session)
        if isinstance(variant, Instance):
            return variant
    return None


def _with_other_inputs(
    instance: Instance, values: Mapping[str, Any], session: Session
) -> Instance | None:
    """Return the instance with values that name another kind, or have another flag (channels first,
    say), and inputs that are searched for in `_SEARCH_SECONDS`; None where there are none, or the
    values differ in numbers only."""
    changed_values = [value for name, value in values.items() if value != instance.values.get(name)]
    if not any(isinstance(value, str | bool) for value in changed_values):
        return None
    variant = try_values(
        instance.name,
        values,
        session,
        _SEARCH_SECONDS,
        function_values=instance.function_values,
        prepared=instance.prepared or None,
    )
    return variant if isinstance(variant, Instance) else None


def _value_variations(instance: Instance, facts: FileFacts) -> Iterator[dict[str, Any]]:
    """Yield the values of an instance with another argument or another field of a configuration."""
    values = instance.values
    plain = {
        key: value
        for key, value in {**instance.function_values, **values}.items()
        if not is_config(value)
    }
    for override in config_variations.variations(plain, replace(facts.hints, optional={})):
        yield {**values, **override}
    for key, value in values.items():
        if is_config(value):
            for override in config_variations.variations(fields_of(value), facts.hints):
                yield {**values, key: _with_override(value, override)}


def _with_override(config: Any, override: Mapping[str, Any]) -> Any:
    """Return a copy of a configuration with other values of its own fields, even such as it
    refuses; those of nested configurations are left out."""
    own_fields = {name: value for name, value in override.items() if not isinstance(value, Mapping)}
    return with_fields(config, own_fields)
