"""Lowering of values inside other values: elements of module lists, loop targets and the parts of
tuples."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from regraft.structure.layers import CONTAINERS
from regraft.structure.lowering_state import Frame
from regraft.structure.module_lists import CHANGES, record_elements
from regraft.structure.optable import SPLITTING_OPS
from regraft.structure.values_and_nodes import Kind, Layer, Node, Value


def element(frame: Frame, container: Value, expr: ast.AST) -> Value:
    """Return one module of a `ModuleList`; its type is known when all modules have the same type.

    Where only some modules are known, and these have one type, it may be of this type or any other.
    Otherwise it may be one of the containers.
    """
    value = frame.node("py.item", {"base": container}, expr, "module").output
    items = tuple(item for layer in container.layers for item in layer.items)
    modules = tuple(layer for item in items for layer in item)
    types = {module.type for module in modules}
    if len(types) == 1:
        value.layers = modules[:1]
    elif len(types) == 2 and "" in types and types.isdisjoint(CONTAINERS):
        value.layers = (next(module for module in modules if module.type), Layer(""))
    else:
        value.layers = _possible_containers(modules)
    return value


def _possible_containers(modules: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return those of several modules that are containers of known modules, and an unknown layer;
    () where there are none."""
    containers = tuple(module for module in modules if module.type in CONTAINERS and module.items)
    return (*containers, Layer("")) if containers else ()


def record_change(
    frame: Frame, function: ast.Attribute, method: Value, arguments: Sequence[Value]
) -> None:
    """Record what the call of a method adds to a list, or to a list of modules, that this function
    builds."""
    if function.attr in CHANGES:
        record_elements(frame, method, arguments)
    if function.attr == "append":
        _record_module(frame, function.value, arguments)


def _record_module(frame: Frame, container: ast.expr, modules: Sequence[Value]) -> None:
    """Add a module, which may be any other, too, to the list of modules that `container` names, if
    this function builds it."""
    bound = frame.env.get(ast.unparse(container))
    if bound is None or len(modules) != 1 or not modules[0].layers:
        return
    layers, node = bound.value.layers, bound.value.node
    if node is None or node.op != "py.construct" or len(layers) != 1:
        return
    if layers[0].type == "torch.nn.ModuleList":
        item = (*modules[0].layers, Layer(""))
        bound.value.layers = (replace(layers[0], items=(*layers[0].items, item)),)


def loop_element(frame: Frame, source: Value, expr: ast.AST) -> Value:
    """Return the value that a loop over `source` binds at each step."""
    if source.layers and source.layers[0].type in CONTAINERS:
        return element(frame, source, expr)
    kind: Kind = "tensor" if source.kind == "tensor" else "unknown"
    value = frame.node(NUMBERED_STEP, {"source": source}, expr, kind).output
    call = source.node
    if call is not None and call.op == "py.call":
        describe_step = _STEPS.get(call.spelling)
        if describe_step is not None:
            describe_step(frame, value, call, expr)
    return value


def _describe_enumerated(frame: Frame, step: Value, call: Node, expr: ast.AST) -> None:
    """Set the parts of a step of `enumerate`, of what is passed to it by position: a number and an
    element."""
    if "0" not in call.args:
        return
    number = frame.node(NUMBERED_STEP, {"source": call.output}, expr, "int").output
    step.items = (number, loop_element(frame, call.args["0"], expr))


def _describe_zipped(frame: Frame, step: Value, call: Node, expr: ast.AST) -> None:
    """Set the parts of a step of `zip`: an element of each argument."""
    step.items = tuple(loop_element(frame, iterable, expr) for iterable in call.args.values())


def _describe_number(frame: Frame, step: Value, call: Node, expr: ast.AST) -> None:
    """Set the kind of a step of `range`."""
    step.kind = "int"


def _describe_reversed(frame: Frame, step: Value, call: Node, expr: ast.AST) -> None:
    """Set the kind of a step of `reversed`: that of a step of its argument."""
    inner = call.args["0"].node if "0" in call.args else None
    if inner is not None and inner.op == "py.call" and inner.spelling == "range":
        step.kind = "int"


# The operation that gives the step of a loop, and functions whose steps are or have numbers.
NUMBERED_STEP = "py.next"
COUNTING_FUNCTIONS = ("enumerate", "range")
# What is known of the steps of a loop over a call of a built-in function, by its name.
_STEPS: Mapping[str, Callable[[Frame, Value, Node, ast.AST], None]] = {
    "enumerate": _describe_enumerated,
    "zip": _describe_zipped,
    "range": _describe_number,
    "reversed": _describe_reversed,
}


def unpack(frame: Frame, target: ast.expr, value: Value) -> Iterator[tuple[ast.expr, Value]]:
    """Yield the names, attributes and subscripts inside an assignment target, each with its part of
    the value."""
    if isinstance(target, ast.Starred):
        yield from unpack(
            frame, target.value, frame.node("py.item", {"base": value}, target, "tuple").output
        )
    elif isinstance(target, ast.Tuple | ast.List):
        for inner_target, part in zip(target.elts, _parts(frame, target, value), strict=True):
            yield from unpack(frame, inner_target, part)
    else:
        yield target, value


def _parts(frame: Frame, target: ast.Tuple | ast.List, value: Value) -> tuple[Value, ...]:
    """Return one value for each element of a target, which become the `items` of `value` unless one
    is starred."""
    has_star = any(isinstance(element, ast.Starred) for element in target.elts)
    if value.items is not None and len(value.items) == len(target.elts) and not has_star:
        return value.items
    modules = _part_layers(value, len(target.elts)) if not has_star else ()
    kind = "module" if modules else _part_kind(value)
    parts = tuple(
        frame.node(
            "py.item", {"base": value, **_index(frame, target.elts, number)}, element, kind
        ).output
        for number, element in enumerate(target.elts)
    )
    for part, layers in zip(parts, modules, strict=False):
        part.layers = layers
    value.items = None if has_star else parts
    return parts


def _part_layers(value: Value, count: int) -> tuple[tuple[Layer, ...], ...]:
    """Return which containers each of `count` modules that a value is unpacked into may be; ()
    where the value is no list of so many modules."""
    lists = [layer.items for layer in value.layers if len(layer.items) == count]
    columns = zip(*lists, strict=True)
    parts = [[layer for item in column for layer in item] for column in columns]
    return tuple(map(_possible_containers, parts))


def _part_kind(value: Value) -> Kind:
    """Return the kind of the parts of a value: tensors of a split tensor, numbers of `x.shape`."""
    if value.node is not None and value.node.op in SPLITTING_OPS:
        return "tensor"
    return "int" if value.kind == "tuple" and value.attribute() is not None else "unknown"


def _index(frame: Frame, elements: Sequence[ast.expr], number: int) -> dict[str, Value]:
    """Return the `index` argument of a part, which counts from the end after a starred element; a
    starred element has none, as it takes several parts."""
    stars = [place for place, element in enumerate(elements) if isinstance(element, ast.Starred)]
    if not stars or number < stars[0]:
        return {"index": frame.constant(number)}
    return {} if number == stars[0] else {"index": frame.constant(number - len(elements))}
