"""Layers with weights at another width: built anew, with inputs of that width."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from regraft.verify.child.checks.constants import Constants
from regraft.verify.child.checks.sizes import is_affordable, with_sizes
from regraft.verify.child.drivers import tiny
from regraft.verify.child.drivers.alone import Part, accepts, fields_of, is_config, with_calls, with_fields
from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.session import Session, in_mode, seeded
from regraft.verify.child.tree import is_mask, tensors

WIDE = 1000  # at least so many features, and no power of two
_LARGEST = 1 << 23  # parameters of a layer that is built so wide
_WIDTHS, _TARGETS = 2, 6


def widened_parts(part: Part, constants: Constants, session: Session) -> Iterator[Part]:
    """Yield a part with other widths of its features: a large one, and those around the constants of the code, which
    its results have then, or its inputs.

    What is as wide, and then also what is a multiple or a fraction of it, becomes as much wider.
    """
    around = [size + step for size in constants.sizes for step in (0, -1, 1)]
    results = _widths_of_results(part, session) if around else []
    for width in _widths(part):
        wide = width * (WIDE // width + 1 + (WIDE // width) % 2)
        by_result = [size * width // result for size in around for result in results if size * width % result == 0]
        for target in list(dict.fromkeys((wide, *by_result, *around)))[:_TARGETS]:
            if session.ledger.late():
                return
            if target == width:
                continue
            choices = [{width: target}, _proportional(part, width, target)]
            affordable = [sizes for sizes in choices if all(is_affordable(call, sizes) for call in part.calls)]
            ways = [(sizes, features) for sizes in affordable for features in (False, True)]
            scaled = [_with_sizes(part, sizes, features) for sizes, features in ways]
            accepted = next((other for other in scaled if _is_small(other, session) and accepts(other, session)), None)
            if accepted is not None:
                yield accepted


def _widths(part: Part) -> list[int]:
    """Return the last dimensions of floating inputs that an argument of the constructor also has."""
    given = set(_sizes(part).values())
    wide = [tensor for call in part.calls for tensor in tensors(call) if _is_wide(tensor)]
    widths = dict.fromkeys(dim for tensor in wide for dim in (tensor.shape[-1], tensor.shape[1]))
    return [width for width in widths if width in given and width >= tiny.NARROWEST][:_WIDTHS]


def _widths_of_results(part: Part, session: Session) -> list[int]:
    """Return the last dimensions of what the original of a part returns; none where it does not run."""
    try:
        model = in_mode(seeded(0, part.build, session.original), False)
        outcome = execute(Target(model), part.calls[-1], Plan(gradients=False))
    except Exception:  # noqa: BLE001 - arbitrary constructors; then it has no results
        return []
    tensors = [value for value in outcome.outputs.values() if _is_wide(value)]
    return list(dict.fromkeys(tensor.shape[-1] for tensor in tensors if tensor.shape[-1] > 0))[:_WIDTHS]


def _is_wide(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() and tensor.dim() > 1 and not is_mask(tensor))


def _sizes(part: Part) -> dict[str, int]:
    """Return the whole numbers among the arguments of a part's constructor, fields of configurations included."""
    found: dict[str, int] = {}
    for name, value in part.arguments.items():
        fields = fields_of(value) if is_config(value) else {name: value}
        found.update((key, number) for key, number in fields.items() if type(number) is int)
    return found


def _proportional(part: Part, width: int, target: int) -> dict[int, int]:
    """Return the new sizes of whatever is as wide, or a multiple or fraction of that."""
    named = {number for name, number in _sizes(part).items() if tiny.is_size(name) and number >= tiny.NARROWEST}
    related = {number for number in named if number % width == 0 or width % number == 0}
    return {number: number * target // width for number in related | {width} if number * target % width == 0}


def _with_sizes(part: Part, sizes: dict[int, int], features: bool) -> Part:
    arguments = {name: _resized(name, value, sizes) for name, value in part.arguments.items()}
    return with_calls(replace(part, arguments=arguments), lambda call: with_sizes(call, sizes, features=features))


def _resized(name: str, value: Any, sizes: dict[int, int]) -> Any:
    if is_config(value):
        fields = {key: number for key, number in fields_of(value).items() if type(number) is int and number in sizes}
        return with_fields(value, {key: sizes[number] for key, number in fields.items()})
    return sizes.get(value, value) if type(value) is int else value


def _is_small(part: Part, session: Session) -> bool:
    """Whether the original of a part has not too many parameters; they are counted without being allocated."""
    try:
        with torch.device("meta"):
            model = part.build(session.original)
    except Exception:  # noqa: BLE001 - some constructors compute with values; those are built for real
        return True
    return bool(sum(parameter.numel() for parameter in model.parameters()) <= _LARGEST)
