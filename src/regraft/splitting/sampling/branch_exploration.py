"""Runs of the residual program that give samples of the regions' inputs: the program is run on the
examples, and every other side of a branch once.

The steps after the branch are run after such a side, too, where they have regions that nothing else
led to.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import math
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy
import torch

from regraft.splitting.errors import Unsplittable
from regraft.splitting.program.residual import (
    Branch,
    HostStep,
    Loop,
    Region,
    RegionStep,
    Step,
    all_steps,
    begins_with_raise,
)
from regraft.splitting.program.result_classes import Classes, make_classes
from regraft.splitting.program.statements import (
    Assign,
    Break,
    Check,
    Continue,
    Evaluate,
    Raise,
    Return,
    Statement,
    StoreItem,
    Unpack,
    write_statement,
)
from regraft.splitting.sampling.number_operands import NumberOperands
from regraft.splitting.sampling.numpy_conversion import to_numpy

MAX_ITERATIONS = 10_000  # iterations of one loop
MAX_SAMPLES = 6  # samples of one region, in different sizes
MAX_FURTHER = 32  # samples of other sizes than these, which are only compared


class RegionModule(torch.nn.Module):  # type: ignore[misc]
    """A module that runs a region: its statements with the original network's parameters."""

    def __init__(self, region: Region, model: torch.nn.Module, outside: dict[str, Any]) -> None:
        """Compile the region's statements to a function.

        outside: the globals of the statements.
        """
        super().__init__()
        self.training = False  # else the exporter leaves the network in training mode
        self.network = model
        self.places_of_numbers = [
            place for place, key in enumerate(region.inputs) if key in region.numbers
        ]
        text = "\n    ".join(map(write_statement, region.statements))
        header = ", ".join(["self", *region.inputs])
        outputs = "".join(f"{key}, " for key in region.outputs)
        self.scope = dict(outside)
        source = f"def region({header}):\n    {text}\n    return ({outputs})\n"
        exec(compile(source, f"<region {region.number}>", "exec"), self.scope)
        self.function: Callable[..., Any] = self.scope["region"]

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Return the values of the region's outputs as a tuple."""
        numbers = [inputs[place] for place in self.places_of_numbers]
        if not numbers:
            return self.function(self.network, *inputs)
        with NumberOperands(numbers) as operands:
            self.scope.update(float=operands.to_float, int=operands.to_int)
            try:
                return self.function(self.network, *inputs)
            finally:
                self.scope.update(float=float, int=int)


def as_tensor(value: Any) -> torch.Tensor:
    """Return an array or a number as a tensor; raise OverflowError for a whole number that does not
    fit into 64 bits."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise OverflowError(f"{value} goes into tensors here, which take whole numbers of 64 bits")
    return torch.from_numpy(
        numpy.ascontiguousarray(value) if numpy.ndim(value) else numpy.asarray(value)
    )


def closed_shape(tensor: torch.Tensor, dims: frozenset[int]) -> list[int]:
    """Return the shape as a list, with -1 for the dimensions that are open."""
    return [-1 if dim in dims else size for dim, size in enumerate(tensor.shape)]


def common_sizes(shapes: list[torch.Size]) -> list[int | None]:
    """Return for each dimension the size that all shapes share, None where they differ; raise
    ValueError for shapes of several numbers of dimensions."""
    return [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)]


def check_shapes(region: Region, inputs: tuple[torch.Tensor, ...]) -> None:
    """Raise Unsplittable for inputs of a region that differ from its first sample in more than open
    sizes."""
    if not region.samples:
        return
    for tensor, first, dims in zip(inputs, region.samples[0], region.open, strict=True):
        if tensor.dtype != first.dtype or closed_shape(tensor, dims) != closed_shape(first, dims):
            raise Unsplittable(
                *region.place,
                f"region {region.number} gets inputs of several shapes, which cannot be"
                " followed here",
            )


def shows_new_difference(sizes: list[torch.Size], sizes_of_samples: list[list[torch.Size]]) -> bool:
    """Return whether a size in `sizes` differs from the one that all samples, of which there is at
    least one, share, or is 0 or 1, by which operations decide, as in no sample."""
    columns = zip(sizes, *sizes_of_samples, strict=True)
    return any(
        (size != first and {*other_sizes} <= {first})
        or (size <= 1 and size not in (first, *other_sizes))
        for shapes in columns
        for size, first, *other_sizes in zip(*shapes, strict=True)
    )


class Explorer:
    """Runs a residual program, step by step, and adds samples of the inputs of its regions to them;
    regions run as torch modules.

    The methods get and change `names`, the values of the program's variables by name.
    """

    max_iterations = MAX_ITERATIONS

    def __init__(
        self, path: str, regions: list[Region], modules: list[RegionModule], classes: Classes
    ) -> None:
        self.path, self.regions, self.modules = path, regions, modules
        self.place = (path, 0)  # file and line of the step that runs
        # of the host's statements
        self.scope = {
            "math": math,
            "numpy": numpy,
            **make_classes(classes),
        }
        self.tried_bodies: set[int] = set()
        self.compiled: dict[ast.expr, CodeType] = {}

    def run(self, steps: list[Step], names: dict[str, Any]) -> str:
        """Run `steps`, which changes `names`, and return what ended them: "break", "continue" or
        "return", or "" for the end of the steps."""
        for position, step in enumerate(steps):
            ended = self.run_step(step, names, steps[position + 1 :])
            if ended:
                return ended
        return ""

    def run_step(self, step: Step, names: dict[str, Any], following: list[Step]) -> str:
        """Run one step and return how it left its block: "break", "continue" or "return"; "" where
        it did not. following: the steps after it."""
        if isinstance(step, RegionStep):
            self.place = self.regions[step.number].place
            self.run_region(step, names)
        elif isinstance(step, HostStep):
            self.place = step.place if step.place[1] else self.place
            return self.run_host_statement(step.statement, names)
        elif isinstance(step, Branch):
            self.place = (step.path, step.line) if step.line else self.place
            return self.run_branch(step, names, following)
        elif isinstance(step, Loop):
            return self.run_loop(step, names)
        return ""

    def run_region(self, step: RegionStep, names: dict[str, Any]) -> None:
        """Add the inputs of a region, taken from `names`, to its samples, run it, and set its
        outputs in `names` as arrays; raise Unsplittable for an output that is no tensor or int. The
        sample is taken back where the region raises."""
        region = self.regions[step.number]
        inputs = tuple(as_tensor(names[key]) for key in region.inputs)
        sample_count, further_count = len(region.samples), len(region.further)
        self.add_sample(region, inputs)
        try:
            with torch.no_grad():
                outputs = self.modules[step.number](*inputs)
        except Exception:
            # the inputs come from a state that never leads here
            del region.samples[sample_count:], region.further[further_count:]
            raise
        for key, value in zip(region.outputs, outputs, strict=True):
            if not isinstance(value, (torch.Tensor, int)):
                raise Unsplittable(*region.place, f"{key} is no tensor but has to leave a region")
            names[key] = to_numpy(torch.as_tensor(value))

    def add_sample(self, region: Region, inputs: tuple[torch.Tensor, ...]) -> None:
        """Append a copy of the inputs to the region's samples where their sizes are new, but no
        more than `MAX_SAMPLES` unless a size differs for the first time; then to the further ones,
        no more than `MAX_FURTHER`. Raises Unsplittable for inputs that differ from the first sample
        in more than open sizes."""
        check_shapes(region, inputs)
        sizes = [tensor.shape for tensor in inputs]
        sizes_of_samples, sizes_of_further = (
            [[tensor.shape for tensor in sample] for sample in samples]
            for samples in (region.samples, region.further)
        )
        if sizes in sizes_of_samples:
            return
        if len(sizes_of_samples) < MAX_SAMPLES or shows_new_difference(sizes, sizes_of_samples):
            region.samples.append(tuple(tensor.clone() for tensor in inputs))
        elif sizes not in sizes_of_further and len(sizes_of_further) < MAX_FURTHER:
            region.further.append(tuple(tensor.clone() for tensor in inputs))

    def run_host_statement(self, statement: Statement, names: dict[str, Any]) -> str:
        """Run a statement of the host that has no block (branches and loops are steps of their own)
        and return how it left the block that it is in: "break", "continue" or "return"; "" where it
        did not.

        Assignments change `names`, a stored element changes its container, and the value of a
        return statement becomes names["return"]. Raises AssertionError, or ValueError with a
        message, for a check that does not hold, and what a raise statement or an expression raises.
        """
        match statement:
            case Assign(target, code):
                names[target] = self.evaluate(code, names)
            case Unpack(targets, code):
                names.update(zip(targets, self.evaluate(code, names), strict=True))
            case StoreItem(base, index, code):
                value = self.evaluate(code, names)
                self.evaluate(base, names)[self.evaluate(index, names)] = value
            case Evaluate(code):
                self.evaluate(code, names)
            case Check(code, message):
                holds = self.evaluate(code, names)
                if message and not holds:
                    raise ValueError(message)
                assert holds
            case Raise(code):
                raise self.evaluate(code, names)
            case Return(code):
                names["return"] = self.evaluate(code, names)
                return "return"
            case Break():
                return "break"
            case Continue():
                return "continue"
        return ""

    def evaluate(self, code: ast.expr, names: dict[str, Any]) -> Any:
        """Return the value of an expression of the host over `names`, whose objects it may change;
        raise what the expression raises. The compiled code is stored in `compiled`."""
        if code not in self.compiled:
            self.compiled[code] = compile(
                ast.fix_missing_locations(ast.Expression(code)), "<host>", "eval"
            )
        return eval(self.compiled[code], self.scope, names)

    def run_branch(self, step: Branch, names: dict[str, Any], following: list[Step]) -> str:
        """Run the arm whose test holds, and return how it ended: "break", "continue", "return", or
        "" for its end, and where no test holds. Before that, run each other arm for samples
        (`try_body`), unless it was run so before.

        Arms that raise, and branches of `and` or `or` alone, are not tried.
        """
        chosen_body = self.choose_body(step, names)
        for _, body in step.arms:
            if body is not chosen_body and any(step.labels):
                self.try_body(body, names, following)
        return self.run(chosen_body, names) if chosen_body is not None else ""

    def choose_body(self, step: Branch, names: dict[str, Any]) -> list[Step] | None:
        """Return the body of the first arm whose test holds; None where none does."""
        for test, body in step.arms:
            if test is None or self.evaluate(test, names):
                return body
        return None

    def try_body(self, body: list[Step], names: dict[str, Any], following: list[Step]) -> None:
        """Run the body of an arm that this input does not take, on a copy of `names`, to get
        samples of its regions; do nothing where it raises or was tried before.

        following: the steps after the branch, which are run, too, if a region of theirs has no
        samples.
        """
        if id(body) in self.tried_bodies or begins_with_raise(body):
            return
        self.tried_bodies.add(id(body))
        later_regions = (
            self.regions[inner.number]
            for inner in all_steps(following)
            if isinstance(inner, RegionStep)
        )
        has_unreached = any(not region.samples for region in later_regions)
        steps = [*body, *following] if has_unreached else body
        self.run_for_samples(steps, copy.deepcopy(names))

    def run_for_samples(self, body: list[Step], names: dict[str, Any]) -> None:
        """Run steps that this input does not lead to, only so that their regions get samples;
        `names` is changed. Usual exceptions end the run and are suppressed, because such values
        never lead there."""
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

    def run_loop(self, step: Loop, names: dict[str, Any]) -> str:
        """Run a loop of the program; return "return" where its body returns, "" where it ends
        otherwise."""
        elements = (
            self.evaluate(step.header[1], names) if step.header else range(self.max_iterations)
        )
        for element in elements:
            if step.header:
                names[step.header[0]] = element
            ended = self.run(step.body, names)
            if ended == "break":
                return ""
            if ended == "return":
                return ended
        if step.header is None:
            self.handle_iteration_limit()
        return ""

    def handle_iteration_limit(self) -> None:
        """Do nothing at the limit of a loop: a side that runs out of turn need not end, and has
        given samples."""
