"""Loading rules: `packs/<pack>/<name>.rule` with its page `<name>.md`, which is its documentation and its test."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from regraft.dsl import parse_rule
from regraft.dsl.syntax import Apply, Position, Predicate, Ref, RuleSyntax, SyntaxProblem, Wildcard
from regraft.matching.pattern import alternatives, bound, made, nodes_of, variables
from regraft.matching.predicates import PREDICATES
from regraft.rules.kernels import kernel_parameters, positional_parameters
from regraft.structure.model import MISSING

BUILT_IN = Path(__file__).parent / "packs"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: `id` is `pack/name`; `page` the Markdown text beside it."""

    id: str
    pack: str
    syntax: RuleSyntax
    path: Path
    page: str


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """Why a rule cannot be used, and where (1-based)."""

    path: str
    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True)
class Example:
    """One example of a page: code before and after, or code that stays as it is for a reason."""

    kind: Literal["rewrite", "unchanged"]
    before: str
    after: str
    reason: str
    line: int


def load_rules(
    select: Sequence[str] = (), ignore: Sequence[str] = (), directories: Sequence[Path] = (BUILT_IN,)
) -> tuple[tuple[Rule, ...], tuple[RuleProblem, ...]]:
    """The selected rules in order of their ids, and every problem found on the way.

    Without a selector these are the rules that need nothing but PyTorch. A selector is a pack (`torch`), a rule
    (`torch/rms-norm`), a bare name (`rms-norm`) or a pattern (`torch/*`). The name of its pack alone does not select a
    rule that is off by default.
    """
    paths = {f"{path.parent.name}/{path.stem}": path for one in directories for path in one.glob("*/*.rule")}
    problems = [problem for selector in (*select, *ignore) for problem in _check_selector(selector, paths)]
    rules: list[Rule] = []
    for name, path in sorted(paths.items()):
        if any(_selects(one, name) for one in ignore) or (select and not any(_selects(one, name) for one in select)):
            continue
        loaded = load_rule(path)
        if not isinstance(loaded, Rule):
            problems += loaded
        elif loaded.syntax.off and not any(_selects(one, name) for one in select if one != loaded.pack):
            continue
        elif select or all(need.package == "torch" for need in loaded.syntax.needs):
            rules.append(loaded)
    return tuple(rules), tuple(problems)


def _selects(selector: str, name: str) -> bool:
    pack, _, bare = name.partition("/")
    return selector in (name, pack, bare) or fnmatchcase(name, selector)


def _check_selector(selector: str, names: Mapping[str, Path]) -> Iterator[RuleProblem]:
    packs = {name.partition("/")[0] for name in names}
    found = [name for name in names if _selects(selector, name)]
    if not found:
        yield RuleProblem(selector, 0, 0, "no rule is called so" + _suggestion(selector, names))
    elif len(found) > 1 and selector not in packs and all(name.endswith(f"/{selector}") for name in found):
        yield RuleProblem(selector, 0, 0, f"several rules are called so: {', '.join(sorted(found))}")


def _suggestion(selector: str, paths: Mapping[str, Path]) -> str:
    known = [word for name in paths for word in (name, *name.split("/"))]
    close = difflib.get_close_matches(selector, known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def load_rule(path: Path) -> Rule | tuple[RuleProblem, ...]:
    """One rule and its page, or everything that is wrong with them."""
    try:
        syntax = parse_rule(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        return (RuleProblem(str(path), 1, 1, f"cannot be read: {error}"),)
    if isinstance(syntax, SyntaxProblem):
        return (RuleProblem(str(path), syntax.line, syntax.column, syntax.message),)
    page = path.with_suffix(".md")
    try:
        text = page.read_text("utf-8") if page.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        return (RuleProblem(str(page), 1, 1, f"cannot be read: {error}"),)
    problems = [*_check(path, syntax), *_check_page(page, text)]
    if problems:
        return tuple(problems)
    return Rule(f"{path.parent.name}/{path.stem}", path.parent.name, syntax, path, text)


def _check(path: Path, syntax: RuleSyntax) -> Iterator[RuleProblem]:
    def problem(message: str, at: Position | None) -> RuleProblem:
        return RuleProblem(str(path), at.line if at else 1, at.column if at else 1, message)

    if syntax.name != path.stem:
        yield problem(f"the rule is called {syntax.name} but its file {path.name}", None)
    constructed = {name for one in syntax.init for name in bound(one)}
    layers = {name for one in syntax.init for node in nodes_of(one.source) for name in made(node)}
    for transformation in (*syntax.init, *syntax.forward):
        known = constructed | bound(transformation)
        choices = [constructed - layers | bound(one, certainly=True) for one in alternatives(transformation)]
        for node in transformation.target:
            if isinstance(node, Wildcard):
                continue
            for name in dict.fromkeys(variables(node.apply)):
                if name not in known:
                    yield problem(f"${name} is not bound by the source", node.at or transformation.at)
            for name in dict.fromkeys(name for operand in node.apply.args for name in variables(operand)):
                if name in known and any(name not in choice for choice in choices):
                    message = f"${name} is not bound by every alternative: only a keyword argument can be left out"
                    yield problem(message, node.at or transformation.at)
            for message in _check_kernel(node.apply):
                yield problem(message, node.at or transformation.at)
    for whole in syntax.bodies:
        for message in _check_kernel(whole.target.apply):
            yield problem(message, whole.target.at)
    # A condition is asked of the alternatives that bind what it speaks of.
    known = constructed | set().union(*(bound(one) for each in syntax.forward for one in alternatives(each)))
    for predicate in syntax.where:
        for message in _check_predicate(predicate, known):
            yield problem(message, predicate.at)


def _check_predicate(predicate: Predicate, bound: Collection[str]) -> Iterator[str]:
    if predicate.name not in PREDICATES:
        close = difflib.get_close_matches(predicate.name, PREDICATES, 1)
        hint = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(PREDICATES)}"
        yield f"{predicate.name} is not a condition{hint}"
        return
    least, most, _ = PREDICATES[predicate.name]
    if not least <= len(predicate.args) <= most:
        number = str(least) if least == most else f"{least} to {most}"
        yield f"{predicate.name} takes {number} argument{'s' * (most > 1)}"
    for name in dict.fromkeys(name for operand in predicate.args for name in variables(operand)):
        if name not in bound:
            yield f"${name} is not bound by the source"


def _check_kernel(apply: Apply) -> Iterator[str]:
    """The kernel exists and takes the arguments that the rule gives it."""
    if not isinstance(apply.callee, Ref) or not apply.callee.path.startswith(("regraft.ops.", "torch.")):
        return
    parameters = kernel_parameters(apply.callee.path)
    if not parameters:
        yield f"there is no kernel {apply.callee.path}"
        return
    places = list(parameters)[: len(apply.args)]
    positional = positional_parameters(apply.callee.path)
    if len(apply.args) > positional:
        yield f"{apply.callee.path} takes {positional} positional arguments"
    for name in places:
        if name in dict(apply.keywords):
            yield f"{apply.callee.path} gets {name} twice"
    given = {*places, *(name for name, _ in apply.keywords)}
    for name in sorted(given - set(parameters)):
        yield f"{apply.callee.path} has no parameter {name}"
    for name, default in parameters.items():
        if default is MISSING and name not in given:
            yield f"{apply.callee.path} needs {name}"


def _check_page(path: Path, text: str) -> Iterator[RuleProblem]:
    if not text:
        yield RuleProblem(str(path), 1, 1, "the rule has no page: every rule is documented and tested by one")
        return
    examples = page_examples(text)
    for one in examples:
        if one.kind == "unchanged" and not one.reason:
            yield RuleProblem(str(path), one.line, 1, 'an `unchanged` example says why: `unchanged reason="..."`')
    for line in _unpaired(text):
        yield RuleProblem(str(path), line, 1, "every `before` is followed by its `after`")
    if sum(one.kind == "rewrite" for one in examples) < 1 or sum(one.kind == "unchanged" for one in examples) < 2:
        message = "a page needs at least one `before`/`after` pair and two `unchanged` examples"
        yield RuleProblem(str(path), 1, 1, message)


_FENCE = re.compile(
    r"^```python (before|after|unchanged)(?: reason=\"([^\"]*)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


def page_examples(text: str) -> tuple[Example, ...]:
    """The examples of a page, in order: fences `python before`, `python after`, `python unchanged reason="..."`."""
    found: list[Example] = []
    before: tuple[str, int] | None = None
    for fence in _FENCE.finditer(text):
        kind, reason, code = fence.groups()
        line = text.count("\n", 0, fence.start()) + 1
        if kind == "before":
            before = code, line
        elif kind == "unchanged":
            found.append(Example("unchanged", code, "", reason or "", line))
        elif before is not None:
            found.append(Example("rewrite", before[0], code, "", before[1]))
            before = None
    return tuple(found)


def _unpaired(text: str) -> Iterator[int]:
    """Lines of the fences `before` and `after` that lack the other one."""
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
