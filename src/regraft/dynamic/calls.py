"""Calls: what is followed, what is an operation of a region, what the host does."""

from __future__ import annotations

import ast
import builtins
import inspect
from abc import abstractmethod
from typing import Any

import torch

from regraft.dynamic.expressions import (
    Expressions,
    assign,
    is_torch,
    method_call,
    name,
    plain,
    static_display,
)
from regraft.dynamic.probe import observe
from regraft.dynamic.residual import HostStep
from regraft.dynamic.values import Value, fork

SHAPE_METHODS = frozenset({"size", "dim", "numel", "ndimension", "nelement", "is_floating_point"})
READING_METHODS = frozenset({"item", "tolist"})
READING_BUILTINS = frozenset({"int", "float", "bool"})
PURE_BUILTINS = frozenset(
    {"int", "float", "bool", "len", "range", "enumerate", "zip", "min", "max", "sum", "abs", "round", "list", "tuple",
     "dict", "reversed", "sorted", "isinstance", "hasattr", "getattr", "str", "any", "all", "type"}
)  # fmt: skip
HOST_METHODS = frozenset(
    {"append", "extend", "pop", "get", "keys", "values", "items", "insert", "copy", "index", "count"}
)


class Calls(Expressions):
    """Evaluates calls."""

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
        value = Value("host", self.run(node, code), code)
        if isinstance(value.example, torch.Tensor):
            value = Value("tensor", value.example, code)
        if value.example is None:
            return value
        target = self.fresh()  # it must happen once, wherever its result is used
        self.steps.append(HostStep(assign(target, code)))
        self.names[target] = Value(value.kind, value.example, name(target))
        return self.names[target]

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

    @abstractmethod
    def inline(self, node: ast.AST, function: Any, owner: Any, args: list[Value], words: dict[Any, Value]) -> Value:
        """The function's statements in the place of its call."""
