"""Find inputs that a model accepts, in a loop: guess, run, read the error, change the guess.

The search continues from the guess that came furthest, counted in operations of torch before the
error, and tries what the error message suggests: the rows of `COMPLETIONS` and `SUGGESTIONS`.
Another message is a row of a table, with its example, and a case in `tests/verify/test_repairs.py`.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from regraft.verification.child.drivers import image_fixers
from regraft.verification.child.drivers.argument_slots import BATCH, LENGTH, Dim, Spec
from regraft.verification.child.drivers.configuration_objects import config_of
from regraft.verification.child.drivers.field_tables import HIDDEN
from regraft.verification.child.drivers.input_fixers import InputProblem, with_changed_slot
from regraft.verification.child.drivers.input_repair_tables import COMPLETIONS, SUGGESTIONS
from regraft.verification.child.drivers.kind_fixers import specs_of_other_kinds
from regraft.verification.child.drivers.model_attempts import SIZE, Attempt, attempt
from regraft.verification.child.drivers.repair_table import changes

RUNS = 300  # the most runs of a model in one search, but for those of the first seconds
FIRST_SECONDS = 2.0  # of CPU time: a small function runs a thousand times in them
SECONDS = 6.0  # of CPU time, for one search
# The most elements of all inputs together; larger inputs would exhaust the memory.
_MOST_ELEMENTS = 1 << 24
_FEWEST_ELEMENTS = 8 * math.prod(SIZE)  # fewer take as long


def complete_spec(failed: Attempt, optional: Spec, config: Any) -> Spec | None:
    """Return inputs with what the error of an attempt says is missing: an argument, attribute,
    tokens, length or channels; None where no row of `COMPLETIONS` yields a change.

    `optional` are the slots of all parameters that may be passed, `config` is the configuration of
    the model, or None.
    """
    problem = InputProblem(failed, optional, config)
    return next(changes(COMPLETIONS, problem, failed.text), None)


def suggestions(failed: Attempt, optional: Spec, config: Any = None) -> Iterator[Spec]:
    """Yield changes of a failed attempt's inputs that its error suggests, likely ones first; they
    may repeat. `optional` are the slots of all parameters that may be passed, `config` is the
    configuration of the model, or None."""
    return changes(SUGGESTIONS, InputProblem(failed, optional, config), failed.text)


def search(model: Any, start: Spec, optional: Spec, seconds: float = SECONDS) -> Attempt:
    """Search from the inputs `start`; return the first attempt without an error, or else the one
    that came furthest within `seconds` of CPU time, and within `RUNS` runs where these take longer
    than `FIRST_SECONDS`.

    This is a best-first search: the attempt that came furthest is changed next, and as soon as one
    of its changes comes further, that one is. `optional` are the slots of all parameters that may
    be passed. Larger inputs are skipped if they would take a quarter of the time, provided that the
    time grows as `_growth_power` tells, and if they exceed `_MOST_ELEMENTS`. The model runs in its
    present mode.
    """
    started = time.process_time()
    order = itertools.count()
    best = attempt(model, start)
    heap = [(_heap_key(best), next(order), best)]
    tried_keys, runs = {_spec_key(start)}, 0
    while heap and best.error is not None:
        _, _, node = heapq.heappop(heap)
        is_timed_again = False
        specs = suggestions(node, optional, config_of(model))
        while (spec := next(specs, None)) is not None:
            elements = _element_count(spec)
            former = max(_element_count(node.spec), _FEWEST_ELEMENTS)
            growth = (elements / former) ** _growth_power(spec)
            is_slow = growth > 1 and node.took * growth > seconds / 4
            if is_slow and not is_timed_again:  # the first run of some code is slower
                is_timed_again = True
                node = replace(node, took=min(node.took, attempt(model, node.spec).took))
                is_slow = node.took * growth > seconds / 4
            if is_slow or elements > _MOST_ELEMENTS or _spec_key(spec) in tried_keys:
                continue
            if time.process_time() - started > (FIRST_SECONDS if runs >= RUNS else seconds):
                return best
            tried_keys.add(_spec_key(spec))
            runs += 1
            outcome = attempt(model, spec)
            if outcome.error is None:
                return outcome
            best = max(best, outcome, key=lambda candidate: candidate.rank)
            heapq.heappush(heap, (_heap_key(outcome), next(order), outcome))
            if outcome.rank > node.rank:
                # the remaining suggestions of the node come after those of the better attempt
                heapq.heappush(heap, (_heap_key(node), next(order), node))
                break
            if outcome.changed_to_type_error(node):
                # these shapes may be right, with other kinds
                specs = itertools.chain(specs_of_other_kinds(spec), specs)
    return best


def _heap_key(candidate: Attempt) -> tuple[int, int, tuple[int, ...]]:
    """Return a key that is smallest for the attempt which came furthest (`Attempt.rank`)."""
    progress, error_rank, lines = candidate.rank
    return -progress, -error_rank, tuple(-line for line in lines)


def is_inner_width_mismatch(failed: Attempt) -> bool:
    """Return whether the error is that a layer got a width which it does not take and no dimension
    of an input has: then the layers of the model do not fit each other."""
    mismatch = re.search(r"shapes cannot be multiplied \(\d+x(\d+) and \d+x\d+\)", failed.text)
    widths = {dim.at(failed.size) for slot in failed.spec.values() for dim in slot.dims}
    return mismatch is not None and int(mismatch[1]) not in widths


def specs_with_other_dimensions(spec: Spec) -> Iterator[Spec]:
    """Yield specifications that are the same at the size of the search, and differ at other
    sizes: for dimensions whose numbers came from error messages."""
    yield from _specs_with_batch_dimension(spec)
    yield from _specs_with_fixed_dimensions(spec)


def specs_with_fewer_dimensions(spec: Spec) -> Iterator[Spec]:
    """Yield specifications in which one input of real numbers lacks its second of at least three
    dimensions, or all such inputs do."""
    shortened = {
        name: replace(slot, dims=(slot.dims[0], *slot.dims[2:]))
        for name, slot in spec.items()
        if slot.kind == "normal" and len(slot.dims) > 2
    }
    if len(shortened) > 1:
        yield {**spec, **shortened}
    for name, slot in shortened.items():
        yield {**spec, name: slot}


def _specs_with_batch_dimension(spec: Spec) -> Iterator[Spec]:
    """Yield specifications in which one fixed dimension depends on the batch instead.

    The dimension is twice the batch at the size of the search, or a larger multiple of it: the
    search may have found this number in an error message.
    """
    for name, slot in spec.items():
        for axis, dim in enumerate(slot.dims):
            times, remainder = divmod(dim.factor, SIZE[0])
            if not (dim.of or remainder) and times > 1:
                yield with_changed_slot(
                    spec,
                    name,
                    dims=(*slot.dims[:axis], Dim(times, "batch"), *slot.dims[axis + 1 :]),
                )


def _specs_with_fixed_dimensions(spec: Spec) -> Iterator[Spec]:
    """Yield specifications in which dimensions after the first that depend on the batch are fixed
    instead, then also those that depend on the length, at the size of the search: a number in an
    error message may be the number of channels."""
    for variable_dims in ((BATCH,), (BATCH, LENGTH)):
        fixed = {
            name: replace(
                slot,
                dims=tuple(
                    Dim(dim.at(SIZE)) if axis and dim in variable_dims else dim
                    for axis, dim in enumerate(slot.dims)
                ),
            )
            for name, slot in spec.items()
        }
        if fixed != spec:
            yield fixed


def _growth_power(spec: Spec) -> float:
    """Return the power of the size of inputs with which the time is expected to grow: that of
    attention, or less for images, of which convolutions or patches are fewer."""
    return 1.5 if any(map(image_fixers.is_image, spec.values())) else 2.0


def _element_count(spec: Spec) -> int:
    """Return the number of elements of all inputs at the size of the search; token ids count as the
    features that they stand for, inputs without dimensions, plain values among them, as one
    each."""
    return sum(
        math.prod(dim.at(SIZE) for dim in slot.dims) * (HIDDEN if slot.kind == "ids" else 1)
        for slot in spec.values()
    )


def _spec_key(spec: Spec) -> str:
    """Return a text that is the same for equal specifications."""
    return repr(sorted(spec.items()))
