"""Indices of modules, objects, lists of the host and tensors."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.program.codes import is_integer_scalar, literal_range, name
from regraft.splitting.program.possible import possible_constants
from regraft.splitting.program.records import is_namedtuple
from regraft.splitting.program.values import SAME, Value
from regraft.splitting.program.worlds import lengthen
from regraft.splitting.specialising.expressions import MODULE_CONTAINERS, Choice, Expressions


class Indexing(Expressions):
    """Evaluates subscripts."""

    def on_Subscript(self, node: ast.Subscript) -> Value:
        base = self.as_tensor(node, self.evaluate(node.value), "TypeError")
        if base.kind == "record" and is_namedtuple(type(base.example)):
            base = self.as_tuple(base)
        index = self.chosen_indices.get(id(node.slice)) or self.bind_number(
            self.evaluate(node.slice)
        )
        if self.is_stand_in(base.example):
            return self.invoke(
                node, self.special_method(node, base.example, "__getitem__"), [index], {}
            )
        if (
            index.kind == "static"
            and type(index.example) is int
            and self.holds_stand_in(base.example)
        ):
            return self.require_one_type(
                node, ast.unparse(node), self.element(base, range(len(base.example))[index.example])
            )
        code = ast.Subscript(base.code, index.code, ast.Load())
        if (
            isinstance(base.example, (list, tuple, dict))
            and index.kind != "static"
            and index.example is not None
        ):
            elements = base.example.values() if isinstance(base.example, dict) else base.example
            if len({*map(type, elements)}) > 1:
                raise self.refuse(
                    node,
                    "an element of a list whose elements have different types is not supported",
                )
        if base.kind == "static" and isinstance(base.example, MODULE_CONTAINERS):
            if index.kind != "static":
                raise Choice(node.slice, possible_keys(base.example, index))
            return self.static(self.run(node, code).example)
        # such as an output of transformers, which is a tuple, too
        if base.kind == "record" and index.kind == "static":
            element = self.run(node, code).example
            fields = [
                place
                for place in base.fields
                if element is not None and getattr(base.example, place) is element
            ]
            if fields:
                return self.element(base, fields[0])
        if base.kind == "record":
            raise self.refuse(
                node, f"an index of a {type(base.example).__name__} is not supported here"
            )
        if base.kind == "host":
            if index.kind == "tensor":
                raise self.refuse(node, "a container is indexed by a tensor")
            if (
                isinstance(base.code, ast.Tuple)
                and isinstance(index.example, int)
                and index.kind == "static"
            ):
                return self.require_one_type(
                    node, ast.unparse(node), self.element(base, index.example)
                )
            if (
                isinstance(base.code, ast.Tuple)
                and isinstance(index.code, ast.Slice)
                and index.kind == "static"
            ):
                places = self.run(
                    node, ast.Subscript(literal_range(base), index.code, ast.Load())
                ).example
                slice_code = ast.Tuple([base.code.elts[place] for place in places], ast.Load())
                return replace(self.run(node, slice_code), kind="host")
            length, has_open_length = (
                len(base.example),
                type(index.example) is int and id(base.example) in self.ragged,
            )
            if has_open_length and length and not -length <= index.example < length:
                return self.element_like(code, base, base.example[-1])
            return self.index_container(node, code)
        if isinstance(base.example, torch.Tensor):
            index = self.lists_as_arrays(node, index)
            base, index = self.select_by_index(base, index)
            code = ast.Subscript(base.code, index.code, ast.Load())
        return self.result(node, code, [base, index])

    def index_container(self, node: ast.AST, code: ast.expr) -> Value:
        """Return the value of an index into a container of the host."""
        value = self.run(node, code)
        is_tensor = isinstance(value.example, torch.Tensor)
        return self.bind_in_host(value) if is_tensor else replace(value, kind="host")

    def lists_as_arrays(self, node: ast.AST, index: Value) -> Value:
        """Return an index of a tensor with arrays in the place of the host's lists."""
        if (
            index.kind == "host"
            and type(index.example) is list
            and not isinstance(index.code, ast.List)
        ):
            return self.list_as_array(node, index)
        if index.fields and any(type(element) is list for element in index.example):
            return self.make_tuple(
                [self.lists_as_arrays(node, self.element(index, place)) for place in index.fields]
            )
        return index

    def list_as_array(self, node: ast.AST, numbers: Value) -> Value:
        """Return a list of numbers of the host as a tensor of one dimension, open if the length is
        not known."""
        kinds = {type(number) for number in numbers.example}
        if numbers.example and not kinds <= {int} and not kinds <= {bool} and not kinds <= {float}:
            raise self.refuse(
                node, "a list of anything but numbers of one type, as a tensor, is not supported"
            )
        tensor = torch.tensor(numbers.example, dtype=None if kinds else torch.int64)
        dtype_name = ast.Constant(str(tensor.dtype).partition(".")[2])
        code = ast.Call(
            ast.Attribute(name("numpy"), "asarray", ast.Load()), [numbers.code, dtype_name], []
        )
        return self.bind_in_host(
            Value(
                "tensor", tensor, code, SAME if self.has_length(numbers) else lengthen(tensor, [0])
            )
        )

    def select_by_index(self, base: Value, index: Value) -> tuple[Value, Value]:
        """Replace integer tensors in an index, whose values torch would read, by `index_select`,
        which reads none."""
        is_single = not isinstance(index.code, ast.Tuple)
        index_codes = [index.code] if is_single else list(index.code.elts)  # type: ignore[attr-defined]
        examples = [index.example] if is_single or index.example is None else list(index.example)
        if len(index_codes) != len(examples) or not any(
            is_integer_scalar(example) for example in examples
        ):
            return base, index
        adds_dimension = [
            example is None and not isinstance(index_code, ast.Slice)
            for example, index_code in zip(examples, index_codes, strict=True)
        ]
        if any(adds_dimension) or any(example is Ellipsis for example in examples):
            return base, index
        code = base.code
        for dim, example in enumerate(examples):
            if is_integer_scalar(example):
                position = ast.Call(
                    ast.Attribute(index_codes[dim], "reshape", ast.Load()), [ast.Constant(1)], []
                )
                select = ast.Attribute(code, "index_select", ast.Load())
                code, index_codes[dim] = (
                    ast.Call(select, [ast.Constant(dim), position], []),
                    ast.Constant(0),
                )
        remaining_index = index_codes[0] if is_single else ast.Tuple(index_codes, ast.Load())
        return replace(base, code=code), replace(index, code=remaining_index)


def possible_keys(modules: Any, index: Value) -> list[Any]:
    """Return the keys or positions of modules that an index may be."""
    has_keys, constants = isinstance(modules, torch.nn.ModuleDict), possible_constants(index)
    keys = list(modules) if has_keys else list(range(len(modules)))
    if constants is None:
        return keys
    return [
        constant
        for constant in constants
        if constant in keys
        or (not has_keys and type(constant) is int and -len(keys) <= constant < 0)
    ]
