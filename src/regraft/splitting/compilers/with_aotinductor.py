"""AOTInductor: each region is a library that torch's compiler made, with weights of its own; the host needs torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from regraft.splitting.artifacts import Artifacts, digest
from regraft.splitting.compilers.package import EXPORTED, PACKAGED, package
from regraft.splitting.compilers.protocol import Compiler
from regraft.splitting.explore import RegionModule
from regraft.splitting.residual import Region
from regraft.splitting.samples import Sample, Untaken, compare, first_line, program

HOST = """    def prepare(self, manifest):
        pass

    def compiled(self, entry):
        self.read(entry)
        network = torch._inductor.aoti_load_package(str(self.directory / entry["file"]))

        @torch.no_grad()
        def run(_, values):
            made = network(*(torch.from_numpy(numpy.array(one, order="C")) for one in values.values()))
            return [one.numpy() for one in (made if isinstance(made, (tuple, list)) else [made])]

        return run

"""


def prepare(regions: list[Region], modules: list[RegionModule], directory: Path) -> None:
    """Compile regions in as many processes as there are processors; what fails there is left to `compiled`."""
    archives: list[Path] = []
    if shutil.which("g++") is None:
        return
    for region, module in zip(regions, modules, strict=True):
        file = directory / f"{EXPORTED}_{region.number}.pt2"
        try:
            torch.export.save(program(region, module), file)
        except Exception:  # noqa: BLE001  (`compiled` says what it is)
            file.unlink(missing_ok=True)
            continue
        archives.append(file)
    workers = min(os.cpu_count() or 1, len(archives))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    shares = [archives[place::workers] for place in range(workers)] if workers > 1 else []
    running = [
        subprocess.Popen(
            [sys.executable, "-m", package.__module__, *map(str, one)], env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for one in shares
    ]  # fmt: skip
    try:
        for child in running:
            child.wait()
    finally:
        for child in running:
            child.kill()
        for one in archives:
            one.unlink()


def compiled(region: Region, module: RegionModule, artifacts: Artifacts) -> dict[str, Any]:
    file = artifacts.directory / f"{PACKAGED}_{region.number}.pt2"
    if shutil.which("g++") is None:
        raise Untaken("AOTInductor needs g++, which is not installed")
    try:
        if not file.exists():
            package(program(region, module), file)
        network = torch._inductor.aoti_load_package(str(file))
    except Exception as problem:
        raise Untaken(f"AOTInductor cannot take it: {first_line(problem)}") from problem

    def run(sample: Sample) -> list[Any]:
        with torch.no_grad():
            made = network(*(one.contiguous() for one in sample))
        return list(made) if isinstance(made, (tuple, list)) else [made]

    try:
        compare(region, module, run, "AOTInductor")
    except Untaken:
        file.unlink()
        raise
    used = list(range(len(region.inputs)))
    return {"file": file.name, "sha256": digest(file.read_bytes()), "used": used}


COMPILER = Compiler("aotinductor", "torch", torch.__version__, compiled, HOST, prepare)
