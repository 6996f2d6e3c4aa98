"""The compilers of regions by name: each is a module `with_NAME` of this package."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

from regraft.splitting.compiling.compilers.protocol import Compiler

NAMES = tuple(
    sorted(path.stem.removeprefix("with_") for path in Path(__file__).parent.glob("with_*.py"))
)


AUTO = "auto"  # stands for the fastest of the compilers that are installed


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


def installed_compilers() -> list[Compiler]:
    """Return the compilers whose packages and programs are installed, ONNX Runtime first."""
    compilers = []
    for name in sorted(NAMES, key=lambda name: (name != "onnxruntime", name)):
        try:
            compiler = compiler_named(name)
        except ImportError:
            continue
        if all(map(shutil.which, compiler.programs)):
            compilers.append(compiler)
    return compilers
