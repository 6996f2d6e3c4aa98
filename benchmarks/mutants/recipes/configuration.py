"""Edits that use the default in place of a field of the configuration or of an argument of a
constructor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from mutants.core import Finder, Module, Recipe, Site
from mutants.recipes.templates import exchange

# Families of fields and of arguments. The default is the one that most configurations of
# transformers have.
_FIELDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "activation-dropout": ("a rate of dropout after the activation", {"activation_dropout": "0.0"}),
    "attention-dropout": (
        "another rate of dropout of attention",
        {"attention_dropout": "0.0", "attention_probs_dropout_prob": "0.1", "attn_pdrop": "0.1"},
    ),
    "hidden-dropout": (
        "another rate of dropout",
        {
            "hidden_dropout_prob": "0.1",
            "dropout": "0.1",
            "resid_pdrop": "0.1",
            "hidden_dropout": "0.0",
        },
    ),
    "layer-norm-eps": (
        "another epsilon of the layer norm",
        {"layer_norm_eps": "1e-12", "layer_norm_epsilon": "1e-5", "norm_eps": "1e-5"},
    ),
    "rms-norm-eps": ("another epsilon of the RMS norm", {"rms_norm_eps": "1e-6"}),
    "activation": ("another activation", {"hidden_act": '"gelu"', "activation_function": '"gelu"'}),
    "attention-bias": (
        "projections of attention with a bias",
        {"attention_bias": "False", "mlp_bias": "False"},
    ),
    "qkv-bias": ("projections without a bias", {"qkv_bias": "True", "use_bias": "True"}),
    "key-value-heads": (
        "fewer heads for keys than for queries",
        {"num_key_value_heads": "config.num_attention_heads"},
    ),
    "scaling": (
        "another scale",
        {
            "attention_multiplier": "1.0",
            "embedding_multiplier": "1.0",
            "residual_multiplier": "1.0",
            "logits_scaling": "1.0",
            "routed_scaling_factor": "1.0",
            "query_pre_attn_scalar": "256",
            "logit_scale": "1.0",
        },
    ),
    "normalised-experts": (
        "experts whose weights are normalised otherwise",
        {"norm_topk_prob": "True"},
    ),
    "layer-drop": (
        "layers that are dropped in training",
        {
            "layerdrop": "0.0",
            "encoder_layerdrop": "0.0",
            "decoder_layerdrop": "0.0",
            "drop_path_rate": "0.0",
        },
    ),
    "layer-scale": (
        "another start of the layer scale",
        {"layer_scale_init_value": "1e-6", "layerscale_value": "1.0", "initializer_factor": "1.0"},
    ),
    "switches": (
        "a switch that is off by default",
        {
            "scale_embedding": "False",
            "normalize_before": "False",
            "qk_norm": "False",
            "use_qk_norm": "False",
            "use_parallel_residual": "True",
            "add_cross_attention": "False",
            "scale_attn_by_inverse_layer_idx": "False",
        },
    ),
}
_ARGUMENTS: Mapping[str, tuple[str, str]] = {
    "argument-dropout": (
        "another rate of dropout",
        r"^(drop|dropout|attn_drop|proj_drop|attention_dropout|drop_rate)$",
    ),
    "argument-drop-path": ("a rate of dropped paths", r"^(drop_path|drop_path_rate|layerdrop)$"),
    "argument-bias": (
        "another choice of bias",
        r"^(bias|qkv_bias|proj_bias|attention_bias|use_bias|out_bias)$",
    ),
    "argument-eps": ("another epsilon", r"^(eps|norm_eps|layer_norm_eps)$"),
    "argument-scale": (
        "another scale",
        r"^(qk_scale|scale|rescale_output_factor|out_scale|scale_factor|init_values|alpha|gamma_init)$",
    ),
    "argument-switch": (
        "a switch that is not at its default",
        r"^(qk_norm|elementwise_affine|flip_sin_to_cos|pre_norm|norm_first|use_scale|upcast_attention|ceil_mode|shift)$",
    ),
    "argument-number": (
        "another number",
        r"^(theta|rope_theta|temperature|max_period|groups|norm_num_groups|power)$",
    ),
    "argument-name": (
        "another name",
        r"^(act_fn|activation_fn|mlp_type|norm_type|attn_type|act|hidden_act|non_linearity)$",
    ),
}


def _field(defaults: Mapping[str, str]) -> Finder:
    """Find reads of `config.FIELD` in constructors and methods."""

    def find(module: Module) -> Iterator[Site]:
        for function in module.functions:
            for node in ast.walk(function.node):
                if not (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Load)
                    and node.attr in defaults
                ):
                    continue
                holder = ast.unparse(node.value)
                default = defaults[node.attr]
                if holder in ("config", "self.config") and default != ast.unparse(node):
                    yield exchange(function, module, node, default.replace("config.", f"{holder}."))

    return find


def _argument(pattern: str) -> Finder:
    """Find reads of a constructor's argument that has a constant as its default, inside of
    a call."""
    names = re.compile(pattern)

    def find(module: Module) -> Iterator[Site]:
        for function in module.functions:
            if function.node.name != "__init__":
                continue
            defaults = {
                name: text for name, text in _defaults(function.node).items() if names.search(name)
            }
            calls = (node for node in ast.walk(function.node) if isinstance(node, ast.Call))
            reads = {
                read
                for call in calls
                for read in (*call.args, *(keyword.value for keyword in call.keywords))
            }
            for node in reads:
                if isinstance(node, ast.Name) and node.id in defaults:
                    yield exchange(function, module, node, defaults[node.id])

    return find


def _defaults(node: ast.FunctionDef) -> dict[str, str]:
    """Return the constants that a function's arguments have as defaults, by name; None is no
    default."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    with_default = list(
        zip(arguments[len(arguments) - len(node.args.defaults) :], node.args.defaults, strict=True)
    )
    with_default += [
        (a, d)
        for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if d is not None
    ]
    return {
        argument.arg: ast.unparse(default)
        for argument, default in with_default
        if isinstance(default, ast.Constant) and default.value is not None
    }


RECIPES = (
    *(
        Recipe(
            f"default-{name}",
            "configuration",
            differs,
            _field(defaults),
            3,
            (b"config.",),
            ("transformers",),
        )
        for name, (differs, defaults) in _FIELDS.items()
    ),
    *(
        Recipe(
            f"default-{name}",
            "configuration",
            differs,
            _argument(pattern),
            3,
            (b"__init__",),
            ("timm", "diffusers"),
        )
        for name, (differs, pattern) in _ARGUMENTS.items()
    ),
)
