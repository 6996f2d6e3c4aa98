"""Choose other formats for the inputs of a call: one input in another number format than the
others, whole numbers, shorter or larger integers, complex numbers, lists."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call, is_mask, map_tensors, tensors

_KIND = "number formats"
MIXED, _COMPLEX, _LISTS = "one input in bfloat16", "complex numbers", "one input as a list"
_SHORT, _LARGE = "integers in int32", "integers above 2**30"
_BYTES, _WHOLE = "inputs in uint8", "inputs in int32"
FRACTIONS = "numbers with fractions in the place of integers"

# The words of a definition that are a reason to try a format.
_REASONS = {
    MIXED: r"dtype|\.to\(|type_as|\.(float|half|bfloat16|double)\(\)",
    _SHORT: r"dtype|\.to\(|type_as|\.(int|long|short|byte)\(\)",
    _LARGE: r"int32|\.int\(\)",
    _BYTES: r"uint8|is_floating_point|\.byte\(\)",
    _WHOLE: r"uint8|is_floating_point|\.byte\(\)",
    _COMPLEX: r"(?i)complex|spec|fft|polar|conj|\.real\b|\.imag\b",
    FRACTIONS: r"bucketize\(|searchsorted\(|digitize\(",
    _LISTS: r"as_tensor\(|torch\.tensor\(|asarray\(",
}
_SINGLE = 3  # the most inputs that are in another format than the others
_LONGEST_LIST = 4096  # the most elements of a tensor that becomes a list


def formats_to_try(text: str) -> frozenset[str]:
    """Return the keys of `_REASONS` whose pattern occurs in the text of a definition."""
    return frozenset(kind for kind, pattern in _REASONS.items() if re.search(pattern, text))


def calls_in_other_formats(call: Call, kinds: frozenset[str]) -> Iterator[Call]:
    """Yield a call in the formats of `kinds`, keys of `_REASONS`, each where that changes a tensor;
    with `MIXED` one of several floating inputs changes, with `_LISTS` one input, in turn. Masks
    keep their format. The original may refuse such a call."""
    if MIXED in kinds:
        yield from _mixed_calls(call)
    if _LISTS in kinds:
        yield from _calls_with_a_list(call)
    changes: Mapping[str, Callable[[Any], Any]] = {
        _SHORT: _in_int32,
        _LARGE: _far_apart,
        _BYTES: _in_bytes,
        _WHOLE: _as_whole_numbers,
        _COMPLEX: _as_complex,
        FRACTIONS: _with_fractions,
    }
    for label, change in changes.items():
        if label in kinds and any(change(tensor) is not tensor for tensor in tensors(call)):
            yield map_tensors(call, change, label, _KIND)


def calls_in_bfloat16(call: Call, kinds: frozenset[str]) -> Iterator[Call]:
    """Yield a call with all floating inputs in bfloat16 where `MIXED` is among the kinds, and it
    has such inputs: parameters keep their format."""
    if MIXED in kinds and any(map(_is_floating, tensors(call))):
        yield map_tensors(
            call,
            lambda tensor: tensor.to(torch.bfloat16) if _is_floating(tensor) else tensor,
            "inputs in bfloat16",
            _KIND,
        )


def _mixed_calls(call: Call) -> Iterator[Call]:
    """Yield a call with one of its floating inputs in bfloat16, in turn; nothing for fewer than
    two."""
    floating = [number for number, tensor in enumerate(tensors(call)) if _is_floating(tensor)]
    for number in floating[:_SINGLE] if len(floating) > 1 else ():
        yield _with_one_changed(
            call, number, lambda tensor: tensor.to(torch.bfloat16), "in bfloat16"
        )


def _calls_with_a_list(call: Call) -> Iterator[Call]:
    """Yield a call with one of its first inputs as a list of numbers, in turn."""
    for number, tensor in itertools.islice(enumerate(tensors(call)), _SINGLE):
        is_plain = tensor.dtype != torch.bool and not is_mask(tensor)
        if is_plain and tensor.dim() > 0 and tensor.numel() <= _LONGEST_LIST:
            yield _with_one_changed(call, number, lambda tensor: tensor.tolist(), "as a list")


def calls_with_real_numbers(call: Call) -> Iterator[Call]:
    """Yield, for a call without floating inputs, the call with real numbers in the place of one of
    its first tensors of truth values, in turn: inputs are guessed in the first format that is
    accepted, and `masked_fill` accepts no other one in the place of its mask."""
    if any(map(_is_floating, tensors(call))):
        return
    generator = torch.Generator().manual_seed(0)

    def draw(tensor: Any) -> Any:
        """Return random real numbers in the shape of a tensor."""
        return torch.randn(tensor.shape, generator=generator)

    for number, tensor in itertools.islice(enumerate(tensors(call)), _SINGLE):
        if tensor.dtype == torch.bool:
            yield _with_one_changed(call, number, draw, "in real numbers")


def _with_one_changed(
    call: Call, number: int, change: Callable[[Any], Any], description: str
) -> Call:
    """Return a call in which `change` replaces the tensor of a number, counted in the order of the
    arguments."""
    counter = itertools.count()

    def change_if_numbered(tensor: Any) -> Any:
        """Return the tensor, changed where it has the number."""
        return change(tensor) if next(counter) == number else tensor

    return map_tensors(call, change_if_numbered, f"input {number} {description}", _KIND)


def _is_floating(tensor: Any) -> bool:
    """Return whether a tensor holds floating-point numbers and is no mask."""
    return tensor.is_floating_point() and not is_mask(tensor)


def _is_integer(tensor: Any) -> bool:
    """Return whether a tensor holds integers, but no truth values."""
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool


def _in_int32(tensor: Any) -> Any:
    """Return a tensor of integers in int32; another tensor as it is."""
    return tensor.to(torch.int32) if _is_integer(tensor) else tensor


def _far_apart(tensor: Any) -> Any:
    """Return a tensor of int64 with numbers above 2**30 added to it; another tensor as it is."""
    return tensor + 2**30 + 5 if tensor.dtype == torch.int64 else tensor


def _in_bytes(tensor: Any) -> Any:
    """Return whole numbers from 0 to 255 in the place of floating ones, in uint8; another tensor,
    and a mask, as they are."""
    if not _is_floating(tensor):
        return tensor
    return (tensor.abs() * 40).clamp(max=255).to(torch.uint8)


def _as_whole_numbers(tensor: Any) -> Any:
    """Return whole numbers in the place of floating ones, in int32; another tensor, and a mask, as
    they are."""
    if not _is_floating(tensor):
        return tensor
    return (tensor * 40).round().to(torch.int32)


def _with_fractions(tensor: Any) -> Any:
    """Return floating numbers in the place of integers, a quarter below them; another tensor as it
    is."""
    return tensor.to(torch.get_default_dtype()) - 0.25 if _is_integer(tensor) else tensor


def _as_complex(tensor: Any) -> Any:
    """Return complex numbers with a floating tensor as real part and its negated half as imaginary
    part; another tensor and a mask as they are. Half precision becomes single precision."""
    if not _is_floating(tensor):
        return tensor
    real = tensor if tensor.dtype == torch.float64 else tensor.float()
    return torch.complex(real, -real / 2)
