"""Make inputs for a model from the names in its forward signature, the sizes in its configuration
and its errors.

`find_accepted` first tries guesses (`guess_slots`), completed as the errors say, and then searches
for changes of the guesses (`input_repairs.search`).
"""

from __future__ import annotations

import inspect
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import Plan, Target, execute
from regraft.verification.child.checks.argument_variants import signature_of
from regraft.verification.child.drivers import (
    described_shapes,
    input_repairs,
    loss_labels,
    model_attempts,
)
from regraft.verification.child.drivers.argument_slots import (
    BATCH,
    LENGTH,
    Dim,
    Sizes,
    Slot,
    Spec,
    is_named,
    is_plain,
    make_call,
    packed_patches,
    slot_for,
)
from regraft.verification.child.drivers.configuration_objects import config_of
from regraft.verification.child.drivers.field_tables import HIDDEN, IMAGE_SIDE_FIELDS
from regraft.verification.child.drivers.forward_inputs import (
    BESIDE_MAIN_INPUT,
    FUTURE_INPUTS,
    GRID_INPUTS,
    LABEL_INPUTS,
    LAYER_INPUT,
    PACKED_INPUTS,
    SENSE_INPUTS,
    TEXT_INPUTS,
    TIME_INPUT,
    TOKENS_INPUT,
    USUAL_INPUTS,
)
from regraft.verification.child.drivers.model_attempts import Attempt

# Pairs of sizes, each (batch, length); a model is called at both sizes of the first pair that it
# accepts. The later pairs are for models whose batch statistics need two rows, and for those that
# take one length only.
SIZES = (((1, 5), (3, 8)), ((2, 5), (3, 8)), ((1, 7), (3, 7)), ((2, 7), (3, 7)))
IMAGE = 32  # the height and width of images where a model does not state them
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
    """

    spec: Spec
    sizes: tuple[tuple[int, int], ...]
    labels: tuple[str, ...] = ()

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
) -> AcceptedInputs:
    """Return inputs that the model accepts in its present mode, which should be evaluation.

    Inputs with a batch of one row are accepted in training, too; where the model is only called
    with larger batches, training is not tried. The model is left in evaluation mode.

    `inner` models are layers: their masks are added to scores. `width` is the last dimension of a
    layer's inputs, 0 for a model; `image` is the side, or the sides, of images in pixels, None
    where they are not known. `first_spec` is tried before all guesses. `seconds` of CPU time are
    for a search beyond the guesses; with 0 there is none.

    Raises NoInputs where the model accepts none, and LookupError where no value can be guessed for
    a required parameter that is no tensor.
    """
    slots = guess_slots(model, inner, width, image)
    failures: list[Attempt] = []
    starts = [spec for spec in _starting_specs(model, slots, inner) if spec != first_spec]
    for start in starts if first_spec is None else (first_spec, *starts):
        accepted = _accepted_when_completed(model, start, slots, failures)
        if accepted is not None:
            return accepted
    accepted = _accepted_after_search(model, slots, seconds, failures) if seconds > 0 else None
    if accepted is not None:
        return accepted
    raise NoInputs(failures[0], max(failures, key=lambda attempt: attempt.progress))


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
    model: Any, slots: Spec, seconds: float, failures: list[Attempt]
) -> AcceptedInputs | None:
    """Search from each of the failed attempts, those that came furthest first; return the first
    inputs that the model accepts, or None where there are none within `seconds` of CPU time.

    One search takes at most 0.6 of the time, so that another start has some. Further attempts that
    failed are appended to `failures`.
    """
    deadline = time.process_time() + seconds
    for start in sorted(failures, key=lambda attempt: -attempt.progress):
        limit = min(deadline - time.process_time(), 0.6 * seconds)
        best = input_repairs.search(model, start.spec, slots, limit)
        if best.error is not None:
            failures.append(best)
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


def width_of(model: Any) -> int:
    """Return the probable width of a layer's inputs: the last dimension that most of its matrices
    have.

    Without a matrix it is the length of the first vector that is no bias; `HIDDEN` where there is
    none either.
    """
    weights = [weight for name, weight in model.named_parameters() if not name.endswith("bias")]
    widths = Counter(int(weight.shape[-1]) for weight in weights if weight.dim() == 2)
    vectors = (int(weight.shape[0]) for weight in weights if weight.dim() == 1)
    return widths.most_common(1)[0][0] if widths else next(vectors, HIDDEN)


def guess_slots(model: Any, inner: bool, width: int, image: Any = None) -> dict[str, Slot]:
    """Return by name a guess for every parameter that holds a tensor, and for the plain ones that
    have no default; the other parameters keep their defaults.

    A guess is by the parameter's name and annotation (`slot_for`), or by the docstring of `forward`
    where the name tells nothing. A first layer that is a convolution or a table of embeddings
    decides the first parameter whose name tells nothing. The arguments are those of
    `find_accepted`. Raises LookupError where no value can be guessed for a plain parameter.
    """
    sizes = Sizes(config_of(model), width)
    names = signature_of(model).parameters
    is_layer = inner or (LAYER_INPUT in names and TIME_INPUT not in names)
    documented = described_shapes.documented_slots(model.forward, sizes)
    slots = {}
    for parameter in filter(_is_guessed, parameters(signature_of(model))):
        slot = slot_for(parameter.name, annotation(parameter), sizes, is_layer)
        is_unnamed = slot.kind != "plain" and not is_named(parameter.name)
        slots[parameter.name] = documented.get(parameter.name, slot) if is_unnamed else slot
    first = {**_first_image(model, slots, image), **_first_ids(model, slots)}
    return {**slots, **first, **_packed_images(slots, sizes)}


def _is_guessed(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter needs a guess: it has no default, or holds a tensor by its name
    and annotation."""
    if parameter.default is parameter.empty:
        return True
    is_plain_default = isinstance(parameter.default, bool | int | float | str)
    return not (is_plain_default or is_plain(parameter.name, annotation(parameter)))


def _first_image(model: Any, slots: Mapping[str, Slot], side: Any) -> dict[str, Slot]:
    """Return by name the slot of images for the first parameter whose name tells nothing; {} where
    the first layer of the model is no convolution, or the model has the configuration of a library
    that names its inputs."""
    dims = () if hasattr(getattr(model, "config", None), "to_dict") else _image_dims(model, side)
    name = _first_unnamed(slots) if dims else None
    return {} if name is None else {name: replace(slots[name], dims=dims)}


def _first_ids(model: Any, slots: Mapping[str, Slot]) -> dict[str, Slot]:
    """Return by name the slot of token ids for the first parameter whose name tells nothing; {}
    where the first layer of the model is no table of embeddings, where the parameter is
    `hidden_states`, or where the model has the configuration of a library that names its inputs."""
    first_layer, name = _first_layer(model), _first_unnamed(slots)
    is_of_library = hasattr(getattr(model, "config", None), "to_dict")
    if name is None or name == LAYER_INPUT or is_of_library:
        return {}
    if not isinstance(first_layer, nn.Embedding):
        return {}
    return {name: Slot("ids", (BATCH, LENGTH), first_layer.num_embeddings)}


def _first_unnamed(slots: Mapping[str, Slot]) -> str | None:
    """Return the name of the first parameter with the guess for names that tell nothing, real
    numbers of (batch, length, ...); None for none."""
    return next(
        (
            name
            for name, slot in slots.items()
            if slot.kind == "normal" and slot.dims[:2] == (BATCH, LENGTH)
        ),
        None,
    )


def _first_layer(model: Any) -> Any:
    """Return the first module of a model that has parameters of its own and no submodules; None
    where there is none."""
    return next(
        (part for part in model.modules() if part._parameters and not [*part.children()]), None
    )


def _packed_images(slots: Mapping[str, Slot], sizes: Sizes) -> dict[str, Slot]:
    """Return by name the slots of `PACKED_INPUTS` as the patches of all images in one row; {} where
    the model takes no grid of patches, and so its images are apart."""
    if not any(name in GRID_INPUTS for name in slots):
        return {}
    images = [name for name in slots if name in PACKED_INPUTS]
    return dict.fromkeys(images, packed_patches(sizes))


def _image_dims(model: Any, side: Any) -> tuple[Dim, ...]:
    """Return the dimensions of the images that a model takes; () for models whose first layer is no
    convolution over images (`Conv2d`).

    `side` is the side of the images in pixels, or a sequence that ends with height and width. Where
    it is None, a module of the model may state it, otherwise it is `IMAGE`.
    """
    first_layer = _first_layer(model)
    if not isinstance(first_layer, nn.Conv2d):
        return ()
    stated_sides = (
        getattr(part, name, None) for part in model.modules() for name in IMAGE_SIDE_FIELDS
    )
    side = side or next((stated_side for stated_side in stated_sides if stated_side), IMAGE)
    sides = tuple(side) if isinstance(side, tuple | list) else (side,)
    numbers = tuple(number for number in sides if type(number) is int) or (IMAGE,)
    height, width = (numbers * 2)[:2] if len(numbers) < 2 else numbers[-2:]
    return BATCH, Dim(first_layer.in_channels), Dim(height), Dim(width)


def parameters(signature: inspect.Signature) -> list[inspect.Parameter]:
    """Return the parameters of a signature without `self`, `*args` and `**kwargs`."""
    variadic_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        p
        for p in signature.parameters.values()
        if p.kind not in variadic_kinds and p.name != "self"
    ]


def annotation(parameter: inspect.Parameter) -> str:
    """Return the annotation of a parameter as text, without spaces, an `Optional` around it and
    `| None`; for a class itself its name without the module, and "_empty" for no annotation."""
    note = parameter.annotation
    text = note if isinstance(note, str) else getattr(note, "__name__", "") or str(note)
    text = str(note) if text == "Optional" else text
    return re.sub(r"^(typing\.)?Optional\[(.*)\]$", r"\2", text.replace(" ", "")).replace(
        "|None", ""
    )


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
        spec = {name: slot for name, slot in slots.items() if name in required or name in names}
        if spec not in yielded:
            yielded.append(spec)
            yield spec


def accepted_or_failed(model: Any, spec: Spec) -> AcceptedInputs | Attempt:
    """Return the inputs with the first pair of `SIZES` at which the model accepts a specification,
    or the first attempt that failed.

    A specification that works with one row has to work in training, too, else larger batches are
    tried. Pairs after one that fails earlier than the first pair did are not tried. The model is
    run in its present mode; where training was tried, it is left in evaluation.
    """
    first_failure: Attempt | None = None
    tried_shapes = []
    for sizes in SIZES:
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
        failure = failure or (
            _training_failure(model, spec, sizes[0]) if sizes[0][0] == 1 else None
        )
        if failure is None:
            return AcceptedInputs(
                spec, sizes, _label_kinds(model, make_call(spec, sizes[-1], 0), sizes[-1])
            )
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
