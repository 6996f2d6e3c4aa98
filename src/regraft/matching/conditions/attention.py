"""Conditions about attention: scores that become weights, and heads that are keys or values."""

from __future__ import annotations

from regraft.matching.attended_heads import postponing_objection
from regraft.matching.conditions.values_for_conditions import Arguments, Scope, variable_text
from regraft.matching.uses import METADATA
from regraft.structure import guards
from regraft.structure.calls import own_op
from regraft.structure.rank import exchanges_last_dimensions, rank
from regraft.structure.values_and_nodes import MISSING, Node, Value

# Steps from scores to weights that a postponed tensor follows without its elements, in place or
# not.
_POSTPONED_OPS = frozenset(
    {
        "add",
        "sub",
        "mul",
        "div",
        "masked_fill",
        "where",
        "to",
        "type",
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "contiguous",
        "detach",
        "dropout",
        "identity",
    }
)


# Ops of Regraft that compute an operation of PyTorch.
_OWN_OPS = {"regraft.ops.softmax": "softmax"}


# Operations that multiply values by weights, with the parameters of weights and of transposed
# weights; no parameter for any.
_WEIGHTED_SUMS = {"einsum": (), "matmul": ("input", "other")}


def attends(args: Arguments, scope: Scope) -> str:
    """Return a reason unless scores become weights by softmax over the last dimension by which a
    value is multiplied, and other uses on the way that need the elements are in branches."""
    scores = scope.value(args[0])
    is_attended = False
    pending = [(scores, False, False)] if scores is not None else []
    visited = set(pending)
    while pending:
        current, is_softmaxed, is_transposed = pending.pop()
        for use in current.every_use():
            op = _computed_op(use)
            transposes = is_softmaxed and exchanges_last_dimensions(use)
            if is_softmaxed and _weights_values(use, op, current, is_transposed):
                is_attended = True
            elif transposes or _is_postponed(use, op, is_softmaxed):
                is_soft = is_softmaxed or op == "softmax"
                following = (use.output, is_soft, is_transposed != transposes)
                pending += [following] if following not in visited else []
                visited.add(following)
            elif _needs_elements(use) and guards.implies(_guard_of(scores), use.guard):
                line = getattr(use.expr, "lineno", use.statement.node.lineno)
                name = use.spelling or use.op
                return f"{name} at line {line} needs the elements of {variable_text(args[0])}"
    return (
        "" if is_attended else f"{variable_text(args[0])} does not become the weights of attention"
    )


def _computed_op(use: Node) -> str:
    """Return the operation that a node computes, whether in place, by PyTorch or by Regraft."""
    return _OWN_OPS.get(own_op(use.spelling) or "") or use.op.removesuffix("_")


def _weights_values(use: Node, op: str, weights: Value, is_transposed: bool) -> bool:
    """Return whether a node that computes `op` multiplies values by the weights, in some branch at
    least."""
    if op not in _WEIGHTED_SUMS:
        return False
    parameters = _WEIGHTED_SUMS[op]
    return not parameters or weights in use.args[parameters[is_transposed]].alternatives()


def _is_postponed(use: Node, op: str, is_softmaxed: bool) -> bool:
    """Return whether a postponed tensor follows a node that computes `op`: one softmax at most."""
    if op == "softmax":
        return not is_softmaxed and _can_be_last_dimension(use)
    return op in _POSTPONED_OPS


def _guard_of(value: Value | None) -> guards.Guard:
    """Return the guard of the node that makes a value; TRUE where no node does."""
    return guards.TRUE if value is None or value.node is None else value.node.guard


def _can_be_last_dimension(softmax: Node) -> bool:
    """Return whether a softmax may be over the last dimension; True where its dimension is unknown,
    and for the op of Regraft."""
    if softmax.op == "call":
        return True  # an op of Regraft, which is over the last one
    dim = softmax.args["dim"].const
    input_rank = rank(softmax.args["input"])
    if not isinstance(dim, int):
        return dim is MISSING
    return dim == -1 or (dim == input_rank.number - 1 if input_rank is not None else dim > 1)


def _needs_elements(use: Node) -> bool:
    """Return whether a node looks at the elements of a tensor, rather than only passing the tensor
    on."""
    if use.op == "py.attr":
        return use.spelling not in METADATA
    return use.op == "py.item" or not (
        use.op.startswith("py.") or use.spelling.rpartition(".")[2] in METADATA
    )


def attended_heads(args: Arguments, scope: Scope) -> str:
    """Return a reason unless heads are the key or value of attention, and nothing else needs them
    or may change them before."""
    heads = scope.value(args[0])
    if heads is None:
        return ""
    reason = postponing_objection(heads, scope.structure.bodies)
    return f"{variable_text(args[0])} {reason}" if reason else ""
