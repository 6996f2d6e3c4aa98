"""The rewriting of a match in a loop whose kernel is called before the loop, and its result indexed
in each step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.matching.loops import start_of, step_node
from regraft.rewriting.render import Renderer, Withheld
from regraft.rewriting.single_output import Patch
from regraft.rewriting.statements import StatementRewriter, block_of, target_name
from regraft.source.layout import Layout, indentation
from regraft.source.text import Edit, Span
from regraft.structure.calls import writes
from regraft.structure.model import Node, Value

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)
# Methods by which a list keeps what it is given: a slice that stays there may be written into.
_COLLECTORS = frozenset({"append", "insert", "extend"})
_MODES = frozenset({"set_grad_enabled", "inference_mode", "no_grad", "enable_grad"})
_KEEPING = frozenset({"py.return", "py.store", "py.comprehension"})


class HoistedRewriter(StatementRewriter):
    """A maker of the patch of one match in a loop: an assignment of the kernel call before the
    loop, and a subscript in the place of the root's expression."""

    def patch(self) -> Patch:
        """Return the patch; the file is not changed. Raises Withheld where it is not safe."""
        root = self.root.expr
        if not isinstance(root, ast.Subscript | ast.Call) or self.root.inner is not None:
            raise self._withholding("the step is inside a call of another function", self.root)
        self._check_places(root, self.root)
        number = self.match.bindings[self.match.pattern.index]
        step = step_node(number)
        assert step is not None  # the rule's condition
        loop = self._loop_statement(step)
        self._check_modes(loop)
        self._check_uses()
        span = self.source.span(root)
        place = self.source.line_starts[loop.lineno - 1]
        if self.source.text[place : self.source.span(loop).start].strip():
            raise self._withholding("several statements share a line", self.root)
        before = Renderer(self.match, self.imports, span, (), {}, time=start_of(step))
        operand = self._looped_value(before)
        self._check_unchanged(operand, step)
        indent = indentation(self.source, place)
        line_length = len(self.source.text[place:].split(b"\n", 1)[0])
        layout = Layout(self.source, Span(place, place + line_length), indent)
        call = before.call(self.match.pattern.target, layout.call)
        name, is_new = self._result_name(loop, call, before.value(operand))
        index = Renderer(self.match, self.imports, span, (), {}).value(number)
        edits = [Edit(span, f"{name}[{index}]")]
        if is_new:
            edits.insert(
                0, Edit(Span(place, place), f"{indent}{name} = {call}{self.source.newline}")
            )
        last = self.source.span(self.root.statement.node).end
        return Patch(self.match, "hoist", tuple(edits), Span(place, last), frozenset(before.used))

    def _looped_value(self, before: Renderer) -> Value:
        """Return the value of the kernel's first operand; raise Withheld where no local name has it
        before the loop."""
        variable = self.match.pattern.target.args[0]
        value = self.match.bindings[variable.name]  # type: ignore[union-attr]
        if not before.value(value).isidentifier():
            raise self._withholding("the tensor of the loop has no name of its own", self.root)
        return value

    def _loop_statement(self, step: Node) -> ast.stmt:
        """Return the statement before which the kernel is called: the `for` statement whose steps a
        node numbers, or the simple statement with the comprehension; raise Withheld for others."""
        function = self.match.body.node
        for node in ast.walk(function):
            if isinstance(node, ast.For) and node.iter is step.expr:
                return node
        statement = self.root.statement.node
        for node in ast.walk(statement):
            if not isinstance(node, _COMPREHENSIONS):
                continue
            if not any(generator.iter is step.expr for generator in node.generators):
                continue
            if isinstance(node, ast.GeneratorExp) or not isinstance(statement, _SIMPLE):
                break
            self._check_effects_before(step)
            return statement
        raise self._withholding("the kernel cannot be called before this loop", self.root)

    def _check_effects_before(self, step: Node) -> None:
        """Raise Withheld where another part of the statement with a comprehension, which runs
        before it, may have effects."""
        start = self.root.statement.time
        for node in self.match.between(start, start_of(step)):
            if node.effect and node.statement is self.root.statement:
                raise self._withholding("a call before the loop may have effects", node)

    def _check_modes(self, loop: ast.stmt) -> None:
        """Raise Withheld where the loop may change the mode of autograd: a slice that is taken
        without gradients in a step has some before the loop."""
        for node in ast.walk(loop):
            is_context = isinstance(node, ast.With | ast.AsyncWith) and any(
                inner is self.root.expr for inner in ast.walk(node)
            )
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if is_context or name in _MODES:
                line = getattr(node, "lineno", loop.lineno)
                raise Withheld("the loop may change the mode in which the slice is taken", line)

    def _check_uses(self) -> None:
        """Raise Withheld where the slice is returned, stored or collected in a list, since whoever
        has it then could not change it in place, and where it is an index, without gradients."""
        uses = self.root.output.every_use()
        if uses and all(use.op == "embedding" for use in uses):
            raise self._withholding("the slice is an index, which has no gradient", uses[0])
        pending = [self.root.output]
        while pending:
            for use in pending.pop().every_use():
                if use.op in _KEEPING or _collects(use):
                    raise self._withholding("the slice itself is returned or stored", use)
                if use.op == "py.tuple":
                    pending.append(use.output)

    def _check_unchanged(self, value: Value, step: Node) -> None:
        """Raise Withheld where a statement of the loop may write into the tensor."""
        for writer in self.match.body.writers:
            if writer.time > start_of(step) and writes(writer) and value in _targets(writer):
                raise self._withholding("the tensor is changed in place", writer)

    def _result_name(self, loop: ast.stmt, call: str, operand: str) -> tuple[str, bool]:
        """Return the name of the kernel's result, and whether it has to be assigned: an assignment
        of the same call directly before the loop has the name already."""
        wanted = ast.parse(call, mode="eval").body
        assert isinstance(wanted, ast.Call)
        block = block_of(self.match.body.node, loop)
        for sibling in reversed(block[: block.index(loop)]):
            name, value = target_name(sibling), getattr(sibling, "value", None)
            if name is None or not isinstance(value, ast.Call):
                break
            if ast.dump(value.func) != ast.dump(wanted.func):
                break
            if ast.dump(value) == ast.dump(wanted):
                return name, False
        return next(name for name in _names(f"{operand}_slices") if self._is_free(name)), True

    def _is_free(self, name: str) -> bool:
        """Return whether a name means nothing in the function and in the file."""
        used = (
            node.id if isinstance(node, ast.Name) else node.arg
            for node in ast.walk(self.source.tree)
            if isinstance(node, ast.Name | ast.arg)
        )
        return name not in self.imports.names.qualified and name not in set(used)


def _collects(use: Node) -> bool:
    """Return whether a node calls a method by which a list keeps its argument."""
    callee = use.args.get("callee")
    attribute = callee.attribute() if callee is not None else None
    return attribute is not None and attribute[1] in _COLLECTORS


def _targets(writer: Node) -> Iterator[Value]:
    """Yield the value that a node writes into, and those of which it is a part or a view."""
    value = next(iter(writer.args.values()), None)
    visited: set[Value] = set()
    pending = [value] if value is not None else []
    while pending:
        current = pending.pop()
        if current in visited:
            continue
        visited.add(current)
        yield current
        pending += [option for _, option in current.options]
        if current.node is not None:
            pending += list(current.node.args.values())[:1]


def _names(name: str) -> Iterator[str]:
    """Yield a name, then the name with numbers from 2 on."""
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1
