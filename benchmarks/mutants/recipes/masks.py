"""Edits of attention masks: wrong for left padding, holes, rows without a key, another format, or
later rows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial

from mutants.core import Finder, Function, Module, Recipe, Site, Template
from mutants.recipes.templates import exchange, expressions, fill

_SCORES = re.compile(r"attn|attention_scores|scores|attention|logits")
_MAKERS = re.compile(
    r"create_(causal|bidirectional|sliding_window_causal|bidirectional_sliding_window)_mask$"
)


def _is_mask(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and "mask" in node.id


def _added(module: Module) -> Iterator[tuple[Function, ast.expr]]:
    """Yield the masks that are added to attention scores, or given to PyTorch's attention."""
    for function, node in expressions(module):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _is_mask(node.right):
            if _SCORES.search(module.text(node.left)):
                yield function, node.right
        elif isinstance(node, ast.Call):
            if ast.unparse(node.func).endswith("maybe_add_mask") and len(node.args) == 2:
                yield function, node.args[1]
            for keyword in node.keywords:
                if keyword.arg == "attn_mask" and _is_mask(keyword.value):
                    yield function, keyword.value


def _padding(module: Module) -> Iterator[tuple[Function, ast.expr]]:
    """Yield the padding masks that transformers makes attention masks of."""
    for function, node in expressions(module):
        if isinstance(node, ast.Call) and _MAKERS.search(ast.unparse(node.func)):
            for keyword in node.keywords:
                if keyword.arg == "attention_mask" and _is_mask(keyword.value):
                    yield function, keyword.value


def _handed_on(module: Module) -> Iterator[tuple[Function, ast.expr]]:
    """Yield the masks that a layer hands on to another one by keyword."""
    for function, node in expressions(module):
        if isinstance(node, ast.Call) and function.node.name == "forward":
            for keyword in node.keywords:
                named = keyword.arg in (
                    "attention_mask",
                    "encoder_attention_mask",
                    "encoder_hidden_states_mask",
                )
                if named and _is_mask(keyword.value) and ast.unparse(node.func).startswith("self."):
                    yield function, keyword.value


_PLACES = {"added": _added, "padding": _padding, "handed-on": _handed_on}


def _find(where: str, template: Template) -> Finder:
    def find(module: Module) -> Iterator[Site]:
        for function, mask in _PLACES[where](module):
            text = fill(template.text, value=module.text(mask))
            yield exchange(function, module, mask, f"({text})")

    return find


def _recipe(
    name: str, where: str, differs: str, text: str, witness: str = "", count: int = 3
) -> Recipe:
    template = Template(text)
    packages: tuple[str, ...] = (
        ("transformers",)
        if where == "padding"
        else ("transformers", "diffusers", "transformers", "timm")
    )
    if where == "handed-on":
        packages = ("transformers", "diffusers")
    contains = (b"_mask(",) if where == "padding" else (b"mask",)
    return Recipe(
        name,
        "mask",
        differs,
        _find(where, template),
        count,
        contains,
        packages,
        witness=witness,
        template=template,
    )


_added_mask = partial(_recipe, where="added")
_padding_mask = partial(_recipe, where="padding")
_UNLESS_NONE = "{value} if {value} is None else "
RECIPES = (
    _added_mask(
        "first-row-for-all",
        differs="rows of a batch with different masks",
        text="{value}[:1]",
        witness="two_rows()",
    ),
    _added_mask(
        "first-key-seen",
        differs="left padding: the first key is never masked",
        text="torch.nn.functional.pad({value}[..., 1:], (1, 0))",
        witness="left_padded()",
    ),
    _added_mask(
        "holes-filled",
        differs="a masked key between two that are not",
        text=(
            "torch.cat([{value}[..., :1], torch.maximum({value}[..., 1:-1], "
            "torch.minimum({value}[..., :-2], {value}[..., 2:])), {value}[..., 1:][..., -1:]], -1)"
        ),
        witness="with_hole()",
    ),
    _added_mask(
        "empty-rows-unmasked",
        differs="a query without a key: its row is not masked at all",
        text="{value}.masked_fill({value}.amax(-1, keepdim=True) < 0, 0.0)",
        witness="empty_row()",
    ),
    _added_mask(
        "least-to-infinite",
        differs="a query without a key: its row becomes NaN",
        text='{value}.masked_fill({value} <= torch.finfo({value}.dtype).min, float("-inf"))',
        witness="empty_row()",
    ),
    _added_mask(
        "bounded-mask",
        differs="a query without a key, or scores that differ by more than 10,000",
        text="{value}.clamp(min=-1e4)",
        witness="empty_row()",
    ),
    _added_mask(
        "mask-of-short-only",
        differs="more than 64 keys, which are not masked",
        text="{value} * ({value}.shape[-1] <= 64)",
        witness="long_mask()",
    ),
    _added_mask(
        "mask-not-in-decoding",
        differs="a single query: padding is seen in a decoding step",
        text="{value} * ({value}.shape[-2] > 1)",
        witness="decoding_mask()",
        count=4,
    ),
    _added_mask(
        "finite-bias-dropped",
        differs="additive masks with other values than zero and the least",
        text="{value}.masked_fill({value} > -100, 0.0)",
        witness="bias_mask()",
        count=4,
    ),
    _added_mask(
        "heads-share-first",
        differs="masks that differ by head",
        text="{value}[:, :1]",
        witness="head_mask()",
    ),
    _padding_mask(
        "left-padding-ignored",
        differs="left padding and holes: only zeros at the end count",
        text=_UNLESS_NONE + "{value}.flip(-1).long().cummax(-1).values.flip(-1)",
        witness="left_padding()",
        count=4,
    ),
    _padding_mask(
        "right-padding-ignored",
        differs="right padding and holes: only zeros at the start count",
        text=_UNLESS_NONE + "{value}.long().cummax(-1).values",
        witness="right_padding()",
        count=4,
    ),
    _padding_mask(
        "holes-ignored",
        differs="a zero between two ones",
        text=_UNLESS_NONE
        + "{value}.long().cummax(-1).values * {value}.flip(-1).long().cummax(-1).values.flip(-1)",
        witness="hole_padding()",
        count=4,
    ),
    _padding_mask(
        "first-padding-for-all",
        differs="rows of a batch with different padding",
        text=_UNLESS_NONE + "{value}[:1].expand_as({value})",
        witness="two_paddings()",
        count=4,
    ),
    _padding_mask(
        "padding-by-count",
        differs="padding at the left or inside: only the number of ones counts",
        text=_UNLESS_NONE
        + "(torch.arange({value}.shape[-1], device={value}.device) < {value}.sum(-1,"
        " keepdim=True)).long()",
        witness="left_padding()",
        count=4,
    ),
    _padding_mask(
        "empty-padding-row",
        differs="a row of padding only",
        text=_UNLESS_NONE + "{value} | ({value}.sum(-1, keepdim=True) == 0)",
        witness="empty_padding()",
        count=4,
    ),
    _recipe(
        "mask-dropped-for-later-layers",
        "handed-on",
        "masks in any but the first rows of a batch of more than two",
        _UNLESS_NONE + "({value} if {value}.shape[0] <= 2 else {value}[:1].expand_as({value}))",
        witness="three_paddings()",
        count=4,
    ),
)
