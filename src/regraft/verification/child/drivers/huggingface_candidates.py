"""Model classes of a file that follows the Hugging Face conventions, with configurations that build
them and calls that they accept: make subjects of them, and vary them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from regraft.verification.child.drivers import (
    config_trials,
    config_variations,
    input_guesses,
    parts_driver,
    source_hints,
)
from regraft.verification.child.drivers.argument_slots import Spec
from regraft.verification.child.drivers.config_trials import Trial, build_function
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.drivers.subject_reach import class_names_in
from regraft.verification.child.session import Session

# Seconds of CPU time for building one model with other values of its configuration.
VARIED_SECONDS = 15.0


def config_class_of(cls: str, session: Session) -> Any:
    """Return the configuration class that a model class of the original file names; AttributeError
    is raised where it names none."""
    return getattr(session.original, cls).config_class


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model class with a configuration that builds it and calls that it accepts.

    `values` is the configuration as a dictionary, `attention` the name of its attention
    implementation, `accepted` the inputs that were found for it, `calls` the function that makes
    its calls from a seed, `used` the names of the file's classes that the model has instances of,
    `size` its number of parameters.
    """

    cls: str
    config: Any
    values: Mapping[str, Any]
    attention: str
    accepted: input_guesses.AcceptedInputs
    calls: input_guesses.Calls
    used: frozenset[str]
    size: int


def count_definitions_to_run(candidate: Candidate, session: Session) -> int:
    """Return how many of the definitions that still have to run (`Session.definitions_to_run`) a
    candidate has instances of."""
    return len(candidate.used & session.definitions_to_run())


def candidate_of(cls: str, trial: Trial, session: Session) -> Candidate:
    """Return the candidate of a trial of class `cls` that accepted inputs."""
    assert trial.accepted is not None
    size = sum(parameter.numel() for parameter in trial.model.parameters())
    calls = trial.accepted.calls(trial.model)
    used = class_names_in(trial.model, session)
    return Candidate(
        cls, trial.config, trial.values, trial.attention, trial.accepted, calls, used, size
    )


def subject_of(candidate: Candidate) -> Subject:
    """Return the subject of a candidate; its `varied` yields the model with another value of each
    field of its configuration that is asked for."""
    build = build_function(candidate.cls, candidate.config)

    def varied(session: Session, words: frozenset[str]) -> Iterator[Subject]:
        """Yield the model with another value of each field in `words`."""
        return _with_second_values(candidate, session, words)

    return Subject(
        candidate.cls,
        "huggingface",
        build,
        candidate.calls,
        recipe_of(candidate.cls, candidate),
        varied=varied,
    )


def _with_second_values(
    candidate: Candidate, session: Session, words: frozenset[str]
) -> Iterator[Subject]:
    """Yield the model with another value of each field of its configuration that `words` name: the
    first value with which it builds and runs. A field without such a value is skipped.

    The search ends after `VARIED_SECONDS`, in which comparisons of the yielded subjects do not
    count.
    """
    deadline = session.ledger.deadline_within(VARIED_SECONDS)
    tried_paths: set[tuple[str, ...]] = set()
    choices = source_hints.compared_strings(inspect.getsource(session.original))
    for override in config_variations.second_values(candidate.values, words, choices):
        path = config_variations.path_of(override, candidate.values)
        if path in tried_paths:
            continue
        if time.process_time() > deadline:
            return
        variant = next(build_variants(candidate, [(candidate.attention, override)], session), None)
        if variant is not None:
            tried_paths.add(path)
            value = ".".join(path)
            started = time.process_time()
            yield replace(
                subject_of(variant),
                name=f"{candidate.cls} with another {value}",
                fields=(path[-1],),
            )
            deadline += time.process_time() - started  # its comparison is no search


def recipe_of(cls: str, candidate: Candidate | Trial) -> dict[str, Any]:
    """Return the description in JSON from which a reproducer builds class `cls` as a candidate or a
    trial with a configuration does."""
    config_class = type(candidate.config)
    return {
        "kind": "huggingface",
        "class": cls,
        "config_module": config_class.__module__,
        "config_class": config_class.__name__,
        "config": dict(candidate.values),
        "attention": candidate.attention,
    }


def whole_model_of(
    cls: str, candidate: Candidate | Trial, spec: Spec | None
) -> parts_driver.WholeModel:
    """Return the model of a candidate, or of a trial with a configuration, for a search of its
    parts.

    `spec` are the inputs that it takes or came furthest with, None for a model that is not to be
    run as a whole.
    """
    return parts_driver.WholeModel(
        cls, build_function(cls, candidate.config), recipe_of(cls, candidate), spec
    )


def build_variants(
    candidate: Candidate, overrides: Iterable[tuple[str, Mapping[str, Any]]], session: Session
) -> Iterator[Candidate]:
    """Yield a candidate with each of the `overrides`, pairs of an attention implementation and
    changed fields, with which the original is built and accepts inputs.

    Other overrides are skipped without a record: their failures are expected, and say nothing about
    the change. Inputs are only guessed, the candidate's own first.
    """
    for attention, override in overrides:
        values = {**candidate.values, **override}
        trial = config_trials.try_config(
            f"vary {candidate.cls}: {dict(override) or attention}",
            candidate.cls,
            type(candidate.config),
            values,
            session,
            attention=attention,
            first_spec=candidate.accepted.spec,
        )
        if trial.error is None:
            yield candidate_of(candidate.cls, trial, session)
