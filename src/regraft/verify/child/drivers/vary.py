"""Find other values for the fields of a configuration that may reach other branches of the code."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regraft.verify.child.drivers import tiny
from regraft.verify.relatives import used_names

Choices = Mapping[str, tuple[str, ...]]  # strings by the name that a file compares with them
_EPSILON = 1e-3  # floating point numbers below this are added to avoid a division by zero
ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new")


@dataclass(frozen=True, slots=True)
class Hints:
    """Hints of a file about values that matter.

    `text` is searched for names of fields; `choices` are the strings that the file compares names
    with; `optional` are fields that it reads with a default, which a configuration may not have;
    `compared` are names whose equality it tests. `dispatches` tells that the file chooses between
    implementations of attention.
    """

    text: str = ""
    choices: Choices = field(default_factory=dict)
    optional: Mapping[str, Any] = field(default_factory=dict)
    compared: frozenset[str] = frozenset()
    dispatches: bool = True


def hints(text: str, source: str) -> Hints:
    """Return the hints of a source.

    Fields that `text`, a part of the source, mentions come first, and those in expressions that the
    attributes read in `text` are assigned.
    """
    dispatches = re.search("attn_implementation|ALL_ATTENTION", source) is not None
    mentioned_variations = "\n".join((text, *_assigned_expressions(text, source)))
    return Hints(
        mentioned_variations,
        compared_strings(source),
        _optional_fields(source),
        _compared_names(source),
        dispatches,
    )


def _assigned_expressions(text: str, source: str) -> Iterator[str]:
    """Yield the expressions that a source assigns to attributes of `self` that a text reads."""
    read_attributes = set(re.findall(r"\bself\.(\w+)", text))
    for node in ast.walk(_parse(source)):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name("self"), attr=name)], value=value
            ) if name in read_attributes:
                yield ast.unparse(value)


def variations(config: Mapping[str, Any], hints: Hints) -> Iterator[dict[str, Any]]:
    """Yield overrides that may reach other branches; those of fields that the text mentions come
    first."""
    yield from mentioned_variations(config, hints)
    if {"is_decoder", "add_cross_attention"} <= set(config):
        yield {"is_decoder": True, "add_cross_attention": True}
    named_overrides = _variations({**hints.optional, **config}, hints)
    yield from (
        override for name, override in named_overrides if not _mention_rank(hints.text, name)
    )


def mentioned_variations(config: Mapping[str, Any], hints: Hints) -> Iterator[dict[str, Any]]:
    """Yield the overrides of fields that the text mentions.

    Fields whose whole name is mentioned come first; among these, those that conditions ask for and
    strings, then fields of the configuration itself before those of nested ones. Numbers that no
    condition asks for seldom decide what runs, and come last.
    """

    def sort_key(variation: tuple[str, Mapping[str, Any]]) -> tuple[bool, int, bool, bool]:
        name, override = variation
        value, is_asked = override.get(name), _is_in_condition(hints.text, name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        decides = isinstance(value, str) or is_asked
        return (
            is_number and not is_asked,
            -_mention_rank(hints.text, name),
            not decides,
            name not in override,
        )

    named_overrides = _variations({**hints.optional, **config}, hints)
    yield from (
        override
        for _, override in sorted(
            (
                named_override
                for named_override in named_overrides
                if _mention_rank(hints.text, named_override[0])
            ),
            key=sort_key,
        )
    )


def second_values(
    config: Mapping[str, Any], words: frozenset[str], choices: Choices
) -> Iterator[dict[str, Any]]:
    """Yield, for each field that `words` name, also in a nested configuration, overrides that give
    it another value.

    Several overrides of one field are alternatives: not every model can be built with each of them.
    """
    for name, value in config.items():
        if tiny.is_config(name, value):
            for override in second_values(value, words, choices):
                yield {name: {**value, **override}}
        elif name in words:
            yield from ({name: alternative} for alternative in _alternatives(name, value, choices))


def path_of(override: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that lead to the field in which an override differs from a configuration; ()
    for none."""
    for name, value in override.items():
        old_value = config.get(name)
        if isinstance(value, Mapping) and isinstance(old_value, Mapping):
            return (
                name,
                *path_of(
                    {
                        key: inner_value
                        for key, inner_value in value.items()
                        if inner_value != old_value.get(key)
                    },
                    old_value,
                ),
            )
        return (name,)
    return ()


def _alternatives(name: str, value: Any, choices: Choices) -> tuple[Any, ...]:
    """Return other values for a field; () where it has to keep its value or none can be guessed."""
    if name == "return_dict":
        return ()
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, float):
        return (0.2,) if value == 0 else (0.01,) if value < _EPSILON else (value / 2, value * 2)
    if isinstance(value, int):
        if value in (0, -1):
            return (1, 2)
        return () if tiny.is_hidden(name) else (value * 2, value // 2, value + 1)
    if isinstance(value, str):
        is_activation = re.search(r"act|_fn$|activation", name)
        strings = (*choices.get(name, ()), *(ACTIVATIONS if is_activation else ()))
        return tuple(alternative for alternative in strings if alternative != value)
    if value is None:
        return (16, 32) if re.search(r"(^|_)(dim|size|width)$", name) else (0.5, 1, True)
    if isinstance(value, list | tuple) and value:
        return tuple(type(value)(alternative) for alternative in _other_lists(value))
    return ()


def _other_lists(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield lists of the same length with other values: the last one changed, all doubled or
    halved, or all equal."""
    last = values[-1]
    if all(isinstance(value, bool) for value in values):
        yield [*values[:-1], not last]
    elif all(isinstance(value, int) for value in values):
        yield [*values[:-1], last + 1]
        yield [value * 2 for value in values]
    elif all(isinstance(value, float) for value in values):
        yield [value / 2 if value else 0.2 for value in values]
    elif all(isinstance(value, str) for value in values):
        yield from (
            [value] * len(values) for value in dict.fromkeys(values) if len(set(values)) > 1
        )


def shorter_blocks(config: Mapping[str, Any], hints: Hints) -> Iterator[dict[str, Any]]:
    """Yield the overrides that cut blocks of positions short, because several blocks may run other
    lines than one."""
    yield from (override for name, override in _variations(config, hints) if _is_block(name))


def _is_in_condition(text: str, name: str) -> bool:
    """Return whether a condition of a text reads a name."""
    return bool(re.search(rf"\b(?:if|while)\b[^\n:]*\b{re.escape(name)}\b", text))


def _mention_rank(text: str, name: str) -> int:
    """Return 2 where a text has a field's name, 1 where it has a part or an end of it, 0 otherwise.

    A name is a part where a longer one contains it. An end is `normalize_before` of
    `encoder_normalize_before`, or `relative_position_bias` of `use_shared_relative_position_bias`.
    """
    if re.search(rf"\b{re.escape(name)}\b", text):
        return 2
    words = name.split("_")
    ends = (
        "_".join(words[start:])
        for start in range(1, len(words) - 1)
        if start == 1 or len(words) - start > 2
    )
    return int(name in text or any(end in text for end in ends))


def _variations(config: Mapping[str, Any], hints: Hints) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield pairs of a field's name, of nested configurations too, and an override that changes the
    field."""
    for name, value in config.items():
        if tiny.is_config(name, value):
            for inner_name, override in _variations(value, hints):
                yield inner_name, {name: {**value, **override}}
        elif isinstance(value, bool):
            if name != "return_dict":
                yield name, {name: not value}
        else:
            alternatives: tuple[Any, ...] = ()
            if isinstance(value, str) or (value is None and name in hints.choices):
                is_activation = re.search(r"act|_fn$|activation|proj$", name)
                alternatives = (
                    *hints.choices.get(name, ()),
                    *(ACTIVATIONS if is_activation else ()),
                )
            if name in hints.text and (value is None or value in (0, -1)):
                alternatives += (1, 2, 0.5)
            if name in hints.text and isinstance(value, int) and tiny.is_layers(name):
                alternatives += (value + 1,)  # a loop over those between the first and the last
            if tiny.is_key_value_heads(name) and type(value) is int and value > 1:
                alternatives += (value // 2,)  # heads of keys that several heads of queries share
            if name in hints.compared and type(value) is int and value > 2:
                alternatives += (value // 2,)
            if (
                name in hints.text
                and _is_block(name)
                and type(value) is int
                and value > tiny.WINDOW
            ):
                alternatives += (tiny.WINDOW,)
            yield from (
                (name, {name: alternative}) for alternative in alternatives if alternative != value
            )


def _is_block(name: str) -> bool:
    """Return whether a field is the number of positions in a block that is processed together."""
    return bool(re.search(r"(block|chunk)_(size|len|length)$", name))


@functools.cache
def _parse(source: str) -> ast.Module:
    """Return the syntax tree of a source."""
    return ast.parse(source)


def leading_to(names: frozenset[str], source: str) -> frozenset[str]:
    """Return the names, and those of the file's definitions that use one of them directly or
    through others."""
    names_by_user: dict[str, set[str]] = {}
    for node in _parse(source).body:
        used = used_names(node)
        defined = {node.name} if isinstance(node, ast.ClassDef | ast.FunctionDef) else used
        for name in defined:
            names_by_user.setdefault(name, set()).update(used)
    leading = set(names)
    while added := {name for name, used in names_by_user.items() if used & leading} - leading:
        leading |= added
    return frozenset(leading)


def compared_strings(source: str) -> Choices:
    """Return by name the strings that a file compares names and attributes with, as in `self.kind
    == "a"`."""
    strings_by_name: dict[str, dict[str, None]] = {}
    for node in ast.walk(_parse(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            operands = [side.value if isinstance(side, ast.Subscript) else side for side in sides]
            names = [getattr(side, "attr", getattr(side, "id", "")) for side in operands]
            constants = [
                constant.value
                for side in sides
                for constant in ast.walk(side)
                if isinstance(constant, ast.Constant)
            ]
            for name in filter(None, names):
                strings_by_name.setdefault(name, {}).update(
                    {constant: None for constant in constants if isinstance(constant, str)}
                )
    return {name: tuple(values) for name, values in strings_by_name.items()}


def _compared_names(source: str) -> frozenset[str]:
    """Return the names and attributes that a file compares with each other, as in `self.windows ==
    self.length`."""
    compared: set[str] = set()
    for node in ast.walk(_parse(source)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            names = [
                getattr(side, "attr", getattr(side, "id", ""))
                for side in (node.left, *node.comparators)
            ]
            compared.update(names if all(names) else ())
    return frozenset(compared)


def _optional_fields(source: str) -> dict[str, Any]:
    """Return by name the defaults of fields that a file reads by `getattr(config, "name",
    constant)`."""
    defaults = {}
    for node in ast.walk(_parse(source)):
        match node:
            case ast.Call(
                func=ast.Name("getattr"),
                args=[
                    ast.Name(owner) | ast.Attribute(attr=owner),
                    ast.Constant(str(name)),
                    ast.Constant(value),
                ],
            ) if owner.endswith("config"):
                defaults[name] = value
    return defaults
