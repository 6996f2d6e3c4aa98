"""Rewrite syntax trees into a normal form in which statements that do the same are equal."""

from __future__ import annotations

import ast

from regraft.verification.local_names import (
    changes_meaning_in_comprehension,
    is_plain_local,
    names_in,
    occurs_in_loop_only,
)
from regraft.verification.names_and_scopes import parts_in_own_scope

_JUMPS = ast.Return | ast.Raise | ast.Continue | ast.Break


class Normaliser(ast.NodeTransformer):
    """Gives statements that do the same one form; the tree is changed in place.

    A result has no name, a conditional expression is a statement, a loop that only appends to a new
    list is a list comprehension, an annotated assignment has no annotation, the statements after a
    branch that leaves are its `else`, and tests are not negated.
    """

    def __init__(self) -> None:
        self._definitions: list[ast.AST] = []
        # variables of the innermost function that only named a result
        self._dropped: set[str] = set()
        self._rules = (
            self._rewrite_append_loop,
            self._return_directly,
            _split_conditional_return,
            _split_conditional_assignment,
            self._drop_annotation,
            _move_into_branch,
        )

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Give a function's statements the form that the class describes. Raises ValueError where
        the function still reads a variable whose only assignment was dropped because it named a
        result."""
        self._definitions.append(node)
        outer, self._dropped = self._dropped, set()
        self.generic_visit(node)
        self._definitions.pop()
        self._check_dropped(node)
        self._dropped = outer
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Bring the statements of a class and of its methods into normal form."""
        self._definitions.append(node)
        self.generic_visit(node)
        self._definitions.pop()
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Bring the blocks of statements below a node into normal form, inner ones first."""
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, name, self._normalise(block))
        return node

    def _check_dropped(self, function: ast.FunctionDef) -> None:
        """Raise ValueError where a function reads a dropped variable that nothing stores."""
        names = [
            part
            for part in parts_in_own_scope([function.args, *function.body])
            if isinstance(part, ast.Name) and part.id in self._dropped
        ]
        stored = {part.id for part in names if not isinstance(part.ctx, ast.Load)}
        stored.update(part.arg for part in ast.walk(function.args) if isinstance(part, ast.arg))
        if any(part.id not in stored for part in names):
            raise ValueError("a variable that is read elsewhere has lost its last assignment")

    def _normalise(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of a block in normal form: each rule is applied to the first
        statement and those after it, as long as one applies, then the following ones are treated in
        the same way."""
        if not block:
            return []
        first, following = block[0], block[1:]
        for rule in self._rules:
            rewritten = rule(first, following)
            if rewritten is not None:
                return self._normalise(rewritten)
        if isinstance(first, ast.If):
            first = _without_negation(
                ast.If(first.test, self._normalise(first.body), self._normalise(first.orelse))
            )
        return [first, *self._normalise(following)]

    def _rewrite_append_loop(
        self, first: ast.stmt, following: list[ast.stmt]
    ) -> list[ast.stmt] | None:
        """Return the block with `values = [value for target in source]` for a new list and a loop
        that only appends to it; None for other statements, and where the loop's variables are read
        or stored elsewhere."""
        match (first, following):
            case (
                ast.Assign([ast.Name(name)], ast.List([])),
                [ast.For(body=[statement], orelse=[]) as loop, *others],
            ):
                value = _appended_value(statement, name)
            case _:
                return None
        function = self._innermost_function()
        targets = names_in([loop.target])
        if (
            value is None
            or not all(is_plain_local(variable, function) for variable in {name, *targets})
            or name in targets + names_in([loop.iter, value])
            or changes_meaning_in_comprehension([loop.target, loop.iter, value])
            or not occurs_in_loop_only(targets, loop, function)
        ):
            return None
        generator = ast.comprehension(loop.target, loop.iter, [], 0)
        comprehension = ast.ListComp(value, [generator])
        return [ast.Assign(first.targets, comprehension, lineno=0), *others]

    def _return_directly(self, first: ast.stmt, following: list[ast.stmt]) -> list[ast.stmt] | None:
        """Return the block `return value` for `name = value; return name`, and note in `_dropped`
        that the name is gone; None for other statements."""
        match first:
            case ast.Assign(targets=[ast.Name(name)], value=value) if _returned_variable(
                following
            ) == name and is_plain_local(name, self._innermost_function()):
                self._dropped.add(name)
                return [ast.Return(value)]
        return None

    def _drop_annotation(self, first: ast.stmt, following: list[ast.stmt]) -> list[ast.stmt] | None:
        """Return the block with `name = value` for `name: type = value` in a function; None for
        other statements."""
        match first:
            case ast.AnnAssign(
                target=ast.Name() as target, value=ast.expr() as value, simple=1
            ) if self._innermost_function() is not None:
                return [ast.Assign([target], value, lineno=0), *following]
        return None

    def _innermost_function(self) -> ast.FunctionDef | None:
        """Return the function whose statements are normalised; None in the body of a class and
        outside of definitions."""
        innermost = self._definitions[-1] if self._definitions else None
        return innermost if isinstance(innermost, ast.FunctionDef) else None


def _appended_value(statement: ast.stmt, name: str) -> ast.expr | None:
    """Return the expression in `name.append(expression)`; None for another statement."""
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(owner), "append"), [value], [])) if (
            owner == name and not isinstance(value, ast.Starred)
        ):
            return value
    return None


def _split_conditional_return(first: ast.stmt, following: list[ast.stmt]) -> list[ast.stmt] | None:
    """Return the block with an `if` of two returns for `return body if test else orelse`; None
    where `first` is another statement."""
    match first:
        case ast.Return(value=ast.IfExp(test, body, orelse)):
            return [ast.If(test, [ast.Return(body)], [ast.Return(orelse)]), *following]
    return None


def _split_conditional_assignment(
    first: ast.stmt, following: list[ast.stmt]
) -> list[ast.stmt] | None:
    """Return the block with an `if` of two assignments for `target = body if test else orelse`;
    None where `first` is another statement."""
    match first:
        case ast.Assign(targets=[target], value=ast.IfExp(test, body, orelse)):
            then_side = ast.Assign([target], body, lineno=0)
            else_side = ast.Assign([target], orelse, lineno=0)
            return [ast.If(test, [then_side], [else_side]), *following]
    return None


def _move_into_branch(first: ast.stmt, following: list[ast.stmt]) -> list[ast.stmt] | None:
    """Return an `if` with the statements that follow it in its branches; None for other statements.

    They move into the branch that does not leave, or, where they only return a variable, into both
    branches.
    """
    if not (isinstance(first, ast.If) and following):
        return None
    test, body, orelse = first.test, first.body, first.orelse
    leaves_in_body = _always_jumps(body)
    if not (orelse or leaves_in_body):
        return None
    leaves_in_orelse = bool(orelse) and _always_jumps(orelse)
    if leaves_in_body and not leaves_in_orelse:
        return [ast.If(test, body, [*orelse, *following])]
    if _returned_variable(following) and not (leaves_in_body or leaves_in_orelse):
        return [ast.If(test, [*body, *following], [*orelse, *following])]
    return None


def _without_negation(branch: ast.If) -> ast.If:
    """Return an `if` whose test is not negated: for `not` and `is not` its branches are exchanged.
    An `if` without `else` stays as it is."""
    if branch.orelse:
        match branch.test:
            case ast.UnaryOp(ast.Not(), operand):
                return _without_negation(ast.If(operand, branch.orelse, branch.body))
            case ast.Compare(operand, [ast.IsNot()], comparators):
                test = ast.Compare(operand, [ast.Is()], comparators)
                return ast.If(test, branch.orelse, branch.body)
    return branch


def _always_jumps(block: list[ast.stmt]) -> bool:
    """Return whether nothing that follows a block runs after it: the block returns, raises,
    continues or breaks."""
    match block[-1]:
        case ast.If(_, body, orelse):
            return bool(orelse) and _always_jumps(body) and _always_jumps(orelse)
        case statement:
            return isinstance(statement, _JUMPS)


def _returned_variable(statements: list[ast.stmt]) -> str:
    """Return the name of the variable in `return name` where that is the only statement,
    else ""."""
    match statements:
        case [ast.Return(value=ast.Name(name))]:
            return name
    return ""
