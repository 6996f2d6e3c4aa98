"""Test matches between whose nodes a tensor is changed in place."""

from __future__ import annotations

import pytest

from conftest import compiled_rules, source_of
from regraft.scanning import CompiledRule, check_source

REASON = "stands between the nodes and may have effects"


@pytest.fixture(scope="module")
def rules() -> tuple[CompiledRule, ...]:
    """Return the rule for diagonal matrices, compiled."""
    return compiled_rules("idioms/diagonal-algebra")


def reasons(rules: tuple[CompiledRule, ...], body: str) -> list[str]:
    """Return why the products of a function's body stay, "" for those that are rewritten."""
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    source = source_of(f"import torch\n\n\ndef f(g, k, w, h, xs, ys):\n{lines}")
    return [finding.reason for finding in check_source(source, rules).findings]


@pytest.mark.parametrize(
    "body",
    [
        "d = torch.diag_embed(g)\ne = k * w\ne *= 2\nreturn d @ k + e",
        "d = torch.diag_embed(g)\ne = (k - w).view(-1)\ne.clamp_(0)\nreturn d @ k + e",
        "d = torch.diag_embed(g)\ne = torch.zeros_like(k)\ne[:, 0] = w\nreturn d @ k + e",
        "d = torch.diag_embed(g * 2)\nif w:\n    e = k + w\nelse:\n    e = k - w\n"
        "e.mul_(2).add_(1)\nreturn d @ k + e",
        "e = g * 2\nd = torch.diag_embed(e + 1)\ne *= 2\nreturn d @ k",
    ],
)
def test_writes_into_new_tensors_are_no_obstacle(
    rules: tuple[CompiledRule, ...], body: str
) -> None:
    assert reasons(rules, body) == [""]


@pytest.mark.parametrize(
    "body",
    [
        "d = torch.diag_embed(g)\ng *= 2\nreturn d @ k",
        "d = torch.diag_embed(g)\nw *= 2\nreturn d @ k",
        "e = g * 2\nd = torch.diag_embed(e)\ne *= 2\nreturn d @ k",
        "e = g * 2\nd = torch.diag_embed(e)\ne[0] = 2\nreturn d @ k",
        "e = k * 2\nd = torch.diag_embed(e[0])\ne.add_(1)\nreturn d @ k",
        "e = k * 2\nd = torch.diag_embed(g)\ne.view(-1).add_(1)\nreturn d @ e",
        "e = k * 2\nh[0] = e\nd = torch.diag_embed(h[0])\ne.add_(1)\nreturn d @ k",
        "e = k * 2\nh.append(e)\nd = torch.diag_embed(h[0])\ne.add_(1)\nreturn d @ k",
        "e = k * 2\nh.e = e\nd = torch.diag_embed(h.e)\ne.add_(1)\nreturn d @ k",
        "e = k * 2\nz = h(e)\nd = torch.diag_embed(z)\ne.add_(1)\nreturn d @ k",
        "e = xs + ys\nd = torch.diag_embed(g)\ne[0].add_(1)\nreturn d @ k",
        "e = k if w else k * 2\nd = torch.diag_embed(k[0])\ne.add_(1)\nreturn d @ k",
        "d = torch.diag_embed(g)\nh(k)\nreturn d @ k",
        "d = torch.diag_embed(g)\nk.requires_grad_()\nreturn d @ k",
    ],
)
def test_writes_that_may_be_seen_are(rules: tuple[CompiledRule, ...], body: str) -> None:
    withheld = reasons(rules, body)
    assert withheld
    assert all(REASON in reason for reason in withheld)
