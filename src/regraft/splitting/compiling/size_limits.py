"""The sizes for which a region computes as it was traced.

Python code in a region may decide by a size: a tracer takes the side that its sample takes. A run
with symbolic sizes gives a guard for each such decision. A compiled region is right where all
guards hold; where none can be had, it is right for sizes up to the largest that was compared.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch

from regraft.splitting.compiling.samples import (
    COMPARED_SIZES,
    Sample,
    excludes_small_sizes_alone,
    is_within,
    largest_sample,
    varying_axes,
)
from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.explore import RegionModule

# What a guard may consist of, so that NumPy's host and a single file can compute it.
_PLAIN = (
    ast.Expression,
    ast.Compare,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.Subscript,
    ast.Attribute,
    ast.Name,
    ast.Constant,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)


def size_limits(region: Region, module: RegionModule) -> list[str]:
    """Return the conditions on sizes under which a region computes as on its samples, as Python
    expressions of its inputs: `x.shape[0] <= 50`; empty where sizes do not differ."""
    axes = varying_axes(region)
    if not axes:
        return []
    sample = largest_sample(region)
    try:
        guards = list(_guards(region, module, sample, axes))
    except Exception:  # noqa: BLE001 - whatever PyTorch cannot run without data
        return _compared_ranges(region, axes)
    samples = [dict(zip(region.inputs, sample, strict=True)) for sample in region.samples]
    violated = [guard for guard in guards if not all(is_within(guard, names) for names in samples)]
    if all(excludes_small_sizes_alone(guard, region) for guard in violated):
        return guards
    return _compared_ranges(region, axes)  # the run specialised a size that the traces left open


def _guards(
    region: Region, module: RegionModule, sample: Sample, axes: dict[str, dict[int, str]]
) -> Iterator[str]:
    """Yield the guards of a run in which the dimensions `axes` have symbolic sizes.

    Raises whatever PyTorch raises for an operation that it cannot run without data, and ValueError
    for a guard that a host cannot compute.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
    from torch.utils._sympy.printers import PythonPrinter

    shape_env = ShapeEnv(duck_shape=False, specialize_zero_one=False)
    mode = FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=True)
    inputs, sizes = [], {}
    for key, tensor in zip(region.inputs, sample, strict=True):
        open_dims = axes.get(key, {})
        dims = [
            DimDynamic.DYNAMIC if dim in open_dims else DimDynamic.STATIC
            for dim in range(tensor.dim())
        ]
        context = StatelessSymbolicContext(dynamic_sizes=dims)
        symbolic_input = mode.from_tensor(tensor, symbolic_context=context)
        inputs.append(symbolic_input)
        sizes.update(
            {symbolic_input.shape[dim].node.expr: f"{key}.shape[{dim}]" for dim in open_dims}
        )

    class Printer(PythonPrinter):  # type: ignore[misc]
        """Prints the size of an input in the place of its symbol."""

        def _print_Symbol(self, symbol: Any) -> str:
            return sizes[symbol]

    with torch.no_grad(), mode:
        module(*inputs)
    for guard in shape_env.guards:
        text = Printer().doprint(guard.expr)
        if not all(isinstance(node, _PLAIN) for node in ast.walk(ast.parse(text, mode="eval"))):
            raise ValueError(f"a guard that a host cannot compute: {text}")
        yield text


def _compared_ranges(region: Region, axes: dict[str, dict[int, str]]) -> list[str]:
    """Return the conditions that no size exceeds the largest that the region is compared on."""
    limits = []
    for key, *tensors in zip(region.inputs, *region.samples, strict=True):
        for dim in axes.get(key, ()):
            largest = max(*COMPARED_SIZES, *(tensor.shape[dim] for tensor in tensors))
            limits.append(f"{key}.shape[{dim}] <= {largest}")
    return limits
