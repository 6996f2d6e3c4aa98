"""Calls with other plain arguments: flags, numbers and what has a default."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.tree import Call

_LIMIT = 10  # calls
_AXES = 4  # of a tuple that is taken for sizes: windows, strides, padding
_RATE = re.compile(r"drop|^p$")
_CHANCE = re.compile(r"drop|training|^p$|prob")  # what draws random numbers is compared elsewhere


def rearranged_calls(call: Call, function: Any, flags: frozenset[str] | None = None) -> Iterator[Call]:
    """Yield a call with each of its plain arguments changed, defaults included; the original may refuse it.

    Whole numbers become odd and even ones, so that a size that has to be divided leaves a rest; sizes by axis
    (a window of 7 by 7) become unequal. With `flags` only arguments of these names that are true or false change.
    """
    bound = bound_arguments(call, function)
    if bound is None:
        return
    signature, given = bound.signature, set(bound.arguments)
    bound.apply_defaults()
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    plain = {
        name: value
        for name, value in bound.arguments.items()
        if signature.parameters[name].kind not in variadic and not _CHANCE.search(name)
        if flags is None or (name in flags and isinstance(value, bool))
    }
    pairs = [(name, other) for name, value in plain.items() for other in _others(value, name in given)]
    for name, other in pairs[:_LIMIT]:
        yield replace(with_argument(call, signature, name, other), label=f"{name}={other!r}", beyond="arguments")


def rated_calls(call: Call, target: Target) -> Iterator[Call]:
    """Yield a call with a rate of dropout for each parameter that holds one, where the original then draws nothing.

    In evaluation callers often pass a rate of zero: whether the function itself drops does not show.
    """
    bound = bound_arguments(call, target.callable)
    if bound is None:
        return
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        if type(value) in (int, float) and 0 <= value < 1 and _RATE.search(name):
            other = with_argument(call, bound.signature, name, 0.25)
            outcome = execute(target, other, Plan(gradients=False))
            if outcome.error is None and not outcome.drew:
                yield replace(other, label=f"{name}=0.25", beyond="arguments")


def rates_around(call: Call, function: Any, values: tuple[float, ...]) -> Iterator[Call]:
    """Yield a call with rates of dropout a tenth below and above each value between 0 and 1, and its complement."""
    bound = bound_arguments(call, function)
    if bound is None:
        return
    bound.apply_defaults()
    names = [n for n, value in bound.arguments.items() if type(value) in (int, float) and _RATE.search(n)]
    sides = [side for value in values if 0 < value < 1 for side in (value, 1 - value)]
    rates = [rate for side in sides for rate in (0.9 * side, 1.1 * side) if rate < 1][:_LIMIT]
    for name in names:
        for rate in rates:
            yield replace(with_argument(call, bound.signature, name, rate), label=f"{name}={rate:.3g}")


def _others(value: Any, given: bool) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, float):
        return (value / 2,) if value else (0.5,)
    if isinstance(value, int):
        more = (value - 1,) if given and value > 2 else ()
        return (value + 1, *more, *((2 * value + 1,) if value > 1 else ()))
    if isinstance(value, tuple | list) and 1 < len(value) <= _AXES and all(type(size) is int for size in value):
        return _unequal(value)
    return ()


def _unequal(sizes: tuple[int, ...] | list[int]) -> tuple[Any, ...]:
    """Return sizes by axis of which one at a time is 1, which divides every length, or 2 where it is 1."""
    others = ([*sizes[:axis], 2 if size == 1 else 1, *sizes[axis + 1 :]] for axis, size in enumerate(sizes))
    return tuple(type(sizes)(other) for other in others)


def bound_arguments(call: Call, function: Any) -> inspect.BoundArguments | None:
    """Return the arguments of a call by the parameters of a function or module, None where they do not fit."""
    try:
        return signature_of(function).bind(*call.args, **call.kwargs)
    except (TypeError, ValueError):
        return None


def signature_of(function: Any) -> inspect.Signature:
    """Return the signature of a function, of a module's `forward`, or of the method that a module stands for.

    Raises TypeError or ValueError where there is none.
    """
    return inspect.signature(getattr(function, "signed", getattr(function, "forward", function)))


def with_argument(call: Call, signature: inspect.Signature, name: str, value: Any) -> Call:
    """Return a call with another value for one parameter, which stays positional where it was so."""
    place = list(signature.parameters).index(name)
    if place < len(call.args):
        return replace(call, args=(*call.args[:place], value, *call.args[place + 1 :]))
    return replace(call, kwargs={**call.kwargs, name: value})
