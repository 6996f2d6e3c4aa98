"""Conditions about the layers of a model: how wide their outputs are, and what their classes
compute."""

from __future__ import annotations

import re

from regraft.matching.conditions.values_for_conditions import Arguments, Scope, variable_text
from regraft.structure.rms_norm_recognition import is_rms_norm
from regraft.structure.values_and_nodes import Layer, Node, Structure, Value

# parts of names for the width of a model's head
_VOCABULARY = re.compile("vocab|classes|labels|num_tokens|n_token")


_WORDS = re.compile("vocab|num_tokens|n_?token")


_FEWEST_WORDS = 8192
_FEWEST_CLASSES = 1024  # logits of fewer are small beside what they are computed from


_MAX_WIDTH_RATIO = 16  # as for the query of 16 heads beside a key of one


# Operations that leave the last dimension of logits, and the number of each, as they are.
_SHAPING_OPS = frozenset({"view", "reshape", "flatten", "contiguous", "to", "py.item"})
_EMBEDDING = "torch.nn.Embedding"


def comparable_widths(args: Arguments, scope: Scope) -> str:
    """Return a reason where a layer's output is much wider than another's, by their `out_features`:
    numbers more than 16 times as large, or names such as `vocab_size` for some of them only. One
    product of such layers would be as wide as the widest, and save nothing."""
    widths = _widths_of_layers(args, scope)
    vocabulary_wide = [
        name for name, width in widths.items() if _VOCABULARY.search(_describing_names(width))
    ]
    if vocabulary_wide and len(vocabulary_wide) < len(widths):
        return (
            f"{vocabulary_wide[0]} is as wide as a vocabulary or a list of classes, and others"
            " are not"
        )
    numbers = {name: width.const for name, width in widths.items() if isinstance(width.const, int)}
    widest = max(numbers, key=numbers.__getitem__, default="")
    narrowest = min(numbers.values(), default=0)
    if widest and numbers[widest] > _MAX_WIDTH_RATIO * narrowest:
        return f"{widest} is {numbers[widest]} wide, another layer {narrowest}"
    return ""


def _widths_of_layers(args: Arguments, scope: Scope) -> dict[str, Value]:
    """Return the `out_features` of the layers that variables hold, by the text of the variable."""
    widths = {}
    for operand in args:
        value = scope.value(operand)
        for layer in value.layers if value is not None else ():
            if "out_features" in layer.args:
                widths[variable_text(operand)] = layer.args["out_features"]
    return widths


def _describing_names(value: Value) -> str:
    """Return the names of a value and of the values that it is computed from, joined by blanks."""
    parts = [value.name, *value.names]
    if value.node is not None:
        parts += [value.node.spelling, *map(_describing_names, value.node.args.values())]
    return " ".join(parts)


def vocabulary(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the value is, apart from its shape, in some branch the output of a
    Linear layer that is as wide as a vocabulary: by the names of its width, by its number, or
    because an embedding has as many rows; or a product with the rows of an embedding."""
    value = scope.value(args[0])
    pending = list(value.alternatives()) if value is not None else []
    visited = set(pending)
    while pending:
        node = pending.pop().node
        if node is None:
            continue
        if node.layer is not None:
            if any(_is_vocabulary_wide(layer, scope.structure) for layer in node.layer.layers):
                return ""
        elif _multiplies_rows(node, scope.structure):
            return ""
        elif node.op in _SHAPING_OPS:
            options = node.args["base" if node.op == "py.item" else "input"].alternatives()
            pending += [option for option in options if option not in visited]
            visited.update(options)
    return f"{variable_text(args[0])} is not known to be logits over a vocabulary"


def many_classes(args: Arguments, scope: Scope) -> str:
    """Return a reason where the output of a Linear layer has a width that is a number below
    1,024."""
    value = scope.value(args[0])
    for layer in value.layers if value is not None else ():
        width = layer.args["out_features"].const if "out_features" in layer.args else None
        if isinstance(width, int) and width < _FEWEST_CLASSES:
            return f"{variable_text(args[0])} has an output of {width} only: its logits are small"
    return ""


def _multiplies_rows(node: Node, structure: Structure) -> bool:
    """Return whether a node multiplies a tensor by the rows of an embedding of the class,
    `x @ self.embedding.weight.t()`."""
    if node.op == "linear":
        return node.args["bias"].const is None and _is_table(node.args["weight"].name, structure)
    if node.op != "matmul":
        return False
    columns = node.args["other"]
    if columns.name.endswith((".T", ".mT")):
        return _is_table(columns.name.rpartition(".")[0], structure)
    exchange = columns.node
    if exchange is None or exchange.op not in ("t", "transpose"):
        return False
    return _is_table(exchange.args["input"].name, structure)


def _is_table(name: str, structure: Structure) -> bool:
    """Return whether a name is that of the weight of an embedding that an attribute of the instance
    certainly holds."""
    path, _, attribute = name.rpartition(".")
    layers = structure.layers.get(path, ()) if attribute == "weight" else ()
    return bool(layers) and all(layer.type == _EMBEDDING for layer in layers)


def _is_vocabulary_wide(layer: Layer, structure: Structure) -> bool:
    """Return whether the output of a layer is as wide as a vocabulary: at least 8,192, a width with
    a name such as `vocab_size`, or the number of rows of an embedding of the class."""
    width = layer.args.get("out_features")
    if width is None:
        return False
    if isinstance(width.const, int):
        return width.const >= _FEWEST_WORDS
    if _WORDS.search(_describing_names(width)):
        return True
    layers = (each for layers in structure.layers.values() for each in layers)
    rows = (each.args.get("num_embeddings") for each in layers)
    return any(number is not None and number.key() == width.key() for number in rows)


def rms_norm(args: Arguments, scope: Scope) -> str:
    """Return a reason unless the layer is an RMSNorm by the `forward` of its class in the model's
    code, whatever its name."""
    value = scope.value(args[0])
    layers = value.layers if value is not None else ()
    are_norms = bool(layers) and all(is_rms_norm(scope.module, layer.type) for layer in layers)
    return "" if are_norms else f"{variable_text(args[0])} is no RMSNorm"
