"""Types of the structure: values, nodes, layers, bodies. See DESIGN in docs/architecture.md.

Values and nodes are created by the thousand for each file; they are plain slotted objects compared
by identity, because a frozen dataclass costs three times as much to create. After lowering only
`Body.release` changes them.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from regraft.structure.guards import TRUE, Guard
from regraft.structure.optable import RESHAPING_OPS

Kind = Literal[
    "tensor", "int", "scalar", "bool", "str", "none", "tuple", "dtype", "module", "unknown"
]
Origin = Literal["param", "const", "path", "global", "node", "phi", "unknown"]


class _Missing:
    """The type of MISSING, which stands for an unknown constant."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@dataclass(slots=True, eq=False)
class Value:
    """One SSA value.

    origin         the source of the value: a parameter, a constant, an attribute path
                   (`self.dropout.p`), an imported or builtin name, a node, or a φ of other values
    name           the parameter, path or qualified name; for a φ a name bound to it or its options;
                   else ""
    const          the constant that the value is known to be, else MISSING
    node           the node that computes the value, if any
    options        the guard and the value of each alternative of a φ
    layers         the modules that the value may be (alternatives under their guards)
    items          the values in a tuple or list whose construction is in the function, else None
    uses           the nodes that take the value
    names          the names and attribute paths that the value was bound to, in order
    joins          the φ values that have the value as an option
    born           the time at which the value was created
    maybe_changed  the attribute path of the value may have had another value earlier in the
                   function
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
    maybe_changed: bool = False

    @property
    def is_layer(self) -> bool:
        """True for a value that is certainly a module; attributes that hold modules are taken not
        to change."""
        return bool(self.layers) and all(layer.type or layer.choice for layer in self.layers)

    def alternatives(self) -> tuple[Value, ...]:
        """Return the values that this value may be: itself, or for a φ its options, with nested φ
        values resolved."""
        values, pending = dict.fromkeys((self,)), [self]
        while pending:
            new_options = [option for _, option in pending.pop().options if option not in values]
            values.update(dict.fromkeys(new_options))
            pending += new_options
        return tuple(value for value in values if not value.options)

    def every_use(self) -> tuple[Node, ...]:
        """Return the nodes that may take this value, directly or through φ values."""
        uses, visited, pending = dict.fromkeys(self.uses), {self}, list(self.joins)
        while pending:
            phi = pending.pop()
            if phi not in visited:
                visited.add(phi)
                uses.update(dict.fromkeys(phi.uses))
                pending += phi.joins
        return tuple(uses)

    def key(self) -> str:
        """Return the identity of the value in all functions of a class: the name of a path, else
        name and number."""
        if self.origin in ("path", "global"):
            return f"{self.name}@{self.id}" if self.maybe_changed else self.name
        if self.layers and self.layers[0].choice:
            return self.layers[0].source
        stored = next((name for name in self.names if name.startswith("self.")), None)
        if stored is not None and self.origin != "param":
            return f"{stored}@{self.id}" if self.maybe_changed else stored
        name = self.name if self.origin == "param" else self.names[0] if self.names else ""
        return f"{name}#{self.id}"

    def attribute(self) -> tuple[Value, str] | None:
        """Return (base, name) for a value that is an attribute of another value, else None."""
        if self.node is not None and self.node.op == "py.attr":
            return self.node.args["base"], self.node.spelling
        return None


@dataclass(slots=True, eq=False)
class Statement:
    """One statement of a function.

    block  the number of the statement list that contains the statement
    loop   the number of the innermost loop, 0 outside loops
    time   the time before the statement runs, and `end` the time after it
    entry  the condition under which the statement list runs
    """

    node: ast.stmt
    block: int
    loop: int
    time: int
    end: int = 0
    entry: Guard = TRUE


@dataclass(frozen=True, slots=True)
class Replacement:
    """A function, class or method that a file replaces by assigning its name.

    name  the qualified name
    line  the line of the assignment
    file  the name of the file; "" for the one that is scanned
    """

    name: str
    line: int
    file: str = ""

    @property
    def reason(self) -> str:
        """Why nothing is certain about what the name stands for, with the place."""
        return f"{self.name} is replaced in {self.file or 'this file'} (line {self.line})"


@dataclass(slots=True, eq=False)
class Node:
    """One computation: a tensor operation, a layer's call, or Python glue (`py.*`, `call`).

    op             canonical operation (`softmax`); `call` for an opaque call; `py.*` for glue
    args           normalised arguments by parameter name; `defaults` names those that the source
                   leaves out
    guard          the condition under which the node runs
    expr           the node's expression in the lowered function; inside an inlined function, the
                   call of that function
    time           the position of the node in the order of all nodes and bindings
    spelling       the name of the operation in the source, fully qualified if known
    layer          the value of the module that is called, for the call of a layer
    effect         the node may have a side effect, so nothing is moved across it
    random         the operation draws random numbers
    loop           the number of the innermost loop, 0 outside loops
    inner          the expression inside the inlined function, else None
    in_other_file  the inlined function is one of another file
    possible       a module may compute the node if it is a `Sequential`, which is not certain; the
                   call of the module is a node after it
    member         the call of a `Sequential` computes the node, by calling its module
    replacement    what the node calls that a file replaces, so that the node may do anything; no
                   place in a function with such a node is rewritten
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
    in_other_file: bool = False
    possible: bool = False
    member: bool = False
    replacement: Replacement | None = None

    @property
    def may_change_attributes(self) -> bool:
        """True for an effect that may change attributes: an opaque call, a store to an attribute,
        another shape in place."""
        return self.effect and (self.op in ("call", "py.store") or self.op in RESHAPING_OPS)


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """A module that a class builds.

    type    qualified name (`torch.nn.Dropout`), the name of a class of the file, or "" when unknown
    path    the attribute path that holds the module (`self.dropout`)
    args    the arguments of the module's constructor
    guard   the condition under which the module is built
    choice  the type depends on a run-time value (`ACT2FN[config.act]`); `source` is that expression
    items   the modules inside a container, each as the layers that it may be; one element for a
            `ModuleList` built by a comprehension
    lines   first and last line of the constructor's call
    """

    type: str
    path: str = ""
    args: Mapping[str, Value] = field(default_factory=dict)
    guard: Guard = TRUE
    source: str = ""
    choice: bool = False
    items: tuple[tuple[Layer, ...], ...] = ()
    lines: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """The binding of a name to a value at a time by a statement (None at entry and at joins)."""

    value: Value
    time: int
    statement: Statement | None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A place in the source that the lowering could not follow, with the reason."""

    line: int
    column: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The lowered form of one function.

    nodes     the nodes in the order of execution
    log       the bindings of each name in the order of time
    stores    attributes that are stored: path, guard, value, statement
    opaque    the places that could not be followed
    index     the nodes by operation
    ops       the operations of the nodes, those that work in place also without their underscore
    compiled  a decorator of `torch.jit` compiles the function
    compound  calls that compute several nodes (a `Sequential`, an inlined function), with the value
              of the call
    inlined   calls that were inlined, with the function's name; a method's name starts with `self.`
    writers   nodes that write into their first argument
    entered   the condition under which each statement runs
    receiver  the name of the instance where its attributes are read, in other functions that of the
              first parameter; "" where there is none
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
    receiver: str = ""
    ops: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        ops = frozenset(self.index).union(op.removesuffix("_") for op in self.index)
        object.__setattr__(self, "ops", ops)

    def release(self) -> None:
        """Break the reference cycles of the values, so that they need no garbage collection.

        The body cannot be used afterwards.
        """
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
        """Return the value of `name` just before `time` if the `deleted` statements did not exist;
        None if unbound."""
        events = self.log.get(name, ())
        position = bisect_left(events, time, key=lambda event: event.time) - 1
        while position >= 0 and events[position].statement in deleted:
            position -= 1
        return events[position].value if position >= 0 else None


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """One model class, or one function outside classes (`cls` is None), with its layers and
    bodies."""

    name: str
    cls: ast.ClassDef | None
    layers: Mapping[str, tuple[Layer, ...]]
    bodies: tuple[Body, ...]
