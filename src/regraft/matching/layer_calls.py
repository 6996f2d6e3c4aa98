"""The calls of layers: whether a call may be that of a pattern, and what its constructor binds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from regraft.dsl.syntax import Var, Wildcard
from regraft.matching.arguments import default_arguments, describe_node, is_same_value
from regraft.matching.constants import is_certainly
from regraft.matching.pattern import OWN_CLASS, LayerPattern, Pattern, PatternNode
from regraft.structure import guards
from regraft.structure.called_layers import (
    bind_inputs,
    computed_op,
    is_known_sequential,
    layer_inputs,
)
from regraft.structure.guards import Guard
from regraft.structure.library_activations import may_compute
from regraft.structure.optable import LayerType, table
from regraft.structure.values_and_nodes import MISSING, Layer, Node, Value

# The ops of Regraft that take a Sequential in the place of its first module.
TAKING_CONTAINERS = frozenset({"regraft.ops.linear_of_parts"})


def may_be_passed_whole(pattern: Pattern, pattern_node: PatternNode, node: Node) -> bool:
    """Return whether a call may be that of a layer which an op of Regraft gets as it is."""
    return pattern_node.layer in pattern.passed_whole and can_be_layer(pattern, pattern_node, node)


def can_be_layer(pattern: Pattern, pattern_node: PatternNode, node: Node) -> bool:
    """Return whether a call may turn out, when the model runs, to be that of the layer in a
    pattern: its layer may be of several types of torch.nn, one of them the pattern's, or is
    replaced later; if the rule names several types, also a layer that the configuration chooses.
    A Sequential counts as its first module where the pattern's op takes it."""
    if node.layer is None or possible_inputs(node, pattern_node) is None:
        return False
    layers: Sequence[Layer] = node.layer.layers
    if pattern.kernel in TAKING_CONTAINERS:
        layers = [head for layer in layers for head in _heads(layer)]
    certain_layers = [layer for layer in layers if not layer.choice]
    types = {layer.type for layer in certain_layers if layer.type}
    if any(table().layer(layer_type) is None for layer_type in types):
        return False
    if len(certain_layers) < len(layers):
        return pattern_node.chosen
    return len(certain_layers) > 1 and _may_be_built(node, pattern_node.name, certain_layers)


def _may_be_built(node: Node, name: str, layers: Sequence[Layer]) -> bool:
    """Return whether one of several layers, of which one is called, may be of the type `name` where
    the call runs, and for a call with several inputs, such as that of a loss, no other known
    type."""
    types = {layer.type for layer in layers if _can_hold(node.guard, layer.guard)}
    return name in types and (len(node.args) == 1 or types <= {name, ""})


def _heads(layer: Layer) -> tuple[Layer, ...]:
    """Return the layers that may be the first module of a Sequential whose modules are known, built
    where it is; any other layer as it is."""
    if not is_known_sequential(layer):
        return (layer,)
    return tuple(
        replace(head, guard=guards.conjoin(layer.guard, head.guard)) for head in layer.items[0]
    )


def possible_inputs(node: Node, pattern_node: PatternNode) -> dict[str, Value] | None:
    """Return the arguments of a call by the names of the inputs of the layer in a pattern, such as
    input and target for a loss; None where the layer takes others."""
    layer_type = table().layer(pattern_node.name)
    names: tuple[str, ...] = ("input",)
    if layer_type is not None and layer_type.op is not None:
        if layer_type.several:
            return _bound_inputs(node, layer_type, layer_type.op)
        names = layer_inputs(layer_type)
    if node.args.keys() != {str(number) for number in range(len(names))}:
        return None
    return {name: node.args[str(number)] for number, name in enumerate(names)}


def _bound_inputs(node: Node, layer_type: LayerType, op: str) -> dict[str, Value] | None:
    """Return the arguments of a call by the names that a layer with several inputs, such as
    attention, gives them, with its defaults. None where they do not fit, and where a layer of
    another class might tell the call from one with the needed inputs by position, and others by
    keyword that are not constants."""
    positional = [value for name, value in node.args.items() if name.isdigit()]
    keywords = {name: value for name, value in node.args.items() if not name.isdigit()}
    is_plain = len(positional) == len(layer_inputs(layer_type))
    if not is_plain or any(value.const is not MISSING for value in keywords.values()):
        return None
    bound = bind_inputs(layer_type, positional, keywords)
    return None if bound is None else {**default_arguments(op), **bound}


def _can_hold(call_guard: Guard, layer_guard: Guard) -> bool:
    """Return whether a layer may be built under the condition under which it is called, if
    attributes that these read do not change."""
    both = guards.conjoin(call_guard, layer_guard)
    return guards.satisfiable(guards.merge_readings(both))


def has_name_of_pattern(node: Node, pattern_node: PatternNode) -> bool:
    """Return whether a node has the name of the pattern's node: the spelling of its function or
    operator, or the type of its layer. True where the pattern names none."""
    if pattern_node.op != "call":
        return (
            not pattern_node.is_glue or not pattern_node.name or node.spelling == pattern_node.name
        )
    name = pattern_node.name
    if name == OWN_CLASS:
        return (
            node.layer is not None
            and node.args.keys() == {"0"}
            and all(map(_is_of_own_class, node.layer.layers))
        )
    return node.spelling == name or (
        node.layer is not None and any(layer.type == name for layer in node.layer.layers)
    )


def _is_of_own_class(layer: Layer) -> bool:
    """Return whether a layer is certainly of a class that PyTorch does not have, such as a class of
    the file."""
    return bool(layer.type) and not layer.choice and table().layer(layer.type) is None


def can_compute(node: Node, op: str) -> bool:
    """Return whether a call with one argument is of a layer that may turn out to compute `op` at
    run time."""
    if node.op != "call" or node.layer is None or set(node.args) != {"0"}:
        return False
    layers = node.layer.layers
    return any(
        _can_choose(layer, op) if layer.choice else computed_op(layer.type) == op
        for layer in layers
    )


def _can_choose(layer: Layer, op: str) -> bool:
    """Return whether a layer that is looked up in a table by a key, such as an activation by its
    name, may compute `op` for one of the keys that it may be asked for."""
    return any(may_compute(key.const, op) for key in layer.args["key"].alternatives())


def _bind_constructor(
    layer_pattern: LayerPattern, layer: Layer, bindings: Mapping[str, Value]
) -> Mapping[str, Value] | str:
    """Return the bindings extended by the variables among a constructor's operands, or, as text,
    which argument is not the pattern's. An argument that the source leaves out is its default, or
    unknown where it has none."""
    for name, operand in layer_pattern.args:
        value = layer.args.get(name) or _default_argument(layer_pattern.type, name)
        if isinstance(operand, Var):
            bindings = {**bindings, operand.name: value}
        elif not isinstance(operand, Wildcard) and not is_certainly(operand, value):
            return f"{layer.path or layer.type} is built with another {name}"
    return bindings


def _default_argument(layer_type: str, name: str) -> Value:
    """Return the default of an argument of a layer's constructor; an unknown value where it has
    none."""
    layer = table().layer(layer_type)
    for parameter in layer.init if layer is not None else ():
        if parameter.name == name and parameter.optional:
            return Value(0, "const", const=parameter.default)
    return Value(0, "unknown")


def names_layer(pattern_node: PatternNode) -> bool:
    """Return whether a node of a pattern is the call of a layer whose type the pattern names."""
    if not pattern_node.name or pattern_node.is_glue:
        return False
    return bool(pattern_node.layer) or pattern_node.op != "call" or pattern_node.name == OWN_CLASS


def bind_layer(
    pattern: Pattern, pattern_node: PatternNode, node: Node, bindings: Mapping[str, Value]
) -> tuple[str, Mapping[str, Value]]:
    """Check the type and the constructor's arguments of a node's layer against the pattern. Return
    (reason, bindings): "" and the bindings with the layer and its arguments, or why the layer does
    not fit and the bindings so far."""
    expected = f"expected a layer {pattern_node.name}"
    if node.layer is None:
        return f"{expected}, found a call of {describe_node(node)}", bindings
    types = {layer.type for layer in node.layer.layers}
    is_exact = types == {pattern_node.name} or pattern_node.name == OWN_CLASS
    if not is_exact and not may_be_passed_whole(pattern, pattern_node, node):
        return f"{expected}, found {', '.join(sorted(types))}", bindings
    if not pattern_node.layer:
        return "", bindings
    bound_layer = bindings.get(pattern_node.layer)
    if bound_layer is not None and not is_same_value(bound_layer, node.layer):
        return f"${pattern_node.layer} would stand for two different layers", bindings
    bindings = {**bindings, pattern_node.layer: node.layer}
    for layer in [layer for layer in node.layer.layers if layer.type == pattern_node.name]:
        extended = _bind_constructor(pattern.layers[pattern_node.layer], layer, bindings)
        if isinstance(extended, str):
            return extended, bindings
        bindings = extended
    return "", bindings
