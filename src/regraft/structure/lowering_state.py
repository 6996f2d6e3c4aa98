"""The state of the lowering of one function: names, the current guard, and the nodes that exist so
far."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from regraft.structure import guards
from regraft.structure.function_surroundings import Function, Scope
from regraft.structure.guards import Guard
from regraft.structure.values_and_nodes import (
    MISSING,
    Binding,
    Kind,
    Node,
    Opaque,
    Statement,
    Value,
)

_CONST_KINDS: tuple[tuple[type, Kind], ...] = (
    (bool, "bool"),
    (int, "int"),
    (float, "scalar"),
    (str, "str"),
)


class CallerState(NamedTuple):
    """The caller's state, saved while a function is inlined; the fields are attributes of
    `Frame`."""

    env: dict[str, Binding]
    log: dict[str, list[Binding]]
    trail: list[tuple[str, Binding | None]]
    receiver: str | None
    captured: frozenset[str]
    volatile: frozenset[str]
    shared: set[str]
    loop_marks: list[int]
    site: ast.AST | None
    active: tuple[ast.AST, ...]
    returns: list[tuple[Guard, Value]]
    guard: Guard
    scope: Scope


@dataclass(eq=False, repr=False)
class Frame:
    """The mutable state of the lowering of one function; `regraft.structure.lower` drives it."""

    scope: Scope
    receiver: str | None
    lower_expression: Callable[[Frame, ast.expr], Value]
    lower_block: Callable[[Frame, Sequence[ast.stmt]], Guard]
    nodes: list[Node] = field(default_factory=list)
    env: dict[str, Binding] = field(default_factory=dict)
    log: dict[str, list[Binding]] = field(default_factory=dict)
    trail: list[tuple[str, Binding | None]] = field(default_factory=list)
    guard: Guard = guards.TRUE
    statement: Statement = field(default_factory=lambda: Statement(ast.Pass(), 0, 0, 0))
    block: int = 0
    blocks: int = 0
    loop: int = 0
    loops: int = 0
    time: int = 0
    values: int = 0
    phis: list[Value] = field(default_factory=list)
    constants: dict[tuple[type, object], Value] = field(default_factory=dict)
    globals: dict[str, Value] = field(default_factory=dict)
    # values of attributes that hold layers
    layer_paths: dict[str, Value] = field(default_factory=dict)
    # values of other attributes, read since `forgotten_at`
    mutable_paths: dict[str, Value] = field(default_factory=dict)
    forgotten_at: int = 0  # time of the last effect that may change attributes
    attributes: dict[tuple[int, str], Value] = field(default_factory=dict)
    stores: list[tuple[str, Guard, Value, ast.stmt]] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)
    entered: dict[ast.stmt, Guard] = field(default_factory=dict)
    opaque: list[Opaque] = field(default_factory=list)
    # names that nested functions read when they run
    captured: frozenset[str] = frozenset()
    volatile: frozenset[str] = frozenset()  # names that nested functions bind
    loop_marks: list[int] = field(default_factory=list)
    # names declared global or nonlocal: other functions see their bindings
    shared: set[str] = field(default_factory=set)
    compound: dict[ast.AST, Value] = field(default_factory=dict)
    inlined: dict[ast.AST, str] = field(default_factory=dict)
    site: ast.AST | None = None  # the call that is being inlined
    active: tuple[ast.AST, ...] = ()  # functions that are being inlined
    # of the innermost of these functions
    returns: list[tuple[Guard, Value]] = field(default_factory=list)
    # entries of dictionary displays whose keys are strings
    dicts: dict[Value, dict[str, Value]] = field(default_factory=dict)
    # elements that lists got after their display
    added: dict[Value, list[Value]] = field(default_factory=dict)
    possible: bool = False  # nodes are those that a module may compute
    member: bool = False  # nodes are computed by the call of a Sequential
    # default values of parameters, if they are names or attributes
    defaults: dict[Value, ast.expr] = field(default_factory=dict)
    # functions defined inside this function
    local_functions: dict[Value, Function] = field(default_factory=dict)
    # by local function
    active_at_definition: dict[ast.AST, tuple[ast.AST, ...]] = field(default_factory=dict)
    # values

    def value(
        self, origin: str, kind: Kind = "unknown", name: str = "", const: object = MISSING
    ) -> Value:
        """Return a new value, created at the current time."""
        self.values += 1
        value = Value(self.values, origin, kind, name, const)  # type: ignore[arg-type]
        value.born = self.time
        return value

    def constant(self, const: object) -> Value:
        """Return the value of a constant, the same one for equal constants of one type."""
        key = (type(const), const)
        value = self.constants.get(key)
        if value is None:
            kind: Kind = "none" if const is None else "unknown"
            kind = next((name for cls, name in _CONST_KINDS if isinstance(const, cls)), kind)
            value = self.constants[key] = self.value("const", kind, const=const)
        return value

    def global_(self, name: str, kind: Kind = "unknown") -> Value:
        """Return the value of an imported, built-in or module-level name, the same one for each
        use."""
        value = self.globals.get(name)
        if value is None:
            value = self.globals[name] = self.value("global", kind, name)
        return value

    def can_see(self, function: Function) -> bool:
        """Return whether a local function that is called now sees the current names.

        It does when only local functions are being inlined between its definition and this call.
        """
        around = self.active_at_definition[function]
        between = self.active[len(around) :]
        return self.active[: len(around)] == around and all(
            inner in self.active_at_definition for inner in between
        )

    def path(self, path: str) -> Value:
        """Return the value of an attribute path (`self.a.b`), which stays the same until the
        function stores to it."""
        bound = self.env.get(path)
        if bound is not None:
            if bound.time < self.forgotten_at and not bound.value.is_layer:
                self.bind(path, self.fresh(path))
            return self.env[path].value
        value = self.layer_paths.get(path) or self.mutable_paths.get(path)
        if value is None:
            value = self.fresh(path)
            layers = self.scope.layers.get(path, ())
            if any(layer.type or layer.choice for layer in layers):
                value.layers = layers
                value.kind = "module"
            (self.layer_paths if value.is_layer else self.mutable_paths)[path] = value
        return value

    def fresh(self, name: str) -> Value:
        """Return a new value of which nothing is known, for a name or an attribute path
        (`self.x`)."""
        if "." not in name:
            return self.value("unknown")
        value = self.value("path", name=name)
        value.maybe_changed = self.forgotten_at > 0
        return value

    # nodes

    def node(
        self,
        op: str,
        args: dict[str, Value],
        expr: ast.AST,
        kind: Kind = "unknown",
        effect: bool = False,
        **attrs: object,
    ) -> Node:
        """Append a node under the current guard; an effect that may change attributes forgets
        them."""
        self.time += 1
        output = self.value("node", kind)
        node = Node(
            op,
            args,
            output,
            self.guard,
            self.site or expr,
            self.statement,
            self.time,
            effect=effect,
            **attrs,  # type: ignore[arg-type]
        )
        if self.site is not None:
            node.inner, node.in_other_file = expr, bool(self.scope.home)
        node.loop, node.possible, node.member = self.loop, self.possible, self.member
        if self.scope.replacements is not None:
            node.replacement = self.scope.replacements.of_node(node)
        output.node = node
        for value in dict.fromkeys(args.values()):
            value.uses.append(node)
        if node.layer is not None:
            node.layer.uses.append(node)
        self.nodes.append(node)
        if node.may_change_attributes:
            self._forget()
        return node

    def _forget(self) -> None:
        """Forget the values of attributes, which may have changed; modules are taken to stay the
        same."""
        self.mutable_paths.clear()
        self.attributes.clear()
        self.forgotten_at = self.time

    def is_current(self, node: Node) -> bool:
        """Return whether a node is of this step of the loop, if any, and nothing since may have
        changed attributes, such as the shape of a tensor."""
        return node.time > self.forgotten_at and node.loop == self.loop

    # names

    def bind(self, name: str, value: Value) -> None:
        """Bind a name, or an attribute path (`self.x`), to a value; to an unknown one if nested
        functions bind it."""
        if name in self.volatile:
            value = self.value("unknown")
        self.time += 1
        old = self.env.get(name)
        self.trail.append((name, old))
        self._set(name, Binding(value, self.time, self.statement))
        if name not in value.names:
            value.names.append(name)

    def _set(self, name: str, binding: Binding) -> None:
        self.env[name] = binding
        self.log.setdefault(name, []).append(binding)

    def rewind(self, mark: int) -> dict[str, Value]:
        """Undo every binding since `mark` (an index of `trail`); return the latest values of the
        names bound since."""
        changed: dict[str, Value] = {}
        while len(self.trail) > mark:
            name, old = self.trail.pop()
            if name not in changed:
                changed[name] = self.env[name].value
            if old is None:
                del self.env[name]
            else:
                self.env[name] = old
        for name in changed:
            old = self.env.get(name)
            self.time += 1
            value = old.value if old is not None else self.value("unknown")
            self.log[name].append(
                Binding(value, self.time, old.statement if old is not None else None)
            )
        return changed

    def _value_of(self, binding: Binding | None) -> Value:
        """Return the value of a binding; a new unknown one for None."""
        return binding.value if binding else self.value("unknown")

    def join(self, branches: list[tuple[Guard, dict[str, Value]]]) -> None:
        """Merge the names that the branches bound: equal values stay, different values
        become a φ."""
        for name in dict.fromkeys(name for _, changed in branches for name in changed):
            entry = self.env.get(name)
            options = tuple(
                (guard, changed[name] if name in changed else self._value_of(entry))
                for guard, changed in branches
            )
            first = options[0][1]
            if all(value is first for _, value in options):
                merged = first
            else:
                merged = self.phi(options)
                merged.names.append(name)
            self.time += 1
            self.trail.append((name, entry))
            self._set(name, Binding(merged, self.time, None))

    def phi(self, options: tuple[tuple[Guard, Value], ...]) -> Value:
        """Return a new φ value of `options`, the guard and the value of each alternative."""
        kinds = {value.kind for _, value in options}
        merged = self.value("phi", kinds.pop() if len(kinds) == 1 else "unknown")
        merged.options = options
        merged.layers = tuple(layer for _, value in options for layer in value.layers)
        self.phis.append(merged)
        for _, value in options:
            value.joins.append(merged)
            if value.names and not merged.name:
                merged.name = value.names[0]
        return merged

    def forget_unused_joins(self) -> None:
        """Remove φ values without a use from the `joins` of their options: most names are dead
        after a branch."""
        live: set[Value] = set()
        pending = [phi for phi in self.phis if phi.uses]
        while pending:
            phi = pending.pop()
            if phi not in live:
                live.add(phi)
                pending += [value for _, value in phi.options if value.origin == "phi"]
        joined = {value for phi in self.phis if phi not in live for _, value in phi.options}
        for value in joined:
            value.joins = [phi for phi in value.joins if phi in live]

    # inlined functions

    def enter(
        self, site: ast.AST, function: Function, bound: Mapping[str, Value], closure: bool
    ) -> CallerState:
        """Start an inlined function with names of its own and return the caller's state.

        Attribute paths stay bound; with `closure`, so do the caller's names.
        """
        outer = CallerState(
            self.env,
            self.log,
            self.trail,
            self.receiver,
            self.captured,
            self.volatile,
            self.shared,
            self.loop_marks,
            self.site,
            self.active,
            self.returns,
            self.guard,
            self.scope,
        )
        visible = {name: binding for name, binding in self.env.items() if closure or "." in name}
        self.env = {
            **visible,
            **{name: Binding(value, self.time, None) for name, value in bound.items()},
        }
        self.log, self.trail, self.loop_marks, self.returns = {}, [], [], []
        self.captured = self.volatile = frozenset()
        self.shared = set()
        self.site, self.active = site, (*self.active, function)
        return outer

    def leave(self, outer: CallerState) -> None:
        """Restore the caller's state; the values that the function stored in attributes are bound
        in it."""
        stored = {name: binding.value for name, binding in self.env.items() if "." in name}
        (
            self.env,
            self.log,
            self.trail,
            self.receiver,
            self.captured,
            self.volatile,
            self.shared,
            self.loop_marks,
            self.site,
            self.active,
            self.returns,
            self.guard,
            self.scope,
        ) = outer
        for name, value in stored.items():
            bound = self.env.get(name)
            if bound is None or bound.value is not value:
                self.bind(name, value)

    def give_up(self, node: ast.AST, reason: str) -> None:
        """Record a place that cannot be followed, unless it lies in another file, whose own
        lowering records it."""
        if self.scope.home:
            return
        line, column = self.scope.source.position(self.scope.source.span(node).start)
        self.opaque.append(Opaque(line, column, reason))
