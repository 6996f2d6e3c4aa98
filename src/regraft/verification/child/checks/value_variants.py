"""Make variants of a recorded call with other values: around the constants of the code, rare ones,
and ones that are not finite."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from regraft.verification.child.call_arguments import Call, is_mask, map_call, tensors
from regraft.verification.child.checks.code_constants import Constants

RARE: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("zeros", (0.0,)),
    ("negative numbers", (-1.0, -0.5)),
    ("tiny numbers", (1e-8, -1e-8, 1e-30)),
)
HUGE = (1e4, -1e4, 1e5, -1e5)
# Kinds of calls: gradients of the first are compared roughly, those of the second exactly, those of
# the others not at all. Softmax of huge scores is saturated, and the gradients that kernels compute
# for it there are rounding errors.
VALUES, ZERO_ROWS = "values", "rows of zeros"
EXTREME, UNDEFINED = "extreme values", "values that are not finite"
_SPECIAL = re.compile(r"(^|_)(pad|eos|bos|sep|cls|mask|unk)\w*_(id|idx|index)$|^padding_idx$")
_TOKENS = 6  # the most tokens with a name that are tried
FEW = 3  # the number of different whole numbers, or choices, in calls with few of them
IN_BUFFERS = "numbers in the buffers"
_BUFFERED = 12  # the most numbers of buffers that are tried
NOT_FINITE = (("NaN", math.nan), ("infinity", math.inf), ("minus infinity", -math.inf))


def valued_calls(
    call: Call,
    constants: Constants,
    model: Any,
    *,
    not_finite: tuple[tuple[str, float], ...] = NOT_FINITE,
) -> Iterator[Call]:
    """Yield a call with some elements of its floating point tensors replaced, masks aside: by
    numbers around the constants of the code, rare ones, those in the model's own buffers, huge and
    tiny numbers, and by each number in `not_finite`.

    In calls with integer tensors, integers become those around the constants of the code, negative,
    and special tokens of the model. `beyond` says how strictly gradients count.
    """
    numbers_around = tuple(
        constant + step for constant in constants.values for step in (-1.0, -1e-3, 0.0, 1e-3, 1.0)
    )
    for label, values in (
        *((("numbers around constants", numbers_around),) if numbers_around else ()),
        *RARE,
    ):
        changed_call = _replace_elements(call, label, values, 2 if values == (0.0,) else 3)
        yield replace(changed_call, exact_values=values if values is numbers_around else ())
    yield from calls_with_numbers_in_buffers(call, model)
    yield _clear_first_rows(call)
    yield replace(_replace_elements(call, "numbers up to 1e5", HUGE, 3), beyond=EXTREME)
    for label, value in not_finite:
        yield replace(_replace_elements(call, label, (value,), 11), beyond=UNDEFINED)
    yield _make_tiny(call)
    if not any(map(has_integers, tensors(call))):
        return
    for size in constants.sizes:
        yield replace_integers(call, (size - 1, size, size + 1), f"whole numbers around {size}")
    yield replace_integers(call, (-1,), "negative whole numbers")
    for name, token in special_tokens(model):
        yield replace_integers(call, (token,), f"{name} {token}", tokens=True)
    yield with_few_integers(call)


def calls_with_numbers_in_buffers(call: Call, model: Any) -> Iterator[Call]:
    """Yield a call with some elements of its floating point tensors replaced by numbers in the
    floating point buffers of a module itself, if it has any, masks aside: inputs equal to the edges
    of bins or to a threshold are in no random input."""
    if numbers := _numbers_in_buffers(model):
        yield replace(_replace_elements(call, IN_BUFFERS, numbers, 3), exact_values=numbers)


def _numbers_in_buffers(model: Any) -> tuple[float, ...]:
    """Return at most `_BUFFERED` numbers of the floating point buffers of a module itself, evenly
    drawn from each; () for a function, and without such buffers."""
    buffers = model.buffers(recurse=False) if isinstance(model, nn.Module) else ()
    numbers: list[float] = []
    for buffer in buffers:
        is_readable = buffer.device.type == "cpu" and buffer.layout == torch.strided
        if is_readable and buffer.is_floating_point() and buffer.numel():
            elements = buffer.detach().flatten().float()
            step = -(-elements.numel() // _BUFFERED)
            numbers += elements[::step].tolist()
    finite = [number for number in dict.fromkeys(numbers) if math.isfinite(number)]
    return tuple(finite[:: -(-len(finite) // _BUFFERED)]) if finite else ()


def special_tokens(model: Any) -> Iterator[tuple[str, int]]:
    """Yield at most `_TOKENS` tokens that stand for no word, each after the name that a model or
    its configuration has for it, padding first: inputs are generated without them, and only they
    show how code treats padding inside of a row. Tokens below 3 that have no name come last, beyond
    that limit, as `number`, because files compare tokens with them without a name."""
    owners = (model, getattr(model, "config", None))
    named_tokens = [
        (name, value)
        for owner in owners
        for name, value in getattr(owner, "__dict__", {}).items()
        if _SPECIAL.search(name) and type(value) is int and value >= 0
    ]
    name_by_token: dict[int, str] = {}
    for name, value in sorted(named_tokens, key=lambda pair: "pad" not in pair[0]):
        name_by_token.setdefault(value, name)
    tokens = [*name_by_token][:_TOKENS]
    yield from ((name_by_token[token], token) for token in tokens)
    yield from (("number", token) for token in range(3) if token not in tokens)


def has_real_numbers(leaf: Any) -> bool:
    """Return whether a value is a floating point tensor that is neither a mask nor empty."""
    is_real = isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not is_mask(leaf)
    return is_real and bool(leaf.numel())


def has_integers(leaf: Any) -> bool:
    """Return whether a value is a tensor of integers that is not empty."""
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.dtype in (torch.int32, torch.int64)
        and bool(leaf.numel())
    )


def _replace_elements(call: Call, label: str, values: tuple[float, ...], every: int) -> Call:
    """Return a call with every `every`-th element of its floating point tensors replaced by the
    values in turn; masks stay as they are."""

    def replace_in_leaf(leaf: Any) -> Any:
        """Return a copy of a floating point tensor with elements replaced, any other argument as it
        is."""
        if not has_real_numbers(leaf):
            return leaf
        elements = leaf.clone(memory_format=torch.contiguous_format).view(-1)
        positions = torch.arange(0, elements.numel(), every)
        elements[positions] = torch.tensor(values, dtype=elements.dtype)[
            torch.arange(len(positions)) % len(values)
        ]
        return elements.view(leaf.shape)

    return map_call(call, replace_in_leaf, f"values: {label}", VALUES)


def _clear_first_rows(call: Call) -> Call:
    """Return a call whose floating point tensors are zero at the first index of their first axis.

    A norm of such a row is zero, and its gradient is undefined unless the code adds an epsilon.
    Tensors with one axis and masks stay as they are.
    """

    def clear_leaf(leaf: Any) -> Any:
        """Return a copy of a floating point tensor of at least two dimensions with its first
        row zero, any other argument as it is."""
        if not has_real_numbers(leaf) or leaf.dim() < 2:
            return leaf
        cleared = leaf.clone()
        cleared[:1] = 0.0
        return cleared

    return map_call(call, clear_leaf, "values: the first row is zero", ZERO_ROWS)


def with_undefined_end(call: Call) -> Call:
    """Return a call whose floating point tensors are NaN at the last index of their second axis:
    what an optional mask or length excludes may still be multiplied by zero, which gives NaN.

    Tensors of fewer than three axes and masks stay as they are.
    """

    def replace_end(leaf: Any) -> Any:
        """Return a copy of a floating point tensor of at least three dimensions with its end
        replaced, any other argument as it is."""
        if not has_real_numbers(leaf) or leaf.dim() < 3:
            return leaf
        replaced = leaf.clone()
        replaced[:, -1] = math.nan
        return replaced

    label = ", ".join(filter(None, (call.label, "values: NaN at the last position")))
    return map_call(call, replace_end, label, UNDEFINED)


def _make_tiny(call: Call) -> Call:
    """Return a call with all floating point tensors, masks aside, multiplied by 1e-9, so that their
    norm lies far below any epsilon."""

    def shrink_leaf(leaf: Any) -> Any:
        """Return a floating tensor that is no mask times 1e-9, any other argument as it is."""
        return leaf * 1e-9 if has_real_numbers(leaf) else leaf

    return map_call(call, shrink_leaf, "values: all numbers tiny", VALUES)


def with_offset(call: Call) -> Call:
    """Return a call with 1000 added to all floating point tensors, masks aside: a variance that is
    computed as the mean of squares less the square of the mean loses all its digits there."""

    def move_leaf(leaf: Any) -> Any:
        """Return a floating tensor that is no mask plus 1000, any other argument as it is."""
        return leaf + 1e3 if has_real_numbers(leaf) else leaf

    return map_call(call, move_leaf, "values: all numbers near 1000", EXTREME)


def tenth_of(call: Call) -> Call:
    """Return a call with all floating point tensors, masks aside, divided by 10: a function that
    is saturated for the numbers of the call, such as the exponential of distances, may be so no
    longer."""

    def divide_leaf(leaf: Any) -> Any:
        """Return a tenth of a floating tensor that is no mask, any other argument as it is."""
        return leaf * 0.1 if has_real_numbers(leaf) else leaf

    return map_call(call, divide_leaf, call.label, call.beyond)


def with_few_integers(call: Call) -> Call:
    """Return a call whose integer tensors hold 0, 1 and 2 in runs and apart, as random numbers of a
    large range never do: code may count, merge or compare equal ones."""
    generator = torch.Generator().manual_seed(0)

    def replace_in_leaf(leaf: Any) -> Any:
        """Return small numbers in the shape of an integer tensor; any other argument as it is."""
        if not has_integers(leaf):
            return leaf
        return torch.randint(0, FEW, leaf.shape, generator=generator).to(leaf.dtype)

    return map_call(call, replace_in_leaf, "values: few different whole numbers", VALUES)


def with_few_choices(call: Call) -> Call:
    """Return a call in whose floating point tensors, masks aside, the largest number along the last
    dimension is the first, second or third one, at random: what code chooses by it then comes in
    runs and again after another choice, as among many it hardly ever does.

    Tensors of one dimension, or with fewer than three numbers along the last one, stay as they
    are.
    """
    generator = torch.Generator().manual_seed(0)

    def raise_in_leaf(leaf: Any) -> Any:
        """Return a floating tensor with one number of each row raised above all others; any other
        argument as it is."""
        if not has_real_numbers(leaf) or leaf.dim() < 2 or 0 in leaf.shape or leaf.shape[-1] < FEW:
            return leaf
        chosen = torch.randint(0, FEW, (*leaf.shape[:-1], 1), generator=generator)
        height = (leaf.amax() - leaf.amin() + 1).expand(chosen.shape)
        return leaf.scatter_add(-1, chosen, height.to(leaf.dtype))

    return map_call(call, raise_in_leaf, "values: few different choices", VALUES)


def calls_with_a_mark(call: Call, mark: int) -> Iterator[Call]:
    """Yield a call in whose integer tensors a number that has a meaning of its own (-100 for no
    label) replaces every fifth number, if it has such tensors."""
    if any(map(has_integers, tensors(call))):
        yield replace_integers(call, (mark,), f"the whole number {mark}")


def calls_with_large_integers(call: Call) -> Iterator[Call]:
    """Yield a call whose integer tensors hold numbers that float32 rounds, and one with numbers of
    64 bits that float64 rounds: hashed tokens, times in nanoseconds."""
    for label, limit in (("float32", 2**24), ("float64", 2**53)):
        values = (limit + 1, 3 * limit + 5, -limit - 3)
        if any(has_integers(leaf) and leaf.dtype.itemsize > 4 for leaf in tensors(call)):
            yield replace_integers(call, values, f"whole numbers that {label} rounds")


def replace_integers(
    call: Call, values: tuple[int, ...], label: str, *, tokens: bool = False
) -> Call:
    """Return a call in whose integer tensors the values replace every fifth number: the first value
    at places 0, 5, 10 and so on, the second at 1, 6, 11.

    With `tokens`, a tensor whose largest number is below the largest value stays as it is.
    """

    def replace_in_leaf(leaf: Any) -> Any:
        """Return a copy of an integer tensor with the values; any other argument as it is."""
        if not has_integers(leaf) or (tokens and int(leaf.max()) < max(values)):
            return leaf
        elements = leaf.clone(memory_format=torch.contiguous_format).view(-1)
        for start, value in enumerate(values):
            elements[start::5] = value
        return elements.view(leaf.shape)

    return map_call(call, replace_in_leaf, f"values: {label}", VALUES)
