"""Regraft: make PyTorch models faster by rewriting their source, and prove every rewrite by running
it."""

from __future__ import annotations

import importlib

__version__ = "0.1.0"
_MODULES = {  # with their types in __init__.pyi
    "CheckResult": "api",
    "Optimization": "live",
    "Unsplittable": "splitting",
    "Verdict": "verification",
    "VerifyError": "verification",
    "bench": "api",
    "check": "api",
    "load_split": "splitting",
    "optimize": "live",
    "restore": "live",
    "split": "splitting",
    "verify": "api",
    "watch": "live",
}
__all__ = [*_MODULES]  # noqa: PLE0604  all are texts


def __getattr__(name: str) -> object:
    """Return what one of the modules exports, imported on first use: scanning needs no torch, and
    starts fast."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"regraft.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
