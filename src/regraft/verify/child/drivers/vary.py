"""Other values for a configuration that may reach other branches of the code."""

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
    """What a file says about values that matter: `text` mentions fields, `choices` are strings that it compares, and
    `optional` are fields that it reads with a value to fall back on, which a configuration may not have. `compared`
    are names of which it asks whether they are equal. One that `dispatches` chooses between implementations of
    attention.
    """

    text: str = ""
    choices: Choices = field(default_factory=dict)
    optional: Mapping[str, Any] = field(default_factory=dict)
    compared: frozenset[str] = frozenset()
    dispatches: bool = True


def hints(text: str, source: str) -> Hints:
    """What a source says; what `text`, a part of it, mentions comes first, and what the attributes there hold."""
    dispatches = re.search("attn_implementation|ALL_ATTENTION", source) is not None
    mentioned = "\n".join((text, *_origins(text, source)))
    return Hints(mentioned, compared_strings(source), _optional(source), _compared(source), dispatches)


def _origins(text: str, source: str) -> Iterator[str]:
    """The expressions that a source assigns to attributes of `self` that a text reads."""
    read = set(re.findall(r"\bself\.(\w+)", text))
    for node in ast.walk(_tree(source)):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name("self"), attr=name)], value=value) if name in read:
                yield ast.unparse(value)


def variations(config: Mapping[str, Any], hints: Hints) -> Iterator[dict[str, Any]]:
    """Yield overrides that may reach other branches; fields that the text mentions come first."""
    yield from mentioned(config, hints)
    if {"is_decoder", "add_cross_attention"} <= set(config):
        yield {"is_decoder": True, "add_cross_attention": True}
    found = _variations({**hints.optional, **config}, hints)
    yield from (override for name, override in found if not _mention(hints.text, name))


def mentioned(config: Mapping[str, Any], hints: Hints) -> Iterator[dict[str, Any]]:
    """Yield the overrides of fields that the text mentions: those with their whole name there first, of these what
    conditions ask for and strings, then the configuration's own before nested ones. Numbers that no condition asks for
    seldom decide what runs, and come last."""

    def order(variation: tuple[str, Mapping[str, Any]]) -> tuple[bool, int, bool, bool]:
        name, override = variation
        value, asked = override.get(name), _asked(hints.text, name)
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        decides = isinstance(value, str) or asked
        return numeric and not asked, -_mention(hints.text, name), not decides, name not in override

    found = _variations({**hints.optional, **config}, hints)
    yield from (override for _, override in sorted((one for one in found if _mention(hints.text, one[0])), key=order))


def second_values(config: Mapping[str, Any], words: frozenset[str], choices: Choices) -> Iterator[dict[str, Any]]:
    """Yield, for each field that `words` name, also in a nested configuration, overrides that give it another value.

    Several overrides of one field are alternatives: not every model can be built with each of them.
    """
    for name, value in config.items():
        if tiny.is_config(name, value):
            for override in second_values(value, words, choices):
                yield {name: {**value, **override}}
        elif name in words:
            yield from ({name: other} for other in _others_than(name, value, choices))


def path_of(override: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that lead to the field in which an override differs from a configuration."""
    for name, value in override.items():
        before = config.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            return (name, *path_of({key: inner for key, inner in value.items() if inner != before.get(key)}, before))
        return (name,)
    return ()


def _others_than(name: str, value: Any, choices: Choices) -> tuple[Any, ...]:
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
        activation = re.search(r"act|_fn$|activation", name)
        others = (*choices.get(name, ()), *(ACTIVATIONS if activation else ()))
        return tuple(other for other in others if other != value)
    if value is None:
        return (16, 32) if re.search(r"(^|_)(dim|size|width)$", name) else (0.5, 1, True)
    if isinstance(value, list | tuple) and value:
        return tuple(type(value)(other) for other in _other_lists(value))
    return ()


def _other_lists(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield lists of the same length with other values: the last one changed, all doubled, or in another order."""
    last = values[-1]
    if all(isinstance(value, bool) for value in values):
        yield [*values[:-1], not last]
    elif all(isinstance(value, int) for value in values):
        yield [*values[:-1], last + 1]
        yield [value * 2 for value in values]
    elif all(isinstance(value, float) for value in values):
        yield [value / 2 if value else 0.2 for value in values]
    elif all(isinstance(value, str) for value in values):
        yield from ([value] * len(values) for value in dict.fromkeys(values) if len(set(values)) > 1)


def shorter_blocks(config: Mapping[str, Any], hints: Hints) -> Iterator[dict[str, Any]]:
    """Yield the overrides that cut what is looked at together short: several blocks may take another way than one."""
    yield from (override for name, override in _variations(config, hints) if _is_block(name))


def _asked(text: str, name: str) -> bool:
    """Whether a condition of a text reads a name."""
    return bool(re.search(rf"\b(?:if|while)\b[^\n:]*\b{re.escape(name)}\b", text))


def _mention(text: str, name: str) -> int:
    """2 where a text has a field's name, 1 where it has a part or an end of it, as in `normalize_before` for
    `encoder_normalize_before` and `relative_position_bias` for `use_shared_relative_position_bias`, 0 otherwise."""
    if re.search(rf"\b{re.escape(name)}\b", text):
        return 2
    words = name.split("_")
    ends = ("_".join(words[start:]) for start in range(1, len(words) - 1) if start == 1 or len(words) - start > 2)
    return int(name in text or any(end in text for end in ends))


def _variations(config: Mapping[str, Any], hints: Hints) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of a field, of a nested configuration too, with an override that changes it."""
    for name, value in config.items():
        if tiny.is_config(name, value):
            for inner, override in _variations(value, hints):
                yield inner, {name: {**value, **override}}
        elif isinstance(value, bool):
            if name != "return_dict":
                yield name, {name: not value}
        else:
            others: tuple[Any, ...] = ()
            if isinstance(value, str) or (value is None and name in hints.choices):
                activation = re.search(r"act|_fn$|activation|proj$", name)
                others = (*hints.choices.get(name, ()), *(ACTIVATIONS if activation else ()))
            if name in hints.text and (value is None or value in (0, -1)):
                others += (1, 2, 0.5)
            if name in hints.text and isinstance(value, int) and tiny.is_layers(name):
                others += (value + 1,)  # a loop over those between the first and the last
            if tiny.is_key_value_heads(name) and type(value) is int and value > 1:
                others += (value // 2,)  # heads of keys that several heads of queries share
            if name in hints.compared and type(value) is int and value > 2:
                others += (value // 2,)
            if name in hints.text and _is_block(name) and type(value) is int and value > tiny.WINDOW:
                others += (tiny.WINDOW,)
            yield from ((name, {name: other}) for other in others if other != value)


def _is_block(name: str) -> bool:
    """Whether a field is a number of positions that are looked at together."""
    return bool(re.search(r"(block|chunk)_(size|len|length)$", name))


@functools.cache
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def leading_to(names: frozenset[str], source: str) -> frozenset[str]:
    """Some names and those of a file's definitions that lead to one of them, through others too."""
    reads: dict[str, set[str]] = {}
    for node in _tree(source).body:
        inside = used_names(node)
        own = {node.name} if isinstance(node, ast.ClassDef | ast.FunctionDef) else inside
        for name in own:
            reads.setdefault(name, set()).update(inside)
    found = set(names)
    while more := {name for name, inside in reads.items() if inside & found} - found:
        found |= more
    return frozenset(found)


def compared_strings(source: str) -> Choices:
    """Return by name the strings that a file compares names and attributes with, as in `self.kind == "a"`."""
    found: dict[str, dict[str, None]] = {}
    for node in ast.walk(_tree(source)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            read = [side.value if isinstance(side, ast.Subscript) else side for side in sides]
            names = [getattr(side, "attr", getattr(side, "id", "")) for side in read]
            constants = [one.value for side in sides for one in ast.walk(side) if isinstance(one, ast.Constant)]
            for name in filter(None, names):
                found.setdefault(name, {}).update({one: None for one in constants if isinstance(one, str)})
    return {name: tuple(values) for name, values in found.items()}


def _compared(source: str) -> frozenset[str]:
    """Names and attributes that a file compares with each other, as in `self.windows == self.length`."""
    found: set[str] = set()
    for node in ast.walk(_tree(source)):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            names = [getattr(side, "attr", getattr(side, "id", "")) for side in (node.left, *node.comparators)]
            found.update(names if all(names) else ())
    return frozenset(found)


def _optional(source: str) -> dict[str, Any]:
    """Return what a file reads of configurations by `getattr(config, "name", constant)`."""
    found = {}
    for node in ast.walk(_tree(source)):
        match node:
            case ast.Call(
                func=ast.Name("getattr"),
                args=[ast.Name(of) | ast.Attribute(attr=of), ast.Constant(str(name)), ast.Constant(value)],
            ) if of.endswith("config"):
                found[name] = value
    return found
