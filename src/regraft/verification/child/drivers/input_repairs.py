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

from regraft.verification.child.drivers import described_shapes, shape_fixers
from regraft.verification.child.drivers import input_fixers as fixers
from regraft.verification.child.drivers.argument_slots import BATCH, LENGTH, Dim, Spec
from regraft.verification.child.drivers.configuration_objects import config_of
from regraft.verification.child.drivers.input_fixers import InputProblem, with_changed_slot
from regraft.verification.child.drivers.model_attempts import (
    ATTRIBUTE_ERROR,
    SIZE,
    TYPE_ERROR,
    Attempt,
    attempt,
)
from regraft.verification.child.drivers.repair_table import ANY_ERROR, Repair, changes

RUNS = 300  # the most runs of a model in one search
SECONDS = 6.0  # of CPU time, for one search
# The most elements of all inputs together; larger inputs would exhaust the memory.
_MOST_ELEMENTS = 1 << 24
# The texts of errors about an absent input, and about the number of dimensions of an input.
_MISSING_ERROR = r"None|UnboundLocal|missing|specify"
_RANK_ERROR = (
    r"[Dd]imension|unpack(?! non-iterable NoneType)|\dD|\d-D|dims|too many indices|index \d+ is out"
    r" of bounds|permute|"
    r"tuple index|is invalid for input of size|must have shape|\dd[- ]tensor|rank|einsum|subscript"
)
_Table = tuple[Repair[InputProblem, Spec], ...]

# Changes that follow from the message alone: the first one is made at once, without a search.
COMPLETIONS: _Table = (
    Repair(
        r"`(\w+)` is missing",
        fixers.give_missing_argument,
        "ValueError: Images were passed but `mm_token_type_ids` is missing. Please pass it.",
    ),
    Repair(
        ATTRIBUTE_ERROR,
        fixers.give_attribute,
        "AttributeError: 'types.SimpleNamespace' object has no attribute 'num_key_value_groups'",
    ),
    Repair(
        r"['\"](\w+)['\"],? (?:or|and) ['\"]\w+['\"].*?\b[Gg]ot:? ['\"]?(\w+)",
        fixers.take_listed_word,
        "ValueError: `cache_mode` must be either 'extract' or 'cached', got gelu.",
    ),
    Repair(
        r"shape '\[(-1|\d+), ([\d, ]+)\]' is invalid for input of size (\d+)",
        fixers.fill_shape_by_length,
        "RuntimeError: shape '[-1, 4, 8, 8]' is invalid for input of size 168",
    ),
    Repair(
        r"shape '\[(?:-?\d+, )*0\b",
        fixers.lengthen_divided,
        "RuntimeError: shape '[3, 2, 0, 128]' is invalid for input of size 672",
    ),
    Repair(
        r"can't divide axis of length (\d+) in chunks of (\d+)",
        fixers.fit_chunks,
        "EinopsError: Shape mismatch, can't divide axis of length 8 in chunks of 7",
    ),
    Repair(
        r"expected input\[([\d, ]+)\] to have (\d+) channels",
        fixers.give_wanted_channels,
        "RuntimeError: Given groups=1, weight of size [4, 5, 3, 3], expected input[3, 3, 32, 32]"
        " to have 5 channels, but got 3 channels instead",
    ),
    Repair(
        r"(\w+) features and \w+ tokens do not match\D*(\d+)\D*(\d+)",
        fixers.give_placeholders,
        "ValueError: Image features and image tokens do not match, tokens: 0, features: 12",
    ),
)


def _complete_first(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield the first change that follows from the message alone (`COMPLETIONS`), if there is
    one."""
    yield from itertools.islice(changes(COMPLETIONS, problem, problem.failed.text), 1)


# Changes that a search tries, likely ones first.
SUGGESTIONS: _Table = (
    Repair(
        ANY_ERROR,
        _complete_first,
        "ValueError: Sound was passed but `input_features_mask` is missing. Please pass it.",
    ),
    Repair(
        r"^(?!.*unexpected)",
        fixers.give_named_arguments,
        "TypeError: Layer.forward() missing 1 required positional argument: 'scores'",
    ),
    Repair(
        _MISSING_ERROR,
        fixers.give_arguments_of_statements,
        "TypeError: cannot unpack non-iterable NoneType object",
    ),
    Repair(
        r"shapes cannot be multiplied \(\d+x\d+ and (\d+)x\d+\)",
        fixers.give_optional_of_width,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (21x32 and 12x5)",
    ),
    Repair(
        r"values to unpack",
        shape_fixers.take_unpacked_shape,
        "ValueError: not enough values to unpack (expected 4, got 3)",
    ),
    Repair(
        r"spatial dimensions of \[([\d, ]+)\] and output size of \[([\d, ]+)\]",
        shape_fixers.take_image_size,
        "ValueError: Input and output must have the same number of spatial dimensions, but got"
        " input with spatial dimensions of [7] and output size of [16, 16]",
    ),
    Repair(
        described_shapes.SHAPE,
        shape_fixers.take_described_shape,
        "ValueError: Input must be a 5D tensor of shape (batch_size, 2, num_channels, height,"
        " width)",
    ),
    Repair(
        shape_fixers.SHAPE,
        shape_fixers.take_named_shape,
        "IndexError: The shape of the mask [3, 7] at index 1 does not match the shape of the"
        " indexed tensor [3, 9] at index 1",
    ),
    Repair(
        r"shape '\[([\d, ]+)\]' is invalid for input of size (\d+)",
        shape_fixers.refill_shape,
        "RuntimeError: shape '[6, 7]' is invalid for input of size 21",
    ),
    Repair(
        r"\d",
        shape_fixers.exchange_numbers,
        "RuntimeError: The size of tensor a (32) must match the size of tensor b (12) at"
        " non-singleton dimension 2",
    ),
    Repair(
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)",
        shape_fixers.allow_for_added_positions,
        "RuntimeError: The size of tensor a (65) must match the size of tensor b (50) at"
        " non-singleton dimension 2",
    ),
    Repair(
        r"cannot be interpreted as an integer|can be converted to an index",
        fixers.give_whole_numbers,
        "TypeError: 'Tensor' object cannot be interpreted as an integer",
    ),
    Repair(
        TYPE_ERROR,
        fixers.change_kinds,
        "IndexError: tensors used as indices must be long, int, byte or bool tensors",
    ),
    Repair(
        r"out of range",
        fixers.lower_numbers,
        "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
    Repair(
        r"out of range in self|index out of|Target \d+ is out of bounds",
        fixers.lower_token_ids,
        "IndexError: index out of range in self",
    ),
    Repair(
        r"not enough values to unpack \(expected (\d), got (\d)\)",
        shape_fixers.add_missing_dimensions,
        "ValueError: not enough values to unpack (expected 5, got 3)",
    ),
    Repair(
        _RANK_ERROR,
        shape_fixers.give_batches,
        "EinopsError: Wrong shape: expected 4 dims. Received 3-dim tensor.",
    ),
    Repair(
        _RANK_ERROR,
        shape_fixers.change_ranks,
        "ValueError: too many values to unpack (expected 2)",
    ),
    Repair(
        _MISSING_ERROR,
        fixers.give_each_optional,
        "ValueError: You have to specify either input_ids or inputs_embeds",
    ),
    Repair(
        ANY_ERROR,
        fixers.change_words,
        "AssertionError: states must be given for cross-attention layers",
    ),
    Repair(
        ANY_ERROR,
        fixers.drop_mentioned,
        "TypeError: Model.forward() got an unexpected keyword argument 'scores'",
    ),
    Repair(
        ANY_ERROR,
        shape_fixers.change_any_shape,
        "ValueError: the images are too small for this model",
    ),
)


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
    that came furthest within `seconds` of CPU time and `RUNS` runs after the first.

    This is a best-first search: the attempt that came furthest is changed next, and as soon as one
    of its changes comes further, that one is. `optional` are the slots of all parameters that may
    be passed. Larger inputs are skipped if they would take a quarter of the time, provided that the
    time grows with the square of their size, and if they exceed `_MOST_ELEMENTS`. The model runs in
    its present mode.
    """
    deadline = time.process_time() + seconds
    order = itertools.count()
    best = attempt(model, start)
    heap = [(_heap_key(best), next(order), best)]
    tried_keys, runs = {_spec_key(start)}, 0
    while heap and best.error is not None:
        _, _, node = heapq.heappop(heap)
        is_timed_again = False
        for spec in suggestions(node, optional, config_of(model)):
            elements = _element_count(spec)
            growth = elements / max(_element_count(node.spec), 1)
            is_slow = growth > 1 and node.took * growth**2 > seconds / 4
            if is_slow and not is_timed_again:  # the first run of some code is slower
                is_timed_again = True
                node = replace(node, took=min(node.took, attempt(model, node.spec).took))
                is_slow = node.took * growth**2 > seconds / 4
            if is_slow or elements > _MOST_ELEMENTS or _spec_key(spec) in tried_keys:
                continue
            if runs >= RUNS or time.process_time() > deadline:
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
    return best


def _heap_key(candidate: Attempt) -> tuple[int, int]:
    """Return a key that is smallest for the attempt which came furthest (`Attempt.rank`)."""
    progress, error_rank = candidate.rank
    return -progress, -error_rank


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


def _element_count(spec: Spec) -> int:
    """Return the number of elements of all inputs at the size of the search; inputs without
    dimensions, plain values among them, count as one each."""
    return sum(math.prod(dim.at(SIZE) for dim in slot.dims) for slot in spec.values())


def _spec_key(spec: Spec) -> str:
    """Return a text that is the same for equal specifications."""
    return repr(sorted(spec.items()))
