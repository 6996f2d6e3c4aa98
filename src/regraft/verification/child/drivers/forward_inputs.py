"""Tables of the usual names of a `forward`'s parameters: which kind of value they take, and of
which shape.

A new name is an entry here; the modules that guess inputs (`slots`, `inputs`), repair them
(`input_repairs`) and read shapes from documentation (`described_shapes`) only read the tables. A
dimension is a number, "batch", "length", or the name of a size that the configuration states
(`field_tables.DIMENSION_FIELDS`). No table names a model or a repository.
"""

from __future__ import annotations

from collections.abc import Mapping

from regraft.verification.child.drivers.field_tables import HEADS, HIDDEN, Names

Dimensions = tuple[str | int, ...]

# A pattern for the names of parameters, the kind of the value (see `argument_slots.Slot`) and its
# shape; the first pattern that is found in the name decides.
INPUTS: tuple[tuple[str, str, Dimensions], ...] = (
    # masks of heads, and rows and columns of the patches of each image
    (r"head_mask$", "ones", ("layers", "heads")),
    (r"grid_thw$", "grid", ("batch", 3)),
    (r"^(target_sizes|spatial_shapes)$", "grid", ("batch", 2)),
    # inputs of diffusion: positions, times, states and vectors of a text encoder
    (r"^(img|txt|image|text)_ids$", "zeros", ("length", 3)),
    (r"^timesteps?$", "ids", ("batch",)),
    (r"^guidance$", "normal", ("batch",)),
    (r"^encoder_hidden_states", "normal", ("batch", "length", "context")),
    (r"^(temb|t_emb|time_emb|timestep_emb)$", "normal", ("batch", "hidden")),
    (r"^pooled_projections?$", "normal", ("batch", "pooled")),
    # images, sound, boxes of words, and patches with their positions
    (r"pixel_mask$", "mask", ("batch", "image", "image")),
    (r"^pixel_values", "normal", ("batch", "channels", "image", "image")),
    (r"input_features$|^(log_)?mels?$", "normal", ("batch", "mels", "frames")),
    (r"^(input|audio)_values$", "normal", ("batch", "samples")),
    (r"^(bbox|boxes)$", "boxes", ("batch", "length", 4)),
    (
        r"^b?box(es)?_?[12ab]$|^(pred|target|gt|proposal)_b?boxes$|^proposals$",
        "corners",
        ("length", 4),
    ),
    (r"^flattened_patches$", "patches", ("batch", "length", "patch")),
    # time series
    (r"^past_(values|observed_mask)$", "normal", ("batch", "past")),
    (r"^past_time_features$", "normal", ("batch", "past", "times")),
    (r"^future_(values|observed_mask)$", "normal", ("batch", "future")),
    (r"^future_time_features$", "normal", ("batch", "future", "times")),
    # positions, keys and values of earlier positions, rotary embeddings, bounds of sequences
    (r"bool_masked_pos$", "every other", ("batch", "length")),
    (
        r"^(past_key_value|layer_past|past)$",
        "pair",
        ("batch", "heads", "length", HIDDEN // HEADS),
    ),
    (r"^(kv_cache|cache_kv)$", "pair", ("batch", "length", "key value heads", "head")),
    (r"^(position_embeddings|rotary_pos_emb)$", "pair", ("batch", "length", "head")),
    (r"^(freqs|pos)_cis$", "rotation", ("length", "head")),
    (r"cu_seq_?lens", "bounds", ("length",)),
    (r"^(lengths|lens)$|_lengths$|_lens$", "lengths", ("batch", "length")),
    (r"^edge_index$|^edges$", "edges", (2, "length")),
    (r"position_ids$", "range", ("batch", "length")),
    (r"^(input|cache|write)_pos(itions?)?$|^kv_write_indices$", "range", ("length",)),
    # text, and the weights of a function
    (
        r"(_ids|^ids|^idx|_index|_indices|^index|^indices|^labels?|^tags?|^targets?|^tokens?|_tokens?)$",
        "ids",
        ("batch", "length"),
    ),
    (r"mask$", "mask", ("batch", "length")),
    (r"^(weight|bias|gamma|beta)$", "normal", ("hidden",)),
)
# A part of an annotation that tells the kind of a tensor, with the number that its integers are
# below.
INPUTS_BY_ANNOTATION: tuple[tuple[str, str, int], ...] = (
    ("LongTensor", "ids", 2),
    ("BoolTensor", "bool", 0),
)
# The shape of an input that no row of `INPUTS` is for, and that of a layer's mask, which is added
# to the scores of attention.
UNNAMED_INPUT: Dimensions = ("batch", "length", "hidden")
LAYER_MASK: Dimensions = ("batch", 1, "length", "length")
# Images that become several where the configuration has a number of frames.
VIDEO_INPUTS = frozenset({"pixel_values"})
# Types of tokens are counted from 0 and have a size of their own.
TYPE_INPUTS = Names(r"type")
TOKEN_TYPE_INPUTS = Names(r"type_ids$")
# Kinds whose shape follows from their meaning, and kinds that hold a number for each position.
FIXED_SHAPE_KINDS = frozenset({"grid", "bounds", "lengths", "edges", "maps", "list", "corners"})
POSITION_KINDS = frozenset({"ids", "mask", "bool", "every other", "range"})

# Names of further tokens beside the first input of a model that begins with a table of embeddings,
# and of categories, which it then looks up instead of its first input.
FURTHER_TOKENS = Names(r"^(src|trg|tgt|decoder_inputs?|decoder_tokens)$")
CATEGORY_INPUTS = Names(r"sparse|categor|^x_?cat|cat_feat")

# Types and names of parameters that are no tensors, and the parameter that is the number of a
# dimension, with its value.
PLAIN_TYPES = frozenset({"int", "float", "bool", "str"})
PLAIN_INPUTS = Names(
    r"^(eps|epsilon|dim|p|dropout|training|scale|scaling|n_rep)$"
    r"|^(num_|is_|output_|use_|return_)|^max_(new_)?(tokens|steps)$|^(temperature|top_[kp])$"
    r"|^(max_)?(seq|sequence)_?len(gth)?$|(^|_)steps$"
)
DIMENSION_INPUT, LAST_DIMENSION = "dim", -1

# Groups of inputs that are tried together: text, images and sound, the future of a time series.
TEXT_INPUTS = (
    "input_ids",
    "attention_mask",
    "decoder_input_ids",
    "decoder_attention_mask",
    "token_type_ids",
)
SENSE_INPUTS = (
    "pixel_values",
    "image_grid_thw",
    "input_features",
    "input_values",
    "flattened_patches",
)
FUTURE_INPUTS = ("future_values", "future_time_features")
USUAL_INPUTS = (*TEXT_INPUTS, *SENSE_INPUTS, *FUTURE_INPUTS, "bbox")
# The main input of a model that does not name its own (`main_input_name`), and the inputs one of
# which is tried beside the main one.
TOKENS_INPUT = "input_ids"
BESIDE_MAIN_INPUT = ("attention_mask", "decoder_input_ids")
# The input by whose name a module is a layer, and the input of models of diffusion, which have the
# former, too, and are no layers.
LAYER_INPUT, TIME_INPUT = "hidden_states", "timestep"
# A grid of patches, and the inputs that then hold the patches of all images in one row.
GRID_INPUTS = Names(r"grid_thw$")
PACKED_INPUTS = Names(r"^hidden_states$|^pixel_values")
# Masks, which calls are also made without.
MASK_INPUTS = Names(r"mask")
# Labels of a model's loss.
LABEL_INPUTS = frozenset({"labels", "start_positions", "mask_labels"})

# Flags with which a call asks for further outputs; the input and the flag of a cache, and a pattern
# for texts that are about it.
REQUESTS = ("output_attentions", "output_hidden_states", "use_cache")
CACHE_INPUT, CACHE_FLAG = "past_key_values", "use_cache"
CACHE_WORDS = r"past|cache"
# The beginnings of a name that a text about the input may leave out.
SIDE_PREFIX = r"^(encoder|decoder)_"

# Patterns for words in documentation and messages, each with the dimension that it stands for.
SHAPE_WORDS: tuple[tuple[str, str], ...] = (
    (r"batch|^bsz?$|^b$|^num_(images|videos|audios)", "batch"),
    (r"length|^seq|tokens", "length"),
    (r"channels", "channels"),
    (r"height|width|image_size", "image"),
    (r"heads", "heads"),
    (r"layers", "layers"),
    (r"hidden|embed|dim", "hidden"),
    (r"mel|feature_size", "mels"),
)
# Patterns for the names that a shape is unpacked to, by the meaning of the axis; of two that fit a
# name the first decides. The first axis is the batch whatever its name.
AXIS_NAMES: Mapping[str, str] = {
    "side": r"^(h|w|x|y|H|W)\d?$|height|width",
    "frames": r"^(t|f|T|F)$|frames|temporal|^depth$",
    "length": r"^(l|n|s|q|k|j|L|N|S)$|len|seq|tokens|patches|points|^(num_)?nodes$",
    "channels": r"^(c|d|e|C|D|E|ch|dim)$|channels|^c_?in$|chan|hidden|embed|features|width",
}
# The kind of a value by the type of its tensor in documentation; other types hold real numbers.
KINDS_BY_TENSOR: Mapping[str, str] = {"LongTensor": "ids", "IntTensor": "ids", "BoolTensor": "bool"}
