"""Small expressions of residual code (names, method calls, paths of submodules), and tests of what
code and values hold."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from typing import Any, TypeGuard

import torch

from regraft.execution.nested import iterate_leaves
from regraft.splitting.program.literals import literal
from regraft.splitting.program.values import HostValue, StaticValue, Value

# end the file names of the wrappers that put arguments together (nested_arguments.py), and that
# take states as arguments (stateful_wrapper.py)
WRAPPER_SUFFIX = ", arguments"
STATE_SUFFIX = ", states"
# methods that change a list, dictionary or set
MUTATORS = frozenset(
    {
        "append",
        "extend",
        "insert",
        "pop",
        "popitem",
        "remove",
        "clear",
        "sort",
        "reverse",
        "update",
        "setdefault",
        "add",
        "discard",
    }
)


def file_of_wrapped(path: str) -> str:
    """Return the file of the network in a wrapper, from the wrapper's path or its own."""
    return path.removesuffix(WRAPPER_SUFFIX).removesuffix(STATE_SUFFIX)


def name(identifier: str) -> ast.expr:
    """Return the expression that reads the variable `identifier`."""
    return ast.Name(identifier, ast.Load())


def submodule_text(path: str) -> str:
    """Return the text of the expression for the submodule at a path of `named_modules`:
    `self.blocks[3].gate` for "blocks.3.gate"; `self` for ""."""
    parts = path.split(".") if path else []
    return "self" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in parts)


def method_call(base: ast.expr, method_name: str, *args: ast.expr) -> ast.expr:
    """Return the expression of a call of a method of `base` with arguments by position."""
    return ast.Call(ast.Attribute(base, method_name, ast.Load()), list(args), [])


def is_integer_tensor(value: Any) -> bool:
    """Return whether `value` is a tensor of integers; truth values are none."""
    dtype = value.dtype if isinstance(value, torch.Tensor) else torch.bool
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def is_single_integer(value: Any) -> bool:
    """Return whether `value` is a tensor of one integer, with any number of dimensions."""
    return is_integer_tensor(value) and value.numel() == 1


def is_integer_scalar(value: Any) -> bool:
    """Return whether `value` is a 32-bit or 64-bit integer tensor without dimensions."""
    integer_dtypes = (torch.int64, torch.int32)
    return isinstance(value, torch.Tensor) and value.ndim == 0 and value.dtype in integer_dtypes


def is_read_number(value: Value) -> bool:
    """Return whether a value is an integer of the host that inputs decide and that is equal in both
    worlds, as one that is read from a tensor's value."""
    return (
        isinstance(value, HostValue)
        and type(value.example) is int
        and value.second_example == value.example
        and not value.constant
    )


def holds_number(value: Any) -> bool:
    """Return whether `value` is a number or truth value, or has one inside in tuples, lists and
    dictionaries."""
    leaves = iterate_leaves(value, is_container=is_builtin_container)
    return any(isinstance(leaf, (int, float)) for leaf in leaves)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested lists, tuples and dictionaries, in order; a tensor by itself
    alone."""
    leaves = iterate_leaves(value, is_container=is_builtin_container)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def is_builtin_container(value: Any) -> bool:
    """Return whether a value is a list, tuple or dictionary, of a subclass, too."""
    return isinstance(value, (list, tuple, dict))


def storage_key(tensor: torch.Tensor) -> int:
    """Return the key of a tensor's memory, which is equal for views of each other."""
    return tensor.untyped_storage()._cdata  # type: ignore[no-any-return]


def literal_range(value: Value) -> ast.expr:
    """Return the expression of the tuple of all positions in a value: `(0, 1, 2)` for one with
    three elements."""
    return ast.Tuple([ast.Constant(place) for place in range(len(value.example))], ast.Load())


def is_literal(value: Value) -> bool:
    """Return whether the example of a value can be written down as a constant (`literal`), also
    where the host computes the value."""
    return literal(value.example) is not None


def is_static_literal(value: Value) -> TypeGuard[StaticValue]:
    """Return whether a value is known now, and a constant that has a literal."""
    return isinstance(value, StaticValue) and is_literal(value)


def is_static_object(value: Value) -> TypeGuard[StaticValue]:
    """Return whether a value is known now, but has no literal, such as a module, a function or
    NaN."""
    return isinstance(value, StaticValue) and not is_literal(value)


def is_display(value: Value) -> bool:
    """Return whether the expression of a value is a list or tuple written out, such as `[a, b]`,
    which may go into a region."""
    return isinstance(value.code, (ast.Tuple, ast.List))


def is_named_result(value: Any) -> bool:
    """Return whether `value` is a tuple with names that an operation gives, such as that of
    torch.sort."""
    return type(value).__module__ == "torch.return_types"


def holds_tensor(value: Any) -> bool:
    """Return whether `value` is a tensor, or holds one in tuples, lists, dictionaries and
    dataclasses."""
    if isinstance(value, (tuple, list)):
        return any(holds_tensor(element) for element in value)
    if isinstance(value, dict):
        return any(holds_tensor(element) for element in value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(
            holds_tensor(getattr(value, field.name, None)) for field in dataclasses.fields(value)
        )
    return isinstance(value, torch.Tensor)


def is_torch(function: Any) -> bool:
    """Return whether a function, or the class of a callable object, is defined in torch or a module
    below it, or torch has the function as an attribute."""
    module = (
        getattr(function, "__module__", None) or getattr(type(function), "__module__", "") or ""
    )
    return str(module).partition(".")[0] == "torch" or function in vars(torch).values()


def leaf_expressions(code: ast.expr) -> Iterator[ast.expr]:
    """Yield the expressions whose values a tuple, list, dictionary or record has, at any depth;
    else `code` itself. Any call counts as that of a record, of which only keywords are looked
    at."""
    field = {ast.Tuple: "elts", ast.List: "elts", ast.Dict: "values", ast.Call: "keywords"}.get(
        type(code), ""
    )
    if not field:
        yield code
    for child in getattr(code, field, ()):
        yield from leaf_expressions(child.value if isinstance(child, ast.keyword) else child)


# the parts of an expression of sizes, besides the sizes themselves
SIZE_EXPRESSION_NODES = (
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.Constant,
    ast.UnaryOp,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
)


def is_plain_function(node: ast.Call) -> bool:
    """Return whether a call is one of a function of Python on numbers, without keywords."""
    names = ("abs", "all", "any", "bool", "int", "len", "max", "min", "sum")
    return isinstance(node.func, ast.Name) and node.func.id in names and not node.keywords


def is_made_of_sizes(code: ast.expr, size_names: set[str]) -> bool:
    """Return whether an expression computes with sizes of tensors, with at least one, and constants
    only.

    size_names: the names of sizes and of what is computed from these.
    """
    unvisited: list[ast.AST] = [code]
    has_size = False
    while unvisited:
        node = unvisited.pop()
        is_shape = isinstance(node, ast.Attribute) and node.attr == "shape"
        if is_shape or (isinstance(node, ast.Name) and node.id in size_names):
            has_size = True
        elif isinstance(node, ast.Call) and is_plain_function(node):
            unvisited += node.args
        elif isinstance(node, (ast.Subscript, ast.Tuple, *SIZE_EXPRESSION_NODES)):
            unvisited += ast.iter_child_nodes(node)
        else:
            return False
    return has_size
