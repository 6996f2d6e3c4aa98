"""Test the tables of repairs: each row answers its example, before others do, with the expected
change.

A new row needs a case here, in the dictionary of its table, under the name of its fixer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from regraft.verification.child.call_outcomes import drop_traceback
from regraft.verification.child.drivers import (
    config_repairs,
    config_shrinking,
    described_shapes,
    input_repair_tables,
    input_repairs,
    source_hints,
)
from regraft.verification.child.drivers.argument_slots import (
    BATCH,
    LENGTH,
    POSITIONS,
    Dim,
    Slot,
)
from regraft.verification.child.drivers.field_tables import BACKBONE
from regraft.verification.child.drivers.input_fixers import InputProblem
from regraft.verification.child.drivers.model_attempts import Attempt
from regraft.verification.child.drivers.repair_table import ANY_ERROR, Repair, changes
from regraft.verification.child.drivers.size_fixers import (
    SIZE_MISMATCHES,
    ConfigProblem,
)


def position_embeddings(error: Any) -> None:
    """Raise an error from a function with the name of an input."""
    raise error


def raised(text: Any) -> Any:
    """Return an error with a text, raised by a statement that names `position_embeddings`."""
    name, _, message = text.partition(": ")
    try:
        position_embeddings(type(name, (Exception,), {})(message))
    except Exception as error:  # noqa: BLE001 - the error is the result
        return drop_traceback(error)


def raised_by_unpacking(_: Any) -> Any:
    """Return the error of a statement that unpacks the shape of the input `images`."""
    images = SimpleNamespace(shape=(1, 5, 32))
    try:
        _batch, _channels, _height, _width = images.shape
    except ValueError as error:
        return drop_traceback(error)


def raised_by_unpacking_in_two(_: Any) -> Any:
    """Return the error of a statement that unpacks the input `states` to two parts."""
    states = [0.0]
    try:
        _hidden, _cell = states
    except ValueError as error:
        return drop_traceback(error)


def raised_by_unbinding(_: Any) -> Any:
    """Return the error of a statement that takes the input `states` apart along the last axis."""
    states = torch.ones(3, 7, 32)
    try:
        _x, _y, _width, _height = states.unbind(-1)
    except ValueError as error:
        return drop_traceback(error)


def raised_by_reading(_: Any) -> Any:
    """Return the error of a statement that reads an attribute of the input `states`, which may be
    None."""
    states: Any = torch.ones(3, 7)
    try:
        return None if states is None else states.blocks
    except AttributeError as error:
        return drop_traceback(error)


def raised_by_range(_: Any) -> Any:
    """Return the error of a loop over `range(states)`."""
    states: Any = SimpleNamespace()
    try:
        for _step in range(states):
            pass
    except TypeError as error:
        return drop_traceback(error)


def raised_by_inversion(_: Any) -> Any:
    """Return the error of a statement that inverts the input `states`."""
    states = torch.ones(3, 7)
    try:
        return ~states
    except TypeError as error:
        return drop_traceback(error)


def raised_by_einsum(_: Any) -> Any:
    """Return the error of an equation that the input `states` has too many axes for."""
    states, weights = torch.ones(3, 7, 32), torch.ones(32)
    try:
        torch.einsum("bd,d->b", states, weights)
    except RuntimeError as error:
        return drop_traceback(error)


def raised_by_index(_: Any) -> Any:
    """Return the error of an index that the input `states` has too few axes for."""
    states = torch.ones(3, 7, 32)
    try:
        return states[:, 0, :, :]
    except IndexError as error:
        return drop_traceback(error)


def raised_by_comparison(text: Any) -> Any:
    """Return the error of a test whether the input `states` has as many tokens as an image."""
    states, height, width = torch.ones(3, 7, 32), 4, 6
    try:
        if states.shape[1] != height * width:
            raise AssertionError(text.partition(": ")[2])
    except AssertionError as error:
        return drop_traceback(error)


def raised_by_remainder(text: Any) -> Any:
    """Return the error of a test whether windows divide the length of the input `states`."""
    states, window = torch.ones(3, 7, 32), 5
    try:
        if states.size(1) % window:
            raise ValueError(text.partition(": ")[2])
    except ValueError as error:
        return drop_traceback(error)


def forward(x: Any, way: str = "fused") -> Any:
    """Raise an error where `way` is not "plain"."""
    if way == "plain":
        return x
    raise AssertionError("states must be given")


def raised_for_a_word(_: Any) -> Any:
    """Return the error of `forward` with its default."""
    try:
        forward(0)
    except AssertionError as error:
        return drop_traceback(error)


@dataclass
class InputCase:
    """Inputs that led to an error, and the change that is expected."""

    spec: dict[str, Slot]
    expected: dict[str, Slot]
    optional: dict[str, Slot] = field(default_factory=dict)
    config: Any = None
    error: Any = raised  # makes the error of a text

    def problem(self, text: Any) -> Any:
        return InputProblem(Attempt(self.spec, 1, self.error(text)), self.optional, self.config)


@dataclass
class ConfigCase:
    """A shrunk configuration that led to an error, and the change that is expected."""

    small: dict[str, Any]
    expected: dict[str, Any]
    original: dict[str, Any] | None = None
    line: str = ""
    choices: Mapping[str, tuple[str | int, ...]] = field(default_factory=dict)

    def problem(self, text: Any) -> Any:
        original = self.small if self.original is None else self.original
        return ConfigProblem(original, self.small, text, self.line, self.choices)


def normal(*dims: Any) -> Any:
    """Return a slot of normally distributed values."""
    return Slot("normal", dims)


TOKENS = {"input_ids": Slot("ids", (BATCH, LENGTH), 87)}
STATES = {"states": normal(BATCH, LENGTH, Dim(32))}
MASK = {"mask": Slot("mask", (BATCH, LENGTH))}
SCORES = {"scores": normal(BATCH, LENGTH)}
COMPLETIONS = {
    "give_missing_argument": InputCase(
        TOKENS,
        {**TOKENS, "mm_token_type_ids": Slot("marks", (BATCH, LENGTH), 87)},
        {"mm_token_type_ids": Slot("ids", (BATCH, LENGTH), 2)},
    ),
    "give_attribute": InputCase(
        {"module": Slot("plain", value=SimpleNamespace(training=False))},
        {"module": Slot("plain", value=SimpleNamespace(training=False, num_key_value_groups=1))},
    ),
    "take_listed_word": InputCase(
        {**STATES, "cache_mode": Slot("plain", value="gelu")},
        {**STATES, "cache_mode": Slot("plain", value="extract")},
    ),
    "fill_shape_by_length": InputCase(TOKENS, {"input_ids": Slot("ids", (BATCH, Dim(32)), 87)}),
    "lengthen_divided": InputCase(STATES, {"states": normal(BATCH, Dim(4, "length"), Dim(32))}),
    "fit_chunks": InputCase(
        {"img": normal(BATCH, Dim(3), Dim(32), Dim(32))},
        {"img": normal(BATCH, Dim(3), Dim(224), Dim(224))},
    ),
    "give_wanted_channels": InputCase(
        {"pixel_values": normal(BATCH, Dim(3), Dim(32), Dim(32))},
        {"pixel_values": normal(BATCH, Dim(5), Dim(32), Dim(32))},
    ),
    "give_placeholders": InputCase(
        TOKENS,
        {"input_ids": Slot("ids", (BATCH, Dim(1, "length", 4)), 87, places=((95, 4),))},
        config=SimpleNamespace(image_token_id=95),
    ),
    "fit_compared_sizes": InputCase(
        STATES, {"states": normal(BATCH, Dim(24), Dim(32))}, error=raised_by_comparison
    ),
}
SUGGESTIONS = {
    "_complete_first": InputCase(
        STATES,
        {**STATES, "input_features_mask": MASK["mask"]},
        {"input_features_mask": MASK["mask"]},
    ),
    "take_none_for_object": InputCase(STATES, {"states": Slot("plain")}, error=raised_by_reading),
    "fit_compared_sizes": InputCase(
        {"states": normal(BATCH, LENGTH, LENGTH)},
        {"states": normal(BATCH, LENGTH, Dim(24))},
        error=raised_by_comparison,
    ),
    "give_named_arguments": InputCase(STATES, {**STATES, **SCORES}, SCORES),
    "give_arguments_of_statements": InputCase(
        STATES,
        {**STATES, "position_embeddings": normal(BATCH, LENGTH)},
        {"position_embeddings": normal(BATCH, LENGTH)},
    ),
    "give_optional_of_width": InputCase(
        STATES,
        {**STATES, "position_embeddings": normal(BATCH, LENGTH, Dim(12))},
        {"position_embeddings": normal(BATCH, LENGTH, Dim(32))},
    ),
    "give_two_parts": InputCase(
        STATES, {"states": Slot("pair", STATES["states"].dims)}, error=raised_by_unpacking_in_two
    ),
    "take_unbound_axis": InputCase(
        STATES, {"states": normal(BATCH, LENGTH, Dim(4))}, error=raised_by_unbinding
    ),
    "take_unpacked_shape": InputCase(
        {"images": normal(BATCH, LENGTH, Dim(32))},
        {"images": normal(BATCH, Dim(4), Dim(16), Dim(16))},
        config=SimpleNamespace(in_channels=4),
        error=raised_by_unpacking,
    ),
    "take_image_size": InputCase(MASK, {"mask": Slot("mask", (BATCH, Dim(1), Dim(16), Dim(16)))}),
    "take_convolved_rank": InputCase(
        STATES, {"states": normal(BATCH, Dim(1), Dim(4), Dim(16), Dim(16))}
    ),
    "take_described_shape": InputCase(
        {"pixel_values": normal(BATCH, Dim(3), Dim(8), Dim(8))},
        {"pixel_values": normal(BATCH, Dim(2), Dim(3), Dim(8), Dim(8))},
    ),
    "take_named_shape": InputCase(MASK, {"mask": Slot("mask", (BATCH, Dim(9)))}),
    "refill_shape": InputCase(MASK, {"mask": Slot("mask", (BATCH, Dim(14)))}),
    "fit_split_sizes": InputCase(STATES, {"states": normal(BATCH, Dim(5), Dim(32))}),
    "flatten_positions": InputCase(STATES, {"states": normal(POSITIONS, Dim(32))}),
    "give_features": InputCase(
        {"tokens": Slot("ids", (BATCH, LENGTH), 9)},
        {"tokens": Slot("normal", (BATCH, LENGTH, Dim(24)), 9)},
    ),
    "fit_width": InputCase(STATES, {"states": normal(BATCH, LENGTH, Dim(3))}),
    "fit_channels_beside": InputCase(
        {"image": normal(BATCH, Dim(16), Dim(8), Dim(8))},
        {"image": normal(BATCH, Dim(14), Dim(8), Dim(8))},
    ),
    "fit_image_sides": InputCase(
        {"image": normal(BATCH, Dim(16), Dim(8), Dim(8))},
        {"image": normal(BATCH, Dim(16), Dim(6), Dim(6))},
    ),
    "take_images_of_width": InputCase(STATES, {"states": normal(BATCH, Dim(32), Dim(4), Dim(4))}),
    "drop_single_dimensions": InputCase(
        {"mask": Slot("additive", (BATCH, Dim(1), LENGTH, LENGTH))},
        {"mask": Slot("additive", (BATCH, LENGTH, LENGTH))},
    ),
    "exchange_numbers": InputCase(STATES, {"states": normal(BATCH, LENGTH, Dim(12))}),
    "allow_for_added_positions": InputCase(
        {"image": normal(BATCH, Dim(16), Dim(8), Dim(8))},
        {"image": normal(BATCH, Dim(16), Dim(7), Dim(7))},
    ),
    "fit_divided_sizes": InputCase(
        STATES, {"states": normal(BATCH, Dim(10), Dim(32))}, error=raised_by_remainder
    ),
    "give_whole_numbers": InputCase(
        STATES, {"states": Slot("plain", value=2)}, error=raised_by_range
    ),
    "give_arrays": InputCase(
        TOKENS, {name: replace(slot, is_array=True) for name, slot in TOKENS.items()}
    ),
    "give_truth_values": InputCase(
        {"states": Slot("additive", (BATCH, Dim(1), LENGTH, LENGTH))},
        {"states": Slot("every other", (BATCH, LENGTH))},
        error=raised_by_inversion,
    ),
    "give_indices": InputCase(STATES, {"states": Slot("ids", (BATCH,), 2)}),
    "change_kinds": InputCase(SCORES, {"scores": Slot("ids", (BATCH, LENGTH), 2)}),
    "lower_numbers": InputCase({"axis": Slot("plain", value=2)}, {"axis": Slot("plain", value=1)}),
    "lower_token_ids": InputCase(TOKENS, {"input_ids": Slot("ids", (BATCH, LENGTH), 2)}),
    "add_missing_dimensions": InputCase(
        STATES, {"states": normal(BATCH, Dim(1), Dim(1), LENGTH, Dim(32))}
    ),
    "add_indexed_dimensions": InputCase(
        STATES, {"states": normal(BATCH, LENGTH, Dim(4), Dim(32))}, error=raised_by_index
    ),
    "take_einsum_ranks": InputCase(
        STATES, {"states": normal(Dim(4), Dim(4))}, error=raised_by_einsum
    ),
    "drop_surplus_dimensions": InputCase(
        {"x": normal(BATCH, Dim(5), Dim(16), Dim(32))}, {"x": normal(BATCH, Dim(5), Dim(32))}
    ),
    "give_batches": InputCase(
        {**STATES, "places": Slot("zeros", (LENGTH, Dim(3)))},
        {**STATES, "places": Slot("zeros", (BATCH, LENGTH, Dim(3)))},
    ),
    "change_ranks": InputCase(STATES, {"states": normal(BATCH, Dim(32))}),
    "give_each_optional": InputCase(STATES, {**STATES, **MASK}, MASK),
    "change_words": InputCase(
        STATES, {**STATES, "way": Slot("plain", value="plain")}, error=raised_for_a_word
    ),
    "drop_mentioned": InputCase({**STATES, **SCORES}, STATES, SCORES),
    "fit_proportion": InputCase(
        {"spectrum": normal(BATCH, Dim(64), LENGTH)}, {"spectrum": normal(BATCH, Dim(80), LENGTH)}
    ),
    "take_usual_sides": InputCase(
        {"x": normal(BATCH, Dim(1), Dim(32), Dim(32))},
        {"x": normal(BATCH, Dim(1), Dim(28), Dim(28))},
    ),
    "change_any_shape": InputCase(
        {"images": normal(BATCH, Dim(3), Dim(8), Dim(8))},
        {"images": normal(BATCH, Dim(3), Dim(16), Dim(16))},
    ),
}
FILLINGS = {
    "invert_flags": ConfigCase({"fused": True}, {"fused": False}),
    "give_plain_backbone": ConfigCase(
        {"use_timm_backbone": True, "backbone_config": None},
        {"use_timm_backbone": False, "backbone_config": BACKBONE},
    ),
    "fill_empty_lists": ConfigCase({"factors": []}, {"factors": [1.0]}),
    "set_numbers": ConfigCase({"num_experts": None}, {"num_experts": 1}),
    "set_mappings": ConfigCase({"table": None}, {"table": {}}),
    "invert_kind_flags": ConfigCase({"is_decoder": False}, {"is_decoder": True}),
}
CUTS = {
    "change_named_fields": ConfigCase(
        {"buckets": 64}, {"buckets": 1}, line="nn.Embedding(config.buckets, 8)"
    ),
    "cut_fields": ConfigCase({"width": 2.0}, {"width": 0.5}),
    "restore_fields": ConfigCase({"num_layers": 2}, {"num_layers": 1}, {"num_layers": 1}),
}
STAGES = {
    "channel_list": [768, 96],
    "backbone_config": {"hidden_size": 96, "embed_dim_per_stage": [96, 768]},
}
SMALL_STAGES = config_shrinking.shrink(STAGES, config_shrinking.SCALES[0])
BACKBONE_STAGES = {"depths": [2, 2, 6], "num_layers": 3, "out_features": ["stage1", "stage2"]}
DEEP = {"depths": [2, 2, 6], "num_layers": 3, "units": 64}
FITS = {
    "leave_cuda": ConfigCase(
        {"device": "cuda:0", "backend": "cuda_graphs"}, {"device": "cpu", "backend": "cuda_graphs"}
    ),
    "set_negative_sizes": ConfigCase({"words": -1, "units": 8}, {"words": 128, "units": 8}),
    "give_wanted_list": ConfigCase(
        {"num_hidden_layers": 2},
        {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]},
        {"num_hidden_layers": 12, "out_indices": [12]},
    ),
    "widen_heads": ConfigCase(
        {"head_dim": 8, "hidden_size": 32}, {"head_dim": 64, "hidden_size": 32}
    ),
    "match_sizes": ConfigCase({"hidden_size": 32, "heads": 4}, {"hidden_size": 16, "heads": 4}),
    "divide_sides": ConfigCase({"sides": (8, 8)}, {"sides": (7, 7)}),
    "repeat_numbers": ConfigCase({"depths": 2}, {"depths": (2, 2)}),
    "take_single_numbers": ConfigCase(
        {"depths": (1, 1), "resolution": (8, 8), "sizes": (1, 2)},
        {"depths": (1, 1), "resolution": 8, "sizes": (1, 2)},
        line="size = resolution // 2",
    ),
    "lengthen_lists": ConfigCase(
        {"depths": (2, 3)}, {"depths": (2, 3, 2, 3)}, None, "self.make(depths[2])"
    ),
    "enlarge_to_multiples": ConfigCase({"stride": 1, "cin": 32}, {"stride": 1, "cin": 128}),
    "enlarge_divided_sizes": ConfigCase({"heads": 4, "width": 32}, {"heads": 4, "width": 64}),
    "change_named_fields": ConfigCase({"window": None}, {"window": 2}),
    "add_missing_attribute": ConfigCase({"d": 1}, {"d": 1, "initializer_range": 0.02}),
    "add_missing_key": ConfigCase({"d": 1}, {"d": 1, "with_bias": True}),
    "give_compared_words": ConfigCase(
        {"mode": 32, "kind": "gelu"},
        {"mode": "causal", "kind": "gelu"},
        line="assert config.kind or config.mode in MODES",
        choices={"mode": ("block", "causal", 3), "other": ("a",)},
    ),
    "equalise_sizes": ConfigCase(SMALL_STAGES, {**SMALL_STAGES, "channel_list": [256, 32]}, STAGES),
    "restore_stages": ConfigCase(
        {"depths": [2, 2], "num_layers": 2}, BACKBONE_STAGES, BACKBONE_STAGES
    ),
    "adjust_part_sizes": ConfigCase({"hidden_size": 384}, {"hidden_size": 768}),
    "exchange_sizes": ConfigCase({"units": 20}, {"units": 32}, {"units": 512}),
    "enlarge_fields": ConfigCase({"words": 99}, {"words": 10785}),
    "_fill_fields": ConfigCase({"num_experts": None}, {"num_experts": 1}),
    "restore_fields": ConfigCase({"stages": 2}, {"stages": 4}, {"stages": 4}),
    "double_sizes": ConfigCase({"units": 8}, {"units": 16}, {"units": 64}),
    "restore_groups": ConfigCase({"depths": [2], "num_layers": 1, "units": 16}, DEEP, DEEP),
}
TABLES: dict[str, tuple[Sequence[Repair[Any, Any]], Mapping[str, InputCase | ConfigCase]]] = {
    "completions": (input_repair_tables.COMPLETIONS, COMPLETIONS),
    "suggestions": (input_repair_tables.SUGGESTIONS, SUGGESTIONS),
    "fillings": (config_repairs.FILLINGS, FILLINGS),
    "cuts": (config_repairs.CUTS, CUTS),
    "fits": (config_repairs.FITS, FITS),
}
ROWS = [(table, row.name) for table, (rows, _) in TABLES.items() for row in rows]


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_a_case(table: Any) -> None:
    rows, cases = TABLES[table]
    assert [row.name for row in rows] == [*cases]


@pytest.mark.parametrize(("table", "name"), ROWS)
def test_the_expected_change_comes_from_its_row(table: Any, name: Any) -> None:
    rows, cases = TABLES[table]
    place = [row.name for row in rows].index(name)
    text, case = rows[place].example, cases[name]
    assert re.search(rows[place].pattern, text)
    problem = case.problem(text)
    assert case.expected in list(changes([rows[place]], problem, text))
    assert case.expected not in list(changes(rows[:place], problem, text))


@pytest.mark.parametrize("name", COMPLETIONS)
def test_a_completion_is_the_first_change_of_its_message(name: Any) -> None:
    (text,) = (row.example for row in input_repair_tables.COMPLETIONS if row.name == name)
    case = COMPLETIONS[name]
    problem = case.problem(text)
    assert problem.failed.text == text
    assert input_repairs.complete_spec(problem.failed, case.optional, case.config) == case.expected


def test_a_parameter_without_a_default_gets_the_words_that_it_is_compared_with() -> None:
    source = """
class Norm:
    def forward(self, x, mode: str, width, *, kind="plain", table):
        if mode == "norm" or width == 8:
            return x
        return x + table if mode in ("denorm", "none") else -x
"""
    words = source_hints.words_of_forward(source)
    assert words == {"mode": ("norm", "denorm", "none"), "kind": ()}


@pytest.mark.parametrize("place", range(len(SIZE_MISMATCHES)))
def test_two_sizes_that_had_to_be_equal_are_read_from_each_message(place: Any) -> None:
    text = SIZE_MISMATCHES[place][1]
    matching = [bool(re.search(pattern, text)) for pattern, _ in SIZE_MISMATCHES]
    assert matching.index(True) == place
    sizes = ConfigProblem({}, {}, text, "", {}).mismatched_sizes
    assert sizes is not None and sorted(sizes) == [16, 32]


def test_a_repair_that_fails_does_not_end_the_search() -> None:
    def fail(problem: Any, match: Any) -> Any:
        yield f"{problem} before"
        raise IndexError("a message without a number")

    def succeed(problem: Any, match: Any) -> Any:
        yield f"{problem} after"

    table = [Repair(ANY_ERROR, fail, ""), Repair("never", succeed, ""), Repair("now", succeed, "")]
    with pytest.warns(RuntimeWarning, match="fail failed: IndexError: a message without a number"):
        assert [*changes(table, "problem", "now")] == ["problem before", "problem after"]


def test_a_repair_is_tried_in_nested_configurations_before_the_next() -> None:
    small = {"hidden_size": 32, "text_config": {"hidden_size": 32}}
    text = SIZE_MISMATCHES[0][1]
    first, second, *_ = config_repairs.repairs(small, small, text)
    assert first == {**small, "hidden_size": 16}
    assert second == {**small, "text_config": {"hidden_size": 16}}


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("b, c, h, w = x.shape", normal(BATCH, Dim(32), Dim(16), Dim(16))),
        ("    N, T, C, H, W = x.size()", normal(BATCH, Dim(4), Dim(32), Dim(16), Dim(16))),
        ("batch_size, t, d = x.shape", normal(BATCH, LENGTH, Dim(32))),
        ("seqlen_sum, _ = x.shape", normal(LENGTH, Dim(32))),
        ("b, alpha, h, w = x.shape", None),
    ],
)
def test_the_names_of_axes_tell_a_shape(statement: Any, expected: Any) -> None:
    name, axes = described_shapes.unpacked_shape(statement) or ("", ())
    assert name == "x"
    slots = described_shapes.slots_of_axes(axes, normal(BATCH, LENGTH, Dim(32)), None)
    assert next(slots, None) == expected


@pytest.mark.parametrize(
    "statement", ["b, c = x.y.shape", "b, c = self.pair", "b = x.shape", "b, c = f(x)", "b, c ="]
)
def test_other_statements_unpack_no_shape_of_an_input(statement: Any) -> None:
    assert described_shapes.unpacked_shape(statement) is None


def test_numbers_of_a_message_may_be_fixed_or_vary_with_the_batch() -> None:
    spec = {"images": normal(BATCH, BATCH, Dim(6), LENGTH)}
    others = list(input_repairs.specs_with_other_dimensions(spec))
    assert {"images": normal(BATCH, BATCH, Dim(2, "batch"), LENGTH)} in others
    assert {"images": normal(BATCH, Dim(3), Dim(6), LENGTH)} in others
    assert {"images": normal(BATCH, Dim(3), Dim(6), Dim(7))} in others
    assert spec not in others
