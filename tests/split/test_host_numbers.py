"""Numbers of the host in regions: they decide types as numbers of Python do, and whole numbers stay
exact beyond 2**24 and 2**53."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402

import regraft  # noqa: E402
from regraft.splitting.checking.decision_check import difference  # noqa: E402
from regraft.splitting.sampling.number_operands import NumberOperands  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_gradients")


class Share(nn.Module):
    def forward(self, x: Any, k: Any) -> Any:
        r = int(k) / 100
        kept = (torch.arange(x.shape[0]) * r).frac() < 0.5
        return x[kept] if r > 0.5 else x[~kept]


class Filled(nn.Module):
    def forward(self, x: Any) -> Any:
        n = int(x.sum())
        if n > 4:
            return torch.full((2,), n) + x.new_full((2,), float(n))
        return torch.full((2,), n) + 1


class PowerOfNumber(nn.Module):
    def forward(self, x: Any) -> Any:
        n = int(x[0])
        return x.pow(n % 4) if n > 4 else x ** (n % 5) + 2 ** x.clamp(-2, 60)


class NumberToPower(nn.Module):
    def forward(self, x: Any) -> Any:
        n = int(x.sum())
        return n ** x.abs().clamp(max=2) * (1 if n > 4 else 2)


class Halves(nn.Module):
    """Halves whose sizes are whole numbers in the conditions of a region."""

    def half(self, x: Any, depth: int) -> Any:
        if depth >= 2:
            return x.sum()
        middle = x.shape[0] // 2
        first = self.half(x[:middle], depth + 1)
        return first + self.half(x[middle:], depth + 1) if first.item() > 0 else first * 2

    def forward(self, x: Any) -> Any:
        return self.half(x, 0)


def tensor(*numbers: int) -> tuple[Any, ...]:
    return (torch.tensor(numbers),)


ROWS = torch.arange(240.0).view(120, 2)
SHARES = [(ROWS[:n], torch.tensor(k)) for n, k in ((12, 25), (10, 50), (15, 75), (120, 50))]
WHOLE = [tensor(3, 4), tensor(7, -5, 1), tensor(1), tensor(5)]
CASES = {
    "Share": (Share, SHARES, [(ROWS[:60], torch.tensor(k)) for k in (29, 57, 58, 70)]),
    "Filled": (Filled, WHOLE, [tensor(16777217), tensor(2**31 + 1, 4), tensor(-(2**53) - 1)]),
    "PowerOfNumber": (
        PowerOfNumber,
        WHOLE,
        [tensor(7, -16777217), tensor(207, 208067), tensor(6, 94906267), tensor(-3, 2097153)],
    ),
    "NumberToPower": (
        NumberToPower,
        WHOLE,
        [tensor(94906265, 2), tensor(3037000497, 2), tensor(2**33, 1)],
    ),
    "Halves": (Halves, [(torch.linspace(-1, 2, n),) for n in (8, 6, 9, 5)], [(-ROWS[:11, 0],)]),
}


@pytest.mark.slow
@pytest.mark.parametrize("single_file", [False, True], ids=["directory", "file"])
@pytest.mark.parametrize("name", CASES)
def test_numbers_compute_what_they_compute_in_python(name: str, single_file: bool) -> None:
    if single_file and name == "Halves":
        pytest.skip("a whole number of the host that may be a size cannot be part of a single file")
    network, calls, others = CASES[name]
    model = network().eval()
    result = regraft.split(model, calls, unseen="raise", cache=False, single_file=single_file)
    for call in [*calls, *others]:
        assert difference(result(*call), model(*call)) == ""


def test_operands_have_the_types_of_numbers() -> None:
    half, three = torch.tensor(0.5, dtype=torch.float64), torch.tensor(3)
    whole, flags = torch.arange(3), torch.ones(2, dtype=torch.bool)
    number, fraction = torch.tensor(2.0), torch.arange(2, dtype=torch.float16)
    with NumberOperands((half, three)):
        pairs = [
            (whole * half, whole * 0.5),
            (flags + three, flags + 3),
            (number * half, number * 0.5),
            (fraction * half, fraction * 0.5),
            (whole * (three / 2), whole * 1.5),
            (torch.tensor([half, three]), torch.tensor([0.5, 3])),
            (torch.where(flags, half, three), torch.where(flags, 0.5, 3)),
            (whole.clone().fill_(half), whole.clone().fill_(0.5)),
        ]
    assert all(torch.equal(got, expected) for got, expected in pairs)
    assert [got.dtype for got, _ in pairs] == [expected.dtype for _, expected in pairs]


def test_a_number_in_a_named_tuple_of_operands_has_their_type() -> None:
    class Pair(NamedTuple):
        number: torch.Tensor
        operand: torch.Tensor

    half = torch.tensor(0.5, dtype=torch.float64)
    with NumberOperands((half,)):
        stacked = torch.stack(Pair(half, torch.tensor(2.0)))
    assert stacked.dtype == torch.float32
    assert stacked.tolist() == [0.5, 2.0]
