"""Make wrong versions (mutants) of the changed lines, and count which ones the comparisons tell
from the original.

Each mutant is the changed version with one small edit in its changed lines. Comparisons that find
both versions equal are made once more with a mutant in place of the changed version; a difference
kills it. A proof by inputs that kill few mutants is no proof, and neither is one by inputs that do
not tell a number which only one version has from another number.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

from regraft.verification.child.checks.code_replacement import (
    compile_definition,
    definition_node,
    edited_codes,
    replace_code,
)
from regraft.verification.child.time_limit import limit_time
from regraft.verification.definition_changes import Change
from regraft.verification.top_level_definitions import Definition

MOST = 10  # the most mutants of a definition
_RAN = "__regraft_ran__"
_NO_OPERAND = ast.Starred | ast.Constant  # arguments that are no operand of a call
_TRIES = 40  # the most comparisons that one mutant may survive, for calls with the same arguments
_MOST_TRIES = 400  # the same for a mutant of a new number
_SHARE, _FREE = 0.15, 1.0  # the share of this process's processor time, and seconds in addition
_NEW_SHARE = 0.4  # the share while mutants of new numbers are tried
_LONGEST = 3.0  # the most seconds of processor time of one run of a mutant
_PASSING = frozenset(
    {
        "contiguous",
        "clone",
        "detach",
        "reshape",
        "view",
        "isinstance",
        "len",
        "tuple",
        "list",
        "range",
    }
)
_LARGEST_INDEX = 2  # up to here, a number is often a position in something short
_SYMMETRIC = frozenset(
    {"add", "mul", "max", "min", "maximum", "minimum", "isinstance", "print", "cat", "stack"}
)
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
}
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


class _TookTooLong(BaseException):
    """Raised where a mutant runs for longer than it may."""


@dataclass(slots=True)
class Mutant:
    """One edit of a changed definition, its functions' code, and the outcome of its comparisons.

    `constructs` tells that the edit is in a constructor, which only building a model runs,
    `is_of_new_number` that it changes a number that the other version does not have. `tries` counts
    the comparisons by the arguments of the call; `ran` tells that the edited expression was
    evaluated in one of them, `killed` that one found a difference.
    """

    definition: str
    text: str
    codes: dict[FunctionType, CodeType]
    constructs: bool
    is_of_new_number: bool = False
    tries: Counter[str] = field(default_factory=Counter)
    ran: bool = False
    killed: bool = False

    @property
    def name(self) -> str:
        """Return the name of the mutant in steps of the ledger, by which a later process avoids
        it."""
        return f"mutant of {self.definition}, {self.text}"


class Mutants:
    """The mutants of all changed definitions of one version, at most MOST of each (three times as
    many if thorough), those of new numbers first, and the processor time that they have used."""

    def __init__(
        self,
        module: ModuleType,
        counterpart: ModuleType,
        changes: tuple[Change, ...],
        avoided: frozenset[str],
        *,
        thorough: bool = False,
        only_new_numbers: bool = False,
    ) -> None:
        """Make the mutants, and add the function by which they report to the variables of `module`.

        `counterpart` is the other version, `avoided` are the names of mutants that ended an earlier
        process, which are left out; `thorough` makes more, without a limit of time.
        """
        self._limit = math.inf if thorough else _SHARE
        self._mutants: dict[str, list[Mutant]] = {}
        self._current: Mutant | None = None
        self._spent = 0.0
        for change in changes:
            mutants = [
                mutant
                for mutant in mutants_of(change, module, counterpart)
                if mutant.name not in avoided and (mutant.is_of_new_number or not only_new_numbers)
            ]
            mutants.sort(key=lambda mutant: not mutant.is_of_new_number)
            self._mutants[change.definition] = mutants[: MOST * (3 if thorough else 1)]
        vars(module)[_RAN] = self._note_run

    def score(self, definition: str) -> dict[str, Any]:
        """Return under `killed` how many mutants of a definition were killed, under `of` how many
        ran, and under `survived` the texts of those that ran and were not killed. Mutants whose
        edited expression never ran do not count."""
        run_mutants = [mutant for mutant in self._mutants.get(definition, []) if mutant.ran]
        survivors = [mutant.text for mutant in run_mutants if not mutant.killed]
        return {
            "killed": len(run_mutants) - len(survivors),
            "of": len(run_mutants),
            "survived": survivors,
        }

    def undecided_numbers(self, definition: str) -> list[str]:
        """Return the texts of the mutants of new numbers that ran and were not killed: no input
        tells these numbers from others."""
        return [
            mutant.text
            for mutant in self._mutants.get(definition, [])
            if mutant.is_of_new_number and mutant.ran and not mutant.killed
        ]

    def _note_run(self, value: Any) -> Any:
        """Note that the edited expression of the current mutant was evaluated, and return its
        value."""
        if self._current is not None:
            self._current.ran = True
        return value

    def pending(
        self, definition: str, structure: str, *, constructing: bool = False
    ) -> Iterator[Mutant]:
        """Yield the mutants that are to be tried while there is time, those killed or tried
        `_TRIES` times aside: of one definition, or of all for "". The caller runs each before it
        asks for the next; its try and time are counted. Mutants of new numbers are tried
        `_MOST_TRIES` times, and have more time.

        `structure` is that of the call on which they run: a mutant that survives many calls without
        labels is still tried on those with labels. `constructing` selects the mutants of
        constructors instead of the others.
        """
        for name, mutants in self._mutants.items():
            for mutant in mutants if definition in ("", name) else ():
                started = time.process_time()
                share = max(self._limit, _NEW_SHARE * mutant.is_of_new_number)
                if self._spent > _FREE + share * started:
                    return
                most_tries = _MOST_TRIES if mutant.is_of_new_number else _TRIES
                may_be_tried = not mutant.killed and mutant.tries[structure] < most_tries
                if may_be_tried and mutant.constructs == constructing:
                    mutant.tries[structure] += 1
                    self._current = mutant
                    yield mutant
                    self._current = None
                    self._spent += time.process_time() - started


@contextmanager
def mutant_in_place(mutant: Mutant) -> Iterator[None]:
    """Replace the code of the functions of the changed version by that of a mutant in the body;
    after `_LONGEST` seconds of processor time the body ends without an error, and the mutant is
    marked as killed."""
    try:
        with replace_code(mutant.codes), limit_time(_LONGEST, _TookTooLong(), processor=True):
            yield
    except _TookTooLong:
        mutant.killed = True


def mutants_of(change: Change, module: ModuleType, counterpart: ModuleType) -> Iterator[Mutant]:
    """Yield mutants of a change in an order that brings different lines and kinds of edits first;
    edits that do not compile, or that no function of the definition runs, are skipped. Yield
    nothing for a definition that the module lacks. `counterpart` is the other version."""
    node = definition_node(module, change.definition)
    value = vars(module).get(change.definition.partition("#")[0])
    if node is None or value is None:
        return
    expressions = list(ast.walk(node))
    old_node = definition_node(counterpart, change.definition)
    old_numbers = _numbers_of(ast.walk(old_node) if old_node is not None else ())
    new_numbers = _numbers_of(expressions) - old_numbers
    for number, edit in _order_edits(_edits_in_changed_lines(node, change)):
        text, edited_node = _edit_definition(node, number, edit)
        try:
            codes = edited_codes(
                value, compile_definition(edited_node, module), str(module.__file__)
            )
        except (SyntaxError, ValueError):
            continue  # the edit does not compile where it stands
        if codes:
            constructs = all(function.__name__ == "__init__" for function in codes)
            is_of_new_number = bool(_numbers_of(expressions[number : number + 1]) & new_numbers)
            yield Mutant(change.definition, text, codes, constructs, is_of_new_number)


def _numbers_of(nodes: Iterable[ast.AST]) -> Counter[float]:
    """Return how often each number is among nodes that are constants; booleans are no numbers."""
    return Counter(
        node.value
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    )


# A description, and the function that makes the edit on a copy of the expression.
Edit = tuple[str, Callable[[Any], ast.expr]]


def _order_edits(sites: list[tuple[int, int, Edit]]) -> Iterator[tuple[int, Edit]]:
    """Return pairs of a node's position and an edit, ordered so that every line and every kind of
    edit comes early; `sites` are as `_edits_in_changed_lines` returns them, sorted by line."""
    by_line = [list(group) for _, group in itertools.groupby(sites, key=lambda site: site[0])]
    count_by_kind: dict[str, int] = {}
    ranked = []
    for group in by_line:
        for index, (line, number, edit) in enumerate(group):
            count_by_kind[edit[0]] = count_by_kind.get(edit[0], 0) + 1
            ranked.append((index + count_by_kind[edit[0]], line, number, edit))
    return (
        (number, edit)
        for _, _, number, edit in sorted(ranked, key=lambda ranked_edit: ranked_edit[:3])
    )


def _edits_in_changed_lines(root: Definition, change: Change) -> list[tuple[int, int, Edit]]:
    """Return the edits of changed lines, sorted: line, position of the node in the walk over the
    definition, and edit."""
    unedited_ids = _descendant_ids(
        part for node in ast.walk(root) for part in _unedited_parts(node)
    )
    body_ids = _descendant_ids(
        statement
        for node in ast.walk(root)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
    )
    editable_ids = body_ids - unedited_ids
    sites = []
    for number, node in enumerate(ast.walk(root)):
        if not isinstance(node, ast.expr) or id(node) not in editable_ids:
            continue
        if any(start <= node.lineno <= end for start, end in change.statements):
            sites += [(node.lineno, number, edit) for edit in _edits(node)]
    return sorted(sites, key=lambda site: site[:2])


def _descendant_ids(nodes: Iterable[ast.AST]) -> set[int]:
    """Return the identities of nodes and of all nodes in them."""
    return {id(descendant) for node in nodes for descendant in ast.walk(node)}


def _unedited_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node, or those of its parts, that compute no result: errors, messages, annotations,
    defaults, decorators; and tests of loops."""
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
    """Yield the edits of one expression, each with its description and the function that makes it
    on a copy."""
    match node:
        case ast.BinOp(first, op, second) if type(op) in _OPERATORS:
            if not (_is_text(first) or _is_text(second)):
                yield "another operator", _set_fields(op=_OPERATORS[type(op)]())
        case ast.BinOp(op=ast.BitOr() | ast.BitAnd()):
            yield "without its right operand", lambda copied: copied.left
            yield "without its left operand", lambda copied: copied.right
        case ast.Constant(value=bool()):
            yield "another flag", _set_fields(value=not node.value)
        case ast.Constant(value=int(value)):
            yield "a larger number", _set_fields(value=value + 1)
            if value > _LARGEST_INDEX:
                yield "a smaller number", _set_fields(value=value - 1)
        case ast.Constant(value=float(value)) if math.isfinite(value):
            yield "a larger number", _set_fields(value=value * 2 if value else 1.0)
            if value:
                yield "a smaller number", _set_fields(value=value / 2)
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            yield "the opposite", _set_fields(ops=[_COMPARISONS[type(op)]()])
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand) if not isinstance(
            operand, ast.Constant
        ):
            yield "without its sign", lambda copied: copied.operand
        case ast.IfExp():
            yield (
                "the other side",
                lambda copied: ast.IfExp(copied.test, copied.orelse, copied.body),
            )
        case ast.Call():
            yield from _edits_of_call(node)


def _is_text(node: ast.expr) -> bool:
    """Return whether an expression is a constant text."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _edits_of_call(node: ast.Call) -> Iterator[Edit]:
    """Yield the edits of a call: its operand in its place, its first two arguments swapped, and
    without each keyword; edits that would rarely matter (`reshape`, `max`) are left out."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in _PASSING and not name[:1].isupper():
        yield from _edits_to_operand(node)
    are_plain = not any(isinstance(argument, _NO_OPERAND) for argument in node.args)
    if name not in _SYMMETRIC and are_plain and len(node.args) >= 2:
        yield "arguments swapped", _swap_arguments
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield f"without {keyword.arg}", functools.partial(_without_keyword, index=index)


def _edits_to_operand(node: ast.Call) -> Iterator[Edit]:
    """Yield the edit that puts the operand of a call in its place: the first argument, or the
    object of a method without arguments; nothing where there is no such operand."""
    if node.args and not isinstance(node.args[0], _NO_OPERAND):
        yield "without the call", lambda copied: copied.args[0]
        return
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    has_receiver = receiver is not None and not isinstance(receiver, ast.Name | ast.Call)
    if has_receiver and not node.args:
        yield "without the call", lambda copied: copied.func.value


def _swap_arguments(call: ast.Call) -> ast.Call:
    """Swap the first two arguments of a call in place and return it."""
    call.args[:2] = call.args[1::-1]
    return call


def _without_keyword(call: ast.Call, index: int) -> ast.Call:
    """Delete the keyword at a position of a call in place and return the call."""
    del call.keywords[index]
    return call


def _set_fields(**fields: Any) -> Callable[[Any], ast.expr]:
    """Return a function that sets fields of a node in place and returns it."""

    def edit(node: Any) -> ast.expr:
        """Set the fields of a node in place and return it."""
        for name, value in fields.items():
            setattr(node, name, value)
        return node  # type: ignore[no-any-return]

    return edit


def _edit_definition(root: Definition, number: int, edit: Edit) -> tuple[str, Definition]:
    """Return the description of an edit, "line N, `TEXT`: KIND", and a copy of a definition with
    the edit at the node of number `number` in the walk, which reports that the edit ran."""
    copied = copy.deepcopy(root)
    target = next(itertools.islice(ast.walk(copied), number, None))
    assert isinstance(target, ast.expr)
    old_text = ast.unparse(target)
    for parent in ast.walk(copied):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, _wrap_in_report(edit[1](target), target))
            elif isinstance(value, list) and any(element is target for element in value):
                value[:] = [
                    _wrap_in_report(edit[1](element), element) if element is target else element
                    for element in value
                ]
            else:
                continue
            return f"line {target.lineno}, `{old_text[:60]}`: {edit[0]}", ast.fix_missing_locations(
                copied
            )
    raise AssertionError("an expression has a parent")


def _wrap_in_report(node: ast.expr, place: ast.expr) -> ast.expr:
    """Return a call that notes that an expression ran and returns its value, at the place of
    `place`."""
    return ast.copy_location(ast.Call(ast.Name(_RAN, ast.Load()), [node], []), place)
