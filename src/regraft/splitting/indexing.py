"""Indices: of modules, objects, lists of the host and tensors."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.codes import is_number_tensor, literal_range, name
from regraft.splitting.expressions import MODULES, Choice, Expressions
from regraft.splitting.possible import possible
from regraft.splitting.records import is_namedtuple
from regraft.splitting.values import SAME, Value
from regraft.splitting.worlds import longer


class Indexing(Expressions):
    """Evaluates subscripts."""

    def on_Subscript(self, node: ast.Subscript) -> Value:
        base = self.as_tensor(node, self.evaluate(node.value), "TypeError")
        if base.kind == "record" and is_namedtuple(type(base.example)):
            base = self.as_tuple(base)
        index = self.chosen.get(id(node.slice)) or self.number_name(self.evaluate(node.slice))
        if self.is_made(base.example):
            return self.invoke(node, self.special(node, base.example, "__getitem__"), [index], {})
        if index.kind == "static" and type(index.example) is int and self.holds_made(base.example):
            return self.whole(node, ast.unparse(node), self.element(base, range(len(base.example))[index.example]))
        code = ast.Subscript(base.code, index.code, ast.Load())
        if isinstance(base.example, (list, tuple, dict)) and index.kind != "static" and index.example is not None:
            several = base.example.values() if isinstance(base.example, dict) else base.example
            if len({*map(type, several)}) > 1:
                raise self.refuse(node, "an element of a list whose elements have different types is not supported")
        if base.kind == "static" and isinstance(base.example, MODULES):
            if index.kind != "static":
                raise Choice(node.slice, chosen_from(base.example, index))
            return self.static(self.run(node, code).example)
        if (
            base.kind == "record" and index.kind == "static"
        ):  # such as an output of transformers, which is a tuple, too
            found = self.run(node, code).example
            same = [place for place in base.fields if found is not None and getattr(base.example, place) is found]
            if same:
                return self.element(base, same[0])
        if base.kind == "record":
            raise self.refuse(node, f"an index of a {type(base.example).__name__} is not supported here")
        if base.kind == "host":
            if index.kind == "tensor":
                raise self.refuse(node, "a container is indexed by a tensor")
            if isinstance(base.code, ast.Tuple) and isinstance(index.example, int) and index.kind == "static":
                return self.whole(node, ast.unparse(node), self.element(base, index.example))
            if isinstance(base.code, ast.Tuple) and isinstance(index.code, ast.Slice) and index.kind == "static":
                places = self.run(node, ast.Subscript(literal_range(base), index.code, ast.Load())).example
                made = ast.Tuple([base.code.elts[place] for place in places], ast.Load())
                return replace(self.run(node, made), kind="host")
            length, asks = len(base.example), type(index.example) is int and id(base.example) in self.ragged
            if asks and length and not -length <= index.example < length:
                return self.one_like(code, base, base.example[-1])
            return self.taken_from(node, code)
        if isinstance(base.example, torch.Tensor):
            index = self.with_arrays(node, index)
            base, index = self.picked(base, index)
            code = ast.Subscript(base.code, index.code, ast.Load())
        return self.result(node, code, [base, index])

    def taken_from(self, node: ast.AST, code: ast.expr) -> Value:
        """What an index into a container of the host gives."""
        value = self.run(node, code)
        tensor = isinstance(value.example, torch.Tensor)
        return self.held_by_host(value) if tensor else replace(value, kind="host")

    def with_arrays(self, node: ast.AST, index: Value) -> Value:
        """An index of a tensor, with arrays in the place of the host's lists."""
        if index.kind == "host" and type(index.example) is list and not isinstance(index.code, ast.List):
            return self.array(node, index)
        if index.fields and any(type(one) is list for one in index.example):
            return self.together([self.with_arrays(node, self.element(index, place)) for place in index.fields])
        return index

    def array(self, node: ast.AST, several: Value) -> Value:
        """A list of numbers of the host as a tensor of one dimension, whose size is open."""
        kinds = {type(one) for one in several.example}
        if several.example and not kinds <= {int} and not kinds <= {bool} and not kinds <= {float}:
            raise self.refuse(node, "a list of anything but numbers of one type, as a tensor, is not supported")
        made = torch.tensor(several.example, dtype=None if kinds else torch.int64)
        kind = ast.Constant(str(made.dtype).partition(".")[2])
        code = ast.Call(ast.Attribute(name("numpy"), "asarray", ast.Load()), [several.code, kind], [])
        return self.held_by_host(Value("tensor", made, code, SAME if self.has_length(several) else longer(made, [0])))

    def picked(self, base: Value, index: Value) -> tuple[Value, Value]:
        """`x[i]` with a whole number i in a tensor reads its value in torch; index_select does not."""
        single = not isinstance(index.code, ast.Tuple)
        items = [index.code] if single else list(index.code.elts)  # type: ignore[attr-defined]
        examples = [index.example] if single or index.example is None else list(index.example)
        if len(items) != len(examples) or not any(is_number_tensor(one) for one in examples):
            return base, index
        new = [one is None and not isinstance(item, ast.Slice) for one, item in zip(examples, items, strict=True)]
        if any(new) or any(one is Ellipsis for one in examples):
            return base, index
        code = base.code
        for dim, example in enumerate(examples):
            if is_number_tensor(example):
                place = ast.Call(ast.Attribute(items[dim], "reshape", ast.Load()), [ast.Constant(1)], [])
                select = ast.Attribute(code, "index_select", ast.Load())
                code, items[dim] = ast.Call(select, [ast.Constant(dim), place], []), ast.Constant(0)
        picked = items[0] if single else ast.Tuple(items, ast.Load())
        return replace(base, code=code), replace(index, code=picked)


def chosen_from(modules: Any, index: Value) -> list[Any]:
    """The keys or places that an index may be."""
    named, among = isinstance(modules, torch.nn.ModuleDict), possible(index)
    keys = list(modules) if named else list(range(len(modules)))
    if among is None:
        return keys
    return [one for one in among if one in keys or (not named and type(one) is int and -len(keys) <= one < 0)]
