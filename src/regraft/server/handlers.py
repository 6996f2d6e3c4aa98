"""The answers of the language server to what an editor sends, and its start."""

from __future__ import annotations

import os
from typing import Any

from lsprotocol import types

from regraft.scanning import RuleDefect
from regraft.server.actions import (
    EXPLAIN,
    FIX_ALL,
    KINDS,
    QUICK_FIX,
    VERIFY,
    fix_all_action,
    is_asked_for,
    quick_fixes,
    workspace_edit,
)
from regraft.server.diagnostics import explanation_of, hover_of
from regraft.server.language_server import RegraftServer
from regraft.server.verify_command import verify_definition

# files that decide what is found in others: configuration, rules, baselines, and the package around
_WATCHED = ("**/{pyproject,regraft,regraft.lock}.toml", "**/.gitignore", "**/*.{rule,json,py}")


async def initialized(ls: RegraftServer, _: types.InitializedParams) -> None:
    """Ask the editor to tell when files change that findings depend on, where it can."""
    workspace = ls.client_capabilities.workspace
    watching = workspace.did_change_watched_files if workspace is not None else None
    if watching is None or not watching.dynamic_registration:
        return
    options = types.DidChangeWatchedFilesRegistrationOptions(
        [types.FileSystemWatcher(pattern) for pattern in _WATCHED]
    )
    method = types.WORKSPACE_DID_CHANGE_WATCHED_FILES
    registration = types.Registration("regraft-files", method, options)
    await ls.client_register_capability_async(types.RegistrationParams([registration]))


async def did_open(ls: RegraftServer, params: types.DidOpenTextDocumentParams) -> None:
    """Analyse a document that the editor opens."""
    ls.open(params.text_document.uri)


async def did_change(ls: RegraftServer, params: types.DidChangeTextDocumentParams) -> None:
    """Analyse the new text of a document."""
    document = ls.documents.get(params.text_document.uri)
    if document is not None:
        ls.change(document)


async def did_save(ls: RegraftServer, _: types.DidSaveTextDocumentParams) -> None:
    """Analyse all documents, since a file that others import has changed."""
    ls.change_all()


async def did_close(ls: RegraftServer, params: types.DidCloseTextDocumentParams) -> None:
    """Forget a document that the editor closes."""
    ls.close(params.text_document.uri)


async def files_changed(ls: RegraftServer, _: types.DidChangeWatchedFilesParams) -> None:
    """Analyse all documents after a change of files that their findings depend on."""
    ls.change_all()


async def folders_changed(ls: RegraftServer, _: types.DidChangeWorkspaceFoldersParams) -> None:
    """Open all documents again, since each may belong to another folder now."""
    for uri in list(ls.documents):
        ls.open(uri)


async def hover(ls: RegraftServer, params: types.HoverParams) -> types.Hover | None:
    """Return what is said about the findings at a position."""
    analysis = await ls.analysis_of(params.text_document.uri)
    return hover_of(analysis, params.position) if analysis is not None else None


async def code_action(ls: RegraftServer, params: types.CodeActionParams) -> list[types.CodeAction]:
    """Return the actions for a range of a document."""
    uri, only = params.text_document.uri, params.context.only
    analysis = await ls.analysis_of(uri)
    if analysis is None or analysis.is_broken:
        return []
    version = ls.workspace.get_text_document(uri).version
    actions: list[types.CodeAction] = []
    if is_asked_for(QUICK_FIX, only):
        actions += await ls.work(lambda: list(quick_fixes(analysis, uri, version, params)))
    has_fixes = any(finding.fixable for finding in analysis.report.findings)
    if is_asked_for(FIX_ALL, only) and has_fixes:
        action = fix_all_action(uri, version)
        if not _resolves_edits(ls):
            action = await resolve_action(ls, action)
        actions.append(action)
    for action in actions:
        if action.edit is not None:
            action.edit = ls.edit_for_client(action.edit)
    return actions


async def resolve_action(ls: RegraftServer, action: types.CodeAction) -> types.CodeAction:
    """Return an action with its edit, computed from the document's present text."""
    origin = action.data if isinstance(action.data, dict) else {}
    uri = str(origin.get("uri", ""))
    analysis = await ls.analysis_of(uri)
    if analysis is None or analysis.is_broken:
        return action
    version = ls.workspace.get_text_document(uri).version
    try:
        edits = await ls.work(analysis.fix_all)
    except RuleDefect as defect:
        ls.say(str(defect.error), types.MessageType.Error)
        return action
    if edits and version == origin.get("version"):
        action.edit = ls.edit_for_client(workspace_edit(uri, version, edits))
    return action


def _resolves_edits(ls: RegraftServer) -> bool:
    """Return whether the editor asks for the edit of an action when it is chosen."""
    text_document = ls.client_capabilities.text_document
    support = text_document.code_action if text_document is not None else None
    resolve = support.resolve_support if support is not None else None
    return (
        support is not None
        and bool(support.data_support)
        and resolve is not None
        and "edit" in resolve.properties
    )


async def explain(ls: RegraftServer, *arguments: Any) -> dict[str, Any]:
    """Show and return why places of some lines are not rewritten.

    The arguments are a URI and the first and the last line, from 1.
    """
    uri, first, last = _explain_arguments(arguments)
    analysis = await ls.analysis_of(uri)
    if analysis is None:
        ls.say(f"Regraft does not read {uri}: it is not open, or excluded")
        return {"text": "", "reasons": []}
    report = await ls.work(analysis.explained)
    explanation = explanation_of(report, first, last)
    ls.say(explanation.text)
    return {"text": explanation.text, "reasons": list(explanation.sentences)}


def _explain_arguments(arguments: tuple[Any, ...]) -> tuple[str, int, int]:
    """Return the arguments of `explain`; raise ValueError for other ones."""
    match arguments:
        case (str(uri), int(first)):
            return uri, first, first
        case (str(uri), int(first), int(last)):
            return uri, first, last
    raise ValueError(f"{EXPLAIN} takes a URI, a first and a last line, from 1")


async def verify(ls: RegraftServer, *arguments: Any) -> dict[str, Any]:
    """Prove the rewrite of a definition, and return the verdicts.

    The arguments are a URI and the name of the definition; without a name the whole file.
    """
    match arguments:
        case (str(uri),):
            return await verify_definition(ls, uri, "")
        case (str(uri), str(definition)):
            return await verify_definition(ls, uri, definition)
    raise ValueError(f"{VERIFY} takes a URI and the name of a definition")


def create_server() -> RegraftServer:
    """Return the language server."""
    server = RegraftServer()
    for method, handler in (
        (types.INITIALIZED, initialized),
        (types.TEXT_DOCUMENT_DID_OPEN, did_open),
        (types.TEXT_DOCUMENT_DID_CHANGE, did_change),
        (types.TEXT_DOCUMENT_DID_SAVE, did_save),
        (types.TEXT_DOCUMENT_DID_CLOSE, did_close),
        (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, files_changed),
        (types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, folders_changed),
        (types.TEXT_DOCUMENT_HOVER, hover),
        (types.CODE_ACTION_RESOLVE, resolve_action),
    ):
        server.feature(method)(handler)
    options = types.CodeActionOptions(code_action_kinds=KINDS, resolve_provider=True)
    server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)(code_action)
    server.command(EXPLAIN)(explain)
    server.command(VERIFY)(verify)
    return server


def serve() -> None:
    """Answer an editor on standard input and output until it ends the session."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not break the protocol
    create_server().start_io(stdout=output)
