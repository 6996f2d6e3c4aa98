"""Find inputs that a model accepts, in a loop: guess, run, read the error, change the guess.

The search keeps the guess that came furthest, counted in operations of torch before the error, and
tries what the error message suggests: other sizes where it names two, other ranks, arguments that
were missing, other types.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from torch.overrides import TorchFunctionMode

from regraft.verify.child.drivers import described
from regraft.verify.child.drivers.guess import HEADS, value_for
from regraft.verify.child.drivers.slots import BATCH, LENGTH, Dim, Slot, Spec, make, with_places
from regraft.verify.child.drivers.where import statements
from regraft.verify.child.replay import Plan, Target, execute

# (batch, length), which differ from each other and from common sizes in an error message
SIZE = (
    3,
    7,
)
RUNS = 120
SECONDS = 6.0
_LARGEST = 4096  # the largest dimension of an input
_LONGEST = 256  # the longest fixed length that a model may demand
# the most elements of all inputs together; larger inputs would exhaust the memory
_ELEMENTS = 1 << 24
_RANK = re.compile(
    r"[Dd]imension|unpack(?! non-iterable NoneType)|\dD|\d-D|dims|too many indices|index \d+ is out"
    r" of bounds|permute|"
    r"tuple index|is invalid for input of size|must have shape|\dd[- ]tensor|rank|einsum|subscript",
)
_TYPE = re.compile(
    r"scalar type|dtype|must be long|Expected tensor for argument|be of type|float|LongTensor|used"
    r" as indices must"
)
_ATTRIBUTE = re.compile(r"'types.SimpleNamespace' object has no attribute '(\w+)'")


class Counter(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Counts the operations of torch that run inside the context, as a measure of progress."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def reset(self, *_: Any) -> None:
        self.count = 0

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a model.

    `progress` is the number of operations before `error`, which is None for a whole run; `took` is
    in seconds.
    """

    spec: Spec
    progress: int
    error: BaseException | None
    size: tuple[int, int] = SIZE
    took: float = 0.0

    @property
    def text(self) -> str:
        """The error's class and message on one line."""
        return f"{type(self.error).__name__}: {' '.join(str(self.error).split())}"

    @property
    def rank(self) -> tuple[int, int]:
        """The progress, then the kind of the error.

        With equal progress, an operation that accepts the types of its arguments came further than
        one that does not, and a run that only misses an attribute of an object came further than
        either.
        """
        return self.progress, (
            2 if _ATTRIBUTE.search(self.text) else int(not _TYPE.search(self.text))
        )


def attempt(model: Any, spec: Spec, size: tuple[int, int] = SIZE) -> Attempt:
    """Run the model once on what a specification gives at one size."""
    start = time.process_time()
    with Counter() as counter:
        # what copies the arguments is no progress
        handle = model.register_forward_pre_hook(counter.reset)
        try:
            error = execute(Target(model), make(spec, size, 0), Plan(gradients=False)).error
        finally:
            handle.remove()
    return Attempt(spec, counter.count, error, size, time.process_time() - start)


def search(model: Any, start: Spec, optional: Spec, seconds: float = SECONDS) -> Attempt:
    """Return the first attempt without error, or the one that came furthest.

    `optional` are parameters that may be given where the model misses something. Larger inputs are
    skipped that would take a quarter of the time if the time grows with the square of their size.
    """
    deadline = time.process_time() + seconds
    order = itertools.count()
    best = attempt(model, start)
    heap = [(_heap_key(best), next(order), best)]
    tried_keys, runs = {_spec_key(start)}, 0
    while heap and best.error is not None:
        _, _, node = heapq.heappop(heap)
        is_timed_again = False
        for spec in _suggestions(node, optional):
            elements = _elements(spec)
            growth = elements / max(_elements(node.spec), 1)
            is_slow = growth > 1 and node.took * growth**2 > seconds / 4
            if is_slow and not is_timed_again:  # what runs first is slow for once
                is_timed_again = True
                node = replace(node, took=min(node.took, attempt(model, node.spec).took))
                is_slow = node.took * growth**2 > seconds / 4
            if is_slow or elements > _ELEMENTS or _spec_key(spec) in tried_keys:
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
                # the rest of its suggestions, later
                heapq.heappush(heap, (_heap_key(node), next(order), node))
                break
    return best


def _heap_key(candidate: Attempt) -> tuple[int, int]:
    """Return a key that puts the attempt which came furthest first."""
    progress, error_rank = candidate.rank
    return -progress, -error_rank


def complete_spec(failed: Attempt, optional: Spec, config: Any) -> Spec | None:
    """Return inputs with the argument or tokens that the error says are missing; None where it says
    none.

    The same is done for an attribute of an object, and for the one length that fills a shape.
    Tokens that stand for images, sound or videos have to be as many as there are features. Source:
    the checks of models that put features in the place of tokens.
    """
    spec, text = failed.spec, failed.text
    missing_argument = re.search(r"`(\w+)` is missing", text)
    if missing_argument and missing_argument[1] in optional and missing_argument[1] not in spec:
        are_marks = "input_ids" in spec and missing_argument[1].endswith("type_ids")
        return {
            **spec,
            missing_argument[1]: (
                replace(spec["input_ids"], kind="marks")
                if are_marks
                else optional[missing_argument[1]]
            ),
        }
    missing_attribute = _ATTRIBUTE.search(text)
    if missing_attribute:
        return _with_attribute(spec, missing_attribute[1])
    resized = (
        _with_filling_length(failed) or _with_divisible_length(failed) or _with_channels(failed)
    )
    if resized is not None:
        return resized
    mismatch = re.search(r"(\w+) features and \w+ tokens do not match\D*(\d+)\D*(\d+)", text)
    token_fields = (
        (f"{mismatch[1].lower()}_token_{end}" for end in ("id", "index")) if mismatch else ()
    )
    token = next(
        (value for name in token_fields if isinstance(value := getattr(config, name, None), int)),
        None,
    )
    if not mismatch or token is None or "input_ids" not in spec:
        return None
    token_count, feature_count = int(mismatch[2]), int(mismatch[3])
    if token_count == feature_count:  # what is counted are the numbers of all features
        feature_count //= getattr(getattr(config, "text_config", config), "hidden_size", 1)
    elif token_count:
        return None
    count, remainder = divmod(feature_count, failed.size[0])
    return with_places(spec, token, count) if not remainder and 0 < count <= _LARGEST else None


def _with_filling_length(failed: Attempt) -> Spec | None:
    """Return inputs of the length that fills a shape which the error gives; None where no length
    does.

    The error is that the shape of each sample has another number of elements than the sample.
    """
    batch, length = failed.size
    mismatch = re.search(
        rf"shape '\[(?:-1|{batch}), ([\d, ]+)\]' is invalid for input of size (\d+)", failed.text
    )
    if not mismatch or not int(mismatch[2]):
        return None
    new_length, remainder = divmod(
        math.prod(map(int, mismatch[1].split(","))) * batch * length, int(mismatch[2])
    )
    if remainder or new_length == length or not 0 < new_length <= _LONGEST:
        return None
    return {
        name: replace(
            slot,
            dims=tuple(
                Dim(dim.factor * new_length) if dim.of == "length" else dim for dim in slot.dims
            ),
        )
        for name, slot in failed.spec.items()
    }


def _with_channels(failed: Attempt) -> Spec | None:
    """Return inputs with the channels that a convolution asks for; None where none has the shape of
    the error."""
    mismatch = re.search(r"expected input\[([\d, ]+)\] to have (\d+) channels", failed.text)
    if mismatch is None:
        return None
    shape = tuple(map(int, mismatch[1].split(",")))
    for name, slot in failed.spec.items():
        if tuple(dim.at(failed.size) for dim in slot.dims) == shape:
            return _with_changed_slot(
                failed.spec, name, dims=(slot.dims[0], Dim(int(mismatch[2])), *slot.dims[2:])
            )
    return None


def _with_divisible_length(failed: Attempt) -> Spec | None:
    """Return inputs four times as long where a length was divided down to nothing;
    otherwise None."""
    if not re.search(r"shape '\[(?:-?\d+, )*0\b", failed.text):
        return None
    lengths = {slot.dims[1] for slot in failed.spec.values() if len(slot.dims) > 2}
    longer_dims = {
        dim: Dim(4 * dim.factor, dim.of) for dim in lengths if 4 * dim.at(failed.size) <= _LONGEST
    }
    if not longer_dims:
        return None
    return {
        name: replace(slot, dims=tuple(longer_dims.get(dim, dim) for dim in slot.dims))
        for name, slot in failed.spec.items()
    }


def _with_attribute(spec: Spec, attribute: str) -> Spec | None:
    """Give the objects of a specification an attribute with a value that its name suggests; None
    where no value is."""
    try:
        attribute_value = {attribute: value_for(attribute)}
    except LookupError:
        return None
    objects = {
        name: vars(slot.value)
        for name, slot in spec.items()
        if isinstance(slot.value, SimpleNamespace)
    }
    return {
        **spec,
        **{
            name: Slot("plain", value=SimpleNamespace(**attributes, **attribute_value))
            for name, attributes in objects.items()
        },
    }


def unlike_layers(failed: Attempt) -> bool:
    """Return whether a layer was given a width that it does not take and that no input has."""
    mismatch = re.search(r"shapes cannot be multiplied \(\d+x(\d+) and \d+x\d+\)", failed.text)
    widths = {dim.at(failed.size) for slot in failed.spec.values() for dim in slot.dims}
    return mismatch is not None and int(mismatch[1]) not in widths


def by_batch(spec: Spec) -> Iterator[Spec]:
    """Yield specifications in which one dimension follows the batch.

    The dimension is fixed, and a multiple of the batch at the size of the search.
    """
    for name, slot in spec.items():
        for axis, dim in enumerate(slot.dims):
            times, remainder = divmod(dim.factor, SIZE[0])
            if not (dim.of or remainder) and times > 1:
                yield _with_changed_slot(
                    spec,
                    name,
                    dims=(*slot.dims[:axis], Dim(times, "batch"), *slot.dims[axis + 1 :]),
                )


def _elements(spec: Spec) -> int:
    """Return the number of elements of all inputs at the size of the search."""
    return sum(math.prod(dim.at(SIZE) for dim in slot.dims) for slot in spec.values())


def _spec_key(spec: Spec) -> str:
    """Return a text that is the same for equal specifications."""
    return repr(sorted(spec.items()))


def _suggestions(failed: Attempt, optional: Spec) -> Iterator[Spec]:
    """Yield changes of a failed attempt's inputs that its error suggests, likely ones first."""
    spec, text = failed.spec, failed.text
    completed = complete_spec(failed, optional, None)
    if completed is not None:
        yield completed
    named_parameters = [
        name for name in re.findall(r"\w+", text) if name in optional and name not in spec
    ]
    if named_parameters and "unexpected" not in text:
        if "missing" in text:
            yield {**spec, **{name: optional[name] for name in named_parameters}}
        yield from ({**spec, name: optional[name]} for name in dict.fromkeys(named_parameters))
    has_missing = re.search("None|UnboundLocal|missing|specify", text)
    if has_missing and failed.error is not None:
        yield from (
            {**spec, name: optional[name]}
            for name in _words_of_statements(failed.error)
            if name in {*optional} - {*spec}
        )
    yield from _with_optional_of_width(failed, optional)
    for name, slot in spec.items():
        yield from (
            {**spec, name: reshaped} for reshaped in described.slots_from_message(text, slot)
        )
    yield from _resized_specs(spec, text)
    if _TYPE.search(text):
        yield from _retyped_specs(spec)
    if "out of range" in text:
        yield from (
            _with_changed_slot(spec, name, value=1)
            for name, slot in spec.items()
            if type(slot.value) is int and slot.value > 1
        )
    if "out of range in self" in text or "index out of" in text:
        yield from (
            _with_changed_slot(spec, name, limit=2)
            for name, slot in spec.items()
            if slot.kind == "ids" and slot.limit > 2
        )
    if _RANK.search(text):
        yield from _unpacked_specs(spec, text)
        yield from _reranked_specs(spec)
    if has_missing:
        yield from ({**spec, name: slot} for name, slot in optional.items() if name not in spec)
    mentioned_parameters = [name for name in spec if re.search(rf"\b{name}\b", text)]
    yield from (
        {key: slot for key, slot in spec.items() if key != name}
        for name in mentioned_parameters
        if name in optional
    )
    yield from _stretched_specs(spec)
    yield from _reranked_specs(spec)


def _with_optional_of_width(failed: Attempt, optional: Spec) -> Iterator[Spec]:
    """Yield the inputs with an optional one of the width that a layer takes, where it was given
    another width.

    Cross-attention without the states of an encoder attends to its own, which may have another
    width.
    """
    mismatch = re.search(r"shapes cannot be multiplied \(\d+x\d+ and (\d+)x\d+\)", failed.text)
    if mismatch and failed.error is not None:
        for name in _words_of_statements(failed.error):
            if name in {*optional} - {*failed.spec} and optional[name].dims:
                slot = optional[name]
                yield {
                    **failed.spec,
                    name: replace(slot, dims=(*slot.dims[:-1], Dim(int(mismatch[1])))),
                }


def _words_of_statements(error: BaseException) -> Iterator[str]:
    """Yield the words of the statements that an error came through, innermost first."""
    for _, text in statements(error):
        yield from dict.fromkeys(re.findall(r"\w+", text))


def _with_changed_slot(spec: Spec, name: str, **changes: Any) -> Spec:
    """Return a specification with changed fields of one slot."""
    return {**spec, name: replace(spec[name], **changes)}


def _dim_of_number(number: int) -> Dim:
    """Return the dimension that a number in an error message stands for, at the size of the
    search."""
    return {SIZE[0]: BATCH, SIZE[1]: LENGTH}.get(number, Dim(number))


def _resized_specs(spec: Spec, text: str) -> Iterator[Spec]:
    """Yield specifications with another shape that the message names, or with one of its numbers
    for another."""
    shapes = [
        tuple(map(int, re.findall(r"\d+", shape_text)))
        for shape_text in re.findall(r"[(\[]((?:\d+,? ?)+)[)\]]", text)
    ]
    for name, slot in spec.items():
        own_shape = tuple(dim.at(SIZE) for dim in slot.dims)
        for shape in shapes if own_shape and own_shape in shapes else ():
            if len(shape) > len(own_shape):  # a mask and what it selects from
                yield _with_changed_slot(
                    spec, name, dims=tuple(map(_dim_of_number, shape[: len(own_shape)]))
                )
            if shape != own_shape:
                yield _with_changed_slot(spec, name, dims=tuple(map(_dim_of_number, shape)))
    yield from _refilled_specs(spec, text)
    numbers = [n for n in dict.fromkeys(map(int, re.findall(r"\d+", text))) if 0 < n <= _LARGEST]
    for number in numbers:
        for name, slot in spec.items():
            matching_axes = [axis for axis, dim in enumerate(slot.dims) if dim.at(SIZE) == number]
            for replacement in (n for n in numbers if n != number) if matching_axes else ():
                for axes in {tuple(matching_axes), *((axis,) for axis in matching_axes)}:
                    dims = [
                        _dim_of_number(replacement) if axis in axes else dim
                        for axis, dim in enumerate(slot.dims)
                    ]
                    yield _with_changed_slot(spec, name, dims=tuple(dims))


def _refilled_specs(spec: Spec, text: str) -> Iterator[Spec]:
    """Yield specifications whose arguments fill a shape.

    The message names the shape and a number of elements that does not fill it.
    """
    mismatch = re.search(r"shape '\[([\d, ]+)\]' is invalid for input of size (\d+)", text)
    if not mismatch:
        return
    wanted_count, element_count = math.prod(map(int, mismatch[1].split(","))), int(mismatch[2])
    for name, slot in spec.items():
        shape = [dim.at(SIZE) for dim in slot.dims]
        for axis in reversed(range(len(shape))) if math.prod(shape) == element_count else ():
            row_elements = element_count // shape[axis]
            if wanted_count and wanted_count % row_elements == 0:
                yield _with_changed_slot(
                    spec,
                    name,
                    dims=(
                        *slot.dims[:axis],
                        _dim_of_number(wanted_count // row_elements),
                        *slot.dims[axis + 1 :],
                    ),
                )


def _retyped_specs(spec: Spec) -> Iterator[Spec]:
    """Yield specifications with a tensor of another kind: token ids, real numbers or booleans."""
    for name, slot in spec.items():
        for kind in ("ids", "normal", "bool") if slot.kind != "plain" else ():
            if kind != slot.kind:
                yield _with_changed_slot(spec, name, kind=kind, limit=slot.limit or 2)


def _unpacked_specs(spec: Spec, text: str) -> Iterator[Spec]:
    """Yield specifications with an argument that has the missing dimensions, of size 1, behind the
    batch.

    They are missing where a shape is unpacked and lacks two sizes or more.
    """
    mismatch = re.search(r"not enough values to unpack \(expected (\d), got (\d)\)", text)
    expected_rank, rank = (int(mismatch[1]), int(mismatch[2])) if mismatch else (0, 0)
    for name, slot in spec.items():
        if expected_rank - rank > 1 and len(slot.dims) == rank:
            yield _with_changed_slot(
                spec,
                name,
                dims=(*slot.dims[:1], *[Dim(1)] * (expected_rank - rank), *slot.dims[1:]),
            )


def _reranked_specs(spec: Spec) -> Iterator[Spec]:
    """Yield specifications with other shapes, first for all arguments of one shape together, then
    for each.

    Masks also become additive ones.
    """
    names_by_dims: dict[tuple[Dim, ...], list[str]] = {}
    for name, slot in spec.items():
        if slot.kind == "normal":
            names_by_dims.setdefault(slot.dims, []).append(name)
    for names in names_by_dims.values():  # as queries, keys and values are
        for dims in _common_shapes(spec[names[0]]) if len(names) > 1 else ():
            yield {**spec, **{name: replace(spec[name], dims=dims) for name in names}}
    for name, slot in spec.items():
        for dims in _common_shapes(slot):
            if dims != slot.dims:
                yield _with_changed_slot(spec, name, dims=dims)
        if slot.kind == "mask":
            yield {**spec, name: Slot("additive", (BATCH, Dim(1), LENGTH, LENGTH))}


def _common_shapes(slot: Slot) -> Iterator[tuple[Dim, ...]]:
    """Yield other shapes that an argument of its kind often has."""
    dims = slot.dims
    if not dims or slot.kind in ("grid", "bounds"):
        return
    if slot.kind in ("ids", "mask", "bool", "every other", "range"):
        yield from (
            (BATCH,),
            (BATCH, Dim(2), LENGTH),
            (BATCH, LENGTH, Dim(2)),
            (LENGTH,),
            (BATCH, Dim(1), LENGTH),
        )
        return
    side = math.isqrt(dims[-1].factor // 3)
    if len(dims) == 2 and side > 1 and dims[-1] == Dim(3 * side * side):  # patches of images, flat
        yield (dims[0], Dim(3), Dim(side), Dim(side))
    if len(dims) > 2:
        yield (dims[0], Dim(1), *dims[1:])
        yield (dims[0], Dim(2), *dims[1:])
    if len(dims) > 3:
        yield (dims[0], *dims[2:])
    if len(dims) > 4 and dims[0].of and not dims[1].of:
        # the frames of a batch, one by one
        yield (
            Dim(dims[0].factor * dims[1].factor, dims[0].of),
            *dims[2:],
        )
    width = dims[-1] if not dims[-1].of else Dim(32)
    yield from (
        (BATCH, LENGTH, width),
        (BATCH, width),
        (BATCH, LENGTH),
        (BATCH,),
        (BATCH, width, LENGTH),
    )
    yield from (
        (BATCH, width, Dim(8), Dim(8)),
        (BATCH, Dim(8), Dim(8), width),
        (BATCH, Dim(2), LENGTH, width),
    )
    yield from (
        (BATCH, Dim(HEADS), LENGTH, Dim(max(1, width.factor // HEADS))),
        (BATCH, LENGTH, LENGTH, width),
        (),
    )
    yield (LENGTH, width)


def _stretched_specs(spec: Spec) -> Iterator[Spec]:
    """Yield specifications with lengths a few times larger, then with fixed sizes twice or half as
    large."""
    for factor in (2, 4, 16):
        longer = {
            name: replace(
                slot,
                dims=tuple(
                    Dim(factor * d.factor, d.of) if d.of == "length" else d for d in slot.dims
                ),
            )
            for name, slot in spec.items()
        }
        if longer != spec:
            yield longer
    for name, slot in spec.items():
        for axis, dim in enumerate(slot.dims):
            for new_factor in (
                (2 * dim.factor, dim.factor // 2) if not dim.of and 8 <= dim.factor <= 512 else ()
            ):
                new_dims = [
                    Dim(new_factor) if (d == dim and i >= axis) else d
                    for i, d in enumerate(slot.dims)
                ]
                yield _with_changed_slot(spec, name, dims=tuple(new_dims))
