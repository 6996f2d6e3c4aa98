"""Test wrong rewrites that leave a class's own outputs alone: subclasses, builders, state, printed
text, joint chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regraft.verification import Verdict, verify

pytestmark = pytest.mark.usefixtures("here")

torch = pytest.importorskip("torch")

HEAD = """
import time

import torch
import torch.nn.functional as F
from torch import nn

"""

# Each sample: the changed class, the source, and what the rewrite replaces by what.
FAMILY = {
    "a subclass overrides what the constructor calls": (
        "Base",
        """
class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.base_dense = nn.Linear(4, 4)
        self.build()

    def build(self):
        self.act = nn.GELU()

    def forward(self, x):
        return self.act(self.base_dense(x))


class Heir(Base):
    def build(self):
        self.act = nn.ReLU()
""",
        "self.act(self.base_dense(x))",
        "F.gelu(self.base_dense(x))",
    ),
    "a subclass replaces a layer in a method": (
        "Switch",
        """
class Switch(nn.Module):
    def __init__(self):
        super().__init__()
        self.switch_dense = nn.Linear(4, 4)
        self.act = nn.GELU()

    def forward(self, x):
        return self.act(self.switch_dense(x))


class Switched(Switch):
    def train(self, mode=True):
        self.act = nn.ReLU()
        return super().train(mode)
""",
        "self.act(self.switch_dense(x))",
        "F.gelu(self.switch_dense(x))",
    ),
    "another class replaces an activation": (
        "Inner",
        """
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner_dense = nn.Linear(4, 4)
        self.act = nn.GELU()

    def forward(self, x):
        return self.act(self.inner_dense(x))


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.inner.act = nn.ReLU()

    def forward(self, x):
        return self.inner(x)
""",
        "self.act(self.inner_dense(x))",
        "F.gelu(self.inner_dense(x))",
    ),
}

DROPOUT_FAMILY = {
    "another class replaces a dropout": (
        "Block",
        """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return self.norm(self.dropout(x) + x)


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.block.dropout = nn.Dropout1d(0.5)

    def forward(self, x):
        return self.block(x)
""",
        "self.norm(self.dropout(x) + x)",
        "self.norm(F.dropout(x, self.dropout.p, self.training) + x)",
    ),
    "a subclass builds a layer that only looks like dropout": (
        "Plain",
        """
class Twice(nn.Module):
    p = 0.5

    def forward(self, x):
        return 2 * x


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.build()
        self.plain_norm = nn.LayerNorm(4)

    def build(self):
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.plain_norm(self.dropout(x) + x)


class Doubled(Plain):
    def build(self):
        self.dropout = Twice()
""",
        "self.plain_norm(self.dropout(x) + x)",
        "self.plain_norm(F.dropout(x, self.dropout.p, self.training) + x)",
    ),
}

STATE = {
    "an attribute that finally sets": (
        "Remembers",
        """
class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 4)

    def forward(self, x):
        h = x
        try:
            h = self.dense(x)
            return F.gelu(h)
        finally:
            self.seen = {"last": [h]}
""",
        '{"last": [h]}',
        '{"last": [x]}',
    ),
    "text that is printed": (
        "Prints",
        """
class Prints(nn.Module):
    def forward(self, x):
        print("sum", x.sum().item())
        return F.gelu(x)
""",
        '"sum", x.sum()',
        '"sum", x.abs().sum()',
    ),
    "a variable of the file": (
        "Counts",
        """
CALLS = {"count": 0}


class Counts(nn.Module):
    def forward(self, x):
        CALLS["count"] += 1
        return F.relu(x)
""",
        'CALLS["count"] += 1',
        'CALLS["count"] += 2',
    ),
    "a variable that the call itself rebinds": (
        "Reads",
        """
H = torch.ones(1)


def update():
    global H
    H = torch.full((1,), 3.0)


class Reads(nn.Module):
    def forward(self, x):
        h = H
        update()
        return x * H + h
""",
        "x * H + h",
        "x * h + h",
    ),
    "an attribute of the constructor": (
        "Holds",
        """
class Holds(nn.Module):
    def __init__(self):
        super().__init__()
        self.limit = 1.5

    def forward(self, x):
        return torch.relu(x)
""",
        "self.limit = 1.5",
        "self.limit = 2.5",
    ),
    "a layer that the call replaces": (
        "Replaces",
        """
class Replaces(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.ReLU()

    def forward(self, x):
        y = self.first(x)
        self.first = nn.GELU()
        return y
""",
        "        self.first = nn.GELU()\n",
        "",
    ),
}

CHANCE = {
    "a shared mask that is drawn for every item": (
        "Shared",
        """
class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        h = self.dropout(x)
        return [self.norm(h + r) for r in (x, 2 * x)]
""",
        "self.norm(h + r)",
        "self.norm(self.dropout(x) + r)",
    ),
    "masks of their own that become shared": (
        "Separate",
        """
class Separate(nn.Module):
    def __init__(self):
        super().__init__()
        self.separate = nn.Dropout(0.5)

    def forward(self, x):
        return torch.cat([self.separate(x), self.separate(-x)], -1)
""",
        "torch.cat([self.separate(x), self.separate(-x)], -1)",
        "torch.cat([(h := self.separate(x)), -h], -1)",
    ),
}

EQUAL = {
    "dropouts in another order": (
        "Ordered",
        """
class Ordered(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        h = self.dropout(x)
        r = self.dropout(-x)
        return self.norm(h + r), r
""",
        "        h = self.dropout(x)\n        r = self.dropout(-x)\n",
        "        r = self.dropout(-x)\n        h = self.dropout(x)\n",
    ),
    "a sum that is rounded in another way, a clock and an address": (
        "Steady",
        """
class Steady(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 4)
        self.born = time.perf_counter()
        self.calls = 0

    def forward(self, x):
        y = self.dense(x)
        self.calls += 1
        self.when = time.perf_counter()
        self.size = y.norm().item()
        print(f"{self.size:.9f} {object()} {self.size:.3e}", type(self), __file__, y)
        return y
""",
        "y = self.dense(x)",
        "y = self.dense(x / 3 * 3)",
    ),
}

Samples = dict[str, tuple[str, str, str, str]]


def run(folder: Path, samples: Samples, **options: Any) -> dict[str, Verdict]:
    """Verify all samples as one file in one run."""
    text = HEAD + "\n".join(source for _, source, _, _ in samples.values())
    changed = text
    for _, source, old, new in samples.values():
        assert source.count(old) == 1
        assert changed.count(old) == 1
        changed = changed.replace(old, new)
    path = folder / "model.py"
    path.write_text(text)
    return {
        verdict.definition: verdict
        for verdict in verify(path, changed.encode(), time_limit=120, **options)
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "samples", [FAMILY, DROPOUT_FAMILY, STATE, CHANCE], ids=["family", "dropout", "state", "chance"]
)
def test_wrong_rewrites_are_refuted(tmp_path: Path, samples: Samples) -> None:
    verdicts = run(tmp_path, samples)
    expected = {definition: "refuted" for definition, *_ in samples.values()}
    assert {name: verdict.status for name, verdict in verdicts.items()} == expected, {
        n: v.reason for n, v in verdicts.items()
    }


@pytest.mark.slow
def test_equal_rewrites_are_proved(tmp_path: Path) -> None:
    verdicts = run(tmp_path, EQUAL)
    assert {name: (verdict.status, verdict.reason) for name, verdict in verdicts.items()} == {
        definition: ("proved", "") for definition, *_ in EQUAL.values()
    }
    assert verdicts["Ordered"].evidence["dropout"] == ["distribution"]


STRANGERS = """
class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 4)
        self.act = nn.GELU()

    def forward(self, x):
        return self.act(self.dense(x))


class Heir(Base):
    def __init__(self, *, unguessable_thing):
        super().__init__()
        self.act = unguessable_thing()


KINDS = {"base": Base}


class Outer(nn.Module):
    def __init__(self, *, unguessable_thing):
        super().__init__()
        self.inner = KINDS["base"]()
        self.inner.act = unguessable_thing()

    def forward(self, x):
        return self.inner(x)


class Top(nn.Module):
    def __init__(self, *, unguessable_thing):
        super().__init__()
        self.outer = Outer(unguessable_thing=unguessable_thing)
        self.outer.inner.act = unguessable_thing()

    def forward(self, x):
        return self.outer(x)


def patched(*, unguessable_thing):
    model = Base()
    model.act = unguessable_thing()
    return model


class Trainer:
    def make(self):
        return Base()


class Stranger(nn.Module):
    def __init__(self, *, unguessable_thing):
        super().__init__()
        self.other = unguessable_thing()

    def forward(self, x):
        return self.other(x)
"""


@pytest.mark.slow
def test_relatives_that_never_ran_are_named(tmp_path: Path) -> None:
    samples = {
        "right here": ("Base", STRANGERS, "self.act(self.dense(x))", "self.act(self.dense(1 * x))")
    }
    verdict = run(tmp_path, samples)["Base"]
    assert verdict.status == "unproven"
    others = [
        "Heir, which inherits from it, never ran",
        "Outer, which builds it, never ran",
        "Top, which can modify it, never ran",
        "patched, which can modify it, never ran",
    ]
    builder = "Trainer, which builds it, never ran"
    assert verdict.evidence["relatives not run"] == [*others, builder]
    assert verdict.evidence["builders not run"] == []
    assert verdict.reason.startswith(
        "Heir, which inherits from it, never ran; Outer, which builds it"
    )
    # all that it does is to build a model without arguments, as the verifier does
    verdict = run(tmp_path, samples, by_rules=True)["Base"]
    assert verdict.evidence["relatives not run"] == others
    assert verdict.evidence["builders not run"] == ["Trainer"]


BUILDER_ACTS = """\
class Gain(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.gain = 1.0

    def set_gain(self, gain):
        self.gain = gain

    def forward(self, x):
        return self.dense(x) * self.gain


class Net(nn.Module):
    def __init__(self, *, unguessable_thing):
        super().__init__()
        self.width = unguessable_thing()
        self.inner = Gain(16)
        self.inner.set_gain(-2.0)

    def forward(self, x):
        return self.inner(x)
"""


def test_no_part_stands_in_for_the_builder_of_an_edit(tmp_path: Path) -> None:
    new = "self.dense(x) * abs(self.gain)"
    verdict = run(tmp_path, {"": ("Gain", BUILDER_ACTS, "self.dense(x) * self.gain", new)})["Gain"]
    assert verdict.status != "proved"


@pytest.mark.slow
def test_an_equal_distribution_is_rarely_suspected_and_never_refuted() -> None:
    from regraft.verification.child.distribution_tests import (
        SUSPICION,
        describe_confirmed_difference,
        find_suspicious_statistic,
    )

    generator = torch.Generator().manual_seed(0)
    values = torch.randn(40, generator=generator).double()

    def runs(count: int) -> dict[str, object]:
        keep = (torch.rand(count, 40, generator=generator) < 0.75).double() / 0.75
        return {"output": values * keep, "other": torch.tanh(values.flip(0) * keep).cumsum(1)}

    suspected = refuted = 0
    for _ in range(100):
        suspect = find_suspicious_statistic(runs(64), runs(64))
        if suspect is not None:
            suspected += 1
            refuted += bool(describe_confirmed_difference(suspect, runs(128), runs(128)))
    assert suspected <= 100 * SUSPICION + 4
    assert refuted == 0
