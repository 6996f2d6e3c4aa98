"""Make the variants of a recorded call that the domain of a definition gives a reason to try."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call, is_mask, tensors
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Outcome, Plan, Target
from regraft.verification.child.checks.argument_variants import (
    calls_with_dropout_rate,
    calls_with_zero,
    named_arguments,
    opposite_calls,
    varied_argument_calls,
)
from regraft.verification.child.checks.attribute_variants import (
    ATTRIBUTES,
    attribute_calls,
    attribute_calls_with_zero,
    attribute_pair_calls,
    function_calls,
    record_reads,
    set_labelled_attribute,
)
from regraft.verification.child.checks.code_constants import Constants
from regraft.verification.child.checks.comparison_domain import Domain
from regraft.verification.child.checks.format_variants import (
    FRACTIONS,
    calls_in_other_formats,
    calls_with_real_numbers,
)
from regraft.verification.child.checks.late_attributes import late_calls
from regraft.verification.child.checks.mask_variants import (
    added_mask_calls,
    biased_calls,
    binary_mask_calls,
    masked_calls,
)
from regraft.verification.child.checks.optional_values import (
    calls_without_options,
    optional_value_calls,
)
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
from regraft.verification.child.checks.text_variants import calls_with_other_texts
from regraft.verification.child.checks.unequal_axes import balance_axes, lengthen_axes, shorten_axes
from regraft.verification.child.checks.value_variants import (
    calls_with_a_mark,
    calls_with_large_integers,
    calls_with_numbers_in_buffers,
    has_integers,
    has_real_numbers,
    tenth_of,
    valued_calls,
    with_few_choices,
    with_few_integers,
    with_offset,
    with_undefined_end,
)
from regraft.verification.child.time_limit import limit_time

_HEADS = 2  # the most numbers of heads for which masks are made
_COMPARED = 4  # the most numbers with which results are made equal
_SECONDS = 1.0  # of processor time for a call with large numbers
_OPTIONAL = 3  # the most calls with an optional input of which one axis becomes longer


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
    if domain.combines:
        yield from binary_mask_calls(call, names)
        yield from odd_width_calls(call) if not has_parameters else ()
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
    yield from calls_without_options(call, target)
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
        yield from _calls_in_other_forms(call, target, domain, accepts)
    if has_parameters:
        yield from altered_calls(
            call,
            _compared_numbers(target.module, domain),
            ties=domain.ties,
            chooses=domain.chooses,
        )


def _calls_in_other_forms(
    call: Call, target: Target, domain: Domain, accepts: Callable[[Call], bool]
) -> Iterator[Call]:
    """Yield calls in other number formats, with other buffers and texts, with numbers far from
    zero, with other arguments beside few different integers, with numbers that have a meaning of
    their own or that floating numbers round, and with real numbers in the place of others."""
    for formatted_call in calls_in_other_formats(call, domain.formats):
        yield formatted_call
        if formatted_call.label == FRACTIONS:
            yield from calls_with_numbers_in_buffers(formatted_call, target.module)
    yield from calls_with_other_buffers(call, target.module)
    yield from calls_with_other_texts(call, domain.texts)
    if any(map(has_real_numbers, tensors(call))):
        yield with_offset(call)
        if domain.chooses:
            yield with_few_choices(call)
    if any(map(has_integers, tensors(call))):
        # the number of a token has smaller and larger ones beside it
        few_integers = with_few_integers(call)
        yield from varied_argument_calls(few_integers, target.callable)
        yield from attribute_calls(few_integers, target.module, domain.attributes)
    for real_call in filter(accepts, calls_with_real_numbers(call)):
        yield real_call
        yield from valued_calls(
            real_call, domain.constants, target.module, not_finite=domain.not_finite
        )
    for mark in domain.marks:
        yield from calls_with_a_mark(call, mark)
    if domain.rounds:
        yield from (large for large in calls_with_large_integers(call) if _runs_soon(large, target))


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
    """Yield calls that may lead to lines which a recorded call does not reach: with values for
    absent optional inputs, then with other plain arguments, sizes and values, each kind by
    itself."""
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
    candidates = (
        *opposite_calls(call, target.callable),
        *opposites,
        *calls_with_zero(call, target.callable, domain.negated),
        *attribute_calls_with_zero(call, target.module, domain.negated),
    )
    for candidate in candidates:
        outcome = _run(candidate, target)
        if outcome.error is None and outcome.is_finite():
            yield candidate


def _runs_soon(call: Call, target: Target) -> bool:
    """Return whether the original runs on a call without an error within `_SECONDS` of processor
    time: a large number may be one of steps, or a size."""
    late = TimeoutError("the original takes too long")
    try:
        with limit_time(_SECONDS, late, processor=True):
            return _run(call, target).error is None
    except TimeoutError:
        return False


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
