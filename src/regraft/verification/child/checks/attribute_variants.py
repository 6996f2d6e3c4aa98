"""Make variants of a recorded call before which a plain attribute of the module gets another value:
a temperature, a scale, a switch."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.drivers.opposite_numbers import opposite_numbers

ATTRIBUTES = "attributes"
# attributes that modes, rates or the module itself set
_SET_OTHERWISE = re.compile(r"^_|training|drop|^p$")
_OF_CLASS = object()  # stands for an attribute that a module does not have itself
# a label assigns one attribute or several, for a call that may have other arguments, too
_ARGUMENTS, _NEXT = " with the argument ", re.compile(r" and (?=self\.\w+ = )")
_ASSIGNMENT = re.compile(r"self\.(\w+) = (.*)")
_PAIRS = 6  # the most pairs of attributes that change together
# the functions that labels assign, by their names
_FUNCTIONS = {"torch.tanh": torch.tanh}
_FUNCTION_TYPES = (FunctionType, BuiltinFunctionType)


def read_attributes(expressions: Iterable[ast.expr]) -> frozenset[str]:
    """Return the names of the attributes of `self` that are among some expressions."""
    return frozenset(
        node.attr
        for node in expressions
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def attribute_calls(
    call: Call, module: Any, names: frozenset[str], *, opposites: bool = False
) -> Iterator[Call]:
    """Yield a call for each attribute in `names`, sorted, that the module itself has as a float or
    a boolean, labelled with the assignment of another value: `self.scale = 0.75`. Nothing for None.
    `set_labelled_attribute` makes the assignment when the call runs. With `opposites` the values
    are the opposites of floats, and zero.

    Private names, `p`, and names with "training" or "drop" are left out.
    """
    for name in sorted(names):
        value: Any = vars(module).get(name) if module is not None else None
        if not is_varied_attribute(name, module):
            continue
        new_values = opposite_numbers(name, value) if opposites else (other_value(value),)
        for new_value in new_values:
            yield replace(call, label=f"self.{name} = {new_value!r}", beyond=ATTRIBUTES)


def attribute_calls_with_zero(call: Call, module: Any, names: frozenset[str]) -> Iterator[Call]:
    """Yield a call with zero for each attribute in `names`, sorted, that the module itself has as
    another integer. Nothing for None."""
    for name in sorted(names):
        value: Any = vars(module).get(name) if module is not None else None
        if type(value) is int and value:
            yield replace(call, label=f"self.{name} = 0", beyond=ATTRIBUTES)


def other_value(value: bool | float) -> bool | float:
    """Return the opposite of a boolean, or half of a number plus 0.25."""
    return (not value) if isinstance(value, bool) else 0.5 * value + 0.25


def is_varied_attribute(name: str, module: Any) -> bool:
    """Return whether `attribute_calls` gives an attribute of a module another value: the module
    itself has it as a float or boolean, and its name is not excluded. False for None."""
    value = vars(module).get(name) if module is not None else None
    return isinstance(value, float | bool) and not _SET_OTHERWISE.search(name)


def attribute_pair_calls(call: Call, module: Any, names: frozenset[str]) -> Iterator[Call]:
    """Yield a call for each of at most `_PAIRS` pairs of the attributes in `names` for which
    `attribute_calls` makes calls, labelled with both assignments."""
    calls = tuple(attribute_calls(call, module, names))
    for first, second in itertools.islice(itertools.combinations(calls, 2), _PAIRS):
        yield replace(first, label=f"{first.label} and {second.label}")


def attribute_calls_with_arguments(
    calls: Iterable[Call], module: Any, names: frozenset[str]
) -> Iterator[Call]:
    """Yield what `attribute_calls` yields for each of `calls`, variants of a recorded call with
    another argument and a label that names it; the new labels name the assignment, then that
    argument."""
    for call in calls:
        for changed in attribute_calls(call, module, names):
            yield replace(changed, label=f"{changed.label}{_ARGUMENTS}{call.label}")


def assignments_of(label: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of the name and the text of the value of each attribute that a label assigns; ()
    for another label."""
    texts = _NEXT.split(label.partition(_ARGUMENTS)[0])
    matches = [_ASSIGNMENT.fullmatch(text) for text in texts]
    return tuple((match[1], match[2]) for match in matches if match)


def is_settable(modules: tuple[Any, ...], label: str) -> bool:
    """Return whether `label` assigns attributes, and all of some modules have these as plain values
    (number, boolean or string), of their own or of their class, or as a function of their own where
    the label assigns one."""
    assignments = assignments_of(label)
    return bool(assignments) and all(
        _is_settable(modules, name, text) for name, text in assignments
    )


def _is_settable(modules: tuple[Any, ...], name: str, text: str) -> bool:
    """Return whether all of some modules have an attribute that an assignment with the text of a
    value may change."""
    if text in _FUNCTIONS:
        values = [vars(module).get(name) for module in modules]
        return all(isinstance(value, _FUNCTION_TYPES) for value in values)
    return all(
        isinstance(inspect.getattr_static(module, name, None), bool | int | float | str)
        for module in modules
    )


def tested_attributes(expressions: Iterable[ast.expr], tests: Iterable[ast.expr]) -> frozenset[str]:
    """Return the names of the attributes of `self` that are both among some expressions and in the
    tests of branches."""
    parts = (part for test in tests for part in ast.walk(test) if isinstance(part, ast.expr))
    return read_attributes(expressions) & read_attributes(parts)


def function_calls(call: Call, module: Any, names: frozenset[str]) -> Iterator[Call]:
    """Yield a call for each attribute in `names`, sorted, that the module itself has as a function,
    labelled with the assignment of another function: `self.act_fn = torch.tanh`. Nothing for
    None."""
    for name in sorted(names):
        value = vars(module).get(name) if module is not None else None
        if isinstance(value, _FUNCTION_TYPES):
            for text, function in _FUNCTIONS.items():
                if value is not function:
                    yield replace(call, label=f"self.{name} = {text}", beyond=ATTRIBUTES)


def _value_of(text: str) -> Any:
    """Return the value whose repr is a text: a literal, or a float that has none. Raises
    ValueError for other texts."""
    return float(text) if text in ("inf", "-inf", "nan") else ast.literal_eval(text)


@contextmanager
def set_labelled_attribute(modules: tuple[Any, ...], label: str) -> Iterator[None]:
    """Set the attributes that a label names on some modules, which `is_settable` accepts, in the
    body; at its end restore the old values, and delete an attribute from modules that had it from
    their class."""
    assignments = assignments_of(label)
    pairs = [(module, name) for module in modules for name, _ in assignments]
    old_values = [(module, name, vars(module).get(name, _OF_CLASS)) for module, name in pairs]
    try:
        for module in modules:
            for name, text in assignments:
                setattr(module, name, _FUNCTIONS.get(text) or _value_of(text))
        yield
    finally:
        for module, name, value in old_values:
            if value is _OF_CLASS:
                delattr(module, name)
            else:
                setattr(module, name, value)


@contextmanager
def record_reads(module: Any) -> Iterator[set[str]]:
    """Yield a set to which the name of each attribute is added that anything reads from a module in
    the body. The module gets a subclass of its class meanwhile."""
    cls: Any = type(module)
    names: set[str] = set()

    def read(instance: Any, name: str) -> Any:
        """Return an attribute of the module, and note its name."""
        names.add(name)
        return cls.__getattribute__(instance, name)

    module.__class__ = type(cls.__name__, (cls,), {"__getattribute__": read})
    try:
        yield names
    finally:
        module.__class__ = cls
