"""Bring the models of a file that follows the Hugging Face conventions to life, from their configuration classes."""

from __future__ import annotations

import functools
import inspect
import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from torch import nn

from regraft.verify.child.drivers import bringup, inputs, parts, vary
from regraft.verify.child.drivers.base import Subject, guarded
from regraft.verify.child.drivers.bringup import Trial, builder
from regraft.verify.child.drivers.reach import held, reach
from regraft.verify.child.drivers.slots import Spec
from regraft.verify.child.session import Session, in_mode, seeded

ATTENTIONS = (bringup.EAGER, "sdpa")

# How many models, and for how long, other configurations and calls are tried where lines have not run yet.
SEARCHED = 3
SEARCH_SECONDS = 20.0

# How long the models that a shrunk configuration does not bring to life are repaired, all together.
REPAIR_SECONDS = 30.0
# How long models with other values of their configurations are brought up, all together.
SECOND_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model class with a configuration that builds it and calls that it accepts."""

    cls: str
    config: Any
    values: Mapping[str, Any]
    attention: str
    found: inputs.Found
    calls: inputs.Calls
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


def subjects(session: Session, text: str, source: str, configs: list[Any]) -> Iterator[Subject]:
    """Yield models until every change was compared, every changed line and every relative ran.

    `text` is the source of the changed definitions, `source` that of the original file. The configurations that build
    models are added to `configs`, at the end those that do not: their parts may be small all the same.
    """
    failed: dict[str, Trial] = {}
    ready: list[Candidate] = []
    hints = vary.hints(text, source)
    quick = sorted(_quick(session, failed), key=lambda c: (-_use(c, session), c.size, c.cls))
    for candidate in itertools.chain(quick, _mended(session, failed, ready, hints.choices)):
        ready.append(candidate)
        configs.append(candidate.config)
        if session.done():
            return
        if _use(candidate, session) or (not session.covered() and reach(_subject(candidate), session).news):
            yield _subject(candidate)
    for cls, trial in failed.items():
        session.ledger.skip(f"{cls} (huggingface): {bringup.brief(trial.error)}")
    ledger = session.ledger
    if not session.done():
        yield from guarded(_borrowing(ready, failed, session), ledger, "models that others call (huggingface)")
        yield from guarded(
            parts.subjects(_wholes(ready, failed, session), session), ledger, "parts of models (huggingface)"
        )
    for candidate in guarded(_explored(ready, session, hints, source), ledger, "variations of models (huggingface)"):
        configs.append(candidate.config)
        yield replace(_subject(candidate), light=True)
    if not session.covered():
        wholes = tuple(_wholes(ready, failed, session))
        varied = parts.of_variations(_varied_wholes(wholes, session, hints), session)
        yield from guarded(varied, ledger, "parts of variations (huggingface)")
    configs.extend(trial.config or _config_class(cls, session)() for cls, trial in failed.items())


def _use(candidate: Candidate, session: Session) -> int:
    return len(candidate.used & session.wanted())


def _quick(session: Session, failed: dict[str, Trial]) -> Iterator[Candidate]:
    """Yield the model classes that a shrunk configuration builds; the others are noted in `failed`."""
    for cls in _model_classes(session.original):
        if session.ledger.late():
            return
        yield from guarded(_quick_candidate(cls, session, failed), session.ledger, f"{cls} (huggingface)")


def _quick_candidate(cls: str, session: Session, failed: dict[str, Trial]) -> Iterator[Candidate]:
    """Yield a model class if a shrunk configuration builds it; otherwise it is noted in `failed`."""
    defaults = _defaults(cls, session)
    if defaults is not None:
        trial = bringup.quickly(cls, _config_class(cls, session), defaults, session)
        if trial.error is None:
            yield _candidate(cls, trial, session)
        else:
            failed[cls] = trial


def _mended(
    session: Session, failed: dict[str, Trial], ready: list[Candidate], choices: vary.Choices
) -> Iterator[Candidate]:
    """Yield the models among `failed` that repairs bring to life; what works for one is tried for the next."""
    known = {candidate.values.get("model_type"): candidate.values for candidate in ready}
    deadline = session.ledger.share(REPAIR_SECONDS)
    for cls, first in sorted(failed.items(), key=lambda item: -_hope(item[1], session)):
        defaults = _defaults(cls, session)
        if defaults is None or not _hope(first, session):
            continue
        if session.done() or session.ledger.late() or time.process_time() > deadline:
            return
        mended = _mended_candidate(cls, defaults, session, failed, known, choices)
        yield from guarded(mended, session.ledger, f"{cls} (huggingface)")


def _mended_candidate(
    cls: str, defaults: Mapping[str, Any], session: Session, failed: dict[str, Trial],
    known: dict[Any, Mapping[str, Any]], choices: vary.Choices,
) -> Iterator[Candidate]:  # fmt: skip
    """Yield a model class among `failed` if a repair brings it to life; `known` are values that work for others."""
    first, config_class = failed[cls], _config_class(cls, session)
    tried = [first]
    values = _with_known(first.values, known)
    if values != first.values:
        tried.append(bringup.attempt(f"bring up {cls}", cls, config_class, values, session))
    best = max(tried, key=lambda trial: trial.progress)
    trial = bringup.repaired(cls, config_class, defaults, best, session, choices)
    if trial.error is None:
        del failed[cls]
        known[trial.values.get("model_type")] = trial.values
        yield _candidate(cls, trial, session)
    else:
        failed[cls] = trial


def _with_known(values: Mapping[str, Any], known: Mapping[Any, Mapping[str, Any]]) -> Mapping[str, Any]:
    """A configuration, or those inside it, as they are in models that run."""
    kind = values.get("model_type")
    if kind and kind in known:
        return known[kind]
    return {key: _with_known(value, known) if isinstance(value, Mapping) else value for key, value in values.items()}


def _hope(trial: Trial, session: Session) -> int:
    """How many of the definitions still wanted a failed trial's model holds; 1 where it is not known."""
    return 1 if trial.model is None else len(held(trial.model, session) & session.wanted())


def _config_class(cls: str, session: Session) -> Any:
    return getattr(session.original, cls).config_class


def _defaults(cls: str, session: Session) -> dict[str, Any] | None:
    """The configuration that a model class has by default, or None where there is none."""
    try:
        values: dict[str, Any] = _config_class(cls, session)().to_dict()
    except Exception as error:  # noqa: BLE001 - a configuration without defaults; recorded as the reason to skip
        session.ledger.skip(f"{cls} (huggingface): no default configuration: {bringup.brief(error)}")
        return None
    return values


def _candidate(cls: str, trial: Trial, session: Session) -> Candidate:
    assert trial.found is not None
    size = sum(parameter.numel() for parameter in trial.model.parameters())
    calls = trial.found.calls(trial.model)
    used = held(trial.model, session)
    return Candidate(cls, trial.config, trial.values, trial.attention, trial.found, calls, used, size)


def _subject(candidate: Candidate) -> Subject:
    build = builder(candidate.cls, candidate.config)

    def varied(session: Session, words: frozenset[str]) -> Iterator[Subject]:
        return _with_second_values(candidate, session, words)

    return Subject(
        candidate.cls, "huggingface", build, candidate.calls, _recipe(candidate.cls, candidate), varied=varied
    )


def _with_second_values(candidate: Candidate, session: Session, words: frozenset[str]) -> Iterator[Subject]:
    """Yield the model with another value of each field of its configuration that `words` name."""
    deadline = session.ledger.share(SECOND_SECONDS)
    done: set[tuple[str, ...]] = set()
    choices = vary.compared_strings(inspect.getsource(session.original))
    for override in vary.second_values(candidate.values, words, choices):
        path = vary.path_of(override, candidate.values)
        if path in done:
            continue
        if time.process_time() > deadline:
            return
        other = next(_varied(candidate, [(candidate.attention, override)], session), None)
        if other is not None:
            done.add(path)
            value = ".".join(path)
            before = time.process_time()
            yield replace(_subject(other), name=f"{candidate.cls} with another {value}", fields=(path[-1],))
            deadline += time.process_time() - before  # comparing it is no search


def _recipe(cls: str, made: Candidate | Trial) -> dict[str, Any]:
    """How a reproducer builds a model."""
    config_class = type(made.config)
    return {
        "kind": "huggingface",
        "class": cls,
        "config_module": config_class.__module__,
        "config_class": config_class.__name__,
        "config": dict(made.values),
        "attention": made.attention,
    }


def _whole(cls: str, made: Candidate | Trial, spec: Spec | None) -> parts.Whole:
    return parts.Whole(cls, builder(cls, made.config), _recipe(cls, made), spec)


def _wholes(ready: list[Candidate], failed: Mapping[str, Trial], session: Session) -> Iterator[parts.Whole]:
    """Every model that is built: those that do not run to their end, with what they came furthest with, first."""
    for cls, trial in failed.items():
        if trial.model is not None:
            yield _whole(cls, trial, trial.furthest.spec if trial.furthest is not None else None)
    for one in ready:
        yield _whole(one.cls, one, one.found.spec if one.cls in session.halting else None)


def _borrowing(ready: list[Candidate], failed: dict[str, Trial], session: Session) -> Iterator[Subject]:
    """Yield models that take no inputs of ours, called as another model calls them."""
    for one in ready:
        whole = _whole(one.cls, one, one.found.spec)
        for part, calls in parts.borrowed(whole, failed, session) if failed else ():
            cls = type(part).__name__
            made = replace(one, cls=cls, config=part.config, values=part.config.to_dict(), calls=calls)
            subject = _subject(made)
            del failed[cls]
            if reach(subject, session).news or cls in session.wanted():
                yield subject


def _varied_wholes(wholes: tuple[parts.Whole, ...], session: Session, hints: vary.Hints) -> Iterator[parts.Whole]:
    """Other configurations of the models that do not run to their end."""
    deadline = session.ledger.share(SEARCH_SECONDS)
    for whole in wholes:
        values, attention = whole.recipe["config"], whole.recipe["attention"]
        for other, override in _overrides(values, attention, hints) if whole.spec is not None else ():
            if session.covered() or time.process_time() > deadline:
                return
            trial = bringup.attempt(
                f"vary {whole.name}: {dict(override) or other}", whole.name, _config_class(whole.name, session),
                {**values, **override}, session, attention=other, first=whole.spec,
            )  # fmt: skip
            if trial.model is not None:
                yield _whole(whole.name, trial, whole.spec)


def _explored(ready: list[Candidate], session: Session, hints: vary.Hints, source: str) -> Iterator[Candidate]:
    """Yield other configurations and calls that reach what has not run yet, and variations of these in turn.

    The models take turns. A field may do nothing without another: what runs new lines of the file is varied further at
    once, in the fields that the text mentions. Models that hold nothing of what is still missing, and lead to nothing
    of it, wait for the others.
    """
    if session.done():
        return
    deadline = session.ledger.share(SEARCH_SECONDS)
    leading_to = functools.cache(lambda names: vary.leading_to(names, source))

    def lacking() -> frozenset[str]:
        return frozenset(change.definition for change in session.missing()) | session.wanted()

    hints = replace(hints, text=hints.text + _around(session.wanted(), source))

    first = lacking()

    def promise(one: Candidate) -> tuple[Any, ...]:
        return -_use(one, session), one.cls not in leading_to(first), -len(one.used & first), one.size, one.cls

    def waits(one: Candidate) -> bool:
        names = lacking()
        return not (one.used & names or one.cls in leading_to(names))

    best = sorted(ready, key=promise)[:SEARCHED]
    seen = {line for candidate in best for line in reach(_subject(candidate), session).lines}
    pool = deque((one, [(one, _others(one, session, hints))]) for one in best)
    put_off: deque[tuple[Candidate, list[tuple[Candidate, Iterator[Candidate]]]]] = deque()
    last = False
    while pool or put_off:
        if not pool:
            pool, put_off, last = put_off, pool, True
        candidate, waiting = pool.popleft()
        while waiting:
            if not last and waits(candidate):
                put_off.append((candidate, waiting))
                break
            begin, others = waiting[-1]
            other = next(others, None)
            if session.done() or time.process_time() > deadline:
                return
            if other is None:
                waiting.pop()
                continue
            found = reach(_subject(other), session)
            if (other.used - begin.used) & session.wanted() or found.news:
                before = time.process_time()
                yield other
                deadline += time.process_time() - before  # comparing it is no search
            if not found.lines - seen:
                pool.append((candidate, waiting))  # the other models' turn
                break
            seen |= found.lines  # a step on the way, even where it reaches no changed line
            pool.append((other, [(other, _others(other, session, hints))]))
            waiting.append((other, _near(other, session, hints)))


def _around(names: frozenset[str], source: str) -> str:
    """The lines of a source that have one of some names, each with those before it: what they are chosen by."""
    lines = source.splitlines()
    here = [number for number, line in enumerate(lines) if any(name in line for name in names)]
    return "\n".join(line for number in here for line in lines[max(0, number - 3) : number + 1])


def _others(candidate: Candidate, session: Session, hints: vary.Hints) -> Iterator[Candidate]:
    """Yield other configurations, other calls, and longer inputs, in turn."""
    varied = _varied(candidate, _overrides(candidate.values, candidate.attention, hints), session)
    calls = inputs.more_calls(_built(candidate, session), candidate.found, hints.text)
    called = (replace(candidate, calls=more) for more in calls)
    for several in itertools.zip_longest(varied, called, _longer(candidate, session, hints)):
        yield from (one for one in several if one is not None)


def _longer(candidate: Candidate, session: Session, hints: vary.Hints) -> Iterator[Candidate]:
    """Yield longer inputs, also with shorter blocks of them."""
    shorter = ((candidate.attention, override) for override in vary.shorter_blocks(candidate.values, hints))
    for one in itertools.chain([candidate], _varied(candidate, shorter, session)):
        yield from (replace(one, calls=calls) for calls in inputs.longer(_built(one, session), one.found))


def _near(candidate: Candidate, session: Session, hints: vary.Hints) -> Iterator[Candidate]:
    """Yield the variations in what the text mentions."""
    mentioned = ((candidate.attention, override) for override in vary.mentioned(candidate.values, hints))
    yield from _varied(candidate, mentioned, session)


def _built(candidate: Candidate, session: Session) -> Any:
    """The original's model, in evaluation."""
    return in_mode(seeded(0, _subject(candidate).build, session.original), False)


def _overrides(
    values: Mapping[str, Any], attention: str, hints: vary.Hints
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from ((other, {}) for other in ATTENTIONS if other != attention and hints.dispatches)
    yield from ((attention, override) for override in vary.variations(values, hints))


def _varied(
    candidate: Candidate, overrides: Iterable[tuple[str, Mapping[str, Any]]], session: Session
) -> Iterator[Candidate]:
    """Yield the variations that the original can be; the failure of others is expected, and says nothing about the
    change."""
    for attention, override in overrides:
        values = {**candidate.values, **override}
        trial = bringup.attempt(
            f"vary {candidate.cls}: {dict(override) or attention}", candidate.cls, type(candidate.config), values,
            session, attention=attention, first=candidate.found.spec,
        )  # fmt: skip
        if trial.error is None:
            yield _candidate(candidate.cls, trial, session)
