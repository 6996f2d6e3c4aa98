"""Liger's own patch of a model, to compare with: `apply_liger_kernel_to_*` of liger-kernel, by the
model's type."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from regraft.benchmarking.steps import BenchError
from regraft.ops.liger import liger_module
from regraft.ops.triton_interpreter import is_interpreting

Change = tuple[Any, str, Any, Any]  # a module or class, a name in it, its value before and after
MISSING = object()


@dataclass(frozen=True, slots=True)
class Patched:
    """A model that Liger has patched.

    Liger also rebinds functions and classes of the model's file, which would change the original
    that the model is compared with. So the changes outside of the instance only hold while the
    model runs.
    """

    model: nn.Module
    changes: tuple[Change, ...]

    def train(self, mode: bool) -> Patched:
        """Set training or evaluation mode, as `nn.Module.train` does."""
        self.model.train(mode)
        return self

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the model's parameters."""
        parameters: Iterator[nn.Parameter] = self.model.parameters()
        return parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.apply_changes():
            return self.model(*args, **kwargs)

    @contextmanager
    def apply_changes(self) -> Iterator[None]:
        """Apply the changes outside of the instance for the length of a `with` block."""
        _set_attributes([(owner, name, after) for owner, name, _, after in self.changes])
        try:
            yield
        finally:
            _set_attributes([(owner, name, before) for owner, name, before, _ in self.changes])


def _check_liger_runs(model: nn.Module) -> None:
    """Raise BenchError where Liger is missing, or its kernels do not run on the model's device.
    Triton's interpreter is prepared where it is to run them."""
    device = next((parameter.device.type for parameter in model.parameters()), "cpu")
    if device != "cuda" and not is_interpreting():
        raise BenchError(f"--liger: Liger's kernels run on CUDA, and this model is on {device}")
    if liger_module("rms_norm") is None:
        raise BenchError(
            "--liger needs the package liger-kernel, which is not installed or does not load"
        )


def liger_patched(model: nn.Module) -> Patched | None:
    """Let Liger patch this copy of a model; None where it has no patch for models of its type.

    Raises BenchError where Liger is missing or does not run, or where its patch does not apply.
    """
    _check_liger_runs(model)
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        return None
    before = _snapshot_namespaces()
    try:
        MODEL_TYPE_TO_APPLY_LIGER_FN[kind](model=model)
    except Exception as problem:
        _undo(before)
        raise BenchError(
            f"Liger's patch for {kind} fails: {type(problem).__name__}: {problem}"
        ) from problem
    return Patched(model, tuple(_undo(before)))


def _snapshot_namespaces() -> dict[int, tuple[Any, dict[str, Any]]]:
    """Return the modules and classes of transformers and torch.nn, with copies of their namespaces,
    by id."""
    snapshot: dict[int, tuple[Any, dict[str, Any]]] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "transformers" or name.startswith("torch.nn"):
            snapshot[id(module)] = (module, dict(vars(module)))
            classes = [
                value
                for value in vars(module).values()
                if isinstance(value, type) and value.__module__ == name
            ]
            snapshot.update({id(cls): (cls, dict(vars(cls))) for cls in classes})
    return snapshot


def _undo(before: dict[int, tuple[Any, dict[str, Any]]]) -> Iterator[Change]:
    """Undo the changes since `before`, and return them."""
    changes = [
        (owner, name, namespace.get(name, MISSING), vars(owner).get(name, MISSING))
        for owner, namespace in before.values()
        for name in {**namespace, **vars(owner)}
        if namespace.get(name, MISSING) is not vars(owner).get(name, MISSING)
    ]
    _set_attributes([(owner, name, value) for owner, name, value, _ in changes])
    return iter(changes)


def _set_attributes(values: list[tuple[Any, str, Any]]) -> None:
    """Set attributes of modules or classes, or delete those whose value is MISSING."""
    for owner, name, value in values:
        if value is MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
