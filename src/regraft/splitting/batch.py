"""Batches whose samples decide for themselves: what a region computes sample by sample, and what for many at once.

The first dimension of what goes in and out is that of samples, 1 in the network's own calls. A statement of a region
runs on several samples at once if that gives, on trial, what it gives for each alone; the rest (numbers, decisions,
what has no such dimension, what mixes samples) runs for each.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.artifacts import Artifacts
from regraft.splitting.check import difference, perturbed
from regraft.splitting.compile import compile_region, signature
from regraft.splitting.compilers import Compiler
from regraft.splitting.errors import Unsplittable
from regraft.splitting.explore import RegionModule
from regraft.splitting.probe import observe
from regraft.splitting.residual import Region, reads, writes
from regraft.splitting.samples import Sample, Untaken

TOGETHER = 3  # samples on which mixing is looked for
SIZES = (1, 2, 3, 5)  # of batches that a region is compared on


def has_samples(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape[0] == 1


def compile_batches(
    regions: list[Region], model: torch.nn.Module, scope: dict[str, Any], artifacts: Artifacts, compiler: Compiler
) -> list[dict[str, Any]]:
    """Each region's entry: `together` and `each`, one of which may be missing, and the names that go in and come out.

    What the compiler cannot take for several samples runs for each; what it cannot take at all is an eager island.
    """
    made: list[dict[str, Any]] = []
    wholes: list[Region] = []
    wide: dict[int, Region] = {}
    each: dict[int, Region] = {}
    for region in regions:
        if not region.samples:
            raise Unsplittable(*region.place, f"no example leads to region {region.number}, so it has no batches")
        whole, names = single_assignment(region)
        wholes.append(whole)
        made.append({"inputs": list(region.inputs), "outputs": [names.get(key, key) for key in region.outputs]})
        several, alone = parts(whole, model, scope)
        if several is not None:
            wide[region.number] = several
        if alone is not None:
            each[region.number] = replace(alone, number=len(regions) + region.number)
    for number, region, module in prepared(wide, model, scope, artifacts, compiler):
        try:
            made[number]["together"] = {**compiler.compile(region, module, artifacts), **signature(region, module)}
        except Untaken:
            each[number] = replace(wholes[number], number=len(regions) + number)
    for number, region, module in prepared(each, model, scope, artifacts, compiler):
        made[number]["each"] = compile_region(region, module, artifacts, compiler)
    return made


def prepared(
    found: dict[int, Region], model: torch.nn.Module, scope: dict[str, Any], artifacts: Artifacts, compiler: Compiler
) -> Iterator[tuple[int, Region, RegionModule]]:
    """Regions by their numbers in the network, ready for the compiler."""
    modules = [RegionModule(region, model, scope) for region in found.values()]
    if compiler.prepare is not None:
        compiler.prepare([*found.values()], modules, artifacts.directory)
    yield from zip(found, found.values(), modules, strict=True)


def single_assignment(region: Region) -> tuple[Region, dict[str, str]]:
    """The region with each name assigned once, and under which name each one ends."""
    latest: dict[str, str] = {}
    statements = []
    for number, statement in enumerate(copy.deepcopy(region.statements)):
        for one in ast.walk(statement):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load):
                one.id = latest.get(one.id, one.id)
        for one in ast.walk(statement):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                key, one.id = one.id, f"{one.id}__{number}_"
                latest[key] = one.id
        statements.append(statement)
    outputs = tuple(latest.get(key, key) for key in region.outputs)
    return replace(region, statements=statements, outputs=outputs), latest


def parts(region: Region, model: torch.nn.Module, scope: dict[str, Any]) -> tuple[Region | None, Region | None]:
    """The statements that run on many samples at once, and those that run on one, as regions."""
    values = followed(region, region.samples, model, scope)
    trials = tried(region, model, scope)
    apart = {key for key in region.inputs if not all(has_samples(one[key]) for one in values)}
    wide: list[ast.stmt] = []
    for statement in region.statements:
        own = all(has_samples(one[key]) for one in (*values, *trials) for key in writes(statement))
        if not trials or not own or reads(statement) & apart or mixes(region, statement, trials, model, scope):
            apart |= writes(statement)
        else:
            wide.append(statement)
    narrow = [one for one in region.statements if one not in wide]
    made = {key for one in wide for key in writes(one)}
    wanted = {key for one in narrow for key in reads(one)} | set(region.outputs)
    several = part(region, wide, sorted(made & wanted), values, stacked=True)
    if several is None:
        return None, region
    return several, part(region, narrow, [key for key in region.outputs if key not in made], values, stacked=False)


def followed(
    region: Region, samples: list[Sample], model: torch.nn.Module, scope: dict[str, Any]
) -> list[dict[str, Any]]:
    """What every name of the region holds, on each of the samples."""
    names = (*region.inputs, *(key for one in region.statements for key in sorted(writes(one))))
    module = RegionModule(replace(region, outputs=names), model, scope)
    with torch.no_grad():
        return [dict(zip(names, module(*sample), strict=True)) for sample in samples]


def tried(region: Region, model: torch.nn.Module, scope: dict[str, Any]) -> list[dict[str, Any]]:
    """The same on inputs like the first sample; nothing where the region does not take them."""
    generator = torch.Generator().manual_seed(0)
    first = region.samples[0]
    samples = [first, *(tuple(perturbed(one, generator, None) for one in first) for _ in range(TOGETHER - 1))]
    try:
        return followed(region, samples, model, scope)
    except Exception:  # noqa: BLE001  (whatever torch raises for values that the region does not take)
        return []


def mixes(
    region: Region, statement: ast.stmt, trials: list[dict[str, Any]], model: torch.nn.Module, scope: dict[str, Any]
) -> bool:
    """Whether samples decide each other's results in a statement, or it does not run on several."""
    inputs = tuple(sorted(reads(statement) & trials[0].keys()))
    outputs = tuple(sorted(writes(statement)))
    module = RegionModule(Region(region.number, [statement], inputs, outputs, region.place), model, scope)
    try:
        seen = observe(lambda: module(*(torch.cat([one[key] for one in trials]) for key in inputs)), ())
    except Exception:  # noqa: BLE001  (whatever torch raises for a size that the statement does not take)
        return True
    if seen.shapes:  # data decide how many rows there are
        return True
    singles = [torch.cat([one[key] for one in trials]) for key in outputs]
    return any(difference(one, single) for one, single in zip(seen.result, singles, strict=True))


def part(
    region: Region, statements: list[ast.stmt], outputs: list[str], values: list[dict[str, Any]], stacked: bool
) -> Region | None:
    """Some of a region's statements as a region with samples of its own, in several sizes where they are stacked."""
    if not statements or not outputs:
        return None
    made: set[str] = set()
    inputs: set[str] = set()
    for one in statements:
        inputs |= (reads(one) & values[0].keys()) - made
        made |= writes(one)
    names = tuple(sorted(inputs))
    samples = [tuple(torch.as_tensor(one[key]) for key in names) for one in values]
    if stacked:
        sizes = [(one, size) for place, one in enumerate(samples) for size in (SIZES if place == 0 else (2,))]
        samples = [tuple(torch.cat([one] * size) for one in sample) for sample, size in sizes]
    return Region(region.number, statements, names, tuple(outputs), region.place, samples)
