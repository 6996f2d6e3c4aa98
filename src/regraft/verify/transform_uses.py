"""Where a repository scripts or symbolically traces a definition: then a rewrite may not lose that.

The search reads text: calls and decorators in the file itself and in the files of its package that import it. What a
call is given counts for a definition unless all that it names are other definitions of the file which do not use it. A
model in a variable counts for every definition.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

# The last words of the functions that script and trace.
_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "jit.script": "script", "symbolic_trace": "fx", "prepare_fx": "fx", "prepare_qat_fx": "fx",
        "create_feature_extractor": "fx",
    }
)  # fmt: skip
_HINTS = (b"jit", b"symbolic_trace", b"prepare_fx", b"prepare_qat_fx", b"create_feature_extractor")
_FILES = 5000  # of a package that are searched


def uses_of(path: Path, definition: str) -> dict[str, str]:
    """Return the transforms ("script", "fx") that the repository applies to a definition, each with a place."""
    name = definition.partition("#")[0]
    own = _users(ast.parse(path.read_bytes()))
    found: dict[str, str] = {}
    for file in (path, *_importing(path)):
        for kind, line, named in _applications(file):
            known = named & own.keys()
            if kind not in found and (not known or name not in own or any(name in own[one] for one in known)):
                found[kind] = f"{file.name}:{line}"
    return found


def _users(tree: ast.Module) -> dict[str, set[str]]:
    """Every definition at the top level with all those that it uses, itself included."""
    nodes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    direct = {name: _names(node) & nodes.keys() for name, node in nodes.items()}
    reached: dict[str, set[str]] = {}
    for name in nodes:
        reached[name], pending = set(), [name]
        while pending:
            current = pending.pop()
            if current not in reached[name]:
                reached[name].add(current)
                pending += direct[current]
    return reached


def _names(node: ast.AST) -> set[str]:
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return names | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def _importing(path: Path) -> Iterator[Path]:
    """Files of the package, or of the folder where there is none, that apply a transform and import the file."""
    folder = path.parent
    package = (folder / "__init__.py").exists()
    while (folder.parent / "__init__.py").exists():
        folder = folder.parent
    imported = re.compile(rb"^\s*(?:from|import)\b.*\b%s\b" % re.escape(path.stem).encode(), re.MULTILINE)
    files = folder.rglob("*.py") if package else folder.glob("*.py")
    for number, file in enumerate(files):
        if number >= _FILES:
            return
        if file != path:
            text = _read(file)
            if _hints(text) and imported.search(text):
                yield file


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # a broken link, or a file of another user
        return b""


def _hints(text: bytes) -> bool:
    """Whether a file may apply a transform; to look for plain words is far faster than a pattern."""
    return any(hint in text for hint in _HINTS)


def _applications(file: Path) -> Iterator[tuple[str, int, set[str]]]:
    """Yield the transform, the line and the names of what it is applied to, for each call and decorator."""
    text = _read(file)
    if not _hints(text):
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a file that this Python does not read runs nowhere here
        return
    aliases = {
        (alias.asname or alias.name): f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (kind := _kind(node.func, aliases)):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            yield kind, node.lineno, set().union(*map(_names, given))
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            for decorator in node.decorator_list:
                if kind := _kind(decorator, aliases):
                    yield kind, node.lineno, {node.name}


def _kind(function: ast.expr, aliases: Mapping[str, str]) -> str:
    """The transform that an expression names; "" for none."""
    first, dot, rest = ast.unparse(function).partition(".")
    dotted = "." + aliases.get(first, first) + dot + rest
    return next((kind for words, kind in _FUNCTIONS.items() if dotted.endswith(f".{words}")), "")
