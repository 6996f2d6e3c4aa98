"""Scanning: files to findings, and findings to a rewritten file."""

from __future__ import annotations

import ast
import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from regraft import source as text
from regraft.bodies import BodyMatch, BodyPattern, compile_body, find_bodies, rewrite_body
from regraft.found import Match, NoMatch
from regraft.imports import Imports
from regraft.match import called, find, layers_of, led_to
from regraft.needs import missing
from regraft.pattern import OWN_CLASS, RUN_TIME_TESTS, Pattern, PatternNode, PatternProblem, compile_rule
from regraft.render import Withheld
from regraft.rewrite import Mode, Patch, rewrite
from regraft.rules import Rule, RuleProblem
from regraft.source import SourceError, SourceFile
from regraft.structure import Module, Structure, guards
from regraft.structure.model import Body, Node, Opaque
from regraft.structure.relevance import Need, Needs, Relevance
from regraft.whole import definition

MAX_ROUNDS = 10
MAX_GARBAGE = 250_000  # objects in between two collections
SKIPPED_DIRECTORIES = frozenset({".git", ".venv", "venv", "__pycache__", "node_modules", ".cache", "build", "dist"})


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRule:
    """A rule with its patterns, in the order of its alternatives.

    withheld  why no place of the rule may be rewritten, whatever matches; "" where places may be
    """

    rule: Rule
    patterns: tuple[Pattern, ...]
    bodies: tuple[BodyPattern, ...] = ()
    withheld: str = ""

    @property
    def decorates(self) -> bool:
        """Whether the rule marks definitions instead of rewriting what they compute."""
        return any(one.decorator is not None for one in self.patterns)

    @property
    def needs(self) -> tuple[Needs, ...]:
        """For each pattern the nodes that it cannot match without."""
        return tuple(
            frozenset(_need(node) for node in one.nodes if _is_seen(node))
            | {Need("call", name) for name in called(one, self.rule.syntax.where)}
            | {Need(op) for op in led_to(self.rule.syntax.where)}
            | {Need("class", name) for name in layers_of(self.rule.syntax.where)}
            for one in self.patterns
        )


def _is_seen(node: PatternNode) -> bool:
    """Whether a function that has the node shows it by a word."""
    return node.required and not node.is_glue and node.name != OWN_CLASS


def _need(node: PatternNode) -> Need:
    return Need(node.op, node.name if node.op == "call" else "", node.chosen or node.op in RUN_TIME_TESTS)


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """One place where a rule's kernel applies: plain data, but for the patch.

    cls     the class that it is in, None outside of classes
    text    the source line on which it starts
    guard   the condition under which the kernel applies
    tests   what only the running program can decide of it
    mode    how the place is rewritten, or would have to be
    reason  why the rewrite is withheld; "" when it is not
    patch   None when the rewrite is withheld, or not wanted by who reads the finding
    also    other definitions that the patch changes
    """

    rule: Rule
    file: str
    cls: str | None
    function: str
    start: tuple[int, int]
    end: tuple[int, int]
    lines: tuple[int, ...]
    text: str
    kernel: str
    mode: Mode
    guard: str
    tests: tuple[str, ...]
    reason: str
    patch: Patch | None = None
    also: tuple[str, ...] = ()

    @property
    def fixable(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True, eq=False)
class Miss:
    """A place that a rule nearly matched, and why it does not."""

    rule: Rule
    file: str
    line: int
    column: int
    scope: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class FileReport:
    """What a scan of one file found; `errors` instead of findings when the file cannot be read.

    misses, opaque  only where the scan was asked to explain
    nodes           of the functions that were analysed
    followed        other files of the package whose text matters, with digests
    """

    file: str
    source: SourceFile | None
    findings: tuple[Finding, ...]
    misses: tuple[Miss, ...]
    opaque: tuple[Opaque, ...]
    errors: tuple[SourceError, ...]
    classes: int
    nodes: int
    seconds: float
    followed: Mapping[str, str] = field(default_factory=dict)


class RuleDefect(Exception):
    """A rule rewrote a file into something that cannot stand; nothing is written."""

    def __init__(self, findings: Sequence[Finding], message: str) -> None:
        rules = ", ".join(dict.fromkeys(one.rule.id for one in findings))
        self.error = SourceError(findings[0].file, findings[0].start[0], findings[0].start[1], f"{rules}: {message}")
        super().__init__(self.error.message)


def compile_rules(rules: Sequence[Rule]) -> tuple[tuple[CompiledRule, ...], tuple[RuleProblem, ...]]:
    """Patterns of the rules, and a problem for each rule that has no meaning for the matcher.

    Rules that need a newer PyTorch than the installed version are withheld: their kernels may compute something else.
    """
    compiled, problems = [], []
    for rule in rules:
        try:
            bodies = tuple(map(compile_body, rule.syntax.bodies))
            older = missing(need for need in rule.syntax.needs if need.package == "torch")
            reason = f"needs {older[0]}, and here is an older version" if older else ""
            compiled.append(CompiledRule(rule, compile_rule(rule.syntax), bodies, withheld=reason))
        except PatternProblem as problem:
            line, column = (problem.at.line, problem.at.column) if problem.at else (1, 1)
            problems.append(RuleProblem(str(rule.path), line, column, problem.message))
    return tuple(compiled), tuple(problems)


def withhold_contract_rules(rules: Sequence[CompiledRule], remedy: str) -> tuple[CompiledRule, ...]:
    """Withhold every place of the rules that change what callers see (safety contract).

    remedy  what the user has to do to have them applied, as the end of a sentence
    """
    reason = f"changes what callers see (safety contract): only with {remedy}"
    return tuple(replace(rule, withheld=reason) if rule.rule.syntax.safety == "contract" else rule for rule in rules)


def python_files(paths: Sequence[Path]) -> Iterator[Path | SourceError]:
    """The Python files under the paths, each once, in order; a path that is not there is an error.

    Directories are followed through symbolic links, but never twice, so cycles end.
    """
    seen: set[str] = set()
    for path in paths:
        if not path.exists():
            yield SourceError(str(path), 0, 0, "no such file or directory")
        elif path.is_dir():
            yield from _walk(path, seen)
        elif os.path.realpath(path) not in seen:
            seen.add(os.path.realpath(path))
            yield path


def _walk(directory: Path, seen: set[str]) -> Iterator[Path | SourceError]:
    real = os.path.realpath(directory)
    if real in seen:
        return
    seen.add(real)
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        yield SourceError(str(directory), 0, 0, error.strerror or str(error))
        return
    for entry in entries:
        if entry.is_dir():
            if entry.name not in SKIPPED_DIRECTORIES:
                yield from _walk(entry, seen)
        elif entry.suffix == ".py" and os.path.realpath(entry) not in seen:
            seen.add(os.path.realpath(entry))
            yield entry


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection meanwhile: what is made is much and lives on, or is measured."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def check_file(
    path: Path, rules: Sequence[CompiledRule], home: str = "regraft.ops", explain: bool = False, *,
    inlines: bool = True,
) -> FileReport:  # fmt: skip
    """Findings of one file on disk."""
    started = time.perf_counter()
    with uncollected():
        source = text.read(path)
        if isinstance(source, SourceError):
            return FileReport(str(path), None, (), (), (), (source,), 0, 0, time.perf_counter() - started)
        return check_source(source, rules, home, explain, inlines=inlines)


def failed(error: SourceError) -> FileReport:
    """The report of a file that could not be read."""
    return FileReport(error.file, None, (), (), (), (error,), 0, 0, 0.0)


def collected_between(reports: Iterable[FileReport]) -> Iterator[FileReport]:
    """The reports, with garbage collected between the files only, where little is alive."""
    with uncollected():
        for report in reports:
            yield report
            if gc.get_count()[0] > MAX_GARBAGE:
                gc.collect()


def check_source(
    source: SourceFile, rules: Sequence[CompiledRule], home: str = "regraft.ops", explain: bool = False, *,
    inlines: bool = True,
) -> FileReport:  # fmt: skip
    """Findings of one parsed file, sorted by place.

    With `explain` every function is analysed, so that near misses and places that were not followed stand beside
    the findings; without it only those functions in which a rule may match. `inlines` as in `Module`.
    """
    with uncollected():
        return _check(source, rules, home, explain, inlines)


def _check(source: SourceFile, rules: Sequence[CompiledRule], home: str, explain: bool, inlines: bool) -> FileReport:
    started = time.perf_counter()
    if b"torch" not in source.text:  # also keeps methods of other libraries' tensors from looking like PyTorch's
        return FileReport(source.path, source, (), (), (), (), 0, 0, time.perf_counter() - started)
    try:
        module = Module(source, inlines=inlines)
        imports = Imports(source, module.names, home)
        found: list[tuple[Rule, Match]] = []
        misses: list[Miss] = []
        opaque: list[Opaque] = []
        nodes = 0
        relevance = Relevance(module, [needs for rule in rules for needs in rule.needs])
        for structure in module.structures() if explain else module.structures(relevance.wanted):
            for body in structure.bodies:
                nodes += len(body.nodes)
                opaque += body.opaque
                for rule in rules:
                    matches, missed = _apply_rule(rule, module, structure, body)
                    found += ((rule.rule, match) for match in matches)
                    misses += missed
        classes = sum(bool(module.methods(cls)) for cls in module.classes.values())
        findings = [_finding(rule, match, imports) for rule, match in _at_home(found)]
        findings += [
            _body_finding(rule.rule, match, imports) for rule in rules for match in find_bodies(rule.bodies, module)
        ]
        reasons = {rule.rule.id: rule.withheld for rule in rules}
        findings = [_withhold(finding, reasons[finding.rule.id]) for finding in findings]
        module.release()
    except RecursionError:
        error = SourceError(source.path, 0, 0, "nested too deeply to analyse")
        return FileReport(source.path, source, (), (), (), (error,), 0, 0, time.perf_counter() - started)
    except ValueError as problem:  # Python refuses to print integers of more than 4,300 digits
        error = SourceError(source.path, 0, 0, f"cannot be analysed: {problem}")
        return FileReport(source.path, source, (), (), (), (error,), 0, 0, time.perf_counter() - started)
    if not explain:
        misses, opaque = [], []  # they are of some functions only
    findings.sort(key=lambda one: (one.start, one.rule.id))
    misses.sort(key=lambda one: (one.line, one.column))
    seconds = time.perf_counter() - started
    return FileReport(
        source.path, source, tuple(findings), tuple(misses), tuple(opaque), (), classes, nodes, seconds,
        module.around.followed,
    )  # fmt: skip


def _at_home(found: Sequence[tuple[Rule, Match]]) -> Iterator[tuple[Rule, Match]]:
    """The matches without those that inlining repeats: what the called function shows by itself is found there."""
    home = {(rule.id, match.root.expr) for rule, match in found if match.root.inner is None}
    seen: set[tuple[str, ast.AST, ast.AST | None]] = set()
    for rule, match in found:
        key = (rule.id, match.root.expr, match.root.inner)
        if all(node.away for node in match.nodes) and not _specialised(match.root.expr):
            continue
        if (match.root.inner is None or (rule.id, match.root.inner) not in home) and key not in seen:
            seen.add(key)
            yield rule, match


def _specialised(call: ast.AST) -> bool:
    """Whether a call gives a function a constant, so that it may show there what it does not show by itself."""
    given = (*call.args, *(one.value for one in call.keywords)) if isinstance(call, ast.Call) else ()
    return any(isinstance(one.operand if isinstance(one, ast.UnaryOp) else one, ast.Constant) for one in given)


def _apply_rule(
    compiled: CompiledRule, module: Module, structure: Structure, body: Body
) -> tuple[list[Match], list[Miss]]:
    """Matches of one rule in one body: an earlier alternative, then a match of more nodes, wins a shared node."""
    matches: list[tuple[int, Match]] = []
    missed: dict[Node, NoMatch] = {}
    where = compiled.rule.syntax.where
    for number, pattern in enumerate(compiled.patterns):
        for result in find(pattern, where, module, structure, body):
            if isinstance(result, Match):
                matches.append((number, result))
            elif result.depth > 0 and result.depth > getattr(missed.get(result.root), "depth", 0):
                missed[result.root] = result
    taken: set[Node] = set()
    chosen = []
    for _, match in sorted(matches, key=lambda one: (one[0], -len(one[1].nodes), one[1].root.time)):
        if taken.isdisjoint(match.nodes):
            taken.update(match.nodes)
            chosen.append(match)
    scope = f"{structure.name}.{body.name}" if structure.cls is not None else body.name
    misses = [
        Miss(compiled.rule, module.source.path, *_place(module.source, miss.at), scope, miss.reason)
        for root, miss in missed.items()
        if root not in taken and root.inner is None
    ]
    return chosen, misses


def _place(source: SourceFile, node: ast.AST) -> tuple[int, int]:
    return source.position(source.span(node).start)


def _finding(rule: Rule, match: Match, imports: Imports) -> Finding:
    source = imports.source
    result = rewrite(match, imports)
    patch = None if isinstance(result, Withheld) else result
    reason = f"{result.reason} (line {result.line})" if isinstance(result, Withheld) else ""
    span = source.span(match.root.expr if match.pattern.decorator is None else definition(match))
    start = source.position(span.start)
    return Finding(
        rule=rule,
        file=source.path,
        cls=match.structure.name if match.structure.cls is not None else None,
        function=match.body.name,
        start=start,
        end=source.position(span.end),
        lines=tuple(sorted({line for node in match.nodes for line in _lines(node)})),
        text=source.line(start[0]),
        kernel=match.pattern.kernel,
        mode=patch.mode if patch is not None else _mode(match),
        guard=_guard(match),
        tests=tuple(filter(None, (guards.text(test.guard) for test in match.tests))),
        reason=reason,
        patch=patch,
        also=patch.also if patch is not None else (),
    )


def _withhold(finding: Finding, reason: str) -> Finding:
    """The finding without its patch, unless there is no reason to withhold it; its own reason comes first."""
    return replace(finding, reason=finding.reason or reason, patch=None, also=()) if reason else finding


def _mode(match: Match) -> Mode:
    """How a place would have to be rewritten."""
    return "decorate" if match.pattern.decorator is not None else "version" if match.tests else "substitute"


def _body_finding(rule: Rule, match: BodyMatch, imports: Imports) -> Finding:
    source = imports.source
    result = rewrite_body(match, imports)
    first, last = source.span(match.statements[0]), source.span(match.statements[-1])
    start, end = source.position(first.start), source.position(last.end)
    return Finding(
        rule=rule,
        file=source.path,
        cls=match.cls.name if match.cls is not None else None,
        function=match.function.name,
        start=start,
        end=end,
        lines=tuple(range(start[0], end[0] + 1)),
        text=source.line(start[0]),
        kernel=getattr(match.pattern.target.apply.callee, "path", ""),
        mode="substitute",
        guard="",
        tests=(),
        reason=f"{result.reason} (line {result.line})" if isinstance(result, Withheld) else "",
        patch=None if isinstance(result, Withheld) else Patch(None, "substitute", (result[0],), result[1], result[2]),
    )


def _guard(match: Match) -> str:
    try:
        return guards.text(match.guard)
    except RecursionError:
        return "(too many conditions to print)"


def _lines(node: Node) -> Iterator[int]:
    """Source lines of a node and of the constructor of its layer."""
    for expr in (node.expr, None if node.away else node.inner):
        if expr is not None:
            yield from range(expr.lineno, (expr.end_lineno or expr.lineno) + 1)  # type: ignore[attr-defined]
    for layer in node.layer.layers if node.layer is not None else ():
        if layer.lines[0]:
            yield from range(layer.lines[0], layer.lines[1] + 1)


def choose(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Fixable findings whose statements do not overlap: the first in the file wins, then the first rule by name."""
    chosen: list[Finding] = []
    end = -1
    fixable = [(one.patch.extent, one.rule.id, one) for one in findings if one.patch is not None]
    for extent, _, finding in sorted(fixable, key=lambda row: row[:2]):
        if extent.start >= end:
            chosen.append(finding)
            end = extent.end
    return tuple(chosen)


def apply_patches(source: SourceFile, patches: Sequence[Patch], home: str = "regraft.ops") -> bytes:
    """The file with the patches and the imports that they need."""
    module = Module(source)
    imports = Imports(source, module.names, home)
    used: set[str] = set()
    for patch in patches:
        used |= patch.uses
        for qualified in patch.uses:
            imports.spell(qualified)
    return text.apply(source, [*(edit for patch in patches for edit in patch.edits), *imports.edits(used)])


def rewrite_file(
    report: FileReport, rules: Sequence[CompiledRule], home: str = "regraft.ops",
    wanted: Callable[[Finding], bool] = lambda _: True,
) -> tuple[bytes, tuple[Finding, ...]]:  # fmt: skip
    """The file with all its fixable findings applied, and the findings that were (in rounds, until none is left).

    Findings that are not `wanted` are left as they are.
    Patches that share a statement are applied in different rounds, each against the text of the round before.
    Raises RuleDefect when a rewritten file does not parse or the rounds do not end.
    """
    assert report.source is not None
    source = report.source
    applied: list[Finding] = []
    for _ in range(MAX_ROUNDS):
        chosen = choose([one for one in report.findings if one.patch is not None and wanted(one)])
        if not chosen:
            return source.data, tuple(applied)
        applied += chosen
        data = apply_patches(source, [one.patch for one in chosen if one.patch is not None], home)
        parsed = text.parse(source.path, data)
        if isinstance(parsed, SourceError):
            raise RuleDefect(chosen, f"the rewritten file does not parse: line {parsed.line}: {parsed.message}")
        source = parsed
        report = check_source(source, rules, home)
    raise RuleDefect(applied[-1:], "rewriting does not come to an end: the target matches the source again")
