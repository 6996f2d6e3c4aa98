"""Test changes that act for options in pairs, of another form, or that only a lookup names."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from verdicts import verdict_on

pytest.importorskip("torch")

from regraft.verification.child.checks.option_values_in_source import annotated_choices, other_forms
from regraft.verification.child.drivers.config_variations import second_values

pytestmark = pytest.mark.usefixtures("here")

HEAD = "import math\nimport torch\nfrom torch import nn\n\n\n"
# a class, lines of it, and what they become
WRONG = {
    "attributes that a loop sets": (
        """\
class Model(nn.Module):
    def __init__(self, dim=8, **kwargs):
        super().__init__()
        for key, value in {"scale": 1.0, "shift": 0.0, **kwargs}.items():
            setattr(self, key, value)
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return self.fc(x) * self.scale + self.shift
""",
        "self.fc(x) * self.scale + self.shift",
        "(self.fc(x) + self.shift) * self.scale",
    ),
    "a number beside a flag": (
        """\
class Model(nn.Module):
    def __init__(self, size=8, num_layers=1, bidirectional=False):
        super().__init__()
        self.rnn = nn.GRU(size, size, num_layers, batch_first=True, bidirectional=bidirectional)
        self.bidirectional = bidirectional

    def forward(self, x):
        _, h = self.rnn(x)
        if self.bidirectional:
            return torch.cat((h[-2], h[-1]), dim=-1)
        return h[-1]
""",
        "(h[-2], h[-1])",
        "(h[0], h[1])",
    ),
    "a tuple where a number is the default": (
        """\
class Model(nn.Module):
    def __init__(self, channels=4, kernel_size=3):
        super().__init__()
        if isinstance(kernel_size, int):
            kernel_size = (kernel_size, kernel_size)
        height, width = kernel_size
        self.conv = nn.Conv2d(
            channels, channels, kernel_size, padding=(height // 2, width // 2)
        )

    def forward(self, x):
        return self.conv(x)
""",
        "padding=(height // 2, width // 2)",
        "padding=(height // 2, height // 2)",
    ),
    "an entry that is missing": (
        """\
class Model(nn.Module):
    def __init__(self, dim=8, norm_args={"affine": True}):
        super().__init__()
        eps = norm_args.get("eps", 1e-5)
        self.norm = nn.LayerNorm(dim, eps=eps, elementwise_affine=norm_args["affine"])

    def forward(self, x):
        return self.norm(x)
""",
        'norm_args.get("eps", 1e-5)',
        "1e-5",
    ),
    "a token that is 0": (
        """\
class Model(nn.Module):
    def __init__(self, vocab=50, dim=8, padding_idx=None):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.padding_idx = padding_idx

    def forward(self, ids):
        x = self.embed(ids)
        if self.padding_idx is not None:
            x = x * ids.ne(self.padding_idx)[..., None]
        return x.sum(1)
""",
        "if self.padding_idx is not None:",
        "if self.padding_idx:",
    ),
    "a rate that is no power of two": (
        """\
class Model(nn.Module):
    def __init__(self, channels=32, ratio=0.25, divisor=8):
        super().__init__()
        hidden = int(channels * ratio)
        hidden = max(divisor, (hidden + divisor // 2) // divisor * divisor)
        self.fc = nn.Sequential(nn.Linear(channels, hidden), nn.Linear(hidden, channels))

    def forward(self, x):
        return self.fc(x)
""",
        "(hidden + divisor // 2) // divisor * divisor",
        "hidden // divisor * divisor",
    ),
    "a device": (
        """\
class Model(nn.Module):
    def __init__(self, dim=8, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim, device=device, dtype=dtype))

    def forward(self, x):
        return x * self.weight
""",
        "torch.ones(dim, device=device, dtype=dtype)",
        "torch.ones(dim, dtype=dtype)",
    ),
    "a member of an enumeration": (
        """\
from enum import Enum


class Kind(Enum):
    MEAN = 1
    MAX = 2


class Model(nn.Module):
    def __init__(self, dim=8, kind: Kind = Kind.MEAN):
        super().__init__()
        self.kind = kind
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return self.fc(x.amax(1) if self.kind is Kind.MAX else x.mean(1))
""",
        "x.amax(1)",
        "x.amin(1)",
    ),
    "an odd width": (
        """\
def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + rotated * sin
""",
        "half = x.shape[-1] // 2",
        "half = (x.shape[-1] + 1) // 2",
    ),
}
RIGHT = {
    "attributes that a loop sets": ("self.fc(x) * self.scale", "self.scale * self.fc(x)"),
    "a number beside a flag": ("(h[-2], h[-1])", "[h[-2], h[-1]]"),
    "a tuple where a number is the default": (
        "padding=(height // 2, width // 2)",
        "padding=tuple(size // 2 for size in kernel_size)",
    ),
    "an entry that is missing": (
        'norm_args.get("eps", 1e-5)',
        'norm_args["eps"] if "eps" in norm_args else 1e-5',
    ),
    "a device": ("torch.ones(dim, device", "torch.ones((dim,), device"),
    "a member of an enumeration": ("x.amax(1)", "x.max(dim=1).values"),
    "an odd width": ("x[..., half:], x[..., :half]", "x[..., half:], x[..., 0:half]"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_a_change_that_acts_for_other_forms_of_options_is_refuted(
    case: str, tmp_path: Path
) -> None:
    text, before, after = WRONG[case]
    verdict = verdict_on(tmp_path, HEAD + text, before, after)
    assert verdict.status == "refuted", verdict


@pytest.mark.slow
@pytest.mark.parametrize("case", RIGHT)
def test_a_right_change_of_options_is_proved(case: str, tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, HEAD + WRONG[case][0], *RIGHT[case])
    assert verdict.status == "proved", verdict


class Kind(Enum):
    MEAN = 1
    LAST = 2


class Layer:
    def __init__(self, kind: Literal["mean", "last"] = "mean", size: int = 2) -> None:
        self.kind, self.size = kind, size


def _other_values(name: str, value: Any) -> tuple[Any, ...]:
    """Return the second values of an option without choices."""
    overrides = second_values({name: value}, frozenset({name}), {})
    return tuple(override[name] for override in overrides)


def _forms(name: str, value: Any, source: str) -> list[Any]:
    """Return the other forms of an option that a source asks for."""
    return list(other_forms(name, value, ast.parse(source), _other_values))


def test_the_source_tells_which_forms_an_option_has() -> None:
    assert _forms("kind", Kind.MEAN, "") == [Kind.LAST]
    assert _forms("kernel", 3, "isinstance(kernel, int)") == [(3, 5), [3, 4]]
    assert _forms("kernel", 3, "to_2tuple(self.kernel)") == [(3, 5), [3, 4]]
    assert _forms("kernel", (3, 3), "isinstance(kernel, tuple)") == [3]
    assert _forms("kernel", 3, "isinstance(stride, int)") == []
    assert _forms("act", "gelu", "FUNCTIONS[act.lower()]") == ["GELU"]
    assert _forms("act", "gelu", "FUNCTIONS[act]") == []
    assert _forms("act", "gelu", "act.strip().lower()") == ["GELU", " gelu "]
    assert _forms("act", "quick_gelu", "act.replace('-', '_')") == ["quick-gelu"]
    options: Mapping[str, Any] = {"affine": True}
    assert _forms("options", options, "options.get('bias', False), 'affine' in options") == [
        {"affine": True, "bias": True}
    ]
    assert _forms("options", options, "options.pop('act', act())") == [{"affine": True, "act": 0.5}]


def test_annotations_tell_choices() -> None:
    choices = annotated_choices({"kind": "mean"}, Layer, {"size": (1,)})
    assert choices == {"size": (1,), "kind": ("mean", "last")}
