"""Read from the changed lines of a definition which numbers, names, attributes and number formats
the calls on which it is compared have to vary: its domain."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType

from regraft.verification.child.checks.argument_reads import (
    ArgumentReads,
    argument_reads,
    comparisons_around,
)
from regraft.verification.child.checks.arguments_in_source import literal_value
from regraft.verification.child.checks.attribute_variants import read_attributes, tested_attributes
from regraft.verification.child.checks.changes_by_version import versions_of
from regraft.verification.child.checks.code_constants import (
    Constants,
    changed_nodes,
    changed_tests,
    constants_of,
    read_nodes,
)
from regraft.verification.child.checks.code_replacement import definition_node
from regraft.verification.child.checks.condition_kinds import is_predicate
from regraft.verification.child.checks.format_variants import formats_to_try
from regraft.verification.child.checks.late_attributes import is_mode_or_rate, late_stores_of_file
from regraft.verification.child.checks.stores_after_construction import LateStore
from regraft.verification.child.checks.text_variants import texts_of
from regraft.verification.child.checks.value_variants import NOT_FINITE
from regraft.verification.child.session import Session
from regraft.verification.definition_changes import Change
from regraft.verification.names_and_scopes import name_of

# Functions that choose among equal numbers, or share a gradient among them.
_ORDERING = frozenset(
    {
        *("max", "min", "amax", "amin", "maximum", "minimum", "aminmax", "cummax", "cummin"),
        *("argmax", "argmin", "sort", "argsort", "topk", "median", "kthvalue"),
    }
)
# Calls that return the places of the largest or smallest numbers.
_CHOICE = re.compile(r"\b(argmax|argmin|argsort|topk|sort)\(|\b(max|min)\((\w+, *)?(dim=|-?\d+\b)")
# Ops that assume finite numbers: their kernels may return other results for NaN and infinity
# (docs/limits.md).
_FINITE_OPS = ("attention", "postponed_matmul", "postponed_einsum", "postponed_baddbmm")
_MARKS = 4  # the most whole numbers with a meaning that are tried
# Names of conversions to floating numbers, and of functions that make them of integers.
_FLOATING = frozenset(
    {
        *("float", "double", "half", "to", "type", "type_as", "float16", "bfloat16"),
        *("float32", "float64", "div", "true_divide", "sqrt", "log", "log2", "pow", "mean"),
    }
)
_NOT_EXACT_IN_HALF = 2050  # a length with positions that float16 rounds


@dataclass(frozen=True, slots=True)
class Domain:
    """The numbers in the changed lines of one definition, and the names and attributes that these
    lines read.

    `not_finite` are the numbers, with names, that are not finite and are tried: none where the
    definition calls an op that takes finite numbers only. `late` tells which of the attributes code
    of either version assigns after construction, `compares` whether changed lines compare. `tested`
    are the attributes that changed lines read and that tests of branches in them read, too,
    `read_by_one_version` those that changed lines of one version read, and the other version does
    not read anywhere. `compared_attributes` are those that tests around changed lines compare.
    `formats` are the kinds of number formats that the definition gives a reason to try. `combines`
    tells that attributes also change in pairs, and that widths become odd, `excludes` that excluded
    positions are NaN, `ties` that results of layers are equal in pairs, `chooses` that the
    definition chooses among numbers by their order. `texts` are those of the code, `rounds` tells
    that changed lines may make floating numbers of integers, `marks` are whole numbers that stand
    for something else (-100 for no label), `negated` the names of variables and attributes from
    whose negative changed lines slice (`x[-n:]`, which is all of `x` for 0). For changes by rules
    these are False, and there are no compared attributes, formats, texts, marks and negated names.
    """

    constants: Constants
    names: frozenset[str]
    attributes: frozenset[str]
    not_finite: tuple[tuple[str, float], ...]
    late: Mapping[str, LateStore]
    compares: bool = False
    tested: frozenset[str] = frozenset()
    read_by_one_version: frozenset[str] = frozenset()
    compared_attributes: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()
    combines: bool = False
    excludes: bool = False
    ties: bool = False
    chooses: bool = False
    texts: tuple[str, ...] = ()
    rounds: bool = False
    marks: tuple[int, ...] = ()
    negated: frozenset[str] = frozenset()


def domain_of(definition: str, session: Session) -> Domain:
    """Return the domain of a definition in both versions, computed once in a session and stored in
    `session.domains`. That of a name without changes is empty; for changes by rules
    `read_by_one_version` and `compared_attributes` are."""
    domain = session.domains.get(definition)
    if domain is None:
        domain = session.domains[definition] = _new_domain(definition, session)
    return domain


def _new_domain(definition: str, session: Session) -> Domain:
    """Return the domain of a definition in both versions, read from them anew; for changes by rules
    it is less, as `domain_of` says."""
    versions = versions_of(definition, session)
    nodes = [node for pair in versions for node in changed_nodes(*pair)]
    around = () if session.by_rules else _comparisons_around(versions)
    compared_attributes = read_attributes(
        itertools.chain.from_iterable(comparisons for comparisons, _ in around)
    )
    tests = itertools.chain.from_iterable(itertools.starmap(changed_tests, versions))
    excludes, ties = (False, False) if session.by_rules else _rare_inputs(versions, session)
    return Domain(
        _constants_of_versions(versions, around, session),
        frozenset(node.id for node in nodes if isinstance(node, ast.Name)),
        read_attributes(nodes) | compared_attributes,
        _tried_not_finite(definition, versions, session),
        _late_stores(versions),
        any(map(is_predicate, nodes)),
        tested_attributes(nodes, tests),
        frozenset() if session.by_rules else _read_by_one_version(versions, session),
        compared_attributes,
        frozenset() if session.by_rules else formats_to_try(_texts_of(definition, session)),
        combines=not session.by_rules,
        excludes=excludes,
        ties=ties,
        chooses=not session.by_rules and _chooses(_texts_of(definition, session)),
        texts=() if session.by_rules else _texts_in(versions),
        rounds=not session.by_rules and any(map(_may_round, nodes)),
        marks=() if session.by_rules else _marks_in(versions),
        negated=frozenset() if session.by_rules else _negated_bounds(nodes),
    )


def _negated_bounds(nodes: Iterable[ast.expr]) -> frozenset[str]:
    """Return the names of the variables and attributes whose negatives are bounds of slices."""
    slices = (node for node in nodes if isinstance(node, ast.Slice))
    bounds = itertools.chain.from_iterable((part.lower, part.upper) for part in slices)
    operands = (
        bound.operand
        for bound in bounds
        if isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub)
    )
    return frozenset(filter(None, map(name_of, operands)))


def _marks_in(versions: list[tuple[Change, ModuleType]]) -> tuple[int, ...]:
    """Return whole numbers below -1 in both versions of a definition, and those with which they
    compare for equality; 0 to 2 are tried anyway."""
    numbers: dict[int, None] = {}
    for change, module in versions:
        definition = definition_node(module, change.definition)
        for node in ast.walk(definition) if definition is not None else ():
            lowest: float = math.inf
            match node:
                case ast.Compare(ops=[ast.Eq() | ast.NotEq()], comparators=[part]):
                    value, lowest = literal_value(part), 3
                case ast.UnaryOp():
                    value = literal_value(node)
                case _:
                    continue
            if type(value) is int and (value < -1 or value >= lowest):
                numbers[value] = None
    return tuple(numbers)[:_MARKS]


def _may_round(node: ast.expr) -> bool:
    """Return whether an expression may make a floating number of an integer: a quotient, a number
    with a fraction, a conversion."""
    match node:
        case ast.BinOp(op=ast.Div()) | ast.Constant(value=float()):
            return True
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in _FLOATING
    return False


def _texts_in(versions: list[tuple[Change, ModuleType]]) -> tuple[str, ...]:
    """Return texts of both versions of a definition, those of the changed lines first."""
    definitions = (
        (definition_node(module, change.definition), module) for change, module in versions
    )
    nodes = itertools.chain(
        ((changed_nodes(*pair), pair[1]) for pair in versions),
        ((ast.walk(node), module) for node, module in definitions if node is not None),
    )
    texts = itertools.chain.from_iterable(texts_of(*pair) for pair in nodes)
    return tuple(dict.fromkeys(texts))


def _constants_of_versions(
    versions: list[tuple[Change, ModuleType]],
    around: Iterable[tuple[Iterable[ast.expr], ModuleType]],
    session: Session,
) -> Constants:
    """Return the constants in the changed lines of both versions and in the expressions `around`.
    For an edit by hand of which only one version names float16, a length that float16 rounds is
    added to their sizes."""
    constants = constants_of((*((changed_nodes(*pair), pair[1]) for pair in versions), *around))
    if session.by_rules or not _names_half_once(versions):
        return constants
    return constants.with_sizes((_NOT_EXACT_IN_HALF,))


def _names_half_once(versions: list[tuple[Change, ModuleType]]) -> bool:
    """Return whether the changed lines of only one version name float16: what counts positions in
    it shows on long inputs only."""
    has_half = [
        any(
            getattr(node, "attr", getattr(node, "id", "")) in ("float16", "half")
            for node in changed_nodes(*pair)
        )
        for pair in versions
    ]
    return any(has_half) and not all(has_half)


def _rare_inputs(versions: list[tuple[Change, ModuleType]], session: Session) -> tuple[bool, bool]:
    """Return whether excluded positions become NaN and whether results become equal in pairs, by
    the functions that the changed lines of both versions call. Kernels of attention and softmax
    skip what a mask excludes, where a product with zero gives NaN."""
    modules = (session.original, session.changed)
    names = set().union(*(_called_names(versions, module) for module in modules))
    attends = any("softmax" in name or "attention" in name for name in names)
    return not attends, not _ORDERING.isdisjoint(names)


def _chooses(text: str) -> bool:
    """Return whether a text calls a function that returns the places of the largest or smallest
    numbers along a dimension."""
    return _CHOICE.search(text) is not None


def _tried_not_finite(
    definition: str, versions: list[tuple[Change, ModuleType]], session: Session
) -> tuple[tuple[str, float], ...]:
    """Return the numbers, with names, that are not finite and are tried for a definition; () where
    the changed version's text calls one of `_FINITE_OPS`."""
    text = _text_of(definition, session.changed)
    if any(f"{name}(" in text for name in _FINITE_OPS):
        return ()
    calls, original_calls = (
        _called_names(versions, module) for module in (session.changed, session.original)
    )
    return _not_finite_numbers(calls, original_calls)


def _text_of(definition: str, module: ModuleType) -> str:
    """Return the text of a definition of a file; "" where it has none."""
    owner = getattr(module, definition, None)
    return inspect.getsource(owner) if isinstance(owner, type) or callable(owner) else ""


def _texts_of(definition: str, session: Session) -> str:
    """Return the texts of a definition in both versions as one text, that of the original first."""
    return "\n".join(_text_of(definition, module) for module in (session.original, session.changed))


def _comparisons_around(
    versions: list[tuple[Change, ModuleType]],
) -> tuple[tuple[tuple[ast.expr, ...], ModuleType], ...]:
    """Return, for each version of a definition, the comparisons in the tests around its changed
    lines, and the module of the version."""
    return tuple(
        (
            tuple(
                comparisons_around(definition_node(module, change.definition), change.statements)
            ),
            module,
        )
        for change, module in versions
    )


def reads_of_arguments(definition: str, method: str, session: Session) -> ArgumentReads:
    """Return which parameters of a function, or of a method of a class, decide what its changed
    lines compute in either version; computed once in a session and stored in
    `session.argument_reads`. It is empty for changes by rules."""
    key = definition, method
    reads = session.argument_reads.get(key)
    if reads is None:
        reads = ArgumentReads()
        for change, module in () if session.by_rules else versions_of(definition, session):
            node = definition_node(module, definition)
            reads = reads.joined_with(argument_reads(node, change.statements, method))
        session.argument_reads[key] = reads
    return reads


def late_attributes(session: Session) -> dict[str, frozenset[str]]:
    """Return, by changed definition, the attributes that its changed lines read and that code
    assigns after construction, less those of modes and dropout."""
    definitions = dict.fromkeys(change.definition for change in session.changes)
    late = {name: domain_of(name, session).late for name in definitions}
    return {
        name: frozenset(attribute for attribute in stores if not is_mode_or_rate(attribute))
        for name, stores in late.items()
    }


def _called_names(versions: list[tuple[Change, ModuleType]], module: ModuleType) -> set[str]:
    """Return the names of the functions and methods that the changed lines of one version call."""
    nodes = (
        node
        for change, owner in versions
        if owner is module
        for node in changed_nodes(change, owner)
    )
    return {name_of(node.func) for node in nodes if isinstance(node, ast.Call)}


def _not_finite_numbers(
    calls: Collection[str], original_calls: Collection[str]
) -> tuple[tuple[str, float], ...]:
    """Return those of NOT_FINITE, pairs of a name and a number, that are tried, by the names of the
    functions that the changed lines of both versions call. For infinity PyTorch's GELU gives NaN on
    CPU, and its softmax more NaN than a quotient of exponentials does (docs/limits.md). Before a
    GELU, a layer may make infinity of minus infinity, too."""
    if "gelu" in calls:
        return tuple(pair for pair in NOT_FINITE if not math.isinf(pair[1]))
    takes_finite = "softmax" in calls and "exp" in original_calls
    return tuple(pair for pair in NOT_FINITE if not (pair[1] == math.inf and takes_finite))


def _read_by_one_version(
    versions: list[tuple[Change, ModuleType]], session: Session
) -> frozenset[str]:
    """Return the attributes of `self` that the changed lines of one version of a definition read,
    and that the definition reads of no object in the other version."""
    names: set[str] = set()
    for change, module in versions:
        other = session.original if module is session.changed else session.changed
        node = definition_node(other, change.definition)
        parts = ast.walk(node) if node is not None else ()
        elsewhere = (
            part
            for part in parts
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load)
        )
        names |= read_attributes(changed_nodes(change, module)) - read_attributes(elsewhere)
    return frozenset(names)


def _late_stores(versions: list[tuple[Change, ModuleType]]) -> dict[str, LateStore]:
    """Return by name those of the attributes that the changed lines of a definition read that the
    file of either version assigns after construction."""
    attributes = read_attributes(node for pair in versions for node in read_nodes(*pair))
    stores: dict[str, LateStore] = {}
    relatives = frozenset(relative.name for change, _ in versions for relative in change.relatives)
    for change, module in versions:
        stores.update(late_stores_of_file(module, change.definition, attributes, relatives))
    return stores
