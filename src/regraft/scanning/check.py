"""The scanning of one file: every rule is matched with every body in which it may match."""

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
from regraft.scanning.findings import FileReport, Miss, body_finding_of, finding_of, withhold
from regraft.scanning.rules import CompiledRule
from regraft.source import text
from regraft.source.imports import Imports
from regraft.source.text import SourceError, SourceFile
from regraft.structure import Module, Structure
from regraft.structure.model import Body, Node, Opaque
from regraft.structure.relevance import Relevance

MAX_GARBAGE = 250_000  # objects that are allocated between two collections


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Suspend garbage collection: for code that allocates much that lives on, or that is
    measured."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def check_file(
    path: Path,
    rules: Sequence[CompiledRule],
    home: str = "regraft.ops",
    explain: bool = False,
    *,
    inlines: bool = True,
) -> FileReport:
    """Return the report of one file on disk."""
    started = time.perf_counter()
    with uncollected():
        source = text.read(path)
        if isinstance(source, SourceError):
            return FileReport(
                str(path), None, (), (), (), (source,), 0, 0, time.perf_counter() - started
            )
        return check_source(source, rules, home, explain, inlines=inlines)


def failed(error: SourceError) -> FileReport:
    """Return the report of a file that could not be read."""
    return FileReport(error.file, None, (), (), (), (error,), 0, 0, 0.0)


def collected_between(reports: Iterable[FileReport]) -> Iterator[FileReport]:
    """Yield the reports, with garbage collected only between files, where few objects are alive."""
    with uncollected():
        for report in reports:
            yield report
            if gc.get_count()[0] > MAX_GARBAGE:
                gc.collect()


def check_source(
    source: SourceFile,
    rules: Sequence[CompiledRule],
    home: str = "regraft.ops",
    explain: bool = False,
    *,
    inlines: bool = True,
) -> FileReport:
    """Return the report of one parsed file, with findings sorted by place.

    With `explain` every function is analysed, so that near misses and places that were not followed
    stand beside the findings; without it only those functions are in which a rule may match.
    `inlines` is that of `Module`.
    """
    with uncollected():
        return _scan_source(source, rules, home, explain, inlines)


def _scan_source(
    source: SourceFile, rules: Sequence[CompiledRule], home: str, explain: bool, inlines: bool
) -> FileReport:
    """Return the report of one parsed file; a file that cannot be analysed has an error."""
    started = time.perf_counter()
    if (
        b"torch" not in source.text
    ):  # also keeps methods of other libraries' tensors from looking like PyTorch's
        return FileReport(source.path, source, (), (), (), (), 0, 0, time.perf_counter() - started)
    try:
        module = Module(source, inlines=inlines)
        imports = Imports(source, module.names, home)
        rule_matches: list[tuple[Rule, Match]] = []
        misses: list[Miss] = []
        opaque: list[Opaque] = []
        nodes = 0
        relevance = Relevance(module, [needs for rule in rules for needs in rule.needs])
        for structure in module.structures() if explain else module.structures(relevance.may_match):
            for body in structure.bodies:
                nodes += len(body.nodes)
                opaque += body.opaque
                for rule in rules:
                    matches, rule_misses = _apply_rule(rule, module, structure, body)
                    rule_matches += ((rule.rule, match) for match in matches)
                    misses += rule_misses
        classes = sum(bool(module.methods(cls)) for cls in module.classes.values())
        findings = [
            finding_of(rule, match, imports) for rule, match in _without_repeats(rule_matches)
        ]
        findings += [
            body_finding_of(rule.rule, match, imports)
            for rule in rules
            for match in find_bodies(rule.bodies, module)
        ]
        reasons = {rule.rule.id: rule.withheld for rule in rules}
        findings = [withhold(finding, reasons[finding.rule.id]) for finding in findings]
        module.release()
    except RecursionError:
        error = SourceError(source.path, 0, 0, "nested too deeply to analyse")
        return FileReport(
            source.path, source, (), (), (), (error,), 0, 0, time.perf_counter() - started
        )
    except ValueError as problem:  # Python refuses to print integers of more than 4,300 digits
        error = SourceError(source.path, 0, 0, f"cannot be analysed: {problem}")
        return FileReport(
            source.path, source, (), (), (), (error,), 0, 0, time.perf_counter() - started
        )
    if not explain:
        misses, opaque = [], []  # they are of some functions only
    findings.sort(key=lambda finding: (finding.start, finding.rule.id))
    misses.sort(key=lambda miss: (miss.line, miss.column))
    seconds = time.perf_counter() - started
    return FileReport(
        source.path,
        source,
        tuple(findings),
        tuple(misses),
        tuple(opaque),
        (),
        classes,
        nodes,
        seconds,
        module.package_files.followed,
    )


def _without_repeats(rule_matches: Sequence[tuple[Rule, Match]]) -> Iterator[tuple[Rule, Match]]:
    """Yield the matches less those that inlining repeats: matches that the called function shows by
    itself."""
    own_keys = {
        (rule.id, match.root.expr) for rule, match in rule_matches if match.root.inner is None
    }
    yielded_keys: set[tuple[str, ast.AST, ast.AST | None]] = set()
    for rule, match in rule_matches:
        key = (rule.id, match.root.expr, match.root.inner)
        if all(node.in_other_file for node in match.nodes) and not _is_specialised(match.root.expr):
            continue
        if (
            match.root.inner is None or (rule.id, match.root.inner) not in own_keys
        ) and key not in yielded_keys:
            yielded_keys.add(key)
            yield rule, match


def _is_specialised(call: ast.AST) -> bool:
    """Return whether a call passes a constant.

    The called function may then show in the call what it does not show by itself.
    """
    arguments = (
        (*call.args, *(keyword.value for keyword in call.keywords))
        if isinstance(call, ast.Call)
        else ()
    )
    return any(
        isinstance(
            argument.operand if isinstance(argument, ast.UnaryOp) else argument, ast.Constant
        )
        for argument in arguments
    )


def _apply_rule(
    compiled: CompiledRule, module: Module, structure: Structure, body: Body
) -> tuple[list[Match], list[Miss]]:
    """Return the matches and near misses of one rule in one body.

    Of matches that share a node the one of an earlier alternative wins, then the one with more
    nodes.
    """
    matches: list[tuple[int, Match]] = []
    nearest_misses: dict[Node, NoMatch] = {}
    where = compiled.rule.syntax.where
    for number, pattern in enumerate(compiled.patterns):
        for result in find(pattern, where, module, structure, body):
            if isinstance(result, Match):
                matches.append((number, result))
            elif result.depth > 0 and result.depth > getattr(
                nearest_misses.get(result.root), "depth", 0
            ):
                nearest_misses[result.root] = result
    covered: set[Node] = set()
    chosen = []
    for _, match in sorted(
        matches,
        key=lambda candidate: (candidate[0], -len(candidate[1].nodes), candidate[1].root.time),
    ):
        if covered.isdisjoint(match.nodes):
            covered.update(match.nodes)
            chosen.append(match)
    scope = f"{structure.name}.{body.name}" if structure.cls is not None else body.name
    misses = [
        Miss(
            compiled.rule,
            module.source.path,
            *_position(module.source, miss.at),
            scope,
            miss.reason,
        )
        for root, miss in nearest_misses.items()
        if root not in covered and root.inner is None
    ]
    return chosen, misses


def _position(source: SourceFile, node: ast.AST) -> tuple[int, int]:
    """Return the line and column at which a node starts."""
    return source.position(source.span(node).start)
