"""Values whose slices have no gradient of PyTorch, as far as the source says: arrays of other
libraries, and whole numbers."""

from __future__ import annotations

import ast

from regraft.source.syntax_iterators import statements
from regraft.structure.operations import BINARY_OPS
from regraft.structure.values_and_nodes import Node, Value

# The packages of other libraries for arrays, with the names of the libraries.
_LIBRARIES = {
    "cupy": "CuPy",
    "jax": "JAX",
    "mindspore": "MindSpore",
    "mlx": "MLX",
    "numpy": "NumPy",
    "paddle": "Paddle",
    "pandas": "pandas",
    "scipy": "SciPy",
    "tensorflow": "TensorFlow",
}
_INTEGER_TYPES = frozenset(
    {"bool", "int", "int16", "int32", "int64", "int8", "long", "short", "uint8"}
)
# Operations whose result is of whole numbers or flags, besides casts.
_COUNTING_OPS = frozenset(
    {"argmax", "argmin", "argsort", "bincount", "bool", "byte", "int", "logical_not", "long"}
    | {"one_hot", "py.compare", "randint", "randperm", "short"}
)
# Operations whose second result is of positions along a dimension.
_POSITION_OPS = frozenset({"cummax", "cummin", "kthvalue", "median", "mode", "sort", "topk"})
# Arguments by which operations take positions along a dimension.
_POSITION_ARGUMENTS = frozenset({"index", "indices"})
_INDEXED_OPS = frozenset(
    {"gather", "index_select", "scatter", "scatter_", "scatter_add", "scatter_add_"}
    | {"take_along_dim"}
)
# Operations whose result is of the type of their first argument.
_PASSING_OPS = frozenset(
    {"clone", "contiguous", "expand", "flatten", "permute", "py.item", "reshape", "squeeze", "t"}
    | {"to", "transpose", "unsqueeze", "view"}
)


def foreign_library(value: Value, tree: ast.Module) -> str:
    """Return the name of the library, another than PyTorch, of whose arrays a value is: a function
    of the library computes it, or the file imports the library and nowhere `torch`. "" where the
    source does not say so."""
    return _computing_library(value) or _only_library(tree)


def _computing_library(value: Value) -> str:
    """Return the name of the library that computes a value, also by operators, subscripts and
    methods of its arrays; "" for none."""
    node = value.node
    if node is None:
        return ""
    if node.op == "numpy":
        return "NumPy"
    library = _LIBRARIES.get(node.spelling.partition(".")[0], "")
    if library:
        return library
    owner = _owner(node)
    if owner is not None:
        return _computing_library(owner)
    args = [argument for argument in node.args.values() if argument.origin != "const"]
    if node.op not in BINARY_OPS or not args:
        return ""
    libraries = [_computing_library(argument) for argument in args]
    return libraries[0] if all(libraries) else ""


def _owner(node: Node) -> Value | None:
    """Return the value of which a node calls a method or takes an item; None for another node."""
    if node.op == "py.item":
        return node.args.get("base")
    if node.op == "call":
        method = node.args["callee"].node if "callee" in node.args else None
        return method.args["base"] if method is not None and method.op == "py.attr" else None
    is_method = node.spelling.startswith("torch.Tensor.")
    return next(iter(node.args.values()), None) if is_method else None


def _only_library(tree: ast.Module) -> str:
    """Return the name of a library that a file imports which imports nothing of `torch`."""
    packages = {name.partition(".")[0] for name in _imported_modules(tree)}
    if "torch" in packages:
        return ""
    return next((_LIBRARIES[package] for package in sorted(packages & _LIBRARIES.keys())), "")


def _imported_modules(tree: ast.Module) -> set[str]:
    """Return the names of the modules that a file imports anywhere, without relative imports."""
    modules: set[str] = set()
    for statement in statements(tree.body):
        if isinstance(statement, ast.Import):
            modules.update(alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            modules.add(statement.module)
    return modules


def is_of_whole_numbers(value: Value) -> bool:
    """Return whether a value is a tensor of whole numbers or flags: a cast, a comparison or an
    index computes it."""
    node = value.node
    while node is not None and node.op in _PASSING_OPS:
        if _is_cast(node):
            return _cast_type(node) in _INTEGER_TYPES
        if _takes_positions(node):
            return True
        node = next(iter(node.args.values())).node
    return node is not None and node.op in _COUNTING_OPS


def is_read_as_positions(value: Value) -> bool:
    """Return whether an operation takes a tensor, as it is or in another shape, as positions along
    a dimension: it is then of whole numbers."""
    return any(_reads_as_positions(use, value) for use in value.uses)


def _reads_as_positions(node: Node, value: Value) -> bool:
    """Return whether a node takes a value as positions, or gives it in another shape to one that
    does."""
    if node.op in _INDEXED_OPS:
        return any(node.args.get(name) is value for name in _POSITION_ARGUMENTS)
    is_reshaped = node.op in _PASSING_OPS - {"py.item"} and not _is_cast(node)
    return is_reshaped and is_read_as_positions(node.output)


def _takes_positions(node: Node) -> bool:
    """Return whether a node is the second result of an operation that finds elements, such as the
    largest ones, and returns them with their positions."""
    if node.op != "py.item" or node.args["index"].const != 1:
        return False
    base = node.args["base"].node
    return base is not None and base.op in _POSITION_OPS


def _is_cast(node: Node) -> bool:
    """Return whether a node converts the data type."""
    return node.op == "to" and "dtype" in node.args


def _cast_type(node: Node) -> str:
    """Return the last part of the name of the type to which a node converts."""
    return node.args["dtype"].name.rpartition(".")[2]
