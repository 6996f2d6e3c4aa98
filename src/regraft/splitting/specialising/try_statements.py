"""`try` around what is known when a network is split: its body runs then, and no `except` is left
for the host."""

from __future__ import annotations

import ast
import builtins
import copy
from typing import Any

from regraft.splitting.errors import Unsplittable
from regraft.splitting.program.control_flow import contains_leave
from regraft.splitting.program.residual import HostStep, Step, TensorStep
from regraft.splitting.program.statements import Assign
from regraft.splitting.program.values import StaticValue
from regraft.splitting.specialising.lasting_effects import changes_scope, find_changed_container
from regraft.splitting.specialising.objects_made_in_forward import holds_local_function
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import store_name

REASON = "try is supported only around what is known when the network is split"
# statements of which a body that raises may consist
PLAIN_STATEMENTS = (ast.Assign, ast.Expr, ast.Import, ast.ImportFrom, ast.Pass)


def execute_try(state: Specialisation, node: ast.Try) -> None:
    """Specialise `try`: follow its body, then `else` and `finally`, if the body computes nothing
    when the network runs, or there is no `except`; else run a body that raises now, and follow the
    `except` that catches the error. Raises Unsplittable for any other `try`."""
    if contains_leave(node, ast.Break) or contains_leave(node, ast.Continue):
        raise state.refuse(node, "break and continue in try are not supported")
    if not node.handlers and not any(
        isinstance(part, ast.Return) for statement in node.finalbody for part in ast.walk(statement)
    ):
        state.execute_block([*node.body, *node.finalbody])  # an error leaves the call anyway
        return
    step_count, operations, place = len(state.steps), state.operations, save_place(state)
    try:
        state.execute_block(node.body)
        problem = None
    except Unsplittable as refusal:
        problem = refusal
    if problem is None:
        if state.operations > operations or not all(map(is_copy, state.steps[step_count:])):
            raise state.refuse(node, REASON)
        state.execute_block([*node.orelse, *node.finalbody])
        return
    del state.steps[step_count:]
    vars(state).update(place)
    error = catch_error_of_body(state, node)
    if error is None:
        raise problem
    state.execute_block([*find_handler(state, node, error).body, *node.finalbody])


def save_place(state: Specialisation) -> dict[str, Any]:
    """Return copies of the attributes of `state` that tell which names there are and which call and
    loop is followed, so that following a body that cannot be followed can be undone."""
    collections = ("names", "loops", "varying_names", "under_construction", "pending")
    return {
        "frame": state.frame,
        "call_depth": state.call_depth,
        "loop_depth": state.loop_depth,
        **{key: copy.copy(getattr(state, key)) for key in collections},
    }


def is_copy(step: Step) -> bool:
    """Return whether a step only assigns a variable or constant to a name, which cannot raise."""
    return (
        isinstance(step, (HostStep, TensorStep))
        and isinstance(step.statement, Assign)
        and isinstance(step.statement.value, (ast.Name, ast.Constant))
    )


def catch_error_of_body(state: Specialisation, node: ast.Try) -> Exception | None:
    """Have Python execute the body of a `try` now, and return the error that it raises, after
    binding the names that it assigned before. None, with no name bound, for a body that does not
    raise. Also None, without executing it, for one that has other statements than
    `PLAIN_STATEMENTS`, may change what outlives the call, or reads what is known only at run
    time."""
    parts = [part for statement in node.body for part in ast.walk(statement)]
    are_plain = all(isinstance(statement, PLAIN_STATEMENTS) for statement in node.body)
    if not are_plain or any(
        changes_scope(part, set()) or find_changed_container(part) is not None for part in parts
    ):
        return None
    scope = read_static_names(state, {part.id for part in parts if isinstance(part, ast.Name)})
    if scope is None:
        return None
    assigned: dict[str, Any] = {}
    try:
        exec(compile(ast.Module(node.body, []), state.frame.path, "exec"), scope, assigned)
    except Exception as problem:  # noqa: BLE001 - what the network's own code catches
        for key, value in assigned.items():
            store_name(state, state.frame.prefix + key, state.static(value))
        return problem
    return None


def read_static_names(state: Specialisation, identifiers: set[str]) -> dict[str, Any] | None:
    """Return the globals of the followed function and the values of its variables among
    `identifiers`; None where one of these is known only at run time, or is a function or an object
    that forward makes."""
    scope = dict(state.frame.scope)
    for identifier in identifiers:
        value = state.names.get(state.frame.prefix + identifier)
        if value is None and identifier in state.frame.own_names:
            continue  # assigned in the body
        if value is None and state.frame.outer is not None and identifier not in scope:
            if not hasattr(builtins, identifier):
                return None
            continue
        if value is None:
            continue
        is_plain = isinstance(value, StaticValue) and not holds_local_function(state, value.example)
        if not is_plain:
            return None
        scope[identifier] = value.example
    return scope


def find_handler(state: Specialisation, node: ast.Try, error: Exception) -> ast.ExceptHandler:
    """Return the `except` that catches an error, whose name is bound to it; raise Unsplittable
    where none does."""
    for handler in node.handlers:
        kinds = state.evaluate(handler.type).example if handler.type else Exception
        if isinstance(error, kinds):
            if handler.name:
                store_name(state, state.frame.prefix + handler.name, state.static(error))
            return handler
    raise state.refuse(node, f"the body of this try raises {type(error).__name__}: {error}")
