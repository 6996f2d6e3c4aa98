"""Make variants of a recorded call in which parameters that default to None get values: states,
biases, positions, indices."""

from __future__ import annotations

import inspect
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regraft.execution.compare import are_alike
from regraft.verification.child.call_arguments import Call, tensors
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.checks.argument_variants import (
    bound_arguments,
    method_of,
    with_argument,
)
from regraft.verification.child.checks.returned_values import returned_tensors, returned_tuples
from regraft.verification.child.checks.source_reads import unpacked_parts
from regraft.verification.child.drivers.field_tables import CHANCE_FIELDS

_PARAMETERS = 6  # the most parameters that get a value
_CONTEXT_LENGTH = 7  # positions of a sequence beside an image
_ACCEPTED = 3  # the most values of a parameter that the original accepts
_LISTED = re.compile(r"\b(?:[Ll]ist|[Ss]equence)\[int\]")
_INTEGER = re.compile(r"\bint\b")
_FRACTION = re.compile(r"\bfloat\b")
_PAIR = re.compile(r"\b[Tt]uple\[(torch\.)?Tensor, (torch\.)?Tensor\]")
_SEVERAL = re.compile(r"\b([Tt]uple|[Ll]ist|[Ss]equence)\[.*Tensor")
_NO_TENSORS = (
    "str",
    "int",
    "bool",
    "float",
    "dict",
    "Callable",
    "Cache",
    "tuple",
    "list",
    "Tuple",
    "List",
)


def optional_value_calls(call: Call, target: Target) -> Iterator[Call]:
    """Yield a call with a value for each of at most `_PARAMETERS` absent parameters, at most
    `_ACCEPTED` values each, where the original accepts it and its results change; each is followed
    by calls without a mask, which may hide the effect (these may be refused).

    The value is a tensor whose shape follows from the other inputs; or a number, a list of one or a
    pair of tensors where the annotation names such. Where the original refuses two inputs together,
    the first integer tensor is left out (embeddings in the place of tokens), or the first mask
    (too short for a cache).
    """
    bound = bound_arguments(call, target.callable)
    if bound is None:
        return
    signature, arguments = bound.signature, bound.arguments
    absent_parameters = [
        parameter
        for parameter in signature.parameters.values()
        if _can_get_value(parameter, arguments.get(parameter.name))
    ]
    if not absent_parameters:
        return
    mask_names = [
        name for name in arguments if name.endswith("mask") and arguments[name] is not None
    ]
    trials = _Trials(
        call,
        target,
        signature,
        execute(target, call, Plan(gradients=False)),
        [name for name, value in arguments.items() if _is_integer(value)],
        mask_names,
    )
    for parameter in absent_parameters[:_PARAMETERS]:
        for candidate in itertools.islice(trials.accepted_calls(parameter), _ACCEPTED):
            yield candidate
            for name in mask_names:
                unmasked = with_argument(candidate, signature, name, None)
                label = f"{candidate.label}, without {name}"
                yield replace(unmasked, label=label, beyond="arguments")


def _can_get_value(parameter: inspect.Parameter, value: Any) -> bool:
    """Return whether a parameter whose argument is `value` may get a tensor, number or list."""
    if isinstance(value, torch.Tensor):
        return False
    takes_plain_value = parameter.default is None and any(_plain_values(parameter))
    return _can_be_tensor(parameter) or takes_plain_value or _may_be_unpacked(parameter)


@dataclass(frozen=True, slots=True)
class _Trials:
    """A call whose parameters get values, with the original's outcome without them; the first of
    `integer_names`, or of `mask_names`, is left out where both are refused together."""

    call: Call
    target: Target
    signature: inspect.Signature
    outcome_without: Outcome
    integer_names: list[str]
    mask_names: list[str]

    def accepted_calls(self, parameter: inspect.Parameter) -> Iterator[Call]:
        """Yield the call with each value of a parameter that the original accepts and that changes
        its results: of tuples those that the call returned come first, of tensors last."""
        outputs = self.outcome_without.outputs
        values = values_for(parameter, self.call, self.target.module)
        if _may_be_unpacked(parameter):
            count = unpacked_parts(method_of(self.target.callable), parameter.name)
            tuples = _tuples_like(self.call, count)
            values = itertools.chain(returned_tuples(outputs), tuples, values)
        if _can_be_tensor(parameter):
            values = itertools.chain(values, returned_tensors(outputs))
        for description, value in values:
            accepted = self._accepted_call(parameter.name, value)
            if accepted is not None:
                label = f"{parameter.name} given, {description}"
                yield replace(accepted, label=label, beyond="arguments")

    def _accepted_call(self, name: str, value: Any) -> Call | None:
        """Return the call with a value that the original accepts and that changes its results, if
        necessary without the first integer tensor, or for a tuple, which may be longer than a mask
        covers, without the first mask; None where there is no such call."""
        with_value = with_argument(self.call, self.signature, name, value)
        names_to_omit = [
            *self.integer_names[:1],
            *(self.mask_names[:1] if isinstance(value, tuple) else ()),
        ]
        candidates = [
            with_value,
            *(with_argument(with_value, self.signature, other, None) for other in names_to_omit),
        ]
        for candidate in candidates:
            outcome = execute(self.target, candidate, Plan(gradients=False))
            if outcome.error is None and changes_result(self.outcome_without, outcome):
                return candidate
        return None


def values_for(parameter: inspect.Parameter, call: Call, module: Any) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a description and a value that a parameter may take: plain values, pairs of
    tensors, tensors, then two numbers where there is no annotation."""
    yield from _plain_values(parameter)
    if module is not None and _PAIR.search(str(parameter.annotation)):
        yield from _pairs_like(call, module)
    if _can_be_tensor(parameter):
        yield from _tensors_like(call, parameter.name, _width(module))
    if parameter.annotation is inspect.Parameter.empty and parameter.name not in CHANCE_FIELDS:
        yield from (("2", 2), ("0.5", 0.5))


def _may_be_unpacked(parameter: inspect.Parameter) -> bool:
    """Return whether the annotation of a parameter that defaults to None allows a tuple or list of
    tensors, or is missing."""
    if parameter.default is not None:
        return False
    return parameter.annotation is parameter.empty or bool(
        _SEVERAL.search(str(parameter.annotation))
    )


def _can_be_tensor(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter may be omitted and may take a tensor.

    Its annotation names a tensor; or it defaults to None, and its annotation names no other type or
    is missing.
    """
    if parameter.default is inspect.Parameter.empty:
        return False
    if parameter.annotation is inspect.Parameter.empty:
        return parameter.default is None
    text = str(parameter.annotation)
    return "Tensor" in text or (
        parameter.default is None and not any(name in text for name in _NO_TENSORS)
    )


def _plain_values(parameter: inspect.Parameter) -> Iterator[tuple[str, Any]]:
    """Yield numbers, and lists of one integer, each after its text, where the annotation of a
    parameter names them; no fractions for rates of chance."""
    text = str(parameter.annotation)
    if _LISTED.search(text):
        yield "[0]", [0]
    if _INTEGER.search(_LISTED.sub("", text)):
        yield from (("1", 1), ("2", 2), ("0", 0))
    if _FRACTION.search(text) and parameter.name not in CHANCE_FIELDS:
        yield from (("0.5", 0.5), ("3.0", 3.0), ("0.0", 0.0))


def _is_integer(value: Any) -> bool:
    """Return whether a value is a tensor of integers, booleans excluded."""
    return (
        isinstance(value, torch.Tensor)
        and not value.is_floating_point()
        and value.dtype != torch.bool
    )


def _width(module: Any) -> int:
    """Return the most frequent last dimension of a module's matrices; 0 where it has none."""
    matrices = (
        [parameter for parameter in module.parameters() if parameter.dim() > 1]
        if module is not None
        else []
    )
    widths = Counter(int(matrix.shape[-1]) for matrix in matrices)
    return widths.most_common(1)[0][0] if widths else 0


def _tensors_like(call: Call, name: str, width: int) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a description and a tensor that fits the inputs of a call; the name decides
    which come first. Yield nothing for a call without tensors.

    `width` is that of the features of the module, 0 for none.
    """
    inputs = [tensor for tensor in tensors(call) if tensor.dim()]
    if not inputs:
        return
    floats = [tensor for tensor in inputs if tensor.is_floating_point()]
    first = (floats or inputs)[0]
    random_tensors = _RandomTensors(first.dtype if floats else torch.float32)
    rows, length = first.shape[0], first.shape[1] if first.dim() > 1 else first.shape[0]
    if name.endswith("mask"):
        yield from _masks_like(inputs, rows, random_tensors)
    integers = _integers_like(rows, length)
    if name.endswith(("ids", "index", "indices", "positions")):
        yield from integers
    for shape in (*_sequence_shapes(first, width), *_shapes_like(first)):
        yield random_tensors.of_shape(*shape)
    yield from integers


def _sequence_shapes(first: Any, width: int) -> list[tuple[int, ...]]:
    """Return the shapes of a sequence of features beside an input: for each of its tokens, or what
    an image attends to; [] for other inputs, and where `width` is 0."""
    if not width:
        return []
    if first.dim() == 2 and not first.is_floating_point():
        return [(*first.shape, width)]
    return [(first.shape[0], _CONTEXT_LENGTH, width)] if first.dim() > 3 else []


def _masks_like(
    inputs: Sequence[torch.Tensor], rows: int, random_tensors: _RandomTensors
) -> Iterator[tuple[str, Any]]:
    """Yield a mask of numbers and masks of truth values for each length of the inputs: one for
    scores, one of a row of the batch and a position, and one of a position and all features."""
    for keys in _sequence_lengths(inputs):
        yield random_tensors.of_shape(rows, 1, 1, keys)
        visible = torch.arange(rows * keys).remainder(3).view(rows, keys) != 1
        for mask in (visible[:, None, None], visible, visible[0, :, None]):
            yield f"true and false, shape {list(mask.shape)}", mask


def _integers_like(rows: int, length: int) -> list[tuple[str, Any]]:
    """Return three tensors of integers, each after its description: one of shape (rows, length)
    that counts up from 0 and starts again halfway, one of shape (rows,), its first column, and one
    of shape (rows, length) for a choice of two, such as segments of a text: ones and zeros."""
    restarting = torch.arange(length).remainder(max(2, length // 2)).expand(rows, length).clone()
    alternating = torch.arange(1, length + 1).remainder(2).expand(rows, length).clone()
    return [
        ("whole numbers that start again", restarting),
        ("one number each", restarting[:, 0].clone()),
        ("ones and zeros", alternating),
    ]


class _RandomTensors:
    """Makes random tensors of one number format, each with its shape in words."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._generator = torch.Generator().manual_seed(0)

    def of_shape(self, *shape: int) -> tuple[str, Any]:
        """Return the shape in words and the next normal random tensor of that shape."""
        tensor = torch.randn(shape, generator=self._generator).to(self._dtype)
        return f"shape {list(shape)}", tensor


def _shapes_like(first: Any) -> list[tuple[int, ...]]:
    """Return shapes of tensors that go with an input: its own first, then those that share
    dimensions with it, () last; a shape may come several times."""
    rows, last = first.shape[0], first.shape[-1]
    shapes: list[tuple[int, ...]] = [tuple(first.shape)]
    if first.dim() > 1:
        length = first.shape[1]
        shapes += [
            tuple(first.shape[:-1]),
            (length, length),
            (rows, 1, length, length),
            (rows, last),
        ]
    return [*shapes, (last,), (rows,), ()]


def _sequence_lengths(inputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Return the different lengths of the first two inputs of three dimensions, and that of the two
    joined; the only length where there is a single such input, () where there is none."""
    lengths = [tensor.shape[1] for tensor in inputs if tensor.dim() == 3]
    return tuple(
        dict.fromkeys((*lengths[:2], *([lengths[0] + lengths[1]] if len(lengths) > 1 else [])))
    )


def _pairs_like(call: Call, module: Any) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a description and a pair of a cosine and a sine, each of shape (length, size
    of a head), for the lengths of the inputs of three dimensions."""
    inputs = [
        tensor for tensor in tensors(call) if tensor.dim() == 3 and tensor.is_floating_point()
    ]
    head_sizes = _head_sizes(module, inputs)
    generator = torch.Generator().manual_seed(0)
    for length in _sequence_lengths(inputs):
        for size in head_sizes:
            angles = (
                torch.rand((length, size // 2), generator=generator)
                .to(inputs[0].dtype)
                .repeat_interleave(2, -1)
            )
            yield f"a pair of shape {list(angles.shape)}", (angles.cos(), angles.sin())


def _tuples_like(call: Call, count: int) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a description and a tuple of `count` tensors, the first ones shaped like the
    first input of a call, the last one of a shape that goes with it (no single number, which many
    functions do not depend on); nothing where `count` is 0 and for a call without tensors of
    floating-point numbers."""
    floats = [tensor for tensor in tensors(call) if tensor.dim() and tensor.is_floating_point()]
    if not floats or not count:
        return
    like = floats[0]
    random_tensors = _RandomTensors(like.dtype)
    for last in dict.fromkeys(shape for shape in _shapes_like(like) if shape):
        shapes = [tuple(like.shape)] * (count - 1) + [last]
        parts = tuple(random_tensors.of_shape(*shape)[1] for shape in shapes)
        yield f"{count} tensors of shapes {', '.join(str(list(shape)) for shape in shapes)}", parts


def _head_sizes(module: Any, inputs: Sequence[torch.Tensor]) -> list[int]:
    """Return possible sizes of attention heads, without duplicates: integer attributes of the
    module and its submodules with "head_dim" in their names, then the last size of the first input
    divided, rounded down, by each attribute with "heads" in its name (none without inputs)."""
    sizes = [
        (name, size)
        for part in module.modules()
        for name, size in vars(part).items()
        if type(size) is int
    ]
    named_sizes = [size for name, size in sizes if "head_dim" in name]
    head_counts = [size for name, size in sizes if "heads" in name and size] if inputs else []
    computed_sizes = [inputs[0].shape[-1] // count for count in head_counts]
    return list(dict.fromkeys([*named_sizes, *computed_sizes]))


def changes_result(outcome_without: Outcome, outcome_with: Outcome) -> bool:
    """Return whether an input changes an output, or lets the original return a result where it
    raises without the input; an output that is no tensor counts as changed."""
    if outcome_without.error is not None:
        return True
    for path, value in outcome_with.outputs.items():
        value_without = outcome_without.outputs.get(path)
        are_like_tensors = are_alike(value, value_without, dtype=False)
        if not are_like_tensors or not torch.equal(value, value_without):
            return True
    return False
