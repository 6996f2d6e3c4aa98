"""Structures in the notation of the DSL: with guards, or as one sequence of nodes for each feasible
path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from regraft.dsl import print_node
from regraft.dsl.syntax import And, Apply, Condition, Const, Item, Not, Operand, Or, Ref, Test
from regraft.dsl.syntax import Node as SyntaxNode
from regraft.structure import guards
from regraft.structure.guards import Atom, Guard
from regraft.structure.operand_names import DOTTED, Namer, names_of, phis, shown_nodes
from regraft.structure.optable import OPERATORS
from regraft.structure.values_and_nodes import Body, Layer, Node, Structure, Value

MAX_PATH_ATOMS = 12
_SYMBOLS = {op: symbol for symbol, op in OPERATORS.items()}
_COMPARED = re.compile(r"([\w.]+) (<|<=|>|>=) -?[\w.]+")


@dataclass(frozen=True, slots=True)
class PathStructure:
    """One feasible path: the conditions that select it and the nodes that run."""

    condition: str
    nodes: tuple[SyntaxNode, ...]


def layer_nodes(structure: Structure, body: Body | None = None) -> tuple[SyntaxNode, ...]:
    """Return the constructions of a structure's layers, or only of the layers that `body` calls."""
    called = None
    if body is not None:
        called = {node.layer.name.split("[")[0] for node in body.nodes if node.layer is not None}
    nodes = []
    for path, layers in structure.layers.items():
        for layer in layers:
            if layer.type and (called is None or path in called):
                nodes.append(_layer_node(layer))
    return tuple(nodes)


def _layer_node(layer: Layer) -> SyntaxNode:
    """Return the construction of a layer as a node of the DSL."""
    namer = Namer({})
    if layer.choice:
        callee: Operand = Item(Ref(layer.type), namer.operand(layer.args["key"]))
        return SyntaxNode(Apply(callee), (Ref(layer.path),), True, _condition(layer.guard))
    positional = tuple(namer.operand(value) for name, value in layer.args.items() if name.isdigit())
    named = tuple(
        (name, namer.operand(value)) for name, value in layer.args.items() if not name.isdigit()
    )
    return SyntaxNode(
        Apply(Ref(layer.type), positional, named), (Ref(layer.path),), True, _condition(layer.guard)
    )


def body_nodes(body: Body) -> tuple[SyntaxNode, ...]:
    """Return the nodes of a function in order, each with its guard; φ values appear as `phi(...)`
    nodes."""
    shown = shown_nodes(body)
    namer = Namer(names_of(body, shown), {})
    nodes = []
    for node in shown:
        for phi in _new_phis(node, namer):
            nodes.append(phi)
        nodes.append(_node(node, namer, _condition(node.guard)))
    return tuple(nodes)


def paths(body: Body) -> tuple[PathStructure, ...] | None:
    """Return the different node sequences of all feasible paths; None when there are too many
    atoms."""
    shown = shown_nodes(body)
    path_guards: list[Guard] = [node.guard for node in shown]
    path_guards += [guard for node in shown for phi in phis(node) for guard, _ in phi.options]
    assignments = guards.assignments(path_guards, MAX_PATH_ATOMS)
    if assignments is None:
        return None
    path_by_text: dict[tuple[str, ...], PathStructure] = {}
    for assignment in assignments:
        active = [node for node in shown if guards.evaluate(node.guard, assignment)]
        namer = Namer(names_of(body, active), assignment)
        nodes = tuple(_node(node, namer, None) for node in active)
        text = tuple(print_node(node) for node in nodes)
        path_by_text.setdefault(text, PathStructure(_describe(assignment), nodes))
    return tuple(path_by_text.values())


def _describe(assignment: Mapping[Atom, bool]) -> str:
    """Return the condition of an assignment as text."""
    return " and ".join(
        atom.text if value else guards.text(guards.negate(atom))
        for atom, value in assignment.items()
    )


def _new_phis(node: Node, namer: Namer) -> Iterator[SyntaxNode]:
    """Yield a `phi(...)` node for each argument of a node that is a φ value not shown before."""
    for value in node.args.values():
        if value.origin == "phi" and value not in namer.joined and value.options:
            namer.joined.add(value)
            args = tuple(namer.operand(option) for _, option in value.options)
            yield SyntaxNode(Apply(Ref("phi"), args), (namer.operand(value),))


def _node(node: Node, namer: Namer, guard: Condition | None) -> SyntaxNode:
    """Return a node of the structure as a node of the DSL."""
    outputs = _outputs(node, namer)
    if node.layer is not None:
        apply = _layer_apply(node, node.layer, namer)
    elif node.op in _SYMBOLS and node.spelling == node.op:
        apply = _operator_apply(node, namer)
    else:
        apply = _function_apply(node, namer)
    return SyntaxNode(apply, outputs, guard=guard)


def _layer_apply(node: Node, module: Value, namer: Namer) -> Apply:
    """Return the call of a module, under its type where that is certain."""
    inputs = [node.args["input"]] if "input" in node.args else list(node.args.values())
    callee = _layer_callee(module)
    return Apply(callee, tuple(namer.operand(argument) for argument in inputs))


def _layer_callee(module: Value) -> Operand:
    """Return the type of a module or the table that it is from; its name where the type is
    unknown."""
    kinds = {layer.source or layer.type for layer in module.layers}
    if len(kinds) != 1 or kinds == {""}:
        return Ref(module.name or "module")
    layer = module.layers[0]
    if layer.choice:
        return Item(Ref(layer.type), Namer({}).operand(layer.args["key"]))
    return Ref(layer.type)


def _operator_apply(node: Node, namer: Namer) -> Apply:
    """Return an operator with its operands."""
    names = [name for name in ("input", "other", "exponent") if name in node.args]
    operands = tuple(namer.operand(node.args[name]) for name in names)
    return Apply(_SYMBOLS[node.op], operands)


def _function_apply(node: Node, namer: Namer) -> Apply:
    """Return the call of a function; arguments that the source leaves out are left out."""
    positional: list[Operand] = []
    named: list[tuple[str, Operand]] = []
    for name, value in node.args.items():
        if name.isdigit() or name == "input":
            positional.append(namer.operand(value))
    for name, value in node.args.items():
        if not (name.isdigit() or name == "input" or name in node.defaults):
            named.append((name, namer.operand(value)))
    return Apply(Ref(node.spelling or node.op), tuple(positional), tuple(named))


def _outputs(node: Node, namer: Namer) -> tuple[Operand, ...]:
    """Return the output of a node, or the operands that it is unpacked into."""
    elements = node.output.items
    if (
        elements
        and not node.output.names
        and all(element.node is not None and element.node.op == "py.item" for element in elements)
    ):
        return tuple(namer.operand(element) for element in elements)
    return (namer.operand(node.output),)


def _condition(guard: Guard) -> Condition | None:
    return None if guard == guards.TRUE else _formula(guard)


def _formula(guard: Guard) -> Condition:
    if isinstance(guard, guards.Not):
        return Not(_formula(guard.operand))
    if isinstance(guard, Atom):
        return _test(guard)
    parts = tuple(_flat_operands(guard.operands, type(guard)))
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Test(Const(isinstance(guard, guards.And)))
    connective: Callable[[tuple[Condition, ...]], Condition] = (
        And if isinstance(guard, guards.And) else Or
    )
    return connective(parts)


def _flat_operands(operands: Sequence[Guard], kind: type) -> Iterator[Condition]:
    """Yield the operands of a conjunction or disjunction as conditions, nested ones of the same
    kind taken apart."""
    for operand in operands:
        if isinstance(operand, kind) and not isinstance(operand, Atom | guards.Not):
            yield from _flat_operands(operand.operands, kind)
        else:
            yield _formula(operand)


def _test(atom: Atom) -> Condition:
    """Return an atom as a test of the DSL."""
    text, operator, argument = atom.text, None, None
    if atom.kind == "none":
        text, operator, argument = text.removesuffix(" is None"), "is", Const(None)
    elif atom.kind == "eq" and isinstance(atom.argument, int | float | str | bool | None):
        text, operator, argument = text.split(" == ")[0], "==", Const(atom.argument)
    elif atom.kind in guards.ORDERS and isinstance(atom.argument, int | float):
        comparison = _COMPARED.fullmatch(text)
        if comparison is not None:
            text, operator, argument = comparison[1], comparison[2], Const(atom.argument)
    # anything but a plain name is quoted: it is text of the source that is not analysed
    left: Operand = Ref(text) if DOTTED.fullmatch(text) else Const(text)
    return Test(left, operator, argument)
