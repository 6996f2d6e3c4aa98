"""Test builders that no model runs: of subclasses, and subclasses of builders with attributes of
their own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from regraft.verification import Verdict, verify
from regraft.verification.definition_changes import find_changes

pytestmark = pytest.mark.usefixtures("here")

PROJ = """\
import torch
from torch import nn


class Proj(nn.Module):
    def __init__(self, dim, gain=1.0):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.gain = gain

    def forward(self, x):
        y = self.fc(x)
        return y * self.gain


"""
NET = """
    def __init__(self, plan):
        super().__init__()
        self.proj = {}

    def forward(self, x):
        return self.proj(x)
"""
EMPTY_SUBCLASS = "class Minus(Proj):\n    pass\n\n\n"
SUBCLASS = """\
class Wide(Proj):
    def __init__(self, dim, gain=2.0):
        super().__init__(dim, gain)
        self.extra = nn.Linear(dim, dim)

    def forward(self, x):
        return self.extra(super().forward(x))


"""
WRONG, RIGHT = "y * abs(self.gain)", "self.gain * y"
MODELS = {
    "a subclass that adds nothing": EMPTY_SUBCLASS
    + "class Net(nn.Module):"
    + NET.format("Minus(plan.stage(0).width, gain=-1.0)"),
    "a subclass with a constructor": SUBCLASS
    + "class Net(nn.Module):"
    + NET.format("Wide(plan.stage(0).width, gain=-1.0)"),
    "an attribute of a class": "class Base(nn.Module):\n    gain = 2.0\n"
    + NET.format("Proj(plan.stage(0).width, gain=self.gain)")
    + "\n\nclass Net(Base):\n    gain = -1.0\n",
}


def verdict_on(tmp_path: Path, text: str, after: str) -> Verdict:
    """Return the verdict on another product in a text with `Proj`."""
    path = tmp_path / "model.py"
    path.write_text(text)
    (verdict,) = verify(path, text.replace("y * self.gain", after).encode())
    return verdict


@pytest.mark.parametrize("case", MODELS)
def test_a_wrong_change_that_an_unseen_builder_shows_is_not_proved(
    case: str, tmp_path: Path
) -> None:
    verdict = verdict_on(tmp_path, PROJ + MODELS[case], WRONG)
    assert verdict.status == "refuted" or (
        verdict.status,
        "Net, which builds it, never ran" in verdict.reason,
    ) == ("unproven", True), verdict


@pytest.mark.slow
@pytest.mark.parametrize("case", ["a subclass that adds nothing", "a subclass with a constructor"])
def test_a_right_change_is_proved_where_the_builder_of_a_subclass_runs(
    case: str, tmp_path: Path
) -> None:
    text = (PROJ + MODELS[case]).replace("plan.stage(0).width", "plan")
    verdict = verdict_on(tmp_path, text, RIGHT)
    assert verdict.status == "proved", verdict


@pytest.mark.slow
def test_a_subclass_of_a_builder_with_another_attribute_is_run(tmp_path: Path) -> None:
    text = (PROJ + MODELS["an attribute of a class"]).replace("plan.stage(0).width", "plan")
    assert verdict_on(tmp_path, text, RIGHT).status == "proved"
    assert verdict_on(tmp_path, text, WRONG).status == "refuted"


def relatives_of(text: str) -> dict[str, object]:
    """Return the constructions of the relatives by name, for a change of the product."""
    (change,) = find_changes(text.encode(), text.replace("y * self.gain", RIGHT).encode())
    return {relative.name: relative.constructions for relative in change.relatives}


def test_an_empty_subclass_is_built_as_its_base_is() -> None:
    text = PROJ + MODELS["a subclass that adds nothing"]
    text = text.replace("plan.stage(0).width", "plan")
    assert relatives_of(text) == {"Minus": None, "Net": ((("dim", ""), ("gain", "-1.0")),)}
    assert relatives_of(text.replace("    pass\n", "    gain = 1\n"))["Net"] is None


@pytest.mark.parametrize(
    ("statement", "is_relative"),
    [
        ("    gain = -1.0", True),
        ("    gain: float = -1.0", True),
        ("    gain: float", False),
        ("    title = -1.0", False),
        ('    """A gain."""', False),
    ],
)
def test_a_subclass_of_a_builder_counts_where_it_redefines_names_that_are_read(
    statement: str, is_relative: bool
) -> None:
    text = (PROJ + MODELS["an attribute of a class"]).replace("    gain = -1.0", statement)
    assert ("Net" in relatives_of(text)) is is_relative


TIED = """\
class Norm(nn.Module):
    def __init__(self, dim, gain=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.gain = gain

    def forward(self, x):
        y = x * self.weight
        return y * self.gain


class Model(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.table = nn.Embedding(9, plan)
        self.norm = Norm(plan)
        self.head = nn.Linear(plan, 9, bias=False)
        self.table.weight = self.head.weight

    def forward(self, ids):
        return self.head(self.norm(self.table(ids)))
"""


@pytest.mark.parametrize(
    ("before", "after", "is_only_built"),
    [
        ("", "", True),
        ("self.table.weight =", "self.norm.weight =", False),
        ("self.table.weight =", "self.table.gain =", False),
        ("nn.Embedding(9, plan)", "Norm(plan)", False),
        ("nn.Embedding(9, plan)", "plan.table", False),
        ("class Model(nn.Module)", "class Model(Base)", False),
        ("self.head = nn", "self.table = self.norm\n        self.head = nn", False),
        ("self.head = nn", "self.table, _ = self.norm, 0\n        self.head = nn", False),
    ],
)
def test_layers_that_share_a_weight_do_not_modify_a_class_with_a_weight(
    before: str, after: str, is_only_built: bool
) -> None:
    text = "import torch\nfrom torch import nn\n\n\n" + TIED
    if before:
        assert before in text
        text = text.replace(before, after)
    constructions = relatives_of(text)["Model"]
    assert (constructions is not None) is is_only_built
