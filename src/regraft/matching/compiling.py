"""Compilation of rules: the alternatives of a rule's text as patterns for matching."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from regraft.dsl.syntax import (
    SUBSCRIPT,
    Apply,
    Const,
    Node,
    Operand,
    Position,
    Ref,
    RuleSyntax,
    Transformation,
    Var,
    Wildcard,
)
from regraft.matching.decorator_targets import compile_decorator
from regraft.matching.layer_compiling import layer_choices, layer_patterns
from regraft.matching.node_compiler import NodeCompiler
from regraft.matching.pattern import (
    OWN_CLASS,
    LayerPattern,
    Pattern,
    PatternNode,
    alternatives,
    bound_variables,
    raise_problem,
    variables,
)
from regraft.matching.spellings import spellings
from regraft.structure.library_activations import RUN_TIME_TESTS


def compile_rule(rule: RuleSyntax) -> tuple[Pattern, ...]:
    """Return the patterns of a rule, in the order of its text: for each `forward`, each choice of
    layer types, each alternative (`alt`) and each spelling. Raise PatternProblem for a rule that
    cannot be matched."""
    layers = tuple(layer_patterns(rule))
    returned = _returned_input(rule)
    return tuple(
        _compile_alternative(alternative, chosen, nodes, returned)
        for transformation in rule.forward
        for chosen in layer_choices(layers, bound_variables(transformation))
        for alternative in alternatives(transformation)
        for nodes in spellings(_compile_nodes(alternative, chosen))
    )


def _returned_input(rule: RuleSyntax) -> tuple[str, str, object] | None:
    """Return (input, tested variable, constant) of the condition `returned_for` of a rule: the
    kernel returns the input itself where the tested variable equals the constant. None where the
    rule has no such condition."""
    for predicate in rule.where:
        if predicate.name == "returned_for":
            source, other, constant = predicate.args
            if isinstance(source, Var) and isinstance(other, Var) and isinstance(constant, Const):
                return source.name, other.name, constant.value
    return None


def _compile_alternative(
    transformation: Transformation,
    layers: Mapping[str, LayerPattern],
    nodes: tuple[PatternNode, ...],
    returned: tuple[str, str, object] | None,
) -> Pattern:
    """Return the pattern of a transformation without `alt` nodes, whose source is `nodes`; raise
    PatternProblem."""
    producers = {node.output: node for node in nodes}
    target, outputs, index, carried = _kernel_target(transformation, nodes)
    _check_connected(nodes, producers, outputs, transformation.at)
    passed_whole = frozenset(
        operand.name
        for operand in _passed_operands(target)
        if isinstance(operand, Var) and operand.name in layers
    )
    _check_passed_whole(nodes, passed_whole, transformation.at)
    required_nodes = (node for node in nodes if node.is_required and node.layer not in passed_whole)
    ops = frozenset(node.op for node in required_nodes) - {"call", *RUN_TIME_TESTS}
    decorator = compile_decorator(transformation)
    return Pattern(
        nodes,
        producers,
        layers,
        target,
        outputs,
        passed_whole,
        ops,
        decorator,
        index,
        carried,
        returned,
    )


def _compile_nodes(
    transformation: Transformation, layers: Mapping[str, LayerPattern]
) -> tuple[PatternNode, ...]:
    """Return the nodes of a source in the order of its text; raise PatternProblem where there are
    none."""
    compiler = NodeCompiler(layers)
    for node in transformation.source:
        if isinstance(node, Wildcard):
            raise_problem(
                "a wildcard that stands for any node is not supported in `forward`",
                transformation.at,
            )
        compiler.add_node(node)
    if not compiler.nodes:
        raise_problem("`forward` has no node to find", transformation.at)
    return tuple(compiler.nodes)


def _check_passed_whole(
    nodes: tuple[PatternNode, ...], passed_whole: frozenset[str], at: Position | None
) -> None:
    """Raise PatternProblem where a layer that may be of several types, or of a class of the file,
    is not an argument of an op of Regraft."""
    for node in nodes:
        is_uncertain = node.chosen or node.name == OWN_CLASS
        if is_uncertain and node.layer not in passed_whole:
            raise_problem(
                f"${node.layer} may be of several types: an op of Regraft has to be given it", at
            )


def _passed_operands(call: Apply) -> Iterator[Operand]:
    """Yield the arguments of a call of an op of Regraft, and those of the ops whose results it
    takes."""
    if isinstance(call.callee, Ref) and call.callee.path.startswith("regraft.ops."):
        for operand in (*call.args, *(operand for _, operand in call.keywords)):
            yield operand
            if isinstance(operand, Apply):
                yield from _passed_operands(operand)


def _kernel_target(
    transformation: Transformation, nodes: tuple[PatternNode, ...]
) -> tuple[Apply, tuple[str, ...], str, str]:
    """Return the kernel call, its output variables (those after its arrow, else the last node's
    output), the variable of the step number by which its result is indexed, and the variable of the
    state with which its result is called; "" for a variable that is absent. Raise PatternProblem
    for another form of target."""
    target, *further_nodes = transformation.target
    if isinstance(target, Wildcard):
        raise_problem("`forward` needs a kernel call as its target", transformation.at)
    index, carried, result = "", "", target
    if further_nodes and not target.layer:
        index, carried, result = _result_of_step(target, further_nodes, transformation.at)
    names = tuple(output.name for output in result.outputs if isinstance(output, Var))
    outputs = names or (nodes[-1].output,)
    at = target.at or transformation.at
    if len(outputs) < len(result.outputs) or not _are_outputs(outputs, nodes):
        raise_problem(
            f"the target must give ${nodes[-1].output}, the output of the last node; several"
            " outputs come in the order of their nodes",
            at,
        )
    if any(node.skip and node.output in outputs for node in nodes):
        raise_problem("what `skip` passes over cannot be the output", at)
    return target.apply, outputs, index, carried


def _result_of_step(
    target: Node, further_nodes: Sequence[Node | Wildcard], at: Position | None
) -> tuple[str, str, Node]:
    """Return (index, state, node) of a target whose kernel is called before a loop: the variables,
    and the node that uses the kernel's result in a step. It is `kernel($x) -> $all`, then
    `$all[$index] -> $output` (state ""), or `kernel($x) -> $next`, then `$next($index, $state) ->
    $output`. Raise PatternProblem for another target."""
    node = further_nodes[0]
    if len(further_nodes) == 1 and isinstance(node, Node):
        apply = node.apply
        is_call = isinstance(apply.callee, Var) and not apply.keywords
        operands = (apply.callee, *apply.args) if is_call else apply.args
        names = [operand.name for operand in operands[1:] if isinstance(operand, Var)]
        takes_result = operands[:1] == target.outputs
        is_complete = len(names) == len(operands) - 1 == 1 + is_call
        if takes_result and is_complete and (is_call or apply.callee == SUBSCRIPT):
            return names[0], "".join(names[1:]), node
    raise_problem(
        "`forward` needs exactly one kernel call as its target; what is called before a loop is"
        " followed by $result[$index] or $result($index, $state) alone",
        at,
    )


def _are_outputs(outputs: tuple[str, ...], nodes: tuple[PatternNode, ...]) -> bool:
    """Return whether each variable is an output of a node, in the order of the nodes, and the
    output of the last node is among them."""
    produced = tuple(node.output for node in nodes if node.output in outputs)
    return produced == outputs and nodes[-1].output in outputs


def _check_connected(
    nodes: tuple[PatternNode, ...],
    producers: Mapping[str, PatternNode],
    outputs: tuple[str, ...],
    at: Position | None,
) -> None:
    """Raise PatternProblem where the result of a node leads to none of the outputs."""
    reached: set[str] = set()
    pending = [producers[name] for name in outputs]
    while pending:
        node = pending.pop()
        if node.output in reached:
            continue
        reached.add(node.output)
        for _, operand in node.args:
            names = (name for name in variables(operand) if name in producers)
            pending += [producers[name] for name in names if name not in reached]
    missing = [node.output for node in nodes if node.output not in reached]
    if missing:
        raise_problem(f"${missing[0]} does not lead to ${nodes[-1].output}, the last output", at)
