"""Test changes that act for other constructor arguments, plain arguments, parameter states, or
repeated calls."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from verdicts import verdict_on

from regraft.verification import verify

pytest.importorskip("torch")

import torch

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.checks.code_constants import Constants
from regraft.verification.child.checks.mask_variants import added_mask_calls, biased_calls
from regraft.verification.child.checks.repeated_calls import Generating, InTurn
from regraft.verification.child.checks.size_variants import (
    is_affordable,
    resize_dimensions,
    resized_calls,
)
from regraft.verification.child.drivers.config_variations import second_values
from regraft.verification.child.parameter_alterations import ALTERATIONS, HALF, ZERO
from regraft.verification.child.weights import change_parameters

pytestmark = pytest.mark.usefixtures("here")

MODEL = """\
import torch
from torch import nn


def to_tuple(value):
    return value if isinstance(value, tuple) else (value, value)


class Layer(nn.Module):
    def __init__(self, dim=8, drop=0.0, eps=1e-6, scaled=False, act=nn.GELU, groups=2):
        super().__init__()
        drops = to_tuple(drop)
        self.first = nn.Linear(dim, dim)
        self.act = act()
        self.drop = nn.Dropout(drops[0])
        self.last = nn.Dropout(drops[1])
        self.eps = eps
        self.scaled = scaled
        self.groups = groups

    def forward(self, x, shift: float = 0.0, flipped: bool = False):
        x = self.act(self.first(x))
        x = self.drop(x)
        x = x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()
        parts = x.unflatten(-1, (self.groups, -1)).flatten(-2)
        x = self.last(parts * 2 if self.scaled else parts)
        return x.flip(-1) if flipped else x + shift


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Layer(8)

    def forward(self, x):
        return self.layer(x)
"""
WRONG = {
    "a rate": ("self.drop = nn.Dropout(drops[0])", "self.drop = nn.Dropout(0.0)"),
    "the second of two rates": (
        "self.last = nn.Dropout(drops[1])",
        "self.last = nn.Dropout(drops[0])",
    ),
    "an epsilon": ("keepdim=True) + self.eps", "keepdim=True) + 1e-6"),
    "a flag": ("parts * 2 if self.scaled else parts", "parts"),
    "a class of layers": ("self.act = act()", "self.act = nn.GELU()"),
    "a size": (
        "(self.groups, -1)).flatten(-2)",
        "(self.groups, -1)).flatten(-2) * (2 / self.groups)",
    ),
    "a plain argument": ("else x + shift", "else x + max(shift, 0.6) * (shift > 0)"),
    "a flag of the call": ("x.flip(-1) if flipped", "x if flipped"),
    "results of zero": (
        "else x + shift",
        "else torch.where(x == 0, torch.full_like(x, 1e-2), x) + shift",
    ),
    "results beyond ten thousand": (
        "self.act(self.first(x))",
        "self.act(self.first(x).clamp(-1e4, 1e4))",
    ),
    "a width of the results": (
        "else x + shift",
        "else (x + shift).roll(int(x.shape[-1] == 768), -1)",
    ),
    "deterministic algorithms": (
        "else x + shift",
        "else x + shift + torch.are_deterministic_algorithms_enabled()",
    ),
    "another default format": (
        "else x + shift",
        "else x + shift + (torch.get_default_dtype() != x.dtype)",
    ),
    "the first call remembered": (
        "return x.flip(-1) if flipped else x + shift",
        "return torch.as_tensor(self.__dict__.setdefault('known', {}).setdefault(x.shape, x))",
    ),
}
RIGHT = {
    "operands": (
        "x.square().mean(-1, keepdim=True) + self.eps",
        "self.eps + x.square().mean(-1, keepdim=True)",
    ),
    "arguments of the constructor": (
        "self.drop = nn.Dropout(drops[0])",
        "self.drop = nn.Dropout(p=drops[0])",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_a_change_that_acts_for_other_options_is_refuted(case: str, tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, MODEL, *WRONG[case])
    assert verdict.status == "refuted", verdict


@pytest.mark.slow
@pytest.mark.parametrize("case", RIGHT)
def test_a_right_change_is_proved(case: str, tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, MODEL, *RIGHT[case])
    assert verdict.status == "proved", verdict


@pytest.mark.slow
def test_an_argument_that_no_comparison_varied_is_named(tmp_path: Path) -> None:
    text = MODEL.replace("scaled=False", "scaled=False, kind='plain'").replace(
        "self.scaled = scaled", "self.scaled = scaled\n        self.kind = kind.title()"
    )
    path = tmp_path / "model.py"
    path.write_text(text)
    (verdict,) = verify(
        path, text.replace("kind.title()", "kind.capitalize()").encode(), effort="default"
    )
    assert (verdict.status, "the constructor's kind" in verdict.reason) == ("unproven", True), (
        verdict
    )


def test_masks_differ_by_head_and_are_given_where_there_was_none() -> None:
    mask, query = torch.zeros(2, 1, 4, 4), torch.zeros(2, 3, 4, 8)
    call = Call((query,), {"attention_mask": mask})
    moderate, by_head = biased_calls(call, {"query": query, **call.kwargs}, (3,))
    assert moderate.kwargs["attention_mask"].min() < 0
    assert by_head.kwargs["attention_mask"].shape == (2, 3, 4, 4)

    def attend(query: object, attention_mask: object = None) -> None: ...

    masked_calls = list(added_mask_calls(Call((query,), {}), {"query": query}, attend))
    assert [str(masked_call.kwargs["attention_mask"].dtype) for masked_call in masked_calls] == [
        "torch.float32",
        "torch.bool",
        "torch.int64",
        "torch.float32",
    ]
    lowest = torch.finfo(torch.float32).min
    assert bool((masked_calls[-1].kwargs["attention_mask"] == lowest).all(-1).any())


def test_several_sizes_change_at_once() -> None:
    call = resize_dimensions(Call((torch.zeros(2, 8, 32), 32), {}), {8: 5, 32: 64})
    assert (tuple(call.args[0].shape), call.args[1]) == ((2, 5, 64), 64)
    call = resize_dimensions(Call((torch.zeros(8, 8), 8), {}), {8: 5}, features=True)
    assert (tuple(call.args[0].shape), call.args[1]) == ((8, 5), 8)


def test_widths_that_are_even_stay_even() -> None:
    calls = list(resized_calls(Call((torch.zeros(2, 3, 8),), {}), Constants(), features=True))
    widths = {call.args[0].shape[-1] for call in calls}
    assert max(widths) > 1000
    assert not [width for width in widths if width % 2]


class Counting(torch.nn.Module):
    """Answers with what it was called with, and remembers the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.first: object = None

    def forward(self, x: object) -> object:
        self.first = x if self.first is None else self.first
        return self.first

    def generate(self, ids: object, **kwargs: object) -> SimpleNamespace:
        return SimpleNamespace(sequences=ids, scores=kwargs["max_new_tokens"])


def test_a_model_is_called_in_a_row_and_generates() -> None:
    first, second = InTurn(Counting())(((1,), {}), ((), {"x": 2}))
    assert (first, second) == (1, 1)
    assert Generating(Counting(), 3)(input_ids=5) == (5, 3)


def test_parameters_take_other_values_and_come_back() -> None:
    layer = torch.nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    with change_parameters(layer, ALTERATIONS[ZERO]):
        assert not layer.weight.any()
    with change_parameters(layer, ALTERATIONS[HALF]):
        assert layer.weight.dtype == torch.bfloat16
    assert torch.equal(layer.weight, before)


def test_sizes_that_would_fill_the_memory_are_not_tried() -> None:
    call = Call((torch.zeros(1, 32, 32, 32),), {})
    assert is_affordable(call, {32: 64})
    assert not is_affordable(call, {32: 1056})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([2, 3], ([2, 4], [3, 4], [4, 6], [2, 3, 3], [2, 3, 2], [2])),
        ((True, True), ((True, False), (False, False), (True, True, True), (True,))),
        ([0.5, 0.0], ([0.25, 0.4 / 3], [0.5, 0.0, 0.0], [0.5, 0.0, 0.5], [0.5])),
        (
            ["full", "local"],
            (
                ["full", "full"],
                ["local", "local"],
                ["full", "local", "local"],
                ["full", "local", "full"],
                ["full"],
            ),
        ),
        (["full", 1], (["full", 1, 1], ["full", 1, "full"], ["full"])),
        ([[8]], ([[9]], [[9]], [[16]], [[8], [8]])),
        ([], ()),
        ({"rate": 0.0, "name": "a"}, ({"rate": 0.2, "name": "a"},)),
    ],
)
def test_lists_and_tables_take_other_values(value: Any, expected: tuple[Any, ...]) -> None:
    overrides = second_values({"kinds": value, "other": 1}, frozenset({"kinds"}), {})
    assert tuple(override["kinds"] for override in overrides) == expected


def test_named_tuples_keep_their_length() -> None:
    class Size(NamedTuple):
        height: int
        width: int

    overrides = second_values({"grid": Size(2, 3)}, frozenset({"grid"}), {})
    assert [override["grid"] for override in overrides] == [Size(2, 4), Size(3, 4), Size(4, 6)]


@pytest.mark.parametrize("none", [0, -1])
def test_a_number_that_stands_for_none_becomes_two_first(none: int) -> None:
    overrides = second_values({"tokens": none}, frozenset({"tokens"}), {})
    assert [override["tokens"] for override in overrides] == [2, 1]
