"""Changes of tensors and lists in place: all names that hold a changed tensor get its new value, if
nothing else may see the change."""

from __future__ import annotations

import ast
from typing import Any

import torch

from regraft.splitting.program.residual import HostStep
from regraft.splitting.program.residual_expressions import (
    is_integer_scalar,
    is_static_object,
    tensors_in,
)
from regraft.splitting.program.statements import StoreItem, read_names
from regraft.splitting.program.values import (
    EitherValue,
    HostValue,
    LostValue,
    RecordValue,
    TensorValue,
    Value,
)
from regraft.splitting.specialising.code_running import run_code, run_operation
from regraft.splitting.specialising.elements import has_part_names
from regraft.splitting.specialising.indexing import convert_lists
from regraft.splitting.specialising.list_lengths_and_aliases import (
    check_change,
    check_no_list_read,
    note_ragged,
)
from regraft.splitting.specialising.object_methods import call_object_method
from regraft.splitting.specialising.objects_made_in_forward import find_special_method, is_stand_in
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import (
    bind_number,
    read_slice_bound,
    store_name,
)

# methods after which the elements of a tensor are what its memory holds
RESIZES = frozenset({"resize_", "resize_as_"})


def set_element(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """Return a copy of the tensor after `tensor[index] = value`.

    Rows for a mask or for positions go to `index_put`: the assignment looks whether there is a
    single one, which would be taken for the size that a trace has.
    """
    if is_put(tensor, index, value):
        return tensor.index_put((index,), value)
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


def is_put(tensor: torch.Tensor, index: Any, value: Any) -> bool:
    """Return whether `tensor[index] = value` is `index_put`: the index is a mask or has positions,
    and the value has no more dimensions than the part that is assigned."""
    if not isinstance(index, torch.Tensor) or not isinstance(value, torch.Tensor):
        return False
    is_mask = index.dtype == torch.bool
    dims = tensor.ndim + 1 - index.ndim if is_mask else tensor.ndim - 1 + index.ndim
    is_index = index.ndim > 0 and (is_mask or index.dtype == torch.int64)
    return bool(is_index and value.dtype == tensor.dtype and 0 < value.ndim <= dims)


def is_number_of_host(state: Specialisation, index: Value) -> bool:
    """Return whether an index is a whole number that the host computes, no size."""
    is_named = isinstance(index.code, ast.Name) and index.code.id not in state.size_names
    return isinstance(index, HostValue) and type(index.example) is int and is_named


def set_row(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """Return a copy of the tensor after `tensor[index] = value` with a whole number, whose value no
    operation reads. An index beyond the end becomes one that is too large."""
    size = tensor.shape[0]
    position = torch.as_tensor(index).reshape(1)
    position = torch.where(position < 0, position + size, position)
    position = torch.where(position < 0, size, position)
    row = torch.as_tensor(value, dtype=tensor.dtype).expand(tensor.shape[1:])
    return tensor.index_copy(0, position, row.unsqueeze(0))


def store_element(state: Specialisation, target: ast.Subscript, value: Value) -> None:
    """Specialise `base[index] = value`: a local tensor gets a new value under all its names, the
    host stores to a list, an object that forward makes follows its `__setitem__`. Raises
    Unsplittable for other targets."""
    state.pending.append([value])
    index = bind_number(state, state.evaluate(without_slices(target.slice)))
    base = state.evaluate(target.value)
    state.pending.pop()
    if is_stand_in(state, base.example):
        method = find_special_method(state, target, base.example, "__setitem__")
        call_object_method(state, target, method, [index, value], {})
        return
    if isinstance(base, HostValue) and isinstance(base.example, list):
        put_in_list(state, target, base, index, value)
        return
    key = find_holder(state, target.value, base)
    if not isinstance(base, TensorValue) or key is None:
        raise state.refuse(
            target, "assigning to an element is supported for local tensors and lists only"
        )
    index = convert_lists(state, target, index)
    is_number = is_number_of_host(state, index) or is_integer_scalar(index.example)
    change = set_row if is_number and base.example.ndim else set_element
    function = state.alias_global("changed", change)
    code = ast.Call(function, [base.code, index.code, value.code], [])
    aliases = find_aliases(state, target, key)
    replace_aliases(state, key, aliases, run_operation(state, target, code, [base, value]))


def put_in_list(
    state: Specialisation, target: ast.Subscript, base: HostValue, index: Value, value: Value
) -> None:
    """Append the host's step `list[index] = value`; raise Unsplittable for objects, an index that
    is no whole number, and a list that something else may see change. The list of the example
    changes, too, unless it lacks the element."""
    index = read_slice_bound(state, target.slice, index)
    if type(index.example) is not int or is_static_object(value) or isinstance(value, RecordValue):
        reason = "only plain data at a whole number can be put into a list of the host"
        raise state.refuse(target, reason)
    check_no_list_read(state, target)
    check_change(state, target, base.example)
    code = state.write_for_host(value)
    is_present = -len(base.example) <= index.example < len(base.example)
    if id(base.example) not in state.ragged or is_present:
        set_item = ast.Attribute(base.code, "__setitem__", ast.Load())
        run_code(state, target, ast.Call(set_item, [index.code, code], []))
    state.steps.append(HostStep(StoreItem(base.code, index.code, code)))


def delete_slice(state: Specialisation, target: ast.Subscript, base: Value) -> None:
    """Append the host's step `del list[a:b]`, written `list[a:b] = []`; the list of the example
    changes, too, but keeps its last element where its length is not known, to show the type of the
    elements. Raises Unsplittable for a step, and a list that something else may see change."""
    assert isinstance(target.slice, ast.Slice)
    if target.slice.step is not None:
        raise state.refuse(target, "del of a slice with a step is not supported")
    bounds = state.evaluate(target.slice)
    check_no_list_read(state, target)
    check_change(state, target, base.example)
    if isinstance(bounds, HostValue):
        note_ragged(state, base.example, [None])
    store_slice(state, target, base, bounds.code, ast.List([], ast.Load()))


def store_slice(
    state: Specialisation, node: ast.AST, base: Value, bounds: ast.expr, code: ast.expr
) -> None:
    """Append the host's step `base[bounds] = code` of a list, and change the list of the example in
    both worlds, where it keeps its last element if its length is not known."""
    examples = [base.example, base.second_example]
    last_elements = [example[-1:] for example in examples]
    assert isinstance(bounds, ast.Slice)
    limits = [bound or ast.Constant(None) for bound in (bounds.lower, bounds.upper)]
    index = ast.Call(ast.Name("slice", ast.Load()), limits, [])
    run_code(
        state,
        node,
        ast.Call(ast.Attribute(base.code, "__setitem__", ast.Load()), [index, code], []),
    )
    if id(base.example) in state.ragged:
        for example, last_element in zip(examples, last_elements, strict=True):
            if not example:
                example[:] = last_element
    state.steps.append(HostStep(StoreItem(base.code, bounds, code)))


def change_in_place(state: Specialisation, node: ast.Call) -> bool:
    """Follow a statement such as `x.index_add_(...)` on a local tensor as an assignment, and return
    True; return False for any other call. After `resize_` nothing may read the tensor until it is
    assigned anew. Raise Unsplittable for a method that would change the tensor's type."""
    method = node.func
    if not isinstance(method, ast.Attribute) or not may_change_in_place(method):
        return False
    base = state.evaluate(method.value)
    key = find_holder(state, method.value, base)
    if not isinstance(base, TensorValue) or key is None:
        return False
    aliases = find_aliases(state, node, key)
    if method.attr in RESIZES:
        mark_aliases_lost(state, [key, *aliases])
        return True
    functional_call = ast.Call(
        ast.Attribute(method.value, method.attr[:-1], ast.Load()), node.args, node.keywords
    )
    value = state.evaluate(ast.fix_missing_locations(ast.copy_location(functional_call, node)))
    if getattr(value.example, "dtype", None) != base.example.dtype:
        raise state.refuse(
            node, f"{method.attr} keeps the type of its tensor, {method.attr[:-1]} does not"
        )
    replace_aliases(state, key, aliases, value)
    return True


def may_change_in_place(method: ast.Attribute) -> bool:
    """Return whether a method has the name of one that changes a tensor in place, such as `add_`,
    and is one of a name, an attribute or an element."""
    is_in_place = method.attr.endswith("_") and not method.attr.endswith("__")
    is_readable = isinstance(method.value, (ast.Name, ast.Attribute, ast.Subscript))
    return is_in_place and is_readable and hasattr(torch.Tensor, method.attr[:-1])


def mark_aliases_lost(state: Specialisation, aliases: list[str]) -> None:
    """Give all names of a tensor that is resized, `aliases`, a LostValue, so that the network is
    refused where one of them is read before it is assigned anew."""
    for alias in aliases:
        reason = "holds what its memory held before it was resized; assign it anew"
        state.names[alias] = LostValue(ast.Name(alias, ast.Load()), reason)
        state.changed_names.add(alias)


def find_holder(state: Specialisation, node: ast.expr, base: Value) -> str | None:
    """Return the name that holds the tensor: a local variable, or a place of an object; None if
    there is none. A local variable is returned without a look at what it holds."""
    if isinstance(node, ast.Name):
        return state.variable_name(node.id)
    has_name = (
        isinstance(base.code, ast.Name)
        and base.code.id not in state.unread_names
        and base.code.id in state.names
    )
    return base.code.id if has_name and isinstance(base.code, ast.Name) else None


def find_aliases(state: Specialisation, node: ast.AST, key: str) -> list[str]:
    """Return the names that hold the very tensor under `key`, which is about to change in place;
    raise Unsplittable if anything else may see the change. Names that only some paths assign and
    that may share its memory are dropped."""
    if key not in state.names:
        raise state.refuse(node, "a function made in another changes a tensor of that one")
    tensor = state.names[key].example
    addresses = find_shared_memory(state, tensor)
    drop_partial_names(state, key, addresses)
    aliases = [
        alias
        for alias, value in state.names.items()
        if value.example is tensor and isinstance(value, (TensorValue, EitherValue))
    ]
    if storage_addresses(list_memory_holders(state, aliases)) & addresses:
        raise state.refuse(node, f"{key} is changed in place while something else may hold it")
    if is_pending(state, aliases, addresses):
        raise state.refuse(node, f"{key} is changed in place by an expression that reads it, too")
    return aliases


def drop_partial_names(state: Specialisation, key: str, addresses: set[int]) -> None:
    """Remove from `state.names` the names other than `key` that only some paths assign, and whose
    tensors may lie at one of the `addresses`."""
    for other_key, value in [*state.names.items()]:
        if value.partial and other_key != key and storage_addresses(value.example) & addresses:
            del state.names[other_key]


def is_pending(state: Specialisation, aliases: list[str], addresses: set[int]) -> bool:
    """Return whether an expression has evaluated, but not used yet, a value that reads one of the
    names `aliases`, or has memory at one of the `addresses`."""
    pending_values = [value for values in state.pending for value in values or ()]
    if storage_addresses([value.example for value in pending_values]) & addresses:
        return True
    return any(set(aliases) & read_names(value.code) for value in pending_values)


def list_memory_holders(state: Specialisation, aliases: list[str]) -> list[Any]:
    """Return everything besides the names `aliases` that may share memory with a tensor: the
    examples of other names that are still read, the weights and the inputs."""
    other_examples = [
        value.example
        for key, value in state.names.items()
        if not (
            key in aliases or key in state.unread_names or has_part_names(key, value, state.names)
        )
    ]
    return [
        *other_examples,
        *state.model.parameters(),
        *state.model.buffers(),
        *state.inputs,
    ]


def find_shared_memory(state: Specialisation, tensor: torch.Tensor) -> set[int]:
    """Return the addresses of all memory that a tensor may share on any path, its own included."""
    addresses = storage_addresses(tensor)
    count = 0
    while len(addresses) > count:
        count = len(addresses)
        for group in state.alias_groups:
            group_addresses = storage_addresses(group)
            if group_addresses & addresses:
                addresses |= group_addresses
    return addresses


def replace_aliases(state: Specialisation, key: str, aliases: list[str], value: Value) -> None:
    """Assign the changed tensor to all names that hold it, and note the change in
    `state.in_place_changes` and, of the names other than `key`, in `state.changed_names`."""
    state.in_place_changes += 1
    store_name(state, key, value)
    for alias in aliases:
        if alias != key:
            store_name(state, alias, state.names[key])
            state.changed_names.add(alias)


def storage_addresses(example: Any) -> set[int]:
    """Return the addresses of the memory of the tensors in `example`; tensors without elements,
    which have the address 0, are left out."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors_in([example])} - {0}


def without_slices(index: ast.expr) -> ast.expr:
    """Return an index that can be an argument, with calls in the place of slices: `slice(1, 2,
    None)` for `1:2`; any other index as it is."""
    if isinstance(index, ast.Slice):
        bounds = [bound or ast.Constant(None) for bound in (index.lower, index.upper, index.step)]
        argument: ast.expr = ast.Call(ast.Name("slice", ast.Load()), bounds, [])
    elif isinstance(index, ast.Tuple):
        argument = ast.Tuple([without_slices(element) for element in index.elts], ast.Load())
    else:
        return index
    return ast.fix_missing_locations(ast.copy_location(argument, index))
