"""Call what `forward` does not: `forward_intermediates` of a backbone, `get_image_features` of a model of two."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from regraft.verify.changes import Change
from regraft.verify.child.drivers import inputs
from regraft.verify.child.drivers.base import Subject, guarded
from regraft.verify.child.drivers.reach import reach
from regraft.verify.child.session import Session, in_mode, seeded

MODELS = 3  # that are tried for each method
SECONDS = 5.0  # of search for the inputs of a method of one model


class Method(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Lets a method of a model be run, recorded and compared as a model."""

    def __init__(self, model: Any, name: str) -> None:
        super().__init__()
        self.model, self.called = model, name
        if hasattr(model, "config"):
            self.config = model.config

    @property
    def signed(self) -> Any:
        """What has the signature of `forward`."""
        return getattr(self.model, self.called)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.signed(*args, **kwargs)


def subjects(model: Subject, session: Session, text: str, tried: Counter[tuple[str, str]]) -> Iterator[Subject]:
    """Yield changed methods of a model that were never entered, where inputs are found for them.

    `text` is the source of the changed definitions, `tried` counts how often a class's method was tried.
    """
    for change in session.uncovered():
        cls = getattr(session.original, change.definition, None)
        if isinstance(cls, type) and issubclass(cls, nn.Module):
            for name in _never_entered(change, session):
                if tried[change.definition, name] < MODELS and not session.ledger.late():
                    called = _called(cls, name, model, session, text, tried)
                    yield from guarded(called, session.ledger, f"{name} of {model.name} (methods)")


def _never_entered(change: Change, session: Session) -> Iterator[str]:
    """Names of methods of the changed class with lines that never ran, and that were not called at all."""
    gaps = {line for line, _ in session.tracer.gaps(change)}
    for name, value in tuple(vars(getattr(session.changed, change.definition)).items()):
        method = inspect.unwrap(value) if isinstance(value, FunctionType) else None
        if isinstance(method, FunctionType) and name != "forward" and not name.startswith("__"):
            lines = {line for *_, line in method.__code__.co_lines()}
            if lines & gaps and method.__code__.co_firstlineno not in session.tracer.entered:
                yield name


def _called(
    cls: type, name: str, whole: Subject, session: Session, text: str, tried: Counter[tuple[str, str]]
) -> Iterator[Subject]:
    model = in_mode(seeded(0, whole.build, session.original), False)
    path = next((path for path, part in model.named_modules() if isinstance(part, cls)), None)
    if path is None:
        return
    tried[cls.__name__, name] += 1
    what = f"{name} of {f'{path} of ' if path else ''}{whole.name}"
    method = Method(model.get_submodule(path), name)
    try:
        with session.ledger.step("original", "", f"look for inputs of {what}"):
            found = inputs.find(method, inner=bool(path), width=inputs.width_of(method), seconds=SECONDS)
    except (inputs.NoInputs, LookupError) as error:
        session.ledger.skip(f"{what} (methods): {error}")
        return
    first = _subject(whole, path, name, what, found.calls(method))
    if reach(first, session).news:
        yield first
    for calls in inputs.more_calls(method, found, text, inputs.width_of(method)):
        other = replace(first, calls=calls, light=True)
        if session.covered():
            return
        if reach(other, session).news:
            yield other


def _subject(whole: Subject, path: str, name: str, what: str, calls: inputs.Calls) -> Subject:
    def build(module: ModuleType) -> Any:
        return Method(whole.build(module).get_submodule(path), name)

    place = ".".join(filter(None, (whole.recipe.get("part", ""), path)))
    return Subject(what, "methods", build, calls, {**whole.recipe, "part": place, "method": name})
