"""Which definitions, lines and branches differ between two versions of a file."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from regraft.verify.relatives import Family, Relative, edited_methods
from regraft.verify.types import MODULE

Span = tuple[int, int]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FRAGMENT = "<changed>"


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a conditional expression: byte columns as in `ast`."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Fallthrough:
    """An `if` without `else`: besides its body, the case "condition false" has to run."""

    header: Span
    body: Span


@dataclass(frozen=True, slots=True)
class Change:
    """One changed top-level definition and what has to run before it can be proved.

    `relatives` are the other definitions of the file that have to run too, because they decide what this class does.
    """

    definition: str
    kind: str
    lines: tuple[int, ...]
    statements: tuple[Span, ...]
    arms: tuple[Arm, ...]
    fallthroughs: tuple[Fallthrough, ...]
    relatives: tuple[Relative, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Change:
        """Read back what `dataclasses.asdict` and JSON made of a change."""
        return cls(
            data["definition"],
            data["kind"],
            tuple(data["lines"]),
            tuple((start, end) for start, end in data["statements"]),
            tuple(Arm(**arm) for arm in data["arms"]),
            tuple(Fallthrough((h[0], h[1]), (b[0], b[1])) for h, b in _spans(data["fallthroughs"])),
            tuple(Relative(**relative) for relative in data["relatives"]),
        )


def _spans(data: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Any, Any]]:
    return ((entry["header"], entry["body"]) for entry in data)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One top-level definition with its span, decorators included."""

    node: Definition
    first: int
    last: int


def find_changes(original: bytes, changed: bytes) -> tuple[Change, ...]:
    """Return the changed definitions in file order.

    Statements outside definitions make a change of their own, named "<module>", if they are not just imports or
    if nothing else changed. Raises SyntaxError where either version does not parse.
    """
    old_tree, new_tree = ast.parse(original), ast.parse(changed)
    old_lines, new_lines = _lines(original), _lines(changed)
    old, new = _chunks(old_tree), _chunks(new_tree)
    runnable = executable_lines(compile(changed, FRAGMENT, "exec", dont_inherit=True))
    family = Family(new_tree, {name: chunk.node for name, chunk in new.items()})
    earlier = Family(old_tree, {name: chunk.node for name, chunk in old.items()})
    found = []
    for name, chunk in new.items():
        before = old_lines[old[name].first - 1 : old[name].last] if name in old else []
        lines = _changed_lines(before, new_lines[chunk.first - 1 : chunk.last], chunk.first)
        if lines:
            change = _change(name, chunk, lines, new_tree, runnable, _ifs(old.get(name)))
            mentioned = family.mentioned(name) | earlier.mentioned(name)
            edited = edited_methods(old[name].node if name in old else None, chunk.node)
            relatives = family.relatives(name, mentioned, edited) if change.kind == "class" else ()
            found.append(replace(change, relatives=relatives))
    gone = [Change(name, "removed", (1,), (), (), ()) for name in old if name not in new]
    outside = _module_change(old_tree, new_tree, old_lines, new_lines, runnable)
    if outside and (_loose(old_tree) != _loose(new_tree) or not (found or gone)):
        found.append(outside)
    return tuple(found + gone)


def definitions_by_name(tree: ast.Module) -> dict[str, Definition]:
    """Return the top-level definitions of a file by the names that changes have: a second `f` is `f#2`."""
    return {name: chunk.node for name, chunk in _chunks(tree).items()}


def executable_lines(code: CodeType) -> frozenset[int]:
    """Return every line of a module's code object, nested functions included, that the interpreter can run."""
    lines = {line for _, _, line in code.co_lines() if line}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            lines |= executable_lines(constant)
    return frozenset(lines)


def _lines(data: bytes) -> list[bytes]:
    """Split where the parser splits: form feeds and Unicode separators are no line ends."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _chunks(tree: ast.Module) -> dict[str, _Chunk]:
    """Top-level definitions by name; those under a top-level `if` or `try` count, the last of a name wins its name."""
    chunks: dict[str, _Chunk] = {}
    for node in _definitions(tree.body):
        name, count = node.name, 1
        while name in chunks:
            count += 1
            name = f"{node.name}#{count}"
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        chunks[name] = _Chunk(node, first, node.end_lineno or node.lineno)
    return chunks


def _definitions(body: Iterable[ast.stmt]) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "handlers", "orelse", "finalbody"):
                inner = getattr(node, field, [])
                for part in inner:
                    yield from _definitions(part.body if isinstance(part, ast.ExceptHandler) else [part])


def _changed_lines(before: list[bytes], after: list[bytes], first: int) -> tuple[int, ...]:
    lines: list[int] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag == "delete":
            lines.append(first + min(start, len(after) - 1))
        elif tag != "equal":
            lines.extend(range(first + start, first + end))
    return tuple(sorted(set(lines)))


def _module_change(
    old_tree: ast.Module, new_tree: ast.Module, old: list[bytes], new: list[bytes], runnable: frozenset[int]
) -> Change | None:
    before, _ = _outside(old_tree, old)
    after, numbers = _outside(new_tree, new)
    if before == after:
        return None
    positions = _changed_lines(before, after, 0)
    lines = tuple(numbers[p] for p in positions if 0 <= p < len(numbers)) or (1,)
    statements = _statements(new_tree, lines, runnable)
    return Change(MODULE, "module", lines, statements, (), ())


def _outside(tree: ast.Module, lines: list[bytes]) -> tuple[list[bytes], list[int]]:
    inside = {line for chunk in _chunks(tree).values() for line in range(chunk.first, chunk.last + 1)}
    numbers = [n for n in range(1, len(lines) + 1) if n not in inside]
    return [lines[n - 1] for n in numbers], numbers


def _loose(tree: ast.Module) -> list[str]:
    """The module's statements that can change what definitions mean: all but definitions, imports and strings."""
    return [ast.dump(node) for node in tree.body if not _harmless(node)]


def _harmless(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _ifs(chunk: _Chunk | None) -> frozenset[str]:
    """Every `if` statement of a definition, whatever its place."""
    nodes = ast.walk(chunk.node) if chunk is not None else ()
    return frozenset(ast.dump(node) for node in nodes if isinstance(node, ast.If))


def _change(
    name: str, chunk: _Chunk, lines: tuple[int, ...], tree: ast.Module, runnable: frozenset[int], kept: frozenset[str]
) -> Change:
    """Return the change of one definition.

    An `if` of the original (`kept`) that only moved, such as into the other branch of a new condition, has to run with
    all its lines; whether it can be false is the original's own matter.
    """
    kind = "class" if isinstance(chunk.node, ast.ClassDef) else "function"
    statements = _statements(chunk.node, lines, runnable)
    touched = [n for n in ast.walk(chunk.node) if _touched(n, statements)]
    arms = [_arm(side) for n in touched if isinstance(n, ast.IfExp) for side in (n.body, n.orelse)]
    ifs = (n for n in ast.walk(chunk.node) if isinstance(n, ast.If) and not n.orelse)
    falls = [_fallthrough(n) for n in ifs if ast.dump(n) not in kept]
    live = [fall for fall in falls if fall.header in statements and fall.header[0] in runnable]
    return Change(name, kind, lines, statements, tuple(arms), tuple(live))


def _touched(node: ast.AST, statements: tuple[Span, ...]) -> bool:
    line = getattr(node, "lineno", 0)
    return any(start <= line <= end for start, end in statements)


def _arm(node: ast.expr) -> Arm:
    return Arm(node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def _fallthrough(node: ast.If) -> Fallthrough:
    return Fallthrough(_header(node), (node.body[0].lineno, node.end_lineno or node.lineno))


def _header(node: ast.stmt) -> Span:
    """A statement's own lines: for a compound statement, those before its body."""
    end = node.end_lineno or node.lineno
    body = getattr(node, "body", None)
    if body and isinstance(body, list):
        first = min(getattr(body[0], "lineno", end), *(d.lineno for d in getattr(body[0], "decorator_list", [])), end)
        end = max(node.lineno, first - 1)
    return node.lineno, end


def _statements(root: ast.AST, lines: tuple[int, ...], runnable: frozenset[int]) -> tuple[Span, ...]:
    """Smallest statements that hold a changed line and some code."""
    spans = sorted({_header(node) for node in ast.walk(root) if isinstance(node, ast.stmt)})
    chosen: set[Span] = set()
    for line in lines:
        holding = [span for span in spans if span[0] <= line <= span[1]]
        if holding:
            chosen.add(min(holding, key=lambda span: span[1] - span[0]))
    return tuple(sorted(s for s in chosen if any(n in runnable for n in range(s[0], s[1] + 1))))
