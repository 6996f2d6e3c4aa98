"""The commands that the MCP server runs: where files may lie, what is reported meanwhile, and how a
failure is said."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from regraft.server.processes import Ended, run_module
from regraft.server.prover import Request

_HEARTBEAT_SECONDS = 1.0
_ERROR_STATUS = 2
_FOLDER_OF_TEXTS = "regraft-mcp-"
_TEXTS = Path(".cache", "regraft", "mcp")  # originals that come as text; reproducers name them
_MOST_ERROR_LINES = 20


class Caller:
    """The program that waits for a tool: it is told about every second what is done."""

    def __init__(self, context: Context[Any, Any]) -> None:
        self._context = context
        self._activity = "starting"

    def note(self, line: str) -> None:
        """Note what is done."""
        self._activity = line.strip() or self._activity

    async def wait_for(self, run: asyncio.Task[Ended]) -> Ended:
        """Return the result of a process, and report how long it takes until then."""
        started = time.monotonic()
        try:
            while not run.done():
                await asyncio.wait({run}, timeout=_HEARTBEAT_SECONDS)
                seconds = time.monotonic() - started
                if not run.done():
                    await self._context.report_progress(seconds, message=self._activity)
        finally:
            if not run.done():
                run.cancel()
                await asyncio.wait({run})
        return run.result()


class Texts:
    """Files in a temporary folder for texts that a caller sends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str, text: str) -> str:
        """Write a text to a file of a name, and return its path."""
        path = self._folder / name
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        return str(path)


@dataclass(frozen=True, slots=True)
class Workspace:
    """The files that the tools work on.

    roots      folders that hold them; the first is the working directory
    any_path   whether tools may name any file
    read_only  whether no tool may write a file that it names
    """

    roots: tuple[Path, ...]
    any_path: bool = False
    read_only: bool = False

    @property
    def folder(self) -> Path:
        """The working directory."""
        return self.roots[0]

    @staticmethod
    def refusal(message: str) -> ToolError:
        """Return the error for a call that makes no sense, or that a command refuses; texts that
        came without a path have no folder in it."""
        return ToolError(re.sub(rf"\S*{_FOLDER_OF_TEXTS}[^/\s]+/", "", message))

    def path(self, name: str, *, may_be_new: bool = False) -> str:
        """Return a path as a caller names it; raise ToolError for one that is not allowed, or where
        nothing is there."""
        if not name or "\0" in name:
            raise self.refusal("a path is empty or has a NUL character")
        real = Path(os.path.realpath(self.folder / name))
        if not self.any_path and not any(real.is_relative_to(root) for root in self.roots):
            roots = ", ".join(map(str, self.roots))
            raise self.refusal(
                f"{name} lies outside of {roots}: start the server with --root DIRECTORY or"
                " --any-path to allow it"
            )
        if not real.exists() and not may_be_new:
            raise self.refusal(f"{name}: no such file or directory below {self.folder}")
        # the name as the caller writes it, so that findings and diffs have it, too
        return os.path.normpath(name)

    def driver(self, reference: str) -> str:
        """Return a function that a caller names, FILE.py:FUNCTION or MODULE:FUNCTION."""
        module, _, function = reference.rpartition(":")
        if not module or not function:
            raise self.refusal(f"{reference} is no FILE.py:FUNCTION or MODULE:FUNCTION")
        return f"{self.path(module)}:{function}" if module.endswith(".py") else reference

    @contextlib.contextmanager
    def texts(self) -> Iterator[Texts]:
        """Give a place for texts of one call."""
        with tempfile.TemporaryDirectory(prefix=_FOLDER_OF_TEXTS) as name:
            yield Texts(Path(name))

    def version(self, kind: str, name: str | None, text: str | None, texts: Texts) -> str:
        """Return the path of a version of a file that is named, or that comes as a text."""
        if (name is None) == (text is None):
            raise self.refusal(f"verify takes `{kind}` or `{kind}_text`, one of the two")
        if name is not None:
            return self.path(name)
        assert text is not None
        return texts.path("changed.py", text) if kind == "changed" else self._stored(text)

    def _stored(self, text: str) -> str:
        """Return the path of a file with a text, which stays for the scripts that name it."""
        content = text.encode("utf-8", "surrogatepass")
        directory = self.folder / _TEXTS
        folder = directory / hashlib.sha256(content).hexdigest()[:16]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (directory / ".gitignore").write_text("*\n", encoding="utf-8")
            (folder / "original.py").write_bytes(content)
        except OSError as error:
            raise self.refusal(f"{folder}: cannot be written: {error.strerror or error}") from error
        return str((folder / "original.py").relative_to(self.folder))

    async def run_json(
        self, caller: Caller, arguments: Sequence[str], text: str | None = None
    ) -> dict[str, Any]:
        """Return the JSON that a command prints; raise ToolError where it ends with an error."""
        command, *options = arguments
        ended = await self._run(caller, [command, "--output-format", "json", *options], text)
        document = _document(ended.output)
        # a file that cannot be read is part of a report; a command that says nothing has failed
        if document is None or (ended.code == _ERROR_STATUS and command != "check"):
            raise self.refusal(_failure(ended))
        if command == "check" and document["errors"] and not document["findings"]:
            raise self.refusal("\n".join(map(_error_line, document["errors"])))
        return document

    async def run_text(self, caller: Caller, arguments: Sequence[str]) -> str:
        """Return what a command prints; raise ToolError where it ends with an error."""
        ended = await self._run(caller, arguments, None)
        if ended.code:
            raise self.refusal(_failure(ended))
        return ended.output

    async def _run(self, caller: Caller, arguments: Sequence[str], text: str | None) -> Ended:
        """Run a command of Regraft to its end."""
        run = run_module(["regraft", *arguments], self.folder, text, on_error=caller.note)
        return await caller.wait_for(asyncio.create_task(run))

    async def prove(self, caller: Caller, request: Request) -> dict[str, Any]:
        """Return the result of the process that rewrites and proves; raise ToolError."""
        messages: list[dict[str, Any]] = []

        def read(line: str) -> None:
            message = json.loads(line)
            if "progress" in message:
                caller.note(message["progress"])
            else:
                messages.append(message)

        run = run_module(["regraft.server.prover", request.to_json()], self.folder, on_output=read)
        ended = await caller.wait_for(asyncio.create_task(run))
        if not messages:
            raise self.refusal(_failure(ended))
        if "error" in messages[-1]:
            raise self.refusal("\n".join(map(_error_line, messages[-1]["error"])))
        result: dict[str, Any] = messages[-1]["result"]
        return result

    def with_counterexamples(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document with, beside each verdict that has one, the script that shows the
        difference, and the command that runs it."""
        for verdict in (*document["verdicts"], *document.get("left_out", ())):
            script = verdict["evidence"].get("reproducer")
            if script:
                verdict["counterexample"] = {
                    "path": str(script),
                    "command": f"python {script}",
                    "difference": verdict["reason"],
                    **_inputs(verdict["evidence"].get("failure", {})),
                }
        return document


def _inputs(failure: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of the inputs that show a difference."""
    names = ("dtype", "training", "seed", "shapes", "inputs", "max_abs", "max_rel")
    return {name: failure[name] for name in names if name in failure}


def _document(output: str) -> dict[str, Any] | None:
    """Return the JSON document that a command printed; None where it is none."""
    try:
        document = json.loads(output)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _error_line(error: dict[str, Any]) -> str:
    """Return an error of a report with its place."""
    place = ":".join(str(part) for part in (error["file"], error["line"], error["column"]) if part)
    return f"{place}: {error['message']}" if place else str(error["message"])


def _failure(ended: Ended) -> str:
    """Return what a command said when it failed."""
    lines = [line for line in ended.errors.splitlines() if line.strip()]
    text = "\n".join(lines[-_MOST_ERROR_LINES:])
    return text or f"the command ended with status {ended.code} and said nothing"
