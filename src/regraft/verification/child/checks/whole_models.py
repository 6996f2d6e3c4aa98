"""Yield whole models under further conditions, as subjects: with other masks and sizes, cached
decoding, checkpointing, other configurations."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import Plan, Target, execute
from regraft.verification.child.checks.argument_combinations import single_calls
from regraft.verification.child.checks.argument_variants import (
    signature_of,
    varied_argument_calls,
    with_argument,
)
from regraft.verification.child.checks.code_constants import Constants
from regraft.verification.child.checks.code_replacement import syntax_tree
from regraft.verification.child.checks.comparison_domain import (
    domain_of,
    named_arguments,
    reads_of_arguments,
)
from regraft.verification.child.checks.consecutive_calls import subject_called_repeatedly
from regraft.verification.child.checks.constructed_parts import parts_as_constructed
from regraft.verification.child.checks.constructor_options import note_options, varied_parts
from regraft.verification.child.checks.device_arguments import refute_other_devices
from regraft.verification.child.checks.feature_widths import widened_parts
from regraft.verification.child.checks.mask_variants import biased_calls, masked_calls
from regraft.verification.child.checks.optional_values import optional_value_calls
from regraft.verification.child.checks.options_read import options_deciding
from regraft.verification.child.checks.repeated_calls import Decoding, Generating
from regraft.verification.child.checks.size_variants import resize_dimensions, resized_calls
from regraft.verification.child.checks.unequal_axes import lengthen_axes
from regraft.verification.child.drivers.driver_protocol import Subject, yield_until_error
from regraft.verification.child.drivers.standalone_parts import Part, accepts, parts_of
from regraft.verification.child.session import Session, build_seeded, switch_mode
from regraft.verification.names_and_scopes import name_of

_FLAGS = ("output_attentions", "output_hidden_states")
# the length of a long cache, tokens beyond a constant, and the most such constants
_CACHED, _BEYOND_CONSTANT, _LONGER = 61, 2, 2
_AXES = 2  # the most calls with one longer axis
_SHORTEST = 5  # the fewest tokens, of which the last three are decoded from the cache


def subjects_beyond(subject: Subject, session: Session) -> Iterator[Subject]:
    """Yield a subject under the conditions under which it was not compared yet, where the original
    accepts them, as light subjects to be compared once; nothing for a light subject. Stop where
    time is up or every definition is refuted.

    Each kind of condition is compared once for each definition that the subject runs, unless the
    session is thorough; it is noted in `session.widened`. The names of the makers are part of the
    recorded kinds and reasons.
    """
    if subject.light:
        return
    method = subject.recipe.get("method", "")
    definitions = _definitions_run_by(subject, method, session)
    makers = (
        _other_calls,
        _decoding,
        _generating,
        _in_turn,
        _checkpointed,
        _alone,
        _with_other_fields,
    )
    for maker in (_other_calls, _in_turn) if method else makers:
        kind = f"{maker.__name__} {method}"
        if not session.thorough and all((name, kind) in session.widened for name in definitions):
            continue
        variants = maker(subject, definitions, session)
        for variant in yield_until_error(
            variants, session.ledger, f"{subject.name}, {maker.__name__.strip('_')},"
        ):
            if session.ledger.is_late() or not session.ledger.unrefuted():
                return
            session.widened.update((name, kind) for name in definitions)
            yield replace(variant, light=True, once=True)
            _note_fields(variant, definitions, session)


def _definitions_run_by(subject: Subject, method: str, session: Session) -> tuple[str, ...]:
    """Return the changed definitions that a subject has run in comparisons, or, for a subject that
    calls a method, those that define the method."""
    if method:
        names = (change.definition for change in session.changes)
        return tuple(name for name in names if _has_method(session.original, name, method))
    records = session.ledger.records
    return tuple(name for name, record in records.items() if subject.name in record.models)


def _note_fields(variant: Subject, definitions: tuple[str, ...], session: Session) -> None:
    """Add the varied fields of a subject to the evidence ("configuration") of the definitions;
    nothing where it has none."""
    if not variant.fields:
        return
    for name in definitions:
        domain = session.ledger.records[name].domain
        domain.setdefault("configuration", set()).update(variant.fields)


def _has_method(module: ModuleType, definition: str, method: str) -> bool:
    """Return whether a class or function of a module defines a method itself."""
    return callable(vars(getattr(module, definition, object)).get(method))


def _alone(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield instances of the definitions by themselves: several calls in a row, then with other
    arguments and configurations, with another width, and as the file builds them. The values of
    their options are noted in `session.options`."""
    parts = parts_of(subject, session)
    for definition, arguments in parts.built:
        note_options(definition, arguments, session)
    for part in parts.parts:
        yield from _part_called_repeatedly(part, session)
        if not session.by_rules:
            refute_other_devices(part, session)
        words = _deciding_words((part.definition, part.cls), session)
        for variation in varied_parts(part, words, session):
            names = variation.names
            varied_part = _with_other_arguments(variation.part, names, session)
            varied = varied_part.subject(f"with another {', '.join(names)}")
            yield replace(
                varied,
                fields=names,
                formats=2 if variation.switches else 1,
                drops_values=variation.adds_chance,
            )
            note_options(part.definition, variation.part.arguments, session)
        for wide_part in widened_parts(
            part, domain_of(part.definition, session).constants, session
        ):
            yield wide_part.subject("with another width")
            note_options(part.definition, wide_part.arguments, session)
        for constructed in parts_as_constructed(part, session):
            yield constructed.subject("as the file builds it")
            note_options(part.definition, constructed.arguments, session)


def _with_other_arguments(part: Part, names: tuple[str, ...], session: Session) -> Part:
    """Return a part with a further call for each argument that changed lines read, with another
    value of it, where one of the options `names` of the part decides what these lines compute; the
    part itself for changes by rules, and where the original does not accept such calls."""
    reads = reads_of_arguments(part.definition, "forward", session)
    if not reads.names or options_deciding(part.definition, session).isdisjoint(names):
        return part
    model = switch_mode(build_seeded(0, part.build, session.original), False)
    calls = single_calls(part.calls[-1], Target(model, scope=session.original), reads)
    extended = replace(part, calls=(*part.calls, *calls))
    return extended if calls and accepts(extended, session) else part


def _part_called_repeatedly(part: Part, session: Session) -> Iterator[Subject]:
    """Yield an instance by itself, called several times in a row; nothing where the original does
    not accept the part or these calls."""
    if not accepts(part, session):
        return
    subject = part.subject("as built")
    repeated = subject_called_repeatedly(
        subject, named_arguments(part.calls[-1], _build_original(subject, session)), session
    )
    if repeated is not None:
        yield repeated


def _with_other_fields(
    subject: Subject, definitions: tuple[str, ...], session: Session
) -> Iterator[Subject]:
    """Yield the subject with another value of each field that decides what the definitions do and
    that had fewer than two values so far; these fields are added to `session.varied_fields`."""
    words = frozenset(
        word
        for name in definitions
        for word in _deciding_words((name,), session)
        if len(session.options.get((name, word), ())) < 2
    )
    for varied in subject.varied(session, words):
        yield varied
        session.varied_fields.update(varied.fields)


def _deciding_words(definitions: tuple[str, ...], session: Session) -> frozenset[str]:
    """Return the names that some definitions read in either version, and those that decide their
    inputs, identifiers in strings included.

    The latter are in the arguments of calls of these definitions, and in values that the file
    assigns to such names.
    """
    words: set[str] = set()
    for module in (session.original, session.changed):
        _add_deciding_words(words, syntax_tree(str(module.__file__)), definitions)
    return frozenset(words)


def _add_deciding_words(words: set[str], tree: ast.Module, definitions: tuple[str, ...]) -> None:
    """Add to `words` the names that some definitions of a file read, and those that decide their
    inputs."""
    for statement in tree.body:
        if getattr(statement, "name", "") in definitions:
            words |= _names_and_strings(statement)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) in definitions:
            words |= set().union(*map(_names_and_strings, (*node.args, *node.keywords)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and not words.isdisjoint(map(name_of, node.targets)):
            words |= _names_and_strings(node.value)


def _names_and_strings(node: ast.AST) -> set[str]:
    """Return the names and attributes in an expression or definition, and its strings that are
    identifiers."""
    expressions = [expression for expression in ast.walk(node) if isinstance(expression, ast.expr)]
    strings = {
        expression.value
        for expression in expressions
        if isinstance(expression, ast.Constant) and isinstance(expression.value, str)
    }
    return {name_of(expression) for expression in expressions} | {
        text for text in strings if text.isidentifier()
    }


def _other_calls(
    subject: Subject, definitions: tuple[str, ...], session: Session
) -> Iterator[Subject]:
    """Yield at most one subject, with calls with other masks, sizes, flags, axes and optional
    inputs, those that the original accepts; nothing where it accepts none."""
    model = _build_original(subject, session)
    call = subject.calls(0)[-1]
    sizes = tuple(
        dict.fromkeys(
            size for name in definitions for size in domain_of(name, session).constants.sizes
        )
    )
    names = named_arguments(call, model)
    calls = [*masked_calls(call, names), *biased_calls(call, names, ()), *_flag_calls(call, model)]
    calls += [*resized_calls(call, Constants(sizes), features=False)]
    if "method" in subject.recipe:
        calls += varied_argument_calls(call, model)
    accepted = tuple(candidate for candidate in calls if _is_accepted(model, candidate))
    accepted += tuple(lengthen_axes(call, lambda candidate: _is_accepted(model, candidate), _AXES))
    for base in (call, *_uncached_call(call, model)):
        accepted += tuple(optional_value_calls(base, Target(model)))
    if accepted:
        yield replace(
            subject, name=f"{subject.name} with other inputs", calls=_calls_of_any_seed(accepted)
        )


def _uncached_call(call: Call, model: Any) -> Iterator[Call]:
    """Yield the call with `use_cache=False`, since a model makes a cache by itself otherwise;
    nothing for a model without this parameter."""
    signature = signature_of(model)
    if "use_cache" in signature.parameters:
        yield with_argument(call, signature, "use_cache", False)


def _flag_calls(call: Call, model: Any) -> Iterator[Call]:
    """Yield the call with each flag of `_FLAGS`, which requests further outputs, where the model
    has the parameter or a configuration."""
    parameters = signature_of(model).parameters
    for name in _FLAGS:
        if name in parameters or "config" in vars(model):
            yield Call(call.args, {**call.kwargs, name: True}, name, "flags")


def _decoding(
    subject: Subject, definitions: tuple[str, ...], session: Session
) -> Iterator[Subject]:
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
            yield replace(variant, calls=_calls_of_any_seed(accepted))


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


def _generating(
    subject: Subject, definitions: tuple[str, ...], session: Session
) -> Iterator[Subject]:
    """Yield at most one subject that generates tokens, without padding and with padding on the
    left; nothing for a model that cannot generate, or whose original refuses it."""
    model = _build_original(subject, session)
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
        if _is_accepted(_build_original(variant, session), candidate)
    )
    if accepted:
        yield replace(variant, calls=_calls_of_any_seed(accepted))


def _in_turn(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield the subject called several times in a row; nothing where the original takes no other
    calls."""
    names = named_arguments(subject.calls(0)[-1], _build_original(subject, session))
    repeated = subject_called_repeatedly(subject, names, session)
    if repeated is not None:
        yield repeated


def _checkpointed(
    subject: Subject, definitions: tuple[str, ...], session: Session
) -> Iterator[Subject]:
    """Yield the subject with gradient checkpointing, where its model offers it and the original
    accepts its last call."""
    model = _build_original(subject, session)
    if not getattr(model, "supports_gradient_checkpointing", False):
        return

    def build(module: ModuleType) -> Any:
        """Return the subject's model of a module with gradient checkpointing on."""
        model = subject.build(module)
        model.gradient_checkpointing_enable()
        return model

    call = replace(subject.calls(0)[-1], label="gradient checkpointing", beyond="modes")
    name = f"{subject.name} with gradient checkpointing"
    variant = replace(
        subject, name=name, build=build, recipe={**subject.recipe, "checkpointing": True}
    )
    if _is_accepted(_build_original(variant, session), call):
        yield replace(variant, calls=_calls_of_any_seed((call,)))


def _calls_of_any_seed(calls: tuple[Call, ...]) -> Callable[[int], tuple[Call, ...]]:
    """Return a function that returns the same calls for every seed."""
    return lambda seed: calls


def _build_original(subject: Subject, session: Session) -> Any:
    """Return the original's model of a subject, built with seed 0, in evaluation mode."""
    return switch_mode(build_seeded(0, subject.build, session.original), False)


def _accepted_calls(
    subject: Subject, calls: tuple[Call, ...], session: Session
) -> tuple[Call, ...]:
    """Return the calls, in order, that a newly built model of the original accepts in both
    modes."""
    model = _build_original(subject, session)
    return tuple(call for call in calls if _is_accepted(model, call))


def _is_accepted(model: Any, call: Call) -> bool:
    """Return whether a model of the original runs on a call without an error in training and
    evaluation; it is in evaluation mode afterwards, unless training fails."""
    for training in (True, False):
        if (
            execute(Target(switch_mode(model, training)), call, Plan(gradients=False)).error
            is not None
        ):
            return False
    return True
