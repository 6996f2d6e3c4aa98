"""Spellings of one computation: a product with a reciprocal root is also a quotient by the root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from regraft.dsl.syntax import Const, Var
from regraft.matching.pattern import PatternNode

Nodes = tuple[PatternNode, ...]


def spellings(nodes: Nodes) -> Iterator[Nodes]:
    """Yield the nodes of a pattern in each spelling, first as they are.

    `x * rsqrt(v)` is also `x / sqrt(v)` and `x * (1 / sqrt(v))`.
    """
    for number, node in enumerate(nodes):
        if node.op == "rsqrt" and node.is_required:
            users = [user for user in nodes if Var(node.output) in dict(user.args).values()]
            if len(users) == 1 and users[0].op == "mul":
                for choice in spellings(nodes[number + 1 :]):
                    yield from _root_spellings(nodes[:number], node, choice)
                return
    yield nodes


def _root_spellings(before: Nodes, root: PatternNode, after: Nodes) -> Iterator[Nodes]:
    """Yield the nodes `before`, `root`, `after` in each spelling of `root`, a reciprocal root: as
    it is, as a quotient by the square root in the product of `after` that uses it, and as `1 /
    sqrt`."""
    yield (*before, root, *after)
    square_root = replace(root, op="sqrt")
    yield (*before, square_root, *(_as_quotient(node, root.output) for node in after))
    inner = f"{root.output}'root"
    operands = (("input", Const(1.0)), ("other", Var(inner)))
    quotient = PatternNode("div", operands, root.output)
    yield (*before, replace(square_root, output=inner), quotient, *after)


def _as_quotient(node: PatternNode, root: str) -> PatternNode:
    """Return a product with the variable `root` as a quotient by it; any other node as it is."""
    operands = [operand for _, operand in node.args]
    if node.op != "mul" or Var(root) not in operands:
        return node
    operands.remove(Var(root))
    return replace(node, op="div", args=(("input", operands[0]), ("other", Var(root))))
