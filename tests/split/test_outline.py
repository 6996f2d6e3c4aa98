"""Test the outline of a split network in its report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from regraft.splitting import load_split  # noqa: E402
from split import networks  # noqa: E402


def all_steps(steps: Any) -> Iterator[Any]:
    """Yield the entries of an outline at any depth."""
    for step in steps:
        yield step
        for inner in (step.get("steps", ()), *(side["steps"] for side in step.get("sides", ()))):
            yield from all_steps(inner)


@pytest.mark.parametrize("name", ["Exits", "Skips", "Decoder"])
def test_the_outline_has_every_region_and_every_side(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = getattr(networks, name)().eval()
    calls = [(torch.randn(1, 8 if name == "Decoder" else 6),) for _ in range(4)]
    split = regraft.split(model, calls, cache=False)
    report = split.report
    steps = list(all_steps(report.outline))
    shown = [step["number"] for step in steps if step["kind"] == "region"]
    numbers = [region["number"] for region in report.regions]
    assert numbers == list(range(report.subnetworks))
    assert set(shown) == set(numbers)
    sides = [side["number"] for step in steps for side in step.get("sides", ())]
    assert sorted(number for number in sides if number >= 0) == list(range(report.sides))
    assert len(report.sides_taken) == report.sides_run
    for region in report.regions:
        assert region["place"].startswith(f"{networks.__file__}:")
        assert region["operations"] > 0
        assert region["seconds"] is None or min(region["seconds"]) > 0
    split.save(tmp_path / "net")
    loaded = load_split(tmp_path / "net").report
    assert [step["kind"] for step in all_steps(loaded.outline)] == [step["kind"] for step in steps]
