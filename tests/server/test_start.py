"""Test the start of both servers: what they import, and what is said where a package is missing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import regraft

MODULES = ("handlers", "mcp_server", "prover")


def test_servers_import_no_torch() -> None:
    imports = "; ".join(f"import regraft.server.{name}" for name in MODULES)
    program = (
        f"import sys; {imports}; print(sorted({{'torch', 'transformers'}} & {{*sys.modules}}))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert result.stdout.strip() == b"[]", result.stderr


@pytest.mark.parametrize(("command", "package"), [("server", "pygls"), ("mcp", "mcp")])
def test_a_missing_package_is_named(
    command: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    result = regraft(command)
    assert result.returncode == 2
    assert f"regraft {command} needs {package}" in result.stderr
    assert f"pip install 'regraft[{command}]'" in result.stderr


def test_a_root_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    result = regraft("mcp", "--root", tmp_path / "nowhere")
    assert result.returncode == 2 and "there is no such directory" in result.stderr
