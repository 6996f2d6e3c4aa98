"""Calls with another value in a plain attribute of the module: a temperature, a scale, a switch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from regraft.verify.child.tree import Call

ATTRIBUTES = "attributes"
_SET_OTHERWISE = re.compile(r"^_|training|drop|^p$")  # by modes, rates and the module itself
_LABEL = re.compile(r"self\.(\w+) = (.*)")


def read_attributes(expressions: Iterable[ast.expr]) -> frozenset[str]:
    """Return the attributes of `self` that expressions read."""
    return frozenset(
        node.attr
        for node in expressions
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    )


def reset_calls(call: Call, module: Any, names: frozenset[str]) -> Iterator[Call]:
    """Yield a call with another value of each attribute of some names that is a float or a switch."""
    for name in sorted(names):
        value = vars(module).get(name) if module is not None else None
        if not isinstance(value, float | bool) or _SET_OTHERWISE.search(name):
            continue
        other = (not value) if isinstance(value, bool) else 0.5 * value + 0.25
        yield replace(call, label=f"self.{name} = {other!r}", beyond=ATTRIBUTES)


@contextmanager
def attribute_set(modules: tuple[Any, ...], label: str) -> Iterator[None]:
    """Set the attribute that a label names while a call runs, where all of the modules have it."""
    found = _LABEL.fullmatch(label)
    if found is None or not all(found[1] in vars(module) for module in modules):
        yield
        return
    before = [vars(module)[found[1]] for module in modules]
    try:
        for module in modules:
            setattr(module, found[1], ast.literal_eval(found[2]))
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            setattr(module, found[1], value)
