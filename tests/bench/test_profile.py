"""Test `regraft profile`: whose time and memory it is, what is expected of it, and what it says."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

torch = pytest.importorskip("torch")

from command_line import regraft  # noqa: E402
from regraft.benchmarking import calls_of, profile_as_text, profile_model  # noqa: E402
from regraft.benchmarking.expected_gains import (  # noqa: E402
    Range,
    gain_of,
    opportunities,
    speed_of_whole,
)
from regraft.benchmarking.profile import Profile, Row  # noqa: E402
from regraft.benchmarking.steps import BenchError, peak, step  # noqa: E402
from regraft.report import formats  # noqa: E402
from regraft.rules import load_rules  # noqa: E402
from regraft.rules.worth import Case, Worth  # noqa: E402
from regraft.scanning import Finding, check_file, compile_rules, with_worth  # noqa: E402

SCHEMA = json.loads(
    Path(formats.__file__).with_name("schemas").joinpath("profile.schema.json").read_text()
)
MODEL = """\
import math

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def halve(x):
    return x / 2


class Product(nn.Module):
    def __init__(self, width, repeats):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / math.sqrt(width))
        self.repeats = repeats

    def forward(self, x):
        for _ in range(self.repeats):
            x = x @ self.weight
        return x


class Small(Product):
    def forward(self, x):
        return super().forward(x)


class Large(Product):
    def forward(self, x):
        for _ in range(10 * self.repeats):
            x = x @ self.weight
        return x


class Gelu(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Model(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.small = Product(width, 1)
        self.large = Large(width, 1)
        self.gelu = Gelu()

    def forward(self, x):
        x = halve(self.large(halve(x)))
        return self.gelu(self.small(x))

    def unused(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.large = Large(128, 1)
        self.small = Product(128, 1)

    def forward(self, x):
        return self.small(checkpoint(self.large, x, use_reentrant=False))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


class Custom(Product):
    def forward(self, x):
        return Doubled.apply(super().forward(x))


class Lazy(Product):
    def parts(self, x):
        yield x
        yield x @ self.weight

    def forward(self, x):
        return sum(self.parts(x))


class Replacing(Product):
    def forward(self, x):
        import sys

        sys.settrace(None)
        return x @ self.weight


class Untrainable(nn.Module):
    def forward(self, x):
        return x.detach() + 1


class Broken(nn.Module):
    def forward(self, x):
        raise KeyError("weights")
"""  # noqa: E501
TARGETS = """\
import torch
from torch import nn
import model


def build():
    return model.Model(), torch.randn(64, 128)


def twice():
    return model.Model(), [torch.randn(64, 128), {"x": torch.randn(32, 128)}]


def gelu():
    return model.Gelu(), torch.randn(256, 1024)


def broken():
    return model.Broken(), torch.randn(4)


def untrainable():
    return model.Untrainable(), torch.randn(4)


def replacing():
    return model.Replacing(128, 1), torch.randn(8, 128)


def plain():
    return nn.Linear(4, 4), torch.randn(4, 4)


def alone():
    return model.Model()
"""
CONVOLUTION = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x))


def build():
    return Block(), torch.randn(2, 8, 16, 16)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a folder with a model the working directory, with few steps profiled, and forget its
    modules afterwards."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "targets.py").write_text(TARGETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("regraft.benchmarking.profiler.PROFILED_SECONDS", 0.2)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)
    for name in ("model", "targets__driver", "softmax__driver", "convolution__driver"):
        sys.modules.pop(name, None)


@pytest.fixture
def model(here: Path) -> Any:
    """Return the module `model` of the folder."""
    return importlib.import_module("model")


def profile_of(subject: Any, inputs: Any, mode: str) -> Profile:
    """Return the profile of a model without rules."""
    return profile_model(subject, calls_of(inputs), (), mode)


def row_of(result: Profile, name: str) -> Row:
    """Return the row of a definition."""
    (row,) = (row for row in result.rows if row.definition and row.definition.name == name)
    return row


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_shares_are_those_of_the_work(model: Any, mode: str) -> None:
    result = profile_of(model.Model(256), torch.randn(512, 256), mode)
    large, small = row_of(result, "Large.forward").share, row_of(result, "Product.forward").share
    assert 5 < large / small < 20
    assert large > 0.6
    assert sum(row.share for row in result.rows) == pytest.approx(1)


def test_backward_pass_belongs_to_the_definition_of_its_forward(model: Any) -> None:
    inputs = torch.randn(512, 256)
    shares = {
        mode: row_of(profile_of(model.Model(256), inputs, mode), "Large.forward").share
        for mode in ("inference", "training")
    }
    # a backward pass that nobody had would be two thirds of a training step
    assert shares["training"] > 0.8 * shares["inference"]


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_calls_are_counted_in_a_step(model: Any, mode: str) -> None:
    result = profile_of(model.Model(), torch.randn(64, 128), mode)
    calls = {row.definition.name: row.calls for row in result.rows if row.definition}
    assert calls == {
        "halve": 2,
        "Large.forward": 1,
        "Product.forward": 1,
        "Gelu.forward": 1,
        "Model.forward": 1,
    }


def test_all_calls_of_a_step_count(model: Any) -> None:
    inputs = [torch.randn(64, 128), {"x": torch.randn(32, 128)}]
    assert row_of(profile_of(model.Model(), inputs, "training"), "halve").calls == 4


def test_generator_is_called_once_however_often_it_goes_on(model: Any) -> None:
    result = profile_of(model.Lazy(128, 1), torch.randn(64, 128), "inference")
    assert row_of(result, "Lazy.parts").calls == 1


def test_recomputed_forward_belongs_to_its_definition(model: Any) -> None:
    inputs = torch.randn(512, 128, requires_grad=True)
    result = profile_of(model.Recomputed(), inputs, "training")
    assert row_of(result, "Large.forward").calls == 2
    assert row_of(result, "Large.forward").share > 5 * row_of(result, "Product.forward").share


def test_custom_function_is_profiled(model: Any) -> None:
    result = profile_of(model.Custom(128, 1), torch.randn(64, 128), "training")
    assert {"Doubled.forward", "Doubled.backward", "Product.forward", "Custom.forward"} <= {
        row.definition.name for row in result.rows if row.definition
    }


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_memory_is_that_of_bench(model: Any, mode: str) -> None:
    subject, inputs = model.Model(), torch.randn(2048, 128)
    result = profile_of(subject, inputs, mode)
    expected = peak(step(subject, calls_of(inputs), mode == "training"), torch.device("cpu"))
    assert result.peak_bytes == pytest.approx(expected, rel=0.05)
    assert result.peak_bytes == sum(row.bytes or 0 for row in result.rows)


def test_memory_kept_for_the_backward_pass_belongs_to_what_keeps_it(model: Any) -> None:
    subject, inputs = model.Model(), torch.randn(2048, 128)
    rows = profile_of(subject, inputs, "training")
    megabyte = 2048 * 128 * 4
    assert row_of(rows, "Large.forward").bytes == pytest.approx(10 * megabyte, rel=0.15)


def test_memory_that_cannot_be_watched_is_said_to_be_unknown(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no modes here")

    monkeypatch.setattr("regraft.benchmarking.allocations.Allocations._add", fail)
    result = profile_of(model.Model(), torch.randn(64, 128), "inference")
    assert result.peak_bytes is None
    assert result.memory_note == "RuntimeError: no modes here"


def test_trace_function_and_gradients_are_as_before(model: Any) -> None:
    subject = model.Model()
    before = sys.gettrace()
    profile_of(subject, torch.randn(64, 128), "training")
    assert sys.gettrace() is before
    assert all(parameter.grad is None for parameter in subject.parameters())


def test_model_that_replaces_the_trace_is_an_error(model: Any) -> None:
    with pytest.raises(BenchError, match=r"sys\.settrace"):
        profile_of(model.Replacing(128, 1), torch.randn(8, 128), "inference")


def test_amdahl() -> None:
    saving = Range(0.5 * (1 - 1 / 2), 0.5 * (1 - 1 / 3), 0.5 * (1 - 1 / 4))
    speed = speed_of_whole(saving)
    assert speed.low == pytest.approx(1 / (0.5 + 0.5 / 2))
    assert speed.middle == pytest.approx(1 / (0.5 + 0.5 / 3))
    assert speed.high == pytest.approx(1 / (0.5 + 0.5 / 4))


GELU_LINE = MODEL[: MODEL.index("        return 0.5")].count("\n") + 1


@pytest.fixture
def gelu_findings(here: Path) -> list[Finding]:
    """Return the findings of `torch/gelu` in the model: in `Gelu.forward` and `Model.unused`."""
    compiled, _ = compile_rules(load_rules(["torch/gelu"])[0])
    rules = with_worth(compiled, "cpu")
    report = check_file(here / "model.py", rules)
    return [finding for finding in report.findings if finding.fixable]


def with_cases(finding: Finding, *cases: Case) -> Finding:
    """Return a finding whose rule was measured so."""
    return replace(finding, worth=Worth("cpu", cases))


def bounds(value: Range) -> tuple[float, float, float]:
    """Return the numbers of a range."""
    return value.low, value.middle, value.high


CASE = Case("typical", "", "training", (2.0, 2.5, 4.0), 1.0)


def test_saving_is_that_of_the_lines(gelu_findings: list[Finding]) -> None:
    finding = with_cases(gelu_findings[0], CASE)
    (opportunity,) = opportunities(
        {finding: [GELU_LINE]}, {(finding.file, GELU_LINE): 0.4, ("", 0): 0.6}, "training"
    )
    assert opportunity.share == opportunity.counted == 0.4
    assert bounds(opportunity.saving) == pytest.approx((0.2, 0.24, 0.3))


def test_lines_have_what_their_module_gained(gelu_findings: list[Finding]) -> None:
    # half of a module's time becomes nothing where the module becomes twice as fast
    case = Case("typical", "", "training", (1.25, 1.5, 2.0), 1.0, part=0.5)
    gain = gain_of(with_cases(gelu_findings[0], case), "training")
    assert gain.speed is not None
    assert bounds(gain.speed) == pytest.approx((1 / 0.6, 3.0, 100.0))


def test_line_of_two_findings_counts_once(gelu_findings: list[Finding]) -> None:
    first = with_cases(gelu_findings[0], CASE)
    better = with_cases(first, Case("typical", "", "training", (4.0, 4.0, 4.0), 1.0))
    shares = {(first.file, GELU_LINE): 0.4}
    lines = {first: [GELU_LINE], better: [GELU_LINE]}
    of_first, of_better = opportunities(lines, shares, "training")
    assert (of_first.share, of_first.counted, of_first.saving.high) == (0.4, 0, 0)
    assert of_better.saving.middle == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("cases", "reason", "is_hopeful"),
    [
        ((), "worth unknown on cpu", True),
        ((Case("typical", "", "training", (0.99, 1.0, 1.01), 1.0),), "gains nothing on cpu", False),
        (
            (Case("typical", "", "inference", (2.0, 2.5, 4.0), 1.0),),
            "not measured in training",
            True,
        ),
        (
            (
                Case("typical", "", "inference", (2.0, 2.5, 4.0), 1.0),
                Case("typical", "", "training", (0.99, 1.0, 1.01), 1.0),
            ),
            "gains no time in training",
            False,
        ),
    ],
)
def test_what_is_not_measured_to_gain_is_not_counted(
    gelu_findings: list[Finding], cases: tuple[Case, ...], reason: str, is_hopeful: bool
) -> None:
    finding = with_cases(gelu_findings[0], *cases)
    shares = {(finding.file, GELU_LINE): 0.4}
    (opportunity,) = opportunities({finding: [GELU_LINE]}, shares, "training")
    assert opportunity.gain.speed is None
    assert reason in opportunity.gain.reason
    assert opportunity.gain.hopeful == is_hopeful
    assert opportunity.saving == Range(0, 0, 0)


@pytest.mark.parametrize(("profiled_seconds", "is_said"), [(1.1, False), (1.5, True)])
def test_large_slowdown_is_said(model: Any, profiled_seconds: float, is_said: bool) -> None:
    result = profile_of(model.Model(), torch.randn(64, 128), "inference")
    result = replace(result, seconds=1.0, profiled_seconds=profiled_seconds)
    text = "\n".join(profile_as_text(result, "", lambda text, **_: text))
    assert ("being profiled makes the step 50% slower" in text) == is_said


@pytest.mark.slow
def test_rule_that_may_lose_is_counted_where_it_is_named(here: Path) -> None:
    (here / "convolution.py").write_text(CONVOLUTION)
    command = ("profile", "convolution.py:build", "--output-format", "json")
    results = [
        json.loads(regraft(*command, *options, cwd=here).stdout)
        for options in ((), ("--all",), ("--packs", "adopter/conv-batchnorm"))
    ]
    reasons = [
        finding["not_counted"]
        for result in results
        for definition in result["definitions"]
        for finding in definition["findings"]
        if finding["rule"] == "adopter/conv-batchnorm"
    ]
    assert reasons[0].startswith("may gain or lose on cpu")
    assert reasons[1:] == ["", ""]
    assert all("adopter/conv-batchnorm" in result["candidates"] for result in results)


def test_command_says_what_to_measure(here: Path) -> None:
    result = regraft("profile", "targets.py:build", "--mode", "training", cwd=here)
    assert result.returncode == 0, result.stderr
    assert "Gelu.forward" in result.stdout
    assert "torch/gelu" in result.stdout
    assert "times as fast" in result.stdout
    assert "(expected, not measured: `regraft bench` measures it)" in result.stdout
    assert "1 finding in code that this step does not run: model.py:" in result.stdout
    assert result.stdout.splitlines()[-1] == (
        "next: regraft bench targets.py:build --packs torch/gelu --mode training"
    )


def test_json_is_what_the_schema_says(here: Path) -> None:
    result = regraft("profile", "targets.py:gelu", "--output-format", "json", cwd=here)
    data = json.loads(result.stdout)
    jsonschema.validate(data, SCHEMA)
    gelu = data["definitions"][0]
    (finding,) = gelu["findings"]
    assert (gelu["name"], gelu["calls"], finding["rule"]) == ("Gelu.forward", 1, "torch/gelu")
    assert gelu["share"] > 0.9
    assert data["expected_speed"]["low"] == pytest.approx(1 / (1 - data["saving"]["low"]))
    assert data["saving"]["low"] == pytest.approx(
        finding["counted"] * (1 - 1 / finding["speed"]["low"])
    )
    assert data["candidates"] == ["torch/gelu"]


@pytest.mark.slow
def test_gainless_rule_is_listed_and_not_counted(here: Path) -> None:
    options = ("--packs", "torch/gelu", "--target", "cpu", "--output-format", "json")
    counted = json.loads(regraft("profile", "targets.py:gelu", *options, cwd=here).stdout)
    assert counted["expected_speed"] is not None
    (here / "softmax.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Weights(nn.Module):\n"
        "    def forward(self, x):\n        return torch.softmax(x, dim=-1)\n\n\n"
        "def build():\n    return Weights(), torch.randn(8, 8)\n"
    )
    result = regraft("profile", "softmax.py:build", "--output-format", "json", cwd=here)
    data = json.loads(result.stdout)
    (finding,) = data["definitions"][0]["findings"]
    assert finding["rule"] == "adopter/softmax"
    assert finding["not_counted"].startswith("gains nothing on cpu")
    assert (data["expected_speed"], data["candidates"]) == (None, [])
    text = regraft("profile", "softmax.py:build", cwd=here).stdout
    assert "no gain in time is expected" in text
    assert "next:" not in text


@pytest.mark.parametrize(
    ("target", "mode", "message"),
    [
        ("broken", "inference", "the model does not run: KeyError: 'weights'"),
        ("untrainable", "training", "nothing in the model's output has a gradient"),
        ("replacing", "inference", "the model replaces Python's trace function"),
        ("plain", "inference", "Linear has no Python source to profile"),
        ("alone", "inference", "returns Model, not (model, inputs)"),
        ("absent", "inference", "has no function absent"),
    ],
)
def test_what_cannot_be_profiled_is_an_error(
    here: Path, target: str, mode: str, message: str
) -> None:
    result = regraft("profile", f"targets.py:{target}", "--mode", mode, cwd=here)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: targets.py:{target}")
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("is_compiled_before", [False, True])
def test_compiled_model_is_an_error(model: Any, is_compiled_before: bool) -> None:
    subject, inputs = torch.compile(model.Model(), backend="eager"), torch.randn(64, 128)
    if is_compiled_before:
        subject(inputs)
    with pytest.raises(BenchError, match="TORCH_COMPILE_DISABLE=1 to profile"):
        profile_of(subject, inputs, "inference")


def test_what_was_compiled_before_is_no_matter(model: Any) -> None:
    torch.compile(model.Model(), backend="eager")(torch.randn(64, 128))
    result = profile_of(model.Model(), torch.randn(64, 128), "inference")
    assert row_of(result, "Large.forward").calls == 1


def test_unknown_rule_is_an_error(here: Path) -> None:
    result = regraft("profile", "targets.py:build", "--packs", "torch/absent", cwd=here)
    assert result.returncode == 2
    assert "torch/absent" in result.stderr
