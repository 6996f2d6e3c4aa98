"""What is a tensor on some of the paths that lead here, and one and the same constant on the others."""

from __future__ import annotations

import ast
from dataclasses import replace

import torch

from regraft.splitting.codes import assign, held_as, method_call, name
from regraft.splitting.fields import Fields
from regraft.splitting.residual import Branch, HostStep
from regraft.splitting.values import Value, open_sizes


class Cases(Exception):
    """Something that may be a constant or not has to be one: the statement is specialised once for each."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


class Either(Fields):
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
        """The value, where it is one thing; else its statement is specialised for each."""
        if value.kind == "either":
            assert isinstance(value.code, ast.Name)
            raise Cases(value.code.id)
        return value

    def test_of(self, key: str) -> Value:
        """What the host asks to know whether a name holds the constant."""
        if self.names[key].instead is None:
            return Value("host", False, ast.Compare(name(key), [ast.Is()], [ast.Constant(None)]))
        arrays = ast.parse("(numpy.ndarray, numpy.generic)", mode="eval").body
        return Value("host", True, ast.Call(name("isinstance"), [name(key), arrays], []))

    def unveiled(self, value: Value) -> Value:
        """The value where it is not the constant, under a name of its own."""
        key = self.fresh()
        self.steps.append(HostStep(assign(key, value.code)))
        return self.hold(key, replace(value, kind=held_as(value.example)))

    def as_tensor(self, node: ast.AST, value: Value, error: str) -> Value:
        """The tensor; where it is None, the host raises what the original does."""
        if value.kind != "either":
            return value
        if value.instead is not None:
            self.sure(node, value)
        none = ast.Compare(value.code, [ast.Is()], [ast.Constant(None)])
        raised = HostStep(ast.parse(f"raise {error}('None')").body[0])
        self.steps.append(Branch([(none, [raised])], getattr(node, "lineno", 0), self.frame.path, [""]))
        return self.unveiled(value)

    def as_tensors(self, node: ast.expr, operands: list[Value]) -> list[Value]:
        """Operands as tensors; a number is filled into one, where that gives the same result."""
        made = []
        for one in operands:
            if one.kind == "either" and one.instead is not None:
                others = [other for other in operands if other is not one]
                made.append(self.filling(one) if fills(node, one, others) else self.sure(node, one))
            else:
                made.append(self.as_tensor(node, one, "TypeError"))
        return made

    def filling(self, value: Value) -> Value:
        """The host's array of the tensor's shape and type."""
        shape = self.static(tuple(value.example.shape)).code
        kind = ast.Constant(str(value.example.dtype).partition(".")[2])
        code = method_call(name("numpy"), "array", method_call(name("numpy"), "broadcast_to", value.code, shape), kind)
        return self.held_by_host(replace(value, kind="tensor", code=code))


def asked_of(test: ast.expr) -> tuple[str, bool] | None:
    """The name of which a test asks whether it holds a constant, and whether it does so where the test holds."""
    if (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and isinstance(test.ops[0], (ast.Is, ast.IsNot))
    ):
        return test.left.id, isinstance(test.ops[0], ast.Is)
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance":
        return (test.args[0].id, False) if isinstance(test.args[0], ast.Name) else None
    return None


def fills(node: ast.expr, value: Value, others: list[Value]) -> bool:
    """Whether an operation gives the same for a number as for a tensor full of it."""
    tensor, number = value.example, value.instead
    if len(others) != 1 or open_sizes(value) or not is_exact(number, tensor):
        return False
    other = others[0].example
    if type(other) in (int, float) and isinstance(node, ast.Compare) and getattr(node, "asked", False):
        return tensor.numel() == 1 and is_exact(other, tensor)
    if others[0].kind != "tensor" or not isinstance(other, torch.Tensor) or open_sizes(others[0]):
        return False
    sizes = zip(tensor.shape[::-1], other.shape[::-1], strict=False)
    fits = tensor.ndim <= other.ndim and all(one in (1, two) for one, two in sizes)
    return fits and torch.result_type(tensor, other) == torch.result_type(number, other)


def is_exact(number: float, tensor: torch.Tensor) -> bool:
    """Whether a tensor of this type can hold the number as it is."""
    return bool(torch.tensor(number).to(tensor.dtype).double().item() == number)
