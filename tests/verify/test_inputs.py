"""Test inputs and configurations that follow exactly from a model's complaints."""

import itertools
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from regraft.verification.child.call_outcomes import drop_traceback
from regraft.verification.child.drivers import (
    config_repairs,
    config_shrinking,
    config_variations,
    described_shapes,
    further_calls,
    guessed_slots,
    input_guesses,
    input_repairs,
    layers_of_inputs,
    source_hints,
)
from regraft.verification.child.drivers.argument_slots import (
    BATCH,
    LENGTH,
    POSITIONS,
    Dim,
    Sizes,
    Slot,
)
from regraft.verification.child.drivers.error_statements import statements_of_error
from regraft.verification.child.drivers.function_subjects import FunctionModule
from regraft.verification.child.drivers.guessed_slots import guess_slots
from regraft.verification.child.drivers.model_attempts import attempt


def calls(model: Any) -> Any:
    """Return a call with the inputs of a model."""
    return input_guesses.find_accepted(model.eval()).calls(model)(0)


class Config:
    vocab_size, hidden_size, image_size, image_token_id, video_token_index = 99, 8, 8, 95, 40


class Sees(nn.Module):
    """Puts features of images in the place of tokens, as models of images and text do; `elements`
    counts numbers."""

    main_input_name = "input_ids"

    def __init__(self, elements: bool) -> None:
        super().__init__()
        self.config, self.elements = Config(), elements
        self.embed, self.proj = nn.Embedding(99, 8), nn.Conv2d(3, 8, 4, 4)

    def forward(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        pixel_values: Any = None,
        mm_token_type_ids: Any = None,
    ) -> Any:
        x = self.embed(input_ids) * attention_mask[..., None]
        if pixel_values is not None:
            features = self.proj(pixel_values).flatten(2).transpose(1, 2).reshape(-1, 8)
            here = input_ids == self.config.image_token_id
            if here.sum() != len(features):
                count = features.numel() if self.elements else len(features)
                raise ValueError(
                    f"Image features and image tokens do not match, tokens: {here.sum()}, features:"
                    f" {count}"
                )
            if mm_token_type_ids is None:
                raise ValueError(
                    "Images were passed but `mm_token_type_ids` is missing. Please pass it."
                )
            assert torch.equal(mm_token_type_ids == 1, here)
            x = x.masked_scatter(here[..., None], features)
        return x


@pytest.mark.parametrize("elements", [False, True])
def test_tokens_that_stand_for_images_are_as_many_as_their_features(elements: bool) -> None:
    first, last = calls(Sees(elements))
    assert first.kwargs["input_ids"].shape == (1, 4 + 5) and last.kwargs["input_ids"].shape == (
        3,
        4 + 8,
    )
    assert first.kwargs["attention_mask"].shape == first.kwargs["mm_token_type_ids"].shape == (1, 9)
    assert (first.kwargs["input_ids"] == 95).sum() == 4 and first.kwargs["pixel_values"].shape == (
        1,
        3,
        8,
        8,
    )


class Layer(nn.Module):
    """Misses an argument that has a default, at a statement of several lines that names it."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(32, 32)

    def forward(
        self,
        hidden_states: Any,
        attention_mask: Any = None,
        position_ids: Any = None,
        position_embeddings: Any = None,
    ) -> Any:
        cos, sin = (
            # the parts of a rotary embedding
            position_embeddings
        )
        return self.proj(hidden_states) * cos.mean() + sin.mean()


def test_the_argument_that_the_raising_statement_reads_is_given_first() -> None:
    accepted_inputs = input_guesses.find_accepted(Layer().eval(), inner=True, width=32)
    assert set(accepted_inputs.spec) == {"hidden_states", "position_embeddings"}


def test_the_statements_that_an_error_came_through_are_given_whole() -> None:
    try:
        Layer()(torch.ones(1, 3, 32))
    except TypeError as error:
        (_, innermost), *_ = [
            statement
            for statement in statements_of_error(drop_traceback(error))
            if statement[0] == __file__
        ]
    assert innermost.split() == [
        "cos,",
        "sin",
        "=",
        "(",
        *["#", "the", "parts", "of", "a", "rotary", "embedding"],
        "position_embeddings",
        ")",
    ]


class Forecast(nn.Module):
    """Takes the future only without a mask that it does not make itself, and runs without
    it too."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.proj = Config(), nn.Linear(8, 4)

    def forward(
        self, past_values: Any, future_values: Any = None, decoder_attention_mask: Any = None
    ) -> Any:
        out = self.proj(past_values)
        if future_values is not None:
            if decoder_attention_mask is not None:
                raise ValueError("Attention mask should be of size (1, 1, 8, 8)")
            out = out + future_values
        return out


def test_the_future_is_given_where_a_model_takes_it() -> None:
    assert set(calls(Forecast())[0].kwargs) == {"past_values", "future_values"}


class Packs(nn.Module):
    """Takes the patches of all images in rows of one image, and how many rows and columns each of
    them has."""

    main_input_name = "pixel_values"

    def __init__(self) -> None:
        super().__init__()
        self.config, self.proj = Config(), nn.Conv2d(3, 8, 4, 4)

    def forward(self, pixel_values: Any, target_sizes: Any = None) -> Any:
        patches = self.proj(pixel_values).flatten(2).transpose(1, 2)
        places = torch.cat([torch.arange(int(h) * int(w)) for h, w in target_sizes.long()])
        if patches.shape[1] != len(places):
            raise ValueError(
                f"({pixel_values.shape[2]}) rows given, but ({len(places)}) patches are asked for"
            )
        return patches + places[:, None]


def test_a_size_that_is_a_multiple_of_the_batch_follows_the_batch() -> None:
    first, last = calls(Packs())
    assert first.kwargs["pixel_values"].shape == (1, 3, 32, 8) and last.kwargs[
        "pixel_values"
    ].shape == (3, 3, 96, 8)
    assert first.kwargs["target_sizes"].tolist() == [[4, 4]]


def test_unset_sizes_are_multiples_of_eight_and_come_before_others() -> None:
    small = {"hidden_size": 32, "expert_size": None, "num_experts": None}
    first, *_ = config_repairs.repairs(
        small, small, "TypeError: no", "torch.empty(config.hidden_size, config.expert_size)"
    )
    assert first == {**small, "expert_size": 8}
    tried = list(
        config_repairs.repairs(
            small, small, "TypeError: unsupported operand type(s) for *: 'int' and 'NoneType'"
        )
    )
    assert {**small, "expert_size": 8} in tried and {**small, "num_experts": 1} in tried


def test_a_list_of_layers_that_is_asked_for_is_given_with_as_many_layers() -> None:
    wide = {"num_hidden_layers": 12, "out_indices": [12], "out_features": ["stage12"]}
    text = (
        "ValueError: Net requires config.out_indices to be a list of 4 integers, specifying which"
        " features to use"
    )
    first, *_ = config_repairs.repairs(wide, {"num_hidden_layers": 2}, text)
    assert first == {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]}


def test_what_an_index_of_the_code_lies_beyond_is_enlarged() -> None:
    small = {"hidden_size": 32, "text_config": {"vocab_size": 99}}
    tried = config_repairs.repairs(
        small, small, "IndexError: index 10784 is out of bounds for dimension 0 with size 99"
    )
    assert {**small, "text_config": {"vocab_size": 10785}} in tried


def test_what_leads_to_a_definition_is_found_through_others_and_variables() -> None:
    source = (
        "class A: pass\nclass B:\n    def __init__(self): self.a = KINDS['a']()\nKINDS = {'a':"
        " A}\nclass C:\n    def __init__(self): self.b = B()\nclass D:\n    def asks(self, x):"
        " return isinstance(x, A)\n"
    )
    assert source_hints.names_leading_to(frozenset({"A"}), source) == {"A", "B", "C", "KINDS"}


@pytest.mark.parametrize(
    ("wide", "small"),
    [
        ({"decoder_sparse_step": 4}, {"decoder_sparse_step": 2}),
        (
            {"attn_layer_period": 8, "attn_layer_offset": 4},
            {"attn_layer_period": 2, "attn_layer_offset": 1},
        ),
        (
            {"first_k_dense_replace": 3, "num_dense_layers": 3},
            {"first_k_dense_replace": 1, "num_dense_layers": 1},
        ),
        ({"mlp_only_layers": [0, 1]}, {"mlp_only_layers": [0]}),
        ({"global_attn_indexes": [5, 11]}, {"global_attn_indexes": [1]}),
        ({"no_rope_layers": [1, 1, 0] * 4}, {"no_rope_layers": [1, 0]}),
    ],
    ids=lambda config: next(iter(config)),
)
def test_a_shrunk_model_keeps_layers_of_both_kinds(wide: Any, small: Any) -> None:
    shrunk = config_shrinking.shrink(
        {"num_hidden_layers": 12, "hidden_size": 768, **wide}, config_shrinking.SCALES[0]
    )
    assert {name: shrunk[name] for name in small} == small and shrunk["num_hidden_layers"] == 2


def test_sizes_that_had_to_be_equal_are_exchanged_first() -> None:
    small: dict[str, Any] = {
        "hidden_size": 32,
        "heads": 4,
        "audio_config": {"hidden_size": 32, "patches": 32},
    }
    text = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x16 and 32x20)"
    first, second, *_ = config_repairs.repairs(
        {**small, "audio_config": dict(small["audio_config"])}, small, text
    )
    assert first == {**small, "hidden_size": 16}
    assert second == {**small, "audio_config": {"hidden_size": 16, "patches": 32}}


def test_sizes_that_were_equal_at_different_levels_are_made_equal_again() -> None:
    original = {
        "channel_list": [768, 96],
        "backbone_config": {
            "hidden_size": 96,
            "embed_dim_per_stage": [96, 768],
            "blocks_per_stage": [2, 7],
        },
    }
    small = config_shrinking.shrink(original, config_shrinking.SCALES[0])
    assert small["backbone_config"] == {
        "hidden_size": 32,
        "embed_dim_per_stage": [32, 256],
        "blocks_per_stage": [2, 2],
    }
    repaired = list(
        config_repairs.repairs(
            original, small, "RuntimeError: to have 768 channels, but got 256 channels"
        )
    )
    assert {**small, "channel_list": [256, 32]} in repaired


def test_configurations_inside_are_known_by_their_model_type_and_what_is_zero_stays_so() -> None:
    inside = {"model_type": "", "num_hidden_layers": 12, "hidden_size": 768, "rope_head_dim": 0}
    small = config_shrinking.shrink({"atoms": inside}, config_shrinking.SCALES[0])["atoms"]
    assert small == {
        "model_type": "",
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "rope_head_dim": 0,
    }


def test_one_layer_more_is_tried_where_the_text_mentions_their_number() -> None:
    assert {"num_layers": 3} in config_variations.variations(
        {"num_layers": 2}, source_hints.Hints("range(num_layers - 2)")
    )
    assert not list(config_variations.variations({"num_layers": 2}, source_hints.Hints()))


def masked(x: torch.Tensor, mask: torch.Tensor, scale: float, softmax_dtype: torch.dtype) -> Any:
    """Refuses a mask that is not boolean before it looks at its shape."""
    x = torch.where(mask, x.to(softmax_dtype) * scale, -1.0)
    return torch.nn.functional.softmax(x, dim=-1)


def test_an_error_about_types_that_is_gone_is_a_step_forward() -> None:
    namespace = ModuleType("functions")
    vars(namespace)["masked"] = masked
    spec = input_guesses.find_accepted(FunctionModule(namespace, "masked"), inner=True).spec
    assert spec["mask"].kind == "bool" and spec["softmax_dtype"].value is torch.float32


def attend(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
) -> Any:
    """Reads an attribute of the layer that calls it, and takes four dimensions of all its inputs
    alike."""
    batch, heads, length, width = key.shape
    key = key.repeat_interleave(module.num_key_value_groups, 1)
    weights = torch.softmax(query @ key.transpose(2, 3) * scaling, -1)
    return torch.dropout(weights, 0.0, module.training) @ value.view(batch, heads, length, width)


def test_a_function_is_lent_a_module_and_its_inputs_change_their_rank_together() -> None:
    namespace = ModuleType("functions")
    vars(namespace)["attend"] = attend
    spec = input_guesses.find_accepted(FunctionModule(namespace, "attend"), inner=True).spec
    assert vars(spec["module"].value) == {"training": False, "num_key_value_groups": 1}
    assert {len(spec[name].dims) for name in ("query", "key", "value")} == {4}


class Merges(nn.Module):
    """Takes a number for each image, which only its documentation says, and pairs of images, which
    its error says."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.proj = Config(), nn.Conv2d(3, 8, 4, 4)

    def forward(self, pixel_values: Any, merge_sizes: Any) -> Any:
        """
        Args:
            merge_sizes (`torch.Tensor` of shape `(num_images,)`):
                How many patches are merged.
        """
        if pixel_values.dim() != 5 or pixel_values.shape[1] != 2:
            raise ValueError(
                "Input must be a 5D tensor of shape (batch_size, 2, num_channels, height, width)"
            )
        first, second = (self.proj(member).flatten(2) for member in pixel_values.unbind(1))
        sums = zip(first + second, merge_sizes.tolist(), strict=True)
        return torch.stack([total.reshape(8, -1, size) for total, size in sums])


def test_shapes_that_documentation_and_errors_give_in_words() -> None:
    first, last = calls(Merges())
    assert (
        first.kwargs["pixel_values"].shape == (1, 2, 3, 8, 8)
        and last.kwargs["pixel_values"].shape[0] == 3
    )
    assert last.kwargs["merge_sizes"].tolist() == [1, 1, 1]


def test_what_words_stand_for() -> None:
    def function() -> None:
        """
        x (`torch.LongTensor` of shape `(batch_size, sequence_length)`, *optional*): Text.
        images (`torch.FloatTensor` of shape `(batch_size, num_channels, height, width)`): Images.
        other (`torch.FloatTensor` of shape `(batch_size, whatever)`): Nobody knows.
        flag (`bool`): No tensor.
        """

    slots = described_shapes.documented_slots(function, Sizes(Config()))
    assert slots == {
        "x": Slot("ids", (BATCH, LENGTH), 2),
        "images": Slot("normal", (BATCH, Dim(3), Dim(8), Dim(8)), 2),
    }
    slot = Slot("ids", (BATCH, LENGTH), 5)
    (described_slot,) = described_shapes.slots_from_message(
        "Expected `x` to have shape `(batch_size, 1024)`, but got torch.Size([1, 4]).", slot
    )
    assert described_slot == Slot("ids", (BATCH, Dim(1024)), 5)
    assert not [
        *described_shapes.slots_from_message(
            "argument 'shape' (position 1) must be ints; shape (3, 4)", slot
        )
    ]
    assert not [*described_shapes.slots_from_message("shape (batch_size, height)", slot)]


def test_axes_that_documentation_lists() -> None:
    def function(video: Any, points: Any, area_mask: Any, text: Any) -> None:
        """
        Args:
            video: Latents of a video [B, C, T, H, W]
            points: Their features (batch, seq, dim), before the norm
            area_mask (Tensor): Where to look [B, 1, H, W] or None
            text: What is said (with words, with letters, with nothing)
            other: No parameter [B, C, H, W]
        """

    config = SimpleNamespace(in_channels=6)
    slots = described_shapes.listed_slots(function, Sizes(config), config)
    image = Dim(8), Dim(8)
    assert slots == {
        "video": Slot("normal", (BATCH, Dim(6), Dim(4), *image)),
        "points": Slot("normal", (BATCH, LENGTH, Dim(32))),
        "area_mask": Slot("normal", (BATCH, Dim(1), *image)),
    }


class Captions(nn.Module):
    """Give each of several texts to a layer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 8) for _ in range(3))

    def __getattr__(self, name: str) -> Any:
        if name == "get":
            raise KeyError(name)
        return super().__getattr__(name)

    def forward(self, texts: list[Any]) -> Any:
        total = torch.zeros(())
        for number, text in enumerate(texts):
            total = total + self.layers[dict[int, int]().get(number, number)](text)
        return total / len(self.layers) + texts[len(self.layers) - 1].sum()


def test_a_list_with_an_element_for_each_layer() -> None:
    first, last = calls(Captions())
    assert [text.shape[-1] for text in first.kwargs["texts"]] == [6, 6, 6]
    assert len(last.kwargs["texts"]) == 3


def test_unset_fields_that_belong_together_or_hold_lists() -> None:
    small = {
        "index_heads": None,
        "index_kv_heads": None,
        "index_size": None,
        "pad_token_id": None,
        "out_channels": None,
    }
    error = "TypeError: unsupported operand type(s) for //: 'NoneType' and 'NoneType'"
    tried = list(
        config_repairs.repairs(small, small, error, "config.index_heads // config.index_size")
    )
    assert {**small, "index_heads": 2, "index_size": 8} in tried
    assert {**small, "index_heads": 2, "index_kv_heads": 1, "index_size": 8} in tried
    lists = config_repairs.repairs(
        small,
        small,
        "TypeError: object of type 'NoneType' has no len()",
        "len(config.out_channels)",
    )
    assert [config["out_channels"] for config in itertools.islice(lists, 4)] == [
        [],
        [8],
        [2],
        [8, 8],
    ]


def test_widths_of_features_are_no_names_of_stages() -> None:
    wide = {
        "hidden_size": 256,
        "num_layers": 9,
        "out_features": [64, 128, 256],
        "out_indices": [1, 2],
    }
    small = config_shrinking.shrink(wide, config_shrinking.SCALES[0])
    assert small == {"hidden_size": 32, "num_layers": 2, "out_features": [8, 16, 32]}


class Landmarks(nn.Module):
    """Takes one length only, which a shape inside says."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.embed = Config(), nn.Embedding(99, 8)

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        x = self.embed(input_ids) * attention_mask[..., None]
        return x.reshape(-1, 4, 8, 8).mean(dim=2)


def test_the_length_that_alone_fills_a_shape() -> None:
    first, last = calls(Landmarks())
    assert first.kwargs["input_ids"].shape == (1, 32) and last.kwargs["attention_mask"].shape == (
        3,
        32,
    )


def test_numbers_that_the_text_compares_with_each_other_are_varied() -> None:
    source = (
        "class M:\n    def forward(self):\n        if self.marks == self.length:\n           "
        " return self.rate != 2\n"
    )
    hints = source_hints.hints("self.marks", source)
    assert hints.compared == {"marks", "length"}
    assert {"marks": 32} in [
        *config_variations.variations({"marks": 64, "rate": 8, "flag": True}, hints)
    ]
    assert {"rate": 4} not in [*config_variations.variations({"marks": 64, "rate": 8}, hints)]


class Continues(nn.Module):
    """Adds what is cached; `fails` where positions follow on others, as a model that wants their
    places does."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails
        self.embed = nn.Embedding(99, 8)

    def forward(
        self,
        input_ids: Any,
        past_key_values: Any = None,
        use_cache: Any = False,
        return_dict: Any = True,
    ) -> Any:
        if self.fails and use_cache:
            raise IndexError("no places are given")
        x = self.embed(input_ids)
        return SimpleNamespace(
            last=x if past_key_values is None else x + past_key_values, past_key_values=x
        )


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_that_cannot_continue_is_not_asked_to(fails: bool) -> None:
    model = Continues(fails).eval()
    spec = {"input_ids": Slot("ids", (BATCH, LENGTH), 99)}
    accepted_inputs = input_guesses.AcceptedInputs(spec, ((1, 5), (3, 8)), ())
    labels = [
        call(0)[0].label
        for call in further_calls.more_calls(model, accepted_inputs, "past_key_values")
    ]
    assert any("continued" in label for label in labels) is not fails
    assert len(labels) > 1


class Remembers(nn.Module):
    """Adds what an earlier call remembered, in a dictionary that it changes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(99, 8)

    def forward(self, input_ids: Any, memory: Any = None) -> Any:
        x = self.embed(input_ids)
        if memory is None:
            memory = {"state": x}
        else:
            x = x + memory["state"]
            memory["state"] = x
        return x, memory


class RemembersElsewhere(Remembers):
    """Returns its memory in one of two places."""

    def forward(self, input_ids: Any, memory: Any = None) -> Any:
        x = self.embed(input_ids)
        if memory is None:
            return x, x.sum()
        return memory, x


def test_state_that_a_call_returns_is_given_to_the_next() -> None:
    spec = {"input_ids": Slot("ids", (BATCH, LENGTH), 99)}

    def further_labels(model: Any, names: str) -> list[str]:
        """Return the labels of the first of all further calls of a model."""
        accepted_inputs = input_guesses.AcceptedInputs(spec, ((1, 5), (3, 8)), ())
        return [
            call(0)[0].label
            for call in further_calls.more_calls(model, accepted_inputs, names)
            if names in call(0)[0].kwargs
        ]

    assert further_calls.returned_names(Remembers.forward) == {"x": 0, "memory": 1}
    assert any("continued" in label for label in further_labels(Remembers().eval(), "memory"))
    assert further_calls.returned_names(RemembersElsewhere.forward) == {}
    assert not any(
        "continued" in label for label in further_labels(RemembersElsewhere().eval(), "memory")
    )


class Diffusion(nn.Module):
    """A whole model as those of diffusion are: latents with channels, states of a text encoder, a
    guidance."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(in_channels=4, cross_attention_dim=6)
        self.embed = nn.Conv3d(4, 8, (1, 2, 2), (1, 2, 2))
        self.text = nn.Linear(6, 8)

    def forward(
        self,
        hidden_states: Any,
        timestep: Any,
        encoder_hidden_states: Any,
        encoder_attention_mask: Any,
        guidance: Any,
    ) -> Any:
        batch, _, _, _, _ = hidden_states.shape
        x = self.embed(hidden_states).flatten(2).transpose(1, 2)
        weights = encoder_attention_mask.float().unsqueeze(-1)
        x = x + (self.text(encoder_hidden_states) * weights).mean(1, keepdim=True)
        return x * (timestep + guidance).view(batch, 1, 1)


def test_latents_text_and_guidance_of_a_diffusion_model() -> None:
    _, last = calls(Diffusion())
    shapes = {name: tuple(value.shape) for name, value in last.kwargs.items()}
    assert shapes["hidden_states"][:2] == (3, 4) and len(shapes["hidden_states"]) == 5
    assert shapes["encoder_hidden_states"][-1] == 6 and shapes["guidance"] == shapes[
        "timestep"
    ] == (3,)
    assert len(shapes["encoder_attention_mask"]) == 2


def test_a_layer_is_as_wide_as_most_of_its_matrices() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head_norm = nn.LayerNorm(4)
            self.query, self.key = nn.Linear(16, 16), nn.Linear(16, 16)

    assert guessed_slots.width_of(Block()) == 16
    assert guessed_slots.width_of(nn.LayerNorm(4)) == 4


class Loss(nn.Module):
    def forward(self, logits: Any, labels: Any) -> Any:
        return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


class Masks(nn.Module):
    def forward(self, logits: Any, target: Any) -> Any:
        return nn.functional.binary_cross_entropy_with_logits(logits, target)


class Sums(nn.Module):
    def forward(self, x: Any, index: Any) -> Any:
        return x.new_zeros(int(index.max()) + 1, x.shape[1]).index_add(0, index, x)


class Graph(nn.Module):
    def forward(self, x: Any, edge_index: Any) -> Any:
        start, end = edge_index
        return torch.zeros_like(x).index_add(0, end, x[start])


class Nearest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(16, 8)

    def forward(self, z: Any) -> Any:
        return self.table(torch.cdist(z.reshape(-1, z.shape[-1]), self.table.weight).argmin(1))


class Waves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(27, 16)

    def forward(self, x: Any) -> Any:
        waves = [torch.sin(2**number * x) for number in range(8)]
        return self.layer(torch.cat([x, *waves], -1))


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)

    def forward(self, src: Any, trg: Any, lengths: Any) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.table(src), lengths, batch_first=True, enforce_sorted=False
        )
        return packed.data.mean() + self.table(trg)


class State(nn.Module):
    def forward(self, x: Any, state: Any) -> Any:
        hidden, cell = state
        return x + hidden.tanh() * cell


class Features(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(number, 8) for number in (5, 7))
        self.layer = nn.Linear(19, 1)

    def forward(self, dense: Any, sparse: Any) -> Any:
        parts = [table(sparse[:, number]) for number, table in enumerate(self.tables)]
        return self.layer(torch.cat([dense, *parts], 1))


class Pyramid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(number, 8, 1) for number in (8, 16, 32))

    def forward(self, maps: Any) -> Any:
        results = [layer(image) for layer, image in zip(self.layers, maps, strict=True)]
        return [nn.functional.max_pool2d(results[0], 2) + results[1], results[2]]


class Denoiser(nn.Module):
    """Has layers for the time before the first convolution over images."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Linear(8, 8)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.GroupNorm(4, 8)

    def forward(self, x: Any, timesteps: Any) -> Any:
        steps = self.time(timesteps[:, None] * torch.arange(8.0))
        x = self.first(x)
        return self.norm(x) + steps[:, :, None, None]


class Noisy(nn.Module):
    """Mixes with noise by a table of rates, of which each row takes one."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(8, 8)
        self.rates = torch.linspace(0.9, 0.1, 10)

    def forward(self, x: Any, noise: Any, t: Any) -> Any:
        rate = self.rates[t].view(-1, *([1] * (x.dim() - 1)))
        return self.net(rate * x + (1 - rate) * noise) - noise


class Trajectories(nn.Module):
    """Predicts the steps of five objects together from each third one."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(5 * 16, 5 * 16)

    def forward(self, inputs: Any, prediction_steps: Any) -> Any:
        results: list[Any] = []
        hidden = None
        for step in range(inputs.size(2) - 1):
            ins = inputs[:, :, step, :] if not step % prediction_steps else results[step - 1]
            x, hidden = self.rnn(ins.reshape(1, ins.size(0), -1), hidden)
            results.append(ins + x[0].view(ins.shape))
        return torch.stack(results, 2)


def test_a_size_that_only_its_product_with_another_tells() -> None:
    call = calls(Trajectories())[0]
    arguments: list[Any] = [*call.args, *call.kwargs.values()]
    assert arguments[0].shape[1::2] == (5, 16) and arguments[1] == 3


def test_an_index_for_each_row() -> None:
    spec = input_guesses.find_accepted(Noisy().eval()).spec
    assert (spec["t"].kind, spec["t"].dims) == ("ids", (BATCH,))
    assert spec["x"].dims[0] == BATCH


class Both(nn.Module):
    """Takes sound and tokens, and gives their names other values."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.convolution = nn.Sequential(nn.Conv1d(4, 8, 1))
        self.layer = nn.Linear(8, 8)

    def forward(self, a: Any, b: Any, c: Any) -> Any:
        b, length = self.table(b), a.shape[-1]
        c = self.layer(c + b.mean())
        b = self.layer(b)
        return self.convolution(a).mean(-1) * length + b.mean() + self.layer(c).mean()


class Digits(nn.Module):
    """Takes images of 28 x 28 pixels alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 2, 5), nn.Linear(288, 10)

    def features(self, image: Any) -> Any:
        return nn.functional.max_pool2d(self.first(image), 2)

    def forward(self, x: Any) -> Any:
        return self.last(self.features(x).view(-1, 288))


def test_images_of_a_size_that_only_a_layer_behind_them_tells() -> None:
    model = Digits()
    assert layers_of_inputs.layers_by_input(model) == {"x": model.first}
    spec = input_guesses.find_accepted(model.eval()).spec
    assert spec["x"].dims == (BATCH, Dim(1), Dim(28), Dim(28))


def test_layers_that_are_applied_to_inputs() -> None:
    model = Both()
    assert layers_of_inputs.layers_by_input(model) == {
        "a": model.convolution,
        "b": model.table,
    }
    assert layers_of_inputs.layers_by_input(nn.Module()) == {}
    spec = input_guesses.find_accepted(model.eval()).spec
    assert spec["a"].dims == (BATCH, Dim(4), LENGTH)
    assert (spec["b"].kind, spec["b"].limit) == ("ids", 20)


def test_two_sets_of_boxes_are_boxes() -> None:
    namespace = ModuleType("functions")

    def intersect(boxes1: Any, boxes2: Any) -> Any:
        low = torch.maximum(boxes1[:, None, :2], boxes2[:, :2])
        high = torch.minimum(boxes1[:, None, 2:], boxes2[:, 2:])
        return (high - low).clamp(min=0).prod(-1)

    vars(namespace)["intersect"] = intersect
    accepted = input_guesses.find_accepted(FunctionModule(namespace, "intersect"), inner=True)
    assert {slot.kind for slot in accepted.spec.values()} == {"corners"}


def sample_rows(rows: Any, number: Any) -> Any:
    batch, length, _ = rows.shape
    places = torch.zeros(batch, number, dtype=torch.long)
    for step in range(number):
        places[:, step] = rows.sum(-1).argmax(-1) + step - length // 2
    return places


def scan_states(u: Any, delta: Any, A: Any, B: Any) -> Any:
    states = torch.einsum("bld,dn->bldn", delta, A).exp()
    return states * torch.einsum("bld,bln,bld->bldn", delta, B, u)


def weigh_steps(states: Any, step: Any) -> Any:
    return states.softmax(-1) if step == 0 else states.softmax(-1) / step


def test_numbers_and_ranks_that_the_failing_statement_tells() -> None:
    namespace = ModuleType("functions")
    functions = {"sample_rows": sample_rows, "scan_states": scan_states, "weigh_steps": weigh_steps}
    vars(namespace).update(functions)
    weighed = input_guesses.find_accepted(FunctionModule(namespace, "weigh_steps"), inner=True)
    assert weighed.spec["step"].kind == "plain"
    sampled = input_guesses.find_accepted(FunctionModule(namespace, "sample_rows"), inner=True)
    assert sampled.spec["number"] == Slot("plain", value=2)
    scanned = input_guesses.find_accepted(FunctionModule(namespace, "scan_states"), inner=True)
    assert [len(slot.dims) for slot in scanned.spec.values()] == [3, 3, 2, 3]


def turn_pairs(x: Any, angles: Any) -> Any:
    pairs = x.float().reshape(*x.shape[:-1], -1, 2)
    table = angles.view(1, pairs.size(1), 1, pairs.size(3), 2)
    first = pairs[..., 0] * table[..., 0] - pairs[..., 1] * table[..., 1]
    second = pairs[..., 1] * table[..., 0] + pairs[..., 0] * table[..., 1]
    return torch.stack([first, second], -1).flatten(3)


@pytest.mark.slow
def test_a_table_has_the_shape_in_which_it_is_viewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_repairs, "FIRST_SECONDS", 60.0)  # a slow machine needs longer
    namespace = ModuleType("functions")
    vars(namespace)["turn_pairs"] = turn_pairs
    spec = input_guesses.find_accepted(FunctionModule(namespace, "turn_pairs"), inner=True).spec
    assert [len(slot.dims) for slot in spec.values()] == [4, 3]


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.ones(5))

    def forward(self, emissions: Any, tags: Any) -> Any:
        first = emissions[:, 0].gather(1, tags[:, :1]).squeeze(1)
        return torch.logsumexp(self.start + emissions[:, 0], 1) - self.start[tags[:, 0]] - first


class Pooling(nn.Module):
    """Weights positions by their likeness to a row of features, up to a length for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(16, 1)

    def forward(self, query: Any, keys: Any, lengths: Any) -> Any:
        rows = query.unsqueeze(1).expand(-1, keys.shape[1], -1)
        scores = self.score(torch.cat([rows, keys], -1))
        mask = torch.arange(keys.shape[1])[None] < lengths[:, None]
        return (scores * mask[..., None] * keys).sum(1)


@pytest.mark.parametrize(
    "cls",
    [
        *(Loss, Masks, Sums, Graph, Nearest, Waves, Translator, State, Features, Tagger, Pyramid),
        *(Denoiser, Both, Pooling),
    ],
)
def test_inputs_that_many_models_take_are_found(cls: type) -> None:
    input_guesses.find_accepted(cls().eval())


class Grid(nn.Module):
    """Returns the height of images."""

    def forward(self, x: Any) -> int:
        return int(x.shape[-2])


class Videos(nn.Module):
    """Applies a convolution to videos, after a layer without parameters or under another name."""

    def __init__(self, *, is_renamed: bool) -> None:
        super().__init__()
        self.grid, self.is_renamed = Grid(), is_renamed
        self.patches = nn.Sequential(nn.Identity(), nn.Conv3d(3, 6, 2))

    def forward(self, x: Any) -> Any:
        if self.is_renamed:
            videos = x * 2
            return self.patches(videos)
        height = self.grid(x)
        return self.patches(x) * height


@pytest.mark.parametrize("is_renamed", [False, True])
def test_videos_of_a_convolution_inside_another_layer(is_renamed: bool) -> None:
    spec = input_guesses.find_accepted(Videos(is_renamed=is_renamed).eval(), inner=True).spec
    assert spec["x"].dims[:2] == (BATCH, Dim(3))
    assert len(spec["x"].dims) == 5


def test_an_input_whose_first_layer_normalises_it_has_its_channels() -> None:
    """A block with its normalisation first takes images or videos."""

    class Block(nn.Module):
        """Normalises, then convolves."""

        def __init__(self, norm: Any, conv: Any) -> None:
            super().__init__()
            self.norm, self.conv = norm, conv

        def forward(self, x: Any) -> Any:
            out = self.norm(x)
            return x + self.conv(out)

    pictures = Block(nn.BatchNorm2d(6), nn.Conv2d(6, 6, 3, padding=1))
    videos = Block(nn.BatchNorm3d(6), nn.Conv3d(6, 6, 3, padding=1))
    for block, rank in ((pictures, 4), (videos, 5)):
        dims = guess_slots(block, True, 0)["x"].dims
        assert (dims[:2], len(dims)) == ((BATCH, Dim(6)), rank)


def statistics_of_picture(picture: Any) -> Any:
    assert picture.size()[0] == 3
    return picture.view(3, -1).std(dim=-1, keepdim=True)


def test_a_function_takes_inputs_of_one_size_in_their_first_dimension() -> None:
    namespace = ModuleType("functions")
    vars(namespace)["statistics_of_picture"] = statistics_of_picture
    function = FunctionModule(namespace, "statistics_of_picture")
    accepted = input_guesses.find_accepted(function, inner=True, one_batch=True)
    shapes = [
        value.shape
        for call in accepted.calls(function)(0)
        for value in (*call.args, *call.kwargs.values())
    ]
    assert {shape[0] for shape in shapes} == {3}
    assert len(set(shapes)) > 1


class Pointer(nn.Module):
    """Attends from one state to rows of features of all positions."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.score = nn.Linear(32, 32), nn.Linear(32, 1)

    def forward(self, state: Any, memory: Any, features: Any) -> Any:
        batch, length, width = list(memory.size())
        expanded = self.project(state).unsqueeze(1).expand(batch, length, width)
        scores = self.score(torch.tanh(features + expanded.contiguous().view(-1, width)))
        return torch.softmax(scores.view(-1, length), 1)


def test_rows_of_all_positions_beside_a_state_of_one() -> None:
    spec = input_guesses.find_accepted(Pointer().eval(), inner=True, width=32).spec
    assert spec["state"].dims == (BATCH, Dim(32))
    assert spec["features"].dims == (POSITIONS, Dim(32))


class Pictures(nn.Module):
    """Its documentation states the shape of the images; the names of the others tell theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 6, 2)

    def forward(
        self, hidden_states: Any, timestep: Any, encoder_hidden_states: Any, text_mask: Any
    ) -> Any:
        """Return numbers.

        Args:
            hidden_states (`torch.Tensor` of shape `(batch_size, channels, height, width)`):
                Images.
        """
        seen = encoder_hidden_states[text_mask.bool()].mean()
        return self.patches(hidden_states) * timestep[:, None, None, None] + seen


def test_an_input_whose_name_tells_its_shape_is_no_image() -> None:
    slots = guess_slots(Pictures(), inner=True, width=6)
    assert len(slots["hidden_states"].dims) == 4
    assert slots["encoder_hidden_states"].dims == (BATCH, LENGTH, Dim(6))
    assert slots["text_mask"].dims == (BATCH, LENGTH)


class Checked(nn.Module):
    """Takes two words that it tests one after the other."""

    def forward(self, x: Any, mode: str, kind: str) -> Any:
        if mode not in ("plain", "fused"):
            raise ValueError(f"mode must be 'plain' or 'fused', got {mode}.")
        if kind != "sum":
            raise ValueError("unknown kind")
        return x + 1


def test_the_attempt_that_failed_at_a_later_line_came_further() -> None:
    x = Slot("normal", (BATCH, LENGTH))
    first, later = (
        attempt(Checked(), {"x": x, "mode": Slot("plain", value=word), "kind": x})
        for word in ("gelu", "plain")
    )
    assert first.progress == later.progress
    assert first.rank < later.rank


class Guided(nn.Module):
    """Take times, and a guidance for which it was built without a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(6, 6)

    def forward(self, x: Any, times: Any = None, guidance: Any = None) -> Any:
        y = self.dense(x)
        if guidance is not None:
            y = self.guide(y * guidance)
        return y * times.unsqueeze(-1).relu()


def test_an_input_whose_layer_is_missing_leads_nowhere() -> None:
    x = Slot("normal", (BATCH, LENGTH, Dim(6)))
    failed = attempt(Guided(), {"x": x, "guidance": x})
    assert failed.progress and failed.rank < attempt(Guided(), {"x": x}).rank
    assert "guidance" not in calls(Guided())[0].kwargs


class Rotated(nn.Module):
    """Attention with a rotation by complex numbers and a cache of keys and values, whose shared
    heads stand after the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = 4, 2, 6
        self.query, self.key = nn.Linear(24, 24), nn.Linear(24, 12)

    def forward(
        self, hidden_states: Any, freqs_cis: Any, kv_write_indices: Any, kv_cache: Any, mask: Any
    ) -> Any:
        batch, length, _ = hidden_states.shape
        query = self.query(hidden_states).view(batch, length, self.num_heads, -1)
        key = self.key(hidden_states).view(batch, length, self.num_kv_heads, -1)
        rotated = torch.view_as_complex(query.unflatten(-1, (-1, 2))) * freqs_cis[:, None]
        keys, values = kv_cache
        keys.index_copy_(1, kv_write_indices, key)
        values.index_copy_(1, kv_write_indices, key)
        keys = keys.repeat_interleave(2, dim=2).transpose(1, 2)
        scores = torch.view_as_real(rotated).flatten(-2).transpose(1, 2) @ keys.transpose(2, 3)
        return (scores + mask).softmax(-1) @ values.repeat_interleave(2, dim=2).transpose(1, 2)


def test_a_layer_with_a_cache_and_a_rotation_gets_them_without_a_search() -> None:
    layer = Rotated().eval()
    accepted = input_guesses.find_accepted(layer, inner=True, width=24, seconds=0.0)
    *_, call = accepted.calls(layer)(0)
    assert call.kwargs["freqs_cis"].is_complex()
    torch.testing.assert_close(call.kwargs["freqs_cis"].abs(), torch.ones(8, 3))
    assert call.kwargs["kv_write_indices"].tolist() == [*range(8)]
    assert [tensor.shape for tensor in call.kwargs["kv_cache"]] == [(3, 8, 2, 6)] * 2
