"""Bring the models of a file that follows the Hugging Face conventions to life, from their configuration classes."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch import nn

from regraft.verify.child import weights
from regraft.verify.child.drivers import inputs, tiny
from regraft.verify.child.drivers.base import Subject
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session, seeded
from regraft.verify.child.tree import Call

ATTENTIONS = ("eager", "sdpa")

# How many models, and for how long, other configurations are tried where lines have not run yet.
SEARCHED = 3
SEARCH_SECONDS = 20.0
LARGEST = 20_000_000


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A model class with a configuration that builds it and calls that it accepts."""

    cls: str
    config: Any
    values: Mapping[str, Any]
    attention: str
    calls: Callable[[int], tuple[Call, ...]]
    used: frozenset[str]
    size: int


def applies(module: ModuleType) -> bool:
    """Whether the file defines models that name their configuration class."""
    return bool(_model_classes(module))


def _model_classes(module: ModuleType) -> tuple[str, ...]:
    found = []
    for name, value in vars(module).items():
        own = isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == module.__name__
        if own and hasattr(getattr(value, "config_class", None), "from_dict") and "forward" in _own_names(value):
            found.append(name)
    return tuple(found)


def _own_names(cls: Any) -> set[str]:
    inherited = (c for c in cls.__mro__ if c.__module__ == cls.__module__)
    return {name for c in inherited for name in vars(c)}


def subjects(session: Session, text: str) -> Iterator[Subject]:
    """Yield models until every change was compared, every changed line and every relative ran.

    `text` is the source of the changed definitions.
    """
    candidates = sorted(_candidates(session), key=lambda c: (-_use(c, session), c.size, c.cls))
    for candidate in candidates:
        if session.done():
            return
        if _useful(candidate, session):
            yield _subject(candidate)
    deadline = time.monotonic() + SEARCH_SECONDS
    if session.covered():
        return
    hopeful = sorted(candidates, key=lambda c: (-_use(c, session), c.size, c.cls))[:SEARCHED]
    for candidate in hopeful:
        for other in _others(candidate, session, text, deadline):
            if session.covered():
                return
            yield replace(_subject(other), light=True)


def _use(candidate: _Candidate, session: Session) -> int:
    return len(candidate.used & session.wanted())


def _useful(candidate: _Candidate, session: Session) -> bool:
    """Whether a candidate holds a class still wanted, or a changed line that is not in a class it could hold runs."""
    return _use(candidate, session) > 0 or (not session.covered() and _reaches(candidate, session))


def _candidates(session: Session) -> Iterator[_Candidate]:
    names = tuple(change.definition for change in session.changes)
    for cls in _model_classes(session.original):
        if session.ledger.late():
            return
        found = _bring_up(cls, {}, "eager", session, names)
        if found is not None:
            yield found


def _bring_up(
    cls: str, override: Mapping[str, Any], attention: str, session: Session, names: tuple[str, ...]
) -> _Candidate | None:
    """Shrink the configuration step by step less, until the original is built and accepts some inputs."""
    config_class = getattr(session.original, cls).config_class
    reasons = []
    for scale in tiny.SCALES:
        try:
            with session.ledger.step("original", "", f"bring up {cls}"):
                values = {**tiny.shrink(config_class().to_dict(), scale), **override}
                config = _config(config_class, values, attention)
                _refuse_large(cls, config, session.original)
                model = seeded(0, _builder(cls, config), session.original)
                calls = inputs.find_calls(model.eval())
        except Exception as error:  # noqa: BLE001 - a shrunk configuration may not fit; recorded as the reason to skip
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
            continue
        size = sum(p.numel() for p in model.parameters())
        return _Candidate(cls, config, values, attention, calls, _used(model, session, names), size)
    session.ledger.skip(f"{cls} (huggingface): {reasons[0]}")
    return None


def _refuse_large(cls: str, config: Any, module: ModuleType) -> None:
    """Raise ValueError for a model that would not be small; it is counted without being allocated."""
    try:
        with torch.device("meta"):
            model = _builder(cls, config)(module)
    except Exception:  # noqa: BLE001 - some constructors compute with values; those are built for real
        return
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > LARGEST:
        raise ValueError(f"it still has {count:,} parameters when its configuration is shrunk")


def _builder(cls: str, config: Any) -> Callable[[ModuleType], Any]:
    return lambda module: getattr(module, cls)(copy.deepcopy(config))


def _config(config_class: Any, values: Mapping[str, Any], attention: str) -> Any:
    config = config_class.from_dict(copy.deepcopy(dict(values)))
    config._attn_implementation = attention
    return config


def _used(model: Any, session: Session, names: tuple[str, ...]) -> frozenset[str]:
    classes = [c for c in (getattr(session.original, name, None) for name in names) if isinstance(c, type)]
    parts = tuple(model.modules())
    own = {type(part).__name__ for part in parts if type(part).__module__ == session.original.__name__}
    return frozenset(c.__name__ for c in classes if any(isinstance(part, c) for part in parts)) | own


def _subject(candidate: _Candidate) -> Subject:
    config_class = type(candidate.config)
    recipe = {
        "kind": "huggingface",
        "class": candidate.cls,
        "config_module": config_class.__module__,
        "config_class": config_class.__name__,
        "config": dict(candidate.values),
        "attention": candidate.attention,
    }
    build = _builder(candidate.cls, candidate.config)
    return Subject(candidate.cls, "huggingface", build, candidate.calls, recipe)


def _others(candidate: _Candidate, session: Session, text: str, deadline: float) -> Iterator[_Candidate]:
    """Yield other configurations and calls of a model that reach lines which have not run yet."""
    for attention, override in _overrides(candidate, text):
        if session.covered() or time.monotonic() > deadline:
            break
        other = _quietly(candidate, override, attention, session)
        if other is not None and _reaches(other, session):
            yield other
    model = seeded(0, _subject(candidate).build, session.original).eval()
    for calls in (*inputs.extra_calls(model, candidate.calls), inputs.without_mask(candidate.calls)):
        if session.covered():
            return
        other = replace(candidate, calls=calls)
        if _reaches(other, session):
            yield other


def _overrides(candidate: _Candidate, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from ((attention, {}) for attention in ATTENTIONS if attention != candidate.attention)
    yield from ((candidate.attention, override) for override in tiny.variations(candidate.values, text))


def _quietly(
    candidate: _Candidate, override: Mapping[str, Any], attention: str, session: Session
) -> _Candidate | None:
    """Build a variation if the original can; its failure is expected and says nothing about the change."""
    values = {**candidate.values, **override}
    try:
        with session.ledger.step("original", "", f"vary {candidate.cls}: {dict(override) or attention}"):
            config = _config(type(candidate.config), values, attention)
            model = seeded(0, _builder(candidate.cls, config), session.original).eval()
            calls = inputs.find_calls(model)
    except Exception:  # noqa: BLE001 - most variations are not meant to work
        return None
    return replace(candidate, config=config, values=values, attention=attention, calls=calls)


def _reaches(candidate: _Candidate, session: Session) -> bool:
    """Run both versions once in each mode and see whether something runs for the first time."""
    older, newer = session.probes()
    subject = _subject(candidate)
    try:
        with session.ledger.step("original", "probe", subject.name), older:
            _run_once(subject, session.original)
        with session.ledger.step("changed", "probe", subject.name), newer:
            _run_once(subject, session.changed)
    except Exception:  # noqa: BLE001 - the full comparison finds out why, and blames
        return True
    return session.reached_by(older, newer)


def _run_once(subject: Subject, module: ModuleType) -> None:
    model = seeded(0, subject.build, module)
    for training in (False, True):
        with weights.dropout_rate(model, weights.RATE):
            for call in subject.calls(0)[-1:]:
                outcome = execute(Target(model.train(training)), call, Plan(gradients=False))
                if outcome.error is not None:
                    raise outcome.error
