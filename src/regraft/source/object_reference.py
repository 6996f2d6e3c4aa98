"""Functions that the user names on the command line: `package.module:function` or `path/to/file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


def find_function(spec: str, folder: str) -> Callable[..., Any]:
    """The function that a target names, its module imported as seen from `folder`.

    Raises ValueError for what is not written so or names no function; whatever the user's file raises goes through.
    """
    where, _, name = spec.rpartition(":")
    if not where or not name:
        raise ValueError(f"{spec!r} is not written MODULE:FUNCTION or FILE.py:FUNCTION")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    path = Path(folder, where)
    module = load_source(path, f"{path.stem}__driver") if where.endswith(".py") else importlib.import_module(where)
    found = getattr(module, name, None)
    if not callable(found):
        raise ValueError(f"{where} has no function {name}")
    return found  # type: ignore[no-any-return]


def load_source(path: Path, name: str) -> ModuleType:
    """Import one file under a name of our choice."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
