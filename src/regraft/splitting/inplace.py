"""Changes in place, which become new values of all names that hold the tensor, where nothing else may see it."""

from __future__ import annotations

import ast
import copy
from typing import Any

import torch

from regraft.splitting.assign import Assignments
from regraft.splitting.codes import holds_tensor, plain, tensors_in
from regraft.splitting.residual import HostStep, reads
from regraft.splitting.values import Value, same_type


def changed(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """What `tensor[index] = value` makes of a tensor."""
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


class Changes(Assignments):
    """Stores parts of tensors, and calls methods that change them."""

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        read = copy.copy(target)
        read.ctx = ast.Load()
        old, changed = self.changing(lambda: self.evaluate(read))
        if changed:
            raise self.refuse(node, "an expression that changes something is the target of an augmented assignment")
        key = self.place_of(read, old)
        if isinstance(old.example, list) and isinstance(node.op, ast.Add):
            extend = ast.Call(ast.Attribute(read, "extend", ast.Load()), [node.value], [])
            self.evaluate(ast.fix_missing_locations(ast.copy_location(extend, node)))
            return
        if self.is_made(old.example) or isinstance(old.example, list):
            raise self.refuse(node, f"{ast.unparse(read)} is changed in place while something else may hold it")
        if key is not None and isinstance(old.example, torch.Tensor):
            if isinstance(node.op, ast.MatMult):  # there is none in place
                self.store(target, self.evaluate(made_of(node, read)))
                return
            same = self.holders(node, key)
            if old.instead is not None and len(same) > 1:  # what is a number is another one afterwards, here only
                self.sure(node, old)
            value = self.evaluate(made_of(node, read))
            if not same_type(value, old):
                raise self.refuse(node, "an augmented assignment that would change a tensor's type or shape")
            self.replace_all(key, same, value)
            return
        if (
            key is None
            and isinstance(read, ast.Subscript)
            and holds_tensor(old.example)
            and not isinstance(self.evaluate(read.value).example, torch.Tensor)
        ):
            text = ast.unparse(read)
            raise self.refuse(node, f"{text} is changed in place, and other names may hold it: write {text} = ...")
        self.store(target, self.evaluate(made_of(node, read)))

    def put(self, target: ast.Subscript, value: Value) -> None:
        """`tensor[index] = value`."""
        self.pending.append([value])
        index = self.evaluate(without_slices(target.slice))
        base = self.evaluate(target.value)
        self.pending.pop()
        if self.is_made(base.example):
            self.invoke(target, self.special(target, base.example, "__setitem__"), [index, value], {})
            return
        if base.kind == "host" and isinstance(base.example, list):
            self.put_in_list(target, base, index, value)
            return
        key = self.place_of(target.value, base)
        if base.kind != "tensor" or key is None:
            raise self.refuse(target, "assigning to an element is supported for local tensors and lists only")
        index = self.with_arrays(target, index)
        code = ast.Call(self.aliased("changed", changed), [base.code, index.code, value.code], [])
        self.replace_all(key, self.holders(target, key), self.result(target, code, [base, value]))

    def put_in_list(self, target: ast.Subscript, base: Value, index: Value, value: Value) -> None:
        """`list[index] = value`, which the host does."""
        index = self.bound(target.slice, index)
        if type(index.example) is not int or (value.kind == "static" and not plain(value)) or value.kind == "record":
            raise self.refuse(target, "only plain data at a whole number can be put into a list of the host")
        self.nothing_read(target)
        self.check_change(target, base.example)
        code = self.held(value) if value.kind == "tensor" else value.code
        if id(base.example) not in self.ragged or -len(base.example) <= index.example < len(base.example):
            self.run(target, ast.Call(ast.Attribute(base.code, "__setitem__", ast.Load()), [index.code, code], []))
        place = ast.Subscript(base.code, index.code, ast.Store())
        self.steps.append(HostStep(ast.fix_missing_locations(ast.Assign([place], code, lineno=1))))

    def changed_in_place(self, node: ast.Call) -> bool:
        """A statement such as `x.index_add_(...)` on a local tensor, as the assignment of the new value."""
        method = node.func
        if not (isinstance(method, ast.Attribute) and method.attr.endswith("_") and not method.attr.endswith("__")):
            return False
        if not isinstance(method.value, (ast.Name, ast.Attribute, ast.Subscript)):
            return False
        if not hasattr(torch.Tensor, method.attr[:-1]):
            return False
        base = self.evaluate(method.value)
        key = self.place_of(method.value, base)
        if base.kind != "tensor" or key is None:
            return False
        same = self.holders(node, key)
        made = ast.Call(ast.Attribute(method.value, method.attr[:-1], ast.Load()), node.args, node.keywords)
        value = self.evaluate(ast.fix_missing_locations(ast.copy_location(made, node)))
        if getattr(value.example, "dtype", None) != base.example.dtype:
            raise self.refuse(node, f"{method.attr} keeps the type of its tensor, {method.attr[:-1]} does not")
        self.replace_all(key, same, value)
        return True

    def place_of(self, node: ast.expr, base: Value) -> str | None:
        """The name that holds the tensor: a local variable, or a place of an object that forward makes."""
        if isinstance(node, ast.Name):
            return self.frame.prefix + node.id
        found = isinstance(base.code, ast.Name) and base.code.id not in self.own and base.code.id in self.names
        return base.code.id if found and isinstance(base.code, ast.Name) else None

    def holders(self, node: ast.AST, key: str) -> list[str]:
        """The names that hold the very tensor under `key`, which is to change; nothing else may see the change."""
        if key not in self.names:
            raise self.refuse(node, "a function made in another changes a tensor of that one")
        tensor = self.names[key].example
        places = self.memory(tensor)
        for other, value in [*self.names.items()]:  # what only some paths assign is not followed any further
            if value.partial and other != key and addresses(value.example) & places:
                del self.names[other]
        kinds = ("tensor", "either")
        same = [other for other, value in self.names.items() if value.example is tensor and value.kind in kinds]
        others = [
            value.example
            for other, value in self.names.items()
            if not (other in same or other in self.own or self.is_kept_apart(other, value, self.names))
        ]
        held = [*others, *self.model.parameters(), *self.model.buffers(), *self.inputs]
        if addresses(held) & places:
            raise self.refuse(node, f"{key} is changed in place while something else may hold it")
        waiting = [one for several in self.pending for one in several or ()]
        if addresses([one.example for one in waiting]) & places or any(set(same) & reads(one.code) for one in waiting):
            raise self.refuse(node, f"{key} is changed in place by an expression that reads it, too")
        return same

    def memory(self, tensor: torch.Tensor) -> set[int]:
        """The addresses of what a tensor shares its memory with, on any path."""
        places = addresses(tensor)
        before = 0
        while len(places) > before:
            before = len(places)
            for several in self.shared:
                found = addresses(several)
                if found & places:
                    places |= found
        return places

    def replace_all(self, key: str, same: list[str], value: Value) -> None:
        """What was changed in place, under all names that hold it."""
        self.in_place += 1
        self.store_name(key, value)
        for other in same:
            if other != key:
                self.store_name(other, self.names[key])
                self.changed.add(other)


def addresses(example: Any) -> set[int]:
    """The memory of the tensors that something holds."""
    return {one.untyped_storage().data_ptr() for one in tensors_in([example])} - {0}


def made_of(node: ast.AugAssign, read: ast.expr) -> ast.expr:
    """`x + y` for `x += y`."""
    return ast.fix_missing_locations(ast.copy_location(ast.BinOp(read, node.op, node.value), node))


def without_slices(index: ast.expr) -> ast.expr:
    """An index that can be an argument: `1:2` becomes `slice(1, 2, None)`."""
    if isinstance(index, ast.Slice):
        bounds = [one or ast.Constant(None) for one in (index.lower, index.upper, index.step)]
        made: ast.expr = ast.Call(ast.Name("slice", ast.Load()), bounds, [])
    elif isinstance(index, ast.Tuple):
        made = ast.Tuple([without_slices(one) for one in index.elts], ast.Load())
    else:
        return index
    return ast.fix_missing_locations(ast.copy_location(made, index))
