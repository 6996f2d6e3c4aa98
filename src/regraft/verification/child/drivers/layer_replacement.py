"""Replace a layer of a model, or cut or lengthen a list of layers, after the model is built.

Reproducers contain this file from its constants on.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

SHORTER, LONGER, WIDER = "one layer less", "one layer more", "one more output"
LayerChange = tuple[str, str]  # the path of a submodule, and SHORTER, LONGER or WIDER


def change_layer(model: Any, path: str, change: str) -> Any:
    """Return a model after a change of its submodule at a dotted path, which is a list of layers
    for SHORTER and LONGER, and a linear or embedding layer for WIDER: that has one output, or one
    row, more, and new weights."""
    layer = model.get_submodule(path)
    if change == SHORTER:
        del layer[-1]
    elif change == LONGER:
        layer.append(copy.deepcopy(layer[-1]))
    elif isinstance(layer, nn.Embedding):
        model.set_submodule(path, nn.Embedding(layer.num_embeddings + 1, layer.embedding_dim))
    else:
        has_bias = layer.bias is not None
        wider = nn.Linear(layer.in_features, layer.out_features + 1, bias=has_bias)
        model.set_submodule(path, wider)
    return model
