"""Batches whose samples decide for themselves: the split of each region into a part for many
samples and one for each.

The first dimension of a region's inputs and outputs is that of the samples; its size is 1 in the
network's own calls. A statement of a region runs on many samples at once if that gives, on trial
inputs, the result that each sample alone gives. The other statements (numbers, decisions, tensors
without a sample dimension, operations that mix samples) run for each sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from regraft.splitting.checking.result_difference import difference
from regraft.splitting.compiling.compilers import Compiler
from regraft.splitting.compiling.model_and_weight_files import Artifacts
from regraft.splitting.compiling.region_comparison import Uncompilable
from regraft.splitting.compiling.region_compilation import compile_region, signature
from regraft.splitting.compiling.size_limits import Sample
from regraft.splitting.errors import Unsplittable
from regraft.splitting.network import Program
from regraft.splitting.observing.call_observation import observe
from regraft.splitting.program.residual import Region
from regraft.splitting.program.statements import (
    Assign,
    Computation,
    Unpack,
    assigned_names,
    read_names,
    rename,
)
from regraft.splitting.sampling.branch_exploration import RegionModule
from regraft.splitting.sampling.varied_calls import perturb

TRIAL_SAMPLES = 3  # samples on which statements are tried for mixing
BATCH_SIZES = (1, 2, 3, 5)  # sizes of the batches that a region is compared on

Variables = dict[str, Any]  # the values of a region's names in one run


def has_samples(value: Any) -> bool:
    """Return whether the value is a tensor whose first dimension has size 1, that of the samples in
    a call with one sample."""
    return isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape[0] == 1


def compile_batches(
    program: Program, artifacts: Artifacts, compiler: Compiler
) -> list[dict[str, Any]]:
    """Compile the program's regions for batches, which writes their files, and return their entries
    in the manifest, in the order of the regions.

    An entry has the region's input and output names, `together` (the part for many samples) and
    `each` (the part for one); either part may be missing. A part that the compiler cannot take for
    several samples runs for each; one that it cannot take at all is run by torch. Raises
    Unsplittable for a region without samples.
    """
    splits = [split_for_batches(region, program) for region in program.regions]
    entries = [split.entry for split in splits]
    offset = len(splits)  # the files of the parts for one sample are numbered after the others
    batched = {n: split.batched for n, split in enumerate(splits) if split.batched is not None}
    single = {
        n: replace(split.single, number=offset + n)
        for n, split in enumerate(splits)
        if split.single is not None
    }
    for number, region, module in prepare(batched, program, artifacts, compiler):
        try:
            compiled = compiler.compile(region, module, artifacts)
            entries[number]["together"] = {**compiled, **signature(region, module)}
        except Uncompilable:
            single[number] = replace(splits[number].renamed, number=offset + number)
    for number, region, module in prepare(single, program, artifacts, compiler):
        entries[number]["each"] = compile_region(region, module, artifacts, compiler)
    return entries


@dataclass(frozen=True)
class BatchedRegion:
    """A region and its division into two parts.

    renamed: the region with each name assigned once. entry: the region's entry in the manifest,
    without its parts. batched: the part that runs on many samples at once, before the other; None
    where there is none. single: the part that runs on one sample; None where `batched` does
    everything.
    """

    entry: dict[str, Any]
    renamed: Region
    batched: Region | None
    single: Region | None


def split_for_batches(region: Region, program: Program) -> BatchedRegion:
    """Return a region divided into a part for many samples and one for each; raise Unsplittable for
    a region without samples."""
    if not region.samples:
        raise Unsplittable(
            *region.place, f"no example leads to region {region.number}, so it has no batches"
        )
    renamed, names = single_assignment(region)
    entry = {
        "inputs": list(region.inputs),
        "outputs": [names.get(key, key) for key in region.outputs],
    }
    return BatchedRegion(entry, renamed, *split_region(renamed, program))


def prepare(
    regions: dict[int, Region], program: Program, artifacts: Artifacts, compiler: Compiler
) -> Iterator[tuple[int, Region, RegionModule]]:
    """Call the compiler's `prepare` on regions, if it has one; then yield each of them by its
    number in the network, with its module."""
    modules = [program.module_of(region) for region in regions.values()]
    if compiler.prepare is not None:
        compiler.prepare([*regions.values()], modules, artifacts.directory)
    yield from zip(regions, regions.values(), modules, strict=True)


def single_assignment(region: Region) -> tuple[Region, dict[str, str]]:
    """Return a copy of the region in which each name is assigned once, and the new name of each
    assigned name at the region's end."""
    latest: dict[str, str] = {}
    statements: list[Computation] = []
    for number, statement in enumerate(region.statements):
        value = rename(statement.value, latest)
        latest.update({key: f"{key}__{number}_" for key in assigned_names(statement)})
        match statement:
            case Assign(target):
                statements.append(Assign(latest[target], value))
            case Unpack(targets):
                statements.append(Unpack(tuple(latest[target] for target in targets), value))
    outputs = tuple(latest.get(key, key) for key in region.outputs)
    return replace(region, statements=statements, outputs=outputs), latest


def split_region(region: Region, program: Program) -> tuple[Region | None, Region | None]:
    """Divide a region into a part that runs on many samples at once and a part that runs on one
    sample, after it; return both.

    Either part is None where it has no statements that are needed. The samples of the first part
    are batches.
    """
    values = run_statements(region, region.samples, program)
    wide = batchable_statements(region, values, program)
    narrow = [statement for statement in region.statements if statement not in wide]
    computed = {key for statement in wide for key in assigned_names(statement)}
    needed = {key for statement in narrow for key in read_names(statement)} | set(region.outputs)
    batched = make_part(region, wide, sorted(computed & needed), values)
    if batched is None:
        return None, region
    remaining_outputs = [key for key in region.outputs if key not in computed]
    single = make_part(region, narrow, remaining_outputs, values)
    stacked = replace(batched, samples=stack_samples(batched.samples))
    return stacked, single


def batchable_statements(
    region: Region, values: list[Variables], program: Program
) -> list[Computation]:
    """Return the statements of the region that run on many samples at once with the results for
    each alone, in order; [] where the region raises on perturbed inputs. A statement that reads an
    input without rows for samples, or a result of a statement that is left out, is left out, too.

    values: the variables' values on each of the region's samples.
    """
    trials = run_trials(region, program)
    if not trials:
        return []
    unbatched = {key for key in region.inputs if not holds_samples(key, values)}
    batchable: list[Computation] = []
    for statement in region.statements:
        assigned = assigned_names(statement)
        is_batchable = (
            all(holds_samples(key, [*values, *trials]) for key in assigned)
            and not read_names(statement) & unbatched
            and not mixes_samples(region, statement, trials, program)
        )
        if is_batchable:
            batchable.append(statement)
        else:
            unbatched |= assigned
    return batchable


def holds_samples(key: str, values: list[Variables]) -> bool:
    """Return whether the variable `key` has a first dimension of size 1 in all runs, whose
    variables are `values`."""
    return all(has_samples(variables[key]) for variables in values)


def run_statements(region: Region, samples: list[Sample], program: Program) -> list[Variables]:
    """Run the region on each sample and return, for each, the values of its inputs and of all names
    it assigns, by name."""
    names = (
        *region.inputs,
        *(key for statement in region.statements for key in sorted(assigned_names(statement))),
    )
    module = program.module_of(replace(region, outputs=names))
    with torch.no_grad():
        return [dict(zip(names, module(*sample), strict=True)) for sample in samples]


def run_trials(region: Region, program: Program) -> list[Variables]:
    """Run the region on its first sample, and on two of the same sizes with perturbed values;
    return the values of its names in each run, as `run_statements` does.

    Returns [] where the region raises for these inputs.
    """
    generator = torch.Generator().manual_seed(0)
    first = region.samples[0]
    perturbed = [
        tuple(perturb(tensor, generator, None) for tensor in first)
        for _ in range(TRIAL_SAMPLES - 1)
    ]
    try:
        return run_statements(region, [first, *perturbed], program)
    except Exception:  # noqa: BLE001  (whatever torch raises for values that the region does not take)
        return []


def mixes_samples(
    region: Region, statement: Computation, trials: list[Variables], program: Program
) -> bool:
    """Return whether a statement mixes samples: its results for all samples of `trials` at once are
    not those for each alone.

    Also true of a statement that raises for all samples at once, or whose results have as many rows
    as the data decide.
    """
    inputs = tuple(sorted(read_names(statement) & trials[0].keys()))
    outputs = tuple(sorted(assigned_names(statement)))
    module = program.module_of(Region(region.number, [statement], inputs, outputs, region.place))
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
    region: Region, statements: list[Computation], outputs: list[str], values: list[Variables]
) -> Region | None:
    """Return a region of some of a region's statements, whose inputs are the names that they read
    and do not compute, sorted; None where there are no statements or no outputs.

    outputs: the names that the part has to give. values: the variables' values on each sample of
    the undivided region, from which the part's samples are taken.
    """
    if not statements or not outputs:
        return None
    computed: set[str] = set()
    inputs: set[str] = set()
    for statement in statements:
        inputs |= (read_names(statement) & values[0].keys()) - computed
        computed |= assigned_names(statement)
    names = tuple(sorted(inputs))
    samples = [tuple(torch.as_tensor(variables[key]) for key in names) for variables in values]
    return Region(
        region.number,
        statements,
        names,
        tuple(outputs),
        region.place,
        region.places,
        samples,
        numbers=region.numbers.intersection(names),
    )


def stack_samples(samples: list[Sample]) -> list[Sample]:
    """Return batches made of equal samples: of the first sample, batches of the sizes
    `BATCH_SIZES`; of each other, a batch of two."""
    sizes = [
        (sample, size)
        for place, sample in enumerate(samples)
        for size in (BATCH_SIZES if place == 0 else (2,))
    ]
    return [tuple(torch.cat([tensor] * size) for tensor in sample) for sample, size in sizes]
