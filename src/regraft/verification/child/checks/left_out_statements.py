"""Find the variables that a change reads, of a script that was imported in part, and that the
statements left out may set."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from types import ModuleType

from regraft.verification.bound_and_read_names import mentioned_names
from regraft.verification.child.checks.code_replacement import syntax_tree
from regraft.verification.child.script_import import reached_names, script_of
from regraft.verification.definition_changes import Change
from regraft.verification.statement_lines import Span
from regraft.verification.top_level_definitions import definitions_by_name


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
        lines = own_change.statements
        names = _names_on(tree, lines) | _values_of_attributes(tree, lines)
        for name in sorted(reached_names(names, definitions) & script.guessed.keys()):
            yield f"changed lines read {name}, whose value is guessed: {script.summary}"


def _nodes_on(tree: ast.Module, spans: Iterable[Span]) -> Iterator[ast.expr]:
    """Yield the expressions that begin on the lines of some spans."""
    lines = {line for first, last in spans for line in range(first, last + 1)}
    expressions = (node for node in ast.walk(tree) if isinstance(node, ast.expr))
    return (node for node in expressions if node.lineno in lines)


def _names_on(tree: ast.Module, spans: Iterable[Span]) -> frozenset[str]:
    """Return the variables that stand on the lines of some spans."""
    return frozenset(node.id for node in _nodes_on(tree, spans) if isinstance(node, ast.Name))


def _values_of_attributes(tree: ast.Module, spans: Iterable[Span]) -> frozenset[str]:
    """Return the variables that decide the attributes on the lines of some spans: those in values
    that the file assigns to such an attribute without a call, and in methods of such a name."""
    attributes = {node.attr for node in _nodes_on(tree, spans) if isinstance(node, ast.Attribute)}
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets, value) if not _holds_call(value):
                if any(isinstance(t, ast.Attribute) and t.attr in attributes for t in targets):
                    names |= mentioned_names(value)
            case ast.FunctionDef(name) if name in attributes:
                names |= mentioned_names(node)
    return frozenset(names)


def _holds_call(node: ast.AST) -> bool:
    """Return whether an expression contains a call."""
    return any(isinstance(part, ast.Call) for part in ast.walk(node))
