"""The command of the language server that proves the rewrite of a definition, in a process of its
own, and offers the edit or the counterexample."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.uris import from_fs_path

from regraft.report.counted_nouns import count
from regraft.server.actions import workspace_edit
from regraft.server.analysis import Analysis
from regraft.server.language_server import RegraftServer
from regraft.server.processes import run_module
from regraft.server.prover import Request

_APPLY, _SHOW = "Apply", "Show counterexample"
_POLL_SECONDS = 0.1


async def verify_definition(ls: RegraftServer, uri: str, definition: str) -> dict[str, Any]:
    """Prove the rewrite of a definition ("" for all of the file), show the verdict, and return it
    with the diff.

    The result has `status`: "proved", "unproven", "refuted", "nothing", "cancelled", "error" or
    "stale", and `message`. The editor is asked whether a proved rewrite is applied.
    """
    analysis = await ls.analysis_of(uri)
    refusal = _refusal(ls, analysis, uri)
    if refusal or analysis is None:
        ls.say(refusal, types.MessageType.Warning)
        return {"status": "error", "message": refusal}
    document = ls.documents[uri]
    request = Request(str(document.file), definition)
    title = f"proving {definition or document.file.name}"
    async with _Progress(ls, title) as progress, ls.proofs:
        answer = await _answer(request, document.folder, progress)
    if answer is None:
        return {"status": "cancelled", "message": "The proof was cancelled."}
    outcome = _outcome(definition or document.file.name, answer)
    kind = types.MessageType.Info if outcome.status == "proved" else types.MessageType.Warning
    if not outcome.button:
        ls.say(outcome.message, kind)
    else:
        question = types.ShowMessageRequestParams(
            kind, outcome.message, [types.MessageActionItem(outcome.button)]
        )
        # the verdict does not wait for the user
        ls.keep_task(_offer(ls, uri, analysis, question, outcome))
    return {"status": outcome.status, "message": outcome.message, **answer.get("result", {})}


def _refusal(ls: RegraftServer, analysis: Analysis | None, uri: str) -> str:
    """Return why nothing can be proved about a document; "" where something can."""
    document = ls.documents.get(uri)
    if document is None or analysis is None:
        return f"Regraft does not read {uri}: it is not open, or excluded"
    if analysis.is_broken or analysis.source is None:
        return f"{document.file.name} cannot be analysed: {analysis.scan.errors[0].message}"
    try:
        is_saved = document.file.read_bytes() == analysis.source.data
    except OSError:
        is_saved = False
    # both versions run beside the files of the package, and so does a counterexample
    return "" if is_saved else f"Save {document.file.name} first: a proof runs the file on disk"


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What the user is told: the status, a message, and what a button does: `text` is the new text
    of the file, `reproducer` the script that shows a difference."""

    status: str
    message: str
    button: str = ""
    text: str = ""
    reproducer: str = ""


def _outcome(name: str, answer: Mapping[str, Any]) -> _Outcome:
    """Return what is said about an answer of the prover."""
    if "error" in answer:
        return _Outcome("error", "; ".join(error["message"] for error in answer["error"]))
    result = answer["result"]
    verdicts = [*result["left_out"], *result["verdicts"]]
    if not verdicts:
        return _Outcome("nothing", f"{name}: nothing can be rewritten, nothing to prove")
    sentences = [_sentence(verdict) for verdict in verdicts]
    reproducer = next(filter(None, (v["evidence"].get("reproducer") for v in verdicts)), "")
    if result["diff"]:
        places = count(len(result["fixed"]), "place")
        sentences.append(f"{places} can be rewritten.")
        status = "proved" if not result["left_out"] else result["left_out"][0]["status"]
        return _Outcome(status, " ".join(sentences), _APPLY, result["text"], reproducer)
    status = "refuted" if any(v["status"] == "refuted" for v in verdicts) else "unproven"
    message = " ".join((*sentences, "The original stays."))
    return _Outcome(status, message, _SHOW if reproducer else "", reproducer=str(reproducer))


def _sentence(verdict: Mapping[str, Any]) -> str:
    """Return a verdict as a sentence."""
    reason = f": {verdict['reason']}" if verdict["reason"] else ""
    return f"{verdict['class']} is {verdict['status']}{reason}."


async def _offer(
    ls: RegraftServer,
    uri: str,
    analysis: Analysis,
    question: types.ShowMessageRequestParams,
    outcome: _Outcome,
) -> None:
    """Ask the user, and apply the edit or show the counterexample."""
    choice = await ls.window_show_message_request_async(question)
    if choice is None or choice.title != outcome.button:
        return
    if outcome.button == _SHOW:
        await _show_file(ls, outcome.reproducer)
        return
    source = ls.workspace.get_text_document(uri)
    if uri not in ls.documents or source.source != analysis.text:
        ls.say("The text has changed since it was proved: verify it again")
        return
    edits = analysis.positions.edits_to(outcome.text.encode())
    edit = ls.edit_for_client(workspace_edit(uri, source.version, edits))
    label = "Regraft: proved rewrite"
    await ls.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit, label))


async def _show_file(ls: RegraftServer, path: str) -> None:
    """Open a file in the editor, or name it where the editor cannot be asked to."""
    window = ls.client_capabilities.window
    uri = from_fs_path(path)
    if window is None or window.show_document is None or uri is None:
        ls.say(f"python {path} shows the difference")
        return
    await ls.window_show_document_async(types.ShowDocumentParams(uri, take_focus=True))


async def _answer(request: Request, folder: Path, progress: _Progress) -> dict[str, Any] | None:
    """Return the answer of the prover to a request; None where the user cancels it."""
    answers: list[dict[str, Any]] = []

    def read(line: str) -> None:
        message = json.loads(line)
        if "progress" in message:
            progress.report(message["progress"])
        else:
            answers.append(message)

    arguments = ["regraft.server.prover", request.to_json()]
    run = asyncio.create_task(run_module(arguments, folder, on_output=read))
    try:
        while not run.done():
            await asyncio.wait({run}, timeout=_POLL_SECONDS)
            if progress.is_cancelled():
                return None
    finally:
        if not run.done():
            run.cancel()
            await asyncio.wait({run})
    ended = run.result()
    if answers:
        return answers[-1]
    last_words = ended.errors.strip().rpartition("\n")[2]
    return {"error": [{"message": f"the proof ended with status {ended.code}: {last_words}"}]}


class _Progress:
    """The progress of a command as the editor shows it, with a button that cancels it."""

    def __init__(self, ls: RegraftServer, title: str) -> None:
        self._ls, self._title = ls, title
        self._token = str(uuid.uuid4())
        self._request = ls.running_request()
        window = ls.client_capabilities.window
        self._is_shown = window is not None and bool(window.work_done_progress)

    async def __aenter__(self) -> _Progress:
        if self._is_shown:
            await self._ls.work_done_progress.create_async(self._token)
            begin = types.WorkDoneProgressBegin(f"Regraft: {self._title}", cancellable=True)
            self._ls.work_done_progress.begin(self._token, begin)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._is_shown:
            self._ls.work_done_progress.end(self._token, types.WorkDoneProgressEnd())
            self._ls.work_done_progress.tokens.pop(self._token, None)

    def report(self, part: str) -> None:
        """Say what is run now."""
        if self._is_shown and part:
            report = types.WorkDoneProgressReport(message=part, cancellable=True)
            self._ls.work_done_progress.report(self._token, report)

    def is_cancelled(self) -> bool:
        """Return whether the user has cancelled the progress, or the editor its request."""
        token = self._ls.work_done_progress.tokens.get(self._token)
        return any(future is not None and future.cancelled() for future in (token, self._request))
