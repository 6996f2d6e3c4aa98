"""Comprehensions and generators, as the loops that they stand for."""

from __future__ import annotations

import ast

from regraft.splitting.program.comprehensions import expand_comprehension
from regraft.splitting.program.residual_expressions import MUTATORS
from regraft.splitting.program.values import Value
from regraft.splitting.specialising.state import Specialisation


def evaluate_list_comprehension(
    state: Specialisation, node: ast.ListComp | ast.GeneratorExp
) -> Value:
    """Specialise a list comprehension as the loop that it stands for, and return the list, which
    the loop fills under a new name; raise Unsplittable for asynchronous ones, and for lambdas in
    it."""
    if any(part.is_async for part in node.generators):
        raise state.refuse(node, "an asynchronous comprehension is not supported")
    _refuse_lambdas(state, node)
    key = state.fresh_name()
    list_name = state.frame.prefix + key
    state.lists_being_filled.add(list_name)
    for statement in expand_comprehension(node, key, f"{key}_"):
        state.execute(statement)
    state.lists_being_filled.discard(list_name)
    return state.names[list_name]


def evaluate_generator(state: Specialisation, node: ast.GeneratorExp) -> Value:
    """Return a generator expression as a list, if its call uses it up at once and it changes
    nothing; raise Unsplittable for other generators."""
    methods = {
        call.func.attr
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    }
    if getattr(node, "at_once", "") != "call" or methods & MUTATORS:
        raise state.refuse(
            node,
            "a generator, map or filter is supported where sum, list or the like use it up at once:"
            " make a list of it",
        )
    value, changes = state.track_changes(lambda: evaluate_list_comprehension(state, node))
    if changes:
        raise state.refuse(node, "a generator that changes something is not supported")
    return value


def _refuse_lambdas(state: Specialisation, node: ast.expr) -> None:
    """Raise Unsplittable for a comprehension with a lambda, whose parameters may be named as its
    variables."""
    if any(isinstance(inner_node, ast.Lambda) for inner_node in ast.walk(node)):
        raise state.refuse(node, "a lambda in a comprehension is not supported")


def evaluate_dictionary_comprehension(state: Specialisation, node: ast.DictComp) -> Value:
    """Specialise a dictionary comprehension as the loop that it stands for, and return the
    dictionary, which the loop fills under a new name; raise Unsplittable for lambdas in it."""
    _refuse_lambdas(state, node)
    key = state.fresh_name()
    for statement in expand_comprehension(node, key, f"{key}_"):
        state.execute(statement)
    return state.names[state.frame.prefix + key]
