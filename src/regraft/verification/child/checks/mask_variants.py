"""Make variants of a call with other attention masks: left padding, holes, a row without keys,
random masks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call, is_mask, tensors
from regraft.verification.child.checks.argument_variants import signature_of, with_argument

PATTERNS = ("left padding", "holes", "a row fully masked", "random")
_LOW = -1e4
_ABSENT = 2  # the most parameters that get masks where they had none


def masked_calls(call: Call, names: Mapping[str, Any]) -> Iterator[Call]:
    """Yield for each of PATTERNS a call with every mask in it replaced; `names` are the arguments
    by the names of their parameters.

    A mask is a tensor of at least two dimensions that has `mask` in its name, or that contains only
    zeros and very low numbers. Integers and booleans are combined with the pattern by `and`;
    booleans also the other way round, for masks that are true where something is left out. Masks
    that are added to scores get the lowest number of their format.
    """
    masks = {id(value) for name, value in names.items() if _is_mask(name, value)}
    if not masks:
        return
    has_boolean = any(id(value) in masks and value.dtype == torch.bool for value in names.values())
    for pattern in PATTERNS:
        for dropping in (False, True) if has_boolean else (False,):

            def combine(tensor: Any, pattern: str = pattern, dropping: bool = dropping) -> Any:
                """Return a mask combined with the pattern; for booleans, `dropping` says that
                True hides an element."""
                return _combine_masks(tensor, _visible_elements(pattern, tensor.shape), dropping)

            label = f"mask: {pattern}" + (", true where left out" if dropping else "")
            yield replace(_map_arguments(call, masks, combine), label=label, beyond="masks")


def binary_mask_calls(call: Call, names: Mapping[str, Any]) -> Iterator[Call]:
    """Yield calls whose floating masks of zeros alone, which were guessed to be added to scores,
    hold ones and zeros, padded on the left and random: in their own shape, and as whole numbers and
    booleans of shape (rows, positions) of the first floating tensor of three or four dimensions.
    Code may count or multiply by them. Yield nothing without such masks; `names` are as for
    `masked_calls`."""
    masks = {
        id(value)
        for name, value in names.items()
        if _is_mask(name, value) and value.is_floating_point() and not bool(value.any())
    }
    inputs = (tensor for tensor in tensors(call) if id(tensor) not in masks)
    first = next(filter(_is_float_batch, inputs), None) if masks else None
    for pattern in ("left padding", "random") if masks else ():

        def fill(tensor: Any, pattern: str = pattern) -> Any:
            """Return ones and zeros in the shape and format of a mask."""
            return _visible_elements(pattern, tensor.shape).to(tensor.dtype)

        label = f"mask: ones and zeros, {pattern}"
        yield replace(_map_arguments(call, masks, fill), label=label, beyond="masks")
        if first is not None:
            visible = _visible_elements(pattern, (first.shape[0], first.shape[-2]))
            for kind, mask in (("whole numbers", visible.long()), ("booleans", visible)):
                masked_call = _with_masks(call, masks, mask)
                yield replace(masked_call, label=f"{label}, {kind} by row", beyond="masks")


def _with_masks(call: Call, ids: set[int], mask: Any) -> Call:
    """Return a call, without label, with one mask for all top-level arguments whose ids are in
    `ids`."""
    return _map_arguments(call, ids, lambda _: mask)


def biased_calls(call: Call, names: Mapping[str, Any], heads: tuple[int, ...]) -> Iterator[Call]:
    """Yield a call whose floating masks have random numbers from -3 to 0 added, and for each number
    in `heads` a call whose masks of shape (batch, 1, query, key) are expanded to as many heads,
    with numbers that differ by head. Yield nothing without such masks."""
    masks = {
        id(value): value
        for name, value in names.items()
        if _is_mask(name, value) and value.is_floating_point()
    }
    if not masks:
        return

    def add_moderate(tensor: Any) -> Any:
        """Return a mask plus random numbers from -3 to 0."""
        return tensor + _moderate_numbers(tensor.shape).to(tensor.dtype)

    moderate_call = _map_arguments(call, set(masks), add_moderate)
    yield replace(moderate_call, label="mask: moderate numbers", beyond="masks")
    shared = {key for key, value in masks.items() if value.dim() == 4 and value.shape[1] == 1}
    for number in heads if shared else ():

        def add_by_head(tensor: Any, number: int = number) -> Any:
            """Return a mask expanded to `number` heads, plus random numbers from -3 to 0 that
            differ by head."""
            expanded = tensor.expand(-1, number, -1, -1)
            return expanded + _moderate_numbers(expanded.shape).to(tensor.dtype)

        expanded_call = _map_arguments(call, shared, add_by_head)
        yield replace(expanded_call, label=f"mask: {number} heads", beyond="masks")


def _moderate_numbers(shape: tuple[int, ...]) -> Any:
    """Return random numbers between -3 and 0 in a shape."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) * -3


def added_mask_calls(call: Call, names: Mapping[str, Any], function: Any) -> Iterator[Call]:
    """Yield a call with a mask for each of the first `_ABSENT` parameters named "...mask" that had
    none, four times: masks added to scores, the last of them with a row without keys, a mask of
    booleans, and one of ones and zeros. Yield nothing for calls without a floating tensor of three
    or four dimensions.

    `names` are the arguments by the names of the function's parameters. The original may refuse a
    mask whose shape does not fit.
    """
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):
        return
    mask_names = (
        name for name in signature.parameters if name.endswith("mask") and "head" not in name
    )
    absent = [name for name in mask_names if names.get(name) is None][:_ABSENT]
    inputs = [tensor for tensor in tensors(call) if _is_float_batch(tensor)]
    if not inputs or not absent:
        return
    masks = _padding_masks(inputs)
    for name in absent:
        for label, mask in masks.items():
            masked = with_argument(call, signature, name, mask)
            yield replace(masked, label=f"mask: {name} of {label}", beyond="masks")


def strong_masks(call: Call) -> tuple[Any, ...]:
    """Return masks for the inputs of a call that are padded on the left and in which a row has no
    key: of booleans and to add to scores, of shape (rows, 1, queries, keys), of ones and zeros, of
    shape (rows, keys), and of booleans that are true where something is left out; () for a call
    without floating tensors of three or four dimensions."""
    inputs = [tensor for tensor in tensors(call) if _is_float_batch(tensor)]
    if not inputs:
        return ()
    masks = _padding_masks(inputs)
    visible_pairs = masks["booleans, left padding"]
    visible_pairs = visible_pairs & _visible_elements("a row fully masked", visible_pairs.shape)
    added = torch.zeros(visible_pairs.shape, dtype=inputs[0].dtype)
    lowest = torch.finfo(added.dtype).min
    visible_keys = visible_pairs[:, 0, 0]
    return (
        visible_pairs,
        added.masked_fill(~visible_pairs, lowest),
        visible_keys.long(),
        ~visible_keys,
    )


def _padding_masks(inputs: list[Any]) -> dict[str, Any]:
    """Return by description masks for inputs padded on the left: to add to scores and of booleans,
    of shape (rows, 1, queries, keys), and of ones and zeros, of shape (rows, keys); and a mask to
    add to scores in which a row has no key."""
    first = inputs[0]
    with_keys = inputs[-1] if first.dim() == 4 else first
    rows, queries, keys = first.shape[0], first.shape[-2], with_keys.shape[-2]
    visible_keys = _visible_elements("left padding", (rows, keys))
    visible_pairs = visible_keys[:, None, None, :].expand(rows, 1, queries, keys).clone()
    zeros = torch.zeros(visible_pairs.shape, dtype=first.dtype)
    lowest = torch.finfo(first.dtype).min
    with_empty_row = _visible_elements("a row fully masked", visible_pairs.shape)
    return {
        "added to scores, left padding": zeros.masked_fill(~visible_pairs, lowest),
        "booleans, left padding": visible_pairs,
        "ones and zeros, left padding": visible_keys.long(),
        "added to scores, a row fully masked": zeros.masked_fill(~with_empty_row, lowest),
    }


def _is_float_batch(tensor: Any) -> bool:
    """Return whether a tensor of real numbers has three or four dimensions and is not empty."""
    return bool(tensor.is_floating_point() and tensor.dim() in (3, 4) and tensor.numel() > 0)


def _is_mask(name: str, value: Any) -> bool:
    """Return whether an argument of at least two dimensions is a mask: zeros and very low numbers
    alone, or `mask` in its name and two values, all zeros, or booleans; at least two elements a
    row."""
    if (
        not isinstance(value, torch.Tensor)
        or value.dim() < 2
        or not value.numel()
        or value.shape[-1] < 2
    ):
        return False
    if value.is_floating_point() and "mask" in name:
        return is_mask(value) or not bool(value.any()) or _is_binary(value)
    return is_mask(value) or ("mask" in name and (value.dtype == torch.bool or _is_binary(value)))


def _is_binary(value: Any) -> bool:
    """Return whether a tensor contains only zeros and ones."""
    return bool(((value == 0) | (value == 1)).all())


def _visible_elements(pattern: str, shape: tuple[int, ...]) -> Any:
    """Return booleans in a shape, true where a mask of a pattern of PATTERNS lets the element
    through; any other pattern is "random".

    Rows of a batch are in the first dimension, keys in the last.
    """
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


def _combine_masks(tensor: Any, keep: Any, dropping: bool) -> Any:
    """Return a copy of a mask that also hides the elements where `keep` is False: by False (True if
    `dropping`, for booleans that are true where an element is ignored) for booleans, 0 for integers
    and binary masks, else by the mask's own very low number, or the lowest of the format."""
    if tensor.dtype == torch.bool:
        return tensor | ~keep if dropping else tensor & keep
    if not tensor.is_floating_point() or (_is_binary(tensor) and bool(tensor.any())):
        return tensor * keep.to(tensor.dtype)
    lowest = torch.finfo(tensor.dtype).min
    low = float(tensor.min()) if bool((tensor <= _LOW).any()) else lowest
    return tensor.masked_fill(~keep, low)


def _map_arguments(call: Call, ids: set[int], change: Callable[[Any], Any]) -> Call:
    """Return a call, without label, with a function applied to the top-level arguments whose ids
    are in `ids`."""

    def map_leaf(leaf: Any) -> Any:
        """Return the changed argument if its id is in `ids`, any other as it is."""
        return change(leaf) if id(leaf) in ids else leaf

    return Call(
        tuple(map(map_leaf, call.args)),
        {name: map_leaf(value) for name, value in call.kwargs.items()},
    )
