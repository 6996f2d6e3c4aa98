"""Bring the models of a file that follows the Hugging Face conventions to life, from their
configuration classes."""

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
from regraft.verify.child.drivers.base import Subject, yield_until_error
from regraft.verify.child.drivers.bringup import Trial, builder
from regraft.verify.child.drivers.reach import class_names_in, reach
from regraft.verify.child.drivers.slots import Spec
from regraft.verify.child.session import Session, build_seeded, in_mode

ATTENTIONS = (bringup.EAGER, "sdpa")

# The number of models, and the seconds, for trying other configurations and calls where lines have
# not run yet.
SEARCHED = 3
SEARCH_SECONDS = 20.0

# Seconds for repairing all models that a shrunk configuration does not bring to life.
REPAIR_SECONDS = 30.0
# Seconds for bringing up all models with other values of their configurations.
SECOND_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model class with a configuration that builds it and calls that it accepts.

    `values` is the configuration as a dictionary, `accepted` the inputs that were found for it,
    `used` the names of the file's classes that the model has instances of, `size` its number of
    parameters.
    """

    cls: str
    config: Any
    values: Mapping[str, Any]
    attention: str
    accepted: inputs.AcceptedInputs
    calls: inputs.Calls
    used: frozenset[str]
    size: int


def applies(module: ModuleType) -> bool:
    """Return whether the file defines models that name their configuration class."""
    return bool(_model_classes(module))


def _model_classes(module: ModuleType) -> tuple[str, ...]:
    """Return the names of the file's modules that have a configuration class and define `forward`
    in the file."""
    names = []
    for name, value in vars(module).items():
        is_own_module = (
            isinstance(value, type)
            and issubclass(value, nn.Module)
            and value.__module__ == module.__name__
        )
        if (
            is_own_module
            and hasattr(getattr(value, "config_class", None), "from_dict")
            and "forward" in _names_in_file(value)
        ):
            names.append(name)
    return tuple(names)


def _names_in_file(cls: Any) -> set[str]:
    """Return the names of the attributes that a class gets from classes of its own file."""
    bases = (base for base in cls.__mro__ if base.__module__ == cls.__module__)
    return {name for base in bases for name in vars(base)}


def subjects(session: Session, text: str, source: str, configs: list[Any]) -> Iterator[Subject]:
    """Yield models until every change was compared and every changed line and every relative ran.

    `text` is the source of the changed definitions, `source` that of the original file.
    Configurations that build models are appended to `configs`, and at the end those that do not:
    the parts of such models may be small all the same.
    """
    failed_trials: dict[str, Trial] = {}
    candidates: list[Candidate] = []
    hints = vary.hints(text, source)
    quick_candidates = sorted(
        _quick_candidates(session, failed_trials),
        key=lambda c: (-_wanted_count(c, session), c.size, c.cls),
    )
    for candidate in itertools.chain(
        quick_candidates, _repaired_candidates(session, failed_trials, candidates, hints.choices)
    ):
        candidates.append(candidate)
        configs.append(candidate.config)
        if session.is_finished():
            return
        if _wanted_count(candidate, session) or (
            not session.is_covered() and reach(_subject(candidate), session).news
        ):
            yield _subject(candidate)
    for cls, trial in failed_trials.items():
        session.ledger.skip(f"{cls} (huggingface): {bringup.brief(trial.error)}")
    ledger = session.ledger
    if not session.is_finished():
        yield from yield_until_error(
            _borrowing_subjects(candidates, failed_trials, session),
            ledger,
            "models that others call (huggingface)",
        )
        yield from yield_until_error(
            parts.subjects(_whole_models(candidates, failed_trials, session), session),
            ledger,
            "parts of models (huggingface)",
        )
    for candidate in yield_until_error(
        _explore(candidates, session, hints, source), ledger, "variations of models (huggingface)"
    ):
        configs.append(candidate.config)
        yield replace(_subject(candidate), light=True)
    if not session.is_covered():
        whole_models = tuple(_whole_models(candidates, failed_trials, session))
        varied_parts = parts.parts_of_variations(
            _varied_whole_models(whole_models, session, hints), session
        )
        yield from yield_until_error(varied_parts, ledger, "parts of variations (huggingface)")
    configs.extend(
        trial.config or _config_class(cls, session)() for cls, trial in failed_trials.items()
    )


def _wanted_count(candidate: Candidate, session: Session) -> int:
    """Return how many of the definitions that are still wanted a candidate has instances of."""
    return len(candidate.used & session.wanted_definitions())


def _quick_candidates(session: Session, failed_trials: dict[str, Trial]) -> Iterator[Candidate]:
    """Yield the model classes that a shrunk configuration builds; note the trials of the others in
    `failed_trials`."""
    for cls in _model_classes(session.original):
        if session.ledger.is_late():
            return
        yield from yield_until_error(
            _quick_candidate(cls, session, failed_trials), session.ledger, f"{cls} (huggingface)"
        )


def _quick_candidate(
    cls: str, session: Session, failed_trials: dict[str, Trial]
) -> Iterator[Candidate]:
    """Yield a model class if a shrunk configuration builds it; otherwise note its trial in
    `failed_trials`."""
    defaults = _defaults(cls, session)
    if defaults is not None:
        trial = bringup.try_scales(cls, _config_class(cls, session), defaults, session)
        if trial.error is None:
            yield _candidate(cls, trial, session)
        else:
            failed_trials[cls] = trial


def _repaired_candidates(
    session: Session,
    failed_trials: dict[str, Trial],
    candidates: list[Candidate],
    choices: vary.Choices,
) -> Iterator[Candidate]:
    """Yield the models among `failed_trials` that repairs bring to life.

    Values that work for one model are tried for the next.
    """
    working_values = {
        candidate.values.get("model_type"): candidate.values for candidate in candidates
    }
    deadline = session.ledger.share(REPAIR_SECONDS)
    for cls, first_trial in sorted(
        failed_trials.items(),
        key=lambda name_and_trial: -_wanted_in_failed(name_and_trial[1], session),
    ):
        defaults = _defaults(cls, session)
        if defaults is None or not _wanted_in_failed(first_trial, session):
            continue
        if session.is_finished() or session.ledger.is_late() or time.process_time() > deadline:
            return
        repaired = _repaired_candidate(
            cls, defaults, session, failed_trials, working_values, choices
        )
        yield from yield_until_error(repaired, session.ledger, f"{cls} (huggingface)")


def _repaired_candidate(
    cls: str,
    defaults: Mapping[str, Any],
    session: Session,
    failed_trials: dict[str, Trial],
    working_values: dict[Any, Mapping[str, Any]],
    choices: vary.Choices,
) -> Iterator[Candidate]:
    """Yield a model class among `failed_trials` if a repair brings it to life.

    `working_values` are the values, by model type, with which other models run.
    """
    first_trial, config_class = failed_trials[cls], _config_class(cls, session)
    trials = [first_trial]
    values = _with_working_values(first_trial.values, working_values)
    if values != first_trial.values:
        trials.append(bringup.attempt(f"bring up {cls}", cls, config_class, values, session))
    best = max(trials, key=lambda trial: trial.progress)
    trial = bringup.repair_trial(cls, config_class, defaults, best, session, choices)
    if trial.error is None:
        del failed_trials[cls]
        working_values[trial.values.get("model_type")] = trial.values
        yield _candidate(cls, trial, session)
    else:
        failed_trials[cls] = trial


def _with_working_values(
    values: Mapping[str, Any], working_values: Mapping[Any, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return a configuration with its values, or those of configurations inside it, taken from
    models that run."""
    model_type = values.get("model_type")
    if model_type and model_type in working_values:
        return working_values[model_type]
    return {
        key: _with_working_values(value, working_values) if isinstance(value, Mapping) else value
        for key, value in values.items()
    }


def _wanted_in_failed(trial: Trial, session: Session) -> int:
    """Return how many of the still wanted definitions a failed trial's model has instances of; 1
    without a model."""
    return (
        1
        if trial.model is None
        else len(class_names_in(trial.model, session) & session.wanted_definitions())
    )


def _config_class(cls: str, session: Session) -> Any:
    """Return the configuration class that a model class of the file names."""
    return getattr(session.original, cls).config_class


def _defaults(cls: str, session: Session) -> dict[str, Any] | None:
    """Return the configuration that a model class has by default, or None where there is none."""
    try:
        values: dict[str, Any] = _config_class(cls, session)().to_dict()
    except Exception as error:  # noqa: BLE001 - a configuration without defaults; recorded as the reason to skip
        session.ledger.skip(
            f"{cls} (huggingface): no default configuration: {bringup.brief(error)}"
        )
        return None
    return values


def _candidate(cls: str, trial: Trial, session: Session) -> Candidate:
    """Return the candidate of a trial that succeeded."""
    assert trial.accepted is not None
    size = sum(parameter.numel() for parameter in trial.model.parameters())
    calls = trial.accepted.calls(trial.model)
    used = class_names_in(trial.model, session)
    return Candidate(
        cls, trial.config, trial.values, trial.attention, trial.accepted, calls, used, size
    )


def _subject(candidate: Candidate) -> Subject:
    """Return the subject of a candidate; its `varied` yields the model with other values of its
    configuration."""
    build = builder(candidate.cls, candidate.config)

    def varied(session: Session, words: frozenset[str]) -> Iterator[Subject]:
        return _with_second_values(candidate, session, words)

    return Subject(
        candidate.cls,
        "huggingface",
        build,
        candidate.calls,
        _recipe(candidate.cls, candidate),
        varied=varied,
    )


def _with_second_values(
    candidate: Candidate, session: Session, words: frozenset[str]
) -> Iterator[Subject]:
    """Yield the model with another value of each field of its configuration that `words` name."""
    deadline = session.ledger.share(SECOND_SECONDS)
    tried_paths: set[tuple[str, ...]] = set()
    choices = vary.compared_strings(inspect.getsource(session.original))
    for override in vary.second_values(candidate.values, words, choices):
        path = vary.path_of(override, candidate.values)
        if path in tried_paths:
            continue
        if time.process_time() > deadline:
            return
        variant = next(_built_variants(candidate, [(candidate.attention, override)], session), None)
        if variant is not None:
            tried_paths.add(path)
            value = ".".join(path)
            started = time.process_time()
            yield replace(
                _subject(variant), name=f"{candidate.cls} with another {value}", fields=(path[-1],)
            )
            deadline += time.process_time() - started  # comparing it is no search


def _recipe(cls: str, candidate: Candidate | Trial) -> dict[str, Any]:
    """Return the description from which a reproducer builds a model."""
    config_class = type(candidate.config)
    return {
        "kind": "huggingface",
        "class": cls,
        "config_module": config_class.__module__,
        "config_class": config_class.__name__,
        "config": dict(candidate.values),
        "attention": candidate.attention,
    }


def _whole_model(cls: str, candidate: Candidate | Trial, spec: Spec | None) -> parts.WholeModel:
    """Return a built model whose parts may be run, with the inputs that it takes or came furthest
    with."""
    return parts.WholeModel(cls, builder(cls, candidate.config), _recipe(cls, candidate), spec)


def _whole_models(
    candidates: list[Candidate], failed_trials: Mapping[str, Trial], session: Session
) -> Iterator[parts.WholeModel]:
    """Yield every model that is built.

    Those that do not run to their end come first, with the inputs that they came furthest with.
    """
    for cls, trial in failed_trials.items():
        if trial.model is not None:
            yield _whole_model(
                cls, trial, trial.furthest.spec if trial.furthest is not None else None
            )
    for candidate in candidates:
        yield _whole_model(
            candidate.cls,
            candidate,
            candidate.accepted.spec if candidate.cls in session.halting else None,
        )


def _borrowing_subjects(
    candidates: list[Candidate], failed_trials: dict[str, Trial], session: Session
) -> Iterator[Subject]:
    """Yield models that take no generated inputs, with the calls that another model makes of them.

    They are removed from `failed_trials`.
    """
    for caller in candidates:
        whole_model = _whole_model(caller.cls, caller, caller.accepted.spec)
        for part, calls in (
            parts.borrow_calls(whole_model, failed_trials, session) if failed_trials else ()
        ):
            cls = type(part).__name__
            callee = replace(
                caller, cls=cls, config=part.config, values=part.config.to_dict(), calls=calls
            )
            subject = _subject(callee)
            del failed_trials[cls]
            if reach(subject, session).news or cls in session.wanted_definitions():
                yield subject


def _varied_whole_models(
    whole_models: tuple[parts.WholeModel, ...], session: Session, hints: vary.Hints
) -> Iterator[parts.WholeModel]:
    """Yield models that do not run to their end with other configurations."""
    deadline = session.ledger.share(SEARCH_SECONDS)
    for whole_model in whole_models:
        values, attention = whole_model.recipe["config"], whole_model.recipe["attention"]
        for other_attention, override in (
            _overrides(values, attention, hints) if whole_model.spec is not None else ()
        ):
            if session.is_covered() or time.process_time() > deadline:
                return
            trial = bringup.attempt(
                f"vary {whole_model.name}: {dict(override) or other_attention}",
                whole_model.name,
                _config_class(whole_model.name, session),
                {**values, **override},
                session,
                attention=other_attention,
                first_spec=whole_model.spec,
            )
            if trial.model is not None:
                yield _whole_model(whole_model.name, trial, whole_model.spec)


def _explore(
    candidates: list[Candidate], session: Session, hints: vary.Hints, source: str
) -> Iterator[Candidate]:
    """Yield other configurations and calls that reach lines which have not run yet, and variations
    of these.

    The models take turns. A field may have no effect without another: a variation that runs new
    lines of the file is varied further at once, in the fields that the text mentions. Models that
    neither contain nor lead to a missing definition wait until the other models are exhausted.
    """
    if session.is_finished():
        return
    deadline = session.ledger.share(SEARCH_SECONDS)
    leading_to = functools.cache(lambda names: vary.leading_to(names, source))

    def missing_names() -> frozenset[str]:
        return (
            frozenset(change.definition for change in session.unfinished_changes())
            | session.wanted_definitions()
        )

    hints = replace(hints, text=hints.text + _lines_around(session.wanted_definitions(), source))

    initially_missing = missing_names()

    def sort_key(model: Candidate) -> tuple[Any, ...]:
        return (
            -_wanted_count(model, session),
            model.cls not in leading_to(initially_missing),
            -len(model.used & initially_missing),
            model.size,
            model.cls,
        )

    def can_wait(model: Candidate) -> bool:
        names = missing_names()
        return not (model.used & names or model.cls in leading_to(names))

    searched = sorted(candidates, key=sort_key)[:SEARCHED]
    reached_lines = {
        line for candidate in searched for line in reach(_subject(candidate), session).lines
    }
    queue = deque((model, [(model, _variants(model, session, hints))]) for model in searched)
    postponed: deque[tuple[Candidate, list[tuple[Candidate, Iterator[Candidate]]]]] = deque()
    postponed_only = False
    while queue or postponed:
        if not queue:
            queue, postponed, postponed_only = postponed, queue, True
        candidate, searches = queue.popleft()
        while searches:
            if not postponed_only and can_wait(candidate):
                postponed.append((candidate, searches))
                break
            start, variants = searches[-1]
            variant = next(variants, None)
            if session.is_finished() or time.process_time() > deadline:
                return
            if variant is None:
                searches.pop()
                continue
            reached = reach(_subject(variant), session)
            if (variant.used - start.used) & session.wanted_definitions() or reached.news:
                started = time.process_time()
                yield variant
                deadline += time.process_time() - started  # comparing it is no search
            if not reached.lines - reached_lines:
                queue.append((candidate, searches))  # the other models' turn
                break
            # a step on the way, even where it reaches no changed line
            reached_lines |= reached.lines
            queue.append((variant, [(variant, _variants(variant, session, hints))]))
            searches.append((variant, _mentioned_variants(variant, session, hints)))


def _lines_around(names: frozenset[str], source: str) -> str:
    """Return the lines of a source that contain one of some names, each with the three lines before
    it.

    The lines before may hold the condition that chooses it.
    """
    lines = source.splitlines()
    line_numbers = [
        number for number, line in enumerate(lines) if any(name in line for name in names)
    ]
    return "\n".join(
        line for number in line_numbers for line in lines[max(0, number - 3) : number + 1]
    )


def _variants(candidate: Candidate, session: Session, hints: vary.Hints) -> Iterator[Candidate]:
    """Yield other configurations, other calls, and longer inputs, in turn."""
    reconfigured = _built_variants(
        candidate, _overrides(candidate.values, candidate.attention, hints), session
    )
    calls = inputs.more_calls(_build_original(candidate, session), candidate.accepted, hints.text)
    called_otherwise = (replace(candidate, calls=variant_calls) for variant_calls in calls)
    for variants in itertools.zip_longest(
        reconfigured, called_otherwise, _with_longer_inputs(candidate, session, hints)
    ):
        yield from (variant for variant in variants if variant is not None)


def _with_longer_inputs(
    candidate: Candidate, session: Session, hints: vary.Hints
) -> Iterator[Candidate]:
    """Yield a candidate with longer inputs, also with its inputs divided into shorter blocks."""
    block_overrides = (
        (candidate.attention, override) for override in vary.shorter_blocks(candidate.values, hints)
    )
    for variant in itertools.chain(
        [candidate], _built_variants(candidate, block_overrides, session)
    ):
        yield from (
            replace(variant, calls=calls)
            for calls in inputs.longer_calls(_build_original(variant, session), variant.accepted)
        )


def _mentioned_variants(
    candidate: Candidate, session: Session, hints: vary.Hints
) -> Iterator[Candidate]:
    """Yield the variations of fields that the text mentions."""
    overrides = (
        (candidate.attention, override)
        for override in vary.mentioned_variations(candidate.values, hints)
    )
    yield from _built_variants(candidate, overrides, session)


def _build_original(candidate: Candidate, session: Session) -> Any:
    """Return the original's model of a candidate, in evaluation mode."""
    return in_mode(build_seeded(0, _subject(candidate).build, session.original), False)


def _overrides(
    values: Mapping[str, Any], attention: str, hints: vary.Hints
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield pairs of an attention implementation and overrides of fields, of which one differs from
    what is given."""
    yield from (
        (other_attention, {})
        for other_attention in ATTENTIONS
        if other_attention != attention and hints.dispatches
    )
    yield from ((attention, override) for override in vary.variations(values, hints))


def _built_variants(
    candidate: Candidate, overrides: Iterable[tuple[str, Mapping[str, Any]]], session: Session
) -> Iterator[Candidate]:
    """Yield the candidates with those overrides that the original can be built and run with.

    Failures of the others are expected, and say nothing about the change.
    """
    for attention, override in overrides:
        values = {**candidate.values, **override}
        trial = bringup.attempt(
            f"vary {candidate.cls}: {dict(override) or attention}",
            candidate.cls,
            type(candidate.config),
            values,
            session,
            attention=attention,
            first_spec=candidate.accepted.spec,
        )
        if trial.error is None:
            yield _candidate(candidate.cls, trial, session)
