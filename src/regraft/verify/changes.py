"""Which definitions, lines and branches differ between two versions of a file."""

from __future__ import annotations

import ast
import builtins
import difflib
import functools
import io
import re
import symtable
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from regraft.verify.relatives import Family, Relative, edited_methods
from regraft.verify.types import MODULE

Span = tuple[int, int]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FRAGMENT = "<changed>"
READER = "reads what the module level sets"

# Functions through which a file reads names that its text does not show as names.
_DYNAMIC = frozenset({"globals", "eval", "exec", "vars", "__builtins__", "builtins", "import_module"})
# What an assignment at module level may consist of, so that the definitions that read its names show what it does.
_VALUES = (
    ast.Constant | ast.Name | ast.Attribute | ast.Tuple | ast.List | ast.Set | ast.Dict | ast.Subscript | ast.Starred
    | ast.UnaryOp | ast.BinOp | ast.unaryop | ast.operator | ast.expr_context
)  # fmt: skip
# What a file needs that reads the local variables of other functions.
_FRAMES = frozenset({"f_locals", "gi_frame", "cr_frame", "ag_frame", "co_varnames"})
_SHOWN = 3  # obstacles in one reason


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
    `kind` is "class", "function", "removed", "module" for what the module level does, or "text" where that has other
    comments only. `obstacle` says why no run can prove the change, and is empty where one can.
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
            data["obstacle"],
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

    Statements outside definitions make a change of their own, named "<module>": other ones, their order, and their
    place among the definitions. Comments, and imports that only add a name, make one if nothing else changed.
    Raises SyntaxError where either version does not parse.
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
            obstacle = _unseen(old[name].node, chunk.node, (old_tree, new_tree)) if name in old else ""
            found.append(replace(change, relatives=relatives, obstacle=obstacle))
    gone = [Change(name, "removed", (1,), (), (), ()) for name in old if name not in new]
    outside = _module_change(original, changed, runnable)
    if outside is None and not (found or gone):
        outside = _text_change(original, changed, runnable)
    return (*found, *([outside] if outside else ()), *gone)


def same_surroundings(original: bytes, changed: bytes) -> bool:
    """Whether the names that definitions read mean the same in both versions: the module level does the same.

    Imports and definitions that only add a name are no difference, unless a decorator or a metaclass runs for them.
    """
    before, after = _Outline.of(original), _Outline.of(changed)
    if before.definitions.keys() - after.definitions.keys():
        return False
    added = [after.definitions[name].node for name in after.definitions.keys() - before.definitions.keys()]
    if any(node.decorator_list or getattr(node, "keywords", []) for node in added):
        return False
    return not (_other_encoding(original, changed) or _differences(before, after))


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


def _unseen(before: Definition, after: Definition, trees: tuple[ast.Module, ast.Module]) -> str:
    """Return why no run sees an edit of a definition: it changes what frames show or what a kept generator reads."""
    if any(_FRAMES.intersection(_words(tree)) or _FRAMES.intersection(_attributes(tree)) for tree in trees):
        renamed = ", ".join(sorted(bound_names(before) ^ bound_names(after))[:_SHOWN])
        if renamed:
            return f"the file reads variables of its callers, and only one version has {renamed}: keep the names"
    old, new = _kept_readers(before), _kept_readers(after)
    for key, (line, assignments) in new.items():
        if key in old and old[key][1] != assignments:
            return (
                f"line {line} keeps what reads {key[1]} later, and the edit assigns {key[1]} otherwise, which no run"
                " shows: keep its assignments"
            )
    return ""


def _attributes(tree: ast.AST) -> frozenset[str]:
    return frozenset(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def _kept_readers(definition: Definition) -> dict[tuple[str, str], tuple[int, tuple[str, ...]]]:
    """Return the variables that a generator or lambda reads which a function keeps outside of its variables.

    By function and variable: the line that keeps it, and the function's assignments to the variable.
    """
    found = {}
    functions = (node for node in ast.walk(definition) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    for function in functions:
        for kept in ast.walk(function):
            if isinstance(kept, ast.Assign) and not all(isinstance(target, ast.Name) for target in kept.targets):
                lazy = [node for node in ast.walk(kept.value) if isinstance(node, ast.GeneratorExp | ast.Lambda)]
                for name in frozenset().union(*map(_mentioned, lazy)) & _stored(function):
                    found[function.name, name] = kept.lineno, _assignments(function, name)
    return found


def _stored(node: ast.AST) -> frozenset[str]:
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return frozenset(part.id for part in names if isinstance(part.ctx, ast.Store))


def _assignments(function: ast.AST, name: str) -> tuple[str, ...]:
    """Return the smallest statements of a function that assign a variable."""
    kinds = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor | ast.With | ast.AsyncWith
    return tuple(ast.dump(node) for node in ast.walk(function) if isinstance(node, kinds) and name in _targets(node))


def _targets(node: ast.AST) -> frozenset[str]:
    """Return the variables that a statement assigns itself, not in its body."""
    match node:
        case ast.Assign(targets):
            return frozenset().union(*map(_stored, targets))
        case ast.AugAssign(target) | ast.AnnAssign(target) | ast.For(target) | ast.AsyncFor(target):
            return _stored(target)
        case ast.With(items) | ast.AsyncWith(items):
            return frozenset().union(*(_stored(item) for item in items))
    return frozenset()


@dataclass(frozen=True, slots=True)
class _Entry:
    """One statement at module level, one name of an import, or the place of a definition."""

    key: str
    node: ast.stmt
    definition: str = ""

    @property
    def text(self) -> str:
        if self.definition:
            return f"the definition of {self.definition.partition('#')[0]}"
        text, *more = ast.unparse(self.node).splitlines()
        return f"`{text[:60]}{' ...' * bool(more or len(text) > 60)}`"


@dataclass(frozen=True, slots=True)
class _Difference:
    """Entries of the original that others of the changed version stand in place of; either side can be empty."""

    gone: tuple[_Entry, ...]
    new: tuple[_Entry, ...]
    line: int


class _Places(ast.NodeTransformer):
    """Puts a mark in the place of each top-level definition, which no other statement equals."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names

    def visit(self, node: ast.AST) -> ast.AST:
        if id(node) in self._names:
            return ast.copy_location(ast.Global([f"definition of {self._names[id(node)]}"]), node)
        return node if isinstance(node, ast.expr) else self.generic_visit(node)


@dataclass(frozen=True)
class _Outline:
    """What a file does at module level, definitions by their places only; and which names it binds and reads."""

    entries: tuple[_Entry, ...]
    definitions: Mapping[str, _Chunk]
    tree: ast.Module
    bound: frozenset[str]
    read: frozenset[str]
    packages: frozenset[str]
    words: frozenset[str]

    @classmethod
    @functools.lru_cache(maxsize=2)  # both versions of a file, which are outlined for each question about them
    def of(cls, text: bytes) -> _Outline:
        tree = ast.parse(text)
        bound, read = _scope_names(text)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        modules = any(_is_sys_modules(node) for node in ast.walk(tree))
        exported = [node for node in tree.body if "__all__" in _mentioned(node)]
        words = _words(*([tree] if modules or names & _DYNAMIC else exported))
        entries = tuple(_entries(ast.parse(text), documented="__doc__" in names))
        return cls(entries, _chunks(tree), tree, bound, read, _packages(tree), words)

    def free(self, name: str) -> bool:
        """Whether a name can be added to the file without another meaning for anything that it holds."""
        taken = name in self.bound or name in self.read or name in self.words
        return not (taken or name.startswith("__") or hasattr(builtins, name))

    def adds_only(self, entry: _Entry) -> bool:
        """Whether an import or a definition, put into this file, only adds a name."""
        match entry.node:
            case _ if entry.definition:
                return self.free(entry.definition.partition("#")[0])
            case ast.Import([ast.alias(name, None)]):
                package = name.partition(".")[0]
                return package in self.packages or self.free(package)
            case ast.Import([ast.alias(name, local)]):
                return self.free(local or name)
            case ast.ImportFrom(module, [ast.alias(name, local)]):
                return module != "__future__" and name != "*" and self.free(local or name)
        return False


def _entries(tree: ast.Module, *, documented: bool) -> Iterator[_Entry]:
    """Yield what a module does, top to bottom; with `documented`, text that can be its documentation, too."""
    names = {id(chunk.node): name for name, chunk in _chunks(tree).items()}
    places = _Places(names)
    for node in tree.body:
        if id(node) in names:
            name = names[id(node)]
            yield _Entry(f"definition of {name}", node, name)
        elif isinstance(node, ast.Import):
            yield from (_entry(ast.copy_location(ast.Import([alias]), node)) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            single = (ast.ImportFrom(node.module, [alias], node.level) for alias in node.names)
            yield from (_entry(ast.copy_location(one, node)) for one in single)
        elif documented or not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield _Entry(ast.dump(places.visit(node)), node)


def _is_sys_modules(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(ast.Name("sys"), "modules"):
            return True
    return False


def _entry(node: ast.stmt) -> _Entry:
    return _Entry(ast.dump(node), node)


def _scope_names(text: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a file binds at module level, and those that something in it reads from there."""
    bound: set[str] = set()
    read: set[str] = set()
    table = symtable.symtable(_decoded(text), FRAGMENT, "exec")
    waiting = [table]
    while waiting:
        scope = waiting.pop()
        waiting.extend(scope.get_children())
        for symbol in scope.get_symbols():
            outer = scope is table or symbol.is_global()
            if outer and (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()):
                bound.add(symbol.get_name())
            if symbol.is_referenced() and (outer or scope.get_type() == "class"):
                read.add(symbol.get_name())
    return frozenset(bound), frozenset(read)


def _packages(tree: ast.Module) -> frozenset[str]:
    """Return the packages that a file imports by their own names and binds by nothing else."""
    imported = [alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    plain = Counter(alias.name.partition(".")[0] for alias in imported if not alias.asname)
    everything = Counter(name for node in ast.walk(tree) for name in binds(node))
    return frozenset(name for name, count in plain.items() if everything[name] == count)


def binds(node: ast.AST) -> tuple[str, ...]:
    """Return the names that a node binds by itself, whatever the scope."""
    match node:
        case ast.Name(name, ast.Store() | ast.Del()):
            return (name,)
        case ast.alias(name, local):
            return (local or name.partition(".")[0],)
        case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
            return (name,)
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return (name,)
        case ast.MatchMapping(rest=str(name)):
            return (name,)
        case ast.Global(names) | ast.Nonlocal(names):
            return tuple(names)
        case ast.arg(name):
            return (name,)
    return ()


def bound_names(tree: ast.AST) -> frozenset[str]:
    """Return every name that a file binds in any scope; "*" where it imports all names of another."""
    return frozenset(name for node in ast.walk(tree) for name in binds(node))


def _words(*trees: ast.AST) -> frozenset[str]:
    """Return the words in the texts of syntax trees."""
    constants = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return frozenset(word for value in constants if isinstance(value, str) for word in re.findall(r"\w+", value))


def _encoding(text: bytes) -> str:
    return tokenize.detect_encoding(io.BytesIO(text).readline)[0].removesuffix("-sig")


def _decoded(text: bytes) -> str:
    return text.decode(tokenize.detect_encoding(io.BytesIO(text).readline)[0])


def _other_encoding(original: bytes, changed: bytes) -> str:
    """Return that the versions are read in two encodings, where that can give a text another meaning."""
    before, after = _encoding(original), _encoding(changed)
    if before == after:
        return ""
    return f"the file is read as {after}, and the original as {before}: write it in the encoding of the original"


def _differences(before: _Outline, after: _Outline) -> tuple[_Difference, ...]:
    """Return where the module level of two versions differs; what only adds a name does not count."""
    kept = {entry.key for entry in before.entries}
    old = [entry for entry in before.entries if not entry.definition or entry.definition in after.definitions]
    new = [entry for entry in after.entries if entry.key in kept or not before.adds_only(entry)]
    matcher = difflib.SequenceMatcher(None, [e.key for e in old], [e.key for e in new], autojunk=False)
    codes = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    lost = {entry.key for _, start, end, _, _ in codes for entry in old[start:end]}
    found = []
    for _, start, end, first, last in codes:
        added = [entry for entry in new[first:last] if entry.key in lost or not before.adds_only(entry)]
        if added or end > start:
            neighbour = [*new[first:], *new[-1:]]
            line = neighbour[0].node.lineno if neighbour else 1
            found.append(_Difference(tuple(old[start:end]), tuple(added), line))
    return tuple(found)


def _module_change(original: bytes, changed: bytes, runnable: frozenset[int]) -> Change | None:
    """Return the change of what the module level does, or None where it does the same."""
    before, after = _Outline.of(original), _Outline.of(changed)
    differences, encoding = _differences(before, after), _other_encoding(original, changed)
    if not (differences or encoding):
        return None
    nodes = [entry.node for one in differences for entry in one.new if not entry.definition]
    names = frozenset(name for node in nodes for name in _assigned(node))
    readers = {name: chunk for name, chunk in after.definitions.items() if names & _mentioned(chunk.node)}
    reasons = [*([encoding] if encoding else []), *_obstacles(differences, before)]
    if not (reasons or readers):
        reasons = [f"nothing in the file reads {min(names)}, so no run shows what it is for: take it out"]
    more = f" (and {len(reasons) - _SHOWN} more)" if len(reasons) > _SHOWN else ""
    # whatever reads what is set has to run, line by line
    reading = [] if reasons else [part for chunk in readers.values() for part in _reading(chunk.node, names)]
    lines = {line for node in nodes for line in _lines_of(node)}
    statements = _statements(after.tree, tuple(sorted(lines.union(*map(_lines_of, reading)))), runnable)
    shown = tuple(sorted(lines | {one.line for one in differences})) or (1,)
    relatives = tuple(Relative(n.partition("#")[0], READER, chunk.first, chunk.last) for n, chunk in readers.items())
    return Change(MODULE, "module", shown, statements, (), (), relatives, "; ".join(reasons[:_SHOWN]) + more)


def _lines_of(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _reading(node: ast.AST, names: frozenset[str]) -> Iterator[ast.expr]:
    return (part for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in names)


def _obstacles(differences: tuple[_Difference, ...], before: _Outline) -> Iterator[str]:
    """Yield a sentence for each difference at module level that no run can judge."""
    gone = {entry.key for one in differences for entry in one.gone}
    new = {entry.key for one in differences for entry in one.new}
    for one in differences:
        moved = [entry for entry in one.new if entry.key in gone]
        for entry in moved:
            yield f"line {entry.node.lineno}, {entry.text}, has another place than in the original: move it back"
        lost = [entry for entry in one.gone if entry.key not in new]
        added = [entry for entry in one.new if entry not in moved and not _adds_value(entry, before)]
        if lost and added:
            yield (
                f"line {added[0].node.lineno}, {added[0].text}, replaces {lost[0].text} of the original, and no run"
                " shows all that a statement at module level decides: take the original's"
            )
        for entry in () if lost else added:
            yield (
                f"line {entry.node.lineno}, {entry.text}, is not in the original, and no run shows all that it"
                " decides at module level: take it out, or give it a name that the original does not use"
            )
        for entry in () if added else lost:
            yield (
                f"line {entry.node.lineno} of the original, {entry.text}, is gone, and no run shows who needs it:"
                " put it back"
            )


def _adds_value(entry: _Entry, before: _Outline) -> bool:
    """Whether a statement only gives new names a value that is spelled out: nothing is called or modified."""
    names = _assigned(entry.node)
    spelled = all(isinstance(part, _VALUES) for part in ast.walk(entry.node) if part is not entry.node)
    return bool(names) and spelled and all(map(before.free, names))


def _assigned(node: ast.stmt) -> frozenset[str]:
    """Return the names that an assignment to names alone sets."""
    match node:
        case ast.Assign(targets) if all(isinstance(target, ast.Name) for target in targets):
            return frozenset(target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(ast.Name(name), value=ast.expr()):
            return frozenset({name})
    return frozenset()


def _mentioned(node: ast.AST) -> frozenset[str]:
    return frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def _text_change(original: bytes, changed: bytes, runnable: frozenset[int]) -> Change | None:
    """Return the change of a file in which only comments, or imports that add a name, are others."""
    old_tree, new_tree = ast.parse(original), ast.parse(changed)
    before, _ = _outside(old_tree, _lines(original))
    after, numbers = _outside(new_tree, _lines(changed))
    if before == after:
        return None
    positions = _changed_lines(before, after, 0)
    lines = tuple(numbers[p] for p in positions if 0 <= p < len(numbers)) or (1,)
    known = {entry.key for entry in _entries(old_tree, documented=False)}
    added = [entry.node for entry in _entries(new_tree, documented=False) if entry.key not in known]
    imported = tuple(line for node in added for line in _lines_of(node))
    statements = _statements(ast.parse(changed), imported, runnable)
    return Change(MODULE, "module" if added else "text", lines, statements, (), ())


def _outside(tree: ast.Module, lines: list[bytes]) -> tuple[list[bytes], list[int]]:
    inside = {line for chunk in _chunks(tree).values() for line in range(chunk.first, chunk.last + 1)}
    numbers = [n for n in range(1, len(lines) + 1) if n not in inside]
    return [lines[n - 1] for n in numbers], numbers


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
