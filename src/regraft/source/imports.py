"""The imports of the rewritten file: names that the file has are reused, missing ones are added
once."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from regraft.source.import_edits import (
    existing_import,
    extension_edit,
    insertion_edit,
    last_block,
    relative_import_edit,
)
from regraft.source.qualified_names import Names, package_of
from regraft.source.text import Edit, SourceFile


@dataclass
class Imports:
    """Spellings of qualified names in one file.

    home                 the package that replaces `regraft.ops` in added imports, for ops vendored
                         beside the model
    local_names          qualified name → local name, for all that has to be imported
    is_occupied_by_name  answers of `_is_occupied` by name
    """

    source: SourceFile
    names: Names
    home: str = "regraft.ops"
    local_names: dict[str, str] = field(default_factory=dict)
    is_occupied_by_name: dict[str, bool] = field(default_factory=dict)

    def spell(self, qualified: str) -> str:
        """Return a qualified name as this file may write it, by the shortest spelling through
        present imports; note an import that has to be added."""
        spellings = [
            local + qualified[len(qualified_name) :]
            for local, qualified_name in self._qualified_names()
            if qualified == qualified_name or qualified.startswith(qualified_name + ".")
        ]
        if spellings:
            return min(spellings, key=lambda text: (text.count("."), len(text), text))
        if qualified.startswith("torch.") and not qualified.startswith("torch.nn.functional."):
            self.local_names["torch"] = "torch"
            return qualified
        if qualified in self.local_names:
            return self.local_names[qualified]
        name = qualified.rpartition(".")[2]
        local = f"regraft_{name}" if self._is_occupied(name) else name
        self.local_names[qualified] = local
        return local

    def _qualified_names(self) -> Iterator[tuple[str, str]]:
        """Yield the names that the file imports with their qualified names, those of
        `regraft.ops` also for ops vendored beside the model."""
        for local, qualified_name in self.names.qualified.items():
            module, _, name = qualified_name.rpartition(".")
            yield local, f"regraft.ops.{name}" if module.endswith("regraft_ops") else qualified_name

    @cached_property
    def obstacle(self) -> str:
        """The reason why an import cannot be added safely; "" when it can."""
        block = last_block(self.source.tree.body)
        lines = [node.lineno for node in self.source.tree.body if node not in block]
        if any(node.end_lineno in lines for node in block):
            return "an import shares its line with another statement"
        if any(map(_imports_torch, self.source.tree.body)):
            return ""
        is_torch_bound = any(
            name.split(".")[0] == "torch" for name in self.names.qualified.values()
        )
        return "the file imports torch only under a condition" if is_torch_bound else ""

    def _module_spelling(self, module: str) -> str:
        """Return a module as this file imports from it: relative within its own package, where the
        file does so."""
        if module == "regraft.ops":
            return self.home
        own_parts, module_parts = self._package.split("."), module.split(".")
        pairs = zip(own_parts, module_parts, strict=False)
        shared_length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        level = len(own_parts) - shared_length + 1
        relative = "." * level + ".".join(module_parts[shared_length:])
        is_own_style = any(
            isinstance(node, ast.ImportFrom) and node.level == level
            for node in self.source.tree.body
        )
        return relative if shared_length and is_own_style else module

    @cached_property
    def _package(self) -> str:
        return package_of(Path(self.source.path))

    def _is_occupied(self, name: str) -> bool:
        """Return whether the file uses the name on its own.

        The text is searched before the tree, because walking the tree is slow.
        """
        if self.names.stars:
            return True  # a star may bind any name
        if name not in self.is_occupied_by_name:
            lines = _lines_with(name, self.source)
            self.is_occupied_by_name[name] = bool(lines) and name in _identifiers(
                self.source.tree, lines
            )
        return self.is_occupied_by_name[name]

    def edits(self, used: Iterable[str]) -> tuple[Edit, ...]:
        """Return the edits that import those of the `used` qualified names that are missing."""
        missing_names = {
            qualified: self.local_names[qualified]
            for qualified in sorted(set(used))
            if qualified in self.local_names
        }
        if not missing_names:
            return ()
        lines = [f"import {qualified}" for qualified in missing_names if "." not in qualified]
        edits: list[Edit] = []
        for module, clauses in self._clauses_by_module(missing_names).items():
            existing = existing_import(self.source.tree, module)
            line = f"from {module} import {', '.join(clauses)}"
            if existing is not None:
                edits.append(extension_edit(self.source, existing, clauses))
            elif module.startswith(".") and module != self.home:
                edits.append(relative_import_edit(self.source, module, line))
            else:
                lines.append(line)
        if lines:
            edits.insert(0, insertion_edit(self.source, lines))
        return tuple(edits)

    def _clauses_by_module(self, missing_names: Mapping[str, str]) -> dict[str, list[str]]:
        """Return what has to be imported from each module, as the parts of `from ... import ...`.

        missing_names  qualified name → local name; names of `regraft.ops` come last
        """
        clauses: dict[str, list[str]] = {}
        for qualified in sorted(missing_names, key=lambda name: name.startswith("regraft.ops.")):
            package, dot, _ = qualified.rpartition(".")
            if dot:
                module = self._module_spelling(package)
                clauses.setdefault(module, []).append(_import_clause(qualified, missing_names))
        return clauses


def _imports_torch(statement: ast.stmt) -> bool:
    """Return whether a statement imports torch or from it."""
    if isinstance(statement, ast.Import):
        return any(alias.name.split(".")[0] == "torch" for alias in statement.names)
    if isinstance(statement, ast.ImportFrom) and statement.level == 0:
        return (statement.module or "").split(".")[0] == "torch"
    return False


def _import_clause(qualified: str, missing: Mapping[str, str]) -> str:
    """Return the part of `from ... import ...` that imports a qualified name under its
    local name."""
    name = qualified.rpartition(".")[2]
    return name if missing[qualified] == name else f"{name} as {missing[qualified]}"


def _lines_with(name: str, source: SourceFile) -> list[int]:
    """Return the 1-based lines on which a word stands, other than as an attribute."""
    starts = (match.start() for match in re.finditer(name.encode() + rb"\b", source.text))
    offsets = (
        offset
        for offset in starts
        if not (before := source.text[offset - 1 : offset]).isalnum() and before not in (b"_", b".")
    )
    return [bisect_right(source.line_starts, offset) for offset in offsets]


def _first_line(node: Any) -> int:
    """Return the first line of a syntax node, with its decorators."""
    decorators = getattr(node, "decorator_list", ())
    lines: list[int] = [part.lineno for part in (node, *decorators)]
    return min(lines)


def _identifiers(tree: ast.AST, lines: Sequence[int]) -> Iterable[str]:
    """Yield the identifiers in the nodes that touch one of the (sorted) lines."""
    pending = [tree]
    while pending:
        node = pending.pop()
        end = getattr(node, "end_lineno", None)
        if end is not None:
            index = bisect_left(lines, _first_line(node))
            if index == len(lines) or lines[index] > end:
                continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
