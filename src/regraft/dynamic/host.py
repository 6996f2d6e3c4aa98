"""The host: readable Python that carries the control flow and needs only NumPy and ONNX Runtime."""

from __future__ import annotations

import ast

from regraft.dynamic.residual import Branch, HostStep, Loop, RegionStep, Step

HEAD = '''"""The control flow of {name}; its sub-networks are the ONNX files beside it."""

import hashlib
import json
from pathlib import Path

import numpy
import onnxruntime


class Host:
    """Call it with NumPy arrays; it returns what the network returned, with arrays for tensors."""

    def __init__(self, directory=None):
        directory = Path(directory or Path(__file__).parent)
        manifest = json.loads((directory / "manifest.json").read_text("utf-8"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.trace = []  # the sides that the last call took, in order
        self.sessions = []
        for region in manifest["regions"]:
            data = (directory / region["file"]).read_bytes()
            if hashlib.sha256(data).hexdigest() != region["sha256"]:
                raise ValueError(f"{{region['file']}} is not the file that the manifest describes")
            session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            self.sessions.append((session.run, region["inputs"], {{one.name for one in session.get_inputs()}}))

    def run(self, number, *values):
        run, names, used = self.sessions[number]
        return run(None, {{key: numpy.asarray(one) for key, one in zip(names, values) if key in used}})

'''


def host_source(name: str, parameters: list[str], steps: list[Step]) -> str:
    """The text of host.py."""
    writer = _Writer()
    body = writer.steps(steps, 2)
    header = ", ".join(["self", *parameters])
    return HEAD.format(name=name) + f"    def forward({header}):\n        self.trace = []\n" + "\n".join(body) + "\n"


class _Writer:
    def steps(self, steps: list[Step], depth: int) -> list[str]:
        lines = [line for step in steps for line in self.step(step, depth)]
        return lines or ["    " * depth + "pass"]

    def step(self, step: Step, depth: int) -> list[str]:
        pad = "    " * depth
        if isinstance(step, RegionStep):
            outputs = ", ".join(step.outputs) + ("," if len(step.outputs) == 1 else "")
            return [f"{pad}{outputs} = self.run({', '.join([str(step.number), *step.inputs])})"]
        if isinstance(step, HostStep):
            return [pad + ast.unparse(ast.fix_missing_locations(step.statement))]
        if isinstance(step, Loop):
            head = "while True:"
            if step.header is not None:
                head = f"for {ast.unparse(step.header[0])} in {ast.unparse(step.header[1])}:"
            return [pad + head, *self.steps(step.body, depth + 1)]
        if isinstance(step, Branch):
            return self.branch(step, depth)
        raise TypeError(f"{type(step).__name__} outside a region")

    def branch(self, step: Branch, depth: int) -> list[str]:
        lines = []
        for number, (test, body) in enumerate(step.arms):
            word = "if" if number == 0 else "elif"
            lines.append("    " * depth + (f"{word} {ast.unparse(test)}:" if test is not None else "else:"))
            if step.numbers[number] >= 0:
                lines.append("    " * (depth + 1) + f"self.trace.append({step.numbers[number]})")
            if body:
                lines.extend(self.steps(body, depth + 1))
        return lines
