"""The fully qualified names that dotted expressions in a file refer to."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from regraft.source.syntax_iterators import statements, top_level, walk

# what the top folder of a repository has
REPOSITORY_MARKS = (".git", "pyproject.toml", "setup.py", "setup.cfg")


@dataclass(frozen=True, slots=True)
class Names:
    """The module-level names of one file.

    qualified    local name → fully qualified name
    definitions  local name → the class or function that the file defines
    stars        modules imported with `*`
    ambiguous    names bound to different objects (the branches of `try: ... except ImportError:
                 ...`), which resolve to nothing
    bound        all names that the module's top level binds
    rebound      names that functions declare `global`
    numbers      names that are bound to numbers alone, each with whether all of them are integers
    """

    qualified: Mapping[str, str]
    definitions: Mapping[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]
    stars: tuple[str, ...] = ()
    ambiguous: frozenset[str] = field(default=frozenset())
    bound: frozenset[str] = field(default=frozenset())
    rebound: frozenset[str] = field(default=frozenset())
    numbers: Mapping[str, bool] = field(default_factory=dict)

    def resolve(self, expression: ast.expr) -> str | None:
        """Return the qualified name of a dotted expression.

        None when its root is not a module-level import or alias.
        """
        parts: list[str] = []
        while isinstance(expression, ast.Attribute):
            parts.append(expression.attr)
            expression = expression.value
        if not isinstance(expression, ast.Name):
            return None
        root = self.qualified.get(expression.id)
        if root is None:
            return None
        return ".".join((root, *reversed(parts)))


def dotted(expr: ast.Attribute) -> tuple[str, str] | None:
    """Return the root name and the other parts, joined by dots, of `root.a.b`; None where the root
    is no name."""
    parts = [expr.attr]
    inner = expr.value
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    return (inner.id, ".".join(reversed(parts))) if isinstance(inner, ast.Name) else None


def package_of(path: Path) -> str:
    """Return the dotted name of a file's package, by the `__init__.py` files above it; ""
    for none."""
    parts: list[str] = []
    directory = path.resolve().parent
    while (directory / "__init__.py").is_file():
        parts.append(directory.name)
        directory = directory.parent
    return ".".join(reversed(parts))


def root_and_package(path: Path) -> tuple[Path, str]:
    """Return the folder to import a file's package from, and the dotted name of the package; the
    file's own folder and "" where it is in none.

    A file outside packages that imports relatively is in a package without `__init__.py`, of as
    many folders as its imports leave. A file that cannot be read or parsed imports nothing.
    """
    folder, parts = path.parent, []
    while (folder / "__init__.py").exists():
        parts.append(folder.name)
        folder = folder.parent
    for _ in range(0 if parts else _relative_levels(path)):
        if "." in folder.name:  # no part of a module's name
            return path.parent, ""
        parts.append(folder.name)
        folder = folder.parent
    return folder, ".".join(reversed(parts))


def _relative_levels(path: Path) -> int:
    """Return the most dots of a relative import in a file, 0 where there is none."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return 0
    return max(
        (node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0
    )


def import_bindings(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str]]:
    """Yield pairs (local name, qualified name) that an import statement binds; a star binds `*` to
    its module.

    Relative names that leave the known package keep their dots (`..activations.ACT2FN`).
    """
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        return
    module = _imported_module(node, package)
    for alias in node.names:
        qualified = module if alias.name == "*" else f"{module}.{alias.name}"
        yield alias.asname or alias.name, qualified


def _imported_module(node: ast.ImportFrom, package: str) -> str:
    """Return the module of `from ... import ...`, absolute where the package is certain."""
    module = node.module or ""
    if not node.level:
        return module
    parents = package.split(".")[: -(node.level - 1) or None] if package else []
    if not parents:
        return "." * node.level + module
    return ".".join((*parents, module)).rstrip(".") if module else ".".join(parents)


def module_names(tree: ast.Module, package: str, declares_global: bool = True) -> Names:
    """Return the names that the module's top level binds, also within `if`, `try` and `with`, but
    not in functions.

    Names that a function declares `global` are ambiguous; without `declares_global` there are none
    to look for.
    """
    bindings = _Bindings(package)
    for statement in top_level(tree.body):
        bindings.add(statement)
    rebound = _global_names(tree) if declares_global else frozenset()
    for name in rebound:
        bindings.mark_ambiguous(name)
    return bindings.names(rebound)


def _global_names(tree: ast.Module) -> frozenset[str]:
    """Return the names that functions of the module declare `global`."""
    declarations = (node for node in statements(tree.body) if isinstance(node, ast.Global))
    return frozenset(name for declaration in declarations for name in declaration.names)


def _number_type(value: ast.expr) -> type | None:
    """Return the type of a number that the source writes, with a sign or not; None for any other
    expression."""
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub | ast.UAdd):
        value = value.operand
    return type(value.value) if isinstance(value, ast.Constant) else None


_DEFINITION = ""  # a class or function of the file
_PLAIN_VALUE = "="
_UNCERTAIN = "?"


@dataclass(slots=True)
class _Bindings:
    """The names that the top level of a module binds, collected statement by statement.

    package      the package of the module; "" for none
    candidates   name → the objects that it may stand for: qualified names, _DEFINITION,
                 _PLAIN_VALUE or _UNCERTAIN; a name with several of them is ambiguous
    definitions  name → the last class or function of that name
    stars        modules imported with `*`
    values       name → the values that assignments bind it to
    """

    package: str
    candidates: dict[str, set[str]] = field(default_factory=dict)
    definitions: dict[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = field(
        default_factory=dict
    )
    stars: list[str] = field(default_factory=list)
    values: dict[str, list[ast.expr]] = field(default_factory=dict)

    def add(self, statement: ast.stmt) -> None:
        """Add the names that a statement binds."""
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self._add_import(statement)
        elif isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self._add_definition(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            self._add_assignment(statement, statement.value)
        else:
            self._add_head_stores(statement)

    def mark_ambiguous(self, name: str) -> None:
        """Make a name stand for no certain object."""
        self.candidates.setdefault(name, set()).update((_DEFINITION, _UNCERTAIN))

    def names(self, rebound: frozenset[str]) -> Names:
        """Return the names of the module; `rebound` are those that functions declare `global`."""
        ambiguous = frozenset(
            name for name, candidates in self.candidates.items() if len(candidates) > 1
        )
        return Names(
            self._qualified_names(),
            {name: node for name, node in self.definitions.items() if name not in ambiguous},
            tuple(self.stars),
            ambiguous,
            frozenset(self.candidates),
            rebound,
            {} if self.stars else dict(self._numbers()),
        )

    def _numbers(self) -> Iterator[tuple[str, bool]]:
        """Yield each name that nothing but numbers is bound to, with whether they are integers."""
        for name, values in self.values.items():
            types = set(map(_number_type, values))
            if self.candidates[name] == {_PLAIN_VALUE} and types <= {int, float}:
                yield name, types == {int}

    def _add_candidate(self, name: str, candidate: str) -> None:
        """Add an object that a name may stand for."""
        self.candidates.setdefault(name, set()).add(candidate)

    def _add_import(self, statement: ast.Import | ast.ImportFrom) -> None:
        """Add the names that an import binds."""
        for local, qualified in import_bindings(statement, self.package):
            if local == "*":
                self.stars.append(qualified)
            else:
                self._add_candidate(local, qualified)

    def _add_definition(
        self, statement: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    ) -> None:
        """Add the name of a class or function, which is ambiguous where it is defined twice."""
        is_redefined = statement.name in self.definitions
        self.definitions[statement.name] = statement
        if is_redefined:
            self.mark_ambiguous(statement.name)
        else:
            self._add_candidate(statement.name, _DEFINITION)

    def _add_assignment(self, statement: ast.Assign | ast.AnnAssign, value: ast.expr) -> None:
        """Add the names that an assignment binds, each to the name that `value` is, if any."""
        self._add_head_stores(statement)
        alias = self._alias_target(value)
        for target in _targets(statement):
            if isinstance(target, ast.Name):
                self._add_candidate(target.id, alias or _PLAIN_VALUE)
                self.values.setdefault(target.id, []).append(value)

    def _add_head_stores(self, statement: ast.stmt) -> None:
        """Mark names as ambiguous that a statement binds in its head: loop targets, tuples, `with
        ... as`, walrus."""
        if isinstance(statement, ast.If | ast.Try):
            return
        plain_targets = (
            _targets(statement) if isinstance(statement, ast.Assign | ast.AnnAssign) else []
        )
        for node in walk(statement):
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
                continue
            if node not in plain_targets:
                self.mark_ambiguous(node.id)

    def _alias_target(self, value: ast.expr) -> str:
        """Return the qualified name of the value in `LayerNorm = nn.LayerNorm`.

        "" for an unknown name or another value.
        """
        if not isinstance(value, ast.Name | ast.Attribute):
            return ""
        return Names(self._qualified_names(), {}).resolve(value) or ""

    def _qualified_names(self) -> dict[str, str]:
        """Return the qualified name of each name that stands for a single one."""
        qualified_names = {}
        for name, candidates in self.candidates.items():
            if len(candidates) == 1:
                (candidate,) = candidates
                if candidate not in (_DEFINITION, _PLAIN_VALUE):
                    qualified_names[name] = candidate
        return qualified_names


def _targets(statement: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    """Return the targets of an assignment."""
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]
