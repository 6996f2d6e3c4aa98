"""Whole models under other conditions: masks, sizes, cached decoding, checkpointing, other configurations."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch

from regraft.verify.child.checks.arguments import rearranged_calls, signature_of, with_argument
from regraft.verify.child.checks.constants import Constants
from regraft.verify.child.checks.decoding import Decoding, Generating
from regraft.verify.child.checks.domain import domain_of, named_arguments
from regraft.verify.child.checks.edited import syntax_tree
from regraft.verify.child.checks.masks import biased_calls, masked_calls
from regraft.verify.child.checks.optional import given_calls
from regraft.verify.child.checks.options import note_options, varied_parts
from regraft.verify.child.checks.sizes import resized_calls, with_sizes
from regraft.verify.child.checks.turns import in_turn
from regraft.verify.child.checks.widths import widened_parts
from regraft.verify.child.drivers.alone import Part, accepts, parts_of
from regraft.verify.child.drivers.base import Subject, guarded
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session, in_mode, seeded
from regraft.verify.child.tree import Call
from regraft.verify.syntax import name_of

_FLAGS = ("output_attentions", "output_hidden_states")
_CACHED, _MORE, _LONGER = 61, 2, 2  # tokens of a long cache, those beyond a constant, and constants
_SHORTEST = 5  # tokens of which the last three are decoded from the cache


def subjects_beyond(subject: Subject, session: Session) -> Iterator[Subject]:
    """Yield a subject under the conditions in which it was not compared yet, where the original takes them.

    Each kind is compared once for each definition that the subject runs.
    """
    if subject.light:
        return
    method = subject.recipe.get("method", "")
    if method:
        names = (change.definition for change in session.changes)
        definitions = tuple(name for name in names if _has_method(session.original, name, method))
    else:
        definitions = tuple(name for name, record in session.ledger.records.items() if subject.name in record.models)
    makers = (_other_calls, _decoding, _generating, _in_turn, _checkpointed, _alone, _with_other_fields)
    for maker in (_other_calls, _in_turn) if method else makers:
        kind = f"{maker.__name__} {method}"
        if not session.thorough and all((name, kind) in session.widened for name in definitions):
            continue
        others = maker(subject, definitions, session)
        for other in guarded(others, session.ledger, f"{subject.name}, {maker.__name__.strip('_')},"):
            if session.ledger.late() or not session.ledger.open():
                return
            session.widened.update((name, kind) for name in definitions)
            yield replace(other, light=True, once=True)
            for name in definitions if other.fields else ():
                session.ledger.records[name].domain.setdefault("configuration", set()).update(other.fields)


def _has_method(module: ModuleType, definition: str, method: str) -> bool:
    return callable(vars(getattr(module, definition, object)).get(method))


def _alone(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield instances of the definitions by themselves, built with other arguments and configurations."""
    parts = parts_of(subject, session)
    for definition, arguments in parts.built:
        note_options(definition, arguments, session)
    for part in parts.parts:
        yield from _part_in_turn(part, session)
        words = _words_read((part.definition, part.cls), session)
        for variation in varied_parts(part, words, session):
            names = variation.names
            other = variation.part.subject(f"with another {', '.join(names)}")
            yield replace(other, fields=names, formats=2 if variation.switches else 1)
            note_options(part.definition, variation.part.arguments, session)
        for wide in widened_parts(part, domain_of(part.definition, session).constants, session):
            yield wide.subject("with another width")
            note_options(part.definition, wide.arguments, session)


def _part_in_turn(part: Part, session: Session) -> Iterator[Subject]:
    """Yield an instance by itself, called several times in a row."""
    if not accepts(part, session):
        return
    subject = part.subject("as built")
    other = in_turn(subject, named_arguments(part.calls[-1], _original(subject, session)), session)
    if other is not None:
        yield other


def _with_other_fields(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield the subject with another value of each field that decides what the definitions do."""
    words = frozenset(
        word
        for name in definitions
        for word in _words_read((name,), session)
        if len(session.options.get((name, word), ())) < 2
    )
    for other in subject.varied(session, words):
        yield other
        session.varied_fields.update(other.fields)


def _words_read(definitions: tuple[str, ...], session: Session) -> frozenset[str]:
    """Names that some definitions read in either version, and those that decide what they are given.

    That is: the arguments of calls of these definitions, and what the file assigns to attributes of such names.
    """
    words: set[str] = set()
    for module in (session.original, session.changed):
        tree = syntax_tree(str(module.__file__))
        own = [node for node in tree.body if getattr(node, "name", "") in definitions]
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and name_of(node.func) in definitions]
        for node in (*own, *(value for call in calls for value in (*call.args, *call.keywords))):
            words |= _words(node)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and words & {name_of(target) for target in node.targets}:
                words |= _words(node.value)
    return frozenset(words)


def _words(node: ast.AST) -> set[str]:
    inside = [inner for inner in ast.walk(node) if isinstance(inner, ast.expr)]
    texts = {inner.value for inner in inside if isinstance(inner, ast.Constant) and isinstance(inner.value, str)}
    return {name_of(inner) for inner in inside} | {text for text in texts if text.isidentifier()}


def _other_calls(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield the subject with other masks, sizes and flags."""
    model = _original(subject, session)
    call = subject.calls(0)[-1]
    sizes = tuple(dict.fromkeys(size for name in definitions for size in domain_of(name, session).constants.sizes))
    names = named_arguments(call, model)
    calls = [*masked_calls(call, names), *biased_calls(call, names, ()), *_flagged(call, model)]
    calls += [*resized_calls(call, Constants(sizes), features=False)]
    if "method" in subject.recipe:
        calls += rearranged_calls(call, model)
    accepted = tuple(other for other in calls if _runs(model, other))
    for base in (call, *_uncached(call, model)):
        accepted += tuple(given_calls(base, Target(model)))
    if accepted:
        yield replace(subject, name=f"{subject.name} with other inputs", calls=_constantly(accepted))


def _uncached(call: Call, model: Any) -> Iterator[Call]:
    """Yield the call without a cache, which a model makes by itself where nobody forbids it."""
    signature = signature_of(model)
    if "use_cache" in signature.parameters:
        yield with_argument(call, signature, "use_cache", False)


def _flagged(call: Call, model: Any) -> Iterator[Call]:
    parameters = signature_of(model).parameters
    for name in _FLAGS:
        if name in parameters or "config" in vars(model):
            yield Call(call.args, {**call.kwargs, name: True}, name, "flags")


def _decoding(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield the subject going on from its cache, without padding and with padding on the left."""
    call = subject.calls(0)[-1]
    ids = call.kwargs.get("decoder_input_ids", call.kwargs.get("input_ids"))
    if call.args or getattr(ids, "ndim", 0) != 2 or ids.shape[1] < _SHORTEST:
        return
    call = Call((), {name: value for name, value in call.kwargs.items() if "label" not in name}, "decoding", "cache")
    padded = {other.label: replace(other, beyond="cache") for other in masked_calls(call, call.kwargs)}
    constants = [size for name in definitions for size in domain_of(name, session).constants.sizes]
    longer = [size + _MORE for size in constants if ids.shape[1] < size + _MORE < _CACHED][:_LONGER]
    long = [
        replace(with_sizes(call, {ids.shape[1]: length}), label=f"decoding, length {length}")
        for length in dict.fromkeys((*longer, _CACHED))
    ]
    for together in (False, True):

        def build(module: ModuleType, together: bool = together) -> Any:
            return Decoding(subject.build(module), together)

        name = f"{subject.name} going on from its cache"
        other = replace(subject, name=name, build=build, recipe={**subject.recipe, "decoding": {"together": together}})
        model = _original(other, session)
        patterns = ("mask: random", "mask: holes") if together else ("mask: left padding", "mask: a row fully masked")
        others = [padded[pattern] for pattern in patterns if pattern in padded]
        accepted = tuple(other for other in (call, *others, *long) if _runs(model, other))
        if accepted:
            yield replace(other, calls=_constantly(accepted))


def _generating(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield the subject generating tokens, without padding and with padding on the left."""
    model = _original(subject, session)
    able = getattr(model, "can_generate", None)
    call = subject.calls(0)[-1]
    if not callable(able) or not able() or getattr(call.kwargs.get("input_ids"), "ndim", 0) != 2:
        return
    given = {name: call.kwargs[name] for name in call.kwargs if name in ("input_ids", "attention_mask")}
    given["attention_mask"] = torch.ones_like(given["input_ids"])
    plain = Call((), given, "generate", "cache")
    padded = [replace(other, label=f"generate, {other.label}", beyond="cache") for other in masked_calls(plain, given)]

    def build(module: ModuleType) -> Any:
        return Generating(subject.build(module))

    name = f"{subject.name} generating"
    other = replace(subject, name=name, build=build, recipe={**subject.recipe, "generating": True})
    accepted = tuple(one for one in (plain, *padded[:1]) if _runs(_original(other, session), one))
    if accepted:
        yield replace(other, calls=_constantly(accepted))


def _in_turn(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield the subject called several times in a row."""
    names = named_arguments(subject.calls(0)[-1], _original(subject, session))
    other = in_turn(subject, names, session)
    if other is not None:
        yield other


def _checkpointed(subject: Subject, definitions: tuple[str, ...], session: Session) -> Iterator[Subject]:
    """Yield the subject with gradient checkpointing, where its model offers it."""
    model = _original(subject, session)
    if not getattr(model, "supports_gradient_checkpointing", False):
        return

    def build(module: ModuleType) -> Any:
        model = subject.build(module)
        model.gradient_checkpointing_enable()
        return model

    call = replace(subject.calls(0)[-1], label="gradient checkpointing", beyond="modes")
    name = f"{subject.name} with gradient checkpointing"
    other = replace(subject, name=name, build=build, recipe={**subject.recipe, "checkpointing": True})
    if _runs(_original(other, session), call):
        yield replace(other, calls=_constantly((call,)))


def _constantly(calls: tuple[Call, ...]) -> Callable[[int], tuple[Call, ...]]:
    return lambda seed: calls


def _original(subject: Subject, session: Session) -> Any:
    return in_mode(seeded(0, subject.build, session.original), False)


def _runs(model: Any, call: Call) -> bool:
    """Whether a model of the original takes a call in evaluation and in training."""
    for training in (True, False):
        if execute(Target(in_mode(model, training)), call, Plan(gradients=False)).error is not None:
            return False
    return True
