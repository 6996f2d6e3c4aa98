"""Test the MCP server by sessions of the official client, over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from command_line import regraft
from regraft.report import formats

SCHEMA = json.loads(
    Path(formats.__file__).with_name("schemas").joinpath("check.schema.json").read_text()
)
GATE = """import torch


def gate(x):
    return x * torch.sigmoid(x)
"""


@asynccontextmanager
async def client(folder: Path, *options: str) -> AsyncIterator[Client]:
    """Start the server in a folder and hold a session with it."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "regraft", "mcp", *options],
        cwd=str(folder),
        env=dict(os.environ),
    )
    async with Client(stdio_client(parameters)) as session:
        yield session


def run(folder: Path, play: Callable[[Client], Awaitable[None]], *options: str) -> None:
    """Play a session in a folder."""

    async def all_of_it() -> None:
        async with client(folder, *options) as session:
            await play(session)

    asyncio.run(all_of_it())


async def call(session: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the structured result of a tool."""
    result = await session.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def error(session: Client, tool: str, **arguments: Any) -> str:
    """Return the message of a tool that refuses its arguments."""
    result = await session.call_tool(tool, arguments)
    assert result.is_error
    return str(getattr(result.content[0], "text", ""))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a file with one place."""
    path = tmp_path / "model.py"
    path.write_text(GATE)
    return path


@pytest.mark.slow
def test_tools_that_run_nothing(tmp_path: Path, model: Path) -> None:
    async def play(session: Client) -> None:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert list(tools) == ["check", "explain", "fix", "verify", "bench"]
        assert all(tool.description for tool in tools.values())
        assert tools["check"].annotations is not None
        assert tools["check"].annotations.read_only_hint
        report = await call(session, "check", paths=["model.py"])
        jsonschema.validate(report, SCHEMA)
        plain = json.loads(
            regraft("check", "--output-format", "json", "model.py", cwd=tmp_path).stdout
        )
        assert report["findings"] == plain["findings"] and len(report["findings"]) == 1
        by_text = await call(session, "check", source=GATE, filename="model.py")
        assert by_text["findings"] == report["findings"]
        assert await call(session, "check", source="x = 1\n", filename="new.py")
        ignored = await call(session, "check", paths=["."], ignore=["torch/silu"])
        assert ignored["findings"] == []
        page = await call(session, "explain", rule="silu")
        assert "## Worth" in page["page"]
        places = await call(session, "explain", path="model.py", line=5)
        assert [finding["rule"] for finding in places["findings"]] == ["torch/silu"]
        elsewhere = await call(session, "explain", path="model.py", line=1)
        assert elsewhere["findings"] == []
        fix = await call(session, "fix", path="model.py", prove=False)
        diff = regraft("check", "--diff", "model.py", cwd=tmp_path).stdout
        assert fix["diff"] == diff and "+    return torch.nn.functional.silu(x)" in diff
        assert not fix["written"] and model.read_text() == GATE
        written = await call(session, "fix", path="model.py", prove=False, write=True)
        assert written["written"] and model.read_text() == written["text"] != GATE
        regraft("undo", cwd=tmp_path)
        assert model.read_text() == GATE

    run(tmp_path, play)


@pytest.mark.slow
def test_wrong_input_is_an_error_of_the_tool(tmp_path: Path, model: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.py"
    outside.write_text(GATE)
    (tmp_path / "link.py").symlink_to(outside)
    (tmp_path / "broken.py").write_text("import torch\ndef f(:\n")

    async def play(session: Client) -> None:
        for path in (f"../{outside.name}", str(outside), "link.py"):
            assert "--root DIRECTORY" in await error(session, "check", paths=[path])
            assert "--root DIRECTORY" in await error(session, "fix", path=path)
            assert "--root DIRECTORY" in await error(session, "verify", original=path)
        assert "no such file" in await error(session, "check", paths=["nowhere.py"])
        assert "one of the two" in await error(session, "check")
        assert "broken.py:2" in await error(session, "check", paths=["broken.py"])
        assert "broken.py:2" in await error(session, "fix", path="broken.py")
        assert "did you mean torch/silu" in await error(session, "explain", rule="torch/silo")
        assert "no class or function Gate" in await error(
            session, "fix", path="model.py", definition="Gate"
        )
        assert "no rule" in await error(session, "check", paths=["model.py"], select=["silo"])
        assert "effort" in await error(session, "verify", original="model.py", effort="huge")
        wrong_diff = "--- a/model.py\n+++ b/model.py\n@@ -1 +1 @@\n-import nothing\n+import x\n"
        assert "does not fit model.py" in await error(session, "verify", diff=wrong_diff)
        assert "not both" in await error(session, "verify", diff=wrong_diff, original="model.py")
        leading_out = wrong_diff.replace("/model.py", "/../x.py")
        assert "outside" in await error(session, "verify", diff=leading_out)
        assert "FUNCTION" in await error(session, "bench", subject="model.py")
        assert "build" in await error(session, "bench", subject="model.py:build", rounds=6)
        assert "--read-only" in await error(session, "fix", path="model.py", write=True)
        assert "--root DIRECTORY" in await error(
            session, "verify", original="model.py", driver=f"{outside}:build"
        )
        # a path that looks like an option is a path
        assert "no such file" in await error(session, "check", paths=["--fix"])

    run(tmp_path, play, "--read-only")


def test_a_root_is_allowed(tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    work.mkdir()
    other.mkdir()
    (other / "model.py").write_text(GATE)

    async def play(session: Client) -> None:
        report = await call(session, "check", paths=["../other/model.py"])
        assert len(report["findings"]) == 1

    run(work, play, "--root", str(other))


@pytest.mark.slow
def test_verify_proves_and_refutes(tmp_path: Path, model: Path) -> None:
    """Text against text, a file against text with a counterexample that runs, and progress."""
    right = GATE.replace("x * torch.sigmoid(x)", "torch.sigmoid(x) * x")
    wrong = GATE.replace("x * torch.sigmoid(x)", "x * torch.sigmoid(x) * 0.5")
    notes: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        notes.append(message)

    async def play(session: Client) -> None:
        arguments = {"original_text": GATE, "changed_text": right, "effort": "low"}
        result = await session.call_tool("verify", arguments, progress_callback=note)
        assert isinstance(result.structured_content, dict), result.content
        (proved,) = result.structured_content["verdicts"]
        assert (proved["class"], proved["status"]) == ("gate", "proved")
        assert any("original.py" in str(text) for text in notes)
        document = await call(
            session, "verify", original="model.py", changed_text=wrong, effort="low"
        )
        (refuted,) = document["verdicts"]
        assert refuted["status"] == "refuted"
        counterexample = refuted["counterexample"]
        assert "differs" in counterexample["difference"] and counterexample["shapes"]
        script = counterexample["path"]
        shown = subprocess.run([sys.executable, script], capture_output=True, check=False)
        assert shown.returncode == 1

    run(tmp_path, play)


def test_wrong_arguments_are_said_in_a_sentence(tmp_path: Path, model: Path) -> None:
    """Each names the argument and what it takes, without the words of a validator; an argument that
    does not exist is refused, since it would change nothing."""
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("check", {"slect": ["torch"]}, "no argument `slect`; did you mean `select`?"),
        ("explain", {"zzz": 1}, "no argument `zzz`; it takes rule, path, line, select"),
        ("check", {"paths": "model.py"}, "`paths` has to be a list; it is 'model.py'"),
        ("check", {"paths": [3]}, "`paths.0` has to be a text; it is 3"),
        ("check", {"target": "rocm"}, "`target` has to be one of auto, cpu or cuda; it is 'rocm'"),
        ("explain", {"line": 0}, "`line` has to be at least 1; it is 0"),
        ("explain", {"line": "x"}, "`line` has to be a whole number; it is 'x'"),
        ("fix", {}, "the argument `path` is missing"),
        ("fix", {"path": "model.py", "prove": "perhaps"}, "`prove` has to be true or false"),
        ("verify", {"time_limit": -1}, "`time_limit` has to be greater than 0"),
        ("bench", {"subject": "a.py:f", "threads": 9999}, "`threads` has to be at most 1024"),
        ("chekc", {}, "there is no tool chekc; there are check, explain, fix, verify, bench"),
    ]

    async def play(session: Client) -> None:
        for tool, arguments, message in wrong:
            said = await error(session, tool, **arguments)
            assert message in said and "pydantic" not in said, said

    run(tmp_path, play)
