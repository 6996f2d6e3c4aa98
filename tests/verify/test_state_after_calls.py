"""Test state that shows after a call only (parameters, buffers of a checkpoint, what several calls
leave, tensors of inference mode) and values that only whole models give to plain classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from verdicts import SWISH, verdict_on

pytest.importorskip("torch")

from regraft.verification import verify

pytestmark = pytest.mark.usefixtures("here")

HEAD = "import torch\nfrom torch import nn\n\n\n"
ADAPTED = """\
class Model(nn.Module):
    def __init__(self, width=8, rank=2, alpha=4.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width))
        self.down = nn.Parameter(torch.randn(rank, width))
        self.up = nn.Parameter(torch.randn(width, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return x @ self.weight.T + x @ self.down.T @ self.up.T * self.scale

    def merge(self):
        self.weight.data += self.scale * (self.up @ self.down)

    def freeze(self):
        self.down.requires_grad_(False)
        self.up.requires_grad_(False)
"""
ROUTER = """\
class Model(nn.Module):
    def __init__(self, width=8, experts=4):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.register_buffer("correction", torch.zeros(experts))
        self.register_buffer("places", torch.arange(experts))

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        chosen = (scores + self.correction).topk(2, dim=-1).indices
        return scores.gather(-1, chosen), self.places[chosen]
"""
OBSERVER = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("largest", torch.zeros(()))

    def forward(self, x):
        self.largest = torch.maximum(self.largest, x.detach().abs().max())
        return x / (self.largest + 1)
"""
QUEUE = """\
class Model(nn.Module):
    def __init__(self, width=8, size=32):
        super().__init__()
        self.size = size
        self.register_buffer("keys", torch.zeros(size, width))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def forward(self, x):
        start = int(self.place)
        places = (start + torch.arange(len(x))) % self.size
        self.keys[places] = x.detach()
        self.place[0] = (start + len(x)) % self.size
        return x @ self.keys.T
"""
AVERAGE = """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.detach().flatten(0, -2).mean(0), 0.1)
        return x - self.mean
"""
FROZEN = """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        with torch.no_grad():
            return self.fc(x).relu()
"""
ACTIVATED = f"""\
{SWISH}

class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return Swish.apply(self.fc(x))
"""
REPLACED = """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.mixture = nn.Parameter(torch.randn(3))
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        self.mixture = nn.Parameter(torch.softmax(self.mixture, -1))
        first, second, third = self.mixture
        return first * x + second * self.fc(x) + third * torch.relu(x)
"""
WRONG = {
    "another parameter in the place of one": (
        REPLACED,
        """\
        self.mixture = nn.Parameter(torch.softmax(self.mixture, -1))
        first, second, third = self.mixture
""",
        """\
        first, second, third = nn.Parameter(torch.softmax(self.mixture, -1))
""",
    ),
    "a parameter that a method changes": (ADAPTED, "+= self.scale *", "+="),
    "a parameter that a method freezes": (ADAPTED, "self.up.requires_grad_(False)", "pass"),
    "zeros in the checkpoint": (
        ROUTER,
        "return scores.gather",
        "return (scores + self.correction).gather",
    ),
    "whole numbers in the checkpoint": (ROUTER, "self.places[chosen]", "chosen"),
    "the largest of several calls": (
        OBSERVER,
        "torch.maximum(self.largest, x.detach().abs().max())",
        "x.detach().abs().max()",
    ),
    "a buffer after two calls": (QUEUE, "(start + len(x)) % self.size", "start + len(x)"),
    "another tensor for a buffer": (AVERAGE, "self.mean.lerp_(", "self.mean = self.mean.lerp("),
    "inference mode": (FROZEN, "torch.no_grad()", "torch.inference_mode()"),
    "large values in a plain class": (
        ACTIVATED,
        "gate = torch.sigmoid(x)",
        "gate = torch.exp(x) / (1 + torch.exp(x))",
    ),
}
RIGHT = {
    "another parameter in the place of one": (
        REPLACED,
        "torch.softmax(self.mixture, -1)",
        "self.mixture.softmax(-1)",
    ),
    "a parameter that a method changes": (
        ADAPTED,
        "self.scale * (self.up @ self.down)",
        "(self.up @ self.down) * self.scale",
    ),
    "a buffer that is changed in place": (
        AVERAGE,
        "self.mean.lerp_(x.detach()",
        "self.mean = self.mean.lerp_(x.detach()",
    ),
    "zeros in the checkpoint": (
        ROUTER,
        "scores + self.correction",
        "self.correction + scores",
    ),
    "large values in a plain class": (ACTIVATED, "gate = torch.sigmoid(x)", "gate = x.sigmoid()"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_difference_of_state_is_refuted(tmp_path: Path, name: str) -> None:
    text, before, after = WRONG[name]
    verdict = verdict_on(tmp_path, HEAD + text, before, after)
    assert verdict.status == "refuted", verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_equal_state_is_proved(tmp_path: Path, name: str) -> None:
    text, before, after = RIGHT[name]
    verdict = verdict_on(tmp_path, HEAD + text, before, after)
    assert verdict.status == "proved", verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize(("after", "status"), [("2 * step", "refuted"), ("step * 1", "proved")])
def test_a_driver_may_return_a_function(tmp_path: Path, after: str, status: str) -> None:
    path = tmp_path / "schedule.py"
    path.write_text("def rate(step: int, warm: int = 10):\n    return min(step, warm) / warm\n")
    (tmp_path / "driver.py").write_text(
        "def build(module):\n    return module.rate, [{'step': n} for n in (1, 5, 9, 10, 11)]\n"
    )
    changed = path.read_text().replace("min(step", f"min({after}")
    (verdict,) = verify(path, changed.encode(), driver="driver.py:build")
    assert verdict.status == status, verdict.reason


ROTARY = """\
class Model(nn.Module):
    def __init__(self, dim=8, start=-2.0):
        super().__init__()
        inverse = 1.0 / 100 ** (torch.arange(0, dim, 2).float() / dim)
        self.register_buffer("inverse", inverse, persistent=False)
        self.gain = float(start)

    def forward(self, x):
        return x * self.inverse.repeat(2).cos() * self.gain
"""


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("2).float() /", "2) /", "refuted"),
        ("float(start)", "torch.tensor(start, dtype=torch.float64).item()", "refuted"),
        ("torch.arange(0, dim, 2).float()", "torch.arange(0, dim, 2).to(torch.float32)", "proved"),
    ],
)
def test_models_are_built_as_libraries_build_them(
    tmp_path: Path, before: str, after: str, status: str
) -> None:
    verdict = verdict_on(tmp_path, HEAD + ROTARY, before, after)
    assert verdict.status == status, verdict.reason


TWO_RESULTS = """\
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        h = self.fc(x)
        return {"features": h, "average": h.clone()}
"""


@pytest.mark.parametrize(("after", "status"), [("h", "refuted"), ("h + 0", "proved")])
def test_results_that_share_memory_are_a_difference(
    tmp_path: Path, after: str, status: str
) -> None:
    verdict = verdict_on(tmp_path, HEAD + TWO_RESULTS, "h.clone()", after)
    assert verdict.status == status, verdict.reason


CACHE = """\
class Model(nn.Module):
    def __init__(self, width=8, size=64):
        super().__init__()
        self.register_buffer("k", torch.zeros(size, width), persistent=False)
        self.length = 0

    def forward(self, k):
        n = k.shape[0]
        self.k[self.length : self.length + n] = k
        self.length += n
        return self.k[: self.length].clone()
"""


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("].clone()", "]", "refuted"),
        ("self.length += n", "self.length = n + self.length", "proved"),
    ],
)
def test_a_buffer_that_keeps_a_graph_does_not_end_the_run(
    tmp_path: Path, before: str, after: str, status: str
) -> None:
    verdict = verdict_on(tmp_path, HEAD + CACHE, before, after)
    assert verdict.status == status, verdict.reason


RECORDER = """\
from torch import nn


class Recorder(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.layer = nn.Linear(dim, dim)
        self.features = {}
        self.layer.register_forward_hook(self.save)

    def save(self, module, args, output):
        self.features[0] = output.detach()

    def forward(self, x):
        x = self.layer(x).relu()
        return x, self.features[0]
"""


@pytest.mark.slow
def test_a_hook_that_is_bound_to_the_original_of_a_copy_leaves_no_tensor_without_data(
    tmp_path: Path,
) -> None:
    verdict = verdict_on(tmp_path, RECORDER, ".relu()", ".clamp(min=0)")
    assert verdict.status == "proved", verdict
    assert verdict_on(tmp_path, RECORDER, ".relu()", ".relu_()").status == "refuted"
