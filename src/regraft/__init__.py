"""Regraft: make PyTorch models faster by rewriting their source, and prove every rewrite by running it."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["optimize", "restore"]


def __getattr__(name: str) -> Any:
    """`regraft.optimize` and `regraft.restore`, read when they are asked for: scanning needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("regraft.live"), name)
