"""AOTInductor: each region is a library of torch's compiler with its own weights; the host needs
torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from regraft.splitting.compiling.compilers.aotinductor_packages import EXPORTED, PACKAGED, package
from regraft.splitting.compiling.compilers.protocol import Compiler
from regraft.splitting.compiling.model_and_weight_files import Artifacts, digest
from regraft.splitting.compiling.region_comparison import (
    Uncompilable,
    compare_with_torch,
    first_line,
    trace_program,
)
from regraft.splitting.compiling.size_limits import Sample
from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.branch_exploration import RegionModule

HOST = '''    def prepare(self, manifest):
        """Do nothing: every sub-network is loaded by itself."""

    def compiled(self, entry):
        """Return the function that runs a sub-network."""
        self.read(entry)
        network = torch._inductor.aoti_load_package(str(self.directory / entry["file"]))

        @torch.no_grad()
        def run(_, values):
            tensors = (torch.from_numpy(numpy.array(value, order="C")) for value in values.values())
            outputs = network(*tensors)
            return [output.numpy() for output in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]

        return run

'''  # noqa: E501


def export_regions(
    regions: list[Region], modules: list[RegionModule], directory: Path
) -> list[Path]:
    """Write the exported program of each region that torch.export takes to `directory`, and return
    the paths of the files."""
    archives: list[Path] = []
    for region, module in zip(regions, modules, strict=True):
        file = directory / f"{EXPORTED}_{region.number}.pt2"
        try:
            torch.export.save(trace_program(region, module), file)
        except Exception:  # noqa: BLE001  (`compile_region` reports it)
            file.unlink(missing_ok=True)
            continue
        archives.append(file)
    return archives


def start_compilation(archives: list[Path]) -> subprocess.Popen[bytes]:
    """Start a process that compiles exported regions, one after the other, and return it."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", package.__module__, *map(str, archives)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def prepare(regions: list[Region], modules: list[RegionModule], directory: Path) -> None:
    """Compile regions to `region_*.pt2` in `directory`, in as many processes as there are
    processors; do nothing without g++, or where that would be one process.

    A region that fails here has no file, and is left to `compile_region`.
    """
    if shutil.which("g++") is None or min(os.cpu_count() or 1, len(regions)) < 2:
        return
    archives = export_regions(regions, modules, directory)
    workers = min(os.cpu_count() or 1, len(archives))
    shares = [archives[start::workers] for start in range(workers)] if workers > 1 else []
    processes = [start_compilation(share) for share in shares]
    try:
        for process in processes:
            process.wait()
    finally:
        for process in processes:
            process.kill()
        for archive in archives:
            archive.unlink()


def compile_region(region: Region, module: RegionModule, artifacts: Artifacts) -> dict[str, Any]:
    """Compile a region to `region_*.pt2`, unless `prepare` has, compare it with torch on its
    samples, and return its entry in the manifest; raise Uncompilable where it fails or differs."""
    file = artifacts.directory / f"{PACKAGED}_{region.number}.pt2"
    if shutil.which("g++") is None:
        raise Uncompilable("AOTInductor needs g++, which is not installed")
    try:
        if not file.exists():
            package(trace_program(region, module), file)
        network = torch._inductor.aoti_load_package(str(file))
    except Exception as problem:
        raise Uncompilable(f"AOTInductor cannot take it: {first_line(problem)}") from problem

    def run(sample: Sample) -> list[Any]:
        """Return the compiled region's outputs for a sample, as tensors."""
        with torch.no_grad():
            outputs = network(*(array.contiguous() for array in sample))
        return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]

    try:
        compare_with_torch(region, module, run, "AOTInductor")
    except Uncompilable:
        file.unlink()
        raise
    used = list(range(len(region.inputs)))
    return {"file": file.name, "sha256": digest(file.read_bytes()), "used": used}


COMPILER = Compiler(
    "aotinductor",
    "torch",
    torch.__version__,
    compile_region,
    HOST,
    prepare,
    programs=("g++",),
)
