"""The state of the language server: the documents that an editor has open, and what it shows of
them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from regraft import __version__
from regraft.configuration import Settings
from regraft.server.actions import plain_edit
from regraft.server.analysis import Analysis, analyse
from regraft.server.diagnostics import NOTEBOOK, diagnostics_of, project_diagnostic, shifted
from regraft.server.documents import NOTEBOOK_CELL, Document, document_of
from regraft.server.edited_definition_analysis import Glimpse, glimpse_of
from regraft.server.project import Project, Projects, error_summary
from regraft.source.garbage_collection import uncollected
from regraft.source.text import SourceError

PAUSE_SECONDS = 0.25  # in the typing, after which the whole file is analysed
DEBOUNCE_SECONDS = 0.005  # joins the changes that an editor sends in one burst
_log = logging.getLogger(__name__)
Result = TypeVar("Result")


class RegraftServer(LanguageServer):
    """The server with its open documents; one thread analyses them, one after the other."""

    def __init__(self) -> None:
        super().__init__(
            "regraft",
            __version__,
            # pygls splits lines where editors do not (form feeds, Unicode's separators), so that
            # changes of ranges would go to wrong places
            text_document_sync_kind=types.TextDocumentSyncKind.Full,
        )
        self.documents: dict[str, Document] = {}
        self.projects = Projects()
        self.proofs = asyncio.Semaphore(1)  # a proof takes the machine; the next one waits
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="analysis")
        self._project_errors: dict[Path, tuple[SourceError, ...]] = {}  # by the folder of files
        self._has_named_notebooks = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def folders(self) -> list[Path]:
        """The folders of the workspace."""
        uris = [folder.uri for folder in self.workspace.folders.values()]
        if not uris and self.workspace.root_uri:
            uris = [self.workspace.root_uri]
        return [Path(path) for path in map(to_fs_path, uris) if path]

    async def work(self, function: Callable[[], Result]) -> Result:
        """Run a function in the thread that analyses."""

        def run() -> Result:
            with uncollected():
                return function()

        return await asyncio.get_running_loop().run_in_executor(self._worker, run)

    def keep_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that nothing waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        """Forget a task, and log the error that it ended with."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s", error)

    def running_request(self) -> Future[Any] | None:
        """Return the future of the request that is being answered, which the editor may cancel."""
        # pygls runs a command in a request of its own, and cancels the editor's alone
        message_id = self.protocol.msg_id
        return None if message_id is None else self.protocol._request_futures.get(message_id)

    # documents

    def open(self, uri: str) -> None:
        """Begin to analyse a document."""
        document = document_of(uri, self.folders)
        if document is not None:
            self.documents[uri] = document
            self.change(document)
        elif uri.startswith(NOTEBOOK_CELL) and not self._has_named_notebooks:
            self._has_named_notebooks = True
            self.say(NOTEBOOK)

    def close(self, uri: str) -> None:
        """End the analysis of a document, and clear its diagnostics."""
        document = self.documents.pop(uri, None)
        if document is not None:
            document.generation += 1
            self._publish(uri, None, [])
            folder = document.file.parent
            if not any(other.file.parent == folder for other in self.documents.values()):
                self._show_project_errors(folder, ())

    def change(self, document: Document) -> None:
        """Note that a document, or what else its findings depend on, has changed."""
        document.generation += 1
        document.woken.set()
        if document.task is None or document.task.done():
            document.task = asyncio.create_task(self._analyse_until_current(document))

    def change_all(self) -> None:
        """Note that files have changed that the findings of any document may depend on."""
        for document in self.documents.values():
            document.analysis = document.whole = None
            self.change(document)

    async def analysis_of(self, uri: str) -> Analysis | None:
        """Return the analysis of a document's present text; None where a check does not read it,
        or where nothing can be analysed."""
        document = self.documents.get(uri)
        while document is not None and document.task is not None and not document.task.done():
            document.is_awaited = True
            document.woken.set()
            await asyncio.wait({document.task})
        return document.analysis if document is not None else None

    async def _analyse_until_current(self, document: Document) -> None:
        """Analyse a document until its text is that of the analysis, and publish its findings."""
        while True:
            await asyncio.sleep(DEBOUNCE_SECONDS)
            if self.documents.get(document.uri) is not document:
                return  # it was closed
            generation = document.generation
            source = self.workspace.get_text_document(document.uri)
            text, version = source.source, source.version
            if await self._show_glimpse(document, text, version):
                if generation == document.generation:
                    await self._wait_for_pause(document)
                if generation != document.generation:
                    continue
            try:
                analysis = await self.work(functools.partial(self._analyse, document, text))
            except Exception:  # noqa: BLE001  an error of Regraft's must not end the server
                _log.exception("cannot analyse %s", document.uri)
                analysis = None
            is_open = self.documents.get(document.uri) is document
            if is_open and generation == document.generation:
                document.is_awaited = False
                self._show(document, analysis, version)
                return

    async def _show_glimpse(self, document: Document, text: str, version: int | None) -> bool:
        """Publish what a look at the changed definition alone shows; return whether that is
        possible."""
        generation = document.generation
        try:
            glimpse = await self.work(functools.partial(self._glimpse, document, text))
        except Exception:  # noqa: BLE001  as above
            _log.exception("cannot look at %s", document.uri)
            return False
        if glimpse is None:
            return False
        if generation == document.generation and self.documents.get(document.uri) is document:
            document.published, document.published_text = glimpse.diagnostics, glimpse.text
            self._publish(document.uri, version, document.published)
        return True

    def _glimpse(self, document: Document, text: str) -> Glimpse | None:
        """Return a look at the definition that differs from the last whole analysis; None where the
        whole text has to be analysed."""
        previous = document.whole
        if previous is None or previous.text == text:
            return None
        return (
            glimpse_of(text, previous) if self._has_configuration_of(previous, document) else None
        )

    def _has_configuration_of(self, analysis: Analysis, document: Document) -> bool:
        """Return whether the configuration for a document is that of an analysis."""
        return self._project_of(document) is analysis.project

    async def _wait_for_pause(self, document: Document) -> None:
        """Wait until nobody has typed for a while, or somebody waits for the analysis."""
        document.woken.clear()
        if not document.is_awaited:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(document.woken.wait(), PAUSE_SECONDS)

    def _analyse(self, document: Document, text: str) -> Analysis | None:
        """Return the analysis of a text of a document; None where a check does not read it."""
        project = self._project_of(document)
        if document.analysis is None:
            document.is_read = project.reads(document.file)
        if not document.is_read:
            return None
        encoding = self.workspace.position_encoding or types.PositionEncodingKind.Utf16
        return analyse(str(document.file), text, project, encoding)

    def _project_of(self, document: Document) -> Project:
        """Return the project of a document; one with an error where its files cannot be read."""
        try:
            return self.projects.project_of(document.file, document.folder)
        except OSError as error:
            problem = SourceError(str(error.filename or document.file), 0, 0, str(error.strerror))
            return Project(document.folder, Settings(), errors=(problem,))

    # what the editor shows

    def _show(self, document: Document, analysis: Analysis | None, version: int | None) -> None:
        """Publish the findings of a document's present text."""
        previous = document.analysis
        document.analysis = analysis
        if analysis is None or not analysis.is_broken:
            document.whole = analysis
        errors = analysis.project.errors if analysis is not None else ()
        self._show_project_errors(document.file.parent, errors)
        if analysis is None:
            document.published = []
        else:
            document.published = self._diagnostics(document, analysis, previous)
            document.published_text = analysis.positions.text
        self._publish(document.uri, version, document.published)

    def _diagnostics(
        self, document: Document, analysis: Analysis, previous: Analysis | None
    ) -> list[types.Diagnostic]:
        """Return the diagnostics of a document. Those of a text that cannot be analysed any more,
        while somebody types, stay where their lines are as they were."""
        diagnostics = diagnostics_of(analysis)
        if not analysis.is_broken or previous is None:
            return diagnostics
        findings = [shown for shown in document.published if shown.code != "not-analysed"]
        return [
            *shifted(findings, document.published_text, analysis.positions.text),
            *diagnostics,
        ]

    def _publish(self, uri: str, version: int | None, diagnostics: list[types.Diagnostic]) -> None:
        """Send the diagnostics of a document to the editor."""
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=uri, version=version, diagnostics=diagnostics)
        )

    def _show_project_errors(self, folder: Path, errors: tuple[SourceError, ...]) -> None:
        """Publish what is wrong with the configuration or the rules for the files of a folder, in
        their own files, and say it once."""
        previous = self._project_errors.get(folder, ())
        if errors == previous:
            return
        is_new = bool(errors) and errors not in self._project_errors.values()
        self._project_errors[folder] = errors
        all_errors = dict.fromkeys(
            error for folder_errors in self._project_errors.values() for error in folder_errors
        )
        for file in dict.fromkeys(error.file for error in (*previous, *errors)):
            own_errors = [project_diagnostic(error) for error in all_errors if error.file == file]
            if uri := from_fs_path(os.path.abspath(file)):
                self._publish(uri, None, own_errors)
        if is_new:
            self.say(f"Nothing is checked: {error_summary(errors)}", types.MessageType.Error)

    def say(self, text: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """Show a message in the editor."""
        self.window_show_message(types.ShowMessageParams(type=kind, message=text))

    def edit_for_client(self, edit: types.WorkspaceEdit) -> types.WorkspaceEdit:
        """Return an edit in a form that the editor takes."""
        workspace = self.client_capabilities.workspace
        support = workspace.workspace_edit if workspace is not None else None
        return edit if support is not None and support.document_changes else plain_edit(edit)
