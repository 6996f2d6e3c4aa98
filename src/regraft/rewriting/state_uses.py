"""What the uses of a state that a loop carries do with it: read, copy, write or store it."""

from __future__ import annotations

import ast
from collections.abc import Collection

from regraft.matching.shared_memory_of_tensors import SHARING_OPS, written_values
from regraft.matching.uses import METADATA
from regraft.rewriting.hoisting_checks import is_made_by_torch, keeps_value
from regraft.structure.calls import writes
from regraft.structure.values_and_nodes import Node, Value

_TRANSPOSED = frozenset({"H", "T", "mH", "mT"})
# Operations whose result is the tensor itself where its dtype or device already fits.
_CONVERSIONS = frozenset(
    {"as_subclass", "bfloat16", "bool", "byte", "cdouble", "cfloat", "chalf", "char", "cpu", "cuda"}
    | {"double", "float", "half", "int", "ipu", "long", "mtia", "pin_memory", "short", "to_dense"}
    | {"to_mkldnn", "to_sparse", "to_sparse_coo", "xpu"}
)
# Operations whose result is a view, besides those of SHARING_OPS.
_VIEWS = frozenset(
    {"diagonal", "dsplit", "hsplit", "split_with_sizes", "tensor_split", "unfold", "vsplit"}
    | {"unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "slice_inverse"}
)
# Methods of tensors that compute no tensor from their elements.
_OBSERVING = frozenset(
    {"const_data_ptr", "module_load", "record_stream", "register_hook", "reinforce", "resize"}
    | {"register_post_accumulate_grad_hook", "resize_as", "retain_grad"}
)
# Names by which a loop waits until another thread, stream or process has written into a tensor.
WAITING = frozenset(
    {"barrier", "irecv", "join", "recv", "synchronize", "wait", "wait_event", "wait_stream"}
)
_READING = frozenset({"py.binary", "py.compare", "py.setitem", "py.test", "py.unary", "py.use"})
_COPYING = frozenset({"list", "reversed", "tuple"})

# Modules whose functions compute tensors from tensors.
MODULES = frozenset(
    {"einops", "torch", "torch.fft", "torch.linalg", "torch.nn.functional", "torch.special"}
)


def contains_name(tree: ast.AST, names: Collection[str]) -> bool:
    """Return whether one of the names is read or bound in a part of a syntax tree."""
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(tree))


def may_share(use: Node) -> bool:
    """Return whether the result of a node may share memory with its argument, as a view does, or
    hold it, as a tuple does. True for calls of functions of PyTorch and einops."""
    if use.op == "call":
        module, _, name = use.spelling.rpartition(".")
        is_pure = not name.startswith("_") and not name.endswith("_") and name != "save"
        return module in MODULES and is_pure
    if use.op == "py.attr":
        return use.spelling in _TRANSPOSED
    if use.op == "py.unary":
        return isinstance(use.expr, ast.UnaryOp) and isinstance(use.expr.op, ast.UAdd)
    return use.op in ("py.dict", "py.tuple") or use.op in SHARING_OPS | _CONVERSIONS | _VIEWS


def makes_tensor(use: Node, value: Value) -> bool:
    """Return whether a node only reads a value, computes a new tensor from it, copies it into a
    tensor or appends it to a list that becomes a tensor."""
    if use.op == "py.attr":
        return use.spelling in METADATA
    if use.op == "call":
        attribute = use.args["callee"].attribute() if "callee" in use.args else None
        is_append = attribute is not None and attribute[1] in ("append", "insert")
        return is_append and attribute is not None and becomes_tensor(attribute[0])
    if use.op.startswith("py."):
        return use.op in _READING and not keeps_value(use, value) and not is_stored(use, value)
    return use.op not in _OBSERVING


def writes_into(writer: Node, values: Collection[Value]) -> bool:
    """Return whether a node writes into one of several values, or into a view of one."""
    return writes(writer) and any(value in values for value in written_values(writer))


def is_stored(use: Node, value: Value) -> bool:
    """Return whether a node may store a value in a list or dictionary by `base[index] = ...`: as
    the index, or as the value unless `base` is a tensor or the index has a slice, which only
    tensors take."""
    if use.op != "py.setitem":
        return False
    if use.args.get("value") is not value:
        return use.args.get("index") is value
    if use.args["base"].kind == "tensor" or is_made_by_torch(use.args["base"]):
        return False
    index = use.args["index"].node
    parts = index.args.values() if index is not None else ()
    return not any(_is_slice(part) for part in parts)


def _is_slice(value: Value) -> bool:
    """Return whether a value is a slice or an ellipsis."""
    is_ellipsis = value.origin == "const" and value.const is Ellipsis
    return is_ellipsis or (value.node is not None and value.node.op == "py.slice")


def becomes_tensor(value: Value) -> bool:
    """Return whether a value is a list that this function makes, and of which nothing is used but
    the tensor of all its elements."""
    visited, pending = {value}, [value]
    while pending:
        current = pending.pop()
        is_list = current.node is not None and isinstance(current.node.expr, ast.List)
        if not current.options and not is_list and current.node is not None:
            is_list = copies_list(current.node)
        if not current.options and not is_list:
            return False
        following = [option for _, option in current.options] + current.joins
        for use in current.uses:
            if copies_list(use):
                following.append(use.output)
            elif not reads_list(use):
                return False
        pending += [other for other in following if other not in visited]
        visited.update(following)
    return True


def copies_list(use: Node) -> bool:
    """Return whether a node makes a list of elements of its argument: a slice, or a call of `list`,
    `tuple` or `reversed`."""
    if use.op == "py.item":
        index = use.args.get("index")
        return index is not None and index.node is not None and index.node.op == "py.slice"
    return use.op == "py.call" and use.spelling in _COPYING


def reads_list(use: Node) -> bool:
    """Return whether a node uses a list without passing its elements on one by one: it joins them
    into a tensor, appends, inserts, reverses, counts or tests."""
    if use.op == "py.attr":
        return use.spelling in ("append", "insert", "reverse")
    if use.op == "py.call":
        return use.spelling == "len"
    return use.op in ("cat", "py.test", "py.use", "stack")
