"""Scanning of one file: every rule is matched with every body that may hold it."""

from __future__ import annotations

import ast
import contextlib
import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from regraft.matching.bodies import find_bodies
from regraft.matching.matcher import find
from regraft.matching.result import Match, NoMatch
from regraft.rules import Rule
from regraft.scanning.findings import FileReport, Miss, body_finding_of, finding_of, withheld
from regraft.scanning.rules import CompiledRule
from regraft.source import text
from regraft.source.imports import Imports
from regraft.source.text import SourceError, SourceFile
from regraft.structure import Module, Structure
from regraft.structure.model import Body, Node, Opaque
from regraft.structure.relevance import Relevance

MAX_GARBAGE = 250_000  # objects in between two collections


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
        findings = [finding_of(rule, match, imports) for rule, match in _at_home(found)]
        findings += [
            body_finding_of(rule.rule, match, imports) for rule in rules for match in find_bodies(rule.bodies, module)
        ]
        reasons = {rule.rule.id: rule.withheld for rule in rules}
        findings = [withheld(finding, reasons[finding.rule.id]) for finding in findings]
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
