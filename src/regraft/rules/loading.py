"""The loading of rules: `packs/<pack>/<name>.rule` with its page `<name>.md`, both documentation
and test."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from regraft.dsl.syntax import RuleSyntax, SyntaxProblem
from regraft.rules import parsed_rules_cache
from regraft.source.similar_names import suggest
from regraft.source.text import SourceError

BUILT_IN = Path(__file__).parent / "packs"
TEMPLATE = Path(__file__).parent / "template" / "NAME.rule"  # its page stands beside it


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `id` is `pack/name`; `page` is the Markdown text beside it."""

    id: str
    pack: str
    syntax: RuleSyntax
    path: Path
    page: str

    @property
    def is_built_in(self) -> bool:
        """Return whether the rule comes with this package, where a test runs its source against its
        target for many values."""
        return self.path.is_relative_to(BUILT_IN)


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """The reason why a rule cannot be used, with its place (1-based; 0 where it is about a
    selector)."""

    path: str
    line: int
    column: int
    message: str

    @property
    def error(self) -> SourceError:
        """The problem as an error of a source file."""
        return SourceError(self.path, self.line, self.column, self.message)


@dataclass(frozen=True, slots=True)
class Example:
    """One example of a page: code before and after, or code that stays as it is for a reason;
    `line` is 1-based."""

    kind: Literal["rewrite", "unchanged"]
    before: str
    after: str
    reason: str
    line: int


def load_rules(
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    directories: Sequence[Path] = (BUILT_IN,),
) -> tuple[tuple[Rule, ...], tuple[RuleProblem, ...]]:
    """Return the selected rules in order of their ids, and every problem found on the way.

    Without a selector these are the rules that need nothing but PyTorch. A selector is a pack
    (`torch`), a rule (`torch/rms-norm`), a bare name (`rms-norm`) or a pattern (`torch/*`). The
    name of its pack alone does not select a rule that is off by default.
    """
    paths = rule_paths(directories)
    problems = [*check_selectors((*select, *ignore), paths), *check_directories(directories)]
    rules: list[Rule] = []
    for name, path in sorted(paths.items()):
        if not _is_chosen(name, select, ignore):
            continue
        loaded = load_rule(path)
        if not isinstance(loaded, Rule):
            problems += loaded
        elif _is_active(loaded, select):
            rules.append(loaded)
    return tuple(rules), tuple(problems)


def rule_paths(directories: Sequence[Path] = (BUILT_IN,)) -> dict[str, Path]:
    """Return the files of all rules in directories of packs, by the rules' ids."""
    return {
        f"{path.parent.name}/{path.stem}": path
        for directory in directories
        for path in directory.glob("*/*.rule")
    }


def check_directories(directories: Sequence[Path]) -> Iterator[RuleProblem]:
    """Yield a problem for each directory that is a pack itself, whose rules would not be found."""
    for directory in directories:
        if rule := next(directory.glob("*.rule"), None):
            folder = directory.resolve()
            yield RuleProblem(
                str(directory),
                0,
                0,
                f"it is a pack, with {rule.name}: name the directory of packs above it,"
                f" {directory.parent if directory.parent != directory else folder.parent}",
            )


def check_selectors(selectors: Sequence[str], paths: Mapping[str, Path]) -> Iterator[RuleProblem]:
    """Yield the problems of selectors of the rules that `rule_paths` returned."""
    for selector in selectors:
        yield from _check_selector(selector, paths)


def _is_chosen(name: str, select: Sequence[str], ignore: Sequence[str]) -> bool:
    """Return whether the selectors choose the rule of this id; without `select` all are chosen."""
    if is_selected(name, ignore):
        return False
    return not select or is_selected(name, select)


def _is_active(rule: Rule, select: Sequence[str]) -> bool:
    """Return whether a chosen rule is on.

    A rule that is off by default needs a selector besides the name of its pack. Without selectors
    only the rules are on that need nothing but PyTorch.
    """
    if rule.syntax.off:
        narrow_selectors = [selector for selector in select if selector != rule.pack]
        if not is_selected(rule.id, narrow_selectors):
            return False
    return bool(select) or all(need.package == "torch" for need in rule.syntax.needs)


def is_selected(name: str, selectors: Sequence[str]) -> bool:
    """Return whether one of the selectors selects the rule of this id."""
    return any(_selects(selector, name) for selector in selectors)


def _selects(selector: str, name: str) -> bool:
    """Return whether a selector is the id, the pack or the bare name of a rule, or a pattern that
    fits its id."""
    pack, _, bare = name.partition("/")
    return selector in (name, pack, bare) or fnmatchcase(name, selector)


def _check_selector(selector: str, names: Mapping[str, Path]) -> Iterator[RuleProblem]:
    """Yield a problem where a selector fits no rule, or is a bare name that several packs have."""
    packs = {name.partition("/")[0] for name in names}
    matching_names = [name for name in names if _selects(selector, name)]
    if not matching_names:
        yield RuleProblem(selector, 0, 0, "no rule has this name" + suggest_rule(selector, names))
    elif (
        len(matching_names) > 1
        and selector not in packs
        and all(name.endswith(f"/{selector}") for name in matching_names)
    ):
        yield RuleProblem(
            selector, 0, 0, f"several rules have this name: {', '.join(sorted(matching_names))}"
        )


def suggest_rule(selector: str, paths: Mapping[str, Path]) -> str:
    """Return a hint at a rule or pack that is spelt almost like a selector, or ""."""
    return suggest(selector, (word for name in paths for word in (name, *name.split("/"))))


def load_rule(path: Path) -> Rule | tuple[RuleProblem, ...]:
    """Return one rule with its page, or all problems of the two files.

    A rule without problems is kept in the user's cache and not parsed again.
    """
    page_path = path.with_suffix(".md")
    texts = []
    for file in (path, page_path):
        try:
            texts.append(file.read_text("utf-8") if file == path or file.is_file() else "")
        except (OSError, UnicodeDecodeError) as error:
            return (RuleProblem(str(file), 1, 1, f"cannot be read: {error}"),)
    text, page = texts
    key = parsed_rules_cache.key_of(path.parent.name, path.name, text, page)
    syntax = parsed_rules_cache.load(key)
    if syntax is None:
        checked = _parse_and_check(path, text, page_path, page)
        if not isinstance(checked, RuleSyntax):
            return checked
        syntax = checked
        parsed_rules_cache.store(key, syntax)
    return Rule(f"{path.parent.name}/{path.stem}", path.parent.name, syntax, path, page)


def _parse_and_check(
    path: Path, text: str, page_path: Path, page: str
) -> RuleSyntax | tuple[RuleProblem, ...]:
    """Return the rule of a text, or all problems of the text and of its page."""
    from regraft.dsl import parse_rule  # which needs Lark; a parsed rule comes from the cache

    syntax = parse_rule(text)
    if isinstance(syntax, SyntaxProblem):
        return (RuleProblem(str(path), syntax.line, syntax.column, syntax.message),)
    problems = (*_rule_problems(path, syntax), *_check_page(page_path, page))
    return problems or syntax


def _rule_problems(path: Path, syntax: RuleSyntax) -> Iterator[RuleProblem]:
    """Yield the problems of a rule that parses, each with its place in the rule's file."""
    from regraft.rules.checking import check_rule

    for message, at in check_rule(path, syntax):
        line, column = (at.line, at.column) if at else (1, 1)
        yield RuleProblem(str(path), line, column, message)


def _check_page(path: Path, text: str) -> Iterator[RuleProblem]:
    """Yield the problems of a page: missing examples, reasons, or halves of pairs."""
    if not text:
        yield RuleProblem(
            str(path), 1, 1, "the rule has no page: every rule is documented and tested by one"
        )
        return
    examples = page_examples(text)
    for example in examples:
        if example.kind == "unchanged" and not example.reason:
            yield RuleProblem(
                str(path),
                example.line,
                1,
                'an `unchanged` example says why: `unchanged reason="..."`',
            )
    for line in _unpaired_fences(text):
        yield RuleProblem(str(path), line, 1, "every `before` is followed by its `after`")
    if (
        sum(example.kind == "rewrite" for example in examples) < 1
        or sum(example.kind == "unchanged" for example in examples) < 2
    ):
        message = "a page needs at least one `before`/`after` pair and two `unchanged` examples"
        yield RuleProblem(str(path), 1, 1, message)


_FENCE = re.compile(
    r"^```python (before|after|unchanged)(?: reason=\"([^\"]*)\")?\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def page_examples(text: str) -> tuple[Example, ...]:
    """Return the examples of a page in order, from the fences `python before`, `after` and
    `unchanged reason=...`."""
    examples: list[Example] = []
    before: tuple[str, int] | None = None
    for fence in _FENCE.finditer(text):
        kind, reason, code = fence.groups()
        line = text.count("\n", 0, fence.start()) + 1
        if kind == "before":
            before = code, line
        elif kind == "unchanged":
            examples.append(Example("unchanged", code, "", reason or "", line))
        elif before is not None:
            examples.append(Example("rewrite", before[0], code, "", before[1]))
            before = None
    return tuple(examples)


def _unpaired_fences(text: str) -> Iterator[int]:
    """Yield the lines of the fences `before` and `after` that lack the other one."""
    open_line = 0
    for fence in _FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 1
        if open_line and fence[1] != "after":
            yield open_line
        if not open_line and fence[1] == "after":
            yield line
        open_line = line if fence[1] == "before" else 0
    if open_line:
        yield open_line
