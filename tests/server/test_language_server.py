"""Test the language server by sessions as an editor holds them, over standard input and output."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from command_line import regraft
from lsp_session import Session, applied, edits_of, session

GATE = """import torch


def gate(x):
    return x * torch.sigmoid(x)
"""
# two places of one statement, one that a comment forbids, and text that is not ASCII before them
MODEL = """import math
import torch
from torch import nn


class Block(nn.Module):
    def forward(self, x):
        y = x * torch.sigmoid(x)
        é, s = "😀😀", x * torch.sigmoid(x); return y + s

    def gelu(self, x):
        return (
            0.5 * x  # half
            * (1.0 + torch.erf(x / math.sqrt(2.0)))
        )
"""


def run(folder: Path, play: Callable[[Session], Awaitable[None]], **options: Any) -> None:
    """Play a session in a folder."""

    async def all_of_it() -> None:
        async with session(folder, **options) as editor:
            await play(editor)

    asyncio.run(all_of_it())


def save(folder: Path, name: str, text: str) -> str:
    """Write a file, byte for byte, and return its URI."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path.as_uri()


def codes(diagnostics: list[types.Diagnostic]) -> list[object]:
    """Return the codes of diagnostics."""
    return [diagnostic.code for diagnostic in diagnostics]


def whole(text: str) -> types.Range:
    """Return the range of a text."""
    return types.Range(types.Position(0, 0), types.Position(text.count("\n") + 1, 0))


def titled(actions: list[types.CodeAction], words: str) -> types.CodeAction:
    """Return the first action whose title has some words."""
    return next(action for action in actions if words in action.title)


def test_diagnostics_follow_the_text(tmp_path: Path) -> None:
    """A session: open, type, break, mend, empty and close a file that is never saved."""
    uri = save(tmp_path, "model.py", "")

    async def play(editor: Session) -> None:
        assert await editor.open(uri, "") == []
        first = await editor.change(uri, 2, MODEL)
        assert codes(first) == ["torch/silu", "torch/silu", "torch/gelu"]
        assert [shown.severity for shown in first[1:]] == [
            types.DiagnosticSeverity.Warning,
            types.DiagnosticSeverity.Information,
        ]
        # two characters beyond the basic plane stand before it: two units each in UTF-16
        start = MODEL.splitlines()[8].index("x * torch") + 2
        assert first[1].range.start == types.Position(8, start)
        assert "withheld" in first[2].message
        # a line more, then a syntax error: what is below stays at its lines
        longer = await editor.change(uri, 3, MODEL.replace("import math", "import math\n"))
        assert [shown.range.start.line for shown in longer] == [8, 9, 13]
        broken = await editor.change(uri, 4, MODEL.replace("import math", "import math\n\n(\n"))
        assert codes(broken) == ["torch/silu", "torch/silu", "torch/gelu", "not-analysed"]
        assert [shown.range.start.line for shown in broken[:3]] == [10, 11, 15]
        assert await editor.actions(uri, whole(MODEL)) == []
        # rapid edits: the last one counts
        for version in range(5, 30):
            editor.change_only(uri, version, MODEL + "#" * version)
        assert codes(await editor.change(uri, 30, GATE)) == ["torch/silu"]
        useless = "import torch\nx = 1  # regraft: ignore[torch/silu]\n"
        assert codes(await editor.change(uri, 31, useless)) == ["ignore"]
        assert await editor.change(uri, 32, "x = 1\n") == []
        await editor.change(uri, 33, GATE)
        closed = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(uri))
        before = len(editor.diagnostics[uri])
        editor.client.text_document_did_close(closed)
        assert await editor.published(uri, before) == []

    run(tmp_path, play)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_code_actions_write_what_check_writes(tmp_path: Path, newline: str) -> None:
    text = MODEL.replace("\n", newline)
    uri = save(tmp_path, "model.py", text)

    async def play(editor: Session) -> None:
        diagnostics = await editor.open(uri, text)
        actions = await editor.actions(uri, whole(text))
        fix_all = titled(actions, "fix all")
        assert fix_all.kind == "source.fixAll.regraft" and fix_all.edit is None
        resolved = await editor.client.code_action_resolve_async(fix_all)
        fixed = applied(text, edits_of(resolved.edit))
        copy = tmp_path / "copy.py"
        copy.write_bytes(text.encode())
        regraft("check", "--fix", "--no-verify", copy)
        assert fixed.encode() == copy.read_bytes() != text.encode()
        # one place alone, by its edit
        place = diagnostics[1].range
        fix_here = titled(await editor.actions(uri, place, ["quickfix"]), "rewrite with")
        alone = applied(text, edits_of(fix_here.edit))
        assert alone.count("silu(x)") == 1 and alone.count("torch.sigmoid") == 1
        # a comment that ignores it, as check --add-ignores writes it
        ignore = titled(await editor.actions(uri, diagnostics[0].range), "ignore torch/silu")
        ignored = applied(text, edits_of(ignore.edit))
        assert "torch.sigmoid(x)  # regraft: ignore[torch/silu]" in ignored
        assert codes(await editor.change(uri, 2, ignored)) == codes(diagnostics[1:])
        only = await editor.actions(uri, whole(text), ["source.fixAll"])
        assert [action.kind for action in only] == ["source.fixAll.regraft"]
        assert await editor.actions(uri, whole(text), ["refactor"]) == []

    run(tmp_path, play)


def test_an_editor_without_resolve_gets_the_edit_at_once(tmp_path: Path) -> None:
    uri = save(tmp_path, "model.py", GATE)

    async def play(editor: Session) -> None:
        await editor.open(uri, GATE)
        (action,) = await editor.actions(uri, whole(GATE), ["source.fixAll.regraft"])
        assert "silu(x)" in applied(GATE, edits_of(action.edit), "utf-8")

    run(tmp_path, play, encoding="utf-8", resolves=False)


def test_hovers_and_explanations(tmp_path: Path) -> None:
    uri = save(tmp_path, "model.py", MODEL)

    async def play(editor: Session) -> None:
        diagnostics = await editor.open(uri, MODEL)
        document = types.TextDocumentIdentifier(uri)
        hover = types.HoverParams(document, diagnostics[0].range.start)
        shown = await editor.client.text_document_hover_async(hover)
        assert shown is not None and isinstance(shown.contents, types.MarkupContent)
        assert "## Worth" in shown.contents.value and "torch.nn.functional.silu" in (
            shown.contents.value
        )
        nowhere = types.HoverParams(document, types.Position(0, 0))
        assert await editor.client.text_document_hover_async(nowhere) is None
        explain = titled(await editor.actions(uri, diagnostics[2].range), "explain why torch/gelu")
        assert explain.command is not None
        arguments = explain.command.arguments or []
        answer = await editor.command(explain.command.command, *arguments)
        assert "withheld" in answer["text"] and "comment" in answer["text"]
        await editor.until(lambda: any("withheld" in text for text in editor.messages))
        nothing = await editor.command("regraft.explain", uri, 1, 1)
        assert nothing["reasons"] == []
        with pytest.raises(Exception, match="takes a URI"):
            await editor.command("regraft.explain", uri)

    run(tmp_path, play)


@pytest.mark.slow
def test_the_configuration_holds_as_for_check(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.regraft]\nignore = ["torch/silu"]\nexclude = ["old/"]\n')
    uri = save(tmp_path, "model.py", MODEL)
    excluded = save(tmp_path, "old/model.py", MODEL)
    hidden = save(tmp_path, "ignored/model.py", MODEL)
    (tmp_path / ".gitignore").write_text("ignored/\n")

    async def play(editor: Session) -> None:
        assert codes(await editor.open(uri, MODEL)) == ["torch/gelu"]
        assert await editor.open(excluded, MODEL) == []
        assert await editor.open(hidden, MODEL) == []
        await editor.until(lambda: editor.registrations)

        async def after(text: str) -> list[object]:
            project.write_text(text)
            event = types.FileEvent(project.as_uri(), types.FileChangeType.Changed)
            before = len(editor.diagnostics[uri])
            params = types.DidChangeWatchedFilesParams([event])
            editor.client.workspace_did_change_watched_files(params)
            return codes(await editor.published(uri, before))

        assert await after('[tool.regraft]\nselect = ["silu"]\n') == ["torch/silu"] * 2
        assert await after('[tool.regraft]\nselekt = ["silu"]\n') == []
        (error,) = editor.diagnostics[project.as_uri()][-1].diagnostics
        assert error.range.start.line == 1 and "select" in error.message
        assert any("Nothing is checked" in text for text in editor.messages)
        rules = tmp_path / "rules" / "own"
        rules.mkdir(parents=True)
        (rules / "wrong.rule").write_text("rule wrong\n")
        assert await after('[tool.regraft]\nrules = ["rules"]\n') == []
        assert editor.diagnostics[(rules / "wrong.rule").as_uri()][-1].diagnostics
        await editor.until(lambda: not editor.diagnostics[project.as_uri()][-1].diagnostics)
        shutil.rmtree(rules)
        assert await after("") == ["torch/silu", "torch/silu", "torch/gelu"]
        regraft("baseline", "write", "model.py", cwd=tmp_path)
        accepted = await after('[tool.regraft]\nbaseline = "regraft.baseline.json"\n')
        assert accepted == ["torch/gelu"]  # it is withheld, and fails no check
        (action,) = [a for a in await editor.actions(uri, whole(MODEL)) if "explain" in a.title]
        assert action.command is not None

    run(tmp_path, play)


@pytest.mark.slow
def test_a_wrong_configuration_stays_named_while_others_are_right(tmp_path: Path) -> None:
    save(tmp_path, "wrong/regraft.toml", "selekt = 1\n")
    wrong, right = (save(tmp_path, f"{name}/model.py", GATE) for name in ("wrong", "right"))

    async def play(editor: Session) -> None:
        assert await editor.open(wrong, GATE) == []
        assert codes(await editor.open(right, GATE)) == ["torch/silu"]
        assert await editor.change(wrong, 2, GATE + "\n") == []
        configuration = (tmp_path / "wrong" / "regraft.toml").as_uri()
        assert [len(shown.diagnostics) for shown in editor.diagnostics[configuration]] == [1]
        assert len(editor.messages) == 1
        closed = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(wrong))
        editor.client.text_document_did_close(closed)
        assert await editor.published(configuration, 1) == []

    run(tmp_path, play)


@pytest.mark.slow
def test_an_editor_that_is_gone_ends_the_server(tmp_path: Path) -> None:
    uri = save(tmp_path, "model.py", GATE)

    async def play() -> int:
        editor = Session(tmp_path)
        command = (sys.executable, "-m", "regraft", "server")
        await editor.client.start_io(*command, cwd=tmp_path)
        params = types.InitializeParams(capabilities=types.ClientCapabilities())
        await editor.client.initialize_async(params)
        await editor.open(uri, GATE)
        server = editor.client._server
        assert server is not None and server.stdin is not None
        server.stdin.close()
        return await asyncio.wait_for(server.wait(), 60)

    assert asyncio.run(play()) == 0


@pytest.mark.slow
def test_odd_documents(tmp_path: Path) -> None:
    """Texts and URIs that are unusual, two files at once, and a package around unsaved text."""
    save(tmp_path, "pack/__init__.py", "")
    helper = "import torch\n\n\ndef act(x):\n    return torch.sigmoid(x)\n"
    save(tmp_path, "pack/helpers.py", helper)
    caller = "from pack.helpers import act\nimport torch\n\n\ndef gate(x):\n    return x * act(x)\n"
    uri = save(tmp_path, "pack/model.py", "")
    gone = save(tmp_path, "gone.py", GATE)

    async def play(editor: Session) -> None:
        assert codes(await editor.open("untitled:Untitled-1", GATE)) == ["torch/silu"]
        plain = regraft(
            "check", "-", "--stdin-filename", "pack/model.py", text=caller, cwd=tmp_path
        )
        assert len(await editor.open(uri, caller)) == ("torch/silu" in plain.stdout)
        (tmp_path / "gone.py").unlink()
        assert codes(await editor.open(gone, GATE)) == ["torch/silu"]
        for text, line in (
            ("\ufeff" + GATE, 4),
            (GATE.replace("    return", "\treturn"), 4),
            ("# -*- coding: latin-1 -*-\n# é\n" + GATE, 6),
            ("x = '\x0c\u2028'\n" + GATE, 5),
        ):
            version = editor.diagnostics[gone][-1].version or 1
            (shown,) = await editor.change(gone, version + 1, text)
            assert shown.range.start.line == line
        version = editor.diagnostics[gone][-1].version or 1
        (shown,) = await editor.change(gone, version + 1, "\ufeffimport torch; a = 1 +\n")
        assert shown.code == "not-analysed"
        huge = "import torch\n" + "#" * 5_000_000
        assert codes(await editor.change(gone, version + 2, huge)) == ["not-analysed"]
        assert codes(await editor.change(gone, version + 3, "import torch\n\0")) == ["not-analysed"]
        assert codes(await editor.change(gone, version + 4, "\ud800")) == ["not-analysed"]
        assert codes(await editor.change(gone, version + 5, GATE)) == ["torch/silu"]
        # what no check reads gets no answer, and ends nothing
        for other in ("git:/model.py?%7B%7D", "vscode-notebook-cell:/a.ipynb#X1", "file:///a.pyi"):
            document = types.TextDocumentItem(other, "python", 1, GATE)
            opened = types.DidOpenTextDocumentParams(document)
            editor.client.text_document_did_open(opened)
            assert await editor.actions(other, whole(GATE)) == []
        await editor.until(lambda: any("notebooks" in text for text in editor.messages))

    run(tmp_path, play)


@pytest.mark.slow
def test_verify_proves_in_a_process_of_its_own_and_offers_the_edit(tmp_path: Path) -> None:
    uri = save(tmp_path, "model.py", GATE)

    async def play(editor: Session) -> None:
        await editor.open(uri, GATE)
        action = titled(await editor.actions(uri, whole(GATE)), "verify the rewrite of gate")
        assert action.command is not None
        # a proof that the user cancels
        run_command = editor.command(action.command.command, *(action.command.arguments or ()))
        cancelled = asyncio.ensure_future(run_command)
        await editor.until(lambda: editor.progress)
        params = types.WorkDoneProgressCancelParams(editor.tokens[0])
        editor.client.window_work_done_progress_cancel(params)
        assert (await cancelled)["status"] == "cancelled"
        await editor.until(lambda: editor.progress[-1]["kind"] == "end")
        # one that goes to its end
        editor.answers = ["Apply"]
        proved = await editor.command("regraft.verify", uri, "gate")
        assert proved["status"] == "proved", proved
        assert proved["verdicts"][0]["class"] == "gate"
        await editor.until(lambda: editor.edits)
        changed = applied(GATE, edits_of(editor.edits[0]))
        assert changed == GATE.replace("x * torch.sigmoid(x)", "torch.nn.functional.silu(x)")
        assert editor.progress[-1]["kind"] == "end"
        assert "gate is proved" in editor.questions[0].message
        # a text that is not on disk
        await editor.change(uri, 2, GATE + "\n")
        refused = await editor.command("regraft.verify", uri, "gate")
        assert refused["status"] == "error" and "Save model.py first" in refused["message"]

    run(tmp_path, play)
