"""Small questions about code and values."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from regraft.splitting.values import SAME, Value, literal

ARGUMENTS = ", arguments"  # ends the name of the file in which arguments are put together, as unpacked.py says
MUTATORS = frozenset(
    {"append", "extend", "insert", "pop", "popitem", "remove", "clear", "sort", "reverse", "update", "setdefault",
     "add", "discard"}
)  # fmt: skip


def name(identifier: str) -> ast.expr:
    return ast.Name(identifier, ast.Load())


def assign(target: str, value: ast.expr) -> ast.stmt:
    return ast.fix_missing_locations(ast.Assign([ast.Name(target, ast.Store())], value, lineno=1))


def access(path: str) -> str:
    """The expression for a submodule: `self.blocks[3].gate`."""
    parts = path.split(".") if path else []
    return "self" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts)


def method_call(base: ast.expr, called: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(base, called, ast.Load()), list(args), [])


def is_whole(value: Any) -> bool:
    """Whether it is a tensor of whole numbers, truth values not among them."""
    kind = value.dtype if isinstance(value, torch.Tensor) else torch.bool
    return not (kind.is_floating_point or kind.is_complex or kind is torch.bool)


def is_single(value: Any) -> bool:
    """Whether it is a tensor of one whole number."""
    return is_whole(value) and value.numel() == 1


def is_number_tensor(value: Any) -> bool:
    whole = (torch.int64, torch.int32)
    return isinstance(value, torch.Tensor) and value.ndim == 0 and value.dtype in whole


def is_read_number(value: Value) -> bool:
    """A whole number that the host has from a tensor's value."""
    return value.kind == "host" and type(value.example) is int and value.twin is SAME and not value.constant


def holds_number(value: Any) -> bool:
    """Whether it is a number, or holds one in tuples, lists and dictionaries."""
    if isinstance(value, dict):
        return any(map(holds_number, value.values()))
    return any(map(holds_number, value)) if isinstance(value, (tuple, list)) else isinstance(value, (int, float))


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """The tensors in lists, tuples and dicts."""
    for one in values.values() if isinstance(values, dict) else values:
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, (list, tuple, dict)):
            yield from tensors_in(one)


def storage(tensor: torch.Tensor) -> int:
    """What tensors share that are views of each other."""
    return tensor.untyped_storage()._cdata  # type: ignore[no-any-return]


def literal_range(value: Value) -> ast.expr:
    return ast.Tuple([ast.Constant(place) for place in range(len(value.example))], ast.Load())


def plain(value: Value) -> bool:
    return literal(value.example) is not None


def static_display(value: Value) -> bool:
    """A list or tuple written in place, such as `[a, b]`: it may go into a region as it stands."""
    return isinstance(value.code, (ast.Tuple, ast.List))


def held_as(example: Any) -> str:
    """The kind of a value that has a name: regions compute tensors, the host everything else."""
    return "tensor" if isinstance(example, torch.Tensor) else "host"


def is_named_result(value: Any) -> bool:
    """Whether it is a tuple with names that an operation gives, such as that of torch.sort."""
    return type(value).__module__ == "torch.return_types"


def holds_tensor(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(holds_tensor(item) for item in value)
    if isinstance(value, dict):
        return any(holds_tensor(item) for item in value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(holds_tensor(getattr(value, one.name, None)) for one in dataclasses.fields(value))
    return isinstance(value, torch.Tensor)


def is_torch(function: Any) -> bool:
    module = getattr(function, "__module__", None) or getattr(type(function), "__module__", "") or ""
    return str(module).partition(".")[0] == "torch" or function in vars(torch).values()


def parts_of(code: ast.expr) -> Iterator[ast.expr]:
    """The expressions whose values a tuple, list, dictionary or record has, at any depth; else the one given."""
    inner = {ast.Tuple: "elts", ast.List: "elts", ast.Dict: "values", ast.Call: "keywords"}.get(type(code), "")
    if not inner:
        yield code
    for one in getattr(code, inner, ()):
        yield from parts_of(one.value if isinstance(one, ast.keyword) else one)
