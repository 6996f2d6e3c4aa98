"""The source of ops as one file, so that a rewritten model needs no Regraft at run time."""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from regraft import __version__
from regraft.rules.kernel_signatures import OPS, exported_ops

BEGINNING = '"""Operations of Regraft '  # of each vendored module, by which it is known
HEADER = (
    BEGINNING
    + '''{version} (Apache-2.0), written out for the model beside this file.

Contains: {names}.
Needs only PyTorch. Regenerate it with `regraft check --fix --vendor`.
"""
'''
)


def vendored_names(text: bytes) -> tuple[str, ...]:
    """Return, sorted, the ops of Regraft that the source text of a module imports from
    `regraft_ops`, or defines itself as a vendored copy does."""
    names: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module == "regraft_ops":
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return tuple(sorted(names & exported_ops().keys()))


def vendor_source(names: Sequence[str]) -> str:
    """Return the source of one module with the ops `names` and all that they use; raise KeyError
    for an unknown op."""
    unknown = sorted(set(names) - exported_ops().keys())
    if unknown:
        raise KeyError(f"no op is called {', '.join(unknown)}")
    statements = _op_statements()
    defined = {
        name: statement for statement in statements for name in _defined_names(statement.node)
    }
    needed = {defined[name].node for name in _reachable(names, defined)}
    constants: list[str] = []
    definitions: list[str] = []
    for statement in statements:
        if statement.node in needed:
            is_constant = isinstance(statement.node, ast.Assign | ast.AnnAssign)
            (constants if is_constant else definitions).append(statement.segment())
    import_groups = _import_groups(statements, needed)
    header = HEADER.format(version=__version__, names=", ".join(sorted(set(names))))
    head = "\n\n".join(filter(None, [*import_groups, "\n".join(constants)]))
    return "\n\n\n".join([f"{header}\n{head}", *definitions]) + "\n"


@dataclass(frozen=True, slots=True)
class _OpStatement:
    """A statement at the top of a file of the ops, with the text of the file."""

    text: str
    node: ast.stmt

    def segment(self) -> str:
        """Return the source text of the statement with its decorators."""
        decorators = getattr(self.node, "decorator_list", ())
        first = min([self.node.lineno, *(decorator.lineno for decorator in decorators)])
        return "\n".join(self.text.splitlines()[first - 1 : self.node.end_lineno])


def _op_statements() -> list[_OpStatement]:
    """Return all statements at the top level of the files of the ops, in order of the files' names:
    imports and docstrings, too, but none of `__init__.py`."""
    texts = [
        path.read_text("utf-8") for path in sorted(OPS.glob("*.py")) if path.name != "__init__.py"
    ]
    return [_OpStatement(text, node) for text in texts for node in ast.parse(text).body]


def _import_groups(statements: Iterable[_OpStatement], needed: Collection[ast.stmt]) -> list[str]:
    """Return the import lines that the needed statements use, as one text for each group:
    `__future__`, the standard library, other packages."""
    used = {name for node in needed for name in _identifiers(node)}
    lines = {line for statement in statements for line in _import_lines(statement.node, used)}
    groups = itertools.groupby(
        sorted(lines, key=_import_order), key=lambda line: _import_order(line)[0]
    )
    return ["\n".join(group) for _, group in groups]


def _defined_names(node: ast.stmt) -> tuple[str, ...]:
    """Return the names that a function, class or assignment at the top of a file defines; () for
    another statement."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (node.name,)
    if isinstance(node, ast.AnnAssign):
        return (node.target.id,) if isinstance(node.target, ast.Name) else ()
    targets = node.targets if isinstance(node, ast.Assign) else ()
    return tuple(target.id for target in targets if isinstance(target, ast.Name))


def _identifiers(node: ast.AST) -> set[str]:
    """Return the names that occur in the code of a node; attributes are none."""
    return {ast_node.id for ast_node in ast.walk(node) if isinstance(ast_node, ast.Name)}


def _reachable(names: Iterable[str], defined: Mapping[str, _OpStatement]) -> set[str]:
    """Return those of the names that `defined` has, and those that their definitions use, directly
    or not.

    defined: the statement that defines each name. The files of the ops share no private names, so
    that one mapping holds the definitions of all files.
    """
    reachable: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in defined and name not in reachable:
            reachable.add(name)
            pending += _identifiers(defined[name].node)
    return reachable


def _import_lines(node: ast.stmt, used: Collection[str]) -> Iterator[str]:
    """Yield a line for each name that an import statement imports and that is among `used`, or is
    of `__future__`; nothing for other statements and for imports from Regraft itself."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if (alias.asname or alias.name.partition(".")[0]) in used:
                yield ast.unparse(ast.Import([alias]))
    if not isinstance(node, ast.ImportFrom) or (node.module or "").startswith("regraft"):
        return
    for alias in node.names:
        if node.module == "__future__" or (alias.asname or alias.name) in used:
            yield ast.unparse(ast.ImportFrom(node.module, [alias], 0))


def _import_order(line: str) -> tuple[int, bool, str]:
    """Return a sort key of an import line: `__future__`, then the standard library, then other
    packages; in each group `import` before `from`."""
    package = line.split()[1].partition(".")[0]
    group = 0 if package == "__future__" else 1 if package in sys.stdlib_module_names else 2
    return group, line.startswith("from"), line
