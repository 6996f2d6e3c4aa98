"""Each of Liger's kernels, as the ops launch it, against the composition: results, gradients and
times.

    python benchmarks/gpu/liger_kernels.py
    TRITON_INTERPRET=1 python benchmarks/gpu/liger_kernels.py --device cpu   # to try it: no times

A kernel passes where its results and gradients are as close to those of a run in float64 as the
composition's are, or closer, but for twice the distance and a rounding. Prints the distances, and
how many times as fast the op is in a training step, with the interval that holds the true number
with a probability of 95%. Exits with 1 where a kernel does not pass.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from environment import print_versions
from torch import nn
from torch.nn import functional

from regraft import ops
from regraft.benchmarking.median_intervals import is_decided
from regraft.benchmarking.paired_measurement import compare

Function = Callable[..., torch.Tensor]
DTYPES = (torch.float32, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel.

    make    rows and width → the inputs, in float64 or integers
    ours    inputs → the op's result
    plain   inputs → the result of the composition
    dtypes  those that the op gives to the kernel
    leaves  how many of the inputs, from the first one, get gradients, if they are no integers
    """

    name: str
    make: Callable[[int, int], tuple[torch.Tensor, ...]]
    ours: Function
    plain: Function
    dtypes: tuple[torch.dtype, ...] = DTYPES
    leaves: int = 5


def normal(*shape: int) -> torch.Tensor:
    """Return normal numbers in float64."""
    return torch.randn(shape, dtype=torch.float64)


def linear(weight: torch.Tensor) -> nn.Linear:
    """Return a layer that has a parameter as its weight."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = weight
    return layer


def group_norm_layer(weight: torch.Tensor, bias: torch.Tensor) -> nn.GroupNorm:
    """Return a layer with these parameters."""
    layer = nn.GroupNorm(8, len(weight), device="meta")
    layer.weight, layer.bias = weight, bias
    return layer


class Norm(nn.Module):  # type: ignore[misc]
    """An RMSNorm with a weight, by the op."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.scale = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.rms_norm(x, weight=self.scale)


def added_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return a residual sum and its norm, in one tensor, by the op."""
    return torch.cat(ops.add_rms_norm(x, residual, Norm(weight)))


def plain_added_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return a residual sum and its norm, in one tensor, by the composition."""
    total = x + residual
    return torch.cat((total, ops.REFERENCES["rms_norm"](total, weight=weight)))


def expert_inputs(rows: int, width: int) -> tuple[torch.Tensor, ...]:
    """Return rows, two of eight experts for each with their weights, and the experts' weights."""
    chosen = torch.rand(rows, 8).topk(2).indices
    shares = torch.rand(rows, 2, dtype=torch.float64)
    return (
        normal(rows, width),
        chosen,
        shares,
        normal(8, width, width) / width**0.5,
        normal(8, width, width // 2) / width**0.5,
    )


def experts(x: Any, index: Any, weights: Any, gate_up: Any, down: Any) -> torch.Tensor:
    """Return the sum of two experts of each row, by the op."""
    return ops.experts(x, index, weights, gate_up, down, functional.silu, 8)


def plain_experts(x: Any, index: Any, weights: Any, gate_up: Any, down: Any) -> torch.Tensor:
    """Return the sum of two experts of each row, by the composition."""
    arguments = (x, index, weights, gate_up, down, functional.silu, 8)
    result: torch.Tensor = ops.REFERENCES["experts"](*arguments)
    return result


def tables(rows: int, width: int) -> tuple[torch.Tensor, ...]:
    """Return a query and the cosines and sines of a rotation, of which both halves are equal."""
    angles = normal(1, 1, rows, width // 2)
    angles = torch.cat((angles, angles), -1)
    return normal(2, 4, rows, width), angles.cos(), angles.sin()


KERNELS = (
    Kernel(
        "rms_norm",
        lambda rows, width: (normal(rows, width), normal(width)),
        lambda x, weight: ops.rms_norm(x, weight=weight),
        lambda x, weight: ops.REFERENCES["rms_norm"](x, weight=weight),
    ),
    Kernel(
        "layer_norm",
        lambda rows, width: (normal(rows, width), normal(width), normal(width)),
        lambda x, weight, bias: ops.functional_layer_norm(x, x.shape[-1:], weight, bias, 1e-5),
        lambda x, weight, bias: functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5),
    ),
    Kernel(
        "swiglu",
        lambda rows, width: (normal(rows, width), normal(rows, width)),
        lambda gate, up: ops.gated_activation(gate, up, functional.silu),
        lambda gate, up: functional.silu(gate) * up,
    ),
    Kernel(
        "geglu",
        lambda rows, width: (normal(rows, width), normal(rows, width)),
        lambda gate, up: ops.gated_activation(gate, up, functional.gelu, approximate="tanh"),
        lambda gate, up: functional.gelu(gate, approximate="tanh") * up,
    ),
    Kernel(
        "softmax",
        lambda rows, width: (normal(rows, width),),
        ops.row_softmax,
        lambda x: x.softmax(-1),
        (torch.float32,),
    ),
    Kernel(
        "cross_entropy",
        lambda rows, width: (normal(rows, width), torch.randint(width, (rows,))),
        ops.cross_entropy,
        functional.cross_entropy,
    ),
    Kernel(
        "rope",
        lambda rows, width: tables(rows, min(width, 128)),
        ops.rotary,
        ops.REFERENCES["rotary"],
        leaves=1,
    ),
    Kernel(
        "group_norm",
        lambda rows, width: (normal(rows // 8, 32, width), normal(32), normal(32)),
        lambda x, weight, bias: ops.group_norm(x, group_norm_layer(weight, bias)),
        lambda x, weight, bias: functional.group_norm(x, 8, weight, bias),
        (torch.float32,),
    ),
    Kernel(
        "fused_add_rms_norm",
        lambda rows, width: (normal(rows, width), normal(rows, width), normal(width)),
        added_norm,
        plain_added_norm,
    ),
    Kernel(
        "linear_cross_entropy",
        lambda rows, width: (
            normal(rows, width),
            normal(8 * width, width) / width**0.5,
            torch.randint(8 * width, (rows,)),
        ),
        lambda x, weight, target: functional.cross_entropy(
            ops.postponed_linear(x, linear(weight)), target
        ),
        lambda x, weight, target: functional.cross_entropy(functional.linear(x, weight), target),
    ),
    # float32 runs in TF32 alone, which is not what the composition does
    Kernel("experts", expert_inputs, experts, plain_experts, (torch.bfloat16,)),
)


@contextlib.contextmanager
def count_launches() -> Iterator[list[str]]:
    """Count the calls of kernels by the ops within a `with` block."""
    launches: list[str] = []
    modules = {name: importlib.import_module(f"regraft.ops.{name}") for name in ("liger", "rotary")}
    modules["rms_norm"] = importlib.import_module("regraft.ops.rms_norm")
    owners = [
        (modules["liger"].LigerKernel, "__call__"),
        (modules["rotary"], "launch_rotary"),
        (modules["rms_norm"], "_fused_module"),
    ]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            launches.append(function.__name__)
            return function(*arguments)

        return call

    with contextlib.ExitStack() as stack:
        for owner, name in owners:
            patch = mock.patch.object(owner, name, counted(getattr(owner, name)))
            stack.enter_context(patch)
        yield launches


def inputs_in(
    kernel: Kernel, inputs: list[torch.Tensor], dtype: torch.dtype, device: torch.device
) -> list[torch.Tensor]:
    """Return copies of inputs on a device, those that are no integers in a dtype; the first ones
    get gradients."""
    moved = [
        tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)
        for tensor in inputs
    ]
    return [
        nn.Parameter(tensor) if number < kernel.leaves and tensor.is_floating_point() else tensor
        for number, tensor in enumerate(moved)
    ]


def results(function: Function, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the result and the gradients of a function, in float64."""
    result = function(*inputs)
    weights = torch.linspace(-1, 1, result.numel(), dtype=torch.float64, device=result.device)
    leaves = [tensor for tensor in inputs if tensor.requires_grad]
    gradients = torch.autograd.grad(
        result, leaves, weights.view(result.shape).to(result.dtype), allow_unused=True
    )
    present = [gradient for gradient in gradients if gradient is not None]
    return [tensor.detach().double() for tensor in (result, *present)]


def distance(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the largest difference, as a part of the largest number."""
    return float((actual - exact).abs().max() / exact.abs().max().clamp(min=1e-30))


def distances(
    kernel: Kernel, inputs: tuple[torch.Tensor, ...], dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[float, float]]:
    """Yield the distances of the op and of the composition from float64, for the result and each
    gradient."""
    rounded = [
        tensor.to(dtype).double() if tensor.is_floating_point() else tensor for tensor in inputs
    ]
    exact = results(kernel.plain, inputs_in(kernel, rounded, torch.float64, device))
    with count_launches() as launches:
        ours = results(kernel.ours, inputs_in(kernel, rounded, dtype, device))
    if not launches:
        raise RuntimeError("the op does not call its kernel")
    plain = results(kernel.plain, inputs_in(kernel, rounded, dtype, device))
    for our_tensor, plain_tensor, exact_tensor in zip(ours, plain, exact, strict=True):
        yield distance(our_tensor, exact_tensor), distance(plain_tensor, exact_tensor)


def is_close(ours: float, plain: float, dtype: torch.dtype) -> bool:
    """Return whether the op is close enough: not much further from the exact result than the
    composition is."""
    return bool(ours <= 2 * plain + 4 * torch.finfo(dtype).eps)


def speed(
    kernel: Kernel, inputs: tuple[torch.Tensor, ...], dtype: torch.dtype, device: torch.device
) -> str:
    """Return how many times as fast the op is as the composition, forward and backward."""
    arguments = inputs_in(kernel, list(inputs), dtype, device)
    leaves = [tensor for tensor in arguments if tensor.requires_grad]
    gradient = torch.randn_like(kernel.plain(*arguments))

    def step(function: Function) -> Callable[[], object]:
        return lambda: torch.autograd.grad(
            function(*arguments), leaves, gradient, allow_unused=True
        )

    measured = compare(
        step(kernel.plain), step(kernel.ours), 12, device, is_enough=is_decided, slice_seconds=0.004
    ).speed
    return f"{measured.median:6.2f} ({measured.low:.2f}-{measured.high:.2f})"


def lines(device: torch.device, sizes: list[tuple[int, int]]) -> Iterator[str]:
    """Yield a line for each kernel, dtype and size; it starts with FAILED where it does not
    pass."""
    for kernel in KERNELS:
        # the interpreter computes bfloat16 unreliably
        for dtype in kernel.dtypes if device.type == "cuda" else (torch.float32,):
            for rows, width in sizes:
                name = (
                    f"{kernel.name:20} {str(dtype).removeprefix('torch.'):9} {rows:6} x {width:5}"
                )
                try:
                    yield f"{name} {measured(kernel, rows, width, dtype, device)}"
                except Exception as problem:  # noqa: BLE001  whatever it is, the others are tried
                    yield f"FAILED {name} {type(problem).__name__}: {str(problem)[:500]}"


def measured(
    kernel: Kernel, rows: int, width: int, dtype: torch.dtype, device: torch.device
) -> str:
    """Return the distances of a kernel, and its speed on CUDA; raise ArithmeticError where it does
    not pass."""
    torch.manual_seed(0)
    with device:
        inputs = kernel.make(rows, width)
    pairs = list(distances(kernel, inputs, dtype, device))
    ours, plain = (max(column) for column in zip(*pairs, strict=True))
    words = f"{ours:9.1e} {plain:9.1e}"
    if not all(is_close(*pair, dtype) for pair in pairs):
        raise ArithmeticError(f"further from float64 than the composition: {words}")
    return f"{words} {speed(kernel, inputs, dtype, device)}" if device.type == "cuda" else words


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    device = torch.device(parser.parse_args().device)
    # gradients of the composition in full precision
    torch.backends.cuda.matmul.allow_tf32 = False
    print_versions()
    sizes = [(16, 128)] if device.type == "cpu" else [(64, 256), (4096, 1024), (8192, 4096)]
    print(
        "kernel, dtype, rows x width; distances from float64 of the op and the composition; speed"
    )
    is_wrong = False
    for line in lines(device, sizes):
        print(line, flush=True)
        is_wrong |= line.startswith("FAILED")
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
