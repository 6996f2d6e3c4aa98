"""The emitter of a directory: a host for one sample at a time, and its sub-networks."""

from __future__ import annotations

from regraft.splitting.checking.original_network import CheckResult, Original
from regraft.splitting.compiling.compiled_network import CompiledNetwork, reasons_of_islands
from regraft.splitting.emitting.artefact_protocol import Emitter
from regraft.splitting.emitting.host_text import host_source
from regraft.splitting.emitting.split_directory import SplitModel, write_directory
from regraft.splitting.emitting.split_report import Report
from regraft.splitting.preconditions import StateGuard


class DirectoryArtefact:
    """A host in the directory of the compiled sub-networks."""

    def __init__(self, compiled: CompiledNetwork, report: Report) -> None:
        self.compiled, self.report = compiled, report

    @property
    def network(self) -> SplitModel:
        """Return the host as it was checked."""
        return SplitModel(self.compiled.directory, self.report)

    def check(self, original: Original, earlier: CheckResult) -> CheckResult:
        """Return `earlier` without comparing anything: it is the result for this very host."""
        return earlier

    def finish(self, report: Report) -> SplitModel:
        """Write the host and the manifest with the report; return the split network, whose
        directory is deleted with it. In the host, sides of decisions that no checked input took
        raise an error."""
        write_host(self.compiled, report)
        return SplitModel(self.compiled.directory, report, self.compiled.folder)


def write_host(compiled: CompiledNetwork, report: Report) -> None:
    """Write `host.py` from the program's steps as they are now, and the manifest with the report,
    into the directory of the compiled sub-networks."""
    has_islands = bool(reasons_of_islands(compiled.manifest["regions"]))
    text = host_source(compiled.program, compiled.compiler, has_islands)
    write_directory(compiled.directory, text, compiled.manifest, report)


def emit(compiled: CompiledNetwork, report: Report, guard: StateGuard) -> DirectoryArtefact:
    """Return the directory as an artefact; no file is written before `finish`. report: what is
    known before the check. guard: not used."""
    return DirectoryArtefact(compiled, report)


EMITTER = Emitter(emit, measured=True, partial=True, entry="")
