"""Checks of a match in a loop whose kernel is called before the loop: whether the slices that the
kernel takes there are certainly those that the loop would take."""

from __future__ import annotations

import ast

from regraft.dsl.syntax import Var
from regraft.matching.loop_values import time_before_loop
from regraft.matching.shared_memory_of_tensors import SHARING_OPS, written_values
from regraft.rewriting.arrays_without_gradients import (
    foreign_library,
    is_of_whole_numbers,
    is_read_as_positions,
)
from regraft.rewriting.superfluous_statements import StatementRewriter
from regraft.rewriting.withheld import Withheld
from regraft.source.syntax_iterators import statements
from regraft.structure import guards
from regraft.structure.calls import writes
from regraft.structure.values_and_nodes import Node, Value

# Methods by which a list keeps what it is given: a slice that stays there may be written into.
_COLLECTORS = frozenset({"append", "appendleft", "extend", "insert", "put", "setdefault", "update"})
_MODES = frozenset({"set_grad_enabled", "inference_mode", "no_grad", "enable_grad"})
_WITHOUT_GRADIENTS = frozenset({"inference_mode", "no_grad"})
_KEEPING = frozenset({"py.return", "py.store", "py.comprehension"})
_DISPLAYS = frozenset({"py.tuple", "py.dict"})
_CONTAINERS = frozenset({"dict", "list", "tuple"})
# Attributes of a slice that tell the gradient of this tensor from that of another slice.
_GRADIENT_ATTRIBUTES = frozenset(
    {"grad", "register_hook", "register_post_accumulate_grad_hook", "retain_grad"}
)
# Methods whose result has no gradient.
_DETACHING = frozenset({"argmax", "argmin", "argsort", "detach", "item", "numpy", "tolist"})
_DIFFERENTIATING = frozenset({"backward", "grad"})  # what computes or holds gradients
# Functions that only show what they are given.
_SHOWING = frozenset({"print", "repr", "str"})


class HoistingChecks(StatementRewriter):
    """The checks of one match in a loop, which raise Withheld where its kernel must not be called
    before the loop."""

    def _looped_values(self) -> tuple[Value, ...]:
        """Return the values that the kernel takes as arguments, each once, without layers and
        constants: the tensors of which the loop takes slices, and what is the same in all of its
        steps."""
        names = [
            operand.name
            for operand in self.match.pattern.target.args
            if isinstance(operand, Var) and operand.name not in self.match.pattern.layers
        ]
        values = dict.fromkeys(self.match.bindings[name] for name in names)
        return tuple(value for value in values if value.origin != "const")

    def _check_effects_before(self, step: Node) -> None:
        """Raise Withheld where a node with an effect runs in the statement of a comprehension
        before the comprehension does.

        step  the node that numbers the steps of the comprehension
        """
        source = step.args["source"].node
        end = source.time if source is not None else step.time
        for node in self.match.between(time_before_loop(step), end):
            if node.effect:
                raise self._withholding("a call before the loop may have effects", node)

    def _check_gradients(self, loop: ast.stmt, step: Node) -> None:
        """Raise Withheld where the loop is under `no_grad` or `inference_mode` (the kernel makes
        only the backward pass faster), where its steps compute gradients, and where a sliced value
        has no gradient: whole numbers, or an array of another library."""
        function = self.match.body.node
        contexts = list(function.decorator_list)
        for outer in ast.walk(function):
            if isinstance(outer, ast.With) and any(inner is loop for inner in ast.walk(outer)):
                contexts += [item.context_expr for item in outer.items]
        for context in contexts:
            if _last_name_parts(context) & _WITHOUT_GRADIENTS:
                raise Withheld("no gradients are recorded here", context.lineno)
        self._check_differentiation(step)
        for value in self._looped_values():
            library = foreign_library(value, self.source.tree)
            if library:
                reason = f"the slices are those of an array of {library}"
                raise self._withholding(reason, value.node or self.root)
        are_counted = all(map(is_of_whole_numbers, self._looped_values()))
        if are_counted or is_read_as_positions(self.root.output):
            raise self._withholding("the slices are whole numbers, without gradients", self.root)

    def _check_differentiation(self, step: Node) -> None:
        """Raise Withheld where the steps of the loop compute gradients: those of one slice each."""
        for node in self.match.between(step.statement.time, step.statement.end + 1):
            if node.spelling.rpartition(".")[2] in _DIFFERENTIATING:
                raise self._withholding("the loop computes gradients in its steps", node)

    def _check_modes(self, loop: ast.stmt) -> None:
        """Raise Withheld where the loop contains `yield` or `await`, sets the autograd mode, or
        takes the slice inside a `with`: a slice that a step takes without gradients would have some
        before the loop."""
        for node in ast.walk(loop):
            if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await):
                raise Withheld("other code runs between the steps of the loop", node.lineno)
            is_context = isinstance(node, ast.With | ast.AsyncWith) and any(
                inner is self.root.expr for inner in ast.walk(node)
            )
            if is_context or _last_name_part(node) in _MODES:
                line = getattr(node, "lineno", loop.lineno)
                raise Withheld("the loop may change the mode in which the slice is taken", line)

    def _check_uses(self, step: Node) -> None:
        """Raise Withheld where the slice, or a view of it, is returned, stored or collected in a
        list, since whoever has it then could not change it in place. Also raise it where the slice
        has no gradient, and where its gradient is looked at: the slices that several subscripts
        take of one place are one tensor."""
        uses = self.root.output.every_use()
        if uses and all(_takes_no_gradient(use, self.root.output) for use in uses):
            raise self._withholding(
                "the slice is an index, or is compared, and has no gradient", uses[0]
            )
        visited, pending = {self.root.output}, [self.root.output]
        while pending:
            value = pending.pop()
            for use in value.every_use():
                if keeps_value(use, value):
                    raise self._withholding("the slice itself is returned or stored", use)
                if use.spelling.rpartition(".")[2] in _GRADIENT_ATTRIBUTES:
                    raise self._withholding("the gradient of the slice is looked at", use)
                is_same = use.op in SHARING_OPS or _makes_container(use)
                if is_same and use.output not in visited:
                    visited.add(use.output)
                    pending.append(use.output)

    def _check_bound(self, value: Value, loop: ast.stmt) -> None:
        """Raise Withheld where, in a branch that may lead to the loop, the value of the tensor's
        name is unknown: the name may be unbound there."""
        pending, visited = [(self.match.body.entered[loop], value)], {value}
        while pending:
            guard, current = pending.pop()
            for condition, option in current.options:
                option_guard = guards.conjoin(guard, condition)
                if option in visited or not guards.satisfiable(option_guard):
                    continue
                if option.origin == "unknown":
                    raise self._withholding(
                        "the tensor may not be bound before the loop", self.root
                    )
                visited.add(option)
                pending.append((option_guard, option))

    def _check_rebinding(self, name: str) -> None:
        """Raise Withheld where any function of the file declares the name `global` or `nonlocal`,
        and so may bind it during the loop."""
        for statement in statements(self.source.tree.body):
            if isinstance(statement, ast.Nonlocal | ast.Global) and name in statement.names:
                raise Withheld(f"another function may bind {name}", statement.lineno)

    def _check_unchanged(self, value: Value, start: int, end: int) -> None:
        """Raise Withheld where a statement after `start` may write into the tensor, or where until
        `end` its attributes are set or a statement only calls a function that is given it."""
        for writer in self.match.body.writers:
            if writer.time > start and writes(writer) and value in written_values(writer):
                raise self._withholding("the tensor is changed in place", writer)
        uses = set(value.every_use())
        for use in self.match.between(start, end):
            if use in uses and use.op == "py.store" and use.args.get("base") is value:
                raise self._withholding("an attribute of the tensor is set", use)
            if use in uses and _is_call_for_effect(use):
                raise self._withholding("a call in the loop may change the tensor in place", use)


def _makes_container(node: Node) -> bool:
    """Return whether a node makes a tuple, list or dictionary of its arguments."""
    return node.op in _DISPLAYS or (node.op == "py.call" and node.spelling in _CONTAINERS)


def keeps_value(use: Node, value: Value) -> bool:
    """Return whether a node keeps a value beyond its step: it returns or stores it, sets it as an
    element of a list or dictionary, adds a list with it to another, or calls a method such as
    `append`."""
    if use.op == "py.setitem":  # of a list or a dictionary; a tensor copies what is set
        base, index = use.args["base"], use.args["index"]
        has_dimensions = index.node is not None and index.node.op == "py.tuple"
        is_tensor = base.kind == "tensor" or has_dimensions
        return use.args.get("value") is value and not is_tensor and not is_made_by_torch(base)
    is_list = value.node is not None and _makes_container(value.node)
    if use.op in _KEEPING or (is_list and use.op == "py.binary"):
        return True
    callee = use.args.get("callee")
    attribute = callee.attribute() if callee is not None else None
    return attribute is not None and attribute[1] in _COLLECTORS


def is_made_by_torch(value: Value) -> bool:
    """Return whether a function of PyTorch computes each alternative of a value that any node
    computes, and there is one."""
    alternatives = [option for option in value.alternatives() if option.node is not None]
    return bool(alternatives) and all(
        option.node is not None and option.node.spelling.startswith("torch.")
        for option in alternatives
    )


def _takes_no_gradient(use: Node, value: Value) -> bool:
    """Return whether a node uses a value as an index, alone or beside others, compares it, or takes
    its numbers out of PyTorch or of the graph."""
    callee = use.args.get("callee")
    attribute = callee.attribute() if callee is not None else None
    method = attribute[1] if attribute is not None else use.op
    if method in _DETACHING or use.op in ("embedding", "py.compare"):
        return True
    if use.op == "py.attr":  # a method that is called in the next node
        inner_uses = use.output.every_use()
        return bool(inner_uses) and all(_takes_no_gradient(inner, value) for inner in inner_uses)
    if use.op == "py.tuple":
        inner_uses = use.output.every_use()
        return bool(inner_uses) and all(
            inner.args.get("index") is use.output for inner in inner_uses
        )
    return use.args.get("index") is value


def _last_name_part(node: ast.AST) -> str:
    """Return the last part of a name or of an attribute path in the syntax tree; "" for another
    node."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _last_name_parts(node: ast.AST) -> set[str]:
    """Return the last parts of all names and attribute paths in an expression."""
    return {_last_name_part(inner) for inner in ast.walk(node)}


def _is_call_for_effect(node: Node) -> bool:
    """Return whether a node is a statement that only calls something and drops the result; `print`,
    `repr` and `str` do not count."""
    statement = node.statement.node
    is_statement = isinstance(statement, ast.Expr) and statement.value is node.expr
    return node.op == "call" and is_statement and node.spelling not in _SHOWING
