"""Types of the structure: values, nodes, layers, bodies. See DESIGN in docs/architecture.md.

Values and nodes are created by the thousand for each file; they are plain slotted objects compared by identity,
because a frozen dataclass costs three times as much to make. Nothing changes them after lowering, but `release`.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from regraft.structure.guards import TRUE, Guard

Kind = Literal["tensor", "int", "scalar", "bool", "str", "none", "tuple", "dtype", "module", "unknown"]
Origin = Literal["param", "const", "path", "global", "node", "phi", "unknown"]


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@dataclass(slots=True, eq=False)
class Value:
    """One SSA value.

    origin  where it comes from: a parameter, a constant, an attribute path (`self.dropout.p`), an imported or
            builtin name, a node, or a φ of other values (`options`: guard and value of each alternative)
    name    the parameter, path or qualified name; for a node's value the first name bound to it
    const   the constant it is known to be, else MISSING
    layers  what module it may be (alternatives under their guards), when it is one
    items   the values of a tuple or list that is built in sight
    uses    every node that takes it
    joins   the φ values that it is an alternative of
    born    when it was made; later: an attribute that is read after something may have changed it
    """

    id: int
    origin: Origin
    kind: Kind = "unknown"
    name: str = ""
    const: object = MISSING
    node: Node | None = None
    options: tuple[tuple[Guard, Value], ...] = ()
    layers: tuple[Layer, ...] = ()
    items: tuple[Value, ...] | None = None
    uses: list[Node] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    joins: list[Value] = field(default_factory=list)
    born: int = 0
    later: bool = False

    @property
    def is_layer(self) -> bool:
        """Whether it is certainly a module that the constructor built: attributes that are stay what they are."""
        return bool(self.layers) and all(layer.type or layer.choice for layer in self.layers)

    def alternatives(self) -> tuple[Value, ...]:
        """The values that it may be: itself, or of a φ those that are none themselves."""
        found, pending = dict.fromkeys((self,)), [self]
        while pending:
            new = [one for _, one in pending.pop().options if one not in found]
            found.update(dict.fromkeys(new))
            pending += new
        return tuple(one for one in found if not one.options)

    def every_use(self) -> tuple[Node, ...]:
        """Nodes that may take this value, directly or through φ values."""
        found, seen, pending = dict.fromkeys(self.uses), {self}, list(self.joins)
        while pending:
            phi = pending.pop()
            if phi not in seen:
                seen.add(phi)
                found.update(dict.fromkeys(phi.uses))
                pending += phi.joins
        return tuple(found)

    def key(self) -> str:
        """Identity across the functions of a class: paths by name, others by name and number."""
        if self.origin in ("path", "global"):
            return f"{self.name}@{self.id}" if self.later else self.name
        if self.layers and self.layers[0].choice:
            return self.layers[0].source
        stored = next((name for name in self.names if name.startswith("self.")), None)
        if stored is not None and self.origin != "param":
            return f"{stored}@{self.id}" if self.later else stored
        name = self.name if self.origin == "param" else self.names[0] if self.names else ""
        return f"{name}#{self.id}"

    def attribute(self) -> tuple[Value, str] | None:
        """(base, name) when this is an attribute of another value."""
        if self.node is not None and self.node.op == "py.attr":
            return self.node.args["base"], self.node.spelling
        return None


@dataclass(slots=True, eq=False)
class Statement:
    """One statement in one block: `block` numbers the statement list, `loop` the innermost loop (0: none).

    entry is the condition under which its block runs.
    """

    node: ast.stmt
    block: int
    loop: int
    time: int
    end: int = 0
    entry: Guard = TRUE


@dataclass(slots=True, eq=False)
class Node:
    """One computation: a tensor operation, a layer's call, or Python glue (`py.*`, `call`).

    op        canonical operation (`softmax`); `call` for what cannot be seen through; `py.*` for glue
    args      normalised arguments by parameter name; `defaults` are those the source leaves out
    effect    it may change something that others see, so nothing is moved across it
    layer     the value of the module that is called, for a layer's node
    spelling  how the source names it, fully qualified where known
    expr      its expression in the lowered function; for what an inlined function computes, the call of it
    inner     the expression inside the inlined function, else None
    away      that function is one of another file
    """

    op: str
    args: dict[str, Value]
    output: Value
    guard: Guard
    expr: ast.AST
    statement: Statement
    time: int
    spelling: str = ""
    layer: Value | None = None
    effect: bool = False
    random: bool = False
    defaults: frozenset[str] = frozenset()
    loop: int = 0
    inner: ast.AST | None = None
    away: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A module that a class builds: its path, its type, the constructor's arguments and the guard it is built under.

    type    qualified name (`torch.nn.Dropout`), the name of a class of the file, or "" when unknown
    choice  its type depends on a run-time value (`ACT2FN[config.act]`); `source` is that expression
    items   the modules inside a `Sequential`, or one element for a `ModuleList` built by a comprehension
    lines   first and last line of the constructor's call
    """

    type: str
    path: str = ""
    args: Mapping[str, Value] = field(default_factory=dict)
    guard: Guard = TRUE
    source: str = ""
    choice: bool = False
    items: tuple[Layer, ...] = ()
    lines: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """A name was bound to a value at a time; `statement` made the binding (None at entry and at joins)."""

    value: Value
    time: int
    statement: Statement | None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A place that the lowering could not follow, and why."""

    line: int
    column: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The lowered form of one function: nodes in order, and who was bound to what when.

    compiled  a decorator of `torch.jit` compiles the function
    compound  calls that compute several nodes (a `Sequential`, an inlined function), with the value of the whole
    inlined   calls that were inlined, with the function's name; `self.` before a method's
    writers   nodes that write into their first argument
    entered   the condition under which each statement runs
    """

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    nodes: tuple[Node, ...]
    log: Mapping[str, tuple[Binding, ...]]
    stores: tuple[tuple[str, Guard, Value, ast.stmt], ...]
    opaque: tuple[Opaque, ...]
    index: Mapping[str, tuple[Node, ...]]
    compiled: bool = False
    compound: Mapping[ast.AST, Value] = field(default_factory=dict)
    inlined: Mapping[ast.AST, str] = field(default_factory=dict)
    writers: tuple[Node, ...] = ()
    entered: Mapping[ast.stmt, Guard] = field(default_factory=dict)

    def release(self) -> None:
        """Take the values apart when nobody needs the body any more, so that they need no garbage collection."""
        values = [event.value for events in self.log.values() for event in events]
        for node in self.nodes:
            values += node.args.values()
            values.append(node.output)
            if node.layer is not None:
                values.append(node.layer)
            node.args.clear()
            node.output.node = None
        for value in values:
            value.uses.clear()
            value.joins.clear()

    def reaching(self, name: str, time: int, deleted: Collection[Statement] = ()) -> Value | None:
        """The value that `name` holds just before `time`, were the `deleted` statements gone."""
        events = self.log.get(name, ())
        position = bisect_left(events, time, key=lambda one: one.time) - 1
        while position >= 0 and events[position].statement in deleted:
            position -= 1
        return events[position].value if position >= 0 else None


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """One model class, or one function outside classes (`cls` None): its layers and its bodies."""

    name: str
    cls: ast.ClassDef | None
    layers: Mapping[str, tuple[Layer, ...]]
    bodies: tuple[Body, ...]
