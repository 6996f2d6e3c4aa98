"""Syntax of the DSL: Adopter's notation (ISSTA 2024, Figure 2) plus guards, rule headers and
conditions.

A *fragment* is a sequence of nodes. A *rule* pairs fragments (source => target) for the constructor
(`init`) and for the computation (`forward`). The types only hold data; the parser builds them from
text and the printer writes them as text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Safety = Literal["exact", "numeric", "stochastic", "contract"]
SAFETIES: tuple[Safety, ...] = ("exact", "numeric", "stochastic", "contract")


@dataclass(frozen=True, slots=True)
class Position:
    """The start of a piece of syntax, counted from 1; syntax trees are equal whatever their
    positions."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Var:
    """A variable `$x`, which matches any value, but the same value at all its occurrences."""

    name: str


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A wildcard `*` or `_`, which matches anything and binds nothing."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A concrete dotted name: `torch.float32`, `self.training`, `hidden_states.2` (second SSA value
    of a name)."""

    path: str


@dataclass(frozen=True, slots=True)
class Const:
    """A literal: number, string, `True`, `False`, `None`."""

    value: int | float | str | bool | None

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are different constants in source, so equality is by type as well.
        return (
            isinstance(other, Const)
            and type(self.value) is type(other.value)
            and self.value == other.value
        )

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Attr:
    """An attribute of an operand: `$norm.weight`, `$x.shape`."""

    base: Operand
    name: str


@dataclass(frozen=True, slots=True)
class Item:
    """A subscript: `$x.shape[-1:]`, `ACT2FN[config.act]`. A slice is a `Slice` index."""

    base: Operand
    index: Operand | Slice


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice `start:stop` as an index; either bound may be absent."""

    start: Operand | None
    stop: Operand | None


@dataclass(frozen=True, slots=True)
class Group:
    """A tuple of operands: `(a, b)`."""

    items: tuple[Operand, ...]


SUBSCRIPT = "[]"
SLICE = Ref("slice")
ELLIPSIS = Ref("Ellipsis")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Apply:
    """A call or an operator as an operand: `$x.to(torch.float32)`, `$a + $b`, `torch.rsqrt($v)`.

    `callee` is an operand for calls (`Ref("torch.rsqrt")`, `Attr(Var("x"), "to")`, `Var("drop")`)
    and the operator itself as a string for operators (`"+"`, `"@"`, `"**"`, unary `"neg"`). A node
    that is a subscript is the operator SUBSCRIPT; inside an operand it is an `Item`.
    """

    callee: Operand | str
    args: tuple[Operand, ...] = ()
    keywords: tuple[tuple[str, Operand], ...] = ()


Operand: TypeAlias = Var | Wildcard | Ref | Const | Attr | Item | Group | Apply


@dataclass(frozen=True, slots=True)
class Test:
    """One atom of a guard: an operand's truth, `a is b`, `a == b`, `a < b`, `a in b`, ... (`op`
    None for truth)."""

    left: Operand
    op: str | None = None
    right: Operand | None = None


@dataclass(frozen=True, slots=True)
class Not:
    operand: Condition


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Condition, ...]


Condition: TypeAlias = Test | Not | And | Or


@dataclass(frozen=True, slots=True)
class Node:
    """One DL node: `callee(args, key=value) -> outputs [if guard]`, or `left + right -> out`.

    `apply` is the computation; `outputs` are its results (several for `-> $q, $k, $v`; empty when
    the text has no arrow). `layer` is set by the prefix `@`, Adopter's mark for a layer's
    construction. `optional` is set by `opt`: the node may be missing, and its output is then the
    first operand that is the output of another node. `alternatives` are further computations that
    may replace `apply` (`alt`). `skip` names operations of which any number, also none, may stand
    between the only operand of `apply` and the output, with any other arguments.
    """

    apply: Apply
    outputs: tuple[Operand, ...] = ()
    layer: bool = False
    guard: Condition | None = None
    optional: bool = False
    alternatives: tuple[Apply, ...] = ()
    skip: tuple[str, ...] = ()
    at: Position | None = field(default=None, compare=False)


Fragment: TypeAlias = tuple[Node | Wildcard, ...]


@dataclass(frozen=True, slots=True)
class Transformation:
    """A pair `source => target`; an empty target is `keep` (or Adopter's `_`): nothing is
    constructed or replaced."""

    source: Fragment
    target: Fragment
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class WholeBody:
    """A pair `body => kernel`; `code` is the body of a function, lines of Python in which `$x` are
    variables. That of a block is a run of statements anywhere in a function."""

    code: str
    target: Node
    is_block: bool = False
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Need:
    """A package that the rewritten code needs, with its lowest version ("" for any): `torch >=
    2.4`."""

    package: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Predicate:
    """One condition of `where`: `used_once($a)`, `dtype($x, torch.float32)`."""

    name: str
    args: tuple[Operand, ...]
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RuleSyntax:
    """The content of a `.rule` file. Several `forward`, `body` or `block` sections are
    alternatives, tried in the text's order.

    A rule that is `off` (`default off`) is not selected by the name of its pack.
    """

    name: str
    summary: str
    safety: Safety
    needs: tuple[Need, ...]
    init: tuple[Transformation, ...]
    forward: tuple[Transformation, ...]
    where: tuple[Predicate, ...]
    bodies: tuple[WholeBody, ...] = ()
    off: bool = False


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """The reason why a text is not a fragment or a rule, with its position, counted from 1."""

    message: str
    line: int
    column: int
