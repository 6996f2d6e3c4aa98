"""Test changes of definitions that are no modules: configurations, mixins, functions of autograd,
which the modules of the file run."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from verdicts import SWISH, verdict_on

pytest.importorskip("torch")

from regraft.verification.child.running_classes import classes_running

pytestmark = pytest.mark.usefixtures("here")

HEAD = "from dataclasses import dataclass\n\nimport torch\nfrom torch import nn\n\n\n"
CONFIGURED = """\
@dataclass
class Config:
    width: int = 16
    ratio: float = 4.0

    @property
    def hidden(self):
        return int(self.width * self.ratio)


class Model(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.up = nn.Linear(config.width, config.hidden)
        self.down = nn.Linear(config.hidden, config.width)

    def forward(self, x):
        return self.down(self.up(x).relu())
"""
MIXED_IN = """\
class Rotates:
    def rotate(self, x, positions):
        rates = 1e4 ** (-torch.arange(0, x.shape[-1], 2).float() / x.shape[-1])
        angles = positions[..., None].float() * rates
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Model(Rotates, nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return self.rotate(self.fc(x), torch.arange(x.shape[-2]))
"""
ACTIVATED = f"""\
{SWISH}

def swish(x):
    return Swish.apply(x)


class Model(nn.Module):
    def forward(self, x):
        return swish(x)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "before", "after", "status"),
    [
        (CONFIGURED, "int(self.width * self.ratio)", "self.width * int(self.ratio)", "refuted"),
        (CONFIGURED, "self.width * self.ratio", "self.ratio * self.width", "proved"),
        (MIXED_IN, "None].float() * rates", "None].to(x.dtype) * rates.to(x.dtype)", "refuted"),
        (MIXED_IN, "a * sin + b * cos", "b * cos + a * sin", "proved"),
        (ACTIVATED, "gate = torch.sigmoid(x)", "gate = torch.sigmoid(x.detach())", "refuted"),
        (ACTIVATED, "gate = torch.sigmoid(x)", "gate = x.sigmoid()", "proved"),
    ],
)
def test_a_definition_that_is_no_module_is_compared_in_modules(
    tmp_path: Path, text: str, before: str, after: str, status: str
) -> None:
    verdict = verdict_on(tmp_path, HEAD + text, before, after)
    assert verdict.status == status, verdict.reason


def test_modules_run_what_they_inherit_from_and_what_they_name_through_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "several_models.py"
    outer = "class Outer(nn.Module):\n    def __init__(self):\n        self.inner = Model()\n"
    path.write_text(HEAD + ACTIVATED + "\n\n" + outer)
    monkeypatch.syspath_prepend(tmp_path)
    several_models = importlib.import_module("several_models")
    try:
        assert classes_running(several_models, "Swish") == {several_models.Model}
        assert classes_running(several_models, "swish") == {several_models.Model}
        assert not classes_running(several_models, "missing")
    finally:
        del sys.modules["several_models"]
