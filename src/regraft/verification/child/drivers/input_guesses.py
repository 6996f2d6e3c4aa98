"""Make inputs for a model from the names in its forward signature, the sizes in its configuration
and its errors.

`find_accepted` first tries guesses (`guess_slots`), completed as the errors say, and then searches
for changes of the guesses (`input_repairs.search`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.checks.argument_variants import signature_of
from regraft.verification.child.drivers import input_repairs, loss_labels, model_attempts
from regraft.verification.child.drivers.argument_slots import Slot, Spec
from regraft.verification.child.drivers.configuration_objects import config_of
from regraft.verification.child.drivers.forward_inputs import (
    BESIDE_MAIN_INPUT,
    FUTURE_INPUTS,
    LABEL_INPUTS,
    SENSE_INPUTS,
    TEXT_INPUTS,
    TOKENS_INPUT,
    USUAL_INPUTS,
)
from regraft.verification.child.drivers.guessed_slots import guess_slots, parameters
from regraft.verification.child.drivers.model_attempts import Attempt
from regraft.verification.child.drivers.slot_values import make_call
from regraft.verification.child.drivers.varied_slots import more_varied_slot

# Pairs of sizes, each (batch, length); a model is called at both sizes of the first pair that it
# accepts. The later pairs are for models whose batch statistics need two rows, and for those that
# take one length only.
SIZES = (((1, 5), (3, 8)), ((2, 5), (3, 8)), ((1, 7), (3, 7)), ((2, 7), (3, 7)))
# For those that take one batch only, such as that of their caches; where nothing else is accepted.
ONE_BATCH_SIZES = (((3, 5), (3, 8)),)
Calls = Callable[[int], tuple[Call, ...]]  # makes the calls of a seed


class NoInputs(ValueError):
    """The error that a model accepted no inputs.

    The message has the first 160 characters of the error of the first attempt, and of that of
    `furthest`, the attempt that ran most operations before its error.
    """

    def __init__(self, first_attempt: Attempt, furthest: Attempt) -> None:
        """Compose the message from the errors of both attempts."""
        message = f"no inputs could be made that it accepts: {first_attempt.text[:160]}"
        if furthest.progress > first_attempt.progress:
            message += f" (the attempt that came furthest: {furthest.text[:160]})"
        super().__init__(message)
        self.furthest = furthest


@dataclass(frozen=True, slots=True)
class AcceptedInputs:
    """The inputs that a model accepts.

    `spec` describes them, `sizes` are the pairs of (batch, length) that they work at, the smallest
    first, `labels` the kinds of labels (`loss_labels.KINDS`) with which the model is also called.
    `trains` says whether it accepts them in training, too.
    """

    spec: Spec
    sizes: tuple[tuple[int, int], ...]
    labels: tuple[str, ...] = ()
    trains: bool = True

    def calls(self, model: Any) -> Calls:
        """Return a function that makes the calls of a seed: one of each size, and at the last size
        one with labels of each kind. Labels depend on the configuration of `model`."""

        def make_calls(seed: int) -> tuple[Call, ...]:
            """Return a call of each size for a seed, and calls at the last size with labels."""
            plain_calls = tuple(make_call(self.spec, size, seed) for size in self.sizes)
            with_labels = (
                loss_labels.add_labels(plain_calls[-1], model, self.sizes[-1], kind, seed)
                for kind in self.labels
            )
            return (*plain_calls, *with_labels)

        return make_calls


def find_accepted(
    model: Any,
    *,
    inner: bool = False,
    width: int = 0,
    image: Any = None,
    seconds: float = input_repairs.SECONDS,
    first_spec: Spec | None = None,
    one_batch: bool = False,
) -> AcceptedInputs:
    """Return inputs that the model accepts in its present mode, which should be evaluation.

    Inputs with a batch of one row are accepted in training, too. Where the model is only called
    with larger batches, and does not run in training, inputs with fewer dimensions are preferred
    with which it does. The model is left in evaluation mode.

    `inner` models are layers: their masks are added to scores. `width` is the last dimension of a
    layer's inputs, 0 for a model; `image` is the side, or the sides, of images in pixels, None
    where they are not known. `first_spec` is tried before all guesses. `seconds` of CPU time are
    for a search beyond the guesses; with 0 there is none. With `one_batch` inputs are taken, too,
    that the model accepts with the batch of the search only.

    Raises NoInputs where the model accepts none, and LookupError where no value can be guessed for
    a required parameter that is no tensor.
    """
    slots = guess_slots(model, inner, width, image)
    failures: list[Attempt] = []
    starts = [spec for spec in _starting_specs(model, slots, inner) if spec != first_spec]
    for start in starts if first_spec is None else (first_spec, *starts):
        accepted = _accepted_when_completed(model, start, slots, failures)
        if accepted is not None:
            return _preferably_varied(model, _preferably_trained(model, accepted))
    specs_of_one_size = [] if first_spec is None else [first_spec]
    accepted = (
        _accepted_after_search(model, slots, seconds, failures, specs_of_one_size)
        if seconds > 0
        else None
    )
    if accepted is not None:
        return _preferably_varied(model, _preferably_trained(model, accepted))
    for spec in specs_of_one_size if one_batch else ():
        outcome = accepted_or_failed(model, spec, ONE_BATCH_SIZES)
        if isinstance(outcome, AcceptedInputs):
            return outcome
    raise NoInputs(failures[0], max(failures, key=lambda attempt: attempt.progress))


def _preferably_trained(model: Any, accepted: AcceptedInputs) -> AcceptedInputs:
    """Return inputs with fewer dimensions, with which a model runs in training where it does not
    with the accepted ones; else these."""
    if accepted.trains:
        return accepted
    for spec in input_repairs.specs_with_fewer_dimensions(accepted.spec):
        outcome = accepted_or_failed(model, spec)
        if isinstance(outcome, AcceptedInputs) and outcome.trains:
            return outcome
    return accepted


def _preferably_varied(model: Any, accepted: AcceptedInputs) -> AcceptedInputs:
    """Return inputs in which arguments whose values are all equal have different ones
    (`more_varied_slot`), as far as a model accepts these at the same sizes, and in training where
    it accepts the equal ones there."""
    for name in accepted.spec:
        accepted = _with_varied_slot(model, accepted, name)
    return accepted


def _with_varied_slot(model: Any, accepted: AcceptedInputs, name: str) -> AcceptedInputs:
    """Return inputs that the model accepts with different values in one argument, if all of its
    values are equal and there are such inputs, else `accepted`."""

    def accepts(slot: Slot) -> bool:
        """Return whether the model accepts the inputs with another slot for the argument."""
        outcome = accepted_or_failed(model, {**accepted.spec, name: slot}, (accepted.sizes,))
        return isinstance(outcome, AcceptedInputs) and outcome.trains >= accepted.trains

    slot = more_varied_slot(accepted.spec[name], accepts)
    return accepted if slot is None else replace(accepted, spec={**accepted.spec, name: slot})


def _accepted_when_completed(
    model: Any, start: Spec, slots: Spec, failures: list[Attempt]
) -> AcceptedInputs | None:
    """Run a model on inputs, and complete them as its errors say until it accepts them; return
    them, or None where an error does not say what is missing or a completion was tried before.

    Attempts that failed are appended to `failures`.
    """
    candidate: Spec | None = start
    tried: list[Spec] = []
    while candidate is not None and candidate not in tried:
        tried.append(candidate)
        outcome = accepted_or_failed(model, candidate)
        if isinstance(outcome, AcceptedInputs):
            return outcome
        failures.append(outcome)
        candidate = input_repairs.complete_spec(outcome, slots, config_of(model))
    return None


def _accepted_after_search(
    model: Any, slots: Spec, seconds: float, failures: list[Attempt], specs_of_one_size: list[Spec]
) -> AcceptedInputs | None:
    """Search from each of the failed attempts, those that came furthest first; return the first
    inputs that the model accepts, or None where there are none within `seconds` of CPU time.

    One search takes at most 0.6 of the time, so that another start has some. Further attempts that
    failed are appended to `failures`, and inputs that the model accepts at the size of the search,
    but not at others, to `specs_of_one_size`.
    """
    deadline = time.process_time() + seconds
    for start in sorted(failures, key=lambda attempt: -attempt.progress):
        limit = min(deadline - time.process_time(), 0.6 * seconds)
        best = input_repairs.search(model, start.spec, slots, limit)
        if best.error is not None:
            failures.append(best)
        else:
            specs_of_one_size.append(best.spec)
        for spec in (
            (best.spec, *input_repairs.specs_with_other_dimensions(best.spec))
            if best.error is None
            else ()
        ):
            outcome = accepted_or_failed(model, spec)
            if isinstance(outcome, AcceptedInputs):
                return outcome
            failures.append(outcome)
        if time.process_time() > deadline:
            break
    return None


def _starting_specs(model: Any, slots: dict[str, Slot], inner: bool) -> Iterator[Spec]:
    """Yield different specifications to begin with, each with the required parameters.

    They add all usual inputs, the future of a time series if the model takes it, text, images and
    sound, the model's main input with one of `BESIDE_MAIN_INPUT`, or the main input alone. For a
    layer (`inner`) the only specification consists of the required parameters.
    """
    required = {p.name for p in parameters(signature_of(model)) if p.default is p.empty}
    main = getattr(model, "main_input_name", TOKENS_INPUT)
    yielded = []
    future = (FUTURE_INPUTS,) if slots.keys() & set(FUTURE_INPUTS) else ()
    name_groups = (
        USUAL_INPUTS,
        *future,
        TEXT_INPUTS,
        SENSE_INPUTS,
        *((main, second) for second in BESIDE_MAIN_INPUT),
        (main,),
    )
    for names in ((),) if inner else name_groups:
        spec = {
            name: slot
            for name, slot in slots.items()
            if name.partition(".")[0] in required or name in names
        }
        if spec not in yielded:
            yielded.append(spec)
            yield spec


def accepted_or_failed(
    model: Any, spec: Spec, pairs: Sequence[tuple[tuple[int, int], ...]] = SIZES
) -> AcceptedInputs | Attempt:
    """Return the inputs with the first pair of sizes at which the model accepts a specification, or
    the first attempt that failed.

    A specification that works with one row has to work in training, too, else larger batches are
    tried. Pairs after one that fails earlier than the first pair did are not tried. The model is
    run in its present mode; where training was tried, it is left in evaluation.
    """
    first_failure: Attempt | None = None
    tried_shapes = []
    for sizes in pairs:
        shapes = [[dim.at(sizes[0]) for dim in slot.dims] for slot in spec.values()]
        if shapes in tried_shapes:  # no argument depends on what these sizes differ in
            continue
        tried_shapes.append(shapes)
        failure = next(
            (
                attempt
                for attempt in (model_attempts.attempt(model, spec, size) for size in sizes)
                if attempt.error
            ),
            None,
        )
        training_failure = failure or _training_failure(model, spec, sizes[0])
        if sizes[0][0] == 1:
            failure = training_failure
        if failure is None:
            label_kinds = _label_kinds(model, make_call(spec, sizes[-1], 0), sizes[-1])
            return AcceptedInputs(spec, sizes, label_kinds, trains=training_failure is None)
        first_failure = first_failure or failure
        if failure.progress < first_failure.progress:
            break
    assert first_failure is not None
    return first_failure


def _training_failure(model: Any, spec: Spec, size: tuple[int, int]) -> Attempt | None:
    """Return the attempt at one size in training mode if it fails, otherwise None; the model is
    left in evaluation mode."""
    with _training_mode(model):
        attempt = model_attempts.attempt(model, spec, size)
    return attempt if attempt.error else None


@contextmanager
def _training_mode(model: Any) -> Iterator[None]:
    """Set a model to training within the context, and to evaluation after it."""
    model.train()
    try:
        yield
    finally:
        model.eval()


def _label_kinds(model: Any, call: Call, size: tuple[int, int]) -> tuple[str, ...]:
    """Return the first kind of labels with which the model accepts a call, in training, too, as a
    tuple of one; () where it accepts none or has no configuration. The model is left in evaluation
    mode."""
    parameter_names = set(signature_of(model).parameters)
    if not parameter_names & LABEL_INPUTS or not hasattr(model, "config"):
        return ()  # without a configuration they are arguments like others
    for kind in loss_labels.KINDS:
        labelled_call = loss_labels.add_labels(call, model, size, kind, 0)
        if labelled_call.kwargs.keys() <= parameter_names and is_accepted(model, labelled_call):
            with _training_mode(model):
                if is_accepted(model, labelled_call):
                    return (kind,)
    return ()


def is_accepted(model: Any, call: Call) -> bool:
    """Return whether a call of the model, in its present mode, ends without an error."""
    return run_error(model, call) is None


def run_error(model: Any, call: Call) -> BaseException | None:
    """Run a call of the model in its present mode and without gradients; return the error that ends
    it, or None. The model's state is restored."""
    return execute(Target(model), call, Plan(gradients=False)).error
