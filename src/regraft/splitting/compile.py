"""Regions go to the compiler; one that it cannot take becomes an eager island, which torch runs."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import torch

from regraft.splitting.artifacts import Artifacts, digest
from regraft.splitting.compilers import Compiler
from regraft.splitting.errors import Unsplittable
from regraft.splitting.explore import RegionModule
from regraft.splitting.residual import Region
from regraft.splitting.samples import Untaken, common, compare_values, first_line, program


def compile_region(region: Region, module: RegionModule, artifacts: Artifacts, compiler: Compiler) -> dict[str, Any]:
    """The region's entry in the manifest; its files are written. Where it stays eager, the entry has `reason`."""
    if not region.samples:
        raise Unsplittable(*region.place, f"no example leads to region {region.number}: {text(region)}")
    try:
        entry = compiler.compile(region, module, artifacts)
    except Untaken as problem:
        entry = island(region, module, artifacts.directory, str(problem))
    return {**entry, **signature(region, module)}


def signature(region: Region, module: RegionModule) -> dict[str, Any]:
    """Name, type and shape of what goes in and what comes out; null is an open size."""
    with torch.no_grad():
        given = [tuple(torch.as_tensor(one) for one in module(*sample)) for sample in region.samples]
    found: dict[str, Any] = {}
    for kind, names, samples in (("inputs", region.inputs, region.samples), ("outputs", region.outputs, given)):
        if any(len({one.ndim for one in each}) > 1 for each in zip(*samples, strict=True)):
            raise Unsplittable(*region.place, f"{text(region)}: sizes decide how many dimensions there are")
        found[kind] = [
            {
                "name": key,
                "type": str(first.dtype).removeprefix("torch."),
                "shape": common([one.shape for one in each]),
            }
            for key, first, each in zip(names, samples[0], zip(*samples, strict=True), strict=True)
        ]
    return found


def island(region: Region, module: RegionModule, directory: Path, reason: str) -> dict[str, Any]:
    """The region as an archive of torch.export, which the host runs with torch."""
    file = f"island_{region.number}.pt2"
    try:
        made = program(region, module)
        network = made.module()
        compare_values(region, module, lambda sample: list(network(*sample)), "torch.export")
        torch.export.save(made, directory / file)
    except Exception as problem:
        raise Unsplittable(
            *region.place, f"{text(region)}: {reason}; torch.export cannot take it either: {first_line(problem)}"
        ) from problem
    used = list(range(len(region.inputs)))
    return {
        "file": file,
        "used": used,
        "sha256": digest((directory / file).read_bytes()),
        "reason": f"{region.place[0]}:{region.place[1]}: {reason}",
    }


def text(region: Region) -> str:
    return "; ".join(ast.unparse(one) for one in region.statements)[:200]
