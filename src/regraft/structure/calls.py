"""The parts that every kind of call shares: opaque calls, attributes, Python glue, and the table of
functions without side effects."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from regraft.structure.library_activations import RUN_TIME_TESTS
from regraft.structure.lowering_state import Frame
from regraft.structure.values_and_nodes import Kind, Node, Value

# Built-in functions without side effects, with the kind of their result.
PURE_BUILTINS: Mapping[str, Kind] = {
    "len": "int",
    "int": "int",
    "float": "scalar",
    "bool": "bool",
    "str": "str",
    "range": "unknown",
    "isinstance": "bool",
    "issubclass": "bool",
    "hasattr": "bool",
    "getattr": "unknown",
    "tuple": "tuple",
    "list": "tuple",
    "dict": "unknown",
    "set": "unknown",
    "min": "unknown",
    "max": "unknown",
    "sum": "unknown",
    "abs": "unknown",
    "round": "unknown",
    "zip": "unknown",
    "enumerate": "unknown",
    "reversed": "unknown",
    "sorted": "tuple",
    "type": "unknown",
    "id": "int",
    "any": "bool",
    "all": "bool",
    "callable": "bool",
    "super": "unknown",
    "repr": "str",
}

# Functions without side effects that create tensors or numbers and take no tensors.
PURE_FUNCTIONS = frozenset({"numpy.sqrt"}) | frozenset(
    f"torch.{name}"
    for name in [
        "tensor",
        "as_tensor",
        "zeros",
        "ones",
        "full",
        "empty",
        "arange",
        "linspace",
        "logspace",
        "eye",
        "scalar_tensor",
        "finfo",
        "iinfo",
        "is_tensor",
        "device",
        "Size",
        "get_default_dtype",
        "from_numpy",
        "jit.is_tracing",
        "jit.is_scripting",
        "is_autocast_enabled",
        "compiler.is_compiling",
    ]
)
# Built-in functions that iterate over their arguments.
CONSUMERS = frozenset({"list", "tuple", "set", "dict", "sum", "min", "max", "sorted", "any", "all"})
PURE_MODULES = ("math.", "operator.", "itertools.")
# Functions of these modules that write into their first argument.
WRITING_FUNCTIONS = frozenset(
    f"operator.{name}"
    for name in (
        "delitem",
        "iadd",
        "iand",
        "iconcat",
        "ifloordiv",
        "ilshift",
        "imatmul",
        "imod",
        "imul",
        "ior",
        "ipow",
        "irshift",
        "isub",
        "itruediv",
        "ixor",
        "setitem",
    )
)
# Functions of Regraft that only inspect a module: their calls are guards, not side effects.
PREDICATES = frozenset(RUN_TIME_TESTS.values())
# Attributes of tensors whose kind their name tells.
ATTRIBUTE_KINDS: Mapping[str, Kind] = {
    "shape": "tuple",
    "dtype": "dtype",
    "T": "tensor",
    "mT": "tensor",
    "data": "tensor",
    "ndim": "int",
}

Arguments = tuple[Sequence[Value], Mapping[str, Value]]
# Operations whose result is a named tuple of values and indices.
_PAIR_OPS = frozenset({"cummax", "cummin", "kthvalue", "mode", "sort", "topk"})
_PAIR_NAMES = ("values", "indices")


def own_op(spelling: str) -> str | None:
    """Return the canonical name of an op or predicate of Regraft or a vendored copy; None for any
    other name."""
    module, _, name = spelling.rpartition(".")
    is_own = name.islower() and (module == "regraft.ops" or module.endswith("regraft_ops"))
    return f"regraft.ops.{name}" if is_own else None


def predicate(spelling: str) -> str | None:
    """Return the canonical name of a predicate of Regraft; None for any other name."""
    op = own_op(spelling)
    return op if op in PREDICATES else None


def writes(node: Node) -> bool:
    """Return whether a node writes into its first argument."""
    return node.op == "py.setitem" or (node.op != "call" and changes_input(node.op, node.args))


def changes_input(op: str, args: Mapping[str, Value]) -> bool:
    """Return whether an operation may write into its input."""
    inplace = args.get("inplace")
    return op.endswith("_") or (inplace is not None and inplace.const is not False)


def record_custom_code(frame: Frame, name: str, expr: ast.AST) -> None:
    """Record a side effect if the file itself defines the operator, property or iteration of this
    name."""
    if name in frame.scope.custom_operations:
        frame.node("call", {}, expr, effect=True, spelling=name)


def record_iteration(frame: Frame, source: Value, expr: ast.AST) -> None:
    """Record that iterating over a value may run an iterator of the file; tensors, tuples and
    layers have none."""
    if source.kind not in ("tensor", "tuple") and not source.layers:
        record_custom_code(frame, "__iter__", expr)


def attribute(frame: Frame, base: Value, name: str, expr: ast.AST) -> Value:
    """Return the value of an attribute; a second read gives the same value until attributes are
    forgotten."""
    record_custom_code(frame, name, expr)
    key = (base.id, name)
    earlier = frame.attributes.get(key)
    if earlier is not None:
        base.uses.append(frame.node("py.attr", {"base": base}, expr, earlier.kind, spelling=name))
        return earlier
    if base.node is not None and base.node.op in _PAIR_OPS and name in _PAIR_NAMES:
        index = frame.constant(_PAIR_NAMES.index(name))
        return frame.node("py.item", {"base": base, "index": index}, expr, "tensor").output
    kind = ATTRIBUTE_KINDS.get(name, "unknown")
    value = frame.node("py.attr", {"base": base}, expr, kind, spelling=name).output
    frame.attributes[key] = value
    return value


def enumerate_args(positional: Sequence[Value]) -> list[tuple[str, Value]]:
    """Return positional arguments with their numbers as names."""
    return [(str(index), value) for index, value in enumerate(positional)]


def call(
    frame: Frame, callee: Value | None, arguments: Arguments, expr: ast.AST, spelling: str
) -> Value:
    """Return the value of an opaque call, which uses its arguments and may have side effects."""
    positional, keywords = arguments
    args = dict(enumerate_args(positional))
    args.update((name, value) for name, value in keywords.items())
    if callee is not None and callee.kind != "module":
        args["callee"] = callee
    layer = callee if callee is not None and callee.kind == "module" else None
    return frame.node(
        "call", args, expr, effect=own_op(spelling) is None, spelling=spelling, layer=layer
    ).output


def glue(
    frame: Frame, op: str, values: Sequence[Value], expr: ast.AST, kind: str = "unknown"
) -> Node:
    """Return a new node of Python glue, which has no side effects; its arguments are numbered."""
    return frame.node(op, dict(enumerate_args(values)), expr, kind)  # type: ignore[arg-type]
