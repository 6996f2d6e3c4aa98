"""Findings: places where a rule's kernel applies, near misses, and the report of one file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from regraft.matching.decorated_definitions import definition
from regraft.matching.result import Match
from regraft.matching.whole_bodies import BodyMatch
from regraft.rewriting.match_rewriting import Mode, Patch, rewrite
from regraft.rewriting.whole_bodies import rewrite_body
from regraft.rewriting.withheld import Withheld
from regraft.rules import Rule
from regraft.rules.loading import is_selected
from regraft.rules.worth import Worth
from regraft.source.imports import Imports
from regraft.source.text import SourceError, SourceFile
from regraft.structure import guards
from regraft.structure.values_and_nodes import Node, Opaque


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """One place where a rule's kernel applies, as plain data but for the patch.

    cls       the class around the place; None outside of classes
    function  the function around the place
    start     line and column of the place; `end` likewise
    lines     source lines of all matched nodes and of the constructors of their layers
    text      the source line on which the place starts
    guard     the condition under which the kernel applies
    tests     the parts of it that only the running program can decide
    mode      how the place is rewritten, or would have to be
    reason    why the rewrite is withheld; "" when it is not
    patch     None when the rewrite is withheld, or when a report comes from the cache or another
              process
    also      other definitions that the patch changes
    fingerprint  a digest of rule, scope and code, which does not change when the code moves
    worth     what the rule is worth on the user's target, added for the report
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
    fingerprint: str = ""
    worth: Worth | None = None

    @property
    def fixable(self) -> bool:
        """Return whether the rewrite is not withheld."""
        return not self.reason


@dataclass(frozen=True, slots=True, eq=False)
class Miss:
    """A place that a rule nearly matched, with the reason why it does not match."""

    rule: Rule
    file: str
    line: int
    column: int
    scope: str
    reason: str


@dataclass(frozen=True, slots=True)
class IgnoreComment:
    """A comment that suppresses findings.

    line, column  its place, 1-based
    selectors     the rules that it names; none for all rules
    problem       the reason why it cannot be read and suppresses nothing; "" where it can
    suppressed    the ids of rules whose findings it suppressed
    """

    line: int
    column: int
    selectors: tuple[str, ...] = ()
    problem: str = ""
    suppressed: tuple[str, ...] = ()

    def covers(self, finding: Finding) -> bool:
        """Return whether the comment suppresses a finding: it stands on its first or last line."""
        if self.problem or self.line not in (finding.start[0], finding.end[0]):
            return False
        return not self.selectors or is_selected(finding.rule.id, self.selectors)


@dataclass(frozen=True, slots=True, eq=False)
class FileReport:
    """The results of scanning one file; `errors` stand instead of findings when the file cannot be
    read.

    misses, opaque  near misses, and places that were not followed; only where the scan was asked
                    to explain
    classes         number of classes with methods
    nodes           number of nodes of the functions that were analysed
    ignores         comments that suppress findings
    followed        digests of other files of the package whose text matters, by path
    is_file         whether the path is that of a file to scan, also of one with errors
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
    ignores: tuple[IgnoreComment, ...] = ()
    is_file: bool = True


def finding_of(rule: Rule, match: Match, imports: Imports) -> Finding:
    """Return the finding for a match, with its patch or the reason why it is withheld."""
    source = imports.source
    result = rewrite(match, imports)
    patch = None if isinstance(result, Withheld) else result
    reason = f"{result.reason} (line {result.line})" if isinstance(result, Withheld) else ""
    span = source.span(match.root.expr if match.pattern.decorator is None else definition(match))
    start = source.position(span.start)
    cls = match.structure.name if match.structure.cls is not None else None
    code = source.text[span.start : span.end] if match.pattern.decorator is None else b""
    return Finding(
        rule=rule,
        file=source.path,
        cls=cls,
        function=match.body.name,
        start=start,
        end=source.position(span.end),
        lines=tuple(sorted({line for node in match.nodes for line in _lines(node)})),
        text=source.line(start[0]),
        kernel=match.pattern.kernel,
        mode=patch.mode if patch is not None else _required_mode(match),
        guard=_guard_text(match),
        tests=tuple(filter(None, (guards.text(test.guard) for test in match.tests))),
        reason=reason,
        patch=patch,
        also=patch.also if patch is not None else (),
        fingerprint=_fingerprint(rule.id, cls, match.body.name, code),
    )


def body_finding_of(rule: Rule, match: BodyMatch, imports: Imports) -> Finding:
    """Return the finding for a match of a whole body, with its patch or the reason why it is
    withheld."""
    source = imports.source
    result = rewrite_body(match, imports)
    if isinstance(result, Withheld):
        patch, reason = None, f"{result.reason} (line {result.line})"
    else:
        patch, reason = Patch(None, "substitute", (result[0],), result[1], result[2]), ""
    first, last = source.span(match.statements[0]), source.span(match.statements[-1])
    start, end = source.position(first.start), source.position(last.end)
    cls = match.cls.name if match.cls is not None else None
    code = source.text[first.start : last.end]
    return Finding(
        rule=rule,
        file=source.path,
        cls=cls,
        function=match.function.name,
        start=start,
        end=end,
        lines=tuple(range(start[0], end[0] + 1)),
        text=source.line(start[0]),
        kernel=getattr(match.pattern.target.apply.callee, "path", ""),
        mode="substitute",
        guard="",
        tests=(),
        reason=reason,
        patch=patch,
        fingerprint=_fingerprint(rule.id, cls, match.function.name, code),
    )


_LAYOUT = re.compile(rb"\s+|,(?=\s*[)\]}])")  # what a formatter changes


def _fingerprint(rule: str, cls: str | None, function: str, code: bytes) -> str:
    """Return a digest of what a finding is about, without its place and the layout of its code."""
    scope = f"{rule}\0{cls or ''}\0{function}\0".encode()
    return hashlib.blake2b(scope + _LAYOUT.sub(b"", code), digest_size=8).hexdigest()


def withhold(finding: Finding, reason: str) -> Finding:
    """Return the finding without its patch; unchanged where `reason` is "".

    The finding's own reason takes precedence over `reason`.
    """
    return (
        replace(finding, reason=finding.reason or reason, patch=None, also=())
        if reason
        else finding
    )


def _required_mode(match: Match) -> Mode:
    """Return how a place would have to be rewritten."""
    return (
        "decorate"
        if match.pattern.decorator is not None
        else "hoist"
        if match.pattern.index
        else "version"
        if match.tests
        else "substitute"
    )


def _guard_text(match: Match) -> str:
    """Return the text of the condition under which a match holds."""
    try:
        return guards.text(match.guard)
    except RecursionError:
        return "(too many conditions to print)"


def _lines(node: Node) -> Iterator[int]:
    """Yield the source lines of a node and of the constructors of its layer."""
    for expr in (node.expr, None if node.in_other_file else node.inner):
        if expr is not None:
            yield from range(expr.lineno, (expr.end_lineno or expr.lineno) + 1)  # type: ignore[attr-defined]
    for layer in node.layer.layers if node.layer is not None else ():
        if layer.lines[0]:
            yield from range(layer.lines[0], layer.lines[1] + 1)
