"""The rewriting of a match whose result a loop carries to its next step: the kernel is called
before the loop, and its result with the state of each step."""

from __future__ import annotations

import ast
from dataclasses import replace

from regraft.matching.loop_values import time_before_loop, tuple_elements
from regraft.matching.uses import is_branching
from regraft.rewriting.assignments import target_name, unpacks_into_names
from regraft.rewriting.hoisted_rewriting import HoistedRewriter
from regraft.rewriting.kernel_call_source import Renderer
from regraft.rewriting.pair_states import (
    changes_other_memory,
    goes_through_all,
    may_be_caught,
    runs_other_code,
    second_element_readers,
)
from regraft.rewriting.single_output import Patch
from regraft.rewriting.state_uses import (
    WAITING,
    contains_name,
    makes_tensor,
    may_share,
    writes_into,
)
from regraft.rewriting.withheld import Withheld
from regraft.source.text import Span
from regraft.structure.values_and_nodes import Node, Value

# Names by which memory is shared with tensors.
_MEMORY = frozenset(
    {"__array__", "array", "as_tensor", "asarray", "data_ptr", "from_dlpack", "from_numpy"}
    | {"frombuffer", "numpy", "set_", "storage", "to_dlpack", "untyped_storage"}
)
_NAMESPACES = frozenset({"eval", "exec", "locals", "vars"})
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class RecurrenceRewriter(HoistedRewriter):
    """A maker of the patch of a recurrence: `h = next_h(t, h)` for `h = a[:, t] * h + b[:, t]`."""

    def patch(self) -> Patch:
        """Return the patch of three kinds of edits: a line before the loop assigns the function
        that gives the next state, the root's expression becomes a call of it, and statements of
        inner nodes are deleted. Raise Withheld where that is not safe."""
        root = self.root.expr
        if not isinstance(root, ast.BinOp | ast.Call) or self.root.inner is not None:
            raise self._withholding("the step is inside a call of another function", self.root)
        statement = self.root.statement.node
        is_pair = self._is_pair and unpacks_into_names(statement)
        if target_name(statement) is None and not is_pair:
            raise self._withholding("the state is not assigned to a name", self.root)
        span = self.source.span(root)
        for node in self.match.nodes:
            if node.statement.block != self.root.statement.block:
                raise self._withholding("an inner step is in another block", node)
        for node in self.match.body.nodes:
            if node not in self.matched and node.effect and self._is_within(node, span):
                raise self._withholding("a call inside the expression would be lost", node)
        self._inner = self._plan()
        if self._inner.reduced:
            raise self._withholding("an inner step is part of another statement", self.root)
        patch = self._hoisting_patch(root)
        edits = sorted((*patch.edits, *self._statement_edits(self._inner)))
        return replace(patch, edits=tuple(edits))

    def _is_within(self, node: Node, span: Span) -> bool:
        """Return whether a node belongs to the root's statement and its expression lies in `span`,
        the replaced text."""
        if node.statement is not self.root.statement or not isinstance(node.expr, ast.expr):
            return False
        inner = self.source.span(node.expr)
        return span.start <= inner.start and inner.end <= span.end

    def _preferred_name(self, before: Renderer) -> str:
        """Return the preferred name for the function that gives the next state, after the state:
        `next_h`. It may be in use already."""
        return f"next_{target_name(self.root.statement.node) or 'state'}"

    def _step_text(self, name: str, renderer: Renderer) -> str:
        """Return the call `name(index, state)`, which gives the next state, in which `name` is the
        kernel's result."""
        bindings, pattern = self.match.bindings, self.match.pattern
        renderer = replace(renderer, deleted=self._inner.deleted)
        index = renderer.value(bindings[pattern.index])
        return f"{name}({index}, {renderer.value(bindings[pattern.carried])})"

    def _existing_result_name(self, loop: ast.stmt, call: str) -> str | None:
        """Return None: each recurrence has a kernel of its own, which follows one state."""
        return None

    def _check_loop(self, loop: ast.stmt, step: Node) -> None:
        """Raise Withheld where the kernel, which computes all steps before the loop runs them, may
        compute others than the loop: besides the checks of slices, where the layer may be replaced,
        a cell state is read, or the function reads the attribute `data` of anything."""
        super()._check_loop(loop, step)
        self._check_layers()
        if self._is_pair:
            self._check_pair(loop, step)
        for node in ast.walk(self.match.body.node):
            if isinstance(node, ast.Attribute) and node.attr == "data":
                raise Withheld("data shares the memory of a tensor", node.lineno)

    @property
    def _is_pair(self) -> bool:
        """Return whether the state is a pair: a hidden state with a cell state."""
        return self.root.output.kind == "tuple"

    def _check_gradients(self, loop: ast.stmt, step: Node) -> None:
        """Raise Withheld where the steps of the loop compute gradients. For a kernel without a
        layer also raise it where no gradients are recorded: only the backward pass would be
        faster."""
        if not self.match.pattern.layers:
            super()._check_gradients(loop, step)
        self._check_differentiation(step)

    def _check_layers(self) -> None:
        """Raise Withheld where a function other than a constructor may replace the layer that the
        kernel is given."""
        layers = [self.match.bindings.get(name) for name in self.match.pattern.layers]
        names = {layer.name.rpartition(".")[2] for layer in layers if layer is not None}
        for function in ast.walk(self.source.tree):
            if not isinstance(function, ast.FunctionDef) or function.name == "__init__":
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Attribute) or isinstance(node.ctx, ast.Load):
                    continue
                if node.attr in names:
                    raise Withheld(f"{node.attr} may be replaced by another layer", node.lineno)

    def _check_pair(self, loop: ast.stmt, step: Node) -> None:
        """Raise Withheld where the cell state of another step than the last one may be read, or
        something between the steps could change the layer or its input."""
        self._check_messages()
        start, end = step.statement.time, step.statement.end
        for node in self.match.between(start, end + 1):
            if node not in self.matched and runs_other_code(node):
                raise self._withholding("other code runs between the steps", node)
        (x,) = self._looped_values()
        for node in (*self.match.body.writers, *self.match.body.index.get("py.store", ())):
            if start < node.time <= end and changes_other_memory(node, x):
                raise self._withholding("the loop may change the layer or its input", node)
        state = self.match.bindings[self.match.pattern.carried]
        for use in second_element_readers(state, self.root.output):
            if start < use.time <= end or not self._reads_all_slices(loop, step):
                raise self._withholding("the cell state may be read before the last step", use)

    def _check_messages(self) -> None:
        """Raise Withheld where the message of an `assert` names the state: a message is no use in
        the value graph, so that other checks miss it."""
        names = self._names_of_states()
        for node in ast.walk(self.match.body.node):
            message = node.msg if isinstance(node, ast.Assert) else None
            if message is not None and contains_name(message, names):
                raise Withheld("a message of an assertion reads the state", message.lineno)

    def _reads_all_slices(self, loop: ast.stmt, step: Node) -> bool:
        """Return whether the loop certainly goes on to the last slice of its input, and no `try` or
        context around it lets the function go on after an exception."""
        (x,) = self._looped_values()
        read = next(node for node in self.match.nodes if node.args.get("base") is x)
        index = read.args["index"]
        is_several = index.node is not None and index.node.op == "py.tuple"
        indices = tuple(index.node.args.values()) if is_several and index.node else (index,)
        is_caught = may_be_caught(loop, self.match.body.node, self.imports.names)
        return not is_caught and goes_through_all(loop, step, x, indices)

    def _check_modes(self, loop: ast.stmt) -> None:
        """Raise Withheld where the loop may change the autograd mode, waits for another thread or
        process that may write into its tensors (the kernel reads all slices before), or calls
        `eval`, `locals` or the like, which may read the state by its name."""
        super()._check_modes(loop)
        for node in ast.walk(loop):
            if isinstance(node, ast.Attribute) and node.attr in WAITING:
                raise Withheld("the loop waits for what may write into its tensors", node.lineno)
            if isinstance(node, ast.Name) and node.id in _NAMESPACES:
                raise Withheld(f"{node.id} may read the state by its name", node.lineno)

    def _check_uses(self, step: Node) -> None:
        """Raise Withheld where the loop may store a state or show its gradient, which the kernel
        does not compute for each step, or writes into it in place, or a nested function reads it,
        or the function shares memory with other libraries. Uses by operations of PyTorch, and a
        list that becomes a tensor, are allowed."""
        carried = self._carried_values()
        self._check_nested_functions(self._names_of_states())
        self._check_memory()
        start, end = time_before_loop(step), step.statement.end
        visited, pending = {self.root.output, *carried}, [self.root.output, *carried]
        while pending:
            value = pending.pop()
            aliases = self._phis_in_loop(value, start, end)
            for use in value.uses:
                if use in self.matched or not start < use.time <= end:
                    continue
                if may_share(use):
                    aliases.append(use.output)
                elif not makes_tensor(use, value):
                    raise self._withholding(
                        "the state may be stored, or its gradient looked at", use
                    )
            pending += [alias for alias in dict.fromkeys(aliases) if alias not in visited]
            visited.update(aliases)
        for writer in self.match.body.writers:
            if start < writer.time <= end and writes_into(writer, visited):
                raise self._withholding("the state is changed in place", writer)

    def _carried_values(self) -> tuple[Value, ...]:
        """Return the state before a step, and its elements where the source writes them."""
        state = self.match.bindings[self.match.pattern.carried]
        return state, *tuple_elements(state)

    def _names_of_states(self) -> set[str]:
        """Return the names of the states before and after a step, and of their elements."""
        elements = [use.output for use in self.root.output.uses if use.op == "py.item"]
        values = (*self._carried_values(), self.root.output, *elements)
        return {name for value in values for name in value.names}

    def _phis_in_loop(self, value: Value, start: int, end: int) -> list[Value]:
        """Return the φ values that have this value as an option and are created after the time
        `start` and not after `end`, which limit the loop. Raise Withheld where one of them is
        neither the state nor joins branches: another name then carries the value to later steps.
        """
        joins = [phi for phi in value.joins if start < phi.born <= end]
        carried = self._carried_values()
        if any(phi not in carried and not is_branching(phi) for phi in joins):
            raise self._withholding("another name of the loop has the state, too", self.root)
        return joins

    def _check_unchanged(self, value: Value, start: int, end: int) -> None:
        """Raise Withheld where between the times `start` and `end` something may write into the
        tensor or a view of it: an operation in place, a call of an unknown function, or
        `detach`."""
        super()._check_unchanged(value, start, end)
        visited, pending = {value}, [value]
        while pending:
            for use in pending.pop().uses:
                if not start < use.time <= end or use.output in visited:
                    continue
                if use.op == "call" and not may_share(use):
                    raise self._withholding("a call in the loop may change the tensor", use)
                if use.op == "detach":
                    raise self._withholding("the memory of the tensor is used in the loop", use)
                if may_share(use):
                    visited.add(use.output)
                    pending.append(use.output)

    def _check_memory(self) -> None:
        """Raise Withheld where the function uses a name such as `numpy` or `data_ptr`, by which
        other libraries may share the memory of tensors."""
        for node in ast.walk(self.match.body.node):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if name in _MEMORY:
                line = getattr(node, "lineno", self.match.body.node.lineno)
                raise Withheld(f"{name} may share the memory of a tensor", line)

    def _check_nested_functions(self, names: set[str]) -> None:
        """Raise Withheld where a function inside this one, or a `match` statement, reads one of the
        names."""
        for node in ast.walk(self.match.body.node):
            if node is self.match.body.node or not isinstance(node, (*_NESTED, ast.Match)):
                continue
            if contains_name(node, names):
                reader = "match statement" if isinstance(node, ast.Match) else "function"
                raise Withheld(f"a {reader} inside this one reads the state", node.lineno)
