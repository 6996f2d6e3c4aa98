"""A region becomes an ONNX model; one that ONNX or ONNX Runtime cannot take becomes an eager island."""

from __future__ import annotations

import ast
import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
import onnxruntime
import torch

from regraft.dynamic.artifacts import Artifacts, digest, rename
from regraft.dynamic.check import difference
from regraft.dynamic.errors import Unsplittable
from regraft.dynamic.explore import RegionModule
from regraft.dynamic.record import to_numpy, to_torch
from regraft.dynamic.residual import Region

OPSET = 18  # both exporters write it


Sample = tuple[torch.Tensor, ...]


class Untaken(Exception):
    """The compiler cannot take the region."""


def compile_region(region: Region, module: RegionModule, artifacts: Artifacts) -> dict[str, Any]:
    """The region's entry in the manifest; its files are written. Where it stays eager, the entry has `reason`."""
    if not region.samples:
        raise Unsplittable(*region.place, f"no example leads to region {region.number}: {text(region)}")
    try:
        entry = artifacts.add(to_onnx(region, module), list(region.inputs))
    except Untaken as problem:
        entry = island(region, module, artifacts.directory, str(problem))
    return {**entry, **signature(region, module)}


def signature(region: Region, module: RegionModule) -> dict[str, Any]:
    """Name, type and shape of what goes in and what comes out; null is an open size."""
    with torch.no_grad():
        given = [tuple(torch.as_tensor(one) for one in module(*sample)) for sample in region.samples]
    found: dict[str, Any] = {}
    for kind, names, samples in (("inputs", region.inputs, region.samples), ("outputs", region.outputs, given)):
        found[kind] = [
            {
                "name": key,
                "type": str(first.dtype).removeprefix("torch."),
                "shape": common([one.shape for one in each]),
            }
            for key, first, each in zip(names, samples[0], zip(*samples, strict=True), strict=True)
        ]
    return found


def common(shapes: list[torch.Size]) -> list[int | None]:
    return [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)]


def to_onnx(region: Region, module: RegionModule) -> onnx.ModelProto:
    """The region's model, which was run on all samples and gave what torch gives.

    The tracing exporter takes a fiftieth of the time; the one of torch.export sees through what depends on sizes.
    """
    try:
        return verified(region, module, traced(region, module))
    except Untaken as problem:
        try:
            return verified(region, module, exported(region, module))
        except Untaken:
            raise problem from None


def verified(region: Region, module: RegionModule, data: bytes) -> onnx.ModelProto:
    try:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        wrong = [compare(region, module, session, sample) for sample in region.samples]
    except Exception as problem:
        raise Untaken(f"ONNX Runtime cannot run it: {first_line(problem)}") from problem
    if any(wrong):
        raise Untaken(f"ONNX Runtime gives other values: {''.join(wrong)}")
    return onnx.load_from_string(data)


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


def largest(region: Region) -> Sample:
    return max(region.samples, key=lambda sample: sum(one.numel() for one in sample))


def open_shapes(region: Region) -> tuple[dict[int, Any], ...]:
    axes = varying(region)
    return tuple(dict.fromkeys(axes.get(key, ()), torch.export.Dim.AUTO) for key in region.inputs)


def canonical(data: bytes, region: Region) -> bytes:
    model = onnx.load_from_string(data)
    rename(model.graph, {key: f"i{number}" for number, key in enumerate(region.inputs)})
    return bytes(model.SerializeToString(deterministic=True))


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Without gradients and the exporters' own output; layers of Transformer compute with operations that ONNX has."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.WARNING)
    try:  # where the tracing exporter fails it prints its graph, whatever is asked
        with torch.no_grad(), mock.patch.object(torch._C, "_jit_onnx_log"):
            yield
    finally:
        logging.disable(logging.NOTSET)
        torch.backends.mha.set_fastpath_enabled(before)


def varying(region: Region) -> dict[str, dict[int, str]]:
    """The dimensions of the inputs that differ between the samples."""
    axes: dict[str, dict[int, str]] = {}
    for key, *tensors in zip(region.inputs, *region.samples, strict=True):
        dims = [dim for dim, size in enumerate(common([one.shape for one in tensors])) if size is None]
        if dims:
            axes[key] = {dim: f"{key}_{dim}" for dim in dims}
    return axes


def compare(region: Region, module: RegionModule, session: Any, sample: Sample) -> str:
    with torch.no_grad():
        expected = tuple(torch.as_tensor(one).detach() for one in module(*sample))
    wanted = {one.name for one in session.get_inputs()}
    given = zip(region.inputs, sample, strict=True)
    got = session.run(None, {key: to_numpy(one) for key, one in given if key in wanted})
    return difference(to_torch(tuple(got)), expected)


def island(region: Region, module: RegionModule, directory: Path, reason: str) -> dict[str, Any]:
    """The region as an archive of torch.export, which the host runs with torch."""
    file = f"island_{region.number}.pt2"
    try:
        with torch.no_grad():
            program = torch.export.export(module, largest(region), dynamic_shapes=(open_shapes(region),))
        torch.export.save(program, directory / file)
    except Exception as problem:
        raise Unsplittable(
            *region.place, f"{text(region)}: {reason}; torch.export cannot take it either: {first_line(problem)}"
        ) from problem
    used = list(range(len(region.inputs)))
    return {
        "file": file,
        "used": used,
        "sha256": digest((directory / file).read_bytes()),
        "reason": f"{region.place[0]}:{region.place[1]}: {reason}",
    }


def first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


def text(region: Region) -> str:
    return "; ".join(ast.unparse(one) for one in region.statements)[:200]
