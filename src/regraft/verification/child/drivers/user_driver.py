"""The driver that calls the user's own function, `module -> (model, calls)`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import FunctionType, ModuleType
from typing import Any, ClassVar

import torch

from regraft.source.object_reference import place_in_target
from regraft.verification.child import call_arguments
from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.drivers.driver_protocol import Subject, Task
from regraft.verification.child.drivers.function_subjects import FunctionModule
from regraft.verification.child.drivers.module_flags import inverted_flags, with_flags
from regraft.verification.child.drivers.subject_reach import measure_reach
from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.session import Session, build_seeded, switch_mode

# seconds of processor time for a call of a model without gradients; a proof runs thousands of calls
LONGEST_CALL = 0.02

Factory = Callable[[ModuleType], Any]

_ADVICE = "; correct the driver, or verify without one, on models that Regraft guesses"


class WrongResult(TypeError):
    """The error that a driver's function returns something else than a model and its calls."""


@dataclass(frozen=True, slots=True)
class UserDriver:
    """The driver that calls a function of the user's: `spec`, `module:function` in `folder`.

    The function gets the original or the changed module and returns a model, or a function of the
    module, and its calls: tuples of positional arguments or dictionaries of keywords.
    """

    spec: str
    folder: str
    function: Factory
    name: ClassVar[str] = "user"

    def applies(self, _: Task) -> bool:
        """Return True: the user wrote it for the file."""
        return True

    def subjects(self, task: Task) -> Iterator[Subject]:
        """Yield the subject that the function builds, then variations of it in which a flag has the
        opposite value, where changed lines run only with it.

        Where the calls have only one shape, calls with another batch size are derived from the
        first call. Nothing where the function raises or returns something else (`_refuse`), or
        the original raises in every call.
        """
        try:
            model, calls = self._model_and_calls(task)
        except WrongResult as error:
            self._refuse(str(error), ("", 0), task.session)
            return
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code; the error is the answer
            place = place_in_target(error, self.spec, self.folder)
            self._refuse(f"the driver raises {shorten_error(error)}", place, task.session)
            return
        call_error = _error_of_all(model, calls)
        if call_error is not None and not task.session.model_classes:
            reason = f"the original raises in all of its calls: {shorten_error(call_error)}"
            self._refuse(reason, ("", 0), task.session)
            return
        if len({str(call_arguments.shapes(call)) for call in calls}) < 2:
            calls += _with_other_batch(model, calls[:1])
        subject = self._subject(calls)
        yield subject
        original, changed = task.session.original, task.session.changed
        for flag, value in inverted_flags(model, original, changed, task.text):
            if task.session.is_covered():
                return
            variation = replace(
                subject,
                name=f"{self.spec} with {flag}={value}",
                build=with_flags(self._build_model, {flag: value}),
                recipe={**subject.recipe, "flags": {flag: value}},
            )
            if measure_reach(variation, task.session).is_worth_comparing:
                yield variation

    def _refuse(self, reason: str, place: tuple[str, int], session: Session) -> None:
        """End the verification with the reason why the driver is of no use, and the place in its
        file. Where it stands for a living model, which no user wrote, go on with other models, and
        note the reason."""
        if session.model_classes:
            session.ledger.skip(f"{self.spec}: {reason}")
        else:
            session.ledger.refuse_driver(f"{reason}{_ADVICE}", place)

    def slow_subject(self, task: Task) -> Subject | None:
        """Return the subject that the function builds, to be run in the plain way, where its
        calls take the original longer than `LONGEST_CALL` on average; None where they are faster,
        or where the function or a call fails."""
        try:
            model, calls = self._model_and_calls(task)
            target = Target(switch_mode(model, False))
        except Exception:  # noqa: BLE001 - the user's code; `subjects` fails alike, which is noted
            return None
        for _ in range(2):  # the first call may load code
            started = time.process_time()
            outcomes = [execute(target, call, Plan(gradients=False)) for call in calls]
            if any(outcome.error is not None for outcome in outcomes):
                return None
            if time.process_time() - started <= LONGEST_CALL * len(calls):
                return None
        return replace(self._subject(calls), light=True, slow=True)

    def _model_and_calls(self, task: Task) -> tuple[Any, tuple[Call, ...]]:
        """Return the original's model and its calls, at least one, as the function makes them with
        seed 0. Raises WrongResult where it returns anything else."""
        model, entries = build_seeded(0, self._build, task.session.original)
        if not isinstance(entries, list | tuple):
            raise WrongResult(f"its calls are {_kind_of(entries)}, not a list of calls")
        if not entries:
            raise WrongResult("its list of calls is empty")
        return model, tuple(_call(entry, number) for number, entry in enumerate(entries))

    def _subject(self, calls: tuple[Call, ...]) -> Subject:
        """Return the subject that the function builds, with some calls."""
        recipe = {"kind": "user", "driver": self.spec, "folder": self.folder}
        return Subject(self.spec, self.name, self._build_model, lambda _: calls, recipe)

    def _build_model(self, module: ModuleType) -> Any:
        """Return the model that the function builds from a version."""
        return self._build(module)[0]

    def _build(self, module: ModuleType) -> tuple[Any, Any]:
        """Return the model that the function builds from a version, and its calls; a function of
        the file is wrapped in a module."""
        result = self.function(module)
        if not isinstance(result, tuple) or len(result) != 2:
            raise WrongResult(f"it returns {_kind_of(result)}, not (model, calls)")
        model, entries = result
        name = getattr(model, "__name__", "")
        if isinstance(model, FunctionType) and getattr(module, name, None) is model:
            return FunctionModule(module, name), entries
        return model, entries


def _call(entry: Any, number: int) -> Call:
    """Return an entry of the caller's list of calls as a recorded call with the label "call
    NUMBER": a mapping as keywords, a tuple or list as positional arguments, any other value as the
    only argument."""
    label = f"call {number}"
    if isinstance(entry, Mapping):
        return call_arguments.snapshot((), entry, None, label)
    return call_arguments.snapshot(
        tuple(entry) if isinstance(entry, tuple | list) else (entry,), {}, None, label
    )


def _kind_of(value: Any) -> str:
    """Return in words the class of a value, and of a tuple the number of its elements."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"


def _error_of_all(model: Any, calls: tuple[Call, ...]) -> BaseException | None:
    """Return the error of the last call where a model raises in every call, in evaluation and in
    training; None where a call runs."""
    error: BaseException | None = None
    for training in (False, True):
        target = Target(switch_mode(model, training))
        for call in calls:
            error = execute(target, call, Plan(gradients=training)).error
            if error is None:
                return None
    return error


def _with_other_batch(model: Any, calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """Return the calls with one row, or with three where they have one, that the original
    accepts."""
    accepted_calls = []
    for call in calls:
        resized_call = call_arguments.map_call(call, _resize_batch, "other batch")
        if execute(Target(model), resized_call, Plan(gradients=False)).error is None:
            accepted_calls.append(resized_call)
    return tuple(accepted_calls)


def _resize_batch(leaf: Any) -> Any:
    """Return a tensor with its first row only, or three times over where it has one; other values
    unchanged."""
    if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0:
        return leaf
    return leaf[:1].clone() if leaf.shape[0] > 1 else torch.cat([leaf, leaf, leaf])
