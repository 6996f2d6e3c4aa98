"""The names that functions and statements bind, and those that nested functions share with them."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator

from regraft.source.qualified_names import dotted
from regraft.source.syntax_iterators import statements, walk
from regraft.structure.function_surroundings import Function, Scope

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_SCOPES = (*_DEFINITIONS, ast.Lambda)
_TARGETS = (ast.Name, ast.Attribute)
_LEAVES = (ast.Constant, ast.expr_context, ast.operator)
_LATE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
_FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec"})
# One of these words is in the text of every function that `nested_names` has an answer for.
_NESTED_WORDS = ("lambda", "def ", "class ", " for ", *sorted(_FRAME_READERS))


@functools.lru_cache(maxsize=16)  # blocks of several rules are looked for in one function
def local_names(function: Function) -> frozenset[str]:
    """Return the parameters of a function and the names that it binds."""
    arguments = function.args
    parameters = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    return frozenset(parameter.arg for parameter in parameters if parameter is not None).union(
        stored_names(function.body)
    )


def nested_names(scope: Scope, function: Function) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that nested functions, lambdas and generators read later, and the names that
    they bind."""
    segment = scope.source.segment(function)[4:]
    if not any(word in segment for word in _NESTED_WORDS):
        return frozenset(), frozenset()
    read: set[str] = set()
    bound: set[str] = set()
    for statement in function.body:
        for node in walk(statement):
            if isinstance(node, _LATE):
                inner = [descendant for part in _late_parts(node) for descendant in walk(part)]
                for descendant in inner:
                    if isinstance(descendant, ast.Name):
                        read.add(descendant.id)
                    elif isinstance(descendant, ast.Nonlocal):
                        bound.update(descendant.names)
            elif isinstance(node, ast.Name) and node.id in _FRAME_READERS:
                read |= local_names(function)
    return frozenset(read), frozenset(bound)


def _late_parts(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a nested function or generator that run later: all but the first iterable
    of a generator."""
    if not isinstance(node, ast.GeneratorExp):
        return [node]
    first, *further = node.generators
    return [node.elt, first.target, *first.ifs, *further]


def stored_names(body: Iterable[ast.AST], receiver: str | None = None) -> tuple[str, ...]:
    """Return the names and attributes of the `receiver` (`self.x`) that statements bind, outside
    nested functions."""
    names: dict[str, None] = {}
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        name = _stored_name(node, receiver)
        if name is not None:
            names[name] = None
        if isinstance(node, _SCOPES):
            continue
        for value in vars(node).values():  # faster than ast.iter_child_nodes
            if isinstance(value, list):
                stack += [child for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                stack.append(value)
    return tuple(names)


def _stored_name(node: ast.AST, receiver: str | None) -> str | None:
    """Return the name or the attribute of the `receiver` that a syntax node itself binds; None for
    any other node."""
    if isinstance(node, _DEFINITIONS):
        return node.name
    if not isinstance(node, _TARGETS) or isinstance(node.ctx, ast.Load):
        return None
    if isinstance(node, ast.Name):
        return node.id
    path = dotted(node)
    return f"self.{path[1]}" if path is not None and path[0] == receiver else None


def class_variables(cls: ast.ClassDef) -> set[str]:
    """Return the names that a class body assigns outside its methods."""
    members = [member for member in cls.body if not isinstance(member, _FUNCTIONS)]
    return {target.id for target in assignment_targets(members) if isinstance(target, ast.Name)}


def assignment_targets(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """Yield the assignment targets of statements, nested statements included; expressions are not
    searched."""
    for statement in statements(body):
        if isinstance(statement, ast.Expr | ast.Return | ast.If):
            continue
        pending = [*getattr(statement, "targets", ()), getattr(statement, "target", None)]
        pending += [with_item.optional_vars for with_item in getattr(statement, "items", ())]
        while pending:
            target = pending.pop()
            if isinstance(target, ast.Tuple | ast.List):
                pending += target.elts
            elif target is not None:
                yield target
