"""The driver that builds and calls parts of models where the model takes no inputs, or never calls
the parts.

A model that is built but fails half way, or in training only, has run some of its parts already:
these are run again on the inputs that they got. Other parts get inputs of their own, as any layer
does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import CodeType, FunctionType, ModuleType
from typing import Any, ClassVar

from torch import nn

from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.drivers import guessed_slots, input_guesses
from regraft.verification.child.drivers.argument_slots import Spec
from regraft.verification.child.drivers.driver_protocol import Subject, Task, yield_until_error
from regraft.verification.child.drivers.slot_values import make_call
from regraft.verification.child.drivers.subject_reach import class_names_in, measure_reach
from regraft.verification.child.session import Session, build_seeded, switch_mode

# The (batch, length) at which models are run for the calls of their parts. The last is the size of
# the search for inputs (`model_attempts.SIZE`): a model may run at no other.
SIZES = ((3, 8), (1, 5), (3, 7))
CALLS = 2  # the most calls of a part, and the most parts of a class that are recorded in a run
SECONDS = 3.0  # of CPU time, for the search for the inputs of one part
Build = Callable[[ModuleType], Any]
_Part = tuple[Any, Subject]  # the original's module, and what either version builds of it


@dataclass(frozen=True, slots=True)
class WholeModel:
    """A model that either version builds, with the recipe from which a reproducer builds it.

    `spec` are the inputs that it takes, or that it came furthest with where it takes none; None
    where they are not known or it is not to be run, and then only parts of it are.
    """

    name: str
    build: Build
    recipe: Mapping[str, Any]
    spec: Spec | None = None


@dataclass(frozen=True, slots=True)
class PartsDriver:
    """The driver for parts of models that other drivers have built; `models` is read once, as far
    as runs are missing."""

    models: Iterable[WholeModel]
    name: ClassVar[str] = "parts"

    def applies(self, _: Task) -> bool:
        """Return True: any model may have parts."""
        return True

    def subjects(self, task: Task) -> Iterator[Subject]:
        """Yield parts that contain definitions to run or reach new lines: first, for each model,
        parts that ran inside of it, then parts for which inputs are found.

        An error ends the parts of its model only, and is recorded in the ledger.
        """
        session, ledger = task.session, task.session.ledger
        built_models: list[_BuiltModel] = []
        for model in self.models:
            if session.is_finished():
                return
            parts = _completed_parts(model, built_models, session)
            yield from yield_until_error(parts, ledger, f"{model.name} (parts)")
        for built_model in built_models:
            source = built_model.source
            candidates = _parts_with_inputs(source, built_model.model, session)
            parts = _useful_subjects(candidates, session)
            yield from yield_until_error(parts, ledger, f"{source.name} (parts)")


def _completed_parts(
    model: WholeModel, built_models: list[_BuiltModel], session: Session
) -> Iterator[Subject]:
    """Build a model, append it to `built_models`, and yield as subjects those of its parts that ran
    to their end, and that contain a definition which still has to run or reach new lines. Raises
    what the constructor raises."""
    built_models.append(_BuiltModel(model, session))
    yield from _useful_subjects(built_models[-1].completed_parts(), session)


def parts_of_variations(models: Iterable[WholeModel], session: Session) -> Iterator[Subject]:
    """Yield the parts of some models that ran to their end and are of use, as light subjects: the
    models are variations, which are run for the lines that they reach."""
    for model in models:
        for subject in yield_until_error(
            _completed_parts(model, [], session), session.ledger, f"{model.name} (parts)"
        ):
            yield replace(subject, light=True)


def borrow_calls(
    model: WholeModel, names: Collection[str], session: Session
) -> Iterator[tuple[Any, PartCalls]]:
    """Yield the first part of each of the named classes that a model calls, with the calls that the
    part gets; classes that the model does not call are left out.

    A model that builds such a part by its name in a registry holds the original's class in both
    versions, so the part has to be compared by itself.
    """
    built_model = _BuiltModel(model, session)
    for path, part in built_model.model.named_modules():
        if path and type(part).__name__ in names:
            calls = built_model.calls_of(path)
            if calls is not None:
                names = set(names) - {type(part).__name__}
                yield part, calls


def _useful_subjects(candidates: Iterable[_Part], session: Session) -> Iterator[Subject]:
    """Yield the subjects of parts that contain definitions to run or reach new lines, until no run
    is missing or time is up."""
    for part, subject in candidates:
        if session.is_finished():
            return
        if (
            class_names_in(part, session) & session.definitions_to_run()
            or measure_reach(subject, session).is_worth_comparing
        ):
            yield subject


def _subject(model: WholeModel, path: str, calls: input_guesses.Calls) -> Subject:
    """Return the part of a model at `path`, with some calls, as a subject."""

    def build(module: ModuleType) -> Any:
        """Return the part at `path` of the model of a version."""
        return model.build(module).get_submodule(path)

    return Subject(f"{path} of {model.name}", "parts", build, calls, {**model.recipe, "part": path})


@dataclass(slots=True)
class _Run:
    """A run of a model: by path, the first calls of its parts; by class, the number of parts with a
    call; and in `ended` the paths of parts that came to their end, in that order."""

    calls: dict[str, Call] = field(default_factory=dict)
    counts: dict[type, int] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)


class _BuiltModel:
    """The original of a model, built with seed 0, and the calls that its parts get where it
    runs."""

    def __init__(self, source: WholeModel, session: Session) -> None:
        """Build the model in evaluation mode. Raises what its constructor raises."""
        self.source, self._session = source, session
        with session.ledger.step("original", "", f"build {source.name} for its parts"):
            self.model = switch_mode(build_seeded(0, source.build, session.original), False)
        self._run_by_size_and_seed: dict[tuple[tuple[int, int], int], _Run] = {}

    def completed_parts(self) -> Iterator[_Part]:
        """Yield the outermost parts that came to their end at one of `SIZES`, as subjects with the
        calls that they got; those that do not run alone in both modes are left out."""
        for path in dict.fromkeys(
            path for size in SIZES for path in _outermost_parts(self._run_model(size, 0))
        ):
            calls = self.calls_of(path)
            if calls is not None:
                yield self.model.get_submodule(path), _subject(self.source, path, calls)

    def calls_of(self, path: str) -> PartCalls | None:
        """Return the calls that the part at `path` gets at the first `CALLS` of the sizes at which
        it runs alone in both modes; None where there is no such size."""
        sizes = tuple(
            size
            for size in SIZES
            if _runs_in_both_modes(self.model.get_submodule(path), self.call_in_run(path, size, 0))
        )
        return PartCalls(self, path, sizes[:CALLS]) if sizes else None

    def call_in_run(self, path: str, size: tuple[int, int], seed: int) -> Call | None:
        """Return the first call that a part gets in a run of the model at (batch, length); None
        where it is not called or recorded."""
        call = self._run_model(size, seed).calls.get(path)
        return (
            replace(call, label=f"as within, batch {size[0]}, length {size[1]}")
            if call is not None
            else None
        )

    def _run_model(self, size: tuple[int, int], seed: int) -> _Run:
        """Run the model at (batch, length) until it fails or ends, and return which parts ran; none
        for a model without inputs. A run in which a part was called is not repeated."""
        run = self._run_by_size_and_seed.setdefault((size, seed), _Run())
        if not run.calls and self.source.spec is not None:
            with (
                self._session.ledger.step("original", "", f"run {self.source.name} until it fails"),
                _record_run(self.model, run, self._session),
            ):
                execute(
                    Target(self.model),
                    make_call(self.source.spec, size, seed),
                    Plan(gradients=False),
                )
        return run


@dataclass(frozen=True, slots=True)
class PartCalls:
    """The first calls that the part at `path` gets in runs of a model at `sizes`, each (batch,
    length)."""

    model: _BuiltModel
    path: str
    sizes: tuple[tuple[int, int], ...]

    def __call__(self, seed: int) -> tuple[Call, ...]:
        """Return the calls in runs with inputs of a seed."""
        return tuple(self.by_size(seed).values())

    def by_size(self, seed: int) -> dict[tuple[int, int], Call]:
        """Return the calls in runs with inputs of a seed by the size of the run, without runs that
        do not call the part."""
        calls = {size: self.model.call_in_run(self.path, size, seed) for size in self.sizes}
        return {size: call for size, call in calls.items() if call is not None}


def _runs_in_both_modes(part: Any, call: Call | None) -> bool:
    """Return whether a part runs on a call in training and in evaluation; False for None. The part
    is left in evaluation mode."""
    if call is None:
        return False
    try:
        return all(
            execute(Target(switch_mode(part, training)), call, Plan(gradients=False)).error is None
            for training in (True, False)
        )
    finally:
        part.eval()


def _outermost_parts(run: _Run) -> list[str]:
    """Return the paths of parts that were recorded and came to their end, without those inside of
    another part that did."""
    return [
        path
        for path in run.calls
        if path in run.ended
        and not any(path.startswith(f"{outer_path}.") for outer_path in run.ended)
    ]


@contextmanager
def _record_run(model: Any, run: _Run, session: Session) -> Iterator[None]:
    """Record in `run`, within the context, which parts of the original file's classes are called
    and which of them come to their end; the model itself is no part."""
    with ExitStack() as hooks:
        for path, part in model.named_modules():
            if path and type(part).__module__ == session.original.__name__:
                note_call = functools.partial(_record_call, run, path)
                note_end = functools.partial(_record_end, run, path)
                hooks.enter_context(part.register_forward_pre_hook(note_call, with_kwargs=True))
                hooks.enter_context(part.register_forward_hook(note_end))
        yield


def _record_call(
    run: _Run, path: str, part: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Record a copy of a part's call in `run`, unless a call of the part, or of `CALLS` parts of
    its class, is recorded."""
    count = run.counts.get(type(part), 0)
    if path not in run.calls and count < CALLS:
        run.counts[type(part)] = count + 1
        run.calls[path] = call_arguments.snapshot(args, kwargs, part)


def _record_end(run: _Run, path: str, *_: Any) -> None:
    """Record in `run` that the part at `path` came to its end."""
    run.ended[path] = None


def _parts_with_inputs(source: WholeModel, model: Any, session: Session) -> Iterator[_Part]:
    """Yield the first part of each class of the file that still has to run, or whose methods name a
    definition that has to, with inputs found for it in `SECONDS`; where none are found, the reason
    is recorded in the ledger."""
    tried_classes = set()
    for path, part in model.named_modules():
        cls = type(part)
        has_forward = cls.forward is not nn.Module.forward
        is_own_part = (
            path
            and has_forward
            and cls.__module__ == session.original.__name__
            and cls not in tried_classes
        )
        if is_own_part and (
            cls.__name__ in session.definitions_to_run()
            or names_in_methods(cls) & session.definitions_to_run()
        ):
            tried_classes.add(cls)
            try:
                with session.ledger.step(
                    "original", "", f"look for inputs of {path} of {source.name}"
                ):
                    accepted = input_guesses.find_accepted(
                        part, inner=True, width=guessed_slots.width_of(part), seconds=SECONDS
                    )
            except Exception as error:  # noqa: BLE001 - arbitrary model code; recorded, the next part is tried
                session.ledger.skip(
                    f"{path} of {source.name} (parts): {type(error).__name__}: {error}"
                )
                continue
            yield part, _subject(source, path, accepted.calls(part))


def names_in_methods(cls: type) -> set[str]:
    """Return the names of globals and attributes that the methods of a class use, also inside of
    their functions and comprehensions. Inherited methods, properties, and static and class methods
    are left out."""
    return {
        name
        for method in vars(cls).values()
        if isinstance(method, FunctionType)
        for code in _nested_codes(method.__code__)
        for name in code.co_names
    }


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and the code objects that it contains, at any depth."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)
