"""The checking of a rule that parses: its name, its variables, its kernels and its conditions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regraft.dsl.syntax import (
    Apply,
    Position,
    Predicate,
    Ref,
    RuleSyntax,
    Transformation,
    Wildcard,
)
from regraft.matching.condition_table import PREDICATES
from regraft.matching.pattern import (
    alternatives,
    bound_variables,
    nodes_of,
    output_variables,
    variables,
)
from regraft.rules.kernel_signatures import kernel_parameters, positional_parameters
from regraft.source.similar_names import suggest
from regraft.structure.values_and_nodes import MISSING

MOST_COMBINATIONS = 256  # of alternatives and spellings; the rules of Regraft have 16 at most
SPELLINGS_OF_ROOT = 3  # `matching/spellings.py`


@dataclass(frozen=True, slots=True)
class _RuleBindings:
    """The variables that a rule binds before its transformations.

    constructed  variables that its `init` part binds
    layers       those of them that stand for layers
    """

    constructed: frozenset[str]
    layers: frozenset[str]


# a message, and its place in the rule's file; None for the start of the file
PlacedMessage = tuple[str, Position | None]


def check_rule(path: Path, syntax: RuleSyntax) -> Iterator[PlacedMessage]:
    """Yield a message for each problem of a rule that parses: its name, unbound variables, kernels
    and conditions."""
    if syntax.name != path.stem:
        yield f"the rule is called {syntax.name} but its file {path.name}", None
    if too_many := [*_check_combinations(syntax)]:
        yield from too_many
        return  # the checks below, and matching, look at each combination
    bindings = _rule_bindings(syntax)
    for transformation in (*syntax.init, *syntax.forward):
        yield from _check_transformation(transformation, bindings)
    for rule_body in syntax.bodies:
        for message in _check_kernel(rule_body.target.apply):
            yield message, rule_body.target.at
    testable_names = bindings.constructed | _names_of_alternatives(syntax.forward)
    for predicate in syntax.where:
        for message in _check_predicate(predicate, testable_names):
            yield message, predicate.at


def _check_combinations(syntax: RuleSyntax) -> Iterator[PlacedMessage]:
    """Yield a message for each transformation whose alternatives can be combined in too many ways,
    with those of layers."""
    layers = math.prod(map(_combinations, syntax.init))
    for transformation in syntax.forward or syntax.init:
        number = _combinations(transformation) * (layers if syntax.forward else 1)
        if number > MOST_COMBINATIONS:
            message = (
                f"its alternatives (`alt`) and spellings of `rsqrt` can be combined in {number}"
                f" ways, more than {MOST_COMBINATIONS}: write several rules, or leave some out"
            )
            yield message, transformation.at


def _combinations(transformation: Transformation) -> int:
    """Return the number of combinations of the alternatives of a transformation, and of the
    spellings of its reciprocal roots."""
    nodes = [*nodes_of(transformation.source)]
    roots = sum(any(map(_is_reciprocal_root, (node.apply, *node.alternatives))) for node in nodes)
    choices = [1 + len(node.alternatives) for node in nodes]
    return math.prod([*choices, *[SPELLINGS_OF_ROOT] * roots])


def _is_reciprocal_root(apply: Apply) -> bool:
    """Return whether a node, or an operand of it, is a reciprocal root, which has several
    spellings."""
    return "rsqrt'" in repr(apply)  # the name of a function or method, at any depth


def _rule_bindings(syntax: RuleSyntax) -> _RuleBindings:
    """Return the variables that the `init` part of a rule binds."""
    constructed: set[str] = set()
    layers: set[str] = set()
    for transformation in syntax.init:
        constructed |= bound_variables(transformation)
        for node in nodes_of(transformation.source):
            layers.update(output_variables(node))
    return _RuleBindings(frozenset(constructed), frozenset(layers))


def _names_of_alternatives(transformations: Sequence[Transformation]) -> set[str]:
    """Return the variables that some alternative binds; a condition is tested in the alternatives
    that bind its variables."""
    names: set[str] = set()
    for transformation in transformations:
        for alternative in alternatives(transformation):
            names |= bound_variables(alternative)
    return names


def _check_transformation(
    transformation: Transformation, bindings: _RuleBindings
) -> Iterator[PlacedMessage]:
    """Yield a message for each unbound variable and each problem of a kernel in the targets of a
    transformation."""
    bound_names = bindings.constructed | bound_variables(transformation)
    constructed_values = bindings.constructed - bindings.layers
    names_by_alternative = [
        constructed_values | bound_variables(alternative, certainly=True)
        for alternative in alternatives(transformation)
    ]
    results: set[str] = set()  # of earlier nodes of the target
    for node in transformation.target:
        if isinstance(node, Wildcard):
            continue
        names = [names | results for names in names_by_alternative]
        for message in _check_target(node.apply, bound_names | results, names):
            yield message, node.at or transformation.at
        results.update(output_variables(node))


def _check_target(
    apply: Apply, bound_names: Collection[str], names_by_alternative: Sequence[Collection[str]]
) -> Iterator[str]:
    """Yield a message for each unbound variable and each problem of the kernel in a target.

    bound_names           variables that the source binds in some alternative
    names_by_alternative  variables that each alternative certainly binds
    """
    for name in dict.fromkeys(variables(apply)):
        if name not in bound_names:
            yield f"${name} is not bound by the source"
    positional_names = [name for operand in apply.args for name in variables(operand)]
    for name in dict.fromkeys(positional_names):
        is_always_bound = all(name in names for names in names_by_alternative)
        if name in bound_names and not is_always_bound:
            yield (
                f"${name} is not bound by every alternative:"
                " only a keyword argument can be left out"
            )
    yield from _check_kernel(apply)


def _check_predicate(predicate: Predicate, bound_names: Collection[str]) -> Iterator[str]:
    """Yield the problems of a condition: its name, its number of arguments, unbound variables."""
    if predicate.name not in PREDICATES:
        conditions = f"the conditions are {', '.join(PREDICATES)}"
        hint = suggest(predicate.name, PREDICATES, otherwise=conditions)
        yield f"{predicate.name} is not a condition{hint}"
        return
    minimum, maximum, _ = PREDICATES[predicate.name]
    if not minimum <= len(predicate.args) <= maximum:
        number = str(minimum) if minimum == maximum else f"{minimum} to {maximum}"
        yield f"{predicate.name} takes {number} argument{'s' * (maximum > 1)}"
    for name in dict.fromkeys(name for operand in predicate.args for name in variables(operand)):
        if name not in bound_names:
            yield f"${name} is not bound by the source"


def _check_kernel(apply: Apply) -> Iterator[str]:
    """Yield a problem where the kernel does not exist or does not take the arguments that the rule
    gives it; kernels of other packages are not checked."""
    if not isinstance(apply.callee, Ref):
        return
    kernel = apply.callee.path
    if not kernel.startswith(("regraft.ops.", "torch.")):
        return
    parameters = kernel_parameters(kernel)
    if not parameters:
        is_op = kernel.startswith("regraft.ops.")
        hint = ": regraft.ops exports no function of this name" if is_op else ""
        yield f"there is no kernel {kernel}{hint}"
        return
    yield from _check_arguments(kernel, apply, parameters)


def _check_arguments(kernel: str, apply: Apply, parameters: Mapping[str, object]) -> Iterator[str]:
    """Yield a problem for each argument that a kernel does not take, takes twice, or lacks.

    parameters  the kernel's parameter names with their defaults, MISSING for none
    """
    positional_names = list(parameters)[: len(apply.args)]
    positional = positional_parameters(kernel)
    if len(apply.args) > positional:
        yield f"{kernel} takes {positional} positional arguments"
    for name in positional_names:
        if name in dict(apply.keywords):
            yield f"{kernel} gets {name} twice"
    passed_names = {*positional_names, *(name for name, _ in apply.keywords)}
    for name in sorted(passed_names - set(parameters)):
        yield f"{kernel} has no parameter {name}"
    for name, default in parameters.items():
        if default is MISSING and name not in passed_names:
            yield f"{kernel} needs {name}"
