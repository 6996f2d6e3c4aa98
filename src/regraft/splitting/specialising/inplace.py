"""Changes in place: all names that hold the tensor get its new value, if nothing else may see the
change."""

from __future__ import annotations

import ast
import copy
from typing import Any

import torch

from regraft.splitting.program.codes import holds_tensor, is_literal, tensors_in
from regraft.splitting.program.residual import HostStep, reads
from regraft.splitting.program.values import Value, same_type
from regraft.splitting.specialising.assign import Assignments


def set_element(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """Return a copy of the tensor after `tensor[index] = value`."""
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


class Changes(Assignments):
    """Stores parts of tensors, and calls methods that change them."""

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        load = copy.copy(target)
        load.ctx = ast.Load()
        old_value, changes = self.track_changes(lambda: self.evaluate(load))
        if changes:
            raise self.refuse(
                node,
                "an expression that changes something is the target of an augmented assignment",
            )
        key = self.holder_name(load, old_value)
        if isinstance(old_value.example, list) and isinstance(node.op, ast.Add):
            extend = ast.Call(ast.Attribute(load, "extend", ast.Load()), [node.value], [])
            self.evaluate(ast.fix_missing_locations(ast.copy_location(extend, node)))
            return
        if self.is_stand_in(old_value.example) or isinstance(old_value.example, list):
            raise self.refuse(
                node, f"{ast.unparse(load)} is changed in place while something else may hold it"
            )
        if key is not None and isinstance(old_value.example, torch.Tensor):
            if isinstance(node.op, ast.MatMult):  # there is none in place
                self.store(target, self.evaluate(binary_operation(node, load)))
                return
            aliases = self.alias_names(node, key)
            # where the value is a number, only this name changes
            if old_value.instead is not None and len(aliases) > 1:
                self.require_one_kind(node, old_value)
            value = self.evaluate(binary_operation(node, load))
            if not same_type(value, old_value):
                raise self.refuse(
                    node, "an augmented assignment that would change a tensor's type or shape"
                )
            self.replace_aliases(key, aliases, value)
            return
        if (
            key is None
            and isinstance(load, ast.Subscript)
            and holds_tensor(old_value.example)
            and not isinstance(self.evaluate(load.value).example, torch.Tensor)
        ):
            text = ast.unparse(load)
            raise self.refuse(
                node, f"{text} is changed in place, and other names may hold it: write {text} = ..."
            )
        self.store(target, self.evaluate(binary_operation(node, load)))

    def store_element(self, target: ast.Subscript, value: Value) -> None:
        """Store to an element: `tensor[index] = value`."""
        self.pending.append([value])
        index = self.evaluate(without_slices(target.slice))
        base = self.evaluate(target.value)
        self.pending.pop()
        if self.is_stand_in(base.example):
            self.invoke(
                target, self.special_method(target, base.example, "__setitem__"), [index, value], {}
            )
            return
        if base.kind == "host" and isinstance(base.example, list):
            self.put_in_list(target, base, index, value)
            return
        key = self.holder_name(target.value, base)
        if base.kind != "tensor" or key is None:
            raise self.refuse(
                target, "assigning to an element is supported for local tensors and lists only"
            )
        index = self.lists_as_arrays(target, index)
        code = ast.Call(
            self.alias_global("changed", set_element), [base.code, index.code, value.code], []
        )
        self.replace_aliases(
            key, self.alias_names(target, key), self.result(target, code, [base, value])
        )

    def put_in_list(self, target: ast.Subscript, base: Value, index: Value, value: Value) -> None:
        """Let the host store to an element of a list: `list[index] = value`."""
        index = self.slice_bound(target.slice, index)
        if (
            type(index.example) is not int
            or (value.kind == "static" and not is_literal(value))
            or value.kind == "record"
        ):
            raise self.refuse(
                target, "only plain data at a whole number can be put into a list of the host"
            )
        self.check_no_list_read(target)
        self.check_change(target, base.example)
        code = self.bind_result(value) if value.kind == "tensor" else value.code
        if id(base.example) not in self.ragged or -len(base.example) <= index.example < len(
            base.example
        ):
            self.run(
                target,
                ast.Call(
                    ast.Attribute(base.code, "__setitem__", ast.Load()), [index.code, code], []
                ),
            )
        element = ast.Subscript(base.code, index.code, ast.Store())
        self.steps.append(
            HostStep(ast.fix_missing_locations(ast.Assign([element], code, lineno=1)))
        )

    def change_in_place(self, node: ast.Call) -> bool:
        """Follow a statement such as `x.index_add_(...)` on a local tensor as an assignment; False
        for any other."""
        method = node.func
        if not (
            isinstance(method, ast.Attribute)
            and method.attr.endswith("_")
            and not method.attr.endswith("__")
        ):
            return False
        if not isinstance(method.value, (ast.Name, ast.Attribute, ast.Subscript)):
            return False
        if not hasattr(torch.Tensor, method.attr[:-1]):
            return False
        base = self.evaluate(method.value)
        key = self.holder_name(method.value, base)
        if base.kind != "tensor" or key is None:
            return False
        aliases = self.alias_names(node, key)
        functional_call = ast.Call(
            ast.Attribute(method.value, method.attr[:-1], ast.Load()), node.args, node.keywords
        )
        value = self.evaluate(ast.fix_missing_locations(ast.copy_location(functional_call, node)))
        if getattr(value.example, "dtype", None) != base.example.dtype:
            raise self.refuse(
                node, f"{method.attr} keeps the type of its tensor, {method.attr[:-1]} does not"
            )
        self.replace_aliases(key, aliases, value)
        return True

    def holder_name(self, node: ast.expr, base: Value) -> str | None:
        """Return the name that holds the tensor: a local variable, or a place of an object; None if
        there is none."""
        if isinstance(node, ast.Name):
            return self.frame.prefix + node.id
        has_name = (
            isinstance(base.code, ast.Name)
            and base.code.id not in self.unread_names
            and base.code.id in self.names
        )
        return base.code.id if has_name and isinstance(base.code, ast.Name) else None

    def alias_names(self, node: ast.AST, key: str) -> list[str]:
        """Return the names that hold the very tensor under `key`; refuse if anything else may see a
        change of it."""
        if key not in self.names:
            raise self.refuse(node, "a function made in another changes a tensor of that one")
        tensor = self.names[key].example
        addresses = self.shared_memory(tensor)
        for other_key, value in [*self.names.items()]:  # partial names are not followed any further
            if value.partial and other_key != key and storage_addresses(value.example) & addresses:
                del self.names[other_key]
        kinds = ("tensor", "either")
        aliases = [
            alias
            for alias, value in self.names.items()
            if value.example is tensor and value.kind in kinds
        ]
        other_examples = [
            value.example
            for other_key, value in self.names.items()
            if not (
                other_key in aliases
                or other_key in self.unread_names
                or self.has_part_names(other_key, value, self.names)
            )
        ]
        other_holders = [
            *other_examples,
            *self.model.parameters(),
            *self.model.buffers(),
            *self.inputs,
        ]
        if storage_addresses(other_holders) & addresses:
            raise self.refuse(node, f"{key} is changed in place while something else may hold it")
        pending_values = [value for values in self.pending for value in values or ()]
        if storage_addresses([value.example for value in pending_values]) & addresses or any(
            set(aliases) & reads(value.code) for value in pending_values
        ):
            raise self.refuse(
                node, f"{key} is changed in place by an expression that reads it, too"
            )
        return aliases

    def shared_memory(self, tensor: torch.Tensor) -> set[int]:
        """Return the addresses of the memory that a tensor may share on any path."""
        addresses = storage_addresses(tensor)
        count = 0
        while len(addresses) > count:
            count = len(addresses)
            for group in self.alias_groups:
                group_addresses = storage_addresses(group)
                if group_addresses & addresses:
                    addresses |= group_addresses
        return addresses

    def replace_aliases(self, key: str, aliases: list[str], value: Value) -> None:
        """Assign the changed tensor to all names that hold it."""
        self.in_place_changes += 1
        self.store_name(key, value)
        for alias in aliases:
            if alias != key:
                self.store_name(alias, self.names[key])
                self.changed_names.add(alias)


def storage_addresses(example: Any) -> set[int]:
    """Return the addresses of the memory of the tensors in `example`."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors_in([example])} - {0}


def binary_operation(node: ast.AugAssign, load: ast.expr) -> ast.expr:
    """Return `x + y` for `x += y`."""
    return ast.fix_missing_locations(ast.copy_location(ast.BinOp(load, node.op, node.value), node))


def without_slices(index: ast.expr) -> ast.expr:
    """Return an index that can be an argument: `slice(1, 2, None)` for `1:2`."""
    if isinstance(index, ast.Slice):
        bounds = [bound or ast.Constant(None) for bound in (index.lower, index.upper, index.step)]
        argument: ast.expr = ast.Call(ast.Name("slice", ast.Load()), bounds, [])
    elif isinstance(index, ast.Tuple):
        argument = ast.Tuple([without_slices(element) for element in index.elts], ast.Load())
    else:
        return index
    return ast.fix_missing_locations(ast.copy_location(argument, index))
