"""Build parts with two values of each constructor argument and configuration field that a changed
definition reads."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from regraft.verification.child.checks.arguments_in_source import fields_with_defaults
from regraft.verification.child.checks.code_replacement import definition_node, syntax_tree
from regraft.verification.child.checks.constructor_flow import all_keyword_defaults, base_classes
from regraft.verification.child.checks.option_values import (
    TOKEN,
    VALUES,
    is_size,
    other_values,
    plain_value,
    plain_values,
)
from regraft.verification.child.checks.option_values_in_source import annotated_choices
from regraft.verification.child.checks.options_read import options_deciding, options_read
from regraft.verification.child.checks.size_variants import (
    is_affordable,
    moved_features,
    resize_dimensions,
)
from regraft.verification.child.checks.value_variants import replace_integers
from regraft.verification.child.drivers import config_variations, source_hints, standalone_parts
from regraft.verification.child.drivers.configuration_objects import (
    NAMESPACES,
    fields_of,
    is_config,
    with_fields,
)
from regraft.verification.child.drivers.opposite_numbers import opposite_numbers
from regraft.verification.child.drivers.standalone_parts import Part, accepts
from regraft.verification.child.session import Session

SECONDS = 6.0  # for building one definition with other values
_CANDIDATES = 8  # the most parts that are tried for another value of an option
_PAIRS = 10  # the most pairs of options that change together
_OPPOSITES = 12  # the most parts with a negative number, or zero, that are tried


@dataclass(frozen=True, slots=True)
class Variation:
    """A part built with other values of the options `names`.

    `switches` tells that the first of them is a boolean or a string, which may also change the
    number format. `adds_chance` tells that one of them is a rate that was 0 and is not: layers that
    drop values at random may exist only now.
    """

    part: Part
    names: tuple[str, ...]
    switches: bool = False
    adds_chance: bool = False


def note_options(definition: str, arguments: Mapping[str, Any], session: Session) -> None:
    """Add to `session.options` the values that the options of a definition take in a comparison,
    each as at most 200 characters of its repr; fields of configurations count by their own name,
    properties that changed lines read with them, and options that the constructor reads from its
    `**kwargs` have their defaults."""
    defaults = _defaults_of_keywords(session.original, definition)
    values = {**defaults, **arguments}
    for name, value in (*plain_values(values), *_computed_fields(definition, values, session)):
        session.options.setdefault((definition, name), set()).add(repr(value)[:200])


def _computed_fields(
    definition: str, arguments: Mapping[str, Any], session: Session
) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the properties of configurations among the arguments that
    changed lines of a definition read; those that raise are left out."""
    configs = [value for value in arguments.values() if is_config(value)]
    for name, option in options_read(definition, session).items():
        for config in configs if option.config else ():
            if isinstance(getattr(type(config), name, None), property | functools.cached_property):
                with suppress(Exception):  # the model's own code
                    yield name, getattr(config, name)


@functools.cache
def _defaults_of_keywords(module: ModuleType, cls: str) -> Mapping[str, Any]:
    """Return by name the defaults of the options that a class of a file, or a base class of it
    there, reads from the `**kwargs` of its constructor; cached, since each instance of a model asks
    for it."""
    definition = definition_node(module, cls)
    tree = syntax_tree(str(module.__file__))
    return all_keyword_defaults((definition, *base_classes(definition, tree)))


def varied_parts(part: Part, words: frozenset[str], session: Session) -> Iterator[Variation]:
    """Yield variations of a part that have other values of the options whose names are in `words`,
    where the original accepts these values.

    Floats change together where that is accepted; every other option changes alone. Strings, lists
    and tuples get each accepted value, options that changed lines of an edit by hand read the first
    `VALUES`, others only the first. Then pairs of options that such lines read change together. At
    the end numbers become negative and zero, and fields that the file reads with a default are left
    out, where the results stay finite. The search ends after SECONDS of processor time. Options
    that are tried, also without success, are added to `session.tried_options`.
    """
    part = _with_keywords(part, words, session)
    choices = annotated_choices(
        part.arguments,
        getattr(session.original, part.cls),
        source_hints.compared_strings(inspect.getsource(session.original)),
    )
    overrides = _overrides(part, words, choices, session)
    read = frozenset[str]() if session.by_rules else options_deciding(part.definition, session)
    search = _Search(part, session, session.ledger.deadline_within(SECONDS))
    for names, candidates in (*_all_floats_changed(part, overrides), *overrides):
        if not set(names) <= search.varied_names:
            session.tried_options.update((part.definition, name) for name in names)
            yield from search.variations(names, candidates, _count_of_values(part, names, read))
    for names, candidate in search.pairs(read):
        yield from search.variations(names, [candidate], 1)
    for names, candidate in (
        *_all_zeros_changed(part, overrides),
        *_parts_with_opposite_numbers(part, words),
        *_parts_without_fields(part, words, session),
    ):
        yield from search.variations(names, [candidate], 1, finite=True)


def _count_of_values(part: Part, names: tuple[str, ...], read: frozenset[str]) -> int:
    """Return the most values that options which change together take, by the present value of the
    first: as many as there are candidates for a string, list or tuple; else `VALUES` for a single
    option in `read`, and 1 for other options."""
    if isinstance(plain_value(part, names[0]), str | list | tuple):
        return _CANDIDATES
    return VALUES if len(names) == 1 and names[0] in read else 1


@dataclass(slots=True)
class _Search:
    """A search for parts that the original accepts, until a time of the process's clock.

    `accepted` are the first accepted parts by the single option that they change.
    """

    part: Part
    session: Session
    deadline: float
    varied_names: set[str] = field(default_factory=set)
    accepted: dict[str, Part] = field(default_factory=dict)

    def variations(
        self, names: tuple[str, ...], candidates: Iterable[Part], most: int, *, finite: bool = False
    ) -> Iterator[Variation]:
        """Yield variations of the options `names`: the first `most` candidates with different
        values that the original accepts, with `finite` only those whose results are finite; nothing
        once time is up."""
        values: set[str] = set()
        for candidate in candidates:
            if time.process_time() > self.deadline or self.session.ledger.is_late():
                return
            value = repr([plain_value(candidate, name) for name in names])
            if value not in values and accepts(candidate, self.session, finite=finite):
                self.varied_names.update(names)
                if len(names) == 1:
                    self.accepted.setdefault(names[0], candidate)
                started = time.process_time()
                yield Variation(
                    candidate,
                    names,
                    isinstance(plain_value(self.part, names[0]), bool | str),
                    _adds_chance(self.part, candidate, names),
                )
                self.deadline += time.process_time() - started  # comparing it is no search
                values.add(value)
                if len(values) == most:
                    return

    def pairs(self, read: frozenset[str]) -> Iterator[tuple[tuple[str, ...], Part]]:
        """Yield at most `_PAIRS` parts in which two accepted options of those in `read` change
        together; sizes are left out."""
        parts = [
            (name, changed_part)
            for name, changed_part in self.accepted.items()
            if name in read and not is_size(plain_value(self.part, name))
        ]
        for (name, changed_part), (other_name, other_part) in itertools.islice(
            itertools.combinations(parts, 2), _PAIRS
        ):
            arguments = _with_values_of(other_part, (other_name,), dict(changed_part.arguments))
            yield (name, other_name), replace(changed_part, arguments=arguments)


def _adds_chance(part: Part, candidate: Part, names: tuple[str, ...]) -> bool:
    """Return whether one of the options `names` is the float 0 in a part and a share, above 0 and
    below 1, in the candidate."""
    values = ((plain_value(part, name), plain_value(candidate, name)) for name in names)
    return any(
        isinstance(old_value, float)
        and old_value == 0
        and isinstance(new_value, float)
        and 0 < new_value < 1
        for old_value, new_value in values
    )


def _with_keywords(part: Part, words: frozenset[str], session: Session) -> Part:
    """Return a part that states the defaults of the options in `words` which its constructor reads
    from `**kwargs`, so that they can take other values; the part itself where the original does not
    accept that."""
    defaults = _defaults_of_keywords(session.original, part.cls)
    stated = {name: value for name, value in defaults.items() if name in words}
    if not stated.keys() - part.arguments.keys():
        return part
    stated_part = replace(part, arguments={**stated, **part.arguments})
    return stated_part if accepts(stated_part, session) else part


Overrides = list[tuple[tuple[str, ...], list[Part]]]


def _overrides(
    part: Part, words: frozenset[str], choices: source_hints.Choices, session: Session
) -> Overrides:
    """Return pairs of an option's names and the parts with another value of it, at most
    `_CANDIDATES` for each option; those of `_pair_overrides` come first. Nothing is tried yet."""
    parts_by_option: dict[str, list[Part]] = {}
    for name, argument in part.arguments.items():
        if is_config(argument):
            fields = fields_of(argument)
            for override in config_variations.second_values(fields, words, choices):
                option = config_variations.path_of(override, fields)[-1]
                changed_part = _with_argument(part, name, with_fields(argument, override))
                fitting_parts = _with_fitting_inputs(changed_part, part, option)
                parts_by_option.setdefault(option, []).extend(fitting_parts)
        elif name in words:
            tree = syntax_tree(str(session.original.__file__))
            for alternative in other_values(name, argument, choices, tree):
                changed_part = _with_argument(part, name, alternative)
                fitting_parts = _with_fitting_inputs(changed_part, part, name)
                parts_by_option.setdefault(name, []).extend(fitting_parts)
    return [
        *_pair_overrides(part, session),
        *(((name,), parts[:_CANDIDATES]) for name, parts in parts_by_option.items()),
    ]


def _parts_with_opposite_numbers(
    part: Part, words: frozenset[str]
) -> Iterator[tuple[tuple[str, ...], Part]]:
    """Yield, for each numeric option of a part (argument of its constructor, or field of a
    configuration among these) whose name is in `words`, the pair ((name,), part) of the part with
    the opposite number, and with zero; at most `_OPPOSITES` pairs."""
    pairs: list[tuple[tuple[str, ...], Part]] = []
    for name, argument in part.arguments.items():
        if is_config(argument):
            fields = fields_of(argument)
            for override in config_variations.opposite_values(fields, words):
                path = config_variations.path_of(override, fields)
                changed_part = _with_argument(part, name, with_fields(argument, override))
                pairs.append((path[-1:], changed_part))
        elif name in words:
            pairs += [
                ((name,), _with_argument(part, name, number))
                for number in opposite_numbers(name, argument)
            ]
    yield from pairs[:_OPPOSITES]


def _parts_without_fields(
    part: Part, words: frozenset[str], session: Session
) -> Iterator[tuple[tuple[str, ...], Part]]:
    """Yield, for each field in `words` of a configuration among the arguments of a part that the
    file reads with a default, the pair ((field,), part) of the part whose configuration lacks it:
    older configurations have fewer fields. Configurations that declare their fields keep them."""
    fields = words & fields_with_defaults(syntax_tree(str(session.original.__file__)))
    for name, argument in part.arguments.items():
        if isinstance(argument, NAMESPACES):
            for field_name in sorted(fields & vars(argument).keys()):
                smaller = copy.copy(argument)
                delattr(smaller, field_name)
                yield (field_name,), _with_argument(part, name, smaller)


def _pair_overrides(part: Part, session: Session) -> Overrides:
    """Return, for each boolean or float argument from which the text of the file makes a tuple,
    overrides by a pair of unlike values, once in each order; such a tuple may have one value for
    each layer."""
    text = inspect.getsource(session.original)
    overrides: Overrides = []
    for name, value in part.arguments.items():
        if isinstance(value, bool | float) and re.search(rf"tuple\(\s*{re.escape(name)}\b", text):
            alternative = (
                (not value) if isinstance(value, bool) else 0.2 if value == 0 else value / 2
            )
            overrides += [
                ((name, f"{name}[{index}]"), [_with_argument(part, name, pair)])
                for index, pair in enumerate(((value, alternative), (alternative, value)))
            ]
    return overrides


def _with_argument(part: Part, name: str, value: Any) -> Part:
    """Return a copy of a part with another value of one constructor argument."""
    return replace(part, arguments={**part.arguments, name: value})


def _with_fitting_inputs(changed_part: Part, part: Part, name: str) -> Iterator[Part]:
    """Yield a changed part, then parts with inputs that may fit it: for a changed size (an integer
    above 2) inputs of that size, where these are affordable; for a changed flag inputs whose
    features are in another dimension (`moved_features`), since it may tell which. For a token, the
    first part has inputs with the token among their integers."""
    old_value, new_value = plain_value(part, name), plain_value(changed_part, name)
    if type(new_value) is int and new_value >= 0 and TOKEN.search(name):
        yield standalone_parts.with_calls(
            changed_part, lambda call: replace_integers(call, (new_value,), call.label, tokens=True)
        )
    yield changed_part
    if isinstance(old_value, bool):
        all_calls = zip(*map(moved_features, part.calls), strict=True)
        yield from (replace(changed_part, calls=calls) for calls in all_calls)
        return
    are_sizes = type(old_value) is type(new_value) is int and old_value > 2 and new_value > 0
    if are_sizes and all(is_affordable(call, {old_value: new_value}) for call in part.calls):
        yield standalone_parts.with_calls(
            changed_part, lambda call: resize_dimensions(call, {old_value: new_value})
        )


def _all_floats_changed(part: Part, overrides: Overrides) -> Overrides:
    """Return a single override: the part in which all options that are floating point numbers have
    the first other value of theirs; [] for fewer than two such options."""
    names, changed_part = _together(part, overrides, lambda value: isinstance(value, float))
    return [(names, [changed_part])] if len(names) > 1 else []


def _all_zeros_changed(part: Part, overrides: Overrides) -> list[tuple[tuple[str, ...], Part]]:
    """Return the names of the options that are the number 0, with the part in which all of them
    have another value, since a product of two is 0 until both change; [] for
    fewer than two such options."""
    names, changed_part = _together(
        part, overrides, lambda value: type(value) in (int, float) and value == 0
    )
    return [(names, changed_part)] if len(names) > 1 else []


def _together(
    part: Part, overrides: Overrides, is_chosen: Callable[[Any], bool]
) -> tuple[tuple[str, ...], Part]:
    """Return the names of the options whose value `is_chosen` accepts, with the part in which they
    have their first and their last other value in turn, so that two of them differ."""
    names: tuple[str, ...] = ()
    arguments = part.arguments
    for option_names, parts in overrides:
        if len(option_names) == 1 and is_chosen(plain_value(part, option_names[0])):
            changed_part = parts[-1] if len(names) % 2 else parts[0]
            arguments = _with_values_of(changed_part, option_names, dict(arguments))
            names += option_names
    return names, replace(part, arguments=arguments)


def _with_values_of(
    changed_part: Part, names: tuple[str, ...], arguments: dict[str, Any]
) -> dict[str, Any]:
    """Return a copy of `arguments` with the values that a changed part has for the options `names`,
    those in configurations too."""
    values: dict[str, Any] = {}
    for name, value in changed_part.arguments.items():
        if is_config(value):
            fields = fields_of(value)
            new_fields = {field: fields[field] for field in fields if field in names}
            values[name] = with_fields(arguments[name], new_fields)
        elif name in names:
            values[name] = value
    return {**arguments, **values}
