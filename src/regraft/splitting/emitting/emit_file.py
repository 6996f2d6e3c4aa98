"""The emitter of one ONNX file, with `If` and `Loop` in the place of the host."""

from __future__ import annotations

import dataclasses

import onnx

from regraft.splitting.checking.comparison import CheckResult, Original
from regraft.splitting.checking.file import check_file
from regraft.splitting.compiling.network import CompiledNetwork
from regraft.splitting.emitting.emit_directory import write_host
from regraft.splitting.emitting.protocol import Emitter
from regraft.splitting.emitting.report import Report
from regraft.splitting.emitting.single import FILE, SingleFile, add_metadata, build_onnx_model
from regraft.splitting.errors import Unsplittable
from regraft.splitting.preconditions import StateGuard


class FileArtefact:
    """A model with control flow, written beside the sub-networks that it is made of."""

    def __init__(
        self, compiled: CompiledNetwork, model: onnx.ModelProto, file: SingleFile, report: Report
    ) -> None:
        self.compiled, self.model, self.file, self.report = compiled, model, file, report

    def check(self, original: Original, earlier: CheckResult) -> CheckResult:
        """Compare results with the original's on the inputs that were equal before. Raises
        Unsplittable."""
        return check_file(original, self.file, earlier)

    def finish(self, report: Report) -> SingleFile:
        """Write the complete report into the file's metadata, and the host beside the file; return
        the split network, which keeps the directory."""
        write_host(self.compiled, report)
        arguments = self.compiled.manifest["arguments"]
        add_metadata(self.model, report=dataclasses.asdict(report), arguments=arguments)
        path = self.compiled.directory / FILE
        onnx.save(self.model, path)
        return SingleFile(path, report, self.compiled.folder)


def emit(compiled: CompiledNetwork, report: Report, guard: StateGuard) -> FileArtefact:
    """Write the program as one file and return the artefact; raise Unsplittable where ONNX cannot
    express it, or ONNX Runtime cannot load the file."""
    model = build_onnx_model(compiled.program, compiled.directory, compiled.manifest)
    path = compiled.directory / FILE
    onnx.save(model, path)
    try:
        file = SingleFile(path, report)
    except ValueError as problem:
        source_path = compiled.program.network.path
        raise Unsplittable(source_path, 0, f"as a single file: {problem}") from problem
    return FileArtefact(compiled, model, file, report)


# where Python raises that a variable has no value, ONNX would compute with any value
EMITTER = Emitter(emit, measured=False, partial=False, entry=FILE)
