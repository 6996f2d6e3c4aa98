"""Tables of the usual names of configuration fields and constructor parameters: what they mean, and
which values they take.

A new name is an entry here; the modules that shrink (`config_shrinking`), repair
(`config_repairs`), vary (`config_variations`) and guess (`guessed_values`) values only read the
tables. No table names a model or a repository.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class Names:
    """A group of field names: those in which the regular expression `pattern` is found and `but`,
    if it is not empty, is not."""

    def __init__(self, pattern: str, but: str = "") -> None:
        self._pattern = re.compile(pattern)
        self._but = re.compile(but) if but else None

    def __contains__(self, name: str) -> bool:
        """Return whether a name has the pattern and not the one of `but`."""
        if self._pattern.search(name) is None:
            return False
        return self._but is None or self._but.search(name) is None


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest number that some fields keep in a small configuration.

    `largest` is a number, or the name of a rule of `config_shrinking` that depends on the scale or
    the layers. The limit applies to numbers larger than `above` and not larger than `up_to`.
    """

    fields: Names
    largest: int | str
    above: float = -math.inf
    up_to: float = math.inf

    def applies(self, name: str, value: int) -> bool:
        """Return whether `fields` has the name, and the value is larger than `above` and not larger
        than `up_to`; it need not be larger than `largest`."""
        return self.above < value <= self.up_to and name in self.fields


# Sizes of a small model: its width, its heads, its layers, its vocabulary and its positions. They
# are also the guesses where a configuration does not state a size.
HIDDEN = 32
HEADS = 4
LAYERS = 2
VOCABULARY = 99
POSITIONS = 64
# The most kinds of layers, where a configuration names them, of which a model keeps a layer each.
KINDS = 4
FRAMES = 4  # of a video
# The queries of a detector: no more than a small image has positions.
QUERIES = 8
# The window of attention: shorter than the inputs, so that it has an effect.
WINDOW = 4
# Positions that are processed together, and that inputs are padded to; longer than the inputs.
BLOCK = 16
# The longest block that is shortened; longer ones are of samples of sound.
LONGEST = 1024
# Sizes of layers: the narrowest and the widest that are read from an error or chosen, and the
# smallest that is shrunk.
NARROWEST, WIDEST = 8, 4096
SIZED = 48

# The width of a model, most usual names first.
HIDDEN_FIELDS = (
    "hidden_size",
    "d_model",
    "n_embd",
    "embed_dim",
    "dim",
    "hidden_dim",
    "emb_dim",
    "model_dim",
)
# Heads of attention: all of them, those of keys and values, and the width of one.
ATTENTION_HEADS_FIELD = "num_attention_heads"
HEAD_COUNT_FIELDS = Names(r"heads?$")
KEY_VALUE_HEAD_FIELDS = Names(r"(kv|key_value).*heads?$|head_kv$")
HEAD_SIZE_FIELDS = Names(r"head_(dim|size)$|(^|_)d_head$|d_kv$|kv_channels")
# Numbers of layers.
LAYER_COUNT_FIELDS = Names(r"layers?$|^depth$|^n_layer|(num|(^|_)n)_blocks$|^blocks?$", but="norm")
# The period of layers of another kind, and the number of first layers of one kind.
LAYER_PERIOD_FIELDS = Names(
    r"(sparse|layer|attention|attn|expert|moe)_(\w+_)?(step|interval|frequency|freq|period)$"
    r"|window_pattern$"
)
FIRST_LAYERS_FIELDS = Names(r"^first_k_|dense_layers$|layer_(offset|start_index)$")
# Lists of the positions of layers, and lists with a kind for each layer of a repeated pattern.
LAYER_POSITION_FIELDS = Names(
    r"(attn|block|visual|layer)_(ids|idxs|indexes|indices)$"
    r"|(only|rope|moe|attention|global|local)_layers$"
)
LAYER_PATTERN_FIELDS = Names(r"block")
# Sizes of layers, and the numbers that have such a name but keep their value.
SIZE_FIELDS = Names(
    r"(size|dim|dims|rank|width|channels|planes|features|n_embd|n_inner|d_model|d_ff|d_inner|d_head"
    r"|state|filters)s?$"
    r"|^(d|dim|n)_|hidden"
)
FIXED_SIZE_FIELDS = Names(
    r"kernel|stride|window|chunk|block(?!\w*plane)|num_channels|type_vocab|buckets|group_"
    r"|conv_(?!dim|.*channels)|dilation|interval|crop"
)
# The end of a name that lists a number for each layer or stage.
LIST_ENDING = r"_(list|per_stage|per_layer)$"
# Lists of widths of features, which may have the name of a list of stages.
FEATURE_LIST_FIELDS = Names(r"features")
# Configurations inside others have one of these names, or end as these do.
CONFIG_FIELDS = Names(r"config$|^(encoder|decoder|text|vision)$")
# Parameters of a constructor that hold a configuration, and classes of configurations that only
# their names tell.
CONFIG_PARAMETERS = Names(
    r"(^|_)(configs?|cfg|conf|args|params|hparams|hps?|opts?|options|settings)$|config$"
)
CONFIG_CLASSES = Names(r"(Config|Cfg|Args|Arguments|Params|HParams|Options|Settings)$")
# Rotary embeddings, and in them the sections that the width of half a head is divided into.
ROTARY_FIELDS = Names(r"^rope")
ROTARY_SECTIONS_FIELD = "mrope_section"

# Numbers that every scale limits; the first row that applies decides.
COUNT_LIMITS = (
    Limit(Names(r"token_(id|index)$"), "token id"),
    Limit(Names(r"_id$"), "token id", above=VOCABULARY - 1),
    Limit(Names(r"vocab", but="type"), VOCABULARY),
    Limit(FIRST_LAYERS_FIELDS, "layers but the last"),
    Limit(LAYER_COUNT_FIELDS, "layers"),
    Limit(LAYER_PERIOD_FIELDS, "layers"),
    Limit(Names(r"(image|input|img)_size$"), "image side"),
)
# Numbers that a mild scale does not limit; the first row that applies decides. 0 stays 0, since it
# leaves a component out.
SIZE_LIMITS = (
    Limit(Names(r"position|n_ctx|max_seq|max_length|context_length"), POSITIONS, above=POSITIONS),
    Limit(KEY_VALUE_HEAD_FIELDS, "half of the heads"),
    Limit(HEAD_SIZE_FIELDS, "width of a head"),
    Limit(HEAD_COUNT_FIELDS, "heads"),
    # groups of channels, or of experts: two in each
    Limit(Names(r"groups?$"), 2),
    Limit(Names(r"(queries|proposals)$"), QUERIES),
    Limit(Names(r"experts_per_tok|top_?k|moe_k"), 2),
    Limit(Names(r"experts?$"), 4),
    Limit(Names(r"patch_size"), 8),
    Limit(Names(r"tokens_per_(image|frame|side)$"), 4),
    # no more than the shortest context
    Limit(Names(r"label_length$"), 4),
    Limit(Names(r"mask.*_length$"), 2),
    Limit(Names(r"(^|num_)frames$"), FRAMES),
    Limit(Names(r"window"), WINDOW, above=POSITIONS),
    Limit(Names(r"(^|_)(block|chunk)_size$"), BLOCK, above=POSITIONS, up_to=LONGEST),
    # all others, if `field_kinds.is_size` holds
    Limit(Names(r""), "size of a layer", above=SIZED - 1),
)

# Values for fields that some configurations leave unset.
NEEDED: Mapping[str, int] = {"vocab_size": VOCABULARY, "prediction_length": 4, "pad_token_id": 1}
# Fields that the configuration computes from its other fields.
DERIVED = frozenset({"stage_names", "out_features", "out_indices", "_out_features", "_out_indices"})
# The field with the stages that a backbone returns.
STAGES_FIELD = "out_features"
# Fields with the name of a model of timm, those with keywords for it, and the model with stages
# that timm has for tests.
TIMM_MODEL_FIELDS = frozenset({"backbone", "architecture"})
TIMM_ARGUMENT_FIELDS = Names(r"args$")
TIMM_TEST_PREFIX, TIMM_TEST_MODEL = "test_", "test_resnet"
# Flags for weights that would be downloaded.
PRETRAINED_FLAGS = Names(r"^(use_)?pretrained(_backbone)?$")

# A backbone for models whose own comes from a package that is missing, and the flag for the other.
BACKBONE_FIELDS = Names(r"backbone_config$")
TIMM_BACKBONE_FLAG = "use_timm_backbone"
BACKBONE: Mapping[str, Any] = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 8, 16, 16],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
    "out_features": ["stage2", "stage3", "stage4"],
}

# Values to try for fields that are unset: sizes of layers (kernels may want a multiple of 8),
# numbers, heads of keys and values, lists, and attributes that a configuration lacks.
UNSET_SIZE_FIELDS = Names(r"_(size|dim|width)$")
UNSET_NUMBER_FIELDS = Names(r"^num_|_(id|length|window)$|_(size|dim|width)$")
UNSET_SIZE_VALUES = (8, 2, 1, True)
UNSET_VALUES = (2, 1, 8, True)
UNSET_LISTS = ([8], [2], [8, 8])
PLURAL_FIELDS = Names(r"s$")
UNSET_KEY_VALUE_FIELDS = Names(r"kv_")
MISSING_ATTRIBUTE_VALUES = (0.02, 1, HIDDEN, False, WINDOW)
# Flags for the kind of a model, which an error about a missing attribute may ask to invert.
KIND_FLAGS = Names(r"^is_")

# Numbers that go with the vocabulary, which repairs leave alone, and names of private fields.
VOCABULARY_FIELDS = Names(r"vocab")
PRIVATE_FIELDS = Names(r"^_")
# Fields of heads, which are restored together.
HEAD_FIELDS = Names(r"head")
# Rates of chance, such as that with which dropout drops values.
CHANCE_FIELDS = Names(r"drop|prob|^p$")

# Fields with the name of an activation, the names to try, and those of a field that a file compares
# with strings.
ACTIVATION_FIELDS = Names(r"act|_fn$|activation")
ACTIVATION_OR_PROJECTION_FIELDS = Names(r"act|_fn$|activation|proj$")
ACTIVATION_PARAMETERS = Names(r"act")
ACTIVATIONS = ("gelu", "relu", "silu", "gelu_new")
# The number of positions in a block that is processed together.
BLOCK_FIELDS = Names(r"(block|chunk)_(size|len|length)$")
# Second values of unset fields: of sizes, and of others.
SECOND_SIZE_FIELDS = Names(r"(^|_)(dim|size|width)$")
SECOND_SIZES = (16, 32)
SECOND_VALUES = (0.5, 1, True, 0)
# A flag, of configurations and of calls, that changes the type of the result only.
RESULT_TYPE_FLAG = "return_dict"
# Flags that go together: cross-attention is an option of decoders.
DECODER_FLAGS = ("is_decoder", "add_cross_attention")

# Values of constructor parameters and of attributes that a file reads from a configuration; the
# first pattern that is found in the name decides.
FLAG_FIELDS = Names(r"^(use|is|has|add|with|do|output)_(?!.*(dim|size|channels)$)|bias$")
GUESSES: tuple[tuple[str, Any], ...] = (
    # small numbers and rates
    (r"(^|_)(eps|epsilon)$|_eps(ilon)?$", 1e-6),
    (r"drop|^p$|_prob$|_p$", 0.1),
    # sampling of tokens, steps of diffusion, numbers of steps
    (r"^(time_?)?step(_index)?$", 1),
    (r"^max_(new_)?(tokens|steps)$|(^|_)(steps|epochs)$", 3),
    (r"^temperature$|^top_p$", 0.8),
    (r"^top_k$", 2),
    # factors of widths, and numbers of blocks
    (r"(ratio|factor|multiplier|mult)$|^expan(d|sion)$", 2),
    (r"(^|_)(blocks?|units|repeats?)$", 2),
    # numbers of what a model relates to one another
    (r"^(n|num)_(atoms|nodes|agents|objects|entities)$", 5),
    # vocabularies, layers and positions
    (r"type_vocab", 2),
    (r"vocab|num_embeddings", 99),
    (r"(^|_)(num_|n_)?.*layers?$|^depth$", 2),
    (r"position|max_len|max_seq|seq_len|context", 64),
    # heads
    (r"(kv|key_value).*heads?|heads?_kv", 2),
    (r"heads?$|^n_head", HEADS),
    (r"head_(dim|size)|d_kv", HIDDEN // HEADS),
    # images and convolutions
    (r"resolution", (8, 8)),
    (r"patch_size", 2),
    (r"(window|group)_?size", 4),
    (r"kernel", 3),
    (r"(^|_)(stride|groups|dilation|n_rep)$", 1),
    (r"padding", 1),
    # classes and the place of a layer
    (r"num_(labels|classes)", 3),
    (r"layer_?idx", 0),
    # widths inside a layer, activations and factors
    (r"intermediate|inner|ffn|mlp|d_ff|expan", 2 * HIDDEN),
    (r"hidden_act|activation|act_fn|^act$", "gelu"),
    (r"scale|scaling|alpha|gamma_init", 0.5),
    # widths of layers
    (r"size|dim|hidden|emb|channel|feature|width|d_model|^(d|h|n|c)$", HIDDEN),
)
GUESSES_BY_TYPE: Mapping[str, Any] = {"int": HIDDEN, "float": 0.5, "bool": False, "str": "gelu"}

# Sizes of inputs: by the name of a dimension in `forward_inputs`, the fields that state it, and
# the size where none does (the name of another dimension, or a number).
DIMENSION_FIELDS: Mapping[str, tuple[tuple[str, ...], str | int]] = {
    "hidden": (("hidden_size", "d_model", "n_embd", "embed_dim", "hidden_dim", "dim"), HIDDEN),
    "context": (
        (
            "cross_attention_dim",
            "joint_attention_dim",
            "text_embed_dim",
            "text_dim",
            "caption_channels",
        ),
        "hidden",
    ),
    "pooled": (("pooled_projection_dim",), "hidden"),
    "layers": (("num_hidden_layers", "num_layers", "encoder_layers", "n_layer"), LAYERS),
    "heads": ((ATTENTION_HEADS_FIELD, "num_heads", "n_head", "n_heads"), HEADS),
    "key value heads": (
        ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_kv_head", "n_local_heads"),
        "heads",
    ),
    "head": (("head_dim",), "hidden by heads"),
    "image": (("image_size", "img_size", "input_size"), 32),
    "channels": (("num_channels", "in_channels", "in_chans"), 3),
    "mels": (("num_mel_bins", "feature_size", "n_mels"), 80),
    "patch": (("patch_embed_hidden_size",), HIDDEN),
    "context positions": (("context_length",), 8),
    "future": (("prediction_length",), 4),
    "times": (("num_time_features",), 0),
    "source positions": (("max_source_positions", "n_audio_ctx"), 32),
    "video frames": (("num_frames",), 0),
    "vocabulary": (("vocab_size",), VOCABULARY),
    "token types": (("type_vocab_size",), 1),
    "packed channels": (("in_channels", "num_channels", "in_chans"), 3),
    "packed frames": (("temporal_patch_size",), 1),
    "packed side": (("patch_size",), 1),
}
# Lists of numbers: the lags of a time series, and the strides of the convolutions over sound with
# their product where a configuration has no such list.
LAGS_FIELD = "lags_sequence"
STRIDES_FIELD = "conv_stride"
STRIDE = 200
# The side of images as a parameter of a constructor or an attribute of a module.
IMAGE_SIDE_FIELDS = ("img_size", "image_size", "image_resolution", "input_resolution")
# The side of the maps that a layer takes, as a parameter of its constructor.
MAP_SIDE_FIELDS = (*IMAGE_SIDE_FIELDS, "resolution")
# Sizes for the parameters of a method that makes a model ready, such as its caches: as many rows as
# the largest batch of the inputs has, and more positions than they have; and the device.
PREPARED_SIZES: tuple[tuple[Names, int | str], ...] = (
    (Names(r"batch|^bsz?$"), 3),
    (Names(r"len|seq|positions|tokens|^(max_)?size$|steps"), 512),
    (Names(r"^device$"), "cpu"),
)
# The configuration of the text in one of several inputs, and the width of its model.
TEXT_CONFIG_FIELD, TEXT_WIDTH_FIELD = "text_config", "hidden_size"
# The ends of a field with the token that stands for an image, as in `image_token_id`.
PLACEHOLDER_ENDS = ("id", "index")
