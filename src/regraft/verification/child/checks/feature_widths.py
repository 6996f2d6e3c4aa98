"""Build a part with weights anew at another width of its features, with inputs of that width."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from regraft.verification.child.call_arguments import is_mask, tensors
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.checks.code_constants import Constants
from regraft.verification.child.checks.size_variants import is_affordable, resize_dimensions
from regraft.verification.child.drivers import field_kinds
from regraft.verification.child.drivers.configuration_objects import (
    fields_of,
    is_config,
    with_fields,
)
from regraft.verification.child.drivers.field_tables import NARROWEST
from regraft.verification.child.drivers.standalone_parts import Part, accepts, with_calls
from regraft.verification.child.session import Session, build_seeded, switch_mode

WIDE = 1000  # the least number of features of a wide layer, which becomes no power of two
_LARGEST = 1 << 23  # the most parameters of a layer that is built at another width
_WIDTHS, _TARGETS = 2, 6


def widened_parts(part: Part, constants: Constants, session: Session) -> Iterator[Part]:
    """Yield a part with other widths of its features that the original accepts, while there is
    time: a large width, and those around the constants of the code.

    The widths around constants are tried for the inputs and for the results. Sizes that equal the
    width change with it; where the original does not accept that, sizes that are a multiple or a
    fraction of it change in proportion.
    """
    sizes_around = [size + step for size in constants.sizes for step in (0, -1, 1)]
    result_widths = _result_widths(part, session) if sizes_around else []
    for width in _widths(part):
        for target in _targets(width, sizes_around, result_widths):
            if session.ledger.is_late():
                return
            accepted = _accepted_part(part, width, target, session) if target != width else None
            if accepted is not None:
                yield accepted


def _targets(width: int, sizes_around: list[int], result_widths: list[int]) -> list[int]:
    """Return at most `_TARGETS` widths to try in the place of `width`: first an odd multiple of it
    above `WIDE`, then those that scale one of `result_widths` to one of `sizes_around`, then
    `sizes_around` themselves."""
    widths_for_results = [
        size * width // result_width
        for size in sizes_around
        for result_width in result_widths
        if size * width % result_width == 0
    ]
    return list(dict.fromkeys((_large_multiple(width), *widths_for_results, *sizes_around)))[
        :_TARGETS
    ]


def _large_multiple(width: int) -> int:
    """Return an odd multiple of a width above `WIDE`."""
    return width * (WIDE // width + 1 + (WIDE // width) % 2)


def _accepted_part(part: Part, width: int, target: int, session: Session) -> Part | None:
    """Return the first part with the width `target` that is small and that the original accepts;
    None where there is none. First sizes that equal the width change, then related sizes, too: for
    the large width only widths, where that is accepted, else all sizes, which code may compare with
    its constants."""
    size_choices = [{width: target}, _proportional_sizes(part, width, target)]
    scaled_parts = [
        _resize_part(part, sizes, features)
        for sizes in size_choices
        if all(is_affordable(call, sizes) for call in part.calls)
        for features in ((True, False) if target == _large_multiple(width) else (False, True))
    ]
    accepted = (
        scaled_part
        for scaled_part in scaled_parts
        if _is_small(scaled_part, session) and accepts(scaled_part, session)
    )
    return next(accepted, None)


def _widths(part: Part) -> list[int]:
    """Return at most `_WIDTHS` last and second dimensions of floating point inputs that an argument
    of the constructor also has, from NARROWEST on."""
    argument_sizes = set(_integer_arguments(part).values())
    feature_tensors = [
        tensor for call in part.calls for tensor in tensors(call) if _has_features(tensor)
    ]
    widths = dict.fromkeys(
        dim for tensor in feature_tensors for dim in (tensor.shape[-1], tensor.shape[1])
    )
    return [width for width in widths if width in argument_sizes and width >= NARROWEST][:_WIDTHS]


def _result_widths(part: Part, session: Session) -> list[int]:
    """Return at most `_WIDTHS` last dimensions of the results of a part's original on its last
    call; [] where it is not built or does not run."""
    try:
        model = switch_mode(build_seeded(0, part.build, session.original), False)
        outcome = execute(Target(model), part.calls[-1], Plan(gradients=False))
    except Exception:  # noqa: BLE001 - arbitrary constructors; then it has no results
        return []
    tensors = [value for value in outcome.outputs.values() if _has_features(value)]
    return list(dict.fromkeys(tensor.shape[-1] for tensor in tensors if tensor.shape[-1] > 0))[
        :_WIDTHS
    ]


def _has_features(value: Any) -> bool:
    """Return whether a value is a tensor of real numbers with two dimensions or more, and is no
    mask."""
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dim() > 1
        and not is_mask(value)
    )


def _integer_arguments(part: Part) -> dict[str, int]:
    """Return by name the integers among the arguments of a part's constructor, fields of
    configurations included."""
    integer_by_name: dict[str, int] = {}
    for name, value in part.arguments.items():
        fields = fields_of(value) if is_config(value) else {name: value}
        integer_by_name.update(
            (field, number) for field, number in fields.items() if type(number) is int
        )
    return integer_by_name


def _proportional_sizes(part: Part, width: int, target: int) -> dict[int, int]:
    """Return the new sizes, by old size, of the width and of the named sizes, from NARROWEST on,
    that are a multiple or a fraction of it; sizes without a whole proportional number are left
    out."""
    named_sizes = {
        number
        for name, number in _integer_arguments(part).items()
        if field_kinds.is_size(name) and number >= NARROWEST
    }
    related_sizes = {number for number in named_sizes if number % width == 0 or width % number == 0}
    return {
        number: number * target // width
        for number in related_sizes | {width}
        if number * target % width == 0
    }


def _resize_part(part: Part, sizes: dict[int, int], features: bool) -> Part:
    """Return a part in which sizes that are keys of `sizes` have their new values, in the
    constructor's arguments and in the calls; with `features` only last dimensions of the calls
    change."""
    arguments = {
        name: _resize_argument(name, value, sizes) for name, value in part.arguments.items()
    }
    return with_calls(
        replace(part, arguments=arguments),
        lambda call: resize_dimensions(call, sizes, features=features),
    )


def _resize_argument(name: str, value: Any, sizes: dict[int, int]) -> Any:
    """Return an argument with other sizes: an integer that is a key of `sizes`, or a copy of a
    configuration with such fields; any other argument as it is."""
    if is_config(value):
        fields = {
            field: number
            for field, number in fields_of(value).items()
            if type(number) is int and number in sizes
        }
        return with_fields(value, {field: sizes[number] for field, number in fields.items()})
    return sizes.get(value, value) if type(value) is int else value


def _is_small(part: Part, session: Session) -> bool:
    """Return whether the original of a part has at most `_LARGEST` parameters, counted without
    allocating them; True where they cannot be counted so."""
    try:
        with torch.device("meta"):
            model = part.build(session.original)
    except Exception:  # noqa: BLE001 - some constructors compute with values; those are built for real
        return True
    return bool(sum(parameter.numel() for parameter in model.parameters()) <= _LARGEST)
