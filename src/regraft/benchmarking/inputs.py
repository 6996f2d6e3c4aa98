"""The calls of a model that a benchmark times, from the inputs that the user states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regraft.benchmarking.steps import Call


def calls_of(inputs: Any) -> tuple[Call, ...]:
    """Return the calls of a model: one for each element of a list, or a single call for any other
    input.

    A call is a dictionary of keyword arguments, a tuple of positional ones, or a single positional
    one.
    """
    return tuple(
        _call(call_input) for call_input in (inputs if isinstance(inputs, list) else [inputs])
    )


def _call(call_input: Any) -> Call:
    """Return the positional and keyword arguments of a call."""
    if isinstance(call_input, Mapping):
        return (), dict(call_input)
    return (call_input if isinstance(call_input, tuple) else (call_input,)), {}
