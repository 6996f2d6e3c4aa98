"""Choose the calls beyond the recorded ones on which a definition is compared, by the numbers,
names and attributes in its changed lines."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call, is_mask, tensors
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.checks.argument_reads import (
    ArgumentReads,
    argument_reads,
    comparisons_around,
)
from regraft.verification.child.checks.argument_variants import (
    calls_with_dropout_rate,
    opposite_calls,
    signature_of,
    varied_argument_calls,
)
from regraft.verification.child.checks.attribute_stores import LateStore
from regraft.verification.child.checks.attribute_variants import (
    ATTRIBUTES,
    attribute_calls,
    attribute_pair_calls,
    function_calls,
    read_attributes,
    record_reads,
    set_labelled_attribute,
    tested_attributes,
)
from regraft.verification.child.checks.code_constants import (
    Constants,
    changed_nodes,
    changed_tests,
    constants_of,
    read_nodes,
)
from regraft.verification.child.checks.code_replacement import definition_node
from regraft.verification.child.checks.condition_kinds import is_predicate
from regraft.verification.child.checks.format_variants import (
    FRACTIONS,
    calls_in_other_formats,
    formats_to_try,
)
from regraft.verification.child.checks.late_attributes import (
    is_mode_or_rate,
    late_calls,
    late_stores_of_file,
)
from regraft.verification.child.checks.mask_variants import (
    added_mask_calls,
    biased_calls,
    masked_calls,
)
from regraft.verification.child.checks.optional_values import optional_value_calls
from regraft.verification.child.checks.parameter_variants import (
    altered_calls,
    calls_in_other_layouts,
    calls_with_other_buffers,
)
from regraft.verification.child.checks.size_variants import (
    odd_width_calls,
    reranked_calls,
    resized_calls,
)
from regraft.verification.child.checks.unequal_axes import (
    balance_axes,
    lengthen_axes,
    shorten_axes,
)
from regraft.verification.child.checks.value_variants import (
    NOT_FINITE,
    calls_with_numbers_in_buffers,
    tenth_of,
    valued_calls,
    with_undefined_end,
)
from regraft.verification.child.session import Session
from regraft.verification.definition_changes import Change
from regraft.verification.names_and_scopes import name_of

# Ops that assume finite numbers: their kernels may return other results for NaN and infinity
# (docs/limits.md).
_FINITE_OPS = ("attention", "postponed_matmul", "postponed_einsum", "postponed_baddbmm")
_HEADS = 2  # the most numbers of heads for which masks are made
_COMPARED = 4  # the most numbers with which results are made equal
_OPTIONAL = 3  # the most calls with an optional input of which one axis becomes longer


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
    positions are NaN; for changes by rules both are False, and there are no compared attributes and
    no formats.
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


def domain_of(definition: str, session: Session) -> Domain:
    """Return the domain of a definition in both versions, computed once in a session and stored in
    `session.domains`. That of a name without changes is empty; for changes by rules
    `read_by_one_version` and `compared_attributes` are."""
    domain = session.domains.get(definition)
    if domain is None:
        domain = session.domains[definition] = _new_domain(definition, session)
    return domain


def _new_domain(definition: str, session: Session) -> Domain:
    """Return the domain of a definition in both versions."""
    versions = [
        (change, module)
        for changes, module in (
            (session.changes, session.changed),
            (session.original_tracer.changes, session.original),
        )
        for change in changes
        if change.definition == definition
    ]
    nodes = [node for pair in versions for node in changed_nodes(*pair)]
    around = () if session.by_rules else _comparisons_around(versions)
    compared_attributes = read_attributes(
        itertools.chain.from_iterable(comparisons for comparisons, _ in around)
    )
    tests = itertools.chain.from_iterable(itertools.starmap(changed_tests, versions))
    return Domain(
        constants_of((*((changed_nodes(*pair), pair[1]) for pair in versions), *around)),
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
        excludes=not (session.by_rules or _attends(versions, session)),
    )


def _attends(versions: list[tuple[Change, ModuleType]], session: Session) -> bool:
    """Return whether the changed lines of a version call a softmax or attention: kernels of
    attention skip what a mask excludes, where a product with zero gives NaN."""
    modules = (session.changed, session.original)
    names = set().union(*(_called_names(versions, module) for module in modules))
    return any("softmax" in name or "attention" in name for name in names)


def _tried_not_finite(
    definition: str, versions: list[tuple[Change, ModuleType]], session: Session
) -> tuple[tuple[str, float], ...]:
    """Return the numbers, with names, that are not finite and are tried for a definition."""
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
    """Return the texts of a definition in both versions."""
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
        for changes, module in (
            (session.changes, session.changed),
            (session.original_tracer.changes, session.original),
        ):
            for change in changes if not session.by_rules else ():
                if change.definition == definition:
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
    """Return the attributes that the changed lines of one version of a definition read, and the
    other version reads nowhere."""
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


def calls_beyond(call: Call, target: Target, domain: Domain) -> Iterator[Call]:
    """Yield calls with other masks, sizes, values, plain arguments, attributes and layouts than a
    recorded call of a definition, and with other parameters where it has some.

    `target` is the original, which is run to select some of the calls; it may refuse a call
    nevertheless. Labels and `beyond` say how a call was made.
    """
    has_parameters = target.module is not None and any(True for _ in target.module.parameters())
    names = named_arguments(call, target.callable)
    constants = _with_attribute_sizes(domain, target.module)

    def accepts(candidate: Call) -> bool:
        """Return whether the original runs on a call without an error."""
        return _run(candidate, target).error is None

    yield from masked_calls(call, names)
    yield from biased_calls(call, names, _head_counts(call, target.module))
    yield from added_mask_calls(call, names, target.callable)
    yield from resized_calls(call, constants, features=not has_parameters)
    if domain.combines and not has_parameters:
        yield from odd_width_calls(call)
    yield from _calls_with_other_axes(call, constants, accepts, combines=domain.combines)
    yield from reranked_calls(call)
    yield from valued_calls(
        call, domain.constants, target.module or target.model, not_finite=domain.not_finite
    )
    yield from varied_argument_calls(call, target.callable)
    for varied_call in varied_argument_calls(call, target.callable, domain.names):
        yield from resized_calls(varied_call, constants, features=not has_parameters)
    yield from calls_with_dropout_rate(call, target)
    optional_calls = tuple(optional_value_calls(call, target))
    yield from optional_calls
    for optional_call in optional_calls[:_OPTIONAL]:
        yield from lengthen_axes(optional_call, accepts, 2)
    if domain.excludes and domain.not_finite:
        yield from map(with_undefined_end, filter(_may_exclude, (call, *optional_calls)))
    yield from attribute_calls(call, target.module, domain.attributes)
    if domain.combines:
        yield from attribute_pair_calls(call, target.module, domain.attributes)
    yield from attribute_calls(tenth_of(call), target.module, domain.attributes)
    yield from function_calls(call, target.module, domain.tested)
    yield from _opposite_calls(call, target, domain)
    yield from late_calls(call, target.module, domain.late, target.scope)
    yield from _reading_calls(call, target, domain)
    yield from calls_in_other_layouts(call)
    if domain.combines:
        for formatted_call in calls_in_other_formats(call, domain.formats):
            yield formatted_call
            if formatted_call.label == FRACTIONS:
                yield from calls_with_numbers_in_buffers(formatted_call, target.module)
        yield from calls_with_other_buffers(call, target.module)
    if has_parameters:
        yield from altered_calls(call, _compared_numbers(target.module, domain))


def _calls_with_other_axes(
    call: Call, constants: Constants, accepts: Callable[[Call], bool], *, combines: bool
) -> Iterator[Call]:
    """Yield calls that `accepts` accepts with some axes longer than others of their size; if
    `combines`, also the first of these with other sizes, and calls with a single element along some
    axes, and with one of two equal axes longer and the other shorter."""
    lengthened_calls = tuple(lengthen_axes(call, accepts))
    yield from lengthened_calls
    if combines:
        for lengthened_call in lengthened_calls[:1]:
            # a length that equalled a width has other sizes only now
            yield from resized_calls(lengthened_call, constants, features=False)
        yield from shorten_axes(call, accepts)
        yield from balance_axes(call, accepts)


def _may_exclude(call: Call) -> bool:
    """Return whether a call has a tensor that may exclude positions: a mask, or one of lengths or
    other numbers that are not real."""
    return any(is_mask(tensor) or not tensor.is_floating_point() for tensor in tensors(call))


def _with_attribute_sizes(domain: Domain, module: Any) -> Constants:
    """Return the constants of a domain, among their sizes the integer attributes of a module, which
    may be None, that the tests around changed lines compare."""
    attributes = vars(module) if module is not None else {}
    values = (attributes.get(name) for name in sorted(domain.compared_attributes))
    return domain.constants.with_sizes(value for value in values if type(value) is int)


def _compared_numbers(module: Any, domain: Domain) -> tuple[float, ...]:
    """Return at most `_COMPARED` numbers with which changed lines may compare results of a module:
    their constants and the module's plain attributes; () where they do not compare, or the module
    has no biases."""
    has_biases = any(name.endswith("bias") for name, _ in module.named_parameters())
    if not domain.compares or not has_biases:
        return ()
    values = (vars(module).get(name) for name in sorted(domain.attributes))
    attributes = (float(value) for value in values if type(value) in (int, float))
    numbers = dict.fromkeys((*attributes, *map(float, domain.constants.values)))
    return tuple(number for number in numbers if math.isfinite(number))[:_COMPARED]


def _reading_calls(call: Call, target: Target, domain: Domain) -> Iterator[Call]:
    """Yield calls with other values of the attributes that changed lines read, but that the
    original does not read in the recorded call; they are variants of the first other call in which
    it does. Such an attribute stands where only an optional input, a flag, a size or a value
    leads."""
    names = domain.attributes | domain.late.keys()
    unread = names - _attributes_read(call, target) if target.module is not None else frozenset()
    for candidate in _leading_calls(call, target, domain) if unread else ():
        read = unread & _attributes_read(candidate, target)
        yield from attribute_calls(candidate, target.module, read)
        late = {name: store for name, store in domain.late.items() if name in read}
        yield from late_calls(candidate, target.module, late, target.scope)
        unread -= read
        if not unread:
            return


def _leading_calls(call: Call, target: Target, domain: Domain) -> Iterator[Call]:
    """Yield calls that may lead to lines which a recorded call does not reach: with optional
    inputs, other plain arguments, sizes and values."""
    yield from optional_value_calls(call, target)
    yield from varied_argument_calls(call, target.callable)
    constants = _with_attribute_sizes(domain, target.module)
    yield from resized_calls(call, constants, features=False)
    yield from valued_calls(call, domain.constants, target.module, not_finite=())


def _attributes_read(call: Call, target: Target) -> frozenset[str]:
    """Return the attributes of the instance itself that the original reads in a call; none where it
    raises."""
    with record_reads(target.module) as names:
        outcome = execute(target, call, Plan(gradients=False))
    return frozenset(names) if outcome.error is None else frozenset()


def _opposite_calls(call: Call, target: Target, domain: Domain) -> Iterator[Call]:
    """Yield calls with plain arguments or attributes that are negative or zero, where the original
    runs and its results stay finite."""
    opposites = attribute_calls(call, target.module, domain.attributes, opposites=True)
    for candidate in (*opposite_calls(call, target.callable), *opposites):
        outcome = _run(candidate, target)
        if outcome.error is None and outcome.is_finite():
            yield candidate


def _run(call: Call, target: Target) -> Outcome:
    """Return the outcome of a call of the original without gradients, with the attribute that the
    call's label sets, if any."""
    with ExitStack() as stack:
        if call.beyond == ATTRIBUTES:
            stack.enter_context(set_labelled_attribute((target.module,), call.label))
        return execute(target, call, Plan(gradients=False))


def _head_counts(call: Call, module: Any) -> tuple[int, ...]:
    """Return at most `_HEADS` numbers of heads above 1 that attention may have, by the second
    dimension of inputs with four, then by integer attributes with "heads" in their name. `module`
    may be None."""
    numbers: dict[int, None] = {}
    for leaf in (*call.args, *call.kwargs.values()):
        if (
            isinstance(leaf, torch.Tensor) and leaf.dim() == 4
        ):  # of rows, heads, positions and features
            numbers[leaf.shape[1]] = None
    for part in module.modules() if module is not None else ():
        numbers.update(
            (v, None) for name, v in vars(part).items() if "heads" in name and type(v) is int
        )
    return tuple(number for number in numbers if number > 1)[:_HEADS]


def named_arguments(call: Call, function: Any) -> Mapping[str, Any]:
    """Return a call's arguments by the names of their parameters; those without a name get a
    number."""
    try:
        names = list(signature_of(function).parameters)
    except (TypeError, ValueError):
        names = []
    names += [f"argument {number}" for number in range(len(names), len(call.args))]
    return {**dict(zip(names, call.args, strict=False)), **call.kwargs}
