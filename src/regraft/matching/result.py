"""The results of matching: a match with the conditions under which it holds, or the nearest
miss."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from regraft.matching.pattern import Pattern
from regraft.structure import guards
from regraft.structure.guards import Atom, Guard
from regraft.structure.values_and_nodes import Body, Node, Structure, Value


@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """A condition on a module that only the running program can decide.

    predicate  qualified name of the function that is called to decide it
    subject    the module that the function is given
    """

    predicate: str
    subject: Value

    @property
    def guard(self) -> Atom:
        """The condition as an atom of formulas."""
        text = f"{self.predicate}({self.subject.key()})"
        return Atom("call", text, None, text)


@dataclass(frozen=True, slots=True, eq=False)
class Holds:
    """A guard of the source, such as `mask is not None`, that only the running program can
    decide."""

    guard: Guard


@dataclass(frozen=True, slots=True, eq=False)
class Assumes:
    """A reason to withhold the rewrite: an assumption that the source does not make certain and no
    test decides."""

    reason: str
    guard: Guard = guards.TRUE


@dataclass(frozen=True, slots=True, eq=False)
class Skips:
    """A node in a branch that the kernel skips by itself, because it is given the None that the
    branch tests."""

    node: Node
    guard: Guard = guards.TRUE


Condition = Test | Holds | Assumes | Skips


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A place where the pattern of a rule matches a body.

    bindings  the values that the pattern's variables stand for nodes     the nodes that the match
    covers, in order of time tests     the conditions that must hold at run time
    """

    pattern: Pattern
    structure: Structure
    body: Body
    bindings: Mapping[str, Value]
    nodes: tuple[Node, ...]
    root: Node
    tests: tuple[Condition, ...]
    roots: tuple[Node, ...] = ()  # the nodes of all outputs, in order of time; `root` is the last

    @property
    def condition(self) -> Guard:
        """Return the conjunction of the source's own conditions (`Holds`) that must be tested when
        the model runs; TRUE where there are none."""
        result: Guard = guards.TRUE
        for test in self.tests:
            if isinstance(test, Holds):
                result = guards.conjoin(result, test.guard)
        return result

    @property
    def kernel_guard(self) -> Guard:
        """Return the condition under which the kernel would run: the root's block is reached and
        `condition` holds."""
        return guards.conjoin(self.root.statement.entry, self.condition)

    def between(self, first: int, last: int) -> Iterator[Node]:
        """Return the unmatched nodes of the body that run after the time `first` and before
        `last`."""
        matched = set(self.nodes)
        return (
            node for node in self.body.nodes if first < node.time < last and node not in matched
        )

    @property
    def guard(self) -> Guard:
        """Return the condition under which the matched code computes what the kernel computes: the
        guards of all outputs and all conditions of the match together."""
        result = self.root.guard
        for root in self.roots[:-1]:
            result = guards.conjoin(result, root.guard)
        for test in self.tests:
            result = guards.conjoin(result, test.guard)
        return result


@dataclass(frozen=True, slots=True, eq=False)
class NoMatch:
    """The nearest miss at one candidate root.

    depth   the number of nodes that fitted
    reason  why the next node did not fit
    at      the syntax node that the reason is about
    """

    body: Body
    root: Node
    depth: int
    reason: str
    at: ast.AST
