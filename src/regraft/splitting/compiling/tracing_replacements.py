"""Functions that take the place of torch's while a region is traced to ONNX, where the exporter
writes an operation that computes something else.

* quotients and remainders: `traced_division.py`.
* torch adds up and multiplies whole numbers in 64 bits, ONNX in the type of the operand, and ONNX
  Runtime adds up those of 64 bits as floating-point numbers, which are exact up to 2**53.
* torch clamps whole numbers to a fraction as floating-point numbers, the exporter rounds the bound.
* torch's own `unflatten` has the sizes of the sample.
* the exporter has no stable sort; ONNX's `TopK`, which it writes for `sort`, keeps equal values in
  their order (https://onnx.ai/onnx/operators/onnx__TopK.html).
* torch raises whole numbers to a power, and fills tensors with them, exactly; ONNX Runtime's power
  is that of floating-point numbers, and the exporter fills by way of such.
* the exporter takes the logarithm of the sigmoid, which is rough far below zero.
* the exporter takes the number with which `pad` and `nan_to_num` fill, and the epsilon of
  `layer_norm`, for a constant, and divides by zero for `linspace` of one step.
* the exporter has no `bincount` and no `histc`, by which mixtures of experts count their tokens.
* ONNX Runtime's recurrent layers end the process where there is no step or no sequence.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from regraft.splitting.compiling.traced_division import (
    DIVIDED,
    division_replacements,
    floor_divide,
)

TypeOf = Callable[..., torch.dtype | None]

RECURRENT_LAYERS = ("gru", "lstm", "rnn_tanh", "rnn_relu")  # functions of torch
_UNFLATTENED = torch.Tensor.unflatten
_POWER = torch.pow
_FULL, _NEW_FULL, _FULL_LIKE = torch.full, torch.Tensor.new_full, torch.full_like
_POWER_BITS = 63  # of an exponent that is a tensor
_COUNTED, _BINNED = torch.bincount, torch.histc
_NORMALISED = torch.nn.functional.layer_norm
_PADDED, _CLEANED, _SPACED = torch.nn.functional.pad, torch.nan_to_num, torch.linspace
_CLAMPING = ("clamp", "clamp_min", "clamp_max", "clip")
_ACCUMULATING = ("sum", "prod", "cumsum", "cumprod")
_HALF = 2**32  # the factor of the upper half of a number of 64 bits
_NARROW = frozenset({torch.int8, torch.uint8, torch.int16, torch.int32})


@contextlib.contextmanager
def replaced_functions() -> Iterator[None]:
    """Replace functions of torch by those of this file in the `with` block."""
    with contextlib.ExitStack() as stack:
        for owner, name, function in _replacements():
            stack.enter_context(mock.patch.object(owner, name, function))
        yield


def unflatten(tensor: torch.Tensor, dim: Any, sizes: Any) -> torch.Tensor:
    """Return the tensor with the axis `dim` divided into `sizes`, by a reshape whose sizes the
    tracing exporter follows: torch's own would be those of the sample.

    Named axes, and tensors without dimensions, go to torch's own.
    """
    if not isinstance(dim, int) or tensor.dim() == 0:
        return _UNFLATTENED(tensor, dim, sizes)
    dim %= tensor.dim()
    return tensor.reshape(*tensor.shape[:dim], *sizes, *tensor.shape[dim + 1 :])


def power(base: Any, exponent: Any) -> Any:
    """Return torch's `base ** exponent`, of whole numbers by products, which are exact in 64 bits
    and wrap as torch's do."""
    numbers = torch.as_tensor(base), torch.as_tensor(exponent)
    dtype = torch.result_type(base, exponent)
    is_whole = not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool
    if not is_whole or (type(exponent) is int and exponent in (0, 1, 2)):
        return _POWER(base, exponent)
    bits = exponent.bit_length() if type(exponent) is int else _POWER_BITS
    first_factor, remaining = (number.to(torch.int64) for number in numbers)
    factor = first_factor
    is_negative, is_odd = remaining < 0, (remaining & 1) != 0
    result = torch.ones_like(factor + remaining)
    for _ in range(bits):
        result = torch.where((remaining & 1) != 0, result * factor, result)
        factor = factor * factor
        remaining = DIVIDED(remaining, 2, rounding_mode="trunc")
    inverse = torch.where(is_odd, first_factor, 1) * (first_factor.abs() == 1)
    return torch.where(is_negative, inverse, result).to(dtype)


def full(size: Any, fill_value: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    """Return torch's `full`; where the number is a tensor without dimensions, a new tensor that is
    full of it, or an error where the type does not hold it."""
    if not isinstance(fill_value, torch.Tensor):
        return _FULL(size, fill_value, dtype=dtype, **options)
    return _filled(size, fill_value, dtype or _type_of_number(fill_value))


def new_full(
    tensor: torch.Tensor,
    size: Any,
    fill_value: Any,
    *,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Any:
    """Return torch's `tensor.new_full`; where the number is a tensor without dimensions, a new
    tensor that is full of it, or an error where the type does not hold it."""
    if not isinstance(fill_value, torch.Tensor):
        return _NEW_FULL(tensor, size, fill_value, dtype=dtype, **options)
    return _filled(size, fill_value, dtype or tensor.dtype)


def full_like(
    tensor: torch.Tensor, fill_value: Any, *, dtype: torch.dtype | None = None, **options: Any
) -> Any:
    """Return torch's `full_like`; where the number is a tensor without dimensions, a new tensor
    that is full of it, or an error where the type does not hold it."""
    if not isinstance(fill_value, torch.Tensor):
        return _FULL_LIKE(tensor, fill_value, dtype=dtype, **options)
    return _filled(tensor.shape, fill_value, dtype or tensor.dtype)


def _filled(size: Any, number: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a new tensor of a size that is full of the number in a tensor without dimensions."""
    sizes = tuple(size) if isinstance(size, tuple | list) else (size,)
    return _as_filling(number, dtype).expand(*sizes).clone()


def _as_filling(number: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the number in a tensor without dimensions in the type of what it fills; an error where
    whole numbers of that type do not hold it, as torch raises."""
    converted = number.to(dtype)
    is_narrow = number.is_floating_point() or dtype in _NARROW
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool or not is_narrow:
        return converted
    limits = torch.iinfo(dtype)
    return converted + _zero_if((number >= limits.min) & (number <= limits.max)).to(dtype)


def _type_of_number(number: torch.Tensor) -> torch.dtype:
    """Return the type of the tensor that torch makes of the number in a tensor."""
    if number.is_complex():
        return torch.get_default_dtype().to_complex()
    if number.is_floating_point():
        return torch.get_default_dtype()
    return number.dtype if number.dtype == torch.bool else torch.int64


def pad(tensor: torch.Tensor, pad: Any, mode: str = "constant", value: Any = None) -> torch.Tensor:
    """Return torch's `F.pad`; with a tensor for the number, that tensor where nothing else is."""
    if mode != "constant" or not isinstance(value, torch.Tensor):
        return _PADDED(tensor, pad, mode, value)
    is_inside = _PADDED(torch.ones_like(tensor, dtype=torch.float32), pad) > 0
    return torch.where(is_inside, _PADDED(tensor, pad), _as_filling(value, tensor.dtype))


def layer_norm(
    tensor: torch.Tensor,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: Any = 1e-5,
) -> torch.Tensor:
    """Return torch's `F.layer_norm`; with a tensor for the epsilon, by mean and variance."""
    if not isinstance(eps, torch.Tensor):
        return _NORMALISED(tensor, normalized_shape, weight, bias, eps)
    dims = tuple(range(-len(normalized_shape), 0))
    kind = torch.promote_types(tensor.dtype, torch.float32)
    centred = tensor.to(kind) - tensor.to(kind).mean(dims, keepdim=True)
    variance = (centred * centred).mean(dims, keepdim=True)
    result = centred * torch.rsqrt(variance + eps.to(kind))
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias).to(tensor.dtype)


def nan_to_num(
    tensor: torch.Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None, **options: Any
) -> torch.Tensor:
    """Return torch's `nan_to_num`; with a tensor for one of the numbers, by comparisons."""
    numbers = nan, posinf, neginf
    if options or not any(isinstance(number, torch.Tensor) for number in numbers):
        return _CLEANED(tensor, nan, posinf, neginf, **options)
    if not tensor.is_floating_point():
        return tensor.clone()
    limits = torch.finfo(tensor.dtype)
    result = tensor
    for place, number, usual in (
        (torch.isnan(tensor), nan, 0.0),
        (tensor == float("inf"), posinf, limits.max),
        (tensor == float("-inf"), neginf, limits.min),
    ):
        filling = torch.as_tensor(usual if number is None else number).to(tensor.dtype)
        result = torch.where(place, filling, result)
    return result


def linspace(
    start: Any, end: Any, steps: Any, *, dtype: torch.dtype | None = None, **options: Any
) -> torch.Tensor:
    """Return torch's `linspace`, with a tensor for the number of steps as torch computes it: from
    both ends; an error for less than none."""
    kind = dtype or torch.get_default_dtype()
    if not isinstance(steps, torch.Tensor) or not kind.is_floating_point:
        return _SPACED(start, end, steps, dtype=dtype, **options)
    first, last = (torch.as_tensor(bound).to(kind) for bound in (start, end))
    places = torch.arange(steps)
    step = (last - first) / (steps - 1).clamp(min=1).to(kind)
    from_end = last - step * (steps - 1 - places).to(kind)
    is_early = (places < floor_divide(steps, 2)) | (places == 0)
    result = torch.where(is_early, first + step * places.to(kind), from_end)
    return result + _zero_if(steps >= 0).to(kind)


def logsigmoid(tensor: torch.Tensor) -> torch.Tensor:
    """Return torch's `F.logsigmoid`, which is near `tensor` far below zero."""
    return tensor.clamp(max=0) - torch.log1p(torch.exp(-tensor.abs()))


def bincount(
    values: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    """Return torch's `bincount`, by adding ones at the places that the numbers are, and raising for
    a number below zero; with weights, torch's own."""
    if weights is not None:
        return _COUNTED(values, weights, minlength)
    numbers = values.to(torch.int64)
    largest = torch.cat([numbers, numbers.new_full((1,), minlength - 1)]).max()
    places, ones = numbers.clamp(min=0), torch.ones_like(numbers)
    counts = torch.zeros_like(torch.arange(largest + 1)).scatter_add(0, places, ones)
    return counts + _zero_if((numbers >= 0).all())


def _zero_if(condition: torch.Tensor) -> torch.Tensor:
    """Return the whole number 0 where the condition holds; where it does not, ONNX Runtime raises
    an error for an index that is out of range."""
    return torch.zeros(1, dtype=torch.int64)[(~condition).to(torch.int64)]


def histc(tensor: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """Return torch's `histc`, by comparisons with the number of each bin; torch's own where the
    data decide the range."""
    if not min < max:
        return _BINNED(tensor, bins, min, max)
    values = tensor.reshape(-1)
    places = ((values - min) * bins / (max - min)).to(torch.int64).clamp(max=bins - 1)
    is_inside = (values >= min) & (values <= max)
    is_in_bin = (places[:, None] == torch.arange(bins)) & is_inside[:, None]
    return is_in_bin.to(tensor.dtype).sum(0)


def lstm_cell(
    tensor: torch.Tensor,
    states: Any,
    input_weight: torch.Tensor,
    state_weight: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    state_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return torch's `lstm_cell`, the new state and memory, by products with the weights."""
    state, memory = states
    gates = torch.nn.functional.linear(tensor, input_weight, input_bias)
    gates = gates + torch.nn.functional.linear(state, state_weight, state_bias)
    enter, forget, candidate, leave = gates.chunk(4, 1)
    new_memory = forget.sigmoid() * memory + enter.sigmoid() * candidate.tanh()
    return leave.sigmoid() * new_memory.tanh(), new_memory


def _of_some_steps(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls a recurrent layer of torch; ONNX Runtime raises an error for
    sequences of no step, and for none."""

    @functools.wraps(layer)
    def run_layer(sequences: torch.Tensor, *args: Any) -> Any:
        """Call `layer`; where the sequences are packed, unchanged."""
        if sequences.dim() < 3:
            return layer(sequences, *args)
        lengths, count = map(torch.as_tensor, sequences.shape[:2])
        zero = _zero_if((lengths > 0) & (count > 0))
        return layer(sequences + zero.to(sequences.dtype), *args)

    return run_layer


def _sorting(sort: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls torch's `sort` or `argsort` without its argument `stable`."""

    @functools.wraps(sort)
    def sort_in_order(
        tensor: torch.Tensor, dim: Any = -1, descending: bool = False, stable: bool = True
    ) -> Any:
        """Call `sort`; ONNX's sort is stable whatever `stable` asks for."""
        return sort(tensor, dim=dim, descending=descending)

    return sort_in_order


def _converting(function: Callable[..., Any], type_of: TypeOf) -> Callable[..., Any]:
    """Return a function that calls `function` with its first operand converted to the type that
    `type_of` returns for the arguments; unchanged where that is None."""

    @functools.wraps(function)
    def convert(*args: Any, **kwargs: Any) -> Any:
        """Call `function` with the first operand in the type that `type_of` returns."""
        dtype = type_of(*args, **kwargs) if args else None
        if dtype is None:
            return function(*args, **kwargs)
        return function(args[0].to(dtype), *args[1:], **kwargs)

    return convert


def _accumulating_type(tensor: torch.Tensor, *_: Any, **kwargs: Any) -> torch.dtype | None:
    """Return int64, in which torch sums up whole numbers of fewer bits; None for other tensors, and
    where `dtype` names a type."""
    is_narrow = tensor.dtype in _NARROW and kwargs.get("dtype") is None
    return torch.int64 if is_narrow else None


def _clamping_type(tensor: torch.Tensor, *bounds: Any, **named: Any) -> torch.dtype | None:
    """Return the floating-point type to which torch converts a tensor of whole numbers where a
    bound of `clamp` is a float; None for other bounds and for tensors of floats."""
    fractions = [bound for bound in (*bounds, *named.values()) if type(bound) is float]
    is_whole = not tensor.is_floating_point()
    return torch.result_type(tensor, fractions[0]) if fractions and is_whole else None


def _exactly(add_up: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that, for tensors of int64, calls `add_up` on the upper and the lower 32
    bits apart: an operator that computes in floats has an exact sum of up to 2**21 lower halves.

    Other tensors, and calls that name a dtype, go to `add_up` unchanged.
    """

    @functools.wraps(add_up)
    def accumulate(*operands: Any, **kwargs: Any) -> Any:
        """Return what `add_up` returns for the operands; of a tensor of int64, without `dtype`, the
        sums of its upper and lower halves put together."""
        is_whole = bool(operands) and operands[0].dtype == torch.int64
        if not is_whole or kwargs.get("dtype") is not None:
            return add_up(*operands, **kwargs)
        tensor, *args = operands
        low = tensor & (_HALF - 1)
        high = DIVIDED(tensor - low, _HALF, rounding_mode="trunc")
        return add_up(high, *args, **kwargs) * _HALF + add_up(low, *args, **kwargs)

    return accumulate


def _replacements() -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """Yield for each function of torch that this file replaces: the object that has it as an
    attribute, the attribute's name, and the function to put there."""
    yield torch.Tensor, "unflatten", unflatten
    yield from division_replacements()
    yield torch, "full", full
    yield torch, "full_like", full_like
    yield torch.Tensor, "new_full", new_full
    yield torch, "pow", power
    for name in ("pow", "__pow__"):
        yield torch.Tensor, name, power
    yield torch.Tensor, "__rpow__", lambda exponent, base: power(base, exponent)
    yield torch.nn.functional, "pad", pad
    yield torch.nn.functional, "logsigmoid", logsigmoid
    yield torch.nn.functional, "layer_norm", layer_norm
    yield torch, "linspace", linspace
    for owner in (torch, torch._VF):  # layers call the second one
        yield owner, "lstm_cell", lstm_cell
        for name in RECURRENT_LAYERS:
            yield owner, name, _of_some_steps(getattr(owner, name))
    for owner in (torch, torch.Tensor):
        yield owner, "nan_to_num", nan_to_num
        yield owner, "bincount", bincount
        yield owner, "histc", histc
        yield owner, "sort", _sorting(owner.sort)
        yield owner, "argsort", _sorting(owner.argsort)
    for owner in (torch, torch.Tensor):
        for name in _CLAMPING:
            yield owner, name, _converting(getattr(owner, name), _clamping_type)
        for name in _ACCUMULATING:
            function = getattr(owner, name)
            exact = _exactly(function) if name == "sum" else function
            yield owner, name, _converting(exact, _accumulating_type)
