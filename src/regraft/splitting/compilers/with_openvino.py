"""OpenVINO: each region is an ONNX file whose weights lie in `weights.bin`, at their places.

On the CPU it computes int64 as int32 and float64 as float32, without a word. So a region is not given to it that takes
or gives a float64 tensor, or computes whole numbers from the values of others; the host checks int64 inputs.
"""

from __future__ import annotations

from typing import Any

import onnx
import openvino

from regraft.splitting.artifacts import Artifacts
from regraft.splitting.compilers.protocol import Compiler
from regraft.splitting.explore import RegionModule
from regraft.splitting.export import to_onnx
from regraft.splitting.record import to_numpy
from regraft.splitting.residual import Region
from regraft.splitting.samples import Sample, Untaken, compare, first_line

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY"}
GROWS = frozenset(
    {"Add", "Sub", "Mul", "Pow", "ReduceSum", "ReduceProd", "CumSum", "MatMul", "Einsum", "BitShift", "Sum"}
)
HOST = f"""    def prepare(self, manifest):
        self.core = openvino.Core()
        self.read(manifest["weights"])  # the files of the sub-networks refer to it
        self.made = {{}}

    def compiled(self, entry):
        if entry["file"] not in self.made:
            self.read(entry)
            model = self.core.compile_model(self.directory / entry["file"], "CPU", {EXACT!r})
            self.made[entry["file"]] = model.create_infer_request()
        request = self.made[entry["file"]]
        whole = [f"i{{place}}" for place in entry["used"] if entry["inputs"][place]["type"] == "int64"]

        def run(_, values):
            for key in whole:  # OpenVINO computes them in 32 bits
                if values[key].size and not (-2**31 <= values[key].min() and values[key].max() < 2**31):
                    raise OverflowError("OpenVINO takes whole numbers of up to 32 bits")
            return [numpy.array(one) for one in request.infer(values, share_inputs=True).values()]

        return run

"""


def compiled(region: Region, module: RegionModule, artifacts: Artifacts) -> dict[str, Any]:
    model = to_onnx(region, module)
    check_widths(model)
    try:
        core = openvino.Core()
        read = core.read_model(model.SerializeToString(), b"")
        request = core.compile_model(read, "CPU", EXACT).create_infer_request()
    except Exception as problem:
        raise Untaken(f"OpenVINO cannot take it: {first_line(problem)}") from problem
    wanted = {one.name for one in model.graph.input}

    def run(sample: Sample) -> list[Any]:
        given = zip(region.inputs, sample, strict=True)
        return list(request.infer({key: to_numpy(one) for key, one in given if key in wanted}).values())

    compare(region, module, run, "OpenVINO")
    return artifacts.add_whole(model, list(region.inputs))


def check_widths(model: onnx.ModelProto) -> None:
    """Raises Untaken where the region needs more than OpenVINO's 32 bits, or may do so."""
    values = [*model.graph.input, *model.graph.output]
    wide = [one.name for one in values if one.type.tensor_type.elem_type == onnx.TensorProto.DOUBLE]
    if wide:
        raise Untaken(f"OpenVINO has no float64 on the CPU ({', '.join(wide)})")
    inferred = onnx.shape_inference.infer_shapes(model).graph
    kinds = {one.name: one.type.tensor_type.elem_type for one in (*inferred.value_info, *values)}
    data = {one.name for one in model.graph.input if kinds[one.name] == onnx.TensorProto.INT64}
    for node in model.graph.node:
        whole = any(kinds.get(one, onnx.TensorProto.INT64) == onnx.TensorProto.INT64 for one in node.output)
        if not whole:
            continue
        if data & set(node.input) and node.op_type in GROWS:
            raise Untaken(f"OpenVINO has no int64 on the CPU, in which {node.op_type} of values is computed")
        if node.op_type == "Cast" or (data & set(node.input) and node.op_type not in ("Shape", "Size")):
            data.update(node.output)


COMPILER = Compiler("openvino", "openvino", openvino.__version__, compiled, HOST)
