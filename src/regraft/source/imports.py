"""Imports of the rewritten file: reuse the names that the file has, add what is missing once."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from regraft.source.names import Names, package_of
from regraft.source.text import Edit, SourceFile, Span


@dataclass
class Imports:
    """Names for qualified names in one file; `wanted` collects what has to be imported.

    `home` replaces the package `regraft.ops` in the added import, for ops that are vendored beside the model.
    """

    source: SourceFile
    names: Names
    home: str = "regraft.ops"
    wanted: dict[str, str] = field(default_factory=dict)
    taken: dict[str, bool] = field(default_factory=dict)

    def spell(self, qualified: str) -> str:
        """How to write a qualified name here: the shortest spelling through what is imported already."""
        known = [
            local + qualified[len(full) :]
            for local, full in self.names.qualified.items()
            if qualified == full or qualified.startswith(full + ".")
        ]
        if known:
            return min(known, key=lambda spelling: (spelling.count("."), len(spelling), spelling))
        if qualified.startswith("torch.") and not qualified.startswith("torch.nn.functional."):
            self.wanted["torch"] = "torch"
            return qualified
        if qualified in self.wanted:
            return self.wanted[qualified]
        name = qualified.rpartition(".")[2]
        local = f"regraft_{name}" if self._taken(name) else name
        self.wanted[qualified] = local
        return local

    @cached_property
    def obstacle(self) -> str:
        """Why an import cannot be added safely; "" when it can."""
        block = _last_block(self.source.tree.body)
        lines = [node.lineno for node in self.source.tree.body if node not in block]
        if any(node.end_lineno in lines for node in block):
            return "an import shares its line with another statement"
        for node in self.source.tree.body:
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            if any(module.split(".")[0] == "torch" for module in modules):
                return ""
        known = any(name.split(".")[0] == "torch" for name in self.names.qualified.values())
        return "the file imports torch only under a condition" if known else ""

    def _written(self, module: str) -> str:
        """How this file imports from a module: relative within its own package, where that is its style."""
        if module == "regraft.ops":
            return self.home
        own, wanted = self._package.split("."), module.split(".")
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(own, wanted, strict=False)))
        relative = "." * (len(own) - shared + 1) + ".".join(wanted[shared:])
        level = len(own) - shared + 1
        style = any(isinstance(one, ast.ImportFrom) and one.level == level for one in self.source.tree.body)
        return relative if shared and style else module

    @cached_property
    def _package(self) -> str:
        return package_of(Path(self.source.path))

    def _taken(self, name: str) -> bool:
        """The file uses the name on its own; the text is searched first because walking the tree is slow."""
        if self.names.stars:
            return True  # a star may bind any name
        if name not in self.taken:
            lines = _lines_with(name, self.source)
            self.taken[name] = bool(lines) and name in _identifiers(self.source.tree, lines)
        return self.taken[name]

    def edits(self, used: Iterable[str]) -> tuple[Edit, ...]:
        """The edits that import the `used` qualified names."""
        missing = {qualified: self.wanted[qualified] for qualified in sorted(set(used)) if qualified in self.wanted}
        if not missing:
            return ()
        lines = [f"import {one}" for one in missing if "." not in one]
        edits: list[Edit] = []
        modules: dict[str, list[str]] = {}
        for one in sorted(missing, key=lambda one: one.startswith("regraft.ops.")):
            if "." in one:
                modules.setdefault(self._written(one.rpartition(".")[0]), []).append(_as(one, missing))
        for module, imported in modules.items():
            existing = _existing(self.source.tree, module)
            line = f"from {module} import {', '.join(imported)}"
            if existing is not None:
                edits.append(_extension(self.source, existing, imported))
            elif module.startswith(".") and module != self.home:
                edits.append(_beside(self.source, module, line))
            else:
                lines.append(line)
        if lines:
            edits.insert(0, _insertion(self.source, lines))
        return tuple(edits)


def _as(qualified: str, missing: Mapping[str, str]) -> str:
    name = qualified.rpartition(".")[2]
    return name if missing[qualified] == name else f"{name} as {missing[qualified]}"


def _lines_with(name: str, source: SourceFile) -> list[int]:
    """Lines on which the word stands, not as an attribute."""
    starts = (one.start() for one in re.finditer(name.encode() + rb"\b", source.text))
    alone = (at for at in starts if not (before := source.text[at - 1 : at]).isalnum() and before not in (b"_", b"."))
    return [bisect_right(source.line_starts, at) for at in alone]


def _identifiers(tree: ast.AST, lines: Sequence[int]) -> Iterable[str]:
    """Names in the nodes that touch one of the (sorted) lines."""
    pending = [tree]
    while pending:
        node = pending.pop()
        end = getattr(node, "end_lineno", None)
        if end is not None:
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])  # type: ignore[attr-defined]
            place = bisect_left(lines, first)
            if place == len(lines) or lines[place] > end:
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


def _existing(tree: ast.Module, home: str) -> ast.ImportFrom | None:
    module = home.lstrip(".")
    level = len(home) - len(module)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == module and node.level == level:
            return node
    return None


def _extension(source: SourceFile, node: ast.ImportFrom, added: Sequence[str]) -> Edit:
    end = source.span(node.names[-1]).end
    return Edit(Span(end, end), "".join(f", {one}" for one in added))


def _beside(source: SourceFile, module: str, line: str) -> Edit:
    """Among the relative imports of as many dots, in alphabetical place."""
    name = module.lstrip(".")
    level = len(module) - len(name)
    nodes = [one for one in source.tree.body if isinstance(one, ast.ImportFrom) and one.level == level]
    after = next((one for one in nodes if (one.module or "") > name), None)
    start = source.line_starts[after.lineno - 1 if after is not None else nodes[-1].end_lineno or 0]
    return Edit(Span(start, start), line + source.newline)


def _insertion(source: SourceFile, lines: Sequence[str]) -> Edit:
    """In the file's last block of absolute imports, in alphabetical place; else after docstring and `__future__`."""
    block = _last_block(source.tree.body)
    text = source.newline.join(lines)
    for node in block:
        alone = node.col_offset == 0
        if alone and isinstance(node, ast.ImportFrom) and (node.module or "") > lines[-1].split()[1]:
            start = source.line_starts[node.lineno - 1]
            return Edit(Span(start, start), text + source.newline)
    body = source.tree.body
    after: ast.stmt | None = block[-1] if block else None
    if after is None and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        after = body[0]
    if after is None:
        start = source.line_starts[(body[0].lineno if body else 1) - 1]
        return Edit(Span(start, start), text + source.newline * 2)
    end = source.span(after).end
    gap = "" if block else source.newline
    line_end = source.line_starts[source.position(end)[0]]
    if source.text[:line_end].endswith((b"\n", b"\r")):
        return Edit(Span(line_end, line_end), gap + text + source.newline)
    return Edit(Span(line_end, line_end), source.newline + gap + text)


def _last_block(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The last group of adjacent absolute imports before the first definition."""
    block: list[ast.stmt] = []
    for node in body:
        absolute = isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.level == 0)
        if absolute and block and node.lineno == (block[-1].end_lineno or 0) + 1:
            block.append(node)
        elif absolute:
            block = [node]
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            break
    if block and isinstance(block[-1], ast.ImportFrom) and block[-1].module == "__future__":
        return block[-1:]
    return block
