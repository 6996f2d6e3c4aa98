"""Test the loading of rules: selection, and every check with the place that it names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from regraft.matching.condition_table import PREDICATES
from regraft.rules import BUILT_IN, Rule, RuleProblem, load_rules, page_examples
from rule_texts import rewrite_code, rule_of

RULE = """\
rule NAME
  summary "Softmax"
  safety exact
forward
  torch.nn.functional.softmax($x, dim=-1) -> $y
  => TARGET -> $y
WHERE
"""
PAGE = """\
# NAME

```python before
a
```

Text between.

```python after
b
```

```python unchanged reason="used twice"
c
```

```python unchanged reason="another dimension"
d
```
"""


def write(
    folder: Path,
    name: str,
    *,
    pack: str = "mine",
    target: str = "regraft.ops.softmax($x)",
    where: str = "",
    text: str = RULE,
    page: str | None = PAGE,
) -> Path:
    """Write a rule and its page."""
    path = folder / pack / f"{name}.rule"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        text.replace("NAME", name).replace("TARGET", target).replace("WHERE", where), "utf-8"
    )
    if page is not None:
        path.with_suffix(".md").write_text(page, "utf-8")
    return path


def load(
    folder: Path, select: Sequence[str] = ()
) -> tuple[tuple[Rule, ...], tuple[RuleProblem, ...]]:
    """Load the rules of a folder."""
    return load_rules(select, directories=(folder,))


def only_problem(folder: Path) -> RuleProblem:
    """Return the only problem of a folder without valid rules."""
    rules, problems = load(folder)
    assert rules == ()
    (problem,) = problems
    return problem


def test_built_in_rules_load_without_problems() -> None:
    rules, problems = load_rules()
    assert problems == ()
    assert [rule.id for rule in rules] == sorted(rule.id for rule in rules)
    for rule in rules:
        assert rule.id == f"{rule.pack}/{rule.syntax.name}"
        assert rule.path == BUILT_IN / f"{rule.id}.rule"
        assert rule.page.startswith(f"# {rule.syntax.name}\n")


def test_loading_imports_no_torch() -> None:
    code = (
        "import sys; from regraft.rules import load_rules; assert load_rules()[0]; assert 'torch'"
        " not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("select", "ignore", "expected"),
    [
        ([], [], ["mine/one", "mine/two", "other/three", "other/two"]),
        (["mine/one"], [], ["mine/one"]),
        (["three"], [], ["other/three"]),
        (["mine"], [], ["mine/one", "mine/two"]),
        (["mine/*"], [], ["mine/one", "mine/two"]),
        (["*/t*"], ["other/two"], ["mine/two", "other/three"]),
        (["mine", "three"], ["one"], ["mine/two", "other/three"]),
        ([], ["other"], ["mine/one", "mine/two"]),
    ],
)
def test_selection(
    tmp_path: Path, select: list[str], ignore: list[str], expected: list[str]
) -> None:
    for pack, name in (("mine", "one"), ("mine", "two"), ("other", "two"), ("other", "three")):
        write(tmp_path, name, pack=pack)
    rules, problems = load_rules(select, ignore, (tmp_path,))
    assert [rule.id for rule in rules] == expected
    assert problems == ()


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ([], ["mine/one"]),
        (["mine"], ["mine/one"]),
        (["two"], ["mine/two"]),
        (["mine/two"], ["mine/two"]),
        (["mine", "two"], ["mine/one", "mine/two"]),
        (["mine/*"], ["mine/one", "mine/two"]),
    ],
)
def test_a_rule_that_is_off_is_selected_by_its_own_name(
    tmp_path: Path, select: list[str], expected: list[str]
) -> None:
    write(tmp_path, "one")
    write(tmp_path, "two", text=RULE.replace("forward\n", "  default off\nforward\n"))
    rules, problems = load_rules(select, (), (tmp_path,))
    assert [rule.id for rule in rules] == expected
    assert problems == ()


def test_selectors_that_find_nothing_or_too_much(tmp_path: Path) -> None:
    write(tmp_path, "softmax")
    write(tmp_path, "softmax", pack="other")
    assert (
        load(tmp_path, ["sofmax"])[1][0].message == "no rule has this name; did you mean softmax?"
    )
    assert (
        load(tmp_path, ["mine/sofmax"])[1][0].message
        == "no rule has this name; did you mean mine/softmax?"
    )
    assert load(tmp_path, ["zzz"])[1][0].message == "no rule has this name"
    assert (
        load(tmp_path, ["softmax"])[1][0].message
        == "several rules have this name: mine/softmax, other/softmax"
    )
    assert load_rules((), ["nothing"], (tmp_path,))[1][0].path == "nothing"


def test_a_broken_rule_does_not_hide_the_others(tmp_path: Path) -> None:
    write(tmp_path, "good")
    bad = write(tmp_path, "bad", text="rule bad\n  safety sure\n")
    rules, problems = load(tmp_path)
    assert [rule.id for rule in rules] == ["mine/good"]
    assert (problems[0].path, problems[0].line, problems[0].column) == (str(bad), 2, 10)
    assert "unknown safety `sure`" in problems[0].message


def test_the_name_is_that_of_the_file(tmp_path: Path) -> None:
    write(tmp_path, "file", text=RULE.replace("NAME", "rule-name"))
    assert only_problem(tmp_path).message == "the rule is called rule-name but its file file.rule"


@pytest.mark.parametrize("suffix", [".rule", ".md"])
def test_files_that_are_not_text(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, "r").with_suffix(suffix)
    path.write_bytes(b"rule \xff\xfe")
    problem = only_problem(tmp_path)
    assert problem.path == str(path)
    assert problem.message.startswith("cannot be read")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("regraft.ops.softmax($z)", "$z is not bound by the source"),
        ("regraft.ops.softmax($x, dtype=$z.dtype)", "$z is not bound by the source"),
        ("regraft.ops.soft_max($x)", "there is no kernel regraft.ops.soft_max"),
        ("regraft.ops.softmax_reference($x)", "regraft.ops exports no function of this name"),
        ("regraft.ops.softmax($x, axis=-1)", "regraft.ops.softmax has no parameter axis"),
        (
            "regraft.ops.softmax($x, -1, None, 1)",
            "regraft.ops.softmax takes 3 positional arguments",
        ),
        ("regraft.ops.softmax($x, x=$x)", "regraft.ops.softmax gets x twice"),
        ("regraft.ops.softmax(dim=-1)", "regraft.ops.softmax needs x"),
        (
            "regraft.ops.dropout_add_layer_norm($x, $x, p=0.1)",
            "regraft.ops.dropout_add_layer_norm needs norm",
        ),
        (
            "regraft.ops.dropout_add_layer_norm($x, $x, $x, $x, 0.1, training=True)",
            "regraft.ops.dropout_add_layer_norm takes 4 positional arguments",
        ),
        (
            "torch.nn.functional.rms_norm($x, ($x.shape,), epsilon=1)",
            "torch.nn.functional.rms_norm has no parameter",
        ),
    ],
)
def test_kernels_are_called_with_what_they_take(tmp_path: Path, target: str, message: str) -> None:
    path = write(tmp_path, "r", target=target)
    _, problems = load(tmp_path)
    assert message in problems[0].message
    assert (problems[0].path, problems[0].line, problems[0].column) == (str(path), 6, 6)


def test_kernels_of_other_packages_are_not_judged(tmp_path: Path) -> None:
    write(tmp_path, "r", target="some.pkg.softmax($x, anything=1)")
    assert load(tmp_path)[1] == ()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("used_once($z)", "$z is not bound by the source"),
        ("scalar($z.shape)", "$z is not bound by the source"),
        ("used_onc($x)", "used_onc is not a condition; did you mean used_once?"),
        ("cheap($x)", "cheap is not a condition; the conditions are used_once"),
        ("used_once()", "used_once takes 1 to 9 arguments"),
        ("equals($x)", "equals takes 2 arguments"),
        ("tensor($x, $y)", "tensor takes 1 argument"),
    ],
)
def test_conditions_are_known_and_speak_of_what_is_bound(
    tmp_path: Path, where: str, message: str
) -> None:
    path = write(tmp_path, "r", where=f"where\n  tensor($x),\n  {where}")
    problem = only_problem(tmp_path)
    assert message in problem.message
    assert (problem.path, problem.line, problem.column) == (str(path), 9, 3)


def test_every_alternative_binds_its_own_variables(tmp_path: Path) -> None:
    text = RULE.replace(
        "WHERE", "forward\n  torch.exp($z) -> $y\n  => regraft.ops.softmax($x) -> $y\nWHERE"
    )
    write(tmp_path, "r", text=text, where="where\n tensor($z)")
    _, problems = load(tmp_path)
    assert [(problem.line, problem.message[:2]) for problem in problems] == [
        (9, "$x")
    ]  # `$z` is asked of the second only


def test_constructors_bind_for_the_computation(tmp_path: Path) -> None:
    init = "init\n  torch.nn.Linear($in, $out) -> $layer => keep\nforward"
    text, target = RULE.replace("forward", init, 1), "regraft.ops.linear_gelu($x, $layer)"
    write(tmp_path, "r", text=text, target=target)
    (problem,) = load(tmp_path)[1]
    assert problem.message.startswith("$layer is not bound by every alternative")
    step = "  torch.nn.functional.softmax($x"
    assert step in text
    write(
        tmp_path,
        "r",
        text=text.replace(step, "  $layer($x) -> $h\n" + step.replace("$x", "$h")),
        target=target,
    )
    assert load(tmp_path)[1] == ()


def test_conditions_have_bounds() -> None:
    assert PREDICATES["used_once"][:2] == (1, 9)
    assert all(0 < least <= most for least, most, *_ in PREDICATES.values())


def test_examples_of_a_page() -> None:
    change, first, second = page_examples(PAGE)
    assert (change.kind, change.before, change.after, change.line) == ("rewrite", "a\n", "b\n", 3)
    assert (first.kind, first.before, first.reason, first.line) == (
        "unchanged",
        "c\n",
        "used twice",
        13,
    )
    assert second.reason == "another dimension"
    assert page_examples("no examples, and\n\n```python\na fence of another kind\n```\n") == ()


@pytest.mark.parametrize(
    ("page", "line", "message"),
    [
        (None, 1, "the rule has no page"),
        ("", 1, "the rule has no page"),
        (PAGE.replace('reason="used twice"', 'reason=""'), 13, "an `unchanged` example says why"),
        (PAGE.replace('python unchanged reason="used twice"', "python"), 1, "at least one"),
        (PAGE.replace("python before", "python"), 9, "every `before` is followed by its `after`"),
        (PAGE + "```python before\ne\n```\n", 20, "every `before` is followed by its `after`"),
    ],
)
def test_pages_are_complete(tmp_path: Path, page: str | None, line: int, message: str) -> None:
    path = write(tmp_path, "r", page=page)
    _, problems = load(tmp_path)
    assert message in problems[0].message
    assert (problems[0].path, problems[0].line) == (str(path.with_suffix(".md")), line)


def test_rules_that_need_nothing_but_pytorch_are_loaded_without_a_selector() -> None:
    assert {rule.pack for rule in load_rules()[0]} == {"adopter", "idioms", "torch"}
    assert {rule.pack for rule in load_rules(["idioms"])[0]} == {"idioms"}
    assert [rule.id for rule in load_rules(["sorted-head"])[0]] == ["idioms/sorted-head"]


def test_a_function_of_another_module_with_an_argument_that_the_rule_does_not_mention() -> None:
    rule = rule_of(
        'rule r\n  summary "s"\n  safety numeric\n  needs torch >= 2.8\nforward\n'
        "  torch.linalg.vector_norm($x - $y, dim=$dim) -> $length\n"
        "  => torch.dist($x, $y) -> $length\n"
    )
    code = (
        "import torch\n\n\ndef f(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:\n"
        "    return torch.linalg.vector_norm(a - b, dim=-1{})\n"
    )
    report, text = rewrite_code(rule, code.format(""))
    assert len(report.findings) == 1
    assert "torch.dist(a, b)" in text
    report, text = rewrite_code(rule, code.format(", keepdim=True"))
    assert not report.findings
    assert text == code.format(", keepdim=True")
