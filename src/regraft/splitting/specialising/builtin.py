"""Functions of Python and torch that the host or several operations evaluate: `max`, `zip`,
`torch.equal` ..."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.program.codes import (
    holds_tensor,
    is_literal,
    is_named_result,
    method_call,
    name,
)
from regraft.splitting.program.normal import mark_uses
from regraft.splitting.program.possible import TRUTHS, possible_constants
from regraft.splitting.program.values import SAME, Value
from regraft.splitting.program.worlds import lengthen
from regraft.splitting.specialising.decisions import Decisions
from regraft.splitting.specialising.expressions import MODULE_CONTAINERS

READING_BUILTINS = frozenset({"int", "float", "bool"})
PURE_BUILTINS = frozenset(
    {
        "int",
        "float",
        "bool",
        "len",
        "range",
        "enumerate",
        "zip",
        "min",
        "max",
        "sum",
        "abs",
        "round",
        "list",
        "tuple",
        "dict",
        "reversed",
        "slice",
        "sorted",
        "isinstance",
        "hasattr",
        "getattr",
        "str",
        "any",
        "all",
        "type",
        "divmod",
    }
)
COMPARISONS = {torch.equal: torch.eq, torch.allclose: torch.isclose}


def is_single_value(value: Value) -> bool:
    """Return whether a value is, or may be, a tensor of one element."""
    return (
        value.kind in ("tensor", "either")
        and isinstance(value.example, torch.Tensor)
        and value.example.numel() == 1
    )


class Builtins(Decisions):
    """Evaluates calls of functions that are known by name."""

    def call_builtin(
        self, node: ast.Call, function_name: str, operands: list[Value], code: ast.Call
    ) -> Value:
        """Evaluate a call of a built-in function of Python; refuse any outside PURE_BUILTINS."""
        if function_name not in PURE_BUILTINS:
            raise self.refuse(node, f"{function_name}() is not supported")
        if function_name == "len" and self.has_length(operands[0]):
            return self.static(len(operands[0].example))
        if function_name == "range":
            operands = [self.slice_bound(node, operand) for operand in operands]
            code = ast.Call(code.func, [operand.code for operand in operands], [])
        tensors = [operand for operand in operands if operand.kind == "tensor"]
        if function_name == "list" and not operands:
            return self.make_list(node, [])
        if function_name in ("list", "tuple") and operands and (tensors or operands[0].fields):
            elements = self.take_elements(node, operands[0])
            return (
                self.make_list(node, elements)
                if function_name == "list"
                else self.make_tuple(elements)
            )
        if function_name in ("max", "min") and (
            tensors or any(operand.kind == "either" for operand in operands)
        ):
            return self.extreme(node, function_name, operands)
        if function_name in ("abs", "round", "pow") and tensors:
            return self.result(node, code, operands)
        if function_name == "reversed" and isinstance(operands[0].example, list):
            return replace(self.run(node, code), kind="host")
        if function_name in ("zip", "enumerate") and any(
            operand.kind != "static" for operand in operands
        ):
            value = self.zip_rows(node, function_name, operands)
            if value is not None:
                return value
        if (
            function_name in ("sum", "max", "min")
            and len(operands) == 1
            and holds_tensor(operands[0].example)
        ):
            return self.reduce_list(node, function_name, operands[0], code)
        if not tensors:
            if function_name in ("max", "min", "sum") and self.has_mixed_types(operands):
                raise self.refuse(
                    node,
                    f"{function_name}() of numbers of several types is not supported: make all"
                    " float",
                )
            if function_name in ("isinstance", "type") and operands[0].kind == "host":
                return self.type_of_number(node, function_name, operands, code)
            value = self.run(node, code)
            is_static = all(operand.kind == "static" for operand in operands)
            among = TRUTHS if function_name in ("bool", "any", "all") else None
            return (
                self.static(value.example, code)
                if is_static
                else replace(value, kind="host", among=among)
            )
        if function_name in READING_BUILTINS and len(operands) == 1:
            if self.is_constant_tensor(tensors[0]):
                return self.static(getattr(builtins, function_name)(tensors[0].example))
            number = method_call(self.bind_result(tensors[0]), "item")
            example, second_example = self.read_in_worlds(
                node, tensors[0], getattr(builtins, function_name)
            )
            among = TRUTHS if function_name == "bool" else None
            return Value(
                "host",
                example,
                ast.Call(name(function_name), [number], []),
                second_example,
                among=among,
            )
        if function_name == "len":
            return self.element(self.shape_of(tensors[0]), 0)
        if function_name == "enumerate" and len(operands) == 1:
            return replace(self.run(node, ast.Call(name("list"), [code], [])), kind="host")
        if function_name in ("isinstance", "hasattr", "type"):
            return self.static(self.run(node, code).example)
        raise self.refuse(node, f"{function_name}() of a tensor is not supported")

    def has_mixed_types(self, operands: list[Value]) -> bool:
        """Return whether data decide the type of the largest, smallest or sum of these numbers."""
        first = operands[0].example
        is_sequence = len(operands) == 1 and isinstance(first, (list, tuple))
        numbers = [*first] if is_sequence else [operand.example for operand in operands]
        kinds = {type(number) for number in numbers}
        are_static = all(operand.kind == "static" for operand in operands)
        return not are_static and kinds <= {bool, int, float} and len(kinds) > 1

    def type_of_number(
        self, node: ast.Call, function_name: str, operands: list[Value], code: ast.Call
    ) -> Value:
        """Evaluate isinstance() or type() of a number of the host: the host tests what the example
        does not say."""
        if operands[0].truth:
            raise self.refuse(
                node,
                "of the value of `and` or `or`, which may be a tensor, only the truth is known",
            )
        kinds = {
            type(constant)
            for constant in possible_constants(operands[0]) or (operands[0].example, 0, 0.0)
        }
        if len(kinds) == 1 or not kinds <= {bool, int, float}:
            return self.static(self.run(node, code).example)
        if function_name == "type" or operands[1].kind != "static":
            raise self.refuse(
                node, "the type of a number that data decide is not known here: ask isinstance()"
            )
        class_info = operands[1].example
        wanted_types = class_info if isinstance(class_info, tuple) else (class_info,)
        if not all(wanted_type in (bool, int, float) for wanted_type in wanted_types):
            raise self.refuse(node, "isinstance() of a number takes int, float and bool only")
        kind = ast.Tuple([name(wanted_type.__name__) for wanted_type in wanted_types], ast.Load())
        value = Value(
            "host", None, ast.Call(name("isinstance"), [operands[0].code, kind], []), among=TRUTHS
        )
        examples = [
            isinstance(example, class_info)
            for example in (operands[0].example, operands[0].second_example)
        ]
        return replace(value, example=examples[0], twin=examples[1])

    def reduce_list(
        self, node: ast.Call, function_name: str, tensors: Value, code: ast.expr
    ) -> Value:
        """Evaluate `sum`, `max` or `min` of tensors in a list of the host."""
        function = getattr(builtins, function_name)
        are_single = all(
            isinstance(tensor, torch.Tensor) and tensor.numel() == 1 for tensor in tensors.example
        )
        if tensors.kind != "host" or not (function_name == "sum" or are_single):
            raise self.refuse(node, f"{function_name}() of what this holds is not supported")
        with torch.no_grad():
            example, second_example = function(tensors.example), function(tensors.second_example)
        return self.bind_in_host(
            Value("tensor", example, code, SAME if tensors.twin is SAME else second_example)
        )

    def take_elements(self, node: ast.AST, value: Value) -> list[Value]:
        """Return the elements of a tuple or tensor one by one; a region's elements get names."""
        if value.kind == "tensor" and (
            type(value.example) is tuple or is_named_result(value.example)
        ):
            return self.take_apart(value)
        elements = self.elements(node, value)
        if elements is None:
            raise self.refuse(node, "a tensor whose length the data decide is taken apart")
        return [self.bind_if_tensor(element) for element in elements]

    def make_list(self, node: ast.AST, values: list[Value]) -> Value:
        """Return a list of values, as the host writes it down."""
        if any(
            value.kind == "record" or (value.kind == "static" and not is_literal(value))
            for value in values
        ):
            raise self.refuse(
                node, "a container of modules or other objects, made in forward, is not supported"
            )
        codes = [
            self.bind_result(value) if value.kind == "tensor" else value.code for value in values
        ]
        return Value(
            "host",
            [value.example for value in values],
            ast.List(codes, ast.Load()),
            [value.second_example for value in values],
        )

    def extreme(self, node: ast.Call, function_name: str, operands: list[Value]) -> Value:
        """Evaluate `max` or `min` of tensors of one element each: the first of the largest or
        smallest."""
        candidates = operands if len(operands) > 1 else self.take_elements(node, operands[0])
        are_single = all(
            type(candidate.example) in (int, float) or is_single_value(candidate)
            for candidate in candidates
        )
        if (
            are_single
            and not node.keywords
            and len(candidates) > 1
            and any(candidate.kind != "tensor" for candidate in candidates)
        ):
            return self.extreme_of_numbers(node, function_name, candidates)
        if (
            node.keywords
            or not are_single
            or len({(candidate.example.dtype, candidate.example.shape) for candidate in candidates})
            > 1
        ):
            raise self.refuse(
                node,
                f"{function_name}() of tensors that are not single values of one type is not"
                " supported",
            )
        where_code = self.alias_global("where", torch.where)
        best = candidates[0]
        for candidate in candidates[1:]:
            sign = ast.Gt() if function_name == "max" else ast.Lt()
            codes = [self.bind_result(candidate), self.bind_result(best)]
            selection = ast.Call(
                where_code, [ast.Compare(codes[0], [sign], [codes[1]]), *codes], []
            )
            best = self.result(node, selection, [candidate, best])
        return self.merge_aliases(best, candidates)  # one of them itself, which `+=` would change

    def extreme_of_numbers(
        self, node: ast.Call, function_name: str, candidates: list[Value]
    ) -> Value:
        """Evaluate `max` or `min` if some may be numbers of Python: a decision, which gives one or
        the other."""
        names = [self.fresh_name() for _ in candidates]
        for key, candidate in zip(names, candidates, strict=True):
            self.store(ast.Name(key, ast.Store()), candidate)
        best: ast.expr = name(names[0])
        for key in names[1:]:
            test = ast.Compare(
                name(key), [ast.Gt() if function_name == "max" else ast.Lt()], [best]
            )
            selection = ast.fix_missing_locations(
                ast.copy_location(ast.IfExp(test, name(key), best), node)
            )
            mark_uses(selection)
            selection.either = True  # type: ignore[attr-defined]
            value, larger = self.evaluate(selection), self.fresh_name()
            self.store(ast.Name(larger, ast.Store()), value)
            best = name(larger)
        return value

    def zip_rows(self, node: ast.Call, function_name: str, operands: list[Value]) -> Value | None:
        """Return `zip` or `enumerate` of sequences of known length as a tuple of tuples; None for
        other operands."""
        keywords = {
            keyword.arg: operands[place - len(node.keywords)]
            for place, keyword in enumerate(node.keywords)
        }
        strict = keywords.pop("strict", None)
        sequences = operands[: len(operands) - len(node.keywords)]
        if function_name == "enumerate" and len(sequences) > 1:
            return None
        element_lists = [self.elements(node, sequence) for sequence in sequences]
        # the host cannot hold modules, so they are taken one by one
        if any(
            sequence.kind == "static" and isinstance(sequence.example, MODULE_CONTAINERS)
            for sequence in sequences
        ):
            pairs = zip(element_lists, sequences, strict=True)
            element_lists = [
                self.elements_of_list(node, sequence) if elements is None else elements
                for elements, sequence in pairs
            ]
        known_lists = [elements for elements in element_lists if elements is not None]
        if (
            keywords
            or len(known_lists) < len(element_lists)
            or (strict is not None and strict.kind != "static")
        ):
            return None
        if function_name == "enumerate":
            known_lists.insert(0, [self.static(place) for place in range(len(known_lists[0]))])
        if (
            strict is not None
            and strict.example
            and len({len(elements) for elements in known_lists}) > 1
        ):
            raise self.refuse(node, "zip() of different lengths with strict=True fails")
        return self.make_tuple(
            [self.make_tuple(list(row)) for row in zip(*known_lists, strict=False)]
        )

    def bind_fresh(self, value: Value) -> Value:
        """Bind a value to a new name, and return it under this name."""
        key = self.fresh_name()
        self.store_name(key, value)
        return self.names[key]

    def elements_of_list(self, node: ast.AST, sequence: Value) -> list[Value] | None:
        """Return the elements of a list of the host, one by one; None if its length is not
        known."""
        if not isinstance(sequence.example, list) or not self.has_length(
            sequence := self.bind_fresh(sequence)
        ):
            return None
        places = map(ast.Constant, range(len(sequence.example)))
        elements = [
            self.index_container(node, ast.Subscript(sequence.code, place, ast.Load()))
            for place in places
        ]
        if self.pending[-1] is not None:
            self.pending[-1].extend(elements)
        return elements

    def call_math(
        self, node: ast.Call, function_name: str, code: ast.Call, operands: list[Value]
    ) -> Value:
        """Let the host call a function of `math`."""
        are_tensors = (
            isinstance(operand.example, torch.Tensor) and operand.example.numel() == 1
            for operand in operands
        )
        numbers = [
            self.read_number(operand) if is_tensor else operand
            for operand, is_tensor in zip(operands, are_tensors, strict=True)
        ]
        if not all(isinstance(number.example, (int, float)) for number in numbers):
            raise self.refuse(
                node, f"math.{function_name} of anything but numbers is not supported"
            )
        codes = [number.code for number in numbers]
        count = len(code.args)
        keywords = [
            ast.keyword(keyword.arg, keyword_code)
            for keyword, keyword_code in zip(code.keywords, codes[count:], strict=True)
        ]
        value = self.run(node, ast.Call(code.func, codes[:count], keywords))
        if not isinstance(value.example, (int, float)):
            raise self.refuse(
                node, f"math.{function_name}, which gives no number, is not supported"
            )
        if "math" in self.variables:
            raise self.refuse(
                node, f"math.{function_name} beside a variable of the name math is not supported"
            )
        function = ast.Attribute(name("math"), function_name, ast.Load())
        code = ast.Call(function, codes[:count], keywords)
        return self.bind_in_host(replace(value, kind="host", code=code, among=None))

    def compare_tensors(
        self, node: ast.Call, function: Any, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """Evaluate `torch.equal` or `torch.allclose` as the truth of an operation on each
        element."""
        examples = [
            example
            for argument in args
            for example in (argument.example, argument.second_example)
            if isinstance(example, torch.Tensor)
        ]
        if len({(example.shape, example.dtype) for example in examples}) > 1 or len(examples) < 4:
            raise self.refuse(
                node,
                f"torch.{function.__name__} of tensors that may differ in shape is not supported",
            )
        compare = COMPARISONS[function]
        codes = (
            [argument.code for argument in args],
            [ast.keyword(keyword, value.code) for keyword, value in keywords.items()],
        )
        equal = ast.Call(self.alias_global(compare.__name__, compare), *codes)
        return self.truth(self.result(node, method_call(equal, "all"), [*args, *keywords.values()]))

    def call_size(
        self, node: ast.Call, base: Value, method_name: str, operands: list[Value]
    ) -> Value:
        """Evaluate `x.size()`, `x.size(dim)` or `x.numel()`."""
        shape = self.shape_of(base)
        if method_name != "size":
            sizes = [self.tuple_elements(shape)] if base.example.ndim else []
            code: ast.expr = ast.Constant(1)
            for factor in (size for part in sizes for size in part or []):
                code = ast.BinOp(code, ast.Mult(), factor)
            value = self.run(node, code)
            return value if shape.kind == "host" else self.static(value.example)
        if not operands:
            return shape
        if operands[0].kind != "static":
            raise self.refuse(node, "size() of a dimension known only at run time is not supported")
        return self.element(shape, operands[0].example)

    def tensor_from_list(
        self, node: ast.AST, args: list[Value], keywords: dict[str, Value]
    ) -> tuple[ast.expr, list[Value]]:
        """Return code and operands for `torch.tensor` of a list of the host: its array, as a tensor
        of the dtype."""
        dtype = args[1] if len(args) > 1 else keywords.get("dtype", self.static(None))
        device = keywords.get("device", self.static("cpu"))
        if (
            dtype.kind != "static"
            or set(keywords) - {"dtype", "device"}
            or str(device.example) != "cpu"
        ):
            raise self.refuse(node, "torch.tensor of a host's list takes a constant dtype only")
        if dtype.example is None and not self.has_length(args[0]):
            are_floats = bool(args[0].example) and all(
                type(number) is float for number in args[0].example
            )
            if not are_floats:  # torch makes floats of an empty list
                raise self.refuse(
                    node, "torch.tensor of a list whose length is not known needs a dtype"
                )
        array = self.list_as_array(node, args[0])
        return (method_call(array.code, "to", dtype.code) if dtype.example else array.code), [array]

    def concatenate_list(
        self, node: ast.AST, function: Any, args: list[Value], keywords: dict[Any, Value]
    ) -> Value:
        """Evaluate `torch.cat` or `torch.stack` of a list whose length only the host knows."""
        dim = args[1] if len(args) > 1 else keywords.get("dim", Value("static", 0, ast.Constant(0)))
        if dim.kind != "static" or set(keywords) - {"dim"}:
            raise self.refuse(node, "torch.cat of a host's list takes a constant dim only")
        code = ast.Call(
            ast.Attribute(
                name("numpy"), "concatenate" if function is torch.cat else "stack", ast.Load()
            ),
            [args[0].code],
            [ast.keyword("axis", dim.code)],
        )
        tensor, twin = (
            function(tensors, dim.example) for tensors in (args[0].example, args[0].second_example)
        )
        axis = dim.example % tensor.ndim
        if id(args[0].example) in self.ragged and twin.shape[axis] == tensor.shape[axis]:
            twin = lengthen(twin, [axis])
        return self.bind_in_host(
            Value("tensor", tensor, code, SAME if twin.shape == tensor.shape else twin)
        )
