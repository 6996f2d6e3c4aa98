"""Test batches: every sample takes its own path, and has the result of the network for it alone."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from regraft.splitting import Unsplittable  # noqa: E402
from regraft.splitting.checking.decision_check import difference  # noqa: E402
from split import batches, illformed, language, networks, single  # noqa: E402


def batched(kind: Any, calls: Any = None, **options: Any) -> Any:
    """Return a network, its calls and its split version for batches."""
    torch.manual_seed(0)
    model = kind().eval()
    calls = calls or [(torch.randn(1, 8 if kind is networks.Decoder else 6),) for _ in range(8)]
    return (
        model,
        calls,
        regraft.split(model, calls, batched=True, cache=False, unseen="raise", **options),
    )


KINDS = [
    batches.Leaves,
    batches.Flattens,
    batches.Centres,
    batches.Keeps,
    batches.Sorts,
    batches.NamedRow,
    batches.NamedTrace,
    networks.Skips,
    networks.Decoder,
    networks.Experts,
    language.Continue,
    language.Named,
    single.NestedReturn,
    single.Structures,
    single.Lists,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_batch_gives_what_each_sample_gives_alone(kind: Any) -> None:
    model, calls, result = batched(kind)
    assert result.report.inputs_checked + len(result.report.at_threshold) >= 190
    for size in (0, 1, 2, 7):
        rows = torch.randn(size, calls[0][0].shape[1]) * 1.5
        with torch.no_grad():
            alone = [model(row[None]) for row in rows]
        got = result(rows)
        assert len(got) == size and not any(map(difference, got, alone))


def test_samples_that_leave_are_taken_out_and_the_rest_run_together() -> None:
    model, calls, result = batched(batches.Leaves)
    rows = torch.cat([call[0] for call in calls] * 3)
    steps = [model(row[None])[1] for row in rows]
    assert len(set(steps)) > 2
    sizes = []
    session = result.host.parts
    for part in session:
        if "together" in part:
            run, takes, gives = part["together"]

            def counted(_: Any, values: Any, run: Any = run) -> Any:
                sizes.append(max(map(len, values.values())))
                return run(_, values)

            part["together"] = (counted, takes, gives)
    result(rows)
    assert sizes[0] == len(rows) and min(sizes) < len(rows) and sum(sizes) < 4 * sum(steps)
    assert len(sizes) <= 4 * max(steps)  # not once for each sample


@pytest.mark.slow
def test_what_mixes_samples_runs_one_by_one_and_is_reported() -> None:
    for kind in (batches.Sorts, batches.Keeps):
        report = batched(kind)[2].report
        assert report.one_by_one and all("batches.py:" in place for place in report.one_by_one)
    assert not batched(networks.Skips)[2].report.one_by_one
    report = batched(batches.Centres)[2].report
    assert len(report.one_by_one) == 1 < report.subnetworks  # the layer before the mean runs on all


def test_several_inputs_and_constants(tmp_path: Path) -> None:
    calls = [(torch.randn(1, 6), torch.randn(1, 6)) for _ in range(8)]
    model, _, result = batched(batches.Two, calls)
    result.save(tmp_path)
    loaded = regraft.load_split(tmp_path)
    assert loaded.report == result.report
    x, y = (torch.cat(column) for column in zip(*calls, strict=True))
    with torch.no_grad():
        assert not any(map(difference, loaded(x, y=y), [model(*call) for call in calls]))
    for args, reason in (
        ((x, y[:3]), "different numbers"),
        ((x, y, 3.0), "scale is 3.0"),
        ((x[:, :2], y), "any, 6"),
    ):
        with pytest.raises(ValueError, match=reason):
            loaded(*args)
    text = (tmp_path / "host.py").read_text()
    assert "torch" not in text and "regraft" not in text
    program = (
        "import numpy; from host import Host; x = numpy.ones((4, 6), 'float32');"
        " print(len(Host().forward(x, x)))"
    )
    command = [sys.executable, "-c", program]
    assert (
        subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.strip()
        == "4"
    )


def test_what_cannot_be_batched_is_refused() -> None:
    torch.manual_seed(0)
    model = batches.Leaves().eval()
    for x, reason in (
        (torch.randn(2, 6), r"first dimension is 1; argument x is .*\(2, 6\).*x\[:1\]"),
        (torch.tensor(2.0), r"argument x is of shape \(\): give it as x.reshape\(1\)"),
    ):
        with pytest.raises(Unsplittable, match=reason):
            regraft.split(model, [(x,)], batched=True)
    with pytest.raises(Unsplittable, match="random"):
        batched(illformed.Noise)
    with pytest.raises(ValueError, match="one sample"):
        regraft.split(model, [(torch.randn(1, 6),)], batched=True, single_file=True)


def test_what_onnx_cannot_take_is_an_island_for_each_sample(tmp_path: Path) -> None:
    model, calls, result = batched(networks.Bessel)
    assert len(result.report.islands) == 1 and "networks.py:" in result.report.islands[0]
    result.save(tmp_path)
    rows = torch.cat([call[0] for call in calls])
    with torch.no_grad():
        assert not any(
            map(difference, regraft.load_split(tmp_path)(rows), [model(*call) for call in calls])
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [batches.Leaves, batches.Centres, networks.Experts], ids=lambda kind: kind.__name__
)
def test_openvino_takes_batches(kind: Any, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    model, calls, result = batched(kind, compiler="openvino")
    assert (
        not result.report.islands
        and result.report.inputs_checked + len(result.report.at_threshold) >= 190
    )
    rows = torch.cat([call[0] for call in calls])
    result.save(tmp_path)
    with torch.no_grad():
        assert not any(
            map(difference, regraft.load_split(tmp_path)(rows), [model(*call) for call in calls])
        )
    assert "onnxruntime" not in (tmp_path / "host.py").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs g++")
def test_aotinductor_takes_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # no processes that import torch again
    model, calls, result = batched(batches.Centres, compiler="aotinductor")
    assert not result.report.islands and len(result.report.one_by_one) < result.report.subnetworks
    assert sum("together" in part for part in result.host.parts) == 2
    rows = torch.cat([call[0] for call in calls])
    with torch.no_grad():
        assert not any(map(difference, result(rows), [model(*call) for call in calls]))


def test_the_check_finds_samples_that_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    batch_regions = regraft.splitting.compiling.batch_regions
    monkeypatch.setattr(batch_regions, "mixes_samples", lambda *_: False)
    with pytest.raises(Unsplittable, match="a sample in a batch differs from the original alone"):
        batched(batches.Centres)


def test_a_sub_network_that_does_not_keep_its_samples_is_an_error() -> None:
    _, _, result = batched(networks.Skips)
    parts = next(part for part in result.host.parts if "together" in part)
    run, takes, gives = parts["together"]
    parts["together"] = (lambda _, values: [rows[:-1] for rows in run(_, values)], takes, gives)
    with pytest.raises(RuntimeError, match="one result for each sample"):
        result(torch.randn(4, 6))
