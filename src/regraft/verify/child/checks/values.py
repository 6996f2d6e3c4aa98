"""Calls with other values: around the constants of the code, rare ones, and such as are no numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from regraft.verify.child.checks.constants import Constants
from regraft.verify.child.tree import Call, is_mask, map_leaves, tensors

RARE: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("zeros", (0.0,)), ("negative numbers", (-1.0, -0.5)), ("tiny numbers", (1e-8, -1e-8, 1e-30)),
)  # fmt: skip
HUGE = (1e4, -1e4, 1e5, -1e5)
# Kinds of calls: gradients of the first are compared roughly, those of the others not at all. Softmax of huge scores
# is saturated, and what kernels make of its gradient there is rounding.
VALUES, EXTREME, UNDEFINED = "values", "extreme values", "values that are not finite"
_SPECIAL = re.compile(r"(^|_)(pad|eos|bos|sep|cls|mask|unk)\w*_(id|idx|index)$|^padding_idx$")
_TOKENS = 6  # with a name that are tried
NOT_FINITE = (("NaN", math.nan), ("infinity", math.inf), ("minus infinity", -math.inf))


def valued_calls(call: Call, constants: Constants, model: Any, *, finite: bool) -> Iterator[Call]:
    """Yield a call with some elements of its floating tensors replaced; with `finite` by numbers alone.

    Whole numbers become those around the constants of the code, and those that mean something to the model.
    """
    around = tuple(c + step for c in constants.values for step in (-1.0, -1e-3, 0.0, 1e-3, 1.0))
    for label, values in (*((("numbers around constants", around),) if around else ()), *RARE):
        yield _replaced(call, label, values, 2 if values == (0.0,) else 3)
    yield replace(_replaced(call, "numbers up to 1e5", HUGE, 3), beyond=EXTREME)
    if not finite:
        for label, value in NOT_FINITE:
            yield replace(_replaced(call, label, (value,), 11), beyond=UNDEFINED)
    yield _shrunk(call)
    if not any(map(_is_whole, tensors(call))):
        return
    for size in constants.sizes:
        yield _indexed(call, (size - 1, size, size + 1), f"whole numbers around {size}")
    yield _indexed(call, (-1,), "negative whole numbers")
    for name, token in special_tokens(model):
        yield _indexed(call, (token,), f"{name} {token}", tokens=True)


def special_tokens(model: Any) -> Iterator[tuple[str, int]]:
    """Yield the numbers that stand for no word, with the names that a model or its configuration has for them.

    Inputs are drawn without them: what code does with padding inside of a row shows with such tokens only. Small
    numbers come last, which files compare tokens with under no name.
    """
    places = [vars(place) for place in (model, getattr(model, "config", None)) if hasattr(place, "__dict__")]
    named = [(name, value) for place in places for name, value in place.items() if _SPECIAL.search(name)]
    whole = [(name, value) for name, value in named if type(value) is int and value >= 0]
    found: dict[int, str] = {}
    for name, value in sorted(whole, key=lambda pair: "pad" not in pair[0]):
        found.setdefault(value, name)
    yield from ((name, value) for value, name in [*found.items()][:_TOKENS])
    yield from (("number", value) for value in range(3) if value not in [*found][:_TOKENS])


def _is_whole(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.int32, torch.int64) and bool(leaf.numel())


def _replaced(call: Call, label: str, values: tuple[float, ...], every: int) -> Call:
    """Replace every so many elements by the values in turn."""

    def each(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or is_mask(leaf) or not leaf.numel():
            return leaf
        flat = leaf.clone(memory_format=torch.contiguous_format).view(-1)
        places = torch.arange(0, flat.numel(), every)
        flat[places] = torch.tensor(values, dtype=flat.dtype)[torch.arange(len(places)) % len(values)]
        return flat.view(leaf.shape)

    return Call(map_leaves(call.args, each), map_leaves(dict(call.kwargs), each), f"values: {label}", VALUES)


def _shrunk(call: Call) -> Call:
    """Make every number tiny: a norm of them lies far below any epsilon."""

    def each(leaf: Any) -> Any:
        numbers = isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not is_mask(leaf)
        return leaf * 1e-9 if numbers else leaf

    return Call(map_leaves(call.args, each), map_leaves(dict(call.kwargs), each), "values: all numbers tiny", VALUES)


def _indexed(call: Call, values: tuple[int, ...], label: str, *, tokens: bool = False) -> Call:
    """Replace elements of the tensors of whole numbers by the values in turn; tokens among larger numbers alone."""

    def each(leaf: Any) -> Any:
        if not _is_whole(leaf) or (tokens and int(leaf.max()) < max(values)):
            return leaf
        flat = leaf.clone(memory_format=torch.contiguous_format).view(-1)
        for start, value in enumerate(values):
            flat[start::5] = value
        return flat.view(leaf.shape)

    return Call(map_leaves(call.args, each), map_leaves(dict(call.kwargs), each), f"values: {label}", VALUES)
