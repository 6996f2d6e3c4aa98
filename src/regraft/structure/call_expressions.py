"""Lowering of call expressions: of methods, layers, functions, and of values that are called."""

from __future__ import annotations

import ast

from regraft.source.qualified_names import dotted
from regraft.structure import called_layers, calls, containers, layers, operations
from regraft.structure.calls import Arguments, glue
from regraft.structure.last_dimension import SIZE_PARAMETERS
from regraft.structure.lowering_state import Frame
from regraft.structure.named_calls import global_call, inline_call
from regraft.structure.values_and_nodes import Value


def lower_call(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of a call of a method, a layer, a global or local function, or of an opaque
    call."""
    assert isinstance(expr, ast.Call)
    function = expr.func
    if isinstance(function, ast.Attribute):
        value = _method_call(frame, expr, function)
        if value is not None:
            return value
    callee = frame.lower_expression(frame, function)
    arguments = _lower_arguments(frame, expr)
    if isinstance(function, ast.Attribute) and arguments:
        containers.record_change(frame, function, callee, arguments[0])
    if callee.layers:
        if arguments is None:
            return _starred_call(frame, expr, callee)
        return called_layers.layer_call(frame, callee, arguments, expr)
    if arguments is None:
        value = _starred_call(frame, expr, callee)
    elif callee.origin == "global":
        return global_call(frame, expr, callee, arguments)
    else:
        result = _local_call(frame, expr, callee, arguments)
        if result is not None:
            return result
        value = calls.call(frame, callee, arguments, expr, callee.name)
    value = layers.mark_possible_layer(frame, callee, value, expr)
    return layers.hold_starred(frame, value, expr) if arguments is None else value


def _local_call(frame: Frame, expr: ast.Call, callee: Value, arguments: Arguments) -> Value | None:
    """Return the value of a call of a function defined inside this one; None where it cannot be
    inlined."""
    function = frame.local_functions.get(callee)
    if function is None:
        return None
    if frame.can_see(function):
        value = inline_call(frame, expr, function, function.name, arguments, closure=True)
        if value is not None:
            return value
    return layers.opaque_call(frame, function, callee, arguments, expr, callee.name)


def _method_call(frame: Frame, expr: ast.Call, function: ast.Attribute) -> Value | None:
    """Return the value of a method call like `x.softmax(-1)` or `self.name()`; None for any other
    call."""
    path = dotted(function)
    if path is not None:
        root, attributes = path
        if root not in frame.env and root in frame.scope.names.qualified:
            return None
        if root == frame.receiver and "." not in attributes:
            return _self_call(frame, expr, attributes)
    op = frame.scope.table.method(function.attr)
    if op is None:
        return None
    base = frame.lower_expression(frame, function.value)
    if base.kind in operations.NOT_TENSOR or (
        base.origin == "global" and base.name not in frame.env
    ):
        return None
    arguments = _lower_arguments(frame, expr) or _packed_sizes(frame, op, expr)
    if arguments is None:
        return _starred_call(frame, expr, base)
    positional, keywords = arguments
    return operations.tensor_op(
        frame, op, ((base, *positional), keywords), expr, f"torch.Tensor.{function.attr}"
    )


def _self_call(frame: Frame, expr: ast.Call, name: str) -> Value | None:
    """Return the value of `self.name(...)` for a method of the class; None for other attributes,
    such as layers."""
    if name not in frame.scope.methods:
        return None
    arguments = _lower_arguments(frame, expr)
    if arguments is not None and name in frame.scope.final:
        method = frame.scope.methods[name]
        receiver = None if method.decorator_list else frame.env[frame.receiver or ""].value
        value = inline_call(frame, expr, method, f"self.{name}", arguments, receiver)
        if value is not None:
            return value
    args = arguments if arguments is not None else ((_starred_call(frame, expr, None),), {})
    return layers.opaque_call(frame, frame.scope.methods[name], None, args, expr, f"self.{name}")


def _lower_arguments(frame: Frame, expr: ast.Call) -> Arguments | None:
    """Lower the arguments of a call; None when there are star arguments whose number or names are
    unknown."""
    if any(isinstance(argument, ast.Starred) for argument in expr.args):
        return None
    if any(
        keyword.arg is None and not _is_known_dict(frame, keyword.value)
        for keyword in expr.keywords
    ):
        return None
    positional = [frame.lower_expression(frame, argument) for argument in expr.args]
    keywords: dict[str, Value] = {}
    for keyword in expr.keywords:
        value = frame.lower_expression(frame, keyword.value)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        else:
            glue(frame, "py.star", (value,), keyword.value)
            keywords.update(frame.dicts[value])
    return positional, keywords


def _packed_sizes(frame: Frame, op: str, expr: ast.Call) -> Arguments | None:
    """Lower the sizes of a call like `x.view(*sizes, 2, -1)` as one tuple; None for another call.

    One star argument alone may be a data type.
    """
    if op not in SIZE_PARAMETERS or len(expr.args) < 2 or expr.keywords:
        return None
    parts = [lower_part(frame, argument) for argument in expr.args]
    return (glue(frame, "py.tuple", parts, expr, "tuple").output,), {}


def lower_part(frame: Frame, expr: ast.expr) -> Value:
    """Return the value of a part of a display or call, which a star before it hides."""
    if not isinstance(expr, ast.Starred):
        return frame.lower_expression(frame, expr)
    return glue(frame, "py.star", (frame.lower_expression(frame, expr.value),), expr).output


def _is_known_dict(frame: Frame, expr: ast.expr) -> bool:
    """Return whether an expression names a dictionary display that nothing but `**` has
    used since."""
    bound = frame.env.get(expr.id) if isinstance(expr, ast.Name) else None
    if bound is None or bound.value not in frame.dicts or bound.value.joins:
        return False
    return all(use.op == "py.star" for use in bound.value.uses)


def _starred_call(frame: Frame, expr: ast.Call, callee: Value | None) -> Value:
    """Return the value of an opaque call with star arguments; give up on a container of modules."""
    arguments = [
        argument.value if isinstance(argument, ast.Starred) else argument for argument in expr.args
    ]
    arguments += [keyword.value for keyword in expr.keywords]
    values = [frame.lower_expression(frame, argument) for argument in arguments]
    if callee is not None and callee.layers and callee.layers[0].type in layers.CONTAINERS:
        frame.give_up(expr, "star arguments: the number of modules is unknown")
    return calls.call(frame, callee, (values, {}), expr, callee.name if callee is not None else "")
