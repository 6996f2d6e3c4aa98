"""Modules that decide by sizes or values in Python, and so have to be followed."""

from __future__ import annotations

import ast

import torch

from regraft.execution.nested import iterate_leaves
from regraft.splitting.observing.call_observation import observe
from regraft.splitting.program.literals import literal
from regraft.splitting.program.residual_expressions import holds_number, is_display
from regraft.splitting.program.statements import read_names
from regraft.splitting.program.value_kinds_and_parts import has_kind
from regraft.splitting.program.values import NO_TWIN, HostValue, Names, TensorValue, Value, fork
from regraft.splitting.specialising.code_running import (
    depends_on_sizes,
    list_constant_tensors,
    run_code,
)
from regraft.splitting.specialising.followed_code import NotRun
from regraft.splitting.specialising.object_changes import undo_stores
from regraft.splitting.specialising.objects_made_in_forward import holds_local_function
from regraft.splitting.specialising.state import Specialisation


def may_decide(state: Specialisation, code: ast.expr, operands: list[Value]) -> bool:
    """Return whether the code cannot run as one operation (`has_to_be_followed`), or an operand of
    the host holds a number and differs between the worlds, so that a function may decide by it."""
    has_open_numbers = any(
        isinstance(operand, HostValue)
        and operand.twin is not NO_TWIN
        and holds_number(operand.example)
        for operand in operands
    )
    return has_open_numbers or has_to_be_followed(state, code)


def has_to_be_followed(state: Specialisation, code: ast.expr) -> bool:
    """Return whether residual code cannot run as one operation: it reads a number that the host
    computes, or running it on the example reads a value of a tensor, assigns an attribute of a
    module (which is undone), or fails."""
    for key in read_names(code) & state.names.keys() - state.size_names:
        value = state.names[key]
        if isinstance(value, HostValue) and holds_number(value.example):
            return True  # a number is a tensor in its region, where what it decides need not show
    names = {**state.names, **copy_read_names(state, code)}
    scope = state.scope({key: value.example for key, value in names.items()})
    compiled = compile(ast.fix_missing_locations(ast.Expression(code)), state.frame.path, "eval")
    stored_count = len(state.stored_attributes)
    try:
        observation = observe(lambda: eval(compiled, scope), list_constant_tensors(state, code))
    except (Exception, NotRun):  # noqa: BLE001  (following it says where it fails)
        return True
    finally:
        has_assigned = undo_stores(state, stored_count)
    return observation.reads or has_assigned


def copy_read_names(state: Specialisation, code: ast.expr) -> Names:
    """Return the names that the code reads with their values, in which lists and dictionaries are
    copies; all names where the code reads a function that forward makes."""
    read = read_names(code) & state.names.keys()
    reaches_all = any(holds_local_function(state, state.names[key].example) for key in read)
    return fork({key: state.names[key] for key in (state.names if reaches_all else read)})


def is_custom(module: torch.nn.Module) -> bool:
    """Return whether a module, or one inside it, is of a class beyond torch.nn."""
    return any(
        not type(submodule).__module__.startswith("torch.nn") for submodule in module.modules()
    )


def module_decides(
    state: Specialisation,
    node: ast.AST,
    module: torch.nn.Module,
    code: ast.expr,
    operands: list[Value],
) -> bool:
    """Return whether a module, which or a part of which is of a class beyond torch.nn, has to be
    followed: the plan says so, or it decides by values of tensors or sizes that differ between the
    worlds."""
    return is_custom(module) and (
        has_to_detour(state)
        or may_decide(state, code, operands)
        or depends_on_sizes(state, node, code)
    )


def has_to_detour(state: Specialisation) -> bool:
    """Return whether the calls of the statement have to be followed, as the plan says, and note
    that."""
    if state.location not in state.plan.followed:
        return False
    state.detours.add(state.location)
    return True


def run_as_operation(
    state: Specialisation, node: ast.Call, code: ast.Call, operands: list[Value]
) -> Value | None:
    """Run a function that gives tensors, or a constant, as one operation, and return its value.
    Returns None, so that the function is followed, where no operand is a tensor, one is a container
    of the host, or values or sizes decide what is computed, and for other results."""
    if has_to_detour(state):
        return None
    has_containers = any(
        isinstance(operand.example, (list, dict)) and not is_display(operand)
        for operand in operands
    )
    if has_containers or not has_kind(operands, TensorValue) or may_decide(state, code, operands):
        return None
    if depends_on_sizes(state, node, code):
        return None
    value = run_code(state, node, code)
    if isinstance(value, TensorValue):
        return None if sizes_may_decide(value) else value
    is_equal_truth = value.twin is value.example and isinstance(value.example, bool | None)
    is_constant = literal(value.example) is not None and (value.twin is NO_TWIN or is_equal_truth)
    return state.static(value.example) if is_constant else None


def sizes_may_decide(value: TensorValue) -> bool:
    """Return whether a result holds a truth value or text beside its tensors, which sizes that are
    not known may decide: in both worlds they may decide alike."""
    return value.twin is not NO_TWIN and any(
        isinstance(leaf, (bool, str)) for leaf in iterate_leaves(value.example)
    )
