"""Test that packages that findings wait for are named with the command that installs them, and
installed on request."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from regraft.cli import main
from regraft.dsl.syntax import Need
from regraft.rules import package_requirements as needs

CODE = "import torch\n\n\ndef gated(gate, up):\n    return torch.nn.functional.silu(gate) * up\n"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace the versions that are installed; what a test leaves in the cache would withhold rules
    in later tests."""
    versions = {"torch": "2.13.0+cpu", "old": "0.9rc1", "odd": "built by hand"}

    monkeypatch.setattr(needs, "installed_version", versions.get)
    needs._is_met.cache_clear()
    yield
    needs._is_met.cache_clear()


def check(path: Path, *options: str, answer: str = "") -> Result:
    """Run `regraft check` on a file, with an answer to its question."""
    path.write_text(CODE)
    return CliRunner().invoke(
        main,
        ["check", "--no-cache", "--select", "liger/gated-activation", *options, str(path)],
        input=answer,
    )


def test_versions_are_compared_and_nothing_is_missing_that_is_there() -> None:
    requirements = (
        Need("torch", "2.4"),
        Need("torch", "3"),
        Need("old", "0.9"),
        Need("odd", "1"),
        Need("gone"),
        Need("no", "1"),
    )
    assert needs.missing_requirements(requirements) == ("torch>=3", "old>=0.9", "gone", "no>=1")


def test_findings_that_wait_are_counted_with_the_command(tmp_path: Path) -> None:
    result = check(tmp_path / "m.py")
    assert (
        f"1 finding waits for liger-kernel>=0.8: {sys.executable} -m pip install" in result.output
    )
    report = json.loads(check(tmp_path / "m.py", "--output-format", "json").output)
    assert report["missing"] == {"liger-kernel>=0.8": 1}
    assert report["findings"][0]["needs"] == ["torch>=2.8", "liger-kernel>=0.8"]


def test_they_are_installed_only_when_the_user_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", run)
    assert check(tmp_path / "m.py", "--install", answer="n\n").exit_code == 1
    assert ran == []
    assert check(tmp_path / "m.py", "--install", answer="y\n").exit_code == 2
    assert ran == [[sys.executable, "-m", "pip", "install", "liger-kernel>=0.8"]]


def test_a_package_whose_name_is_another_one_s_is_not_taken_from_the_index() -> None:
    assert needs.missing_requirements([Need("apex", "0.1")]) == (
        "apex @ git+https://github.com/NVIDIA/apex",
    )


def test_a_rule_that_needs_a_newer_torch_is_withheld(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel of an older version may compute something else."""
    source = "import torch\n\n\ndef norm(x):\n    h = x.to(torch.float32)\n"
    source += (
        "    n = h * torch.rsqrt(torch.mean(h ** 2, -1, keepdim=True) + 1e-6)\n    return"
        " n.to(x.dtype)\n"
    )
    path = tmp_path / "m.py"
    path.write_text(source)
    command = ["check", "--no-cache", "--select", "torch/rms-norm", str(path)]
    assert "+    return rms_normalize(" in CliRunner().invoke(main, [*command, "--diff"]).output
    monkeypatch.setattr(needs, "installed_version", lambda package: "2.7.1")
    needs._is_met.cache_clear()
    output = CliRunner().invoke(main, command).output
    assert "needs torch>=2.8, and here is an older version" in output
    assert "rms_normalize" not in CliRunner().invoke(main, [*command, "--diff"]).output


def test_the_version_is_that_of_the_folder_with_the_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fixture replaces the function under test, which `importlib.metadata` agrees with."""
    monkeypatch.undo()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "gone"), str(tmp_path)])
    for name, version in {
        "torch": "2.9.0+cpu",
        "torch_scatter": "2.1",
        "liger_kernel": "0.8",
    }.items():
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        (folder / "METADATA").write_text(metadata)
    for package in ("torch", "torch-scatter", "liger-kernel"):
        assert needs.installed_version(package) == importlib.metadata.version(package)
    assert needs.installed_version("liger") is None
