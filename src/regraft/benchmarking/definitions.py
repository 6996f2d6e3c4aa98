"""The definitions of which a model's source consists: the functions and methods of its files."""

from __future__ import annotations

import ast
import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from regraft.benchmarking.line_timer import Location

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, order=True)
class Definition:
    """A function or method with what is nested in it, or the rest of a file.

    first  the line on which it starts, a decorator's included
    line   the line of its `def`
    name   with its class: Attention.forward; "module level" for the rest of a file
    """

    file: str
    first: int
    last: int
    line: int
    name: str

    @property
    def place(self) -> str:
        """The file's name and the line of the definition."""
        return f"{Path(self.file).name}:{self.line}"


class Definitions:
    """The definitions of some files, found by their lines."""

    def __init__(self, trees: dict[str, ast.Module]) -> None:
        self._by_file = {
            file: sorted(_definitions(file, tree.body)) for file, tree in trees.items()
        }

    def at(self, location: Location) -> Definition:
        """Return the definition around a line of one of the files."""
        file, line = location
        definitions = self._by_file[file]
        index = bisect.bisect_right(definitions, line, key=lambda definition: definition.first) - 1
        if index >= 0 and line <= definitions[index].last:
            return definitions[index]
        return Definition(file, 1, 1, 1, "module level")

    def called_by(self, code: CodeType) -> Definition | None:
        """Return the definition of which this is the code; None for code of what is nested in
        one."""
        definition = self.at((code.co_filename, code.co_firstlineno))
        is_own = code.co_name == definition.name.rpartition(".")[2]
        return definition if is_own and code.co_firstlineno == definition.first else None


def _definitions(file: str, body: Sequence[ast.stmt], scope: str = "") -> Iterator[Definition]:
    """Yield the functions of a body and the methods of its classes, those under conditions
    included."""
    for statement in body:
        if isinstance(statement, _Function):
            first = min([statement.lineno, *(node.lineno for node in statement.decorator_list)])
            last = statement.end_lineno or statement.lineno
            yield Definition(file, first, last, statement.lineno, scope + statement.name)
        elif isinstance(statement, ast.ClassDef):
            yield from _definitions(file, statement.body, f"{scope}{statement.name}.")
        else:
            nested = [node for node in ast.iter_child_nodes(statement) if _is_block(node)]
            yield from _definitions(file, nested, scope)  # type: ignore[arg-type]


def _is_block(node: ast.AST) -> bool:
    """Return whether a node is a statement or the handler of an exception."""
    return isinstance(node, ast.stmt | ast.excepthandler)
