"""The functions that the user names on the command line: `package.module:function` or
`path/to/file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


class TargetError(ValueError):
    """The error that a target on the command line names no function; the text says why."""


def find_function(spec: str, folder: str) -> Callable[..., Any]:
    """Return the function that a target names, with its module imported as seen from `folder`.
    Raise TargetError for a text of another form, and where there is no such file or function;
    errors of the user's file are passed on."""
    module_reference, _, name = spec.rpartition(":")
    if not module_reference or not name:
        raise TargetError(f"{spec!r} is not written MODULE:FUNCTION or FILE.py:FUNCTION")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    path, is_file = Path(folder, module_reference), module_reference.endswith(".py")
    if is_file and not path.is_file():
        raise TargetError(f"there is no file {module_reference}")
    if is_file:
        module = load_source(path, f"{path.stem}__driver")
    else:
        module = importlib.import_module(module_reference)
    function = getattr(module, name, None)
    if not callable(function):
        raise TargetError(f"{module_reference} has no function {name}")
    return function  # type: ignore[no-any-return]


def load_source(path: Path, name: str) -> ModuleType:
    """Import one file under a given name; raise ImportError for a file that Python cannot load."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
