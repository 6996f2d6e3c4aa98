"""Source text for the kernel call: every value by an expression that gives it at the place of the call."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from regraft.dsl.syntax import Apply, Attr, Const, Group, Item, Operand, Ref, Slice, Var
from regraft.matching.result import Match
from regraft.rules.kernels import kernel_parameters
from regraft.source.imports import Imports
from regraft.source.text import Span
from regraft.structure.model import MISSING, Node, Statement, Value

_ARITHMETIC = (
    ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Call,
    ast.expr_context, ast.operator, ast.unaryop,
)  # fmt: skip
_TURNS = frozenset({"transpose", "permute"})
_TURNED = (ast.Name, ast.Attribute, ast.Constant, ast.UnaryOp, ast.expr_context, ast.unaryop)


@dataclass(eq=False)
class Withheld(Exception):
    """Why a match cannot be rewritten, and at which line."""

    reason: str
    line: int


@dataclass(slots=True)
class Renderer:
    """Writes one kernel call for one match.

    deleted   statements that will be gone when the call runs
    kept      values that a kept statement will hold under a name: value → name
    spliced   expressions of the replaced text that the call repeats, in the order of the text
    """

    match: Match
    imports: Imports
    root_span: Span
    deleted: Collection[Statement]
    kept: Mapping[Value, str]
    used: set[str] = field(default_factory=set)
    spliced: list[Node] = field(default_factory=list)
    mentioned: set[str] = field(default_factory=set)
    root: Node | None = None  # whose place the call takes; None: the last output's
    time: int = 0  # when the call runs; 0: when the root did
    runs: Callable[[Node], bool] = lambda _: True  # whether a node runs where the call does
    read: list[tuple[int, Value]] = field(default_factory=list)  # attributes, with how many expressions precede them

    def __post_init__(self) -> None:
        self.time = self.time or self._place().time
        for node in self.match.nodes:
            self.mentioned.update(one.id for one in ast.walk(node.expr) if isinstance(one, ast.Name))

    def _place(self) -> Node:
        return self.root or self.match.root

    def in_order(self) -> bool:
        """Whether the call evaluates what it repeats, and reads attributes, in the order of the original."""
        times = [node.time for node in self.spliced]
        late = any(
            other.effect and other.time <= value.born and other.statement is self._place().statement
            for position, value in self.read
            for node in self.spliced[position:]
            for other in self._within(node)
        )
        return times == sorted(times) and not late

    def _within(self, node: Node) -> list[Node]:
        source = self.imports.source
        outer = source.span(node.expr)
        inside = []
        for other in self.match.body.nodes:
            if other.statement is node.statement and isinstance(other.expr, ast.expr):
                span = source.span(other.expr)
                if outer.start <= span.start and span.end <= outer.end:
                    inside.append(other)
        return inside

    def call(self, target: Apply, wrap: Callable[[str, list[str]], str]) -> str:
        """The call of the kernel; `wrap` lays out function and arguments on the lines."""
        if not isinstance(target.callee, Ref):
            text = self.operand(target)
            return f"({text})" if isinstance(target.callee, str) else text
        function = self.spell(target.callee.path)
        return wrap(function, self.arguments(target))

    def arguments(self, target: Apply) -> list[str]:
        assert isinstance(target.callee, Ref)
        defaults = kernel_parameters(target.callee.path)
        arguments = [self.operand(one) for one in target.args]
        for name, operand in target.keywords:
            if isinstance(operand, Var) and operand.name not in self.match.bindings:
                continue  # of an optional node that is not there
            if not self._is_default(operand, defaults.get(name, MISSING)):
                arguments.append(f"{name}={self.operand(operand)}")
        return arguments

    def spell(self, qualified: str) -> str:
        """A qualified name as this file writes it; withheld when a local variable hides the name."""
        spelling = self.imports.spell(qualified)
        root = spelling.split(".")[0]
        self.used |= {qualified, "torch"} if root == "torch" else {qualified}
        if root in self.match.body.log:
            raise self._withheld(f"{root} is a local variable here")
        return spelling

    def _is_default(self, operand: Operand, default: object) -> bool:
        value = self.match.bindings.get(operand.name) if isinstance(operand, Var) else None
        if value is None or value.const is MISSING:
            return False
        return type(value.const) is type(default) and value.const == default

    def operand(self, operand: Operand | Slice) -> str:
        if isinstance(operand, Var):
            return self.value(self.match.bindings[operand.name])
        if isinstance(operand, Const):
            return repr(operand.value)
        if isinstance(operand, Ref):
            return operand.path if operand.path.startswith("self.") else self.spell(operand.path)
        if isinstance(operand, Attr):
            return f"{self._atom(operand.base)}.{operand.name}"
        if isinstance(operand, Item):
            return f"{self._atom(operand.base)}[{self.operand(operand.index)}]"
        if isinstance(operand, Slice):
            return ":".join("" if one is None else self.operand(one) for one in (operand.start, operand.stop))
        if isinstance(operand, Group):
            inner = ", ".join(self.operand(one) for one in operand.items)
            return f"({inner},)" if len(operand.items) == 1 else f"({inner})"
        if isinstance(operand, Apply):
            return self._apply(operand)
        raise self._withheld(f"the rule's target has a wildcard: {operand}")

    def _apply(self, operand: Apply) -> str:
        if isinstance(operand.callee, str):
            if operand.callee == "neg":
                return f"-{self._atom(operand.args[0])}"
            return f" {operand.callee} ".join(self._atom(one) for one in operand.args)
        arguments = [self.operand(one) for one in operand.args]
        arguments += [f"{name}={self.operand(value)}" for name, value in operand.keywords]
        return f"{self._atom(operand.callee)}({', '.join(arguments)})"

    def _atom(self, operand: Operand) -> str:
        text = self.operand(operand)
        simple = isinstance(operand, Attr | Item | Ref) or text.replace(".", "").replace("_", "").isalnum()
        return text if simple or _closed(text) else f"({text})"

    def value(self, value: Value) -> str:
        """An expression that gives `value` where the call will stand."""
        name = self._name(value)
        if name is not None:
            return name
        if value.origin == "const":
            return self._constant(value.const)
        if value.origin == "path":
            return self._path(value)
        if value.origin == "global":
            return self._global(value)
        found = value.attribute()
        if found is not None and not (self._in_root(value) and self._is_written(value)):
            return f"{self.value(found[0])}.{found[1]}"
        if self._in_root(value):
            return self._splice(value)
        repeated = self.again(value)
        if repeated is not None:
            return repeated
        raise self._withheld(
            f"{value.names[0] if value.names else 'a value'} is not available where the kernel is called"
        )

    def _name(self, value: Value) -> str | None:
        """A local name that holds the value at the call."""
        if value in self.kept:
            return self.kept[value]
        time = self.time
        names = [name for name in value.names if "." not in name]
        # of several names for one value, the one that the matched code itself uses
        for name in sorted(names, key=lambda name: name not in self.mentioned):
            if self.match.body.reaching(name, time, self.deleted) is value:
                return name
        return None

    def _constant(self, const: object) -> str:
        """A constant as the matched code spells it."""
        for node in self.match.nodes:
            for one in ast.walk(node.expr):
                if isinstance(one, ast.Constant) and type(one.value) is type(const) and one.value == const:
                    return self.imports.source.segment(one)
        return repr(const)

    def _path(self, value: Value) -> str:
        time = self.time
        self.read.append((len(self.spliced), value))
        parts = value.name.split(".")
        if not value.is_layer and self._changes(value.born, time):
            raise self._withheld(f"{value.name} may have changed before the kernel is called")
        for length in range(2, len(parts) + 1):
            path = ".".join(parts[:length])
            stored = self.match.body.reaching(path, time, self.deleted)
            if stored is not None and stored is not value:
                raise self._withheld(f"{path} is assigned in this function")
        return ".".join((self._receiver(), *parts[1:]))

    def _receiver(self) -> str:
        """The function's first parameter, which is the instance where attributes of it are read."""
        arguments = self.match.body.node.args
        return next((one.arg for one in (*arguments.posonlyargs, *arguments.args)), "")

    def _global(self, value: Value) -> str:
        return self.spell(value.name) if "." in value.name else value.name

    def _in_root(self, value: Value) -> bool:
        node = value.node
        if self.time != self._place().time:
            return False  # the call stands elsewhere
        if node is None or node.statement is not self._place().statement or not isinstance(node.expr, ast.expr):
            return False
        span = self.imports.source.span(node.expr)
        return self.root_span.start <= span.start and span.end <= self.root_span.end

    @staticmethod
    def _is_written(value: Value) -> bool:
        """Whether an attribute stands in the text; `x.type_as(y)` reads `y.dtype` without a word of it."""
        return value.node is not None and isinstance(value.node.expr, ast.Attribute)

    def again(self, value: Value) -> str | None:
        """The text of a computation that gives the same where the call stands, cheaply; None when it may not."""
        number = self._number(value)
        return self._turned(value) if number is None else number

    def _number(self, value: Value) -> str | None:
        """The text of a number's computation."""
        node = value.node
        if node is None or not isinstance(node.expr, ast.expr) or node.inner is not None:
            return None
        body = self.match.body
        for one in ast.walk(node.expr):
            if isinstance(one, ast.Name) and one.id in body.log:
                held = body.reaching(one.id, node.time)
                number = held is not None and (
                    held.kind in ("int", "scalar") or (held.origin, held.name) == ("param", self._receiver())
                )
                if not number or body.reaching(one.id, self.time, self.deleted) is not held:
                    return None
            elif (isinstance(one, ast.Call) and not self._is_arithmetic(one)) or not isinstance(one, _ARITHMETIC):
                return None
        if self._changes(*sorted((self.time, node.time))):
            return None
        return self.imports.source.segment(node.expr)

    def _turned(self, value: Value) -> str | None:
        """The text of a transposed tensor."""
        node, body = value.node, self.match.body
        if node is None or node.op not in _TURNS or not isinstance(node.expr, ast.Call) or node.inner is not None:
            return None
        first, last = sorted((self.time, node.time))
        if any(one.effect and self.runs(one) for one in self.match.between(first - 1, last + 1)):
            return None
        for one in ast.walk(node.expr):
            if isinstance(one, ast.Name) and one.id in body.log:
                held = body.reaching(one.id, self.time, self.deleted)
                if held is None or held is not body.reaching(one.id, node.time):
                    return None
            elif one is not node.expr and not isinstance(one, _TURNED):
                return None
        return self.imports.source.segment(node.expr)

    def _changes(self, first: int, last: int) -> bool:
        """Whether something between two times may change attributes."""
        return any(
            node.effect and node.op in ("call", "py.store") and self.runs(node)
            for node in self.match.between(first, last)
        )

    def _is_arithmetic(self, call: ast.Call) -> bool:
        qualified = self.imports.names.resolve(call.func) or ""
        return qualified.startswith("math.") or (isinstance(call.func, ast.Name) and call.func.id in ("int", "float"))

    def _splice(self, value: Value) -> str:
        assert value.node is not None
        if self.match.body.compound.get(value.node.expr, value) is not value:
            raise self._withheld("the kernel needs a value from inside a call")
        if value.node in self.spliced:
            raise self._withheld("the kernel needs an expression twice that has no name")
        self.spliced.append(value.node)
        return self.imports.source.segment(value.node.expr)

    def _withheld(self, reason: str) -> Withheld:
        return Withheld(reason, self.match.root.statement.node.lineno)


def _closed(text: str) -> bool:
    """True when the text is one bracketed or called expression that needs no parentheses."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    return isinstance(node, ast.Call | ast.Attribute | ast.Subscript | ast.Name | ast.Constant | ast.Tuple)
