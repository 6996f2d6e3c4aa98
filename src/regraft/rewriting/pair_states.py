"""Checks of loops whose state is a pair, of which a kernel gives the second element in the last
step only: the hidden state and the cell state of an LSTM."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from regraft.matching.shared_memory_of_tensors import possible_sources
from regraft.source.qualified_names import Names
from regraft.structure.calls import writes
from regraft.structure.values_and_nodes import Node, Value

_COLLECTING = frozenset({"append", "insert"})
_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))  # `except*` came with Python 3.11
_PURE_CALLS = frozenset({"enumerate", "len", "range", "reversed"})


def second_element_readers(state: Value, result: Value) -> Iterator[Node]:
    """Yield the nodes that may read the second element of a state, which is a pair: every use of
    the element, or of a whole pair with it. A subscript that takes an element of the pair, the next
    step of the loop, and an assignment of a name to another name are not yielded.

    state, result: the pair that a step takes, and the pair that it computes.
    """
    visited: set[Value] = set()
    pending: list[tuple[Value, bool]] = [(result, True)]
    while pending:
        value, is_pair = pending.pop()
        if value in visited:
            continue
        visited.add(value)
        pending += [(phi, is_pair) for phi in value.joins]
        for use in value.uses:
            if use.output is result:
                continue
            index = use.args.get("index") if use.op == "py.item" and is_pair else None
            number = index.const if index is not None else None
            if use.output is state or number == 1:
                pending.append((use.output, number is None))
            elif number != 0 and not _only_renames(use):
                yield use


def _only_renames(use: Node) -> bool:
    """Return whether a node is an assignment of a name to another name."""
    statement = use.statement.node
    is_name = isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name)
    return use.op == "py.use" and is_name


def runs_other_code(node: Node) -> bool:
    """Return whether a node calls a function that is neither an operation of PyTorch, nor `append`
    or `insert`, nor one of Python's such as `len` and `range`."""
    if node.op not in ("call", "py.call"):
        return False
    callee = node.args.get("callee")
    attribute = callee.attribute() if callee is not None else None
    is_collecting = attribute is not None and attribute[1] in _COLLECTING
    return not is_collecting and node.spelling not in _PURE_CALLS


def changes_other_memory(node: Node, x: Value) -> bool:
    """Return whether a node may write into memory that the tensor `x` shares, or that the function
    did not make (a parameter, a global, an attribute), or stores an attribute of something else
    than `self`."""
    if node.op == "py.store":
        return "base" in node.args or "." in node.spelling.removeprefix("self.")
    if not writes(node):
        return False
    sources = possible_sources(next(iter(node.args.values())))
    return not sources.isdisjoint(possible_sources(x)) or any(
        value.origin in ("param", "path", "global", "unknown") for value in sources
    )


def may_be_caught(loop: ast.stmt, function: ast.AST, names: Names) -> bool:
    """Return whether a function may go on after an exception ends a loop: a `try` statement is
    around it, or a context other than those of PyTorch."""
    for node in ast.walk(function):
        if not isinstance(node, (*_TRY, ast.With, ast.AsyncWith)):
            continue
        contexts = [item.context_expr for item in getattr(node, "items", ())]
        callees = [getattr(context, "func", context) for context in contexts]
        is_safe = contexts and all(
            (names.resolve(callee) or "").startswith("torch.") for callee in callees
        )
        if not is_safe and any(inner is loop for inner in ast.walk(node)):
            return True
    return False


def goes_through_all(loop: ast.stmt, step: Node, x: Value, indices: Sequence[Value]) -> bool:
    """Return whether a loop goes on to the last slice of a tensor: its steps are those of `range`
    over the size of the dimension that the subscript of the slices indexes, and no statement leaves
    it.

    indices  the indices of the subscript, with the number of the step
    """
    source = step.args["source"].node
    if not isinstance(loop, ast.For) or source is None or source.spelling != "range":
        return False
    if any(isinstance(node, ast.Break | ast.Return | ast.Raise) for node in ast.walk(loop)):
        return False
    dim = _dimension_of_size(source.args["0"], x) if len(source.args) == 1 else -1
    return 0 <= dim < len(indices) and indices[dim] is step.output


def _dimension_of_size(size: Value, x: Value) -> int:
    """Return the dimension of which a value is the size in the shape of a tensor; -1 for another
    value."""
    if size.node is None or size.node.op != "py.item":
        return -1
    shape, dim = size.node.args["base"].node, size.node.args["index"].const
    if shape is None or shape.op != "py.attr" or shape.spelling != "shape":
        return -1
    return dim if shape.args["base"] is x and isinstance(dim, int) else -1
