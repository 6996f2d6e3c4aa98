"""Calls of layers: the operations that they are, with their inputs by name."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from regraft.structure.calls import Arguments, call
from regraft.structure.layers import SEQUENTIAL, T, layer_attribute
from regraft.structure.lowering_state import Frame
from regraft.structure.operations import function_op, has_effect, tensor_op
from regraft.structure.optable import LayerType, Parameter, bind, table
from regraft.structure.values_and_nodes import Layer, Value


def computed_op(qualified: str) -> str | None:
    """Return the canonical operation of a layer type or a function by its qualified name; None when
    unknown."""
    layer_type = table().layer(qualified)
    return layer_type.op if layer_type is not None else function_op(qualified)


def layer_call(frame: Frame, callee: Value, arguments: Arguments, expr: ast.AST) -> Value:
    """Return the value of a call of a module: that of its operation when the type is known, else of
    an opaque call, before which stand the nodes of each `Sequential` that the module may be."""
    if len(arguments[0]) != 1 or not any(map(is_known_sequential, callee.layers)):
        return _single_layer_call(frame, callee, arguments, expr)
    if len(callee.layers) == 1:
        value = _sequential_value(frame, callee, callee.layers[0], arguments[0][0], expr)
    else:
        for layer in filter(is_known_sequential, callee.layers):
            _record_possibility(frame, callee, layer, expr)
        value = call(frame, callee, arguments, expr, "")
    frame.compound[frame.site or expr] = value
    return value


def _single_layer_call(frame: Frame, callee: Value, arguments: Arguments, expr: ast.AST) -> Value:
    """Return the value of a call of a module that is no `Sequential` whose modules are known."""
    positional, keywords = arguments
    if len({layer.type for layer in callee.layers}) != 1:
        return call(frame, callee, arguments, expr, "")
    qualified = callee.layers[0].type
    function = function_op(qualified)
    if function is not None:
        return tensor_op(frame, function, arguments, expr, qualified)
    layer_type = frame.scope.table.layer(qualified)
    if layer_type is None or layer_type.op is None:
        return call(frame, callee, arguments, expr, "")
    inputs = bind_inputs(layer_type, positional, keywords)
    if inputs is None:
        return call(frame, callee, arguments, expr, "")
    return _layer_operation(frame, callee, layer_type, layer_type.op, inputs, expr)


def is_known_sequential(layer: Layer) -> bool:
    """Return whether a layer is a `Sequential` whose modules are known."""
    return layer.type == SEQUENTIAL and bool(layer.items)


def _sequential_value(
    frame: Frame, callee: Value, container: Layer, value: Value, expr: ast.AST
) -> Value:
    """Return the value of a call of a `Sequential`: its modules are called one after the other."""
    outer, frame.member = frame.member, True
    for number, alternatives in enumerate(container.items):
        inner = frame.value("path", "module", f"{callee.name}[{number}]" if callee.name else "")
        inner.layers = alternatives
        value = layer_call(frame, inner, ((value,), {}), expr)
    frame.member = outer
    return value


def _record_possibility(frame: Frame, callee: Value, container: Layer, expr: ast.AST) -> None:
    """Add the nodes of a `Sequential` that a module may be.

    Their input is a value of its own, and nothing uses their result: what uses the argument and the
    result of the call is the call.
    """
    outer, frame.possible = frame.possible, True
    _sequential_value(frame, callee, container, frame.value("unknown", "tensor"), expr)
    frame.possible = outer


def _layer_operation(
    frame: Frame,
    callee: Value,
    layer_type: LayerType,
    op: str,
    inputs: Mapping[str, Value],
    expr: ast.AST,
) -> Value:
    """Return the value of the operation `op` that a layer computes from its inputs, attributes and
    defaults."""
    operation = frame.scope.table.operation(op)
    args = dict(inputs)
    for name in layer_type.attributes:
        args[name] = layer_attribute(frame, callee, callee.layers, name)
    omitted = [
        parameter
        for parameter in operation.signatures[0]
        if parameter.optional and parameter.name not in args
    ]
    for parameter in omitted:
        args[parameter.name] = frame.constant(parameter.default)
    node = frame.node(
        op,
        args,
        expr,
        operation.kind,  # type: ignore[arg-type]
        effect=has_effect(op, args),
        spelling=callee.layers[0].type,
        layer=callee,
        defaults=frozenset(parameter.name for parameter in omitted),
        random=operation.random,
    )
    return node.output


def bind_inputs(
    layer_type: LayerType, positional: Sequence[T], keywords: Mapping[str, T]
) -> dict[str, T] | None:
    """Return the arguments of a layer's call by parameter name; None where they do not fit."""
    if keywords and not layer_type.several:
        return None
    bound = bind((_call_parameters(layer_type),), positional, keywords)
    return None if bound is None else bound[0]


def layer_inputs(layer_type: LayerType) -> tuple[str, ...]:
    """Return the names of the parameters that a layer's call must have: one input, for losses also
    a target, and for attention a query, a key and a value."""
    return tuple(
        parameter.name for parameter in _call_parameters(layer_type) if not parameter.optional
    )


def _call_parameters(layer_type: LayerType) -> tuple[Parameter, ...]:
    """Return the parameters of a layer's call."""
    parameters = table().operation(layer_type.op or "").signatures[0]
    if layer_type.several:
        return parameters
    return tuple(
        parameter
        for parameter in parameters
        if parameter.name not in layer_type.attributes
        and parameter.name in ("input", "target")
        and not parameter.optional
    )
