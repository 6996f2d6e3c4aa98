"""Assignments: to names, to several names, to elements, and with an operator."""

from __future__ import annotations

import ast
import copy

import torch

from regraft.splitting.program.residual_expressions import holds_tensor
from regraft.splitting.program.type_patterns import fit_one_variable
from regraft.splitting.program.values import EitherValue, StaticValue, Value
from regraft.splitting.specialising.assignment_targets import store
from regraft.splitting.specialising.host_sets import CHANGES
from regraft.splitting.specialising.inplace import find_aliases, find_holder, replace_aliases
from regraft.splitting.specialising.objects_made_in_forward import is_stand_in
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import bind_fresh


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
    if not fit_one_variable(value, old_value):
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


def execute_annotated_assign(state: Specialisation, node: ast.AnnAssign) -> None:
    """Specialise an assignment with an annotation; one without a value does nothing."""
    if node.value is not None:
        store(state, node.target, state.evaluate(node.value))
