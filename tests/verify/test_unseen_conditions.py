"""Test changes that act beyond the first calls: omitted inputs, attributes, declarations, rare
values."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

from regraft.verification.child.checks.deciding_parameters import deciding_parameters

pytestmark = pytest.mark.usefixtures("here")

ATTENTION = """\
import math
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.temperature = 1.0

    def forward(self, x: torch.Tensor, memory=None, bias=None):
        source = x if memory is None else memory
        scores = self.q(x) @ self.k(source).transpose(-1, -2) * self.temperature / 4.0
        if bias is not None:
            scores = scores + bias
        return scores.softmax(-1) @ self.v(source)
"""  # noqa: E501
REFUTED = {
    "an input that was left out": ("self.v(source)", "self.v(x)", "memory given"),
    "an input that is added": ("self.temperature / 4.0", "self.temperature", None),
    "an attribute that is set later": (" * self.temperature", "", "self.temperature = 0.75"),
}
LAYER = """\
import math
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor):
        return self.linear(x)
"""
UNPROVEN = {
    "a whole quotient": (
        "self.linear(x)",
        "self.linear(x) * (1 + x.shape[1] // sum(range(100)))",
        "a second value",
    ),
    "a remainder": (
        "self.linear(x)",
        "self.linear(x) * ((x.shape[1] % sum(range(100))) / x.shape[1])",
        "another number",
    ),
    "an operand of a test": (
        "self.linear(x)",
        "self.linear(x) * (2 if x.shape[1] > 4 and x.element_size() < 99 else 2) / 2",
        "`x.element_size() < 99` never was false",
    ),
    "a factor that is always one": (
        "self.linear(x)",
        "self.linear(x) * (len(self.linear.weight.shape) - 1)",
        "than its first operand",
    ),
    "an operand of arithmetic": (
        "self.linear(x)",
        "self.linear(x) * (1 - (self.training and getattr(self, 'rare', False)))",
        "`getattr(self, 'rare', False)` never was true",
    ),
    "a looked-up number": (
        "self.linear(x)",
        "self.linear(x) * {9: 2}.get(x.dim(), 1)",
        "a second value",
    ),
    "a number that changes nothing": (
        "self.linear(x)",
        "self.linear(x) * (1 + 0.0 * 7.5)",
        "`7.5`: a smaller number would have given the same",
    ),
    "a rectifier": (
        "self.linear(x)",
        "(self.linear(x) + torch.relu(-x.square().mean() - math.e))",
        "let a value pass",
    ),
}
ACTIVATED = """\
import torch
from torch import nn
from torch.nn import functional as F

ACTIVATIONS = {"gelu": F.gelu}


class Perceptron(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.act_fn = ACTIVATIONS["gelu"]

    def forward(self, x: torch.Tensor):
        return self.act_fn(self.linear(x))
"""
DECLARED = """\
import functools
import torch
from torch import nn


def doubled(function):
    @functools.wraps(function)
    def run(self, x, **kwargs):
        return function(self, x, **kwargs) * (2 if float(x.sum()) == 777.125 else 1)

    return run


def scaled(x, factor=1.0):
    return x * factor


class Block(nn.Module):
    _tied = ("a",)

    def __init__(self, width: int = 16):
        super().__init__()
        self.linear = nn.Linear(width, width)

    @doubled
    def forward(self, x: torch.Tensor, **kwargs):
        return scaled(self.linear(x), **kwargs)
"""
UNDECIDED = {
    "a decorator": ("    @doubled\n", "", "decorator `doubled` of forward is gone"),
    "a class attribute": ('_tied = ("a",)', "_tied = ()", "class attribute _tied is another"),
    "keywords that are passed on": (
        "(self.linear(x), **kwargs)",
        "(self.linear(x))",
        "passes on its `**` keywords",
    ),
}
WEIGHTS = """\
def weights(module, scores, dropout=0.0):
    return nn.functional.dropout(scores.softmax(-1), p=dropout, training=module.training)


"""
TABLE = """\
import torch
from torch import nn


class Table(nn.Module):
    def __init__(self, size: int = 50, width: int = 16):
        super().__init__()
        self.table = nn.Parameter(torch.randn(size, width))

    def forward(self, index: torch.LongTensor) -> torch.Tensor:
        return self.table[index]
"""
NORM = """\
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x / (x.norm(dim=-1, keepdim=True) + 1e-8))
"""


@pytest.mark.parametrize("case", REFUTED)
def test_what_callers_may_give_or_set_is_tried(case: str, tmp_path: Path) -> None:
    before, after, words = REFUTED[case]
    verdict = verdict_on(tmp_path, ATTENTION, before, after)
    assert verdict.status == "refuted", verdict
    assert words is None or words in verdict.reason


@pytest.mark.slow
def test_a_right_change_of_lines_that_such_inputs_decide_is_proved(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, ATTENTION, "scores.softmax(-1)", "torch.softmax(scores, dim=-1)")
    assert verdict.status == "proved", verdict.reason
    domain = verdict.evidence["domain"]
    assert isinstance(domain, dict)
    assert {"memory", "bias"} <= {label.partition(" ")[0] for label in domain["arguments"]}


@pytest.mark.slow
@pytest.mark.parametrize("case", UNPROVEN)
def test_arithmetic_that_no_input_moves_is_unproven(case: str, tmp_path: Path) -> None:
    before, after, words = UNPROVEN[case]
    verdict = verdict_on(tmp_path, LAYER, before, after)
    assert (verdict.status, words in verdict.reason) == ("unproven", True), verdict


@pytest.mark.slow
@pytest.mark.parametrize("case", UNDECIDED)
def test_declarations_that_no_call_decides_are_unproven(case: str, tmp_path: Path) -> None:
    before, after, words = UNDECIDED[case]
    verdict = verdict_on(tmp_path, DECLARED, before, after)
    assert (verdict.status, words in verdict.reason) == ("unproven", True), verdict


def test_negative_indices_are_tried(tmp_path: Path) -> None:
    verdict = verdict_on(
        tmp_path, TABLE, "self.table[index]", "nn.functional.embedding(index, self.table)"
    )
    assert (verdict.status, "negative whole numbers" in verdict.reason) == (
        "refuted",
        True,
    ), verdict


def test_inputs_far_below_an_epsilon_are_tried(tmp_path: Path) -> None:
    after = "nn.functional.normalize(x, dim=-1, eps=1e-8)"
    verdict = verdict_on(tmp_path, NORM, "x / (x.norm(dim=-1, keepdim=True) + 1e-8)", after)
    assert (verdict.status, "tiny" in verdict.reason) == ("refuted", True), verdict


def test_a_rate_that_callers_pass_as_zero_is_tried(tmp_path: Path) -> None:
    text = ATTENTION.replace("class Attention", f"{WEIGHTS}class Attention")
    text = text.replace(
        "scores.softmax(-1) @", "weights(self, scores, 0.1 if self.training else 0.0) @"
    )
    verdict = verdict_on(tmp_path, text, "p=dropout, training=module.training", "p=dropout")
    assert (verdict.status, "dropout=0.25" in verdict.reason) == ("refuted", True), verdict


FUNCTION = """\
def forward(self, x, memory=None, bias=None, *, past=None, flag=False):
    source = x if memory is None else memory
    scores = self.q(x)
    for step in range(3):
        if past is not None:
            seen = step
    if bias is not None:
        scores.add_(bias)
    other = self.v(x)
    return seen + other, scores, source
"""


ORDER = """\
def forward(self, x, options=None, gate=None, past=None, late=None):
    gated = self.gate(x)
    options = options or {}
    for step in range(3):
        states = self.block(x)
        x = self.block(x, past)
    again = lambda: gated
    try:
        x = self.block(gated)
    finally:
        x = x * 2
    gated = gated if gate is None else gate
    x = self.block(x + gated, **options)
    gated = late
    return x
"""


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (2, ()),
        (3, ("options",)),
        (5, ("past",)),
        (7, ("options", "gate", "past", "late")),
        (9, ()),
        (11, ("past",)),
        (12, ("gate",)),
        (13, ("options", "gate", "past")),
        (15, ("options", "gate", "past")),
    ],
)
def test_parameters_decide_what_is_computed_after_them(line: int, names: tuple[str, ...]) -> None:
    function = ast.parse(ORDER).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert deciding_parameters(function, [(line, line)]) == names


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (2, ("memory",)),
        (3, ()),
        (4, ()),
        (5, ("past",)),
        (8, ("bias",)),
        (9, ()),
        (10, ("memory", "bias", "past")),
    ],
)
def test_parameters_decide_through_variables_branches_and_changes_in_place(
    line: int, names: tuple[str, ...]
) -> None:
    function = ast.parse(FUNCTION).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert deciding_parameters(function, [(line, line)]) == names


DROP = """\
import torch
from torch import nn


def drop(x, drop_prob: float = 0.0, training: bool = False):
    if drop_prob == 0.0 or not training:
        return x
    keep = 1 - drop_prob
    mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
    if keep > 0.0:
        mask.div_(keep)
    return x * mask


class Layer(nn.Module):
    def __init__(self, width: int = 16, drop_prob: float = 0.1):
        super().__init__()
        self.linear, self.drop_prob = nn.Linear(width, width), drop_prob

    def forward(self, x):
        return drop(self.linear(x), self.drop_prob, self.training)
"""


@pytest.mark.slow
def test_rates_around_the_numbers_of_the_code_are_tried(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, DROP, "keep > 0.0", "keep > 0.25")
    assert (verdict.status, "drop_prob=" in verdict.reason) == ("refuted", True), verdict


TOKENS = """\
import torch
from torch import nn


class Embeddings(nn.Module):
    def __init__(self, vocab_size: int = 99, hidden_size: int = 16, padding_idx: int = 1):
        super().__init__()
        self.padding_idx = padding_idx
        self.words, self.places = nn.Embedding(vocab_size, hidden_size), nn.Embedding(512, hidden_size)

    def forward(self, input_ids):
        mask = input_ids.ne(self.padding_idx).int()
        return self.words(input_ids) + self.places(mask.cumsum(1) * mask)
"""  # noqa: E501


def test_padding_inside_of_a_row_is_tried(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, TOKENS, "mask.cumsum(1)", "torch.ones_like(mask).cumsum(1)")
    assert (verdict.status, "padding_idx 1" in verdict.reason) == ("refuted", True), verdict


SEGMENTS = """\
import torch
from torch import nn


class Segmented(nn.Module):
    def __init__(self, width: int = 16):
        super().__init__()
        self.table, self.proj = nn.Embedding(2, width), nn.Linear(width, width)

    def forward(self, x: torch.FloatTensor, segments: torch.LongTensor):
        return self.proj(x) + self.table(segments)
"""


def test_whole_numbers_differ_between_the_rows_of_a_call(tmp_path: Path) -> None:
    first_row = "self.table(segments[:1].expand_as(segments))"
    verdict = verdict_on(tmp_path, SEGMENTS, "self.table(segments)", first_row)
    assert verdict.status == "refuted", verdict


CAPPED = """\
import torch
from torch import nn


def capped(scores: torch.Tensor, softcap: float | None = None):
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    return scores.softmax(-1)


class Weights(nn.Module):
    def forward(self, x: torch.Tensor):
        return capped(x)
"""


@pytest.mark.parametrize(
    ("after", "status"),
    [
        ("torch.tanh(scores / softcap)", "refuted"),
        ("softcap * torch.tanh(scores / softcap)", "proved"),
    ],
)
def test_a_number_that_callers_leave_out_is_given(after: str, status: str, tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, CAPPED, "torch.tanh(scores / softcap) * softcap", after)
    assert verdict.status == status, verdict


MARGIN = """\
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, width: int = 16, margin: float = 0.3):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.margin = margin

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        s = self.linear(x)
        return torch.where(s >= self.margin, s, 0.0)
"""
BRANCH = MARGIN.replace(
    "return torch.where(s >= self.margin, s, 0.0)",
    "if s.mean() >= self.margin:\n            return s\n        return s * 0.5",
)


@pytest.mark.slow
@pytest.mark.parametrize("margin", ["self.margin", "0.3"])
def test_results_of_layers_are_made_equal_to_numbers_that_code_compares_with(
    margin: str, tmp_path: Path
) -> None:
    text = MARGIN.replace("s >= self.margin", f"s >= {margin}")
    verdict = verdict_on(tmp_path, text, f"s >= {margin}", f"s > {margin}")
    assert (verdict.status, "biases of 0.3" in verdict.reason) == ("refuted", True), verdict
    script = [sys.executable, str(verdict.evidence["reproducer"])]
    run = subprocess.run(script, capture_output=True, text=True, check=False)
    assert (run.returncode, "differs" in run.stdout) == (1, True), run
    verdict = verdict_on(tmp_path, text, f"s >= {margin}", f"{margin} <= s")
    assert verdict.status == "proved", verdict


@pytest.mark.slow
def test_another_operator_between_operands_that_never_are_equal_is_unproven(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, BRANCH, "s.mean() >= self.margin", "s.mean() > self.margin")
    words = "`s.mean() > self.margin` never compared equal numbers"
    assert (verdict.status, words in verdict.reason) == ("unproven", True), verdict


BRANCHES = {
    "right": ("self.act_fn(self.linear(x))", "proved"),
    "wrong": ("torch.relu(self.linear(x))", "refuted"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", BRANCHES)
def test_a_function_that_a_branch_tests_is_replaced(case: str, tmp_path: Path) -> None:
    other_side, status = BRANCHES[case]
    test = "F.gelu(self.linear(x)) if self.act_fn is F.gelu else"
    verdict = verdict_on(tmp_path, ACTIVATED, "self.act_fn(self.linear(x))", f"{test} {other_side}")
    assert verdict.status == status, verdict


DISTANCES = """\
import torch
from torch import nn


class Near(nn.Module):
    def __init__(self, width: int = 16, limit: int = 64):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.limit = limit

    def forward(self, x: torch.Tensor):
        distance = torch.arange(x.shape[1], device=x.device).clamp(max=self.limit)
        return self.linear(x) * (1 + 0.01 * distance[:, None])
"""


@pytest.mark.slow
def test_a_number_for_an_attribute_is_compared_with_others_on_long_inputs(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, DISTANCES, "max=self.limit", "max=64")
    assert verdict.status == "refuted", verdict
    assert "another limit" in verdict.reason


MODES = """\
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.dense = nn.Linear(width, width)

    def forward(self, hidden_states: torch.Tensor, mode: str):
        if mode not in ("extract", "cached"):
            raise ValueError(f"`mode` must be either 'extract' or 'cached', got {mode}.")
        scores = self.dense(hidden_states)
        return torch.softmax(scores, -1) if mode == "extract" else scores + 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("torch.softmax(scores, -1)", "scores.softmax(-1)", "proved"),
        ("else scores + 1", "else scores + 2", "refuted"),
    ],
)
def test_words_that_a_function_compares_are_its_modes(
    tmp_path: Path, before: str, after: str, status: str
) -> None:
    """The message lists the words that are accepted, and both are tried."""
    verdict = verdict_on(tmp_path, MODES, before, after)
    assert verdict.status == status, verdict.reason


OPTIONAL_SEGMENTS = """\
import torch
from torch import nn


class Embeddings(nn.Module):
    def __init__(self, vocab_size: int = 40, hidden_size: int = 16):
        super().__init__()
        self.word = nn.Embedding(vocab_size, hidden_size)
        self.segment = nn.Embedding(2, hidden_size)

    def forward(self, input_ids: torch.Tensor, token_type_ids: torch.Tensor = None):
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        return self.word(input_ids) + self.segment(token_type_ids)
"""


@pytest.mark.slow
def test_an_omitted_choice_of_two_is_given_ones_and_zeros(tmp_path: Path) -> None:
    before = "self.word(input_ids) + self.segment(token_type_ids)"
    right = verdict_on(tmp_path, OPTIONAL_SEGMENTS, before, before.replace(" + ", ".add(") + ")")
    assert right.status == "proved", right
    wrong = verdict_on(
        tmp_path, OPTIONAL_SEGMENTS, "(token_type_ids)", "(token_type_ids.clamp(max=0))"
    )
    assert wrong.status == "refuted", wrong
