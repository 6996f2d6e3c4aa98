"""What Python and torch have built in, done by the host or by several operations: `max`, `zip`, `torch.equal` ..."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.codes import holds_tensor, is_named_result, method_call, name, plain
from regraft.splitting.decisions import Decisions
from regraft.splitting.expressions import MODULES
from regraft.splitting.normal import mark
from regraft.splitting.possible import TRUTHS, possible
from regraft.splitting.values import SAME, Value
from regraft.splitting.worlds import longer

READING_BUILTINS = frozenset({"int", "float", "bool"})
PURE_BUILTINS = frozenset(
    {"int", "float", "bool", "len", "range", "enumerate", "zip", "min", "max", "sum", "abs", "round", "list", "tuple",
     "dict", "reversed", "slice", "sorted", "isinstance", "hasattr", "getattr", "str", "any", "all", "type",
     "divmod"}
)  # fmt: skip
COMPARISONS = {torch.equal: torch.eq, torch.allclose: torch.isclose}


def is_one(value: Value) -> bool:
    """Whether it is a tensor of one value."""
    return (
        value.kind in ("tensor", "either") and isinstance(value.example, torch.Tensor) and value.example.numel() == 1
    )


class Builtins(Decisions):
    """Evaluates calls of functions that are known by name."""

    def builtin(self, node: ast.Call, called: str, operands: list[Value], code: ast.Call) -> Value:
        if called not in PURE_BUILTINS:
            raise self.refuse(node, f"{called}() is not supported")
        if called == "len" and self.has_length(operands[0]):
            return self.static(len(operands[0].example))
        if called == "range":
            operands = [self.bound(node, one) for one in operands]
            code = ast.Call(code.func, [one.code for one in operands], [])
        tensors = [one for one in operands if one.kind == "tensor"]
        if called == "list" and not operands:
            return self.listed(node, [])
        if called in ("list", "tuple") and operands and (tensors or operands[0].fields):
            items = self.items(node, operands[0])
            return self.listed(node, items) if called == "list" else self.together(items)
        if called in ("max", "min") and (tensors or any(one.kind == "either" for one in operands)):
            return self.extreme(node, called, operands)
        if called in ("abs", "round", "pow") and tensors:
            return self.result(node, code, operands)
        if called == "reversed" and isinstance(operands[0].example, list):
            return replace(self.run(node, code), kind="host")
        if called in ("zip", "enumerate") and any(one.kind != "static" for one in operands):
            value = self.rows(node, called, operands)
            if value is not None:
                return value
        if called in ("sum", "max", "min") and len(operands) == 1 and holds_tensor(operands[0].example):
            return self.of_list(node, called, operands[0], code)
        if not tensors:
            if called in ("max", "min", "sum") and self.of_several_types(operands):
                raise self.refuse(node, f"{called}() of numbers of several types is not supported: make all float")
            if called in ("isinstance", "type") and operands[0].kind == "host":
                return self.type_of_number(node, called, operands, code)
            value = self.run(node, code)
            known = all(one.kind == "static" for one in operands)
            among = TRUTHS if called in ("bool", "any", "all") else None
            return self.static(value.example, code) if known else replace(value, kind="host", among=among)
        if called in READING_BUILTINS and len(operands) == 1:
            if self.is_known(tensors[0]):
                return self.static(getattr(builtins, called)(tensors[0].example))
            held = method_call(self.held(tensors[0]), "item")
            example, other = self.read(node, tensors[0], getattr(builtins, called))
            among = TRUTHS if called == "bool" else None
            return Value("host", example, ast.Call(name(called), [held], []), other, among=among)
        if called == "len":
            return self.element(self.shape(tensors[0]), 0)
        if called == "enumerate" and len(operands) == 1:
            return replace(self.run(node, ast.Call(name("list"), [code], [])), kind="host")
        if called in ("isinstance", "hasattr", "type"):
            return self.static(self.run(node, code).example)
        raise self.refuse(node, f"{called}() of a tensor is not supported")

    def of_several_types(self, operands: list[Value]) -> bool:
        """Whether data decide of which type the largest, smallest or sum of these numbers is."""
        first = operands[0].example
        of_one = len(operands) == 1 and isinstance(first, (list, tuple))
        several = [*first] if of_one else [one.example for one in operands]
        kinds = {type(one) for one in several}
        known = all(one.kind == "static" for one in operands)
        return not known and kinds <= {bool, int, float} and len(kinds) > 1

    def type_of_number(self, node: ast.Call, called: str, operands: list[Value], code: ast.Call) -> Value:
        """What a number of the host is an instance of, which its example does not say: the host asks."""
        if operands[0].truth:
            raise self.refuse(node, "of the value of `and` or `or`, which may be a tensor, only the truth is known")
        kinds = {type(one) for one in possible(operands[0]) or (operands[0].example, 0, 0.0)}
        if len(kinds) == 1 or not kinds <= {bool, int, float}:
            return self.static(self.run(node, code).example)
        if called == "type" or operands[1].kind != "static":
            raise self.refuse(node, "the type of a number that data decide is not known here: ask isinstance()")
        wanted = operands[1].example
        several = wanted if isinstance(wanted, tuple) else (wanted,)
        if not all(one in (bool, int, float) for one in several):
            raise self.refuse(node, "isinstance() of a number takes int, float and bool only")
        kind = ast.Tuple([name(one.__name__) for one in several], ast.Load())
        value = Value("host", None, ast.Call(name("isinstance"), [operands[0].code, kind], []), among=TRUTHS)
        examples = [isinstance(one, wanted) for one in (operands[0].example, operands[0].other)]
        return replace(value, example=examples[0], twin=examples[1])

    def of_list(self, node: ast.Call, called: str, several: Value, code: ast.expr) -> Value:
        """`sum`, `max` or `min` of tensors in a list of the host."""
        function = getattr(builtins, called)
        single = all(isinstance(one, torch.Tensor) and one.numel() == 1 for one in several.example)
        if several.kind != "host" or not (called == "sum" or single):
            raise self.refuse(node, f"{called}() of what this holds is not supported")
        with torch.no_grad():
            example, other = function(several.example), function(several.other)
        return self.held_by_host(Value("tensor", example, code, SAME if several.twin is SAME else other))

    def items(self, node: ast.AST, value: Value) -> list[Value]:
        """What a region's tuple or tensor gives one by one."""
        if value.kind == "tensor" and (type(value.example) is tuple or is_named_result(value.example)):
            return self.taken_apart(value)
        found = self.elements(node, value)
        if found is None:
            raise self.refuse(node, "a tensor whose length the data decide is taken apart")
        return [self.kept(one) for one in found]

    def listed(self, node: ast.AST, values: list[Value]) -> Value:
        """A list of values, as the host writes it down."""
        if any(one.kind == "record" or (one.kind == "static" and not plain(one)) for one in values):
            raise self.refuse(node, "a container of modules or other objects, made in forward, is not supported")
        codes = [self.held(one) if one.kind == "tensor" else one.code for one in values]
        return Value("host", [one.example for one in values], ast.List(codes, ast.Load()),
                     [one.other for one in values])  # fmt: skip

    def extreme(self, node: ast.Call, called: str, operands: list[Value]) -> Value:
        """`max` or `min` of tensors of one value each: the first of the largest or smallest."""
        several = operands if len(operands) > 1 else self.items(node, operands[0])
        single = all(type(one.example) in (int, float) or is_one(one) for one in several)
        if single and not node.keywords and len(several) > 1 and any(one.kind != "tensor" for one in several):
            return self.extreme_of_numbers(node, called, several)
        if node.keywords or not single or len({(one.example.dtype, one.example.shape) for one in several}) > 1:
            raise self.refuse(node, f"{called}() of tensors that are not single values of one type is not supported")
        where = self.aliased("where", torch.where)
        best = several[0]
        for one in several[1:]:
            sign = ast.Gt() if called == "max" else ast.Lt()
            codes = [self.held(one), self.held(best)]
            chosen = ast.Call(where, [ast.Compare(codes[0], [sign], [codes[1]]), *codes], [])
            best = self.result(node, chosen, [one, best])
        return self.one_of(best, several)  # one of them itself, which `+=` would change

    def extreme_of_numbers(self, node: ast.Call, called: str, several: list[Value]) -> Value:
        """The same where some are, or may be, numbers of Python: a decision, which gives one or the other."""
        names = [self.fresh() for _ in several]
        for key, one in zip(names, several, strict=True):
            self.store(ast.Name(key, ast.Store()), one)
        best: ast.expr = name(names[0])
        for key in names[1:]:
            test = ast.Compare(name(key), [ast.Gt() if called == "max" else ast.Lt()], [best])
            chosen = ast.fix_missing_locations(ast.copy_location(ast.IfExp(test, name(key), best), node))
            mark(chosen)
            chosen.either = True  # type: ignore[attr-defined]
            value, larger = self.evaluate(chosen), self.fresh()
            self.store(ast.Name(larger, ast.Store()), value)
            best = name(larger)
        return value

    def rows(self, node: ast.Call, called: str, operands: list[Value]) -> Value | None:
        """`zip` or `enumerate` of what has a known length, as a tuple of tuples."""
        words = {one.arg: operands[place - len(node.keywords)] for place, one in enumerate(node.keywords)}
        strict = words.pop("strict", None)
        given = operands[: len(operands) - len(node.keywords)]
        if called == "enumerate" and len(given) > 1:
            return None
        several = [self.elements(node, one) for one in given]
        if any(one.kind == "static" and isinstance(one.example, MODULES) for one in given):  # no host can hold these
            pairs = zip(several, given, strict=True)
            several = [self.elements_of_list(node, one) if found is None else found for found, one in pairs]
        known = [one for one in several if one is not None]
        if words or len(known) < len(several) or (strict is not None and strict.kind != "static"):
            return None
        if called == "enumerate":
            known.insert(0, [self.static(place) for place in range(len(known[0]))])
        if strict is not None and strict.example and len({len(one) for one in known}) > 1:
            raise self.refuse(node, "zip() of different lengths with strict=True fails")
        return self.together([self.together(list(row)) for row in zip(*known, strict=False)])

    def under_a_name(self, value: Value) -> Value:
        key = self.fresh()
        self.store_name(key, value)
        return self.names[key]

    def elements_of_list(self, node: ast.AST, several: Value) -> list[Value] | None:
        """The elements of a list of the host, one by one, where its length is known."""
        if not isinstance(several.example, list) or not self.has_length(several := self.under_a_name(several)):
            return None
        places = map(ast.Constant, range(len(several.example)))
        found = [self.taken_from(node, ast.Subscript(several.code, one, ast.Load())) for one in places]
        if self.pending[-1] is not None:
            self.pending[-1].extend(found)
        return found

    def of_numbers(self, node: ast.Call, called: str, code: ast.Call, operands: list[Value]) -> Value:
        """A function of `math`, which the host calls."""
        single = (isinstance(one.example, torch.Tensor) and one.example.numel() == 1 for one in operands)
        read = [self.number(one) if of else one for one, of in zip(operands, single, strict=True)]
        if not all(isinstance(one.example, (int, float)) for one in read):
            raise self.refuse(node, f"math.{called} of anything but numbers is not supported")
        codes = [one.code for one in read]
        count = len(code.args)
        words = [ast.keyword(one.arg, of) for one, of in zip(code.keywords, codes[count:], strict=True)]
        value = self.run(node, ast.Call(code.func, codes[:count], words))
        if not isinstance(value.example, (int, float)):
            raise self.refuse(node, f"math.{called}, which gives no number, is not supported")
        if "math" in self.variables:
            raise self.refuse(node, f"math.{called} beside a variable of the name math is not supported")
        function = ast.Attribute(name("math"), called, ast.Load())
        code = ast.Call(function, codes[:count], words)
        return self.held_by_host(replace(value, kind="host", code=code, among=None))

    def compared(self, node: ast.Call, function: Any, args: list[Value], words: dict[str, Value]) -> Value:
        """`torch.equal` and `torch.allclose`: the truth of an operation that compares element by element."""
        examples = [one for each in args for one in (each.example, each.other) if isinstance(one, torch.Tensor)]
        if len({(one.shape, one.dtype) for one in examples}) > 1 or len(examples) < 4:
            raise self.refuse(node, f"torch.{function.__name__} of tensors that may differ in shape is not supported")
        compare = COMPARISONS[function]
        codes = [one.code for one in args], [ast.keyword(word, one.code) for word, one in words.items()]
        equal = ast.Call(self.aliased(compare.__name__, compare), *codes)
        return self.truth(self.result(node, method_call(equal, "all"), [*args, *words.values()]))

    def size(self, node: ast.Call, base: Value, called: str, operands: list[Value]) -> Value:
        """`x.size()`, `x.size(dim)` and `x.numel()`."""
        shape = self.shape(base)
        if called != "size":
            sizes = [self.tuple_of(shape)] if base.example.ndim else []
            code: ast.expr = ast.Constant(1)
            for one in (size for part in sizes for size in part or []):
                code = ast.BinOp(code, ast.Mult(), one)
            value = self.run(node, code)
            return value if shape.kind == "host" else self.static(value.example)
        if not operands:
            return shape
        if operands[0].kind != "static":
            raise self.refuse(node, "size() of a dimension known only at run time is not supported")
        return self.element(shape, operands[0].example)

    def tensor_of(self, node: ast.AST, args: list[Value], words: dict[str, Value]) -> tuple[ast.expr, list[Value]]:
        """`torch.tensor` of a list whose length only the host knows: its array, as a tensor of the type asked for."""
        kind = args[1] if len(args) > 1 else words.get("dtype", self.static(None))
        place = words.get("device", self.static("cpu"))
        if kind.kind != "static" or set(words) - {"dtype", "device"} or str(place.example) != "cpu":
            raise self.refuse(node, "torch.tensor of a host's list takes a constant dtype only")
        if kind.example is None and not self.has_length(args[0]):
            floats = bool(args[0].example) and all(type(one) is float for one in args[0].example)
            if not floats:  # of no numbers torch makes floats
                raise self.refuse(node, "torch.tensor of a list whose length is not known needs a dtype")
        array = self.array(node, args[0])
        return (method_call(array.code, "to", kind.code) if kind.example else array.code), [array]

    def joined(self, node: ast.AST, function: Any, args: list[Value], words: dict[Any, Value]) -> Value:
        """`torch.cat` and `torch.stack` of a list whose length only the host knows."""
        dim = args[1] if len(args) > 1 else words.get("dim", Value("static", 0, ast.Constant(0)))
        if dim.kind != "static" or set(words) - {"dim"}:
            raise self.refuse(node, "torch.cat of a host's list takes a constant dim only")
        code = ast.Call(
            ast.Attribute(name("numpy"), "concatenate" if function is torch.cat else "stack", ast.Load()),
            [args[0].code], [ast.keyword("axis", dim.code)],
        )  # fmt: skip
        made, twin = (function(one, dim.example) for one in (args[0].example, args[0].other))
        place = dim.example % made.ndim
        if id(args[0].example) in self.ragged and twin.shape[place] == made.shape[place]:
            twin = longer(twin, [place])
        return self.held_by_host(Value("tensor", made, code, SAME if twin.shape == made.shape else twin))
