"""Comments `# regraft: ignore[rule, …]`, which suppress findings of the line that they stand on."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from regraft.rules.loading import is_selected, suggest_rule
from regraft.scanning.findings import Finding, IgnoreComment
from regraft.source import text
from regraft.source.text import Edit, SourceError, SourceFile, Span

_COMMENT = re.compile(r"#\s*regraft\s*:\s*([^#]*)")
_MENTION = re.compile(rb"#\s*regraft\s*:")
_NAMES = re.compile(r"ignore\[([^\]]*)\](?:\s.*)?")
USAGE = "write `# regraft: ignore` or `# regraft: ignore[rule, pack/rule]`"


def suppress(
    source: SourceFile, findings: Sequence[Finding]
) -> tuple[tuple[Finding, ...], tuple[IgnoreComment, ...]]:
    """Return the findings that no comment suppresses, and the comments with what they suppress."""
    comments = tuple(_ignore_comments(source))
    if not comments:
        return tuple(findings), ()
    shown = tuple(
        finding for finding in findings if not any(comment.covers(finding) for comment in comments)
    )
    used_comments = tuple(
        replace(
            comment,
            suppressed=tuple(
                sorted({finding.rule.id for finding in findings if comment.covers(finding)})
            ),
        )
        for comment in comments
    )
    return shown, used_comments


def _ignore_comments(source: SourceFile) -> Iterator[IgnoreComment]:
    """Yield the comments of a file that speak of Regraft."""
    if not _MENTION.search(source.text):  # saves tokenizing the file
        return
    for span in source.comments:
        comment = source.text[span.start : span.end].decode()
        for match in _COMMENT.finditer(comment):
            offset = span.start + len(comment[: match.start()].encode())
            yield _parse(match[1].strip(), *source.position(offset))


def _parse(words: str, line: int, column: int) -> IgnoreComment:
    """Return the comment with the words after `regraft:`."""
    if words == "ignore":
        return IgnoreComment(line, column)
    match = _NAMES.fullmatch(words)
    if match is None:
        return IgnoreComment(line, column, problem=f"this comment ignores nothing: {USAGE}")
    names = tuple(name.strip() for name in match[1].split(",") if name.strip())
    if not names:
        return IgnoreComment(line, column, problem=f"this comment names no rule: {USAGE}")
    return IgnoreComment(line, column, names)


def ignore_warnings(
    file: str,
    comments: Iterable[IgnoreComment],
    active_rules: Sequence[str],
    rule_paths: Mapping[str, Path],
    are_all_active: bool,
) -> Iterator[SourceError]:
    """Yield what is wrong with the comments of a file: those that cannot be read, names of no rule,
    and what suppresses nothing.

    active_rules    the ids of the rules that were applied: a rule that was not may be needed
    are_all_active  whether these are all the rules of the project, so that a comment without names
                    can be called unused
    """
    for comment in comments:
        messages = [comment.problem] if comment.problem else []
        if not comment.selectors and not comment.problem and not comment.suppressed:
            messages += ["unused: no rule finds anything here"] * are_all_active
        complaints = (
            _complaint(selector, comment, active_rules, rule_paths)
            for selector in comment.selectors
        )
        for message in (*messages, *filter(None, complaints)):
            yield SourceError(file, comment.line, comment.column, message)


def _complaint(
    selector: str,
    comment: IgnoreComment,
    active_rules: Sequence[str],
    rule_paths: Mapping[str, Path],
) -> str:
    """Return what is wrong with a name in a comment; "" where nothing is."""
    if not any(is_selected(rule, (selector,)) for rule in rule_paths):
        return f"no rule has the name {selector}{suggest_rule(selector, rule_paths)}"
    is_used = any(is_selected(rule, (selector,)) for rule in comment.suppressed)
    is_active = any(is_selected(rule, (selector,)) for rule in active_rules)
    return "" if is_used or not is_active else f"unused: {selector} finds nothing here"


def add_comments(
    source: SourceFile, findings: Sequence[Finding]
) -> tuple[bytes, tuple[Finding, ...]]:
    """Return the bytes of a file with a comment for each finding, and the findings for which there
    is no place: both their lines end within a string or with a backslash."""
    places, homeless = defaultdict(set), []
    open_lines = _lines_for_comments(source)
    for finding in findings:
        lines = [line for line in (finding.start[0], finding.end[0]) if line in open_lines]
        if lines:
            places[lines[0]].add(finding.rule.id)
        else:
            homeless.append(finding)
    comments = {comment.line: comment for comment in _ignore_comments(source) if comment.selectors}
    edits = [_edit(source, line, rules, comments.get(line)) for line, rules in places.items()]
    changed = text.apply(source, edits)
    parsed = text.parse(source.path, changed)
    if isinstance(parsed, SourceError) or ast.dump(parsed.tree) != ast.dump(source.tree):
        return source.data, tuple(findings)
    return changed, tuple(homeless)


def _lines_for_comments(source: SourceFile) -> frozenset[int]:
    """Return the lines whose end is outside of strings and no continuation."""
    tokens = tokenize.tokenize(io.BytesIO(source.text).readline)
    return frozenset(
        token.start[0] for token in tokens if token.type in (tokenize.NEWLINE, tokenize.NL)
    )


def _edit(source: SourceFile, line: int, rules: set[str], comment: IgnoreComment | None) -> Edit:
    """Return the edit that adds rules to the comment of a line, or a comment to the line."""
    start = source.line_starts[line - 1]
    content = source.line(line)
    if comment is not None:
        names = ", ".join(dict.fromkeys((*comment.selectors, *sorted(rules))))
        opened = content.index("[", comment.column - 1)
        begin, end = opened + 1, content.index("]", opened)
    else:
        names = f"  # regraft: ignore[{', '.join(sorted(rules))}]"
        begin = end = len(content.rstrip())
    first, last = (start + len(content[:place].encode()) for place in (begin, end))
    return Edit(Span(first, last), names)
