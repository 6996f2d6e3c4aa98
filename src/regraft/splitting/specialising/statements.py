"""Statements: both sides of branches are followed, and the values are joined where paths meet."""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
from collections.abc import Callable
from typing import Any

import torch

from regraft.splitting.errors import Unrunnable
from regraft.splitting.program.literals import literal
from regraft.splitting.program.residual import Branch, HostStep, Step
from regraft.splitting.program.residual_expressions import (
    holds_tensor,
    is_static_object,
    leaf_expressions,
    name,
)
from regraft.splitting.program.statements import (
    Check,
    Evaluate,
    Raise,
    Return,
    raise_error,
    read_names,
)
from regraft.splitting.program.type_patterns import same_type
from regraft.splitting.program.values import (
    EitherValue,
    HostValue,
    StaticValue,
    TensorValue,
    Value,
    is_truth_of_operand,
)
from regraft.splitting.specialising.assignments import store
from regraft.splitting.specialising.branches import (
    LABELS,
    decide,
    evaluate_truth,
    specialise_apart,
)
from regraft.splitting.specialising.calls import make_local_function
from regraft.splitting.specialising.code_running import read_number
from regraft.splitting.specialising.either_values import get_constant, write_constant_test
from regraft.splitting.specialising.host_displays import write_display
from regraft.splitting.specialising.host_sets import CHANGES
from regraft.splitting.specialising.indexing import Choice
from regraft.splitting.specialising.inplace import (
    change_in_place,
    delete_slice,
    find_aliases,
    find_holder,
    replace_aliases,
)
from regraft.splitting.specialising.loops import (
    execute_break,
    execute_continue,
    execute_for,
    execute_while,
)
from regraft.splitting.specialising.object_methods import call_object_method
from regraft.splitting.specialising.path_joins import merge_paths
from regraft.splitting.specialising.stand_ins import find_special_method, is_stand_in
from regraft.splitting.specialising.state import Cases, Specialisation
from regraft.splitting.specialising.try_statements import execute_try
from regraft.splitting.specialising.values_stored_under_names import bind_fresh, store_name

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
        raise state.refuse(
            node,
            "something that is None or a number on some of the paths here is not supported here",
        )
    case = id(node), key
    if case in state.cases or isinstance(node, (ast.For, ast.While)):
        alternatives = (
            f"{get_constant(state, key)} on some of the paths that lead here, and something else"
            " on others"
        )
        raise state.refuse(node, f"{key} is {alternatives}; that is not supported here")
    state.cases.add(case)
    sides = [lambda: state.execute(node), lambda: state.execute(node)]
    decide(state, node, write_constant_test(state, key), sides[0], sides[1], ["", ""])
    state.cases.discard(case)


def specialise_choice(state: Specialisation, node: ast.stmt, choice: Choice) -> None:
    """Specialise a statement once for each module that an index may choose, each as an arm of a
    branch on the index, which is appended; join the arms' names in `state.names`. At run time the
    host raises LookupError for another index."""
    index_value = state.evaluate(choice.index)
    index_value = (
        read_number(state, index_value) if isinstance(index_value, TensorValue) else index_value
    )
    index = (
        index_value.code
        if isinstance(index_value.code, ast.Name)
        else state.bind_in_host(index_value).code
    )
    arms: list[tuple[ast.expr | None, list[Step]]] = []
    ends = []
    for key in choice.keys:
        state.chosen_indices[id(choice.index)] = state.static(key)
        test = ast.Compare(index, [ast.Eq()], [ast.Constant(key)])
        steps, after = specialise_apart(
            state, lambda: state.execute_block([node]), state.names, test
        )
        arms.append((test, steps))
        ends.append((steps, after))
    del state.chosen_indices[id(choice.index)]
    merge_paths(state, ends)
    text = ast.unparse(choice.index)
    labels = [*(f"{text} is {key!r}" for key in choice.keys), "no module has this index"]
    arms.append((None, [HostStep(raise_error("LookupError", index))]))
    state.steps.append(Branch(arms, node.lineno, state.frame.path, labels))


def execute_pass(state: Specialisation, node: ast.Pass) -> None:
    """Specialise `pass`: no step is added."""
    pass


def execute_expression(state: Specialisation, node: ast.Expr) -> None:
    """Specialise an expression statement: a change in place is followed as an assignment; what the
    host computes becomes a step of the host, for its effect."""
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
    call = (
        node.exc if isinstance(node.exc, ast.Call) else ast.Call(node.exc or name("None"), [], [])
    )
    error_name = (
        call.func.id
        if isinstance(call.func, ast.Name) and call.func.id not in state.globals
        else ""
    )
    error = getattr(builtins, error_name, None)
    if (
        not (isinstance(error, type) and issubclass(error, Exception))
        or call.keywords
        or node.cause
    ):
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


def execute_delete(state: Specialisation, node: ast.Delete) -> None:
    """Specialise `del` of local names, which are removed from `state.names`, and of items of
    objects that forward makes; raise Unsplittable for other targets."""
    for target in node.targets:
        base = (
            state.evaluate(target.value)
            if isinstance(target, (ast.Attribute, ast.Subscript))
            else None
        )
        if (
            base is not None
            and is_stand_in(state, base.example)
            and isinstance(target, ast.Subscript)
        ):
            key = state.evaluate(target.slice)
            call_object_method(
                state,
                node,
                find_special_method(state, node, base.example, "__delitem__"),
                [key],
                {},
            )
            continue
        if base is not None and isinstance(target, ast.Subscript) and is_list_slice(target, base):
            delete_slice(state, target, base)
            continue
        if base is not None and isinstance(target, ast.Subscript) and is_list_element(target, base):
            pop = ast.Call(ast.Attribute(target.value, "pop", ast.Load()), [target.slice], [])
            state.evaluate(ast.fix_missing_locations(ast.copy_location(pop, node)))
            continue
        if not isinstance(target, ast.Name) or state.frame.prefix + target.id not in state.names:
            raise state.refuse(node, "del of anything but a local name is not supported")
        del state.names[state.frame.prefix + target.id]
        state.deleted_names.add(state.frame.prefix + target.id)


def is_list_slice(target: ast.Subscript, base: Value) -> bool:
    """Return whether a target is a slice of a list of the host, `base`."""
    is_list = isinstance(base, HostValue) and type(base.example) is list
    return is_list and isinstance(target.slice, ast.Slice)


def is_list_element(target: ast.Subscript, base: Value) -> bool:
    """Return whether a target is one element of a list of the host, `base`."""
    is_list = isinstance(base, HostValue) and type(base.example) is list
    return is_list and not isinstance(target.slice, ast.Slice)


def execute_assign(state: Specialisation, node: ast.Assign) -> None:
    """Specialise an assignment: evaluate the value once, and store it to each target in turn."""
    value = state.evaluate(node.value)
    if len(node.targets) > 1 and not isinstance(
        value, StaticValue
    ):  # the other targets may read the first
        value = bind_fresh(state, value)
    state.pending.append([value] if len(node.targets) > 1 else None)
    for target in node.targets:
        store(state, target, value)
    state.pending.pop()


def execute_augmented_assign(state: Specialisation, node: ast.AugAssign) -> None:
    """Specialise `x += y`: a tensor changes in place under all its names, a list is extended,
    anything else is assigned anew.

    A tensor `@=` is assigned anew, too. Raises Unsplittable for a target whose evaluation changes
    something, an object or list that changes otherwise than by `+=`, and a tensor in a container.
    """
    target = node.target
    load = copy.copy(target)
    load.ctx = ast.Load()
    old_value, changes = state.track_changes(lambda: state.evaluate(load))
    if changes:
        raise state.refuse(
            node,
            "an expression that changes something is the target of an augmented assignment",
        )
    key = find_holder(state, load, old_value)
    if isinstance(old_value.example, set):
        change_set(state, node, load)
        return
    if isinstance(old_value.example, list) and isinstance(node.op, ast.Add):
        extend = ast.Call(ast.Attribute(load, "extend", ast.Load()), [node.value], [])
        state.evaluate(ast.fix_missing_locations(ast.copy_location(extend, node)))
        return
    if is_stand_in(state, old_value.example) or isinstance(old_value.example, list):
        raise state.refuse(
            node, f"{ast.unparse(load)} is changed in place while something else may hold it"
        )
    # there is no matrix product in place
    if (
        key is not None
        and isinstance(old_value.example, torch.Tensor)
        and not isinstance(node.op, ast.MatMult)
    ):
        change_tensor(state, node, load, key, old_value)
        return
    if key is None and changes_element(state, load, old_value):
        text = ast.unparse(load)
        raise state.refuse(
            node, f"{text} is changed in place, and other names may hold it: write {text} = ..."
        )
    store(state, target, state.evaluate(binary_operation(node, load)))


def change_set(state: Specialisation, node: ast.AugAssign, load: ast.expr) -> None:
    """Specialise `s |= t`, `s &= t` or `s -= t` of a set as a call of its method; raise
    Unsplittable for other operators."""
    method_name = CHANGES.get(type(node.op))
    if method_name is None:
        raise state.refuse(node, "of the changes of a set |=, &= and -= are supported")
    change = ast.Call(ast.Attribute(load, method_name, ast.Load()), [node.value], [])
    state.evaluate(ast.fix_missing_locations(ast.copy_location(change, node)))


def change_tensor(
    state: Specialisation, node: ast.AugAssign, load: ast.expr, key: str, old_value: Value
) -> None:
    """Specialise an augmented assignment to the tensor that `key` holds: all names that hold it get
    the new value. Raises Unsplittable for one that would change the tensor's type or shape.

    load: the expression that reads the target.
    """
    aliases = find_aliases(state, node, key)
    # where the value is a number, only this name changes
    if len(aliases) > 1 and isinstance(old_value, EitherValue) and old_value.instead is not None:
        state.require_single_kind(node, old_value)
    value = state.evaluate(binary_operation(node, load))
    if not same_type(value, old_value):
        raise state.refuse(
            node, "an augmented assignment that would change a tensor's type or shape"
        )
    replace_aliases(state, key, aliases, value)


def changes_element(state: Specialisation, load: ast.expr, old_value: Value) -> bool:
    """Return whether the target `load` of an augmented assignment is an element of a container (no
    tensor) and holds a tensor, which would change in place."""
    return (
        isinstance(load, ast.Subscript)
        and holds_tensor(old_value.example)
        and not isinstance(state.evaluate(load.value).example, torch.Tensor)
    )


def binary_operation(node: ast.AugAssign, load: ast.expr) -> ast.expr:
    """Return `x + y` for `x += y`."""
    return ast.fix_missing_locations(ast.copy_location(ast.BinOp(load, node.op, node.value), node))


def execute_function_definition(state: Specialisation, node: ast.FunctionDef) -> None:
    """Bind the name of an inner function, which is followed where it is called."""
    store_name(state, state.frame.prefix + node.name, make_local_function(state, node, node))


def execute_annotated_assign(state: Specialisation, node: ast.AnnAssign) -> None:
    """Specialise an assignment with an annotation; one without a value does nothing."""
    if node.value is not None:
        store(state, node.target, state.evaluate(node.value))


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
        state.steps.append(HostStep(Return(convert_sizes(state, code))))
        return
    store_name(state, f"{state.frame.prefix}result", value.with_code(code))


def is_truth_only(state: Specialisation, key: str) -> bool:
    """Return whether the name `key` holds the value of `and` or `or`, of which only the truth is
    known."""
    return key in state.names and is_truth_of_operand(state.names[key])


def convert_sizes(state: Specialisation, code: ast.expr) -> ast.expr:
    """Return the expression of a result in which each name of a size that a region computes is
    wrapped as `int(name)`, also in tuples and in the fields of objects; other expressions stay."""
    if isinstance(code, ast.Tuple):
        return ast.Tuple([convert_sizes(state, element) for element in code.elts], ast.Load())
    if (
        isinstance(code, ast.Call)
        and isinstance(code.func, ast.Name)
        and code.func.id in state.results
    ):
        keywords = [
            ast.keyword(keyword.arg, convert_sizes(state, keyword.value))
            for keyword in code.keywords
        ]
        return ast.Call(code.func, [], keywords)
    if isinstance(code, ast.Name) and code.id in state.size_names:
        return ast.Call(name("int"), [code], [])
    return code


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
    state.frame.line = getattr(node, "lineno", state.frame.line)
    state.pending.append(None)  # a statement uses the values that it evaluates itself
    try:
        try:
            handler(state, node)
        except Choice as choice:
            state.steps[:], state.names = list(steps), state.fork_names(names)
            specialise_choice(state, node, choice)
    except Cases as cases:
        state.steps[:], state.names = steps, names
        specialise_cases(state, node, cases.key)
    finally:
        state.pending.pop()
    for step in state.steps[len(steps) :]:
        if isinstance(step, HostStep) and not step.place[1]:
            step.place = state.frame.path, getattr(node, "lineno", 0)
