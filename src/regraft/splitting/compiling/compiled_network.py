"""Compilation of a network: the files of its regions in a new directory, and their manifest."""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch

from regraft.report.terminal import Watch, ignore
from regraft.splitting.compiling.compilers import Compiler
from regraft.splitting.compiling.engine_settings import EngineSettings
from regraft.splitting.compiling.model_and_weight_files import Artifacts
from regraft.splitting.compiling.quiet import silenced
from regraft.splitting.compiling.region_compilation import compile_region
from regraft.splitting.network import Program
from regraft.splitting.preconditions import input_descriptions


@dataclass(frozen=True)
class CompiledNetwork:
    """A program whose regions are compiled into files of a temporary directory.

    folder: the directory, which is deleted when nothing refers to it any more. manifest: what the
    host has to know of the files, inputs and versions, as JSON. settings: how the engine runs the
    files.
    """

    program: Program
    compiler: Compiler
    settings: EngineSettings
    folder: tempfile.TemporaryDirectory[str]
    manifest: dict[str, Any]

    @property
    def directory(self) -> Path:
        """Return the directory of the files."""
        return Path(self.folder.name)


def compile_network(
    program: Program,
    compiler: Compiler,
    settings: EngineSettings = EngineSettings(),
    watch: Watch = ignore,
) -> CompiledNetwork:
    """Compile every region of the program into a file of a new temporary directory, and return the
    program with the directory and the manifest.

    Raises Unsplittable for a region that neither the compiler nor torch.export can take.
    """
    folder = new_directory()
    artifacts = Artifacts(Path(folder.name), settings)
    entries = []
    with silenced():
        if compiler.prepare is not None:
            watch(f"compiling {len(program.regions)} regions with {compiler.name}")
            compiler.prepare(program.regions, program.modules, artifacts.directory)
        pairs = zip(program.regions, program.modules, strict=True)
        for number, (region, module) in enumerate(pairs, 1):
            watch(f"compiling region {number} of {len(program.regions)}")
            entries.append(compile_region(region, module, artifacts, compiler))
    network = program.network
    manifest = {
        "compiler": compiler.name,
        "settings": settings.chosen(compiler.settings),
        "versions": {
            "torch": torch.__version__,
            "onnx": onnx.__version__,
            compiler.name: compiler.version,
        },
        "inputs": input_descriptions(network.calls),
        "arguments": dataclasses.asdict(network.packed) if network.packed is not None else None,
        "regions": entries,
        **artifacts.write_weights(),
    }
    return CompiledNetwork(program, compiler, settings, folder, manifest)


def new_directory() -> tempfile.TemporaryDirectory[str]:
    """Create a temporary directory for the files of a split network, which is deleted with the
    object returned."""
    return tempfile.TemporaryDirectory(prefix="regraft-split-")


def reasons_of_islands(entries: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the reasons for which the compiler did not take sub-networks, so that torch runs them,
    from the entries of all sub-networks in the manifest."""
    return tuple(entry["reason"] for entry in entries if "reason" in entry)


def count_models(entries: list[dict[str, Any]]) -> int:
    """Return the number of different compiled files among the sub-networks with these entries in
    the manifest; those that torch runs do not count."""
    models = {entry.get("model", entry.get("file")) for entry in entries if "reason" not in entry}
    return len(models)
