"""Find inputs that a model accepts: guess, run, read the error, guess better.

The search keeps the guess that came furthest, counted in operations of torch before the error, and tries what the
error message suggests: other sizes where it names two, other ranks, arguments that were missing, other types.
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

SIZE = (3, 7)  # told apart from each other and from common sizes in an error message
RUNS = 120
SECONDS = 6.0
_LARGEST = 4096  # dimension
_LONGEST = 256  # that a model alone takes
_ELEMENTS = 1 << 24  # of all inputs together; a search of the largest would take the memory
_RANK = re.compile(
    r"[Dd]imension|unpack(?! non-iterable NoneType)|\dD|\d-D|dims|too many indices|index \d+ is out of bounds|permute|"
    r"tuple index|is invalid for input of size|must have shape|\dd[- ]tensor|rank|einsum|subscript",
)
_TYPE = re.compile(
    r"scalar type|dtype|must be long|Expected tensor for argument|be of type|float|LongTensor|used as indices must"
)
_ATTRIBUTE = re.compile(r"'types.SimpleNamespace' object has no attribute '(\w+)'")


class Counter(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Counts the operations of torch that run inside it: how far something came."""

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
    """One run: how many operations it did, the error that ended it, the size of its inputs, and its seconds."""

    spec: Spec
    progress: int
    error: BaseException | None
    size: tuple[int, int] = SIZE
    took: float = 0.0

    @property
    def text(self) -> str:
        return f"{type(self.error).__name__}: {' '.join(str(self.error).split())}"

    @property
    def rank(self) -> tuple[int, int]:
        """How far it came: an operation that likes the types of its arguments came further than one that does not, and
        what only misses an attribute of an object further than either.
        """
        return self.progress, 2 if _ATTRIBUTE.search(self.text) else int(not _TYPE.search(self.text))


def attempt(model: Any, spec: Spec, size: tuple[int, int] = SIZE) -> Attempt:
    """Run the model once on what a specification gives at one size."""
    start = time.process_time()
    with Counter() as counter:
        began = model.register_forward_pre_hook(counter.reset)  # what copies the arguments is no progress
        try:
            error = execute(Target(model), make(spec, size, 0), Plan(gradients=False)).error
        finally:
            began.remove()
    return Attempt(spec, counter.count, error, size, time.process_time() - start)


def search(model: Any, start: Spec, optional: Spec, seconds: float = SECONDS) -> Attempt:
    """Return the first attempt without error, or the one that came furthest.

    `optional` are parameters that may be given where the model misses something. Larger inputs are left alone that
    would take a quarter of the time, if it grows with their square.
    """
    deadline = time.process_time() + seconds
    order = itertools.count()
    best = attempt(model, start)
    heap = [(_last(best), next(order), best)]
    seen, runs = {_key(start)}, 0
    while heap and best.error is not None:
        _, _, node = heapq.heappop(heap)
        again = False
        for spec in _suggestions(node, optional):
            elements = _elements(spec)
            growth = elements / max(_elements(node.spec), 1)
            long = growth > 1 and node.took * growth**2 > seconds / 4
            if long and not again:  # what runs first is slow for once
                again = True
                node = replace(node, took=min(node.took, attempt(model, node.spec).took))
                long = node.took * growth**2 > seconds / 4
            if long or elements > _ELEMENTS or _key(spec) in seen:
                continue
            if runs >= RUNS or time.process_time() > deadline:
                return best
            seen.add(_key(spec))
            runs += 1
            tried = attempt(model, spec)
            if tried.error is None:
                return tried
            best = max(best, tried, key=lambda one: one.rank)
            heapq.heappush(heap, (_last(tried), next(order), tried))
            if tried.rank > node.rank:
                heapq.heappush(heap, (_last(node), next(order), node))  # the rest of its suggestions, later
                break
    return best


def _last(one: Attempt) -> tuple[int, int]:
    """A key that puts what came furthest first."""
    progress, fit = one.rank
    return -progress, -fit


def mended(failed: Attempt, known: Spec, config: Any) -> Spec | None:
    """Where the error says what is missing exactly, an argument or tokens, return inputs that have it.

    So it may be for an attribute of an object, and for the length that alone fills a shape. Tokens that stand for
    images, sound or videos have to be as many as there are features. Source: the checks of models that put features in
    the place of tokens.
    """
    spec, text = failed.spec, failed.text
    asked = re.search(r"`(\w+)` is missing", text)
    if asked and asked[1] in known and asked[1] not in spec:
        marks = "input_ids" in spec and asked[1].endswith("type_ids")
        return {**spec, asked[1]: replace(spec["input_ids"], kind="marks") if marks else known[asked[1]]}
    lacking = _ATTRIBUTE.search(text)
    if lacking:
        return _with_attribute(spec, lacking[1])
    longer = _of_length(failed) or _dividable(failed)
    if longer is not None:
        return longer
    found = re.search(r"(\w+) features and \w+ tokens do not match\D*(\d+)\D*(\d+)", text)
    names = (f"{found[1].lower()}_token_{end}" for end in ("id", "index")) if found else ()
    token = next((value for name in names if isinstance(value := getattr(config, name, None), int)), None)
    if not found or token is None or "input_ids" not in spec:
        return None
    there, wanted = int(found[2]), int(found[3])
    if there == wanted:  # what is counted are the numbers of all features
        wanted //= getattr(getattr(config, "text_config", config), "hidden_size", 1)
    elif there:
        return None
    count, rest = divmod(wanted, failed.size[0])
    return with_places(spec, token, count) if not rest and 0 < count <= _LARGEST else None


def _of_length(failed: Attempt) -> Spec | None:
    """Where each sample is given a shape with other elements than it has, let the length be the one that fills it."""
    batch, length = failed.size
    found = re.search(rf"shape '\[(?:-1|{batch}), ([\d, ]+)\]' is invalid for input of size (\d+)", failed.text)
    if not found or not int(found[2]):
        return None
    fixed, rest = divmod(math.prod(map(int, found[1].split(","))) * batch * length, int(found[2]))
    if rest or fixed == length or not 0 < fixed <= _LONGEST:
        return None
    return {
        name: replace(slot, dims=tuple(Dim(d.factor * fixed) if d.of == "length" else d for d in slot.dims))
        for name, slot in failed.spec.items()
    }


def _dividable(failed: Attempt) -> Spec | None:
    """Where a length was divided down to nothing, let it be four times as long."""
    if not re.search(r"shape '\[(?:-?\d+, )*0\b", failed.text):
        return None
    lengths = {slot.dims[1] for slot in failed.spec.values() if len(slot.dims) > 2}
    longer = {dim: Dim(4 * dim.factor, dim.of) for dim in lengths if 4 * dim.at(failed.size) <= _LONGEST}
    if not longer:
        return None
    return {
        name: replace(slot, dims=tuple(longer.get(dim, dim) for dim in slot.dims))
        for name, slot in failed.spec.items()
    }


def _with_attribute(spec: Spec, attribute: str) -> Spec | None:
    """Give the objects of a specification an attribute with a value that its name suggests."""
    try:
        more = {attribute: value_for(attribute)}
    except LookupError:
        return None
    objects = {name: vars(slot.value) for name, slot in spec.items() if isinstance(slot.value, SimpleNamespace)}
    return {**spec, **{name: Slot("plain", value=SimpleNamespace(**had, **more)) for name, had in objects.items()}}


def unlike_layers(failed: Attempt) -> bool:
    """Whether a layer was given another width than it takes, which is not that of any input."""
    found = re.search(r"shapes cannot be multiplied \(\d+x(\d+) and \d+x\d+\)", failed.text)
    widths = {dim.at(failed.size) for slot in failed.spec.values() for dim in slot.dims}
    return found is not None and int(found[1]) not in widths


def by_batch(spec: Spec) -> Iterator[Spec]:
    """Where a dimension is a multiple of the batch at the size of the search, let it follow the batch."""
    for name, slot in spec.items():
        for axis, dim in enumerate(slot.dims):
            times, rest = divmod(dim.factor, SIZE[0])
            if not (dim.of or rest) and times > 1:
                yield _with(spec, name, dims=(*slot.dims[:axis], Dim(times, "batch"), *slot.dims[axis + 1 :]))


def _elements(spec: Spec) -> int:
    return sum(math.prod(dim.at(SIZE) for dim in slot.dims) for slot in spec.values())


def _key(spec: Spec) -> str:
    return repr(sorted(spec.items()))


def _suggestions(failed: Attempt, optional: Spec) -> Iterator[Spec]:
    spec, text = failed.spec, failed.text
    exact = mended(failed, optional, None)
    if exact is not None:
        yield exact
    named = [name for name in re.findall(r"\w+", text) if name in optional and name not in spec]
    if named and "unexpected" not in text:
        if "missing" in text:
            yield {**spec, **{name: optional[name] for name in named}}
        yield from ({**spec, name: optional[name]} for name in dict.fromkeys(named))
    missing = re.search("None|UnboundLocal|missing|specify", text)
    if missing and failed.error is not None:
        yield from ({**spec, name: optional[name]} for name in _read(failed.error) if name in {*optional} - {*spec})
    yield from _of_width(failed, optional)
    for name, slot in spec.items():
        yield from ({**spec, name: other} for other in described.asked(text, slot))
    yield from _resized(spec, text)
    if _TYPE.search(text):
        yield from _retyped(spec)
    if "out of range" in text:
        yield from (
            _with(spec, name, value=1) for name, slot in spec.items() if type(slot.value) is int and slot.value > 1
        )
    if "out of range in self" in text or "index out of" in text:
        yield from (_with(spec, name, limit=2) for name, slot in spec.items() if slot.kind == "ids" and slot.limit > 2)
    if _RANK.search(text):
        yield from _unpacked(spec, text)
        yield from _reranked(spec)
    if missing:
        yield from ({**spec, name: slot} for name, slot in optional.items() if name not in spec)
    mentioned = [name for name in spec if re.search(rf"\b{name}\b", text)]
    yield from ({key: slot for key, slot in spec.items() if key != name} for name in mentioned if name in optional)
    yield from _stretched(spec)
    yield from _reranked(spec)


def _of_width(failed: Attempt, optional: Spec) -> Iterator[Spec]:
    """Where a layer takes another width than it was given, yield what the caller left out, in that width.

    Cross-attention without the states of an encoder attends to its own, which may have another width.
    """
    found = re.search(r"shapes cannot be multiplied \(\d+x\d+ and (\d+)x\d+\)", failed.text)
    if found and failed.error is not None:
        for name in _read(failed.error):
            if name in {*optional} - {*failed.spec} and optional[name].dims:
                slot = optional[name]
                yield {**failed.spec, name: replace(slot, dims=(*slot.dims[:-1], Dim(int(found[1]))))}


def _read(error: BaseException) -> Iterator[str]:
    """Yield the words of the statements that an error came through, innermost first."""
    for _, text in statements(error):
        yield from dict.fromkeys(re.findall(r"\w+", text))


def _with(spec: Spec, name: str, **changes: Any) -> Spec:
    return {**spec, name: replace(spec[name], **changes)}


def _symbol(number: int) -> Dim:
    """The dimension that a number of an error message means, at the size of the search."""
    return {SIZE[0]: BATCH, SIZE[1]: LENGTH}.get(number, Dim(number))


def _resized(spec: Spec, text: str) -> Iterator[Spec]:
    """Where a dimension is one of the numbers of the message, yield the others in its place."""
    shapes = [tuple(map(int, re.findall(r"\d+", one))) for one in re.findall(r"[(\[]((?:\d+,? ?)+)[)\]]", text)]
    for name, slot in spec.items():
        now = tuple(dim.at(SIZE) for dim in slot.dims)
        for shape in shapes if now and now in shapes else ():
            if len(shape) > len(now):  # a mask and what it selects from
                yield _with(spec, name, dims=tuple(map(_symbol, shape[: len(now)])))
            if shape != now:
                yield _with(spec, name, dims=tuple(map(_symbol, shape)))
    yield from _refilled(spec, text)
    numbers = [n for n in dict.fromkeys(map(int, re.findall(r"\d+", text))) if 0 < n <= _LARGEST]
    for number in numbers:
        for name, slot in spec.items():
            here = [axis for axis, dim in enumerate(slot.dims) if dim.at(SIZE) == number]
            for other in (n for n in numbers if n != number) if here else ():
                for axes in {tuple(here), *((axis,) for axis in here)}:
                    dims = [_symbol(other) if axis in axes else dim for axis, dim in enumerate(slot.dims)]
                    yield _with(spec, name, dims=tuple(dims))


def _refilled(spec: Spec, text: str) -> Iterator[Spec]:
    """Where the message names a shape and a number of elements that does not fill it, yield arguments that do."""
    found = re.search(r"shape '\[([\d, ]+)\]' is invalid for input of size (\d+)", text)
    if not found:
        return
    wanted, given = math.prod(map(int, found[1].split(","))), int(found[2])
    for name, slot in spec.items():
        shape = [dim.at(SIZE) for dim in slot.dims]
        for axis in reversed(range(len(shape))) if math.prod(shape) == given else ():
            rest = given // shape[axis]
            if wanted and wanted % rest == 0:
                yield _with(spec, name, dims=(*slot.dims[:axis], _symbol(wanted // rest), *slot.dims[axis + 1 :]))


def _retyped(spec: Spec) -> Iterator[Spec]:
    for name, slot in spec.items():
        for kind in ("ids", "normal", "bool") if slot.kind != "plain" else ():
            if kind != slot.kind:
                yield _with(spec, name, kind=kind, limit=slot.limit or 2)


def _unpacked(spec: Spec, text: str) -> Iterator[Spec]:
    """Where a shape lacks two sizes or more, let an argument that has as many have the others behind the batch."""
    found = re.search(r"not enough values to unpack \(expected (\d), got (\d)\)", text)
    wanted, given = (int(found[1]), int(found[2])) if found else (0, 0)
    for name, slot in spec.items():
        if wanted - given > 1 and len(slot.dims) == given:
            yield _with(spec, name, dims=(*slot.dims[:1], *[Dim(1)] * (wanted - given), *slot.dims[1:]))


def _reranked(spec: Spec) -> Iterator[Spec]:
    alike: dict[tuple[Dim, ...], list[str]] = {}
    for name, slot in spec.items():
        if slot.kind == "normal":
            alike.setdefault(slot.dims, []).append(name)
    for names in alike.values():  # as queries, keys and values are
        for dims in _ranks(spec[names[0]]) if len(names) > 1 else ():
            yield {**spec, **{name: replace(spec[name], dims=dims) for name in names}}
    for name, slot in spec.items():
        for dims in _ranks(slot):
            if dims != slot.dims:
                yield _with(spec, name, dims=dims)
        if slot.kind == "mask":
            yield {**spec, name: Slot("additive", (BATCH, Dim(1), LENGTH, LENGTH))}


def _ranks(slot: Slot) -> Iterator[tuple[Dim, ...]]:
    """Other shapes that an argument of its kind often has."""
    dims = slot.dims
    if not dims or slot.kind in ("grid", "bounds"):
        return
    if slot.kind in ("ids", "mask", "bool", "every other", "range"):
        yield from ((BATCH,), (BATCH, Dim(2), LENGTH), (BATCH, LENGTH, Dim(2)), (LENGTH,), (BATCH, Dim(1), LENGTH))
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
        yield (Dim(dims[0].factor * dims[1].factor, dims[0].of), *dims[2:])  # the frames of a batch, one by one
    width = dims[-1] if not dims[-1].of else Dim(32)
    yield from ((BATCH, LENGTH, width), (BATCH, width), (BATCH, LENGTH), (BATCH,), (BATCH, width, LENGTH))
    yield from ((BATCH, width, Dim(8), Dim(8)), (BATCH, Dim(8), Dim(8), width), (BATCH, Dim(2), LENGTH, width))
    yield from ((BATCH, Dim(HEADS), LENGTH, Dim(max(1, width.factor // HEADS))), (BATCH, LENGTH, LENGTH, width), ())
    yield (LENGTH, width)


def _stretched(spec: Spec) -> Iterator[Spec]:
    """Lengths and fixed sizes of all arguments together, a few times larger or smaller."""
    for factor in (2, 4, 16):
        longer = {
            name: replace(slot, dims=tuple(Dim(factor * d.factor, d.of) if d.of == "length" else d for d in slot.dims))
            for name, slot in spec.items()
        }
        if longer != spec:
            yield longer
    for name, slot in spec.items():
        for axis, dim in enumerate(slot.dims):
            for other in (2 * dim.factor, dim.factor // 2) if not dim.of and 8 <= dim.factor <= 512 else ():
                same = [Dim(other) if (d == dim and i >= axis) else d for i, d in enumerate(slot.dims)]
                yield _with(spec, name, dims=tuple(same))
