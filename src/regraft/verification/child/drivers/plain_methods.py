"""Methods of classes that are no modules, such as samplers and schedules, as models."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from regraft.verification.child.drivers import input_guesses
from regraft.verification.child.drivers.class_instances import builder_of, show_values
from regraft.verification.child.drivers.constructor_guesses import guesses
from regraft.verification.child.drivers.driver_protocol import Subject
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
        yield from _method_subjects(cls.__name__, name, None, session)
    bound = [name for name in names if name not in static] if session.by_rules else []
    values = _constructor_values(cls, facts, session) if bound else None
    for name in bound if values is not None else ():
        yield from _method_subjects(cls.__name__, name, values, session)


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


def _method_subjects(
    class_name: str, name: str, values: dict[str, Any] | None, session: Session
) -> Iterator[Subject]:
    """Yield the method `name` of a class, or of an instance that some values build, with inputs
    that it accepts, then with further ones."""

    def build(module: ModuleType) -> Any:
        """Return the method, in a version of the file, as a module."""
        cls = getattr(module, class_name)
        owner = cls if values is None else builder_of(class_name, values)(module)
        return Method(owner, name)

    owner = class_name if values is None else f"{class_name}({show_values(values)})"
    description = f"{owner}.{name}"
    model = build_seeded(0, build, session.original).eval()
    try:
        with session.ledger.step("original", "", f"look for inputs of {description}"):
            accepted = input_guesses.find_accepted(model, inner=True, seconds=_SECONDS)
    except (input_guesses.NoInputs, LookupError) as error:
        session.ledger.skip(f"{description} (methods): {error}")
        return
    subject = Subject(description, "methods", build, accepted.calls(model), {})
    yield subject
    yield from with_further_calls(subject, model, accepted, name, session)
