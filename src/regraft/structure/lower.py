"""Lowering of statements: one pass over a function, linear in its length; paths are never
enumerated."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from regraft.source.names import defaults, dotted, import_bindings, walk
from regraft.structure import calls, guards
from regraft.structure.containers import loop_element, unpack
from regraft.structure.expressions import captured, condition, lower
from regraft.structure.frame import Frame, Function, Scope
from regraft.structure.guards import FALSE, TRUE, Guard
from regraft.structure.model import Body, Node, Statement, Value

_ANNOTATED = {
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
) -> Body:
    """Lower one function and return its body.

    method     the first parameter is the instance
    enclosing  names of the enclosing functions, which hide those of the module
    """
    arguments = function.args
    parameters = [*arguments.posonlyargs, *arguments.args]
    receiver = parameters[0].arg if method and parameters else None
    frame = Frame(scope, receiver)
    frame.lower_block = block
    frame.captured, frame.volatile = _nested_names(scope, function)
    for hidden in enclosing:
        frame.bind(hidden, frame.value("unknown"))
    all_parameters = [*parameters, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for parameter in all_parameters:
        if parameter is not None:
            frame.bind(parameter.arg, _parameter(frame, parameter))
    for parameter, default in defaults(arguments):
        if isinstance(default, ast.Name | ast.Attribute):
            frame.defaults[frame.env[parameter.arg].value] = default
    block(frame, function.body)
    frame.forget_unused_joins()
    index: dict[str, list[Node]] = {}
    for node in frame.nodes:
        index.setdefault(node.op, []).append(node)
    return Body(
        name,
        function,
        tuple(frame.nodes),
        {local: tuple(events) for local, events in frame.log.items()},
        tuple(frame.stores),
        tuple(frame.opaque),
        {op: tuple(nodes) for op, nodes in index.items()},
        any(_is_jit(scope, decorator) for decorator in function.decorator_list),
        frame.compound,
        frame.inlined,
        tuple(node for node in frame.nodes if calls.writes(node)),
        frame.entered,
    )


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
        _stored_names(function.body)
    )


_LATE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp)
_FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec"})


def _nested_names(scope: Scope, function: Function) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that nested functions, lambdas and generators read later, and the names that
    they bind."""
    segment = scope.source.segment(function)[4:]
    if not any(
        word in segment
        for word in ("lambda", "def ", "class ", " for ", "locals", "vars", "dir", "eval", "exec")
    ):
        return frozenset(), frozenset()
    read: set[str] = set()
    bound: set[str] = set()
    for statement in function.body:
        for node in walk(statement):
            if isinstance(node, _LATE):
                inner = [descendant for part in _late_parts(node) for descendant in walk(part)]
                read.update(
                    descendant.id for descendant in inner if isinstance(descendant, ast.Name)
                )
                bound.update(
                    name
                    for descendant in inner
                    if isinstance(descendant, ast.Nonlocal)
                    for name in descendant.names
                )
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


def _is_jit(scope: Scope, decorator: ast.expr) -> bool:
    qualified = scope.names.resolve(
        decorator.func if isinstance(decorator, ast.Call) else decorator
    )
    return qualified is not None and qualified.startswith("torch.jit.script")


def _parameter(frame: Frame, parameter: ast.arg) -> Value:
    """Return the value of a parameter, of the annotation's kind."""
    annotation = ast.unparse(parameter.annotation) if parameter.annotation is not None else ""
    return frame.value("param", _ANNOTATED.get(annotation, "unknown"), parameter.arg)  # type: ignore[arg-type]


def block(frame: Frame, body: Sequence[ast.stmt]) -> Guard:
    """Lower a statement list and return the condition, relative to its entry, under which control
    leaves it early."""
    outer_guard, outer_block = frame.guard, frame.block
    if frame.site is None:
        frame.blocks += 1
        frame.block = frame.blocks
    exit_guard: Guard = FALSE
    for statement in body:
        record = Statement(statement, frame.block, frame.loop, frame.time, 0, outer_guard)
        if frame.site is None:
            frame.statement = record
            frame.entered[statement] = frame.guard
        exits = _DISPATCH.get(type(statement), _any_statement)(frame, statement)
        record.end = frame.time
        if exits is not FALSE:
            exit_guard = guards.disjoin(exit_guard, exits)
            if exits == TRUE:
                exit_guard = TRUE
                break
            frame.guard = guards.conjoin(frame.guard, guards.negate(exits))
    frame.guard, frame.block = outer_guard, outer_block
    return exit_guard


# targets


def bind_target(frame: Frame, target: ast.expr, value: Value) -> None:
    """Assign a value to a name, an attribute, a subscript or a tuple of targets."""
    for inner_target, part in unpack(frame, target, value):
        if isinstance(inner_target, ast.Name):
            if inner_target.id in frame.captured:
                calls.glue(frame, "py.use", (part,), inner_target)
            if inner_target.id in frame.shared:
                frame.node(
                    "py.store", {"value": part}, inner_target, effect=True, spelling=inner_target.id
                )
            frame.bind(inner_target.id, part)
        elif isinstance(inner_target, ast.Attribute):
            _store_attribute(frame, inner_target, part)
        elif isinstance(inner_target, ast.Subscript):
            base, index = lower(frame, inner_target.value), lower(frame, inner_target.slice)
            frame.node(
                "py.setitem",
                {"base": base, "index": index, "value": part},
                inner_target,
                effect=True,
            )


def _store_attribute(frame: Frame, target: ast.Attribute, value: Value) -> None:
    """Record a store to an attribute as a side effect; an attribute of the instance is bound to the
    value."""
    path = dotted(target)
    if path is None or path[0] != frame.receiver:
        base = lower(frame, target.value)
        frame.node(
            "py.store", {"base": base, "value": value}, target, effect=True, spelling=target.attr
        )
        return
    name = f"self.{path[1]}"
    if name in frame.mutable_paths or name in frame.layer_paths or name in frame.env:
        value.maybe_changed = True  # an earlier read had another value
    frame.node("py.store", {"value": value}, target, effect=True, spelling=name)
    first = name not in frame.stored
    frame.stored.add(name)
    frame.stores.append((name, frame.guard, value, frame.statement.node))
    frame.bind(name, value)
    if not first and value.names[-1] == name:
        # `self.x` is this value's identity in other functions only if it is stored once
        value.names.pop()


# simple statements


def _expr(frame: Frame, statement: ast.stmt) -> Guard:
    assert isinstance(statement, ast.Expr)
    if not isinstance(statement.value, ast.Constant):
        _lower_and_use(frame, statement.value)
    return FALSE


def _assign(frame: Frame, statement: ast.stmt) -> Guard:
    assert isinstance(statement, ast.Assign)
    value = _lower_and_use(frame, statement.value)
    for target in statement.targets:
        bind_target(frame, target, value)
    return FALSE


def _ann_assign(frame: Frame, statement: ast.stmt) -> Guard:
    assert isinstance(statement, ast.AnnAssign)
    if statement.value is not None:
        bind_target(frame, statement.target, _lower_and_use(frame, statement.value))
    return FALSE


def _lower_and_use(frame: Frame, expr: ast.expr) -> Value:
    """Lower an expression and return its value; a bare name counts as a use, although nothing is
    computed from it."""
    value = lower(frame, expr)
    if isinstance(expr, ast.Name) and value.origin in ("node", "phi"):
        calls.glue(frame, "py.use", (value,), expr)
    return value


def _aug_assign(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower `x += y`, which has a new value and a side effect: it may change a tensor that other
    names share."""
    assert isinstance(statement, ast.AugAssign)
    target = statement.target
    old = lower(frame, target)
    value = calls.binary(frame, statement.op, old, lower(frame, statement.value), statement)
    if value.node is not None and value.node.op in ("add", "sub", "mul", "div", "pow", "matmul"):
        value.node.op += "_"
        value.node.effect = True
    bind_target(frame, target, value)
    return FALSE


def _return(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower a return statement; in an inlined function its value is recorded as one of the call's
    results."""
    assert isinstance(statement, ast.Return)
    if frame.site is not None:
        value = (
            lower(frame, statement.value) if statement.value is not None else frame.constant(None)
        )
        frame.returns.append((frame.guard, value))
    elif statement.value is not None:
        calls.glue(frame, "py.return", (lower(frame, statement.value),), statement)
    return TRUE


def _leave(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower raise, break or continue: the following statements of the block do not run.

    break and continue carry the loop's bindings so far out of the loop, past the joins in the rest
    of its body.
    """
    if isinstance(statement, ast.Break | ast.Continue) and frame.loop_marks:
        names = dict.fromkeys(
            name for name, _ in frame.trail[frame.loop_marks[-1] :] if name in frame.env
        )
        calls.glue(frame, "py.use", [frame.env[name].value for name in names], statement)
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            calls.glue(frame, "py.use", (lower(frame, child),), statement)
    return TRUE


def _assert(frame: Frame, statement: ast.stmt) -> Guard:
    assert isinstance(statement, ast.Assert)
    condition(frame, statement.test)
    return FALSE


def _import(frame: Frame, statement: ast.stmt) -> Guard:
    assert isinstance(statement, ast.Import | ast.ImportFrom)
    for local, qualified in import_bindings(statement, ""):
        if local != "*":
            frame.bind(local, frame.global_(qualified))
    return FALSE


def _definition(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower a nested function or class as a use of the values that it captures; its body is lowered
    separately."""
    assert isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    value = calls.glue(frame, "py.lambda", captured(frame, [statement]), statement).output
    if isinstance(statement, ast.FunctionDef):
        frame.local_functions[value], frame.active_at_definition[statement] = (
            statement,
            frame.active,
        )
    frame.bind(statement.name, value)
    return FALSE


def _delete(frame: Frame, statement: ast.stmt) -> Guard:
    assert isinstance(statement, ast.Delete)
    for target in statement.targets:
        if isinstance(target, ast.Name):
            # `del x` fails where x is not bound
            calls.glue(frame, "py.use", (lower(frame, target),), statement)
            frame.bind(target.id, frame.value("unknown"))
        else:
            bind_target(frame, target, frame.value("unknown"))
    return FALSE


def _any_statement(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower pass, global and nonlocal; give up on any unknown statement and bind its names to
    unknown values."""
    if isinstance(statement, ast.Global | ast.Nonlocal):
        frame.shared.update(statement.names)
    elif not isinstance(statement, ast.Pass):
        frame.give_up(statement, f"{type(statement).__name__} is not followed")
        frame.node("call", {}, statement, effect=True)
        for name in _stored_names([statement], frame.receiver):
            frame.bind(name, frame.fresh(name))
    return FALSE


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


def _loop(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower a loop once; the names that its body binds become loop-carried φ values."""
    assert isinstance(statement, ast.For | ast.AsyncFor | ast.While)
    entry: dict[str, Value] = {}
    source = lower(frame, statement.iter) if not isinstance(statement, ast.While) else None
    mark, outer_loop, outer_guard = len(frame.trail), frame.loop, frame.guard
    frame.loops += 1
    frame.loop = frame.loops
    carried: dict[str, Value] = {}
    targets = () if isinstance(statement, ast.While) else (statement.target,)
    for name in _stored_names((*targets, *statement.body), frame.receiver):
        bound = frame.env.get(name)
        entry[name] = bound.value if bound else frame.fresh(name)
        carried[name] = frame.value("phi", entry[name].kind, name)
        frame.bind(name, carried[name])
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
        for name in _stored_names(statement.body, frame.receiver):
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
    for name in _stored_names(earlier_statements, frame.receiver):
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


def _stored_names(body: Iterable[ast.AST], receiver: str | None = None) -> tuple[str, ...]:
    """Return the names and attributes of the `receiver` (`self.x`) that statements bind, outside
    nested functions."""
    names: dict[str, None] = {}
    stack: list[ast.AST] = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            names[node.id] = None
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            path = dotted(node)
            if path is not None and path[0] == receiver:
                names[f"self.{path[1]}"] = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = None
        elif not isinstance(node, ast.Lambda):
            stack.extend(ast.iter_child_nodes(node))
    return tuple(names)


_DISPATCH: dict[type[ast.stmt], Callable[[Frame, ast.stmt], Guard]] = {
    ast.Expr: _expr,
    ast.Assign: _assign,
    ast.AnnAssign: _ann_assign,
    ast.AugAssign: _aug_assign,
    ast.Return: _return,
    ast.Raise: _leave,
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.Assert: _assert,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.FunctionDef: _definition,
    ast.AsyncFunctionDef: _definition,
    ast.ClassDef: _definition,
    ast.Delete: _delete,
    ast.If: _if,
    ast.For: _loop,
    ast.AsyncFor: _loop,
    ast.While: _loop,
    ast.With: _with,
    ast.AsyncWith: _with,
    **dict.fromkeys(_TRY, _try),
    ast.Match: _match,
}
