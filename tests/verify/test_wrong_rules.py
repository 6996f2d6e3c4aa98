"""Test deliberately wrong rules: the matcher accepts them, the rewrite parses, and running it
refutes every one."""

from __future__ import annotations

from pathlib import Path

import pytest

from regraft.dsl import parse_rule
from regraft.dsl.syntax import RuleSyntax
from regraft.rules import Rule
from regraft.scanning import apply_patches, check_file, choose, compile_rules, rewrite_file
from regraft.verification import verify

pytest.importorskip("torch")

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        h = x.to(torch.float32)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(dtype)


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(x.dtype)
        return weights @ x


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=1e-12)

    def forward(self, x):
        h = F.dropout(self.fc(x), 0.1, self.training)
        return self.norm(h + x)


class MLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.out(F.gelu(self.fc(x)))


class Contrast(nn.Module):
    def forward(self, x):
        return x - x.mean(dim=1, keepdim=True)


class Model(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.parts = nn.ModuleList([Norm(dim), Attention(dim), Residual(dim), MLP(dim), Contrast()])

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


def driver(module):
    torch.manual_seed(0)
    return module.Model(), [(torch.randn(2, 5, 16),), (torch.randn(3, 7, 16),)]
"""

RMS = """
  $x.to(torch.float32) -> $h
  $h * torch.rsqrt(torch.mean($h ** 2, -1, keepdim=True) + $eps) -> $n
  $n.to($x.dtype) -> $y
"""
SOFTMAX = "torch.nn.functional.softmax($x, dim=-1, dtype=$dtype) -> $y\n"
DROPOUT = """
  torch.nn.functional.dropout($x, p=$p, training=$training) -> $a
  $a + $r -> $b
  $norm($b) -> $y
"""
GELU = "$linear($x) -> $h\n  torch.nn.functional.gelu($h, approximate=$approximate) -> $y\n"
LAYER_NORM = "init\n  torch.nn.LayerNorm($shape) -> $norm => keep\n"
LINEAR = "init\n  torch.nn.Linear($in, $out) -> $linear => keep\n"
FUSED = "regraft.ops.dropout_add_layer_norm"

# name: (init, source, target, the class that must be refuted)
WRONG = {
    "eps": ("", RMS, "torch.nn.functional.rms_norm($x, $x.shape[-1:], eps=1e-3)", "Norm"),
    "small-eps-lost": (
        "",
        RMS,
        "torch.nn.functional.rms_norm($x, $x.shape[-1:], eps=1e-12)",
        "Norm",
    ),
    "cast-lost": (
        "",
        RMS,
        "torch.nn.functional.rms_norm($x.to(torch.float32), $x.shape[-1:], eps=$eps)",
        "Norm",
    ),
    "softmax-dim": (
        "",
        SOFTMAX,
        "torch.nn.functional.softmax($x, dim=-2, dtype=$dtype)",
        "Attention",
    ),
    "softmax-dtype": (
        "",
        SOFTMAX,
        "torch.nn.functional.softmax($x, dim=-1, dtype=torch.float16)",
        "Attention",
    ),
    "log-softmax": (
        "",
        SOFTMAX,
        "torch.nn.functional.log_softmax($x, dim=-1, dtype=$dtype)",
        "Attention",
    ),
    "residual-dropped": (
        LAYER_NORM,
        DROPOUT,
        "$norm(torch.nn.functional.dropout($x, p=$p, training=$training))",
        "Residual",
    ),
    "residual-twice": (
        LAYER_NORM,
        DROPOUT,
        f"{FUSED}($x, $r + $r, $norm, p=$p, training=$training)",
        "Residual",
    ),
    "dropout-always-on": (
        LAYER_NORM,
        DROPOUT,
        f"{FUSED}($x, $r, $norm, p=$p, training=True)",
        "Residual",
    ),
    "dropout-never-on": (
        LAYER_NORM,
        DROPOUT,
        f"{FUSED}($x, $r, $norm, p=$p, training=False)",
        "Residual",
    ),
    "dropout-rate": (
        LAYER_NORM,
        DROPOUT,
        f"{FUSED}($x, $r, $norm, p=0.2, training=$training)",
        "Residual",
    ),
    "norm-weight-lost": (
        LAYER_NORM,
        DROPOUT,
        (
            "torch.nn.functional.layer_norm(torch.nn.functional.dropout($x, p=$p,"
            " training=$training) + $r, $norm.normalized_shape, eps=$norm.eps)"
        ),
        "Residual",
    ),
    "gelu-tanh": (LINEAR, GELU, 'regraft.ops.linear_gelu($x, $linear, approximate="tanh")', "MLP"),
    "activation-swapped": (LINEAR, GELU, "torch.nn.functional.relu($linear($x))", "MLP"),
    "bias-lost": (
        LINEAR,
        GELU,
        "torch.nn.functional.gelu(torch.nn.functional.linear($x, $linear.weight))",
        "MLP",
    ),
    "operands-swapped": ("", "$x - $m -> $y\n", "$m - $x", "Contrast"),
}


def rule(name: str, init: str, source: str, target: str) -> Rule:
    """Return a rule that is wrong on purpose."""
    head = f'rule {name}\n  summary "wrong on purpose"\n  safety numeric\n'
    text = f"{head}{init}forward\n  {source}  => {target} -> $y\n"
    syntax = parse_rule(text)
    assert isinstance(syntax, RuleSyntax), syntax
    return Rule(f"wrong/{name}", "wrong", syntax, Path(f"{name}.rule"), "")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a model."""
    path = tmp_path_factory.mktemp("model") / "model.py"
    path.write_text(MODEL)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_refuted(model: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)  # reproducers are written below the working directory
    init, source, target, wrong = WRONG[name]
    compiled, problems = compile_rules([rule(name, init, source, target)])
    assert not problems
    report = check_file(model, compiled)
    assert report.source is not None
    # one round only: some of the wrong targets match their own source again
    patches = [finding.patch for finding in choose(report.findings) if finding.patch is not None]
    assert patches
    changed = apply_patches(report.source, patches)
    verdicts = verify(model, changed, driver=f"{model}:driver", effort="low")
    assert [(verdict.definition, verdict.status) for verdict in verdicts] == [(wrong, "refuted")]
    assert Path(str(verdicts[0].evidence["reproducer"])).is_file()


@pytest.mark.slow
def test_the_right_rules_are_proved_on_the_same_model(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regraft.rules import load_rules

    monkeypatch.chdir(model.parent)
    # its scores are not scaled: where softmax saturates, the kernel's gradients are rounding and
    # should be zero
    compiled, _ = compile_rules(load_rules(ignore=["torch/attention"])[0])
    changed, applied = rewrite_file(check_file(model, compiled), compiled)
    assert len(applied) == 4
    assert {verdict.status for verdict in verify(model, changed, driver=f"{model}:driver")} == {
        "proved"
    }
