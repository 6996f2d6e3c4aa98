"""Values that are a tensor on some of the paths that lead here, and one and the same constant on
the others."""

from __future__ import annotations

import ast
from dataclasses import replace

import torch

from regraft.splitting.program.codes import assign, kind_of, method_call, name
from regraft.splitting.program.residual import Branch, HostStep
from regraft.splitting.program.values import Value, open_dimensions
from regraft.splitting.specialising.fields import Fields


class Cases(Exception):
    """Signals that a value has to be the constant that it may be, or not: the statement is
    specialised for each."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key


class Either(Fields):
    """Handles values of kind "either", which the host holds as the original does; operations get a
    tensor."""

    def none_test(self, node: ast.expr, operands: list[Value]) -> Value | None:
        """Return the host's test `x is None` or `x is not None`; None for another operator."""
        if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot))):
            return None
        if operands[1].kind != "static" or operands[1].example is not None:
            raise self.refuse(node, f"{ast.unparse(node)} is not supported")
        differs = isinstance(node.ops[0], ast.IsNot)
        if operands[0].instead is not None:
            return self.static(differs)
        return Value("host", differs, ast.Compare(operands[0].code, node.ops, [ast.Constant(None)]))

    def require_one_kind(self, node: ast.AST, value: Value) -> Value:
        """Return the value if it is of one kind; else raise Cases, so that its statement is
        specialised for each."""
        if value.kind == "either":
            assert isinstance(value.code, ast.Name)
            raise Cases(value.code.id)
        return value

    def constant_test(self, key: str) -> Value:
        """Return the test by which the host tells whether a name holds the constant."""
        if self.names[key].instead is None:
            return Value("host", False, ast.Compare(name(key), [ast.Is()], [ast.Constant(None)]))
        arrays = ast.parse("(numpy.ndarray, numpy.generic)", mode="eval").body
        return Value("host", True, ast.Call(name("isinstance"), [name(key), arrays], []))

    def bind_without_constant(self, value: Value) -> Value:
        """Return the value where it is not the constant, under a name of its own."""
        key = self.fresh_name()
        self.steps.append(HostStep(assign(key, value.code)))
        return self.bind_name(key, replace(value, kind=kind_of(value.example)))

    def as_tensor(self, node: ast.AST, value: Value, error: str) -> Value:
        """Return the tensor; where the value is None, the host raises what the original does."""
        if value.kind != "either":
            return value
        if value.instead is not None:
            self.require_one_kind(node, value)
        is_none = ast.Compare(value.code, [ast.Is()], [ast.Constant(None)])
        raised = HostStep(ast.parse(f"raise {error}('None')").body[0])
        self.steps.append(
            Branch([(is_none, [raised])], getattr(node, "lineno", 0), self.frame.path, [""])
        )
        return self.bind_without_constant(value)

    def as_tensors(self, node: ast.expr, operands: list[Value]) -> list[Value]:
        """Return the operands as tensors; a number is filled into one if that gives the same
        result."""
        tensors = []
        for operand in operands:
            if operand.kind == "either" and operand.instead is not None:
                other_operands = [candidate for candidate in operands if candidate is not operand]
                tensors.append(
                    self.fill_array(operand)
                    if can_fill(node, operand, other_operands)
                    else self.require_one_kind(node, operand)
                )
            else:
                tensors.append(self.as_tensor(node, operand, "TypeError"))
        return tensors

    def fill_array(self, value: Value) -> Value:
        """Return the value as the host's array of the tensor's shape and type."""
        shape = self.static(tuple(value.example.shape)).code
        dtype_name = ast.Constant(str(value.example.dtype).partition(".")[2])
        code = method_call(
            name("numpy"),
            "array",
            method_call(name("numpy"), "broadcast_to", value.code, shape),
            dtype_name,
        )
        return self.bind_in_host(replace(value, kind="tensor", code=code))


def tested_constant(test: ast.expr) -> tuple[str, bool] | None:
    """Return the name that a test asks about its constant, and whether it is that where the test
    holds, or None."""
    if (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and isinstance(test.ops[0], (ast.Is, ast.IsNot))
    ):
        return test.left.id, isinstance(test.ops[0], ast.Is)
    if (
        isinstance(test, ast.Call)
        and isinstance(test.func, ast.Name)
        and test.func.id == "isinstance"
    ):
        return (test.args[0].id, False) if isinstance(test.args[0], ast.Name) else None
    return None


def can_fill(node: ast.expr, value: Value, other_operands: list[Value]) -> bool:
    """Return whether an operation gives the same for a number as for a tensor full of it."""
    tensor, number = value.example, value.instead
    if len(other_operands) != 1 or open_dimensions(value) or not is_exact(number, tensor):
        return False
    other_example = other_operands[0].example
    if (
        type(other_example) in (int, float)
        and isinstance(node, ast.Compare)
        and getattr(node, "asked", False)
    ):
        return tensor.numel() == 1 and is_exact(other_example, tensor)
    if (
        other_operands[0].kind != "tensor"
        or not isinstance(other_example, torch.Tensor)
        or open_dimensions(other_operands[0])
    ):
        return False
    sizes = zip(tensor.shape[::-1], other_example.shape[::-1], strict=False)
    can_broadcast = tensor.ndim <= other_example.ndim and all(
        size in (1, other_size) for size, other_size in sizes
    )
    return can_broadcast and torch.result_type(tensor, other_example) == torch.result_type(
        number, other_example
    )


def is_exact(number: float, tensor: torch.Tensor) -> bool:
    """Return whether a tensor of this type can hold the number as it is."""
    return bool(torch.tensor(number).to(tensor.dtype).double().item() == number)
