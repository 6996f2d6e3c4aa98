"""Test TorchScript and `torch.fx`: transforms that take the original and not the changed version
are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from regraft.cli import main
from regraft.report.certificate import certificate
from regraft.verification import Verdict, verify
from regraft.verification.torchscript_and_fx_uses import transforms_applied_to
from regraft.verification.types import Terms
from regraft.verification.verdict_cache import verify_with_cache

pytest.importorskip("torch")

SOURCE = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, x):
        return self.dense(x) + 1


class Other(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, x):
        return self.dense(x)


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layer = Layer(dim)

    def forward(self, x):
        return self.layer(x)
"""
RETURN = "return self.dense(x) + 1"
NO_SCRIPT = "return sum([self.dense(x), 1])"
NO_TRACE = "return self.dense(x) + float(x.dim() / x.dim())"
SCRIPT, TRACE = "torch.jit.script", "torch.fx.symbolic_trace"


def judged(folder: Path, after: str, source: str = SOURCE, keep: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict on a changed result."""
    path = folder / "layer.py"
    path.write_text(source, encoding="utf-8")
    (verdict,) = verify(path, source.replace(RETURN, after).encode(), keep=keep)
    return verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "way", "word", "alternative"),
    [(NO_SCRIPT, SCRIPT, "script", "fx"), (NO_TRACE, TRACE, "fx", "script")],
)
def test_what_is_lost_is_named_and_matters_where_it_is_to_be_kept(
    after: str,
    way: str,
    word: str,
    alternative: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = judged(tmp_path, after, keep=(alternative,))
    assert verdict.status == "proved", verdict.reason
    losses = verdict.evidence["losses"]
    assert isinstance(losses, list)
    (loss,) = losses
    assert loss.startswith(f"{way}: ") and "\n" not in loss
    assert f"loses {loss}" in certificate("layer.py", [verdict])
    verdict = judged(tmp_path, after, keep=(word,))
    assert (
        verdict.status == "unproven" and verdict.reason == f"it loses what --keep asks for: {loss}"
    )


@pytest.mark.slow
def test_what_both_are_given_to_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = judged(tmp_path, "return 1 + self.dense(x)", keep=("script", "fx"))
    assert verdict.status == "proved", verdict.reason
    compared = verdict.evidence["also compared"]
    assert isinstance(compared, list)
    assert {SCRIPT, TRACE} <= set(compared) and not verdict.evidence["losses"]


@pytest.mark.slow
def test_scripts_that_compute_something_else_are_refuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verdict = judged(tmp_path, "return self.dense(x) + (2 if torch.jit.is_scripting() else 1)")
    assert verdict.status == "refuted" and f"by {SCRIPT}" in verdict.reason


@pytest.mark.slow
def test_a_loss_is_not_proved_where_the_package_scripts_the_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "export.py").write_text(
        "import torch\nfrom layer import Model\n\ntorch.jit.script(Model(8))\n"
    )
    verdict = judged(tmp_path, NO_SCRIPT)
    assert verdict.status == "unproven"
    assert verdict.reason.startswith(f"it loses what export.py:4 does with it: {SCRIPT}: ")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "export.py",
            "import layer\nfrom torch import jit\njit.script(layer.Model(8))",
            {"script": "export.py:3"},
        ),
        ("export.py", "from layer import Other\nimport torch\ntorch.jit.script(Other(8))", {}),
        ("export.py", "import torch\ntorch.jit.script(model)", {}),
        (
            "export.py",
            "import layer\nfrom torch.jit import script\nscript(model)",
            {"script": "export.py:3"},
        ),
        ("export.py", "import layer\nimport torch\ntorch.jit.trace(model, x)", {}),
        (
            "export.py",
            "import layer\nfrom torch import fx\nfx.symbolic_trace(layer.Layer(8))",
            {"fx": "export.py:3"},
        ),
        ("layer.py", "\n@torch.jit.script\ndef scale(x):\n    return x\n", {}),
        (
            "layer.py",
            "\n@torch.jit.script\ndef run(x: Layer):\n    return x\n",
            {"script": "layer.py:33"},
        ),
    ],
)
def test_uses_are_those_of_the_class_or_of_what_contains_it(
    name: str, text: str, expected: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "layer.py").write_text(SOURCE, encoding="utf-8")
    with (tmp_path / name).open("a", encoding="utf-8") as file:
        file.write(text)
    assert transforms_applied_to(tmp_path / "layer.py", "Layer") == expected


def test_files_of_the_package_are_searched(tmp_path: Path) -> None:
    for folder in ("net", "net/models", "net/tools"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    path = tmp_path / "net/models/layer.py"
    path.write_text(SOURCE, encoding="utf-8")
    (tmp_path / "net/tools/export.py").write_text(
        "from ..models.layer import Model\ntorch.jit.script(Model(2))\n"
    )
    assert transforms_applied_to(path, "Layer") == {"script": "export.py:2"}
    assert transforms_applied_to(path, "Other") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "from net.models import Model\ntorch.jit.script(Model(2).eval())",
            {"script": "test_net.py:2"},
        ),
        ("import net\ntorch.jit.script(net.models.Model(2))", {"script": "test_net.py:2"}),
        ("from net.models import Other\ntorch.jit.script(Other(2))", {}),
        ("from torch.models import Model\ntorch.jit.script(Model(2))", {}),
    ],
)
def test_tests_of_the_repository_are_searched(
    text: str, expected: dict[str, str], tmp_path: Path
) -> None:
    for folder in ("net", "net/models", "tests", ".venv", "env"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "net/__init__.py").touch()
    (tmp_path / "net/models/__init__.py").touch()
    (tmp_path / "env/pyvenv.cfg").touch()
    path = tmp_path / "net/models/layer.py"
    path.write_text(SOURCE, encoding="utf-8")
    script = "from net.models.layer import Model\ntorch.jit.script(Model(2))\n"
    for environment in (".venv", "env"):
        (tmp_path / environment / "scripts.py").write_text(script, encoding="utf-8")
    (tmp_path / "tests/test_net.py").write_text(text + "\n", encoding="utf-8")
    assert transforms_applied_to(path, "Layer") == expected


@pytest.mark.slow
def test_a_verdict_is_kept_for_what_was_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "layer.py"
    path.write_text(SOURCE, encoding="utf-8")
    changed = SOURCE.replace(RETURN, NO_SCRIPT).encode()
    statuses = [
        verify_with_cache(path, changed, root=tmp_path / "cache", terms=Terms(keep=keep))[0].status
        for keep in ((), ("script",), (), ("script",))
    ]
    assert statuses == ["proved", "unproven", "proved", "unproven"]


@pytest.mark.slow
def test_the_command_takes_what_is_to_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layer.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "changed.py").write_text(SOURCE.replace(RETURN, NO_SCRIPT), encoding="utf-8")
    result = CliRunner().invoke(
        main, ["verify", "layer.py", "changed.py", "--keep", "script,fx", "--effort", "low"]
    )
    assert result.exit_code == 1 and f"  loses {SCRIPT}: " in result.output, result.output
    result = CliRunner().invoke(main, ["verify", "layer.py", "changed.py", "--keep", "onnx"])
    assert result.exit_code == 2 and "'onnx' is none of script, fx" in result.output
    with pytest.raises(ValueError, match="unknown in keep: 'onnx'; it takes script, fx"):
        verify(tmp_path / "layer.py", b"", keep=("onnx",))
