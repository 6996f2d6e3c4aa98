"""Lowering of statements: one pass over a function, linear in its length; paths are never
enumerated."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from regraft.source.syntax_iterators import defaults
from regraft.structure import calls, guards
from regraft.structure.bound_names import nested_names, stored_names
from regraft.structure.containers import loop_element
from regraft.structure.expressions import condition, lower
from regraft.structure.function_surroundings import Function, Scope
from regraft.structure.guards import FALSE, TRUE, Guard
from regraft.structure.lowering_state import Frame
from regraft.structure.simple_statements import SIMPLE_STATEMENTS, any_statement, bind_target
from regraft.structure.values_and_nodes import Body, Kind, Node, Statement, Value

_ANNOTATED: dict[str, Kind] = {
    "torch.Tensor": "tensor",
    "Tensor": "tensor",
    "int": "int",
    "float": "scalar",
    "bool": "bool",
    "str": "str",
}


def lower_function(
    scope: Scope,
    function: Function,
    name: str,
    method: bool,
    enclosing: frozenset[str] = frozenset(),
    instance: str | None = None,
) -> Body:
    """Lower one function and return its body.

    method     the first parameter is the instance
    enclosing  names of the enclosing functions, which hide those of the module
    instance   the name of the instance in the method around the function; None for any other
               function
    """
    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args]
    first = parameters[0].arg if parameters else ""
    receiver = first if method and first else instance
    frame = Frame(scope, receiver, lower, block)
    frame.captured, frame.volatile = nested_names(scope, function)
    _bind_names(frame, arguments, enclosing, instance)
    block(frame, function.body)
    frame.forget_unused_joins()
    return Body(
        name,
        function,
        tuple(frame.nodes),
        {local: tuple(events) for local, events in frame.log.items()},
        tuple(frame.stores),
        tuple(frame.opaque),
        _index_by_op(frame.nodes),
        any(_is_jit(scope, decorator) for decorator in function.decorator_list),
        frame.compound,
        frame.inlined,
        tuple(node for node in frame.nodes if calls.writes(node)),
        frame.entered,
        receiver or first,
    )


def _bind_names(
    frame: Frame, arguments: ast.arguments, enclosing: frozenset[str], instance: str | None
) -> None:
    """Bind the names of the enclosing functions, among them that of the instance, and the
    parameters, with their defaults."""
    for hidden in enclosing - {instance}:
        frame.bind(hidden, frame.value("unknown"))
    if instance is not None:
        frame.bind(instance, frame.value("param", name=instance))
    parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for parameter in (*parameters, arguments.vararg, arguments.kwarg):
        if parameter is not None:
            frame.bind(parameter.arg, _parameter(frame, parameter))
    for parameter, default in defaults(arguments):
        if isinstance(default, ast.Name | ast.Attribute):
            frame.defaults[frame.env[parameter.arg].value] = default


def _is_jit(scope: Scope, decorator: ast.expr) -> bool:
    qualified = scope.names.resolve(
        decorator.func if isinstance(decorator, ast.Call) else decorator
    )
    return qualified is not None and qualified.startswith("torch.jit.script")


def _parameter(frame: Frame, parameter: ast.arg) -> Value:
    """Return the value of a parameter, of the annotation's kind."""
    annotation = ast.unparse(parameter.annotation) if parameter.annotation is not None else ""
    return frame.value("param", _ANNOTATED.get(annotation, "unknown"), parameter.arg)


def block(frame: Frame, body: Sequence[ast.stmt]) -> Guard:
    """Lower a statement list and return the condition, relative to its entry, under which control
    leaves it early."""
    outer_guard, outer_block = frame.guard, frame.block
    if frame.site is None:
        frame.blocks += 1
        frame.block = frame.blocks
    exit_guard: Guard = FALSE
    for statement in body:
        frame.time += 1  # between what was bound before the statement, and what it computes
        record = Statement(statement, frame.block, frame.loop, frame.time, 0, outer_guard)
        if frame.site is None:
            frame.statement = record
            frame.entered[statement] = frame.guard
        exits = _DISPATCH.get(type(statement), any_statement)(frame, statement)
        record.end = frame.time
        if exits is not FALSE:
            exit_guard = guards.disjoin(exit_guard, exits)
            if exits == TRUE:
                exit_guard = TRUE
                break
            frame.guard = guards.conjoin(frame.guard, guards.negate(exits))
    frame.guard, frame.block = outer_guard, outer_block
    return exit_guard


# compound statements


def _branch(frame: Frame, guard: Guard, body: Sequence[ast.stmt]) -> tuple[Guard, dict[str, Value]]:
    """Lower one branch under `guard`, undo its bindings, and return the exit condition and the
    values of its names."""
    outer, mark = frame.guard, len(frame.trail)
    frame.guard = guards.conjoin(outer, guard)
    exits = block(frame, body) if body else FALSE
    frame.guard = outer
    return exits, frame.rewind(mark)


def _if(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower an if statement, and return the condition under which one of its branches leaves the
    block."""
    assert isinstance(statement, ast.If)
    test = condition(frame, statement.test)
    negation = guards.negate(test)
    then_exit, then_names = _branch(frame, test, statement.body)
    else_exit, else_names = _branch(frame, negation, statement.orelse)
    _merge(frame, [(test, then_exit, then_names), (negation, else_exit, else_names)])
    return (
        guards.disjoin(
            FALSE if then_exit is FALSE else guards.conjoin(test, then_exit),
            FALSE if else_exit is FALSE else guards.conjoin(negation, else_exit),
        )
        if not (then_exit == TRUE and else_exit == TRUE)
        else TRUE
    )


def _merge(frame: Frame, branches: Iterable[tuple[Guard, Guard, dict[str, Value]]]) -> None:
    """Join the branches (guard, exit condition, names); a branch that always leaves contributes
    nothing."""
    frame.join([(guard, names) for guard, exits, names in branches if exits != TRUE])


def _index_by_op(nodes: Sequence[Node]) -> dict[str, tuple[Node, ...]]:
    """Return nodes by their operation, in their order."""
    index: dict[str, list[Node]] = {}
    for node in nodes:
        index.setdefault(node.op, []).append(node)
    return {op: tuple(nodes_of_op) for op, nodes_of_op in index.items()}


def _loop(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower a loop once; the names that its body binds become loop-carried φ values."""
    assert isinstance(statement, ast.For | ast.AsyncFor | ast.While)
    source = lower(frame, statement.iter) if not isinstance(statement, ast.While) else None
    mark, outer_loop, outer_guard = len(frame.trail), frame.loop, frame.guard
    frame.loops += 1
    frame.loop = frame.loops
    entry, carried = _bind_carried_names(frame, statement)
    if isinstance(statement, ast.While):
        # the test runs before every step, also the first, so the guard of the body does not tell
        # the step
        condition(frame, statement.test)
    elif source is not None:
        calls.record_iteration(frame, source, statement.iter)
        bind_target(frame, statement.target, loop_element(frame, source, statement.iter))
    frame.loop_marks.append(mark)
    block(frame, statement.body)
    frame.loop_marks.pop()
    frame.loop, frame.guard = outer_loop, outer_guard
    final = frame.rewind(mark)
    runs = guards.Atom(
        "opaque", f"loop#{frame.loops}", None, f"loop at line {statement.lineno} runs"
    )
    for name, phi in carried.items():
        frame.phis.append(phi)
        phi.options = ((guards.negate(runs), entry[name]), (runs, final[name]))
        entry[name].joins.append(phi)
        final[name].joins.append(phi)
    # after the loop a name holds the φ: the entry's value or that of the last step
    frame.join([(runs, {name: carried.get(name, value) for name, value in final.items()})])
    if statement.orelse:
        exits, names = _branch(frame, TRUE, statement.orelse)
        _merge(frame, [(TRUE, exits, names)])
    # a return inside the loop may or may not be taken: what follows runs under an unknown condition
    return FALSE


def _bind_carried_names(
    frame: Frame, statement: ast.For | ast.AsyncFor | ast.While
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Bind the names that a loop assigns to new φ values, without options yet; return by name the
    values before the loop, and the φ values."""
    entry: dict[str, Value] = {}
    carried: dict[str, Value] = {}
    targets = () if isinstance(statement, ast.While) else (statement.target,)
    for name in stored_names((*targets, *statement.body), frame.receiver):
        bound = frame.env.get(name)
        entry[name] = bound.value if bound else frame.fresh(name)
        carried[name] = frame.value("phi", entry[name].kind, name)
        frame.bind(name, carried[name])
    return entry, carried


def _with(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower a with statement, in which entering and leaving a context are opaque calls."""
    assert isinstance(statement, ast.With | ast.AsyncWith)
    for with_item in statement.items:
        value = lower(frame, with_item.context_expr)
        frame.node("call", {"0": value}, with_item.context_expr, effect=True, spelling="__enter__")
        if with_item.optional_vars is not None:
            bind_target(frame, with_item.optional_vars, frame.value("unknown"))
    started = frame.time
    exits = block(frame, statement.body)
    _use_bound_values(frame, started, statement)
    frame.node("call", {}, statement, effect=True, spelling="__exit__")
    return exits


def _try(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower a try statement: handlers run under an unknown condition, from an unknown point of the
    body."""
    assert isinstance(statement, _TRY)
    failed = guards.Atom(
        "opaque", f"try#{statement.lineno}", None, f"the try at line {statement.lineno} fails"
    )
    started = frame.time
    exits, names = _branch(frame, guards.negate(failed), [*statement.body, *statement.orelse])
    _use_bound_values(frame, started, statement)
    branches: list[tuple[Guard, Guard, dict[str, Value]]] = [(guards.negate(failed), exits, names)]
    for number, handler in enumerate(statement.handlers):
        handler_runs = guards.Atom(
            "opaque", f"try#{statement.lineno}:{number}", None, f"handler {number} runs"
        )
        guard = guards.conjoin(failed, handler_runs)
        mark = len(frame.trail)
        for name in stored_names(statement.body, frame.receiver):
            frame.bind(name, frame.fresh(name))
        if handler.name:
            frame.bind(handler.name, frame.value("unknown"))
        handler_exits, handler_names = _branch(frame, guard, handler.body)
        branches.append((guard, handler_exits, {**frame.rewind(mark), **handler_names}))
    _merge(frame, branches)
    if statement.finalbody and _finally(frame, statement) == TRUE:
        return TRUE
    return FALSE if any(exit_guard != TRUE for _, exit_guard, _ in branches) else TRUE


def _finally(frame: Frame, statement: ast.Try) -> Guard:
    """Lower `finally`, which runs from any earlier point; its bindings stay. Return its exit
    condition."""
    mark = len(frame.trail)
    earlier_statements = [
        *statement.body,
        *statement.orelse,
        *(inner for handler in statement.handlers for inner in handler.body),
    ]
    for name in stored_names(earlier_statements, frame.receiver):
        frame.bind(name, frame.fresh(name))
    exits, names = _branch(frame, TRUE, statement.finalbody)
    frame.rewind(mark)
    for name, value in names.items():
        frame.bind(name, value)
    return exits


_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))  # `except*` came with Python 3.11


def _use_bound_values(frame: Frame, started: int, statement: ast.stmt) -> None:
    """Use all values bound since `started`: an exception may end the body at any point, and they
    may be read then."""
    bound = [
        event.value
        for log in frame.log.values()
        for event in log
        if event.time > started and event.statement
    ]
    calls.glue(frame, "py.use", list(dict.fromkeys(bound)), statement)


def _match(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower a match statement: each case runs under a condition of its own that is not analysed."""
    assert isinstance(statement, ast.Match)
    subject = lower(frame, statement.subject)
    calls.glue(frame, "py.test", (subject,), statement)
    branches: list[tuple[Guard, Guard, dict[str, Value]]] = []
    before: Guard = TRUE
    for number, case in enumerate(statement.cases):
        atom = guards.Atom(
            "opaque", f"case#{statement.lineno}:{number}", None, f"case {ast.unparse(case.pattern)}"
        )
        guard = guards.conjoin(before, atom)
        mark = len(frame.trail)
        for node in ast.walk(case.pattern):
            name = getattr(node, "name", None)
            if isinstance(name, str):
                frame.bind(name, frame.value("unknown"))
        if case.guard is not None:
            guard = guards.conjoin(guard, condition(frame, case.guard))
        exits, names = _branch(frame, guard, case.body)
        branches.append((guard, exits, {**frame.rewind(mark), **names}))
        before = guards.conjoin(before, guards.negate(atom))
    branches.append((before, FALSE, {}))
    _merge(frame, branches)
    return FALSE


_DISPATCH: dict[type[ast.stmt], Callable[[Frame, ast.stmt], Guard]] = {
    **SIMPLE_STATEMENTS,
    ast.If: _if,
    ast.For: _loop,
    ast.AsyncFor: _loop,
    ast.While: _loop,
    ast.With: _with,
    ast.AsyncWith: _with,
    **dict.fromkeys(_TRY, _try),
    ast.Match: _match,
}
