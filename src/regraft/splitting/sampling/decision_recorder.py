"""Runs of the residual program in torch that record its decisions, and how near they are to their
thresholds."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regraft.splitting.program.residual import Branch, Region, Step
from regraft.splitting.sampling.branch_exploration import Explorer, check_shapes
from regraft.splitting.sampling.numpy_conversion import to_numpy, to_torch

MAX_ITERATIONS = 2000  # iterations of one loop; an input that takes more is not compared
TOLERANCE = 1e-5  # for values near a threshold, relative to the larger of the values compared


class TooLong(Exception):
    """Signals that a loop takes too many iterations."""


class Recorder(Explorer):
    """Runs the residual program and records its decisions.

    After `record`: trace, the sides taken in order. near, for each decision whether it was at its
    threshold. near_unequal, whether a decision was at its threshold where rounding may tell: the
    numbers compared are not the same. orders_equals, whether equal values were put in order, of
    which torch says nothing about which comes first.
    """

    max_iterations = MAX_ITERATIONS

    def record(self, steps: list[Step], call: dict[str, Any], near: bool = False) -> Any:
        """Run the steps with these arguments, set the attributes that the class describes, and
        return the result, with tensors in the place of arrays. Raises TooLong for a loop that does
        not end.

        near: whether to look for decisions at their thresholds; without it, no decision is recorded
        as near.
        """
        self.trace: list[int] = []
        self.near_unequal = False
        self.near: list[bool] = []
        self.comparisons = _Comparisons() if near else None
        names = {key: to_numpy(value) for key, value in call.items()}
        if self.comparisons is None:
            self.run(steps, names)
        else:
            with self.comparisons:
                self.run(steps, names)
        # the last entry is for a decision that only the split network takes
        self.near.append(self.comparisons is not None and self.comparisons.tied)
        self.orders_equals = self.comparisons is not None and self.comparisons.orders_equals
        self.near_unequal = self.near_unequal or (
            self.comparisons is not None
            and (self.comparisons.near_unequal or self.comparisons.tied)
        )
        return to_torch(names["return"])

    def run_branch(self, step: Branch, names: dict[str, Any], following: list[Step]) -> str:
        """Run the body of the first arm whose test holds, and return how it ended: "break",
        "continue", "return", or "" for its end, and where no test holds; other arms are not run.
        Append the arm's number to `trace`, if it is no -1, and to `near` whether a test was at its
        threshold."""
        near = self.comparisons is not None and self.comparisons.at_threshold
        for (test, body), number in zip(step.arms, step.numbers, strict=True):
            if self.comparisons is not None and test is not None:
                near = near or self.compares_near(test, names)
            if test is None or self.evaluate(test, names):
                if number >= 0:
                    self.trace.append(number)
                    self.near.append(near)
                if self.comparisons is not None:
                    # the next decision may show it
                    self.comparisons.at_threshold = self.comparisons.tied or (near and number < 0)
                return self.run(body, names)
        return ""

    def compares_near(self, test: ast.expr, names: dict[str, Any]) -> bool:
        """Return whether the test compares two numbers, one of them a float, that are so close that
        rounding may decide; set `near_unequal` where they are not equal."""
        near = False
        for node in ast.walk(test):
            if not isinstance(node, ast.Compare) or len(node.ops) > 1:
                continue
            try:
                numbers = [self.evaluate(part, names) for part in (node.left, *node.comparators)]
            except Exception:  # noqa: BLE001  (a part that a short circuit left out)
                continue
            match numbers:
                case [float(left), int(right) | float(right)] | [int(left), float(right)]:
                    if is_close(left, right):
                        near, self.near_unequal = True, self.near_unequal or left != right
        return near

    def handle_iteration_limit(self) -> None:
        """Raise TooLong: a loop has reached the limit."""
        raise TooLong(f"a loop takes more than {MAX_ITERATIONS} iterations")


class SideRecorder(Recorder):
    """Runs the residual program and records its decisions before the regions are compiled: these
    get no further samples."""

    def add_sample(self, region: Region, inputs: tuple[torch.Tensor, ...]) -> None:
        """Add nothing; raise Unsplittable for inputs that no sample can be added for."""
        check_shapes(region, inputs)


class _Comparisons(TorchDispatchMode):  # type: ignore[misc]
    """A mode that notes operations whose outcome rounding may decide: comparisons of single values,
    and choices of the largest ones, with values that are close.

    at_threshold: there was such a comparison or choice. near_unequal: there was one between unequal
    numbers. orders_equals: equal values were put in order. tied: there was such a choice of several
    values, which may show in any later decision.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at_threshold = False
        self.orders_equals = False
        self.near_unequal = False
        self.tied = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, note it by its method in NOTES, if there is one, and return its
        result."""
        result = func(*args, **(kwargs or {}))
        note = NOTES.get(func.overloadpacket.__name__)
        if note is not None:
            note(self, args, result)
        return result

    def note_comparison(self, args: Any, result: Any) -> None:
        """Set `at_threshold`, and `near_unequal` for unequal numbers, if the operands `args` are
        close: a tensor of one float, and a tensor or number. `result` is the tensor that their
        comparison gives, which has one element where both are single."""
        if result.numel() == 1 and args[0].is_floating_point():
            left, right = float(args[0]), float(args[1])
            near = is_close(left, right)
            self.at_threshold = self.at_threshold or near
            self.near_unequal = self.near_unequal or (near and left != right)

    def note_topk(self, args: Any, result: Any) -> None:
        """Set `tied` and `at_threshold` if the first value that is left out of the largest ones is
        close to the last one chosen; note the order of equal values with `note_order`. Nothing is
        noted where all values are chosen."""
        values, count = args[0], args[1]
        if values.shape[-1] > count:
            ordered = values.double().sort(descending=True).values
            self.note_order(ordered[..., : count + 1])
            last, following = ordered[..., count - 1].flatten(), ordered[..., count].flatten()
            self.tied = self.tied or any(map(is_close, last.tolist(), following.tolist()))
            self.at_threshold = self.at_threshold or self.tied

    def note_sort(self, args: Any, result: Any) -> None:
        """Set `orders_equals` for a sort that puts equal values in order."""
        if args[0].ndim:
            self.note_order(result[0])

    def note_argsort(self, args: Any, result: Any) -> None:
        """Set `orders_equals` for a sort, of which only the indices are asked, that puts equal
        values in order."""
        if args[0].ndim and not self.orders_equals:
            self.note_order(args[0].sort().values)

    def note_order(self, ordered: torch.Tensor) -> None:
        """Set `orders_equals` if neighbours in the last dimension of an ordered tensor are
        equal."""
        self.orders_equals = self.orders_equals or has_equal_neighbours(ordered)

    def note_argmax(self, args: Any, result: Any) -> None:
        """Note a choice of one index, that of the largest of several values, where the second is
        about as large."""
        self.note_extreme(args[0], result, descending=True)

    def note_argmin(self, args: Any, result: Any) -> None:
        """Note a choice of one index, that of the smallest of several values, where the second is
        about as small."""
        self.note_extreme(args[0], result, descending=False)

    def note_extreme(self, values: torch.Tensor, result: Any, descending: bool) -> None:
        """Set `at_threshold` and `near_unequal` if the first two of the ordered values are close,
        so that rounding may decide which index is chosen; do nothing where several indices are
        chosen."""
        if result.numel() == 1 and values.numel() > 1:
            ordered = values.flatten().double().sort(descending=descending).values
            near = is_close(float(ordered[0]), float(ordered[1]))
            self.at_threshold = self.at_threshold or near
            self.near_unequal = self.near_unequal or near


# the methods that note operations, by the names of the operations
NOTES: dict[str, Callable[[_Comparisons, Any, Any], None]] = {
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne"), _Comparisons.note_comparison),
    "topk": _Comparisons.note_topk,
    "sort": _Comparisons.note_sort,
    "argsort": _Comparisons.note_argsort,
    "argmax": _Comparisons.note_argmax,
    "argmin": _Comparisons.note_argmin,
}


def is_close(left: float, right: float) -> bool:
    """Return whether two numbers are equal, or differ by no more than `TOLERANCE`."""
    return left == right or abs(left - right) <= TOLERANCE * max(abs(left), abs(right))


def has_equal_neighbours(ordered: torch.Tensor) -> bool:
    """Return whether neighbours in the last dimension of an ordered tensor are equal."""
    return bool((ordered[..., 1:] == ordered[..., :-1]).any())
