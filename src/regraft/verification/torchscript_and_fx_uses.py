"""Find the places where a repository scripts or symbolically traces a definition: a rewrite may not
lose this ability.

The search reads text: calls and decorators in the file itself and in the files of its repository,
tests included, that import it or, from a package above it, one of its definitions. An application
of a transform counts for a definition unless all names in its arguments are other definitions of
the file which do not use the definition. A model in a variable counts for every definition.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from regraft.source.qualified_names import package_of
from regraft.verification.readable_files import repository_of

# The transform by the last words of the function that applies it.
_FUNCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "jit.script": "script",
        "symbolic_trace": "fx",
        "prepare_fx": "fx",
        "prepare_qat_fx": "fx",
        "create_feature_extractor": "fx",
    }
)
_HINTS = (b"jit", b"symbolic_trace", b"prepare_fx", b"prepare_qat_fx", b"create_feature_extractor")
_FILES = 5000  # the most files of a repository that are searched


def transforms_applied_to(path: Path, definition: str) -> dict[str, str]:
    """Return the transforms ("script", "fx") that the file or a file of its repository which
    imports it applies to a definition, each with its first place as `file:line`."""
    name = definition.partition("#")[0]
    text = path.read_bytes()
    used_by_name = _used_definitions(ast.parse(text))
    place_by_transform: dict[str, str] = {}
    users = {user for user, used in used_by_name.items() if name in used}
    for file, file_text in ((path, text), *_importing_files(path, users or {name})):
        for transform, line, names in _transform_applications(file_text):
            if _may_contain(name, names, used_by_name):
                place_by_transform.setdefault(transform, f"{file.name}:{line}")
    return place_by_transform


def _may_contain(name: str, argument_names: set[str], used_by_name: Mapping[str, set[str]]) -> bool:
    """Return whether the arguments of a transform may contain a definition: one of them uses it, or
    none of them is a definition at the top level of the file; also True for a definition that is
    not there."""
    arguments = argument_names & used_by_name.keys()
    if not arguments or name not in used_by_name:
        return True
    return any(name in used_by_name[argument] for argument in arguments)


def _used_definitions(tree: ast.Module) -> dict[str, set[str]]:
    """Return, for each definition at the top level, the names of all definitions that it uses,
    itself included."""
    nodes = {
        node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    directly_used = {name: _names(node) & nodes.keys() for name, node in nodes.items()}
    used_by_name: dict[str, set[str]] = {}
    for name in nodes:
        used_by_name[name], pending = set(), [name]
        while pending:
            current = pending.pop()
            if current not in used_by_name[name]:
                used_by_name[name].add(current)
                pending += directly_used[current]
    return used_by_name


def _names(node: ast.AST) -> set[str]:
    """Return the identifiers of all names and attributes in a node."""
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return names | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def _importing_files(path: Path, names: set[str]) -> Iterator[tuple[Path, bytes]]:
    """Yield the files of the repository that apply a transform and import the file at `path`, or
    that import from a package above it and mention one of the definitions `names`, each with its
    text. Without a repository the outermost package, or the folder where there is no package, is
    searched; only the first 5000 files are."""
    parts = package_of(path).split(".")
    packages = tuple(".".join(parts[: count + 1]) for count in range(len(parts)) if parts[0])
    import_pattern = re.compile(
        rb"^\s*(?:from|import)\b.*\b%s\b" % re.escape(path.stem).encode(), re.MULTILINE
    )
    package_names = "|".join(re.escape(name) for name in packages)
    package_pattern = re.compile(
        rf"^\s*(?:from\s+\.|(?:from|import)\s+(?:{package_names})\b)".encode(), re.MULTILINE
    )
    name_pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b".encode())
    for file in _files_to_search(path, len(packages)):
        text = _read(file)
        if not _has_hint(text):
            continue
        imports_name = bool(packages and package_pattern.search(text) and name_pattern.search(text))
        if imports_name or import_pattern.search(text):
            yield file, text


def _files_to_search(path: Path, depth: int) -> Iterator[Path]:
    """Yield the other Python files of the repository of a file below `depth` packages, else of its
    outermost package, else of its folder only, at most 5000; hidden folders and virtual
    environments are left out."""
    folder = repository_of(path)
    if folder is None and not depth:
        yield from (file for file in path.parent.glob("*.py") if file != path)
        return
    number = 0
    for parent, folders, files in os.walk(folder or path.parents[depth - 1]):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and not os.path.exists(f"{parent}/{name}/pyvenv.cfg")
        )
        for name in sorted(files):
            if name.endswith(".py") and (file := Path(parent, name)) != path:
                yield file
                number += 1
                if number >= _FILES:
                    return


def _read(file: Path) -> bytes:
    """Return the bytes of a file, empty where it cannot be read."""
    try:
        return file.read_bytes()
    except OSError:  # a broken link, or a file of another user
        return b""


def _has_hint(text: bytes) -> bool:
    """Return whether a file contains a word of a function that applies a transform; such a search
    is far faster than a pattern."""
    return any(hint in text for hint in _HINTS)


def _transform_applications(text: bytes) -> Iterator[tuple[str, int, set[str]]]:
    """Yield the transform, the line and the names in the arguments, for each call and decorator in
    a file that applies a transform; nothing for a file that does not parse."""
    if not _has_hint(text):
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # a file that this Python does not read runs nowhere here
        return
    aliases = _imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if transform := _transform_of(node.func, aliases):
                yield transform, node.lineno, _names_in_arguments(node)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            for decorator in node.decorator_list:
                if transform := _transform_of(decorator, aliases):
                    yield transform, node.lineno, {node.name}


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Return `module.name` by local name for each `from module import name` of a file."""
    return {
        (alias.asname or alias.name): f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _names_in_arguments(call: ast.Call) -> set[str]:
    """Return the names and attributes in the arguments of a call."""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return set().union(*map(_names, arguments))


def _transform_of(function: ast.expr, aliases: Mapping[str, str]) -> str:
    """Return the transform ("script", "fx") that an expression names; "" for none."""
    root, dot, attributes = ast.unparse(function).partition(".")
    full_name = "." + aliases.get(root, root) + dot + attributes
    return next(
        (transform for words, transform in _FUNCTIONS.items() if full_name.endswith(f".{words}")),
        "",
    )
