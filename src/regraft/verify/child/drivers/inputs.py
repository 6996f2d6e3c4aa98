"""Make inputs for a model from the names in its forward signature, the sizes in its configuration and its errors."""

from __future__ import annotations

import inspect
import re
import time
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

# Pairs of (batch, length); the first that a model accepts is used. The later ones are for models whose batch
# statistics need two rows, and for those that take one length only.
SIZES = (((1, 5), (3, 8)), ((2, 5), (3, 8)), ((1, 7), (3, 7)), ((2, 7), (3, 7)))
LONG = ((1, 48), (2, 48))  # where the length decides what runs; no more than a small model has positions
IMAGE = 32  # sides, where a model does not say
Calls = Callable[[int], tuple[Call, ...]]
_TEXT = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask", "token_type_ids")
_SENSES = ("pixel_values", "image_grid_thw", "input_features", "input_values", "flattened_patches")
_FUTURE = ("future_values", "future_time_features")
_ASK = ("output_attentions", "output_hidden_states", "use_cache")
_KNOWN = (*_TEXT, *_SENSES, *_FUTURE, "bbox")


class NoInputs(ValueError):
    """Nothing was accepted: what was tried `first` failed so; `furthest` ran most operations before its error."""

    def __init__(self, first: repair.Attempt, furthest: repair.Attempt) -> None:
        super().__init__(f"no inputs could be made that it accepts: {first.text[:160]}")
        self.furthest = furthest


@dataclass(frozen=True, slots=True)
class Found:
    """What a model accepts: a specification, the sizes that it works at, and the kinds of labels it takes."""

    spec: Spec
    sizes: tuple[tuple[int, int], ...]
    labels: tuple[str, ...] = ()

    def calls(self, model: Any) -> Calls:
        """Return the calls by seed: one of each size, and one with labels where there are any."""

        def made(seed: int) -> tuple[Call, ...]:
            plain = tuple(make(self.spec, size, seed) for size in self.sizes)
            more = (labels.labelled(plain[-1], model, self.sizes[-1], kind, seed) for kind in self.labels)
            return (*plain, *more)

        return made


def find(
    model: Any, *, inner: bool = False, width: int = 0, image: Any = None, seconds: float = repair.SECONDS,
    first: Spec | None = None,
) -> Found:  # fmt: skip
    """Return calls that the model accepts, in evaluation and, where that can be had, in training.

    `inner` models are layers: their masks are added to scores; `width` is their last dimension, `image` the side or
    sides of images where it is known. `first` is tried first: what another model of the class takes. Raises NoInputs
    where none is found within `seconds`, and LookupError where no value for a plain parameter can be guessed.
    """
    known = _slots(model, inner, width, image)
    failed: list[repair.Attempt] = []
    starts = [spec for spec in _starts(model, known, inner) if spec != first]
    for start in starts if first is None else (first, *starts):
        begin: Spec | None = start
        tried: list[Spec] = []
        while begin is not None and begin not in tried:
            tried.append(begin)
            found = _fitting(model, begin)
            if isinstance(found, Found):
                return found
            failed.append(found)
            begin = repair.mended(found, known, getattr(model, "config", None))
    deadline = time.process_time() + seconds
    for one in sorted(failed, key=lambda one: -one.progress) if seconds > 0 else ():
        best = repair.search(model, one.spec, known, min(deadline - time.process_time(), 0.6 * seconds))
        if best.error is not None:
            failed.append(best)
        for spec in (best.spec, *repair.by_batch(best.spec)) if best.error is None else ():
            found = _fitting(model, spec)
            if isinstance(found, Found):
                return found
            failed.append(found)
        if time.process_time() > deadline:
            break
    raise NoInputs(failed[0], max(failed, key=lambda one: one.progress))


def width_of(model: Any) -> int:
    """The last dimension of a layer's first weight: what its inputs are probably as wide as."""
    for name, parameter in model.named_parameters():
        if parameter.dim() in (1, 2) and not name.endswith("bias"):
            return int(parameter.shape[-1])
    return HIDDEN


def _slots(model: Any, inner: bool, width: int, image: Any = None) -> dict[str, Slot]:
    """Guesses for every parameter that holds a tensor, and for the plain ones that have no default."""
    sizes = Sizes(getattr(model, "config", None), width)
    inner = inner or "hidden_states" in signature_of(model).parameters
    found = {}
    told = described.documented(model.forward, sizes)
    for parameter in parameters(signature_of(model)):
        note = annotation(parameter)
        required = parameter.default is parameter.empty
        if required or not (is_plain(parameter.name, note) or isinstance(parameter.default, bool | int | float | str)):
            slot = slot_for(parameter.name, note, sizes, inner)
            nameless = slot.kind != "plain" and not is_named(parameter.name)
            found[parameter.name] = told.get(parameter.name, slot) if nameless else slot
    shape = () if hasattr(model, "config") else _image(model, image)
    for name, slot in found.items() if shape else ():
        if slot.kind == "normal" and slot.dims[:2] == (BATCH, LENGTH):  # nothing is known of it by its name
            found[name] = replace(slot, dims=shape)
            break
    if any(name.endswith("grid_thw") for name in found):
        images = [name for name in found if name == "hidden_states" or name.startswith("pixel_values")]
        found |= dict.fromkeys(images, packed_patches(sizes))
    return found


def _image(model: Any, side: Any) -> tuple[Dim, ...]:
    """The shape of the images that a model takes whose first layer is a convolution of images; () for others."""
    first = next((part for part in model.modules() if part._parameters and not [*part.children()]), None)
    if not isinstance(first, nn.Conv2d):
        return ()
    told = (getattr(part, name, None) for part in model.modules() for name in ("img_size", "image_size"))
    side = side or next((one for one in told if one), IMAGE)
    sides = tuple(side) if isinstance(side, tuple | list) else (side,)
    height, width = (sides * 2)[:2] if len(sides) < 2 else sides[-2:]
    return BATCH, Dim(first.in_channels), Dim(height), Dim(width)


def parameters(signature: inspect.Signature) -> list[inspect.Parameter]:
    skipped = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in signature.parameters.values() if p.kind not in skipped and p.name != "self"]


def annotation(parameter: inspect.Parameter) -> str:
    """The annotation as text; without `Optional`, `None` and modules."""
    note = parameter.annotation
    text = note if isinstance(note, str) else getattr(note, "__name__", "") or str(note)
    text = str(note) if text == "Optional" else text
    return re.sub(r"^(typing\.)?Optional\[(.*)\]$", r"\2", text.replace(" ", "")).replace("|None", "")


def _starts(model: Any, known: dict[str, Slot], inner: bool) -> Iterator[Spec]:
    """Choices of arguments to begin with: everything usual, text, images and sound, the main input alone.

    For layers these are the required ones.
    """
    required = {p.name for p in parameters(signature_of(model)) if p.default is p.empty}
    main = getattr(model, "main_input_name", "input_ids")
    seen = []
    future = (_FUTURE,) if known.keys() & set(_FUTURE) else ()
    every = (_KNOWN, *future, _TEXT, _SENSES, (main, "attention_mask"), (main, "decoder_input_ids"), (main,))
    for names in ((),) if inner else every:
        spec = {name: slot for name, slot in known.items() if name in required or name in names}
        if spec not in seen:
            seen.append(spec)
            yield spec


def _fitting(model: Any, spec: Spec) -> Found | repair.Attempt:
    """Return sizes at which a specification works, or the first attempt that failed."""
    first: repair.Attempt | None = None
    seen = []
    for sizes in SIZES:
        shapes = [[dim.at(sizes[0]) for dim in slot.dims] for slot in spec.values()]
        if shapes in seen:  # what these sizes differ in is no dimension of any argument
            continue
        seen.append(shapes)
        failed = next((one for one in (repair.attempt(model, spec, size) for size in sizes) if one.error), None)
        failed = failed or (_training(model, spec, sizes[0]) if sizes[0][0] == 1 else None)
        if failed is None:
            return Found(spec, sizes, _labels(model, make(spec, sizes[-1], 0), sizes[-1]))
        first = first or failed
        if failed.progress < first.progress:
            break
    assert first is not None
    return first


def _training(model: Any, spec: Spec, size: tuple[int, int]) -> repair.Attempt | None:
    """Return the attempt in training mode if it fails."""
    with _in_training(model):
        tried = repair.attempt(model, spec, size)
    return tried if tried.error else None


@contextmanager
def _in_training(model: Any) -> Iterator[None]:
    model.train()
    try:
        yield
    finally:
        model.eval()


def more_calls(model: Any, found: Found, text: str, width: int = 0) -> Iterator[Calls]:
    """Yield calls that ask for more: optional inputs, those that `text` mentions first, attentions, cached keys.

    `width` is given for layers, as to `find`.
    """
    accepted = set(signature_of(model).parameters)
    known = _slots(model, width > 0, width)
    optional = {name: slot for name, slot in known.items() if name not in found.spec}
    for name, slot in optional.items():
        if _mentions(text, name):
            best = repair.search(model, {**found.spec, name: slot}, {}, repair.SECONDS / 3)
            if best.error is None and name in best.spec:
                yield from _calls_of(model, best.spec)
    accepted |= {*_ASK, "return_dict"} if hasattr(model, "config_class") else set()
    yield from _with_flags(model, found.calls(model), accepted, text)
    if {"past_key_values", "use_cache"} <= accepted and re.search("past|cache", text):
        yield from _with_cache(model, found)
    yield _without_mask(found.calls(model))
    for name, slot in optional.items():
        if not _mentions(text, name):
            yield from _calls_of(model, {**found.spec, name: slot})


def _mentions(text: str, name: str) -> bool:
    return bool(re.search(rf"\b{re.sub(r'^(encoder|decoder)_', '', name)}\b", text))


def _calls_of(model: Any, spec: Spec) -> Iterator[Calls]:
    fitted = _fitting(model, spec)
    if isinstance(fitted, Found):
        yield fitted.calls(model)


def longer(model: Any, found: Found) -> Iterator[Calls]:
    """Yield calls with more tokens, where a model takes them."""
    calls = replace(found, sizes=LONG).calls(model)
    lengths = [dim for slot in found.spec.values() for dim in slot.dims if dim.of == "length"]
    tokens = bool(lengths) and all(dim.factor == 1 for dim in lengths)  # samples of sound are long already
    if tokens and all(_runs(model, call) for call in calls(0)):
        yield calls


def _with_flags(model: Any, calls: Calls, accepted: set[str], text: str) -> Iterator[Calls]:
    flags = [p for p in signature_of(model).parameters.values() if _is_flag(p) and p.name != "return_dict"]
    choices = [(p.name, not p.default) for p in flags] + [(name, True) for name in _ASK if name in accepted]
    every = (*dict.fromkeys(choices), ("use_cache", False), ("return_dict", False))
    for name, value in sorted(every, key=lambda one: not _mentions(text, one[0])):
        if name not in accepted:
            continue
        more = _with_values(calls, {name: value})
        error = _error(model, more(0)[0])
        words = set(re.findall(r"\w+", str(error))) & accepted - {name}
        others = {flag: to for flag, to in every if flag in words}
        if error is not None and others:  # it names flags that go with this one
            more = _with_values(calls, {name: value, **others})
            error = _error(model, more(0)[0])
        if error is None:
            yield more


def _with_values(calls: Calls, values: Mapping[str, Any]) -> Calls:
    """Return the calls with other keyword arguments."""
    label = "".join(f", {name}={value}" for name, value in values.items())
    return lambda seed: tuple(Call(c.args, {**c.kwargs, **values}, f"{c.label}{label}") for c in calls(seed))


def _is_flag(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is true or false by default, or left to the configuration."""
    return isinstance(parameter.default, bool) or (parameter.default is None and annotation(parameter) == "bool")


def _with_cache(model: Any, found: Found) -> Iterator[Calls]:
    """Each call again, with the keys and values that a call before it left: for as many positions more."""

    def second(seed: int) -> tuple[Call, ...]:
        return tuple(_continued(model, make(found.spec, size, seed)) for size in found.sizes)

    try:
        second(0)
    except Exception:  # noqa: BLE001 - a model that leaves none, or not with these inputs, has no such call
        return
    yield second


def _continued(model: Any, call: Call) -> Call:
    kwargs = {name: value for name, value in call.kwargs.items() if "mask" not in name}
    with torch.no_grad():
        cache = model(**kwargs, use_cache=True, return_dict=True).past_key_values
    return Call((), {**kwargs, "past_key_values": cache, "use_cache": True}, f"{call.label}, continued")


def _without_mask(calls: Calls) -> Calls:
    def bare(seed: int) -> tuple[Call, ...]:
        return tuple(
            Call(c.args, {k: v for k, v in c.kwargs.items() if "mask" not in k}, f"{c.label}, no mask")
            for c in calls(seed)
        )

    return bare


def _labels(model: Any, call: Call, size: tuple[int, int]) -> tuple[str, ...]:
    """Return the kind of labels that the model takes, in training too, as a tuple of none or one."""
    accepted = set(signature_of(model).parameters)
    if not accepted & labels.NAMES or not hasattr(model, "config"):
        return ()  # without a configuration they are arguments like others
    for kind in labels.KINDS:
        more = labels.labelled(call, model, size, kind, 0)
        if more.kwargs.keys() <= accepted and _runs(model, more):
            with _in_training(model):
                if _runs(model, more):
                    return (kind,)
    return ()


def _runs(model: Any, call: Call) -> bool:
    return _error(model, call) is None


def _error(model: Any, call: Call) -> BaseException | None:
    """Run a call; return the error that it ends in."""
    return execute(Target(model), call, Plan(gradients=False)).error
