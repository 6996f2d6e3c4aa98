"""Run every rule of the pack as a specification: the source against the kernel itself, forward and
backward."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.dsl.syntax import RuleSyntax  # noqa: E402
from regraft.matching.pattern import alternatives  # noqa: E402
from regraft.rules import Rule, load_rules  # noqa: E402
from rule_specification import check_rule  # noqa: E402

RULES, _ = load_rules(["liger"])
# What `linear-loss` postpones is computed by a loss, which is no part of the rule:
# test_linear_loss.py
KERNELS = [rule for rule in RULES if rule.id != "liger/linear-loss"]
FORMS = [(rule, number) for rule in KERNELS for number in range(len(rule.syntax.forward))]


def only(rule: Rule, number: int) -> RuleSyntax:
    """Return the rule with one of its alternatives."""
    text = rule.syntax
    return RuleSyntax(
        text.name,
        text.summary,
        text.safety,
        text.needs,
        text.init,
        (text.forward[number],),
        text.where,
    )


def table(shape: tuple[int, ...]) -> Any:
    """Return cosines or sines as models have them: one for each position, equal in both halves."""
    half = torch.randn(1, 1, shape[-2], shape[-1] // 2)
    return torch.cat((half, half), -1)


def heads(shape: tuple[int, ...]) -> Any:
    """Return random heads of a shape, of a number that is drawn; raise ValueError for odd
    widths."""
    if shape[-1] % 2:
        raise ValueError("the op refuses odd sizes")
    return torch.randn(shape[0], random.choice((1, 3)), *shape[2:], requires_grad=True)


def logits(shape: tuple[int, ...]) -> Any:
    """Return random logits of six rows."""
    return torch.randn(6, shape[-1], requires_grad=True)


def classes(shape: tuple[int, ...]) -> Any:
    """Return random classes of six rows."""
    return torch.randint(shape[-1], (6,))


def vector(shape: tuple[int, ...]) -> Any:
    """Return a random weight or bias of the last dimension."""
    return torch.randn(shape[-1], requires_grad=True)


def optional_vector(shape: tuple[int, ...]) -> Any:
    """Return a random bias of the last dimension, or None."""
    return random.choice((None, vector(shape)))


DRAWN = {
    "liger/rotary": {"cos": table, "sin": table, "q": heads, "k": heads, "x": heads},
    "liger/layer-norm": {
        "shape": lambda shape: shape[-1:],
        "weight": vector,
        "bias": optional_vector,
        "eps": lambda _: random.choice((1e-5, 0.1)),
    },
    "liger/cross-entropy": {"x": logits, "target": classes},
}


@pytest.mark.parametrize(
    ("rule", "number"), FORMS, ids=lambda value: getattr(value, "id", str(value))
)
def test_the_kernel_does_what_the_source_does(rule: Rule, number: int, launches: list[str]) -> None:
    syntax = only(rule, number)
    cases = check_rule(syntax, dtypes=(torch.float32, torch.float16), drawn=DRAWN.get(rule.id))
    assert cases >= len(list(alternatives(syntax.forward[0])))
    assert launches, "the kernel never ran"
