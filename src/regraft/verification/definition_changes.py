"""Find the definitions, lines and branches that differ between two versions of a file."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from regraft.verification.bound_and_read_names import (
    FRAGMENT,
    mentioned_names,
    plainly_assigned_names,
)
from regraft.verification.branch_changes import (
    Arm,
    Fallthrough,
    fallthrough_spans,
    if_dumps,
    new_fallthroughs,
    touched_arms,
)
from regraft.verification.class_syntax import edited_methods
from regraft.verification.module_level import (
    LevelDifference,
    Outline,
    differences,
    encoding_obstacle,
    module_entries,
)
from regraft.verification.module_level_obstacles import obstacles
from regraft.verification.related_definitions import Family, Relative
from regraft.verification.statement_lines import (
    Span,
    changed_lines,
    executable_lines,
    lines_of,
    statement_spans,
    text_lines,
)
from regraft.verification.top_level_definitions import DefinitionBlock, definition_blocks
from regraft.verification.types import MODULE
from regraft.verification.unobservable_edits import frame_obstacle

READER = "reads what the module level sets"
_SHOWN = 3  # obstacles that one reason lists


@dataclass(frozen=True, slots=True)
class Change:
    """One changed top-level definition, with the lines and branches that have to run before it can
    be proved.

    `relatives` are the other definitions of the file that have to run too, because they decide the
    behaviour of this class. `kind` is "class", "function", "removed", "module" for a change of the
    module level, or "text" where only comments of the module level changed. `obstacle` is the
    reason why no run can prove the change, or "" where a run can.
    """

    definition: str
    kind: str
    lines: tuple[int, ...]
    statements: tuple[Span, ...]
    arms: tuple[Arm, ...]
    fallthroughs: tuple[Fallthrough, ...]
    relatives: tuple[Relative, ...] = ()
    obstacle: str = ""

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Change:
        """Return a change from its JSON object, as written from `dataclasses.asdict`."""
        return cls(
            entry["definition"],
            entry["kind"],
            tuple(entry["lines"]),
            tuple((start, end) for start, end in entry["statements"]),
            tuple(Arm(**arm) for arm in entry["arms"]),
            tuple(
                Fallthrough((h[0], h[1]), (b[0], b[1]))
                for h, b in fallthrough_spans(entry["fallthroughs"])
            ),
            tuple(Relative.from_json(relative) for relative in entry["relatives"]),
            entry["obstacle"],
        )


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of a file: its syntax tree, its lines, and its top-level definitions by name (a
    second `f` is `f#2`) with the references between them."""

    tree: ast.Module
    lines: list[bytes]
    blocks: Mapping[str, DefinitionBlock]
    family: Family

    @classmethod
    def of(cls, text: bytes) -> _Version:
        """Return the version with a text; raises SyntaxError where it does not parse."""
        tree = ast.parse(text)
        blocks = definition_blocks(tree)
        family = Family(tree, {name: block.node for name, block in blocks.items()})
        return cls(tree, text_lines(text), blocks, family)

    def lines_of_definition(self, name: str) -> list[bytes]:
        """Return the lines of a definition; none where the version does not have it."""
        block = self.blocks.get(name)
        return self.lines[block.first - 1 : block.last] if block is not None else []


def find_changes(original: bytes, changed: bytes) -> tuple[Change, ...]:
    """Return the changed definitions in file order, then the change of the module level, then the
    definitions that are gone.

    Statements outside definitions make a change of their own, named "<module>", where they have
    changed, or their order or their place among the definitions has. Comments, and imports that
    only add a name, make one if nothing else changed. Raises SyntaxError where either version does
    not parse.
    """
    old_version, new_version = _Version.of(original), _Version.of(changed)
    runnable = executable_lines(compile(changed, FRAGMENT, "exec", dont_inherit=True))
    candidates = [
        _definition_change(name, old_version, new_version, runnable) for name in new_version.blocks
    ]
    changes = [change for change in candidates if change is not None]
    removed = [
        Change(name, "removed", (1,), (), (), ())
        for name in old_version.blocks
        if name not in new_version.blocks
    ]
    module_change = _module_change(original, changed, runnable)
    if module_change is None and not (changes or removed):
        module_change = _text_change(original, changed, runnable)
    return (*changes, *([module_change] if module_change else ()), *removed)


def _definition_change(
    name: str, old_version: _Version, new_version: _Version, runnable: frozenset[int]
) -> Change | None:
    """Return the change of definition `name` between two versions, with the lines, branches and
    relatives that have to run; None where its text is equal. runnable: the lines that the
    interpreter can run."""
    block, old_block = new_version.blocks[name], old_version.blocks.get(name)
    old_lines = old_version.lines_of_definition(name)
    lines = changed_lines(old_lines, new_version.lines_of_definition(name), block.first)
    if not lines:
        return None
    statements = statement_spans(block.node, lines, runnable)
    relatives: tuple[Relative, ...] = ()
    if isinstance(block.node, ast.ClassDef):
        families = new_version.family, old_version.family
        attributes = frozenset[str]().union(
            *(family.mentioned_attributes(name) for family in families)
        )
        edited = edited_methods(old_block.node if old_block is not None else None, block.node)
        relatives = new_version.family.relatives(name, attributes, edited)
    obstacle = ""
    if old_block is not None:
        trees = old_version.tree, new_version.tree
        obstacle = frame_obstacle(old_block.node, block.node, trees)
    return Change(
        name,
        "class" if isinstance(block.node, ast.ClassDef) else "function",
        lines,
        statements,
        touched_arms(block.node, statements),
        new_fallthroughs(block.node, if_dumps(old_block), statements, runnable),
        relatives,
        obstacle,
    )


def _module_change(original: bytes, changed: bytes, runnable: frozenset[int]) -> Change | None:
    """Return the change of the module level, with the definitions that read a new value as
    relatives, or None where both versions do the same."""
    old_outline, new_outline = Outline.of(original), Outline.of(changed)
    level_differences = differences(old_outline, new_outline)
    encoding = encoding_obstacle(original, changed)
    if not (level_differences or encoding):
        return None
    new_statements = _new_statements(level_differences)
    names = frozenset(name for node in new_statements for name in plainly_assigned_names(node))
    readers = {
        name: block
        for name, block in new_outline.definitions.items()
        if names & mentioned_names(block.node)
    }
    reasons = [*([encoding] if encoding else []), *obstacles(level_differences, old_outline)]
    if not (reasons or readers):
        reasons = [
            f"nothing in the file reads {min(names)}, so no run shows what it is for: take it out"
        ]
    lines = {line for node in new_statements for line in lines_of(node)}
    # each line that reads an assigned name has to run
    read_lines = set() if reasons else _reading_lines(names, readers.values())
    needed_lines = tuple(sorted(lines | read_lines))
    relatives = tuple(
        Relative(name.partition("#")[0], READER, block.first, block.last)
        for name, block in readers.items()
    )
    return Change(
        MODULE,
        "module",
        _lines_to_show(lines, level_differences),
        statement_spans(new_outline.tree, needed_lines, runnable),
        (),
        (),
        relatives,
        _join_reasons(reasons),
    )


def _new_statements(level_differences: tuple[LevelDifference, ...]) -> list[ast.stmt]:
    """Return the statements of the changed version in differences, definitions aside."""
    entries = (entry for difference in level_differences for entry in difference.new)
    return [entry.node for entry in entries if not entry.definition]


def _reading_lines(names: frozenset[str], blocks: Iterable[DefinitionBlock]) -> set[int]:
    """Return the numbers of the lines in definitions on which one of the names stands."""
    return {
        line
        for block in blocks
        for node in ast.walk(block.node)
        if isinstance(node, ast.Name) and node.id in names
        for line in lines_of(node)
    }


def _lines_to_show(
    lines: set[int], level_differences: tuple[LevelDifference, ...]
) -> tuple[int, ...]:
    """Return the lines of new statements and of the places of differences, the first line where
    there are none."""
    return tuple(sorted(lines | {difference.line for difference in level_differences})) or (1,)


def _join_reasons(reasons: list[str]) -> str:
    """Return the first reasons as one text, with the number of those omitted; "" for none."""
    omitted = f" (and {len(reasons) - _SHOWN} more)" if len(reasons) > _SHOWN else ""
    return "; ".join(reasons[:_SHOWN]) + omitted


def _text_change(original: bytes, changed: bytes, runnable: frozenset[int]) -> Change | None:
    """Return the change of a file where only comments outside definitions differ (kind "text") or
    imports add names (kind "module"); None where the lines outside definitions are equal."""
    old_tree, new_tree = ast.parse(original), ast.parse(changed)
    old_text, _ = _outside_definitions(old_tree, text_lines(original))
    new_text, numbers = _outside_definitions(new_tree, text_lines(changed))
    if old_text == new_text:
        return None
    positions = changed_lines(old_text, new_text, 0)
    lines = tuple(numbers[position] for position in positions if 0 <= position < len(numbers))
    old_keys = {entry.key for entry in module_entries(old_tree, with_texts=False)}
    new_entries = module_entries(new_tree, with_texts=False)
    added_statements = [entry.node for entry in new_entries if entry.key not in old_keys]
    import_lines = tuple(line for node in added_statements for line in lines_of(node))
    statements = statement_spans(ast.parse(changed), import_lines, runnable)
    kind = "module" if added_statements else "text"
    return Change(MODULE, kind, lines or (1,), statements, (), ())


def _outside_definitions(tree: ast.Module, lines: list[bytes]) -> tuple[list[bytes], list[int]]:
    """Return the lines outside of top-level definitions, and their 1-based numbers."""
    definition_lines = {
        line
        for block in definition_blocks(tree).values()
        for line in range(block.first, block.last + 1)
    }
    numbers = [number for number in range(1, len(lines) + 1) if number not in definition_lines]
    return [lines[number - 1] for number in numbers], numbers
