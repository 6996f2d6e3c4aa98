"""The layers that a rule describes, compiled for matching."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from regraft.dsl.syntax import Apply, Node, Operand, Position, Ref, RuleSyntax, Var, Wildcard
from regraft.matching.pattern import OWN_CLASS, LayerPattern, raise_problem
from regraft.structure.optable import Parameter, bind, table


def layer_choices(
    layers: Sequence[tuple[str, tuple[LayerPattern, ...]]], used: Collection[str]
) -> Iterator[Mapping[str, LayerPattern]]:
    """Yield each combination of the types that layers may have, as pattern by layer variable; a
    layer that is not in `used` has only its first type."""
    choices = [types if name in used else types[:1] for name, types in layers]
    for types in itertools.product(*choices):
        yield dict(zip((name for name, _ in layers), types, strict=True))


def layer_patterns(rule: RuleSyntax) -> Iterator[tuple[str, tuple[LayerPattern, ...]]]:
    """Yield each layer variable with the patterns of the types that its layer may have, from the
    `init` part of a rule; raise PatternProblem for an `init` that constructs layers or has other
    nodes."""
    for transformation in rule.init:
        if transformation.target and not isinstance(transformation.target[0], Wildcard):
            raise_problem(
                "rules that construct layers are not supported: use `=> keep`", transformation.at
            )
        nodes = (node for node in transformation.source if not isinstance(node, Wildcard))
        yield from map(_patterns_of_node, nodes)


def _patterns_of_node(node: Node) -> tuple[str, tuple[LayerPattern, ...]]:
    """Return the variable of a node of an `init`, with the patterns of the types that its layer may
    have; raise PatternProblem for another number of variables than one."""
    outputs = [output.name for output in node.outputs if isinstance(output, Var)]
    constructors = (node.apply, *node.alternatives)
    if len(outputs) != 1:
        raise_problem(
            "a layer needs a type and one variable: torch.nn.Linear(...) -> $linear", node.at
        )
    is_choice = len(constructors) > 1
    patterns = (_layer_pattern(constructor, is_choice, node.at) for constructor in constructors)
    return outputs[0], tuple(patterns)


def _layer_pattern(apply: Apply, chosen: bool, at: Position | None) -> LayerPattern:
    """Return the pattern of a layer's constructor; raise PatternProblem for what is no layer of
    torch.nn, and for arguments that do not fit.

    chosen: whether the layer may be of several types.
    """
    if not isinstance(apply.callee, Ref):
        raise_problem("a layer needs a type and one variable: torch.nn.Linear(...) -> $linear", at)
    if apply.callee.path == OWN_CLASS and not apply.args and not apply.keywords and not chosen:
        return LayerPattern(OWN_CLASS, ())
    layer_type = table().layer(apply.callee.path)
    if layer_type is None:
        raise_problem(f"{apply.callee.path} is not a layer of torch.nn", at)
    args = _constructor_operands(apply, layer_type.init)
    if args is None:
        raise_problem(f"the arguments do not fit the constructor of {apply.callee.path}", at)
    return LayerPattern(apply.callee.path, tuple(args.items()), chosen)


def _constructor_operands(
    apply: Apply, parameters: tuple[Parameter, ...]
) -> Mapping[str, Operand] | None:
    """Return the operands of a constructor by parameter name; None where they do not fit.

    A pattern may leave required arguments out.
    """
    keywords = dict(apply.keywords)
    binding = bind((parameters,), apply.args, keywords)
    if binding is not None:
        return binding[0]
    names = [parameter.name for parameter in parameters]
    args = {**dict(zip(names, apply.args, strict=False)), **keywords}
    fits = args.keys() <= set(names) and len(apply.args) <= len(names)
    return args if fits else None
