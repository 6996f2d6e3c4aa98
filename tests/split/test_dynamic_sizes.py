"""Test ranges of sizes in the place of several example calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402

import regraft  # noqa: E402
from regraft.splitting.checking.decision_check import difference  # noqa: E402
from regraft.splitting.sampling.dynamic_sizes import (  # noqa: E402
    make_examples,
    prime_between,
    read_dynamic,
)
from split.networks import ROWS_FILE  # noqa: E402


class Masked(nn.Module):
    """A network of whole numbers and of a mask of as many columns."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(50, 8), nn.Linear(8, 8)

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.embed(ids) * mask[..., None]
        if x.sum() > 0:
            x = self.layer(x)
        return x.mean(1)


class Outer(nn.Module):
    """A network of two inputs whose sizes need not agree."""

    def forward(self, rows: Any, columns: Any) -> Any:
        product = rows[:, None] * columns
        return product.exp() if product.sum() > 0 else product


class BySize(nn.Module):
    """A network that decides by the number of its rows."""

    def forward(self, x: Any) -> Any:
        if x.shape[0] > 30:
            x = 2 * x
        return x.relu() if x.sum() > 0 else x


class Fixed(nn.Module):
    """A network that takes at most eight rows."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(8, 3))

    def forward(self, x: Any) -> Any:
        x = x + self.places[: x.shape[0]]
        return x.relu() if x.sum() > 0 else x


def masked() -> tuple[nn.Module, list[Any]]:
    """Return the network with a mask and one example call."""
    torch.manual_seed(0)
    return Masked().eval(), [(torch.randint(0, 50, (1, 6)), torch.ones(1, 6))]


BOTH = {"ids": {1: (1, 64)}, "mask": {1: (1, 64)}}


@pytest.mark.parametrize("form", ["directory", "batches", "file"])
def test_one_example_is_enough_for_a_range(form: str, tmp_path: Path) -> None:
    model, calls = masked()
    options = {"single_file": form == "file", "batched": form == "batches"}
    network = regraft.split(model, calls, cache=False, dynamic=BOTH, **options)
    assert network.report.inputs_checked + len(network.report.at_threshold) >= 200
    network.save(tmp_path / "net")
    network = regraft.load_split(tmp_path / "net")
    for size in (1, 2, 13, 37, 64):
        call = torch.randint(0, 50, (1, size)), torch.ones(1, size)
        (result,) = network(*call) if form == "batches" else [network(*call)]
        assert difference(result, model(*call)) == ""
    # in a file ONNX Runtime raises errors of its own, whichever of them comes first
    error = Exception if form == "file" else ValueError
    for sizes, message in (
        ((65, 65), "another size than 1 to 64, for which the network was split"),
        ((0, 0), "another size than 1 to 64, for which the network was split"),
        ((5, 1), "dimension 1 of mask and dimension 1 of ids have to have one size"),
    ):
        call = torch.zeros(1, sizes[0], dtype=torch.long), torch.ones(1, sizes[1])
        with pytest.raises(error, match=None if form == "file" else message):
            network(*call)


def test_sizes_that_need_not_agree_do_not_have_to() -> None:
    model, calls = Outer().eval(), [(torch.ones(4), torch.ones(4)), (-torch.ones(4), torch.ones(4))]
    dynamic = {"rows": {0: (1, 20)}, "columns": {-1: (1, 20)}}
    network = regraft.split(model, calls, cache=False, dynamic=dynamic)
    for rows, columns in ((3, 17), (20, 1), (20, 20), (1, 20)):
        call = torch.randn(rows), torch.randn(columns)
        assert difference(network(*call), model(*call)) == ""
    with pytest.raises(ValueError, match="dimension 0 of columns has another size than 1 to 20"):
        network(torch.ones(3), torch.ones(21))


def test_decisions_by_size_are_followed_on_both_sides() -> None:
    model, calls = BySize().eval(), [(torch.ones(4, 3),), (-torch.ones(4, 3),)]
    with pytest.raises(ValueError, match="the network was split for"):
        regraft.split(model, calls, cache=False)(torch.ones(40, 3))
    network = regraft.split(model, calls, cache=False, dynamic={"x": {0: (1, 64)}})
    assert not network.report.unseen
    for size in (1, 30, 31, 64):
        assert difference(network(torch.ones(size, 3)), model(torch.ones(size, 3))) == ""


def test_a_size_that_the_network_does_not_take_is_named() -> None:
    model, calls = Fixed().eval(), [(torch.ones(4, 3),)]
    with pytest.raises(regraft.Unsplittable, match=r"fails where x:0 is 9: RuntimeError: .*narrow"):
        regraft.split(model, calls, cache=False, dynamic={"x": {0: (1, 9)}})
    network = regraft.split(
        model, [*calls, (-calls[0][0],)], cache=False, dynamic={"x": {0: (1, 8)}}
    )
    assert difference(network(torch.ones(8, 3)), model(torch.ones(8, 3))) == ""
    model, calls = masked()
    with pytest.raises(regraft.Unsplittable, match="give sizes that have to agree one range"):
        regraft.split(model, calls, cache=False, dynamic={"ids": {1: (1, 64)}})


WRONG_RANGES: list[tuple[Any, str]] = [
    ({"other": {0: (1, 2)}}, "no argument 'other'; those that are tensors: ids, mask"),
    ({"ids": {2: (1, 9)}}, "ids has 2 dimensions, and none is 2"),
    ({"ids": {-3: (1, 9)}}, "ids has 2 dimensions, and none is -3"),
    ({"ids": {"1": (1, 9)}}, "and none is '1'"),
    ({"ids": {True: (1, 9)}}, "and none is True"),
    ({"ids": {1: (7, 9)}}, "ids has 6 in dimension 1 in example call 0, outside of 7 to 9"),
    ({"ids": {1: (9, 2)}}, r"are \(9, 2\); give two whole numbers"),
    ({"ids": {1: (-1, 9)}}, r"are \(-1, 9\); give two whole numbers"),
    ({"ids": {1: (1.0, 9)}}, "give two whole numbers"),
    ({"ids": {1: (True, 9)}}, "give two whole numbers"),
    ({"ids": {1: 9}}, "are 9; give two whole numbers"),
    ({"ids": {1: "19"}}, "give two whole numbers"),
    ({"ids": 9}, r"dynamic\['ids'\] is 9"),
    ([("ids", 1)], "dynamic is "),
    ({"ids": {1: (1, 9), -1: (1, 9)}}, "a dimension twice"),
]


@pytest.mark.parametrize(("dynamic", "message"), WRONG_RANGES)
def test_wrong_ranges_are_errors(dynamic: Any, message: str) -> None:
    model, calls = masked()
    with pytest.raises(ValueError, match=message):
        regraft.split(model, calls, cache=False, dynamic=dynamic)


class Scaled(nn.Module):
    """A network with an argument that is a number, and one that holds tensors."""

    def forward(self, batch: Any, scale: float = 1.0) -> Any:
        x = batch["image"] * scale
        return x.exp() if x.sum() > 0 else x


def test_arguments_that_are_no_tensors() -> None:
    model = Scaled().eval()
    calls = [({"image": torch.ones(3, 2)}, 2.0), ({"image": -torch.ones(3, 2)}, 2.0)]
    with pytest.raises(ValueError, match=r"scale is 2\.0, which is no tensor"):
        regraft.split(model, calls, cache=False, dynamic={"scale": {0: (1, 2)}})
    with pytest.raises(
        ValueError, match="no argument 'batch'; those that are tensors: batch_image"
    ):
        regraft.split(model, calls, cache=False, dynamic={"batch": {0: (1, 2)}})
    network = regraft.split(model, calls, cache=False, dynamic={"batch_image": {0: (1, 9)}})
    call = {"image": torch.randn(9, 2)}, 2.0
    assert difference(network(*call), model(*call)) == ""
    with pytest.raises(ValueError, match="another size than 1 to 9"):
        network({"image": torch.randn(10, 2)}, 2.0)


def test_the_samples_of_a_batch_have_no_range() -> None:
    model, calls = masked()
    with pytest.raises(ValueError, match="dimension 0 is that of the samples in batches"):
        regraft.split(model, calls, cache=False, batched=True, dynamic={"ids": {0: (1, 2)}})


def test_calls_for_the_check_have_sizes_of_their_own() -> None:
    model, ((ids, mask),) = masked()
    calls = [{"ids": ids, "mask": mask}]
    sizes = read_dynamic(BOTH, calls)
    examples = make_examples(model, "net.py", calls, sizes)
    assert [call["ids"].shape[1] for call in examples.calls] == [6, 13, 1, 64]
    assert [call["mask"].shape[1] for call in examples.calls] == [6, 13, 1, 64]
    assert [call["ids"].shape[1] for call in examples.further] == [2, 63, 7]
    assert examples.varied == 2 and examples.groups == (tuple(sizes),)
    numbers = {*ids.flatten().tolist()}
    assert all({*call["ids"].flatten().tolist()} <= numbers for call in examples.calls)
    assert [prime_between(5, 100, number) for number in range(3)] == [23, 19, 17]
    assert prime_between(8, 10, 0) == 9


def test_the_command_takes_ranges(run_command: Callable[..., Any]) -> None:
    Path("net.py").write_text(ROWS_FILE)
    arguments = ["net.py:build", "-o", "net", "--no-cache", "--dynamic"]
    result = run_command(*arguments, "x:0=1..8", "--dynamic", "x:-1=2..4")
    assert result.exit_code == 0, result.output
    network = regraft.load_split("net")
    assert network(torch.ones(8, 4)).shape == (8, 4)
    with pytest.raises(ValueError, match="dimension 1 of x has another size than 2 to 4"):
        network(torch.ones(8, 1))
    for texts, message in (
        (["x=1..8"], "x=1..8 is no range of sizes; give one as x:0=1..512"),
        (["x:0=1..8", "--dynamic", "x:0=1..9"], "the sizes of x:0 are given twice"),
        (["y:0=1..8"], "there is no argument 'y'"),
        (["x:0=4..8"], "x has 3 in dimension 0 in example call 0, outside of 4 to 8"),
    ):
        result = run_command(*arguments, *texts)
        assert result.exit_code == 2 and message in " ".join(result.output.split())
