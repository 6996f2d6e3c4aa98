"""Find what a change reads of a script that statements set which were left out of its import."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from types import ModuleType

from regraft.verify.changes import Change
from regraft.verify.child.checks.edited_code import syntax_tree
from regraft.verify.child.script_import import reached_names, script_of
from regraft.verify.definitions import definitions_by_name
from regraft.verify.spans import Span


def reads_of_left_out(
    change: Change, old_change: Change | None, changed: ModuleType, original: ModuleType
) -> Iterator[str]:
    """Yield a sentence for each variable that a changed definition reads, in either version, though
    the statements that were left out of the import may give it another value, and for each with a
    guessed value that changed lines read. Yield nothing for a file that was imported as a whole.

    old_change: the change from the changed version back to the original.
    """
    for module, own_change in ((original, old_change), (changed, change)):
        script = script_of(module)
        if script is None or own_change is None:
            continue
        tree = syntax_tree(str(module.__file__))
        definitions = definitions_by_name(tree)
        read = reached_names(frozenset({change.definition}), definitions)
        for name in sorted(read & script.uncertain_names(module)):
            yield (
                f"{change.definition} reads {name}, which statements may set that were left out:"
                f" {script.summary}"
            )
        lines = _names_on(tree, own_change.statements)
        for name in sorted(lines & script.guessed.keys()):
            yield f"changed lines read {name}, whose value is guessed: {script.summary}"


def _names_on(tree: ast.Module, spans: Iterable[Span]) -> frozenset[str]:
    """Return the variables that stand on the lines of some spans."""
    lines = {line for first, last in spans for line in range(first, last + 1)}
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return frozenset(node.id for node in names if node.lineno in lines)
