"""Fixers of a model's inputs for the tables of `input_repairs`, by what an error message asks for:
arguments, tokens, lengths, types.

Each function that takes a problem is the fixer of a row of `input_repairs`: it yields whole changed
specifications of the inputs, or nothing, and leaves the problem as it is. Numbers in a message are
sizes at the (batch, length) of the attempt that failed.
"""

from __future__ import annotations

import linecache
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from regraft.verification.child.drivers import source_hints
from regraft.verification.child.drivers.argument_slots import Dim, Slot, Spec, with_places
from regraft.verification.child.drivers.error_statements import statements_of_error
from regraft.verification.child.drivers.field_tables import (
    PLACEHOLDER_ENDS,
    TEXT_CONFIG_FIELD,
    TEXT_WIDTH_FIELD,
)
from regraft.verification.child.drivers.forward_inputs import TOKEN_TYPE_INPUTS, TOKENS_INPUT
from regraft.verification.child.drivers.guessed_values import value_for
from regraft.verification.child.drivers.model_attempts import Attempt
from regraft.verification.child.frame_numbers import LIBRARIES

LARGEST = 4096  # the largest dimension, or number of tokens, that an error can demand of an input
OTHER_WORD = "other"  # a word that no code compares an argument with
_LONGEST = 256  # the largest length to which repairs of lengths extend a dimension


@dataclass(frozen=True, slots=True)
class InputProblem:
    """An attempt that failed, with the slots of all parameters that may be passed (`optional`),
    some of which it has, and the configuration of the model, None where it has none or it is not
    known."""

    failed: Attempt
    optional: Spec
    config: Any = None

    @property
    def spec(self) -> Spec:
        """Return the specification of the attempt's inputs."""
        return self.failed.spec

    @property
    def statement(self) -> str:
        """Return the innermost statement outside PyTorch and this package that the error came
        through; "" where there is no error or its statements are not known."""
        return self._innermost_statement(conditions=False)

    @property
    def test(self) -> str:
        """Return `statement`, but a `raise` that begins the body of an `if` with that `if`."""
        return self._innermost_statement(conditions=True)

    def _innermost_statement(self, *, conditions: bool) -> str:
        """Return the innermost statement of a model's code, as `statements_of_error` does."""
        error = self.failed.error
        statements = iter(()) if error is None else statements_of_error(error, conditions)
        return next((text for file, text in statements if not file.startswith(LIBRARIES)), "")

    @property
    def sources(self) -> list[str]:
        """Return the texts of the files that the error came through, innermost first."""
        error = self.failed.error
        files = () if error is None else (file for file, _ in statements_of_error(error))
        return ["".join(linecache.getlines(file)) for file in dict.fromkeys(files)]

    @property
    def absent(self) -> list[str]:
        """Return the names of the parameters that may be passed and were not."""
        return [name for name in self.optional if name not in self.spec]

    def with_optional(self, *names: str) -> Spec:
        """Return the inputs with some of the parameters that may be passed; KeyError is raised for
        any other name."""
        return {**self.spec, **{name: self.optional[name] for name in names}}


def give_missing_argument(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield the inputs with the argument that a message calls missing, if it may be passed and was
    not; types of tokens, beside tokens, mark the places of those that stand for images or sound."""
    name, spec = match[1], problem.spec
    if name not in problem.optional or name in spec:
        return
    if TOKENS_INPUT in spec and name in TOKEN_TYPE_INPUTS:
        yield {**spec, name: replace(spec[TOKENS_INPUT], kind="marks")}
    else:
        yield problem.with_optional(name)


def give_attribute(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield the inputs with the attribute that is missing added to all stand-ins for objects
    (`SimpleNamespace`), with a value that its name suggests; nothing where it suggests none."""
    try:
        attribute_value = {match[1]: value_for(match[1])}
    except LookupError:
        return
    objects = {
        name: vars(slot.value)
        for name, slot in problem.spec.items()
        if isinstance(slot.value, SimpleNamespace)
    }
    completed = {
        name: Slot("plain", value=SimpleNamespace(**attributes, **attribute_value))
        for name, attributes in objects.items()
    }
    yield {**problem.spec, **completed}


def take_none_for_object(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with None for each parameter of which the failing statement reads an attribute
    that tensors lack, and which a file that the error came through compares with None."""
    source = "".join(problem.sources)
    for name in problem.spec:
        is_read = re.search(rf"\b{name}\.{match[1]}\b", problem.statement)
        if is_read and re.search(rf"\b{name} is (?:not )?None\b", source):
            yield {**problem.spec, name: Slot("plain")}


def take_listed_word(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield the inputs with a word that a message lists in the place of the one that it refuses."""
    word, refused_word = match.groups()
    for name, slot in problem.spec.items():
        if slot.value == refused_word:
            yield with_changed_slot(problem.spec, name, value=word)


def fill_shape_by_length(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs of the fixed length at which a sample has as many elements as the shape that the
    error names; nothing where there is no other such length up to `_LONGEST`."""
    batch, length = problem.failed.size
    rows, shape, element_count = match[1], match[2], int(match[3])
    if rows not in ("-1", str(batch)) or not element_count:
        return
    wanted_count = math.prod(map(int, shape.split(","))) * batch
    new_length, remainder = divmod(wanted_count * length, element_count)
    if not remainder and new_length != length and 0 < new_length <= _LONGEST:
        yield with_changed_dims(
            problem.spec,
            lambda dim: Dim(dim.factor * new_length) if dim.of == "length" else dim,
        )


def lengthen_divided(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs four times as long, since a length was divided down to zero.

    Dimensions that come second in an input of three or more count as lengths, also in the other
    inputs; those that would exceed `_LONGEST` stay. Nothing is yielded where all stay.
    """
    size = problem.failed.size
    lengths = {slot.dims[1] for slot in problem.spec.values() if len(slot.dims) > 2}
    longer_dims = {
        dim: Dim(4 * dim.factor, dim.of) for dim in lengths if 4 * dim.at(size) <= _LONGEST
    }
    if longer_dims:
        yield with_changed_dims(problem.spec, lambda dim: longer_dims.get(dim, dim))


def fit_chunks(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs that the model can divide into chunks, since a length in it could not be
    divided.

    Fixed dimensions that are multiples of this length, such as the sides of images, are multiplied
    by the smallest number with which the length becomes a multiple of the chunk; those that would
    exceed `_LONGEST` stay.
    """
    length, chunk = int(match[1]), int(match[2])
    factor = chunk // math.gcd(length, chunk)
    if length and factor > 1:
        yield with_changed_dims(
            problem.spec,
            lambda dim: (
                Dim(dim.factor * factor)
                if not dim.of
                and dim.factor > 1
                and dim.factor % length == 0
                and dim.factor * factor <= _LONGEST
                else dim
            ),
        )


def give_wanted_channels(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with the number of channels that a convolution wants in the second dimension,
    for each input of the shape that the error names."""
    shape = tuple(map(int, match[1].split(",")))
    for name, slot in problem.spec.items():
        if tuple(dim.at(problem.failed.size) for dim in slot.dims) == shape:
            dims = (slot.dims[0], Dim(int(match[2])), *slot.dims[2:])
            yield with_changed_slot(problem.spec, name, dims=dims)


def give_placeholders(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with as many tokens that stand for images, sound or videos as the error says
    there are features, the same number in each row.

    Where the error says that there are as many tokens as features, it counts the elements of the
    features, which are more by the width of the text model. Nothing is yielded where the
    configuration has no such token, where there are such tokens in another number, where the
    features do not divide among the rows, or where a row would need more than `LARGEST`. Models
    make this check before they put features in the place of tokens.
    """
    token = _placeholder(match[1].lower(), problem.config)
    if token is None or TOKENS_INPUT not in problem.spec:
        return
    token_count, feature_count = int(match[2]), int(match[3])
    if token_count and token_count != feature_count:
        return
    if token_count == feature_count:  # the message counts elements of features
        text_config = getattr(problem.config, TEXT_CONFIG_FIELD, problem.config)
        feature_count //= getattr(text_config, TEXT_WIDTH_FIELD, 1)
    count, remainder = divmod(feature_count, problem.failed.size[0])
    if not remainder and 0 < count <= LARGEST:
        yield with_places(problem.spec, token, count)


def _placeholder(sense: str, config: Any) -> int | None:
    """Return the id of the token that stands for an image or another input (`sense` is its name in
    the configuration, such as "image"); None where the configuration has none."""
    values = (getattr(config, f"{sense}_token_{end}", None) for end in PLACEHOLDER_ENDS)
    return next((value for value in values if isinstance(value, int)), None)


def give_named_arguments(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield the inputs with the absent parameters that the error names: where it calls them missing
    first with all of them, then with each of them."""
    text, absent = problem.failed.text, problem.absent
    names = [name for name in re.findall(r"\w+", text) if name in absent]
    if names and "missing" in text:
        yield problem.with_optional(*names)
    yield from (problem.with_optional(name) for name in dict.fromkeys(names))


def give_arguments_of_statements(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield the inputs with each absent parameter that is named in a statement which the error came
    through, those of the innermost statement first."""
    yield from (problem.with_optional(name) for name in _absent_in_statements(problem))


def give_optional_of_width(problem: InputProblem, match: re.Match[str]) -> Iterator[Spec]:
    """Yield the inputs with an absent parameter whose last dimension is the width that a layer
    takes, since the layer got another width.

    Cross-attention without the states of an encoder attends to its own states, which may have
    another width. The parameters are those of `give_arguments_of_statements`.
    """
    for name in _absent_in_statements(problem):
        slot = problem.optional[name]
        if slot.dims:
            dims = (*slot.dims[:-1], Dim(int(match[1])))
            yield {**problem.spec, name: replace(slot, dims=dims)}


def _absent_in_statements(problem: InputProblem) -> Iterator[str]:
    """Yield the names of the absent parameters in the statements that the error came through,
    innermost first; a name may come several times. Nothing is yielded without an error."""
    if problem.failed.error is None:
        return
    absent = problem.absent
    for _, text in statements_of_error(problem.failed.error):
        yield from (name for name in dict.fromkeys(re.findall(r"\w+", text)) if name in absent)


def give_each_optional(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield the inputs with each of the absent parameters by itself."""
    yield from (problem.with_optional(name) for name in problem.absent)


def drop_mentioned(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield the inputs without each parameter that the error mentions and that is one of
    `problem.optional`."""
    text = problem.failed.text
    mentioned = [name for name in problem.spec if re.search(rf"\b{name}\b", text)]
    for name in mentioned:
        if name in problem.optional:
            yield {key: slot for key, slot in problem.spec.items() if key != name}


def change_words(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield inputs with another word for each parameter of a `forward`, of the files that the error
    came through, that is a word by default, or is compared with words and has no default: each of
    the words that these files compare with it, and one that they do not."""
    for source in problem.sources:
        words_by_parameter = source_hints.words_of_forward(source)
        for name, words in words_by_parameter.items():
            slot = problem.spec.get(name)
            for word in (*words, OTHER_WORD):
                if slot is None or slot.kind != "plain" or slot.value != word:
                    yield {**problem.spec, name: Slot("plain", value=word)}


def with_changed_slot(spec: Spec, name: str, **changes: Any) -> Spec:
    """Return a copy of a specification with changed fields of one slot."""
    return {**spec, name: replace(spec[name], **changes)}


def with_changed_dims(spec: Spec, change: Callable[[Dim], Dim]) -> Spec:
    """Return a copy of a specification with `change` of each dimension of each slot."""
    return {name: replace(slot, dims=tuple(map(change, slot.dims))) for name, slot in spec.items()}
