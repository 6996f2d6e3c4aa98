"""Run the functions of a definition with the code of an edited syntax tree for a while."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from regraft.verify.changes import Definition, definitions_by_name

Codes = dict[tuple[int, str], CodeType]


@functools.cache
def syntax_tree(path: str) -> ast.Module:
    """Return the syntax tree of a file, which callers leave as it is."""
    return ast.parse(Path(path).read_bytes())


def definition_node(module: ModuleType, definition: str) -> Definition | None:
    """Return the syntax tree of a top-level definition of a module's file, or None where there is none."""
    return definitions_by_name(syntax_tree(str(module.__file__))).get(definition)


def compile_definition(node: Definition, module: ModuleType) -> Codes:
    """Return the code objects of a definition's functions by their first line and name.

    Raises SyntaxError or ValueError where the edited tree does not compile.
    """
    body = syntax_tree(str(module.__file__)).body
    future = [entry for entry in body if isinstance(entry, ast.ImportFrom) and entry.module == "__future__"]
    code = compile(ast.Module([*future, node], []), str(module.__file__), "exec", dont_inherit=True)
    return dict(_inner_codes(code))


def _inner_codes(code: CodeType) -> Iterator[tuple[tuple[int, str], CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield (constant.co_firstlineno, constant.co_name), constant
            yield from _inner_codes(constant)


def functions_of(value: Any, file: str) -> Iterator[FunctionType]:
    """Yield the functions of a class or function that a file defines, those inside of decorators included."""
    yield from _functions(value, file, set())


def _functions(value: Any, file: str, seen: set[int]) -> Iterator[FunctionType]:
    if id(value) in seen:
        return
    seen.add(id(value))
    inner: list[Any] = []
    if isinstance(value, FunctionType):
        if value.__code__.co_filename == file:
            yield value
        inner = [getattr(value, "__wrapped__", None), *(_content(cell) for cell in value.__closure__ or ())]
        inner = [entry for entry in inner if isinstance(entry, FunctionType)]
    elif isinstance(value, staticmethod | classmethod):
        inner = [value.__func__]
    elif isinstance(value, property):
        inner = [value.fget, value.fset, value.fdel]
    elif isinstance(value, functools.cached_property):
        inner = [value.func]
    elif isinstance(value, type):
        inner = list(vars(value).values())
    for entry in inner:
        yield from _functions(entry, file, seen)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # the cell is empty


def replacements(value: Any, codes: Codes, file: str) -> dict[FunctionType, CodeType]:
    """Pair the functions of a definition with their edited code, where that takes the same closure and differs."""
    pairs = {}
    for function in functions_of(value, file):
        code = codes.get((function.__code__.co_firstlineno, function.__code__.co_name))
        if code is not None and code != function.__code__ and code.co_freevars == function.__code__.co_freevars:
            pairs[function] = code
    return pairs


@contextmanager
def running(edited: Mapping[FunctionType, CodeType]) -> Iterator[None]:
    """Let functions run other code while the context lasts."""
    before = {function: function.__code__ for function in edited}
    for function, code in edited.items():
        function.__code__ = code
    try:
        yield
    finally:
        for function, code in before.items():
            function.__code__ = code
