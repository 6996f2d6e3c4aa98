"""The checks of a match that hold for every rule: whether nothing else needs what the kernel
replaces."""

from __future__ import annotations

import ast
import functools
from dataclasses import replace

from regraft.dsl.syntax import Predicate
from regraft.matching.arguments import describe_node, is_same_value
from regraft.matching.condition_table import unmet_reason
from regraft.matching.pattern import variables
from regraft.matching.result import Holds, Match, Test
from regraft.matching.uses import (
    is_metadata,
    is_size,
    needs_nothing,
    only_reads_shapes,
    uses,
    uses_under,
)
from regraft.structure import guards
from regraft.structure.guards import Guard
from regraft.structure.module_structures import Module
from regraft.structure.values_and_nodes import Layer, Node


def with_conditions(match: Match) -> Match:
    """Return the match with further conditions (`Holds`): for each use of an inner value outside of
    the match, the negation of what that use stands under, so that the original code stays as the
    other branch. Return the match unchanged where there is no such use, and where one runs wherever
    the kernel would."""
    matched, tests = set(match.nodes), list(match.tests)
    base = match.kernel_guard
    for node in match.nodes:
        is_left = node in match.roots or is_size(node)
        for guard, use in () if is_left else uses(node.output):
            if use in matched or is_metadata(use):
                continue
            if not guards.satisfiable(guards.conjoin(base, guard)):
                continue
            unimplied = _unimplied_conjuncts(base, guard)
            if not unimplied:
                return match  # used wherever the root is
            condition = guards.negate(
                unimplied[0] if len(unimplied) == 1 else guards.And(unimplied)
            )
            tests.append(Holds(condition))
            base = guards.conjoin(base, condition)
    return replace(match, tests=tuple(tests)) if len(tests) > len(match.tests) else match


def _unimplied_conjuncts(base: Guard, guard: Guard) -> tuple[Guard, ...]:
    """Return the parts of a guard that do not follow from `base`."""
    conjuncts = guards.conjuncts(guard)
    return tuple(conjunct for conjunct in conjuncts if not guards.implies(base, conjunct))


def unsoundness(match: Match, module: Module) -> tuple[str, ast.AST] | None:
    """Return why the kernel may not replace the match, with the syntax node to blame: something
    else uses an inner value, the nodes are in different loops, their conditions exclude each other,
    or a subclass builds another layer. Return None where it may."""
    matched = set(match.nodes)
    for node in match.nodes:
        if node in match.roots or is_size(node):
            continue
        for use in _forbidding_uses(match, node):
            if not (use in matched or needs_nothing(use) or only_reads_shapes(use, matched)):
                line = getattr(use.expr, "lineno", use.statement.node.lineno)
                return f"the result of {describe_node(node)} is also used at line {line}", use.expr
    if any(node.loop != match.root.loop for node in match.nodes):
        return "the nodes are not in the same loop", match.root.expr
    if not _can_run(match.guard):
        return "the code runs only where the kernel does not apply", match.root.expr
    return _uncalled_layer(match) or _override_reason(match, module)


@functools.lru_cache(maxsize=1024)
def _can_run(guard: guards.Guard) -> bool:
    """Return whether code under a guard can run, if no call changed an attribute; from the cache
    for the guard of one of the last matches, which many others share."""
    return guards.satisfiable(guards.merge_readings(guard))


def _uncalled_layer(match: Match) -> tuple[str, ast.AST] | None:
    """Return a reason and the call of a layer of the model that the kernel would replace although
    it is neither given the layer nor run after a test of it, so that hooks would not run any more;
    else None."""
    if match.pattern.decorator is not None:
        return None
    names = [name for name in match.pattern.layers if name in match.bindings]
    passed_layers = [match.bindings[name] for name in names]
    passed_layers += [test.subject for test in match.tests if isinstance(test, Test)]
    for node in match.nodes:
        if node.layer is None or node.layer.origin != "path":
            continue
        if not any(is_same_value(node.layer, layer) for layer in passed_layers):
            return f"the kernel would not call {describe_node(node)}, nor its hooks", node.expr
    return None


def _forbidding_uses(match: Match, node: Node) -> tuple[Node, ...]:
    """Return the nodes that use the result of an inner node where the kernel would run, matched
    ones included; where the match is conditional, reads of shapes and the like are left out."""
    if match.condition is not guards.TRUE:
        base = match.kernel_guard
        return tuple(use for use in uses_under(base, node.output) if not is_metadata(use))
    same_block = node.statement.block == match.root.statement.block
    return node.output.every_use() if same_block else uses_under(match.guard, node.output)


def _override_reason(match: Match, module: Module) -> tuple[str, ast.AST] | None:
    """Return a reason and the node of a layer where a subclass in the file inherits the method but
    builds this layer with another type, since it would get the kernel, too; else None."""
    cls = match.structure.cls
    if cls is None:
        return None
    for node in match.nodes:
        if node.layer is None or node.layer.origin != "path":
            continue
        root = ".".join(node.layer.name.split("[")[0].split(".")[:2])
        own_types = _layer_types(match.structure.layers.get(root, ()))
        for subclass in module.subclasses.get(cls.name, ()):
            if (
                match.body.name not in module.methods(subclass)
                and _layer_types(module.layers(subclass).get(root, ())) != own_types
            ):
                return f"subclass {subclass.name} builds {root} as another layer", node.expr
    return None


def unmet_condition(
    predicate: Predicate, match: Match, module: Module
) -> tuple[str, ast.AST] | None:
    """Return why a condition of the rule does not hold for the match, with the root's expression;
    None where it holds, or none of its variables is bound."""
    names = [name for operand in predicate.args for name in variables(operand)]
    if names and match.bindings.keys().isdisjoint(names):
        return None  # it speaks of another alternative, or of a node that is not there
    reason = unmet_reason(predicate, match.bindings, match.structure, module)
    return (reason, match.root.expr) if reason else None


def _layer_types(layers: tuple[Layer, ...]) -> frozenset[str]:
    """Return the classes or types of layers, to compare two constructors."""
    return frozenset(layer.source or layer.type for layer in layers)
