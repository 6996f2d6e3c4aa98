"""The residual program run in torch, with the decisions that it takes and how near they are to their thresholds."""

from __future__ import annotations

import ast
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from regraft.splitting.explore import Explorer
from regraft.splitting.residual import Branch, Step
from regraft.splitting.results import converted

LIMIT = 2000  # iterations of one loop; an input that takes more is not compared
NEAR = 1e-5  # relative to the larger of the values compared


class TooLong(Exception):
    """A loop did not end."""


class Recorder(Explorer):
    """After `record`: trace, the sides taken in order; near, whether each decision was at its threshold.

    unequal: whether a decision was at its threshold where rounding may tell: the numbers compared are not the same.
    equals: whether equal values were put in order, of which torch says nothing about which comes first.
    """

    longest = LIMIT

    def record(self, steps: list[Step], call: dict[str, Any], near: bool = False) -> Any:
        self.trace: list[int] = []
        self.unequal = False
        self.near: list[bool] = []
        self.watch = _Comparisons() if near else None
        names = {key: to_numpy(value) for key, value in call.items()}
        if self.watch is None:
            self.run(steps, names)
        else:
            with self.watch:
                self.run(steps, names)
        self.near.append(self.watch is not None and self.watch.tied)  # for decisions that only the other takes
        self.equals = self.watch is not None and self.watch.equals
        self.unequal = self.unequal or (self.watch is not None and (self.watch.unequal or self.watch.tied))
        return to_torch(names["return"])

    def branch(self, step: Branch, names: dict[str, Any], rest: list[Step]) -> str:
        near = self.watch is not None and self.watch.found
        for (test, body), number in zip(step.arms, step.numbers, strict=True):
            if self.watch is not None and test is not None:
                near = near or self.compares_near(test, names)
            if test is None or self.value(test, names):
                if number >= 0:
                    self.trace.append(number)
                    self.near.append(near)
                if self.watch is not None:
                    self.watch.found = self.watch.tied or (near and number < 0)  # the next decision may show it
                return self.run(body, names)
        return ""

    def compares_near(self, test: ast.expr, names: dict[str, Any]) -> bool:
        near = False
        for one in ast.walk(test):
            if isinstance(one, ast.Compare) and len(one.ops) == 1:
                try:
                    left, right = (self.value(part, names) for part in (one.left, one.comparators[0]))
                except Exception:  # noqa: BLE001  (a part that a short circuit left out)
                    continue
                numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
                if numbers and (isinstance(left, float) or isinstance(right, float)) and close(left, right):
                    near, self.unequal = True, self.unequal or left != right
        return near

    def endless(self) -> None:
        raise TooLong(f"a loop takes more than {LIMIT} iterations")


class _Comparisons(TorchDispatchMode):  # type: ignore[misc]
    """Notes comparisons of single values, and choices of the largest ones, that are at their threshold."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False
        self.equals = False
        self.unequal = False  # one was, and the numbers are not the same
        self.tied = False  # a choice of several was at its threshold: it may show in any later decision

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        called = func.overloadpacket.__name__
        if called in ("gt", "ge", "lt", "le", "eq", "ne") and result.numel() == 1 and args[0].is_floating_point():
            near = close(float(args[0]), float(args[1]))
            self.found, self.unequal = self.found or near, self.unequal or (near and float(args[0]) != float(args[1]))
        elif called == "topk" and args[0].shape[-1] > args[1]:
            ordered = args[0].double().sort(descending=True).values
            self.equals = self.equals or has_equals(ordered[..., : args[1] + 1])
            last, next_one = ordered[..., args[1] - 1].flatten(), ordered[..., args[1]].flatten()
            self.tied = self.tied or any(map(close, last.tolist(), next_one.tolist()))
            self.found = self.found or self.tied
        elif called in ("sort", "argsort") and args[0].ndim:
            self.equals = self.equals or has_equals(result[0] if called == "sort" else args[0].sort().values)
        elif called in ("argmax", "argmin") and result.numel() == 1 and args[0].numel() > 1:
            ordered = args[0].flatten().double().sort(descending=called == "argmax").values
            near = close(float(ordered[0]), float(ordered[1]))
            self.found, self.unequal = self.found or near, self.unequal or near
        return result


def close(left: float, right: float) -> bool:
    return left == right or abs(left - right) <= NEAR * max(abs(left), abs(right))


def has_equals(ordered: torch.Tensor) -> bool:
    return bool((ordered[..., 1:] == ordered[..., :-1]).any())


def to_numpy(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def to_torch(value: Any) -> Any:
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        return torch.from_numpy(numpy.asarray(value))
    if type(value) in (tuple, list):
        return type(value)(map(to_torch, value))
    if type(value) is dict:
        return {key: to_torch(item) for key, item in value.items()}
    return converted(to_torch, value)
