"""Masks of other shapes than the usual one: left padding, holes, a row without keys, random ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.verify.child.checks.arguments import signature_of, with_argument
from regraft.verify.child.tree import Call, is_mask, tensors

PATTERNS = ("left padding", "holes", "a row fully masked", "random")
_LOW = -1e4
_ABSENT = 2  # parameters that are given masks where they had none


def masked_calls(call: Call, names: Mapping[str, Any]) -> Iterator[Call]:
    """Yield a call with every mask in it replaced; `names` are the arguments by the names of their parameters.

    A mask is a tensor of at least two dimensions that is called so, or that holds nothing but zeros and very low
    numbers. Whole numbers and booleans are combined with the pattern by `and`; booleans also the other way round, for
    those that say what is left out. Numbers that are added to scores become the lowest of their format.
    """
    masks = {id(value) for name, value in names.items() if _is_mask(name, value)}
    if not masks:
        return
    boolean = any(id(value) in masks and value.dtype == torch.bool for value in names.values())
    for pattern in PATTERNS:
        for dropping in (False, True) if boolean else (False,):

            def each(tensor: Any, pattern: str = pattern, dropping: bool = dropping) -> Any:
                return _combined(tensor, _visible(pattern, tensor.shape), dropping)

            label = f"mask: {pattern}" + (", true where left out" if dropping else "")
            yield replace(_with(call, masks, each), label=label, beyond="masks")


def biased_calls(call: Call, names: Mapping[str, Any], heads: tuple[int, ...]) -> Iterator[Call]:
    """Yield a call whose additive masks also hold moderate numbers, and such that differ by head."""
    masks = {
        id(value): value for name, value in names.items() if _is_mask(name, value) and value.is_floating_point()
    }  # fmt: skip
    if not masks:
        return

    def each(tensor: Any) -> Any:
        return tensor + _moderate(tensor.shape).to(tensor.dtype)

    yield replace(_with(call, set(masks), each), label="mask: moderate numbers", beyond="masks")
    shared = {key for key, value in masks.items() if value.dim() == 4 and value.shape[1] == 1}
    for number in heads if shared else ():

        def by_head(tensor: Any, number: int = number) -> Any:
            wide = tensor.expand(-1, number, -1, -1)
            return wide + _moderate(wide.shape).to(tensor.dtype)

        yield replace(_with(call, shared, by_head), label=f"mask: {number} heads", beyond="masks")


def _moderate(shape: tuple[int, ...]) -> Any:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) * -3


def given_masks(call: Call, names: Mapping[str, Any], function: Any) -> Iterator[Call]:
    """Yield a call with a mask where it had none: of scores that are added to, of booleans, of ones and zeros.

    `names` are the arguments by the names of the function's parameters. The original may refuse what has another
    shape than it takes.
    """
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):
        return
    named = (name for name in signature.parameters if name.endswith("mask") and "head" not in name)
    absent = [name for name in named if names.get(name) is None][:_ABSENT]
    states = [tensor for tensor in tensors(call) if _holds_rows(tensor)]
    if not states or not absent:
        return
    rows, keys = states[0].shape[0], states[-1 if states[0].dim() == 4 else 0].shape[-2]
    queries = states[0].shape[-2]
    marks = _visible("left padding", (rows, keys))
    square = marks[:, None, None, :].expand(rows, 1, queries, keys).clone()
    additive = torch.zeros(square.shape, dtype=states[0].dtype)
    choices = {
        "added to scores": additive.masked_fill(~square, torch.finfo(additive.dtype).min),
        "booleans": square,
        "ones and zeros": marks.long(),
    }
    for name in absent:
        for label, mask in choices.items():
            given = with_argument(call, signature, name, mask)
            yield replace(given, label=f"mask: {name} of {label}, left padding", beyond="masks")


def _holds_rows(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() and tensor.dim() in (3, 4) and tensor.numel() > 0)


def _is_mask(name: str, value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or not value.numel() or value.shape[-1] < 2:
        return False
    if value.is_floating_point() and "mask" in name:
        return is_mask(value) or not bool(value.any()) or _binary(value)
    return is_mask(value) or ("mask" in name and (value.dtype == torch.bool or _binary(value)))


def _binary(value: Any) -> bool:
    return bool(((value == 0) | (value == 1)).all())


def _visible(pattern: str, shape: tuple[int, ...]) -> Any:
    """Which elements of a mask of some shape stay: rows of a batch in the first dimension, keys in the last."""
    keep = torch.ones(shape, dtype=torch.bool)
    rows, keys = shape[0], shape[-1]
    if pattern == "left padding":
        for row in range(rows):
            keep[row, ..., : min(keys - 1, (row + 1) * keys // (rows + 1) + 1)] = False
    elif pattern == "holes":
        keep[..., 1::3] = False
    elif pattern == "a row fully masked":
        keep[rows - 1 :] = False
        if len(shape) > 2 and shape[-2] > 1 and rows == 1:
            keep[:] = True
            keep[..., 0, :] = False
    else:
        generator = torch.Generator().manual_seed(0)
        keep = torch.rand(shape, generator=generator) < 0.6
        keep[..., keys // 2] = True
    return keep


def _combined(tensor: Any, keep: Any, dropping: bool) -> Any:
    if tensor.dtype == torch.bool:
        return tensor | ~keep if dropping else tensor & keep
    if not tensor.is_floating_point() or (_binary(tensor) and bool(tensor.any())):
        return tensor * keep.to(tensor.dtype)
    lowest = torch.finfo(tensor.dtype).min
    low = float(tensor.min()) if bool((tensor <= _LOW).any()) else lowest
    return tensor.masked_fill(~keep, low)


def _with(call: Call, chosen: set[int], fn: Callable[[Any], Any]) -> Call:
    def each(leaf: Any) -> Any:
        return fn(leaf) if id(leaf) in chosen else leaf

    return Call(tuple(map(each, call.args)), {name: each(value) for name, value in call.kwargs.items()})
