"""The sizes for which a region computes as it was traced.

Python code in a region may decide by a size: a tracer takes the side that its sample takes. A run
with symbolic sizes notes a guard for each such decision; the guards of a sample are the sizes on
its path through the code. A compiled region is right on the paths of all samples on which it was
compared. Where no guards can be had, it is right for the sizes that were compared, one by one.
"""

from __future__ import annotations

import ast
import math
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.explore import RegionModule, common_sizes

Sample = tuple[torch.Tensor, ...]

# What a guard may consist of, so that a host can compute it.
_NODES = (
    ast.Expression,
    ast.Compare,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.Subscript,
    ast.Attribute,
    ast.Name,
    ast.Constant,
    ast.Call,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)
_FUNCTIONS = {"abs": abs, "max": max, "min": min, "math": math}
_TORCH = Path(torch.__file__).parent
_LARGEST_ROOT = 4096  # guards with larger numbers are kept, whatever they exclude


class DecidesByData(Exception):
    """Signals that Python code in a region decides by a size that values decide."""


@dataclass
class SizeLimits:
    """The sizes for which a region is right: any of its `paths`, each a tuple of conditions on
    sizes of the inputs, as Python expressions. `guarded`: whether conditions are those of runs with
    symbolic sizes; else each path is a combination of sizes."""

    region: Region
    module: RegionModule
    guarded: bool = True
    paths: list[tuple[str, ...]] = field(default_factory=list)

    def holds(self, sample: Sample) -> bool:
        """Return whether a sample has sizes of one of the paths."""
        inputs = dict(zip(self.region.inputs, sample, strict=True))
        return any(all(is_within(condition, inputs) for condition in path) for path in self.paths)

    def extend(self, sample: Sample) -> None:
        """Add the path of a further sample on which the compiled region was equal to torch, unless
        it has guards that cannot be had."""
        try:
            path = self.path_of(sample) if self.guarded else _own_sizes(self.region, sample)
        except Exception:  # noqa: BLE001 - whatever PyTorch cannot run without data
            return
        if path not in self.paths:
            self.paths.append(path)

    def path_of(self, sample: Sample) -> tuple[str, ...]:
        """Return the guards of a sample's path; raises whatever PyTorch cannot run without data."""
        return tuple(dict.fromkeys(_guards(self.region, self.module, sample)))

    def conditions(self) -> list[str]:
        """Return the limits as conditions that all have to hold; [] where they exclude nothing."""
        if any(not path for path in self.paths):
            return []
        if len(self.paths) == 1:
            return list(self.paths[0])
        if not self.guarded and all(len(path) == 1 for path in self.paths):
            return [_as_ranges([path[0] for path in self.paths])]
        common = [text for text in self.paths[0] if all(text in path for path in self.paths)]
        choice = self._choice_beside(common)
        return [*common, choice] if choice and not self._excludes_nothing(choice) else common

    def _choice_beside(self, common: list[str]) -> str:
        """Return the condition that, for one of the paths, all conditions beside the `common` ones
        hold: `(a) and (b) or (c)`; "" where a path has no others."""
        further = [[text for text in path if text not in common] for path in self.paths]
        if not all(further):
            return ""
        alternatives = (" and ".join(f"({text})" for text in texts) for texts in further)
        return " or ".join(dict.fromkeys(alternatives))

    def _excludes_nothing(self, condition: str) -> bool:
        """Return whether a condition holds for every value of the one size in it.

        The condition is tried on all sizes up to the largest root that its polynomials can have,
        and on two large ones. The answer is False for conditions on several sizes, with quotients
        or calls, or with numbers beyond `_LARGEST_ROOT`.
        """
        tree = ast.parse(condition, mode="eval")
        sizes = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
        is_polynomial = all(
            isinstance(node.op, ast.Add | ast.Sub | ast.Mult)
            for node in ast.walk(tree)
            if isinstance(node, ast.BinOp)
        )
        has_calls = any(isinstance(node, ast.Call) for node in ast.walk(tree))
        numbers = [
            abs(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, int)
        ]
        bound = sum(numbers) + 2
        if len(sizes) != 1 or has_calls or not is_polynomial or bound > _LARGEST_ROOT:
            return False
        text = condition.replace(sizes.pop(), "size")
        return all(is_within(text, {"size": size}) for size in (*range(1, bound), 10**6, 10**6 + 1))


def limits_of(region: Region, module: RegionModule, sized_by_data: bool) -> SizeLimits:
    """Return the limits of a region's sizes by the paths of its samples; `sized_by_data`: values
    decide sizes in it.

    Raises DecidesByData where Python code may decide by a size that values decide.
    """
    limits = SizeLimits(region, module)
    if not varying_axes(region):
        if sized_by_data:
            _check_data(region, module)
        limits.paths.append(())
        return limits
    try:
        limits.paths = list(dict.fromkeys(map(limits.path_of, region.samples)))
    except Exception:  # noqa: BLE001 - whatever PyTorch cannot run without data
        limits.guarded = False
        limits.paths = [_own_sizes(region, sample) for sample in region.samples]
    return limits


def is_within(condition: str, inputs: Mapping[str, Any]) -> bool:
    """Return whether inputs by name, tensors or arrays, have sizes for which a condition holds."""
    try:
        return bool(eval(condition, {"__builtins__": {}, **_FUNCTIONS}, dict(inputs)))
    except ArithmeticError:  # a quotient of sizes that are no path's
        return False


def varying_axes(region: Region) -> dict[str, dict[int, str]]:
    """Return the dimensions of the inputs that differ between the samples, each with a name, by
    input."""
    axes: dict[str, dict[int, str]] = {}
    for key, *tensors in zip(region.inputs, *region.samples, strict=True):
        dims = [
            dim
            for dim, size in enumerate(common_sizes([tensor.shape for tensor in tensors]))
            if size is None
        ]
        if dims:
            axes[key] = {dim: f"{key}_{dim}" for dim in dims}
    return axes


def _as_ranges(equalities: list[str]) -> str:
    """Return the condition that one of these equalities of one size holds, as ranges."""
    size = equalities[0].rpartition(" == ")[0]
    numbers = sorted({int(text.rpartition(" == ")[2]) for text in equalities})
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    ranges = zip(starts, ends, strict=True)
    return " or ".join(
        f"{size} == {start}" if start == end else f"{start} <= {size} <= {end}"
        for start, end in ranges
    )


def _own_sizes(region: Region, sample: Sample) -> tuple[str, ...]:
    """Return the conditions, such as `x.shape[0] == 3`, that the sizes that differ between the
    region's samples are those of `sample`."""
    axes = varying_axes(region)
    return tuple(
        f"{key}.shape[{dim}] == {tensor.shape[dim]}"
        for key, tensor in zip(region.inputs, sample, strict=True)
        for dim in axes.get(key, ())
    )


def _check_data(region: Region, module: RegionModule) -> None:
    """Raise DecidesByData where a region does not run without knowing the sizes that values
    decide."""
    try:
        list(_guards(region, module, region.samples[0]))
    except Exception as problem:
        if not _is_check_for_rows(problem):
            reason = "Python code may decide by a size that values decide"
            raise DecidesByData(reason) from problem


def _is_check_for_rows(problem: Exception) -> bool:
    """Return whether an operation of PyTorch, not code outside of PyTorch, asks whether there are
    any rows: regions are compared without rows in any case."""
    condition = getattr(problem, "cond", None)
    is_about_none = getattr(condition, "rel_op", "") in ("==", "!=") and 0 in getattr(
        condition, "args", ()
    )
    files = [
        Path(frame.filename) for frame in reversed(traceback.extract_tb(problem.__traceback__))
    ]
    deciding = next((file for file in files if not _compares_sizes(file)), None)
    return is_about_none and deciding is not None and deciding.is_relative_to(_TORCH)


def _compares_sizes(file: Path) -> bool:
    """Return whether a file of PyTorch implements symbolic sizes."""
    return file == _TORCH / "__init__.py" or file.is_relative_to(_TORCH / "fx" / "experimental")


def _guards(region: Region, module: RegionModule, sample: Sample) -> Iterator[str]:
    """Yield the guards of a run in which the sizes that differ between samples are symbols.

    Raises whatever PyTorch raises for an operation that it cannot run without data, and ValueError
    for a guard that a host cannot compute.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
    from torch.utils._sympy.printers import PythonPrinter

    axes = varying_axes(region)
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

    with torch.no_grad(), _without_texts(), without_fast_path(), mode:
        module(*inputs)
    for guard in shape_env.guards:
        text = Printer().doprint(guard.expr)
        tree = ast.parse(text, mode="eval")
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        is_plain = all(isinstance(node, _NODES) for node in ast.walk(tree))
        if not is_plain or not names <= {*region.inputs, *_FUNCTIONS}:
            raise ValueError(f"a guard that a host cannot compute: {text}")
        yield text


@contextmanager
def without_fast_path() -> Iterator[None]:
    """Let Transformer layers compute with ordinary operations in the `with` block, which run
    without data and have a meaning in ONNX."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


@contextmanager
def _without_texts() -> Iterator[None]:
    """Let a symbolic size that becomes text raise TypeError in the `with` block: as text it decides
    without a guard."""

    def refuse(*_: Any) -> str:
        raise TypeError("a symbolic size as text")

    with (
        mock.patch.object(torch.SymInt, "__str__", refuse, create=True),
        mock.patch.object(torch.SymInt, "__repr__", refuse),
        mock.patch.object(torch.SymInt, "__format__", refuse, create=True),
    ):
        yield
