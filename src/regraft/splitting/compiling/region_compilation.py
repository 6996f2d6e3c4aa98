"""Compilation of regions: one that the compiler cannot take becomes an eager island, which torch
runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regraft.splitting.compiling.compilers import Compiler
from regraft.splitting.compiling.model_and_weight_files import Artifacts, digest
from regraft.splitting.compiling.region_comparison import (
    Uncompilable,
    compare_values,
    first_line,
    program_function,
    trace_program,
)
from regraft.splitting.errors import UncompilableRegion, Unsplittable
from regraft.splitting.program.residual import Region
from regraft.splitting.program.statements import write_statement
from regraft.splitting.sampling.branch_exploration import RegionModule, common_sizes


def compile_region(
    region: Region, module: RegionModule, artifacts: Artifacts, compiler: Compiler
) -> dict[str, Any]:
    """Compile a region, write its files and return its entry in the manifest, with its place in
    the source, and the types and shapes of its inputs and outputs.

    A region that the compiler cannot take is exported for torch to run; its entry has "reason".
    Raises Unsplittable for a region without samples, or that torch.export cannot take either.
    """
    if not region.samples:
        raise Unsplittable(
            *region.place, f"no example leads to region {region.number}: {region_text(region)}"
        )
    try:
        entry = compile_samples(region, module, artifacts, compiler)
    except Uncompilable as problem:
        entry = export_island(region, module, artifacts.directory, str(problem))
    place = "{}:{}".format(*region.place)
    return {**entry, "place": place, **signature(region, module)}


def compile_samples(
    region: Region, module: RegionModule, artifacts: Artifacts, compiler: Compiler
) -> dict[str, Any]:
    """Compile a region and return its entry, as the compiler does; where it does not take the sizes
    of samples that were made up, without these samples. Raises Uncompilable."""
    try:
        return compiler.compile(region, module, artifacts)
    except Uncompilable:
        if not region.made_up:
            raise
    del region.samples[-region.made_up :]
    region.made_up = 0
    return compiler.compile(region, module, artifacts)


def signature(region: Region, module: RegionModule) -> dict[str, Any]:
    """Return a dictionary of "inputs" and "outputs": the name, type and shape of each, as the
    region's samples show them; a size that differs between the samples is None.

    Raises Unsplittable where sizes decide how many dimensions there are.
    """
    with torch.no_grad():
        results_of_samples = [
            tuple(torch.as_tensor(result) for result in module(*sample))
            for sample in region.samples
        ]
    descriptions: dict[str, Any] = {}
    for kind, names, samples in (
        ("inputs", region.inputs, region.samples),
        ("outputs", region.outputs, results_of_samples),
    ):
        if any(
            len({tensor.ndim for tensor in tensors}) > 1 for tensors in zip(*samples, strict=True)
        ):
            raise Unsplittable(
                *region.place, f"{region_text(region)}: sizes decide how many dimensions there are"
            )
        descriptions[kind] = [
            {
                "name": key,
                "type": str(first.dtype).removeprefix("torch."),
                "shape": common_sizes([tensor.shape for tensor in tensors]),
            }
            for key, first, tensors in zip(
                names, samples[0], zip(*samples, strict=True), strict=True
            )
        ]
    return descriptions


def export_island(
    region: Region, module: RegionModule, directory: Path, reason: str
) -> dict[str, Any]:
    """Write the region to `directory` as an archive of torch.export, which the host runs with
    torch, and return its entry in the manifest.

    reason: why the compiler cannot take the region; the entry has it. Raises UncompilableRegion
    where torch.export cannot take it either, or gives other results.
    """
    file = f"island_{region.number}.pt2"
    try:
        exported = trace_program(region, module)
        network = program_function(exported)

        def run(sample: tuple[torch.Tensor, ...]) -> list[Any]:
            """Return the results of the program; sizes are tensors, as for the host."""
            return [torch.as_tensor(result) for result in network(*sample)]

        compare_values(region, module, run, "torch.export")
        torch.export.save(exported, directory / file)
    except Exception as problem:
        both = f"{reason}; torch.export cannot take it either: {first_line(problem)}"
        reason = f"{region_text(region)}: {both}"
        raise UncompilableRegion(region.place, reason, frozenset(region.places)) from problem
    used = list(range(len(region.inputs)))
    return {
        "file": file,
        "used": used,
        "sha256": digest((directory / file).read_bytes()),
        "reason": f"{region.place[0]}:{region.place[1]}: {reason}",
    }


def region_text(region: Region) -> str:
    """Return the region's statements as one line of Python for messages, cut to 200 characters."""
    return "; ".join(map(write_statement, region.statements))[:200]
