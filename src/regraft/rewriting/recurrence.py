"""The rewriting of a match whose result a loop carries to its next step: the kernel is called
before the loop, and its result with the state of each step."""

from __future__ import annotations

import ast
from dataclasses import replace

from regraft.matching.loops import start_of
from regraft.matching.uses import METADATA, is_branching
from regraft.rewriting.checks import SHARING_OPS
from regraft.rewriting.hoisted import HoistedRewriter
from regraft.rewriting.hoisting_checks import keeps
from regraft.rewriting.render import Renderer, Withheld
from regraft.rewriting.single_output import Patch
from regraft.rewriting.statements import target_name
from regraft.source.text import Span
from regraft.structure.model import Node, Value

_NEW_TENSORS = frozenset({"H", "T", "mH", "mT"})  # attributes that are tensors of their own
_READING = frozenset({"py.binary", "py.compare", "py.setitem", "py.test", "py.unary", "py.use"})
_COPYING = frozenset({"list", "reversed", "tuple"})
# Names by which memory is shared with tensors.
_MEMORY = frozenset(
    {"__array__", "array", "as_tensor", "asarray", "data_ptr", "from_dlpack", "from_numpy"}
    | {"frombuffer", "numpy", "set_", "storage", "to_dlpack", "untyped_storage"}
)
# Parts of names of functions that are no operations on tensors.
_NO_OPERATIONS = frozenset({"autograd", "checkpoint", "func", "jit", "save", "utils"})
_NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class RecurrenceRewriter(HoistedRewriter):
    """A maker of the patch of a recurrence: `h = next_h(t, h)` for `h = a[:, t] * h + b[:, t]`."""

    def patch(self) -> Patch:
        """Return the patch; the file is not changed. Raises Withheld where it is not safe."""
        root = self.root.expr
        if not isinstance(root, ast.BinOp | ast.Call) or self.root.inner is not None:
            raise self._withholding("the step is inside a call of another function", self.root)
        if target_name(self.root.statement.node) is None:
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
        patch = self._patch_of(root)
        edits = sorted((*patch.edits, *self._statement_edits(self._inner)))
        return replace(patch, edits=tuple(edits))

    def _is_within(self, node: Node, span: Span) -> bool:
        """Return whether the expression of a node stands inside the replaced text."""
        if node.statement is not self.root.statement or not isinstance(node.expr, ast.expr):
            return False
        inner = self.source.span(node.expr)
        return span.start <= inner.start and inner.end <= span.end

    def _wanted_name(self, before: Renderer) -> str:
        """Return the name for the function that gives the next state, which may be taken."""
        return f"next_{target_name(self.root.statement.node)}"

    def _step_text(self, name: str, renderer: Renderer) -> str:
        """Return the call that gives the next state."""
        bindings, pattern = self.match.bindings, self.match.pattern
        renderer = replace(renderer, deleted=self._inner.deleted)
        index = renderer.value(bindings[pattern.index])
        return f"{name}({index}, {renderer.value(bindings[pattern.carried])})"

    def _name_of_result(self, loop: ast.stmt, call: str) -> str | None:
        """Return None: each recurrence has a kernel of its own, which follows one state."""
        return None

    def _check_uses(self, step: Node) -> None:
        """Raise Withheld where the loop may show the gradient of a state other than the last one,
        which a backward pass over all steps does not compute: states have to pass through
        operations of PyTorch, or into a list that becomes a tensor."""
        state = self.match.bindings[self.match.pattern.carried]
        self._check_nested_functions({*state.names, *self.root.output.names})
        self._check_memory()
        start, end = start_of(step), step.statement.end
        visited, pending = {self.root.output, state}, [self.root.output, state]
        while pending:
            value = pending.pop()
            aliases = [phi for phi in value.joins if start < phi.born <= end]
            if any(phi is not state and not is_branching(phi) for phi in aliases):
                raise self._withholding("another name of the loop has the state, too", self.root)
            for use in value.uses:
                if use in self.matched or not start < use.time <= end:
                    continue
                if _may_share(use):
                    aliases.append(use.output)
                elif not _makes_tensor(use, value):
                    raise self._withholding(
                        "the state may be stored, or its gradient looked at", use
                    )
            pending += [alias for alias in dict.fromkeys(aliases) if alias not in visited]
            visited.update(aliases)

    def _check_unchanged(self, value: Value, start: int, end: int) -> None:
        """Raise Withheld where the loop may write into a tensor, or gives it to a function that may
        do so by its memory, which no later step sees."""
        super()._check_unchanged(value, start, end)
        visited, pending = {value}, [value]
        while pending:
            for use in pending.pop().uses:
                if not start < use.time <= end or use.output in visited:
                    continue
                if use.op == "call" and not _may_share(use):
                    raise self._withholding("a call in the loop may change the tensor", use)
                if use.op == "detach" or (use.op == "py.attr" and use.spelling == "data"):
                    raise self._withholding("the memory of the tensor is used in the loop", use)
                if _may_share(use):
                    visited.add(use.output)
                    pending.append(use.output)

    def _check_memory(self) -> None:
        """Raise Withheld where the function may share the memory of tensors with other libraries,
        whose writes no later step sees."""
        for node in ast.walk(self.match.body.node):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if name in _MEMORY:
                line = getattr(node, "lineno", self.match.body.node.lineno)
                raise Withheld(f"{name} may share the memory of a tensor", line)

    def _check_nested_functions(self, names: set[str]) -> None:
        """Raise Withheld where a function inside this one reads one of the names."""
        for node in ast.walk(self.match.body.node):
            if node is self.match.body.node or not isinstance(node, _NESTED):
                continue
            if any(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(node)):
                raise Withheld("a function inside this one reads the state", node.lineno)


def _may_share(use: Node) -> bool:
    """Return whether the result of a node may be its argument, a view of it or a display of it."""
    if use.op == "call":
        modules = use.spelling.split(".")
        is_operation = modules[0] in ("einops", "torch") and len(modules) > 1
        is_pure = not modules[-1].startswith("_") and not modules[-1].endswith("_")
        return is_operation and is_pure and _NO_OPERATIONS.isdisjoint(modules)
    return use.op in ("py.dict", "py.tuple") or use.op in SHARING_OPS


def _makes_tensor(use: Node, value: Value) -> bool:
    """Return whether a node only reads a value, computes a new tensor from it, copies it into a
    tensor or appends it to a list that becomes a tensor."""
    if use.op == "py.attr":
        return use.spelling in METADATA | _NEW_TENSORS
    if use.op == "call":
        attribute = use.args["callee"].attribute() if "callee" in use.args else None
        is_append = attribute is not None and attribute[1] in ("append", "insert")
        return is_append and attribute is not None and _becomes_tensor(attribute[0])
    if use.op.startswith("py."):
        return use.op in _READING and not keeps(use, value)
    return True


def _becomes_tensor(value: Value) -> bool:
    """Return whether a value is a list that this function makes, and of which nothing is used but
    the tensor of all its elements."""
    visited, pending = {value}, [value]
    while pending:
        current = pending.pop()
        is_list = current.node is not None and isinstance(current.node.expr, ast.List)
        if not current.options and not is_list and current.node is not None:
            is_list = current.node.op == "py.item" or current.node.spelling in _COPYING
        if not current.options and not is_list:
            return False
        following = [option for _, option in current.options] + current.joins
        for use in current.uses:
            if _copies(use):
                following.append(use.output)
            elif not _reads_list(use):
                return False
        pending += [other for other in following if other not in visited]
        visited.update(following)
    return True


def _copies(use: Node) -> bool:
    """Return whether the result of a node is a list of elements of its argument."""
    if use.op == "py.item":
        index = use.args.get("index")
        return index is not None and index.node is not None and index.node.op == "py.slice"
    return use.op == "py.call" and use.spelling in _COPYING


def _reads_list(use: Node) -> bool:
    """Return whether a node joins the elements of a list into a tensor, adds one or counts them."""
    if use.op == "py.attr":
        return use.spelling in ("append", "insert", "reverse")
    if use.op == "py.call":
        return use.spelling == "len"
    return use.op in ("cat", "py.test", "py.use", "stack")
