"""What must hold of every rewritten file, whatever the rules are."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from regraft.rewriting.match_rewriting import Patch
from regraft.scanning import (
    CompiledRule,
    FileReport,
    RuleDefect,
    apply_patches,
    check_file,
    check_source,
    choose,
    rewrite_file,
)
from regraft.source.imports import Imports
from regraft.source.text import Edit, SourceError, SourceFile, diff, parse
from regraft.structure import Module

HOME = "regraft.ops"


def problems(path: Path, rules: Sequence[CompiledRule]) -> tuple[str, ...]:
    """What is wrong with the rewritten form of a file."""
    report = check_file(path, rules)
    assert report.source is not None
    try:
        changed, _ = rewrite_file(report, rules)
    except RuleDefect as defect:
        return (str(defect),)
    return tuple(_problems(report, report.source, changed, rules))


def _problems(
    report: FileReport, source: SourceFile, changed: bytes, rules: Sequence[CompiledRule]
) -> Iterator[str]:
    parsed = parse(report.file, changed)
    if isinstance(parsed, SourceError):
        yield f"does not parse: line {parsed.line}: {parsed.message}"
        return
    if any(one.patch is not None for one in check_source(parsed, rules).findings):
        yield "a second run changes it again"
    if applied(source, changed) != changed:
        yield "`git apply` of the diff gives other bytes"
    yield from _rounds(report, source, changed, rules)


def applied(source: SourceFile, changed: bytes) -> bytes:
    """What `git apply` makes of the original with the diff between the two."""
    text = diff("model.py", source.data, changed, source.encoding)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "model.py").write_bytes(source.data)
        if text:
            environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(directory.parent.resolve())}
            subprocess.run(
                ["git", "apply", "--whitespace=nowarn", "-"],
                cwd=directory,
                input=text.encode(source.encoding),
                check=True,
                env=environment,
            )
        return (directory / "model.py").read_bytes()


def _rounds(
    report: FileReport, source: SourceFile, changed: bytes, rules: Sequence[CompiledRule]
) -> Iterator[str]:
    """Follow the rewriting round by round: outside its edits, each round must leave every byte
    alone."""
    findings = report.findings
    while chosen := choose(findings):
        patches = [one.patch for one in chosen if one.patch is not None]
        for patch in patches:
            if any(not _within(edit, patch, source) for edit in patch.edits):
                line = source.position(patch.extent.start)[0]
                yield f"an edit lies outside the statements of its match at line {line}"
        after = parse(source.path, apply_patches(source, patches))
        if isinstance(after, SourceError):
            yield f"one round does not parse: line {after.line}: {after.message}"
            return
        if not same_outside(source.text, after.text, edits(source, patches)):
            yield "bytes outside the edits changed"
        source, findings = after, check_source(after, rules).findings
    if source.data != changed:
        yield "the rounds one by one give another file"


def _within(edit: Edit, patch: Patch, source: SourceFile) -> bool:
    """Whether an edit stays on the lines of the statements that its patch rewrites, their line ends
    included."""
    first, last = (
        source.position(patch.extent.start)[0],
        source.position(max(patch.extent.end - 1, 0))[0],
    )
    return (
        source.line_starts[first - 1] <= edit.span.start
        and edit.span.end <= source.line_starts[last]
    )


def edits(source: SourceFile, patches: Sequence[Patch]) -> tuple[Edit, ...]:
    """Edits of the patches and of the imports that they need, in the order of the file."""
    imports = Imports(source, Module(source).names, HOME)
    used = {qualified for patch in patches for qualified in patch.uses}
    for qualified in sorted(used):
        imports.spell(qualified)
    return tuple(
        sorted([*(edit for patch in patches for edit in patch.edits), *imports.edits(used)])
    )


def same_outside(before: bytes, after: bytes, edits: Sequence[Edit]) -> bool:
    """Whether the text between the edits is the same, and in its place, before and after."""
    position = shift = 0
    for edit in edits:
        if before[position : edit.span.start] != after[position + shift : edit.span.start + shift]:
            return False
        position = edit.span.end
        shift += len(edit.text.encode()) - (edit.span.end - edit.span.start)
    return before[position:] == after[position + shift :]
