"""The source of ops as one file, so that a rewritten model needs no Regraft at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

from regraft import __version__
from regraft.kernels import OPS

HEADER = '''"""Operations of Regraft {version} (Apache-2.0), written out for the model beside this file.

Contains: {names}. Needs only PyTorch. Regenerate it with `regraft check --fix --vendor`.
"""
'''


def vendored_names(text: bytes) -> tuple[str, ...]:
    """Ops that a module imports from its vendored copy, or that a vendored copy defines."""
    known = set(_modules())
    names: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module == "regraft_ops":
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
    return tuple(sorted(names & known))


def vendor_source(names: Sequence[str]) -> str:
    """One module with the ops `names` and what they need; KeyError for an op that does not exist."""
    modules = _modules()
    wanted: dict[Path, None] = {}
    for name in names:
        _collect(modules[name], wanted)
    imports: dict[str, None] = {}
    bodies: list[str] = []
    for path in sorted(wanted):
        text = path.read_text("utf-8")
        for node in ast.parse(text).body:
            segment = _segment(text, node)
            if isinstance(node, ast.Import | ast.ImportFrom):
                if not _is_internal(node):
                    imports[segment] = None
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                bodies.append(segment)
    header = HEADER.format(version=__version__, names=", ".join(sorted(names)))
    lines = sorted(imports, key=lambda line: ("__future__" not in line, line))
    return header + "\n" + "\n".join(lines) + "\n\n\n" + "\n\n\n".join(_distinct(bodies)) + "\n"


def _modules() -> dict[str, Path]:
    """The file that defines each public function of the ops."""
    found: dict[str, Path] = {}
    for path in sorted(OPS.glob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                found[node.name] = path
    return found


def _collect(path: Path, wanted: dict[Path, None]) -> None:
    if path in wanted:
        return
    wanted[path] = None
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and _is_internal(node):
            _collect(OPS / f"{(node.module or '').rpartition('.')[2]}.py", wanted)


def _is_internal(node: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regraft")


def _segment(text: str, node: ast.stmt) -> str:
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def _distinct(bodies: Iterable[str]) -> Iterable[str]:
    """Definitions of one name must not clash when several ops share a file."""
    return dict.fromkeys(bodies)
