"""The rewriting of a match in a loop whose kernel is called before the loop, and its result indexed
in each step."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from regraft.matching.loop_values import is_before, step_nodes, time_before_loop
from regraft.rewriting.assignments import target_name
from regraft.rewriting.hoisting_checks import HoistingChecks
from regraft.rewriting.kernel_call_source import Renderer
from regraft.rewriting.single_output import Patch
from regraft.rewriting.superfluous_statements import block_of
from regraft.rewriting.withheld import Withheld
from regraft.source.layout import Layout, indentation
from regraft.source.syntax_iterators import walk
from regraft.source.text import Edit, Span
from regraft.structure.calls import own_op
from regraft.structure.values_and_nodes import Node, Value

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)


class HoistedRewriter(HoistingChecks):
    """A maker of the patch of one match in a loop: an assignment of the kernel call before the
    loop, and a subscript in the place of the root's expression."""

    def patch(self) -> Patch:
        """Return the patch (`_hoisting_patch`) for the subscript or call that computes the root;
        the file is not changed. Raise Withheld where the root comes from a call of another
        function, and where the patch is not safe."""
        root = self.root.expr
        if not isinstance(root, ast.Subscript | ast.Call) or self.root.inner is not None:
            raise self._withholding("the step is inside a call of another function", self.root)
        return self._hoisting_patch(root)

    def _hoisting_patch(self, root: ast.expr) -> Patch:
        """Return the patch with two edits: a line before the loop that assigns the kernel call to a
        new name, and a subscript of this name in the place of the root's expression. Where an
        assignment before the loop already has the same call, its name is used, and no line is
        added. Raise Withheld where it is not safe."""
        self._check_places(root, self.root)
        number = self.match.bindings[self.match.pattern.index]
        step = self._outermost_step(number)
        loop = self._loop_statement(step)
        self._check_loop(loop, step)
        span = self.source.span(root)
        before = Renderer(self.match, self.imports, span, (), {}, time=time_before_loop(step))
        for operand in self._looped_values():
            if not before.value(operand).isidentifier():
                raise self._withholding("the tensor of the loop has no name of its own", self.root)
            self._check_rebinding(before.value(operand))
        place = self._line_start(loop)
        indent = indentation(self.source, place)
        line_length = len(self.source.text[place:].split(b"\n", 1)[0])
        layout = Layout(self.source, Span(place, place + line_length), indent)
        call = before.call(self.match.pattern.target, layout.call)
        name = self._existing_result_name(loop, call)
        edits = []
        if name is None:
            name = self._free_name(self._preferred_name(before))
            line = f"{indent}{name} = {call}{self.source.newline}"
            edits.append(Edit(Span(place, place), line))
        edits.append(
            Edit(span, self._step_text(name, Renderer(self.match, self.imports, span, (), {})))
        )
        # what else is in the loop waits for the next round, in which the new name is no free one
        extent = Span(place, self.source.span(loop).end)
        return Patch(self.match, "hoist", tuple(edits), extent, frozenset(before.used))

    def _preferred_name(self, before: Renderer) -> str:
        """Return the preferred name for the kernel's result, after the first tensor that the loop
        takes slices of: `x_slices`. It may be in use already."""
        return f"{before.value(self._looped_values()[0])}_slices"

    def _step_text(self, name: str, renderer: Renderer) -> str:
        """Return the text that takes the place of the root's expression: the subscript of `name`,
        which has the kernel's result, by the index of the match, and the subscript of that by what
        else the root's index says."""
        text = f"{name}[{renderer.value(self.match.bindings[self.match.pattern.index])}]"
        further = [self.source.segment(index) for index in _further_indices(self.root.expr)]
        return f"{text}[{', '.join(further)}]" if further else text

    def _check_loop(self, loop: ast.stmt, step: Node) -> None:
        """Raise Withheld where slices that are taken before the loop may differ from those of its
        steps in values, gradients or autograd mode, or where a slice is kept, or a sliced tensor
        may be unbound or changed."""
        self._check_gradients(loop, step)
        self._check_modes(loop)
        self._check_uses(step)
        for operand in self._looped_values():
            self._check_bound(operand, loop)
            self._check_unchanged(operand, time_before_loop(step), step.statement.end + 1)

    def _line_start(self, loop: ast.stmt) -> int:
        """Return the byte offset at which the line of the loop starts; raise Withheld where the
        line continues another, or another statement is on it."""
        place = self.source.line_starts[loop.lineno - 1]
        is_continued = self.source.text[:place].rstrip(b"\r\n").endswith(b"\\")
        if is_continued or self.source.text[place : self.source.span(loop).start].strip():
            raise self._withholding("several statements share a line", self.root)
        return place

    def _outermost_step(self, number: Value) -> Node:
        """Return the node that numbers the steps of the loop before which the kernel is called. Of
        the loops from whose numbers of steps the index `number` is computed, that is the outermost
        one in all of whose steps the kernel's arguments are the same. The rule's condition says
        that they are in those of the innermost loop, so that there is one."""
        operands = self._looped_values()
        return next(
            step
            for step in step_nodes(number)
            if all(is_before(operand, step) for operand in operands)
        )

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

    def _existing_result_name(self, loop: ast.stmt, call: str) -> str | None:
        """Return the name to which a statement before the loop, or before a `for` around it, has
        assigned `call`, the text of the kernel call, with the same, unchanged tensors; None where
        there is none. Only assignments of kernel calls may be between the statement and the loop;
        the outermost loop is tried first."""
        function = self.match.body.node
        around = _loops_around(loop, function)
        wanted = ast.parse(call, mode="eval").body
        for place in dict.fromkeys([*around, loop]):
            block = block_of(function, place)
            for sibling in reversed(block[: block.index(place)]):
                name, value = target_name(sibling), getattr(sibling, "value", None)
                node = self._kernel_node(value)
                if name is None or node is None:
                    break
                is_bound = self.match.body.reaching(name, self.root.time) is node.output
                is_same = ast.dump(node.expr) == ast.dump(wanted)
                if is_same and is_bound and self._is_call_reusable(node, place):
                    return name
        return None

    def _kernel_node(self, expr: ast.AST | None) -> Node | None:
        """Return the node of an expression that calls the kernel; None for any other expression."""
        calls = self.match.body.index.get("call", ())
        kernel = self.match.pattern.kernel
        return next(
            (node for node in calls if node.expr is expr and own_op(node.spelling) == kernel), None
        )

    def _is_call_reusable(self, call: Node, loop: ast.stmt) -> bool:
        """Return whether an earlier call of the kernel takes the tensors of the match, and the loop
        after the call changes neither these nor the mode of autograd."""
        operands = self._looped_values()
        if not set(operands).issubset(call.args.values()):
            return False
        try:
            self._check_modes(loop)
            for operand in operands:
                self._check_unchanged(operand, call.time, self.root.time)
        except Withheld:
            return False
        return True

    def _free_name(self, name: str) -> str:
        """Return the name, or the first of `name_2`, `name_3`, ... that is a name of nothing in the
        function or among the file's imports. In another function it may be a local variable."""
        text, qualified = self.source.text, self.imports.names.qualified
        if text.isascii() and name.encode() not in text and name not in qualified:
            return name  # most often, and without a walk through the function
        used = {
            getattr(node, attribute, None)
            for node in walk(self.match.body.node)
            for attribute in ("id", "arg", "name")
        }.union(qualified)
        return next(new for new in _numbered(name) if new not in used)


def _loops_around(loop: ast.stmt, function: ast.AST) -> list[ast.For]:
    """Return the `for` loops of a function in which a loop stands, itself included."""
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.For) and any(inner is loop for inner in ast.walk(node))
    ]


def _further_indices(subscript: ast.AST) -> list[ast.expr]:
    """Return the indices by which the slice is indexed that a subscript takes by a number: all but
    the first that is no slice or `...`; [] where these are whole slices and `...` alone."""
    index = getattr(subscript, "slice", None)
    elements = index.elts if isinstance(index, ast.Tuple) else []
    is_number = [not (isinstance(part, ast.Slice) or _is_whole(part)) for part in elements]
    further = [part for i, part in enumerate(elements) if i != is_number.index(True)]
    return [] if all(map(_is_whole, further)) else further


def _is_whole(index: ast.expr) -> bool:
    """Return whether an index is `:` or `...`."""
    if isinstance(index, ast.Slice):
        return index.lower is index.upper is index.step is None
    return isinstance(index, ast.Constant) and index.value is Ellipsis


def _numbered(name: str) -> Iterator[str]:
    """Yield a name, then `name_2`, `name_3` and so on without end."""
    yield name
    yield from (f"{name}_{number}" for number in itertools.count(2))
