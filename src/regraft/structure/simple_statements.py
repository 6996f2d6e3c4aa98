"""Lowering of the statements that contain no other statements, and of assignment targets."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from regraft.source.qualified_names import dotted, import_bindings
from regraft.structure import calls, operations
from regraft.structure.bound_names import stored_names
from regraft.structure.containers import unpack
from regraft.structure.expressions import captured, condition, lower
from regraft.structure.guards import FALSE, TRUE, Guard
from regraft.structure.lowering_state import Frame
from regraft.structure.values_and_nodes import Value

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
            args = {"base": base, "index": index, "value": part}
            frame.node("py.setitem", args, inner_target, effect=True)


def _store_attribute(frame: Frame, target: ast.Attribute, value: Value) -> None:
    """Record a store to an attribute as an effect; one of the instance is bound to the value."""
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


# statements; each function returns the condition under which control leaves the statement list


def _expr(frame: Frame, statement: ast.stmt) -> Guard:
    assert isinstance(statement, ast.Expr)
    if not isinstance(statement.value, ast.Constant):
        _lower_and_use(frame, statement.value)
    return FALSE


def _assign(frame: Frame, statement: ast.stmt) -> Guard:
    assert isinstance(statement, ast.Assign)
    if _is_parallel(statement):
        target, display = statement.targets[0], statement.value
        assert isinstance(target, ast.Tuple) and isinstance(display, ast.Tuple)
        values = [_lower_and_use(frame, element) for element in display.elts]
        for name, value in zip(target.elts, values, strict=True):
            bind_target(frame, name, value)
        return FALSE
    value = _lower_and_use(frame, statement.value)
    for target in statement.targets:
        bind_target(frame, target, value)
    return FALSE


def _is_parallel(statement: ast.Assign) -> bool:
    """Return whether a statement assigns the elements of a tuple to as many names, which is never
    a tuple to the program."""
    target, value = statement.targets[0], statement.value
    if len(statement.targets) > 1 or not isinstance(target, ast.Tuple):
        return False
    if not isinstance(value, ast.Tuple) or len(value.elts) != len(target.elts):
        return False
    has_star = any(isinstance(element, ast.Starred) for element in value.elts)
    return not has_star and all(isinstance(element, ast.Name) for element in target.elts)


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
    value = operations.binary(frame, statement.op, old, lower(frame, statement.value), statement)
    if value.node is not None and value.node.op in operations.BINARY_OPS:
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


def any_statement(frame: Frame, statement: ast.stmt) -> Guard:
    """Lower pass, global and nonlocal; give up on any unknown statement and bind its names to
    unknown values."""
    if isinstance(statement, ast.Global | ast.Nonlocal):
        frame.shared.update(statement.names)
    elif not isinstance(statement, ast.Pass):
        frame.give_up(statement, f"{type(statement).__name__} is not followed")
        frame.node("call", {}, statement, effect=True)
        for name in stored_names([statement], frame.receiver):
            frame.bind(name, frame.fresh(name))
    return FALSE


SIMPLE_STATEMENTS: Mapping[type[ast.stmt], Callable[[Frame, ast.stmt], Guard]] = {
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
}
