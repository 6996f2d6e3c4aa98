"""A session with the language server, as an editor holds it: by pygls' own client, over standard
input and output."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Union

from lsprotocol import types
from pygls.lsp.client import LanguageClient
from pygls.protocol import default_converter

SECONDS = 120.0
Action = types.Command | types.CodeAction


def converter() -> Any:
    """Return pygls' converter, which takes an action with a command for a command."""
    result = default_converter()  # type: ignore[no-untyped-call]

    def structure(value: Any, _: object) -> Action:
        is_command = isinstance(value.get("command"), str)
        kind: Any = types.Command if is_command else types.CodeAction
        action: Action = result.structure(value, kind)
        return action

    # the type as lsprotocol writes it
    result.register_structure_hook(Union[types.Command, types.CodeAction], structure)  # noqa: UP007
    return result


class Session:
    """An editor: the diagnostics, messages, questions and progress that the server has sent.

    answers  the titles of the buttons that the user presses, in turn
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient("test", "1", converter_factory=converter)
        self.diagnostics: dict[str, list[types.PublishDiagnosticsParams]] = {}
        self.messages: list[str] = []
        self.questions: list[types.ShowMessageRequestParams] = []
        self.progress: list[Any] = []
        self.tokens: list[str | int] = []
        self.answers: list[str] = []
        self.edits: list[types.WorkspaceEdit] = []
        self.shown: list[str] = []
        self.registrations: list[types.Registration] = []
        self._arrival = asyncio.Event()
        self._listen()

    def _listen(self) -> None:
        """Store what the server sends, and answer what it asks."""
        feature = self.client.feature

        @feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.diagnostics.setdefault(params.uri, []).append(params)
            self._arrival.set()

        @feature(types.WINDOW_SHOW_MESSAGE)
        def message(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)
            self._arrival.set()

        @feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
        def question(params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
            self.questions.append(params)
            self._arrival.set()
            return types.MessageActionItem(self.answers.pop(0)) if self.answers else None

        @feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)
        def create(params: types.WorkDoneProgressCreateParams) -> None:
            self.tokens.append(params.token)

        @feature(types.PROGRESS)
        def progressed(params: types.ProgressParams) -> None:
            self.progress.append(params.value)
            self._arrival.set()

        @feature(types.WORKSPACE_APPLY_EDIT)
        def applied(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
            self.edits.append(params.edit)
            self._arrival.set()
            return types.ApplyWorkspaceEditResult(applied=True)

        @feature(types.WINDOW_SHOW_DOCUMENT)
        def show(params: types.ShowDocumentParams) -> types.ShowDocumentResult:
            self.shown.append(params.uri)
            self._arrival.set()
            return types.ShowDocumentResult(success=True)

        @feature(types.CLIENT_REGISTER_CAPABILITY)
        def register(params: types.RegistrationParams) -> None:
            self.registrations += params.registrations

    async def until(self, condition: Any) -> None:
        """Wait until a condition holds of what has arrived."""

        async def wait() -> None:
            while not condition():
                self._arrival.clear()
                await self._arrival.wait()

        await asyncio.wait_for(wait(), SECONDS)

    async def open(self, uri: str, text: str) -> list[types.Diagnostic]:
        """Open a document, and return its diagnostics."""
        before = len(self.diagnostics.get(uri, ()))
        document = types.TextDocumentItem(uri, "python", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(document))
        return await self.published(uri, before)

    async def change(self, uri: str, version: int, text: str) -> list[types.Diagnostic]:
        """Change a document, and return the diagnostics of this version."""
        self.change_only(uri, version, text)
        await self.until(lambda: self.diagnostics[uri][-1].version == version)
        return list(self.diagnostics[uri][-1].diagnostics)

    def change_only(self, uri: str, version: int, text: str) -> None:
        """Change a document, and wait for nothing."""
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version, uri),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    async def published(self, uri: str, before: int) -> list[types.Diagnostic]:
        """Return the diagnostics of a document that come after some number of them."""
        await self.until(lambda: len(self.diagnostics.get(uri, ())) > before)
        return list(self.diagnostics[uri][-1].diagnostics)

    async def actions(
        self, uri: str, area: types.Range, only: Sequence[str] | None = None
    ) -> list[types.CodeAction]:
        """Return the code actions of a range."""
        context = types.CodeActionContext(
            diagnostics=[], only=only, trigger_kind=types.CodeActionTriggerKind.Invoked
        )
        document = types.TextDocumentIdentifier(uri)
        params = types.CodeActionParams(document, area, context)
        actions = await self.client.text_document_code_action_async(params)
        return [action for action in actions or () if isinstance(action, types.CodeAction)]

    async def command(self, name: str, *arguments: object) -> Any:
        """Run a command, and return its result."""
        params = types.ExecuteCommandParams(name, list(arguments))
        return await self.client.workspace_execute_command_async(params)


def capabilities(encoding: str, resolves: bool) -> types.ClientCapabilities:
    """Return what an editor can do."""
    resolve = types.ClientCodeActionResolveOptions(["edit"]) if resolves else None
    return types.ClientCapabilities(
        general=types.GeneralClientCapabilities(position_encodings=[encoding]),
        window=types.WindowClientCapabilities(
            work_done_progress=True, show_document=types.ShowDocumentClientCapabilities(True)
        ),
        workspace=types.WorkspaceClientCapabilities(
            workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
            did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(
                dynamic_registration=True
            ),
        ),
        text_document=types.TextDocumentClientCapabilities(
            code_action=types.CodeActionClientCapabilities(
                data_support=True, resolve_support=resolve
            )
        ),
    )


@contextlib.asynccontextmanager
async def session(
    folder: Path,
    encoding: str = types.PositionEncodingKind.Utf16,
    *,
    resolves: bool = True,
) -> AsyncIterator[Session]:
    """Start the server in a folder, and end it in order."""
    editor = Session(folder)
    client = editor.client
    await client.start_io(sys.executable, "-m", "regraft", "server", "--stdio", cwd=folder)
    workspace = [types.WorkspaceFolder(folder.as_uri(), folder.name)]
    params = types.InitializeParams(
        capabilities=capabilities(encoding, resolves), workspace_folders=workspace
    )
    await asyncio.wait_for(client.initialize_async(params), SECONDS)
    client.initialized(types.InitializedParams())
    yield editor
    await asyncio.wait_for(client.shutdown_async(None), SECONDS)
    client.exit(None)
    await asyncio.wait_for(client.stop(), SECONDS)  # type: ignore[no-untyped-call]
    assert client._server is not None and client._server.returncode == 0


def applied(text: str, edits: Sequence[types.TextEdit], encoding: str = "utf-16") -> str:
    """Return a text with edits, as an editor applies them: lines end at line feeds alone here, and
    columns are in units of the encoding."""
    lines = text.split("\n")
    codec, width = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}[
        encoding
    ]

    def offset(place: types.Position) -> int:
        before = sum(len(line) + 1 for line in lines[: place.line])
        line = lines[place.line] if place.line < len(lines) else ""
        return before + len(line.encode(codec)[: place.character * width].decode(codec))

    for edit in sorted(edits, key=lambda edit: offset(edit.range.start), reverse=True):
        start, end = offset(edit.range.start), offset(edit.range.end)
        text = text[:start] + edit.new_text + text[end:]
    return text


def edits_of(edit: types.WorkspaceEdit | None) -> list[types.TextEdit]:
    """Return the text edits of an edit of one document."""
    assert edit is not None and edit.document_changes is not None
    (change,) = edit.document_changes
    assert isinstance(change, types.TextDocumentEdit)
    return [part for part in change.edits if isinstance(part, types.TextEdit)]
