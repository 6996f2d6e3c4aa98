"""Put the original's definitions into the changed module, so that the other changes are judged
without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.definition_state import DefinitionState
from regraft.verification.child.file_import import define_in_changed_module, rebind
from regraft.verification.child.session import Session
from regraft.verification.types import MODULE


def revert(session: Session, names: tuple[str, ...]) -> None:
    """Put the original's definitions of these names into the changed module, for good, so that
    the other definitions are judged without them; `only_change` does so for a while. Names that
    the original lacks, and the module level, are skipped."""
    for name in names:
        if name != MODULE and hasattr(session.original, name):
            is_new = name not in session.reverted
            if is_new:
                session.reverted[name] = define_in_changed_module(
                    name, session.original, session.changed
                )
            rebind(session.changed, name, session.reverted[name])
            if is_new and session.reverted[name] is not getattr(session.original, name):
                session.definition_states.append(DefinitionState(session.changed, (name,)))


@contextmanager
def only_change(session: Session, name: str) -> Iterator[None]:
    """Revert every changed definition but that of this name in the body, and put the changed
    definitions back at the end."""
    other_names = [
        change.definition for change in session.changes if change.definition not in (name, MODULE)
    ]
    changed_values = {
        other_name: getattr(session.changed, other_name)
        for other_name in other_names
        if hasattr(session.changed, other_name)
    }
    revert(session, tuple(other_names))
    try:
        yield
    finally:
        for other_name, value in changed_values.items():
            rebind(session.changed, other_name, value)


def blame(session: Session, check: Callable[[], Difference | None]) -> tuple[str, ...]:
    """Return the unrefuted definitions with which `check` finds a difference while all others
    are reverted; all unrefuted ones where none is guilty by itself.

    A single unrefuted definition is returned without a check.
    """
    names = session.ledger.unrefuted()
    if len(names) == 1:
        return names
    guilty = []
    for name in names:
        with only_change(session, name):
            if check() is not None:
                guilty.append(name)
    return tuple(guilty) or names
