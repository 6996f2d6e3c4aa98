"""Test classes that are built and called as a model in another file of the repository does it."""

from pathlib import Path
from typing import Any

import pytest

from regraft.verification import Verdict, verify

pytest.importorskip("torch")

import torch

from regraft.verification.child.call_arguments import Call
from regraft.verification.child.drivers import borrowed_instances
from regraft.verification.child.drivers.argument_slots import BATCH, LENGTH, Dim, Slot

LAYERS = '''
import torch
from torch import nn


class Turned(nn.Module):
    """A gated layer whose pairs of elements are turned by matrices."""

    def __init__(self, plan, bias):
        super().__init__()
        first, self.size = plan
        self.layer, self.gate = nn.Linear(first, first, bias=bias), nn.Linear(first, first)

    def forward(self, states, text, matrices):
        both = torch.cat((text, states), dim=1)
        pairs = both.reshape(*both.shape[:-1], -1, 1, 2)
        both = (matrices * pairs).sum(-1).reshape(both.shape)
        own = both[:, text.shape[1] :]
        states = states + torch.sigmoid(self.gate(own)) * self.layer(own)
        return states, text
'''

MODEL = """
import torch
from torch import nn

from {package}layers import Turned


class Model(nn.Module):
    def __init__(self, words: int = 40, width: int = 16, depth: int = 2):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Turned((width, 4), bias=True) for _ in range(depth))

    def forward(self, input_ids):
        text = self.words(input_ids)
        states = text[:, :3].tanh()
        angles = torch.arange(text.shape[1] + 3)[:, None] / torch.arange(1, 9)
        rows = torch.stack((angles.cos(), -angles.sin(), angles.sin(), angles.cos()), -1)
        matrices = rows.reshape(1, text.shape[1] + 3, 8, 2, 2)
        for block in self.blocks:
            states, text = block(states, text, matrices)
        return states
"""

GATE = "torch.sigmoid(self.gate(own)) * self.layer(own)"


def verdict(
    folder: Path, package: str, after: str, layers: str = LAYERS, model: str = MODEL
) -> Verdict:
    """Return the verdict on the layers of a repository in which the gate becomes `after`."""
    place = folder / package if package else folder
    place.mkdir(exist_ok=True)
    (folder / ".git").mkdir(exist_ok=True)
    if package:
        (place / "__init__.py").write_text("")
    (place / "model.py").write_text(model.format(package="." if package else ""))
    path = place / "layers.py"
    path.write_text(layers)
    (outcome,) = verify(path, layers.replace(GATE, after).encode())
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize("package", ["network", ""])
def test_a_layer_is_built_and_called_as_a_model_of_another_file_does_it(
    tmp_path: Path, package: str
) -> None:
    proved = verdict(tmp_path, package, "self.layer(own) * self.gate(own).sigmoid()")
    assert (proved.status, proved.reason) == ("proved", "")
    assert "Turned(plan=(16, 4), bias=True)" in str(proved.evidence["models"])
    assert "1, 11, 8, 2, 2" in str(proved.evidence["shapes"])


def test_inputs_are_described_by_recorded_calls_in_any_form() -> None:
    class Part(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, scale: float, ids: Any = None) -> Any:
            return x * scale

    calls = {
        (batch, length): Call(
            (torch.ones(batch, length, 4), 2.0), {"ids": torch.ones(7, batch).long()}
        )
        for batch, length in ((3, 8), (1, 5))
    }
    spec = borrowed_instances._spec_of(Part(), calls)
    assert spec["x"] == Slot("normal", (BATCH, LENGTH, Dim(4)))
    assert spec["scale"] == Slot("plain", value=2.0)
    assert spec["ids"] == Slot("ids", (Dim(7), BATCH), 2, lowest=0)


@pytest.mark.slow
def test_a_wrong_gate_is_refuted_on_the_calls_of_the_model(tmp_path: Path) -> None:
    wrong = verdict(tmp_path, "network", "torch.tanh(self.gate(own)) * self.layer(own)")
    assert wrong.status == "refuted"
    assert wrong.evidence["reproducer"]


@pytest.mark.slow
def test_a_layer_that_a_script_cannot_build_is_refuted_without_one(tmp_path: Path) -> None:
    """A function among the arguments has no form in JSON."""
    layers = LAYERS.replace(
        "def __init__(self, plan, bias):", "def __init__(self, plan, bias, act):"
    )
    model = MODEL.replace("bias=True)", "bias=True, act=torch.sigmoid)")
    assert layers != LAYERS and model != MODEL
    wrong = verdict(
        tmp_path, "network", "torch.tanh(self.gate(own)) * self.layer(own)", layers, model
    )
    assert wrong.status == "refuted"
    assert "reproducer" not in wrong.evidence


def test_a_script_with_loops_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        MODEL.format(package="") + "\nfor step in range(3):\n    open('ran', 'w')\n"
    )
    (tmp_path / ".git").mkdir()
    path = tmp_path / "layers.py"
    path.write_text(LAYERS)
    after = "self.layer(own) * torch.sigmoid(self.gate(own))"
    (unproven,) = verify(path, LAYERS.replace(GATE, after).encode())
    assert unproven.status == "unproven"
    assert not any("train" in str(reason) for reason in unproven.evidence["skipped"])  # type: ignore[attr-defined]


@pytest.mark.slow
def test_arguments_are_recorded_before_the_constructor_changes_them(tmp_path: Path) -> None:
    layers = LAYERS.replace("self.size = plan\n", "self.size = plan.pop(0), plan.pop()\n")
    model = MODEL.replace("(width, 4)", "[width, 4]")
    assert layers != LAYERS and model != MODEL
    proved = verdict(
        tmp_path, "network", "self.layer(own) * self.gate(own).sigmoid()", layers, model
    )
    assert (proved.status, proved.reason) == ("proved", "")
    assert "Turned(plan=[16, 4], bias=True)" in str(proved.evidence["models"])
