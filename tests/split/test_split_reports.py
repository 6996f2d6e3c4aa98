"""Test the report of a split network as text and as a page, the fastest compiler, and inputs that
are run again."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402

import regraft  # noqa: E402
from regraft.report.html.split_page import split_page  # noqa: E402
from regraft.report.split_text import split_text, summary_text, table_lines  # noqa: E402
from regraft.splitting.checking.decision_check import difference  # noqa: E402
from regraft.splitting.checking.saved_inputs import MAX_SAVED  # noqa: E402
from regraft.splitting.compiling import compilers  # noqa: E402
from regraft.splitting.compiling.quiet import without_output  # noqa: E402
from regraft.splitting.emitting import split_directory  # noqa: E402
from regraft.splitting.emitting.program_outline import ranges_text  # noqa: E402
from split import networks  # noqa: E402

OWN = Path(__file__).parents[2] / "benchmarks" / "dynamic" / "own.py"


class Counted(nn.Module):
    """A network that counts numbers and values of ranges."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Any) -> Any:
        numbers = (x * 4).round().clamp(0, 9).long()
        if self.kind == "bincount":
            counts = torch.bincount(numbers, minlength=4)
        elif self.kind == "histc":
            counts = torch.histc(x, bins=5, min=-1, max=1.5)
        else:
            counts = numbers.float().histc(7, 0, 6)
        return counts * 2 if x.sum() > 0 else counts


@pytest.mark.parametrize("kind", ["bincount", "histc", "method"])
def test_counts_are_compiled(kind: str) -> None:
    torch.manual_seed(0)
    model, calls = Counted(kind).eval(), [(torch.randn(size),) for size in (5, 9, 12, 3, 30)]
    network = regraft.split(model, calls, cache=False)
    assert not network.report.islands
    for size in (1, 2, 40):
        for x in (torch.randn(size), 3 * torch.randn(size), -torch.rand(size)):
            assert difference(network(x), model(x)) == ""


class Sorted(nn.Module):
    """A network that sorts whole numbers, many of them equal, and keeps their order."""

    def forward(self, x: Any) -> Any:
        numbers = (2 * x).round().long()
        places = torch.argsort(numbers, stable=True), numbers.argsort(descending=True, stable=True)
        values, order = torch.sort(numbers, dim=0, stable=True)
        other = numbers.sort(stable=True, descending=True)[1]
        result = torch.stack([*places, values, order, other])
        return result if x.sum() > 0 else 2 * result


def test_stable_sorts_are_compiled() -> None:
    torch.manual_seed(0)
    model, calls = Sorted().eval(), [(torch.randn(size),) for size in (5, 9, 12, 3, 30)]
    network = regraft.split(model, calls, cache=False)
    assert not network.report.islands
    for size in (1, 2, 200):
        for x in (torch.randn(size), torch.zeros(size) + 0.1, -torch.rand(size)):
            assert difference(network(x), model(x)) == ""


@pytest.mark.slow
def test_a_mixture_of_experts_that_groups_its_tokens() -> None:
    spec = importlib.util.spec_from_file_location("own", OWN)
    assert spec is not None and spec.loader is not None
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    model, calls = own.build("grouped-experts", 24)
    network = regraft.split(model, calls, cache=False)
    assert not network.report.islands and network.report.sides_run == network.report.sides == 16
    with torch.no_grad():
        assert all(difference(network(*call), model(*call)) == "" for call in calls)
    split, eager = network.report.times
    assert 0 < split < 3 * eager


def skips(**options: Any) -> Any:
    """Split a network that skips blocks."""
    torch.manual_seed(0)
    model, calls = networks.Skips().eval(), [(torch.randn(1, 6),) for _ in range(4)]
    return regraft.split(model, calls, cache=False, **options)


def test_the_report_as_text_has_a_row_for_each_region() -> None:
    network = skips()
    text = str(network.report)
    lines = text.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("region"))
    assert lines[head].split()[:3] == ["region", "lines", "operations"]
    assert len(lines) == head + 1 + network.report.subnetworks
    for region, line in zip(network.report.regions, lines[head + 1 :], strict=True):
        assert line.startswith(str(region["number"]))
        assert region["lines"][0] in line and f"{networks.__file__}:" in line
    assert re.search(r"^a call takes \d+ us, (beside|slower than) PyTorch's \d+ us", text, re.M)
    assert ranges_text([3, 5, 6, 7, 9]) == "3,5-7,9" and ranges_text([]) == ""
    assert table_lines([("a", "long"), ("bb", "c")]) == ["a   long", "bb  c"]


def test_a_network_that_is_slower_is_reported_with_times() -> None:
    counts = ("subnetworks", "models", "sides_run", "sides", "inputs_checked")
    notes = ("islands", "unseen", "carried", "not_left", "listed_sizes", "at_threshold", "rounding")
    report: dict[str, Any] = {**dict.fromkeys(counts, 1), **dict.fromkeys(notes, ())}
    report |= {"seconds": 2.0, "regions": (), "compilers": (), "times": (8e-4, 6e-4)}
    line = "a call takes 800 us, slower than PyTorch's 600 us (0.75 times the speed)"
    assert line in summary_text(report) and line in split_text(report)
    quick = {**report, "times": (3e-4, 6e-4)}
    assert "a call takes" not in summary_text(quick)
    assert "300 us, beside PyTorch's 600 us (2.00 times the speed)" in split_text(quick)
    unmeasured = {**report, "times": None}
    assert "a call takes" not in split_text(unmeasured)
    page = split_page("net", "out", "onnxruntime", (), {**report, "outline": (), "sides_taken": ()})
    assert '<p class="warn">a call takes 800 us, slower than PyTorch' in page


def test_nothing_is_measured_where_that_is_not_wanted() -> None:
    assert skips(measure=False).report.times is None
    assert len(skips(batched=True).report.times) == 2


@pytest.mark.slow
@pytest.mark.parametrize("fastest", ["onnxruntime", "openvino"])
def test_the_fastest_compiler_is_taken_and_recorded(
    fastest: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("openvino")
    both = [compilers.compiler_named(name) for name in ("onnxruntime", "openvino")]
    monkeypatch.setattr("regraft.splitting.build_options.installed_compilers", lambda: both)
    times = iter([(1.0, 9.0), (2.0, 9.0)] if fastest == "onnxruntime" else [(2.0, 9.0), (1.0, 9.0)])
    monkeypatch.setattr("regraft.splitting.pipeline.time_calls", lambda *_: next(times))
    network = skips(compiler="auto")
    network.save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["compiler"] == fastest
    names = [trial["compiler"] for trial in manifest["report"]["compilers"]]
    assert names == ["onnxruntime", "openvino"]
    loaded = regraft.load_split(tmp_path)
    assert loaded.report.compilers == network.report.compilers
    assert {trial["seconds"] for trial in loaded.report.compilers} == {1.0, 2.0}
    assert f"compiler {fastest}: 1000000 us a call" in str(loaded.report)
    x = torch.randn(1, 6)
    assert difference(loaded(x), network(x)) == ""


def test_compilers_that_take_no_such_settings_are_left_out() -> None:
    network = skips(compiler="auto", providers=["CPUExecutionProvider"])
    assert network.report.compilers == ()  # ONNX Runtime alone takes providers
    assert skips(compiler="auto", single_file=True).report.compilers == ()
    with pytest.raises(ValueError, match="so it has to measure"):
        skips(compiler="auto", measure=False)


def test_inputs_of_a_difference_can_be_run_again(
    run_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REGRAFT_CACHE_DIR", str(tmp_path / "cache"))
    Path("net.py").write_text(networks.ROWS_FILE)
    call = split_directory.SplitModel.__call__
    monkeypatch.setattr(
        split_directory.SplitModel, "__call__", lambda *args, **kwargs: call(*args, **kwargs) + 1
    )
    result = run_command("net.py:build", "-o", "net")
    assert result.exit_code == 1 and not Path("net").exists()
    match = re.search(r"run these inputs again: regraft split TARGET --replay (\S+)", result.output)
    assert match is not None
    replayed = run_command("net.py:build", "--replay", match[1])
    assert replayed.exit_code == 1 and "Mismatched elements" in replayed.output
    monkeypatch.setattr(split_directory.SplitModel, "__call__", call)
    replayed = run_command("net.py:build", "--replay", match[1])
    assert replayed.exit_code == 0 and replayed.output == "the results are equal\n"
    for _ in range(MAX_SAVED + 2):
        monkeypatch.setattr(split_directory.SplitModel, "__call__", lambda *_, **__: None)
        assert run_command("net.py:build", "-o", "net").exit_code == 1
    assert len([*(tmp_path / "cache" / "differences").iterdir()]) == MAX_SAVED
    replayed = run_command("net.py:build", "--replay", str(tmp_path))
    assert replayed.exit_code == 2 and "inputs.pt" in replayed.output
    assert run_command("net.py:build").exit_code == 2


def test_compilation_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    class Loud(nn.Module):
        """A network with an operation that both exporters refuse, with words."""

        def forward(self, x: Any) -> Any:
            y = torch.linalg.eigvalsh(x @ x.mT)
            return y if y.sum() > 3 else -y

    regraft.split(Loud().eval(), [(torch.ones(3, 3),), (torch.zeros(3, 3),)], cache=False)
    with without_output():
        print("a graph")
        print("a graph", file=sys.stderr)
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == ""


def test_an_island_takes_the_sizes_of_its_samples_alone() -> None:
    class Eigen(nn.Module):
        """A network with an operation that ONNX does not have."""

        def forward(self, x: Any) -> Any:
            y = torch.linalg.eigvalsh(x @ x.mT)
            return y if y.sum() > 3 else -y

    model, calls = Eigen().eval(), [(torch.ones(3, 3),), (torch.zeros(3, 3),)]
    network = regraft.split(model, calls, cache=False)
    assert network.report.islands
    assert all(difference(network(*call), model(*call)) == "" for call in calls)
    run, _ = network.host.regions[0]
    with pytest.raises(ValueError, match=r"gets x of \(4, 4\) and was compiled for \(3, 3\)"):
        run(None, {"i0": torch.ones(4, 4).numpy()})
