"""Code actions: what an editor offers at a place of an analysed text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lsprotocol import types

from regraft.fix import changed_definitions
from regraft.scanning import Finding
from regraft.server.analysis import Analysis

EXPLAIN, VERIFY = "regraft.explain", "regraft.verify"  # commands
FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.regraft"
QUICK_FIX = types.CodeActionKind.QuickFix.value
KINDS = (QUICK_FIX, FIX_ALL)


def is_asked_for(kind: str, only: Sequence[str] | None) -> bool:
    """Return whether a request asks for a kind of action: it names the kind, a kind above it, or
    none."""
    return not only or any(kind == asked or kind.startswith(f"{asked}.") for asked in only)


def quick_fixes(
    analysis: Analysis, uri: str, version: int | None, params: types.CodeActionParams
) -> Iterator[types.CodeAction]:
    """Yield the actions for the findings of a range: fix, verify, explain and ignore."""
    findings = list(analysis.findings_in(params.range))
    diagnostics = _diagnostics_by_rule(params.context.diagnostics)
    for finding in findings:
        if finding.fixable and (edits := analysis.fix(finding)):
            yield types.CodeAction(
                title=f"Regraft: {_verb(finding)} ({finding.rule.id})",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=diagnostics.get(finding.rule.id),
                is_preferred=finding is findings[0],
                edit=workspace_edit(uri, version, edits),
            )
    fixable = [finding for finding in findings if finding.fixable]
    for name in dict.fromkeys(name for finding in fixable for name in changed_definitions(finding)):
        yield _command_action(f"Regraft: verify the rewrite of {name}", VERIFY, uri, name)
    for finding in findings:
        if not finding.fixable:
            title = f"Regraft: explain why {finding.rule.id} is not applied"
            yield _command_action(title, EXPLAIN, uri, finding.start[0], finding.end[0])
    for finding in findings:
        if edits := analysis.ignore(finding):
            yield types.CodeAction(
                title=f"Regraft: ignore {finding.rule.id} here",
                kind=types.CodeActionKind.QuickFix,
                diagnostics=diagnostics.get(finding.rule.id),
                edit=workspace_edit(uri, version, edits),
            )
    is_invoked = params.context.trigger_kind is types.CodeActionTriggerKind.Invoked
    if is_invoked and not findings:
        first, last = params.range.start.line + 1, params.range.end.line + 1
        yield _command_action("Regraft: explain these lines", EXPLAIN, uri, first, last)


def _verb(finding: Finding) -> str:
    """Return what a fix does."""
    verb = "mark for" if finding.mode == "decorate" else "rewrite with"
    return f"{verb} {finding.kernel}"


def _diagnostics_by_rule(
    diagnostics: Sequence[types.Diagnostic],
) -> dict[str, list[types.Diagnostic]]:
    """Return the editor's diagnostics by the rule that they name."""
    by_rule: dict[str, list[types.Diagnostic]] = {}
    for diagnostic in diagnostics:
        by_rule.setdefault(str(diagnostic.code), []).append(diagnostic)
    return by_rule


def _command_action(title: str, command: str, *arguments: Any) -> types.CodeAction:
    """Return an action that runs a command of the server."""
    return types.CodeAction(
        title=title,
        kind=types.CodeActionKind.QuickFix,
        command=types.Command(title, command, arguments=list(arguments)),
    )


def fix_all_action(uri: str, version: int | None) -> types.CodeAction:
    """Return the action that fixes a file, whose edit is computed when it is chosen."""
    return types.CodeAction(
        title="Regraft: fix all in this file (without proof)",
        kind=FIX_ALL,
        data={"uri": uri, "version": version},
    )


def workspace_edit(
    uri: str, version: int | None, edits: Sequence[types.TextEdit]
) -> types.WorkspaceEdit:
    """Return the edits of a document, for the version that they were computed from."""
    document = types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=version)
    return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(document, list(edits))])


def plain_edit(edit: types.WorkspaceEdit) -> types.WorkspaceEdit:
    """Return an edit in the form for editors that know no versions."""
    changes = {
        change.text_document.uri: [
            part for part in change.edits if isinstance(part, types.TextEdit)
        ]
        for change in edit.document_changes or ()
        if isinstance(change, types.TextDocumentEdit)
    }
    return types.WorkspaceEdit(changes=changes)
