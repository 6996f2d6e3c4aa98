"""State of the lowering of one function: names, the current guard, nodes made so far."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from regraft.source.names import Names
from regraft.source.text import SourceFile
from regraft.structure import guards
from regraft.structure.guards import Guard
from regraft.structure.model import MISSING, Binding, Kind, Layer, Node, Opaque, Statement, Value
from regraft.structure.optable import OpTable

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Scope:
    """What a function can see besides its own names: the file, the module's names, and its class.

    methods    those of the class and its bases, as an instance has them; no class here overrides the `final` ones
    custom     operators, properties and iteration that classes and generators of the file define: they run any code
    inlines    whether calls of the file's functions are inlined; `inlinable` remembers which can be
    imported   gives a function of another file of the package, with what it sees
    home       that file's module, for what is seen by a function that another file calls
    """

    source: SourceFile
    names: Names
    table: OpTable
    layers: Mapping[str, tuple[Layer, ...]]
    methods: Mapping[str, Function] = field(default_factory=dict)
    custom: frozenset[str] = frozenset()
    final: frozenset[str] = frozenset()
    inlines: bool = False
    inlinable: dict[ast.AST, bool] = field(default_factory=dict)
    imported: Callable[[str], tuple[Scope, Function] | None] = lambda qualified: None
    home: str = ""


_CONST_KINDS: tuple[tuple[type, Kind], ...] = ((bool, "bool"), (int, "int"), (float, "scalar"), (str, "str"))


class Outer(NamedTuple):
    """State of the caller while a function is inlined."""

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


class Frame:
    """Mutable state of one function's lowering; `regraft.structure.lower` drives it."""

    def __init__(self, scope: Scope, receiver: str | None) -> None:
        self.scope = scope
        self.receiver = receiver
        self.nodes: list[Node] = []
        self.env: dict[str, Binding] = {}
        self.log: dict[str, list[Binding]] = {}
        self.trail: list[tuple[str, Binding | None]] = []
        self.guard: Guard = guards.TRUE
        self.statement = Statement(ast.Pass(), 0, 0, 0)
        self.block = 0
        self.blocks = 0
        self.loop = 0
        self.loops = 0
        self.time = 0
        self.values = 0
        self.phis: list[Value] = []
        self.constants: dict[tuple[type, object], Value] = {}
        self.globals: dict[str, Value] = {}
        self.paths: dict[str, Value] = {}  # layers
        self.fluid: dict[str, Value] = {}  # other attributes, since something last may have changed them
        self.forgotten = 0  # when that was
        self.attributes: dict[tuple[int, str], Value] = {}
        self.stores: list[tuple[str, Guard, Value, ast.stmt]] = []
        self.stored: set[str] = set()
        self.entered: dict[ast.stmt, Guard] = {}
        self.opaque: list[Opaque] = []
        self.captured: frozenset[str] = frozenset()  # names that nested functions read at a time of their own
        self.volatile: frozenset[str] = frozenset()  # names that nested functions bind
        self.loop_marks: list[int] = []
        self.shared: set[str] = set()  # names declared global or nonlocal: binding them is seen from outside
        self.compound: dict[ast.AST, Value] = {}
        self.inlined: dict[ast.AST, str] = {}
        self.site: ast.AST | None = None  # the call that is being inlined
        self.active: tuple[ast.AST, ...] = ()  # functions that are being inlined
        self.returns: list[tuple[Guard, Value]] = []  # of the innermost of them
        self.dicts: dict[Value, dict[str, Value]] = {}  # dictionaries that are written out with names for keys
        self.defaults: dict[Value, ast.expr] = {}  # of parameters, where they are names
        self.local: dict[Value, Function] = {}  # functions that this one defines
        self.around: dict[ast.AST, tuple[ast.AST, ...]] = {}  # what was being inlined where they are defined
        self.lower_block: Callable[[Frame, Sequence[ast.stmt]], Guard] | None = None

    # values

    def value(self, origin: str, kind: Kind = "unknown", name: str = "", const: object = MISSING) -> Value:
        self.values += 1
        made = Value(self.values, origin, kind, name, const)  # type: ignore[arg-type]
        made.born = self.time
        return made

    def constant(self, const: object) -> Value:
        key = (type(const), const)
        found = self.constants.get(key)
        if found is None:
            kind: Kind = "none" if const is None else "unknown"
            kind = next((name for cls, name in _CONST_KINDS if isinstance(const, cls)), kind)
            found = self.constants[key] = self.value("const", kind, const=const)
        return found

    def global_(self, name: str, kind: Kind = "unknown") -> Value:
        found = self.globals.get(name)
        if found is None:
            found = self.globals[name] = self.value("global", kind, name)
        return found

    def sees(self, function: Function) -> bool:
        """Whether a local function that is called here sees the names of here: no other function stands between."""
        around = self.around[function]
        between = self.active[len(around) :]
        return self.active[: len(around)] == around and all(one in self.around for one in between)

    def path(self, path: str) -> Value:
        """The value of `self.a.b`, which stays the same until the function stores to it."""
        bound = self.env.get(path)
        if bound is not None:
            if bound.time < self.forgotten and not bound.value.is_layer:
                self.bind(path, self.fresh(path))
            return self.env[path].value
        found = self.paths.get(path) or self.fluid.get(path)
        if found is None:
            found = self.fresh(path)
            layers = self.scope.layers.get(path, ())
            if any(layer.type or layer.choice for layer in layers):
                found.layers = layers
                found.kind = "module"
            (self.paths if found.is_layer else self.fluid)[path] = found
        return found

    def fresh(self, name: str) -> Value:
        """A value that nothing is known of, for a name or an attribute (`self.x`)."""
        if "." not in name:
            return self.value("unknown")
        made = self.value("path", name=name)
        made.later = self.forgotten > 0
        return made

    # nodes

    def node(
        self,
        op: str,
        args: dict[str, Value],
        expr: ast.AST,
        kind: Kind = "unknown",
        effect: bool = False,
        **more: object,
    ) -> Node:
        self.time += 1
        output = self.value("node", kind)
        made = Node(op, args, output, self.guard, self.site or expr, self.statement, self.time, effect=effect, **more)  # type: ignore[arg-type]
        if self.site is not None:
            made.inner, made.away = expr, bool(self.scope.home)
        made.loop = self.loop
        output.node = made
        for value in dict.fromkeys(args.values()):
            value.uses.append(made)
        if made.layer is not None:
            made.layer.uses.append(made)
        self.nodes.append(made)
        if effect and op in ("call", "py.store"):
            self._forget()
        return made

    def _forget(self) -> None:
        """Attributes may have changed; modules are taken to stay what they are."""
        self.fluid.clear()
        self.attributes.clear()
        self.forgotten = self.time

    # names

    def bind(self, name: str, value: Value) -> None:
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
        """Undo every binding since `mark`; returns the names it bound with their latest values."""
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
            self.log[name].append(Binding(value, self.time, old.statement if old is not None else None))
        return changed

    def join(self, branches: list[tuple[Guard, dict[str, Value]]]) -> None:
        """Merge the names that the branches bound: equal values stay, different ones become a φ."""
        for name in dict.fromkeys(name for _, changed in branches for name in changed):
            entry = self.env.get(name)
            options = tuple(
                (guard, changed[name] if name in changed else entry.value if entry else self.value("unknown"))
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
        """Drop φ values that nothing takes from what they join: most names are dead after a branch."""
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

    def enter(self, site: ast.AST, function: Function, bound: Mapping[str, Value], closure: bool) -> Outer:
        """Start the body of an inlined function with names of its own; attributes of the instance stay."""
        outer = Outer(
            self.env, self.log, self.trail, self.receiver, self.captured, self.volatile, self.shared,
            self.loop_marks, self.site, self.active, self.returns, self.guard, self.scope,
        )  # fmt: skip
        visible = {name: one for name, one in self.env.items() if closure or "." in name}
        self.env = {**visible, **{name: Binding(value, self.time, None) for name, value in bound.items()}}
        self.log, self.trail, self.loop_marks, self.returns = {}, [], [], []
        self.captured = self.volatile = frozenset()
        self.shared = set()
        self.site, self.active = site, (*self.active, function)
        return outer

    def leave(self, outer: Outer) -> None:
        """Back to the caller; what the function stored in attributes is bound there."""
        stored = {name: one.value for name, one in self.env.items() if "." in name}
        (
            self.env, self.log, self.trail, self.receiver, self.captured, self.volatile, self.shared,
            self.loop_marks, self.site, self.active, self.returns, self.guard, self.scope,
        ) = outer  # fmt: skip
        for name, value in stored.items():
            bound = self.env.get(name)
            if bound is None or bound.value is not value:
                self.bind(name, value)

    def give_up(self, node: ast.AST, reason: str) -> None:
        """Record a place that cannot be followed; one of another file is recorded there."""
        if self.scope.home:
            return
        line, column = self.scope.source.position(self.scope.source.span(node).start)
        self.opaque.append(Opaque(line, column, reason))
