"""Functions whose whole body is that of a rule, up to names: for loops and masks, which no data flow shows.

Names of the body's own stand for any names, one for one; other names mean what they do where the function stands, so
`nn.functional.linear` is `F.linear`. A variable is a parameter that stays as it is, or an attribute of the instance.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field

from regraft.dsl.syntax import Const, Node, Position, Var, Whole
from regraft.matching.pattern import PatternProblem
from regraft.source.names import Names
from regraft.structure.frame import Function
from regraft.structure.module import Module

_VARIABLE = "regraft_variable_"


@dataclass(frozen=True, slots=True, eq=False)
class BodyPattern:
    """The statements of a rule's body, and the kernel call that does what they do.

    own    names that the statements bind
    words  attributes of these and of the variables, which a function has to contain
    """

    statements: tuple[ast.stmt, ...]
    target: Node
    own: frozenset[str]
    words: frozenset[bytes]


@dataclass(frozen=True, slots=True, eq=False)
class BodyMatch:
    """A function with the body of a rule: what the variables are there."""

    pattern: BodyPattern
    cls: ast.ClassDef | None
    function: Function
    statements: tuple[ast.stmt, ...]
    bindings: dict[str, ast.expr]


def compile_body(whole: Whole) -> BodyPattern:
    """The pattern of a rule's body; raises PatternProblem."""
    try:
        tree = ast.parse(whole.code.replace("$", _VARIABLE))
    except SyntaxError as error:
        at = whole.at
        place = Position(at.line + (error.lineno or 1), 1) if at else None
        raise PatternProblem(f"the body is not Python: {error.msg}", place) from None
    if not tree.body or not isinstance(tree.body[-1], ast.Return):
        raise PatternProblem("a body ends with `return`", whole.at)
    names = [one for one in ast.walk(tree) if isinstance(one, ast.Name)]
    own = frozenset(one.id for one in names if isinstance(one.ctx, ast.Store))
    bound = {one.id.removeprefix(_VARIABLE) for one in names if one.id.startswith(_VARIABLE)}
    for operand in (*whole.target.apply.args, *(value for _, value in whole.target.apply.keywords)):
        if not isinstance(operand, Const) and not (isinstance(operand, Var) and operand.name in bound):
            raise PatternProblem("the kernel of a body takes its variables and constants", whole.target.at)
    attributes = [one for one in ast.walk(tree) if isinstance(one, ast.Attribute)]
    words = {one.attr.encode() for one in attributes if _root(one) in own or _root(one).startswith(_VARIABLE)}
    return BodyPattern(tuple(tree.body), whole.target, own, frozenset(words))


def find_bodies(patterns: tuple[BodyPattern, ...], module: Module) -> Iterator[BodyMatch]:
    """Functions of a file with the body of one of the patterns, the first that fits."""
    patterns = tuple(one for one in patterns if all(word in module.source.text for word in one.words))
    for cls, function in _functions(module) if patterns else ():
        words = module.words(function)
        for pattern in patterns:
            found = _match(pattern, module.names, cls, function) if words >= pattern.words else None
            if found is not None:
                yield found
                break


def _functions(module: Module) -> Iterator[tuple[ast.ClassDef | None, Function]]:
    for cls in module.classes.values():
        yield from ((cls, one) for one in module.methods(cls).values())
    for one in module.source.tree.body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            yield None, one


def _match(pattern: BodyPattern, names: Names, cls: ast.ClassDef | None, function: Function) -> BodyMatch | None:
    body = function.body
    if (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body = body[1:]
    if len(body) != len(pattern.statements) or isinstance(function, ast.AsyncFunctionDef):
        return None
    arguments = function.args
    parameters = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    receiver = parameters[0] if cls is not None and parameters else ""
    unifier = _Unifier(pattern, names, frozenset(parameters), receiver)
    several = {one.arg for one in (arguments.vararg, arguments.kwarg) if one is not None}
    if not all(unifier.same(*pair) for pair in zip(pattern.statements, body, strict=True)):
        return None
    taken = set(unifier.own.values())
    if len(taken) < len(unifier.own) or taken & {*parameters, *dir(builtins)} or taken & unifier.used:
        return None
    if several & (taken | unifier.used):
        return None
    return BodyMatch(pattern, cls, function, tuple(body), unifier.bindings)


@dataclass(slots=True)
class _Unifier:
    """One comparison of a pattern with a body.

    own       the pattern's own names with those of the body
    bindings  the variables with what they are
    used      names of the body that mean something of the file
    """

    pattern: BodyPattern
    names: Names
    parameters: frozenset[str]
    receiver: str
    own: dict[str, str] = field(default_factory=dict)
    bindings: dict[str, ast.expr] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    def same(self, wanted: object, found: object) -> bool:
        if isinstance(wanted, ast.Name) and wanted.id.startswith(_VARIABLE):
            return isinstance(found, ast.expr) and self._bind(wanted.id.removeprefix(_VARIABLE), found)
        if isinstance(wanted, ast.Name) and wanted.id in self.pattern.own:
            return isinstance(found, ast.Name) and self.own.setdefault(wanted.id, found.id) == found.id
        name = _dotted(wanted)
        if name and _root(wanted) not in self.pattern.own and not name.startswith(_VARIABLE):
            return isinstance(found, ast.expr) and self._means(found, name)
        if isinstance(wanted, ast.AST):
            if type(wanted) is not type(found):
                return False
            return all(self.same(getattr(wanted, one, None), getattr(found, one, None)) for one in wanted._fields)
        if isinstance(wanted, list):
            many = isinstance(found, list) and len(found) == len(wanted)
            return many and all(self.same(*pair) for pair in zip(wanted, found, strict=True))  # type: ignore[call-overload]
        return type(wanted) is type(found) and wanted == found

    def _bind(self, name: str, found: ast.expr) -> bool:
        path = _dotted(found)
        if path in self.parameters or path.startswith(f"{self.receiver}." if self.receiver else "?"):
            return ast.dump(self.bindings.setdefault(name, found)) == ast.dump(found)
        return False

    def _means(self, found: ast.expr, name: str) -> bool:
        root = _root(found)
        self.used.add(root)
        own = isinstance(found, ast.Name) and found.id not in self.names.bound and found.id in dir(builtins)
        return root not in self.parameters and (name if own and root == name else self.names.resolve(found)) == name


def _dotted(node: object) -> str:
    """`a.b.c` of names and attributes, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def _root(node: object) -> str:
    return _dotted(node).partition(".")[0]
