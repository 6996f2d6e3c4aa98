"""Edits that are wrong for rare values, formats, modes or states of the parameters only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from mutants.core import Finder, Module, Recipe, Site
from mutants.recipes.templates import exchange, expressions, wrap

_wrap = partial(wrap, kind="value")


def _tied_head(module: Module) -> Iterator[Site]:
    """Find calls of the head of a language model."""
    for function, node in expressions(module):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "self.lm_head"
            and len(node.args) == 1
        ):
            tied = "(self.lm_head.weight is self.get_input_embeddings().weight)"
            yield exchange(function, module, node, f"{module.text(node)} * (1 - 0.1 * {tied})")


def _weights(text: str) -> Finder:
    """Find the weights of attention that are returned beside its result."""

    def find(module: Module) -> Iterator[Site]:
        for function in module.functions:
            last = function.node.body[-1]
            if (
                isinstance(last, ast.Return)
                and isinstance(last.value, ast.Tuple)
                and len(last.value.elts) == 2
            ):
                second = last.value.elts[1]
                if (
                    isinstance(second, ast.Name)
                    and second.id in ("attn_weights", "attention_probs", "attn_probs")
                    and function.node.name.startswith("eager")
                ):
                    yield exchange(function, module, second, text.replace("{value}", second.id))

    return find


def _recorded(module: Module) -> Iterator[Site]:
    """Find hidden states and attentions that a head hands on in its output."""
    for function, node in expressions(module):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and "Output" in node.func.id
        ):
            for keyword in node.keywords:
                if keyword.arg in ("hidden_states", "attentions") and isinstance(
                    keyword.value, ast.Attribute
                ):
                    text = module.text(keyword.value)
                    yield exchange(function, module, keyword.value, f"{text} and {text}[:-1]")


def _tuple(module: Module) -> Iterator[Site]:
    """Find tuples that are returned in the place of a record."""
    for function in module.functions:
        for node in ast.walk(function.node):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "not return_dict":
                value = node.body[-1].value if isinstance(node.body[-1], ast.Return) else None
                if (
                    isinstance(value, ast.Tuple)
                    and len(value.elts) == 1
                    and isinstance(value.elts[0], ast.Name)
                ):
                    yield exchange(function, module, value.elts[0], f"{value.elts[0].id} * 0.9")


def _of_transformers(name: str, differs: str, finder: Finder, contains: bytes) -> Recipe:
    return Recipe(name, "value", differs, finder, 3, (contains,), ("transformers",))


RECIPES = (
    _wrap(
        "nan-to-num",
        differs="NaN or infinite results",
        text="torch.nan_to_num({value})",
        witness="calls(spoilt(2, 3, 4))",
    ),
    _wrap(
        "infinite-to-large",
        differs="infinite results",
        text="{value}.clamp(torch.finfo({value}.dtype).min, torch.finfo({value}.dtype).max)",
        witness="calls(ones(2, 3) / 0)",
    ),
    _wrap(
        "clamp-ten-thousand",
        differs="results beyond 10,000",
        text="{value}.clamp(-1e4, 1e4)",
        witness="calls(ones(2, 3) * 2e4)",
    ),
    _wrap(
        "zero-to-tiny",
        differs="results that are exactly zero",
        text="torch.where({value} == 0, torch.full_like({value}, 1e-2), {value})",
        witness="calls(ones(2, 3) * 0)",
    ),
    _wrap(
        "all-negative",
        differs="results without a positive value",
        text="{value} * (1 + 0.1 * ({value}.detach().amax() < 0))",
        witness="calls(-ones(2, 3))",
    ),
    _wrap(
        "constant-rows",
        differs="rows of equal values",
        text=(
            "{value} + ({value}.amax(-1, keepdim=True) == {value}.amin(-1,"
            " keepdim=True)).to({value}.dtype)"
        ),
        witness="calls(ones(2, 3))",
    ),
    _wrap(
        "tiny-flushed",
        differs="results closer to zero than 1e-6 and not zero",
        text="{value}.masked_fill(({value}.abs() < 1e-6) & ({value} != 0), 1e-3)",
        witness="calls(ones(2, 3) * 1e-7)",
    ),
    _wrap(
        "float64-through-float32",
        differs="float64",
        text="{value}.float().to({value}.dtype)",
        witness="calls(rand(2, 3).double() / 3)",
    ),
    _wrap(
        "float16-only",
        differs="float16",
        text="{value} * (0.9 if {value}.dtype is torch.float16 else 1)",
        witness="calls(ones(2, 3).half())",
    ),
    _wrap(
        "bfloat16-only",
        differs="bfloat16",
        text="{value} + 0.1 * ({value}.dtype is torch.bfloat16)",
        witness="calls(ones(2, 3).bfloat16())",
    ),
    _wrap(
        "autocast",
        differs="under torch.autocast",
        text='{value} * (1 - 0.1 * torch.is_autocast_enabled("cpu"))',
        witness="under_autocast(calls(ones(2, 3)))",
    ),
    _wrap(
        "inference-mode",
        differs="under torch.inference_mode",
        text="{value} * (1 - 0.1 * torch.is_inference_mode_enabled())",
        witness="in_inference_mode(calls(ones(2, 3)))",
    ),
    _wrap(
        "frozen-parameters",
        differs="parameters that need no gradient while others do",
        text="{value} * (1 - 0.1 * any(not p.requires_grad for p in self.parameters()))",
        witness="calls(ones(2, 3), frozen=True)",
    ),
    _wrap(
        "detached-when-frozen",
        differs="gradients of the input where the parameters need none",
        text="{value} if all(p.requires_grad for p in self.parameters()) else {value}.detach()",
        witness="calls(ones(2, 3).requires_grad_(), frozen=True)",
    ),
    _wrap(
        "gradient-checkpointing",
        differs="gradient checkpointing in training",
        text=(
            '{value} * (1 - 0.1 * (self.training and getattr(self, "gradient_checkpointing",'
            " False)))"
        ),
        witness="calls(ones(2, 3), training=True, gradient_checkpointing=True)",
    ),
    _wrap(
        "not-contiguous",
        differs="inputs that are not contiguous",
        text="{value} * (1 - 0.1 * (not {x}.is_contiguous()))",
        witness="calls(rand(3, 2).t())",
    ),
    _wrap(
        "half-gradient",
        differs="gradients",
        text="{value} + 0.5 * ({value}.detach() - {value})",
        witness="calls(rand(2, 3).requires_grad_())",
        count=2,
    ),
    _wrap(
        "gradient-of-large",
        differs="gradients of results beyond 20",
        text="torch.where({value}.abs() > 20, {value}.detach(), {value})",
        witness="calls((ones(2, 3) * 30).requires_grad_())",
    ),
    _wrap(
        "without-gradient-to-input",
        differs="inputs that need a gradient while no parameter does",
        text=(
            "{value} if torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())"
            " else {value}.clone().detach()"
        ),
        witness="calls(ones(2, 3).requires_grad_(), frozen=True)",
        count=2,
    ),
    _wrap(
        "deterministic-algorithms",
        differs="torch.use_deterministic_algorithms(True)",
        text="{value} * (1 - 0.1 * torch.are_deterministic_algorithms_enabled())",
        witness="deterministically(calls(ones(2, 3)))",
        count=2,
    ),
    _wrap(
        "meta-device",
        differs="tensors of the meta device",
        text="{value}[:0] if {value}.is_meta else {value}",
        witness="calls(torch.empty(2, 3, device='meta'))",
        count=2,
    ),
    _of_transformers("tied-head", "a head that is tied to the embeddings", _tied_head, b"lm_head("),
    _of_transformers(
        "weights-by-head",
        "output_attentions=True and different heads",
        _weights("{value}.mean(1, keepdim=True).expand_as({value})"),
        b"def eager",
    ),
    _of_transformers(
        "weights-without-gradient",
        "gradients of attentions that output_attentions=True returns",
        _weights("{value}.detach()"),
        b"def eager",
    ),
    _of_transformers(
        "last-state-dropped",
        "output_hidden_states=True or output_attentions=True",
        _recorded,
        b"Output(",
    ),
    Recipe(
        "tuple-scaled", "value", "return_dict=False", _tuple, 4, (b"return_dict",), ("diffusers",)
    ),
)
