"""Stand in for packages whose `__init__.py` imports a module that is missing."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

LEFT_OUT = "__regraft_left_out__"


def import_packages(root: Path, package: str) -> None:
    """Import a package in a folder and the packages around it, from the outermost on.

    Where the `__init__.py` of one needs a module that is missing, and does nothing but import,
    define and name constants, an empty package with the same folder stands in for it. Raises what
    another `__init__.py` raises.
    """
    parts = package.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            source = root.joinpath(*parts[:count], "__init__.py")
            if not source.exists() or not _only_binds(ast.parse(source.read_bytes()).body):
                raise
            _stand_in_for(name, source, f"{type(error).__name__}: {error}")


def _stand_in_for(name: str, source: Path, error: str) -> None:
    """Put an empty package into `sys.modules` that finds the modules in the folder of `source`."""
    package = ModuleType(name)
    package.__path__ = [str(source.parent)]
    package.__package__ = name
    setattr(package, LEFT_OUT, f"{source.parent.name}/{source.name} ({error})")
    sys.modules[name] = package


def _only_binds(statements: Iterable[ast.stmt]) -> bool:
    """Return whether statements only import, define functions and classes without decorators, and
    assign values without calls to variables, also where they are tried or depend on a test."""
    return all(map(_binds, statements))


def _binds(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing but what `_only_binds` says of several."""
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Expr(value=ast.Constant()):
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return not statement.decorator_list
        case ast.Assign(targets=targets):
            plain = all(isinstance(target, ast.Name) for target in targets)
            return plain and not _calls(statement)
        case ast.AnnAssign(target=ast.Name()) | ast.AugAssign(target=ast.Name()):
            return not _calls(statement)
        case ast.If(test=test, body=body, orelse=other):
            return not _calls(test) and _only_binds([*body, *other])
        case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=last):
            handled = [node for handler in handlers for node in handler.body]
            return _only_binds([*body, *handled, *other, *last])
    return False


def _calls(node: ast.AST) -> bool:
    """Return whether a node contains a call."""
    return any(isinstance(child, ast.Call) for child in ast.walk(node))


def left_out_packages(module_name: str) -> dict[str, str]:
    """Return what was left out of the packages around a module: the place of each `__init__.py`
    and its error, in words, by the name of the package."""
    parts = module_name.split(".")
    packages = {
        name: sys.modules.get(name)
        for name in (".".join(parts[:count]) for count in range(1, len(parts)))
    }
    return {
        name: str(vars(package)[LEFT_OUT])
        for name, package in packages.items()
        if package is not None and LEFT_OUT in vars(package)
    }
