"""Functions that are followed in the place of their calls."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from regraft.splitting.program import deque_class
from regraft.splitting.program.control_flow import assign_to, move_exits_to_tails
from regraft.splitting.program.early_returns import (
    attach_following,
    without_loop_returns,
    without_try_returns,
)
from regraft.splitting.program.leaving_elses import WithoutLeavingElses
from regraft.splitting.program.use_marks import mark_uses
from regraft.splitting.program.value_kinds_and_parts import has_kind
from regraft.splitting.program.values import LostValue, StaticValue, Value
from regraft.splitting.specialising.closures import drop_ended_names
from regraft.splitting.specialising.dictionaries import update_dictionary
from regraft.splitting.specialising.elements import get_element, make_tuple
from regraft.splitting.specialising.followed_code import Frame, LocalFunction
from regraft.splitting.specialising.lasting_effects import find_changed_container
from regraft.splitting.specialising.local_functions import (
    body_nodes,
    find_followed,
    nonlocal_names,
    own_names,
)
from regraft.splitting.specialising.objects_made_in_forward import (
    forget_dead_objects,
    holds_local_function,
    make_object,
)
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import store_name

ONLY_DEF = "only functions written with def can be followed"


def enter_function(state: Specialisation, function: Any, prefix: str) -> ast.FunctionDef:
    """Make `function` the one whose statements are specialised next: set `state.frame` to a new
    frame, and return its definition. Raises Unsplittable for a function without source, and a
    lambda from outside.

    prefix: what its names in `state.names` begin with.
    """
    if function in state.local_functions:
        return enter_local_function(state, state.local_functions[function], prefix)
    try:
        function = find_followed(function)
        definition, path = read_definition(function)
    except (OSError, TypeError) as problem:
        raise state.refuse(ast.Pass(), f"{function!r} has no source that can be read") from problem
    except SyntaxError as problem:  # the lines of a lambda, such as one in a table
        raise state.refuse(ast.Pass(), ONLY_DEF) from problem
    if path == deque_class.__file__:  # an error names the line that uses the deque
        path = state.frame.path
        move_to_line(definition, state.frame.line)
    state.frame = Frame(path, dict(function.__globals__), prefix)
    if function.__closure__:
        cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
        state.frame.scope.update((key, cell.cell_contents) for key, cell in cells)
    if not isinstance(definition, ast.FunctionDef):
        raise state.refuse(definition, ONLY_DEF)
    state.frame.line = definition.lineno  # of steps before the first statement
    state.frame.own_names, state.frame.may_repeat = own_names(definition), state.loop_depth > 0
    state.frame.first_parameter = next(
        (parameter.arg for parameter in [*definition.args.posonlyargs, *definition.args.args]),
        "",
    )
    return prepare_definition(state, definition)


def prepare_definition(state: Specialisation, definition: ast.FunctionDef) -> ast.FunctionDef:
    """Rewrite a function's definition, in place, into a form that can be followed, mark how its
    expressions are used, reserve its names in `state`, and return it."""
    state.reserve_names(definition, state.frame.prefix)
    transformer = WithoutLeavingElses(lambda: state.unused_name("exhausted"))
    transformer.generic_visit(definition)
    mark_uses(definition)
    return definition


def read_definition(function: Any) -> tuple[ast.stmt, str]:
    """Return the statement that defines a function, with the lines of its file, and the path of the
    file; raise OSError or TypeError for a function without source, and SyntaxError where its lines
    alone are no statements, as those of a lambda may be."""
    lines, start = inspect.getsourcelines(getattr(function, "__code__", function))
    path = inspect.getsourcefile(function) or "<unknown>"
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, start - 1)
    return tree.body[0], path


def enter_local_function(
    state: Specialisation, local_function: LocalFunction, prefix: str
) -> ast.FunctionDef:
    """Make a local function the one whose statements are specialised next, as `enter_function`
    does, and return its definition."""
    definition = local_function.definition
    state.frame = Frame(local_function.frame.path, local_function.frame.scope, prefix)
    state.frame.line = definition.lineno
    state.frame.own_names, state.frame.outer = own_names(definition), local_function.frame
    state.frame.nonlocal_names = nonlocal_names(definition)
    state.frame.may_repeat = state.loop_depth > 0
    return prepare_definition(state, definition)


def move_to_line(tree: ast.AST, line: int) -> None:
    """Set the place of every node of a tree that has one to the beginning of a line."""
    for part in ast.walk(tree):
        if hasattr(part, "lineno"):
            vars(part).update(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)


def inline(
    state: Specialisation,
    node: ast.AST,
    function: Any,
    owner: Any,
    args: list[Value],
    keywords: dict[Any, Value],
) -> Value:
    """Specialise a function's statements in the place of its call: their steps are appended to
    `state.steps`. Return its result.

    owner: what its first parameter holds; None for a plain function. Raises Unsplittable for more
    than 21 calls within each other, returns that cannot be moved to the end, and results of
    different types on different paths.
    """
    if state.call_depth > 20:
        raise state.refuse(
            node,
            "functions call each other too deeply: a recursion has to end by what is known when the"
            " network is split, after 20 calls at most; write it as a loop",
        )
    outer_frame, prefix = state.frame, f"f{state.next_number()}_"
    loops, state.loops = state.loops, []
    definition = enter_function(state, function, prefix)
    body = move_returns_to_tails(state, definition)
    bind_arguments(state, node, function, owner, args, keywords, definition)
    if state.pending[-1] is not None:
        state.pending[-1].clear()  # the arguments have names now
    state.call_depth += 1
    state.execute_block(body)
    state.call_depth -= 1
    key = f"{state.frame.prefix}result"
    state.frame, state.loops = outer_frame, loops
    state.unread_names.update(variable for variable in state.names if variable.startswith(key))
    state.names = drop_ended_names(state, prefix)
    forget_dead_objects(state)
    value = state.names[key]
    parts = [value, *(get_element(state, value, place) for place in value.fields)]
    if has_kind(parts, LostValue):
        raise state.refuse(
            node, "what is returned has different types or shapes on different paths"
        )
    return value


def move_returns_to_tails(state: Specialisation, definition: ast.FunctionDef) -> list[ast.stmt]:
    """Return the statements of the function that was entered with each return at the end of a path,
    and with one at the end; raise Unsplittable for returns that cannot be moved there. Two
    variables are reserved for it."""
    result = state.unused_name("loop_result")
    state.guarded_names.add(state.frame.prefix + result)
    returned = state.unused_name("loop_returned")
    statements = without_try_returns(definition.body, result, returned)
    statements = without_loop_returns(statements, result, returned)
    if all(is_no_return_of_value(part) for part in body_nodes(definition)):
        # else there is no value where no return in a loop was taken
        statements = [assign_to(definition, result, ast.Constant(None)), *statements]
    end = ast.copy_location(ast.Return(None), definition)
    body = move_exits_to_tails([*statements, end], ast.Return)
    attach_following(body, result, returned)
    for node in body_nodes(ast.Module(body, [])):
        if isinstance(node, ast.Return) and id(node) not in last_returns(body):
            reason = "a return in try, or in a with that others follow, is not supported"
            raise state.refuse(node, reason)
    return body


def is_no_return_of_value(node: ast.AST) -> bool:
    """Return whether a node is anything but a `return` of a value other than None."""
    if not isinstance(node, ast.Return) or node.value is None:
        return True
    return isinstance(node.value, ast.Constant) and node.value.value is None


def bind_arguments(
    state: Specialisation,
    node: ast.AST,
    function: Any,
    owner: Any,
    args: list[Value],
    keywords: dict[Any, Value],
    definition: ast.FunctionDef,
) -> None:
    """Bind the parameters of a function, with its definition, to the arguments of its call, and to
    the defaults of the others; raise Unsplittable for arguments that do not fit."""
    positional = (
        [state.static(owner, state.alias_global("module", owner)), *args]
        if owner is not None
        else args
    )
    signature = inspect.signature(find_followed(function), follow_wrapped=False)
    try:
        bound = signature.bind(*positional, **keywords)
    except TypeError as problem:
        raise state.refuse(node, str(problem)) from problem
    for parameter in signature.parameters.values():
        value = bound.arguments.get(parameter.name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            value = make_tuple(state, [state.bind_if_tensor(element) for element in value or ()])
        elif parameter.kind is parameter.VAR_KEYWORD:
            extra_keywords = value or {}
            if changes_dictionary(definition, parameter.name) or any(
                not isinstance(extra, StaticValue) or holds_local_function(state, extra.example)
                for extra in extra_keywords.values()
            ):
                value = make_object(state, dict)
                update_dictionary(state, node, value.example, **extra_keywords)
            else:
                value = state.static({key: extra.example for key, extra in extra_keywords.items()})
        store_name(
            state, state.frame.prefix + parameter.name, value or state.static(parameter.default)
        )


def changes_dictionary(definition: ast.FunctionDef, parameter: str) -> bool:
    """Return whether a function changes the dictionary of its keywords."""
    changed = {
        container.id
        for node in ast.walk(definition)
        if isinstance(container := find_changed_container(node), ast.Name)
    }
    return parameter in changed


def bind_owner(state: Specialisation, definition: ast.FunctionDef, owner: Any) -> None:
    """Let the first parameter of a method, such as `self`, hold the owner in `state.names`."""
    first = state.frame.prefix + definition.args.args[0].arg
    state.names[first] = state.static(owner, state.alias_global("module", owner))


def last_returns(body: list[ast.stmt]) -> set[int]:
    """Return the `id` of each return statement that is the last on a path through `body`, also
    inside of an `if` or `with` at its end."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return last_returns(last.body) | last_returns(last.orelse)
    if isinstance(last, ast.With):
        return last_returns(last.body)
    return {id(last)} if isinstance(last, ast.Return) else set()
