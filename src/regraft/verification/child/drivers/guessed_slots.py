"""Inputs of a model as far as its signature and its layers tell."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from regraft.verification.child.checks.argument_variants import signature_of
from regraft.verification.child.drivers import argument_objects, described_shapes
from regraft.verification.child.drivers.argument_slots import (
    BATCH,
    LENGTH,
    Dim,
    Sizes,
    Slot,
    annotation_text,
    is_named,
    is_plain,
    packed_patches,
    slot_for,
)
from regraft.verification.child.drivers.configuration_objects import config_of
from regraft.verification.child.drivers.field_tables import HIDDEN, IMAGE_SIDE_FIELDS
from regraft.verification.child.drivers.forward_inputs import (
    CATEGORY_INPUTS,
    FURTHER_TOKENS,
    GRID_INPUTS,
    LAYER_INPUT,
    PACKED_INPUTS,
    TIME_INPUT,
)
from regraft.verification.child.drivers.layers_of_inputs import layers_by_input, layers_by_list

_PICTURE_CHANNELS = 4  # the most channels of a picture
# by convolution, the dimensions after the channels of its inputs, where no file states them
_SPATIAL_DIMS = {
    nn.Conv1d: (LENGTH,),
    nn.ConvTranspose1d: (LENGTH,),
    nn.ConvTranspose2d: (Dim(4), Dim(4)),
    nn.Conv3d: (Dim(4), Dim(16), Dim(16)),
}
# by batch normalisation, the dimensions after the channels of its inputs, which also are those of a
# convolution of videos that takes no strides, as in a block
_NORMALISED_DIMS = {
    nn.BatchNorm2d: (Dim(8), Dim(8)),
    nn.BatchNorm3d: (Dim(4), Dim(8), Dim(8)),
}
IMAGE = 32  # the height and width of images where a model does not state them


def width_of(model: Any) -> int:
    """Return the probable width of a layer's inputs: the last dimension that most of its matrices
    have.

    Without a matrix it is the length of the first vector that is no bias; `HIDDEN` where there is
    none either.
    """
    weights = [weight for name, weight in model.named_parameters() if not name.endswith("bias")]
    widths = Counter(int(weight.shape[-1]) for weight in weights if weight.dim() == 2)
    vectors = (int(weight.shape[0]) for weight in weights if weight.dim() == 1)
    return widths.most_common(1)[0][0] if widths else next(vectors, HIDDEN)


def guess_slots(model: Any, inner: bool, width: int, image: Any = None) -> dict[str, Slot]:
    """Return by name a guess for every parameter that holds a tensor, and for the plain ones that
    have no default; the other parameters keep their defaults.

    A guess is by the parameter's name and annotation (`slot_for`), or by the docstring of `forward`
    where the name tells nothing. Otherwise the layer that `forward` applies to such a parameter
    decides; where it applies none to the first, the model's first layer does, if it is a
    convolution or a table of embeddings. The arguments are those of
    `find_accepted`. Raises LookupError where no value can be guessed for a plain parameter.
    """
    sizes = Sizes(config_of(model), width, model if inner else None)
    names = signature_of(model).parameters
    is_layer = TIME_INPUT not in names and (inner or LAYER_INPUT in names)
    listed = described_shapes.listed_slots(model.forward, sizes, config_of(model))
    documented = {**listed, **described_shapes.documented_slots(model.forward, sizes)}
    slots = {}
    for parameter in filter(_is_guessed, parameters(signature_of(model))):
        objects = argument_objects.object_slots(model, parameter, sizes)
        if objects:
            slots.update(objects)
            continue
        slot = slot_for(parameter.name, annotation_text(parameter), sizes, is_layer)
        if slot.kind != "plain" and not is_named(parameter.name):
            slot = documented.get(parameter.name, slot)
        elif slot.kind in ("mask", "additive") and parameter.name in listed:
            slot = replace(slot, kind="mask", dims=listed[parameter.name].dims)
        slots[parameter.name] = slot
    applied = _slots_of_applied_layers(model, slots, image)
    first = {
        **_first_image(model, slots, image),
        **_first_maps(model, slots),
        **_nodes_of_graph(slots),
        **_first_ids(model, slots),
    }
    fallback = {} if _first_unnamed(slots) in applied else first
    lists = _slots_of_lists(model, slots)
    guessed = {**slots, **fallback, **applied, **_packed_images(slots, sizes), **lists}
    return argument_objects.with_masks_of_images(guessed)


def _slots_of_lists(model: Any, slots: Mapping[str, Slot]) -> dict[str, Slot]:
    """Return by name the slots of the parameters whose elements `forward` gives to the layers of a
    list, one to each, which begin with matrices: a list of (batch, length, width)."""
    lists = {}
    for name, layers in layers_by_list(model).items():
        first_layer = _first_layer(layers)
        if isinstance(first_layer, nn.Linear) and name in slots and slots[name].kind == "normal":
            dims = (BATCH, LENGTH, Dim(first_layer.in_features))
            lists[name] = Slot("list", dims, value=len(layers))
    return lists


def _is_guessed(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter needs a guess: it has no default, or holds a tensor by its name
    and annotation."""
    if parameter.default is parameter.empty:
        return True
    is_plain_default = isinstance(parameter.default, bool | int | float | str)
    return not (is_plain_default or is_plain(parameter.name, annotation_text(parameter)))


def _slots_of_applied_layers(model: Any, slots: Mapping[str, Slot], side: Any) -> dict[str, Slot]:
    """Return by name the slots of the parameters whose names tell nothing and to which `forward`
    applies a layer that begins with a convolution, a batch normalisation of images or videos, or a
    table of embeddings; beside such a table
    those of `FURTHER_TOKENS` are token ids, too. {} where the model has the configuration of a
    library that names its inputs."""
    if _is_of_library(model):
        return {}
    layers = {
        name: _first_layer(layer)
        for name, layer in layers_by_input(model).items()
        if name in slots and _is_unnamed(name, slots[name])
    }
    applied: dict[str, Slot] = {}
    for name, layer in layers.items():
        if isinstance(layer, nn.Embedding):
            tokens = _token_slots(slots, [name], layer)
            applied = {**tokens, **applied, name: tokens[name]}
        elif isinstance(layer, nn.Conv2d):
            applied[name] = replace(slots[name], dims=_image_dims(layer, model, side))
        elif type(layer) in _SPATIAL_DIMS:
            is_block = isinstance(layer, nn.Conv3d) and set(layer.stride) == {1}
            spatial = _NORMALISED_DIMS[nn.BatchNorm3d] if is_block else _SPATIAL_DIMS[type(layer)]
            dims = (BATCH, Dim(layer.in_channels), *spatial)
            applied[name] = replace(slots[name], dims=dims)
        elif type(layer) in _NORMALISED_DIMS:
            dims = (BATCH, Dim(layer.num_features), *_NORMALISED_DIMS[type(layer)])
            applied[name] = replace(slots[name], dims=dims)
    return applied


def _is_of_library(model: Any) -> bool:
    """Return whether a model has the configuration of a library that names its inputs."""
    return hasattr(getattr(model, "config", None), "to_dict")


def _first_image(model: Any, slots: Mapping[str, Slot], side: Any) -> dict[str, Slot]:
    """Return by name the slot of images for the first parameter whose name tells nothing; {} where
    the first layer of the model is no convolution, or the model has the configuration of a library
    that names its inputs."""
    layer = None if _is_of_library(model) else _first_layer(model)
    dims = _image_dims(layer, model, side) if isinstance(layer, nn.Conv2d) else ()
    name = _first_unnamed(slots) if dims else None
    return {} if name is None else {name: replace(slots[name], dims=dims)}


def _first_maps(model: Any, slots: Mapping[str, Slot]) -> dict[str, Slot]:
    """Return by name the slot of a list of feature maps for the first parameter whose name tells
    nothing; {} where the first layers of the model are no list of convolutions (`Conv2d`) that take
    different numbers of channels, a convolution for each feature map, or where they may be stages
    that begin with a picture."""
    layers = next((part for part in model.children() if [*part.parameters()]), None)
    if not isinstance(layers, nn.ModuleList):
        return {}
    convolutions = [_first_layer(layer) for layer in layers]
    if not all(isinstance(convolution, nn.Conv2d) for convolution in convolutions):
        return {}
    channels = tuple(convolution.in_channels for convolution in convolutions)
    is_pyramid = len(set(channels)) == len(channels) > 1 and channels[0] > _PICTURE_CHANNELS
    is_chain = channels[1:] == tuple(convolution.out_channels for convolution in convolutions)[:-1]
    name = _first_unnamed(slots) if is_pyramid and not is_chain else None
    return {} if name is None else {name: Slot("maps", (BATCH,), value=channels)}


def _first_ids(model: Any, slots: Mapping[str, Slot]) -> dict[str, Slot]:
    """Return by name the slot of token ids for the parameters of `CATEGORY_INPUTS`, or without such
    for the first parameter whose name tells nothing and those of `FURTHER_TOKENS`.

    Return {} where the first layer of the model is no table of embeddings, where that parameter is
    `hidden_states`, or where the model has the configuration of a library that names its inputs.
    """
    first_layer, name = _first_layer(model), _first_unnamed(slots)
    if name is None or name == LAYER_INPUT or _is_of_library(model):
        return {}
    if not isinstance(first_layer, nn.Embedding):
        return {}
    categories = [other for other in slots if other in CATEGORY_INPUTS]
    tokens = _token_slots(slots, categories or [name], first_layer)
    return {name: tokens[name] for name in categories} or tokens


def _token_slots(
    slots: Mapping[str, Slot], names: list[str], table: nn.Embedding
) -> dict[str, Slot]:
    """Return by name the slots of token ids of a table, for the parameters `names` and those of
    `slots` that are in `FURTHER_TOKENS`; only the names of `slots` are read."""
    further_names = [other for other in slots if other in FURTHER_TOKENS]
    tokens = Slot("ids", (BATCH, LENGTH), table.num_embeddings)
    return dict.fromkeys((*names, *further_names), tokens)


def _nodes_of_graph(slots: Mapping[str, Slot]) -> dict[str, Slot]:
    """Return by name the slot of the nodes of a graph, (nodes, features), for the first parameter
    whose name tells nothing; {} where no input says which nodes are joined."""
    name = _first_unnamed(slots) if any(slot.kind == "edges" for slot in slots.values()) else None
    return {} if name is None else {name: replace(slots[name], dims=slots[name].dims[1:])}


def _first_unnamed(slots: Mapping[str, Slot]) -> str | None:
    """Return the name of the first parameter whose name tells nothing (`_is_unnamed`); None for
    none."""
    return next((name for name, slot in slots.items() if _is_unnamed(name, slot)), None)


def _is_unnamed(name: str, slot: Slot) -> bool:
    """Return whether the name of a parameter tells nothing, and its slot is the guess for such
    names, real numbers of (batch, length, ...)."""
    return slot.kind == "normal" and slot.dims[:2] == (BATCH, LENGTH) and not is_named(name)


def _first_layer(model: Any) -> Any:
    """Return the first module of a model that has parameters of its own and no submodules; None
    where there is none."""
    return next(
        (part for part in model.modules() if part._parameters and not [*part.children()]), None
    )


def _packed_images(slots: Mapping[str, Slot], sizes: Sizes) -> dict[str, Slot]:
    """Return by name the slots of `PACKED_INPUTS` as the patches of all images in one row; {} where
    the model takes no grid of patches, and so its images are apart."""
    if not any(name in GRID_INPUTS for name in slots):
        return {}
    images = [name for name in slots if name in PACKED_INPUTS]
    return dict.fromkeys(images, packed_patches(sizes))


def _image_dims(layer: nn.Conv2d, model: Any, side: Any) -> tuple[Dim, ...]:
    """Return the dimensions of the images that a convolution of a model takes.

    `side` is the side of the images in pixels, or a sequence that ends with height and width. Where
    it is None, a module of the model may state it, otherwise it is `IMAGE`.
    """
    stated_sides = (
        getattr(part, name, None) for part in model.modules() for name in IMAGE_SIDE_FIELDS
    )
    side = side or next((stated_side for stated_side in stated_sides if stated_side), IMAGE)
    sides = tuple(side) if isinstance(side, tuple | list) else (side,)
    numbers = tuple(number for number in sides if type(number) is int) or (IMAGE,)
    height, width = (numbers * 2)[:2] if len(numbers) < 2 else numbers[-2:]
    return BATCH, Dim(layer.in_channels), Dim(height), Dim(width)


def parameters(signature: inspect.Signature) -> list[inspect.Parameter]:
    """Return the parameters of a signature without `self`, `*args` and `**kwargs`."""
    variadic_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        p
        for p in signature.parameters.values()
        if p.kind not in variadic_kinds and p.name != "self"
    ]
