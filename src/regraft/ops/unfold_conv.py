"""Products of a matrix with the columns that `unfold` makes, as convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from regraft.ops.einsum_equations import parse_column_product
from regraft.ops.plain import are_kernels_forced, are_tensors, can_read, is_plain

_CONVOLVED = (torch.float32, torch.bfloat16)
_EXACT_PRECISIONS = ("none", "ieee")
# With fewer positions the convolution orders its weight in the time of the product, and fewer
# multiplications than these take less time than its call.
_LEAST_POSITIONS = 256
_LEAST_MULTIPLICATIONS = 1 << 20

_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of `unfold`, a number for rows and a number for columns each."""

    kernel_size: _Pair
    dilation: _Pair
    padding: _Pair
    stride: _Pair

    def grid(self, height: int, width: int) -> _Pair:
        """Return the numbers of positions in an image; they may be below one."""
        rows, columns = (
            (side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for side, kernel, dilation, padding, stride in zip(
                (height, width),
                self.kernel_size,
                self.dilation,
                self.padding,
                self.stride,
                strict=True,
            )
        )
        return rows, columns

    def are_valid(self) -> bool:
        """Return whether the numbers are those of windows."""
        return min(*self.kernel_size, *self.dilation, *self.stride) > 0 <= min(self.padding)

    def overlap(self) -> bool:
        """Return whether neighbouring windows share pixels, in rows and in columns."""
        return self.stride[0] < self.kernel_size[0] and self.stride[1] < self.kernel_size[1]


def unfold_conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    kernel_size: Any = None,
    *,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
    layer: Any = None,
    size: Any = None,
) -> torch.Tensor:
    """Return `weight @ unfold(x, kernel_size, dilation, padding, stride)`, by `conv2d`.

    Shapes: `x` is `(N, channels, height, width)`, `weight` is `(out, channels * kernel height *
    kernel width)`, and the result is `(N, out, positions)`; with the `size` that `fold` is called
    with for kernels of one position, the result is `(N, out, *size)`. `layer` is a
    `torch.nn.Unfold` that has the numbers instead.

    The composition runs for tensors of other shapes, dtypes (float32 and bfloat16), devices (CPU)
    and classes, for windows that do not overlap and for products that are too small to gain, under
    autocast, and where the call is traced or compiled. It also runs for a weight that is not
    finite: the composition multiplies the zeros that pad by it, and the gradient of the convolution
    zeros for pixels that no window covers. Convolutions of bfloat16 spread elements of the input
    that are not finite to positions beside them, so these are multiplied as columns, too.
    """
    windows = _windows_of(layer, kernel_size, dilation, padding, stride)
    result = _kernels_first(x, weight, windows, size)
    if result is not None:
        return result
    return unfold_conv_reference(
        x,
        weight,
        kernel_size,
        dilation=dilation,
        padding=padding,
        stride=stride,
        layer=layer,
        size=size,
    )


def unfold_conv_reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    kernel_size: Any = None,
    *,
    layer: Any = None,
    size: Any = None,
    **windows: Any,
) -> torch.Tensor:
    """Multiply the columns of the input, and fold the products."""
    products = torch.matmul(weight, _columns_of(x, layer, kernel_size, **windows))
    return products if size is None else functional.fold(products, size, 1)


def unfold_conv_implementation(
    x: torch.Tensor,
    weight: torch.Tensor,
    kernel_size: Any = None,
    *,
    layer: Any = None,
    size: Any = None,
    **numbers: Any,
) -> str:
    """Name the implementation for these arguments: "convolution" or "reference"."""
    windows = _windows_of(layer, kernel_size, **numbers)
    if windows is None or not _is_convolution(x, weight, None, windows, size):
        return "reference"
    return "convolution"


def unfold_linear(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    kernel_size: Any = None,
    *,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
    bias: torch.Tensor | None = None,
    layer: Any = None,
    linear: Any = None,
) -> torch.Tensor:
    """Return `linear(unfold(x, ...).transpose(1, 2), weight, bias)`, by `conv2d`.

    Shapes: as of `unfold_conv`, but that the result is `(N, positions, out)`. `linear` is a
    `torch.nn.Linear` that has weight and bias instead. The composition also runs for images of one
    channel, for which it is as fast.
    """
    windows = _windows_of(layer, kernel_size, dilation, padding, stride)
    operands = _operands_of(linear, weight, bias)
    result = None if operands is None else _positions_first(x, *operands, windows)
    if result is not None:
        return result
    return unfold_linear_reference(
        x,
        weight,
        kernel_size,
        dilation=dilation,
        padding=padding,
        stride=stride,
        bias=bias,
        layer=layer,
        linear=linear,
    )


def unfold_linear_reference(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    kernel_size: Any = None,
    *,
    bias: torch.Tensor | None = None,
    layer: Any = None,
    linear: Any = None,
    **windows: Any,
) -> torch.Tensor:
    """Apply a linear function to each column of the input."""
    rows = _columns_of(x, layer, kernel_size, **windows).transpose(-2, -1)
    result: torch.Tensor = functional.linear(rows, weight, bias) if linear is None else linear(rows)
    return result


def unfold_linear_implementation(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    kernel_size: Any = None,
    *,
    bias: torch.Tensor | None = None,
    layer: Any = None,
    linear: Any = None,
    **numbers: Any,
) -> str:
    """Name the implementation for these arguments: "convolution" or "reference"."""
    windows = _windows_of(layer, kernel_size, **numbers)
    operands = _operands_of(linear, weight, bias)
    if windows is None or operands is None or not _is_rows_convolution(x, *operands, windows):
        return "reference"
    return "convolution"


def unfold_einsum(
    equation: Any,
    x: torch.Tensor,
    weight: torch.Tensor,
    kernel_size: Any = None,
    *,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
    layer: Any = None,
    columns_first: bool = False,
) -> torch.Tensor:
    """Return `einsum(equation, weight, unfold(x, ...))`, or with the columns as the first operand
    (`columns_first`), by `conv2d`.

    Shapes: as of `unfold_conv` for `"oi,bil->bol"`, and as of `unfold_linear` for `"oi,bil->blo"`;
    the weight may be transposed. The result is contiguous. The composition also runs for other
    equations.
    """
    windows = _windows_of(layer, kernel_size, dilation, padding, stride)
    parsed = parse_column_product(equation, 0 if columns_first else 1)
    kernels = _kernels(weight, parsed)
    result = None
    if parsed is not None and kernels is not None:
        result = (
            _positions_first(x, kernels, None, windows)
            if parsed[1]
            else _kernels_first(x, kernels, windows)
        )
    if result is not None:
        return result
    return unfold_einsum_reference(
        equation,
        x,
        weight,
        kernel_size,
        dilation=dilation,
        padding=padding,
        stride=stride,
        layer=layer,
        columns_first=columns_first,
    )


def unfold_einsum_reference(
    equation: Any,
    x: torch.Tensor,
    weight: torch.Tensor,
    kernel_size: Any = None,
    *,
    layer: Any = None,
    columns_first: bool = False,
    **windows: Any,
) -> torch.Tensor:
    """Multiply the columns of the input as the equation says."""
    columns = _columns_of(x, layer, kernel_size, **windows)
    operands = (columns, weight) if columns_first else (weight, columns)
    result: torch.Tensor = torch.einsum(equation, *operands)
    return result


def unfold_einsum_implementation(
    equation: Any,
    x: torch.Tensor,
    weight: torch.Tensor,
    kernel_size: Any = None,
    *,
    columns_first: bool = False,
    **windows: Any,
) -> str:
    """Name the implementation for these arguments: "convolution" or "reference"."""
    parsed = parse_column_product(equation, 0 if columns_first else 1)
    kernels = _kernels(weight, parsed)
    if parsed is None or kernels is None:
        return "reference"
    implementation = unfold_linear_implementation if parsed[1] else unfold_conv_implementation
    return implementation(x, kernels, kernel_size, **windows)


def _kernels(weight: Any, parsed: tuple[bool, bool] | None) -> torch.Tensor | None:
    """Return the matrix of an equation with a row for each kernel; None for what is no matrix."""
    if parsed is None or not are_tensors(weight) or weight.dim() != 2:
        return None
    kernels: torch.Tensor = weight.t() if parsed[0] else weight
    return kernels


def _kernels_first(
    x: torch.Tensor, weight: torch.Tensor, windows: _Windows | None, size: Any = None
) -> torch.Tensor | None:
    """Return the convolution of an input, `(N, out, positions)` or folded to a size; None where the
    composition is to run."""
    if windows is None or not _is_convolution(x, weight, None, windows, size):
        return None
    result = _convolve(x, weight, None, windows).contiguous()
    return _ordinary(result, (*result.shape[:2], *((-1,) if size is None else _pair(size))))


def _positions_first(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, windows: _Windows | None
) -> torch.Tensor | None:
    """Return the convolution of an input, `(N, positions, out)`; None where the composition is to
    run."""
    if windows is None or not _is_rows_convolution(x, weight, bias, windows):
        return None
    result = _convolve(x, weight, bias, windows).permute(0, 2, 3, 1).contiguous()
    return _ordinary(result, (result.shape[0], -1, result.shape[3]))


def _columns_of(
    x: torch.Tensor,
    layer: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> torch.Tensor:
    """Return the columns of an input, by the layer if there is one."""
    columns: torch.Tensor = (
        functional.unfold(x, kernel_size, dilation, padding, stride) if layer is None else layer(x)
    )
    return columns


def _windows_of(
    layer: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> _Windows | None:
    """Return the windows of a layer or of numbers; None for numbers that are none of windows, and
    for another layer than the plain one."""
    if layer is not None:
        if not is_plain(layer, nn.Unfold):
            return None
        kernel_size, dilation = layer.kernel_size, layer.dilation
        padding, stride = layer.padding, layer.stride
    pairs = [_pair(numbers) for numbers in (kernel_size, dilation, padding, stride)]
    if not all(pairs):
        return None
    windows = _Windows(*pairs)
    return windows if windows.are_valid() else None


def _pair(numbers: Any) -> Any:
    """Return two integers, or one integer twice, as a pair; () for anything else."""
    if type(numbers) is int:
        return numbers, numbers
    if not isinstance(numbers, tuple | list) or len(numbers) != 2:
        return ()
    return tuple(numbers) if type(numbers[0]) is type(numbers[1]) is int else ()


def _operands_of(
    linear: Any, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> tuple[Any, Any] | None:
    """Return weight and bias, which a Linear layer may have; None for another layer than the plain
    one."""
    if linear is None:
        return weight, bias
    return (linear.weight, linear.bias) if is_plain(linear, nn.Linear) else None


def _is_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    windows: _Windows,
    size: Any = None,
) -> bool:
    """Return whether a convolution computes the product of a weight with the columns of an input,
    and does so faster; `size` is that of the folded result."""
    operands = (x, weight) if bias is None else (x, weight, bias)
    if not are_tensors(*operands) or not _are_convolved(operands):
        return False
    if bias is not None and bias.shape != weight.shape[:1]:
        return False
    positions = _positions_of(x, weight, windows)
    if not positions or (size is not None and math.prod(_pair(size) or (0,)) != positions):
        return False
    if not are_kernels_forced() and not _gains(x.shape[0] * positions, weight, windows):
        return False
    read = (weight,) if x.dtype is torch.float32 else (weight, x)
    return all(math.isfinite(float(tensor.detach().sum())) for tensor in read)


def _positions_of(x: torch.Tensor, weight: torch.Tensor, windows: _Windows) -> int:
    """Return the number of positions of windows in an image; 0 where images and weight have not the
    shapes of a convolution, or are empty."""
    if x.dim() != 4 or weight.dim() != 2 or not x.numel() or not weight.numel():
        return 0
    if weight.shape[1] != x.shape[1] * math.prod(windows.kernel_size):
        return 0
    rows, columns = windows.grid(*x.shape[2:])
    return rows * columns if min(rows, columns) > 0 else 0


def _is_rows_convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, windows: _Windows
) -> bool:
    """Return whether a convolution computes a linear function of each column of an input, and does
    so faster."""
    if not _is_convolution(x, weight, bias, windows):
        return False
    return x.shape[1] > 1 or are_kernels_forced()


def _are_convolved(operands: tuple[torch.Tensor, ...]) -> bool:
    """Return whether tensors have one dtype and device for which convolutions are as exact as
    products, in a mode in which both run as they stand."""
    dtype = operands[0].dtype
    if dtype not in _CONVOLVED or not can_read() or torch.is_autocast_enabled("cpu"):
        return False
    for tensor in operands:
        if tensor.dtype is not dtype or tensor.device.type != "cpu":
            return False
        if tensor.layout is not torch.strided:
            return False
    return dtype is not torch.float32 or _is_conv_exact()


def _is_conv_exact() -> bool:
    """Return whether convolutions of float32 on CPU are computed in float32; before PyTorch 2.9
    they always are."""
    settings = getattr(torch.backends.mkldnn, "conv", None)
    return settings is None or settings.fp32_precision in _EXACT_PRECISIONS


def _gains(positions: int, weight: torch.Tensor, windows: _Windows) -> bool:
    """Return whether the convolution is faster than the product, by its size."""
    is_large = positions * weight.numel() >= _LEAST_MULTIPLICATIONS
    return is_large and positions >= _LEAST_POSITIONS and windows.overlap()


def _convolve(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, windows: _Windows
) -> torch.Tensor:
    """Return the convolution of an input with the rows of a weight as kernels."""
    kernels = weight.reshape(weight.shape[0], x.shape[1], *windows.kernel_size)
    return functional.conv2d(x, kernels, bias, windows.stride, windows.padding, windows.dilation)


def _ordinary(result: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a contiguous result that no other code has in another shape, as an ordinary tensor."""
    viewed: torch.Tensor = torch.ops.aten._unsafe_view(result, shape)
    return viewed
