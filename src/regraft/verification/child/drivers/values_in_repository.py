"""Read from its text which values a repository states: the arguments of calls, fields of classes,
options of parsers, and constants.

Nothing is imported or run, and what is no literal is left out. Texts and their values are read once
per process.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regraft.source.qualified_names import REPOSITORY_MARKS
from regraft.verification.names_and_scopes import name_of

_MOST_FILES = 300  # the most files of a repository that are looked at
_MOST_FOLDERS = 500  # the most folders that are searched for them
_MOST_BYTES = 400_000  # the size of the largest file that is read
_LEVELS_UP = 3  # the most levels by which the repository's folder is above the file's folder
# Files of a folder that is probably that of a repository.
_LIKELY_MARKS = ("README.md", "requirements.txt")
_OTHER_FOLDERS = frozenset({"site-packages", "node_modules", "venv", "build", "__pycache__"})
_CODE_BLOCK = re.compile(r"^```(?:python|py)\s*$(.*?)^```\s*$", re.M | re.S)
_OPTION_TYPES: Mapping[str, Any] = {"int": int, "float": float, "str": str}


@dataclass(frozen=True, slots=True)
class Statement:
    """Values that stand together in a text.

    `called` is the name of the class or function that they are arguments of; "" for fields of a
    class, options of a parser and constants, and where the called expression has no name. `values`
    are the values by name, of a call the keyword arguments; `positional` are the positional
    arguments of a call, up to the first that is no literal.
    """

    called: str
    values: Mapping[str, Any] = field(default_factory=dict)
    positional: tuple[Any, ...] = ()

    def arguments(self, names: list[str]) -> dict[str, Any]:
        """Return the arguments of a call by the names of the parameters, which are `names` in their
        order; {} where a keyword is none of these."""
        arguments = {**dict(zip(names, self.positional, strict=False)), **self.values}
        return arguments if arguments.keys() <= set(names) else {}


def files_around(path: Path) -> tuple[Path, ...]:
    """Return the Python and Markdown files of the repository that a file belongs to: the file, then
    those in its folder, then the others by path, at most `_MOST_FILES`. A file without a repository
    is returned alone."""
    return _files_around(path.resolve())


@functools.cache
def _files_around(path: Path) -> tuple[Path, ...]:
    """Return `files_around` of a path that is resolved; the folders are searched once for each."""
    root = _root_of(path)
    neighbours = [file for file in _files_below(root) if file != path] if root is not None else []
    neighbours.sort(key=lambda file: (file.parent != path.parent, file))
    return (path, *neighbours[: _MOST_FILES - 1])


def _root_of(path: Path) -> Path | None:
    """Return the folder of the repository that a file belongs to, at most `_LEVELS_UP` above it;
    None for a file of an installed package, or in no such folder."""
    if "site-packages" in path.parts:
        return None
    folders = list(path.parents)[: _LEVELS_UP + 1]
    for marks in (REPOSITORY_MARKS, _LIKELY_MARKS):
        for folder in folders:
            if any((folder / mark).exists() for mark in marks):
                return folder
    return None


def _files_below(root: Path) -> Iterator[Path]:
    """Yield the Python and Markdown files of a folder and of those below it, at most
    `_MOST_FOLDERS` folders, without hidden folders and `_OTHER_FOLDERS`. Folders come in the order
    of their names, the files of a folder in any order."""
    for count, (folder, subfolders, names) in enumerate(os.walk(root)):
        if count >= _MOST_FOLDERS:
            return
        subfolders[:] = sorted(
            name for name in subfolders if not name.startswith(".") and name not in _OTHER_FOLDERS
        )
        yield from (Path(folder, name) for name in names if name.endswith((".py", ".md")))


def statements_in(path: Path) -> tuple[Statement, ...]:
    """Return the values that the code of a file states, of a Markdown file those of its blocks of
    Python; () where it cannot be read or does not parse."""
    text = text_of(path)
    blocks = _CODE_BLOCK.findall(text) if path.suffix == ".md" else [text]
    return tuple(statement for block in blocks for statement in _statements_of(block))


@functools.cache
def text_of(path: Path) -> str:
    """Return the text of a file; "" where it cannot be read as UTF-8 or has more than `_MOST_BYTES`
    bytes. Cached."""
    try:
        return path.read_text(encoding="utf-8") if path.stat().st_size <= _MOST_BYTES else ""
    except (OSError, UnicodeDecodeError):
        return ""


@functools.cache
def _statements_of(text: str) -> tuple[Statement, ...]:
    """Return the values that a Python text states: its constants, then those of calls and classes,
    then all options of parsers together; () where it does not parse. Cached."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    constants = dict(_constants(tree.body))
    statements = [Statement("", constants)] if constants else []
    options: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            options.update(_option(node))
            statements += _call_statement(node, constants)
        elif isinstance(node, ast.ClassDef):
            statements.append(Statement("", dict(_constants(node.body))))
    return (*statements, Statement("", options)) if options else tuple(statements)


def _constants(body: list[ast.stmt]) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a name that one of some statements binds to a literal, and its value; nested
    statements do not count."""
    for node in body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(name)], value=value)
                | ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value)
            ):
                yield from ((name, literal) for literal in _literal(value, {}))


def _literal(node: ast.expr, constants: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the value of a literal, or of a name of `constants`; nothing for other expressions, and
    for bytes and complex numbers."""
    if isinstance(node, ast.Name) and node.id in constants:
        yield constants[node.id]
        return
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return
    if not isinstance(value, bytes | complex):
        yield value


def _call_statement(node: ast.Call, constants: Mapping[str, Any]) -> Iterator[Statement]:
    """Yield a statement with the literal arguments of a call, positional ones up to the first that
    is no literal; nothing where there are none."""
    values = {
        keyword.arg: value
        for keyword in node.keywords
        if keyword.arg is not None
        for value in _literal(keyword.value, constants)
    }
    positional: list[Any] = []
    for argument in node.args:
        literals = list(_literal(argument, constants))
        if not literals:
            break
        positional += literals
    if values or positional:
        yield Statement(name_of(node.func), values, tuple(positional))


def _option(node: ast.Call) -> dict[str, Any]:
    """Return the name of the option of a command line that a call adds, with its default, which is
    None where none is stated; {} for other calls."""
    if name_of(node.func) not in ("add_argument", "add_option", "option"):
        return {}
    flags = [flag for argument in node.args for flag in _literal(argument, {})]
    names = [flag for flag in flags if isinstance(flag, str)]
    if not names:
        return {}
    keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    longest = max(names, key=lambda name: (name.startswith("--"), len(name)))
    name = _literal_keyword(keywords, "dest") or longest.lstrip("-").replace("-", "_")
    return {name: _default_of_option(keywords)}


def _default_of_option(keywords: Mapping[str, ast.expr]) -> Any:
    """Return the default of an option that is added with some keywords: a number in the option's
    type, a boolean for a flag; None where none is stated as a literal."""
    default = _literal_keyword(keywords, "default")
    action = _literal_keyword(keywords, "action")
    if default is None and action in ("store_true", "store_false"):
        return action == "store_false"
    convert = _OPTION_TYPES.get(name_of(keywords["type"])) if "type" in keywords else None
    return convert(default) if convert and isinstance(default, int | float) else default


def _literal_keyword(keywords: Mapping[str, ast.expr], name: str) -> Any:
    """Return the value of a keyword if it is a literal, otherwise None."""
    return next(_literal(keywords[name], {}), None) if name in keywords else None


def calls_of(name: str, path: Path) -> Iterator[Statement]:
    """Yield a statement for each call with literal arguments of a class or function of this name,
    in the files around a file (`files_around`)."""
    for file in files_around(path):
        if name in text_of(file):
            yield from (statement for statement in statements_in(file) if statement.called == name)


def values_of(names: Collection[str], path: Path) -> dict[str, Any]:
    """Return values for some names, as the files around a file state them.

    The statement that has most of the names comes first, then the one with most of those that
    remain, so that values which stand together are taken together. Only files that mention more
    than a third of the names are read. Names without a value, or with None, are left out.
    """
    wanted = set(names)
    values: dict[str, Any] = {}
    statements = [
        statement
        for file in files_around(path)
        if sum(name in text_of(file) for name in wanted) > len(wanted) // 3
        for statement in statements_in(file)
    ]
    while wanted and statements:
        best = max(statements, key=lambda statement: len(wanted & statement.values.keys()))
        names_of_best = wanted & best.values.keys()
        if not names_of_best:
            break
        values.update(
            (name, best.values[name]) for name in names_of_best if best.values[name] is not None
        )
        wanted -= names_of_best
    return values
