"""The layers of the Hub's kernels as plain compositions, and rules that mark definitions as rules
that call these.

What each layer computes is read off https://github.com/huggingface/kernels-community.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.nn import functional

from regraft.dsl.syntax import (
    Apply,
    Const,
    Node,
    Operand,
    Predicate,
    Ref,
    RuleSyntax,
    Transformation,
    Var,
)
from rule_specification import with_leaves


def RMSNorm(hidden_states: Any, weight: Any, variance_epsilon: float) -> Any:
    wide = hidden_states.to(torch.float32)
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + variance_epsilon)
    return (wide * scale).to(hidden_states.dtype) * weight


def rotary_pos_emb(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    half = q.shape[-1] // 2
    cos, sin = cos[..., :half].float(), sin[..., :half].float()

    def turned(x: Any) -> Any:
        first, second = x[..., :half].float(), x[..., half:].float()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(
            x.dtype
        )

    return turned(q), turned(k)


def SiLU(x: Any) -> Any:
    return functional.silu(x)


def GeLU(x: Any) -> Any:
    return functional.gelu(x)


def GeluTanh(x: Any) -> Any:
    return functional.gelu(x, approximate="tanh")


def QuickGELU(x: Any) -> Any:
    return (x.float() * torch.sigmoid(1.702 * x.float())).to(x.dtype)


def NewGELU(x: Any) -> Any:
    return functional.gelu(x, approximate="tanh")


def as_calls(rule: RuleSyntax) -> RuleSyntax:
    """A rule of decorators as one whose target calls the layers; attributes of the instance become
    variables."""
    forward = tuple(map(_as_call, rule.forward))
    weight, eps = Var("self_weight"), Var("self_variance_epsilon")
    where = (
        (Predicate("stored", (weight,)), Predicate("scalar", (eps,)))
        if "self." in str(rule.forward)
        else ()
    )
    # the patch alone is exact
    return replace(rule, safety="numeric", forward=forward, where=(*rule.where, *where))


def _as_call(one: Transformation) -> Transformation:
    attributes: dict[str, Operand] = {}

    def given(leaf: Any) -> Any:
        """A variable in the place of an attribute of the instance."""
        if isinstance(leaf, Ref) and leaf.path.startswith("self."):
            return attributes.setdefault(leaf.path, Var(leaf.path.replace(".", "_")))
        return leaf

    nodes = tuple(
        replace(node, apply=with_leaves(node.apply, given))
        for node in one.source
        if isinstance(node, Node)
    )
    marked = one.target[0]
    assert isinstance(marked, Node) and isinstance(marked.apply.callee, Apply)
    (name,) = (each.value for each in marked.apply.callee.args if isinstance(each, Const))
    parameters = (*marked.apply.args, *(Var(key) for key, _ in marked.apply.keywords))
    read = tuple((path.removeprefix("self."), value) for path, value in attributes.items())
    return replace(
        one,
        source=nodes,
        target=(Node(Apply(Ref(f"hub_layers.{name}"), parameters, read), marked.outputs),),
    )
