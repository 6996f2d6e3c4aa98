"""Test alternatives and steps that may stand in between: the notation of own rules, applied to real
text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from regraft.matching.condition_table import PREDICATES
from regraft.rules import Rule, RuleProblem, load_rule
from regraft.scanning import check_source, compile_rules, rewrite_file
from regraft.source.text import SourceFile, parse

HEAD = 'rule mine\n  summary "Mine"\n  safety numeric\n  needs torch >= 2.8\n'
SCALED = """\
forward
  alt $x / $divisor | $x * $scale -> $a
  torch.nn.functional.softmax($a, dim=-1) -> $y
  => mine.softmax($x, divisor=$divisor, scale=$scale) -> $y
"""
LOSS = """\
forward
  torch.nn.functional.linear($x, $weight) -> $logits
  skip view|reshape|contiguous($logits) -> $flat
  torch.nn.functional.cross_entropy($flat, $labels) -> $loss
  => mine.linear_cross_entropy($x, $weight, $labels) -> $loss
"""
PAGE = """\
```python before
```

```python after
```

```python unchanged reason="a"
```

```python unchanged reason="b"
```
"""


def load(folder: Path, text: str) -> Rule | tuple[RuleProblem, ...]:
    """Write a rule with its page and load it."""
    path = folder / "pack" / "mine.rule"
    path.parent.mkdir(parents=True)
    path.write_text(HEAD + text)
    path.with_suffix(".md").write_text(PAGE)
    return load_rule(path)


def rewritten(folder: Path, text: str, lines: str) -> str:
    """Return lines of code as a rule rewrites them."""
    rule = load(folder, text)
    assert isinstance(rule, Rule), rule
    compiled, problems = compile_rules([rule])
    assert not problems
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    code = (
        f"import torch\nfrom torch.nn import functional as F\n\n\ndef f(x, w, d, labels):\n{body}"
    )
    source = parse("m.py", code.encode())
    assert isinstance(source, SourceFile)
    changed, _ = rewrite_file(check_source(source, compiled), compiled)
    return changed.decode().partition("labels):\n")[2].replace("    ", "")


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("return F.softmax(x / d, -1)", "return softmax(x, divisor=d)"),
        ("return F.softmax(x * d, -1)", "return softmax(x, scale=d)"),
        ("return F.softmax(x + d, -1)", "return F.softmax(x + d, -1)"),
    ],
)
def test_an_alternative_gives_the_kernel_what_it_binds(
    tmp_path: Path, line: str, call: str
) -> None:
    assert rewritten(tmp_path, SCALED, line) == call + "\n"


@pytest.mark.parametrize(
    "steps", ["", ".view(-1, 9)", ".contiguous().view(-1, 9)", ".reshape(2, -1).reshape(-1, 9)"]
)
def test_any_number_of_the_steps_may_stand_in_between(tmp_path: Path, steps: str) -> None:
    lines = f"logits = F.linear(x, w)\nreturn F.cross_entropy(logits{steps}, labels)"
    assert rewritten(tmp_path, LOSS, lines) == "return linear_cross_entropy(x, w, labels)\n"


@pytest.mark.parametrize(
    "lines",
    [
        "logits = F.linear(x, w)\nreturn F.cross_entropy(logits.transpose(0, 1), labels)\n",
        "flat = F.linear(x, w).view(-1, 9)\nreturn F.cross_entropy(flat, labels), flat\n",
        (
            "logits = F.linear(x, w)\nreturn F.cross_entropy(logits.view(-1, 9), labels),"
            " logits.view(-1)\n"
        ),
    ],
)
def test_other_steps_and_values_that_others_use_stop_the_match(tmp_path: Path, lines: str) -> None:
    assert rewritten(tmp_path, LOSS, lines) == lines


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        (
            "divisor=$divisor, scale=$scale",
            "$divisor",
            "$divisor is not bound by every alternative",
            8,
        ),
        ("-> $a", "-> $a, $b", "each node needs one output variable", 6),
    ],
)
def test_problems_of_alternatives(
    tmp_path: Path, old: str, new: str, message: str, line: int
) -> None:
    rule = load(tmp_path, SCALED.replace(old, new))
    if isinstance(rule, Rule):
        _, problems = compile_rules([rule])
    else:
        problems = rule
    assert message in problems[0].message
    assert problems[0].line == line


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("view|reshape", "view|nothing", "nothing is not a tensor method", 7),
        (
            "skip view|reshape|contiguous($logits)",
            "skip view(2)",
            "`skip` passes over operations of a value",
            7,
        ),
    ],
)
def test_problems_of_skip(tmp_path: Path, old: str, new: str, message: str, line: int) -> None:
    rule = load(tmp_path, LOSS.replace(old, new))
    assert isinstance(rule, Rule)
    _, (problem,) = compile_rules([rule])
    assert message in problem.message
    assert problem.line == line


def test_the_rules_of_the_manual_load(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[1] / "docs" / "rules.md").read_text()
    for number, text in enumerate(re.findall(r"```rule\n(.*?)```", manual, re.DOTALL)):
        path = tmp_path / str(number) / f"{text.split()[1]}.rule"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.with_suffix(".md").write_text(PAGE)
        rule = load_rule(path)
        assert isinstance(rule, Rule), rule
        assert compile_rules([rule])[1] == ()
    for word in PREDICATES:
        assert f"`{word}(" in manual


CHOSEN = """\
init
  alt torch.nn.SiLU() | torch.nn.GELU(approximate="tanh") -> $act => keep
forward
  $act($x) * $w -> $y
  => TARGET -> $y
"""
MODEL = """\
from torch import nn
from transformers.activations import ACT2FN


class M(nn.Module):
    def __init__(self, config):
        self.act = ACT

    def forward(self, x, w):
        return self.act(x) * w
"""


@pytest.mark.parametrize(
    ("act", "count"),
    [
        ("nn.SiLU()", 1),
        ('nn.GELU("tanh")', 1),
        ("ACT2FN[config.act]", 1),
        ('ACT2FN["silu"]', 1),
        ("nn.GELU()", 0),
        ("nn.ReLU()", 0),
        ("config.make()", 0),
        ("nn.SiLU() if config.a else nn.ReLU()", 1),
    ],
)
def test_a_layer_of_several_types_may_be_chosen_by_the_configuration(
    tmp_path: Path, act: str, count: int
) -> None:
    rule = load(tmp_path, CHOSEN.replace("TARGET", "regraft.ops.gated_activation($x, $w, $act)"))
    assert isinstance(rule, Rule), rule
    source = parse("m.py", MODEL.replace("ACT\n", f"{act}\n").encode())
    assert isinstance(source, SourceFile)
    report = check_source(source, compile_rules([rule])[0])
    assert [finding.reason for finding in report.findings] == [""] * count


def test_a_layer_of_several_types_is_given_to_an_op(tmp_path: Path) -> None:
    rule = load(tmp_path, CHOSEN.replace("TARGET", "mine.gated($x, $w, $act)"))
    assert isinstance(rule, Rule), rule
    assert "an op of Regraft has to be given it" in compile_rules([rule])[1][0].message


HALVES = """\
forward
  torch.cat(($x[..., $x.shape[-1] // 2 :], $x[..., : $x.shape[-1] // 2]), dim=-1) -> $y
  => mine.swap_halves($x) -> $y
"""


@pytest.mark.parametrize(
    ("lines", "applies"),
    [
        (
            "return torch.cat((x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)",
            True,
        ),
        (
            (
                "h = x.shape[-1] // 2\nleft = x[..., :h]\nright = x[..., h:]\nreturn"
                " torch.cat([right, left], -1)"
            ),
            True,
        ),
        ("h = x.shape[-1] // 2\nreturn torch.cat((x[..., :h], x[..., h:]), -1)", False),
        ("h = x.shape[-1] // 2\nreturn torch.cat((x[..., h::1], x[..., :h:1]), -1)", False),
        ("h = x.shape[-1] // 2\nreturn torch.cat((x[:, h:], x[:, :h]), -1)", False),
        ("h = x.shape[-1] / 2\nreturn torch.cat((x[..., h:], x[..., :h]), -1)", False),
        ("h = x.shape[-2] // 2\nreturn torch.cat((x[..., h:], x[..., :h]), -1)", False),
        ("h = w.shape[-1] // 2\nreturn torch.cat((x[..., h:], x[..., :h]), -1)", False),
        ("h = x.shape[-1] // 2\nreturn torch.cat((x[..., h:], x[..., :h], w), -1)", False),
    ],
)
def test_subscripts_slices_and_tuples(tmp_path: Path, lines: str, applies: bool) -> None:
    assert ("swap_halves(x)" in rewritten(tmp_path, HALVES, lines)) == applies


TWO = """\
forward
  torch.sigmoid($x) * $w -> $y
  torch.sigmoid($z) * $w -> $v
  => mine.gates($x, $z, $w) -> $y, $v
"""


def test_outputs_that_share_an_input_further_up(tmp_path: Path) -> None:
    lines = "a = torch.sigmoid(x) * w\nb = torch.sigmoid(d) * w\nreturn a, b"
    assert rewritten(tmp_path, TWO, lines) == "a, b = gates(x, d, w)\nreturn a, b\n"
    unchanged = "a = torch.sigmoid(x) * w\nb = torch.sigmoid(d) * labels\nreturn a, b\n"
    assert rewritten(tmp_path / "other", TWO, unchanged) == unchanged


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        (
            "s = torch.sigmoid(d)\na = torch.sigmoid(x) * w\nb = s * w\nreturn a, b",
            "a, b = gates(x, d, w)\nreturn a, b",
        ),
        # the input of an inner step keeps its name
        (
            "s = torch.sigmoid(F.relu(d))\na = torch.sigmoid(x) * w\nb = s * w\nreturn a, b",
            "s = F.relu(d)\na, b = gates(x, s, w)\nreturn a, b",
        ),
        ("a = torch.sigmoid(x) * w\ns = torch.sigmoid(d)\nb = s * w\nreturn a, b", ""),
        ("s = torch.sigmoid(d)\nprint(s)\na = torch.sigmoid(x) * w\nb = s * w\nreturn a, b", ""),
        ("s = torch.sigmoid(d)\nd.add_(1)\na = torch.sigmoid(x) * w\nb = s * w\nreturn a, b", ""),
        (
            "s = torch.sigmoid(F.relu(d))\nd = s * w\ns = 1\na = torch.sigmoid(x) * w\nreturn a, d",
            "s = F.relu(d)\nd, x_output = gates(s, x, w)\ns = 1\na = x_output\nreturn a, d",
        ),
        (
            (
                "s = torch.sigmoid(F.relu(d))\nt = s\ns = 1\na = torch.sigmoid(x) * w\nb = t *"
                " w\nreturn a, b"
            ),
            "",
        ),
        (
            (
                "if labels:\n    s = torch.sigmoid(d)\n    a = torch.sigmoid(x) * w\nb = s *"
                " w\nreturn a, b"
            ),
            "",
        ),
    ],
)
def test_inner_steps_of_several_outputs(tmp_path: Path, lines: str, after: str) -> None:
    assert rewritten(tmp_path, TWO, lines) == (after or lines.replace("    ", "")) + "\n"


PRODUCT = """\
forward
  torch.matmul($x, $k) -> $s
  opt $s + $mask -> $m
  torch.nn.functional.softmax($m, dim=-1) -> $y
  => mine.weights($x, $k, mask=$mask) -> $y
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            "s = x @ w.transpose(2, 3)\nif d is not None:\n    s = s + d\nreturn F.softmax(s, -1)",
            "w.transpose(2, 3)",
        ),
        (
            (
                "s = x @ torch.transpose(w, 2, 3)\nif d is not None:\n    s = s + d\nreturn"
                " F.softmax(s, -1)"
            ),
            "torch.transpose(w, 2, 3)",
        ),
        ("s = x @ F.relu(w)\nif d is not None:\n    s = s + d\nreturn F.softmax(s, -1)", ""),
        (
            (
                "s = x @ w.transpose(2, labels.pop())\nif d is not None:\n    s = s + d\nreturn"
                " F.softmax(s, -1)"
            ),
            "",
        ),
        (
            (
                "y = x\ny.add_(1)\ns = y @ w.transpose(2, 3)\nif d is not None:\n    s = s +"
                " d\nreturn F.softmax(s, -1)"
            ),
            "(y, w.transpose(2, 3)",
        ),
        (
            (
                "s = x @ w.transpose(2, 3)\nif d is not None:\n    w.add_(1)\n    s = s + d\nreturn"
                " F.softmax(s, -1)"
            ),
            "",
        ),
    ],
)
def test_a_transposed_tensor_is_taken_where_the_kernel_is_called(
    tmp_path: Path, lines: str, expected: str
) -> None:
    after = rewritten(tmp_path, PRODUCT, lines)
    assert expected in after if expected else after == lines.replace("    ", "") + "\n"
    assert ("weights(" in after) == bool(expected)


STORED = """\
forward
  $x * $scale -> $y
  => mine.scaled($x, $scale) -> $y
where
  stored($scale)
"""


@pytest.mark.parametrize(
    ("scale", "applies"),
    [
        ("self.w", True),
        ("self.w.float()", True),
        ("(1.0 + self.w)", True),
        ("g", False),
        ("x", False),
    ],
)
def test_what_is_stored(tmp_path: Path, scale: str, applies: bool) -> None:
    rule = load(tmp_path, STORED)
    assert isinstance(rule, Rule), rule
    body = f"    def forward(self, x, g):\n        return x.relu() * {scale}\n"
    text = f"import torch\n\n\nclass M(torch.nn.Module):\n{body}"
    source = parse("m.py", text.encode())
    assert isinstance(source, SourceFile)
    assert bool(check_source(source, compile_rules([rule])[0]).findings) == applies


LOSS_LAYER = """\
init
  torch.nn.CrossEntropyLoss() -> $loss => keep
forward
  $loss($x, $target) -> $y
  => regraft.ops.cross_entropy($x, $target, layer=$loss) -> $y
"""


def test_a_loss_is_a_layer_of_two_inputs(tmp_path: Path) -> None:
    lines = "loss = torch.nn.CrossEntropyLoss(ignore_index=0)\nreturn loss(x, labels)"
    assert rewritten(tmp_path, LOSS_LAYER, lines).endswith(
        "return cross_entropy(x, labels, layer=loss)\n"
    )
    assert "cross_entropy(" not in rewritten(
        tmp_path / "other", LOSS_LAYER, lines.replace("(x, labels)", "(x)")
    )
