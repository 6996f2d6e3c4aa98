"""What other statements of the module level mean for a proof, in words."""

from __future__ import annotations

from collections.abc import Iterator

from regraft.verification.module_level import Entry, LevelDifference, Outline


def obstacles(
    level_differences: tuple[LevelDifference, ...], old_outline: Outline
) -> Iterator[str]:
    """Yield a sentence for each difference at module level that no run can judge; a new name with a
    value that is spelled out is none."""
    gone_keys = {entry.key for difference in level_differences for entry in difference.gone}
    new_keys = {entry.key for difference in level_differences for entry in difference.new}
    for difference in level_differences:
        moved = [entry for entry in difference.new if entry.key in gone_keys]
        lost = [entry for entry in difference.gone if entry.key not in new_keys]
        added = [
            entry
            for entry in difference.new
            if entry not in moved and not old_outline.only_adds_value(entry)
        ]
        yield from map(_describe_move, moved)
        if lost and added:
            yield _describe_replacement(lost[0], added[0])
        else:
            yield from map(_describe_addition, added)
            yield from map(_describe_loss, lost)


def _describe_move(entry: Entry) -> str:
    """Return the sentence for an entry that has another place than in the original."""
    return (
        f"line {entry.node.lineno}, {entry.text}, has another place than in the original:"
        " move it back"
    )


def _describe_replacement(lost: Entry, added: Entry) -> str:
    """Return the sentence for an entry in the place of one of the original."""
    return (
        f"line {added.node.lineno}, {added.text}, replaces {lost.text} of the"
        " original, and no run shows all that a statement at module level decides: take"
        " the original's"
    )


def _describe_addition(entry: Entry) -> str:
    """Return the sentence for an entry that the original does not have."""
    return (
        f"line {entry.node.lineno}, {entry.text}, is not in the original, and no run shows"
        " all that it decides at module level: take it out, or give it a name that the"
        " original does not use"
    )


def _describe_loss(entry: Entry) -> str:
    """Return the sentence for an entry that only the original has."""
    return (
        f"line {entry.node.lineno} of the original, {entry.text}, is gone, and no run shows"
        " who needs it: put it back"
    )
