"""Methods of classes that are no modules, such as samplers and schedules, as models."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from regraft.verification.child.checks.argument_variants import signature_of
from regraft.verification.child.checks.arguments_in_source import syntax_of_class
from regraft.verification.child.drivers import input_guesses
from regraft.verification.child.drivers.attributes_of_methods import (
    attributes_read,
    guessed_attributes,
    preparing_methods,
)
from regraft.verification.child.drivers.class_instances import builder_of, show_values
from regraft.verification.child.drivers.constructor_guesses import guesses
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.drivers.guessed_slots import guess_slots, parameters
from regraft.verification.child.drivers.instance_variations import FileFacts
from regraft.verification.child.drivers.methods_driver import Method, uncalled_methods
from regraft.verification.child.drivers.subject_reach import with_further_calls
from regraft.verification.child.session import Session, build_seeded
from regraft.verification.definition_changes import Change

_SECONDS = 5.0  # of CPU time, for the search for the inputs of a method
_GUESSES = 6  # the most guesses of a constructor's values


def plain_method_subjects(
    change: Change, cls: type, facts: FileFacts, session: Session
) -> Iterator[Subject]:
    """Yield the methods of a changed class that is none of modules, those that were never called
    and have changed lines, with inputs that they accept, then, as light subjects, with further
    inputs that reach new lines.

    A static method is called on the class. For others the class is built from the first guessed
    values with which it can be: its options take no second value, so these methods are left out for
    a change that rules did not make, which may put a number in the place of an option. Where a
    method accepts no inputs, the reason is recorded in the ledger.
    """
    names = tuple(uncalled_methods(change, session))
    static = [name for name in names if isinstance(vars(cls).get(name), staticmethod)]
    for name in static:
        yield from _method_subjects(_Owner(cls.__name__), name, cls, session)
    bound = [name for name in names if name not in static] if session.by_rules else []
    values = _constructor_values(cls, facts, session) if bound else None
    for name in bound if values is not None else ():
        yield from _method_subjects(_Owner(cls.__name__, values), name, cls, session)


@dataclass(frozen=True, slots=True)
class _Owner:
    """The owner of methods: a class by its name where `values` is None, else the instance that its
    constructor makes of the values, with further attributes, after a call of its method
    `preparation` with `arguments` ("" for none)."""

    class_name: str
    values: Mapping[str, Any] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    preparation: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """Return the owner as code would show it, with what is done to it."""
        if self.values is None:
            return self.class_name
        attributes = f" with {show_values(self.attributes)}" if self.attributes else ""
        prepared = f" after {self.preparation}({show_values(self.arguments)})"
        instance = f"{self.class_name}({show_values(self.values)})"
        return f"{instance}{attributes}{prepared if self.preparation else ''}"

    def build(self, module: ModuleType) -> Any:
        """Return the owner in a version of the file. Raises what its constructor and the
        preparation raise."""
        if self.values is None:
            return getattr(module, self.class_name)
        instance = builder_of(self.class_name, self.values)(module)
        for name, value in self.attributes.items():
            setattr(instance, name, value)
        if self.preparation:
            getattr(instance, self.preparation)(**self.arguments)
        return instance


def _constructor_values(cls: type, facts: FileFacts, session: Session) -> dict[str, Any] | None:
    """Return the first of at most `_GUESSES` guesses of values that builds a class; None, with the
    reason recorded in the ledger, where none does."""
    reason = "no values were guessed"
    candidates = guesses(cls, session.original, facts.text, facts.configs, facts.noted)
    for guess in itertools.islice(candidates, _GUESSES):
        try:
            with session.ledger.step("original", "", f"build {cls.__name__}"):
                build_seeded(0, builder_of(cls.__name__, guess.values), session.original)
        except Exception as error:  # noqa: BLE001 - guessed values may not fit; the reason to skip
            reason = f"{type(error).__name__}: {str(error)[:200]}"
            continue
        return guess.values
    session.ledger.skip(f"{cls.__name__} (methods): it cannot be built: {reason}")
    return None


def _method_subjects(owner: _Owner, name: str, cls: type, session: Session) -> Iterator[Subject]:
    """Yield the method `name` of the first owner with which it accepts inputs, then with further
    inputs; nothing, with the reason recorded in the ledger, where it accepts none."""
    reasons = []
    for candidate in _owners(owner, name, cls, session):

        def build(module: ModuleType, candidate: _Owner = candidate) -> Any:
            """Return the method, in a version of the file, as a module."""
            return Method(candidate.build(module), name)

        description = f"{candidate.description}.{name}"
        outcome = _accepted_inputs(build, description, session)
        if isinstance(outcome, str):
            reasons.append(f"{description} (methods): {outcome}")
            continue
        model, accepted = outcome
        subject = Subject(description, "methods", build, accepted.calls(model), {})
        yield subject
        yield from with_further_calls(subject, model, accepted, name, session)
        return
    session.ledger.skip(reasons[-1])


def _accepted_inputs(
    build: Callable[[ModuleType], Any], description: str, session: Session
) -> tuple[Any, input_guesses.AcceptedInputs] | str:
    """Return a method of the original as a module, in evaluation mode, and the inputs that it
    accepts, or the reason why it accepts none."""
    try:
        model = build_seeded(0, build, session.original).eval()
        with session.ledger.step("original", "", f"look for inputs of {description}"):
            return model, input_guesses.find_accepted(model, inner=True, seconds=_SECONDS)
    except Exception as error:  # noqa: BLE001 - guessed attributes and arguments may not fit; the reason to skip
        return str(error)


def _owners(owner: _Owner, name: str, cls: type, session: Session) -> Iterator[_Owner]:
    """Yield an owner of a method, with guesses of the attributes that the method reads and nobody
    assigns, as in a class that others inherit from; then such owners after a call of another method
    that assigns what this one reads."""
    if owner.values is None:
        yield owner
        return
    tree = syntax_of_class(cls)
    try:
        instance = build_seeded(0, owner.build, session.original)
        absent = [read for read in attributes_read(tree, name) if not hasattr(instance, read)]
        owner = replace(owner, attributes=guessed_attributes(tree, absent))
    except LookupError as error:
        session.ledger.skip(f"{owner.description}.{name} (methods): {error}")
        return
    yield owner
    for preparation in preparing_methods(tree, name):
        arguments = _plain_arguments(Method(instance, preparation))
        if arguments is not None:
            yield replace(owner, preparation=preparation, arguments=arguments)


def _plain_arguments(method: Method) -> dict[str, Any] | None:
    """Return guesses of the required arguments of a method by name; None where one of them is a
    tensor or cannot be guessed."""
    signature = signature_of(method)
    required = {p.name for p in parameters(signature) if p.default is p.empty}
    try:
        slots = guess_slots(method, True, 0)
    except LookupError:
        return None
    if any(slots[name].kind != "plain" for name in required):
        return None
    return {name: slots[name].value for name in sorted(required)}
