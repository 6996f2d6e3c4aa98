"""Give the attributes that code assigns after construction, and that changed lines read, a second
value, and note which ones took none."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

from torch import nn

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.checks.attribute_variants import (
    ATTRIBUTES,
    assignments_of,
    is_varied_attribute,
    other_value,
)
from regraft.verification.child.checks.code_replacement import syntax_tree
from regraft.verification.child.checks.stores_after_construction import LateStore, late_stores
from regraft.verification.child.drivers.source_hints import compared_strings
from regraft.verification.names_and_scopes import name_of

_PLAIN = (bool, int, float, str, type(None))
# numbers that training, evaluation and rates of dropout set
_SET_OTHERWISE = re.compile(r"^training$|drop|^p$")
_STRINGS = 4  # the most strings that an attribute is set to


def late_stores_of_file(
    module: ModuleType, definition: str, attributes: frozenset[str], relatives: frozenset[str]
) -> dict[str, LateStore]:
    """Return by name those of some attributes of a definition that a module's file assigns after
    construction, as `late_stores` does; {} where the definition is no class."""
    return late_stores(syntax_tree(str(module.__file__)), definition, attributes, relatives)


def late_calls(
    call: Call, module: Any, stores: Mapping[str, LateStore], scope: ModuleType | None
) -> Iterator[Call]:
    """Yield a call for each other value of the attributes that may be set by themselves, labelled
    with the assignment as in `attribute_variants.attribute_calls`; attributes for which that
    function makes calls are left out.

    Whole numbers become one more and 0, strings those that the file `scope` compares them with or
    looks up by them.
    """
    for name, value in _plain_values(module, stores).items():
        if stores[name].independent and not is_varied_attribute(name, module):
            for other_value in _other_values(name, value, module, scope):
                yield replace(call, label=f"self.{name} = {other_value!r}", beyond=ATTRIBUTES)


def _plain_values(module: Any, names: Collection[str]) -> dict[str, Any]:
    """Return by name, sorted, those attributes of a module, or of its class, that are numbers,
    booleans, strings or None; names of modes and dropout rates only where they hold a string."""
    missing = object()
    values = {name: inspect.getattr_static(module, name, missing) for name in sorted(names)}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, _PLAIN) and (isinstance(value, str) or not is_mode_or_rate(name))
    }


def is_mode_or_rate(name: str) -> bool:
    """Return whether an attribute is a mode (`training`) or a rate of dropout, by its name."""
    return _SET_OTHERWISE.search(name) is not None


def _other_values(name: str, value: Any, module: Any, scope: ModuleType | None) -> tuple[Any, ...]:
    """Return other values for a plain attribute: the opposite of a flag, another float, an integer
    one larger and 0, and at most `_STRINGS` strings with which the file compares the attribute or
    looks it up; () for values of other types."""
    if isinstance(value, bool | float):
        return (other_value(value),)
    if isinstance(value, int):
        return tuple(number for number in dict.fromkeys((value + 1, 0)) if number != value)
    if isinstance(value, str) and scope is not None:
        strings = dict.fromkeys(
            (
                *compared_strings(inspect.getsource(scope)).get(name, ()),
                *_looked_up_strings(name, module, scope),
            )
        )
        return tuple(text for text in strings if text != value)[:_STRINGS]
    return ()


def _looked_up_strings(name: str, module: Any, scope: ModuleType) -> Iterator[str]:
    """Yield the string keys of the mappings of a file in which it looks up an attribute or variable
    of this name, and the strings of the patterns that it matches with it."""
    for node in ast.walk(syntax_tree(str(scope.__file__))):
        match node:
            case ast.Subscript(table, key) | ast.Call(ast.Attribute(table, "get"), [key, *_]) if (
                name_of(key) == name
            ):
                yield from _keys(table, module, scope)
            case ast.Match(subject=subject) if name_of(subject) == name:
                for pattern in ast.walk(node):
                    if isinstance(pattern, ast.MatchValue):
                        yield from _strings((_constant(pattern.value),))


def _keys(table: ast.expr, module: Any, scope: ModuleType) -> Iterator[str]:
    """Yield the strings among the keys of a mapping that an expression of a file stands for: a
    display, a variable of the file or an attribute of the module."""
    mapping: Any = None
    match table:
        case ast.Dict(keys):
            yield from _strings(tuple(map(_constant, keys)))
        case ast.Name(name):
            mapping = vars(scope).get(name)
        case ast.Attribute(attr=name):
            mapping = getattr(module, name, None)
    if isinstance(mapping, Mapping | nn.ModuleDict):
        yield from _strings(tuple(mapping.keys()))


def _constant(node: ast.expr | None) -> Any:
    """Return the value of a constant, None for any other expression."""
    return node.value if isinstance(node, ast.Constant) else None


def _strings(values: tuple[Any, ...]) -> Iterator[str]:
    """Yield the strings among some values."""
    yield from (value for value in values if isinstance(value, str))


class LateValues:
    """The attributes, as pairs of a definition and a name, that code assigns after construction:
    those `seen` as plain values, those that were `varied`, and the values from construction, each
    as its repr, or as its type's name where it is not plain."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()
        self.varied: set[tuple[str, str]] = set()
        self.constructed: dict[tuple[str, str], set[str]] = {}

    def _note_initial(
        self, part: Any, definition: str, stores: Mapping[str, LateStore]
    ) -> dict[str, str]:
        """Return the plain values with which an instance starts, as reprs by name; note them in
        `seen`, and the value or class of each attribute in `constructed`."""
        initial = {
            name: stores[name].initial or repr(value)
            for name, value in _plain_values(part, stores).items()
        }
        self.seen.update((definition, name) for name in initial)
        for name in stores:
            value = initial.get(name) or type(getattr(part, name, None)).__name__
            self.constructed.setdefault((definition, name), set()).add(value)
        return initial

    @contextmanager
    def watch(
        self, model: Any, cls: Any, definition: str, stores: Mapping[str, LateStore]
    ) -> Iterator[None]:
        """Hook the instances of a class in a model within the body, and note in `seen`,
        `constructed` and `varied` the values that their attributes have before and after each call:
        another value than construction gave counts as varied. Nothing is noted without stores or
        where `cls` is no class."""
        is_class = stores and isinstance(cls, type)
        instances = [part for part in model.modules() if is_class and isinstance(part, cls)]
        handles = []
        for part in instances:
            initial = self._note_initial(part, definition, stores)
            hook = self._hook(definition, stores, initial)
            handles += [part.register_forward_pre_hook(hook), part.register_forward_hook(hook)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(
        self, definition: str, stores: Mapping[str, LateStore], initial: Mapping[str, str]
    ) -> Any:
        """Return a hook for modules that adds to `varied` each attribute, as (definition, name),
        whose repr then differs from its initial one."""

        def note(part: Any, *_: Any) -> None:
            """Add to `varied` the attributes whose repr is not the initial repr; change nothing
            else."""
            for name, value in _plain_values(part, stores).items():
                if name in initial and repr(value) != initial[name]:
                    self.varied.add((definition, name))

        return note

    def unvaried(
        self,
        definition: str,
        stores: Mapping[str, LateStore],
        labels: Collection[str],
        *,
        by_rules: bool,
    ) -> Iterator[str]:
        """Yield a sentence for each attribute that was a plain value and that no comparison ran
        with another value; `labels` are those of the calls for which attributes were set.

        by_rules: tested rules made the change. They read the attributes that the original reads, so
        that two values from construction are enough.
        """
        names = {name for label in labels for name, _ in assignments_of(label)}
        for name, store in stores.items():
            pair = definition, name
            if by_rules and len(self.constructed.get(pair, ())) > 1:
                continue
            if pair in self.seen - self.varied and name not in names:
                yield (
                    f"self.{name} kept its value from construction, and {store.function} assigns it"
                )
