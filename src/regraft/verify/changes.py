"""Find the definitions, lines and branches that differ between two versions of a file."""

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
_DYNAMIC = frozenset(
    {"globals", "eval", "exec", "vars", "__builtins__", "builtins", "import_module"}
)
# Nodes that an assignment at module level may consist of: runs of the definitions that read its
# names then judge it.
_VALUES = (
    ast.Constant
    | ast.Name
    | ast.Attribute
    | ast.Tuple
    | ast.List
    | ast.Set
    | ast.Dict
    | ast.Subscript
    | ast.Starred
    | ast.UnaryOp
    | ast.BinOp
    | ast.unaryop
    | ast.operator
    | ast.expr_context
)
# Attributes through which a file reads the local variables of other functions.
_FRAMES = frozenset({"f_locals", "gi_frame", "cr_frame", "ag_frame", "co_varnames"})
_SHOWN = 3  # obstacles that one reason lists


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a conditional expression; columns count bytes, as in `ast`."""

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
                for h, b in _fallthrough_spans(entry["fallthroughs"])
            ),
            tuple(Relative.from_json(relative) for relative in entry["relatives"]),
            entry["obstacle"],
        )


def _fallthrough_spans(entries: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yield header and body of each fallthrough in JSON."""
    return ((entry["header"], entry["body"]) for entry in entries)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One top-level definition with its first and last line, decorators included."""

    node: Definition
    first: int
    last: int


def find_changes(original: bytes, changed: bytes) -> tuple[Change, ...]:
    """Return the changed definitions in file order.

    Statements outside definitions make a change of their own, named "<module>", where they have
    changed, or their order or their place among the definitions has. Comments, and imports that
    only add a name, make one if nothing else changed. Raises SyntaxError where either version does
    not parse.
    """
    old_tree, new_tree = ast.parse(original), ast.parse(changed)
    old_lines, new_lines = _lines(original), _lines(changed)
    old_chunks, new_chunks = _chunks(old_tree), _chunks(new_tree)
    runnable = executable_lines(compile(changed, FRAGMENT, "exec", dont_inherit=True))
    new_family = Family(new_tree, {name: chunk.node for name, chunk in new_chunks.items()})
    old_family = Family(old_tree, {name: chunk.node for name, chunk in old_chunks.items()})
    changes = []
    for name, chunk in new_chunks.items():
        old_text = (
            old_lines[old_chunks[name].first - 1 : old_chunks[name].last]
            if name in old_chunks
            else []
        )
        lines = _changed_lines(old_text, new_lines[chunk.first - 1 : chunk.last], chunk.first)
        if lines:
            change = _change(
                name, chunk, lines, new_tree, runnable, _if_dumps(old_chunks.get(name))
            )
            attributes = new_family.mentioned(name) | old_family.mentioned(name)
            edited = edited_methods(
                old_chunks[name].node if name in old_chunks else None, chunk.node
            )
            relatives = (
                new_family.relatives(name, attributes, edited) if change.kind == "class" else ()
            )
            obstacle = (
                _frame_obstacle(old_chunks[name].node, chunk.node, (old_tree, new_tree))
                if name in old_chunks
                else ""
            )
            changes.append(replace(change, relatives=relatives, obstacle=obstacle))
    removed = [
        Change(name, "removed", (1,), (), (), ()) for name in old_chunks if name not in new_chunks
    ]
    module_change = _module_change(original, changed, runnable)
    if module_change is None and not (changes or removed):
        module_change = _text_change(original, changed, runnable)
    return (*changes, *([module_change] if module_change else ()), *removed)


def same_surroundings(original: bytes, changed: bytes) -> bool:
    """Return whether the names that definitions read mean the same in both versions, because the
    module level does the same.

    Imports and definitions that only add a name are no difference, unless a decorator or a
    metaclass runs for them.
    """
    old_outline, new_outline = _Outline.of(original), _Outline.of(changed)
    if old_outline.definitions.keys() - new_outline.definitions.keys():
        return False
    added = [
        new_outline.definitions[name].node
        for name in new_outline.definitions.keys() - old_outline.definitions.keys()
    ]
    if any(node.decorator_list or getattr(node, "keywords", []) for node in added):
        return False
    return not (_encoding_obstacle(original, changed) or _differences(old_outline, new_outline))


def definitions_by_name(tree: ast.Module) -> dict[str, Definition]:
    """Return the top-level definitions of a file by the names that changes use: a second `f` is
    `f#2`."""
    return {name: chunk.node for name, chunk in _chunks(tree).items()}


def executable_lines(code: CodeType) -> frozenset[int]:
    """Return every line of a module's code object, nested functions included, that the interpreter
    can run."""
    lines = {line for _, _, line in code.co_lines() if line}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            lines |= executable_lines(constant)
    return frozenset(lines)


def _lines(text: bytes) -> list[bytes]:
    """Split text at the parser's line ends; form feeds and Unicode separators are none."""
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")


def _chunks(tree: ast.Module) -> dict[str, _Chunk]:
    """Return top-level definitions by name, those under a top-level `if`, `try` or `with` included.

    The first definition of a name is found under that name, a later one with its number: `f#2`.
    """
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
    """Yield the definitions among some statements and inside of their `if`, `try` and `with`
    blocks."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "handlers", "orelse", "finalbody"):
                statements = getattr(node, field, [])
                for statement in statements:
                    yield from _definitions(
                        statement.body if isinstance(statement, ast.ExceptHandler) else [statement]
                    )


def _changed_lines(
    old_lines: list[bytes], new_lines: list[bytes], first_line: int
) -> tuple[int, ...]:
    """Return the lines of the new text that differ from the old one; the new text begins at line
    `first_line`.

    Deleted lines are represented by the line that took their place.
    """
    lines: list[int] = []
    matcher = difflib.SequenceMatcher(None, old_lines, new_lines, autojunk=False)
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag == "delete":
            lines.append(first_line + min(start, len(new_lines) - 1))
        elif tag != "equal":
            lines.extend(range(first_line + start, first_line + end))
    return tuple(sorted(set(lines)))


def _frame_obstacle(
    old_definition: Definition, new_definition: Definition, trees: tuple[ast.Module, ast.Module]
) -> str:
    """Return why no run sees an edit of a definition, or "": it changes what frames show or what a
    kept generator reads.
    """
    if any(
        _FRAMES.intersection(_words(tree)) or _FRAMES.intersection(_attribute_names(tree))
        for tree in trees
    ):
        renamed = ", ".join(
            sorted(bound_names(old_definition) ^ bound_names(new_definition))[:_SHOWN]
        )
        if renamed:
            return (
                f"the file reads variables of its callers, and only one version has {renamed}: keep"
                " the names"
            )
    old_reads, new_reads = _deferred_reads(old_definition), _deferred_reads(new_definition)
    for key, (line, assignments) in new_reads.items():
        if key in old_reads and old_reads[key][1] != assignments:
            return (
                f"line {line} keeps what reads {key[1]} later, and the edit assigns {key[1]}"
                " otherwise, which no run shows: keep its assignments"
            )
    return ""


def _attribute_names(tree: ast.AST) -> frozenset[str]:
    """Return the names of all attributes in a syntax tree."""
    return frozenset(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def _deferred_reads(definition: Definition) -> dict[tuple[str, str], tuple[int, tuple[str, ...]]]:
    """Return the variables read by generators and lambdas that a function stores outside of its
    local variables.

    Keys are function and variable; values are the line that stores the generator or lambda, and the
    function's assignments to the variable.
    """
    reads = {}
    functions = (
        node
        for node in ast.walk(definition)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    for function in functions:
        for assignment in ast.walk(function):
            if isinstance(assignment, ast.Assign) and not all(
                isinstance(target, ast.Name) for target in assignment.targets
            ):
                readers = [
                    node
                    for node in ast.walk(assignment.value)
                    if isinstance(node, ast.GeneratorExp | ast.Lambda)
                ]
                for name in frozenset().union(*map(_mentioned_names, readers)) & _stored_names(
                    function
                ):
                    reads[function.name, name] = assignment.lineno, _assignments(function, name)
    return reads


def _stored_names(node: ast.AST) -> frozenset[str]:
    """Return the variables that a piece of code assigns or iterates into."""
    names = (name for name in ast.walk(node) if isinstance(name, ast.Name))
    return frozenset(name.id for name in names if isinstance(name.ctx, ast.Store))


def _assignments(function: ast.AST, name: str) -> tuple[str, ...]:
    """Return the statements of a function that assign a variable, as dumps."""
    statement_types = (
        ast.Assign
        | ast.AugAssign
        | ast.AnnAssign
        | ast.For
        | ast.AsyncFor
        | ast.With
        | ast.AsyncWith
    )
    return tuple(
        ast.dump(node)
        for node in ast.walk(function)
        if isinstance(node, statement_types) and name in _assigned_names(node)
    )


def _assigned_names(node: ast.AST) -> frozenset[str]:
    """Return the variables that a statement assigns itself, its body aside."""
    match node:
        case ast.Assign(targets):
            return frozenset().union(*map(_stored_names, targets))
        case ast.AugAssign(target) | ast.AnnAssign(target) | ast.For(target) | ast.AsyncFor(target):
            return _stored_names(target)
        case ast.With(items) | ast.AsyncWith(items):
            return frozenset().union(*(_stored_names(item) for item in items))
    return frozenset()


@dataclass(frozen=True, slots=True)
class _Entry:
    """One statement at module level, one name of an import, or the place of a definition.

    Entries of equal statements have equal keys. `definition` is the name where the entry is a
    definition, else "".
    """

    key: str
    node: ast.stmt
    definition: str = ""

    @property
    def text(self) -> str:
        """Return the entry in words: its first line in backticks, or the definition's name."""
        if self.definition:
            return f"the definition of {self.definition.partition('#')[0]}"
        first_line, *further_lines = ast.unparse(self.node).splitlines()
        return f"`{first_line[:60]}{' ...' * bool(further_lines or len(first_line) > 60)}`"


@dataclass(frozen=True, slots=True)
class _Difference:
    """Entries of the original (`gone`) and the changed version's in their place (`new`); either can
    be empty."""

    gone: tuple[_Entry, ...]
    new: tuple[_Entry, ...]
    line: int


class _Places(ast.NodeTransformer):
    """Puts a placeholder, which no other statement equals, in the place of each top-level
    definition."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names

    def visit(self, node: ast.AST) -> ast.AST:
        if id(node) in self._names:
            return ast.copy_location(ast.Global([f"definition of {self._names[id(node)]}"]), node)
        return node if isinstance(node, ast.expr) else self.generic_visit(node)


@dataclass(frozen=True)
class _Outline:
    """The module level of a file, with its definitions by their places only.

    `bound` are the names that the module level binds, `read` the names that anything in the file
    reads from there, `packages` the packages that imports bind by their own names, `words` those in
    texts through which names can be read (`__all__`, say).
    """

    entries: tuple[_Entry, ...]
    definitions: Mapping[str, _Chunk]
    tree: ast.Module
    bound: frozenset[str]
    read: frozenset[str]
    packages: frozenset[str]
    words: frozenset[str]

    @classmethod
    @functools.lru_cache(
        maxsize=2
    )  # both versions of a file; several functions ask for their outlines
    def of(cls, text: bytes) -> _Outline:
        """Return the outline of a file."""
        tree = ast.parse(text)
        bound, read = _scope_names(text)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        uses_sys_modules = any(_is_sys_modules(node) for node in ast.walk(tree))
        exports = [node for node in tree.body if "__all__" in _mentioned_names(node)]
        words = _words(*([tree] if uses_sys_modules or names & _DYNAMIC else exports))
        entries = tuple(_entries(ast.parse(text), with_texts="__doc__" in names))
        return cls(entries, _chunks(tree), tree, bound, read, _packages(tree), words)

    def is_unused(self, name: str) -> bool:
        """Return whether a name can be added to the file without another meaning for anything in
        the file."""
        is_taken = name in self.bound or name in self.read or name in self.words
        return not (is_taken or name.startswith("__") or hasattr(builtins, name))

    def only_adds_name(self, entry: _Entry) -> bool:
        """Return whether an import or a definition, put into this file, only adds a name."""
        match entry.node:
            case _ if entry.definition:
                return self.is_unused(entry.definition.partition("#")[0])
            case ast.Import([ast.alias(name, None)]):
                package = name.partition(".")[0]
                return package in self.packages or self.is_unused(package)
            case ast.Import([ast.alias(name, local)]):
                return self.is_unused(local or name)
            case ast.ImportFrom(module, [ast.alias(name, local)]):
                return module != "__future__" and name != "*" and self.is_unused(local or name)
        return False


def _entries(tree: ast.Module, *, with_texts: bool) -> Iterator[_Entry]:
    """Yield the entries of a module, top to bottom; `with_texts` also yields statements that are a
    constant alone: they can be the module's docstring.
    """
    names = {id(chunk.node): name for name, chunk in _chunks(tree).items()}
    placeholders = _Places(names)
    for node in tree.body:
        if id(node) in names:
            name = names[id(node)]
            yield _Entry(f"definition of {name}", node, name)
        elif isinstance(node, ast.Import):
            yield from (
                _entry(ast.copy_location(ast.Import([alias]), node)) for alias in node.names
            )
        elif isinstance(node, ast.ImportFrom):
            imports = (ast.ImportFrom(node.module, [alias], node.level) for alias in node.names)
            yield from (_entry(ast.copy_location(single_import, node)) for single_import in imports)
        elif with_texts or not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            yield _Entry(ast.dump(placeholders.visit(node)), node)


def _is_sys_modules(node: ast.AST) -> bool:
    """Return whether an expression is `sys.modules`."""
    match node:
        case ast.Attribute(ast.Name("sys"), "modules"):
            return True
    return False


def _entry(node: ast.stmt) -> _Entry:
    """Return the entry of a statement."""
    return _Entry(ast.dump(node), node)


def _scope_names(text: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a file binds at module level, and those that anything in the file reads
    from there."""
    bound: set[str] = set()
    read: set[str] = set()
    module_scope = symtable.symtable(_decode(text), FRAGMENT, "exec")
    scopes = [module_scope]
    while scopes:
        scope = scopes.pop()
        scopes.extend(scope.get_children())
        for symbol in scope.get_symbols():
            refers_to_module = scope is module_scope or symbol.is_global()
            if refers_to_module and (
                symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            ):
                bound.add(symbol.get_name())
            if symbol.is_referenced() and (refers_to_module or scope.get_type() == "class"):
                read.add(symbol.get_name())
    return frozenset(bound), frozenset(read)


def _packages(tree: ast.Module) -> frozenset[str]:
    """Return the packages that a file imports by their own names and binds by nothing else."""
    aliases = [alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    count_by_package = Counter(
        alias.name.partition(".")[0] for alias in aliases if not alias.asname
    )
    bindings_by_name = Counter(name for node in ast.walk(tree) for name in names_bound_by(node))
    return frozenset(
        name for name, count in count_by_package.items() if bindings_by_name[name] == count
    )


def names_bound_by(node: ast.AST) -> tuple[str, ...]:
    """Return the names that a node binds by itself, whatever the scope."""
    match node:
        case ast.Name(name, ast.Store() | ast.Del()):
            return (name,)
        case ast.alias(name, local):
            return (local or name.partition(".")[0],)
        case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
            return (name,)
        case (
            ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
        ):
            return (name,)
        case ast.MatchMapping(rest=str(name)):
            return (name,)
        case ast.Global(names) | ast.Nonlocal(names):
            return tuple(names)
        case ast.arg(name):
            return (name,)
    return ()


def bound_names(tree: ast.AST) -> frozenset[str]:
    """Return every name that a file binds in any scope; "*" where it imports all names of another
    file."""
    return frozenset(name for node in ast.walk(tree) for name in names_bound_by(node))


def _words(*trees: ast.AST) -> frozenset[str]:
    """Return the words in the string constants of syntax trees."""
    constants = (
        node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)
    )
    return frozenset(
        word for value in constants if isinstance(value, str) for word in re.findall(r"\w+", value)
    )


def _encoding(text: bytes) -> str:
    """Return the name of the encoding that Python reads a file in."""
    return tokenize.detect_encoding(io.BytesIO(text).readline)[0].removesuffix("-sig")


def _decode(text: bytes) -> str:
    """Return the text of a file in the encoding that Python reads the file in."""
    return text.decode(tokenize.detect_encoding(io.BytesIO(text).readline)[0])


def _encoding_obstacle(original: bytes, changed: bytes) -> str:
    """Return the reason not to prove a change where the versions are read in two encodings,
    or ""."""
    old, new = _encoding(original), _encoding(changed)
    if old == new:
        return ""
    return (
        f"the file is read as {new}, and the original as {old}: write it in the encoding of the"
        " original"
    )


def _differences(old_outline: _Outline, new_outline: _Outline) -> tuple[_Difference, ...]:
    """Return the differences between the module levels of two versions; what only adds a name does
    not count."""
    old_keys = {entry.key for entry in old_outline.entries}
    old_entries = [
        entry
        for entry in old_outline.entries
        if not entry.definition or entry.definition in new_outline.definitions
    ]
    new_entries = [
        entry
        for entry in new_outline.entries
        if entry.key in old_keys or not old_outline.only_adds_name(entry)
    ]
    matcher = difflib.SequenceMatcher(
        None, [e.key for e in old_entries], [e.key for e in new_entries], autojunk=False
    )
    opcodes = [opcode for opcode in matcher.get_opcodes() if opcode[0] != "equal"]
    removed_keys = {
        entry.key for _, start, end, _, _ in opcodes for entry in old_entries[start:end]
    }
    differences = []
    for _, start, end, first, last in opcodes:
        added = [
            entry
            for entry in new_entries[first:last]
            if entry.key in removed_keys or not old_outline.only_adds_name(entry)
        ]
        if added or end > start:
            following = [*new_entries[first:], *new_entries[-1:]]
            line = following[0].node.lineno if following else 1
            differences.append(_Difference(tuple(old_entries[start:end]), tuple(added), line))
    return tuple(differences)


def _module_change(original: bytes, changed: bytes, runnable: frozenset[int]) -> Change | None:
    """Return the change of the module level, or None where both versions do the same."""
    old_outline, new_outline = _Outline.of(original), _Outline.of(changed)
    differences, encoding = (
        _differences(old_outline, new_outline),
        _encoding_obstacle(original, changed),
    )
    if not (differences or encoding):
        return None
    new_statements = [
        entry.node for difference in differences for entry in difference.new if not entry.definition
    ]
    names = frozenset(name for node in new_statements for name in _plainly_assigned(node))
    readers = {
        name: chunk
        for name, chunk in new_outline.definitions.items()
        if names & _mentioned_names(chunk.node)
    }
    reasons = [*([encoding] if encoding else []), *_obstacles(differences, old_outline)]
    if not (reasons or readers):
        reasons = [
            f"nothing in the file reads {min(names)}, so no run shows what it is for: take it out"
        ]
    omitted = f" (and {len(reasons) - _SHOWN} more)" if len(reasons) > _SHOWN else ""
    # each line that reads an assigned name has to run
    reads = (
        []
        if reasons
        else [part for chunk in readers.values() for part in _reads_of(chunk.node, names)]
    )
    lines = {line for node in new_statements for line in _lines_of(node)}
    statements = _statements(
        new_outline.tree, tuple(sorted(lines.union(*map(_lines_of, reads)))), runnable
    )
    shown = tuple(sorted(lines | {difference.line for difference in differences})) or (1,)
    relatives = tuple(
        Relative(name.partition("#")[0], READER, chunk.first, chunk.last)
        for name, chunk in readers.items()
    )
    return Change(
        MODULE,
        "module",
        shown,
        statements,
        (),
        (),
        relatives,
        "; ".join(reasons[:_SHOWN]) + omitted,
    )


def _lines_of(node: ast.stmt | ast.expr) -> range:
    """Return the lines of a node."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _reads_of(node: ast.AST, names: frozenset[str]) -> Iterator[ast.expr]:
    """Yield the uses of some names inside of a node."""
    return (name for name in ast.walk(node) if isinstance(name, ast.Name) and name.id in names)


def _obstacles(differences: tuple[_Difference, ...], old_outline: _Outline) -> Iterator[str]:
    """Yield a sentence for each difference at module level that no run can judge."""
    gone_keys = {entry.key for difference in differences for entry in difference.gone}
    new_keys = {entry.key for difference in differences for entry in difference.new}
    for difference in differences:
        moved = [entry for entry in difference.new if entry.key in gone_keys]
        for entry in moved:
            yield (
                f"line {entry.node.lineno}, {entry.text}, has another place than in the original:"
                " move it back"
            )
        lost = [entry for entry in difference.gone if entry.key not in new_keys]
        added = [
            entry
            for entry in difference.new
            if entry not in moved and not _only_adds_value(entry, old_outline)
        ]
        if lost and added:
            yield (
                f"line {added[0].node.lineno}, {added[0].text}, replaces {lost[0].text} of the"
                " original, and no run shows all that a statement at module level decides: take"
                " the original's"
            )
        for entry in () if lost else added:
            yield (
                f"line {entry.node.lineno}, {entry.text}, is not in the original, and no run shows"
                " all that it decides at module level: take it out, or give it a name that the"
                " original does not use"
            )
        for entry in () if added else lost:
            yield (
                f"line {entry.node.lineno} of the original, {entry.text}, is gone, and no run shows"
                " who needs it: put it back"
            )


def _only_adds_value(entry: _Entry, old_outline: _Outline) -> bool:
    """Return whether a statement only gives new names a value that is spelled out: nothing is
    called or modified."""
    names = _plainly_assigned(entry.node)
    is_spelled_out = all(
        isinstance(part, _VALUES) for part in ast.walk(entry.node) if part is not entry.node
    )
    return bool(names) and is_spelled_out and all(map(old_outline.is_unused, names))


def _plainly_assigned(node: ast.stmt) -> frozenset[str]:
    """Return the names that a statement sets if it is an assignment to names alone, else none."""
    match node:
        case ast.Assign(targets) if all(isinstance(target, ast.Name) for target in targets):
            return frozenset(target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(ast.Name(name), value=ast.expr()):
            return frozenset({name})
    return frozenset()


def _mentioned_names(node: ast.AST) -> frozenset[str]:
    """Return the variables that a node mentions."""
    return frozenset(name.id for name in ast.walk(node) if isinstance(name, ast.Name))


def _text_change(original: bytes, changed: bytes, runnable: frozenset[int]) -> Change | None:
    """Return the change of a file where only comments differ or imports add names, or None where
    nothing does."""
    old_tree, new_tree = ast.parse(original), ast.parse(changed)
    old_text, _ = _outside_definitions(old_tree, _lines(original))
    new_text, numbers = _outside_definitions(new_tree, _lines(changed))
    if old_text == new_text:
        return None
    positions = _changed_lines(old_text, new_text, 0)
    lines = tuple(numbers[position] for position in positions if 0 <= position < len(numbers)) or (
        1,
    )
    old_keys = {entry.key for entry in _entries(old_tree, with_texts=False)}
    added_statements = [
        entry.node for entry in _entries(new_tree, with_texts=False) if entry.key not in old_keys
    ]
    import_lines = tuple(line for node in added_statements for line in _lines_of(node))
    statements = _statements(ast.parse(changed), import_lines, runnable)
    return Change(MODULE, "module" if added_statements else "text", lines, statements, (), ())


def _outside_definitions(tree: ast.Module, lines: list[bytes]) -> tuple[list[bytes], list[int]]:
    """Return the lines outside of definitions, and their numbers."""
    definition_lines = {
        line for chunk in _chunks(tree).values() for line in range(chunk.first, chunk.last + 1)
    }
    numbers = [number for number in range(1, len(lines) + 1) if number not in definition_lines]
    return [lines[number - 1] for number in numbers], numbers


def _if_dumps(chunk: _Chunk | None) -> frozenset[str]:
    """Return a dump of every `if` statement of a definition, whatever its place."""
    nodes = ast.walk(chunk.node) if chunk is not None else ()
    return frozenset(ast.dump(node) for node in nodes if isinstance(node, ast.If))


def _change(
    name: str,
    chunk: _Chunk,
    lines: tuple[int, ...],
    tree: ast.Module,
    runnable: frozenset[int],
    old_ifs: frozenset[str],
) -> Change:
    """Return the change of one definition.

    An `if` of the original (its dump is in `old_ifs`) that only moved, such as into the other
    branch of a new condition, has to run with all its lines; its false case need not run, because
    the original has it, too.
    """
    kind = "class" if isinstance(chunk.node, ast.ClassDef) else "function"
    statements = _statements(chunk.node, lines, runnable)
    touched_nodes = [node for node in ast.walk(chunk.node) if _is_touched(node, statements)]
    arms = [
        _arm(branch)
        for node in touched_nodes
        if isinstance(node, ast.IfExp)
        for branch in (node.body, node.orelse)
    ]
    ifs_without_else = (
        node for node in ast.walk(chunk.node) if isinstance(node, ast.If) and not node.orelse
    )
    fallthroughs = [
        _fallthrough(node) for node in ifs_without_else if ast.dump(node) not in old_ifs
    ]
    runnable_fallthroughs = [
        fallthrough
        for fallthrough in fallthroughs
        if fallthrough.header in statements and fallthrough.header[0] in runnable
    ]
    return Change(name, kind, lines, statements, tuple(arms), tuple(runnable_fallthroughs))


def _is_touched(node: ast.AST, statements: tuple[Span, ...]) -> bool:
    """Return whether a node begins inside of one of the statements."""
    line = getattr(node, "lineno", 0)
    return any(start <= line <= end for start, end in statements)


def _arm(node: ast.expr) -> Arm:
    """Return the place of an operand of a conditional expression."""
    return Arm(
        node.lineno,
        node.col_offset,
        node.end_lineno or node.lineno,
        node.end_col_offset or node.col_offset,
    )


def _fallthrough(node: ast.If) -> Fallthrough:
    """Return header and body of an `if` without `else`."""
    return Fallthrough(_header(node), (node.body[0].lineno, node.end_lineno or node.lineno))


def _header(node: ast.stmt) -> Span:
    """Return the first and last line of a statement itself: for a compound statement, of the lines
    before its body."""
    end = node.end_lineno or node.lineno
    body = getattr(node, "body", None)
    if body and isinstance(body, list):
        body_start = min(
            getattr(body[0], "lineno", end),
            *(d.lineno for d in getattr(body[0], "decorator_list", [])),
            end,
        )
        end = max(node.lineno, body_start - 1)
    return node.lineno, end


def _statements(
    root: ast.AST, lines: tuple[int, ...], runnable: frozenset[int]
) -> tuple[Span, ...]:
    """Return the spans of the smallest statements that hold a changed line and some code."""
    spans = sorted({_header(node) for node in ast.walk(root) if isinstance(node, ast.stmt)})
    smallest: set[Span] = set()
    for line in lines:
        enclosing = [span for span in spans if span[0] <= line <= span[1]]
        if enclosing:
            smallest.add(min(enclosing, key=lambda span: span[1] - span[0]))
    return tuple(sorted(s for s in smallest if any(n in runnable for n in range(s[0], s[1] + 1))))
