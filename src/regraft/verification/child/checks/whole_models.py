"""Yield whole models under further conditions, as subjects: with other masks and sizes, cached
decoding, checkpointing, other configurations."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_outcomes import Target
from regraft.verification.child.checks.argument_combinations import single_calls
from regraft.verification.child.checks.argument_variants import (
    named_arguments,
    signature_of,
    varied_argument_calls,
)
from regraft.verification.child.checks.code_constants import Constants
from regraft.verification.child.checks.code_replacement import syntax_tree
from regraft.verification.child.checks.comparison_domain import domain_of, reads_of_arguments
from regraft.verification.child.checks.consecutive_calls import subject_called_repeatedly
from regraft.verification.child.checks.constructed_parts import parts_as_constructed
from regraft.verification.child.checks.constructor_options import note_options, varied_parts
from regraft.verification.child.checks.decoding_models import (
    AXES,
    build_original,
    calls_of_any_seed,
    checkpointed,
    decoding,
    generating,
    in_turn,
    is_accepted,
    uncached_call,
)
from regraft.verification.child.checks.device_arguments import refute_other_devices
from regraft.verification.child.checks.feature_widths import widened_parts
from regraft.verification.child.checks.format_variants import (
    calls_in_bfloat16,
    calls_in_other_formats,
)
from regraft.verification.child.checks.layer_changes import subjects_with_other_layers
from regraft.verification.child.checks.mask_variants import biased_calls, masked_calls
from regraft.verification.child.checks.mixed_layers import with_a_layer_in_bfloat16
from regraft.verification.child.checks.optional_values import optional_value_calls
from regraft.verification.child.checks.options_read import options_deciding
from regraft.verification.child.checks.size_variants import enlarged_points, resized_calls
from regraft.verification.child.checks.text_variants import calls_with_other_texts
from regraft.verification.child.checks.unequal_axes import lengthen_axes
from regraft.verification.child.checks.value_variants import valued_calls
from regraft.verification.child.drivers.driver_protocol import Subject, yield_until_error
from regraft.verification.child.drivers.standalone_parts import Part, accepts, parts_of
from regraft.verification.child.running_classes import is_plain_class
from regraft.verification.child.session import Session, build_seeded, switch_mode
from regraft.verification.names_and_scopes import name_of

_FLAGS = ("output_attentions", "output_hidden_states")


def subjects_beyond(subject: Subject, session: Session) -> Iterator[Subject]:
    """Yield variants of a subject that the original accepts (other calls and configurations,
    decoding, calls in turn, checkpointing, a layer in bfloat16, ...) as light subjects to be
    compared once; nothing for a light subject. Stop where time is up or every definition is
    refuted.

    Each kind of variant is compared once for each definition that the subject runs, unless the
    session is thorough; it is noted in `session.widened`. The names of the makers are part of the
    recorded kinds and reasons.
    """
    if subject.light:
        return
    method = subject.recipe.get("method", "")
    definitions = _definitions_run_by(subject, method, session)
    makers = (
        _other_calls,
        decoding,
        generating,
        in_turn,
        checkpointed,
        _alone,
        with_a_layer_in_bfloat16,
        _with_other_fields,
    )
    for maker in (_other_calls, in_turn) if method else makers:
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


def _with_other_options(part: Part, session: Session) -> Iterator[Subject]:
    """Yield subjects of a part with other values of its options, which are noted in
    `session.options`."""
    words = _deciding_words((part.definition, part.cls), session)
    for variation in varied_parts(part, words, session):
        names = variation.names
        varied_part = _with_other_arguments(variation.part, names, session)
        yield replace(
            varied_part.subject(f"with another {', '.join(names)}"),
            fields=names,
            formats=2 if variation.switches else 1,
            drops_values=variation.adds_chance or (variation.switches and not session.by_rules),
        )
        note_options(part.definition, variation.part.arguments, session)


def _alone(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield instances of the definitions by themselves: several calls in a row, then with other
    arguments and configurations, with another width, with other layers, and as the file builds
    them. The values of their options are noted in `session.options`."""
    parts = parts_of(subject, session)
    for definition, arguments in parts.built:
        note_options(definition, arguments, session)
    for part in parts.parts:
        yield from _part_called_repeatedly(part, session)
        if not session.by_rules:
            refute_other_devices(part, session)
        yield from _with_other_options(part, session)
        for wide_part in widened_parts(
            part, domain_of(part.definition, session).constants, session
        ):
            yield wide_part.subject("with another width")
            note_options(part.definition, wide_part.arguments, session)
        yield from subjects_with_other_layers(part, session)
        for constructed in parts_as_constructed(part, session):
            yield constructed.subject("as the file builds it")
            note_options(part.definition, constructed.arguments, session)


def _with_other_arguments(part: Part, names: tuple[str, ...], session: Session) -> Part:
    """Return a part with further calls where one of the options `names` of the part decides what
    changed lines compute: with another value of each argument that these lines read, and in other
    number formats; the part itself for changes by rules, and where the original accepts no such
    calls."""
    if session.by_rules or options_deciding(part.definition, session).isdisjoint(names):
        return part
    reads = reads_of_arguments(part.definition, "forward", session)
    model = switch_mode(build_seeded(0, part.build, session.original), False)
    call = part.calls[-1]
    target = Target(model, scope=session.original)
    formats = domain_of(part.definition, session).formats
    in_other_formats = (
        candidate
        for candidate in (*calls_in_other_formats(call, formats), *calls_in_bfloat16(call, formats))
        if is_accepted(model, candidate)
    )
    calls = (*(single_calls(call, target, reads) if reads.names else ()), *in_other_formats)
    extended = replace(part, calls=(*part.calls, *calls))
    return extended if calls and accepts(extended, session) else part


def _part_called_repeatedly(part: Part, session: Session) -> Iterator[Subject]:
    """Yield an instance by itself, called several times in a row; nothing where the original does
    not accept the part or these calls."""
    if not accepts(part, session):
        return
    subject = part.subject("as built")
    repeated = subject_called_repeatedly(
        subject, named_arguments(part.calls[-1], build_original(subject, session)), session
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
    model = build_original(subject, session)
    call = subject.calls(0)[-1]
    sizes = tuple(
        dict.fromkeys(
            size for name in definitions for size in domain_of(name, session).constants.sizes
        )
    )
    names = named_arguments(call, model)
    calls = [*masked_calls(call, names), *biased_calls(call, names, ()), *_flag_calls(call, model)]
    calls += [*resized_calls(call, Constants(sizes), features=False), *enlarged_points(call)]
    if "method" in subject.recipe:
        calls += varied_argument_calls(call, model)
    if not session.by_rules:
        texts = (text for name in definitions for text in domain_of(name, session).texts)
        calls += calls_with_other_texts(call, tuple(dict.fromkeys(texts)))
    if not session.by_rules and any(
        is_plain_class(getattr(session.original, name, None)) for name in definitions
    ):
        constants = Constants(sizes, _values_of(definitions, session))
        calls += valued_calls(call, constants, model, not_finite=())
    accepted = tuple(candidate for candidate in calls if is_accepted(model, candidate))
    accepted += tuple(lengthen_axes(call, lambda candidate: is_accepted(model, candidate), AXES))
    for base in (call, *uncached_call(call, model)):
        accepted += tuple(optional_value_calls(base, Target(model)))
    if accepted:
        yield replace(
            subject, name=f"{subject.name} with other inputs", calls=calls_of_any_seed(accepted)
        )


def _values_of(definitions: tuple[str, ...], session: Session) -> tuple[float, ...]:
    """Return the numbers in the changed lines of definitions, without duplicates."""
    values = (value for name in definitions for value in domain_of(name, session).constants.values)
    return tuple(dict.fromkeys(values))


def _flag_calls(call: Call, model: Any) -> Iterator[Call]:
    """Yield the call with each flag of `_FLAGS`, which requests further outputs, where the model
    has the parameter or a configuration."""
    parameters = signature_of(model).parameters
    for name in _FLAGS:
        if name in parameters or "config" in vars(model):
            yield Call(call.args, {**call.kwargs, name: True}, name, "flags")
