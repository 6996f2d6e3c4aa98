"""The compilers of regions by name: each is a module `with_NAME` of this package."""

from __future__ import annotations

import importlib
from pathlib import Path

from regraft.splitting.compiling.compilers.protocol import Compiler

NAMES = tuple(
    sorted(path.stem.removeprefix("with_") for path in Path(__file__).parent.glob("with_*.py"))
)


def compiler_named(name: str) -> Compiler:
    """Return the compiler of this name.

    Raises ValueError for an unknown name, ImportError where the compiler's package is missing.
    """
    if name not in NAMES:
        raise ValueError(f"unknown compiler {name!r}; there are {', '.join(NAMES)}")
    compiler: Compiler = importlib.import_module(
        f"regraft.splitting.compiling.compilers.with_{name}"
    ).COMPILER
    return compiler
