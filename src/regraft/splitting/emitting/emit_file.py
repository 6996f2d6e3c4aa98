"""The emitter of one ONNX file, with `If` and `Loop` in the place of the host."""

from __future__ import annotations

import dataclasses

import onnx

from regraft.splitting.checking.original_network import CheckResult, Original
from regraft.splitting.checking.single_file_check import check_file
from regraft.splitting.compiling.compiled_network import CompiledNetwork
from regraft.splitting.emitting.artefact_protocol import Emitter
from regraft.splitting.emitting.emit_directory import write_host
from regraft.splitting.emitting.single import FILE, SingleFile, add_metadata, build_onnx_model
from regraft.splitting.emitting.split_report import Report
from regraft.splitting.errors import Unsplittable
from regraft.splitting.preconditions import StateGuard


class FileArtefact:
    """A split network as one ONNX model, whose file lies beside the compiled sub-networks.

    file: the model opened in ONNX Runtime, as it can be called.
    """

    def __init__(
        self, compiled: CompiledNetwork, model: onnx.ModelProto, file: SingleFile, report: Report
    ) -> None:
        self.compiled, self.model, self.file, self.report = compiled, model, file, report

    @property
    def network(self) -> SingleFile:
        """Return the model opened in ONNX Runtime."""
        return self.file

    def check(self, original: Original, earlier: CheckResult) -> CheckResult:
        """Compare the file's results with the original's on the inputs that are equal in `earlier`,
        and return the result of this comparison. Raises Unsplittable where one differs."""
        return check_file(original, self.file, earlier)

    def finish(self, report: Report) -> SingleFile:
        """Write the file again with the complete report in its metadata, and the host beside it;
        return the split network, whose directory is deleted with it."""
        write_host(self.compiled, report)
        arguments = self.compiled.manifest["arguments"]
        add_metadata(
            self.model,
            report=dataclasses.asdict(report),
            arguments=arguments,
            settings=self.compiled.manifest["settings"],
        )
        path = self.compiled.directory / FILE
        onnx.save(self.model, path)
        return SingleFile(path, report, self.compiled.folder, self.compiled.settings)


def emit(compiled: CompiledNetwork, report: Report, guard: StateGuard) -> FileArtefact:
    """Write the program as one ONNX file into the directory of the sub-networks and return the
    artefact; raise Unsplittable where ONNX cannot express it, or ONNX Runtime cannot load the file.
    guard: not used."""
    model = build_onnx_model(compiled.program, compiled.directory, compiled.manifest)
    path = compiled.directory / FILE
    onnx.save(model, path)
    try:
        file = SingleFile(path, report, settings=compiled.settings)
    except ValueError as problem:
        place = compiled.program.network.place
        raise Unsplittable(*place, f"as a single file: {problem}") from problem
    return FileArtefact(compiled, model, file, report)


# where Python raises that a variable has no value, ONNX would compute with any value
EMITTER = Emitter(emit, measured=False, partial=False, entry=FILE)
