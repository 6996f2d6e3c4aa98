"""The names that code binds, reads and mentions."""

from __future__ import annotations

import ast
import io
import re
import symtable
import tokenize
from collections import Counter
from collections.abc import Iterable

FRAGMENT = "<changed>"


def names_bound_by(node: ast.AST) -> tuple[str, ...]:
    """Return the names that a node by itself binds, deletes or declares `global` or `nonlocal`,
    whatever the scope: "*" for all names of another file, () for other nodes."""
    match node:
        case ast.Name(name, ast.Store() | ast.Del()):
            return (name,)
        case ast.alias(name, local):
            return (local or name.partition(".")[0],)
        case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
            return (name,)
        case (
            ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
        ):
            return (name,)
        case ast.MatchMapping(rest=str(name)):
            return (name,)
        case ast.Global(names) | ast.Nonlocal(names):
            return tuple(names)
        case ast.arg(name):
            return (name,)
    return ()


def bound_names(tree: ast.AST) -> frozenset[str]:
    """Return every name that a syntax tree binds in any scope; "*" where it imports all names of
    another file."""
    return frozenset(name for node in ast.walk(tree) for name in names_bound_by(node))


def stored_names(node: ast.AST) -> frozenset[str]:
    """Return the variables that a piece of code assigns or iterates into."""
    names = (name for name in ast.walk(node) if isinstance(name, ast.Name))
    return frozenset(name.id for name in names if isinstance(name.ctx, ast.Store))


def assigned_names(node: ast.AST) -> frozenset[str]:
    """Return the variables that an assignment, `for` or `with` assigns itself, its body aside; none
    for another node."""
    match node:
        case ast.Assign(targets):
            return frozenset().union(*map(stored_names, targets))
        case ast.AugAssign(target) | ast.AnnAssign(target) | ast.For(target) | ast.AsyncFor(target):
            return stored_names(target)
        case ast.With(items) | ast.AsyncWith(items):
            return frozenset().union(*(stored_names(item) for item in items))
    return frozenset()


def plainly_assigned_names(node: ast.stmt) -> frozenset[str]:
    """Return the names that a statement assigns if it is an assignment to plain names only; an
    empty set for any other statement."""
    match node:
        case ast.Assign(targets) if all(isinstance(target, ast.Name) for target in targets):
            return frozenset(target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(ast.Name(name), value=ast.expr()):
            return frozenset({name})
    return frozenset()


def declared_names(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return the names that nodes declare `global` or `nonlocal`."""
    declarations = (node for node in nodes if isinstance(node, ast.Global | ast.Nonlocal))
    return frozenset(name for declaration in declarations for name in declaration.names)


def mentioned_names(node: ast.AST) -> frozenset[str]:
    """Return the variables that a node reads, assigns or deletes anywhere below it."""
    return frozenset(name.id for name in ast.walk(node) if isinstance(name, ast.Name))


def string_words(*trees: ast.AST) -> frozenset[str]:
    """Return the words (runs of letters, digits and underscores) in the string constants of syntax
    trees."""
    constants = (
        node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)
    )
    return frozenset(
        word for value in constants if isinstance(value, str) for word in re.findall(r"\w+", value)
    )


def module_names(text: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Return two sets for the source text of a file: the names that it binds at module level, also
    by `global`, and the names that code in any of its scopes reads from there."""
    bound: set[str] = set()
    read: set[str] = set()
    module_scope = symtable.symtable(_decode(text), FRAGMENT, "exec")
    scopes = [module_scope]
    while scopes:
        scope = scopes.pop()
        scopes.extend(scope.get_children())
        for symbol in scope.get_symbols():
            refers_to_module = scope is module_scope or symbol.is_global()
            if refers_to_module and _is_bound(symbol):
                bound.add(symbol.get_name())
            if symbol.is_referenced() and (refers_to_module or scope.get_type() == "class"):
                read.add(symbol.get_name())
    return frozenset(bound), frozenset(read)


def _is_bound(symbol: symtable.Symbol) -> bool:
    """Return whether a scope assigns, imports or defines a symbol."""
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()


def _decode(text: bytes) -> str:
    """Return the text of a file in the encoding that Python reads the file in."""
    return text.decode(tokenize.detect_encoding(io.BytesIO(text).readline)[0])


def imported_packages(tree: ast.Module) -> frozenset[str]:
    """Return the packages that top-level `import` statements without `as` bind by their own names
    and nothing else in the file binds."""
    aliases = [alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    count_by_package = Counter(
        alias.name.partition(".")[0] for alias in aliases if not alias.asname
    )
    bindings_by_name = Counter(name for node in ast.walk(tree) for name in names_bound_by(node))
    return frozenset(
        name for name, count in count_by_package.items() if bindings_by_name[name] == count
    )
