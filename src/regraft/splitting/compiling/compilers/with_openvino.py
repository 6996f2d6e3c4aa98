"""OpenVINO: each region is an ONNX file that refers to its weights in `weights.bin`.

On the CPU OpenVINO computes int64 as int32 and float64 as float32, without a warning. So regions
that take or give a float64 tensor, or compute whole numbers from the values of others, are not
given to it; the host checks int64 inputs.
"""

from __future__ import annotations

from typing import Any

import onnx
import openvino

from regraft.splitting.compiling.compilers.protocol import Compiler
from regraft.splitting.compiling.engine_settings import EngineSettings
from regraft.splitting.compiling.model_and_weight_files import Artifacts
from regraft.splitting.compiling.onnx_export import to_onnx
from regraft.splitting.compiling.region_comparison import (
    Uncompilable,
    compare_with_torch,
    first_line,
)
from regraft.splitting.compiling.size_limits import Sample
from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.branch_exploration import RegionModule
from regraft.splitting.sampling.numpy_conversion import to_numpy

COMPILE_OPTIONS = {
    "INFERENCE_PRECISION_HINT": "f32",
    "PERFORMANCE_HINT": "LATENCY",
}
GROWING_OPS = frozenset(
    {
        "Add",
        "Sub",
        "Mul",
        "Pow",
        "ReduceSum",
        "ReduceProd",
        "CumSum",
        "MatMul",
        "Einsum",
        "BitShift",
        "Sum",
    }
)
HOST = f'''    def prepare(self, manifest):
        """Start OpenVINO."""
        self.core = openvino.Core()
        self.options = {{**{COMPILE_OPTIONS!r}, "INFERENCE_NUM_THREADS": manifest["settings"]["threads"]}}
        self.read(manifest["weights"])  # the files of the sub-networks refer to it
        self.requests = {{}}  # by the files of the sub-networks

    def compiled(self, entry):
        """Return the function that runs a sub-network."""
        if entry["file"] not in self.requests:
            self.read(entry)
            model = self.core.compile_model(self.directory / entry["file"], "CPU", self.options)
            self.requests[entry["file"]] = model.create_infer_request()
        request = self.requests[entry["file"]]
        used_inputs = [(f"i{{position}}", entry["inputs"][position]) for position in entry["used"]]
        integer_keys = [key for key, description in used_inputs if description["type"] == "int64"]

        def run(_, values):
            for key in integer_keys:  # OpenVINO computes them in 32 bits
                if values[key].size and not (-2**31 <= values[key].min() and values[key].max() < 2**31):
                    raise OverflowError("OpenVINO takes whole numbers of up to 32 bits")
            outputs = request.infer(values, share_inputs=True).values()
            return [numpy.array(output) for output in outputs]

        return run

'''  # noqa: E501


def compile_region(region: Region, module: RegionModule, artifacts: Artifacts) -> dict[str, Any]:
    """Compile a region, compare it with torch on its samples, write its ONNX file and return its
    entry in the manifest; raise Uncompilable where it fails or differs."""
    threads = artifacts.settings.threads
    model = to_onnx(region, module, EngineSettings(threads))
    check_widths(model)
    try:
        core = openvino.Core()
        openvino_model = core.read_model(model.SerializeToString(), b"")
        options = {**COMPILE_OPTIONS, "INFERENCE_NUM_THREADS": threads}
        request = core.compile_model(openvino_model, "CPU", options).create_infer_request()
    except Exception as problem:
        raise Uncompilable(f"OpenVINO cannot take it: {first_line(problem)}") from problem
    input_names = {value.name for value in model.graph.input}

    def run(sample: Sample) -> list[Any]:
        """Return the compiled region's outputs for a sample, as arrays."""
        named_inputs = zip(region.inputs, sample, strict=True)
        return list(
            request.infer(
                {key: to_numpy(array) for key, array in named_inputs if key in input_names}
            ).values()
        )

    compare_with_torch(region, module, run, "OpenVINO")
    return artifacts.add_standalone(model, list(region.inputs))


def check_widths(model: onnx.ModelProto) -> None:
    """Raise Uncompilable for a model that needs 64 bits, as OpenVINO computes on the CPU with 32:
    with inputs or outputs in float64, or operations that may make int64 values, other than sizes,
    larger."""
    values = [*model.graph.input, *model.graph.output]
    float64_names = [
        value.name
        for value in values
        if value.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE
    ]
    if float64_names:
        raise Uncompilable(f"OpenVINO has no float64 on the CPU ({', '.join(float64_names)})")
    inferred = onnx.shape_inference.infer_shapes(model).graph
    type_by_name = {
        value.name: value.type.tensor_type.elem_type for value in (*inferred.value_info, *values)
    }
    int64_values = {
        value.name
        for value in model.graph.input
        if type_by_name[value.name] == onnx.TensorProto.INT64
    }
    for node in model.graph.node:
        gives_int64 = any(
            type_by_name.get(name, onnx.TensorProto.INT64) == onnx.TensorProto.INT64
            for name in node.output
        )
        if not gives_int64:
            continue
        if int64_values & set(node.input) and node.op_type in GROWING_OPS:
            raise Uncompilable(
                f"OpenVINO has no int64 on the CPU, in which {node.op_type} of values is computed"
            )
        if node.op_type == "Cast" or (
            int64_values & set(node.input) and node.op_type not in ("Shape", "Size")
        ):
            int64_values.update(node.output)


COMPILER = Compiler(
    "openvino",
    "openvino",
    openvino.__version__,
    compile_region,
    HOST,
    settings=frozenset({"threads"}),
)
