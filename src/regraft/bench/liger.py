"""Liger's own patch of a model, by its name, to compare with: `apply_liger_kernel_to_*` of liger-kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from regraft.bench.measure import BenchError
from regraft.ops.liger import liger
from regraft.ops.triton_interpreter import interprets

Change = tuple[Any, str, Any, Any]  # a module or class, a name in it, its value before and after
MISSING = object()


@dataclass(frozen=True, slots=True)
class Patched:
    """A model that Liger has patched; what it changed outside of the instance only holds while the model runs.

    Liger also rebinds functions and classes of the model's file, which would change the original that it is compared
    with.
    """

    model: nn.Module
    changes: tuple[Change, ...]

    def train(self, mode: bool) -> Patched:
        self.model.train(mode)
        return self

    def parameters(self) -> Iterator[nn.Parameter]:
        parameters: Iterator[nn.Parameter] = self.model.parameters()
        return parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.held():
            return self.model(*args, **kwargs)

    @contextmanager
    def held(self) -> Iterator[None]:
        _set([(holder, name, after) for holder, name, _, after in self.changes])
        try:
            yield
        finally:
            _set([(holder, name, before) for holder, name, before, _ in self.changes])


def liger_patched(model: nn.Module) -> Patched | None:
    """Let Liger patch this copy of a model; None where it has no patch for models of its type.

    Raises BenchError where Liger is missing or does not run, or where its patch does not apply.
    """
    device = next((one.device.type for one in model.parameters()), "cpu")
    if device != "cuda" and not interprets():
        raise BenchError(f"--liger: Liger's kernels run on CUDA, and this model is on {device}")
    if liger("rms_norm") is None:  # also prepares Triton's interpreter, where that is to run the kernels
        raise BenchError("--liger needs the package liger-kernel, which is not installed or does not load")
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        return None
    before = _holders()
    try:
        MODEL_TYPE_TO_APPLY_LIGER_FN[kind](model=model)
    except Exception as problem:
        _undo(before)
        raise BenchError(f"Liger's patch for {kind} fails: {type(problem).__name__}: {problem}") from problem
    return Patched(model, tuple(_undo(before)))


def _holders() -> dict[int, tuple[Any, dict[str, Any]]]:
    """What may be rebound, as it is now: modules of transformers and PyTorch, and their classes."""
    found: dict[int, tuple[Any, dict[str, Any]]] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "transformers" or name.startswith("torch.nn"):
            found[id(module)] = (module, dict(vars(module)))
            classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == name]
            found.update({id(one): (one, dict(vars(one))) for one in classes})
    return found


def _undo(before: dict[int, tuple[Any, dict[str, Any]]]) -> Iterator[Change]:
    """Take back what differs from `before`, and say what that was."""
    changes = [
        (holder, name, known.get(name, MISSING), vars(holder).get(name, MISSING))
        for holder, known in before.values()
        for name in {**known, **vars(holder)}
        if known.get(name, MISSING) is not vars(holder).get(name, MISSING)
    ]
    _set([(holder, name, value) for holder, name, value, _ in changes])
    return iter(changes)


def _set(values: list[tuple[Any, str, Any]]) -> None:
    for holder, name, value in values:
        if value is MISSING:
            delattr(holder, name)
        else:
            setattr(holder, name, value)
