"""Import both versions of a file into one process."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from regraft.source.object_reference import load_source

SUFFIX = "__regraft"
AGAIN = "__again"
ORIGINAL = "__original"


def package_of(path: Path) -> tuple[Path, str]:
    """Return the folder to import from and the dotted name of a file, found through its parents' `__init__.py`."""
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def load_original(path: Path) -> ModuleType:
    """Import the file as it stands, inside its package by its real name where it has one.

    Raises ImportError where another copy of the package shadows the file.
    """
    root, name = package_of(path)
    _reachable(root)
    if "." not in name:
        return load_source(path, path.stem + ORIGINAL)
    module = importlib.import_module(name)
    loaded = Path(str(module.__file__)).resolve()
    if loaded != path.resolve():
        raise ImportError(f"{name} was imported from {loaded}, not from {path}")
    return module


def load_changed(source: Path, original: Path) -> ModuleType:
    """Import the changed text as a sibling module, so that its relative imports resolve as the original's do."""
    _, name = package_of(original)
    return load_source(source, name + SUFFIX)


def load_again(original: Path) -> ModuleType:
    """Import the original a second time, as a sibling module."""
    _, name = package_of(original)
    return load_source(original, name + AGAIN)


def plain(name: str) -> str:
    """The name of a module without what tells the versions of a file apart."""
    return name.removesuffix(SUFFIX).removesuffix(AGAIN).removesuffix(ORIGINAL)


def define_again(name: str, original: ModuleType, changed: ModuleType) -> Any:
    """Return a definition of the original as it would be in the changed module, whose other definitions it then uses.

    Returns the original's own object where its text cannot be run there.
    """
    path = str(original.__file__)
    body = ast.parse(Path(path).read_bytes()).body
    future = [node for node in body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    nodes = [node for node in body if getattr(node, "name", None) == name]
    if len(nodes) != 1:
        return getattr(original, name)
    for missing, value in vars(original).items():
        vars(changed).setdefault(missing, value)  # imports that the changed version no longer has
    before = getattr(changed, name, None)
    try:
        exec(compile(ast.Module([*future, *nodes], []), path, "exec", dont_inherit=True), vars(changed))
        return getattr(changed, name)
    except Exception:  # noqa: BLE001 - a decorator that takes no second copy; the original itself is close to it
        return getattr(original, name)
    finally:
        if before is not None:
            setattr(changed, name, before)


def rebind(module: ModuleType, name: str, value: Any) -> None:
    """Let a name of a module, and what its classes hold, mean another object.

    Tables in class attributes (which classes give the attentions) name classes that stand above them in the file.
    """
    before = vars(module).get(name)
    setattr(module, name, value)
    if before is None or before is value:
        return
    for cls in [entry for entry in vars(module).values() if isinstance(entry, type)]:
        for attribute, held in list(vars(cls).items()):
            if cls.__module__ == module.__name__ and not attribute.startswith("__"):
                other = _exchanged(held, before, value)
                if other is not held:
                    setattr(cls, attribute, other)


def _exchanged(held: Any, before: Any, value: Any) -> Any:
    """Return a value, or a table of values, with one object in the place of another; itself where it holds none."""
    if held is before:
        return value
    if type(held) in (list, tuple, dict):
        parts = list(held.values() if isinstance(held, dict) else held)
        others = [_exchanged(part, before, value) for part in parts]
        if any(other is not part for other, part in zip(others, parts, strict=True)):
            return dict(zip(held, others, strict=True)) if isinstance(held, dict) else type(held)(others)
    elif dataclasses.is_dataclass(held) and not isinstance(held, type):
        names = [name for name, part in vars(held).items() if part is before]
        return dataclasses.replace(held, **dict.fromkeys(names, value)) if names else held
    return held


def _reachable(root: Path) -> None:
    entries = {str(Path(entry or ".").resolve()) for entry in sys.path}
    if str(root.resolve()) not in entries:
        sys.path.insert(0, str(root))
