"""What a call does besides giving a result: hooks that it runs, random numbers it takes, memory it shares."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from regraft.verify.child import tree

Log = dict[str, list[Any]]


@contextmanager
def watch_calls(module: Any) -> Iterator[Log]:
    """Hook all submodules of a module for a while; the log has a copy of every result by path."""
    log: Log = {}
    handles = []
    for path, part in module.named_modules() if isinstance(module, nn.Module) else ():
        if path:
            handles.append(part.register_forward_hook(_hook(log, path)))
    try:
        yield log
    finally:
        for handle in handles:
            handle.remove()


def _hook(log: Log, path: str) -> Any:
    def after(_: Any, __: Any, result: Any) -> None:
        copied = {name: _copy(value) for name, value in tree.flatten(result, "result").items()}
        log.setdefault(path, []).append(copied)

    return after


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def calls_noted(log: Log) -> dict[str, Any]:
    """Return a log as flat leaves, ordered by path and size of the results: calls of one path come in any order."""
    return {
        f"{path} call {number} {name}": value
        for path, calls in sorted(log.items())
        for number, leaves in enumerate(sorted(calls, key=_size))
        for name, value in leaves.items()
    }


def overtaken(before: Iterable[str], after: Iterable[str]) -> tuple[str, str] | None:
    """Return two submodules whose hooks first ran in one order `before` and in the other `after`; None for none."""
    places = {path: number for number, path in enumerate(after)}
    for first, second in itertools.pairwise(path for path in before if path in places):
        if places[first] > places[second]:
            return first, second
    return None


def _size(leaves: Mapping[str, Any]) -> float:
    return sum(float(value.double().sum()) for value in leaves.values() if isinstance(value, torch.Tensor))


def counted(noted: Mapping[str, Any]) -> dict[str, int]:
    """Return how often each submodule was called."""
    calls = {tuple(name.split(" ", 3)[:3]) for name in noted}  # path, "call", number
    paths = [path for path, *_ in sorted(calls)]
    return {path: paths.count(path) for path in paths}


def chance() -> dict[str, Any]:
    """Return the state of every source of random numbers that model code may use."""
    states: dict[str, Any] = {
        "torch": torch.default_generator.get_state().numpy().tobytes(),
        "the standard library": random.getstate(),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["NumPy"] = (name, keys.tobytes(), *rest)
    return states


def shared(flat: Mapping[str, Any], live: tree.Live, module: Any) -> tuple[str, ...]:
    """Return in words which results share memory with an argument, a parameter or a buffer."""
    owners = {_memory(given): name for name, (given, _) in live.passed.items()}
    if isinstance(module, nn.Module):
        owners.update({_memory(value): f"parameter {name}" for name, value in module.named_parameters()})
        owners.update({_memory(value): f"buffer {name}" for name, value in module.named_buffers()})
    owners.pop(0, None)
    tensors = {path: value for path, value in flat.items() if isinstance(value, torch.Tensor)}
    return tuple(
        f"{path} shares memory with {owners[_memory(value)]}"
        for path, value in tensors.items()
        if _memory(value) in owners
    )


def _memory(tensor: Any) -> int:
    """The address of a tensor's memory; 0 for one that has none, or none of its own kind."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):
        return 0
