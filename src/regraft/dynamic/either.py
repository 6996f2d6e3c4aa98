"""What is a tensor on some of the paths that lead here, and one and the same constant on the others."""

from __future__ import annotations

import ast
from dataclasses import replace

import torch

from regraft.dynamic.codes import assign, method_call, name
from regraft.dynamic.objects import Objects
from regraft.dynamic.residual import Branch, HostStep
from regraft.dynamic.values import Value, open_sizes


class Either(Objects):
    """The host holds the tensor or the constant, as the original does; operations get a tensor."""

    def asked_for_none(self, node: ast.expr, operands: list[Value]) -> Value | None:
        """`x is None`, which the host asks."""
        if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot))):
            return None
        if operands[1].kind != "static" or operands[1].example is not None:
            raise self.refuse(node, f"{ast.unparse(node)} is not supported")
        differs = isinstance(node.ops[0], ast.IsNot)
        if operands[0].instead is not None:
            return self.static(differs)
        return Value("host", differs, ast.Compare(operands[0].code, node.ops, [ast.Constant(None)]))

    def sure(self, node: ast.AST, value: Value) -> Value:
        if value.kind == "either":
            both = f"{value.instead} on some of the paths that lead here, and a tensor on others"
            raise self.refuse(node, f"{ast.unparse(node)} needs what is {both}")
        return value

    def as_tensor(self, node: ast.AST, value: Value, error: str) -> Value:
        """The tensor; where it is None, the host raises what the original does."""
        if value.kind != "either":
            return value
        if value.instead is not None:
            self.sure(node, value)
        none = ast.Compare(value.code, [ast.Is()], [ast.Constant(None)])
        raised = HostStep(ast.parse(f"raise {error}('None')").body[0])
        self.steps.append(Branch([(none, [raised])], getattr(node, "lineno", 0), self.frame.path, [""]))
        key = self.fresh()
        self.steps.append(HostStep(assign(key, value.code)))
        return self.hold(key, replace(value, kind="tensor"))

    def as_tensors(self, node: ast.expr, operands: list[Value]) -> list[Value]:
        """Operands as tensors; a number is filled into one, where that gives the same result."""
        return [
            self.filled(node, one, [other for other in operands if other is not one])
            if one.kind == "either" and one.instead is not None
            else self.as_tensor(node, one, "TypeError")
            for one in operands
        ]

    def filled(self, node: ast.expr, value: Value, others: list[Value]) -> Value:
        tensor, number = value.example, value.instead
        asked = isinstance(node, ast.Compare) and getattr(node, "asked", False)
        if len(others) == 1 and asked and tensor.numel() == 1 and type(others[0].example) in (int, float):
            return self.filling(value)
        same = len(others) == 1 and others[0].kind == "tensor" and isinstance(others[0].example, torch.Tensor)
        if same:
            other = others[0].example
            same = (
                not (open_sizes(value) or open_sizes(others[0]))
                and torch.broadcast_shapes(tensor.shape, other.shape) == other.shape
                and torch.result_type(tensor, other) == torch.result_type(number, other)
                and torch.tensor(number, dtype=tensor.dtype).item() == number
            )
        if not same:
            self.sure(node, value)
        return self.filling(value)

    def filling(self, value: Value) -> Value:
        """The host's array of the tensor's shape and type."""
        shape = self.static(tuple(value.example.shape)).code
        kind = ast.Constant(str(value.example.dtype).partition(".")[2])
        code = method_call(name("numpy"), "array", method_call(name("numpy"), "broadcast_to", value.code, shape), kind)
        return self.held_by_host(replace(value, kind="tensor", code=code))
