"""Make inputs for a model from the names in its forward signature, the sizes in its configuration
and its errors."""

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

from regraft.verify.child.checks.arguments import signature_of
from regraft.verify.child.drivers import attempts, described_shapes, input_repairs, labels
from regraft.verify.child.drivers.attempts import Attempt
from regraft.verify.child.drivers.configuration_objects import config_of
from regraft.verify.child.drivers.field_tables import HIDDEN, IMAGE_SIDE_FIELDS
from regraft.verify.child.drivers.forward_inputs import (
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
from regraft.verify.child.drivers.slots import (
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
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.tree import Call

# Pairs of (batch, length) that are used together; the first pair of sizes that a model accepts is
# used. The later ones are for models whose batch statistics need two rows, and for those that take
# one length only.
SIZES = (((1, 5), (3, 8)), ((2, 5), (3, 8)), ((1, 7), (3, 7)), ((2, 7), (3, 7)))
IMAGE = 32  # the height and width of images where a model does not state them
Calls = Callable[[int], tuple[Call, ...]]


class NoInputs(ValueError):
    """The error that a model accepted no inputs.

    The message gives the error of the first attempt; `furthest` is the attempt that ran most
    operations before its error.
    """

    def __init__(self, first_attempt: Attempt, furthest: Attempt) -> None:
        super().__init__(f"no inputs could be made that it accepts: {first_attempt.text[:160]}")
        self.furthest = furthest


@dataclass(frozen=True, slots=True)
class AcceptedInputs:
    """The inputs that a model accepts.

    `spec` describes them, `sizes` are the pairs of (batch, length) that they work at, `labels` the
    kinds of labels that the model takes.
    """

    spec: Spec
    sizes: tuple[tuple[int, int], ...]
    labels: tuple[str, ...] = ()

    def calls(self, model: Any) -> Calls:
        """Return a function that makes the calls of a seed: one of each size, and one with labels
        of each kind."""

        def make_calls(seed: int) -> tuple[Call, ...]:
            plain_calls = tuple(make_call(self.spec, size, seed) for size in self.sizes)
            with_labels = (
                labels.add_labels(plain_calls[-1], model, self.sizes[-1], kind, seed)
                for kind in self.labels
            )
            return (*plain_calls, *with_labels)

        return make_calls


def find(
    model: Any,
    *,
    inner: bool = False,
    width: int = 0,
    image: Any = None,
    seconds: float = input_repairs.SECONDS,
    first_spec: Spec | None = None,
) -> AcceptedInputs:
    """Return inputs that the model accepts in evaluation and, where that is possible, in training.

    `inner` models are layers: their masks are added to scores; `width` is their last dimension,
    `image` the side or sides of images where it is known; `first_spec` is tried before all guesses,
    and with 0 `seconds` there is no search beyond the guesses. Raises NoInputs where none is found,
    and LookupError where no value for a plain parameter can be guessed.
    """
    slots = guess_slots(model, inner, width, image)
    failures: list[Attempt] = []
    starts = [spec for spec in _starts(model, slots, inner) if spec != first_spec]
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
    """Return the inputs that a model accepts once they are completed as its errors say, or None.
    Attempts that failed are appended to `failures`."""
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
    """Return the inputs that a search finds within `seconds` from one of the failed attempts, the
    furthest first, or None. Further attempts that failed are appended to `failures`."""
    deadline = time.process_time() + seconds
    for start in sorted(failures, key=lambda attempt: -attempt.progress):
        limit = min(deadline - time.process_time(), 0.6 * seconds)
        best = input_repairs.search(model, start.spec, slots, limit)
        if best.error is not None:
            failures.append(best)
        for spec in (
            (best.spec, *input_repairs.specs_with_batch_dimension(best.spec))
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
    """Return the last dimension that most of a layer's matrices have: its inputs are probably as
    wide.

    Without a matrix it is that of the first vector that is no bias; `HIDDEN` where there is none
    either.
    """
    weights = [weight for name, weight in model.named_parameters() if not name.endswith("bias")]
    widths = Counter(int(weight.shape[-1]) for weight in weights if weight.dim() == 2)
    vectors = (int(weight.shape[0]) for weight in weights if weight.dim() == 1)
    return widths.most_common(1)[0][0] if widths else next(vectors, HIDDEN)


def guess_slots(model: Any, inner: bool, width: int, image: Any = None) -> dict[str, Slot]:
    """Return by name a guess for every parameter that holds a tensor, and for the plain ones that
    have no default."""
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
    """Return whether a parameter needs a guess: it has no default, or holds a tensor."""
    if parameter.default is parameter.empty:
        return True
    is_plain_default = isinstance(parameter.default, bool | int | float | str)
    return not (is_plain_default or is_plain(parameter.name, annotation(parameter)))


def _first_image(model: Any, slots: Mapping[str, Slot], side: Any) -> dict[str, Slot]:
    """Return by name the slot of images for the first parameter whose name tells nothing, of a
    model without a configuration whose first layer is a convolution; {} for others."""
    dims = () if hasattr(getattr(model, "config", None), "to_dict") else _image_dims(model, side)
    name = _first_unnamed(slots) if dims else None
    return {} if name is None else {name: replace(slots[name], dims=dims)}


def _first_ids(model: Any, slots: Mapping[str, Slot]) -> dict[str, Slot]:
    """Return by name the slot of token ids for the first parameter whose name tells nothing, of a
    model whose first layer is a table of embeddings; {} for others, and for models of a library
    that names its inputs."""
    first_layer, name = _first_layer(model), _first_unnamed(slots)
    is_of_library = hasattr(getattr(model, "config", None), "to_dict")
    if name is None or name == LAYER_INPUT or is_of_library:
        return {}
    if not isinstance(first_layer, nn.Embedding):
        return {}
    return {name: Slot("ids", (BATCH, LENGTH), first_layer.num_embeddings)}


def _first_unnamed(slots: Mapping[str, Slot]) -> str | None:
    """Return the first parameter whose name tells nothing; None for none."""
    return next(
        (
            name
            for name, slot in slots.items()
            if slot.kind == "normal" and slot.dims[:2] == (BATCH, LENGTH)
        ),
        None,
    )


def _first_layer(model: Any) -> Any:
    """Return the first module with parameters and without submodules; None for none."""
    return next(
        (part for part in model.modules() if part._parameters and not [*part.children()]), None
    )


def _packed_images(slots: Mapping[str, Slot], sizes: Sizes) -> dict[str, Slot]:
    """Return by name slots with the patches of all images in one row, where a model takes a grid;
    {} for others."""
    if not any(name in GRID_INPUTS for name in slots):
        return {}
    images = [name for name in slots if name in PACKED_INPUTS]
    return dict.fromkeys(images, packed_patches(sizes))


def _image_dims(model: Any, side: Any) -> tuple[Dim, ...]:
    """Return the dimensions of the images that a model takes; () for models whose first layer is no
    convolution.

    `side` is the side or sides of the images where it is known.
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
    """Return the annotation of a parameter as text, without `Optional`, `None` and the module of a
    class."""
    note = parameter.annotation
    text = note if isinstance(note, str) else getattr(note, "__name__", "") or str(note)
    text = str(note) if text == "Optional" else text
    return re.sub(r"^(typing\.)?Optional\[(.*)\]$", r"\2", text.replace(" ", "")).replace(
        "|None", ""
    )


def _starts(model: Any, slots: dict[str, Slot], inner: bool) -> Iterator[Spec]:
    """Yield specifications to begin with, each with the required parameters: all usual inputs,
    text, images and sound, the main input alone.

    For layers the only one consists of the required parameters.
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
    """Return the inputs with the sizes at which a specification works, or the first attempt that
    failed.

    A specification that works with one row has to work in training too, else larger batches are
    tried.
    """
    first_failure: Attempt | None = None
    tried_shapes = []
    for sizes in SIZES:
        shapes = [[dim.at(sizes[0]) for dim in slot.dims] for slot in spec.values()]
        if shapes in tried_shapes:  # what these sizes differ in is no dimension of any argument
            continue
        tried_shapes.append(shapes)
        failure = next(
            (
                attempt
                for attempt in (attempts.attempt(model, spec, size) for size in sizes)
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
    """Return the attempt in training mode if it fails, otherwise None."""
    with _training_mode(model):
        attempt = attempts.attempt(model, spec, size)
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
    """Return the first kind of labels that the model takes, in training too, as a tuple; () where
    it takes none or has no configuration."""
    parameter_names = set(signature_of(model).parameters)
    if not parameter_names & LABEL_INPUTS or not hasattr(model, "config"):
        return ()  # without a configuration they are arguments like others
    for kind in labels.KINDS:
        labelled_call = labels.add_labels(call, model, size, kind, 0)
        if labelled_call.kwargs.keys() <= parameter_names and is_accepted(model, labelled_call):
            with _training_mode(model):
                if is_accepted(model, labelled_call):
                    return (kind,)
    return ()


def is_accepted(model: Any, call: Call) -> bool:
    """Return whether a call of the model ends without an error."""
    return run_error(model, call) is None


def run_error(model: Any, call: Call) -> BaseException | None:
    """Run a call without gradients; return the error that ends it, or None."""
    return execute(Target(model), call, Plan(gradients=False)).error
