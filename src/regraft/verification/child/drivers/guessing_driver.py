"""The driver that builds plain classes, and calls functions, with values and inputs that it guesses
from names and errors."""

from __future__ import annotations

import functools
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any, ClassVar, TypeGuard

from torch import nn

from regraft.verification.child.drivers import (
    config_repairs,
    config_shrinking,
    further_calls,
    input_guesses,
    input_repairs,
    parts_driver,
    source_hints,
)
from regraft.verification.child.drivers.borrowed_instances import borrowed_instance
from regraft.verification.child.drivers.class_instances import (
    Failure,
    Instance,
    builder_of,
    not_built_message,
    recipe_of,
    subject_of,
    try_values,
)
from regraft.verification.child.drivers.config_trials import raising_statements
from regraft.verification.child.drivers.configuration_objects import (
    fields_of,
    has_own_fields,
    is_config,
    with_fields,
)
from regraft.verification.child.drivers.constructor_guesses import (
    Guess,
    guesses,
    shrink_values,
    takes_config,
)
from regraft.verification.child.drivers.driver_protocol import Subject, Task, yield_until_error
from regraft.verification.child.drivers.instance_variations import FileFacts, variation_subjects
from regraft.verification.child.drivers.model_builders import Builder, builders
from regraft.verification.child.drivers.subject_reach import class_names_in, measure_reach
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.session import Session, build_seeded
from regraft.verification.definition_changes import Change

CONTAINERS = 2  # the most classes that are tried because they contain several definitions
CALLERS = 4  # the most classes that are tried for a definition that they use
# Seconds of CPU time for a class: the search for values that build it and for inputs.
SEARCH_SECONDS = 20.0
VALUE_REPAIR_SECONDS = 8.0  # of these, for the repair of the values of one guess
# Seconds of CPU time for all models that functions of the file build.
BUILT_SECONDS = 40.0


class FunctionModule(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A module whose `forward` is the function `name` of a version of a file, so that the function
    can be run, recorded and compared as a model.

    The function is looked up at each call, so that a replacement in the file is called. A copy
    keeps the version, which cannot be copied.
    """

    def __init__(self, module: ModuleType, name: str) -> None:
        super().__init__()
        self._module_of_function = (module,)
        self._name_of_function = name

    @property
    def signed(self) -> Any:
        """Return the function; `signature_of` takes its signature for that of `forward`."""
        return getattr(self._module_of_function[0], self._name_of_function)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the function."""
        return self.signed(*args, **kwargs)

    def __deepcopy__(self, _: Any) -> FunctionModule:
        """Return a module of the same function of the same version."""
        return FunctionModule(self._module_of_function[0], self._name_of_function)


class GuessingDriver:
    """The driver that guesses values of constructors, and inputs, from names and errors."""

    name: ClassVar[str] = "inference"

    def applies(self, _: Task) -> bool:
        """Return True: any class or function may be built or called with guessed values."""
        return True

    def subjects(self, task: Task) -> Iterator[Subject]:
        """Yield subjects for every definition and relative that still misses a run, where values
        can be guessed with which it runs.

        First come models that functions of the file build, then classes that contain several
        missing definitions, then the changed definitions and classes that use them, then relatives.
        The configurations of the task, with which other drivers built models of the file or tried
        to, are tried for classes that take one. An error ends the subjects of one definition only;
        errors, and the reasons for definitions that do not run, are recorded in the ledger.
        """
        session, ledger = task.session, task.session.ledger
        facts = FileFacts(
            task.source, source_hints.hints(task.text, task.source), tuple(task.configs)
        )
        yield from yield_until_error(
            _built_subjects(facts, task), ledger, "functions that build models (inference)"
        )
        for cls in _containing_classes(facts, session):
            if any(cls.__name__ in names for names in _names_above_missing(facts, session)):
                containing = _class_subjects(cls.__name__, cls, facts, session)
                yield from yield_until_error(containing, ledger, f"{cls.__name__} (inference)")
        for change in session.uncovered_changes():
            yield from _change_subjects(change, facts, session)
        for relative in session.relatives_to_run():
            value = getattr(session.original, relative.name, None)
            if relative in session.relatives_to_run() and _is_model_class(value):
                relatives = _relative_subjects(relative.name, value, facts, session)
                yield from yield_until_error(relatives, ledger, f"{relative.name} (inference)")


def model_classes_of(module: ModuleType) -> dict[str, type]:
    """Return by name the subclasses of `nn.Module` that a file defines itself, without imported
    ones."""
    return {
        name: value
        for name, value in vars(module).items()
        if _is_model_class(value) and value.__module__ == module.__name__
    }


def _is_model_class(value: Any) -> TypeGuard[type]:
    """Return whether a value is a subclass of `nn.Module`."""
    return isinstance(value, type) and issubclass(value, nn.Module)


def _containing_classes(facts: FileFacts, session: Session) -> list[type]:
    """Return the classes that take a configuration and use several missing definitions, directly or
    through others, at most `CONTAINERS`, those that use most first: all of these may run in one
    model. [] where the task has configurations, since another driver has built models then."""
    if facts.configs:
        return []
    counts = Counter(name for names in _names_above_missing(facts, session) for name in names)
    classes = {
        name: cls
        for name, cls in model_classes_of(session.original).items()
        if counts[name] > 1 and not hasattr(cls, "config_class")
        if takes_config(cls, session.original, facts.text)
    }
    names = sorted(classes, key=lambda name: -counts[name])
    return [classes[name] for name in names[:CONTAINERS]]


def _names_above_missing(facts: FileFacts, session: Session) -> list[frozenset[str]]:
    """Return, for each changed definition and relative that misses a run, in the order of their
    names, a set of names: its own, and those of everything in the file that uses it, directly or
    through others."""
    missing = {change.definition for change in session.uncovered_changes()}
    missing |= {relative.name for relative in session.relatives_to_run()}
    return [
        source_hints.names_leading_to(frozenset({name}), facts.text) for name in sorted(missing)
    ]


def _change_subjects(change: Change, facts: FileFacts, session: Session) -> Iterator[Subject]:
    """Yield subjects of a changed definition, a function or module class, then of classes that use
    it, and of those that use it through others, as long as it misses a run."""
    name = change.definition
    value = getattr(session.original, name, None)
    if change not in session.uncovered_changes():
        return
    candidates: Iterator[Subject] = iter(())
    if isinstance(value, FunctionType):
        candidates = _function_subjects(name, session)
    elif _is_model_class(value):
        candidates = _class_subjects(name, value, facts, session)
    yield from yield_until_error(candidates, session.ledger, f"{name} (inference)")
    if change in session.uncovered_changes():
        callers = _caller_subjects(name, facts, session)
        yield from yield_until_error(callers, session.ledger, f"callers of {name} (inference)")
    if change in session.uncovered_changes():
        outer = _outermost_subjects(name, facts, session)
        yield from yield_until_error(outer, session.ledger, f"users of {name} (inference)")


def _caller_subjects(definition: str, facts: FileFacts, session: Session) -> Iterator[Subject]:
    """Yield subjects of the first `CALLERS` classes of the file whose methods name a definition,
    until it is complete: they call it with arguments that it expects."""
    callers = [
        (name, cls)
        for name, cls in model_classes_of(session.original).items()
        if name != definition and definition in parts_driver.names_in_methods(cls)
    ]
    for name, cls in callers[:CALLERS]:
        if not session.is_complete(definition):
            yield from _class_subjects(name, cls, facts, session)


def _outermost_subjects(definition: str, facts: FileFacts, session: Session) -> Iterator[Subject]:
    """Yield subjects of the first `CALLERS` classes of the file that use a definition through
    others, those that the fewest definitions use first, until it is complete: a whole model makes
    the arguments that its parts expect."""
    classes = model_classes_of(session.original)
    above = source_hints.names_leading_to(frozenset({definition}), facts.text) - {definition}
    users = {
        name: len(source_hints.names_leading_to(frozenset({name}), facts.text))
        for name, cls in classes.items()
        if name in above and definition not in parts_driver.names_in_methods(cls)
    }
    for name in sorted(users, key=lambda name: users[name])[:CALLERS]:
        if not session.is_complete(definition):
            yield from _class_subjects(name, classes[name], facts, session)


def _relative_subjects(
    name: str, cls: type, facts: FileFacts, session: Session
) -> Iterator[Subject]:
    """Yield a class that is related to a changed one, as the first values build it with which it
    accepts inputs; nothing, with the reason recorded, where no values do."""
    instance = _first_instance(name, cls, facts, session)
    if instance is not None:
        yield subject_of(instance)


def _built_subjects(facts: FileFacts, task: Task) -> Iterator[Subject]:
    """Yield the models that functions of the file build, where they are of use, and their
    variations; then parts of the models that do not run.

    The search ends after `BUILT_SECONDS`, in which comparisons of full subjects do not count.
    Lists, tuples and dictionaries that these functions give their classes are added to
    `facts.noted`.
    """
    session = task.session
    deadline = session.ledger.deadline_within(BUILT_SECONDS)
    inputless_models: list[parts_driver.WholeModel] = []
    for builder in builders(session.original, session.ledger):
        for key, value in builder.values.items():
            if isinstance(value, list | tuple | dict):
                facts.noted.setdefault(key, value)
        if session.is_finished() or time.process_time() > deadline:
            break
        for subject in yield_until_error(
            _builder_subjects(builder, facts, inputless_models, session),
            session.ledger,
            f"{builder.name} (inference)",
        ):
            started = time.process_time()
            yield subject
            if not subject.light:
                deadline += time.process_time() - started  # its comparison is no search
    if inputless_models and not session.is_finished():
        yield from parts_driver.PartsDriver(inputless_models).subjects(task)


def _builder_subjects(
    builder: Builder,
    facts: FileFacts,
    inputless_models: list[parts_driver.WholeModel],
    session: Session,
) -> Iterator[Subject]:
    """Yield the model that a function builds, if it contains definitions to run or reaches new
    lines, and its variations; append a model that accepts no inputs to `inputless_models`."""
    instance, inputless_model = _instance_from_builder(builder, session)
    if instance is not None:
        wanted_names = (
            class_names_in(build_seeded(0, instance.build, session.original), session)
            & session.definitions_to_run()
        )
        if wanted_names or measure_reach(subject_of(instance), session).is_worth_comparing:
            yield subject_of(instance)
        yield from variation_subjects(instance, facts, session)
    elif inputless_model is not None:
        inputless_models.append(inputless_model)


def _instance_from_builder(
    builder: Builder, session: Session
) -> tuple[Instance | None, parts_driver.WholeModel | None]:
    """Return (a small version of the model that a function builds, None); where none accepts
    inputs, (None, one that is built), and (None, None) where none is built.

    All scales are tried with guesses of inputs, then again with a search for them, up to the first
    scale that builds the model. The reason is recorded in the ledger where no model accepts inputs.
    """
    inputless_model = None
    tried_values: list[dict[str, Any]] = []
    failures: list[Failure] = []
    for seconds in (0.0, input_repairs.SECONDS):
        for scale in config_shrinking.SCALES:
            values = builder.overrides(shrink_values(builder.values, scale))
            if seconds == 0.0 and values in tried_values:
                continue
            tried_values.append(values)
            values, instance = _try_without_blamed(builder, values, session, seconds)
            if isinstance(instance, Instance):
                return instance, None
            failures.append(instance)
            if instance.built:
                recipe = recipe_of(builder.name, values)
                inputless_model = inputless_model or parts_driver.WholeModel(
                    builder.name, builder_of(builder.name, values), recipe, instance.spec
                )
                if seconds:
                    break
    session.ledger.skip(
        f"{builder.name} (inference): {max(failures, key=lambda failure: failure.built).reason}"
    )
    return None, inputless_model


def _try_without_blamed(
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


def _class_subjects(name: str, cls: type, facts: FileFacts, session: Session) -> Iterator[Subject]:
    """Yield a class as the first values build it with which it accepts inputs, then variations that
    reach lines which have not run yet; nothing, with the reason recorded, where no values do."""
    instance = _first_instance(name, cls, facts, session)
    if instance is not None:
        yield subject_of(instance)
        yield from variation_subjects(instance, facts, session)


def _first_instance(name: str, cls: type, facts: FileFacts, session: Session) -> Instance | None:
    """Return a class as the first values build it with which it accepts inputs; None, with the
    reason recorded in the ledger, where no values do."""
    outcome = instance_or_failure(name, cls, facts, session)
    if isinstance(outcome, Instance):
        return outcome
    session.ledger.skip(f"{name} (inference): {outcome[0].reason}")
    return None


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
    for failure, guess in sorted(failures, key=lambda pair: pair[0].progress, reverse=True):
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


def _function_subjects(name: str, session: Session) -> Iterator[Subject]:
    """Yield a function of the file with inputs that it accepts, then, as light subjects, with
    further inputs that reach new lines; nothing, with the reason recorded, where it accepts
    none."""

    def build(module: ModuleType) -> Any:
        """Return the function of a version as a module."""
        return FunctionModule(module, name)

    model = build(session.original)
    try:
        with session.ledger.step("original", "", f"look for inputs of {name}"):
            accepted = input_guesses.find_accepted(model, inner=True)
    except (input_guesses.NoInputs, LookupError) as error:
        session.ledger.skip(f"{name} (inference): {error}")
        return
    subject = Subject(
        f"{name}(...)",
        "inference",
        build,
        accepted.calls(model),
        {"kind": "function", "name": name},
    )
    yield subject
    for calls in further_calls.more_calls(model, accepted, name):
        variant = replace(subject, calls=calls, light=True)
        if session.is_finished():
            return
        if measure_reach(variant, session).is_worth_comparing:
            yield variant
