"""Test arguments that hold tensors in lists, tuples and dictionaries."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402

import regraft  # noqa: E402
from regraft.splitting import Unsplittable  # noqa: E402
from regraft.splitting.checking.decision_check import difference  # noqa: E402


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, batch: Any, rows: Any, scale: Any = 1.0, flag: Any = None) -> Any:
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
    def forward(self, batch: Any) -> Any:
        batch["twice"] = batch["image"] * 2
        return batch["twice"] if batch["image"].sum() > 0 else batch["image"]


class ChangesLater(nn.Module):
    """A network that changes its arguments, in one of several ways, on a side without examples."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, batch: Any) -> Any:
        x, rows = batch["image"], batch["rows"]
        if x.sum() > 25:
            if self.way == "append":
                rows.append(x)
            elif self.way == "element":
                rows[0] = x
            elif self.way == "inner":
                rows[1].append(x)
            elif self.way == "extend":
                rows += [x]
            elif self.way == "key":
                batch["image"] = x * 2
            else:
                batch.update(other=x)
        return x * 2 if x.sum() > 0 else rows[0]


class OwnCopies(nn.Module):
    def forward(self, batch: Any, options: Any = {"scale": 2.0}) -> Any:  # noqa: B006
        rows, batch = [*batch["rows"]], dict(batch)
        batch["scale"] = options["scale"]
        rows.append(batch["image"])
        return torch.stack(rows).sum(0) if rows[0].sum() > 0 else batch["image"] * batch["scale"]


class Infinite(nn.Module):
    def forward(self, rows: Any, most: Any = float("inf"), least: Any = -1.0) -> Any:
        return rows[0] * 2 if rows[0].sum() < most and rows[0].sum() > least else rows[1]


class Sized(nn.Module):
    def forward(self, batch: Any, kind: Any = torch.float32) -> Any:
        return batch["image"] * (2 if kind is None else 3)


class Ways(nn.Module):
    """Results of several types, and names that the parts of its arguments would have."""

    def forward(self, batch: Any, factor: Any = 2) -> Any:
        batch_x = batch["x"] * factor
        if batch_x.sum() > 4:
            return batch_x, 1
        if batch_x.sum() > 0:
            return {key: value * 2 for key, value in batch.items()}
        for x in batch["several"]:
            if x.sum() > 0:
                return batch_x + x
        return batch


class Keyed(nn.Module):
    def forward(self, batch: Any) -> Any:
        first, second = list(batch.values())
        return first * 2 if second.sum() > 0 else second


class Clash(nn.Module):
    def forward(self, pair: Any, pair_0: Any) -> Any:
        return pair[0] + pair_0 if pair[1].sum() > 0 else pair[0] - pair_0


def call() -> tuple[Any, ...]:
    """Return the arguments of one call."""
    batch = {"image": torch.randn(1, 4), "meta": {"mask": torch.randn(1, 4)}, "classes": 3}
    return batch, [torch.randn(1, 4), torch.randn(1, 4)]


def build_and_split(
    kind: type[nn.Module], calls: list[Any], **options: Any
) -> tuple[nn.Module, Any]:
    """Return a network and its split version."""
    torch.manual_seed(0)
    model = kind().eval()
    return model, regraft.split(model, calls, measure=False, **options)


@pytest.mark.parametrize("single", [False, True])
def test_a_call_is_that_of_the_original(single: bool, tmp_path: Any) -> None:
    calls = [call() for _ in range(12)]
    model, result = build_and_split(Detector, calls, single_file=single, cache=False)
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
    _, result = build_and_split(Detector, [call() for _ in range(12)])
    batch, rows = call()
    for wrong in ((batch,), (batch, rows, 1.0, None, 1)):
        with pytest.raises(TypeError, match="the network takes batch, rows, scale, flag"):
            result(*wrong)
    with pytest.raises(TypeError, match="takes batch"):
        result(batch, rows, batch=batch)
    for wrong, reason in (
        ((batch, tuple(rows)), "rows is not a list of 2"),
        ((batch, rows[:1]), "rows is not a list of 2"),
        (({**batch, "classes": 4}, rows), r"batch\['classes'\] is 4; the network was split for 3"),
        (
            ({"image": batch["image"]}, rows),
            "batch is not a dictionary with the keys image, meta, classes",
        ),
        ((batch, rows, 2.0), "scale is 2.0"),
        ((batch, [rows[0], None]), r"rows\[1\] is a NoneType, not a tensor"),
    ):
        with pytest.raises(ValueError, match=reason):
            result(*wrong)


def test_it_comes_from_the_cache_as_it_was() -> None:
    calls = [call() for _ in range(12)]
    first, second = build_and_split(Detector, calls)[1], build_and_split(Detector, calls)[1]
    assert difference(second(*calls[0]), first(*calls[0])) == ""


def test_batches_of_samples() -> None:
    calls = [call() for _ in range(12)]
    model, result = build_and_split(Detector, calls, batched=True, cache=False)
    batch = {
        "image": torch.cat([sample["image"] for sample, _ in calls]),
        "classes": 3,
        "meta": {"mask": torch.cat([sample["meta"]["mask"] for sample, _ in calls])},
    }
    batch = {key: batch[key] for key in ("image", "meta", "classes")}
    rows = [torch.cat([several[place] for _, several in calls]) for place in range(2)]
    with torch.no_grad():
        assert difference(result(batch, rows), [model(*call) for call in calls]) == ""


def test_names_that_the_parts_would_have_are_taken() -> None:
    calls = [((torch.randn(3), torch.randn(3)), torch.randn(3)) for _ in range(8)]
    model, result = build_and_split(Clash, calls, cache=False)
    for call in calls:
        assert difference(result(*call), model(*call)) == ""


@pytest.mark.parametrize("way", ["append", "element", "inner", "extend", "key", "update"])
def test_a_side_that_changes_what_the_caller_holds(way: str) -> None:
    calls = [
        ({"image": torch.randn(2, 4), "rows": [torch.randn(2, 4), [torch.randn(2, 4)]]},)
        for _ in range(6)
    ]
    with pytest.raises(Unsplittable, match="an argument holds is changed"):
        regraft.split(ChangesLater(way).eval(), calls, cache=False, measure=False)


@pytest.mark.parametrize("single", [False, True])
def test_copies_are_forwards_own_and_a_default_may_be_left_out(single: bool) -> None:
    calls = [
        ({"image": torch.randn(4), "rows": [torch.randn(4), torch.randn(4)]},) for _ in range(8)
    ]
    model, result = build_and_split(OwnCopies, calls, cache=False, single_file=single)
    for (batch,) in calls:
        expected = model(batch)
        assert difference(result(batch), expected) == ""
        assert difference(result(batch, {"scale": 2.0}), expected) == ""
        assert len(batch["rows"]) == 2 and "scale" not in batch
    with pytest.raises(ValueError, match="scale"):
        result(calls[0][0], {"scale": 3.0})


def test_results_of_several_types(tmp_path: Any) -> None:
    calls = [({"x": torch.randn(4), "several": torch.randn(3, 4)},) for _ in range(40)]
    model, result = build_and_split(Ways, calls, cache=False)
    result.save(tmp_path / "net")
    loaded = regraft.load_split(tmp_path / "net")
    kinds = set()
    for call in calls:
        expected = model(*call)
        kinds.add(type(expected))
        assert (
            difference(result(*call), expected) == "" and difference(loaded(*call), expected) == ""
        )
    assert kinds == {tuple, dict, torch.Tensor}


def test_infinite_defaults_and_keys_that_python_takes_for_the_same_name() -> None:
    calls = [([torch.randn(4), torch.randn(4)],) for _ in range(8)]
    model, result = build_and_split(Infinite, calls, cache=False)
    for call in calls:
        assert difference(result(*call), model(*call)) == ""
    keyed = [({"fi": torch.randn(4), "\ufb01": torch.randn(4)},) for _ in range(8)]
    model, result = build_and_split(Keyed, keyed, cache=False)
    for call in keyed:
        assert difference(result(*call), model(*call)) == ""


@pytest.mark.parametrize(
    ("kind", "calls", "reason"),
    [
        (Changes, [({"image": torch.ones(2)},)], "changes what its argument batch holds"),
        (
            Sized,
            [({"image": torch.ones(2)}, None)],
            "the default of kind, torch.float32, is no constant",
        ),
        (
            Sized,
            [({"image": torch.ones(2), "n": torch.Size([1])}, None)],
            "argument batch_n: a Size is not supported",
        ),
        (
            Changes,
            [({"image": torch.ones(2), "other": {1, 2}},)],
            "argument batch_other: a set is not supported",
        ),
        (Changes, [({"image": torch.ones(2), 3: 1},)], "argument batch: a dict is not supported"),
        (
            Changes,
            [(UserDict(image=torch.ones(2)),)] * 2,
            "argument batch: a UserDict is not supported",
        ),
        (
            Detector,
            [call(), (call()[0], [torch.ones(1, 4)])],
            "example call 1: rows is not a list of 2",
        ),
        (Detector, [({}, [torch.ones(1, 4)])], "the example call fails: KeyError"),
    ],
)
def test_what_is_refused(kind: type[nn.Module], calls: list[Any], reason: str) -> None:
    with pytest.raises(Unsplittable, match=reason) as caught:
        build_and_split(kind, calls)
    assert caught.value.path.endswith("test_arguments.py") and caught.value.line > 0


class AsksForTypes(nn.Linear):
    def forward(self, x: Any) -> Any:
        if type(x.shape[0]) is not int or type(x) is not torch.Tensor:
            raise TypeError(f"{x.shape[0]} rows")
        return super().forward(x)


class AnyKeywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = AsksForTypes(4, 4)

    def forward(self, x: Any, shift: Any = None, *further: Any, **options: Any) -> Any:
        if isinstance(x.shape[0], torch.Tensor):
            raise TypeError("a tensor of rows")
        x = self.layer(x) * options.get("scale", 1.0)
        if "bias" in options and options["bias"].sum() > 0:
            x = x + options["bias"]
        return x if shift is None else x + shift


def test_a_forward_that_takes_any_keyword_takes_those_of_the_examples() -> None:
    torch.manual_seed(0)
    model = AnyKeywords().eval()
    calls = [
        {"x": torch.randn(rows, 4), "bias": torch.full((4,), sign), "scale": 2.0}
        for rows, sign in ((3, 1.0), (5, -1.0))
    ]
    split = regraft.split(model, calls, cache=False)
    for call in (*calls, {"x": torch.randn(9, 4), "bias": torch.ones(4), "scale": 2.0}):
        assert not difference(split(**call), model(**call))
    with pytest.raises(TypeError, match="bias"):
        split(x=calls[0]["x"])
    with pytest.raises(ValueError, match="scale"):
        split(**{**calls[0], "scale": 3.0})


def test_a_forward_without_decisions_asks_for_types_of_sizes() -> None:
    torch.manual_seed(0)
    model = AnyKeywords().eval()
    split = regraft.split(model, [(torch.randn(3, 4),), (torch.randn(5, 4),)], cache=False)
    assert split.report.subnetworks == 1
    assert split.report.inputs_checked == 50
    x = torch.randn(300, 4)
    assert not difference(split(x), model(x))


def test_arguments_that_forward_takes_by_a_star() -> None:
    call = (torch.randn(3, 4), None, torch.randn(3, 4))
    with pytest.raises(Unsplittable, match=r"arguments that forward takes as \*further"):
        regraft.split(AnyKeywords().eval(), [call], cache=False)


@pytest.mark.slow
def test_an_encoder_of_transformers_takes_masks_of_any_padding() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    configuration = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    model = transformers.BertModel(configuration).eval()

    def make_call(rows: int, length: int, hidden: slice) -> dict[str, Any]:
        """Return a call whose first row does not attend to the tokens `hidden`."""
        mask = torch.ones(rows, length, dtype=torch.long)
        mask[0, hidden] = 0
        return {"input_ids": torch.randint(3, 50, (rows, length)), "attention_mask": mask}

    calls = [make_call(rows, 6 + rows, slice(-2, None)) for rows in (2, 3, 1)]
    calls.append(make_call(3, 9, slice(0)))
    result = regraft.split(model, calls, cache=False)
    further = [
        make_call(rows, length, hidden)
        for rows in (1, 2, 4)
        for length in (3, 12)
        for hidden in (slice(0), slice(-2, None), slice(0, 2), slice(None))
    ]
    for call in further:
        with torch.no_grad():
            expected = model(**call)
        assert difference(result(**call), expected) == ""


class Converts(nn.Module):
    def forward(self, x: Any) -> Any:
        y = x.to(torch.bfloat16)
        return y * 2 if y.sum() > 0 else -y


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_type_that_numpy_lacks_is_refused_by_name(dtype: Any) -> None:
    calls = [(torch.ones(2, 3, dtype=dtype),)]
    with pytest.raises(Unsplittable, match=r"test_arguments\.py:\d+: .*NumPy has no torch\.bfloat"):
        regraft.split(Converts().eval(), calls, cache=False)


def test_a_sparse_argument_is_refused_by_name() -> None:
    with pytest.raises(Unsplittable, match=r"argument x: a tensor of torch\.sparse_coo is not"):
        regraft.split(Converts().eval(), [(torch.eye(3).to_sparse(),)], cache=False)
