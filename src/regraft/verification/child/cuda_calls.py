"""Run code that moves tensors and modules to a CUDA device where there is none."""

from __future__ import annotations

import ast
from typing import Any

import torch
from torch import nn

LABEL = "tensors stay on the CPU where `cuda()` is called"
_classes: set[str] = set()  # the names of the classes whose `cuda` was called


def keep_on_cpu(original: bytes, changed: bytes) -> None:
    """Let `cuda()` of tensors and modules return these as they are, if PyTorch has no CUDA device;
    both versions of a file then run where they would raise an error.

    Do nothing where the two texts do not call `cuda` on the same expressions in the same order: a
    change of what is moved could not be seen.
    """
    calls = _cuda_calls(original)
    if not torch.cuda.is_available() and calls and calls == _cuda_calls(changed):
        torch.Tensor.cuda = _without_move
        nn.Module.cuda = _without_move


def were_called() -> bool:
    """Return whether a tensor or module was kept on the CPU."""
    return bool(_classes)


def _cuda_calls(source: bytes) -> list[str]:
    """Return the texts of the calls of a method `cuda`, in the order in which they stand in a
    source; [] where it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "cuda"
    ]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    return [ast.unparse(node) for node in calls]


def _without_move(value: Any, *_arguments: Any, **_keywords: Any) -> Any:
    """Return a tensor or module, and note that it was to be moved."""
    _classes.add(type(value).__name__)
    return value
