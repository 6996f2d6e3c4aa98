"""A region becomes an ONNX model; one that ONNX or ONNX Runtime cannot take becomes an eager island."""

from __future__ import annotations

import ast
import io
import warnings
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch

from regraft.dynamic.artifacts import Artifacts, digest
from regraft.dynamic.check import difference
from regraft.dynamic.errors import Unsplittable
from regraft.dynamic.explore import RegionModule
from regraft.dynamic.record import to_numpy, to_torch
from regraft.dynamic.residual import Region

OPSET = 17


class Untaken(Exception):
    """The compiler cannot take the region."""


def compile_region(region: Region, module: RegionModule, artifacts: Artifacts, path: str) -> dict[str, Any]:
    """The region's entry in the manifest; its files are written. Where it stays eager, the entry has `reason`."""
    line = getattr(region.statements[0], "lineno", 0)
    if not region.samples:
        raise Unsplittable(path, line, f"no example leads to region {region.number}: {text(region)}")
    try:
        entry = artifacts.add(to_onnx(region, module), list(region.inputs))
    except Untaken as problem:
        entry = island(region, module, artifacts.directory, path, str(problem))
    return {**entry, "inputs": region.inputs, "outputs": region.outputs}


def to_onnx(region: Region, module: RegionModule) -> onnx.ModelProto:
    """The region's model, which was run once and gave what torch gives."""
    buffer = io.BytesIO()
    sample = region.samples[0]
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, sample, buffer, dynamo=False, input_names=list(region.inputs),
                output_names=[f"{key}_out" for key in region.outputs], opset_version=OPSET,
            )  # fmt: skip
    except Exception as problem:
        raise Untaken(f"ONNX cannot express it: {first_line(problem)}") from problem
    with torch.no_grad():
        expected = module(*sample)
    try:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        session = onnxruntime.InferenceSession(buffer.getvalue(), options, providers=["CPUExecutionProvider"])
        wanted = {one.name for one in session.get_inputs()}
        given = zip(region.inputs, sample, strict=True)
        got = session.run(None, {key: to_numpy(one) for key, one in given if key in wanted})
    except Exception as problem:
        raise Untaken(f"ONNX Runtime cannot run it: {first_line(problem)}") from problem
    wrong = difference(to_torch(tuple(got)), tuple(one.detach() for one in expected))
    if wrong:
        raise Untaken(f"ONNX Runtime gives other values: {wrong}")
    return onnx.load_from_string(buffer.getvalue())


def island(region: Region, module: RegionModule, directory: Path, path: str, reason: str) -> dict[str, Any]:
    """The region as an archive of torch.export, which the host runs with torch."""
    line = getattr(region.statements[0], "lineno", 0)
    file = f"island_{region.number}.pt2"
    try:
        with torch.no_grad():
            program = torch.export.export(module, region.samples[0])
        torch.export.save(program, directory / file)
    except Exception as problem:
        raise Unsplittable(
            path, line, f"{text(region)}: {reason}; torch.export cannot take it either: {first_line(problem)}"
        ) from problem
    used = list(range(len(region.inputs)))
    return {
        "file": file,
        "used": used,
        "sha256": digest((directory / file).read_bytes()),
        "reason": f"{path}:{line}: {reason}",
    }


def first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


def text(region: Region) -> str:
    return "; ".join(ast.unparse(one) for one in region.statements)[:200]
