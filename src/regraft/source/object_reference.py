"""The functions that the user names on the command line: `package.module:function` or
`path/to/file.py:function`."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import symtable
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from regraft.source.qualified_names import package_of
from regraft.source.similar_names import suggest, suggest_path

# by these a file may bind names that do not stand in it
_BINDERS = re.compile(
    rb"import\s*\*|\b(__getattr__|__dict__|globals|vars|locals|exec|setattr|sys\.modules)\b"
)


class TargetError(ValueError):
    """The error that a target on the command line names no function; the text says why."""


def find_function(spec: str, folder: str) -> Callable[..., Any]:
    """Return the function that a target names, with its module imported as seen from `folder`.
    Raise TargetError for a text of another form, and where there is no such file or function;
    errors of the user's file are passed on."""
    reference, name = _parts_of(spec)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _import_module(reference, folder)
    function = getattr(module, name, None)
    if not callable(function):
        functions = (other for other, value in vars(module).items() if callable(value))
        raise TargetError(f"{reference} has no function {name}{suggest(name, functions, count=3)}")
    return function  # type: ignore[no-any-return]


def check_target(spec: str, folder: str, *, is_imported_here: bool = False) -> None:
    """Raise TargetError where a target names no function, as far as that can be told without an
    import: from the file's text. A module that is not in `folder` is looked for only where
    this interpreter is the one that imports it, and not read."""
    reference, name = _parts_of(spec)
    path: Path | None
    if reference.endswith(".py"):
        path = file = _check_file(reference, folder)
        _check_imports(file, reference, name)
    elif os.sep in reference:
        raise TargetError(_missing_module(reference, folder))
    else:
        base = Path(folder, *reference.split("."))
        files = (base / "__init__.py", base.with_name(f"{base.name}.py"))
        path = next((file for file in files if file.is_file()), None)
        if path is None and is_imported_here:
            _check_module(reference, folder)
    names = None if path is None else _bound_names(path)
    if names is not None and name not in names:
        raise TargetError(f"{reference} has no function {name}{suggest(name, names, count=3)}")


def _import_module(reference: str, folder: str) -> ModuleType:
    """Return the module that a target names, by its file or its name; raise TargetError where there
    is none."""
    if reference.endswith(".py"):
        path = _check_file(reference, folder)
        return load_source(path, _module_name(reference))
    try:
        return importlib.import_module(reference)
    except ModuleNotFoundError as error:
        if error.name and f"{reference}.".startswith(f"{error.name}."):
            raise TargetError(_missing_module(reference, folder)) from error
        raise


def _parts_of(spec: str) -> tuple[str, str]:
    """Return the module or file of a target, and the name of its function; raise TargetError for a
    text of another form."""
    reference, _, name = spec.rpartition(":")
    if not reference or not name:
        raise TargetError(f"{spec!r} is not written MODULE:FUNCTION or FILE.py:FUNCTION")
    return reference, name


def place_in_target(error: BaseException, spec: str, folder: str) -> tuple[str, int]:
    """Return the file, relative to `folder`, and the line of the innermost statement of a target's
    own module that an error came through; the target itself and 0 where there is none."""
    reference = spec.rpartition(":")[0]
    file = getattr(sys.modules.get(reference), "__file__", None) or str(Path(folder, reference))
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    return (os.path.relpath(file, folder), lines[-1] or 0) if lines else (spec, 0)


def place_of_function(spec: str, folder: str) -> str:
    """Return the place of a target's function, which has been imported, as `file.py:12: name`, the
    file relative to `folder`; the target itself where it is no function of Python."""
    reference, name = _parts_of(spec)
    function: Any = getattr(sys.modules.get(_module_name(reference)), name, None)
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return spec
    return f"{os.path.relpath(code.co_filename, folder)}:{code.co_firstlineno}: {name}"


def _module_name(reference: str) -> str:
    """Return the name under which the module or file of a target is imported."""
    return f"{Path(reference).stem}__driver" if reference.endswith(".py") else reference


def _check_file(reference: str, folder: str) -> Path:
    """Return the path of a file; raise TargetError where it is not there, with the names beside it
    that are close."""
    path = Path(folder, reference)
    if not path.is_file():
        hint = suggest_path(path, shown=Path(reference), count=3)
        raise TargetError(f"there is no file {reference}{hint}")
    return path


def _check_imports(path: Path, reference: str, name: str) -> None:
    """Raise TargetError where a target's file imports from its own package, which a file that is
    loaded by its path does not belong to; say how the target is named by its module."""
    package = package_of(path)
    try:
        statements = ast.parse(path.read_bytes()).body if package else []
    except (SyntaxError, ValueError, RecursionError):
        return  # the import says what is wrong with it
    if any(isinstance(node, ast.ImportFrom) and node.level for node in statements):
        module = package if path.stem == "__init__" else f"{package}.{path.stem}"
        raise TargetError(
            f"{reference} imports from its own package: write {module}:{name}, from the folder that"
            f" has {package.partition('.')[0]}"
        )


def _check_module(reference: str, folder: str) -> None:
    """Raise TargetError where neither `folder` nor this interpreter has the top package of a
    module."""
    top = reference.partition(".")[0]
    is_local = Path(folder, top).is_dir() or Path(folder, f"{top}.py").is_file()
    if not is_local and top not in sys.modules and importlib.util.find_spec(top) is None:
        raise TargetError(_missing_module(reference, folder))


def _missing_module(reference: str, folder: str) -> str:
    """Return the message that there is no module of a name, with names in `folder` that are
    close."""
    if Path(folder, f"{reference}.py").is_file():
        hint = f"; did you mean {reference}.py?"
    else:
        stems = (file.stem for file in Path(folder).glob("*.py"))
        hint = suggest(reference, stems, count=3)
    return f"there is no module {reference}{hint}"


def _bound_names(path: Path) -> frozenset[str] | None:
    """Return the names that the top level of a file binds; None where its text does not tell: of a
    file that does not parse, imports with a star, or binds names that do not stand in it."""
    try:
        text = path.read_bytes()
        table = symtable.symtable(importlib.util.decode_source(text), str(path), "exec")
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return None if _BINDERS.search(text) else frozenset(_names_bound_in(table))


def _names_bound_in(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names of a module that a block of it and the blocks inside it bind."""
    for symbol in table.get_symbols():
        is_global = table.get_type() == "module" or symbol.is_declared_global()
        if is_global and (symbol.is_assigned() or symbol.is_imported()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _names_bound_in(child)


def load_source(path: Path, name: str) -> ModuleType:
    """Import one file under a given name; raise ImportError for a file that Python cannot load."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
