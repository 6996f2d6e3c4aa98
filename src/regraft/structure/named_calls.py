"""Lowering of calls by a name: imported, built-in and module-level functions and classes, whose
arguments are lowered already."""

from __future__ import annotations

import ast
from collections.abc import Callable

from regraft.structure import calls, layers, operations
from regraft.structure.calls import Arguments, glue
from regraft.structure.function_surroundings import Function, Scope
from regraft.structure.inline import inline
from regraft.structure.last_dimension import REARRANGE, rearrangement
from regraft.structure.lowering_state import Frame
from regraft.structure.values_and_nodes import Kind, Layer, Value


def global_call(frame: Frame, expr: ast.Call, callee: Value, arguments: Arguments) -> Value:
    """Return the value of a call of an imported, built-in or module-level name; the call is opaque
    if nothing fits."""
    name = callee.name
    for lower_call in _KINDS_OF_CALLS:
        value = lower_call(frame, expr, name, arguments)
        if value is not None:
            return value
    return calls.call(frame, None, arguments, expr, name)


def _operation_call(frame: Frame, expr: ast.Call, name: str, arguments: Arguments) -> Value | None:
    """Return the value of a call of a tensor operation; None for another function."""
    op = operations.function_op(name) or _star_imported_op(frame, name)
    return operations.tensor_op(frame, op, arguments, expr, name) if op is not None else None


def _rearrangement(frame: Frame, expr: ast.Call, name: str, arguments: Arguments) -> Value | None:
    """Return the value of a call of einops that splits the last dimension into halves or pairs, or
    joins the last two; None for another call."""
    positional, keywords = arguments
    if name != REARRANGE or len(positional) != 2 or positional[0].kind in operations.NOT_TENSOR:
        return None
    tensor, pattern = positional
    operation = rearrangement(pattern.const, {axis: size.const for axis, size in keywords.items()})
    if operation is None:
        return None
    op, sizes = operation
    if sizes is not None:
        return operations.unflattened(frame, tensor, sizes, expr, (pattern, *keywords.values()))
    dims = {"start_dim": frame.constant(-2), "end_dim": frame.constant(-1)}
    args = {"input": tensor, **dims}
    return frame.node(op, args, expr, "tensor", spelling=f"torch.Tensor.{op}").output


def _star_imported_op(frame: Frame, name: str) -> str | None:
    """Return the operation that a name may be by `from torch... import *`; None for another name.

    Every star import of the file has to be one of PyTorch.
    """
    names = frame.scope.names
    if "." in name or name in names.bound:
        return None
    if any(star.split(".")[0] != "torch" for star in names.stars):
        return None
    for star in names.stars:
        op = frame.scope.table.canonical_op(f"{star}.{name}")
        if op:
            return op
    return None


def _layer_construction(
    frame: Frame, expr: ast.Call, name: str, arguments: Arguments
) -> Value | None:
    """Return the module that a constructor of `torch.nn` builds; None for another function."""
    return layers.construct(frame, name, arguments, expr)


def _definition_call(frame: Frame, expr: ast.Call, name: str, arguments: Arguments) -> Value | None:
    """Return the value of a call of a class or function of the file; None for another name.

    A class is taken to be a module type; a function is inlined where possible.
    """
    definition = frame.scope.names.definitions.get(name)
    if definition is None:
        return None
    if isinstance(definition, ast.ClassDef):
        return _instance(frame, expr, name, arguments)
    value = inline_call(frame, expr, definition, name, arguments)
    if value is not None:
        return value
    return layers.opaque_call(frame, definition, None, arguments, expr, name)


def _instance(frame: Frame, expr: ast.Call, name: str, arguments: Arguments) -> Value:
    """Return the value of a call of a class of the file, which is taken to be a module type."""
    value = calls.call(frame, None, arguments, expr, name)
    positional, keywords = arguments
    args = {**dict(calls.enumerate_args(positional)), **keywords}
    lines = (expr.lineno, expr.end_lineno or expr.lineno)
    value.layers = (Layer(name, args=args, guard=frame.guard, lines=lines),)
    value.kind = "module"
    return value


def _imported_call(frame: Frame, expr: ast.Call, name: str, arguments: Arguments) -> Value | None:
    """Return the value of a call of a function of another file of the package; None where it cannot
    be inlined or the file replaces it."""
    definition = frame.scope.imported(name) if "." in name else None
    replacements = frame.scope.replacements
    if definition is None or (replacements is not None and replacements.of_name(name)):
        return None
    scope, function = definition
    return inline_call(frame, expr, function, name, arguments, scope=scope)


def _pure_call(frame: Frame, expr: ast.Call, name: str, arguments: Arguments) -> Value | None:
    """Return the value of a call of a function without side effects that takes no tensors; None for
    another function."""
    is_pure = name.startswith(calls.PURE_MODULES) and name not in calls.WRITING_FUNCTIONS
    if name not in calls.PURE_FUNCTIONS and not is_pure:
        return None
    kind: Kind = "scalar" if name.startswith("math.") else "unknown"
    return _python_call(frame, expr, name, arguments, kind)


def _builtin_call(frame: Frame, expr: ast.Call, name: str, arguments: Arguments) -> Value | None:
    """Return the value of a call of a built-in function without side effects; None for another
    function."""
    if name not in calls.PURE_BUILTINS:
        return None
    positional, _ = arguments
    if name in calls.CONSUMERS:
        for value in positional:
            calls.record_iteration(frame, value, expr)
    elif name == "getattr" and len(positional) > 1:
        calls.record_custom_code(frame, str(positional[1].const), expr)
    return _python_call(frame, expr, name, arguments, calls.PURE_BUILTINS[name])


def _python_call(
    frame: Frame, expr: ast.Call, name: str, arguments: Arguments, kind: Kind
) -> Value:
    """Return the value of a call without side effects, as glue."""
    positional, keywords = arguments
    node = glue(frame, "py.call", (*positional, *keywords.values()), expr, kind)
    node.spelling = name
    return node.output


# Each lowers one kind of function and returns None for the others; the first that fits counts.
_KINDS_OF_CALLS: tuple[Callable[[Frame, ast.Call, str, Arguments], Value | None], ...] = (
    _operation_call,
    _rearrangement,
    _layer_construction,
    _definition_call,
    _imported_call,
    _pure_call,
    _builtin_call,
)


def inline_call(
    frame: Frame,
    expr: ast.Call,
    function: Function,
    name: str,
    arguments: Arguments,
    receiver: Value | None = None,
    closure: bool = False,
    scope: Scope | None = None,
) -> Value | None:
    """Return the value of a call by inlining the function; None when it cannot be inlined."""
    return inline(
        frame, expr, function, name, arguments, frame.lower_block, receiver, closure, scope
    )
