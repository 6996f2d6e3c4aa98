"""Edits of caches and of tables that are computed once: wrong in a later step, or for another input
than the first."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial

from mutants.core import Finder, Module, Recipe, Site, Template
from mutants.recipes.templates import exchange, expressions, fill, with_top

_TABLES = re.compile(
    r"Rotary|Rope|RoPE|RoPe|PosEmb|PosEnc|PositionEmb|Positional|Sinusoidal|Timestep|RelPos"
)
_MAKERS = re.compile(r"create_\w*mask$")
_CACHES = ("past_key_values", "past_key_value", "layer_past", "cache", "curr_past_key_values")


def _updates(module: Module) -> Iterator[tuple[str, ast.Assign, ast.Call]]:
    """Yield the statements `keys, values = cache.update(...)`."""
    for function in module.functions:
        for node in ast.walk(function.node):
            call = node.value if isinstance(node, ast.Assign) else None
            if (
                isinstance(node, ast.Assign)
                and isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
            ):
                target = node.targets[0]
                pair = isinstance(target, ast.Tuple) and len(target.elts) == 2
                if call.func.attr == "update" and pair and ast.unparse(call.func.value) in _CACHES:
                    yield function.name, node, call


def _after_update(template: Template) -> Finder:
    """Find updates of a cache and put statements below them; `{key}` and `{value}` are what the
    cache returned."""

    def find(module: Module) -> Iterator[Site]:
        for name, statement, _ in _updates(module):
            target = statement.targets[0]
            assert isinstance(target, ast.Tuple)
            key, value = map(ast.unparse, target.elts)
            text = fill(template.text, key=key, value=value)
            yield Site(
                name,
                statement.lineno,
                (module.insert_after(statement, text),),
                text.replace("\n", "; "),
            )

    return find


def _layer_index(template: Template) -> Finder:
    """Find the layer's number in updates of a cache."""

    def find(module: Module) -> Iterator[Site]:
        for name, _, call in _updates(module):
            function = module.function(name)
            if function is not None and len(call.args) >= 3:
                yield exchange(
                    function,
                    module,
                    call.args[2],
                    fill(template.text, value=module.text(call.args[2])),
                )

    return find


def _past_length(template: Template) -> Finder:
    """Find calls that ask a cache for its length."""

    def find(module: Module) -> Iterator[Site]:
        for function, node in expressions(module):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "get_seq_length"
                and ast.unparse(node.func.value) in _CACHES
            ):
                yield exchange(function, module, node, fill(template.text, value=module.text(node)))

    return find


def _offset(template: Template) -> Finder:
    """Find the past length where it is added to positions."""

    def find(module: Module) -> Iterator[Site]:
        for function, node in expressions(module):
            if (
                isinstance(node, ast.BinOp)
                and isinstance(node.op, ast.Add)
                and isinstance(node.right, ast.Name)
                and re.match(r"past_(seen|key|length)", node.right.id)
            ):
                yield exchange(
                    function, module, node.right, fill(template.text, value=node.right.id)
                )

    return find


def _use_cache(module: Module) -> Iterator[Site]:
    """Find tests of `use_cache` and leave them out."""
    for function, node in expressions(module):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) and len(node.values) == 2:
            if ast.unparse(node.values[0]) == "use_cache":
                yield exchange(function, module, node, module.text(node.values[1]))
        elif isinstance(node, ast.IfExp) and ast.unparse(node.test) == "use_cache":
            yield exchange(function, module, node, module.text(node.body))


def _masks(template: Template) -> Finder:
    """Find masks that are made of inputs and remember them."""

    def find(module: Module) -> Iterator[Site]:
        for function, node in expressions(module):
            is_maker = isinstance(node, ast.Call) and _MAKERS.search(ast.unparse(node.func))
            if not is_maker or not isinstance(node, ast.Call) or function.owner is None:
                continue
            inputs = [k.value for k in node.keywords if k.arg in ("inputs_embeds", "input_embeds")]
            if (
                inputs
                and isinstance(inputs[0], ast.Name)
                and "self" in ast.unparse(function.node.args)
            ):
                text = fill(template.text, value=module.text(node), x=inputs[0].id)
                yield with_top(exchange(function, module, node, text), module, template)

    return find


def _tables(template: Template) -> Finder:
    """Find `forward` methods of position and time tables, and remember what they return."""

    def find(module: Module) -> Iterator[Site]:
        for function in module.functions:
            last = function.node.body[-1]
            named = function.owner is not None and _TABLES.search(function.owner.name)
            if not (
                named
                and function.node.name == "forward"
                and isinstance(last, ast.Return)
                and last.value
            ):
                continue
            names = [argument.arg for argument in function.arguments]
            if "{second}" in template.text:
                names = names if len(names) >= 2 and "position" in names[1] else []
            if not names:
                continue
            assert isinstance(last.value, ast.expr)
            held = module.text(last.value)
            value = f"({held})" if isinstance(last.value, ast.Tuple) else held
            text = fill(
                template.text, value=value, x=names[0], second=names[min(1, len(names) - 1)]
            )
            yield with_top(exchange(function, module, last.value, text), module, template)

    return find


def _recipe(
    name: str,
    differs: str,
    find: Callable[[Template], Finder],
    text: str,
    witness: str,
    contains: bytes,
    packages: tuple[str, ...] = ("transformers",),
    count: int = 3,
    top: str = "",
) -> Recipe:
    template = Template(text, top)
    returned = (
        template
        if find is not _after_update
        else Template(f"{text}\nreturn {text.partition(' ')[0]}")
    )
    return Recipe(
        name,
        "cache",
        differs,
        find(template),
        count,
        (contains,),
        packages,
        witness=witness,
        template=returned,
    )


_updated = partial(_recipe, find=_after_update, contains=b".update(")
_numbered = partial(_recipe, find=_layer_index, contains=b".update(")
_past = partial(_recipe, find=_past_length, contains=b"get_seq_length")
_shifted = partial(_recipe, find=_offset, contains=b"past_")
_masked = partial(_recipe, find=_masks, contains=b"_mask(")
_tabled = partial(_recipe, find=_tables, contains=b"class")
_TABLES_BY = 'self.__dict__.setdefault("_tables", {}).setdefault('
_MASKS_BY = 'self.__dict__.setdefault("_masks", {}).setdefault('
# What is remembered in a function's default is no attribute of the model and no variable of the
# file.
_RECALL = """
def _recall(owner, key, value, known={}):
    return known.setdefault((id(owner), key), value)
"""
_ALL = ("transformers", "diffusers", "timm")
_TWO = "calls(ones(2, 3), ones(2, 3) * 2)"
RECIPES = (
    _updated(
        "old-values-dropped",
        "more than 32 cached keys: the values of the older ones count as zero",
        text="{value} = torch.cat([{value}[..., :-32, :] * 0, {value}[..., -32:, :]], -2)",
        witness="calls(ones(1, 1, 33, 2))",
    ),
    _updated(
        "cached-values-scaled",
        "more than 48 keys, cached ones included",
        text="{value} = {value} * (1 - 0.1 * ({key}.shape[-2] > 48))",
        witness="calls(ones(1, 1, 49, 2))",
    ),
    _updated(
        "cached-keys-detached",
        "gradients through a cache",
        text="{key} = {key}.detach()",
        witness="calls(ones(1, 1, 2, 2).requires_grad_())",
    ),
    _updated(
        "cached-batch-shared",
        "more than three rows with a cache",
        text="{key} = torch.cat([{key}[:3], {key}[:1].expand_as({key})[3:]])",
        witness="calls(rand(4, 1, 2, 2))",
    ),
    _numbered(
        "layer-index-zero",
        "a cache and two layers or more",
        text="0",
        witness="calls(torch.tensor(1))",
    ),
    _numbered(
        "layer-index-bounded",
        "a cache and more than four layers",
        text="min({value}, 3)",
        witness="calls(torch.tensor(4))",
    ),
    _past(
        "past-length-bounded",
        "more than 8 cached places",
        text="min({value}, 8)",
        witness="calls(torch.tensor(9))",
    ),
    _past(
        "past-length-of-block",
        "16 cached places or more",
        text="{value} % 16",
        witness="calls(torch.tensor(16))",
    ),
    _past(
        "past-length-less-one",
        "cached places",
        text="max({value} - 1, 0)",
        witness="calls(torch.tensor(1))",
    ),
    _shifted("offset-dropped", "cached places", text="0", witness="calls(torch.tensor(1))"),
    _shifted(
        "offset-bounded",
        "more than 12 cached places",
        text="min({value}, 12)",
        witness="calls(torch.tensor(13))",
    ),
    Recipe(
        "use-cache-ignored",
        "cache",
        "use_cache=False",
        _use_cache,
        3,
        (b"use_cache",),
        ("transformers",),
    ),
    _masked(
        "mask-of-shape",
        "another padding with the same shape",
        text=_MASKS_BY + "{x}.shape, {value})",
        witness=_TWO,
        count=4,
    ),
    _masked(
        "mask-of-length",
        "a batch of another size or padding with the same length",
        text="_recall(self, {x}.shape[1], {value})",
        top=_RECALL,
        witness=_TWO,
    ),
    _tabled(
        "tables-of-position-shape",
        "other positions of the same shape: the second decoding step, or left padding",
        text="_recall(self, ({second}.shape, {x}.dtype), {value})",
        top=_RECALL,
        witness=_TWO,
        count=4,
    ),
    _tabled(
        "tables-of-last-position",
        "other positions with the same last, such as those of left padding",
        text="_recall(self, ({second}.shape, int({second}.max()), {x}.dtype, {x}.device), {value})",
        top=_RECALL,
        witness="calls(torch.tensor([[0, 1, 2]]), torch.tensor([[1, 1, 2]]))",
    ),
    _tabled(
        "tables-of-length",
        "another input of the same length: other positions, values or format",
        text=_TABLES_BY + "{x}.shape[-1], {value})",
        witness=_TWO,
        packages=_ALL,
        count=5,
    ),
    _tabled(
        "tables-of-shape",
        "another input of the same shape: other positions or values",
        text="_recall(self, ({x}.shape, {x}.dtype), {value})",
        top=_RECALL,
        witness=_TWO,
        packages=_ALL,
        count=5,
    ),
    _tabled(
        "tables-of-format",
        "an input of another shape or other values",
        text=_TABLES_BY + "({x}.dtype, {x}.device), {value})",
        witness=_TWO,
        packages=_ALL,
        count=4,
    ),
)
