"""Comparisons of both versions of a file without a run: functions, signatures, variables."""

from __future__ import annotations

from pathlib import Path

from regraft.verification.child.error_text import shorten_error
from regraft.verification.child.file_import import load_copy
from regraft.verification.child.result_comparison import describe_differences
from regraft.verification.child.reverted_definitions import revert
from regraft.verification.child.session import Session
from regraft.verification.child.signature_comparison import signature_difference
from regraft.verification.child.state_leaves import variable_leaves
from regraft.verification.types import MODULE


def refute_replaced_functions(session: Session, replaced: frozenset[str]) -> None:
    """Refute all definitions where the changed version replaces functions of PyTorch or Python
    which the original leaves alone; the reason names the first three."""
    names = sorted(replaced - session.replaced)
    if names:
        for definition in session.ledger.unrefuted():
            session.ledger.refute(
                definition, f"the changed version replaces {', '.join(names[:3])}", {}
            )


def compare_signatures(session: Session) -> None:
    """Refute each definition whose calls no longer fit, because parameters changed or a method is
    gone."""
    for name in session.ledger.unrefuted():
        sentence = signature_difference(
            getattr(session.original, name, None), getattr(session.changed, name, None)
        )
        if sentence:
            session.ledger.refute(name, sentence, {})


def compare_variables(session: Session, path: Path) -> None:
    """Refute the module level if it is a change, else every definition, where the import leaves a
    variable of the file with another value; the reason is the first such variable.

    Values that differ at each import do not count. The original is imported again to find these;
    where that fails, nothing is compared and the reason noted in the ledger.
    """
    original_leaves = variable_leaves(session.original)
    differences = describe_differences(original_leaves, variable_leaves(session.changed))
    if not differences:
        return
    try:
        with session.ledger.step("original", "", "import again"):
            second_import = load_copy(path, session.original)
    except BaseException as error:  # noqa: BLE001 - any import failure, SystemExit included; recorded as the reason
        session.ledger.skip(f"variables of the file were not compared: {shorten_error(error)}")
        return
    random_differences = describe_differences(
        variable_leaves(session.original), variable_leaves(second_import)
    )
    sentence = next(
        (sentence for name, sentence in differences.items() if name not in random_differences), ""
    )
    names = session.ledger.unrefuted()
    for name in (MODULE,) if MODULE in names else names:
        if sentence:
            session.ledger.refute(name, f"after import {sentence}", {})


def refute_excluded(session: Session, excluded: list[str]) -> None:
    """Refute the definitions that ended an earlier child, with the reason "excluded", and revert
    them."""
    for name in excluded:
        session.ledger.refute(name, "excluded", {})
    revert(session, tuple(excluded))
