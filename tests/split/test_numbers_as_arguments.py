"""Sizes and numbers of the host as results, and as arguments of functions of torch that fill, cut
or divide; rows of a tensor that `unbind` gives."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import regraft  # noqa: E402
from regraft.splitting.checking.decision_check import difference  # noqa: E402
from split.comparison import attempt  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")


class SizesAsResults(nn.Module):
    def forward(self, x: Any) -> Any:
        k = x[x[:, 0] > 0]
        n = k.shape[0]
        half = n / 2
        return k * 2, n // 2, -n, n % 3, half, n > 2, {"count": n, "next": [n + 1]}


class InputSizesAsResults(nn.Module):
    def forward(self, x: Any) -> Any:
        n = x.shape[0]
        y = x * 2 if x.sum() > 0 else x * 3
        return y, n // 2, (n + 1) / 2


class NumbersUnderNamesOfSizes(nn.Module):
    """The host computes other numbers with a size, and stores them under its name."""

    def forward(self, x: Any) -> Any:
        n = x[x[:, 0] > 0].shape[0]
        n = n - (x[0, 1].item() > 0)
        quotient = n / 3 if n > 0 else n // 2 - 0.5
        n = -n // 2
        return n, quotient, x * 2 if n < -1 else x * n


class LargestFew(nn.Module):
    def forward(self, x: Any) -> Any:
        values, places = torch.topk(x[:, 0], min(x.shape[0], 5))
        return x[places] * 2 if values.sum() > 0 else x[places], values


class LargestOfNumber(nn.Module):
    def forward(self, x: Any) -> Any:
        k = x[:, 1]
        values, places = k.topk(max(1, min(int(x[0, 0].abs()), k.shape[0])))
        return values, places * 2 if values[0] > 0 else places


class Padded(nn.Module):
    def forward(self, x: Any) -> Any:
        n, ratio = int(x[0, 0]), float(x[0, 1])
        y = F.pad(x, (1, -1, 2, 0), "constant", n) + F.pad(x, (0, 0, 1, 1), value=ratio / 2)
        return y * 2 if n > 2 else y


class PaddedWholeNumbers(nn.Module):
    """The original raises for a number that is none of the tensor's type."""

    def forward(self, x: Any) -> Any:
        n = float(x[0, 0])
        whole = x[1:].long()
        y = F.pad(whole, (1, 1), value=n) + torch.full((1, 5), 1).new_full((1, 1), n)
        return y * 2 if n > 2 else y


class PaddedWithSize(nn.Module):
    def forward(self, x: Any) -> Any:
        k = x[x[:, 0] > 0]
        y = F.pad(x, (1, 2), value=k.shape[0])
        return y * 2 if x.sum() > 0 else F.pad(y, (1, 0), value=x.shape[0])


class Cleaned(nn.Module):
    """No example has anything to clean."""

    def forward(self, x: Any) -> Any:
        n = float(x[0, 0])
        y = torch.nan_to_num(x[1:], n) + x[1:].nan_to_num(nan=0, posinf=n, neginf=-n)
        return y * 2 if n > 2 else y + x[1:].nan_to_num(int(n), int(n))


class Normalised(nn.Module):
    """An epsilon that the host computes, also beside weight and bias."""

    def forward(self, x: Any) -> Any:
        n = float(x[0, 0])
        scale = torch.tensor([0.5, 2.0, -1.0])
        y = F.layer_norm(x, (3,), eps=abs(n) * 0.1 + 1e-5)
        y = y + F.layer_norm(x.double(), x.shape, eps=n).float()
        return y * 2 if n > 2 else F.layer_norm(y, (3,), scale, scale + 1, max(n, 0.1))


class Spaced(nn.Module):
    def forward(self, x: Any) -> Any:
        n = int(x[0, 0])
        y = torch.linspace(0, 1, n) + torch.linspace(n, x.shape[0] * 0.5, steps=n)
        return y * 2 if n > 2 else y


class SpacedBySize(nn.Module):
    def forward(self, x: Any) -> Any:
        k = x[x[:, 0] > 0, 1]
        y = torch.linspace(0.5, 1, k.shape[0]) * k
        return y * 2 if y.sum() > 2 else y


class Unbound(nn.Module):
    def forward(self, x: Any) -> Any:
        k, total = x[x[:, 0] > 0], x.sum(0)
        for column in torch.unbind(k.t(), dim=-1):
            if column.sum() > 2:
                total = total + column
        return total, torch.stack([row * 2 + row.sum() for row in k.unbind(0)])


class Numbered(nn.Module):
    def forward(self, x: Any) -> Any:
        total = x.sum(0)
        for place, row in enumerate(x[x[:, 0] > 0].unbind()):
            if row.sum() > 2:
                total = total + row * (place + 1)
        return total


NAN, INF = float("nan"), float("inf")
ROWS = torch.arange(-12.0, 12.0).reshape(8, 3)
FEW = torch.tensor([[1.0, 2, 3], [-1, 2, 3], [2, -5, 1], [3, 1, 1], [0, 0, 1]])
MIXED = [(ROWS,), (FEW,), (FEW[:3],), (ROWS[3:],), (-FEW,)]
OTHERS = [torch.cat([ROWS, ROWS + 0.5, -ROWS]), FEW[:1], FEW[1:2], FEW[3:], FEW.repeat(9, 1)]
OTHER_ROWS = [(x,) for x in (*OTHERS, ROWS * 0, FEW[:0], FEW[[0, 2]], ROWS[[7, 1, 6]] * 3)]


def waves(*sizes: int) -> list[tuple[Any, ...]]:
    return [(torch.linspace(-3, 4, 3 * size).sin().reshape(size, 3),) for size in sizes]


def first(number: float, rows: Any = FEW) -> tuple[Any, ...]:
    x = rows.clone()
    x[0, 0] = number
    return (x,)


UNCLEAN = torch.tensor([[1.0, NAN, INF], [NAN, -INF, 1], [2, -5, INF], [3, 1, NAN], [0, 0, -INF]])
NUMBERS = [first(number) for number in (3.0, 1.0, 5.0, 0.0)]
OTHER_NUMBERS = [
    first(number, rows)
    for number in (-1.0, 0.0, 1.0, 2.0, 3.9, 7.0, 64.0, 257.0, 16777216.0)
    for rows in (FEW, -FEW, FEW * 0)
]
FEWER_NUMBERS = [call for call in OTHER_NUMBERS if call[0][0, 0] < 1000]
CASES = {
    "SizesAsResults": (SizesAsResults, MIXED, OTHER_ROWS),
    "InputSizesAsResults": (InputSizesAsResults, MIXED, OTHER_ROWS),
    "NumbersUnderNamesOfSizes": (NumbersUnderNamesOfSizes, MIXED, OTHER_ROWS),
    "LargestFew": (LargestFew, waves(9, 7, 12, 6, 3), waves(1, 2, 4, 5, 20, 65, 70)),
    "LargestOfNumber": (LargestOfNumber, [(ROWS,), (ROWS[5:] - 8,), (ROWS[3:],), (ROWS - 30,)], []),
    "Padded": (Padded, NUMBERS, [*OTHER_NUMBERS, first(2.0, UNCLEAN)]),
    "PaddedWholeNumbers": (PaddedWholeNumbers, NUMBERS, [*OTHER_NUMBERS, first(NAN), first(-INF)]),
    "PaddedWithSize": (PaddedWithSize, MIXED, OTHER_ROWS),
    "Cleaned": (
        Cleaned,
        NUMBERS,
        [*OTHER_NUMBERS, *(first(number, UNCLEAN) for number in (3.0, 0.0, -7.5, 100.0))],
    ),
    "Normalised": (Normalised, NUMBERS, FEWER_NUMBERS),
    "Spaced": (Spaced, NUMBERS, FEWER_NUMBERS),
    "SpacedBySize": (SpacedBySize, MIXED, OTHER_ROWS),
    "Unbound": (Unbound, MIXED[:4], OTHER_ROWS),
    "Numbered": (Numbered, MIXED[:4], OTHER_ROWS),
}


@pytest.mark.parametrize("single_file", [False, True], ids=["directory", "file"])
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_original(name: str, single_file: bool) -> None:
    if single_file and name == "Numbered":
        pytest.skip("enumerate() of a tensor cannot be part of a single file")
    network, calls, others = CASES[name]
    model = network().eval()
    result = regraft.split(model, calls, cache=False, measure=False, single_file=single_file)
    assert result.report.islands == ()
    for call in [*calls, *others]:
        got, expected = attempt(result, call), attempt(model, call)
        if isinstance(expected, Exception):
            assert isinstance(got, Exception)
        else:
            assert difference(got, expected) == "", call


def test_sizes_are_numbers_of_python() -> None:
    model = SizesAsResults().eval()
    result = regraft.split(model, MIXED, cache=False, measure=False)
    _, half, negative, remainder, quotient, flag, counts = result(FEW)
    assert (half, negative, remainder, quotient, flag) == (1, -3, 0, 1.5, True)
    numbers = [half, negative, remainder, quotient, flag, counts["count"], *counts["next"]]
    assert [*map(type, numbers)] == [int, int, int, float, bool, int, int]


class Standardised(nn.Module):
    def forward(self, x: Any) -> Any:
        n = float(x[0])
        y = F.batch_norm(x[None], torch.zeros(2), torch.ones(2), eps=n * n * 1e-20)[0]
        return y if x.sum() > 0 else y * 2


def test_a_number_that_an_exporter_takes_for_a_constant_is_refused() -> None:
    calls = [(torch.tensor([0.5, 1.0]),), (torch.tensor([0.25, -1.0]),)]
    with pytest.raises(regraft.Unsplittable, match=r"takes the number \w+ for a constant"):
        regraft.split(Standardised().eval(), calls, cache=False)
