"""Models that decode in steps, generate, or recompute in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.checks.argument_variants import (
    named_arguments,
    signature_of,
    with_argument,
)
from regraft.verification.child.checks.comparison_domain import domain_of
from regraft.verification.child.checks.consecutive_calls import subject_called_repeatedly
from regraft.verification.child.checks.mask_variants import masked_calls
from regraft.verification.child.checks.repeated_calls import Decoding, Generating
from regraft.verification.child.checks.size_variants import resize_dimensions
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.session import Session, build_seeded, switch_mode

AXES = 2  # the most calls with one longer axis
_SHORTEST = 5  # the fewest tokens, of which the last three are decoded from the cache
# the length of a long cache, tokens beyond a constant, and the most such constants
_CACHED, _BEYOND_CONSTANT, _LONGER = 61, 2, 2


def uncached_call(call: Call, model: Any) -> Iterator[Call]:
    """Yield the call with `use_cache=False`, since a model makes a cache by itself otherwise;
    nothing for a model without this parameter."""
    signature = signature_of(model)
    if "use_cache" in signature.parameters:
        yield with_argument(call, signature, "use_cache", False)


def decoding(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield at most two subjects that go on from their cache, by single tokens, then by several
    together, with other masks and longer caches. Calls that the original refuses are left out;
    nothing for calls with positional arguments, without token ids, or with fewer than `_SHORTEST`
    tokens."""
    call = subject.calls(0)[-1]
    ids = call.kwargs.get("decoder_input_ids", call.kwargs.get("input_ids"))
    if call.args or getattr(ids, "ndim", 0) != 2 or ids.shape[1] < _SHORTEST:
        return
    inputs = {name: value for name, value in call.kwargs.items() if "label" not in name}
    call = Call((), inputs, "decoding", "cache")
    padded_by_label = {
        variant.label: replace(variant, beyond="cache")
        for variant in masked_calls(call, call.kwargs)
    }
    long_calls = _longer_calls(call, ids.shape[1], definitions, session)
    for together, patterns in (
        (False, ("mask: left padding", "mask: a row fully masked")),
        (True, ("mask: random", "mask: holes")),
    ):
        variant = _decoding_subject(subject, together)
        padded_calls = [padded_by_label[name] for name in patterns if name in padded_by_label]
        accepted = _accepted_calls(variant, (call, *padded_calls, *long_calls), session)
        if accepted:
            yield replace(variant, calls=calls_of_any_seed(accepted))


def _longer_calls(
    call: Call, length: int, definitions: tuple[str, ...], session: Session
) -> list[Call]:
    """Return decoding calls with more tokens: beyond at most `_LONGER` constants of the
    definitions, and for a long cache."""
    constants = [size for name in definitions for size in domain_of(name, session).constants.sizes]
    lengths = [
        size + _BEYOND_CONSTANT for size in constants if length < size + _BEYOND_CONSTANT < _CACHED
    ][:_LONGER]
    return [
        replace(resize_dimensions(call, {length: target}), label=f"decoding, length {target}")
        for target in dict.fromkeys((*lengths, _CACHED))
    ]


def _decoding_subject(subject: Subject, together: bool) -> Subject:
    """Return a subject whose model runs on all tokens but the last three, then goes on from its
    cache with these: `together`, or one by one."""

    def build(module: ModuleType) -> Any:
        """Return the subject's model of a module, wrapped to continue from its cache."""
        return Decoding(subject.build(module), together)

    name = f"{subject.name} going on from its cache"
    recipe = {**subject.recipe, "decoding": {"together": together}}
    return replace(subject, name=name, build=build, recipe=recipe)


def generating(
    subject: Subject, definitions: tuple[str, ...], session: Session
) -> Iterator[Subject]:
    """Yield at most one subject that generates tokens, without padding and with padding on the
    left; nothing for a model that cannot generate, or whose original refuses it."""
    model = build_original(subject, session)
    can_generate = getattr(model, "can_generate", None)
    call = subject.calls(0)[-1]
    if (
        not callable(can_generate)
        or not can_generate()
        or getattr(call.kwargs.get("input_ids"), "ndim", 0) != 2
    ):
        return
    inputs = {
        name: call.kwargs[name] for name in call.kwargs if name in ("input_ids", "attention_mask")
    }
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    plain_call = Call((), inputs, "generate", "cache")
    padded_calls = [
        replace(variant, label=f"generate, {variant.label}", beyond="cache")
        for variant in masked_calls(plain_call, inputs)
    ]

    def build(module: ModuleType) -> Any:
        """Return the subject's model of a module, wrapped to generate tokens."""
        return Generating(subject.build(module))

    name = f"{subject.name} generating"
    variant = replace(
        subject, name=name, build=build, recipe={**subject.recipe, "generating": True}
    )
    accepted = tuple(
        candidate
        for candidate in (plain_call, *padded_calls[:1])
        if is_accepted(build_original(variant, session), candidate)
    )
    if accepted:
        yield replace(variant, calls=calls_of_any_seed(accepted))


def in_turn(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield the subject called several times in a row; nothing where the original takes no other
    calls."""
    names = named_arguments(subject.calls(0)[-1], build_original(subject, session))
    repeated = subject_called_repeatedly(subject, names, session)
    if repeated is not None:
        yield repeated


def checkpointed(
    subject: Subject, definitions: tuple[str, ...], session: Session
) -> Iterator[Subject]:
    """Yield the subject with gradient checkpointing, where its model offers it and the original
    accepts its last call."""
    model = build_original(subject, session)
    if not getattr(model, "supports_gradient_checkpointing", False):
        return

    def build(module: ModuleType) -> Any:
        """Return the subject's model of a module with gradient checkpointing on."""
        model = subject.build(module)
        model.gradient_checkpointing_enable()
        return model

    call = replace(subject.calls(0)[-1], label="gradient checkpointing", beyond="modes")
    name = f"{subject.name} with gradient checkpointing"
    recipe = {**subject.recipe, "checkpointing": True}
    variant = replace(subject, name=name, build=build, recipe=recipe)
    if is_accepted(build_original(variant, session), call):
        yield replace(variant, calls=calls_of_any_seed((call,)))


def calls_of_any_seed(calls: tuple[Call, ...]) -> Callable[[int], tuple[Call, ...]]:
    """Return a function that returns the same calls for every seed."""
    return lambda seed: calls


def build_original(subject: Subject, session: Session) -> Any:
    """Return the original's model of a subject, built with seed 0, in evaluation mode."""
    return switch_mode(build_seeded(0, subject.build, session.original), False)


def _accepted_calls(
    subject: Subject, calls: tuple[Call, ...], session: Session
) -> tuple[Call, ...]:
    """Return the calls, in order, that a newly built model of the original accepts in both
    modes."""
    model = build_original(subject, session)
    return tuple(call for call in calls if is_accepted(model, call))


def is_accepted(model: Any, call: Call) -> bool:
    """Return whether a model of the original runs on a call without an error in training and
    evaluation; it is in evaluation mode afterwards, unless training fails."""
    for training in (True, False):
        if (
            execute(Target(switch_mode(model, training)), call, Plan(gradients=False)).error
            is not None
        ):
            return False
    return True
