"""Instances of classes, with guessed and repaired arguments and inputs."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from regraft.verification.child.drivers import config_repairs, input_repairs, source_hints
from regraft.verification.child.drivers.borrowed_instances import borrowed_instance
from regraft.verification.child.drivers.class_instances import (
    Failure,
    Instance,
    not_built_message,
    try_values,
)
from regraft.verification.child.drivers.config_trials import raising_statements
from regraft.verification.child.drivers.configuration_objects import (
    fields_of,
    has_own_fields,
    is_config,
    with_fields,
)
from regraft.verification.child.drivers.constructor_guesses import Guess, guesses
from regraft.verification.child.drivers.instance_variations import FileFacts
from regraft.verification.child.drivers.model_builders import Builder
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.session import Session

# Seconds of CPU time for a class: the search for values that build it and for inputs.
SEARCH_SECONDS = 20.0
VALUE_REPAIR_SECONDS = 8.0  # of these, for the repair of the values of one guess


def try_without_blamed(
    builder: Builder, values: dict[str, Any], session: Session, seconds: float
) -> tuple[dict[str, Any], Instance | Failure]:
    """Call a function with values and return them and the outcome. Where it builds nothing and the
    error names one of the values, call it again without that one, which the function may set by
    itself, and so on; the values of the last call are returned."""
    while True:
        outcome = try_values(builder.name, values, session, seconds, function_values=builder.values)
        if isinstance(outcome, Instance) or outcome.built:
            return values, outcome
        blamed_parameter = _blamed_parameter(outcome.reason, values)
        if not blamed_parameter:
            return values, outcome
        values = {key: value for key, value in values.items() if key != blamed_parameter}


def _blamed_parameter(reason: str, values: Mapping[str, Any]) -> str:
    """Return the first name of `values` that the error in a reason (`not_built_message`) contains
    as a word; "" for none. An underscore in the name may be a space in the error."""
    error = reason.removeprefix(not_built_message(values))
    blamed = (key for key in values if re.search(rf"\b({key}|{key.replace('_', ' ')})\b", error))
    return next(blamed, "")


def instance_or_failure(
    name: str, cls: type, facts: FileFacts, session: Session, *, borrows: bool = True
) -> Instance | tuple[Failure, Guess]:
    """Return a class as the first values build it with which it accepts inputs; where no values do,
    the failure of the first guess that built the class, else of the first guess, with that guess.

    All guesses are first tried with guessed inputs. Then, from the guess that came furthest on,
    inputs are searched for, and the values are changed as the errors suggest. No further guess is
    tried after `SEARCH_SECONDS`. At last, if it `borrows`, the class is built and called as models
    in other files of the repository do.
    """
    deadline = time.process_time() + SEARCH_SECONDS
    failures: list[tuple[Failure, Guess]] = []
    for guess in guesses(cls, session.original, facts.text, facts.configs, facts.noted):
        instance = try_values(name, guess.values, session, 0.0)
        if isinstance(instance, Instance):
            return instance
        failures.append((instance, guess))
        if time.process_time() > deadline:
            break
    outcome = _searched_instance(name, failures, facts, session, deadline)
    if borrows and not isinstance(outcome, Instance):
        find = functools.partial(_instance_in, facts, session)
        return borrowed_instance(cls, find, session) or outcome
    return outcome


def _instance_in(
    facts: FileFacts, session: Session, cls: type, module: ModuleType, text: str
) -> Instance | None:
    """Return a class of another module with a source as guessed values build it with which it
    accepts inputs; None, with the reason recorded in the ledger, where no values do. `facts` are
    those of the file under test."""
    hints = source_hints.hints(text, text)
    own_facts = FileFacts(text, hints, facts.configs, dict(facts.noted))
    own_session = replace(session, original=module)
    outcome = instance_or_failure(cls.__name__, cls, own_facts, own_session, borrows=False)
    if isinstance(outcome, Instance):
        return outcome
    session.ledger.skip(f"{cls.__name__} of {module.__name__} (inference): {outcome[0].reason}")
    return None


def _searched_instance(
    name: str,
    failures: list[tuple[Failure, Guess]],
    facts: FileFacts,
    session: Session,
    deadline: float,
) -> Instance | tuple[Failure, Guess]:
    """Search for inputs of a class, and for values with which it is built, from guesses that
    failed, until the deadline; the result is that of `instance_or_failure`."""
    for failure, guess in furthest_first(failures):
        if time.process_time() > deadline:
            break
        instance = (
            try_values(name, guess.values, session, input_repairs.SECONDS)
            if failure.built
            else failure
        )
        if isinstance(instance, Failure):
            instance = _repaired_instance(name, guess, instance, facts, session, deadline)
        if isinstance(instance, Instance):
            return instance
    return max(failures, key=lambda pair: pair[0].built)


def furthest_first(failures: list[tuple[Failure, Guess]]) -> list[tuple[Failure, Guess]]:
    """Return failures with their guesses, those that came furthest first. Failures with one error,
    sizes in it aside, count as equally far, since more layers run more operations before the same
    error, and stay in their order: the smallest values first."""

    def error_of(failure: Failure) -> tuple[bool, str]:
        """Return whether the class was built, and its error without numbers."""
        return failure.built, re.sub(r"\d+", "", f"{type(failure.error).__name__}{failure.error}")

    progress_by_error: dict[tuple[bool, str], tuple[bool, int]] = {}
    for failure, _ in failures:
        progress_by_error.setdefault(error_of(failure), failure.progress)
    return sorted(failures, key=lambda pair: progress_by_error[error_of(pair[0])], reverse=True)


def _repaired_instance(
    name: str, guess: Guess, failure: Failure, facts: FileFacts, session: Session, deadline: float
) -> Instance | Failure:
    """Change the values of a guess as the error suggests, as long as each change leads further,
    until the deadline or for `VALUE_REPAIR_SECONDS`; return the instance that accepts inputs.

    Where the changes end before the deadline with a class that is built, inputs are searched for
    once more. Otherwise the failure that came furthest is returned.
    """
    deadline = min(deadline, time.process_time() + VALUE_REPAIR_SECONDS)
    values: Mapping[str, Any] = guess.values
    best = failure
    while best.error is not None:
        for change in _value_repairs(guess.original, values, best.error, facts, session):
            if time.process_time() > deadline:
                return best
            instance = try_values(name, {**values, **change}, session, 0.0, best.spec)
            if isinstance(instance, Instance):
                return instance
            if instance.progress > best.progress:
                best, values = instance, {**values, **change}
                break
        else:
            break
    return (
        try_values(name, values, session, input_repairs.SECONDS)
        if best.built and best is not failure
        else best
    )


def _value_repairs(
    original: Mapping[str, Any],
    values: Mapping[str, Any],
    error: BaseException,
    facts: FileFacts,
    session: Session,
) -> Iterator[dict[str, Any]]:
    """Yield changes of a constructor's values that an error suggests: all plain values, some of
    them changed, then one configuration with other fields. `original` are the values before they
    were shrunk. Configurations with a `to_dict` are not changed."""
    line, text = raising_statements(error, session.original), shorten_error(error, 2000)
    plain_values = {key: value for key, value in values.items() if not is_config(value)}
    yield from config_repairs.constructor_repairs(
        original, plain_values, text, line, facts.hints.choices
    )
    for key, config in values.items():
        if has_own_fields(config):
            fields = fields_of(config)
            for change in config_repairs.repairs(
                fields_of(original[key]), fields, text, line, facts.hints.choices
            ):
                changed = {
                    name: value for name, value in change.items() if fields.get(name) != value
                }
                yield {key: with_fields(config, changed)}
