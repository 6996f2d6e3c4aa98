"""Test rules of whole bodies, which match up to names: equal bodies, and lookalikes."""

from __future__ import annotations

import pytest

from regraft.dsl import parse_rule
from regraft.dsl.syntax import SyntaxProblem
from regraft.rules import Rule
from regraft.scanning import FileReport, compile_rules
from rule_texts import rewrite_code, rule_of

RULE = """
rule scaled-sum
  summary "A loop"
  safety  numeric
  needs   torch >= 2.8
body
  | total = torch.zeros_like($x)
  | for row in torch.nn.functional.relu($x):
  |     total += $f(row)  # each
  | for _ in range(2):
  |     continue
  | return total
  => regraft.ops.softmax($x, $f)
"""
HEAD = (
    "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\nimport numpy\n\n\n"
)
FITS = """def loop(values, scale):
    result = torch.zeros_like(values)
    for one in F.relu(values):
        result += scale(one)
    for _ in range(2):
        continue
    return result
"""


def rule(text: str = RULE) -> Rule:
    """Return the rule of a text."""
    return rule_of(text)


def run(code: str) -> tuple[FileReport, str]:
    """Return the report and the rewritten text of a code by the rule."""
    return rewrite_code(rule(), code)


def test_names_of_its_own_and_of_the_file() -> None:
    report, changed = run(HEAD + FITS)
    assert changed.endswith("def loop(values, scale):\n    return softmax(values, scale)\n")
    assert "from regraft.ops import softmax\n" in changed
    (finding,) = report.findings
    assert (finding.function, finding.cls, finding.mode, finding.start) == (
        "loop",
        None,
        "substitute",
        (8, 5),
    )
    assert finding.lines == tuple(range(8, 14))


@pytest.mark.parametrize("name", ["nn.functional.relu", "torch.nn.functional.relu", "bend"])
def test_a_function_is_what_its_name_means(name: str) -> None:
    report, _ = run(
        "from torch.nn.functional import relu as bend\n" + HEAD + FITS.replace("F.relu", name)
    )
    assert len(report.findings) == 1


def test_a_method_with_a_docstring_and_attributes() -> None:
    method = FITS.replace("loop(values, scale)", "loop(self, values)").replace(
        "scale(", "self.inner.scale("
    )
    method = method.replace("):\n", '):\n    """What it does."""\n\n', 1)
    code = f"{HEAD}class Loop(nn.Module):\n" + "".join(
        f"    {line}".rstrip() + "\n" for line in method.splitlines()
    )
    report, changed = run(code)
    assert '"""What it does."""\n\n        return softmax(values, self.inner.scale)\n' in changed
    assert report.findings[0].cls == "Loop"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("F.relu", "F.gelu"),
        ("F.relu", "numpy.relu"),
        ("torch.zeros_like(values)", "torch.zeros_like(scale)"),
        ("return result", "print(result)\n    return result"),
        ("return result", "return values"),
        ("result += scale(one)", "result += scale(result)"),
        ("result += scale(one)", "result -= scale(one)"),
        ("result += scale(one)", "result += scale(one, 2)"),
        ("for one in", "for values in"),
        ("for one in", "for result in"),
        ("for one in", "for torch in"),
        ("def loop(values, scale)", "def loop(values, scale, torch)"),
        ("def loop(values, scale)", "def loop(values, scale, *torch)"),
        ("def loop(values, scale)", "def loop(values, scale, **range)"),
        ("def loop(values, scale)", "async def loop(values, scale)"),
        ("scale(one)", "scale[0](one)"),
        ("scale(one)", "unknown(one)"),
        ("range(2)", "len(2)"),
        ("def loop(values, scale)", "def loop(values, scale, range)"),
        ("return result\n", "return result\n\n\ndef range(number): ...\n"),
        (
            "    for one in F.relu(values):\n",
            "    for one in F.relu(values):\n        values = one\n",
        ),
    ],
)
def test_what_only_looks_the_same(old: str, new: str) -> None:
    assert old in FITS
    report, changed = run(HEAD + FITS.replace(old, new))
    assert report.findings == ()
    assert changed == HEAD + FITS.replace(old, new)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (FITS.replace("    for one", "    # all\n    for one"), "a comment stands inside"),
        (FITS.replace("def loop", "@torch.jit.script\ndef loop"), "TorchScript"),
        (FITS.replace("    result = t", "    pass; result = t"), ""),
    ],
)
def test_withheld(code: str, reason: str) -> None:
    report, changed = run(HEAD + code)
    assert [reason in finding.reason for finding in report.findings] == ([True] if reason else [])
    assert changed == HEAD + code


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  | return total\n", "", "a body ends with `return`"),
        ("total += $f(row)", "total += $f(row", "the body is not Python"),
        ("softmax($x, $f)", "softmax($x, $g)", "takes its variables and constants"),
    ],
)
def test_bodies_that_mean_nothing(old: str, new: str, message: str) -> None:
    _, problems = compile_rules([rule(RULE.replace(old, new))])
    assert message in problems[0].message


def test_a_body_without_a_kernel_is_no_rule() -> None:
    assert isinstance(
        parse_rule(RULE.replace("  => regraft.ops.softmax($x, $f)\n", "")), SyntaxProblem
    )
    assert isinstance(
        parse_rule(RULE.replace("=> regraft.ops.softmax($x, $f)", "=> keep")), SyntaxProblem
    )
