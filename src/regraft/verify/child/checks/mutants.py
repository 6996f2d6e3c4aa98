"""Wrong versions of the changed lines: what tells them apart could tell a wrong change apart.

Each mutant is the changed version with one small edit in its changed lines. Comparisons that find both versions equal
are made once more with a mutant in place of the changed version; a difference kills it. A proof by inputs that kill
few mutants is no proof.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from regraft.verify.changes import Change, Definition
from regraft.verify.child.checks.edited import compile_definition, definition_node, replacements, running
from regraft.verify.child.limits import limited

MOST = 10  # mutants of a definition
_RAN = "__regraft_ran__"
_TRIES = 40  # comparisons that one mutant may survive, for calls with the same arguments
_SHARE, _FREE = 0.15, 1.0  # of the processor time of this process, and seconds besides
_LONGEST = 3.0  # seconds of processor time of one run of a mutant
_PASSING = frozenset(
    {"contiguous", "clone", "detach", "reshape", "view", "isinstance", "len", "tuple", "list", "range"}
)
_SYMMETRIC = frozenset({"add", "mul", "max", "min", "maximum", "minimum", "isinstance", "print", "cat", "stack"})
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


class _TookTooLong(BaseException):
    """A mutant ran for longer than a run may."""


@dataclass(slots=True)
class Mutant:
    """One edit of a changed definition, its functions' code, and what became of it.

    `constructs` says whether the edit is in a constructor, which only building a model runs. `tries` counts the
    comparisons by the arguments of the call, `ran` says whether the edited expression was evaluated in one of them.
    """

    definition: str
    text: str
    codes: dict[FunctionType, CodeType]
    constructs: bool
    tries: Counter[str] = field(default_factory=Counter)
    ran: bool = False
    killed: bool = False

    @property
    def name(self) -> str:
        return f"mutant of {self.definition}, {self.text}"


class Mutants:
    """The mutants of all changed definitions of a session."""

    def __init__(
        self, module: ModuleType, changes: tuple[Change, ...], avoided: frozenset[str], *, thorough: bool = False
    ) -> None:
        """`avoided` are the names of mutants that ended an earlier process; `thorough` makes more, without a limit."""
        self._limit = math.inf if thorough else _SHARE
        self._mutants: dict[str, list[Mutant]] = {}
        self._current: Mutant | None = None
        self._spent = 0.0
        for change in changes:
            mutants = [mutant for mutant in mutants_of(change, module) if mutant.name not in avoided]
            self._mutants[change.definition] = mutants[: MOST * (3 if thorough else 1)]
        vars(module)[_RAN] = self._note

    def score(self, definition: str) -> dict[str, Any]:
        """Return how many mutants of a definition were killed, of how many that ran, and which ones survived."""
        ran = [mutant for mutant in self._mutants.get(definition, []) if mutant.ran]
        survivors = [mutant.text for mutant in ran if not mutant.killed]
        return {"killed": len(ran) - len(survivors), "of": len(ran), "survived": survivors}

    def _note(self, value: Any) -> Any:
        if self._current is not None:
            self._current.ran = True
        return value

    def open(self, definition: str, structure: str, *, constructing: bool = False) -> Iterator[Mutant]:
        """Yield the mutants of a definition, or of all for "", that are to be tried, while there is time for them.

        `structure` is that of the call on which they run: a mutant that survives many calls without labels is still
        tried on those with labels.
        """
        for name, mutants in self._mutants.items():
            for mutant in mutants if definition in ("", name) else ():
                started = time.process_time()
                if self._spent > _FREE + self._limit * started:
                    return
                untried = not mutant.killed and mutant.tries[structure] < _TRIES
                if untried and mutant.constructs == constructing:
                    mutant.tries[structure] += 1
                    self._current = mutant
                    yield mutant
                    self._current = None
                    self._spent += time.process_time() - started


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Run a mutant in place of the changed version, for a few seconds at most: one that takes longer is killed."""
    try:
        with running(mutant.codes), limited(_LONGEST, _TookTooLong(), processor=True):
            yield
    except _TookTooLong:
        mutant.killed = True


def mutants_of(change: Change, module: ModuleType) -> Iterator[Mutant]:
    """Yield mutants of a change, those of different lines and kinds first."""
    node = definition_node(module, change.definition)
    value = vars(module).get(change.definition.partition("#")[0])
    if node is None or value is None:
        return
    for number, edit in _in_turn(_sites(node, change)):
        text, edited = _edited(node, number, edit)
        try:
            codes = replacements(value, compile_definition(edited, module), str(module.__file__))
        except (SyntaxError, ValueError):
            continue  # the edit does not compile where it stands
        if codes:
            constructs = all(function.__name__ == "__init__" for function in codes)
            yield Mutant(change.definition, text, codes, constructs)


Edit = tuple[str, Callable[[Any], ast.expr]]


def _in_turn(sites: list[tuple[int, int, Edit]]) -> Iterator[tuple[int, Edit]]:
    """Order edits so that every line and every kind of edit comes early."""
    by_line = [list(group) for _, group in itertools.groupby(sites, key=lambda site: site[0])]
    kinds: dict[str, int] = {}
    ranked = []
    for group in by_line:
        for place, (line, number, edit) in enumerate(group):
            kinds[edit[0]] = kinds.get(edit[0], 0) + 1
            ranked.append((place + kinds[edit[0]], line, number, edit))
    return ((number, edit) for _, _, number, edit in sorted(ranked, key=lambda entry: entry[:3]))


def _sites(root: Definition, change: Change) -> list[tuple[int, int, Edit]]:
    """Return the edits of changed lines: line, place of the node in the walk over the definition, and edit."""
    left_out = {id(inner) for node in ast.walk(root) for part in _left_out(node) for inner in ast.walk(part)}
    bodies = {
        id(inner)
        for node in ast.walk(root) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body for inner in ast.walk(statement)
    }  # fmt: skip
    sites = []
    for number, node in enumerate(ast.walk(root)):
        if not isinstance(node, ast.expr) or id(node) not in bodies or id(node) in left_out:
            continue
        if any(start <= node.lineno <= end for start, end in change.statements):
            sites += [(node.lineno, number, edit) for edit in _edits(node)]
    return sorted(sites, key=lambda site: site[:2])


def _left_out(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a statement that compute nothing: errors, messages, annotations; and loops' own tests."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
            yield node
        case ast.While(test=test):
            yield test
        case ast.If(body=[ast.Raise()]):
            yield node
        case ast.AnnAssign(annotation=annotation):
            yield annotation
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            yield node.args
            yield from getattr(node, "decorator_list", [])
            if getattr(node, "returns", None) is not None:
                yield node.returns  # type: ignore[misc, union-attr]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="logger" | "logging" | "warnings"))):
            yield node


def _edits(node: ast.expr) -> Iterator[Edit]:
    """Yield the edits of one expression: what they are, in words, and the function that makes them on a copy."""
    match node:
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            if not any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (left, right)):
                yield "another operator", _with(op=_OPERATORS[type(op)]())
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd()):
            yield "without its right operand", lambda copied: copied.left
            yield "without its left operand", lambda copied: copied.right
        case ast.Constant(value=bool()):
            yield "another flag", _with(value=not node.value)
        case ast.Constant(value=int()):
            yield "another number", _with(value=node.value + 1)  # type: ignore[operator]
        case ast.Constant(value=float()) if math.isfinite(node.value):  # type: ignore[arg-type]
            yield "another number", _with(value=node.value * 2 if node.value else 1.0)  # type: ignore[operator]
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            yield "the opposite", _with(ops=[_COMPARISONS[type(op)]()])
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand) if not isinstance(operand, ast.Constant):
            yield "without its sign", lambda copied: copied.operand
        case ast.IfExp():
            yield "the other side", lambda copied: ast.IfExp(copied.test, copied.orelse, copied.body)
        case ast.Call():
            yield from _edits_of_call(node)


def _edits_of_call(node: ast.Call) -> Iterator[Edit]:
    method = isinstance(node.func, ast.Attribute)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    positional = [argument for argument in node.args if not isinstance(argument, ast.Starred | ast.Constant)]
    if name not in _PASSING and not name[:1].isupper():
        if node.args and not isinstance(node.args[0], ast.Starred | ast.Constant):
            yield "without the call", lambda copied: copied.args[0]
        elif method and not node.args and not isinstance(node.func.value, ast.Name | ast.Call):  # type: ignore[attr-defined]
            yield "without the call", lambda copied: copied.func.value
    if name not in _SYMMETRIC and len(positional) == len(node.args) >= 2:
        yield "arguments swapped", _swapped
    for place, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield f"without {keyword.arg}", functools.partial(_without_keyword, place=place)


def _swapped(call: ast.Call) -> ast.Call:
    call.args[:2] = call.args[1::-1]
    return call


def _without_keyword(call: ast.Call, place: int) -> ast.Call:
    del call.keywords[place]
    return call


def _with(**fields: Any) -> Callable[[Any], ast.expr]:
    def edit(node: Any) -> ast.expr:
        for name, value in fields.items():
            setattr(node, name, value)
        return node  # type: ignore[no-any-return]

    return edit


def _edited(root: Definition, number: int, edit: Edit) -> tuple[str, Definition]:
    """Return what an edit does, in words, and a copy of a definition with it, which reports that it ran."""
    copied = copy.deepcopy(root)
    target = next(itertools.islice(ast.walk(copied), number, None))
    assert isinstance(target, ast.expr)
    before = ast.unparse(target)
    for parent in ast.walk(copied):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, _reporting(edit[1](target), target))
            elif isinstance(value, list) and any(entry is target for entry in value):
                value[:] = [_reporting(edit[1](entry), entry) if entry is target else entry for entry in value]
            else:
                continue
            return f"line {target.lineno}, `{before[:60]}`: {edit[0]}", ast.fix_missing_locations(copied)
    raise AssertionError("an expression has a parent")


def _reporting(node: ast.expr, place: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Call(ast.Name(_RAN, ast.Load()), [node], []), place)
