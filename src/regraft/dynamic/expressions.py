"""Expressions: what is known is computed, a tensor becomes a region's statement, the rest stays in the host."""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from regraft.dynamic.errors import Unsplittable, refuse
from regraft.dynamic.normal import comprehension
from regraft.dynamic.probe import Observed, observe
from regraft.dynamic.residual import Branch, HostStep, Step, TensorStep, reads
from regraft.dynamic.values import SAME, Names, Value, fork, literal, open_sizes
from regraft.dynamic.worlds import Longer

SHAPE_ATTRIBUTES = frozenset({"ndim", "dtype", "device"})
MODULES = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
VIEW_ATTRIBUTES = frozenset({"T", "mT", "real", "imag"})


def name(identifier: str) -> ast.expr:
    return ast.Name(identifier, ast.Load())


def assign(target: str, value: ast.expr) -> ast.stmt:
    return ast.fix_missing_locations(ast.Assign([ast.Name(target, ast.Store())], value, lineno=1))


class Choice(Exception):
    """A module is chosen by a value of the host: the statement is specialised once for each module."""

    def __init__(self, index: ast.expr, keys: list[Any]) -> None:
        super().__init__()
        self.index, self.keys = index, keys


class Frame:
    """One function being specialised: where it is, its globals, its prefix for names, what `self` is."""

    def __init__(self, path: str, scope: dict[str, Any], prefix: str) -> None:
        self.path, self.scope, self.prefix = path, scope, prefix
        self.line = 0  # of the statement that is specialised


class Expressions(ABC):
    """Evaluates expressions on the example and writes down what is left of them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.paths = {id(module): path for path, module in model.named_modules(remove_duplicate=False)}
        self.globals: dict[str, Any] = {}
        self.names: Names = {}
        self.frame = Frame("", {}, "")
        self.steps: list[Step] = []
        self.count = 0
        self.own: set[str] = set()  # names that no statement of the source reads again
        self.inputs: list[torch.Tensor] = []
        self.chosen: dict[int, Value] = {}  # the indices of modules that a side of a choice stands for
        self.constants: set[str] = set()  # names of tensors that no input decides
        self.varying: set[str] = set()  # names that a loop assigns whose length is not known
        self.reserved: set[str] = set()  # names that forward uses itself
        self.open: dict[str, set[int]] = {}  # dimensions whose size is open, of the tensors that a name ever holds

    def refuse(self, node: ast.AST, reason: str) -> Unsplittable:
        return refuse(self.frame.path, node, reason)

    @property
    def place(self) -> tuple[str, int]:
        return self.frame.path, self.frame.line

    def fresh(self) -> str:
        self.count += 1
        if f"t{self.count}" in self.reserved:
            return self.fresh()
        self.own.add(f"t{self.count}")
        return f"t{self.count}"

    def static(self, example: Any, code: ast.expr | None = None) -> Value:
        if code is None or literal(example) is not None:
            code = literal(example)
        return Value("static", example, code or self.aliased(type(example).__name__, example))

    def aliased(self, wanted: str, value: Any) -> ast.expr:
        """A name for something that regions need from outside, one for each object."""
        if isinstance(value, torch.nn.Module) and id(value) in self.paths:
            return ast.parse(access(self.paths[id(value)]), mode="eval").body
        wanted = f"g_{wanted}"
        while self.globals.get(wanted, value) is not value:
            wanted += "_"
        self.globals[wanted] = value
        return name(wanted)

    def watched(self) -> Iterator[torch.Tensor]:
        yield from self.model.parameters()
        yield from self.model.buffers()
        yield from (v.example for v in self.names.values() if isinstance(v.example, torch.Tensor))

    def hold(self, key: str, value: Value) -> Value:
        """Let a name hold a value."""
        if isinstance(value.example, torch.Tensor) and value.twin is not SAME:
            self.open.setdefault(key, set()).update(open_sizes(value))
        constant = value.kind == "tensor" and key not in self.varying and all(map(self.is_constant, reads(value.code)))
        (self.constants.add if constant else self.constants.discard)(key)
        self.names[key] = value.named(key)
        return self.names[key]

    def is_constant(self, key: str) -> bool:
        if key in self.names:
            return self.names[key].kind == "static" or key in self.constants
        return key == "self" or key in self.globals

    def known(self) -> list[torch.Tensor]:
        """Tensors that hold the same for every input."""
        return list(tensors_in([self.names[key].example for key in self.constants if key in self.names]))

    def run(self, node: ast.AST, code: ast.expr) -> Value:
        """Residual code run on the example, and in the second world where that differs."""
        seen = self.world(node, code, False)
        used = [self.names[key] for key in reads(code) if key in self.names]
        twin = SAME
        if seen.shapes or any(one.twin is not SAME for one in used) or isinstance(seen.result, (list, dict)):
            twin = self.world(node, code, True).result
        return Value("tensor" if holds_tensor(seen.result) else "host", seen.result, code, twin)

    def world(self, node: ast.AST, code: ast.expr, second: bool) -> Observed:
        """Residual code run in one world; refuses what no static region can do."""
        scope = {**self.globals, "self": self.model}
        scope.update((key, value.other if second else value.example) for key, value in self.names.items())
        compiled = compile(ast.fix_missing_locations(ast.Expression(code)), self.frame.path, "eval")
        try:
            with Longer() if second else contextlib.nullcontext():
                seen = observe(lambda: eval(compiled, scope), self.watched(), self.known())
        except Exception as problem:
            what = "cannot be run with other sizes" if second else "cannot be run on the example"
            raise self.refuse(node, f"{what}: {type(problem).__name__}: {problem}") from problem
        if seen.random:
            raise self.refuse(node, "random numbers are drawn here; every run of the network would differ")
        if seen.changed:
            raise self.refuse(node, "a tensor that is used elsewhere is changed in place")
        if seen.reads and holds_tensor(seen.result):
            raise self.refuse(node, "a value of a tensor is read inside a call that cannot be followed")
        return seen

    # -- expressions

    def evaluate(self, node: ast.expr) -> Value:
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is not None:
            return method(node)  # type: ignore[no-any-return]
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Slice, ast.Tuple, ast.List, ast.Dict)):
            return self.composed(node)
        raise self.refuse(node, f"{type(node).__name__} is not supported")

    def on_Constant(self, node: ast.Constant) -> Value:
        return Value("static", node.value, node)

    def on_Name(self, node: ast.Name) -> Value:
        local = self.frame.prefix + node.id
        if local in self.names:
            found = self.names[local]
            if found.kind == "lost":
                raise self.refuse(node, f"{node.id} has different types or shapes on the paths that lead here")
            return found
        if node.id in self.frame.scope:
            return self.static(self.frame.scope[node.id], self.aliased(node.id, self.frame.scope[node.id]))
        if hasattr(builtins, node.id):
            return Value("static", getattr(builtins, node.id), name(node.id))
        raise self.refuse(node, f"{node.id} is not defined on this path")

    def on_Attribute(self, node: ast.Attribute) -> Value:
        base = self.evaluate(node.value)
        if base.kind == "tensor":
            if node.attr == "shape":
                return self.shape(base)
            if node.attr in SHAPE_ATTRIBUTES:
                return self.static(getattr(base.example, node.attr))
            if node.attr in VIEW_ATTRIBUTES or not isinstance(base.example, torch.Tensor):
                return self.result(node, ast.Attribute(base.code, node.attr, ast.Load()), [base])
            raise self.refuse(node, f"the attribute {node.attr} of a tensor is not supported")
        if base.kind == "record":
            if node.attr in base.fields:
                return self.element(base, node.attr)
            raise self.refuse(node, f"{type(base.example).__name__} has no field {node.attr} that is known here")
        if base.kind == "host":
            raise self.refuse(node, f"the attribute {node.attr} of a value known only at run time is not supported")
        try:
            value = getattr(base.example, node.attr)
        except AttributeError as problem:
            raise self.refuse(node, str(problem)) from problem
        return self.static(value, ast.Attribute(base.code, node.attr, ast.Load()))

    def shape(self, base: Value) -> Value:
        """The shape of a tensor, element by element: constants, and sizes that the region or the host looks up."""
        if base.twin is SAME or base.example.shape == base.other.shape:
            return self.static(tuple(base.example.shape))
        of = ast.Attribute(self.held(base), "shape", ast.Load())
        sizes = enumerate(zip(base.example.shape, base.other.shape, strict=True))
        elements: list[ast.expr] = [
            ast.Constant(one) if one == two else ast.Subscript(of, ast.Constant(dim), ast.Load())
            for dim, (one, two) in sizes
        ]
        code = ast.Tuple(elements, ast.Load())
        return Value("host", tuple(base.example.shape), code, tuple(base.other.shape))

    def element(self, value: Value, place: Any) -> Value:
        """One element of a tuple written in place, or one field of a record."""
        code = [*value.fields.values()][place] if isinstance(place, int) else value.fields[place]
        if isinstance(code, ast.Constant):
            return self.static(code.value)
        if isinstance(code, ast.Name) and code.id in self.names:
            return self.names[code.id]
        if isinstance(code, ast.Name) and code.id in self.globals:
            return self.static(self.globals[code.id])
        example, twin = (
            one[place] if isinstance(place, int) else getattr(one, place) for one in (value.example, value.other)
        )
        kind = "tensor" if isinstance(example, torch.Tensor) else "host"
        return Value(kind, example, code, SAME if value.twin is SAME else twin)

    def composed(self, node: ast.expr) -> Value:
        """An operator or a display: its kind is the strongest kind of its operands."""
        made = copy.copy(node)
        operands: list[Value] = []
        display = isinstance(node, (ast.List, ast.Dict, ast.Tuple))

        def child(part: ast.expr) -> ast.expr:
            operands.append(self.evaluate(part))
            return self.held(operands[-1]) if display and operands[-1].kind == "tensor" else operands[-1].code

        for field, part in ast.iter_fields(node):
            if isinstance(part, ast.expr):
                setattr(made, field, child(part))
            elif isinstance(part, list):
                setattr(made, field, [child(one) if isinstance(one, ast.expr) else one for one in part])
        if display and (not isinstance(node, ast.Tuple) or any(one.kind != "static" for one in operands)):
            if any(one.kind == "static" and not plain(one) for one in operands) and not isinstance(node, ast.Tuple):
                raise self.refuse(node, "a container of modules or other objects, made in forward, is not supported")
            if isinstance(node, ast.Dict):
                return replace(self.run(node, made), kind="host")
            make = tuple if isinstance(node, ast.Tuple) else list
            same = isinstance(node, ast.Tuple) and all(one.twin is SAME for one in operands)
            twin = SAME if same else make(one.other for one in operands)
            return Value("host", make(one.example for one in operands), made, twin)
        if isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            return self.static(self.run(node, made).example)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            tuples = [self.tuple_of(one) for one in operands]
            if tuples[0] is not None and tuples[1] is not None and any(one.kind == "host" for one in operands):
                made = ast.Tuple([*tuples[0], *tuples[1]], ast.Load())
                return replace(self.run(node, made), kind="host")
        if isinstance(node, ast.Slice):
            kind = "host" if any(one.kind == "host" for one in operands) else "static"
            if any(one.kind == "tensor" for one in operands):
                raise self.refuse(node, "a slice with a tensor as its bound is not supported")
            return Value(kind, None, made)
        return self.result(node, made, operands)

    def on_JoinedStr(self, node: ast.JoinedStr) -> Value:
        parts: list[ast.expr] = []
        known = True
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.evaluate(part.value)
                if value.kind == "tensor":
                    value = self.number(value)
                known = known and value.kind == "static"
                parts.append(ast.FormattedValue(value.code, part.conversion, part.format_spec))
            else:
                parts.append(part)
        value = self.run(node, ast.JoinedStr(parts))
        return self.static(value.example) if known else value

    def number(self, value: Value) -> Value:
        """A tensor of one element as the host's number."""
        code = method_call(self.held(value), "item")
        return Value("host", value.example.item(), code, SAME if value.twin is SAME else value.other.item())

    def tuple_of(self, value: Value) -> list[ast.expr] | None:
        """The elements of a tuple as expressions, where they are known one by one."""
        if not isinstance(value.example, tuple):
            return None
        if isinstance(value.code, ast.Tuple):
            return list(value.code.elts)
        items = [literal(one) for one in value.example] if value.kind == "static" else [None]
        return None if any(one is None for one in items) else [one for one in items if one is not None]

    def on_Subscript(self, node: ast.Subscript) -> Value:
        base = self.evaluate(node.value)
        index = self.chosen.get(id(node.slice)) or self.evaluate(node.slice)
        code = ast.Subscript(base.code, index.code, ast.Load())
        if base.kind == "static" and isinstance(base.example, MODULES):
            if index.kind != "static":
                of = base.example
                raise Choice(node.slice, list(of) if isinstance(of, torch.nn.ModuleDict) else list(range(len(of))))
            return self.static(self.run(node, code).example)
        if base.kind == "host":
            if index.kind == "tensor":
                raise self.refuse(node, "a container is indexed by a tensor")
            if isinstance(base.code, ast.Tuple) and isinstance(index.example, int) and index.kind == "static":
                return self.element(base, index.example)
            if isinstance(base.code, ast.Tuple) and isinstance(index.code, ast.Slice) and index.kind == "static":
                places = self.run(node, ast.Subscript(literal_range(base), index.code, ast.Load())).example
                made = ast.Tuple([base.code.elts[place] for place in places], ast.Load())
                return replace(self.run(node, made), kind="host")
            value = self.run(node, code)
            return self.held_by_host(value) if value.kind == "tensor" else value
        if isinstance(base.example, torch.Tensor):
            base, index = self.picked(base, index)
            code = ast.Subscript(base.code, index.code, ast.Load())
        return self.result(node, code, [base, index])

    def picked(self, base: Value, index: Value) -> tuple[Value, Value]:
        """`x[i]` with a whole number i in a tensor reads its value in torch; index_select does not."""
        single = not isinstance(index.code, ast.Tuple)
        items = [index.code] if single else list(index.code.elts)  # type: ignore[attr-defined]
        examples = [index.example] if single or index.example is None else list(index.example)
        if len(items) != len(examples) or not any(is_number_tensor(one) for one in examples):
            return base, index
        if any(one is None or one is Ellipsis for one in examples):
            return base, index
        code = base.code
        for dim, example in enumerate(examples):
            if is_number_tensor(example):
                place = ast.Call(ast.Attribute(items[dim], "reshape", ast.Load()), [ast.Constant(1)], [])
                select = ast.Attribute(code, "index_select", ast.Load())
                code, items[dim] = ast.Call(select, [ast.Constant(dim), place], []), ast.Constant(0)
        picked = items[0] if single else ast.Tuple(items, ast.Load())
        return replace(base, code=code), replace(index, code=picked)

    def result(self, node: ast.expr, code: ast.expr, operands: list[Value]) -> Value:
        """The value of an operation on `operands`: of tensors a tensor, known if all of them are."""
        value = self.run(node, code)
        kinds = {one.kind for one in operands}
        if value.kind == "tensor":
            return value
        if "tensor" in kinds and not (value.example is None and value.other is None):
            raise self.refuse(node, f"gives a {type(value.example).__name__} from tensors, which is not supported")
        return value if "host" in kinds else self.static(value.example, code)

    def on_BoolOp(self, node: ast.BoolOp) -> Value:
        first = self.evaluate(node.values[0])
        rest = node.values[1] if len(node.values) == 2 else ast.BoolOp(node.op, node.values[1:])
        ast.copy_location(rest, node.values[1])
        both = isinstance(node.op, ast.And)
        if first.kind == "static":
            return self.evaluate(rest) if bool(first.example) == both else first
        left = self.truth(first)
        found: list[Value] = []
        steps, names = self.apart(lambda: found.append(self.truth(self.evaluate(rest))), self.names)
        if all(isinstance(one, TensorStep) for one in steps):  # what cannot be observed need not be skipped
            self.steps.extend(steps)
            self.names = names
            example = (left.example and found[0].example) if both else (left.example or found[0].example)
            return Value("host", example, ast.BoolOp(node.op, [left.code, found[0].code]))
        key = self.fresh()
        sides = [
            lambda: self.keep(key, self.truth(self.evaluate(rest))),
            lambda: self.keep(key, self.static(not both)),
        ]
        return self.decided(node, left, key, sides if both else sides[::-1])

    def on_IfExp(self, node: ast.IfExp) -> Value:
        test = self.truth(self.evaluate(node.test))
        if test.kind == "static":
            return self.evaluate(node.body if test.example else node.orelse)
        key = self.fresh()
        sides = [lambda: self.keep(key, self.evaluate(node.body)), lambda: self.keep(key, self.evaluate(node.orelse))]
        return self.decided(node, test, key, sides)

    def decided(self, node: ast.expr, test: Value, key: str, sides: list[Callable[[], None]]) -> Value:
        """The value that both sides keep under `key`."""
        self.decide(node, test, *sides)
        if self.names[key].kind == "lost":
            raise self.refuse(node, "the sides of this expression have different types or shapes")
        return self.names[key]

    def on_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> Value:
        if any(part.is_async for part in node.generators):
            raise self.refuse(node, "an asynchronous comprehension is not supported")
        key = self.fresh()
        for statement in comprehension(node, key, f"{key}_"):
            self.statement(statement)
        return self.names[self.frame.prefix + key]

    on_GeneratorExp = on_ListComp

    def on_Compare(self, node: ast.Compare) -> Value:
        """`a < b < c` is `a < b and b < c`, with b computed once."""
        if len(node.ops) == 1:
            return self.composed(node)
        parts: list[ast.expr] = [node.left]
        for one in node.comparators[:-1]:
            key = self.fresh()
            self.store(ast.Name(key, ast.Store()), self.evaluate(one))
            parts.append(ast.copy_location(ast.Name(key, ast.Load()), one))
        parts.append(node.comparators[-1])
        pairs: list[ast.expr] = [
            ast.copy_location(ast.Compare(left, [op], [right]), node)
            for left, op, right in zip(parts, node.ops, parts[1:], strict=False)
        ]
        return self.evaluate(ast.copy_location(ast.BoolOp(ast.And(), pairs), node))

    def apart(self, walk: Callable[[], None], names: Names) -> tuple[list[Step], Names]:
        """Specialise something apart: its steps, and the names after it."""
        outer, self.steps, self.names = (self.steps, self.names), [], fork(names)
        try:
            walk()
            return self.steps, self.names
        finally:
            self.steps, self.names = outer

    def decide(self, node: ast.AST, test: Value, body: Callable[[], None], other: Callable[[], None]) -> None:
        """A branch on a value of the host: both sides are followed, and what they leave is joined."""
        names = self.names
        sides = [self.apart(walk, names) for walk in (body, other)]
        self.merge(sides)
        labels = ["the condition holds", "the condition does not hold"]
        arms: list[tuple[ast.expr | None, list[Step]]] = [(test.code, sides[0][0]), (None, sides[1][0])]
        self.steps.append(Branch(arms, getattr(node, "lineno", 0), self.frame.path, labels))

    def truth(self, value: Value) -> Value:
        """What `if value` asks, as the host asks it."""
        if value.kind == "tensor":
            if not isinstance(value.example, torch.Tensor) or value.example.numel() != 1:
                raise self.refuse(value.code, "the truth of several values is ambiguous")
            return Value("host", bool(value.example), method_call(self.held(value), "item"), bool(value.other))
        return value

    def held(self, value: Value) -> ast.expr:
        """A name under which the host holds a region's result."""
        if isinstance(value.code, ast.Name):
            return value.code
        target = self.fresh()
        self.steps.append(TensorStep(assign(target, value.code), self.place))
        self.hold(target, value)
        return name(target)

    def held_by_host(self, value: Value) -> Value:
        """A name for what the host computes once, wherever it is used."""
        target = self.fresh()
        self.steps.append(HostStep(assign(target, value.code)))
        return self.hold(target, value)

    @abstractmethod
    def statement(self, node: ast.stmt) -> None:
        """Specialise one statement."""

    @abstractmethod
    def store(self, target: ast.expr, value: Value) -> None:
        """Assign to a target of the source."""

    @abstractmethod
    def keep(self, key: str, value: Value) -> None:
        """Assign to a name as it stands."""

    @abstractmethod
    def merge(self, ends: list[tuple[list[Step], Names]], stay: bool = True) -> None:
        """The names after paths that meet."""


def access(path: str) -> str:
    """The expression for a submodule: `self.blocks[3].gate`."""
    parts = path.split(".") if path else []
    return "self" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts)


def method_call(base: ast.expr, called: str) -> ast.expr:
    return ast.Call(ast.Attribute(base, called, ast.Load()), [], [])


def is_number_tensor(value: Any) -> bool:
    whole = (torch.int64, torch.int32)
    return isinstance(value, torch.Tensor) and value.ndim == 0 and value.dtype in whole


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """The tensors in lists, tuples and dicts."""
    for one in values.values() if isinstance(values, dict) else values:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple, dict)):
            yield from tensors_in(one)


def literal_range(value: Value) -> ast.expr:
    return ast.Tuple([ast.Constant(place) for place in range(len(value.example))], ast.Load())


def plain(value: Value) -> bool:
    return literal(value.example) is not None


def static_display(value: Value) -> bool:
    """A list or tuple written in place, such as `[a, b]`: it may go into a region as it stands."""
    return isinstance(value.code, (ast.Tuple, ast.List))


def holds_tensor(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(holds_tensor(item) for item in value)
    if isinstance(value, dict):
        return any(holds_tensor(item) for item in value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(holds_tensor(item) for item in vars(value).values())
    return isinstance(value, torch.Tensor)


def is_torch(function: Any) -> bool:
    module = getattr(function, "__module__", None) or getattr(type(function), "__module__", "") or ""
    return module.split(".")[0] == "torch" or str(module).startswith("torch") or function in vars(torch).values()
