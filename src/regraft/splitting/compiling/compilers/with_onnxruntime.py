"""ONNX Runtime: regions of equal structure share one model, to which the host binds their
weights."""

from __future__ import annotations

from typing import Any

import onnxruntime

from regraft.splitting.compiling.artifacts import Artifacts
from regraft.splitting.compiling.compilers.protocol import Compiler
from regraft.splitting.compiling.onnx import FUSIONS, to_onnx
from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.explore import RegionModule

HOST = """    def prepare(self, manifest):
        self.models = [self.read(one) for one in manifest["models"]]
        data = self.read(manifest["weights"])
        self.weights = [
            numpy.frombuffer(data, dtype, numpy.prod(shape, dtype=int), offset).reshape(shape)
            for dtype, shape, offset in manifest["weights"]["arrays"]
        ]
        self.made = {}  # sub-networks of equal structure and equal weights are one session

    def compiled(self, entry):
        key = (entry["model"], *entry["weights"])
        if key not in self.made:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            options.log_severity_level = 3
            values = [onnxruntime.OrtValue.ortvalue_from_numpy(self.weights[one]) for one in entry["weights"]]
            options.add_external_initializers([f"w{number}" for number in range(len(values))], values)
            model = self.models[entry["model"]]
            self.made[key] = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"],
                disabled_optimizers=FUSIONS,  # they end the process where there are no rows
            )
        return self.made[key].run

""".replace("FUSIONS", repr(FUSIONS))  # noqa: E501


def compile_region(region: Region, module: RegionModule, artifacts: Artifacts) -> dict[str, Any]:
    """Export a region to ONNX, add it to the artefacts and return its entry in the manifest."""
    return artifacts.add(to_onnx(region, module), list(region.inputs))


COMPILER = Compiler("onnxruntime", "onnxruntime", onnxruntime.__version__, compile_region, HOST)
