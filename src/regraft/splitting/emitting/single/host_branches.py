"""Branches of the host as `If`: the cases of their tests, and the types and outputs where their
sides meet."""

from __future__ import annotations

import ast

from regraft.splitting.emitting.single.block_exits import RESULT, Outcome
from regraft.splitting.emitting.single.graph import Graph
from regraft.splitting.emitting.single.graph_values import UNDEFINED, Const, Names, Number, leaves
from regraft.splitting.emitting.single.liveness import exit_ways
from regraft.splitting.emitting.single.path_types import (
    Inexpressible,
    express,
    has_unnamed_leaves,
    unify,
)
from regraft.splitting.program.residual import Step

Arm = tuple[ast.expr | None, list[Step]]


def sort_integer_arms(arms: list[Arm]) -> tuple[list[tuple[ast.Compare, list[Step]]], list[Arm]]:
    """Return the arms of a branch that compares one name with different ints, sorted by the ints,
    and its last arm in a list of its own. The last arm has to be an `else` in which every path
    raises; two empty lists are returned for any other branch."""
    names: set[str] = set()
    cases: dict[int, tuple[ast.Compare, list[Step]]] = {}
    for test, body in arms[:-1]:
        match test:
            case ast.Compare(ast.Name(key), [ast.Eq()], [ast.Constant(number)]) if (
                type(number) is int
            ):
                names.add(key)
                cases[number] = test, body
    default_test, default_body = arms[-1]
    is_complete = len(names) == 1 and len(cases) == len(arms) - 1
    if not is_complete or default_test is not None or exit_ways(default_body):
        return [], []
    return [cases[number] for number in sorted(cases)], arms[-1:]


def join_types(present: list[Names], outer: Names) -> Names:
    """Return for each name the type (a template of `join`) that its values on all paths have in
    common; raise Inexpressible for a name without one.

    present: the names at the ends of the paths that do not raise. outer: the names before the paths
    parted.
    """
    templates = {}
    for key in sorted({key for outcome in present for key in outcome}):
        try:
            values = [outcome.get(key, UNDEFINED) for outcome in present]
            templates[key] = unify(values, outer.get(key, UNDEFINED))
        except Inexpressible as problem:
            raise Inexpressible(f"{key}, which is {problem} on different paths,") from problem
    return templates


def drop_aliases(names: Names, aliases: dict[str, str]) -> Names:
    """Return a copy of the names without those that are keys of `aliases`."""
    return {key: value for key, value in names.items() if key not in aliases}


def add_branches(
    graph: Graph, test: str, lowered_sides: list[tuple[Graph, Outcome]], templates: Names
) -> list[str]:
    """Add an `If` of two lowered sides to `graph`, and return the names of its outputs, one for
    each leaf (number, tensor or list) of the templates that has no name.

    Returns [] and adds nothing where no leaf lacks a name and neither side can fail. lowered_sides:
    the graph of each side and the names at its end, None where it raises.
    """
    graphs = [inner for inner, _ in lowered_sides]
    raises = any(outcome is None for _, outcome in lowered_sides)
    fails = raises or any(inner.may_fail for inner in graphs)
    if not fails and not any(map(has_unnamed_leaves, templates.values())):
        return []
    count = add_outputs(lowered_sides, templates)
    graph.may_fail = graph.may_fail or fails
    return graph.add_node("If", [test], count, then_branch=graphs[0], else_branch=graphs[1])


def add_outputs(sides: list[tuple[Graph, Outcome]], templates: Names) -> int:
    """Give each side's graph an output for every leaf of the templates that has no name yet; return
    the number of these outputs.

    sides: the graph of each side and the names at its end; None where the side raises, whose
    outputs then fail. Where no leaf lacks a name, each graph gets one output that is never read,
    because an `If` needs one.
    """
    kinds = [leaf for template in templates.values() for leaf in leaves(template) if not leaf.name]
    if not kinds:  # an `If` must have an output, also where it is only there to raise
        kinds, templates = [Number("", "int")], {RESULT: Number("", "int")}
        sides = [(graph, None if names is None else {RESULT: Const(0)}) for graph, names in sides]
    for graph, names in sides:
        outputs: list[str] = []
        for key, template in templates.items():
            value = names.get(key, UNDEFINED) if names is not None else None
            outputs.extend(express(graph, value, template))
        for name, kind in zip(outputs, kinds, strict=True):
            graph.add_output(name, kind)
    return len(kinds)
