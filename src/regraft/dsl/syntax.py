"""Syntax of the DSL: Adopter's notation (ISSTA 2024, Figure 2) plus guards, rule headers and conditions.

A *fragment* is a sequence of nodes. A *rule* pairs fragments (source => target) for the constructor
(`init`) and for the computation (`forward`). Everything here is data; the parser builds it from text
and the printer writes it back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Safety = Literal["exact", "numeric", "stochastic", "contract"]
SAFETIES: tuple[Safety, ...] = ("exact", "numeric", "stochastic", "contract")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a piece of syntax starts; 1-based. Never part of equality."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Var:
    """`$x`: matches any value, and the same value wherever it stands."""

    name: str


@dataclass(frozen=True, slots=True)
class Wildcard:
    """`*` or `_`: matches anything and binds nothing."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A concrete dotted name: `torch.float32`, `self.training`, `hidden_states.2` (second SSA value of a name)."""

    path: str


@dataclass(frozen=True, slots=True)
class Const:
    """A literal: number, string, `True`, `False`, `None`."""

    value: int | float | str | bool | None

    def __eq__(self, other: object) -> bool:
        # 1, 1.0 and True are different constants in source, so equality is by type as well.
        return isinstance(other, Const) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Attr:
    """`$norm.weight`, `$x.shape`: an attribute of an operand."""

    base: Operand
    name: str


@dataclass(frozen=True, slots=True)
class Item:
    """`$x.shape[-1:]`, `ACT2FN[config.act]`: a subscript. A slice is a `Slice` index."""

    base: Operand
    index: Operand | Slice


@dataclass(frozen=True, slots=True)
class Slice:
    """`start:stop`, either may be absent."""

    start: Operand | None
    stop: Operand | None


@dataclass(frozen=True, slots=True)
class Group:
    """`(a, b)`: a tuple of operands."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Apply:
    """A call or an operator as an operand: `$x.to(torch.float32)`, `$a + $b`, `torch.rsqrt($v)`.

    `callee` is an operand for calls (`Ref("torch.rsqrt")`, `Attr(Var("x"), "to")`, `Var("drop")`) and the
    operator itself as a string for operators (`"+"`, `"@"`, `"**"`, unary `"neg"`).
    """

    callee: Operand | str
    args: tuple[Operand, ...] = ()
    keywords: tuple[tuple[str, Operand], ...] = ()


Operand: TypeAlias = Var | Wildcard | Ref | Const | Attr | Item | Group | Apply


@dataclass(frozen=True, slots=True)
class Test:
    """One atom of a guard: an operand's truth, `a is b`, `a == b`, `a < b`, `a in b`, ... (`op` None for truth)."""

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

    `apply` is the computation; `outputs` the values it makes (several for `-> $q, $k, $v`; empty when the text
    has no arrow). `layer` is set by the prefix `@`, Adopter's mark for a layer's construction, `optional` by `opt`:
    the node may be missing, its output then is the first operand that another node makes. `alternatives` are further
    computations that may stand in the place of `apply` (`alt`). `skip` names operations any number of which, also
    none, may stand between `apply`'s one operand and the output, whatever their other arguments are.
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
    """`source => target`. An empty target means `keep` (or Adopter's `_`): nothing is constructed or replaced."""

    source: Fragment
    target: Fragment
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Whole:
    """`body => kernel`: the whole body of a function, as lines of Python in which `$x` are variables."""

    code: str
    target: Node
    at: Position | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Need:
    """`torch >= 2.4`: a package that the rewritten code needs, with its lowest version ("" for any)."""

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
    """A whole `.rule` file. Several `forward` or `body` sections are alternatives, tried in the order of the text.

    One that is `off` (`default off`) is not selected by the name of its pack.
    """

    name: str
    summary: str
    safety: Safety
    needs: tuple[Need, ...]
    init: tuple[Transformation, ...]
    forward: tuple[Transformation, ...]
    where: tuple[Predicate, ...]
    bodies: tuple[Whole, ...] = ()
    off: bool = False


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """Why a text is not a fragment or a rule, and where (1-based)."""

    message: str
    line: int
    column: int
