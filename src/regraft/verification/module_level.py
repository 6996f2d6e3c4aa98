"""Compare the module level of a file, the statements outside of its definitions, between two
versions."""

from __future__ import annotations

import ast
import builtins
import difflib
import functools
import io
import tokenize
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from regraft.verification.bound_and_read_names import (
    imported_packages,
    mentioned_names,
    module_names,
    plainly_assigned_names,
    string_words,
)
from regraft.verification.top_level_definitions import DefinitionBlock, definition_blocks

# Functions through which a file reads names that its text does not show as names.
_DYNAMIC = frozenset(
    {"globals", "eval", "exec", "vars", "__builtins__", "builtins", "import_module"}
)
# Nodes that an assignment at module level may consist of: runs of the definitions that read its
# names then judge it.
_VALUES = (
    ast.Constant
    | ast.Name
    | ast.Attribute
    | ast.Tuple
    | ast.List
    | ast.Set
    | ast.Dict
    | ast.Subscript
    | ast.Starred
    | ast.UnaryOp
    | ast.BinOp
    | ast.unaryop
    | ast.operator
    | ast.expr_context
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One statement at module level, one name of an import, or the place of a definition.

    Entries of equal statements have equal keys. `definition` is the name where the entry is a
    definition, else "".
    """

    key: str
    node: ast.stmt
    definition: str = ""

    @property
    def text(self) -> str:
        """Return the entry in words: its first line in backticks, or the definition's name."""
        if self.definition:
            return f"the definition of {self.definition.partition('#')[0]}"
        first_line, *further_lines = ast.unparse(self.node).splitlines()
        return f"`{first_line[:60]}{' ...' * bool(further_lines or len(first_line) > 60)}`"


@dataclass(frozen=True, slots=True)
class LevelDifference:
    """Entries of the original (`gone`) and the changed version's in their place (`new`); either can
    be empty."""

    gone: tuple[Entry, ...]
    new: tuple[Entry, ...]
    line: int


@dataclass(frozen=True)
class Outline:
    """The module level of a file, with its definitions by their places only.

    `bound` are the names that the module level binds, `read` the names that anything in the file
    reads from there, `packages` the packages that imports bind by their own names, `words` those in
    texts through which names can be read (`__all__`, say).
    """

    entries: tuple[Entry, ...]
    definitions: Mapping[str, DefinitionBlock]
    tree: ast.Module
    bound: frozenset[str]
    read: frozenset[str]
    packages: frozenset[str]
    words: frozenset[str]

    @classmethod
    @functools.lru_cache(
        maxsize=2
    )  # both versions of a file; several functions ask for their outlines
    def of(cls, text: bytes) -> Outline:
        """Return the outline of a file with this text, which has to parse; those of the last two
        texts are cached."""
        tree = ast.parse(text)
        bound, read = module_names(text)
        names = mentioned_names(tree)
        uses_sys_modules = any(_is_sys_modules(node) for node in ast.walk(tree))
        exports = [node for node in tree.body if "__all__" in mentioned_names(node)]
        words = string_words(*([tree] if uses_sys_modules or names & _DYNAMIC else exports))
        entries = tuple(module_entries(ast.parse(text), with_texts="__doc__" in names))
        blocks = definition_blocks(tree)
        return cls(entries, blocks, tree, bound, read, imported_packages(tree), words)

    def is_unused(self, name: str) -> bool:
        """Return whether a name can be added to the file without another meaning for anything in
        the file; False for builtins and for names that begin with two underscores."""
        has_meaning = name in self.bound or name in self.read or name in self.words
        return not (has_meaning or name.startswith("__") or hasattr(builtins, name))

    def only_adds_name(self, entry: Entry) -> bool:
        """Return whether an import of one name or a definition, put into this file, only adds a
        name; False for another statement."""
        match entry.node:
            case _ if entry.definition:
                return self.is_unused(entry.definition.partition("#")[0])
            case ast.Import([ast.alias(name, None)]):
                package = name.partition(".")[0]
                return package in self.packages or self.is_unused(package)
            case ast.Import([ast.alias(name, local)]):
                return self.is_unused(local or name)
            case ast.ImportFrom(module, [ast.alias(name, local)]):
                return module != "__future__" and name != "*" and self.is_unused(local or name)
        return False

    def only_adds_value(self, entry: Entry) -> bool:
        """Return whether a statement only gives new names a value that is spelled out: nothing is
        called or modified."""
        names = plainly_assigned_names(entry.node)
        is_spelled_out = all(
            isinstance(part, _VALUES) for part in ast.walk(entry.node) if part is not entry.node
        )
        return bool(names) and is_spelled_out and all(map(self.is_unused, names))


def have_equal_surroundings(original: bytes, changed: bytes) -> bool:
    """Return whether the module level does the same in both versions, so that the names that
    definitions read mean the same; False where a definition is gone. Imports and definitions that
    only add a name are no difference, unless a decorator or a metaclass runs for them."""
    old_outline, new_outline = Outline.of(original), Outline.of(changed)
    if old_outline.definitions.keys() - new_outline.definitions.keys():
        return False
    added = [
        new_outline.definitions[name].node
        for name in new_outline.definitions.keys() - old_outline.definitions.keys()
    ]
    if any(node.decorator_list or getattr(node, "keywords", []) for node in added):
        return False
    return not (encoding_obstacle(original, changed) or differences(old_outline, new_outline))


def module_entries(tree: ast.Module, *, with_texts: bool) -> Iterator[Entry]:
    """Yield the entries of a module, top to bottom, with one for each name of an import;
    `with_texts` also yields statements that are a constant alone, which can be the module's
    docstring.

    Changes the tree: placeholders replace definitions inside of other statements.
    """
    names = {id(block.node): name for name, block in definition_blocks(tree).items()}
    placeholders = _DefinitionPlaceholders(names)
    for node in tree.body:
        if id(node) in names:
            name = names[id(node)]
            yield Entry(f"definition of {name}", node, name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from map(_statement_entry, _single_imports(node))
        elif with_texts or not _is_constant_alone(node):
            yield Entry(ast.dump(placeholders.visit(node)), node)


class _DefinitionPlaceholders(ast.NodeTransformer):
    """Puts a placeholder, which no other statement equals, in the place of each top-level
    definition."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the placeholder for a top-level definition, an expression as it is, and any other
        statement with the definitions in it replaced."""
        if id(node) in self._names:
            return ast.copy_location(ast.Global([f"definition of {self._names[id(node)]}"]), node)
        return node if isinstance(node, ast.expr) else self.generic_visit(node)


def _single_imports(node: ast.Import | ast.ImportFrom) -> Iterator[ast.stmt]:
    """Yield an import of several names as imports of one name each."""
    for alias in node.names:
        single_import = (
            ast.Import([alias])
            if isinstance(node, ast.Import)
            else ast.ImportFrom(node.module, [alias], node.level)
        )
        yield ast.copy_location(single_import, node)


def _statement_entry(node: ast.stmt) -> Entry:
    """Return the entry of a statement, whose key is the statement's dump."""
    return Entry(ast.dump(node), node)


def _is_constant_alone(node: ast.stmt) -> bool:
    """Return whether a statement is a constant alone, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_sys_modules(node: ast.AST) -> bool:
    """Return whether an expression is `sys.modules`."""
    match node:
        case ast.Attribute(ast.Name("sys"), "modules"):
            return True
    return False


def encoding_obstacle(original: bytes, changed: bytes) -> str:
    """Return the reason not to prove a change where the versions are read in two encodings,
    or ""."""
    old, new = _encoding(original), _encoding(changed)
    if old == new:
        return ""
    return (
        f"the file is read as {new}, and the original as {old}: write it in the encoding of the"
        " original"
    )


def _encoding(text: bytes) -> str:
    """Return the name of the encoding that Python reads a file in."""
    return tokenize.detect_encoding(io.BytesIO(text).readline)[0].removesuffix("-sig")


def differences(old_outline: Outline, new_outline: Outline) -> tuple[LevelDifference, ...]:
    """Return the differences between the module levels of two versions, in the order of the file;
    what only adds a name, and definitions that are gone, do not count."""
    old_keys = {entry.key for entry in old_outline.entries}
    old_entries = [
        entry
        for entry in old_outline.entries
        if not entry.definition or entry.definition in new_outline.definitions
    ]
    new_entries = _relevant_entries(new_outline.entries, old_keys, old_outline)
    slices = _unequal_slices(old_entries, new_entries)
    gone_keys = {entry.key for gone, _ in slices for entry in old_entries[gone]}
    results = []
    for gone, inserted in slices:
        gone_entries = tuple(old_entries[gone])
        added_entries = _relevant_entries(new_entries[inserted], gone_keys, old_outline)
        if gone_entries or added_entries:
            line = _line_at(new_entries, inserted.start)
            results.append(LevelDifference(gone_entries, tuple(added_entries), line))
    return tuple(results)


def _relevant_entries(
    entries: Collection[Entry], old_keys: set[str], old_outline: Outline
) -> list[Entry]:
    """Return the entries whose key is among `old_keys`, or that do more than add a name to the
    original."""
    return [
        entry for entry in entries if entry.key in old_keys or not old_outline.only_adds_name(entry)
    ]


def _unequal_slices(
    old_entries: list[Entry], new_entries: list[Entry]
) -> list[tuple[slice, slice]]:
    """Return pairs of slices, of the old and of the new entries, that a comparison by keys aligns
    and finds unequal."""
    matcher = difflib.SequenceMatcher(
        None,
        [entry.key for entry in old_entries],
        [entry.key for entry in new_entries],
        autojunk=False,
    )
    return [
        (slice(old_start, old_end), slice(new_start, new_end))
        for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes()
        if tag != "equal"
    ]


def _line_at(entries: list[Entry], position: int) -> int:
    """Return the line of the entry at a position; behind the end that of the last entry, and 1 for
    an empty list."""
    following = entries[position:] or entries[-1:]
    return following[0].node.lineno if following else 1
