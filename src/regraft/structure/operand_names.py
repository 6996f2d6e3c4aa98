"""Names for the values of a body, as operands of the notation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from regraft.dsl.syntax import Attr, Const, Group, Item, Operand, Ref, Wildcard
from regraft.structure import guards
from regraft.structure.guards import Atom
from regraft.structure.values_and_nodes import MISSING, Body, Node, Value

DOTTED = re.compile(r"[A-Za-z_][\w.]*")


def shown_nodes(body: Body) -> list[Node]:
    """Return the nodes to show: tensor operations, calls of layers and of methods of `self`, but no
    glue."""
    return [node for node in body.nodes if is_shown(node)]


def is_shown(node: Node) -> bool:
    if node.op.startswith("py.") or node.possible:
        return False
    if node.op == "call":
        return node.layer is not None or node.spelling.startswith("self.")
    return node.output.kind in ("tensor", "unknown")


def phis(node: Node) -> Iterator[Value]:
    """Yield the φ values that a node depends on, directly or through other φ values and hidden
    glue."""
    visited: set[Value] = set()
    pending = list(node.args.values())
    while pending:
        value = pending.pop()
        if value in visited:
            continue
        visited.add(value)
        if value.origin == "phi":
            yield value
            pending += [option for _, option in value.options]
        elif value.node is not None and not is_shown(value.node):
            pending += value.node.args.values()


def names_of(body: Body, shown: Sequence[Node]) -> dict[Value, str]:
    """Return the SSA names of values: the source's name, numbered from the second value on, else
    `t1`, `t2`, ..."""
    counts: dict[str, int] = {}
    names: dict[Value, str] = {}
    events = sorted(
        (event.time, name, event.value) for name, log in body.log.items() for event in log
    )
    for _, name, value in events:
        if value not in names and value.const is MISSING and "." not in name and name != "_":
            counts[name] = counts.get(name, 0) + 1
            names[value] = name if counts[name] == 1 else f"{name}.{counts[name]}"
    number = 0
    for node in shown:
        if node.output not in names:
            number += 1
            names[node.output] = f"t{number}"
    return names


@dataclass(slots=True)
class Namer:
    """A mapping of values to operands; on a path (`assignment` not empty) a φ value is the option
    of that path."""

    names: Mapping[Value, str]
    assignment: Mapping[Atom, bool] = field(default_factory=dict)
    joined: set[Value] = field(default_factory=set)

    def operand(self, value: Value) -> Operand:
        """Return the operand for a value; a wildcard when the notation has none."""
        value = self._select_option(value)
        if value in self.names:
            return Ref(self.names[value])
        if value.const is MISSING or value.origin == "path":
            return self._unnamed_operand(value)
        return (
            Const(value.const)
            if isinstance(value.const, int | float | str | bool | None)
            else Wildcard()
        )

    def _select_option(self, value: Value) -> Value:
        """Return the option of a φ value on this path; a loop-carried φ stays itself, as does any
        other value."""
        visited: set[Value] = set()
        while value.origin == "phi" and self.assignment:
            if value in visited:
                return value
            visited.add(value)
            options = [
                option
                for guard, option in value.options
                if guards.evaluate(guard, dict(self.assignment))
            ]
            if not options:
                return value
            value = options[0]
        return value

    def _unnamed_operand(self, value: Value) -> Operand:
        """Return the operand for a value without an SSA name: a path, an attribute, a tuple, an
        item or a wildcard."""
        if value.origin in ("path", "global", "param") and DOTTED.fullmatch(value.name):
            return Ref(value.name)
        node = value.node
        if node is None:
            return Wildcard()
        if node.op == "py.attr":
            return self._attribute_operand(node)
        if node.op == "py.tuple" and value.items is not None:
            return Group(tuple(self.operand(element) for element in value.items))
        if node.op == "py.item" and "index" in node.args:
            base, index = self.operand(node.args["base"]), self.operand(node.args["index"])
            return base if isinstance(base, Wildcard) else Item(base, index)
        return Wildcard()

    def _attribute_operand(self, node: Node) -> Operand:
        """Return the operand for an attribute, as in the source for a parameter or an import."""
        base = self.operand(node.args["base"])
        if isinstance(base, Ref) and base.path == node.args["base"].name:
            return Ref(f"{base.path}.{node.spelling}")
        return base if isinstance(base, Wildcard) else Attr(base, node.spelling)
