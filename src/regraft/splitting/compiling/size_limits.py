"""The sizes for which a region computes as it was traced.

Python code in a region may decide by a size: a tracer takes the side that its sample takes. A run
with symbolic sizes notes a guard for each such decision; the guards of a sample are the sizes on
its path through the code. A compiled region is right on the paths of all samples on which it was
compared. Where no guards can be had, it is right for the sizes that were compared, one by one.
"""

from __future__ import annotations

import ast
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from regraft.splitting.compiling.size_guards import (
    GUARD_FUNCTIONS,
    TORCH_FOLDER,
    symbolic_guards,
)
from regraft.splitting.program.residual import Region
from regraft.splitting.program.statements import assigned_names, read_names
from regraft.splitting.sampling.branch_exploration import RegionModule, common_sizes

Sample = tuple[torch.Tensor, ...]

_LARGEST_ROOT = 4096  # guards with larger numbers are kept, whatever they exclude


class DecidesByData(Exception):
    """Signals that Python code in a region decides by a size that values decide."""


@dataclass
class SizeLimits:
    """The sizes for which a compiled region is right: those that fulfil all conditions of one of
    the `paths`. A condition is a Python expression on sizes of the inputs, such as `x.shape[0] >
    4`.

    guarded: whether the conditions are decisions of Python code, from runs with symbolic sizes;
    else each path states the sizes of one sample. of_code: the conditions by which Python code
    decides, unlike those that only operations of PyTorch ask for.
    """

    region: Region
    module: RegionModule
    guarded: bool = True
    paths: list[tuple[str, ...]] = field(default_factory=list)
    of_code: set[str] = field(default_factory=set)

    def holds(self, sample: Sample) -> bool:
        """Return whether the sizes of a sample fulfil all conditions of one of the paths, for each
        part of the region apart."""
        return all(part._is_on_path(sample) for part in self._parts())

    def _is_on_path(self, sample: Sample) -> bool:
        """Return whether the sizes of a sample fulfil all conditions of one of the paths."""
        inputs = dict(zip(self.region.inputs, sample, strict=True))
        return any(all(is_within(condition, inputs) for condition in path) for path in self.paths)

    def extend(self, sample: Sample) -> None:
        """Add the path of a further sample on which the compiled region was equal to torch; nothing
        is added where it is on one of the paths, or where its conditions cannot be determined."""
        if self._is_on_path(sample):
            return
        try:
            path = self.path_of(sample) if self.guarded else _own_sizes(self.region, sample)
        except Exception:  # noqa: BLE001 - whatever PyTorch cannot run without data
            return
        self.paths.append(path)

    def path_of(self, sample: Sample) -> tuple[str, ...]:
        """Return the conditions on sizes by which Python code in the region decides for a sample;
        raises whatever PyTorch raises in a run without data."""
        axes = varying_axes(self.region)
        guards = list(symbolic_guards(self.region, self.module, sample, axes))
        self.of_code.update(guard.text for guard in guards if not guard.of_operation)
        return tuple(dict.fromkeys(guard.text for guard in guards))

    def conditions(self) -> list[str]:
        """Return the limits as conditions all of which have to hold; [] where they exclude no
        size."""
        return [text for part in self._parts() for text in part._own_conditions()]

    def _parts(self) -> list[SizeLimits]:
        """Return the limits of each part of the region: a part takes any of its paths, whatever
        path another part takes. Parts are groups of independent inputs (`independent_inputs`). In a
        group by whose sizes no Python code decides, a single size by which operations tell whether
        there is one row is a part, too."""
        texts = dict.fromkeys(text for path in self.paths for text in path)
        coded_names = {key for text in self.of_code for key in names_in(text)}
        parts = []
        for names in independent_inputs(self.region):
            group = [text for text in texts if names & names_in(text)]
            is_plain = self.guarded and not names & coded_names
            sizes = {text: single_size(text) if is_plain else "" for text in group}
            parts += [
                self._projected([text for text in group if sizes[text] == size])
                for size in dict.fromkeys(["", *sizes.values()])
            ]
        return parts or [self]

    def _projected(self, texts: list[str]) -> SizeLimits:
        """Return the limits with those conditions alone that are among `texts`."""
        paths = [tuple(text for text in path if text in texts) for path in self.paths]
        return replace(self, paths=list(dict.fromkeys(paths)))

    def _own_conditions(self) -> list[str]:
        """Return the limits as conditions all of which have to hold, with the parts of the region
        taken together: what all paths have in common, and the choice among what they have beside;
        [] where a path has no conditions."""
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
        """Return one condition that holds where, for one of the paths, all its conditions hold that
        are not `common`: `(a) and (b) or (c)`; "" where a path has no others."""
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
        nodes = list(ast.walk(ast.parse(condition, mode="eval")))
        sizes = {ast.unparse(node) for node in nodes if isinstance(node, ast.Subscript)}
        numbers = [
            abs(node.value)
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, int)
        ]
        bound = sum(numbers) + 2
        is_of_one_size = len(sizes) == 1 and len(names_in(condition)) == 1
        if not is_of_one_size or not _is_polynomial(nodes) or bound > _LARGEST_ROOT:
            return False
        text = condition.replace(sizes.pop(), "size")
        return all(is_within(text, {"size": size}) for size in (*range(1, bound), 10**6, 10**6 + 1))


def limits_of(region: Region, module: RegionModule, sized_by_data: bool) -> SizeLimits:
    """Return the limits of a region's sizes, with the paths of its samples. Where PyTorch cannot
    run the region with symbolic sizes, the paths are the samples' own sizes, and `guarded` becomes
    False.

    sized_by_data: whether values decide sizes in it; DecidesByData is raised where Python code may
    decide by such a size.
    """
    limits = SizeLimits(region, module)
    if not varying_axes(region) and not region.sizes:
        if sized_by_data:
            _check_data(region, module)
        limits.paths.append(())
        return limits
    try:
        for sample in region.samples:
            if not limits._is_on_path(sample):  # else its run would decide as the path's did
                limits.paths.append(limits.path_of(sample))
    except Exception:  # noqa: BLE001 - whatever PyTorch cannot run without data
        if sized_by_data:
            _check_data(region, module)
        limits.guarded = False
        limits.paths = [_own_sizes(region, sample) for sample in region.samples]
    return limits


def independent_inputs(region: Region) -> list[frozenset[str]]:
    """Return the inputs of a region in groups: no statement reads, itself or through others, inputs
    of two groups."""
    group_of = {key: {key} for key in region.inputs}
    for statement in region.statements:
        joined = set(assigned_names(statement))
        for key in read_names(statement) | assigned_names(statement):
            joined |= group_of.get(key, set())
        group_of.update(dict.fromkeys(joined, joined))
    inputs = set(region.inputs)
    groups = {frozenset(group & inputs) for group in group_of.values()}
    return sorted(groups - {frozenset()}, key=min)


def single_size(condition: str) -> str:
    """Return the size, such as `x.shape[0]`, of a condition that compares it with 0, 1 or 2; "" for
    any other condition."""
    tree = ast.parse(condition, mode="eval").body
    if not isinstance(tree, ast.Compare) or len(tree.ops) > 1:
        return ""
    limit = tree.comparators[0]
    is_small = isinstance(limit, ast.Constant) and limit.value in (0, 1, 2)
    return ast.unparse(tree.left) if is_small and isinstance(tree.left, ast.Subscript) else ""


def _is_polynomial(nodes: list[ast.AST]) -> bool:
    """Return whether the nodes of a condition compute with `+`, `-` and `*` only, without calls."""
    operators = [node.op for node in nodes if isinstance(node, ast.BinOp)]
    are_polynomial = all(isinstance(op, ast.Add | ast.Sub | ast.Mult) for op in operators)
    return are_polynomial and not any(isinstance(node, ast.Call) for node in nodes)


def names_in(condition: str) -> set[str]:
    """Return the names in a condition."""
    return {node.id for node in ast.walk(ast.parse(condition)) if isinstance(node, ast.Name)}


def is_within(condition: str, inputs: Mapping[str, Any]) -> bool:
    """Return whether a condition holds for the sizes of inputs, tensors or arrays by name; False
    where it divides by zero."""
    try:
        return bool(eval(condition, {"__builtins__": {}, **GUARD_FUNCTIONS}, dict(inputs)))
    except ArithmeticError:  # a quotient of sizes that are no path's
        return False


def varying_axes(region: Region) -> dict[str, dict[int, str]]:
    """Return, for each input of which some sizes differ between the region's samples, these
    dimensions, each with a name for exporters."""
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


def sizes_not_shown(region: Region) -> list[str]:
    """Return a condition, such as `x.shape[0] == 3`, for each size of an input that may differ, and
    that is the same in all samples: the region was compiled for it."""
    axes = varying_axes(region)
    return [
        f"{key}.shape[{dim}] == {tensor.shape[dim]}"
        for key, tensor, dims in zip(region.inputs, region.samples[0], region.open, strict=False)
        for dim in sorted(dims)
        if dim not in axes.get(key, ())
    ]


def _as_ranges(equalities: list[str]) -> str:
    """Return one condition that holds where one of these equalities of the same size does, such as
    `1 <= x.shape[0] <= 3`."""
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
    """Return conditions, such as `x.shape[0] == 3`, which state the sizes of `sample` in those
    dimensions that differ between the region's samples."""
    axes = varying_axes(region)
    return tuple(
        f"{key}.shape[{dim}] == {tensor.shape[dim]}"
        for key, tensor in zip(region.inputs, sample, strict=True)
        for dim in axes.get(key, ())
    )


def _check_data(region: Region, module: RegionModule) -> None:
    """Raise DecidesByData where a run of the region in which sizes decided by values are unknown
    raises. A question of a PyTorch operation whether there are any rows is allowed."""
    try:
        list(symbolic_guards(region, module, region.samples[0], {}))
    except Exception as problem:
        if not _is_check_for_rows(problem):
            reason = "Python code may decide by a size that values decide"
            raise DecidesByData(reason) from problem


def _is_check_for_rows(problem: Exception) -> bool:
    """Return whether an exception of a run with symbolic sizes is a comparison with 0 by an
    operation of PyTorch: it asks whether there are any rows, which regions are compared without in
    any case."""
    condition = getattr(problem, "cond", None)
    is_about_none = getattr(condition, "rel_op", "") in ("==", "!=") and 0 in getattr(
        condition, "args", ()
    )
    files = [
        Path(frame.filename) for frame in reversed(traceback.extract_tb(problem.__traceback__))
    ]
    deciding = next((file for file in files if not _compares_sizes(file)), None)
    return is_about_none and deciding is not None and deciding.is_relative_to(TORCH_FOLDER)


def _compares_sizes(file: Path) -> bool:
    """Return whether a file of PyTorch implements symbolic sizes."""
    return file == TORCH_FOLDER / "__init__.py" or file.is_relative_to(
        TORCH_FOLDER / "fx" / "experimental"
    )
