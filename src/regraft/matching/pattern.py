"""The data of patterns, which are source fragments of a rule compiled for matching, and the
variables of a rule's text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import NoReturn

from regraft.dsl.syntax import (
    Apply,
    Attr,
    Const,
    Fragment,
    Group,
    Item,
    Node,
    Operand,
    Position,
    Ref,
    Slice,
    Transformation,
    Var,
    Wildcard,
)

# A layer of any class that is not PyTorch's own.
OWN_CLASS = "torch.nn.Module"


@dataclass(frozen=True, slots=True)
class PatternNode:
    """One node to find.

    op            canonical operation, or `call` for a callee that is not in the table
    args          operands by parameter name; a parameter that is not mentioned must have its
                  default
    output        the variable of the result
    name          the spelling that a `call` must have, or the type that a layer must have
                  (`torch.nn.Linear`)
    layer         variable bound to the module that is called
    any_settings  the layer's own settings are not constrained (it is passed to the kernel whole)
    chosen        the layer may also be of a type that only the running program knows
    bypass        the parameter whose value the output is where an optional node is missing; "" for
                  a required node
    skip          operations any number of which, also none, may stand between the one operand and
                  the output
    """

    op: str
    args: tuple[tuple[str, Operand], ...]
    output: str
    name: str = ""
    layer: str = ""
    any_settings: bool = False
    chosen: bool = False
    bypass: str = ""
    skip: frozenset[str] = frozenset()

    @property
    def is_required(self) -> bool:
        """Return whether there is no match without the node."""
        return not self.bypass and not self.skip

    @property
    def is_glue(self) -> bool:
        """Return whether the node is a subscript, a tuple or arithmetic of numbers, not an
        operation on tensors."""
        return self.op.startswith("py.")


@dataclass(frozen=True, slots=True)
class LayerPattern:
    """The constructor that a layer variable must have: its type and its arguments by name.

    chosen  the rule names several types (`alt`), one of which the model may choose when it runs
    """

    type: str
    args: tuple[tuple[str, Operand], ...]
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Decorator:
    """The mark on a definition that as a whole computes the pattern: `@path(arguments)`.

    parameters  the definition's parameters by name, with their defaults; None stands for no default
    callers     the decorator of the classes that call the definition, which it takes as argument;
                "" for none
    """

    path: str
    arguments: tuple[Const, ...]
    parameters: tuple[tuple[str, Const | None], ...]
    callers: str = ""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One alternative of a rule: nodes, layers, and the kernel call that replaces them.

    producers     the nodes by their output variables
    outputs       the variables that the kernel gives, in the order of the text; matching starts at
                  the first node
    passed_whole  layer variables that an op of Regraft gets as they are: it calls a layer that is
                  not the plain one
    ops           operations without which a body has no match
    decorator     the mark on the definition, in rules that mark instead of calling a kernel; then
                  `target` is written nowhere
    index         the variable by which the kernel's result is indexed, in rules that call the
                  kernel before the loop of the match; "" for others
    carried       the variable of the loop-carried value that the kernel's result is called with,
                  besides the index; "" where it is indexed, and for other rules
    returned      the variable of an input that the kernel returns as it is where another variable
                  is a constant, that variable, and the constant; None for other rules
    """

    nodes: tuple[PatternNode, ...]
    producers: Mapping[str, PatternNode]
    layers: Mapping[str, LayerPattern]
    target: Apply
    outputs: tuple[str, ...]
    passed_whole: frozenset[str] = field(default=frozenset())
    ops: frozenset[str] = field(default=frozenset())
    decorator: Decorator | None = None
    index: str = ""
    carried: str = ""
    returned: tuple[str, str, object] | None = None

    @property
    def anchor(self) -> PatternNode:
        """The node of the first output, at which matching starts."""
        return self.producers[self.outputs[0]]

    @property
    def kernel(self) -> str:
        """The qualified name of the kernel, or of the decorator."""
        return (
            self.decorator.path
            if self.decorator is not None
            else getattr(self.target.callee, "path", "")
        )


@dataclass(eq=False)
class PatternProblem(Exception):
    """The reason why a rule cannot be compiled, and the place in its text."""

    message: str
    at: Position | None


def raise_problem(message: str, at: Position | None) -> NoReturn:
    """Raise a PatternProblem with a message about a place in the rule's text."""
    raise PatternProblem(message, at)


def alternatives(transformation: Transformation) -> Iterator[Transformation]:
    """Yield the transformation without `alt` nodes in each combination of their alternatives, in
    order. From the target, keyword arguments are left out whose variables the combination does not
    bind."""
    choices = [_single_alternatives(node) for node in transformation.source]
    if all(len(nodes) == 1 for nodes in choices):
        yield transformation
        return
    everywhere = bound_variables(transformation)
    for source in itertools.product(*choices):
        alternative = replace(transformation, source=source)
        missing = everywhere - bound_variables(alternative)
        yield (
            replace(
                alternative,
                target=tuple(_without_missing(node, missing) for node in alternative.target),
            )
            if missing
            else alternative
        )


def _single_alternatives(node: Node | Wildcard) -> list[Node | Wildcard]:
    """Return copies of a node with one of its alternatives each; the node itself where it has
    none."""
    if isinstance(node, Wildcard) or not node.alternatives:
        return [node]
    return [
        replace(node, apply=apply, alternatives=()) for apply in (node.apply, *node.alternatives)
    ]


def bound_variables(transformation: Transformation, certainly: bool = False) -> set[str]:
    """Return the variables that the source binds, with those of any alternative.

    certainly  leave out the inputs of nodes that may be missing
    """
    names: set[str] = set()
    for node in nodes_of(transformation.source):
        names.update(output_variables(node))
        for apply in (node.apply, *node.alternatives) if not (node.optional and certainly) else ():
            names.update(variables(apply))
    return names


def nodes_of(fragment: Fragment) -> Iterator[Node]:
    """Return the nodes of a fragment without its wildcards."""
    return (node for node in fragment if not isinstance(node, Wildcard))


def output_variables(node: Node) -> Iterator[str]:
    """Return the names of the variables in a node's outputs."""
    return (name for output in node.outputs for name in variables(output))


def _without_missing(node: Node | Wildcard, missing: set[str]) -> Node | Wildcard:
    """Return a node of the target without the keyword arguments that mention a missing variable."""
    if isinstance(node, Wildcard):
        return node
    keywords = tuple(pair for pair in node.apply.keywords if missing.isdisjoint(variables(pair[1])))
    return replace(node, apply=replace(node.apply, keywords=keywords))


_LEAVES = (Const, Ref, Wildcard, NoneType)


def variables(operand: Operand | Slice | None) -> tuple[str, ...]:
    """Return the names of the variables in an operand, at any depth, in order; a name may come
    twice."""
    if isinstance(operand, Var):
        return (operand.name,)
    if isinstance(operand, _LEAVES):
        return ()
    parts: tuple[Operand | Slice | None, ...] = ()
    if isinstance(operand, Attr):
        parts = (operand.base,)
    elif isinstance(operand, Item):
        parts = (operand.base, operand.index)
    elif isinstance(operand, Slice):
        parts = (operand.start, operand.stop)
    elif isinstance(operand, Group):
        parts = operand.items
    elif isinstance(operand, Apply):
        callee = () if isinstance(operand.callee, str) else (operand.callee,)
        parts = (*callee, *operand.args, *(value for _, value in operand.keywords))
    return tuple(name for part in parts for name in variables(part))
