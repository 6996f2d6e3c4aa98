"""The source of ops as one file, so that a rewritten model needs no Regraft at run time."""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from regraft import __version__
from regraft.rules.kernels import OPS

HEADER = '''"""Operations of Regraft {version} (Apache-2.0), written out for the model beside this file.

Contains: {names}.
Needs only PyTorch. Regenerate it with `regraft check --fix --vendor`.
"""
'''  # noqa: E501


def vendored_names(text: bytes) -> tuple[str, ...]:
    """Return the ops, sorted, that a module imports from its vendored copy, or that a vendored copy
    defines."""
    names: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module == "regraft_ops":
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return tuple(sorted(names & _ops()))


def vendor_source(names: Sequence[str]) -> str:
    """Return the source of one module with the ops `names` and all that they use; raise KeyError
    for an unknown op."""
    unknown = sorted(set(names) - _ops())
    if unknown:
        raise KeyError(f"no op is called {', '.join(unknown)}")
    texts = {
        path: path.read_text("utf-8")
        for path in sorted(OPS.glob("*.py"))
        if path.name != "__init__.py"
    }
    statements = [(path, node) for path, text in texts.items() for node in ast.parse(text).body]
    defined = {name: node for _, node in statements for name in _defines(node)}
    needed = [defined[name] for name in _reachable(names, defined)]
    chosen = [
        (_segment(texts[path], node), isinstance(node, ast.Assign | ast.AnnAssign))
        for path, node in statements
        if node in needed
    ]
    used = {name for node in needed for name in _names(node)}
    imports = sorted(
        {line for _, node in statements for line in _import_lines(node, used)}, key=_import_order
    )
    groups = [
        "\n".join(lines)
        for _, lines in itertools.groupby(imports, lambda line: _import_order(line)[0])
    ]
    constants = "\n".join(text for text, constant in chosen if constant)
    head = "\n\n".join(filter(None, [*groups, constants]))
    header = HEADER.format(version=__version__, names=", ".join(sorted(set(names))))
    return (
        "\n\n\n".join([f"{header}\n{head}", *(text for text, constant in chosen if not constant)])
        + "\n"
    )


def _ops() -> set[str]:
    """Return the names of the ops: those that the package exports and its files define."""
    exported = next(
        ast.literal_eval(node.value)
        for node in ast.parse((OPS / "__init__.py").read_bytes()).body
        if isinstance(node, ast.Assign) and _defines(node) == ("__all__",)
    )
    files = (path for path in OPS.glob("*.py") if path.name != "__init__.py")
    return {
        name
        for path in files
        for node in ast.parse(path.read_bytes()).body
        for name in _defines(node)
    } & {*exported}


def _defines(node: ast.stmt) -> tuple[str, ...]:
    """Return the names that a statement at the top of a file defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.AnnAssign):
        return (node.target.id,) if isinstance(node.target, ast.Name) else ()
    targets = node.targets if isinstance(node, ast.Assign) else ()
    return tuple(target.id for target in targets if isinstance(target, ast.Name))


def _names(node: ast.AST) -> set[str]:
    """Return the identifiers below a node."""
    return {ast_node.id for ast_node in ast.walk(node) if isinstance(ast_node, ast.Name)}


def _reachable(names: Iterable[str], defined: Mapping[str, ast.stmt]) -> set[str]:
    """Return the names that are defined, and those that their definitions use, directly or not.

    The files of the ops share no private names, so that one mapping holds the definitions of all
    files.
    """
    reachable: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in defined and name not in reachable:
            reachable.add(name)
            pending += _names(defined[name])
    return reachable


def _import_lines(node: ast.stmt, used: Collection[str]) -> Iterator[str]:
    """Yield a line for each imported name that is used; imports from Regraft itself are
    left out."""
    if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("regraft"):
        for alias in node.names:
            if node.module == "__future__" or (alias.asname or alias.name) in used:
                yield ast.unparse(ast.ImportFrom(node.module, [alias], 0))
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if (alias.asname or alias.name.partition(".")[0]) in used:
                yield ast.unparse(ast.Import([alias]))


def _import_order(line: str) -> tuple[int, bool, str]:
    """Return a sort key: `__future__`, then the standard library, then other packages; `import`
    before `from`."""
    package = line.split()[1].partition(".")[0]
    group = 0 if package == "__future__" else 1 if package in sys.stdlib_module_names else 2
    return group, line.startswith("from"), line


def _segment(text: str, node: ast.stmt) -> str:
    """Return the source text of a statement with its decorators."""
    first = min(
        [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))]
    )
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
