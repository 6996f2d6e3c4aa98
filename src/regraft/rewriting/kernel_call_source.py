"""The source text of a kernel call: each value is written as an expression that gives it at the
place of the call."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from regraft.dsl.syntax import Apply, Attr, Const, Group, Item, Operand, Ref, Slice, Var
from regraft.matching.result import Match
from regraft.rewriting.values_at_call_place import CallPlace
from regraft.rewriting.withheld import Withheld
from regraft.rules.kernel_signatures import kernel_parameters
from regraft.source.imports import Imports
from regraft.source.text import Span
from regraft.structure.values_and_nodes import MISSING, Node, Statement, Value

# glue that reads elements of a value, in any order with the same results
_ELEMENT_READS = frozenset({"py.item", "py.slice", "py.tuple"})


@dataclass(slots=True)
class Renderer:
    """A writer of the source text of one kernel call for one match. Its methods return text that
    gives a value where the call stands, and note names to import in `used`.

    deleted        statements that will be gone when the call runs
    reduced_names  value → name, for the values that a statement of which only they remain binds to
                   a name
    used           qualified names that the written text uses, which have to be imported
    spliced        nodes of the replaced text whose expressions the call repeats, in the order of
                   the text
    mentioned      identifiers that the matched expressions contain
    """

    match: Match
    imports: Imports
    root_span: Span
    deleted: Collection[Statement]
    reduced_names: Mapping[Value, str]
    used: set[str] = field(default_factory=set)
    spliced: list[Node] = field(default_factory=list)
    mentioned: set[str] = field(default_factory=set)
    root: Node | None = None  # the node whose place the call takes; None: the match's root
    time: int = 0  # the time at which the call runs; 0: the time of the replaced node
    can_run: Callable[[Node], bool] = lambda _: True  # whether a node can run where the call does
    # (expressions spliced before, attribute)
    attribute_reads: list[tuple[int, Value]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Set `time` to that of the replaced node where it is 0, and fill `mentioned`."""
        self.time = self.time or self._replaced_node().time
        for node in self.match.nodes:
            self.mentioned.update(
                ast_node.id for ast_node in ast.walk(node.expr) if isinstance(ast_node, ast.Name)
            )

    def _replaced_node(self) -> Node:
        """Return the node whose place the call takes."""
        return self.root or self.match.root

    def is_in_order(self) -> bool:
        """Return whether the call, as written so far, evaluates its arguments in a safe order: the
        expressions that it repeats (`spliced`) are in their original order, or all of them only
        read elements; and it reads no attribute before an effect of the replaced statement that
        came before this read in the original."""
        times = [node.time for node in self.spliced]
        reads_elements_only = all(
            inner.op in _ELEMENT_READS and not inner.effect
            for node in self.spliced
            for inner in self._nodes_within(node)
        )
        late = any(
            inner.effect
            and inner.time <= value.born
            and inner.statement is self._replaced_node().statement
            for position, value in self.attribute_reads
            for node in self.spliced[position:]
            for inner in self._nodes_within(node)
        )
        return (reads_elements_only or times == sorted(times)) and not late

    def _nodes_within(self, node: Node) -> list[Node]:
        """Return the nodes of the statement of `node` whose expressions lie inside its expression,
        itself included."""
        source = self.imports.source
        outer = source.span(node.expr)
        inner_nodes = []
        for candidate in self.match.body.nodes:
            if candidate.statement is node.statement and isinstance(candidate.expr, ast.expr):
                span = source.span(candidate.expr)
                if outer.start <= span.start and span.end <= outer.end:
                    inner_nodes.append(candidate)
        return inner_nodes

    def call(self, target: Apply, wrap: Callable[[str, list[str]], str]) -> str:
        """Return the text of the kernel call `target`, laid out on lines by `wrap(function,
        arguments)`.

        A target that is an operator or a method call is written on one line, an operator in
        parentheses.
        """
        if not isinstance(target.callee, Ref):
            text = self.operand(target)
            return f"({text})" if isinstance(target.callee, str) else text
        function = self.spell(target.callee.path)
        return wrap(function, self.arguments(target))

    def arguments(self, target: Apply) -> list[str]:
        """Return the texts of the call's arguments. Keyword arguments are left out where they are
        equal to the kernel's default, or belong to an optional node that the match lacks."""
        assert isinstance(target.callee, Ref)
        defaults = kernel_parameters(target.callee.path)
        arguments = [self.operand(operand) for operand in target.args]
        for name, operand in target.keywords:
            if isinstance(operand, Var) and operand.name not in self.match.bindings:
                continue  # of an optional node that is not there
            if not self._is_default(operand, defaults.get(name, MISSING)):
                arguments.append(f"{name}={self.operand(operand)}")
        return arguments

    def spell(self, qualified: str) -> str:
        """Return a qualified name as the file can write it, and add it to `used`, the names to
        import; raise Withheld where a local variable hides it."""
        spelling = self.imports.spell(qualified)
        root = spelling.split(".")[0]
        self.used |= {qualified, "torch"} if root == "torch" else {qualified}
        if root in self.match.body.log:
            raise self._withholding(f"{root} is a local variable here")
        return spelling

    def _is_default(self, operand: Operand, default: object) -> bool:
        """Return whether an operand of the rule stands for a constant that equals `default`, the
        default of the kernel's parameter."""
        value = self.match.bindings.get(operand.name) if isinstance(operand, Var) else None
        if value is None or value.const is MISSING:
            return False
        return type(value.const) is type(default) and value.const == default

    def operand(self, operand: Operand | Slice) -> str:
        """Return the source text of an operand of the rule's target, with the bound values for its
        variables; raise Withheld for a wildcard and for a value that cannot be written here."""
        if isinstance(operand, Var):
            return self.value(self.match.bindings[operand.name])
        if isinstance(operand, Const):
            return repr(operand.value)
        if isinstance(operand, Ref):
            return operand.path if operand.path.startswith("self.") else self.spell(operand.path)
        if isinstance(operand, Attr):
            return f"{self._atom_text(operand.base)}.{operand.name}"
        if isinstance(operand, Item):
            return f"{self._atom_text(operand.base)}[{self.operand(operand.index)}]"
        if isinstance(operand, Slice):
            return ":".join(
                "" if bound is None else self.operand(bound)
                for bound in (operand.start, operand.stop)
            )
        if isinstance(operand, Group):
            inner = ", ".join(self.operand(element) for element in operand.items)
            return f"({inner},)" if len(operand.items) == 1 else f"({inner})"
        if isinstance(operand, Apply):
            return self._apply_text(operand)
        raise self._withholding(f"the rule's target has a wildcard: {operand}")

    def _apply_text(self, operand: Apply) -> str:
        """Return the source text of an operator expression or a call of the rule's target, with the
        texts of its operands."""
        if isinstance(operand.callee, str):
            if operand.callee == "neg":
                return f"-{self._atom_text(operand.args[0])}"
            return f" {operand.callee} ".join(
                self._atom_text(argument) for argument in operand.args
            )
        if isinstance(operand.callee, Ref):
            arguments = self.arguments(operand)
        else:
            arguments = [self.operand(argument) for argument in operand.args]
            arguments += [f"{name}={self.operand(value)}" for name, value in operand.keywords]
        return f"{self._atom_text(operand.callee)}({', '.join(arguments)})"

    def _atom_text(self, operand: Operand) -> str:
        """Return the text of an operand, in parentheses where `.` or an operator may not follow it
        otherwise."""
        text = self.operand(operand)
        simple = (
            isinstance(operand, Attr | Item | Ref)
            or text.replace(".", "").replace("_", "").isalnum()
        )
        return text if simple or _needs_no_parentheses(text) else f"({text})"

    def value(self, value: Value) -> str:
        """Return an expression whose value at the place of the call is `value`: a local name,
        constant, attribute path, global name, or the expression itself, repeated. Raises Withheld
        where there is none."""
        name = self._local_name(value)
        if name is not None:
            return name
        if value.origin == "const":
            return self._constant_text(value.const)
        if value.origin == "path":
            return self._path_text(value)
        if value.origin == "global":
            return self._global_text(value)
        if value.node is not None and is_gathered(value.node):
            return self._gathered_text(value)
        attribute = value.attribute()
        if attribute is not None and not (
            self._is_value_in_replaced_text(value) and self._is_written_attribute(value)
        ):
            return f"{self.value(attribute[0])}.{attribute[1]}"
        if self._is_value_in_replaced_text(value):
            return self._splice(value)
        inlined = self._inlined_call_text(value)
        if inlined is not None:
            return inlined
        repeated = self.repeatable_text(value)
        if repeated is not None:
            return repeated
        raise self._withholding(
            f"{value.names[0] if value.names else 'a value'} is not available where the kernel is"
            " called"
        )

    def _local_name(self, value: Value) -> str | None:
        """Return a local name that has the value at the time of the call, preferably one that the
        matched code contains; None where no name has it."""
        if value in self.reduced_names:
            return self.reduced_names[value]
        time = self.time
        names = [name for name in value.names if "." not in name]
        # of several names for one value, the one that the matched code itself uses
        for name in sorted(names, key=lambda name: name not in self.mentioned):
            if self.match.body.reaching(name, time, self.deleted) is value:
                return name
        return None

    def _constant_text(self, const: object) -> str:
        """Return the source text of a constant in the matched expressions that equals `const`; its
        `repr` where there is none."""
        for node in self.match.nodes:
            for ast_node in ast.walk(node.expr):
                if (
                    isinstance(ast_node, ast.Constant)
                    and type(ast_node.value) is type(const)
                    and ast_node.value == const
                ):
                    return self.imports.source.segment(ast_node)
        return repr(const)

    def _path_text(self, value: Value) -> str:
        """Return the text of an attribute path of the instance (`self.scale`), and note the read in
        `attribute_reads`; raise Withheld where the attribute may have changed before the call."""
        time = self.time
        self.attribute_reads.append((len(self.spliced), value))
        parts = value.name.split(".")
        if not value.is_layer and self._place().can_change_attributes(value.born, time):
            raise self._withholding(f"{value.name} may have changed before the kernel is called")
        for length in range(2, len(parts) + 1):
            path = ".".join(parts[:length])
            stored = self.match.body.reaching(path, time, self.deleted)
            if stored is not None and stored is not value:
                raise self._withholding(f"{path} is assigned in this function")
        return ".".join((self.match.body.receiver, *parts[1:]))

    def _global_text(self, value: Value) -> str:
        """Return an imported name as this file writes it, or a name without a dot as it is."""
        return self.spell(value.name) if "." in value.name else value.name

    def _is_value_in_replaced_text(self, value: Value) -> bool:
        """Return whether the expression of a value lies inside the text that the call replaces;
        False where the call does not take the place of the replaced node."""
        node = value.node
        if self.time != self._replaced_node().time:
            return False  # the call stands elsewhere
        if (
            node is None
            or node.statement is not self._replaced_node().statement
            or not isinstance(node.expr, ast.expr)
        ):
            return False
        return self._is_in_replaced_text(node.expr)

    def _is_in_replaced_text(self, expr: ast.expr) -> bool:
        """Return whether an expression lies inside the text that the call replaces."""
        span = self.imports.source.span(expr)
        return self.root_span.start <= span.start and span.end <= self.root_span.end

    @staticmethod
    def _is_written_attribute(value: Value) -> bool:
        """Return whether an attribute in the source computes a value: in `x.type_as(y)` the dtype
        `y.dtype` is read but not written out."""
        return value.node is not None and isinstance(value.node.expr, ast.Attribute)

    def _inlined_call_text(self, value: Value) -> str | None:
        """Return the source text of the call of an inlined function that gives a value which no
        node computes (one of two arguments, say), for the call to repeat it in the place of the
        original; None where no such call without effects is inside the replaced text, or the call
        already repeats it. Adds the last node of the function to `spliced`."""
        body = self.match.body
        if value.node is not None or self.time != self._replaced_node().time:
            return None
        for expr, result in body.compound.items():
            if result is not value or expr not in body.inlined or not isinstance(expr, ast.expr):
                continue
            nodes = [node for node in body.nodes if node.expr is expr]
            has_effect = any(node.effect for node in nodes)
            if nodes and not has_effect and self._is_in_replaced_text(expr):
                if nodes[-1] in self.spliced:
                    return None
                self.spliced.append(nodes[-1])
                return self.imports.source.segment(expr)
        return None

    def repeatable_text(self, value: Value) -> str | None:
        """Return the source text of a value if, repeated where the call stands, it is cheap and
        certain to give the same value (`CallPlace.repeatable_text`); else None."""
        return self._place().repeatable_text(value)

    def _place(self) -> CallPlace:
        """Return the place of the call."""
        return CallPlace(self.match, self.imports, self.deleted, self.time, self.can_run)

    def _gathered_text(self, value: Value) -> str:
        """Return the text of a tuple of arguments that the source writes one by one:
        `x.repeat(1, n)` is given `(1, n)`. Raises Withheld for arguments with a star."""
        if value.items is None:
            raise self._withholding("the kernel needs arguments that are written with a star")
        inner = ", ".join(map(self.value, value.items))
        return f"({inner},)" if len(value.items) == 1 else f"({inner})"

    def _splice(self, value: Value) -> str:
        """Return the source text of the expression of a value, for the call to repeat it in the
        place of the original, and add its node to `spliced`.

        Raises Withheld for an expression that the call already repeats, and for a value from inside
        a call.
        """
        assert value.node is not None
        if self.match.body.compound.get(value.node.expr, value) is not value:
            raise self._withholding("the kernel needs a value from inside a call")
        if value.node in self.spliced:
            raise self._withholding("the kernel needs an expression twice that has no name")
        self.spliced.append(value.node)
        return self.imports.source.segment(value.node.expr)

    def _withholding(self, reason: str) -> Withheld:
        """Return the Withheld, for the caller to raise, with a reason and the line of the match's
        root."""
        return Withheld(reason, self.match.root.statement.node.lineno)


def is_gathered(node: Node) -> bool:
    """Return whether a node makes a tuple of several arguments of a call."""
    return node.op == "py.tuple" and isinstance(node.expr, ast.Call)


def _needs_no_parentheses(text: str) -> bool:
    """Return whether the text is one expression that needs no parentheses before `.` or in an
    operation, such as a name or a call; False for what is no expression."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    return isinstance(
        node, ast.Call | ast.Attribute | ast.Subscript | ast.Name | ast.Constant | ast.Tuple
    )
