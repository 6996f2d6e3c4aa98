"""Test arguments of `forward` that are objects of classes named in annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

from regraft.verification.child.drivers.argument_slots import BATCH, Dim, Slot
from regraft.verification.child.drivers.guessed_slots import guess_slots
from regraft.verification.child.drivers.model_attempts import attempt
from regraft.verification.child.drivers.slot_values import make_call

pytestmark = pytest.mark.usefixtures("here")

PADDED = """\
import torch
from torch import nn
from torch.nn import functional as F


class Padded:
    def __init__(self, tensors, mask: torch.Tensor | None):
        self.tensors, self.mask = tensors, mask


class Gate(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.scale = nn.Parameter(torch.full((1, width, 1, 1), 0.5))

    def forward(self, x):
        return x * torch.sigmoid(x) * self.scale


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 4, 4)
        self.gate = Gate(8)

    def forward(self, batch: Padded):
        features = self.gate(self.stem(batch.tensors))
        mask = F.interpolate(batch.mask[None].float(), size=features.shape[-2:])[0].bool()
        return features.masked_fill(mask[:, None], 0.0)
"""

MEMORY = """\
import torch
from torch import nn


class Memory:
    def __init__(self):
        self.states = None

    def store(self, states):
        self.states = states


class Cell(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, memory: Memory):
        memory.store(self.linear(x) * torch.sigmoid(x))
        return memory.states + x
"""


DICTIONARY = """\
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, width=16, classes=5):
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def forward(self, batch):
        scores = self.linear(batch["features"] * torch.sigmoid(batch["features"]))
        return scores, scores.mean(1)


def distance(outputs, targets):
    difference = outputs["boxes"] - targets["boxes"]
    return difference.abs().clamp(max=3.0).mean() + outputs["logits"].logsumexp(-1).mean()
"""

ROWS = """\
import torch
from torch import nn


class Matcher(nn.Module):
    def __init__(self, weight: float = 2.0):
        super().__init__()
        self.weight = weight

    @torch.no_grad()
    def forward(self, outputs, targets):
        chances = outputs["logits"].flatten(0, 1).softmax(-1)
        boxes = outputs["boxes"].flatten(0, 1)
        labels = torch.cat([target["labels"] for target in targets])
        wanted = torch.cat([target["boxes"] for target in targets])
        cost = torch.cdist(boxes, wanted, p=1) * self.weight - chances[:, labels]
        sizes = [len(target["boxes"]) for target in targets]
        return [part.argmin(-1) for part in cost.split(sizes, -1)]
"""


def slots_in(text: str, name: str, **options: Any) -> dict[str, Slot]:
    """Return the slots that are guessed for a class of a text."""
    namespace: dict[str, Any] = {"__name__": "texts"}
    exec(compile(text, "texts.py", "exec"), namespace)
    return guess_slots(namespace[name](**options), True, 16)


def test_an_object_of_images_has_a_mask_of_its_pixels() -> None:
    slots = slots_in(PADDED, "Backbone")
    assert slots["batch.tensors"].dims == (BATCH, Dim(3), Dim(32), Dim(32))
    assert slots["batch.mask"].dims == (BATCH, Dim(32), Dim(32))
    batch = make_call(slots, (2, 5), 0).kwargs["batch"]
    assert batch.tensors.shape == (2, 3, 32, 32)
    assert batch.mask.sum().item() == 32 * 8 and batch.mask[1, :, -8:].all()


@pytest.mark.parametrize(
    ("annotation", "default"),
    [("nn.Module", ""), ("list[Padded]", ""), ("Padded | None", ""), ("Padded", " = None")],
)
def test_other_annotations_and_defaults_give_no_object(annotation: str, default: str) -> None:
    text = PADDED.replace("batch: Padded", f"batch: {annotation}{default}")
    assert "batch.tensors" not in slots_in(text, "Backbone")


def test_a_class_that_refuses_the_values_gives_no_object() -> None:
    refusal = "self.tensors, self.mask = tensors, mask[5].missing"
    text = PADDED.replace("self.tensors, self.mask = tensors, mask", refusal)
    assert "batch.tensors" not in slots_in(text, "Backbone")


def test_a_class_that_refuses_a_size_ends_only_that_attempt() -> None:
    line = "        self.tensors, self.mask"
    text = PADDED.replace(line, f"        assert len(tensors) != 2\n{line}")
    namespace: dict[str, Any] = {"__name__": "texts"}
    exec(compile(text, "texts.py", "exec"), namespace)
    model = namespace["Backbone"]()
    failed = attempt(model, guess_slots(model, True, 16), (2, 5))
    assert isinstance(failed.error, AssertionError) and failed.progress == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (PADDED, "x * torch.sigmoid(x) * self.scale", "torch.sigmoid(x) * x * self.scale"),
        (MEMORY, "self.linear(x) * torch.sigmoid(x)", "torch.sigmoid(x) * self.linear(x)"),
        (
            DICTIONARY,
            'batch["features"] * torch.sigmoid(batch["features"])',
            'torch.sigmoid(batch["features"]) * batch["features"]',
        ),
        (DICTIONARY, ".abs().clamp(max=3.0)", ".abs().minimum(torch.tensor(3.0))"),
        (ROWS, "p=1) * self.weight - chances", "p=1).mul(self.weight) - chances"),
    ],
)
def test_a_class_that_takes_an_object_runs(
    text: str, before: str, after: str, tmp_path: Path
) -> None:
    verdict = verdict_on(tmp_path, text, before, after)
    assert verdict.status == "proved", verdict.reason


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        (PADDED, "x * torch.sigmoid(x) * self.scale", "x * torch.sigmoid(x) * self.scale * 1.01"),
        (PADDED, "masked_fill(mask[:, None], 0.0)", "masked_fill(mask[:, None], 1.0)"),
        (DICTIONARY, "scores.mean(1)", "scores.mean(-1)"),
        (DICTIONARY, ".abs().clamp(max=3.0)", ".abs()"),
        (ROWS, "p=1)", "p=2)"),
        (ROWS, "cost.split(sizes, -1)", "cost.split(sizes[0], -1)"),
    ],
)
def test_a_change_of_what_an_object_leads_to_is_refuted(
    text: str, before: str, after: str, tmp_path: Path
) -> None:
    assert verdict_on(tmp_path, text, before, after).status == "refuted"
