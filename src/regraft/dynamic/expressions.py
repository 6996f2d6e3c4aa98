"""Expressions: what is known is computed, a tensor becomes a region's statement, the rest stays in the host."""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from regraft.dynamic.errors import Unsplittable, refuse
from regraft.dynamic.probe import observe
from regraft.dynamic.residual import HostStep, Step, TensorStep
from regraft.dynamic.values import Names, Value, fork, literal

SHAPE_METHODS = frozenset({"size", "dim", "numel", "ndimension", "nelement", "is_floating_point"})
SHAPE_ATTRIBUTES = frozenset({"shape", "ndim", "dtype", "device"})
READING_METHODS = frozenset({"item", "tolist"})
READING_BUILTINS = frozenset({"int", "float", "bool"})
PURE_BUILTINS = frozenset(
    {"int", "float", "bool", "len", "range", "enumerate", "zip", "min", "max", "sum", "abs", "round", "list", "tuple",
     "dict", "reversed", "sorted", "isinstance", "hasattr", "getattr", "str", "any", "all", "type"}
)  # fmt: skip
HOST_METHODS = frozenset(
    {"append", "extend", "pop", "get", "keys", "values", "items", "insert", "copy", "index", "count"}
)


def name(identifier: str) -> ast.expr:
    return ast.Name(identifier, ast.Load())


def assign(target: str, value: ast.expr) -> ast.stmt:
    return ast.fix_missing_locations(ast.Assign([ast.Name(target, ast.Store())], value, lineno=1))


class Choice(Exception):
    """A module is chosen by a value of the host: the statement is specialised once for each module."""

    def __init__(self, index: Value, number: int) -> None:
        super().__init__()
        self.index, self.number = index, number


class Frame:
    """One function being specialised: where it is, its globals, its prefix for names, what `self` is."""

    def __init__(self, path: str, scope: dict[str, Any], prefix: str) -> None:
        self.path, self.scope, self.prefix = path, scope, prefix


class Expressions:
    """Evaluates expressions on the example and writes down what is left of them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.paths = {id(module): path for path, module in model.named_modules(remove_duplicate=False)}
        self.globals: dict[str, Any] = {}
        self.names: Names = {}
        self.frame = Frame("", {}, "")
        self.steps: list[Step] = []
        self.count = 0

    def refuse(self, node: ast.AST, reason: str) -> Unsplittable:
        return refuse(self.frame.path, node, reason)

    def fresh(self) -> str:
        self.count += 1
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

    def run(self, node: ast.AST, code: ast.expr) -> Any:
        """The value of residual code in the example; refuses what no static region can do."""
        scope = {**self.globals, "self": self.model}
        scope.update((key, value.example) for key, value in self.names.items())
        compiled = compile(ast.fix_missing_locations(ast.Expression(code)), self.frame.path, "eval")
        try:
            seen = observe(lambda: eval(compiled, scope), self.watched())
        except Exception as problem:
            raise self.refuse(node, f"cannot be run on the example: {type(problem).__name__}: {problem}") from problem
        if seen.random:
            raise self.refuse(node, "random numbers are drawn here; every run of the network would differ")
        if seen.changed:
            raise self.refuse(node, "a tensor that is used elsewhere is changed in place")
        if seen.shapes:
            raise self.refuse(node, f"the shape of {seen.shapes[0]} depends on values of tensors")
        if seen.reads and holds_tensor(seen.result):
            raise self.refuse(node, "a value of a tensor is read inside a call that cannot be followed")
        return seen.result

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
            if node.attr in SHAPE_ATTRIBUTES:
                return self.static(getattr(base.example, node.attr))
            raise self.refuse(node, f"the attribute {node.attr} of a tensor is not supported")
        if base.kind == "host":
            raise self.refuse(node, f"the attribute {node.attr} of a value known only at run time is not supported")
        try:
            value = getattr(base.example, node.attr)
        except AttributeError as problem:
            raise self.refuse(node, str(problem)) from problem
        return self.static(value, ast.Attribute(base.code, node.attr, ast.Load()))

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
            return Value("host", self.run(node, made), made)
        if isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            return self.static(self.run(node, made))
        if isinstance(node, ast.Slice):
            kind = "host" if any(one.kind == "host" for one in operands) else "static"
            if any(one.kind == "tensor" for one in operands):
                raise self.refuse(node, "a slice with a tensor as its bound is not supported")
            return Value(kind, None, made)
        return self.result(node, made, operands)

    def on_Subscript(self, node: ast.Subscript) -> Value:
        base = self.evaluate(node.value)
        index = self.evaluate(node.slice)
        code = ast.Subscript(base.code, index.code, ast.Load())
        if base.kind == "static" and isinstance(base.example, (torch.nn.ModuleList, torch.nn.Sequential)):
            if index.kind == "host":
                raise Choice(index, len(base.example))
            return self.static(self.run(node, code))
        if base.kind == "host":
            if index.kind == "tensor":
                raise self.refuse(node, "a container is indexed by a tensor")
            example = self.run(node, code)
            if holds_tensor(example):
                target = self.fresh()
                self.steps.append(HostStep(assign(target, code)))
                self.names[target] = Value("tensor", example, name(target))
                return self.names[target]
            return Value("host", example, code)
        return self.result(node, code, [base, index])

    def result(self, node: ast.expr, code: ast.expr, operands: list[Value]) -> Value:
        """The value of an operation on `operands`: of tensors a tensor, known if all of them are."""
        example = self.run(node, code)
        if holds_tensor(example):
            return Value("tensor", example, code)
        kinds = {one.kind for one in operands}
        if "tensor" in kinds:
            raise self.refuse(node, f"gives a {type(example).__name__} from tensors, which is not supported")
        return Value("host", example, code) if "host" in kinds else self.static(example, code)

    def on_BoolOp(self, node: ast.BoolOp) -> Value:
        first = self.evaluate(node.values[0])
        rest = node.values[1:] and ast.BoolOp(node.op, node.values[1:]) if len(node.values) > 2 else node.values[1]
        if first.kind == "static":
            if bool(first.example) != isinstance(node.op, ast.And):
                return first
            return self.evaluate(rest)  # type: ignore[arg-type]
        left = self.truth(first)
        right = self.truth(self.evaluate(rest))  # type: ignore[arg-type]
        both = (left.example and right.example) if isinstance(node.op, ast.And) else (left.example or right.example)
        return Value("host", both, ast.BoolOp(node.op, [left.code, right.code]))

    def on_IfExp(self, node: ast.IfExp) -> Value:
        test = self.evaluate(node.test)
        if test.kind == "static":
            return self.evaluate(node.body if test.example else node.orelse)
        raise self.refuse(node, "a conditional expression on values is not supported; write an if statement")

    def truth(self, value: Value) -> Value:
        """What `if value` asks, as the host asks it."""
        if value.kind == "tensor":
            if not isinstance(value.example, torch.Tensor) or value.example.numel() != 1:
                raise self.refuse(value.code, "the truth of several values is ambiguous")
            return Value("host", bool(value.example), method_call(self.held(value), "item"))
        return value

    def held(self, value: Value) -> ast.expr:
        """A name under which the host holds a region's result."""
        if isinstance(value.code, ast.Name):
            return value.code
        target = self.fresh()
        self.steps.append(TensorStep(assign(target, value.code)))
        self.names[target] = Value("tensor", value.example, name(target))
        return name(target)

    # -- calls

    def on_Call(self, node: ast.Call) -> Value:
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(word.arg is None for word in node.keywords):
            raise self.refuse(node, "a call with * or ** is not supported")
        if isinstance(node.func, ast.Attribute):
            base = self.evaluate(node.func.value)
            if base.kind != "static":
                return self.method(node, base, node.func.attr)
        callee = self.evaluate(node.func)
        if callee.kind != "static":
            raise self.refuse(node, "what is called here is known only at run time")
        args = [self.evaluate(arg) for arg in node.args]
        words = [(word.arg, self.evaluate(word.value)) for word in node.keywords]
        operands = [*args, *(value for _, value in words)]
        function = callee.example
        kinds = {one.kind for one in operands}
        code = ast.Call(callee.code, [one.code for one in args], [ast.keyword(w, v.code) for w, v in words])
        known_name = getattr(function, "__name__", "")
        if getattr(builtins, known_name, None) is function:
            return self.builtin(node, known_name, operands, code)
        whole = args and isinstance(args[0].example, list) and not static_display(args[0])
        if function in (torch.cat, torch.stack) and whole:
            return self.joined(node, function, args, dict(words))
        if isinstance(function, torch.nn.Module) or is_torch(function):
            self.only_scalars(node, operands)
            if isinstance(function, torch.nn.Module) and self.reads_values(function, operands, code):
                return self.inline(node, type(function).forward, function, args, dict(words))
            return self.result(node, code, operands)
        if inspect.ismethod(function) and isinstance(function.__self__, torch.nn.Module):
            return self.inline(node, function.__func__, function.__self__, args, dict(words))
        if inspect.isfunction(function):
            return self.inline(node, function, None, args, dict(words))
        if kinds <= {"static"} and getattr(function, "__module__", "") == "math":
            return self.static(self.run(node, code))
        raise self.refuse(node, f"the call of {known_name or function!r} cannot be followed")

    def only_scalars(self, node: ast.AST, operands: list[Value]) -> None:
        for one in operands:
            if one.kind == "host" and not isinstance(one.example, (int, float, bool)) and not static_display(one):
                raise self.refuse(node, f"a {type(one.example).__name__} of the host goes into a tensor operation")

    def reads_values(self, module: torch.nn.Module, operands: list[Value], code: ast.expr) -> bool:
        if type(module).__module__.startswith("torch.nn"):
            return any(not type(one).__module__.startswith("torch.nn") for one in module.modules()) and self._reads(
                code
            )
        return self._reads(code)

    def _reads(self, code: ast.expr) -> bool:
        scope = {**self.globals, "self": self.model}
        scope.update((key, value.example) for key, value in fork(self.names).items())
        compiled = compile(ast.fix_missing_locations(ast.Expression(code)), self.frame.path, "eval")
        return observe(lambda: eval(compiled, scope), ()).reads

    def builtin(self, node: ast.Call, called: str, operands: list[Value], code: ast.Call) -> Value:
        if called not in PURE_BUILTINS:
            raise self.refuse(node, f"{called}() is not supported")
        tensors = [one for one in operands if one.kind == "tensor"]
        if not tensors:
            example = self.run(node, code)
            if all(one.kind == "static" for one in operands):
                return self.static(example, code)
            return Value("host", example, code)
        if called in READING_BUILTINS and len(operands) == 1:
            held = method_call(self.held(tensors[0]), "item")
            function = getattr(builtins, called)
            return Value("host", function(tensors[0].example), ast.Call(name(called), [held], []))
        if called in ("len", "isinstance", "hasattr", "type"):
            return self.static(self.run(node, code))
        raise self.refuse(node, f"{called}() of a tensor is not supported")

    def method(self, node: ast.Call, base: Value, called: str) -> Value:
        args = [self.evaluate(arg) for arg in node.args]
        words = [(word.arg, self.evaluate(word.value)) for word in node.keywords]
        if base.kind == "tensor":
            if called in READING_METHODS:
                return Value("host", getattr(base.example, called)(), method_call(self.held(base), called))
            self.only_scalars(node, args)
            code = ast.Call(
                ast.Attribute(base.code, called, ast.Load()), [one.code for one in args],
                [ast.keyword(word, value.code) for word, value in words],
            )  # fmt: skip
            if called in SHAPE_METHODS:
                return self.static(self.run(node, code))
            return self.result(node, code, [base, *args])
        if called not in HOST_METHODS:
            raise self.refuse(node, f"the method {called} of a value known only at run time is not supported")
        codes = [self.held(one) if one.kind == "tensor" else one.code for one in args]
        if any(one.kind == "static" and not plain(one) for one in args) or words:
            raise self.refuse(node, "an object that is not plain data goes into a container")
        code = ast.Call(ast.Attribute(base.code, called, ast.Load()), list(codes), [])
        example = self.run(node, code)
        return Value("tensor" if isinstance(example, torch.Tensor) else "host", example, code)

    def joined(self, node: ast.AST, function: Any, args: list[Value], words: dict[Any, Value]) -> Value:
        """`torch.cat` and `torch.stack` of a list whose length only the host knows."""
        dim = args[1] if len(args) > 1 else words.get("dim", Value("static", 0, ast.Constant(0)))
        if dim.kind != "static" or set(words) - {"dim"}:
            raise self.refuse(node, "torch.cat of a host's list takes a constant dim only")
        code = ast.Call(
            ast.Attribute(name("numpy"), "concatenate" if function is torch.cat else "stack", ast.Load()),
            [args[0].code], [ast.keyword("axis", dim.code)],
        )  # fmt: skip
        target = self.fresh()
        self.steps.append(HostStep(assign(target, code)))
        example = function(args[0].example, dim.example)
        self.names[target] = Value("tensor", example, name(target))
        return self.names[target]

    def inline(self, node: ast.AST, function: Any, owner: Any, args: list[Value], words: dict[Any, Value]) -> Value:
        raise NotImplementedError


def access(path: str) -> str:
    """The expression for a submodule: `self.blocks[3].gate`."""
    parts = path.split(".") if path else []
    return "self" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts)


def method_call(base: ast.expr, called: str) -> ast.expr:
    return ast.Call(ast.Attribute(base, called, ast.Load()), [], [])


def plain(value: Value) -> bool:
    return literal(value.example) is not None


def static_display(value: Value) -> bool:
    """A list or tuple written in place, such as `[a, b]`: it may go into a region as it stands."""
    return isinstance(value.code, (ast.Tuple, ast.List))


def holds_tensor(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(holds_tensor(item) for item in value)
    return isinstance(value, torch.Tensor)


def is_torch(function: Any) -> bool:
    module = getattr(function, "__module__", None) or getattr(type(function), "__module__", "") or ""
    return module.split(".")[0] == "torch" or str(module).startswith("torch") or function in vars(torch).values()
