"""Fully qualified names: what a dotted expression in a file refers to."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Names:
    """Module-level names of one file.

    `qualified` maps a local name to its fully qualified name; `definitions` maps it to the class or function
    that the file defines; `stars` are the modules imported with `*`; `ambiguous` are names bound to different
    things (the branches of `try: ... except ImportError: ...`), which resolve to nothing; `bound` are all names that
    the module's top level binds, `rebound` those that functions declare `global`.
    """

    qualified: Mapping[str, str]
    definitions: Mapping[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]
    stars: tuple[str, ...] = ()
    ambiguous: frozenset[str] = field(default=frozenset())
    bound: frozenset[str] = field(default=frozenset())
    rebound: frozenset[str] = field(default=frozenset())

    def resolve(self, expression: ast.expr) -> str | None:
        """Qualified name of a dotted expression, or None when its root is not a module-level import or alias."""
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
    """(root name, rest) of `root.a.b`."""
    parts = [expr.attr]
    inner = expr.value
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    return (inner.id, ".".join(reversed(parts))) if isinstance(inner, ast.Name) else None


def package_of(path: Path) -> str:
    """Dotted name of the package that holds the file, read off the `__init__.py` files above it; "" for none."""
    parts: list[str] = []
    directory = path.resolve().parent
    while (directory / "__init__.py").is_file():
        parts.append(directory.name)
        directory = directory.parent
    return ".".join(reversed(parts))


def imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str]]:
    """Pairs (local name, qualified name) that an import statement binds; a star binds `*` to its module.

    Relative names that leave the known package keep their dots (`..activations.ACT2FN`).
    """
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        return
    module = node.module or ""
    if node.level:
        base = package.split(".")[: -(node.level - 1) or None] if package else []
        prefix = ".".join(base) or "." * node.level
        module = f"{prefix}.{module}".rstrip(".") if base and module else (prefix + module if module else prefix)
    for alias in node.names:
        yield (alias.asname or alias.name, module if alias.name == "*" else f"{module}.{alias.name}")


def module_names(tree: ast.Module, package: str, declares_global: bool = True) -> Names:
    """Collect what the module's top level binds, looking into `if`, `try` and `with` but not into functions.

    Names that a function declares `global` are ambiguous; without `declares_global` there are none to look for.
    """
    bound: dict[str, set[str]] = {}
    definitions: dict[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = {}
    stars: list[str] = []
    for statement in _top_level(tree.body):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for local, qualified in imported(statement, package):
                if local == "*":
                    stars.append(qualified)
                else:
                    bound.setdefault(local, set()).add(qualified)
        elif isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            twice = statement.name in definitions
            definitions[statement.name] = statement
            bound.setdefault(statement.name, set()).update(("", "?") if twice else ("",))
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            _other_stores(statement, bound)
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            alias = _alias(statement.value, bound)
            for target in targets:
                if isinstance(target, ast.Name):
                    bound.setdefault(target.id, set()).add(alias or "=")
        else:
            _other_stores(statement, bound)
    rebound = {
        name
        for node in (statements(tree.body) if declares_global else ())
        if isinstance(node, ast.Global)
        for name in node.names
    }
    for name in rebound:
        bound.setdefault(name, set()).update(("", "?"))
    qualified_names = {name: next(iter(found - {"="}), "") for name, found in bound.items() if len(found) == 1}
    ambiguous = frozenset(name for name, found in bound.items() if len(found) > 1)
    return Names(
        {name: qualified for name, qualified in qualified_names.items() if qualified},
        {name: node for name, node in definitions.items() if name not in ambiguous},
        tuple(stars),
        ambiguous,
        frozenset(bound),
        frozenset(rebound),
    )


_LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator)


def walk(root: ast.AST) -> Iterator[ast.AST]:
    """Every node below (and including) one, in no particular order; three times as fast as `ast.walk`."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, _LEAVES):
            continue
        for value in vars(node).values():
            if isinstance(value, ast.AST):
                pending.append(value)
            elif isinstance(value, list):
                pending += [one for one in value if isinstance(one, ast.AST)]


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement of a block, nested ones included; those of nested functions and classes, too."""
    pending = list(body)
    while pending:
        statement = pending.pop()
        yield statement
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            for one in getattr(statement, block, ()):
                if isinstance(one, ast.stmt):
                    pending.append(one)
                else:
                    pending += one.body


def _other_stores(statement: ast.stmt, bound: dict[str, set[str]]) -> None:
    """Names that a statement binds in its own head: loop targets, tuples, `with ... as`, walrus."""
    if isinstance(statement, ast.If | ast.Try):
        return
    plain: list[object] = []
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        plain += statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in plain:
            bound.setdefault(node.id, set()).update(("", "?"))


def _alias(value: ast.expr, bound: Mapping[str, set[str]]) -> str:
    """Qualified name of `LayerNorm = nn.LayerNorm`; "" when the right-hand side is not a known dotted name."""
    known = {name: next(iter(found - {"="}), "") for name, found in bound.items() if len(found) == 1}
    return Names({name: found for name, found in known.items() if found}, {}).resolve(value) or ""


def defaults(arguments: ast.arguments) -> Iterator[tuple[ast.arg, ast.expr]]:
    """The parameters that have a default, and the default."""
    places = [*arguments.posonlyargs, *arguments.args]
    yield from zip(places[len(places) - len(arguments.defaults) :], arguments.defaults, strict=True)
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            yield one, default


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            continue  # not bound when the program runs
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            for block in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(statement, block, []))
            for handler in getattr(statement, "handlers", []):
                yield from _top_level(handler.body)
