"""A region as an ONNX model, which ONNX Runtime has run with the results of torch."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import onnx
import onnxruntime
import torch

from regraft.splitting import means
from regraft.splitting.artifacts import rename
from regraft.splitting.explore import RegionModule
from regraft.splitting.record import to_numpy
from regraft.splitting.residual import Region
from regraft.splitting.samples import Sample, Slower, Untaken, compare, first_line, largest, open_shapes, varying

try:
    from torch.onnx._internal.torchscript_exporter import symbolic_helper
except ImportError:  # before torch 2.9
    from torch.onnx import symbolic_helper

OPSET = 18  # both exporters write it
# Off in every session: the products that ONNX Runtime 1.31 makes of them end the process where there are no rows.
FUSIONS = ["MatMulScaleFusion", "MatmulTransposeFusion"]
_RESHAPED = symbolic_helper._reshape_helper
_UNFLATTENED = torch.Tensor.unflatten


def to_onnx(region: Region, module: RegionModule) -> onnx.ModelProto:
    """The region's model, which was run on all samples and gave what torch gives.

    The tracing exporter takes a fiftieth of the time; the one of torch.export sees through what depends on sizes.
    """
    try:
        return verified(region, module, means.divide(traced(region, module)))
    except Slower:
        raise
    except Untaken as problem:
        try:
            return verified(region, module, means.divide(exported(region, module)))
        except Untaken:
            raise problem from None


def verified(region: Region, module: RegionModule, data: bytes) -> onnx.ModelProto:
    data = typed(data, region, module)
    try:
        session = session_of(data)
    except Exception as problem:
        raise Untaken(f"ONNX Runtime cannot run it: {first_line(problem)}") from problem
    wanted = {one.name for one in session.get_inputs()}

    def run(sample: Sample) -> list[Any]:
        given = zip(region.inputs, sample, strict=True)
        return list(session.run(None, {key: to_numpy(one) for key, one in given if key in wanted}))

    compare(region, module, run, "ONNX Runtime")
    return onnx.load_from_string(data)


def typed(data: bytes, region: Region, module: RegionModule) -> bytes:
    """The model whose results have torch's types: `any` of uint8, for one, gives truth values in ONNX."""
    model = onnx.load_from_string(data)
    with torch.no_grad():
        results = module(*region.samples[0])
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(to_numpy(torch.as_tensor(one)).dtype) for one in results]
    for output, kind in zip(model.graph.output, kinds, strict=True):
        known = output.type.tensor_type
        if known.elem_type not in (kind, onnx.TensorProto.UNDEFINED):
            uncast = f"{output.name}_uncast"
            for node in model.graph.node:
                node.input[:] = [uncast if one == output.name else one for one in node.input]
                node.output[:] = [uncast if one == output.name else one for one in node.output]
            model.graph.node.append(onnx.helper.make_node("Cast", [uncast], [output.name], to=kind))
            known.elem_type = kind
            data = bytes(model.SerializeToString())
    return data


def session_of(model: bytes | str) -> onnxruntime.InferenceSession:
    """A session, quiet and with one thread, as the host opens its own."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"], disabled_optimizers=FUSIONS
    )


def traced(region: Region, module: RegionModule) -> bytes:
    """The trace on the largest sample; where Python decides by sizes, it has to be that of every sample."""
    axes = varying(region)
    data, fixed = trace(region, module, largest(region), axes)
    if axes and fixed:
        form = canonical(data, region)
        for sample in region.samples:
            if canonical(trace(region, module, sample, axes)[0], region) != form:
                raise Untaken(f"it differs with the sizes of its inputs: {fixed}")
    return data


def trace(region: Region, module: RegionModule, sample: Sample, axes: dict[str, dict[int, str]]) -> tuple[bytes, str]:
    """The region traced on a sample; and what became fixed in the trace, if anything did."""
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings(record=True) as said, exporting():
            warnings.simplefilter("always")
            torch.onnx.export(
                module, sample, buffer, dynamo=False, input_names=list(region.inputs),
                output_names=[f"{key}_out" for key in region.outputs], opset_version=OPSET, dynamic_axes=axes,
            )  # fmt: skip
    except Exception as problem:
        raise Untaken(f"ONNX cannot express it: {first_line(problem)}") from problem
    fixed = [one for one in said if issubclass(one.category, torch.jit.TracerWarning)]
    return buffer.getvalue(), f"{fixed[0].filename}:{fixed[0].lineno}" if fixed else ""


def exported(region: Region, module: RegionModule) -> bytes:
    try:
        with warnings.catch_warnings(), exporting():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module, largest(region), dynamo=True, input_names=list(region.inputs), verbose=False,
                output_names=[f"{key}_out" for key in region.outputs], dynamic_shapes=(open_shapes(region),),
                opset_version=OPSET,
            )  # fmt: skip
        return bytes(program.model_proto.SerializeToString())
    except Exception as problem:
        raise Untaken(f"ONNX cannot express it: {first_line(problem)}") from problem


def canonical(data: bytes, region: Region) -> bytes:
    model = onnx.load_from_string(data)
    rename(model.graph, {key: f"i{number}" for number, key in enumerate(region.inputs)})
    return bytes(model.SerializeToString(deterministic=True))


def reshaped(g: Any, given: Any, shape: Any, allowzero: int = 0) -> Any:
    """As the tracing exporter reshapes, but for no rows.

    Of a tensor that it knows to be empty it ends the process (a division by zero); of computed sizes zero is one.
    """
    known = symbolic_helper._maybe_get_const(shape, "is")
    computed = not isinstance(known, list | tuple)
    sizes = [*(symbolic_helper._get_tensor_sizes(given) or ()), *(() if computed else known)]
    if 0 in sizes:
        raise RuntimeError("an empty tensor is reshaped")
    return _RESHAPED(g, given, shape, int(computed) or allowzero)


def unflattened(given: torch.Tensor, dim: Any, sizes: Any) -> torch.Tensor:
    """As torch does it, but from sizes that the tracing exporter sees: torch's own are those of the sample."""
    if not isinstance(dim, int) or given.dim() == 0:
        return _UNFLATTENED(given, dim, sizes)
    dim %= given.dim()
    return given.reshape(*given.shape[:dim], *sizes, *given.shape[dim + 1 :])


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Without gradients and the exporters' own output; layers of Transformer compute with operations that ONNX has."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.WARNING)
    try:  # where the tracing exporter fails it prints its graph, whatever is asked
        with (
            torch.no_grad(),
            mock.patch.object(torch._C, "_jit_onnx_log"),
            mock.patch.object(symbolic_helper, "_reshape_helper", reshaped),
            mock.patch.object(torch.Tensor, "unflatten", unflattened),
        ):
            yield
    finally:
        logging.disable(logging.NOTSET)
        torch.backends.mha.set_fastpath_enabled(before)
