"""The search for functions whose whole body is that of a rule, up to names.

It serves loops and masks, which no data flow shows. Names that the rule's body binds stand for any
names, one for one; other names mean what they mean where the function stands, so that
`nn.functional.linear` is `F.linear`. A variable is a parameter that the body does not bind anew, or
an attribute of the instance.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from regraft.dsl.syntax import Const, Node, Position, Var, WholeBody
from regraft.matching.pattern import PatternProblem
from regraft.source.qualified_names import Names
from regraft.structure.function_surroundings import Function
from regraft.structure.module_structures import Module

VARIABLE = "regraft_variable_"
# Methods of tensors whose first argument is a dimension.
_REDUCTIONS = frozenset({"amax", "amin", "cumsum", "logsumexp", "mean", "prod", "softmax", "sum"})


@dataclass(frozen=True, slots=True, eq=False)
class BodyPattern:
    """The statements of a rule's body or block, and the kernel call that replaces them.

    local_names  names that the statements bind
    words        attributes of local names and of variables, all of which a function with this body
                 contains
    is_block     whether the statements may stand anywhere in a function, which goes on after them
    types        the types of the statements
    """

    statements: tuple[ast.stmt, ...]
    target: Node
    local_names: frozenset[str]
    words: frozenset[bytes]
    is_block: bool = False
    types: tuple[type, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class BodyMatch:
    """A function with the body or the block of a rule; `bindings` maps the rule's variables to
    expressions of the function."""

    pattern: BodyPattern
    cls: ast.ClassDef | None
    function: Function
    statements: tuple[ast.stmt, ...]
    bindings: dict[str, ast.expr]


def compile_body(rule_body: WholeBody) -> BodyPattern:
    """Return the pattern of a rule's body or block; raise PatternProblem where it is not Python,
    has a `return` in the wrong place, or its kernel takes anything but its variables and
    constants."""
    tree = _parse_body(rule_body)
    names = [ast_node for ast_node in ast.walk(tree) if isinstance(ast_node, ast.Name)]
    local_names = frozenset(name.id for name in names if isinstance(name.ctx, ast.Store))
    bound = {name.id.removeprefix(VARIABLE) for name in names if name.id.startswith(VARIABLE)}
    _check_kernel_arguments(rule_body.target, bound)
    words = set()
    for ast_node in ast.walk(tree):
        if isinstance(ast_node, ast.Attribute):
            root = root_of(ast_node)
            if root in local_names or root.startswith(VARIABLE):
                words.add(ast_node.attr.encode())
    return BodyPattern(
        tuple(tree.body),
        rule_body.target,
        local_names,
        frozenset(words),
        rule_body.is_block,
        tuple(map(type, tree.body)),
    )


def _parse_body(rule_body: WholeBody) -> ast.Module:
    """Return the syntax tree of a rule's body or block, in which a variable `$x` is the name
    `regraft_variable_x`. Raise PatternProblem for code that is not Python, a body that does not end
    with `return`, and a block with `return`."""
    try:
        tree = ast.parse(rule_body.code.replace("$", VARIABLE))
    except SyntaxError as error:
        at = rule_body.at
        place = Position(at.line + (error.lineno or 1), 1) if at else None
        raise PatternProblem(f"the body is not Python: {error.msg}", place) from None
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.Return)]
    if rule_body.is_block and returns:
        raise PatternProblem("a block has no `return`", rule_body.at)
    if not rule_body.is_block and (not tree.body or tree.body[-1] not in returns):
        raise PatternProblem("a body ends with `return`", rule_body.at)
    return tree


def _check_kernel_arguments(target: Node, bound: Collection[str]) -> None:
    """Raise PatternProblem where the kernel takes something else than `bound` variables and
    constants."""
    operands = (*target.apply.args, *(value for _, value in target.apply.keywords))
    for operand in operands:
        is_bound = isinstance(operand, Var) and operand.name in bound
        if not is_bound and not isinstance(operand, Const):
            raise PatternProblem(
                "the kernel of a body takes its variables and constants", target.at
            )


def find_bodies(patterns: tuple[BodyPattern, ...], module: Module) -> Iterator[BodyMatch]:
    """Yield a match for each function of a file with the body of one of the patterns, the first one
    that fits."""
    patterns = tuple(
        pattern
        for pattern in patterns
        if not pattern.is_block and all(word in module.source.text for word in pattern.words)
    )
    for cls, function in functions_of(module) if patterns else ():
        words = module.words(function)
        for pattern in patterns:
            match = (
                _match_function(pattern, module.names, cls, function)
                if words >= pattern.words
                else None
            )
            if match is not None:
                yield match
                break


def functions_of(module: Module) -> Iterator[tuple[ast.ClassDef | None, Function]]:
    """Yield the methods of the file's classes with their class, and the functions at its top level
    with None."""
    for cls in module.classes.values():
        yield from ((cls, method) for method in module.methods(cls).values())
    for statement in module.source.tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield None, statement


def _match_function(
    pattern: BodyPattern, names: Names, cls: ast.ClassDef | None, function: Function
) -> BodyMatch | None:
    """Return the match of a function's body, less its docstring, with a pattern; None where they
    differ."""
    body = _without_docstring(function.body)
    if len(body) != len(pattern.statements) or isinstance(function, ast.AsyncFunctionDef):
        return None
    arguments = function.args
    parameters = [
        parameter.arg
        for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    ]
    receiver = parameters[0] if cls is not None and parameters else ""
    unifier = Unifier(pattern, names, frozenset(parameters), receiver)
    if not all(unifier.unify(*pair) for pair in zip(pattern.statements, body, strict=True)):
        return None
    starred = [parameter.arg for parameter in (arguments.vararg, arguments.kwarg) if parameter]
    if not unifier.has_distinct_names(starred):
        return None
    return BodyMatch(pattern, cls, function, tuple(body), unifier.bindings)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a function less its docstring."""
    first = body[0].value if isinstance(body[0], ast.Expr) else None
    is_text = isinstance(first, ast.Constant) and isinstance(first.value, str)
    return body[1:] if is_text else body


@dataclass(slots=True)
class Unifier:
    """The state of one comparison of a pattern with a body.

    renaming      the pattern's local names with those of the body
    bindings      the variables with the expressions that they stand for
    global_roots  first parts of the names in the body that the file, not the body, gives their
                  meaning
    """

    pattern: BodyPattern
    names: Names
    parameters: frozenset[str]
    receiver: str
    renaming: dict[str, str] = field(default_factory=dict)
    bindings: dict[str, ast.expr] = field(default_factory=dict)
    global_roots: set[str] = field(default_factory=set)

    def has_distinct_names(self, starred: Collection[str]) -> bool:
        """Return whether the local names of the body differ from each other and from all names
        with another meaning.

        starred  the parameters `*args` and `**kwargs`, which the body may not use at all
        """
        local_names = set(self.renaming.values())
        if len(local_names) < len(self.renaming):
            return False
        outer_names = {*self.parameters, *dir(builtins), *self.global_roots}
        if not local_names.isdisjoint(outer_names):
            return False
        return local_names.isdisjoint(starred) and self.global_roots.isdisjoint(starred)

    def unify(self, pattern_node: object, node: object) -> bool:
        """Return whether two nodes, lists of nodes or constants are equal up to names. Adds the
        names and variables that it meets to `renaming`, `bindings` and `global_roots`, also where
        the answer is False."""
        if isinstance(pattern_node, ast.Name | ast.Attribute):
            return isinstance(node, ast.expr) and self._unify_path(pattern_node, node)
        if isinstance(pattern_node, ast.Call) and isinstance(node, ast.Call):
            return self._unify_fields(
                _with_positional_dim(pattern_node), _with_positional_dim(node)
            )
        if isinstance(pattern_node, ast.AST):
            return self._unify_fields(pattern_node, node)
        if isinstance(pattern_node, list):
            is_same_length = isinstance(node, list) and len(node) == len(pattern_node)
            return is_same_length and all(
                self.unify(*pair)
                for pair in zip(pattern_node, node, strict=True)  # type: ignore[call-overload]
            )
        return type(pattern_node) is type(node) and pattern_node == node

    def _unify_path(self, pattern_node: ast.Name | ast.Attribute, node: ast.expr) -> bool:
        """Return whether an expression is equal to a name or an attribute of the pattern: a
        variable, which is bound, a local name, which is renamed, or a name of the file, which has
        to mean the same."""
        name = dotted_text(pattern_node)
        is_outer = root_of(pattern_node) not in self.pattern.local_names
        if name and is_outer and not name.startswith(VARIABLE):
            return self._refers_to(node, name)
        if isinstance(pattern_node, ast.Attribute):
            return self._unify_fields(pattern_node, node)
        if name.startswith(VARIABLE):
            return self._bind(name.removeprefix(VARIABLE), node)
        return isinstance(node, ast.Name) and self.renaming.setdefault(name, node.id) == node.id

    def _unify_fields(self, pattern_node: ast.AST, node: object) -> bool:
        """Return whether two nodes have the same type and fields that unify."""
        return type(pattern_node) is type(node) and all(
            self.unify(getattr(pattern_node, field_name, None), getattr(node, field_name, None))
            for field_name in pattern_node._fields
        )

    def _bind(self, name: str, node: ast.expr) -> bool:
        """Bind a variable of the rule to an expression, if that is a parameter or an attribute of
        the instance. Return whether it is, and the variable has no other expression already."""
        path = dotted_text(node)
        if path in self.parameters or path.startswith(
            f"{self.receiver}." if self.receiver else "?"
        ):
            return ast.dump(self.bindings.setdefault(name, node)) == ast.dump(node)
        return False

    def _refers_to(self, node: ast.expr, name: str) -> bool:
        """Return whether an expression of the body means the qualified name `name` in its file;
        notes its first part in `global_roots`."""
        root = root_of(node)
        self.global_roots.add(root)
        is_builtin = (
            isinstance(node, ast.Name)
            and node.id not in self.names.bound
            and node.id in dir(builtins)
        )
        return (
            root not in self.parameters
            and (name if is_builtin and root == name else self.names.resolve(node)) == name
        )


def _with_positional_dim(call: ast.Call) -> ast.Call:
    """Return the call of a reduction with its dimension as the first argument, as in `x.sum(-1)`
    for `x.sum(dim=-1)`; any other call as it is."""
    is_reduction = isinstance(call.func, ast.Attribute) and call.func.attr in _REDUCTIONS
    if not is_reduction or call.args or [part.arg for part in call.keywords[:1]] != ["dim"]:
        return call
    return ast.Call(call.func, [call.keywords[0].value], call.keywords[1:])


def dotted_text(node: object) -> str:
    """Return the text `a.b.c` of a name or a chain of attributes; "" for another node."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted_text(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def root_of(node: object) -> str:
    """Return the first part of a dotted name; "" for another node."""
    return dotted_text(node).partition(".")[0]
