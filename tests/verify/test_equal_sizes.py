"""Test changes that act only where sizes differ that the first inputs make equal."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from verdicts import verdict_on  # noqa: E402

from regraft.verification.child.call_arguments import Call, shapes  # noqa: E402
from regraft.verification.child.checks.size_variants import enlarged_points  # noqa: E402
from regraft.verification.child.checks.unequal_axes import (  # noqa: E402
    balance_axes,
    lengthen_axes,
    shorten_axes,
)

pytestmark = pytest.mark.usefixtures("here")

IMAGES = """\
import torch
from torch import nn


class Projection(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, dim, 1), nn.Linear(dim, dim)

    def forward(self, x):
        x = self.conv(x)
        b, c, h, w = x.shape
        y = self.fc(x.flatten(2).transpose(1, 2))
        return y.transpose(1, 2).reshape(b, c, h, w)
"""
CROSS = """\
import torch
from torch import nn
from torch.nn import functional as F


class CrossAttention(nn.Module):
    def __init__(self, hidden_size=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.k, self.v = nn.Linear(hidden_size, hidden_size), nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states, encoder_hidden_states=None):
        if encoder_hidden_states is None:
            encoder_hidden_states = hidden_states
        b, n, c = hidden_states.shape
        length = encoder_hidden_states.shape[1]
        q = hidden_states.view(b, n, self.num_heads, -1).transpose(1, 2)
        k = self.k(encoder_hidden_states).view(b, length, self.num_heads, -1).transpose(1, 2)
        v = self.v(encoder_hidden_states).view(b, length, self.num_heads, -1).transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c)
"""
CAUSAL_LAYER = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, query, memory):
        q, k = self.q(query), self.k(memory)
        n, m = q.shape[1], k.shape[1]
        keep = torch.ones(n, m, dtype=torch.bool).tril(m - n)
        return (q @ k.transpose(1, 2)).masked_fill(~keep, -1e9).softmax(-1) @ memory
"""
CAUSAL_FUNCTION = """\
import torch


def attention(query, key, value):
    n, m = query.shape[-2], key.shape[-2]
    keep = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    scores = query @ key.transpose(-2, -1)
    return scores.masked_fill(~keep, float("-inf")).softmax(-1) @ value
"""
GROUPS = """\
import torch
from torch import nn


class Attention(nn.Module):
    def forward(self, query, key, value):
        batch, heads, length, width = query.shape
        groups = heads // key.shape[1]
        key = key.repeat_interleave(groups, dim=1)
        value = value.repeat_interleave(groups, dim=1)
        return (query @ key.transpose(-2, -1)).softmax(-1) @ value
"""
TRIL = "torch.ones(n, m, dtype=torch.bool).tril(m - n)"
RIGHT_TRIL = "torch.arange(m)[None] <= torch.arange(m - n, m)[:, None]"
EXPANDED = "[:, :, None].expand(-1, -1, groups, -1, -1).flatten(1, 2)"
# The text, a line of it, and a wrong and a right line in its place.
CASES = {
    "height and width": (
        IMAGES,
        "y.transpose(1, 2).reshape(b, c, h, w)",
        "y.transpose(1, 2).reshape(b, c, w, h)",
        "y.transpose(1, 2).unflatten(-1, (h, w))",
    ),
    "an optional input": (
        CROSS,
        "self.v(encoder_hidden_states).view(b, length, self.num_heads, -1)",
        "self.v(encoder_hidden_states).view(b, n, self.num_heads, -1)",
        "self.v(encoder_hidden_states).unflatten(-1, (self.num_heads, -1))",
    ),
    "queries and keys of a layer": (CAUSAL_LAYER, TRIL, TRIL.replace("m - n", ""), RIGHT_TRIL),
    "queries and keys of a function": (
        CAUSAL_FUNCTION,
        TRIL,
        TRIL.replace("m - n", ""),
        RIGHT_TRIL,
    ),
    "heads of queries and keys": (
        GROUPS,
        "value.repeat_interleave(groups, dim=1)",
        "value.repeat(1, groups, 1, 1)",
        f"value{EXPANDED}",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_sizes_that_are_equal_by_chance_are_made_unequal(case: str, tmp_path: Path) -> None:
    text, before, wrong, _ = CASES[case]
    verdict = verdict_on(tmp_path, text, before, wrong)
    assert (verdict.status, " only, shapes" in verdict.reason) == ("refuted", True), verdict


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_right_change_is_proved_for_unequal_sizes(case: str, tmp_path: Path) -> None:
    text, before, _, right = CASES[case]
    verdict = verdict_on(tmp_path, text, before, right)
    assert verdict.status == "proved", verdict
    domain = verdict.evidence["domain"]
    assert isinstance(domain, dict)
    assert any(label.endswith(" only") for label in domain["sizes"])


def test_few_axes_become_longer_and_rare_relations_come_first() -> None:
    call = Call((torch.zeros(2, 5, 8), torch.zeros(2, 5, 8)), {"image": torch.zeros(1, 3, 6, 6)})
    calls = list(lengthen_axes(call, lambda _: True))
    assert len(calls) == 6
    assert [shapes(candidate)[2] for candidate in calls if "tensor 2" in candidate.label] == [
        [1, 3, 12, 6],
        [1, 3, 6, 12],
    ]
    assert [shapes(candidate)[:2] for candidate in calls if "dimension 1" in candidate.label] == [
        [[2, 10, 8], [2, 5, 8]],
        [[2, 5, 8], [2, 10, 8]],
    ]


def test_a_single_head_becomes_several() -> None:
    call = Call((torch.zeros(2, 1, 5, 8), torch.zeros(2, 1, 7, 8)), {})
    calls = lengthen_axes(call, lambda candidate: shapes(candidate)[0][1] > 1)
    assert shapes(next(calls)) == [[2, 4, 5, 8], [2, 2, 7, 8]]


def test_calls_that_the_original_refuses_are_no_calls() -> None:
    call = Call((torch.zeros(2, 5), torch.zeros(2, 5)), {})
    assert list(lengthen_axes(call, lambda _: False)) == []


def test_axes_get_a_single_element() -> None:
    call = Call((torch.zeros(2, 8), torch.zeros(2, 8, 8)), {"lengths": torch.zeros(2)})
    calls = list(shorten_axes(call, lambda _: True))
    assert [shapes(candidate) for candidate in calls] == [
        [[2, 1], [2, 1, 8], [2]],
        [[2, 1], [2, 1, 1], [2]],
        [[2, 8], [2, 1, 8], [2]],
    ]
    assert list(shorten_axes(call, lambda _: False)) == []
    assert list(shorten_axes(Call((torch.zeros(3), torch.zeros(1, 1)), {}), lambda _: True)) == []


def test_one_axis_gets_longer_and_an_equal_one_shorter() -> None:
    call = Call((torch.rand(2, 3, 8, 8), torch.zeros(2, 8, 8), torch.zeros(2, 3, 3)), {})
    (changed,) = balance_axes(call, lambda _: True)
    assert shapes(changed) == [[2, 3, 4, 16], [2, 8, 8], [2, 3, 3]]
    image, longer = call.args[0], changed.args[0]
    assert torch.equal(longer[..., :8], image[:, :, :4])
    assert list(balance_axes(call, lambda _: False)) == []


PATCHES = """\
import torch
from torch import nn


class Patches(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.places = nn.Parameter(torch.randn(16, dim))
        self.embed = nn.Linear(48, dim)

    def forward(self, image):
        b, c, h, w = image.shape
        x = image.reshape(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 1, 3, 5)
        return self.embed(x.reshape(b, -1, 48)) + self.places
"""


@pytest.mark.slow
def test_patches_of_images_that_are_wider_than_high(tmp_path: Path) -> None:
    wrong = verdict_on(tmp_path, PATCHES, "h // 4, 4, w // 4, 4", "w // 4, 4, h // 4, 4")
    assert wrong.status == "refuted", wrong
    right = verdict_on(tmp_path, PATCHES, "h // 4, 4, w // 4, 4", "-1, 4, w // 4, 4")
    assert right.status == "proved", right


POOLING = """\
import torch
from torch import nn


class Pooling(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.score = nn.Linear(dim, 1)

    def forward(self, keys, lengths):
        score = self.score(keys).squeeze(-1)
        mask = torch.arange(keys.size(1))[None, :] < lengths[:, None]
        score = torch.where(mask, score, torch.zeros_like(score))
        return torch.bmm(score.unsqueeze(1), keys).squeeze(1)
"""


@pytest.mark.slow
def test_a_dropped_dimension_of_size_one_is_refuted(tmp_path: Path) -> None:
    wrong = verdict_on(tmp_path, POOLING, ".squeeze(-1)", ".squeeze()")
    assert wrong.status == "refuted", wrong
    right = verdict_on(tmp_path, POOLING, ".squeeze(-1)", ".flatten(1)")
    assert right.status == "proved", right


ONE_KEY = """\
import torch
from torch import nn


class Weights(nn.Module):
    def forward(self, x: torch.Tensor):
        scores = x.flatten(1)[:, :1].unsqueeze(-1)
        return scores.softmax(dim=-1)
"""


@pytest.mark.slow
def test_a_dimension_that_always_has_one_element_decides_nothing(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, ONE_KEY, "dim=-1", "dim=-2")
    assert verdict.status == "unproven"
    assert "had more than one element along the dimension" in verdict.reason
    other = ONE_KEY.replace("[:, :1].unsqueeze(-1)", "")
    assert verdict_on(tmp_path, other, "dim=-1", "dim=1").status == "proved"
    assert verdict_on(tmp_path, other, "dim=-1", "dim=0").status == "refuted"


HEAD = """\
import torch
from torch import nn


class AnchorHead(nn.Module):
    def __init__(self, in_channels=8, strides=(8, 16)):
        super().__init__()
        self.strides = strides
        self.layers = nn.ModuleList(nn.Conv2d(in_channels, 4, 1) for _ in strides)

    def forward(self, feats):
        boxes = []
        for i, feat in enumerate(feats):
            h, w = feat.shape[-2:]
            ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            points = torch.stack([xs.flatten(), ys.flatten()], dim=-1) * self.strides[i]
            sides = self.layers[i](feat).exp().flatten(2).transpose(1, 2)
            boxes.append(torch.cat([points - sides[..., :2], points + sides[..., 2:]], dim=-1))
        return torch.cat(boxes, dim=1)
"""


@pytest.mark.slow
def test_images_of_a_single_point_get_further_points(tmp_path: Path) -> None:
    (call,) = enlarged_points(Call((torch.ones(2, 3, 1, 1), torch.ones(2, 1, 1)), {}))
    assert shapes(call) == [[2, 3, 2, 3], [2, 1, 1]]
    assert len(set(call.args[0][0, 0].flatten().tolist())) == 6
    assert list(enlarged_points(Call((torch.ones(2, 3, 1, 4),), {}))) == []
    assert verdict_on(tmp_path, HEAD, "h, w = feat", "w, h = feat").status == "refuted"
