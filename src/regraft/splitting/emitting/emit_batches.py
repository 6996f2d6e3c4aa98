"""The emitter of a directory for batches: a host for any number of samples, and sub-networks that
take several at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from regraft.splitting.checking.batch_check import check_batches
from regraft.splitting.checking.original_network import CheckResult, Original
from regraft.splitting.compiling.batch_regions import compile_batches
from regraft.splitting.compiling.compiled_network import (
    CompiledNetwork,
    count_models,
    new_directory,
    reasons_of_islands,
)
from regraft.splitting.compiling.model_and_weight_files import Artifacts
from regraft.splitting.compiling.quiet import silenced
from regraft.splitting.emitting.artefact_protocol import Emitter
from regraft.splitting.emitting.batched_host_text import batched_source
from regraft.splitting.emitting.split_directory import SplitModel, write_directory
from regraft.splitting.emitting.split_report import Report
from regraft.splitting.preconditions import StateGuard
from regraft.splitting.program.residual import Region


class BatchedArtefact:
    """A host for batches in a directory of its own.

    compiled: the program with the sub-networks for batches. host: the host's text.
    """

    def __init__(self, compiled: CompiledNetwork, host: str, report: Report) -> None:
        self.compiled, self.host, self.report = compiled, host, report

    @property
    def network(self) -> SplitModel:
        """Return the host for batches."""
        return SplitModel(self.compiled.directory, self.report)

    def check(self, original: Original, earlier: CheckResult) -> CheckResult:
        """Run the inputs that are equal in `earlier` in batches, compare each sample's result with
        the original's for it alone, and return the result of this comparison. Raises Unsplittable
        where one differs."""
        return check_batches(original, self.network, earlier)

    def finish(self, report: Report) -> SplitModel:
        """Write the host, and the manifest with the complete report; return the split network,
        whose directory is deleted with it."""
        self.write(report)
        return SplitModel(self.compiled.directory, report, self.compiled.folder)

    def write(self, report: Report) -> None:
        """Write the host and the manifest with the report."""
        write_directory(self.compiled.directory, self.host, self.compiled.manifest, report)


def emit(compiled: CompiledNetwork, report: Report, guard: StateGuard) -> BatchedArtefact:
    """Compile the regions for batches into a new directory, write the host for them and return the
    artefact; its report counts the compiled parts, and names the regions that run on one sample at
    a time.

    guard: checks, before the compilation, that the modules have not changed since the split began.
    """
    program, folder = compiled.program, new_directory()
    artifacts = Artifacts(Path(folder.name), compiled.settings)
    guard.check()
    with silenced():
        entries = compile_batches(program, artifacts, compiled.compiler)
    guard.renew()  # an export gives modules copies of the dictionaries that they hold
    manifest = {
        **allow_any_number(compiled.manifest),
        "regions": entries,
        **artifacts.write_weights(),
    }
    parts = [entry[kind] for entry in entries for kind in ("together", "each") if kind in entry]
    islands = reasons_of_islands(parts)
    batched = replace(compiled, folder=folder, manifest=manifest)
    report = replace(
        report,
        models=count_models(parts),
        islands=islands,
        one_by_one=places_run_one_by_one(program.regions, entries),
    )
    host = batched_source(program, compiled.compiler, bool(islands))
    artefact = BatchedArtefact(batched, host, report)
    artefact.write(report)
    return artefact


def allow_any_number(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the manifest in which the first dimension of each tensor among the inputs,
    that of the samples, may have any size."""
    open_inputs = {
        key: (
            {**description, "shape": [None, *description["shape"][1:]]}
            if "shape" in description
            else description
        )
        for key, description in manifest["inputs"].items()
    }
    return {**manifest, "inputs": open_inputs}


def places_run_one_by_one(regions: list[Region], entries: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the places, as `file:line`, of the regions whose entry in the manifest has no part
    "together", which would run several samples at once."""
    return tuple(
        f"{region.place[0]}:{region.place[1]}"
        for region, entry in zip(regions, entries, strict=True)
        if "together" not in entry
    )


EMITTER = Emitter(emit, measured=False, partial=True, entry="")
