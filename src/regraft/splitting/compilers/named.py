"""Compilers by name."""

from __future__ import annotations

import importlib

from regraft.splitting.compilers.protocol import Compiler

NAMES = ("onnxruntime", "openvino", "aotinductor")


def compiler_named(name: str) -> Compiler:
    """Raises ValueError for an unknown name, ImportError where its package is missing."""
    if name not in NAMES:
        raise ValueError(f"unknown compiler {name!r}; there are {', '.join(NAMES)}")
    found: Compiler = importlib.import_module(f"regraft.splitting.compilers.with_{name}").COMPILER
    return found
