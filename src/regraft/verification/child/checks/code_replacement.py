"""Compile the edited syntax tree of a definition, and replace the code of its functions by the
result for the time of a `with` block."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from regraft.verification.names_and_scopes import future_imports
from regraft.verification.top_level_definitions import Definition, definitions_by_name

Codes = dict[tuple[int, str], CodeType]


@functools.cache
def syntax_tree(path: str) -> ast.Module:
    """Return the syntax tree of a file; it is cached, so callers must not change it."""
    return ast.parse(Path(path).read_bytes())


def definition_node(module: ModuleType, definition: str) -> Definition | None:
    """Return the syntax tree of a top-level definition of a module's file; None where there is
    none."""
    return definitions_by_name(syntax_tree(str(module.__file__))).get(definition)


def compile_definition(node: Definition, module: ModuleType) -> Codes:
    """Return the code objects of a definition's functions by their first line and name, compiled
    with the future imports of the module's file; nothing is executed.

    Raises SyntaxError or ValueError where the edited tree does not compile.
    """
    future = future_imports(syntax_tree(str(module.__file__)).body)
    code = compile(ast.Module([*future, node], []), str(module.__file__), "exec", dont_inherit=True)
    return dict(_inner_codes(code))


def _inner_codes(code: CodeType) -> Iterator[tuple[tuple[int, str], CodeType]]:
    """Yield the code objects inside a code object, each with its first line and name."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield (constant.co_firstlineno, constant.co_name), constant
            yield from _inner_codes(constant)


def functions_of(value: Any, file: str | None = None) -> Iterator[FunctionType]:
    """Yield the functions of a class or function that `file` (a path; None for any) defines, each
    once: the function itself, those wrapped by decorators, and those of methods, properties and
    nested classes."""
    yield from _contained_functions(value, file, set())


def _contained_functions(value: Any, file: str | None, visited: set[int]) -> Iterator[FunctionType]:
    """Yield the functions of the file in a value (a function, a class, a property or a static or
    class method): itself, those that it wraps or has in its closure, its accessors, and the
    attributes of a class, at any depth. Nothing for other values, and for values whose ids are in
    `visited`, to which the id is added."""
    if id(value) in visited:
        return
    visited.add(id(value))
    contained: list[Any] = []
    if isinstance(value, FunctionType):
        if file is None or value.__code__.co_filename == file:
            yield value
        contained = [
            getattr(value, "__wrapped__", None),
            *(_cell_content(cell) for cell in value.__closure__ or ()),
        ]
        contained = [entry for entry in contained if isinstance(entry, FunctionType)]
    elif isinstance(value, staticmethod | classmethod):
        contained = [value.__func__]
    elif isinstance(value, property):
        contained = [value.fget, value.fset, value.fdel]
    elif isinstance(value, functools.cached_property):
        contained = [value.func]
    elif isinstance(value, type):
        contained = list(vars(value).values())
    for entry in contained:
        yield from _contained_functions(entry, file, visited)


def _cell_content(cell: Any) -> Any:
    """Return the value in a closure's cell; None for an empty cell."""
    try:
        return cell.cell_contents
    except ValueError:
        return None  # the cell is empty


def edited_codes(value: Any, codes: Codes, file: str) -> dict[FunctionType, CodeType]:
    """Return, by function object, the edited code of each function of a definition `value`; a
    function is left out if `codes` has none for its line and name, or one with another closure or
    no difference."""
    pairs = {}
    for function in functions_of(value, file):
        code = codes.get((function.__code__.co_firstlineno, function.__code__.co_name))
        if (
            code is not None
            and code != function.__code__
            and code.co_freevars == function.__code__.co_freevars
        ):
            pairs[function] = code
    return pairs


@contextmanager
def replace_code(edited: Mapping[FunctionType, CodeType]) -> Iterator[None]:
    """Replace, in the body, the code of each function that is a key of `edited` by the code that is
    its value, in place; restore it at the end."""
    original_codes = {function: function.__code__ for function in edited}
    for function, code in edited.items():
        function.__code__ = code
    try:
        yield
    finally:
        for function, code in original_codes.items():
            function.__code__ = code
