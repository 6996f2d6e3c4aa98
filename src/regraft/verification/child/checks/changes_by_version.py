"""The changes of a definition, each paired with the module of the version in which it stands."""

from __future__ import annotations

from types import ModuleType

from regraft.verification.child.session import Session
from regraft.verification.definition_changes import Change


def versions_of(definition: str, session: Session) -> list[tuple[Change, ModuleType]]:
    """Return the changes of a definition, each with its module: those of the changed version, then
    those of the original."""
    return [
        (change, module)
        for changes, module in (
            (session.changes, session.changed),
            (session.original_tracer.changes, session.original),
        )
        for change in changes
        if change.definition == definition
    ]
