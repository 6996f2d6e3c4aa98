"""Time from a keystroke to the diagnostics, as an editor sees it.

    python benchmarks/editor_latency.py FILE...

Starts `regraft server` on standard input and output with an empty cache, opens each file and types
a statement into a function in its middle, character by character. Prints for each file the time
until its first diagnostics, and the median, the 95th percentile and the longest time from sending a
change to receiving the diagnostics of that version, for texts that can be parsed and for those that
cannot (`value =`). Half a second passes between keystrokes, so that each is analysed by itself;
`--pause SECONDS` says otherwise. Last comes a burst: every character at once, until the diagnostics
of the last one. Times are in milliseconds on the clock; on Linux the processor time of the server
is printed, too, which other work on the machine changes less: with half a second between keystrokes
the server also analyses the whole file after each. Last come the best and the median processor time
of its two parts, in this process: the look at the changed definition, after which diagnostics are
sent, and the analysis of the whole file, which waits for a pause. Needs `regraft[server]`.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from regraft.server.analysis import analyse
from regraft.server.edited_definition_analysis import glimpse_of
from regraft.server.project import project_of
from regraft.source.garbage_collection import uncollected

STATEMENT = "value = self.scale * 2"
ROUNDS = 3
PARTS_ROUNDS = 15


class Editor:
    """An editor that waits for the diagnostics of a version."""

    def __init__(self) -> None:
        self.client = LanguageClient("latency", "1")
        self.arrived: dict[tuple[str, int | None], float] = {}
        self.changed = asyncio.Event()

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def receive(params: types.PublishDiagnosticsParams) -> None:
            self.arrived[params.uri, params.version] = time.perf_counter()
            self.changed.set()

    async def start(self, folder: Path, cache: str) -> None:
        """Start the server and begin a session."""
        variables = {**os.environ, "REGRAFT_CACHE_DIR": cache}
        command = (sys.executable, "-m", "regraft", "server")
        await self.client.start_io(*command, env=variables)
        workspace = [types.WorkspaceFolder(folder.as_uri(), folder.name)]
        await self.client.initialize_async(
            types.InitializeParams(types.ClientCapabilities(), workspace_folders=workspace)
        )
        self.client.initialized(types.InitializedParams())

    def open(self, uri: str, text: str) -> None:
        """Open a document as version 0."""
        document = types.TextDocumentItem(uri, "python", 0, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(document))

    def change(self, uri: str, version: int, text: str) -> None:
        """Send a new text of a document."""
        identifier = types.VersionedTextDocumentIdentifier(version, uri)
        changes = [types.TextDocumentContentChangeWholeDocument(text)]
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(identifier, changes))

    async def seconds_until(self, uri: str, version: int, started: float) -> float:
        """Return the time from a start to the diagnostics of a version."""
        while (uri, version) not in self.arrived:
            self.changed.clear()
            await self.changed.wait()
        return self.arrived[uri, version] - started

    def processor_seconds(self) -> float:
        """Return the processor time of the server so far; NaN on systems that do not tell."""
        server = self.client._server
        try:
            stat = Path(f"/proc/{server.pid if server else 0}/stat").read_text("utf-8")
        except OSError:
            return float("nan")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    async def stop(self) -> None:
        """End the session."""
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()


def insertion(text: str) -> tuple[int, str]:
    """Return the line (from 0) of a statement in the middle of a file, and its indentation."""
    lines = text.splitlines()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    middle = min(functions, key=lambda node: abs(node.lineno - len(lines) // 2))
    statement = middle.body[-1]
    return statement.lineno - 1, " " * statement.col_offset


def parses(text: str) -> bool:
    """Return whether a text is Python."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def line_of(name: str, seconds: list[float]) -> str:
    """Return the line for some times."""
    ordered = sorted(value * 1000 for value in seconds)
    late = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    return (
        f"  {name:24} median {statistics.median(ordered):6.1f}   95% {late:6.1f}"
        f"   longest {ordered[-1]:6.1f}   ({len(ordered)} keystrokes)"
    )


async def measure(editor: Editor, file: Path, pause: float) -> None:
    """Print the times of a file."""
    text, uri = file.read_text("utf-8"), file.resolve().as_uri()
    number, indentation = insertion(text)
    lines = text.splitlines(keepends=True)
    texts = [
        "".join((*lines[:number], f"{indentation}{STATEMENT[:end]}\n", *lines[number:]))
        for end in range(1, len(STATEMENT) + 1)
    ]
    started = time.perf_counter()
    editor.open(uri, text)
    first = await editor.seconds_until(uri, 0, started)
    print(f"{file} ({len(lines)} lines): first diagnostics {first * 1000:.0f} ms")
    whole: list[float] = []
    broken: list[float] = []
    version = 0
    before = editor.processor_seconds()
    for changed in texts * ROUNDS:
        await asyncio.sleep(pause)
        version += 1
        started = time.perf_counter()
        editor.change(uri, version, changed)
        (whole if parses(changed) else broken).append(
            await editor.seconds_until(uri, version, started)
        )
    work = (editor.processor_seconds() - before) / len(texts * ROUNDS) * 1000
    print(line_of("text that parses", whole))
    print(line_of("text that does not", broken))
    started = time.perf_counter()
    for changed in texts:
        version += 1
        editor.change(uri, version, changed)
    seconds = await editor.seconds_until(uri, version, started)
    print(f"  processor time of the server: {work:.1f} ms for each keystroke of both kinds")
    print(f"  burst of {len(texts)} changes: {seconds * 1000:.0f} ms until those of the last")


def print_parts(file: Path) -> None:
    """Print the processor time of the analyses of a file."""
    text = file.read_text("utf-8")
    project = project_of(file, file.parent)
    number, indentation = insertion(text)
    lines = text.splitlines(keepends=True)
    changed = "".join((*lines[:number], f"{indentation}{STATEMENT}\n", *lines[number:]))
    whole = analyse(str(file), text, project, "utf-16")
    if glimpse_of(changed, whole) is None:
        raise SystemExit(f"{file}: the statement changes more than a definition")
    parts = {
        "look at a definition": lambda: glimpse_of(changed, whole),
        "whole file": lambda: analyse(str(file), changed, project, "utf-16"),
    }
    for name, part in parts.items():
        seconds = []
        for _ in range(PARTS_ROUNDS):
            with uncollected():
                started = time.process_time()
                part()
                seconds.append(time.process_time() - started)
        best, median = min(seconds) * 1000, statistics.median(seconds) * 1000
        print(f"  {name:24} best {best:6.1f}   median {median:6.1f}   of processor time")


async def run(files: list[Path], pause: float) -> None:
    """Measure files in one session."""
    with tempfile.TemporaryDirectory() as cache:
        editor = Editor()
        await editor.start(files[0].resolve().parent, cache)
        for file in files:
            await measure(editor, file, pause)
        await editor.stop()


def main() -> None:
    """Measure the files of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between keystrokes")
    options = parser.parse_args()
    asyncio.run(run(options.files, options.pause))
    for file in options.files:
        print(file)
        print_parts(file.resolve())


if __name__ == "__main__":
    main()
