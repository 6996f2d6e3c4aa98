"""Bring parts of models to life where the whole takes no inputs, or never calls them.

A model that is built but fails half way, or in training only, has run some of its parts already: these are run again
on what they were given. Other parts get inputs of their own, as any layer does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from regraft.verify.child import tree
from regraft.verify.child.drivers import inputs
from regraft.verify.child.drivers.base import Subject, guarded
from regraft.verify.child.drivers.reach import held, reach
from regraft.verify.child.drivers.slots import Spec, make
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session, in_mode, seeded
from regraft.verify.child.tree import Call

SIZES = ((3, 8), (1, 5), (3, 7))  # the last is the one that inputs are searched at
CALLS = 2  # of a part, and of each class in one run
SECONDS = 3.0  # of search for the inputs of one part
Build = Callable[[ModuleType], Any]
_Part = tuple[Any, Subject]  # the original's module, and what either version builds of it


@dataclass(frozen=True, slots=True)
class Whole:
    """A model that either version builds; `spec` is what it takes, or came furthest with where it takes no inputs."""

    name: str
    build: Build
    recipe: Mapping[str, Any]
    spec: Spec | None = None


def subjects(wholes: Iterable[Whole], session: Session) -> Iterator[Subject]:
    """Yield parts that still unmet definitions need: first those that ran, then those that inputs are found for."""
    built: list[_Built] = []
    for whole in wholes:
        if session.done():
            return
        yield from guarded(_completed(whole, built, session), session.ledger, f"{whole.name} (parts)")
    for one in built:
        alone = _useful(_called_alone(one.whole, one.model, session), session)
        yield from guarded(alone, session.ledger, f"{one.whole.name} (parts)")


def _completed(whole: Whole, built: list[_Built], session: Session) -> Iterator[Subject]:
    """Yield the useful parts of a model that ran; the model is added to `built`."""
    built.append(_Built(whole, session))
    yield from _useful(built[-1].completed(), session)


def of_variations(wholes: Iterable[Whole], session: Session) -> Iterator[Subject]:
    """Yield the parts that ran of models which are built to reach lines that have not run yet."""
    for whole in wholes:
        for subject in guarded(_completed(whole, [], session), session.ledger, f"{whole.name} (parts)"):
            yield replace(subject, light=True)


def borrowed(whole: Whole, names: Collection[str], session: Session) -> Iterator[tuple[Any, inputs.Calls]]:
    """Yield the first part of each of the named classes that a model calls, with what it is called with.

    A model that is built by its name in a registry holds the original's classes in both versions: what it calls them
    with is what they take.
    """
    built = _Built(whole, session)
    for path, part in built.model.named_modules():
        if path and type(part).__name__ in names:
            calls = built.calls_of(path)
            if calls is not None:
                names = set(names) - {type(part).__name__}
                yield part, calls


def _useful(found: Iterable[_Part], session: Session) -> Iterator[Subject]:
    for part, subject in found:
        if session.done():
            return
        if held(part, session) & session.wanted() or reach(subject, session).news:
            yield subject


def _subject(whole: Whole, path: str, calls: inputs.Calls) -> Subject:
    def build(module: ModuleType) -> Any:
        return whole.build(module).get_submodule(path)

    return Subject(f"{path} of {whole.name}", "parts", build, calls, {**whole.recipe, "part": path})


@dataclass(slots=True)
class _Run:
    """The parts that were called in a run, with the first calls of each class; whether they came to their end."""

    given: dict[str, Call] = field(default_factory=dict)
    counts: dict[type, int] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)


class _Built:
    """The original of a whole model, and what its parts are given where it runs."""

    def __init__(self, whole: Whole, session: Session) -> None:
        self.whole, self._session = whole, session
        with session.ledger.step("original", "", f"build {whole.name} for its parts"):
            self.model = in_mode(seeded(0, whole.build, session.original), False)
        self._runs: dict[tuple[tuple[int, int], int], _Run] = {}

    def completed(self) -> Iterator[_Part]:
        """Yield the outermost parts that came to their end, with what they were given."""
        for path in dict.fromkeys(path for size in SIZES for path in _outermost(self._run(size, 0))):
            calls = self.calls_of(path)
            if calls is not None:
                yield self.model.get_submodule(path), _subject(self.whole, path, calls)

    def calls_of(self, path: str) -> inputs.Calls | None:
        """What a part is given, at the sizes at which it runs by itself; None where there are none."""
        sizes = tuple(size for size in SIZES if _lives(self.model.get_submodule(path), self._given(path, size, 0)))

        def calls(seed: int) -> tuple[Call, ...]:
            found = (self._given(path, size, seed) for size in sizes[:CALLS])
            return tuple(call for call in found if call is not None)

        return calls if sizes else None

    def _given(self, path: str, size: tuple[int, int], seed: int) -> Call | None:
        call = self._run(size, seed).given.get(path)
        return replace(call, label=f"as within, batch {size[0]}, length {size[1]}") if call is not None else None

    def _run(self, size: tuple[int, int], seed: int) -> _Run:
        """One run of the whole until it fails or ends."""
        run = self._runs.setdefault((size, seed), _Run())
        if not run.given and self.whole.spec is not None:
            with (
                self._session.ledger.step("original", "", f"run {self.whole.name} until it fails"),
                _watching(self.model, run, self._session),
            ):
                execute(Target(self.model), make(self.whole.spec, size, seed), Plan(gradients=False))
        return run


def _lives(part: Any, call: Call | None) -> bool:
    """Whether a part runs on a call in both modes."""
    if call is None:
        return False
    try:
        return all(
            execute(Target(in_mode(part, training)), call, Plan(gradients=False)).error is None
            for training in (True, False)
        )
    finally:
        part.eval()


def _outermost(run: _Run) -> list[str]:
    """Paths of what came to its end inside something that did not, or inside the whole."""
    return [p for p in run.given if p in run.ended and not any(p.startswith(f"{other}.") for other in run.ended)]


@contextmanager
def _watching(model: Any, run: _Run, session: Session) -> Iterator[None]:
    handles = []
    for path, part in model.named_modules():
        if path and type(part).__module__ == session.original.__name__:
            handles.append(part.register_forward_pre_hook(functools.partial(_before, run, path), with_kwargs=True))
            handles.append(part.register_forward_hook(functools.partial(_after, run, path)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _before(run: _Run, path: str, part: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    count = run.counts.get(type(part), 0)
    if path not in run.given and count < CALLS:
        run.counts[type(part)] = count + 1
        run.given[path] = tree.snapshot(args, kwargs, part)


def _after(run: _Run, path: str, *_: Any) -> None:
    run.ended[path] = None


def _called_alone(whole: Whole, model: Any, session: Session) -> Iterator[_Part]:
    """Yield a part of each class that is still unmet, or that calls an unmet function, with inputs found for it."""
    tried = set()
    for path, part in model.named_modules():
        cls = type(part)
        callable_ = cls.forward is not nn.Module.forward
        own = path and callable_ and cls.__module__ == session.original.__name__ and cls not in tried
        if own and (cls.__name__ in session.wanted() or global_names(cls) & session.wanted()):
            tried.add(cls)
            try:
                with session.ledger.step("original", "", f"look for inputs of {path} of {whole.name}"):
                    found = inputs.find(part, inner=True, width=inputs.width_of(part), seconds=SECONDS)
            except Exception as error:  # noqa: BLE001 - arbitrary model code; recorded, the next part is tried
                session.ledger.skip(f"{path} of {whole.name} (parts): {type(error).__name__}: {error}")
                continue
            yield part, _subject(whole, path, found.calls(part))


def global_names(cls: type) -> set[str]:
    """The global names that the methods of a class read."""
    return {name for one in vars(cls).values() if isinstance(one, FunctionType) for name in one.__code__.co_names}
