"""Batches whose samples decide for themselves: the split of each region into a part for many
samples and one for each.

The first dimension of a region's inputs and outputs is that of the samples; its size is 1 in the
network's own calls. A statement of a region runs on many samples at once if that gives, on trial
inputs, the result that each sample alone gives. The other statements (numbers, decisions, tensors
without a sample dimension, operations that mix samples) run for each sample.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.checking.check import difference, perturb
from regraft.splitting.compiling.artifacts import Artifacts
from regraft.splitting.compiling.compilers import Compiler
from regraft.splitting.compiling.regions import compile_region, signature
from regraft.splitting.compiling.samples import Sample, Uncompilable
from regraft.splitting.errors import Unsplittable
from regraft.splitting.observing.probe import observe
from regraft.splitting.program.residual import Region, reads, writes
from regraft.splitting.sampling.explore import RegionModule

TRIAL_SAMPLES = 3  # samples on which statements are tried for mixing
BATCH_SIZES = (1, 2, 3, 5)  # sizes of the batches that a region is compared on


def has_samples(value: Any) -> bool:
    """Return whether the value is a tensor whose first dimension has size 1, as for one sample."""
    return isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape[0] == 1


def compile_batches(
    regions: list[Region],
    model: torch.nn.Module,
    scope: dict[str, Any],
    artifacts: Artifacts,
    compiler: Compiler,
) -> list[dict[str, Any]]:
    """Compile the regions for batches and return their entries in the manifest, in the order of
    `regions`.

    An entry has the region's input and output names, `together` (the part for many samples) and
    `each` (the part for one); either part may be missing. A part that the compiler cannot take for
    several samples runs for each; one that it cannot take at all becomes an eager island. Raises
    Unsplittable for a region without samples.
    """
    entries: list[dict[str, Any]] = []
    renamed_regions: list[Region] = []
    batched_by_number: dict[int, Region] = {}
    single_by_number: dict[int, Region] = {}
    for region in regions:
        if not region.samples:
            raise Unsplittable(
                *region.place, f"no example leads to region {region.number}, so it has no batches"
            )
        renamed, names = single_assignment(region)
        renamed_regions.append(renamed)
        entries.append(
            {
                "inputs": list(region.inputs),
                "outputs": [names.get(key, key) for key in region.outputs],
            }
        )
        batched, narrow = split_region(renamed, model, scope)
        if batched is not None:
            batched_by_number[region.number] = batched
        if narrow is not None:
            single_by_number[region.number] = replace(narrow, number=len(regions) + region.number)
    for number, region, module in prepare(batched_by_number, model, scope, artifacts, compiler):
        try:
            entries[number]["together"] = {
                **compiler.compile(region, module, artifacts),
                **signature(region, module),
            }
        except Uncompilable:
            single_by_number[number] = replace(
                renamed_regions[number], number=len(regions) + number
            )
    for number, region, module in prepare(single_by_number, model, scope, artifacts, compiler):
        entries[number]["each"] = compile_region(region, module, artifacts, compiler)
    return entries


def prepare(
    regions: dict[int, Region],
    model: torch.nn.Module,
    scope: dict[str, Any],
    artifacts: Artifacts,
    compiler: Compiler,
) -> Iterator[tuple[int, Region, RegionModule]]:
    """Yield each region by its number in the network, with its module, once the compiler has
    prepared them."""
    modules = [RegionModule(region, model, scope) for region in regions.values()]
    if compiler.prepare is not None:
        compiler.prepare([*regions.values()], modules, artifacts.directory)
    yield from zip(regions, regions.values(), modules, strict=True)


def single_assignment(region: Region) -> tuple[Region, dict[str, str]]:
    """Return the region with each name assigned once, and the last new name of each
    assigned name."""
    latest: dict[str, str] = {}
    statements = []
    for number, statement in enumerate(copy.deepcopy(region.statements)):
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                node.id = latest.get(node.id, node.id)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                key, node.id = node.id, f"{node.id}__{number}_"
                latest[key] = node.id
        statements.append(statement)
    outputs = tuple(latest.get(key, key) for key in region.outputs)
    return replace(region, statements=statements, outputs=outputs), latest


def split_region(
    region: Region, model: torch.nn.Module, scope: dict[str, Any]
) -> tuple[Region | None, Region | None]:
    """Split a region into a part that runs on many samples at once and a part that runs on one
    sample.

    Either part is None where it has no statements that are needed.
    """
    values = run_statements(region, region.samples, model, scope)
    trials = run_trials(region, model, scope)
    unbatched = {
        key for key in region.inputs if not all(has_samples(variables[key]) for variables in values)
    }
    wide: list[ast.stmt] = []
    for statement in region.statements:
        sampled = all(
            has_samples(variables[key])
            for variables in (*values, *trials)
            for key in writes(statement)
        )
        if (
            not trials
            or not sampled
            or reads(statement) & unbatched
            or mixes(region, statement, trials, model, scope)
        ):
            unbatched |= writes(statement)
        else:
            wide.append(statement)
    narrow = [statement for statement in region.statements if statement not in wide]
    computed = {key for statement in wide for key in writes(statement)}
    needed = {key for statement in narrow for key in reads(statement)} | set(region.outputs)
    batched = make_part(region, wide, sorted(computed & needed), values, stacked=True)
    if batched is None:
        return None, region
    return batched, make_part(
        region,
        narrow,
        [key for key in region.outputs if key not in computed],
        values,
        stacked=False,
    )


def run_statements(
    region: Region, samples: list[Sample], model: torch.nn.Module, scope: dict[str, Any]
) -> list[dict[str, Any]]:
    """Run the region on each sample and return, for each, the value of every name by its name."""
    names = (
        *region.inputs,
        *(key for statement in region.statements for key in sorted(writes(statement))),
    )
    module = RegionModule(replace(region, outputs=names), model, scope)
    with torch.no_grad():
        return [dict(zip(names, module(*sample), strict=True)) for sample in samples]


def run_trials(
    region: Region, model: torch.nn.Module, scope: dict[str, Any]
) -> list[dict[str, Any]]:
    """Run the region on perturbed inputs like the first sample, and on that sample itself.

    Returns what `run_statements` returns; an empty list where the region raises for these inputs.
    """
    generator = torch.Generator().manual_seed(0)
    first = region.samples[0]
    samples = [
        first,
        *(
            tuple(perturb(tensor, generator, None) for tensor in first)
            for _ in range(TRIAL_SAMPLES - 1)
        ),
    ]
    try:
        return run_statements(region, samples, model, scope)
    except Exception:  # noqa: BLE001  (whatever torch raises for values that the region does not take)
        return []


def mixes(
    region: Region,
    statement: ast.stmt,
    trials: list[dict[str, Any]],
    model: torch.nn.Module,
    scope: dict[str, Any],
) -> bool:
    """Return whether a statement mixes samples: its results for a batch are not those for each
    sample.

    Also true of a statement that raises for a batch, or whose results have as many rows as the data
    decide.
    """
    inputs = tuple(sorted(reads(statement) & trials[0].keys()))
    outputs = tuple(sorted(writes(statement)))
    module = RegionModule(
        Region(region.number, [statement], inputs, outputs, region.place), model, scope
    )
    try:
        observed = observe(
            lambda: module(*(torch.cat([trial[key] for trial in trials]) for key in inputs))
        )
    except Exception:  # noqa: BLE001  (whatever torch raises for a size that the statement does not take)
        return True
    if observed.shapes:  # data decide the number of rows
        return True
    expected_results = [torch.cat([trial[key] for trial in trials]) for key in outputs]
    return any(
        difference(result, expected)
        for result, expected in zip(observed.result, expected_results, strict=True)
    )


def make_part(
    region: Region,
    statements: list[ast.stmt],
    outputs: list[str],
    values: list[dict[str, Any]],
    stacked: bool,
) -> Region | None:
    """Make a region of some of a region's statements; None where there are no statements or no
    outputs.

    values: the variables on each sample of the whole region. stacked: whether the samples of the
    new region are batches of several sizes.
    """
    if not statements or not outputs:
        return None
    computed: set[str] = set()
    inputs: set[str] = set()
    for statement in statements:
        inputs |= (reads(statement) & values[0].keys()) - computed
        computed |= writes(statement)
    names = tuple(sorted(inputs))
    samples = [tuple(torch.as_tensor(variables[key]) for key in names) for variables in values]
    if stacked:
        sizes = [
            (sample, size)
            for place, sample in enumerate(samples)
            for size in (BATCH_SIZES if place == 0 else (2,))
        ]
        samples = [tuple(torch.cat([tensor] * size) for tensor in sample) for sample, size in sizes]
    return Region(region.number, statements, names, tuple(outputs), region.place, samples)
