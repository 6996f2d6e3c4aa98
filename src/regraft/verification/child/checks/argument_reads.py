"""Find in the source which arguments of a call decide what changed lines compute or what becomes of
their results, and which of them these lines read together."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from regraft.verification.child.checks.attribute_variants import read_attributes
from regraft.verification.child.checks.deciding_parameters import (
    Function,
    Lines,
    dependent_variables,
)
from regraft.verification.names_and_scopes import name_of


@dataclass(frozen=True, slots=True)
class ArgumentReads:
    """The parameters of a function that decide what changed lines compute.

    `names` are all of them: first those that the lines name, then those that reach the lines
    through variables, then those that statements read together with results of the lines. `direct`
    are the first ones, with those that the tests around the lines name, `attributes` the attributes
    of `self` in the lines and these tests. `conditions` has, for each test and each operation of
    truth values among the lines, the set of parameters in it, if these are three or more.
    """

    names: tuple[str, ...] = ()
    direct: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    conditions: frozenset[frozenset[str]] = frozenset()

    def joined_with(self, other: ArgumentReads) -> ArgumentReads:
        """Return the reads of two versions of a function together."""
        direct = self.direct | other.direct
        names = dict.fromkeys((*self.names, *other.names))
        return ArgumentReads(
            tuple(sorted(names, key=lambda name: name not in direct)),
            direct,
            self.attributes | other.attributes,
            self.conditions | other.conditions,
        )


@dataclass(slots=True)
class _Slice:
    """What changed lines of a function read: variables by themselves and in tests around them
    (`direct`), those in calls of methods that pass them on to changed lines (`passed`), attributes
    of `self`, and the variables in each condition; `assigned` are the variables that they assign.
    """

    direct: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    conditions: set[frozenset[str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement of a function without the blocks in it, as `parts`, and the tests and iterables
    of the branches and loops around it."""

    parts: tuple[ast.AST, ...]
    tests: tuple[ast.expr, ...]

    def reads(self) -> set[str]:
        """Return the variables that the statement and the tests around it read."""
        return _names(self.parts, ast.Load) | _names(self.tests, ast.Load)


def argument_reads(definition: ast.AST | None, lines: Lines, method: str) -> ArgumentReads:
    """Return the reads of the parameters of a function, or of the method `method` of a class, by
    changed lines, pairs of a first and a last line, in it and in the methods of the class that it
    calls on `self`; an empty value for None and for a class without the method."""
    functions = _functions_of(definition)
    is_class = isinstance(definition, ast.ClassDef)
    function = functions.get(method if is_class else getattr(definition, "name", ""))
    if function is None:
        return ArgumentReads()
    return _reads_of(function, functions if is_class else {}, lines, frozenset())


def deciding_expressions(definition: ast.AST | None, lines: Lines) -> Iterator[ast.expr]:
    """Yield the expressions of a function, or of the methods of a class, that decide what changed
    lines compute: those of the statements that assign variables which the lines read, directly or
    through others, and the tests around the lines and these statements. Nothing for None."""
    for function in _functions_of(definition).values():
        statements = tuple(_statements(function.body, ()))
        part = _Slice()
        for statement in statements:
            _add_changed_parts(part, statement, lines)
        names = part.direct | part.passed
        pending = list(statements)
        while deciding := [node for node in pending if _assigns(node, names, lines)]:
            pending = [node for node in pending if node not in deciding]
            for statement in deciding:
                names |= statement.reads()
                for tree in (*statement.parts, *statement.tests):
                    yield from _expressions(tree)


def comparisons_around(definition: ast.AST | None, lines: Lines) -> Iterator[ast.expr]:
    """Yield the comparisons in the tests of the branches and loops around changed lines of a
    function, or of the methods of a class, and the expressions in them; nothing for None."""
    for function in _functions_of(definition).values():
        for statement in _statements(function.body, ()):
            if any(_begins_in(node, lines) for node in statement.parts):
                for tree in statement.tests:
                    for node in _expressions(tree):
                        if isinstance(node, ast.Compare):
                            yield from _expressions(node)


def _assigns(statement: _Statement, names: set[str], lines: Lines) -> bool:
    """Return whether a statement begins in changed lines or assigns one of some variables."""
    return _begins_in(statement.parts[0], lines) or not names.isdisjoint(
        _names(statement.parts, ast.Store)
    )


def _functions_of(definition: ast.AST | None) -> Mapping[str, Function]:
    """Return by name the methods of a class, or a function alone; {} for other nodes."""
    nodes: Sequence[ast.AST] = ()
    if isinstance(definition, ast.ClassDef):
        nodes = definition.body
    elif definition is not None:
        nodes = (definition,)
    return {node.name: node for node in nodes if isinstance(node, Function)}


def _reads_of(
    function: Function, methods: Mapping[str, Function], lines: Lines, callers: frozenset[str]
) -> ArgumentReads:
    """Return the reads of the parameters of a function; `methods` are those that it may call on
    `self`, less those of `callers`, which called it."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    parameters = [argument.arg for argument in arguments if argument.arg != "self"]
    statements = tuple(_statements(function.body, ()))
    part = _Slice()
    for statement in statements:
        _add_changed_parts(part, statement, lines)
        _add_calls_of_methods(part, statement, methods, lines, callers | {function.name})
    direct = frozenset(parameters) & part.direct
    before = {
        name
        for name in parameters
        if not dependent_variables(name, function).isdisjoint(part.direct | part.passed)
    }
    after = _names_beside_results(part.assigned, function, statements) & set(parameters)
    conditions = (names & frozenset(parameters) for names in part.conditions)
    return ArgumentReads(
        (
            *(name for name in parameters if name in direct),
            *(name for name in parameters if name in before - direct),
            *(name for name in parameters if name in after - before - direct),
        ),
        direct,
        frozenset(part.attributes),
        frozenset(names for names in conditions if len(names) > 2),
    )


def _statements(body: Sequence[ast.stmt], tests: tuple[ast.expr, ...]) -> Iterator[_Statement]:
    """Yield the statements of a body, those in blocks included; those of nested functions and
    classes are part of the statement that defines them. `tests` are those around the body."""
    for statement in body:
        blocks = [] if isinstance(statement, Function | ast.ClassDef) else _blocks(statement)
        inner = {id(node) for block in blocks for part in block for node in ast.walk(part)}
        parts = tuple(node for node in ast.walk(statement) if id(node) not in inner)
        yield _Statement(parts, tests)
        decides = isinstance(statement, ast.If | ast.While | ast.For)
        own_test = getattr(statement, "test", getattr(statement, "iter", None)) if decides else None
        for block in blocks:
            yield from _statements(block, (*tests, own_test) if own_test is not None else tests)


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Return the blocks of statements in a statement, those of handlers and cases included."""
    owners = (
        statement,
        *getattr(statement, "handlers", ()),
        *getattr(statement, "cases", ()),
    )
    blocks = (
        getattr(owner, name, []) for owner in owners for name in ("body", "orelse", "finalbody")
    )
    return [block for block in blocks if block]


def _add_changed_parts(part: _Slice, statement: _Statement, lines: Lines) -> None:
    """Add to `part` what the expressions of a statement that begin in changed lines read and
    assign, and what the tests around them read."""
    changed = [
        node
        for node in statement.parts
        if isinstance(node, ast.expr) and any(start <= node.lineno <= end for start, end in lines)
    ]
    if not changed and not _begins_in(statement.parts[0], lines):
        return
    part.direct |= _own_reads(changed) | _names(statement.tests, ast.Load)
    part.passed |= _names(changed, ast.Load)
    part.assigned |= _names(changed, ast.Store)
    part.attributes |= read_attributes(
        node for tree in (*changed, *statement.tests) for node in _expressions(tree)
    )
    part.conditions.update(_conditions(statement, changed))


def _conditions(statement: _Statement, changed: Sequence[ast.expr]) -> Iterator[frozenset[str]]:
    """Yield the variables in each test of a statement and in each operation of truth values among
    its changed expressions."""
    tests = [node.test for node in statement.parts if isinstance(node, ast.If | ast.IfExp)]
    for node in (*tests, *(node for node in changed if isinstance(node, ast.BoolOp))):
        yield frozenset(_names((node,), ast.Load))


def _own_reads(changed: Sequence[ast.expr]) -> set[str]:
    """Return the variables that changed expressions read, without those that they only hand on."""
    handed_on = {id(name) for node in changed for name in _handed_on(node)}
    names = [node for node in changed if isinstance(node, ast.Name) and id(node) not in handed_on]
    return _names(names, ast.Load)


def _handed_on(node: ast.AST) -> Iterator[ast.Name]:
    """Yield the variables that a call on an attribute of `self`, such as a layer, hands on as they
    are: nothing here computes with them."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name("self"))):
            values = (*node.args, *(keyword.value for keyword in node.keywords))
            yield from (value for value in values if isinstance(value, ast.Name))


def _begins_in(node: ast.AST, lines: Lines) -> bool:
    """Return whether a statement begins in the changed lines."""
    return any(start <= getattr(node, "lineno", 0) <= end for start, end in lines)


def _expressions(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions in a tree, itself included."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.expr))


def _names(trees: Sequence[ast.AST], context: type[ast.expr_context]) -> set[str]:
    """Return the variables among some trees that are read (`ast.Load`) or assigned
    (`ast.Store`)."""
    return {
        node.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    }


def _names_beside_results(
    assigned: set[str], function: Function, statements: Sequence[_Statement]
) -> set[str]:
    """Return the variables that statements, or tests around them, read together with a variable
    that depends on one of `assigned`."""
    results = frozenset().union(*(dependent_variables(name, function) for name in assigned))
    reads = (statement.reads() for statement in statements)
    return set().union(*(names for names in reads if not results.isdisjoint(names)))


def _add_calls_of_methods(
    part: _Slice,
    statement: _Statement,
    methods: Mapping[str, Function],
    lines: Lines,
    callers: frozenset[str],
) -> None:
    """Add the names in those arguments of calls of methods on `self` that changed lines there read:
    to the direct ones where these lines name the parameter."""
    for call in statement.parts:
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name("self"), attr=name)) if (
                name in methods and name not in callers
            ):
                inner = _reads_of(methods[name], methods, lines, callers)
                part.attributes |= inner.attributes
                for parameter, value in _bound_expressions(call, methods[name]):
                    names = _names((value,), ast.Load)
                    part.passed |= names if parameter in inner.names else set()
                    part.direct |= names if parameter in inner.direct else set()


def _bound_expressions(call: ast.Call, method: Function) -> Iterator[tuple[str, ast.expr]]:
    """Yield pairs of a parameter of a method and the expression that a call on `self` gives for
    it; those behind stars are left out."""
    is_static = any(name_of(entry) == "staticmethod" for entry in method.decorator_list)
    arguments = [*method.args.posonlyargs, *method.args.args][0 if is_static else 1 :]
    for argument, value in zip(arguments, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        yield argument.arg, value
    yield from ((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg)
