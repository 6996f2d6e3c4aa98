"""Samples of every region's inputs: the program is run on the examples, and every other side of a branch once.

What follows the branch is run after such a side, too, where it has regions that nothing else led to.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import math
from collections.abc import Callable
from typing import Any

import numpy
import torch

from regraft.splitting.errors import Unsplittable
from regraft.splitting.residual import Branch, HostStep, Loop, Region, RegionStep, Step, all_steps, raises
from regraft.splitting.results import Classes, made

LONGEST = 10_000  # iterations of one loop
SAMPLES = 6  # of one region, in different sizes


class RegionModule(torch.nn.Module):  # type: ignore[misc]
    """A region as a module: its statements with the original network's parameters."""

    def __init__(self, region: Region, model: torch.nn.Module, outside: dict[str, Any]) -> None:
        super().__init__()
        self.training = False  # else the exporter leaves the network in training mode
        self.network = model
        text = "\n    ".join(ast.unparse(one) for one in region.statements)
        header = ", ".join(["self", *region.inputs])
        outputs = "".join(f"{key}, " for key in region.outputs)
        scope = dict(outside)
        exec(
            compile(
                f"def region({header}):\n    {text}\n    return ({outputs})\n", f"<region {region.number}>", "exec"
            ),
            scope,
        )
        self.function: Callable[..., Any] = scope["region"]

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self.network, *inputs)


def as_tensor(value: Any) -> torch.Tensor:
    return torch.from_numpy(numpy.ascontiguousarray(value) if numpy.ndim(value) else numpy.asarray(value))


def closed(tensor: torch.Tensor, dims: frozenset[int]) -> list[int]:
    """The shape without the sizes that are open."""
    return [-1 if dim in dims else size for dim, size in enumerate(tensor.shape)]


def shows_more(sizes: list[torch.Size], seen: list[list[torch.Size]]) -> bool:
    """Whether a size differs that is the same in all that was seen."""
    columns = zip(sizes, *seen, strict=True)
    return any(
        one != first and {*rest} <= {first} for shapes in columns for one, first, *rest in zip(*shapes, strict=True)
    )


class Explorer:
    """Runs a program by its steps; regions run as torch modules."""

    longest = LONGEST

    def __init__(self, path: str, regions: list[Region], modules: list[RegionModule], classes: Classes) -> None:
        self.path, self.regions, self.modules = path, regions, modules
        self.scope = {"math": math, "numpy": numpy, **made(classes)}  # of the host's statements
        self.seen: set[int] = set()
        self.compiled: dict[int, Any] = {}

    def run(self, steps: list[Step], names: dict[str, Any]) -> str:
        """Run `steps`; returns how they ended: "", "break", "continue" or "return"."""
        for place, step in enumerate(steps):
            ended = self.step(step, names, steps[place + 1 :])
            if ended:
                return ended
        return ""

    def step(self, step: Step, names: dict[str, Any], rest: list[Step]) -> str:
        if isinstance(step, RegionStep):
            self.region(step, names)
        elif isinstance(step, HostStep):
            return self.host(step.statement, names)
        elif isinstance(step, Branch):
            return self.branch(step, names, rest)
        elif isinstance(step, Loop):
            return self.loop(step, names)
        return ""

    def region(self, step: RegionStep, names: dict[str, Any]) -> None:
        region = self.regions[step.number]
        inputs = tuple(as_tensor(names[key]) for key in region.inputs)
        before = len(region.samples)
        self.sample(region, inputs)
        try:
            with torch.no_grad():
                outputs = self.modules[step.number](*inputs)
        except Exception:
            del region.samples[before:]  # a state that never leads here
            raise
        for key, value in zip(region.outputs, outputs, strict=True):
            if not isinstance(value, (torch.Tensor, int)):
                raise Unsplittable(*region.place, f"{key} is no tensor but has to leave a region")
            names[key] = torch.as_tensor(value).detach().numpy()

    def sample(self, region: Region, inputs: tuple[torch.Tensor, ...]) -> None:
        """Keep inputs of sizes that were not seen; refuse those that differ in more than open sizes."""
        if region.samples:
            for one, first, dims in zip(inputs, region.samples[0], region.open, strict=True):
                if one.dtype != first.dtype or closed(one, dims) != closed(first, dims):
                    raise Unsplittable(
                        *region.place,
                        f"region {region.number} gets inputs of several shapes, which cannot be followed here",
                    )  # fmt: skip
        sizes = [one.shape for one in inputs]
        seen = [[one.shape for one in sample] for sample in region.samples]
        if sizes not in seen and (len(seen) < SAMPLES or shows_more(sizes, seen)):
            region.samples.append(tuple(one.clone() for one in inputs))

    def host(self, statement: ast.stmt, names: dict[str, Any]) -> str:
        if isinstance(statement, ast.Return):
            names["return"] = self.value(statement.value or ast.Constant(None), names)
            return "return"
        if isinstance(statement, (ast.Break, ast.Continue)):
            return "break" if isinstance(statement, ast.Break) else "continue"
        if id(statement) not in self.compiled:  # the steps hold the statement, so that its id stays its own
            module = ast.fix_missing_locations(ast.Module([statement], []))
            self.compiled[id(statement)] = compile(module, "<host>", "exec")
        exec(self.compiled[id(statement)], self.scope, names)
        return ""

    def value(self, code: ast.expr, names: dict[str, Any]) -> Any:
        if id(code) not in self.compiled:
            self.compiled[id(code)] = compile(ast.fix_missing_locations(ast.Expression(code)), "<host>", "eval")
        return eval(self.compiled[id(code)], self.scope, names)

    def branch(self, step: Branch, names: dict[str, Any], rest: list[Step]) -> str:
        taken = None
        for test, body in step.arms:
            if taken is None and (test is None or self.value(test, names)):
                taken = body
        for _, body in step.arms:
            if body is not taken and id(body) not in self.seen and not raises(body) and any(step.labels):
                self.seen.add(id(body))
                within = (self.regions[one.number] for one in all_steps(rest) if isinstance(one, RegionStep))
                unknown = any(not region.samples for region in within)
                self.out_of_turn([*body, *rest] if unknown else body, copy.deepcopy(names))
        return self.run(taken, names) if taken is not None else ""

    def out_of_turn(self, body: list[Step], names: dict[str, Any]) -> None:
        """Run a side that this input does not take, for samples; it may fail in a state that never leads to it."""
        with contextlib.suppress(
            ArithmeticError,
            AssertionError,
            AttributeError,
            LookupError,
            NameError,
            RuntimeError,
            TypeError,
            ValueError,
        ):
            self.run(body, names)

    def loop(self, step: Loop, names: dict[str, Any]) -> str:
        items = self.value(step.header[1], names) if step.header else range(self.longest)
        for item in items:
            if step.header:
                names[step.header[0].id] = item  # type: ignore[attr-defined]
            ended = self.run(step.body, names)
            if ended == "break":
                return ""
            if ended == "return":
                return ended
        if step.header is None:
            self.endless()
        return ""

    def endless(self) -> None:
        """Called where a loop reaches the limit: a side that is run out of turn need not end, samples it has given."""
