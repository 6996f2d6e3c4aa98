"""ONNX Runtime: regions of equal structure share one model, to which the host binds their
weights."""

from __future__ import annotations

from typing import Any

import onnxruntime

from regraft.splitting.compiling.compilers.protocol import Compiler
from regraft.splitting.compiling.model_and_weight_files import Artifacts
from regraft.splitting.compiling.onnx_export import FUSIONS, to_onnx
from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.branch_exploration import RegionModule

HOST = '''    def prepare(self, manifest):
        """Load the models and the weights."""
        self.settings = manifest["settings"]
        available = onnxruntime.get_available_providers()
        for provider in self.settings["providers"]:
            if provider not in available:
                raise ValueError(f"ONNX Runtime has no provider {provider!r} here; it has {', '.join(available)}: give some of these as `providers`")
        self.models = [self.read(model) for model in manifest["models"]]
        weights = self.read(manifest["weights"])
        self.weights = [
            numpy.frombuffer(weights, dtype, numpy.prod(shape, dtype=int), offset).reshape(shape)
            for dtype, shape, offset in manifest["weights"]["arrays"]
        ]
        self.sessions = {}  # sub-networks of equal structure and equal weights share a session

    def compiled(self, entry):
        """Return the function that runs a sub-network."""
        key = (entry["model"], *entry["weights"])
        if key not in self.sessions:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = self.settings["threads"]
            options.log_severity_level = 4  # what fails is an exception
            weights = [self.weights[number] for number in entry["weights"]]
            values = [onnxruntime.OrtValue.ortvalue_from_numpy(weight) for weight in weights]
            options.add_external_initializers([f"w{number}" for number in range(len(values))], values)
            model = self.models[entry["model"]]
            session = self.sessions[key] = onnxruntime.InferenceSession(
                model, options, providers=self.settings["providers"],
                disabled_optimizers=FUSIONS,  # they end the process where there are no rows
            )
            for provider in self.settings["providers"]:
                if provider not in session.get_providers():  # ONNX Runtime goes on without it
                    raise ValueError(f"{provider} does not start here; a library that it needs may be missing")
        return self.sessions[key].run

'''.replace("FUSIONS", repr(FUSIONS))  # noqa: E501


def compile_region(region: Region, module: RegionModule, artifacts: Artifacts) -> dict[str, Any]:
    """Export a region to ONNX, write the model, which regions of equal structure share, and return
    its entry in the manifest; raise Uncompilable where ONNX Runtime does not give torch's
    results."""
    return artifacts.add(to_onnx(region, module, artifacts.settings), list(region.inputs))


COMPILER = Compiler(
    "onnxruntime",
    "onnxruntime",
    onnxruntime.__version__,
    compile_region,
    HOST,
    settings=frozenset({"threads", "providers"}),
)
