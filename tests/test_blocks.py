"""Test rules of blocks, which match runs of statements up to names: equal runs, lookalikes, and
values that are read afterwards."""

from __future__ import annotations

import pytest

from regraft.dsl import parse_rule
from regraft.dsl.syntax import SyntaxProblem
from regraft.rules import Rule
from regraft.scanning import FileReport, compile_rules
from rule_texts import rewrite_code, rule_of

RULE = """
rule row-sums
  summary "A loop"
  safety  numeric
  needs   torch >= 2.8
block
  | for row in range(1, $size):
  |     total = $x[row].sum()
  |     $x[row] = torch.nn.functional.relu(total)
  => regraft.ops.substitute_rows($x, $size)
"""
HEAD = "import torch\nfrom torch.nn import functional as F\n\n\n"
LOOP = """    for i in range(1, size):
        mean = x[i].sum()
        x[i] = F.relu(mean)
"""
FITS = f"def loop(x, size):\n    x = x * 2\n{LOOP}    return x\n"
CALL = "    substitute_rows(x, size)\n"


def rule(text: str = RULE) -> Rule:
    """Return the rule of a text."""
    return rule_of(text)


def run(code: str) -> tuple[FileReport, str]:
    """Return the report and the rewritten text of a code by the rule."""
    return rewrite_code(rule(), code)


def test_a_run_of_statements() -> None:
    report, changed = run(HEAD + FITS)
    assert changed.endswith(f"def loop(x, size):\n    x = x * 2\n{CALL}    return x\n")
    (finding,) = report.findings
    assert (finding.function, finding.mode, finding.start) == ("loop", "substitute", (7, 5))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    return x\n", "    for i in range(3):\n        x = x + i\n    return x\n"),
        (
            "    return x\n",
            "    for i, mean in enumerate(x):\n        x = mean + i\n    return x\n",
        ),
        ("    return x\n", "    return [i for i in x]\n"),
        ("    return x\n", "    mean = x\n    return x\n"),
        ("    x = x * 2\n", "    i = mean = x * 2\n    x = i * mean\n"),
        ("    x = x * 2\n", "    for _ in range(2):\n        x = x * 2\n"),
        ("def loop(x, size):\n", "async def loop(x, size):\n"),
    ],
)
def test_values_that_are_not_read_afterwards(old: str, new: str) -> None:
    report, changed = run(HEAD + FITS.replace(old, new))
    assert len(report.findings) == 1
    assert changed.endswith(FITS.replace(old, new).replace(LOOP, CALL))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return x", "return x, i"),
        ("return x", "return x + mean"),
        ("return x", "del i\n    return x"),
        ("return x", "return lambda: mean"),
        ("return x", "return locals()"),
        ("return x", "for x in i:\n        pass"),
        ("return x", "for i in x:\n        pass\n    else:\n        print(mean)"),
        ("return x", "return [x for x in i]"),
        ("return x", "return [i for i in i]"),
        ("return x", "mean += 1"),
        ("x = x * 2", "global i"),
        ("x = x * 2", "def inner():\n        nonlocal mean"),
        ("x = x * 2", "def inner():\n        return mean"),
        ("x = x * 2", "later = (mean for _ in x)"),
    ],
)
def test_values_that_may_be_read_afterwards(old: str, new: str) -> None:
    assert run(HEAD + FITS.replace(old, new))[0].findings == ()


def test_a_value_that_the_next_step_of_a_loop_reads() -> None:
    inner = "".join(f"    {line}\n" for line in LOOP.splitlines())
    head = f"{HEAD}def loop(x, size):\n    mean = 0\n    for step in x:\n"
    assert len(run(f"{head}{inner}")[0].findings) == 1
    assert run(f"{head}        print(mean)\n{inner}")[0].findings == ()
    assert run(f"{head}{inner}".replace("for step in x", "while mean"))[0].findings == ()
    assert run(f"{head}{inner}".replace("for step", "for i"))[0].findings != ()
    assert run(f"{head}{inner}        print(i)\n".replace("for step", "for i"))[0].findings == ()


def test_a_dimension_by_name_is_the_first_argument_of_a_reduction() -> None:
    text = RULE.replace("$x[row].sum()", "$x[row].sum(-1, keepdim=True)")
    for call, count in (
        ("x[i].sum(dim=-1, keepdim=True)", 1),
        ("x[i].sum(-1, keepdim=True)", 1),
        ("x[i].sum(dim=-2, keepdim=True)", 0),
        ("x[i].sum(keepdim=True, dim=-1)", 0),
        ("x[i].sum(axis=-1, keepdim=True)", 0),
    ):
        report, _ = rewrite_code(rule(text), HEAD + FITS.replace("x[i].sum()", call))
        assert len(report.findings) == count


@pytest.mark.parametrize(
    "size", ["size", "7", "-1", "self.size", "x.shape[-1]", "x.shape[0]", "module.constant"]
)
def test_a_variable(size: str) -> None:
    changed = run(HEAD + FITS.replace("(1, size)", f"(1, {size})"))[1]
    assert f"    substitute_rows(x, {size})\n" in changed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(1, size)", "(1, len(x))"),
        ("(1, size)", "(1, size + 1)"),
        ("(1, size)", "(1, i)"),
        ("(1, size)", "(1, mean.size)"),
        ("(1, size)", "(1, x.shape[i])"),
        ("(1, size)", "(size)"),
        ("(1, size)", "(1, 2.0)"),
        ("F.relu", "F.gelu"),
        ("F.relu", "relu"),
        ("F.relu(mean)", "F.relu(i)"),
        ("x[i] = F", "y[i] = F"),
        ("mean = x[i]", "x = x[i]"),
        ("mean = x[i]", "F = x[i]"),
        ("mean = x[i]", "range = x[i]"),
        ("for i", "for size"),
        ("    x = x * 2\n", "    F = x\n"),
        ("    return x\n", "    range = x\n"),
        ("        x[i] = F.relu(mean)\n", "        x[i] = F.relu(mean)\n        break\n"),
        ("    return x\n", "    else:\n        x = 0\n"),
    ],
)
def test_what_only_looks_the_same(old: str, new: str) -> None:
    assert old in FITS
    code = HEAD + FITS.replace(old, new)
    report, changed = run(code)
    assert report.findings == ()
    assert changed == code


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (FITS.replace("        x[i]", "        # all\n        x[i]"), "a comment stands inside"),
        (FITS.replace("def loop", "@torch.jit.script\ndef loop"), "TorchScript"),
    ],
)
def test_withheld(code: str, reason: str) -> None:
    report, changed = run(HEAD + code)
    assert [reason in finding.reason for finding in report.findings] == [True]
    assert changed == HEAD + code


def test_a_generator_goes_on() -> None:
    code = HEAD + FITS.replace("return x", "yield x")
    assert run(code)[1].endswith(f"{CALL}    yield x\n")


def test_blocks_in_branches_methods_and_handlers() -> None:
    inner = "".join(f"        {line}\n" for line in LOOP.splitlines())
    for head in ("if size:\n{0}", "try:\n{0}        finally:\n{0}", "while x.any():\n{0}"):
        body = head.format(inner)
        code = f"{HEAD}class Loop:\n    def forward(self, x, size):\n        {body}"
        report, changed = run(code)
        assert changed.count("substitute_rows(x, size)") == body.count("range")
        assert report.findings[0].cls == "Loop"


def test_a_block_without_meaning() -> None:
    _, problems = compile_rules([rule(RULE.replace("  => reg", "  | return $x\n  => reg"))])
    assert "a block has no `return`" in problems[0].message
    assert isinstance(
        parse_rule(RULE.replace("  => regraft.ops.substitute_rows($x, $size)\n", "")),
        SyntaxProblem,
    )


def test_a_property_that_the_block_reads_several_times() -> None:
    head = (
        f"{HEAD}class Loop:\n    @property\n    def x(self):\n        return self.table.pop()\n\n"
    )
    loop = "".join(f"    {line}\n" for line in LOOP.splitlines())
    method = f"    def forward(self, size):\n{loop}"
    assert run(head + method.replace("x[i]", "self.x[i]"))[0].findings == ()
    assert len(run(head + method.replace("x[i]", "self.z[i]"))[0].findings) == 1
    size = method.replace("(1, size)", "(1, self.x)").replace("size)", "x)", 1)
    assert len(run(head + size)[0].findings) == 1
