"""The arithmetic of numbers of the host in regions, where they are tensors without dimensions.

In PyTorch a number of Python decides less than such a tensor: `torch.arange(3) * 0.5` has the
default floating-point type, `torch.arange(3) * torch.tensor(0.5, dtype=torch.float64)` has 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from regraft.execution.nested import map_leaves

_BUILDERS = frozenset({"tensor", "as_tensor", "new_tensor"})
# Functions that write a number into a tensor of a type of its own, or make tensors of sizes.
_KEEPING = frozenset(
    {
        "__setitem__",
        "arange",
        "constant_pad_nd",
        "full",
        "full_like",
        "index_fill",
        "index_put",
        "linspace",
        "logspace",
        "masked_fill",
        "new_full",
        "pad",
        "scatter",
    }
)


class NumberOperands(TorchFunctionMode):  # type: ignore[misc]
    """In the `with` block, functions of torch treat some tensors without dimensions as the numbers
    of Python that they stand for; so do they with the results of these alone.

    Python's own `float` and `int` would take the value out of a trace: `to_float` and `to_int`
    stand for them.
    """

    def __init__(self, numbers: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._numbers = {id(number): number for number in numbers}

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the function with the numbers among its arguments in the type that the result has
        for numbers of Python."""
        named = dict(kwargs or {})
        operands = list(_tensors([*args, *named.values()]))
        numbers = [operand for operand in operands if self._is_number(operand)]
        name = getattr(function, "__name__", "")
        if not numbers or name in _KEEPING or (name.endswith("_") and not name.endswith("__")):
            return function(*args, **named)
        if name in _BUILDERS:
            dtype = named.get("dtype") or (args[0].dtype if name == "new_tensor" else None)
            built, device = self._built(args[-1], dtype), named.get("device")
            return built if device is None else built.to(device)
        beside = [operand for operand in operands if not self._is_number(operand)]
        if beside:
            return function(*self._converted(args, beside), **self._converted(named, beside))
        return self._registered(function(*self._widened(function, args), **named))

    def to_float(self, value: Any) -> Any:
        """Return Python's `float(value)`; of a number, the number as a float."""
        return value.to(torch.float64) if self._is_number(value) else float(value)

    def to_int(self, value: Any) -> Any:
        """Return Python's `int(value)`; of a number, the number without its fraction."""
        return value.trunc().to(torch.int64) if self._is_number(value) else int(value)

    def _is_number(self, value: Any) -> bool:
        """Return whether a value stands for a number."""
        return id(value) in self._numbers

    def _converted(self, arguments: Any, beside: Sequence[torch.Tensor]) -> Any:
        """Return arguments with the numbers in them in the type that they have beside tensors."""

        def convert(value: Any) -> Any:
            """Return a number in that type, and any other value as it is."""
            if not self._is_number(value):
                return value
            dtype = _type_beside(value, beside)
            return value if dtype in (None, value.dtype) else value.to(dtype)

        return map_leaves(arguments, convert)

    def _built(self, content: Any, dtype: torch.dtype | None) -> torch.Tensor:
        """Return the tensor that torch makes of numbers, in lists or not; those of a list are
        stacked, so that a trace follows them."""
        if isinstance(content, tuple | list):
            parts = [self._built(part, dtype) for part in content]
            common = parts[0].dtype
            for part in parts[1:]:
                common = torch.promote_types(common, part.dtype)
            return torch.stack([part.to(common) for part in parts])
        if not isinstance(content, torch.Tensor):
            return torch.tensor(content, dtype=dtype)
        own_type = _default_type(content) if self._is_number(content) else content.dtype
        return content.to(dtype or own_type).clone()

    def _widened(self, function: Callable[..., Any], args: Sequence[Any]) -> Sequence[Any]:
        """Return the arguments of a function of numbers alone: those of a true division, which
        gives floats of 64 bits in Python, with whole numbers as such floats; of others as they
        are."""
        if getattr(function, "__name__", "") not in ("true_divide", "__truediv__", "__rtruediv__"):
            return args
        return [
            value.to(torch.float64) if self._is_number(value) and not _is_float(value) else value
            for value in args
        ]

    def _registered(self, result: Any) -> Any:
        """Return the result of an operation on numbers alone as it is, after noting it as a number
        if it is a tensor without dimensions."""
        if isinstance(result, torch.Tensor) and result.dim() == 0:
            self._numbers[id(result)] = result
        return result


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among values and in the tuples and lists among them."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from _tensors(value)
        elif isinstance(value, torch.Tensor):
            yield value


def _category(tensor: torch.Tensor) -> int:
    """Return the category of a tensor's type: 0 for truth values, 1 for whole numbers, 2 for
    floating-point and 3 for complex numbers."""
    if tensor.dtype == torch.bool:
        return 0
    return 3 if tensor.is_complex() else 2 if _is_float(tensor) else 1


def _is_float(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds floating-point numbers."""
    return bool(tensor.is_floating_point())


def _default_type(number: torch.Tensor) -> torch.dtype:
    """Return the type of the tensor that torch makes of a number."""
    return torch.get_default_dtype() if _is_float(number) else number.dtype


def _type_beside(number: torch.Tensor, beside: Sequence[torch.Tensor]) -> torch.dtype | None:
    """Return the type in which a number takes part in an operation with tensors; None where the
    tensors decide the type of the result without it."""
    category = _category(number)
    if any(other.dim() and _category(other) >= category for other in beside):
        return None
    deciding = [other.dtype for other in beside if _category(other) >= category]
    dtype = deciding[0] if deciding else _default_type(number)
    for further in deciding[1:]:
        dtype = torch.promote_types(dtype, further)
    return dtype
