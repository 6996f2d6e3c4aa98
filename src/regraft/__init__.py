"""Regraft: make PyTorch models faster by rewriting their source, and prove every rewrite by running
it."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["Unsplittable", "load_split", "optimize", "restore", "split"]
_PACKAGES = {
    "Unsplittable": "splitting",
    "load_split": "splitting",
    "optimize": "live",
    "restore": "live",
    "split": "splitting",
}


def __getattr__(name: str) -> Any:
    """Return what one of the two back ends exports, imported on first use: scanning needs
    neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"regraft.{_PACKAGES[name]}"), name)
