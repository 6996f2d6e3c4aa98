"""The search for runs of statements that are the block of a rule, up to names.

A block is what a body is (see whole_bodies.py), at any place of a function. Names that the block
binds are not read after it. A variable stands for a name, an attribute or an element of a name, or
a number, which the block does not bind anew.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regraft.matching.whole_bodies import (
    VARIABLE,
    BodyMatch,
    BodyPattern,
    Unifier,
    dotted_text,
    functions_of,
    root_of,
)
from regraft.source.syntax_iterators import walk
from regraft.structure.bound_names import local_names
from regraft.structure.function_surroundings import Function
from regraft.structure.module_structures import Module

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LATE = (*_SCOPES, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec"})


def find_blocks(patterns: tuple[BodyPattern, ...], module: Module) -> Iterator[BodyMatch]:
    """Yield a match for each run of statements of a file that is a block of one of the patterns,
    the first one that fits."""
    patterns = tuple(
        pattern
        for pattern in patterns
        if pattern.is_block and all(word in module.source.text for word in pattern.words)
    )
    for cls, function in functions_of(module) if patterns else ():
        words = module.words(function)
        possible = [pattern for pattern in patterns if words >= pattern.words]
        if not possible:
            continue
        for suite in _suites(function):
            for statements, unifier in _fitting_runs(possible, module, function, suite):
                names = frozenset(unifier.renaming.values())
                if _reads_property_again(unifier, module.custom_operations):
                    continue
                if not _may_be_read(function, statements, names):
                    yield BodyMatch(unifier.pattern, cls, function, statements, unifier.bindings)


def _suites(function: Function) -> Iterator[list[ast.stmt]]:
    """Yield the blocks (lists of statements) of a function, at any depth, without those of nested
    definitions."""
    pending: list[ast.AST] = [function]
    while pending:
        node = pending.pop()
        for field_name in ("body", "orelse", "finalbody"):
            suite = getattr(node, field_name, None)
            if suite and isinstance(suite, list):
                yield suite
                pending += [child for child in suite if not isinstance(child, _SCOPES)]
        pending += [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]


def _fitting_runs(
    patterns: Sequence[BodyPattern],
    module: Module,
    function: Function,
    suite: Sequence[ast.stmt],
) -> Iterator[tuple[tuple[ast.stmt, ...], BlockUnifier]]:
    """Yield each run of consecutive statements in a suite that fits a pattern, the first of the
    patterns that does, with the unifier that has its bindings."""
    types = tuple(map(type, suite))
    for start in range(len(suite)):
        for pattern in patterns:
            end = start + len(pattern.statements)
            if types[start:end] != pattern.types:
                continue
            statements = tuple(suite[start:end])
            unifier = BlockUnifier(pattern, module.names, local_names(function), "")
            if unifier.fits(statements):
                yield statements, unifier
                break


@dataclass(slots=True)
class BlockUnifier(Unifier):
    """The state of one comparison of a pattern with statements of a function.

    parameters  all names that the function binds, which mean nothing of the file
    """

    def fits(self, statements: Sequence[ast.stmt]) -> bool:
        """Return whether the statements are those of the pattern up to names; fills `renaming` and
        `bindings` on the way."""
        if len(statements) != len(self.pattern.statements):
            return False
        pairs = zip(self.pattern.statements, statements, strict=True)
        return all(self.unify(*pair) for pair in pairs) and self._are_names_distinct()

    def _are_names_distinct(self) -> bool:
        """Return whether the names that the statements bind differ from each other, from all names
        with another meaning, and from the roots of the variables."""
        names = set(self.renaming.values())
        bound = {root_of(part) for node in self.bindings.values() for part in ast.walk(node)}
        return len(names) == len(self.renaming) and names.isdisjoint(
            {*bound, *dir(builtins), *self.global_roots}
        )

    def _bind(self, name: str, node: ast.expr) -> bool:
        """Bind a variable of the rule to an expression, if that is a name, an attribute or an
        element of a name, or a number. Return whether it is, and the variable has no other
        expression already."""
        return _is_operand(node) and ast.dump(self.bindings.setdefault(name, node)) == ast.dump(
            node
        )


def _reads_property_again(unifier: BlockUnifier, properties: frozenset[str]) -> bool:
    """Return whether a variable that the block reads several times, and the kernel's call once,
    stands for one of the properties of the file, which may run any code."""
    names = [
        getattr(node, "id", "")
        for statement in unifier.pattern.statements
        for node in walk(statement)
    ]
    return any(
        isinstance(part, ast.Attribute) and part.attr in properties
        for name, expr in unifier.bindings.items()
        if names.count(f"{VARIABLE}{name}") > 1
        for part in walk(expr)
    )


def _is_operand(node: ast.expr) -> bool:
    """Return whether an expression is a name, an attribute or an element of a name by its number,
    or a whole number."""
    if isinstance(node, ast.Subscript):
        return bool(dotted_text(node.value)) and _is_whole_number(node.slice)
    return bool(dotted_text(node)) or _is_whole_number(node)


def _is_whole_number(node: ast.expr) -> bool:
    """Return whether an expression is a whole number, which may have a sign."""
    operand = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(operand, ast.Constant) and type(operand.value) is int


def _may_be_read(function: Function, statements: Sequence[ast.stmt], names: frozenset[str]) -> bool:
    """Return whether a value that statements of a function give to one of these names may be read
    outside of them: after them, before them in a loop around them, or whenever a nested function
    runs."""
    own = {id(statement) for statement in statements}
    end = statements[-1].lineno
    is_repeated = any(_is_around(node, own) for node in walk(function))
    return any(
        is_late or is_repeated or line > end for line, is_late in _reads(function, own, names)
    )


def _is_around(node: ast.AST, own: set[int]) -> bool:
    """Return whether a node is a loop around statements, which are given by their identities."""
    if not isinstance(node, _LOOPS) or id(node) in own:
        return False
    return any(id(child) in own for child in walk(node))


def _reads_name(node: ast.AST, names: frozenset[str]) -> bool:
    """Return whether a node reads or deletes one of several names; `x += 1` reads `x`."""
    if isinstance(node, ast.AugAssign):
        return isinstance(node.target, ast.Name) and node.target.id in names
    is_read = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)
    return is_read and getattr(node, "id", "") in names


def _reads(function: Function, own: set[int], names: frozenset[str]) -> Iterator[tuple[int, bool]]:
    """Yield, for each read of one of the names outside of the statements `own`, its line and
    whether it may happen at any time (in a nested function, by `global` or `locals()`). Reads of
    what an inner loop or comprehension binds itself are left out.

    own: the identities of the statements.
    """
    pending: list[tuple[ast.AST, frozenset[str], bool]] = [(function, names, False)]
    while pending:
        node, live, is_late = pending.pop()
        if id(node) in own:
            continue
        if isinstance(node, ast.Global | ast.Nonlocal) and not live.isdisjoint(node.names):
            yield node.lineno, True
        if _reads_name(node, live | _FRAME_READERS):
            is_any_time = is_late or _reads_name(node, _FRAME_READERS)
            yield getattr(node, "lineno", 0), is_any_time
        is_late = is_late or (node is not function and isinstance(node, _LATE))
        inner = live if _is_around(node, own) else live - _rebound_names(node)
        if isinstance(node, _COMPREHENSIONS):  # computed before the comprehension binds a name
            pending.append((node.generators[0].iter, live, is_late))
        for child in ast.iter_child_nodes(node):
            is_body = not isinstance(node, ast.For) or child in node.body
            pending.append((child, inner if is_body else live, is_late))


def _rebound_names(node: ast.AST) -> frozenset[str]:
    """Return the names that a loop binds before its body runs, or a comprehension before its
    element is computed."""
    if isinstance(node, ast.For):
        return _stored_names(node.target)
    if isinstance(node, _COMPREHENSIONS):
        return frozenset().union(*(_stored_names(part.target) for part in node.generators))
    return frozenset()


def _stored_names(target: ast.AST) -> frozenset[str]:
    """Return the names that an assignment to a target binds."""
    return frozenset(
        node.id
        for node in walk(target)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
