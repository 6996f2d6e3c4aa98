"""AOTInductor: each region is a library that torch's compiler made, with weights of its own; the host needs torch."""

from __future__ import annotations

import shutil
from typing import Any

import torch

from regraft.dynamic.artifacts import Artifacts, digest
from regraft.dynamic.compilers.protocol import Compiler
from regraft.dynamic.explore import RegionModule
from regraft.dynamic.residual import Region
from regraft.dynamic.samples import Sample, Untaken, compare, first_line, program

# With its default, layout_optimization=True, torch 2.13 gives other values for a torch.cond around a convolution.
OPTIONS = {"layout_optimization": False}
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


def compiled(region: Region, module: RegionModule, artifacts: Artifacts) -> dict[str, Any]:
    file = artifacts.directory / f"region_{region.number}.pt2"
    if shutil.which("g++") is None:
        raise Untaken("AOTInductor needs g++, which is not installed")
    try:
        with torch.no_grad():
            made = program(region, module)
            torch._inductor.aoti_compile_and_package(made, package_path=str(file), inductor_configs=OPTIONS)
            network = torch._inductor.aoti_load_package(str(file))
    except Exception as problem:
        raise Untaken(f"AOTInductor cannot take it: {first_line(problem)}") from problem

    def run(sample: Sample) -> list[Any]:
        with torch.no_grad():
            made = network(*(one.contiguous() for one in sample))
        return list(made) if isinstance(made, (tuple, list)) else [made]

    compare(region, module, run, "AOTInductor")
    used = list(range(len(region.inputs)))
    return {"file": file.name, "sha256": digest(file.read_bytes()), "used": used}


COMPILER = Compiler("aotinductor", "torch", torch.__version__, compiled, HOST)
