"""What a recipe is, and what it makes of a file: sites, mutants and their texts."""

from __future__ import annotations

import ast
import hashlib
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from regraft.source.text import Edit, SourceError, SourceFile, Span, apply, parse

KINDS = {
    "syntax-tree": "generated from the syntax tree",
    "exploit": "exploits known from kernel benchmarks",
    "trigger": "branch-free trigger (size, mode, flag)",
    "mask": "masks and padding",
    "configuration": "configuration or constructor argument",
    "size": "length, width, batch",
    "cache": "cache, generate, memoising",
    "value": "rare values, dtype, device, parameters",
}
RIGHT = "right"
PACKAGES = ("transformers", "timm", "diffusers")


def draw(*parts: object) -> int:
    """Return a number that depends on nothing but `parts`."""
    return int.from_bytes(hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:8], "big")


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a file or a method of a class of it."""

    node: ast.FunctionDef
    owner: ast.ClassDef | None

    @property
    def name(self) -> str:
        return f"{self.owner.name}.{self.node.name}" if self.owner else self.node.name

    @property
    def arguments(self) -> tuple[ast.arg, ...]:
        """The arguments by position, without `self`."""
        everything = (*self.node.args.posonlyargs, *self.node.args.args)
        return (
            everything[1:]
            if self.owner and everything and everything[0].arg == "self"
            else everything
        )

    @property
    def body(self) -> tuple[ast.stmt, ...]:
        """The statements after the docstring."""
        statements = self.node.body
        return tuple(
            statements[1:] if ast.get_docstring(self.node, clean=False) is not None else statements
        )


class Module:
    """A model file; `label` is its path below the packages' folder, with slashes."""

    def __init__(self, label: str, source: SourceFile) -> None:
        self.label = label
        self.source = source

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """All functions of the file and methods of its classes, in the order of the text."""
        functions: list[Function] = []
        for statement in self.source.tree.body:
            if isinstance(statement, ast.FunctionDef):
                functions.append(Function(statement, None))
            elif isinstance(statement, ast.ClassDef):
                methods = (node for node in statement.body if isinstance(node, ast.FunctionDef))
                functions += (Function(method, statement) for method in methods)
        return tuple(functions)

    def function(self, name: str) -> Function | None:
        """Return the function of that name (`Class.method` or `function`)."""
        return next((function for function in self.functions if function.name == name), None)

    def text(self, node: ast.AST) -> str:
        return self.source.segment(node)

    def indent(self, statement: ast.stmt) -> str:
        return " " * statement.col_offset

    def line_start(self, statement: ast.stmt) -> int:
        """Return the offset of the first byte of the line that a statement starts in."""
        return self.source.line_starts[statement.lineno - 1]

    def after(self, statement: ast.stmt) -> int:
        """Return the offset of the line after a statement."""
        return self.source.line_starts[statement.end_lineno or statement.lineno]

    def replace(self, node: ast.AST, text: str) -> Edit:
        return Edit(self.source.span(node), text)

    def insert_before(self, statement: ast.stmt, text: str) -> Edit:
        """Insert lines above a statement (above its decorators, where it has any), with its
        indentation."""
        first = min(
            [statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", ()))]
        )
        start = self.source.line_starts[first - 1]
        return Edit(
            Span(start, start),
            textwrap.indent(textwrap.dedent(text).strip("\n"), self.indent(statement)) + "\n",
        )

    def insert_after(self, statement: ast.stmt, text: str) -> Edit:
        """Insert lines below a statement, with its indentation."""
        start = self.after(statement)
        return Edit(
            Span(start, start),
            textwrap.indent(textwrap.dedent(text).strip("\n"), self.indent(statement)) + "\n",
        )

    def insert_top(self, text: str) -> Edit:
        """Insert lines above the first definition of the file that comes after its imports."""
        first = next(
            node
            for node in self.source.tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        )
        return self.insert_before(first, textwrap.dedent(text).strip("\n") + "\n\n")


@dataclass(frozen=True, slots=True)
class Site:
    """A place that a recipe changes: the definition, the line, the edits and what they do."""

    definition: str
    line: int
    edits: tuple[Edit, ...]
    description: str


@dataclass(frozen=True, slots=True)
class Template:
    """Text that is put in the place of a returned tensor or another expression, and what it needs
    above."""

    text: str
    top: str = ""
    init: str = ""


Finder = Callable[[Module], Iterable[Site]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How mutants of one sort are made of any file.

    differs   the input under which the changed file differs (empty for right edits)
    find      the places of a file that the recipe applies to
    count     how many mutants the suite takes, each in another file
    contains  bytes that a file must contain, to leave out others before they are parsed
    witness   an expression for calls that show the difference, see `confirm.py`
    files     only the file of this label, for recipes that are written for a place
    """

    name: str
    kind: str
    differs: str
    find: Finder
    count: int = 3
    contains: tuple[bytes, ...] = ()
    packages: tuple[str, ...] = PACKAGES
    contract: str = "results"
    witness: str = ""
    template: Template | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed file, as the edits that make it."""

    recipe: Recipe
    module: Module
    site: Site

    @property
    def name(self) -> str:
        return f"{self.recipe.name} {self.module.label} {self.site.definition}"

    @property
    def package(self) -> str:
        return self.module.label.partition("/")[0]

    @property
    def original(self) -> bytes:
        return self.module.source.data

    @property
    def changed(self) -> bytes:
        return apply(self.module.source, self.site.edits)


def parse_module(label: str, data: bytes) -> Module | None:
    """Parse a file; None for one that cannot be read."""
    source = parse(label, data)
    return None if isinstance(source, SourceError) else Module(label, source)


class Files:
    """The model files of the installed packages, parsed when somebody asks for them."""

    PATTERNS: ClassVar = {
        "transformers": ("models/*/modeling_*.py",),
        "timm": ("models/*.py", "layers/*.py"),
        "diffusers": ("models/**/*.py",),
    }

    def __init__(self, folders: dict[str, Path]) -> None:
        self._folders = folders  # the folder that holds the package's own, by package
        self._modules: dict[str, Module | None] = {}
        self._labels: dict[str, tuple[str, ...]] = {}

    def path(self, label: str) -> Path:
        return self._folders[label.partition("/")[0]] / label

    def labels(self, package: str) -> tuple[str, ...]:
        """Return the labels of a package's files that import torch."""
        if package not in self._labels:
            folder = self._folders.get(package)
            self._labels[package] = (
                _labels(folder, package, self.PATTERNS[package]) if folder else ()
            )
        return self._labels[package]

    def module(self, label: str) -> Module | None:
        if label not in self._modules:
            path = self.path(label)
            self._modules[label] = (
                parse_module(label, path.read_bytes()) if path.is_file() else None
            )
        return self._modules[label]

    def candidates(self, recipe: Recipe) -> Iterator[Module]:
        """Yield the files that a recipe may change, packages in turn, each package's in the order
        of a hash."""
        if recipe.files:
            labels: Sequence[str] = recipe.files
        else:
            queues = [self._queue(recipe, place) for place in range(len(recipe.packages))]
            start = draw(recipe.name) % max(len(queues), 1)
            labels = list(_in_turn(queues[start:] + queues[:start]))
        for label in labels:
            path = self.path(label)
            if path.is_file() and all(part in path.read_bytes() for part in recipe.contains):
                module = self.module(label)
                if module is not None:
                    yield module

    def _queue(self, recipe: Recipe, place: int) -> list[str]:
        """Return the files of one of the recipe's packages; a package that it names twice has two
        queues."""
        package = recipe.packages[place]
        labels = sorted(self.labels(package), key=lambda label: draw(recipe.name, label))
        return labels[recipe.packages[:place].count(package) :: recipe.packages.count(package)]


def _labels(folder: Path, package: str, patterns: Iterable[str]) -> tuple[str, ...]:
    paths = (path for pattern in patterns for path in (folder / package).glob(pattern))
    return tuple(
        sorted(p.relative_to(folder).as_posix() for p in paths if b"import torch" in p.read_bytes())
    )


def _in_turn(queues: Sequence[Sequence[str]]) -> Iterator[str]:
    longest = max(map(len, queues), default=0)
    for position in range(longest):
        yield from (queue[position] for queue in queues if position < len(queue))


def mutants_of(recipe: Recipe, files: Files) -> Iterator[Mutant]:
    """Yield a recipe's mutants: one site of each file, until there are as many as the recipe asks
    for."""
    remaining = recipe.count
    for module in files.candidates(recipe):
        sites = sorted(
            recipe.find(module),
            key=lambda site: draw(recipe.name, module.label, site.definition, site.line),
        )
        mutant = next((m for site in sites if compiles(m := Mutant(recipe, module, site))), None)
        if mutant is not None:
            yield mutant
            remaining -= 1
        if not remaining:
            return


def compiles(mutant: Mutant) -> bool:
    """Whether the changed text differs and is a program."""
    try:
        changed = mutant.changed
        compile(changed, mutant.module.label, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return changed != mutant.original
