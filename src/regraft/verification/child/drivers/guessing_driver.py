"""The driver that builds plain classes, and calls functions, with values and inputs that it guesses
from names and errors."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from types import FunctionType
from typing import Any, ClassVar

from regraft.verification.child.drivers import (
    config_shrinking,
    input_repairs,
    parts_driver,
    source_hints,
)
from regraft.verification.child.drivers.class_instances import (
    Failure,
    Instance,
    builder_of,
    recipe_of,
    subject_of,
)
from regraft.verification.child.drivers.constructor_guesses import shrink_values, takes_config
from regraft.verification.child.drivers.driver_protocol import Subject, Task, yield_until_error
from regraft.verification.child.drivers.function_subjects import function_subjects
from regraft.verification.child.drivers.guessed_instances import (
    instance_or_failure,
    try_without_blamed,
)
from regraft.verification.child.drivers.instance_variations import FileFacts, variation_subjects
from regraft.verification.child.drivers.model_builders import Builder, builders
from regraft.verification.child.drivers.plain_methods import plain_method_subjects
from regraft.verification.child.drivers.subject_reach import class_names_in, measure_reach
from regraft.verification.child.running_classes import (
    is_module_class,
    is_plain_class,
    module_classes,
)
from regraft.verification.child.session import Session, build_seeded
from regraft.verification.definition_changes import Change

CONTAINERS = 2  # the most classes that are tried because they contain several definitions
CALLERS = 4  # the most classes that are tried for a definition that they use

# Seconds of CPU time for all models that functions of the file build.
BUILT_SECONDS = 40.0


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
        missing definitions, then the changed definitions and classes that use them, then relatives,
        and classes that use relatives which do not run alone.
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
            if relative in session.relatives_to_run() and is_module_class(value):
                relatives = _relative_subjects(relative.name, value, facts, session)
                yield from yield_until_error(relatives, ledger, f"{relative.name} (inference)")
        for name in dict.fromkeys(relative.name for relative in session.relatives_to_run()):
            yield from _user_subjects(name, facts, session)


def _containing_classes(facts: FileFacts, session: Session) -> list[type]:
    """Return the classes that take a configuration and use several missing definitions, directly or
    through others, at most `CONTAINERS`, those that use most first: all of these may run in one
    model. [] where the task has configurations, since another driver has built models then."""
    if facts.configs:
        return []
    counts = Counter(name for names in _names_above_missing(facts, session) for name in names)
    classes = {
        name: cls
        for name, cls in module_classes(session.original).items()
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
    """Yield subjects of a changed definition, a function or class, then of classes that use it, and
    of those that use it through others, as long as it misses a run."""
    name = change.definition
    value = getattr(session.original, name, None)
    if change not in session.uncovered_changes():
        return
    candidates: Iterator[Subject] = iter(())
    if isinstance(value, FunctionType):
        candidates = function_subjects(name, session)
    elif is_module_class(value):
        candidates = _class_subjects(name, value, facts, session)
    elif is_plain_class(value):
        candidates = itertools.chain(
            function_subjects(name, session)
            if _is_constructor_unrun(change, value, session)
            else (),
            plain_method_subjects(change, value, facts, session),
        )
    yield from yield_until_error(candidates, session.ledger, f"{name} (inference)")
    yield from _user_subjects(name, facts, session)


def _is_constructor_unrun(change: Change, cls: type, session: Session) -> bool:
    """Return whether rules changed lines of the constructor that a class defines, which never ran:
    then the class is called as a function is, and its instances are compared."""
    constructor = vars(cls).get("__init__")
    if not session.by_rules or not isinstance(constructor, FunctionType):
        return False
    lines = {line for *_, line in constructor.__code__.co_lines()}
    return not lines.isdisjoint(line for line, _ in session.tracer.gaps(change))


def _user_subjects(name: str, facts: FileFacts, session: Session) -> Iterator[Subject]:
    """Yield subjects of classes that use a definition, then of those that use it through others, as
    long as it misses a run."""
    if _misses_run(name, session):
        callers = _caller_subjects(name, facts, session)
        yield from yield_until_error(callers, session.ledger, f"callers of {name} (inference)")
    if _misses_run(name, session):
        outer = _outermost_subjects(name, facts, session)
        yield from yield_until_error(outer, session.ledger, f"users of {name} (inference)")


def _misses_run(name: str, session: Session) -> bool:
    """Return whether a changed definition is uncovered, or a relative of one has not run."""
    relatives = (relative.name for relative in session.relatives_to_run())
    return session.needs_run(name) or name in relatives


def _caller_subjects(definition: str, facts: FileFacts, session: Session) -> Iterator[Subject]:
    """Yield subjects of the first `CALLERS` classes of the file whose methods name a definition,
    until it is complete: they call it with arguments that it expects."""
    callers = [
        (name, cls)
        for name, cls in module_classes(session.original).items()
        if name != definition and definition in parts_driver.names_in_methods(cls)
    ]
    for name, cls in callers[:CALLERS]:
        if _misses_run(definition, session):
            yield from _class_subjects(name, cls, facts, session)


def _outermost_subjects(definition: str, facts: FileFacts, session: Session) -> Iterator[Subject]:
    """Yield subjects of the first `CALLERS` classes of the file that use a definition through
    others, those that the fewest definitions use first, until it is complete: a whole model makes
    the arguments that its parts expect."""
    classes = module_classes(session.original)
    above = source_hints.names_leading_to(frozenset({definition}), facts.text) - {definition}
    users = {
        name: len(source_hints.names_leading_to(frozenset({name}), facts.text))
        for name, cls in classes.items()
        if name in above and definition not in parts_driver.names_in_methods(cls)
    }
    for name in sorted(users, key=lambda name: users[name])[:CALLERS]:
        if _misses_run(definition, session):
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
            values, instance = try_without_blamed(builder, values, session, seconds)
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
