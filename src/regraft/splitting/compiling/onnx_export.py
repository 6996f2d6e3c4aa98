"""Regions as ONNX models, each of which ONNX Runtime has run with the results of torch."""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import onnx
import onnxruntime
import torch

from regraft.splitting.compiling.engine_settings import EngineSettings
from regraft.splitting.compiling.model_and_weight_files import rename_by_position
from regraft.splitting.compiling.onnx_means import replace_open_means
from regraft.splitting.compiling.quiet import without_output
from regraft.splitting.compiling.region_comparison import (
    Slower,
    Uncompilable,
    compare_with_torch,
    first_line,
    largest_sample,
    open_shapes,
)
from regraft.splitting.compiling.size_guards import without_fast_path
from regraft.splitting.compiling.size_limits import Sample, varying_axes
from regraft.splitting.compiling.tracing_replacements import replaced_functions
from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.branch_exploration import RegionModule
from regraft.splitting.sampling.numpy_conversion import to_numpy

try:
    from torch.onnx._internal.torchscript_exporter import symbolic_helper
except ImportError:  # before torch 2.9
    from torch.onnx import symbolic_helper

OPSET = 18  # both exporters write it
# Off in every session: the fused products of ONNX Runtime 1.31 end the process where there are no
# rows.
FUSIONS = ["MatMulScaleFusion", "MatmulTransposeFusion"]
_RESHAPED = symbolic_helper._reshape_helper


def to_onnx(region: Region, module: RegionModule, settings: EngineSettings) -> onnx.ModelProto:
    """Return the region's model in ONNX, which was run on all samples and gave the results of
    torch; set `region.limits`. settings: those of the sessions that ran it.

    The tracing exporter takes a fiftieth of the time; that of torch.export, which follows what
    depends on sizes, is tried where the first model is not right. Raises Uncompilable where neither
    is, and Slower where torch is faster and `region.measured` is True.
    """
    try:
        return verify(region, module, replace_open_means(trace_region(region, module)), settings)
    except Slower:
        raise
    except Uncompilable as problem:
        try:
            model_bytes = replace_open_means(export_region(region, module))
            return verify(region, module, model_bytes, settings)
        except Uncompilable:
            raise problem from None


def verify(
    region: Region, module: RegionModule, model_bytes: bytes, settings: EngineSettings
) -> onnx.ModelProto:
    """Return the model, with its results cast to torch's types, after comparing it with torch; set
    `region.limits`, the sizes for which it is right.

    Raises Uncompilable unless ONNX Runtime gives torch's results, and Slower where torch is faster
    and `region.measured` is True.
    """
    model_bytes = cast_results(model_bytes, region, module)
    try:
        session = open_session(model_bytes, settings)
    except Exception as problem:
        raise Uncompilable(f"ONNX Runtime cannot run it: {first_line(problem)}") from problem
    read_inputs = {argument.name for argument in session.get_inputs()}
    unread = sorted(region.numbers - read_inputs)
    if unread:
        raise Uncompilable(f"the exporter to ONNX takes the number {unread[0]} for a constant")

    def run(sample: Sample) -> list[Any]:
        """Return the outputs of ONNX Runtime for a sample, as arrays."""
        inputs = zip(region.inputs, sample, strict=True)
        return list(
            session.run(
                None, {key: to_numpy(tensor) for key, tensor in inputs if key in read_inputs}
            )
        )

    compare_with_torch(region, module, run, "ONNX Runtime")
    return onnx.load_from_string(model_bytes)


def cast_results(model_bytes: bytes, region: Region, module: RegionModule) -> bytes:
    """Return the model with a cast of each result whose type differs from torch's for the first
    sample: `any` of uint8, for one, gives truth values in ONNX."""
    model = onnx.load_from_string(model_bytes)
    with torch.no_grad():
        results = module(*region.samples[0])
    element_types = [
        onnx.helper.np_dtype_to_tensor_dtype(to_numpy(torch.as_tensor(result)).dtype)
        for result in results
    ]
    for output, element_type in zip(model.graph.output, element_types, strict=True):
        output_type = output.type.tensor_type
        if output_type.elem_type not in (element_type, onnx.TensorProto.UNDEFINED):
            cast_output(model.graph, output.name, element_type)
            output_type.elem_type = element_type
            model_bytes = bytes(model.SerializeToString())
    return model_bytes


def cast_output(graph: onnx.GraphProto, output: str, element_type: int) -> None:
    """Add a cast of an output, by its name, to a graph; whatever reads the output reads what is not
    cast."""
    uncast = f"{output}_uncast"
    for node in graph.node:
        node.input[:] = [uncast if name == output else name for name in node.input]
        node.output[:] = [uncast if name == output else name for name in node.output]
    graph.node.append(onnx.helper.make_node("Cast", [uncast], [output], to=element_type))


def open_session(model: bytes | str, settings: EngineSettings) -> onnxruntime.InferenceSession:
    """Return a session for the model (bytes, or a file), quiet and without `FUSIONS`, as the host
    opens its own; raise ValueError where a provider does not start, for which ONNX Runtime would
    take the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = settings.threads, 4
    session = onnxruntime.InferenceSession(
        model, options, providers=list(settings.providers), disabled_optimizers=FUSIONS
    )
    for provider in settings.providers:
        if provider not in session.get_providers():
            raise ValueError(f"{provider} does not start; a library that it needs may be missing")
    return session


def trace_region(region: Region, module: RegionModule) -> bytes:
    """Return the model, in bytes, that the tracing exporter makes of the region's largest sample.

    Where Python decides by sizes, the models of all samples have to be equal; else Uncompilable is
    raised.
    """
    axes = varying_axes(region)
    model_bytes, fixed = trace_sample(region, module, largest_sample(region), axes)
    if axes and fixed:
        canonical_model = canonical_bytes(model_bytes, region)
        for sample in region.samples:
            if (
                canonical_bytes(trace_sample(region, module, sample, axes)[0], region)
                != canonical_model
            ):
                raise Uncompilable(f"it differs with the sizes of its inputs: {fixed}")
    return model_bytes


def trace_sample(
    region: Region, module: RegionModule, sample: Sample, axes: dict[str, dict[int, str]]
) -> tuple[bytes, str]:
    """Return the model traced on a sample, and the source line, as `file:line`, of the first value
    that became fixed in the trace ("" for none); raise Uncompilable where ONNX cannot express it.

    axes: the open dimensions of the inputs and their names, by input.
    """
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings(record=True) as reported, exporter_settings():
            warnings.simplefilter("always")
            torch.onnx.export(
                module,
                sample,
                buffer,
                dynamo=False,
                input_names=list(region.inputs),
                output_names=[f"{key}_out" for key in region.outputs],
                opset_version=OPSET,
                dynamic_axes=axes,
            )
    except Exception as problem:
        raise Uncompilable(f"ONNX cannot express it: {first_line(problem)}") from problem
    fixed = [
        warning for warning in reported if issubclass(warning.category, torch.jit.TracerWarning)
    ]
    return buffer.getvalue(), f"{fixed[0].filename}:{fixed[0].lineno}" if fixed else ""


def export_region(region: Region, module: RegionModule) -> bytes:
    """Return the model, in bytes, that torch.export's exporter makes of the region's largest
    sample, with the open sizes dynamic; raise Uncompilable where ONNX cannot express it."""
    try:
        with (
            warnings.catch_warnings(),
            exporter_settings(),
            shared_registries(),
            without_output(),
        ):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                largest_sample(region),
                dynamo=True,
                input_names=list(region.inputs),
                verbose=False,
                output_names=[f"{key}_out" for key in region.outputs],
                dynamic_shapes=(open_shapes(region),),
                opset_version=OPSET,
            )
        return bytes(program.model_proto.SerializeToString())
    except Exception as problem:
        raise Uncompilable(f"ONNX cannot express it: {first_line(problem)}") from problem


@contextlib.contextmanager
def shared_registries() -> Iterator[None]:
    """In the `with` block let torch.export's exporter reuse its table of operators, which takes
    longer to build than most exports. Nothing changes before torch 2.6."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:  # before torch 2.6
        yield
        return
    build = cached(ONNXRegistry.from_torchlib)
    with mock.patch.object(ONNXRegistry, "from_torchlib", staticmethod(build)):
        yield


@functools.cache
def cached(build: Callable[..., Any]) -> Callable[..., Any]:
    """Return a version of `build` that stores its results; calls with an equal `build` return the
    same version."""
    return functools.cache(build)


def canonical_bytes(model_bytes: bytes, region: Region) -> bytes:
    """Return the model with inputs, outputs, weights and other values named by position, so that
    models of equal structure are equal bytes."""
    model = onnx.load_from_string(model_bytes)
    rename_by_position(model.graph, {key: f"i{number}" for number, key in enumerate(region.inputs)})
    return bytes(model.SerializeToString(deterministic=True))


def reshape(g: Any, operand: Any, shape: Any, allowzero: int = 0) -> Any:
    """Add the nodes of a reshape to the graph `g` as the tracing exporter does, and return its
    result; a size of 0 in a computed `shape` stays 0, and one beside a -1 is that of the operand:
    PyTorch refuses these two together, the exporter writes them for layers of both directions.

    Raises RuntimeError where `operand` or the shape is known to be empty: the exporter would end
    the process (a division by zero).
    """
    constant_shape = symbolic_helper._maybe_get_const(shape, "is")
    computed = not isinstance(constant_shape, list | tuple)
    sizes = [
        *(symbolic_helper._get_tensor_sizes(operand) or ()),
        *(() if computed or -1 in constant_shape else constant_shape),
    ]
    if 0 in sizes:
        raise RuntimeError("an empty tensor is reshaped")
    return _RESHAPED(g, operand, shape, int(computed) or allowzero)


@contextlib.contextmanager
def exporter_settings() -> Iterator[None]:
    """Turn off gradients, the graph that the exporter prints where it fails, and the fast path of
    Transformer layers in the `with` block, and put `reshape` in the place of the exporter's and the
    functions of `replacements` in the place of torch's.
    """
    with (  # where the tracing exporter fails it prints its graph, whatever the options say
        torch.no_grad(),
        without_fast_path(),
        mock.patch.object(torch._C, "_jit_onnx_log"),
        mock.patch.object(symbolic_helper, "_reshape_helper", reshape),
        replaced_functions(),
    ):
        yield
