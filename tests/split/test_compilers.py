"""Test each compiler in a real run: equal to the original, alone, and eager for regions that it
cannot take."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

import regraft  # noqa: E402
from regraft.splitting.checking.decision_check import difference  # noqa: E402
from regraft.splitting.compiling.compilers import NAMES, compiler_named  # noqa: E402
from split import language, networks, sizes  # noqa: E402


def compiled(kind: Any, compiler: Any, **options: Any) -> Any:
    """Return a network, its calls and its compiled split version."""
    torch.manual_seed(0)
    model = kind().eval()
    calls = model.calls() if hasattr(model, "calls") else [(torch.randn(1, 6),) for _ in range(4)]
    return model, calls, regraft.split(model, calls, compiler=compiler, cache=False, **options)


class Wide(torch.nn.Module):
    """Whole numbers beyond 32 bits, and float64."""

    def forward(self, x: Any, n: Any) -> Any:
        if x.sum() > 0:
            return n * 3 + 2**20, x
        return n, x.double().sum()


class Tokens(torch.nn.Module):
    """Whole numbers as indices only."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 4)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids).mean(1)
        if x.sum() > 0:
            x = self.out(x)
        return x, x.argmax()


class Turns(torch.nn.Module):
    """A network whose second region takes the result of the first transposed in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        y = self.conv(x).flatten(2).transpose(1, 2)
        if y.sum() > 0:
            return self.out(y)
        return y


class Enlarged(torch.nn.Module):
    """ONNX Runtime takes tens of times as long as torch for cubic interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.nn.Conv2d(4, 2, 3)

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return self.out(x)
        return torch.nn.functional.interpolate(x, scale_factor=2, mode="bicubic")


@pytest.mark.slow
@pytest.mark.usefixtures("timed")
def test_what_the_compiler_makes_slower_stays_eager() -> None:
    model, calls = Enlarged().eval(), [(torch.ones(1, 4, 64, 64),), (-torch.ones(1, 4, 64, 64),)]
    result = regraft.split(model, calls, cache=False)
    assert len(result.report.islands) == 1 and result.report.subnetworks > 1
    assert re.search(
        r"test_compilers.py:\d+: ONNX Runtime takes \d+ us, torch \d+ us", result.report.islands[0]
    )
    assert all(difference(result(*call), model(*call)) == "" for call in calls)
    assert not regraft.split(model, calls, cache=False, measure=False).report.islands
    assert not regraft.split(model, calls, cache=False, batched=True).report.islands


KINDS = [
    networks.Exits,
    networks.Skips,
    networks.Experts,
    language.State,
    language.Continue,
    sizes.Filters,
    sizes.Grows,
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_openvino_gives_what_the_original_gives(kind: Any) -> None:
    pytest.importorskip("openvino")
    model, calls, result = compiled(kind, "openvino")
    assert result.report.inputs_checked + len(result.report.at_threshold) >= 200
    with torch.no_grad():
        assert all(difference(result(*call), model(*call)) == "" for call in calls)


@pytest.mark.slow
def test_openvino_runs_without_torch_and_its_files_are_checked(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    _, calls, result = compiled(networks.Skips, "openvino", measure=False)
    assert not result.report.islands and (result.report.subnetworks, result.report.models) == (
        10,
        6,
    )
    result.save(tmp_path)
    program = (
        "import sys; sys.modules['torch'] = sys.modules['onnxruntime'] = sys.modules['onnx'] ="
        " None; import numpy;from host import Host;"
        f" print(Host().forward(numpy.array({calls[0][0].tolist()}, dtype='float32'))[1])"
    )
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONSAFEPATH": ""}
    command = [sys.executable, "-c", program]
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(result(*calls[0])[1])
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["compiler"] == "openvino" and "openvino" in manifest["versions"]
    with (tmp_path / "region_0.onnx").open("ab") as file:
        file.write(b"x")
    with pytest.raises(ValueError, match="region_0"):
        regraft.load_split(tmp_path)


def test_what_openvino_would_compute_with_fewer_bits_stays_eager_or_raises() -> None:
    pytest.importorskip("openvino")
    torch.manual_seed(0)
    model = Wide().eval()
    calls = [(torch.randn(1, 6), torch.tensor([2**40 + n])) for n in range(4)]
    result = regraft.split(model, calls, compiler="openvino", cache=False, measure=False)
    assert len(result.report.islands) == 2 and any(
        "int64" in island for island in result.report.islands
    )
    assert all(difference(result(*call), model(*call)) == "" for call in calls)
    model = Tokens().eval()
    calls = [(torch.randint(0, 9, (1, 5)),) for _ in range(6)]
    result = regraft.split(model, calls, compiler="openvino", cache=False, measure=False)
    assert not result.report.islands
    with pytest.raises(OverflowError):
        result(torch.full((1, 5), 2**40))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_compiler_that_is_installed_gives_what_the_original_gives(
    name: str, tmp_path: Path
) -> None:
    if name == "aotinductor" and shutil.which("g++") is None:
        pytest.skip("AOTInductor needs g++")
    try:
        assert compiler_named(name).name == name
    except ImportError as problem:
        pytest.skip(str(problem))
    torch.manual_seed(0)
    model, calls = Turns().eval(), [(torch.randn(1, 1, 5, 5),)]
    result = regraft.split(model, calls, compiler=name, cache=False, measure=False)
    assert result.report.inputs_checked == 200 and not result.report.islands
    result.save(tmp_path)
    loaded = regraft.load_split(tmp_path)
    for x in torch.randn(10, 1, 1, 5, 5):
        assert difference(loaded(x), model(x)) == ""
    imports_onnxruntime = "import onnxruntime" in (tmp_path / "host.py").read_text()
    assert imports_onnxruntime == (name == "onnxruntime")


def test_a_compiler_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = networks.Skips().eval(), [(torch.randn(1, 6),)]
    with pytest.raises(ValueError, match=f"unknown compiler 'none'; there are {', '.join(NAMES)}"):
        regraft.split(model, calls, compiler="none")
    with pytest.raises(ValueError, match="single files are for ONNX Runtime"):
        regraft.split(model, calls, compiler="aotinductor", single_file=True)
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.delitem(
        sys.modules, "regraft.splitting.compiling.compilers.with_openvino", raising=False
    )
    with pytest.raises(ImportError):
        regraft.split(model, calls, compiler="openvino")
