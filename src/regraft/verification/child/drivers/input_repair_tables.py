"""Tables of repairs of inputs: patterns of the errors that a model raises, each with the fixer that
yields changed inputs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from regraft.verification.child.drivers import (
    described_shapes,
    image_fixers,
    kind_fixers,
    shape_fixers,
    size_assertion_fixers,
    unpacking_fixers,
)
from regraft.verification.child.drivers import input_fixers as fixers
from regraft.verification.child.drivers.argument_slots import Spec
from regraft.verification.child.drivers.input_fixers import InputProblem
from regraft.verification.child.drivers.model_attempts import ATTRIBUTE_ERROR, TYPE_ERROR
from regraft.verification.child.drivers.repair_table import ANY_ERROR, Repair, changes
from regraft.verification.child.drivers.size_fixers import WIDTH_MISMATCH

# The texts of errors about an absent input, and about the number of dimensions of an input.
_MISSING_ERROR = r"None|UnboundLocal|missing|specify"
_RANK_ERROR = (
    r"[Dd]imension|unpack(?! non-iterable NoneType)|\dD|\d-D|dims|too many indices|index \d+ is out"
    r" of bounds|permute|"
    r"tuple index|is invalid for input of size|must have shape|\dd[- ]tensor|rank|einsum|subscript"
    r"|supposed to be a vector|to match target batch_size|same number of dimensions"
)
_Table = tuple[Repair[InputProblem, Spec], ...]

# Changes that follow from the message alone: the first one is made at once, without a search.
COMPLETIONS: _Table = (
    Repair(
        r"`(\w+)` is missing",
        fixers.give_missing_argument,
        "ValueError: Images were passed but `mm_token_type_ids` is missing. Please pass it.",
    ),
    Repair(
        ATTRIBUTE_ERROR,
        fixers.give_attribute,
        "AttributeError: 'types.SimpleNamespace' object has no attribute 'num_key_value_groups'",
    ),
    Repair(
        r"['\"](\w+)['\"],? (?:or|and) ['\"]\w+['\"].*?\b[Gg]ot:? ['\"]?(\w+)",
        fixers.take_listed_word,
        "ValueError: `cache_mode` must be either 'extract' or 'cached', got gelu.",
    ),
    Repair(
        r"shape '\[(-1|\d+), ([\d, ]+)\]' is invalid for input of size (\d+)",
        fixers.fill_shape_by_length,
        "RuntimeError: shape '[-1, 4, 8, 8]' is invalid for input of size 168",
    ),
    Repair(
        r"shape '\[(?:-?\d+, )*0\b",
        fixers.lengthen_divided,
        "RuntimeError: shape '[3, 2, 0, 128]' is invalid for input of size 672",
    ),
    Repair(
        r"can't divide axis of length (\d+) in chunks of (\d+)",
        fixers.fit_chunks,
        "EinopsError: Shape mismatch, can't divide axis of length 8 in chunks of 7",
    ),
    Repair(
        r"expected input\[([\d, ]+)\] to have (\d+) channels",
        fixers.give_wanted_channels,
        "RuntimeError: Given groups=1, weight of size [4, 5, 3, 3], expected input[3, 3, 32, 32]"
        " to have 5 channels, but got 3 channels instead",
    ),
    Repair(
        r"(\w+) features and \w+ tokens do not match\D*(\d+)\D*(\d+)",
        fixers.give_placeholders,
        "ValueError: Image features and image tokens do not match, tokens: 0, features: 12",
    ),
    Repair(
        r"^(Assertion|Value)Error",
        size_assertion_fixers.fit_compared_sizes,
        "AssertionError: the tokens are not those of the image",
    ),
)


def _complete_first(problem: InputProblem, _: re.Match[str]) -> Iterator[Spec]:
    """Yield the first change that follows from the message alone (`COMPLETIONS`), if there is
    one."""
    yield from itertools.islice(changes(COMPLETIONS, problem, problem.failed.text), 1)


# Changes that a search tries, likely ones first.
SUGGESTIONS: _Table = (
    Repair(
        ANY_ERROR,
        _complete_first,
        "ValueError: Sound was passed but `input_features_mask` is missing. Please pass it.",
    ),
    Repair(
        r"^AttributeError: 'Tensor' object has no attribute '(\w+)'",
        fixers.take_none_for_object,
        "AttributeError: 'Tensor' object has no attribute 'blocks'",
    ),
    Repair(
        r"^(Assertion|Value)Error",
        size_assertion_fixers.fit_compared_sizes,
        "AssertionError: the tokens are not those of the image",
    ),
    Repair(
        r"^(?!.*unexpected)",
        fixers.give_named_arguments,
        "TypeError: Layer.forward() missing 1 required positional argument: 'scores'",
    ),
    Repair(
        _MISSING_ERROR,
        fixers.give_arguments_of_statements,
        "TypeError: cannot unpack non-iterable NoneType object",
    ),
    Repair(
        r"shapes cannot be multiplied \(\d+x\d+ and (\d+)x\d+\)",
        fixers.give_optional_of_width,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (21x32 and 12x5)",
    ),
    Repair(
        r"values to unpack \(expected 2\b",
        unpacking_fixers.give_two_parts,
        "ValueError: too many values to unpack (expected 2)",
    ),
    Repair(
        r"values to unpack",
        unpacking_fixers.take_unbound_axis,
        "ValueError: too many values to unpack (expected 4)",
    ),
    Repair(
        r"values to unpack",
        unpacking_fixers.take_unpacked_shape,
        "ValueError: not enough values to unpack (expected 4, got 3)",
    ),
    Repair(
        r"spatial dimensions of \[([\d, ]+)\] and output size of \[([\d, ]+)\]",
        image_fixers.take_image_size,
        "ValueError: Input and output must have the same number of spatial dimensions, but got"
        " input with spatial dimensions of [7] and output size of [16, 16]",
    ),
    Repair(
        r"(\d)D \(batched\) input to conv\dd, but got input of size: \[([\d, ]+)\]",
        image_fixers.take_convolved_rank,
        "RuntimeError: Expected 4D (unbatched) or 5D (batched) input to conv3d, but got input of"
        " size: [3, 7, 32]",
    ),
    Repair(
        described_shapes.SHAPE,
        shape_fixers.take_described_shape,
        "ValueError: Input must be a 5D tensor of shape (batch_size, 2, num_channels, height,"
        " width)",
    ),
    Repair(
        shape_fixers.SHAPE,
        shape_fixers.take_named_shape,
        "IndexError: The shape of the mask [3, 7] at index 1 does not match the shape of the"
        " indexed tensor [3, 9] at index 1",
    ),
    Repair(
        r"shape '\[([\d, ]+)\]' is invalid for input of size (\d+)",
        shape_fixers.refill_shape,
        "RuntimeError: shape '[6, 7]' is invalid for input of size 21",
    ),
    Repair(
        r"sum exactly to (\d+) .*split_sizes=\[([\d, ]+)\]",
        shape_fixers.fit_split_sizes,
        "RuntimeError: split_with_sizes expects split_sizes to sum exactly to 7 (input tensor's"
        " size at dimension 1), but got split_sizes=[1, 4]",
    ),
    Repair(
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)",
        shape_fixers.flatten_positions,
        "RuntimeError: The size of tensor a (7) must match the size of tensor b (21) at"
        " non-singleton dimension 1",
    ),
    Repair(
        r"shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x\d+\)",
        kind_fixers.give_features,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x7 and 24x16)",
    ),
    Repair(
        WIDTH_MISMATCH,
        shape_fixers.fit_width,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (21x288 and 27x16)",
    ),
    Repair(
        WIDTH_MISMATCH,
        image_fixers.fit_channels_beside,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (192x72 and 64x32)",
    ),
    Repair(
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)",
        image_fixers.fit_image_sides,
        "RuntimeError: The size of tensor a (4) must match the size of tensor b (3) at"
        " non-singleton dimension 2",
    ),
    Repair(
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) .* [01]$",
        image_fixers.take_images_of_width,
        "RuntimeError: The size of tensor a (32) must match the size of tensor b (3) at"
        " non-singleton dimension 0",
    ),
    Repair(
        r"number of sizes provided \((\d)\) must be greater",
        shape_fixers.drop_single_dimensions,
        "RuntimeError: expand(torch.FloatTensor{[12, 1, 7, 7]}, size=[12, 7, 7]): the number of"
        " sizes provided (3) must be greater or equal to the number of dimensions in the tensor"
        " (4)",
    ),
    Repair(
        r"\d",
        shape_fixers.exchange_numbers,
        "RuntimeError: The size of tensor a (32) must match the size of tensor b (12) at"
        " non-singleton dimension 2",
    ),
    Repair(
        r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)",
        shape_fixers.allow_for_added_positions,
        "RuntimeError: The size of tensor a (65) must match the size of tensor b (50) at"
        " non-singleton dimension 2",
    ),
    Repair(
        r"^(Assertion|Value)Error",
        size_assertion_fixers.fit_divided_sizes,
        "ValueError: the windows do not fit the image",
    ),
    Repair(
        r"cannot be interpreted as an integer|can be converted to an index|tuple of ints, ?but"
        r" (?:got|found element of type) Tensor|only one element tensors can be converted"
        r"|combination of arguments - got \(tuple|Boolean value of Tensor with more than one value",
        kind_fixers.give_whole_numbers,
        "TypeError: 'Tensor' object cannot be interpreted as an integer",
    ),
    Repair(
        r"'numpy\.\w+' and 'Tensor'|'Tensor' and 'numpy\.\w+'|expected np\.ndarray \(got Tensor\)"
        r"|^AttributeError: 'Tensor' object has no attribute '(astype|copy|tolist)'",
        kind_fixers.give_arrays,
        "TypeError: unsupported operand type(s) for *=: 'numpy.ndarray' and 'Tensor'",
    ),
    Repair(
        r"operator\.invert|\"bitwise_\w+\" not implemented for 'Float'",
        kind_fixers.give_truth_values,
        "TypeError: ~ (operator.invert) is only implemented on integer and Boolean-type tensors",
    ),
    Repair(
        r"tensors used as indices must be",
        kind_fixers.give_indices,
        "IndexError: tensors used as indices must be long, int, byte or bool tensors",
    ),
    Repair(
        TYPE_ERROR,
        kind_fixers.change_kinds,
        "RuntimeError: expected scalar type Long but found Float",
    ),
    Repair(
        r"out of range",
        kind_fixers.lower_numbers,
        "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 2)",
    ),
    Repair(
        r"out of range in self|index out of|(Target|index) \d+ is out of bounds",
        kind_fixers.lower_token_ids,
        "IndexError: index out of range in self",
    ),
    Repair(
        r"not enough values to unpack \(expected (\d), got (\d)\)",
        unpacking_fixers.add_missing_dimensions,
        "ValueError: not enough values to unpack (expected 5, got 3)",
    ),
    Repair(
        r"too many indices for tensor",
        unpacking_fixers.add_indexed_dimensions,
        "IndexError: too many indices for tensor of dimension 3",
    ),
    Repair(
        r"einsum\(\)",
        unpacking_fixers.take_einsum_ranks,
        "RuntimeError: einsum(): the number of subscripts in the equation (2) does not match the"
        " number of dimensions (3) for operand 1 and no ellipsis was given",
    ),
    Repair(
        r"expected (\d) dims\. Received (\d)-dim",
        shape_fixers.drop_surplus_dimensions,
        "EinopsError: Wrong shape: expected 3 dims. Received 4-dim tensor.",
    ),
    Repair(
        _RANK_ERROR,
        shape_fixers.give_batches,
        "EinopsError: Wrong shape: expected 4 dims. Received 3-dim tensor.",
    ),
    Repair(
        _RANK_ERROR,
        shape_fixers.change_ranks,
        "ValueError: too many values to unpack (expected 2)",
    ),
    Repair(
        _MISSING_ERROR,
        fixers.give_each_optional,
        "ValueError: You have to specify either input_ids or inputs_embeds",
    ),
    Repair(
        ANY_ERROR,
        fixers.change_words,
        "AssertionError: states must be given for cross-attention layers",
    ),
    Repair(
        ANY_ERROR,
        fixers.drop_mentioned,
        "TypeError: Model.forward() got an unexpected keyword argument 'scores'",
    ),
    Repair(
        r"shapes cannot be multiplied \(\d+x(?P<actual>\d+) and (?P<wanted>\d+)x"
        r"|must be equal to input_size. Expected (?P<wanted_width>\d+), got (?P<actual_width>\d+)",
        shape_fixers.fit_proportion,
        "RuntimeError: input.size(-1) must be equal to input_size. Expected 40, got 32",
    ),
    Repair(
        r"shapes cannot be multiplied|is invalid for input of size|Kernel size can't be greater"
        r"|Output size is too small",
        image_fixers.take_usual_sides,
        "RuntimeError: Calculated padded input size per channel: (2 x 2). Kernel size: (3 x 3)."
        " Kernel size can't be greater than actual input size",
    ),
    Repair(
        ANY_ERROR,
        shape_fixers.change_any_shape,
        "ValueError: the images are too small for this model",
    ),
)
