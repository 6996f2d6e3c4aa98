"""The driver that calls methods of models that `forward` does not call: `forward_intermediates` or
`get_image_features`, for example."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import FunctionType, ModuleType
from typing import Any, ClassVar

from torch import nn

from regraft.verification.child.checks.code_replacement import functions_of
from regraft.verification.child.drivers import further_calls, guessed_slots, input_guesses
from regraft.verification.child.drivers.driver_protocol import Subject, Task, yield_until_error
from regraft.verification.child.drivers.subject_reach import measure_reach
from regraft.verification.child.running_classes import is_module_class
from regraft.verification.child.session import Session, build_seeded, switch_mode
from regraft.verification.definition_changes import Change

MODELS = 3  # the most models that are tried for each method
SECONDS = 5.0  # of CPU time, for the search for the inputs of a method of one model


class Method(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A module whose `forward` is the method `name` of a model, another object or a class, so that
    the method can be compared as a model is. A model is a submodule, and its `config` is also that
    of this module."""

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.model, self.called = model, name
        if not isinstance(model, type) and hasattr(model, "config"):
            self.config = model.config

    @property
    def signed(self) -> Any:
        """Return the bound method, whose signature `signature_of` takes for that of `forward`; of a
        decorated method without a signature of its own, a function with that of the method."""
        bound = getattr(self.model, self.called)
        owner = self.model if isinstance(self.model, type) else type(self.model)
        function = _undecorated(getattr(owner, self.called), self.called)
        if function is inspect.unwrap(getattr(bound, "__func__", bound)):
            return bound

        def call(*args: Any, **kwargs: Any) -> Any:
            """Call the decorated method."""
            return bound(*args, **kwargs)

        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())[1:]
        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the method."""
        return self.signed(*args, **kwargs)


def _undecorated(function: Any, name: str) -> Any:
    """Return the function of the name `name` that decorators wrap, below `__wrapped__` and in
    closures; without such a one the function at the end of `__wrapped__`."""
    named = (inner for inner in functions_of(function) if inner.__code__.co_name == name)
    return next(named, inspect.unwrap(function))


@dataclass(frozen=True, slots=True)
class MethodsDriver:
    """The driver for the changed methods of a model that another driver yielded.

    `tried` counts the models that were tried for each pair of a class and a method; the drivers of
    all models share and change it.
    """

    model: Subject
    tried: Counter[tuple[str, str]]
    name: ClassVar[str] = "methods"

    def applies(self, _: Task) -> bool:
        """Return whether the model was compared in full: what its `forward` calls has run then."""
        return not self.model.light

    def subjects(self, task: Task) -> Iterator[Subject]:
        """Yield methods of changed classes in the model that were never entered, where inputs are
        found for them; each is tried on at most `MODELS` models. An error ends the subjects of its
        method only, and is recorded in the ledger."""
        session = task.session
        for change in session.uncovered_changes():
            cls = getattr(session.original, change.definition, None)
            if not is_module_class(cls):
                continue
            for name in uncalled_methods(change, session):
                if self.tried[change.definition, name] < MODELS and not session.ledger.is_late():
                    candidates = _method_subjects(
                        cls, name, self.model, session, task.text, self.tried
                    )
                    yield from yield_until_error(
                        candidates, session.ledger, f"{name} of {self.model.name} (methods)"
                    )


def uncalled_methods(change: Change, session: Session) -> Iterator[str]:
    """Yield the names of methods that the changed class defines itself, other than `forward` and
    special ones, that were never called and have changed lines which never ran. Properties are left
    out."""
    gaps = {line for line, _ in session.tracer.gaps(change)}
    for name, value in tuple(vars(getattr(session.changed, change.definition)).items()):
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        method = _undecorated(function, name) if isinstance(function, FunctionType) else None
        if isinstance(method, FunctionType) and name != "forward" and not name.startswith("__"):
            lines = {line for *_, line in method.__code__.co_lines()}
            if lines & gaps and method.__code__.co_firstlineno not in session.tracer.entered:
                yield name


def _method_subjects(
    cls: type,
    name: str,
    owner: Subject,
    session: Session,
    text: str,
    tried: Counter[tuple[str, str]],
) -> Iterator[Subject]:
    """Yield the method `name` of the first part of a model that is an instance of `cls`, with
    inputs found for it, if it reaches new lines; then, as light subjects, further calls that do.

    The attempt is counted in `tried`. Nothing is yielded for a model without such a part, and where
    no inputs are found: then the reason is recorded in the ledger.
    """
    model = switch_mode(build_seeded(0, owner.build, session.original), False)
    path = next((path for path, part in model.named_modules() if isinstance(part, cls)), None)
    if path is None:
        return
    tried[cls.__name__, name] += 1
    description = f"{name} of {f'{path} of ' if path else ''}{owner.name}"
    method = Method(model.get_submodule(path), name)
    try:
        with session.ledger.step("original", "", f"look for inputs of {description}"):
            accepted = input_guesses.find_accepted(
                method, inner=bool(path), width=guessed_slots.width_of(method), seconds=SECONDS
            )
    except (input_guesses.NoInputs, LookupError) as error:
        session.ledger.skip(f"{description} (methods): {error}")
        return
    first_subject = _subject(owner, path, name, description, accepted.calls(method))
    if measure_reach(first_subject, session).is_worth_comparing:
        yield first_subject
    for calls in further_calls.more_calls(method, accepted, text, guessed_slots.width_of(method)):
        variant = replace(first_subject, calls=calls, light=True)
        if session.is_covered():
            return
        if measure_reach(variant, session).is_worth_comparing:
            yield variant


def _subject(
    owner: Subject, path: str, name: str, description: str, calls: input_guesses.Calls
) -> Subject:
    """Return, as a subject with some calls, the method `name` of the submodule at `path` in the
    model of `owner`."""

    def build(module: ModuleType) -> Any:
        """Return the method of the submodule, in the model of a version, as a module."""
        return Method(owner.build(module).get_submodule(path), name)

    place = ".".join(filter(None, (owner.recipe.get("part", ""), path)))
    return Subject(
        description, "methods", build, calls, {**owner.recipe, "part": place, "method": name}
    )
