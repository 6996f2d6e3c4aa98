"""Elements of constant containers that values choose: a split network gives what the original gives
for keys that no example has, and raises where the original does."""

from __future__ import annotations

import inspect
from typing import Any

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402

import regraft  # noqa: E402
from regraft.splitting import Unsplittable  # noqa: E402
from regraft.splitting.checking.result_difference import difference  # noqa: E402
from split import tables  # noqa: E402
from split.comparison import attempt  # noqa: E402

NETWORKS = [
    kind
    for kind in vars(tables).values()
    if inspect.isclass(kind) and issubclass(kind, tables.Table) and kind is not tables.Table
]


@pytest.mark.parametrize("kind", NETWORKS, ids=lambda kind: kind.__name__)
def test_every_key_gives_what_the_original_gives(kind: Any) -> None:
    torch.manual_seed(0)
    model = kind().eval()
    calls = [model.inputs(number) for number in range(3)]
    result = regraft.split(model, calls, cache=False, measure=False)
    for number in range(-1, 7):
        call = model.inputs(number)
        assert difference(attempt(result, call), attempt(model, call)) == ""


class ByArray(tables.Table):
    def make_table(self) -> Any:
        return numpy.arange(4.0)

    def forward(self, x: Any, number: Any) -> Any:
        return x * float(self.table[int(number)])


class SliceOfModules(tables.Table):
    def make_table(self) -> Any:
        return nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])

    def forward(self, x: Any, number: Any) -> Any:
        for layer in self.table[: int(number)]:
            x = layer(x)
        return x


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (ByArray, r"test_tables\.py:\d+: a ndarray is read here by .* only at run time"),
        (SliceOfModules, r"test_tables\.py:\d+: a slice of a ModuleList .* loop over all of it"),
    ],
)
def test_what_the_host_cannot_read_is_refused_by_name(kind: Any, reason: str) -> None:
    model = kind().eval()
    calls = [model.inputs(number) for number in range(3)]
    with pytest.raises(Unsplittable, match=reason):
        regraft.split(model, calls, cache=False, measure=False)
