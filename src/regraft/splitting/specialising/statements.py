"""Statements: both sides of branches are followed, and the values are joined where paths meet."""

from __future__ import annotations

import ast
import builtins
import contextlib
from collections.abc import Callable
from typing import Any

import torch

from regraft.splitting.errors import Unrunnable, Unsplittable
from regraft.splitting.program.literals import literal
from regraft.splitting.program.residual import Branch, HostStep, Step
from regraft.splitting.program.residual_expressions import is_static_object, leaf_expressions, name
from regraft.splitting.program.statements import (
    Check,
    Evaluate,
    Raise,
    Return,
    raise_error,
    raise_message,
    read_names,
)
from regraft.splitting.program.value_kinds_and_parts import is_truth_of_operand
from regraft.splitting.program.values import HostValue, StaticValue, TensorValue, convert_to_host
from regraft.splitting.specialising.assignment_statements import (
    execute_annotated_assign,
    execute_assign,
    execute_augmented_assign,
)
from regraft.splitting.specialising.branches import LABELS, decide, evaluate_truth, specialise_apart
from regraft.splitting.specialising.calls import make_local_function
from regraft.splitting.specialising.code_running import read_number, run_code
from regraft.splitting.specialising.constant_tables import Choice
from regraft.splitting.specialising.deletions import execute_delete
from regraft.splitting.specialising.either_values import get_constant, write_constant_test
from regraft.splitting.specialising.host_displays import write_display
from regraft.splitting.specialising.inplace import change_in_place
from regraft.splitting.specialising.loops import (
    execute_break,
    execute_continue,
    execute_for,
    execute_while,
)
from regraft.splitting.specialising.object_choices import (
    DIFFERENT_SIDES,
    ObjectChoice,
    ObjectSides,
    list_cases,
    split_conditional,
)
from regraft.splitting.specialising.path_joins import merge_paths
from regraft.splitting.specialising.state import Cases, Specialisation
from regraft.splitting.specialising.try_statements import execute_try
from regraft.splitting.specialising.values_stored_under_names import store_name

# context managers that change no result
GRADIENT_MODES = (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.set_grad_enabled)


def specialise_cases(state: Specialisation, node: ast.stmt, key: str) -> None:
    """Specialise a statement twice, as a branch on the name `key`, which may hold one constant:
    where it does, and where it does not. Raises Unsplittable where the name is unknown, the
    statement is a loop, or it is specialised for this name already.

    A name that is gone stands for the one that it was copied from.
    """
    while key and key not in state.names:
        key = state.copied_from.get(key, "")
    if not key:
        reason = (
            "something that is None or a number on some of the paths here is not supported here"
        )
        raise state.refuse(node, reason)
    case = id(node), key
    if case in state.cases or isinstance(node, (ast.For, ast.While)):
        reason = (
            f"{key} is {get_constant(state, key)} on some of the paths that lead here, and"
            " something else on others; that is not supported here"
        )
        raise state.refuse(node, reason)
    state.cases.add(case)
    sides = [lambda: state.execute(node), lambda: state.execute(node)]
    decide(state, node, write_constant_test(state, key), sides[0], sides[1], ["", ""])
    state.cases.discard(case)


def specialise_choice(state: Specialisation, node: ast.stmt, choice: Choice) -> None:
    """Specialise a statement once for each module, or object of a constant container, that an index
    may choose, each as an arm of a branch on the index, which is appended; join the arms' names in
    `state.names`. At run time the host raises what the container raises for another index, with the
    place."""
    index_value = state.evaluate(choice.index)
    if isinstance(index_value, TensorValue):
        index_value = read_number(state, index_value)
    if not isinstance(index_value.code, ast.Name):
        index_value = state.bind_in_host(index_value)
    place = count_from_start(state, index_value.code, choice.count)
    arms: list[tuple[ast.expr | None, list[Step]]] = []
    ends = []
    for key in choice.keys:
        state.chosen_indices[id(choice.index)] = state.static(key)
        test = ast.Compare(place, [ast.Eq()], [ast.Constant(key)])
        steps, after = specialise_apart(
            state, lambda: state.execute_block([node]), state.names, test
        )
        arms.append((test, steps))
        ends.append((steps, after))
    del state.chosen_indices[id(choice.index)]
    merge_paths(state, ends)
    text = ast.unparse(choice.index)
    labels = [*(f"{text} is {key!r}" for key in choice.keys), "nothing has this index"]
    reason = ast.Constant(f"{state.frame.path}:{node.lineno}: nothing has the index ")
    message = ast.JoinedStr([reason, ast.FormattedValue(index_value.code, conversion=-1)])
    arms.append((None, [HostStep(raise_error(choice.error, message))]))
    state.steps.append(Branch(arms, node.lineno, state.frame.path, labels))


def specialise_objects(state: Specialisation, node: ast.stmt, key: str) -> None:
    """Specialise a statement once for each object that the name `key` may hold, each as an arm of a
    branch, which is appended; join the arms' names in `state.names`. Where the statement cannot be
    split with None, such as one that calls it, the host raises TypeError for that."""
    one_of_several = state.names[key]
    arms: list[tuple[ast.expr | None, list[Step]]] = []
    ends, labels = [], []
    for object_value, test, text in list_cases(state, key):
        label = text
        names = {**state.names, key: object_value}
        try:
            steps, after = specialise_apart(state, lambda: state.execute_block([node]), names)
        except Unsplittable:
            if object_value.example is not None:
                raise
            place = f"{state.frame.path}:{node.lineno}: {key} is None here"
            steps, after, label = [HostStep(raise_message("TypeError", place))], names, ""
        if after.get(key) is object_value:
            after[key] = one_of_several
        arms.append((test, steps))
        ends.append((steps, after))
        labels.append(label)
    merge_paths(state, ends)
    state.steps.append(Branch(arms, node.lineno, state.frame.path, labels))


def count_from_start(state: Specialisation, index: ast.expr, count: int) -> ast.expr:
    """Return the name of the position that an index of `count` modules means, which the host
    computes: an index below zero counts from the end. For a count of 0 return the index."""
    if count == 0:
        return index
    is_below = ast.Compare(index, [ast.Lt()], [ast.Constant(0)])
    code = ast.BinOp(index, ast.Add(), ast.BinOp(is_below, ast.Mult(), ast.Constant(count)))
    return state.bind_in_host(convert_to_host(run_code(state, index, code))).code


def execute_pass(state: Specialisation, node: ast.Pass) -> None:
    """Specialise `pass`: no step is added."""
    pass


def execute_expression(state: Specialisation, node: ast.Expr) -> None:
    """Specialise an expression statement: a change in place is followed as an assignment; what the
    host computes becomes a step of the host, for its effect. `(a if c else b).append(x)` is
    followed as an `if` with a change in each side."""
    match node.value:
        case ast.Call(func=ast.Attribute(value=ast.IfExp() as choice)):
            changes = split_conditional(node, choice)
            assert changes is not None
            state.execute_block([changes])
            return
    if isinstance(node.value, ast.Call) and change_in_place(state, node.value):
        return
    value = state.evaluate(node.value)
    if isinstance(value, HostValue):
        state.steps.append(HostStep(Evaluate(value.code)))


def execute_assert(state: Specialisation, node: ast.Assert) -> None:
    """Specialise `assert`, which the host repeats without its message; one that is known to hold is
    left out, one that is known to fail raises AssertionError."""
    test = evaluate_truth(state, state.evaluate(node.test))
    if not isinstance(test, StaticValue):
        state.steps.append(HostStep(Check(test.code)))
    elif not test.example:  # on a path that no input takes, or where the original raises, too
        state.steps.append(HostStep(Raise(name("AssertionError"))))


def execute_raise(state: Specialisation, node: ast.Raise) -> None:
    """Let the host raise one of Python's own errors, such as `raise ValueError("...")`; refuse
    other errors, causes, keywords, and arguments that are no constants of the host."""
    raised = node.exc or name("None")
    call = raised if isinstance(raised, ast.Call) else ast.Call(raised, [], [])
    error_name = call.func.id if isinstance(call.func, ast.Name) else ""
    error = getattr(builtins, error_name, None) if error_name not in state.globals else None
    is_error = isinstance(error, type) and issubclass(error, Exception)
    if not is_error or call.keywords or node.cause:
        raise state.refuse(node, "raising anything but an error of Python's own is not supported")
    step_count = len(state.steps)
    arguments = [state.evaluate(argument) for argument in call.args]
    are_literal = all(
        isinstance(argument, (StaticValue, HostValue)) and literal(argument.example) is not None
        for argument in arguments
    )
    if not are_literal or len(state.steps) > step_count:  # a side that raises gives no samples
        raise state.refuse(node, f"{error_name} of values of tensors is not supported")
    error_code = ast.Call(name(error_name), [argument.code for argument in arguments], [])
    state.steps.append(HostStep(Raise(error_code)))


def execute_function_definition(state: Specialisation, node: ast.FunctionDef) -> None:
    """Bind the name of an inner function, which is followed where it is called."""
    store_name(state, state.frame.prefix + node.name, make_local_function(state, node, node))


def execute_return(state: Specialisation, node: ast.Return) -> None:
    """Specialise `return`: of the network in the host; of a function that is followed by storing
    the value under the name `result` with the function's prefix. A conditional expression that the
    network returns is followed as an `if`. Raise Unsplittable for results of the network that the
    host cannot make."""
    if state.call_depth == 0 and isinstance(
        node.value, ast.IfExp
    ):  # both sides may give values of any type
        sides = [
            [ast.copy_location(ast.Return(result), node)]
            for result in (node.value.body, node.value.orelse)
        ]
        execute_if(state, ast.copy_location(ast.If(node.value.test, sides[0], sides[1]), node))  # type: ignore[arg-type]
        return
    value = state.evaluate(node.value) if node.value else StaticValue(None, ast.Constant(None))
    value = write_display(state, node, value) if state.call_depth == 0 else value
    code = state.write_for_host(value)
    if state.call_depth == 0:
        if is_static_object(value):
            raise state.refuse(
                node, f"returns a {type(value.example).__name__}, which the host cannot make"
            )
        outside_names = sorted(read_names(code) & state.globals.keys())
        if outside_names:
            kind = type(state.globals[outside_names[0]]).__name__
            raise state.refuse(
                node, f"returns a {kind} within a tuple or list, which the host cannot make"
            )
        if any(
            isinstance(part, ast.Name) and is_truth_only(state, part.id)
            for part in leaf_expressions(code)
        ):
            raise state.refuse(
                node,
                "of the value of `and` or `or`, which may be a tensor, only the truth is known",
            )
        state.steps.append(HostStep(Return(code)))
        return
    store_name(state, f"{state.frame.prefix}result", value.with_code(code))


def is_truth_only(state: Specialisation, key: str) -> bool:
    """Return whether the name `key` holds the value of `and` or `or`, of which only the truth is
    known."""
    return key in state.names and is_truth_of_operand(state.names[key])


def execute_if(state: Specialisation, node: ast.If) -> None:
    """Specialise `if`: only the side that runs where the test is known, else both, as a branch.

    No input has to show the sides of one that is marked `unlabelled`.
    """
    test = evaluate_truth(state, state.evaluate(node.test))
    if isinstance(test, StaticValue):
        state.execute_block(node.body if test.example else node.orelse)
        return
    decide(
        state,
        node,
        test,
        lambda: state.execute_block(node.body),
        lambda: state.execute_block(node.orelse),
        ("", "") if getattr(node, "unlabelled", False) else LABELS,
    )


def execute_with(state: Specialisation, node: ast.With) -> None:
    """Specialise `with` of a context manager that changes no result: only its body. Raises
    Unsplittable for other context managers."""
    for item in node.items:
        manager = state.evaluate(item.context_expr)
        if isinstance(manager.example, contextlib.suppress) and len(node.items) == 1:
            execute_try(state, write_try(node))
            return
        if not changes_no_result(manager.example) or item.optional_vars is not None:
            raise state.refuse(
                node,
                "with is supported for torch.no_grad and its like, torch.autocast(enabled=False),"
                " nullcontext() and suppress() only",
            )
    state.execute_block(node.body)


def write_try(node: ast.With) -> ast.Try:
    """Return `with suppress(A, B): body` as `try: body`, `except (A, B): pass`."""
    manager = node.items[0].context_expr
    kinds = manager.args if isinstance(manager, ast.Call) else []
    handler = ast.ExceptHandler(ast.Tuple(list(kinds), ast.Load()), None, [ast.Pass()])
    statement = ast.Try(node.body, [handler], [], [])
    return ast.fix_missing_locations(ast.copy_location(statement, node))


def changes_no_result(manager: Any) -> bool:
    """Return whether a context manager changes no result: a mode of gradients, since a residual
    program computes none, `nullcontext`, and automatic precision that is switched off."""
    if isinstance(manager, torch.autocast):
        return not manager._enabled
    return isinstance(manager, (*GRADIENT_MODES, contextlib.nullcontext))


def execute_import(state: Specialisation, node: ast.Import | ast.ImportFrom) -> None:
    """Specialise an import in a function: run it now, and bind its names to what it gives; raise
    Unrunnable where it fails."""
    scope = {key: state.frame.scope.get(key) for key in ("__name__", "__package__", "__builtins__")}
    imported: dict[str, Any] = {}
    try:
        exec(compile(ast.Module([node], []), state.frame.path, "exec"), scope, imported)
    except Exception as problem:
        reason = f"this import fails: {type(problem).__name__}: {problem}"
        raise state.refuse(node, reason, Unrunnable) from problem
    for key, value in imported.items():
        store_name(state, state.frame.prefix + key, state.static(value))


def execute_nonlocal(state: Specialisation, node: ast.Nonlocal) -> None:
    """Specialise `nonlocal`, which adds no step; raise Unsplittable for a variable of a function
    that forward does not call."""
    if state.frame.outer is None:
        raise state.refuse(node, "nonlocal in a function from outside is not supported")


Handler = Callable[[Specialisation, Any], None]
STATEMENTS: dict[type[ast.stmt], Handler] = {
    ast.AnnAssign: execute_annotated_assign,
    ast.Assert: execute_assert,
    ast.Assign: execute_assign,
    ast.AugAssign: execute_augmented_assign,
    ast.Break: execute_break,
    ast.Continue: execute_continue,
    ast.Delete: execute_delete,
    ast.Expr: execute_expression,
    ast.For: execute_for,
    ast.FunctionDef: execute_function_definition,
    ast.If: execute_if,
    ast.Import: execute_import,
    ast.ImportFrom: execute_import,
    ast.Nonlocal: execute_nonlocal,
    ast.Pass: execute_pass,
    ast.Raise: execute_raise,
    ast.Return: execute_return,
    ast.Try: execute_try,
    ast.While: execute_while,
    ast.With: execute_with,
}


def execute_by_type(state: Specialisation, node: ast.stmt) -> None:
    """Specialise one statement by the handler for the type of its node; raise Unsplittable for
    types without a handler.

    Where it raises Choice or Cases, its steps and names are undone, and it is specialised once for
    each module or kind of value. The new host steps get the statement's place, unless they have
    one.
    """
    handler = STATEMENTS.get(type(node))
    if handler is None:
        raise state.refuse(
            node, f"{type(node).__name__} is not supported in a network that is split"
        )
    steps, names = list(state.steps), state.fork_names(state.names)
    # a statement that is made here has the line of the one before it
    line = state.frame.line = getattr(node, "lineno", state.frame.line)
    state.pending.append(None)  # a statement uses the values that it evaluates itself
    try:
        try:
            handler(state, node)
        except Choice as choice:
            state.steps[:], state.names = list(steps), state.fork_names(names)
            specialise_choice(state, node, choice)
        except ObjectChoice as signal:
            state.steps[:], state.names = list(steps), state.fork_names(names)
            specialise_objects(state, node, signal.key)
        except ObjectSides as signal:
            state.steps[:], state.names = list(steps), state.fork_names(names)
            statement = split_conditional(node, signal.node)
            if statement is None:
                raise state.refuse(signal.node, DIFFERENT_SIDES) from None
            state.execute_block([statement])
    except Cases as cases:
        state.steps[:], state.names = steps, names
        specialise_cases(state, node, cases.key)
    finally:
        state.pending.pop()
    for step in state.steps[len(steps) :]:
        if isinstance(step, HostStep) and not step.place[1]:
            step.place = state.frame.path, line
