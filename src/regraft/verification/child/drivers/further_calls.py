"""Make further calls of a model whose inputs are found: with optional inputs, requested outputs,
cached keys, state that an earlier call returned, longer inputs, or no mask."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.checks.argument_variants import signature_of
from regraft.verification.child.checks.arguments_in_source import syntax_of
from regraft.verification.child.drivers import guessed_slots, input_guesses, input_repairs
from regraft.verification.child.drivers.argument_slots import Spec, annotation_text
from regraft.verification.child.drivers.field_tables import RESULT_TYPE_FLAG
from regraft.verification.child.drivers.forward_inputs import (
    CACHE_FLAG,
    CACHE_INPUT,
    CACHE_WORDS,
    MASK_INPUTS,
    REQUESTS,
    SIDE_PREFIX,
)
from regraft.verification.child.drivers.input_guesses import AcceptedInputs, Calls
from regraft.verification.child.drivers.slot_values import make_call

# Values of parameters that say where a tensor is made and of which type; results stay comparable.
_PLACEMENTS = {"device": torch.device("cpu"), "dtype": torch.float64}
# Pairs of (batch, length) for code that runs for long inputs only; the length is no more than a
# shrunk model has positions.
LONG = ((1, 48), (2, 48))


def more_calls(model: Any, accepted: AcceptedInputs, text: str, width: int = 0) -> Iterator[Calls]:
    """Yield functions that make further calls from a seed, in this order: with an optional input
    that `text` mentions, with a changed flag, with both, with cached keys, with returned state,
    without masks, with another optional input.

    Calls with optional inputs were accepted at all sizes, and calls with flags in the first call of
    seed 0, in the model's present mode. Calls without masks and calls that continue from a cache
    were not run: the original may refuse them. `width` is that of a layer, as for
    `input_guesses.find_accepted`, and 0 for a model. Raises LookupError where a required parameter
    cannot be guessed. Where training is tried, the model is left in evaluation mode.
    """
    parameter_names = set(signature_of(model).parameters)
    slots = guessed_slots.guess_slots(model, width > 0, width)
    optional = {name: slot for name, slot in slots.items() if name not in accepted.spec}
    with_optional_input: list[Calls] = []
    for name, slot in optional.items():
        if _is_mentioned(text, name):
            best = input_repairs.search(
                model, {**accepted.spec, name: slot}, {}, input_repairs.SECONDS / 3
            )
            if best.error is None and name in best.spec:
                further_calls = list(_accepted_calls(model, best.spec))
                with_optional_input += further_calls
                yield from further_calls
    parameter_names |= {*REQUESTS, RESULT_TYPE_FLAG} if hasattr(model, "config_class") else set()
    for calls in (accepted.calls(model), *with_optional_input):
        yield from _with_flags(model, calls, parameter_names, text)
    if {CACHE_INPUT, CACHE_FLAG} <= parameter_names and re.search(CACHE_WORDS, text):
        yield from _with_cache(model, accepted)
    yield from _with_returned_state(model, accepted, parameter_names)
    yield _without_mask(accepted.calls(model))
    for name, slot in optional.items():
        if not _is_mentioned(text, name):
            yield from _accepted_calls(model, {**accepted.spec, name: slot})


def _is_mentioned(text: str, name: str) -> bool:
    """Return whether a text contains a parameter's name as a word, without the `encoder_` or
    `decoder_` at its start."""
    return bool(re.search(rf"\b{re.sub(SIDE_PREFIX, '', name)}\b", text))


def _accepted_calls(model: Any, spec: Spec) -> Iterator[Calls]:
    """Yield the function that makes the calls of a specification; nothing where the model does not
    accept it."""
    accepted = input_guesses.accepted_or_failed(model, spec)
    if isinstance(accepted, AcceptedInputs):
        yield accepted.calls(model)


def longer_calls(model: Any, accepted: AcceptedInputs) -> Iterator[Calls]:
    """Yield a function that makes calls at the sizes `LONG`, if the model accepts those of seed 0.

    Nothing is yielded for a model without a dimension that depends on the length, and for one in
    which a position has several numbers, such as samples of sound.
    """
    calls = replace(accepted, sizes=LONG).calls(model)
    lengths = [dim for slot in accepted.spec.values() for dim in slot.dims if dim.of == "length"]
    # samples of sound, many for each unit of length, are long already
    are_tokens = bool(lengths) and all(dim.factor == 1 for dim in lengths)
    if are_tokens and all(input_guesses.is_accepted(model, call) for call in calls(0)):
        yield calls


def _with_flags(model: Any, calls: Calls, parameter_names: set[str], text: str) -> Iterator[Calls]:
    """Yield a function that makes `calls` with one flag changed, for each flag with which the model
    accepts the first call of seed 0; flags that `text` mentions come first. Where a flag fails
    alone, the flags that the error names are changed with it."""
    all_choices = _flag_choices(model, parameter_names)
    for name, value in sorted(
        dict.fromkeys(all_choices), key=lambda choice: not _is_mentioned(text, choice[0])
    ):
        if name not in parameter_names:
            continue
        flagged_calls = _with_keywords(calls, {name: value})
        error = input_guesses.run_error(model, flagged_calls(0)[0])
        words = set(re.findall(r"\w+", str(error))) & parameter_names - {name}
        related_flags = {flag: flag_value for flag, flag_value in all_choices if flag in words}
        if error is not None and related_flags:  # it names flags that go with this one
            flagged_calls = _with_keywords(calls, {name: value, **related_flags})
            error = input_guesses.run_error(model, flagged_calls(0)[0])
        if error is None:
            yield flagged_calls


def _flag_choices(model: Any, parameter_names: set[str]) -> tuple[tuple[str, Any], ...]:
    """Return flags with the values to try: boolean parameters inverted, those of `REQUESTS` that
    are in `parameter_names` as True, a device and a data type that are None by default, and no
    cache and no object as the result, whether the model has such flags or not."""
    parameters = signature_of(model).parameters.values()
    return (
        *(
            (p.name, p.default is not True)
            for p in parameters
            if _is_flag(p) and p.name != RESULT_TYPE_FLAG
        ),
        *((name, True) for name in REQUESTS if name in parameter_names),
        *(
            (p.name, _PLACEMENTS[p.name])
            for p in parameters
            if p.name in _PLACEMENTS and p.default is None
        ),
        (CACHE_FLAG, False),
        (RESULT_TYPE_FLAG, False),
    )


def _with_keywords(calls: Calls, values: Mapping[str, Any]) -> Calls:
    """Return a function that makes the calls of `calls` with further or other keyword arguments,
    which are appended to the labels."""
    label = "".join(f", {name}={value}" for name, value in values.items())
    return lambda seed: tuple(
        Call(call.args, {**call.kwargs, **values}, f"{call.label}{label}") for call in calls(seed)
    )


def _is_flag(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter's default is a boolean, or is None or missing for a parameter
    annotated as a boolean, whose value then comes from the configuration or is guessed (False)."""
    return isinstance(parameter.default, bool) or (
        parameter.default in (None, parameter.empty) and annotation_text(parameter) == "bool"
    )


def _with_cache(model: Any, accepted: AcceptedInputs) -> Iterator[Calls]:
    """Yield a function that makes calls which continue from the cached keys and values of an
    earlier call, for as many further positions; nothing where the model fails in the earlier call
    or leaves no cache.

    The function runs the earlier calls itself, and raises their errors for a later seed. The calls
    that it returns were not run.
    """

    def continue_calls(seed: int) -> tuple[Call, ...]:
        """Return, for each size, the call that continues from the cache of the call of a seed."""
        return tuple(
            _continue_call(model, make_call(accepted.spec, size, seed)) for size in accepted.sizes
        )

    yield from _if_made(continue_calls)


def _if_made(calls: Calls) -> Iterator[Calls]:
    """Yield a function that makes calls if it makes those of seed 0 without an error."""
    try:
        calls(0)
    except Exception:  # noqa: BLE001 - without a cache, or with inputs that do not go with it, there is no such call
        return
    yield calls


def _with_returned_state(
    model: Any, accepted: AcceptedInputs, parameter_names: set[str]
) -> Iterator[Calls]:
    """Yield a function that makes calls which get what an earlier call with the same inputs
    returned under the name of a parameter that they do not give (`return x, cache` of a `forward`
    with the parameter `cache`); nothing where the model returns no such state or fails.

    The function runs the earlier calls itself. The calls that it returns were not run.
    """
    places = {
        name: place
        for name, place in returned_names(type(model).forward).items()
        if name in parameter_names and name not in accepted.spec
    }
    if not places:
        return

    def continued_call(call: Call) -> Call:
        """Run a call without its masks, which do not cover the state, and return the one that gets
        the state that it leaves."""
        kwargs = {name: value for name, value in call.kwargs.items() if name not in MASK_INPUTS}
        with torch.no_grad():
            results = model(**kwargs)
        state = {name: results[place] for name, place in places.items()}
        return Call((), {**kwargs, **state}, f"{call.label}, continued")

    yield from _if_made(
        lambda seed: tuple(
            continued_call(make_call(accepted.spec, size, seed)) for size in accepted.sizes
        )
    )


def returned_names(function: Any) -> dict[str, int]:
    """Return the names that stand in the tuple which a function returns, with their places; {} for
    a function with several such tuples that differ, and for one whose source cannot be read."""
    tuples = [
        node.value.elts
        for node in ast.walk(syntax_of(function))
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)
    ]
    all_names = [
        {name.id: place for place, name in enumerate(elements) if isinstance(name, ast.Name)}
        for elements in tuples
    ]
    return all_names[0] if all_names and all(names == all_names[0] for names in all_names) else {}


def _continue_call(model: Any, call: Call) -> Call:
    """Run a call without its masks and without gradients, and return the call that continues from
    the cache in its result: with the same inputs, which then stand for the next positions.

    Raises the error of the model, and AttributeError where the result has no cache. Masks are left
    out since they would have to cover the cached positions, too.
    """
    kwargs = {name: value for name, value in call.kwargs.items() if name not in MASK_INPUTS}
    with torch.no_grad():
        results = model(**kwargs, **{CACHE_FLAG: True, RESULT_TYPE_FLAG: True})
    cached = {CACHE_INPUT: getattr(results, CACHE_INPUT), CACHE_FLAG: True}
    return Call((), {**kwargs, **cached}, f"{call.label}, continued")


def _without_mask(calls: Calls) -> Calls:
    """Return a function that makes the calls of `calls` without their masks, the keyword arguments
    in `MASK_INPUTS`, with ", no mask" added to their labels; calls that have no mask stay."""

    def unmasked_calls(seed: int) -> tuple[Call, ...]:
        """Return all calls of a seed, without their masks."""
        return tuple(
            Call(
                call.args,
                {name: value for name, value in call.kwargs.items() if name not in MASK_INPUTS},
                f"{call.label}, no mask",
            )
            for call in calls(seed)
        )

    return unmasked_calls
