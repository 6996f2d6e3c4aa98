"""Test the construction of models: small configurations, inputs repaired after their errors,
searches for branches."""

import copy
import importlib.machinery
import json
import runpy
import sys
import types
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regraft.verification import verify

pytest.importorskip("torch")

import torch
from torch import nn

from regraft.verification.child import weights
from regraft.verification.child.call_outcomes import drop_traceback
from regraft.verification.child.drivers import (
    config_repairs,
    config_shrinking,
    config_variations,
    constructor_guesses,
    error_statements,
    field_tables,
    input_guesses,
    input_repairs,
    source_hints,
)
from regraft.verification.child.drivers.argument_slots import Dim, Sizes, Slot, slot_for
from regraft.verification.child.drivers.model_attempts import Attempt
from regraft.verification.child.drivers.slot_values import make_call
from regraft.verification.definition_changes import find_changes


def shapes(model: Any, **options: Any) -> Any:
    """Return the shapes of the keyword inputs that a model accepts."""
    accepted_inputs = input_guesses.find_accepted(model.eval(), **options)
    return {
        name: tuple(value.shape)
        for name, value in accepted_inputs.calls(model)(0)[-1].kwargs.items()
    }


class Frames(nn.Module):
    """Takes images of another size and rank than one would guess, and an argument that it misses
    when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(5, 4, 3)

    def forward(self, pixel_values: Any, scores: Any = None) -> Any:
        batch, frames, *image = pixel_values.shape
        if image[-1] != 16:
            raise ValueError(f"Input image size ({image[-1]}) doesn't match model (16)")
        x = (
            self.conv(pixel_values.reshape(batch * frames, *image))
            .mean((1, 2, 3))
            .view(batch, frames)
        )
        return x * scores.shape[0]


def test_inputs_are_repaired_after_their_errors() -> None:
    shapes_by_name = shapes(Frames())
    assert len(shapes_by_name["pixel_values"]) == 5
    assert shapes_by_name["pixel_values"][2:] == (5, 16, 16)
    assert "scores" in shapes_by_name


def test_what_another_model_of_the_class_takes_is_tried_without_a_search() -> None:
    spec = input_guesses.find_accepted(Frames().eval()).spec
    with pytest.raises(input_guesses.NoInputs):
        input_guesses.find_accepted(Frames().eval(), seconds=0)
    assert input_guesses.find_accepted(Frames().eval(), seconds=0, first_spec=spec).spec == spec


class Words(nn.Module):
    def __init__(self, kinds: Any = 2) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(99, 8), nn.Embedding(kinds, 8)

    def forward(self, input_ids: Any, kind_index: Any, past_key_value: Any = None) -> Any:
        return self.words(input_ids) + self.kinds(kind_index)


def test_integers_are_kept_below_the_number_of_rows() -> None:
    accepted_inputs = input_guesses.find_accepted(Words().eval())
    assert accepted_inputs.spec["kind_index"].limit == 2
    assert accepted_inputs.spec["input_ids"].limit > 2


def test_batch_statistics_get_two_rows() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(6)

        def forward(self, x: Any) -> Any:
            return self.norm(x.mean(1))

    accepted_inputs = input_guesses.find_accepted(Norm().eval(), inner=True, width=6)
    assert min(batch for batch, _ in accepted_inputs.sizes) == 2


def test_a_model_that_takes_nothing_says_why() -> None:
    class Refuses(nn.Module):
        def forward(self, x: Any) -> None:
            raise RuntimeError("never today")

    with pytest.raises(input_guesses.NoInputs, match="never today"):
        input_guesses.find_accepted(Refuses(), seconds=0.2)


def test_a_search_prefers_what_comes_furthest() -> None:
    model = nn.Sequential(nn.Linear(12, 5), nn.Linear(5, 3))
    start = {"input": Slot("normal", (Dim(1, "batch"), Dim(32)))}
    best = input_repairs.search(model, start, {})
    assert best.error is None
    assert best.spec["input"].dims == (Dim(1, "batch"), Dim(12))


@pytest.mark.parametrize(("took", "larger"), [(0.0, True), (1.0, False)])
def test_inputs_that_would_take_long_are_not_enlarged(
    took: float, larger: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def attempt(_: Any, spec: Any) -> Any:
        tried.append(input_repairs._element_count(spec))
        return Attempt(
            spec, 1, ValueError("Expected input size (64) to match size (256)"), took=took
        )

    monkeypatch.setattr(input_repairs, "attempt", attempt)
    input_repairs.search(nn.Identity(), {"values": Slot("normal", (Dim(1, "batch"), Dim(64)))}, {})
    assert len(tried) > 1
    assert (max(tried) > tried[0]) == larger


@pytest.mark.parametrize(
    ("name", "inner", "kind", "rank"),
    [
        ("attention_mask", False, "mask", 2),
        ("attention_mask", True, "additive", 4),
        ("input_ids", False, "ids", 2),
        ("pixel_mask", False, "mask", 3),
        ("past_key_value", True, "pair", 4),
        ("hidden_states", True, "normal", 3),
        ("bool_masked_pos", False, "every other", 2),
        ("bbox", False, "boxes", 3),
    ],
)
def test_slots_by_name(name: str, inner: bool, kind: str, rank: int) -> None:
    slot = slot_for(name, "Tensor", Sizes(None), inner)
    assert (slot.kind, len(slot.dims)) == (kind, rank)
    value = make_call({name: slot}, (2, 5), 0).kwargs[name]
    assert (value[0] if kind == "pair" else value).shape[0] == 2


def test_repairs_try_what_the_error_names_first() -> None:
    original = {"num_layers": 24, "hidden_size": 768, "window": None, "kinds": ["a"] * 24}
    small = config_shrinking.shrink(original, config_shrinking.SCALES[0])
    assert (
        next(config_repairs.repairs(original, small, "ValueError: `window` needs to be set"))[
            "window"
        ]
        == 2
    )
    assert {**small, "num_layers": 24} in config_repairs.repairs(
        original, small, "IndexError: list index out of range"
    )


def test_lists_that_divide_the_width_of_a_head_divide_the_small_one() -> None:
    config = {"attention_head_dim": 128, "num_heads": 24, "axes": (16, 56, 56), "depths": [64, 32]}
    small = config_shrinking.shrink(config, config_shrinking.SCALES[0])
    width = small["attention_head_dim"]
    assert width < 128 and sum(small["axes"]) == width
    assert all(part > 0 and part % 2 == 0 for part in small["axes"])
    assert (
        small["depths"]
        == config_shrinking.shrink({**config, "axes": ()}, config_shrinking.SCALES[0])["depths"]
    )


def test_models_that_are_too_large_are_cut_down() -> None:
    small = {"width": 2.0, "repeats": [16, 32], "size": 64}
    proposals = list(
        config_repairs.repairs(
            small, small, "it still has 99 parameters when its configuration is shrunk"
        )
    )
    assert proposals[0]["width"] == 0.5
    assert proposals[1]["repeats"] == [4, 8]


def test_strings_are_varied_by_what_the_file_compares_them_with() -> None:
    choices = source_hints.compared_strings(
        "if self.kind == 'plain' or kind in ('sum', 'mean'):\n    pass\n"
    )
    assert choices["kind"] == ("plain", "sum", "mean")
    assert {"kind": "mean"} in config_variations.variations(
        {"kind": "plain"}, source_hints.Hints(choices=choices)
    )


SOURCE = """import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, config, kind=None):
        super().__init__()
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.kind = kind or "plain"
        self.table = nn.Parameter(torch.ones(config.hidden_size))

    def forward(self, hidden_states, past_key_value=None):
        scores = self.query(hidden_states)
        if self.kind == "scaled":
            scores = scores * self.table
            if past_key_value is not None:
                scores = scores + past_key_value[0].mean()
        return torch.softmax(scores, dim=-1)
"""


@pytest.mark.slow
def test_a_branch_behind_a_string_and_an_optional_input_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    changed = SOURCE.replace(
        "scores + past_key_value[0].mean()", "past_key_value[0].mean() + scores"
    )
    (verdict,) = verify(path, changed.encode(), time_limit=100)
    assert (verdict.status, verdict.reason) == ("proved", "")
    wrong = SOURCE.replace("past_key_value[0].mean()", "past_key_value[1].mean()")
    (verdict,) = verify(path, wrong.encode(), time_limit=100)
    assert verdict.status == "refuted"
    reproducer = verdict.evidence["reproducer"]
    assert isinstance(reproducer, str)
    assert "SimpleNamespace" in (tmp_path / reproducer).read_text()
    json.dumps(verdict.evidence)


def test_a_condition_that_only_moved_need_not_be_false() -> None:
    before = b"def f(x, k):\n    if k:\n        x = x + 1\n    return x\n"
    inner = b"        if k:\n            x = x + 1\n"
    after = (
        b"def f(x, k):\n    if x is None:\n        x = 0\n    else:\n" + inner + b"    return x\n"
    )
    (change,) = find_changes(before, after)
    assert change.fallthroughs == ()
    (change,) = find_changes(before, after.replace(b"if k:", b"if not k:"))
    assert len(change.fallthroughs) == 1


def test_a_model_that_keeps_a_tensor_with_its_history_is_copied() -> None:
    model = nn.utils.weight_norm(nn.Linear(3, 3))
    model(torch.ones(1, 3))
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(model)
    copied_model = weights.copy_model(model)
    assert torch.equal(copied_model(torch.ones(1, 3)), model(torch.ones(1, 3)))
    assert copied_model.weight_g is not model.weight_g


def test_sizes_listed_by_layer_are_shrunk_with_their_list() -> None:
    wide = {
        "hidden_size": 768,
        "num_feat_extract_layers": 7,
        "conv_dim": [512] * 7,
        "conv_stride": [5, *[2] * 6],
    }
    small = config_shrinking.shrink(wide, config_shrinking.SCALES[0])
    assert len(small["conv_dim"]) == len(small["conv_stride"]) == field_tables.LAYERS
    assert max(small["conv_dim"]) <= 32
    assert small["conv_stride"] == [5, 2]


def test_repairs_exchange_the_sizes_that_an_error_names() -> None:
    wide, small = (
        {"inner": {"mit_size": 512}, "inner_config": {"mit_size": 512}},
        {"inner_config": {"mit_size": 20}},
    )
    tried = list(
        config_repairs.repairs(
            wide, small, "The size of tensor a (32) must match the size of tensor b (20)"
        )
    )
    assert {"inner_config": {"mit_size": 32}} in tried


def test_repairs_give_a_backbone_all_its_stages_back() -> None:
    backbone = {
        "depths": [2, 2, 6, 2],
        "num_layers": 4,
        "out_features": ["stage1", "stage2", "stage3", "stage4"],
    }
    wide = {"backbone_config": backbone}
    first = next(
        iter(
            config_repairs.repairs(
                wide,
                config_shrinking.shrink(wide, config_shrinking.SCALES[0]),
                "size of tensor a (4) and b (12)",
            )
        )
    )
    assert first["backbone_config"] == backbone


def test_a_backbone_that_loses_no_stage_keeps_what_it_returns() -> None:
    stages = {
        "depths": [2, 2, 6, 2],
        "num_layers": 4,
        "stage_names": ["stem", "stage1", "stage2", "stage3"],
    }
    staged, cut = (
        stages | {"out_features": ["stem", "stage2"]},
        {"num_hidden_layers": 12, "out_indices": [3, 11]},
    )
    assert config_shrinking.shrink(staged, config_shrinking.SCALES[0])["out_features"] == [
        "stem",
        "stage2",
    ]
    assert "out_indices" not in config_shrinking.shrink(cut, config_shrinking.SCALES[0])


def test_a_model_of_timm_becomes_the_one_that_timm_has_for_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timm = types.ModuleType("timm")
    timm.__spec__ = importlib.machinery.ModuleSpec("timm", None)
    model_names = {"resnet50", "swin_tiny", "vit_base", "test_resnet", "test_vit"}
    vars(timm)["is_model"] = model_names.__contains__
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setattr(
        config_shrinking, "_small_timm_model", config_shrinking._small_timm_model.__wrapped__
    )
    replacements = {
        "vit_base": "test_vit",
        "resnet50": "test_resnet",
        "swin_tiny": "test_resnet",
        "own": "own",
    }
    for name, small in replacements.items():
        assert config_shrinking.shrink(
            {"backbone": name, "title": name}, config_shrinking.SCALES[0]
        ) == {
            "backbone": small,
            "title": name,
        }
    assert config_shrinking.shrink({"backbone": "vit_base"}, config_shrinking.SCALES[-1]) == {
        "backbone": "vit_base"
    }
    own = {"architecture": "swin_tiny", "model_args": {"window": 7}}
    assert config_shrinking.shrink(own, config_shrinking.SCALES[0]) == {
        "architecture": "test_resnet",
        "model_args": {},
    }
    assert config_shrinking.shrink(own, config_shrinking.SCALES[-1]) == own


def test_no_weights_are_fetched() -> None:
    config = {"use_pretrained_backbone": True, "pretrained": True, "use_timm_backbone": True}
    wanted = {"use_pretrained_backbone": False, "pretrained": False, "use_timm_backbone": True}
    assert config_shrinking.shrink(config, config_shrinking.SCALES[0]) == wanted


@pytest.mark.parametrize("heads", [{"head_dim": 8, "hidden_size": 32}, {"hidden_size": 32}])
def test_repairs_widen_heads_that_are_cut_into_sections(heads: dict[str, int]) -> None:
    text = (
        "split_sizes to sum exactly to 4 (input tensor's size at dimension -1), but got"
        " split_sizes=[8, 12, 12]"
    )
    name = min(heads)
    assert next(config_repairs.repairs(heads, heads, text)) == {**heads, name: 8 * heads[name]}


class Detector(torch.nn.Module):
    """Takes labels as detectors and as models of masks do."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.config = SimpleNamespace(num_labels=5)

    def forward(
        self,
        pixel_values: Any,
        labels: Any = None,
        mask_labels: Any = None,
        class_labels: Any = None,
    ) -> Any:
        images = len(pixel_values)
        if self.kind == "boxes" and labels is not None and self.training:  # what denoises them
            assert isinstance(labels, list) and len(labels) == images
            return [
                annotation["boxes"][annotation["class_labels"] < 5].sum() for annotation in labels
            ]
        if self.kind == "masks" and mask_labels is not None:
            return [
                pixels[ids < 5].sum() for pixels, ids in zip(mask_labels, class_labels, strict=True)
            ]
        if self.kind == "pixels" and labels is not None:
            return torch.nn.functional.cross_entropy(pixel_values[:, [0, 1, 2, 0, 1]], labels)
        assert mask_labels is None and (labels is None or self.kind == "boxes")
        return pixel_values


@pytest.mark.parametrize("kind", ["boxes", "masks", "pixels"])
def test_labels_of_images(kind: str) -> None:
    model = Detector(kind)
    accepted_inputs = input_guesses.find_accepted(model, seconds=0)
    assert accepted_inputs.labels == (kind,)
    labelled = accepted_inputs.calls(model)(0)[-1]
    assert {"labels", "mask_labels"} & labelled.kwargs.keys() and not model.training
    model.train()(**labelled.kwargs)


def test_repairs_set_an_attribute_that_a_configuration_misses() -> None:
    text = "AttributeError: 'SmallConfig' object has no attribute 'initializer_range'"
    assert {"d": 1, "initializer_range": 0.02} in list(
        config_repairs.repairs({"d": 1}, {"d": 1}, text)
    )


class Video:
    num_frames, num_channels, image_size = 4, 3, 16
    conv_stride = (5, 2)
    context_length, prediction_length, lags_sequence, num_time_features = 6, 3, [1, 2, 7], 2
    patch_embed_hidden_size = 24


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("pixel_values", (2, 4, 3, 16, 16)),
        ("input_values", (2, 7 * 4 * 10)),
        ("past_values", (2, 13)),
        ("past_time_features", (2, 13, 2)),
        ("future_values", (2, 3)),
        ("flattened_patches", (2, 7, 26)),
    ],
)
def test_shapes_follow_the_configuration(name: str, shape: tuple[int, ...]) -> None:
    call = make_call({name: slot_for(name, "", Sizes(Video()))}, (2, 7), 0)
    assert tuple(call.kwargs[name].shape) == shape


def test_masked_positions_are_equally_many_in_every_row() -> None:
    mask = make_call({"m": slot_for("bool_masked_pos", "", Sizes(Video()))}, (3, 8), 0).kwargs["m"]
    assert mask.sum(-1).tolist() == [4, 4, 4]


def test_each_part_of_a_model_shrinks_by_its_own_width() -> None:
    config = {"text_hidden_dim": 960, "text_inner_dim": 1920, "text_n_heads": 15}
    config |= {"image_hidden_dim": 768, "image_inner_dim": 3072, "image_n_blocks": 12}
    small = {"text_hidden_dim": 32, "text_inner_dim": 64, "text_n_heads": 4}
    small |= {"image_hidden_dim": 32, "image_inner_dim": 128, "image_n_blocks": 2}
    scale = config_shrinking.SCALES[0]
    assert config_shrinking.shrink(config, scale) == small
    whole = {"hidden_size": 1024, "ffn_hidden_size": 4096}
    assert config_shrinking.shrink(whole, scale) == {"hidden_size": 32, "ffn_hidden_size": 128}


def test_windows_of_attention_and_images_shrink_where_layers_do_not() -> None:
    config = {
        "hidden_size": 768,
        "image_size": 512,
        "attention_window": [512, 512],
        "conv_in_channels": 256,
    }
    assert config_shrinking.shrink(config, config_shrinking.SCALES[-2]) == {
        **config,
        "image_size": 64,
    }
    assert config_shrinking.shrink(config, config_shrinking.SCALES[-1]) == config
    small = config_shrinking.shrink(config, config_shrinking.SCALES[0])
    assert small["attention_window"] == [4, 4]
    assert small["conv_in_channels"] < 48


class Packed(nn.Module):
    """Takes the patches of all images in one row, and how many rows and columns each image has."""

    def __init__(self) -> None:
        super().__init__()
        self.config = type(
            "Config", (), {"patch_size": 2, "temporal_patch_size": 2, "in_channels": 3}
        )()
        self.proj = nn.Linear(3 * 2 * 2 * 2, 8)

    def forward(self, hidden_states: Any, grid_thw: Any) -> Any:  # type: ignore[no-untyped-def]
        parts = self.proj(hidden_states).split([int(t * h * w) for t, h, w in grid_thw])
        return torch.stack([part.view(2, 2, -1, 8).mean((0, 1, 2)) for part in parts])


def test_packed_patches_fit_their_grid() -> None:
    shapes_by_name = shapes(Packed(), seconds=0)
    assert shapes_by_name == {"hidden_states": (48, 24), "grid_thw": (3, 3)}


class Scored(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.head(x), labels)


def test_labels_of_a_model_without_a_configuration_are_inputs() -> None:
    assert set(shapes(Scored())) == {"x", "labels"}


def test_a_layer_of_each_kind_and_a_whole_pattern_are_kept() -> None:
    listed = {
        "num_hidden_layers": 8,
        "layer_types": ["slow", "slow", "fast", "wide", "slow", "slow", "slow", "slow"],
    }
    small = config_shrinking.shrink(listed, config_shrinking.SCALES[0])
    assert (small["num_hidden_layers"], small["layer_types"]) == (3, ["slow", "fast", "wide"])
    repeated = {"num_hidden_layers": 26, "block_types": ["recurrent", "recurrent", "attention"]}
    small = config_shrinking.shrink(repeated, config_shrinking.SCALES[0])
    assert (small["num_hidden_layers"], small["block_types"]) == (3, repeated["block_types"])
    many = {"num_hidden_layers": 8, "layer_types": list("abcdefgh")}
    assert (
        config_shrinking.shrink(many, config_shrinking.SCALES[0])["num_hidden_layers"]
        == field_tables.LAYERS
    )


def test_repairs_follow_the_line_that_raised_and_the_strings_of_the_file() -> None:
    small = {"num_layers": 3, "mlp_kinds": None, "limit": None}
    text = "TypeError: 'NoneType' object is not subscriptable"
    tried = list(
        config_repairs.repairs(
            small,
            small,
            text,
            "if config.mlp_kinds[index] == 'dense':",
            {"mlp_kinds": ("dense", "moe")},
        )
    )
    assert {**small, "mlp_kinds": ["dense", "moe", "dense"]} in tried
    assert (
        next(config_repairs.repairs(small, small, "RuntimeError: no", "x.clamp(max=config.limit)"))[
            "limit"
        ]
        == 2
    )


def test_an_unset_name_that_a_condition_asks_for_is_one_of_those_that_are_listed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "spoken.py"
    path.write_text("""
def check(config):
    if config.default_language is None:
        raise ValueError("Input language unknown")
""")
    check = runpy.run_path(str(path))["check"]
    with pytest.raises(ValueError) as error:
        check(SimpleNamespace(default_language=None))
    line = next(
        text
        for name, text in error_statements.statements_of_error(
            drop_traceback(error.value), conditions=True
        )
        if name == str(path)
    )
    assert line.split() == path.read_text().split()[2:]
    small = {"default_language": None, "languages": ["en_XX", "de_DE"], "layers": [1, 2]}
    tried = [
        config["default_language"]
        for config in config_repairs.repairs(small, small, str(error.value), line)
    ]
    assert tried[:5] == [2, 1, 8, True, "en_XX"]


def test_repairs_give_a_plain_backbone_where_a_package_is_missing() -> None:
    small = {"use_timm_backbone": True, "backbone_config": None}
    tried = list(
        config_repairs.repairs(small, small, "ImportError: TimmBackbone requires the timm library")
    )
    assert {"use_timm_backbone": False, "backbone_config": field_tables.BACKBONE} in tried


def test_repairs_fill_mappings_and_empty_lists_and_double_sizes() -> None:
    small: dict[str, Any] = {"table": None, "factors": [], "head_width": 8}
    wide = {**small, "head_width": 64}
    assert {**small, "table": {}} in config_repairs.repairs(
        wide, small, "AttributeError: 'NoneType' object has no attribute 'get'"
    )
    assert {**small, "factors": [1.0]} in config_repairs.repairs(
        wide, small, "ValueError: expected a non-empty list"
    )
    assert {**small, "head_width": 16} in config_repairs.repairs(
        wide, small, "ValueError: dimensions do not match"
    )


class Masked(nn.Module):
    """Takes sound of a length that divides, and a mask of that length."""

    def forward(self, input_features: Any, input_features_mask: Any) -> Any:  # type: ignore[no-untyped-def]
        batch, _, length = input_features.shape
        if length % 40:
            raise ValueError(f"a multiple of 2 windows (40) is needed, but got {length}.")
        return input_features * input_features_mask.view(batch, 1, length)


def test_a_mask_gets_the_length_that_it_is_viewed_with() -> None:
    assert shapes(Masked()) == {"input_features": (3, 80, 40), "input_features_mask": (3, 40)}


class Unpacked(nn.Module):
    """Takes the patches of all images as images, beside their grid."""

    def __init__(self) -> None:
        super().__init__()
        self.config = type("Config", (), {"patch_size": 4, "in_channels": 3})()
        self.proj = nn.Conv2d(3, 8, 4)

    def forward(self, pixel_values: Any, grid_thw: Any) -> Any:  # type: ignore[no-untyped-def]
        parts = self.proj(pixel_values).flatten(1).split([int(t * h * w) for t, h, w in grid_thw])
        return torch.stack([part.mean(0) for part in parts])


def test_flat_patches_become_images_beside_their_grid() -> None:
    assert shapes(Unpacked()) == {"pixel_values": (48, 3, 4, 4), "grid_thw": (3, 3)}


def test_repairs_change_a_part_of_what_is_concatenated() -> None:
    text = (
        "weight of size [256, 576, 3, 3], expected input[1, 960, 8, 8] to have 576 channels, but"
        " got 960 channels"
    )
    small = {"hidden_size": 384, "convs": [48, 96, 192]}
    assert {**small, "hidden_size": 768} in config_repairs.repairs(small, small, text)


class Tiles(torch.nn.Module):
    def forward(self, pixel_values: Any) -> Any:
        batch, media, tiles, channels, height, width = pixel_values.shape
        return pixel_values.reshape(batch * media * tiles, channels, height * width).mean(-1)


def test_dimensions_that_are_missing_stand_behind_the_batch() -> None:
    assert shapes(Tiles())["pixel_values"][:3] == (3, 1, 1)


def test_fields_that_a_configuration_may_not_have_are_varied() -> None:
    hints = source_hints.hints(
        'getattr(config, "kernel", 0)', 'x = getattr(self.config, "kernel", 0), getattr(x, "of", 1)'
    )
    assert {"kernel": 2} in config_variations.variations({"width": 8}, hints)
    assert {"kernel": 1} not in config_variations.variations({"kernel": 1}, hints)


def test_what_the_changed_lines_mention_is_varied_first() -> None:
    source = (
        "class A:\n    def __init__(self, config):\n        self.act_fn ="
        " ACT2FN[config.activation_function]\n"
    )
    config = {"encoder_config": {"act": "relu"}, "scale": 0, "act": "relu", "plain": False}
    config["activation_function"] = "relu"
    hints = source_hints.hints("self.act_fn(x) * scale", source)
    first = [
        next(iter(override)) for override in config_variations.mentioned_variations(config, hints)
    ]
    assert list(dict.fromkeys(first)) == ["activation_function", "act", "encoder_config", "scale"]
    assert next(iter(list(config_variations.variations(config, hints))[-1])) == "plain"
    assert not hints.dispatches
    assert source_hints.hints("", "config._attn_implementation").dispatches
    ends = {"tf_legacy": False, "use_shared_position_bias": False, "prune": False}
    hints = source_hints.hints("if shared_position_bias is not None:", source)
    assert next(config_variations.variations(ends, hints)) == {"use_shared_position_bias": True}


class Maybe(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate_of_dropout = rate
        if rate > 0:
            self.dropout = nn.Dropout(rate)

    def forward(self, x: Any) -> Any:
        return self.dropout(x) if self.rate_of_dropout > 0 else x


def test_a_rate_that_makes_a_layer_stays_off() -> None:
    for old, now in ((0.0, 0.0), (0.5, 0.25)):
        model = Maybe(old)
        with weights.set_dropout_rate(model, 0.25):
            assert model.rate_of_dropout == now
            model(torch.ones(3))
        assert model.rate_of_dropout == old


def test_a_vocabulary_of_one_word_has_ids_of_it() -> None:
    for words, limit in ((1, 1), (3, 3), (9, 4), (99, 87)):
        assert slot_for("input_ids", "", Sizes(SimpleNamespace(vocab_size=words))).limit == limit


def test_token_types_differ_within_a_call() -> None:
    slot = slot_for("token_type_ids", "", Sizes(SimpleNamespace(type_vocab_size=2, vocab_size=99)))
    types = make_call({"token_type_ids": slot}, (3, 8), 0).kwargs["token_type_ids"]
    assert (
        set(types.flatten().tolist()) == {0, 1} and len({tuple(row) for row in types.tolist()}) == 3
    )


def test_what_a_constructor_passes_on_is_asked_for() -> None:
    class Base(nn.Module):
        def __init__(self, width: Any, depth: Any = 2) -> None:
            super().__init__()

    class Fast(Base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

    class Own(Base):
        def __init__(self, size: Any) -> None:
            super().__init__(size)

    assert [parameter.name for parameter in constructor_guesses._constructor_parameters(Fast)] == [
        "width",
        "depth",
    ]
    assert [parameter.name for parameter in constructor_guesses._constructor_parameters(Own)] == [
        "size"
    ]


CROSS_ATTENTION = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, heads: int = 70, head_dim: int = 128, cross_dim: int = 8960, kind: str | None = None):
        super().__init__()
        if kind not in (None, "layer_norm"):
            raise ValueError(f"unknown kind: {kind}")
        self.first = nn.Linear(cross_dim, heads * head_dim)
        self.second = nn.Linear(cross_dim, 4)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(states)) * 2
"""  # noqa: E501


@pytest.mark.slow
def test_values_of_a_constructor_are_mended_after_the_error(tmp_path: Path) -> None:
    path = tmp_path / "block.py"
    path.write_text(CROSS_ATTENTION)
    (verdict,) = verify(
        path,
        CROSS_ATTENTION.replace("self.first(states)) * 2", "self.first(states)).mul(2)").encode(),
    )
    assert (verdict.status, verdict.reason) == ("proved", "")


class Shuffle(nn.Module):
    """Makes squares of positions, whose sides it divides by four; says in its own words where they
    are."""

    def forward(self, states: Any, device: "torch.device", count: int) -> Any:
        side = int(states.shape[1] ** 0.5)
        squares = states.view(states.shape[0], side, side, states.shape[2])
        places = torch.arange(count, device=device).sum()
        return squares.view(states.shape[0], side, side // 4, states.shape[2] * 4) + places


def test_a_length_that_is_divided_is_long_enough() -> None:
    call = input_guesses.find_accepted(Shuffle().eval(), inner=True).calls(Shuffle())(0)[-1]
    assert tuple(call.kwargs["states"].shape) == (3, 16, 32)
    assert call.kwargs["device"] == torch.device("cpu")
