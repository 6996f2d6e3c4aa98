"""Observe what a call does beside its result: calls of submodules, random numbers and shared
memory."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from regraft.execution.nested import copy_leaf, flatten
from regraft.verification.child import call_arguments
from regraft.verification.child.state_watch import StateChange


class Log(dict[str, list[Any]]):
    """Copies of the results of each call of a submodule by path, in order, beside the results
    themselves, which hooks may keep."""

    def __init__(self) -> None:
        """Begin an empty log."""
        super().__init__()
        self._results: list[tuple[str, Any, int]] = []

    def add(self, path: str, result: Any) -> None:
        """Add a copy of the leaves of the result of a call at a path, and note the state of its
        tensors."""
        leaves = flatten(result, "result")
        self.setdefault(path, []).append({name: copy_leaf(leaf) for name, leaf in leaves.items()})
        for leaf in leaves.values():
            if isinstance(leaf, torch.Tensor) and not leaf.is_inference():
                self._results.append((path, leaf, leaf._version))

    def changes_in_place(self) -> tuple[str, ...]:
        """Return a sentence for each path of which a result was changed in place since hooks saw
        it: a hook that keeps it then holds other numbers."""
        paths = [path for path, tensor, version in self._results if tensor._version != version]
        return tuple(
            f"the result that hooks on {path!r} see changes in place after them"
            for path in dict.fromkeys(paths)
        )


@contextmanager
def watch_calls(module: Any) -> Iterator[Log]:
    """Hook all submodules of a module, without the module itself, in the body; the log gets the
    results of each call. A value that is no module has an empty log."""
    log = Log()
    with ExitStack() as hooks:
        for path, submodule in module.named_modules() if isinstance(module, nn.Module) else ():
            if path:
                hooks.enter_context(submodule.register_forward_hook(_logging_hook(log, path)))
        yield log


def _logging_hook(log: Log, path: str) -> Any:
    """Return a forward hook that adds the result to the calls of `path` in `log`."""

    def after(_: Any, __: Any, result: Any) -> None:
        """Add the result to the log, and leave it as it is."""
        log.add(path, result)

    return after


def flatten_log(log: Log) -> dict[str, Any]:
    """Return a log as flat leaves by "PATH call NUMBER NAME", ordered by path; calls of a path are
    numbered by the sum of their results, as they come in any order."""
    return {
        f"{path} call {number} {name}": value
        for path, calls in sorted(log.items())
        for number, leaves in enumerate(sorted(calls, key=_sum_of_tensors))
        for name, value in leaves.items()
    }


def first_reordered_pair(before: Iterable[str], after: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two submodules that stand next to each other in `before`, and in the reverse
    order in `after`; None where there are none. Submodules in only one of the two are ignored."""
    places = {path: number for number, path in enumerate(after)}
    for first, second in itertools.pairwise(path for path in before if path in places):
        if places[first] > places[second]:
            return first, second
    return None


def _sum_of_tensors(leaves: Mapping[str, Any]) -> float:
    """Return the sum of all elements of the tensors among some leaves."""
    return sum(
        float(value.double().sum()) for value in leaves.values() if isinstance(value, torch.Tensor)
    )


def count_calls(flat_log: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of calls of each submodule by path, from the names of a flat log;
    submodules that were not called are absent."""
    calls = {tuple(name.split(" ", 3)[:3]) for name in flat_log}  # path, "call", number
    paths = [path for path, *_ in sorted(calls)]
    return {path: paths.count(path) for path in paths}


def random_states() -> dict[str, Any]:
    """Return a snapshot of every source of random numbers that model code may use, with the names
    "torch" (CPU), "the standard library" and, where it is imported, "NumPy"; snapshots compare with
    ==."""
    states: dict[str, Any] = {
        "torch": torch.default_generator.get_state().numpy().tobytes(),
        "the standard library": random.getstate(),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *position_fields = numpy.random.get_state()
        states["NumPy"] = (name, keys.tobytes(), *position_fields)
    return states


def shared_memory(
    flat_result: Mapping[str, Any], arguments: call_arguments.LiveArguments, module: Any
) -> tuple[str, ...]:
    """Return a sentence for each tensor of a result whose memory belongs to an argument, a
    parameter or a buffer, or begins where that of another result does: "PATH shares memory with
    NAME". `module` may be None."""
    owners = {_memory_address(tensor): name for name, (tensor, _) in arguments.passed.items()}
    if isinstance(module, nn.Module):
        for name, value in module.named_parameters():
            owners[_memory_address(value)] = f"parameter {name}"
        for name, value in module.named_buffers():
            owners[_memory_address(value)] = f"buffer {name}"
    owners.pop(0, None)
    tensors = {
        path: value for path, value in flat_result.items() if isinstance(value, torch.Tensor)
    }
    starts: dict[tuple[int, int], str] = {}
    names = []
    for path, value in tensors.items():
        address = _memory_address(value)
        start = (address, value.storage_offset()) if address and value.numel() else (0, 0)
        names.append((path, owners.get(address) or (starts.get(start) if any(start) else None)))
        starts.setdefault(start, path)
    return tuple(f"{path} shares memory with {name}" for path, name in names if name)


def ties_of_state(
    changes: Iterable[StateChange],
    flat_result: Mapping[str, Any],
    arguments: call_arguments.LiveArguments,
) -> tuple[str, ...]:
    """Return a sentence for each tensor of the state that a call changed which keeps the graph of
    its computation, and all that it was computed from with it, or whose memory belongs to a result
    or an argument, which the caller may overwrite."""
    owners = {_memory_address(tensor): name for name, (tensor, _) in arguments.passed.items()}
    for path, value in flat_result.items():
        if isinstance(value, torch.Tensor):
            owners.setdefault(_memory_address(value), path)
    owners.pop(0, None)
    sentences = []
    state: dict[str, Any] = {}
    for change in changes:
        state.update(flatten(change.value, change.path))
    for path, tensor in state.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        if tensor.grad_fn is not None:
            sentences.append(f"{path} keeps the graph of its computation")
        owner = owners.get(_memory_address(tensor))
        if owner is not None:
            sentences.append(f"{path} shares memory with {owner}")
    return tuple(sentences)


def _memory_address(tensor: Any) -> int:
    """Return the address of a tensor's memory; 0 where the tensor has no memory or does not expose
    it."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):
        return 0
