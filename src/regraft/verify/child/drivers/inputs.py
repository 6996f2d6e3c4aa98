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

import torch
from torch import nn

from regraft.verify.child.checks.arguments import signature_of
from regraft.verify.child.drivers import described, labels, repair
from regraft.verify.child.drivers.guess import HIDDEN
from regraft.verify.child.drivers.slots import (
    BATCH,
    LENGTH,
    Dim,
    Sizes,
    Slot,
    Spec,
    is_named,
    is_plain,
    make,
    packed_patches,
    slot_for,
)
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.tree import Call

# Pairs of (batch, length) that are used together; the first pair of sizes that a model accepts is
# used. The later ones are for models whose batch statistics need two rows, and for those that take
# one length only.
SIZES = (((1, 5), (3, 8)), ((2, 5), (3, 8)), ((1, 7), (3, 7)), ((2, 7), (3, 7)))
# where the length decides what runs; no more than a small model has positions
LONG = (
    (1, 48),
    (2, 48),
)
IMAGE = 32  # the height and width of images where a model does not state them
Calls = Callable[[int], tuple[Call, ...]]
_TEXT = (
    "input_ids",
    "attention_mask",
    "decoder_input_ids",
    "decoder_attention_mask",
    "token_type_ids",
)
_SENSES = ("pixel_values", "image_grid_thw", "input_features", "input_values", "flattened_patches")
_FUTURE = ("future_values", "future_time_features")
_ASK = ("output_attentions", "output_hidden_states", "use_cache")
_KNOWN = (*_TEXT, *_SENSES, *_FUTURE, "bbox")


class NoInputs(ValueError):
    """The error that a model accepted no inputs.

    The message gives the error of the first attempt; `furthest` is the attempt that ran most
    operations before its error.
    """

    def __init__(self, first_attempt: repair.Attempt, furthest: repair.Attempt) -> None:
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
            plain_calls = tuple(make(self.spec, size, seed) for size in self.sizes)
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
    seconds: float = repair.SECONDS,
    first_spec: Spec | None = None,
) -> AcceptedInputs:
    """Return inputs that the model accepts in evaluation and, where that is possible, in training.

    `inner` models are layers: their masks are added to scores; `width` is their last dimension,
    `image` the side or sides of images where it is known. `first_spec`, such as one that another
    model of the class takes, is tried before all others. Raises NoInputs where none is found within
    `seconds`, and LookupError where no value for a plain parameter can be guessed.
    """
    slots = _guess_slots(model, inner, width, image)
    failures: list[repair.Attempt] = []
    starts = [spec for spec in _starts(model, slots, inner) if spec != first_spec]
    for start in starts if first_spec is None else (first_spec, *starts):
        candidate: Spec | None = start
        tried: list[Spec] = []
        while candidate is not None and candidate not in tried:
            tried.append(candidate)
            outcome = _accepted_or_failed(model, candidate)
            if isinstance(outcome, AcceptedInputs):
                return outcome
            failures.append(outcome)
            candidate = repair.complete_spec(outcome, slots, getattr(model, "config", None))
    deadline = time.process_time() + seconds
    for attempt in sorted(failures, key=lambda attempt: -attempt.progress) if seconds > 0 else ():
        best = repair.search(
            model, attempt.spec, slots, min(deadline - time.process_time(), 0.6 * seconds)
        )
        if best.error is not None:
            failures.append(best)
        for spec in (best.spec, *repair.by_batch(best.spec)) if best.error is None else ():
            outcome = _accepted_or_failed(model, spec)
            if isinstance(outcome, AcceptedInputs):
                return outcome
            failures.append(outcome)
        if time.process_time() > deadline:
            break
    raise NoInputs(failures[0], max(failures, key=lambda attempt: attempt.progress))


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


def _guess_slots(model: Any, inner: bool, width: int, image: Any = None) -> dict[str, Slot]:
    """Return a guess for every parameter that holds a tensor, and for the plain ones that have no
    default."""
    sizes = Sizes(getattr(model, "config", None), width)
    names = signature_of(model).parameters
    # a whole model is asked for a time
    inner = inner or ("hidden_states" in names and "timestep" not in names)
    slots = {}
    documented = described.documented_slots(model.forward, sizes)
    for parameter in parameters(signature_of(model)):
        text = annotation(parameter)
        required = parameter.default is parameter.empty
        if required or not (
            is_plain(parameter.name, text)
            or isinstance(parameter.default, bool | int | float | str)
        ):
            slot = slot_for(parameter.name, text, sizes, inner)
            is_unnamed = slot.kind != "plain" and not is_named(parameter.name)
            slots[parameter.name] = documented.get(parameter.name, slot) if is_unnamed else slot
    image_dims = () if hasattr(model, "config") else _image_dims(model, image)
    for name, slot in slots.items() if image_dims else ():
        if slot.kind == "normal" and slot.dims[:2] == (
            BATCH,
            LENGTH,
        ):  # nothing is known of it by its name
            slots[name] = replace(slot, dims=image_dims)
            break
    if any(name.endswith("grid_thw") for name in slots):
        images = [
            name for name in slots if name == "hidden_states" or name.startswith("pixel_values")
        ]
        slots |= dict.fromkeys(images, packed_patches(sizes))
    return slots


def _image_dims(model: Any, side: Any) -> tuple[Dim, ...]:
    """Return the dimensions of the images that a model takes; () for models whose first layer is no
    convolution.

    `side` is the side or sides of the images where it is known.
    """
    first_layer = next(
        (part for part in model.modules() if part._parameters and not [*part.children()]), None
    )
    if not isinstance(first_layer, nn.Conv2d):
        return ()
    stated_sides = (
        getattr(part, name, None) for part in model.modules() for name in ("img_size", "image_size")
    )
    side = side or next((stated_side for stated_side in stated_sides if stated_side), IMAGE)
    sides = tuple(side) if isinstance(side, tuple | list) else (side,)
    height, width = (sides * 2)[:2] if len(sides) < 2 else sides[-2:]
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
    """Yield specifications to begin with: all usual inputs, text, images and sound, the main input
    alone.

    For layers the only one consists of the required parameters.
    """
    required = {p.name for p in parameters(signature_of(model)) if p.default is p.empty}
    main = getattr(model, "main_input_name", "input_ids")
    yielded = []
    future = (_FUTURE,) if slots.keys() & set(_FUTURE) else ()
    name_groups = (
        _KNOWN,
        *future,
        _TEXT,
        _SENSES,
        (main, "attention_mask"),
        (main, "decoder_input_ids"),
        (main,),
    )
    for names in ((),) if inner else name_groups:
        spec = {name: slot for name, slot in slots.items() if name in required or name in names}
        if spec not in yielded:
            yielded.append(spec)
            yield spec


def _accepted_or_failed(model: Any, spec: Spec) -> AcceptedInputs | repair.Attempt:
    """Return the inputs with the sizes at which a specification works, or the first attempt that
    failed."""
    first_failure: repair.Attempt | None = None
    tried_shapes = []
    for sizes in SIZES:
        shapes = [[dim.at(sizes[0]) for dim in slot.dims] for slot in spec.values()]
        if shapes in tried_shapes:  # what these sizes differ in is no dimension of any argument
            continue
        tried_shapes.append(shapes)
        failure = next(
            (
                attempt
                for attempt in (repair.attempt(model, spec, size) for size in sizes)
                if attempt.error
            ),
            None,
        )
        failure = failure or (
            _training_failure(model, spec, sizes[0]) if sizes[0][0] == 1 else None
        )
        if failure is None:
            return AcceptedInputs(
                spec, sizes, _label_kinds(model, make(spec, sizes[-1], 0), sizes[-1])
            )
        first_failure = first_failure or failure
        if failure.progress < first_failure.progress:
            break
    assert first_failure is not None
    return first_failure


def _training_failure(model: Any, spec: Spec, size: tuple[int, int]) -> repair.Attempt | None:
    """Return the attempt in training mode if it fails, otherwise None."""
    with _training_mode(model):
        attempt = repair.attempt(model, spec, size)
    return attempt if attempt.error else None


@contextmanager
def _training_mode(model: Any) -> Iterator[None]:
    """Set a model to training within the context, and to evaluation after it."""
    model.train()
    try:
        yield
    finally:
        model.eval()


def more_calls(model: Any, accepted: AcceptedInputs, text: str, width: int = 0) -> Iterator[Calls]:
    """Yield functions that make further calls: with optional inputs, requested outputs, cached
    keys, or no mask.

    Optional inputs that `text` mentions come first. `width` is passed for layers, with the meaning
    that it has in `find`.
    """
    parameter_names = set(signature_of(model).parameters)
    slots = _guess_slots(model, width > 0, width)
    optional = {name: slot for name, slot in slots.items() if name not in accepted.spec}
    for name, slot in optional.items():
        if _is_mentioned(text, name):
            best = repair.search(model, {**accepted.spec, name: slot}, {}, repair.SECONDS / 3)
            if best.error is None and name in best.spec:
                yield from _accepted_calls(model, best.spec)
    parameter_names |= {*_ASK, "return_dict"} if hasattr(model, "config_class") else set()
    yield from _with_flags(model, accepted.calls(model), parameter_names, text)
    if {"past_key_values", "use_cache"} <= parameter_names and re.search("past|cache", text):
        yield from _with_cache(model, accepted)
    yield _without_mask(accepted.calls(model))
    for name, slot in optional.items():
        if not _is_mentioned(text, name):
            yield from _accepted_calls(model, {**accepted.spec, name: slot})


def _is_mentioned(text: str, name: str) -> bool:
    """Return whether a text contains a parameter's name, leaving out `encoder_` or `decoder_` at
    its start."""
    return bool(re.search(rf"\b{re.sub(r'^(encoder|decoder)_', '', name)}\b", text))


def _accepted_calls(model: Any, spec: Spec) -> Iterator[Calls]:
    """Yield the calls of a specification if the model accepts it."""
    accepted = _accepted_or_failed(model, spec)
    if isinstance(accepted, AcceptedInputs):
        yield accepted.calls(model)


def longer_calls(model: Any, accepted: AcceptedInputs) -> Iterator[Calls]:
    """Yield calls with more tokens, where a model takes them."""
    calls = replace(accepted, sizes=LONG).calls(model)
    lengths = [dim for slot in accepted.spec.values() for dim in slot.dims if dim.of == "length"]
    # samples of sound are long already
    are_tokens = bool(lengths) and all(dim.factor == 1 for dim in lengths)
    if are_tokens and all(_is_accepted(model, call) for call in calls(0)):
        yield calls


def _with_flags(model: Any, calls: Calls, parameter_names: set[str], text: str) -> Iterator[Calls]:
    """Yield calls with each flag changed, and with flags that the error names where the flag fails
    alone."""
    flags = [
        p
        for p in signature_of(model).parameters.values()
        if _is_flag(p) and p.name != "return_dict"
    ]
    choices = [(p.name, not p.default) for p in flags] + [
        (name, True) for name in _ASK if name in parameter_names
    ]
    all_choices = (*dict.fromkeys(choices), ("use_cache", False), ("return_dict", False))
    for name, value in sorted(all_choices, key=lambda choice: not _is_mentioned(text, choice[0])):
        if name not in parameter_names:
            continue
        flagged_calls = _with_keywords(calls, {name: value})
        error = _run_error(model, flagged_calls(0)[0])
        words = set(re.findall(r"\w+", str(error))) & parameter_names - {name}
        related_flags = {flag: flag_value for flag, flag_value in all_choices if flag in words}
        if error is not None and related_flags:  # it names flags that go with this one
            flagged_calls = _with_keywords(calls, {name: value, **related_flags})
            error = _run_error(model, flagged_calls(0)[0])
        if error is None:
            yield flagged_calls


def _with_keywords(calls: Calls, values: Mapping[str, Any]) -> Calls:
    """Return the calls with other keyword arguments."""
    label = "".join(f", {name}={value}" for name, value in values.items())
    return lambda seed: tuple(
        Call(call.args, {**call.kwargs, **values}, f"{call.label}{label}") for call in calls(seed)
    )


def _is_flag(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a boolean by default, or a boolean left to the
    configuration."""
    return isinstance(parameter.default, bool) or (
        parameter.default is None and annotation(parameter) == "bool"
    )


def _with_cache(model: Any, accepted: AcceptedInputs) -> Iterator[Calls]:
    """Yield calls that continue a call with the keys and values that this call leaves, for as many
    more positions."""

    def continue_calls(seed: int) -> tuple[Call, ...]:
        return tuple(
            _continue_call(model, make(accepted.spec, size, seed)) for size in accepted.sizes
        )

    try:
        continue_calls(0)
    except Exception:  # noqa: BLE001 - a model that leaves none, or not with these inputs, has no such call
        return
    yield continue_calls


def _continue_call(model: Any, call: Call) -> Call:
    """Run a call that returns its cache, and return the call that goes on from it."""
    kwargs = {name: value for name, value in call.kwargs.items() if "mask" not in name}
    with torch.no_grad():
        cache = model(**kwargs, use_cache=True, return_dict=True).past_key_values
    return Call(
        (), {**kwargs, "past_key_values": cache, "use_cache": True}, f"{call.label}, continued"
    )


def _without_mask(calls: Calls) -> Calls:
    """Return the calls without their masks."""

    def unmasked_calls(seed: int) -> tuple[Call, ...]:
        return tuple(
            Call(
                call.args,
                {name: value for name, value in call.kwargs.items() if "mask" not in name},
                f"{call.label}, no mask",
            )
            for call in calls(seed)
        )

    return unmasked_calls


def _label_kinds(model: Any, call: Call, size: tuple[int, int]) -> tuple[str, ...]:
    """Return the kind of labels that the model takes, in training too, as a tuple of none
    or one."""
    parameter_names = set(signature_of(model).parameters)
    if not parameter_names & labels.NAMES or not hasattr(model, "config"):
        return ()  # without a configuration they are arguments like others
    for kind in labels.KINDS:
        labelled_call = labels.add_labels(call, model, size, kind, 0)
        if labelled_call.kwargs.keys() <= parameter_names and _is_accepted(model, labelled_call):
            with _training_mode(model):
                if _is_accepted(model, labelled_call):
                    return (kind,)
    return ()


def _is_accepted(model: Any, call: Call) -> bool:
    """Return whether a call of the model ends without an error."""
    return _run_error(model, call) is None


def _run_error(model: Any, call: Call) -> BaseException | None:
    """Run a call without gradients; return the error that ends it, or None."""
    return execute(Target(model), call, Plan(gradients=False)).error
