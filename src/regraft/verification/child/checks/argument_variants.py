"""Make variants of a recorded call in which a plain argument (a flag, a number, a text) has another
value."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.call_execution import execute
from regraft.verification.child.call_outcomes import Plan, Target
from regraft.verification.child.checks.arguments_in_source import numbers_around, with_read_keywords
from regraft.verification.child.drivers.field_tables import CHANCE_FIELDS
from regraft.verification.child.drivers.opposite_numbers import opposite_numbers

_LIMIT = 10  # the most calls, or rates, that are made of one call
_OPPOSITES = 6  # the most calls with a negative number, or zero
_AXES = 4  # the longest tuple that is taken for sizes by axis: windows, strides, padding
_WORD = re.compile(r"[A-Za-z][\w-]*")
_LITERAL = re.compile(r"\bLiteral\[([^\[\]]*)\]")
_RATE = re.compile(r"drop|^p$")


def varied_argument_calls(
    call: Call, function: Any, flags: frozenset[str] | None = None
) -> Iterator[Call]:
    """Yield copies of a call in each of which another value stands for one of its plain arguments,
    defaults included, at most `_LIMIT` copies, labelled "NAME=VALUE"; the original may refuse them.
    Yield nothing where the arguments do not fit `function`.

    Texts become the words that the function's own code holds, such as those it compares modes
    with. Integers become odd and even, so that a size that has to be divided leaves a remainder;
    sizes by axis (a window of 7 by 7) become unequal. Arguments for modes and rates of chance stay;
    with `flags` only boolean arguments of these names change.
    """
    bound = bound_arguments(call, function)
    if bound is None:
        return
    signature, passed_names = bound.signature, set(bound.arguments)
    bound.apply_defaults()
    pairs = [
        (name, alternative)
        for name, value in _values_to_vary(bound, flags).items()
        for alternative in other_plain_values(
            signature.parameters[name], value, function, is_passed=name in passed_names
        )
    ]
    pairs.sort(key=lambda pair: isinstance(pair[1], str))  # of texts most are no words to pass
    for name, alternative in pairs[:_LIMIT]:
        yield replace(
            with_argument(call, signature, name, alternative),
            label=f"{name}={alternative!r}",
            beyond="arguments",
        )


def _values_to_vary(bound: inspect.BoundArguments, flags: frozenset[str] | None) -> dict[str, Any]:
    """Return by name the bound values for which others may stand, of booleans among `flags` only
    where these are not None: not those of modes, and not the rates of chance, which
    `calls_with_rates_around` varies."""
    variadic_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: value
        for name, value in bound.arguments.items()
        if bound.signature.parameters[name].kind not in variadic_kinds
        and not (name in CHANCE_FIELDS or "training" in name)
        if flags is None or (name in flags and isinstance(value, bool))
    }


def other_plain_values(
    parameter: inspect.Parameter, value: Any, function: Any, *, is_passed: bool = False
) -> tuple[Any, ...]:
    """Return values to replace the argument `value` of a parameter of a function, () where it is
    neither a number, a flag, a text, a member of an enumeration nor sizes by axis; `is_passed`
    tells that the call passes it."""
    if isinstance(value, Enum):
        return tuple(member for member in type(value) if member is not value)
    if isinstance(value, str):
        words = _words_in(function) | set(literal_choices(parameter.annotation))
        return tuple(sorted(words - {value}))
    usual_values = _other_values(value, is_passed)
    if type(value) not in (int, float):
        return usual_values
    compared = numbers_around(method_of(function), parameter.name)
    like = tuple(float(number) if isinstance(value, float) else number for number in compared)
    alternatives = dict.fromkeys((*usual_values[:1], *like, *usual_values))
    return tuple(number for number in alternatives if number != value)


def literal_choices(annotation: Any) -> tuple[Any, ...]:
    """Return the values of the `Literal[...]` in an annotation, or in its text; () for none."""
    match = _LITERAL.search(str(annotation))
    if match is None:
        return ()
    try:
        return tuple(ast.literal_eval(f"({match[1]},)"))
    except (ValueError, SyntaxError):
        return ()  # members of enumerations


def opposite_calls(call: Call, function: Any) -> Iterator[Call]:
    """Yield a call with each of its plain numbers, defaults included, negative or zero, at most
    `_OPPOSITES` calls; the original may refuse them. Yield nothing where the arguments do not
    fit."""
    bound = bound_arguments(call, function)
    if bound is None:
        return
    bound.apply_defaults()
    pairs = (
        (name, number)
        for name, value in bound.arguments.items()
        for number in opposite_numbers(name, value)
    )
    for name, number in itertools.islice(pairs, _OPPOSITES):
        yield replace(
            with_argument(call, bound.signature, name, number),
            label=f"{name}={number!r}",
            beyond="arguments",
        )


def calls_with_zero(call: Call, function: Any, names: frozenset[str]) -> Iterator[Call]:
    """Yield a call with zero for each integer, defaults included, of a parameter among `names`,
    whose size or sign does not matter; nothing where the arguments do not fit."""
    bound = bound_arguments(call, function)
    if bound is None:
        return
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        if name in names and type(value) is int and value:
            changed_call = with_argument(call, bound.signature, name, 0)
            yield replace(changed_call, label=f"{name}=0", beyond="arguments")


def calls_with_dropout_rate(call: Call, target: Target) -> Iterator[Call]:
    """Yield a call with the rate 0.25 for each numeric argument from 0 to below 1, defaults
    included, whose name is that of a dropout rate (contains "drop" or is "p"), where the original
    then runs and draws nothing.

    In evaluation callers often pass a rate of zero, which hides a function that drops by itself.
    """
    bound = bound_arguments(call, target.callable)
    if bound is None:
        return
    bound.apply_defaults()
    for name, value in bound.arguments.items():
        if type(value) in (int, float) and 0 <= value < 1 and _RATE.search(name):
            rated_call = with_argument(call, bound.signature, name, 0.25)
            outcome = execute(target, rated_call, Plan(gradients=False))
            if outcome.error is None and not outcome.drew:
                yield replace(rated_call, label=f"{name}=0.25", beyond="arguments")


def calls_with_rates_around(call: Call, function: Any, values: tuple[float, ...]) -> Iterator[Call]:
    """Yield a call with dropout rates a tenth below and above each of `values` between 0 and 1 and
    its complement, at most `_LIMIT` rates, for every argument, defaults included, whose name
    contains "drop" or is "p"; nothing where the arguments do not fit. Unlike those of other makers,
    the calls are not marked as `beyond`."""
    bound = bound_arguments(call, function)
    if bound is None:
        return
    bound.apply_defaults()
    names = [
        name
        for name, value in bound.arguments.items()
        if type(value) in (int, float) and _RATE.search(name)
    ]
    centres = [centre for value in values if 0 < value < 1 for centre in (value, 1 - value)]
    rates = [rate for centre in centres for rate in (0.9 * centre, 1.1 * centre) if rate < 1]
    for name in names:
        for rate in rates[:_LIMIT]:
            changed_call = with_argument(call, bound.signature, name, rate)
            yield replace(changed_call, label=f"{name}={rate:.3g}")


def _words_in(function: Any) -> set[str]:
    """Return the words among the constants of a function, or of a module's `forward`."""
    code = getattr(inspect.unwrap(method_of(function)), "__code__", None)
    constants = code.co_consts if code is not None else ()
    nested = [part for part in constants if isinstance(part, tuple | frozenset)]
    texts = itertools.chain(constants, *nested)
    return {text for text in texts if isinstance(text, str) and _WORD.fullmatch(text)}


def _other_values(value: Any, is_passed: bool) -> tuple[Any, ...]:
    """Return values to replace an argument, () where it is neither a number, a flag nor sizes by
    axis; an integer above 2 that the call passes (`is_passed`) may also become smaller by 1."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, float):
        return (value / 2,) if value else (0.5,)
    if isinstance(value, int):
        smaller = (value - 1,) if is_passed and value > 2 else ()
        return (value + 1, *smaller, *((2 * value + 1,) if value > 1 else ()))
    if (
        isinstance(value, tuple | list)
        and 1 < len(value) <= _AXES
        and all(type(size) is int for size in value)
    ):
        return _unequal_sizes(value)
    return ()


def _unequal_sizes(sizes: tuple[int, ...] | list[int]) -> tuple[Any, ...]:
    """Return copies of the sizes by axis, each with another axis replaced by 1, which divides every
    length, or by 2 where it is 1."""
    variants = (
        [*sizes[:axis], 2 if size == 1 else 1, *sizes[axis + 1 :]]
        for axis, size in enumerate(sizes)
    )
    return tuple(type(sizes)(variant) for variant in variants)


def bound_arguments(call: Call, function: Any) -> inspect.BoundArguments | None:
    """Return the arguments of a call bound to the parameters of a function or module; None where
    they do not fit."""
    try:
        return signature_of(function).bind(*call.args, **call.kwargs)
    except (TypeError, ValueError):
        return None


def signature_of(function: Any) -> inspect.Signature:
    """Return the signature of the method that a call of the object runs, with the keywords that
    it reads from its `**kwargs`: of its attribute `signed` (set by a wrapping module), else of its
    `forward`, else of the object itself. Raises TypeError or ValueError where there is none."""
    method = method_of(function)
    return with_read_keywords(inspect.signature(method), method)


def method_name(function: Any) -> str:
    """Return the name of the function or method that a call of the object runs, "" where it has
    none."""
    return str(getattr(inspect.unwrap(method_of(function)), "__name__", ""))


def method_of(function: Any) -> Any:
    """Return the object's attribute `signed`, the method that a wrapping module calls, else its
    `forward`, else the object itself."""
    return getattr(function, "signed", getattr(function, "forward", function))


def with_argument(call: Call, signature: inspect.Signature, name: str, value: Any) -> Call:
    """Return a copy of a call with `value` for one parameter; a positional argument stays
    positional, any other becomes or stays a keyword. Raises ValueError where the signature lacks
    the name."""
    position = list(signature.parameters).index(name)
    if position < len(call.args):
        return replace(call, args=(*call.args[:position], value, *call.args[position + 1 :]))
    return replace(call, kwargs={**call.kwargs, name: value})


def named_arguments(call: Call, function: Any) -> Mapping[str, Any]:
    """Return a call's arguments by the names of their parameters; those without a name get a
    number."""
    try:
        names = list(signature_of(function).parameters)
    except (TypeError, ValueError):
        names = []
    names += [f"argument {number}" for number in range(len(names), len(call.args))]
    return {**dict(zip(names, call.args, strict=False)), **call.kwargs}
