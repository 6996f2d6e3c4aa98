"""Lowering of the construction and the calls of modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from regraft.structure.calls import Arguments, call, enumerate_args
from regraft.structure.function_surroundings import Function
from regraft.structure.lowering_state import Frame
from regraft.structure.module_lists import elements
from regraft.structure.optable import bind
from regraft.structure.values_and_nodes import MISSING, Layer, Value

T = TypeVar("T")
SEQUENTIAL = "torch.nn.Sequential"
CONTAINERS = (SEQUENTIAL, "torch.nn.ModuleList", "torch.nn.ModuleDict")
# Attributes that are tensors, or None where the constructor's argument is False.
_PARAMETERS = frozenset({"weight", "bias"})


def construct(frame: Frame, qualified: str, arguments: Arguments, expr: ast.Call) -> Value | None:
    """Return the module value of a constructor call such as `torch.nn.Linear(...)`.

    The result is None when the name is no class of `torch.nn`, or when the arguments do not fit it.
    """
    layer_type = frame.scope.table.layer(qualified)
    if layer_type is None:
        return None
    positional, keywords = arguments
    lines = (expr.lineno, expr.end_lineno or expr.lineno)
    items: tuple[tuple[Layer, ...], ...] = ()
    if qualified in CONTAINERS:
        is_sequential = qualified == SEQUENTIAL
        items = _sequential_items(positional) if is_sequential else _list_items(frame, positional)
        bound = dict(enumerate_args(positional))
    else:
        fitted = bind((layer_type.init,), positional, keywords)
        if fitted is None:
            frame.give_up(expr, f"the arguments do not fit {qualified}")
            return None
        bound = fitted[0]
    all_arguments = {
        **bound,
        **{name: value for name, value in keywords.items() if name not in bound},
    }
    value = frame.node("py.construct", all_arguments, expr, "module", spelling=qualified).output
    for name in frame.scope.late_attributes.intersection(layer_type.attributes):
        bound[name] = frame.value("unknown")  # not what the constructor is given
    value.layers = (Layer(qualified, args=bound, guard=frame.guard, lines=lines, items=items),)
    return value


def mark_possible_layer(frame: Frame, callee: Value, result: Value, expr: ast.Call) -> Value:
    """Add to the result of a call the layers of `torch.nn` that it may be, and return it.

    It may be a layer when the callee is a parameter whose default is a class of `torch.nn`
    (`norm_layer(dim)`), or is computed from one (`get_norm_act_layer(norm_layer, act_layer)(dim)`).
    It may always be something else, too.
    """
    layer_types = dict.fromkeys(_default_layer_types(frame, callee))
    if layer_types:
        lines = (expr.lineno, expr.end_lineno or expr.lineno)
        result.layers = tuple(
            Layer(layer_type, guard=frame.guard, lines=lines) for layer_type in (*layer_types, "")
        )
    return result


def hold_starred(frame: Frame, value: Value, expr: ast.Call) -> Value:
    """Set the modules that a `Sequential` with star arguments may have, `nn.Sequential(*modules)`,
    and return its value."""
    if value.node is None or all(layer.type != SEQUENTIAL for layer in value.layers):
        return value
    modules: list[Value] = []
    for number, argument in enumerate(expr.args):
        part = value.node.args[str(number)]
        modules += elements(frame, part) if isinstance(argument, ast.Starred) else (part,)
    items = _known_items(modules)
    value.layers = tuple(
        replace(layer, items=items) if layer.type == SEQUENTIAL else layer for layer in value.layers
    )
    return value


def opaque_call(
    frame: Frame,
    function: Function,
    callee: Value | None,
    arguments: Arguments,
    expr: ast.AST,
    spelling: str,
) -> Value:
    """Return the value of a call of a function that is not inlined; where the function may return
    containers, these are its layers."""
    value = call(frame, callee, arguments, expr, spelling)
    value.layers = frame.scope.returned(function)
    if value.layers:
        value.kind = "module"
    return value


def _default_layer_types(frame: Frame, callee: Value) -> Iterator[str]:
    """Yield the classes of `torch.nn` that a value is or is computed from, if parameters have their
    defaults."""
    pending = [callee]
    for value in pending:
        name: str | None = None
        if value.origin == "global":
            name = value.name
        elif value in frame.defaults:
            name = frame.scope.names.resolve(frame.defaults[value])
        else:
            pending += [source for source in _layer_sources(value) if source not in pending]
        if name is not None and frame.scope.table.layer(name) is not None:
            yield name


def _layer_sources(value: Value) -> list[Value]:
    """Return the values that may be the layer type which `value` is, or of which it is made.

    They are the options of a φ, the operands of `and` and `or`, and the first argument of a call.
    """
    sources = [option for _, option in value.options]
    node = value.node
    if node is None:
        return sources
    if node.op == "py.bool":
        sources += node.args.values()
    elif node.op in ("call", "py.call") and "0" in node.args:
        sources.append(node.args["0"])
    return sources


def module_alternatives(value: Value) -> tuple[Layer, ...]:
    """Return the layers that a module may be, one of type "" where nothing is known of it."""
    return value.layers or (Layer(""),)


def _list_items(frame: Frame, positional: Sequence[Value]) -> tuple[tuple[Layer, ...], ...]:
    """Return the modules that a list of modules is built of, () when all of them are unknown; those
    of a list that was built in several steps may be any other modules, too."""
    if len(positional) != 1:
        return _known_items(positional)
    source = positional[0]
    if source.items is not None and source not in frame.added:
        return _known_items(source.items)
    items = _known_items(elements(frame, source))
    return tuple((*item, Layer("")) for item in items)


def _known_items(values: Sequence[Value]) -> tuple[tuple[Layer, ...], ...]:
    """Return what each of several modules may be; () where nothing is known of any of them."""
    items = tuple(map(module_alternatives, values))
    return items if any(layer.type for item in items for layer in item) else ()


def _sequential_items(positional: Sequence[Value]) -> tuple[tuple[Layer, ...], ...]:
    """Return the modules that a `Sequential` is built of, some of unknown type; () when all are, or
    their number is."""
    values = positional
    if len(positional) == 1 and not positional[0].layers:
        values = _dictionary_values(positional[0])
    return _known_items(values)


def _dictionary_values(value: Value) -> Sequence[Value]:
    """Return the values of `OrderedDict([(name, value), ...])`; () for any other value."""
    node = value.node
    if node is None or node.spelling != "collections.OrderedDict" or node.args.keys() != {"0"}:
        return ()
    entries = node.args["0"].items or ()
    pairs = [entry.items for entry in entries if entry.items is not None and len(entry.items) == 2]
    return [pair[1] for pair in pairs] if len(pairs) == len(entries) else ()


def layer_attribute(frame: Frame, callee: Value, layers: Sequence[Layer], name: str) -> Value:
    """Return the value of a layer's attribute (`self.dropout.p`), with the constructor's constant
    if it is known."""
    path = frame.path(f"{callee.name}.{name}") if callee.name else frame.value("unknown")
    constant_by_layer = {id(layer): _constructor_constant(frame, layer, name) for layer in layers}
    constants = {repr(const) for const in constant_by_layer.values()}
    is_own = path.origin == "path" or frame.possible
    if len(constants) == 1 and is_own and path.const is MISSING:
        path.const = next(iter(constant_by_layer.values()))
    return path


def _constructor_constant(frame: Frame, layer: Layer, name: str) -> object:
    """Return the constant that the constructor gives an attribute, MISSING when it is no
    constant."""
    argument = layer.args.get(name)
    const = argument.const if argument is not None else _default_constant(frame, layer, name)
    if name not in _PARAMETERS:
        return const
    affine = layer.args.get("elementwise_affine")
    is_absent = const is False or (affine is not None and affine.const is False)
    return None if is_absent else MISSING


def _default_constant(frame: Frame, layer: Layer, name: str) -> object:
    """Return the default of a constructor's parameter; MISSING when there is none."""
    layer_type = frame.scope.table.layer(layer.type)
    for parameter in layer_type.init if layer_type is not None else ():
        if parameter.name == name:
            return parameter.default if parameter.optional else MISSING
    return MISSING


def choice(frame: Frame, base: Value, key: Value, expr: ast.Subscript) -> Value:
    """Return the value of a subscript such as `ACT2FN[config.act]`: a layer whose type depends on a
    run-time value."""
    lines = (expr.lineno, expr.end_lineno or expr.lineno)
    value = frame.node("py.item", {"base": base, "index": key}, expr, "module").output
    source = frame.scope.source.segment(expr)
    value.layers = (
        Layer(
            base.name, args={"key": key}, guard=frame.guard, source=source, choice=True, lines=lines
        ),
    )
    return value
