"""Arguments that hold tensors in lists, tuples and dictionaries."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402

import regraft  # noqa: E402
from regraft.dynamic import Unsplittable  # noqa: E402
from regraft.dynamic.check import difference  # noqa: E402


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, batch, rows, scale=1.0, flag=None):
        x = self.first(batch["image"])
        if x.sum() > 0:
            x = self.second(x) + batch["meta"]["mask"]
        for row in rows:
            if row.sum() > 0:
                x = x + row
        if flag is not None:
            x = x * 2
        return {"y": x * scale, "classes": batch["classes"]}


class Changes(nn.Module):
    def forward(self, batch):
        batch["twice"] = batch["image"] * 2
        return batch["twice"] if batch["image"].sum() > 0 else batch["image"]


class Clash(nn.Module):
    def forward(self, pair, pair_0):
        return pair[0] + pair_0 if pair[1].sum() > 0 else pair[0] - pair_0


def call() -> tuple[Any, ...]:
    batch = {"image": torch.randn(1, 4), "meta": {"mask": torch.randn(1, 4)}, "classes": 3}
    return batch, [torch.randn(1, 4), torch.randn(1, 4)]


def made(kind: type[nn.Module], calls: list[Any], **options: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = kind().eval()
    return model, regraft.split(model, calls, measure=False, **options)


@pytest.mark.parametrize("single", [False, True])
def test_a_call_is_that_of_the_original(single: bool, tmp_path: Any) -> None:
    calls = [call() for _ in range(12)]
    model, result = made(Detector, calls, single_file=single, cache=False)
    assert result.report.inputs_checked == 200 and result.report.sides_run == result.report.sides
    result.save(tmp_path / "net.onnx" if single else tmp_path / "net")
    loaded = regraft.load_split(tmp_path / "net.onnx" if single else tmp_path / "net")
    for batch, rows in [call() for _ in range(8)]:
        with torch.no_grad():
            expected = model(batch, rows)
        for network in (result, loaded):
            assert difference(network(batch, rows), expected) == ""
            assert difference(network(rows=rows, batch=batch, scale=1.0), expected) == ""


def test_a_call_that_is_put_together_otherwise_is_an_error() -> None:
    _, result = made(Detector, [call() for _ in range(12)])
    batch, rows = call()
    for wrong in ((batch,), (batch, rows, 1.0, None, 1)):
        with pytest.raises(TypeError, match="the network takes batch, rows, scale, flag"):
            result(*wrong)
    with pytest.raises(TypeError, match="takes batch"):
        result(batch, rows, batch=batch)
    for wrong, reason in (
        ((batch, tuple(rows)), "rows is not a list of 2"), ((batch, rows[:1]), "rows is not a list of 2"),
        (({**batch, "classes": 4}, rows), r"batch\['classes'\] is 4; the network was split for 3"),
        (({"image": batch["image"]}, rows), "batch is not a dictionary with the keys image, meta, classes"),
        ((batch, rows, 2.0), "scale is 2.0"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=reason):
            result(*wrong)


def test_it_comes_from_the_cache_as_it_was() -> None:
    calls = [call() for _ in range(12)]
    first, second = made(Detector, calls)[1], made(Detector, calls)[1]
    assert difference(second(*calls[0]), first(*calls[0])) == ""


def test_batches_of_samples() -> None:
    calls = [call() for _ in range(12)]
    model, result = made(Detector, calls, batched=True, cache=False)
    batch = {
        "image": torch.cat([one["image"] for one, _ in calls]), "classes": 3,
        "meta": {"mask": torch.cat([one["meta"]["mask"] for one, _ in calls])},
    }  # fmt: skip
    batch = {key: batch[key] for key in ("image", "meta", "classes")}
    rows = [torch.cat([several[place] for _, several in calls]) for place in range(2)]
    with torch.no_grad():
        assert difference(result(batch, rows), [model(*one) for one in calls]) == ""


def test_names_that_the_parts_would_have_are_taken() -> None:
    calls = [((torch.randn(3), torch.randn(3)), torch.randn(3)) for _ in range(8)]
    model, result = made(Clash, calls, cache=False)
    for one in calls:
        assert difference(result(*one), model(*one)) == ""


@pytest.mark.parametrize(
    ("kind", "calls", "reason"),
    [
        (Changes, [({"image": torch.ones(2)},)], "changes what its argument batch holds"),
        (Changes, [({"image": torch.ones(2), "other": {1, 2}},)], "argument batch_other: a set is not supported"),
        (Changes, [({"image": torch.ones(2), 3: 1},)], "argument batch: a dict is not supported"),
        (Changes, [(UserDict(image=torch.ones(2)),)] * 2, "argument batch: a UserDict is not supported"),
        (Detector, [call(), (call()[0], [torch.ones(1, 4)])], "example call 1: rows is not a list of 2"),
        (Detector, [({}, [torch.ones(1, 4)])], "the example call fails: KeyError"),
    ],
)
def test_what_is_refused(kind: type[nn.Module], calls: list[Any], reason: str) -> None:
    with pytest.raises(Unsplittable, match=reason) as caught:
        made(kind, calls)
    assert caught.value.path.endswith("test_arguments.py") and caught.value.line > 0
