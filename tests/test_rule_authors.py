"""Test `regraft new rule` and `regraft test` as the author of a rule uses them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from regraft.cli import main
from regraft.rules import load_rules


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def regraft(*arguments: str) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(main, arguments)


def new_page(folder: Path) -> Path:
    """Return the page of a new rule."""
    assert regraft("new", "rule", "mine/fast-silu").exit_code == 0
    return folder / "rules" / "mine" / "fast-silu.md"


def edit(path: Path, old: str, new: str) -> None:
    """Replace the only occurrence of a text in a file."""
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_a_new_rule_loads_and_its_page_holds(folder: Path) -> None:
    page = new_page(folder)
    result = regraft("test", "mine", "--rules", "rules")
    assert (result.exit_code, result.output) == (0, "1 rule, 3 examples\n")
    assert load_rules(["mine/fast-silu"], (), (folder / "rules",))[0][0].path == page.with_suffix(
        ".rule"
    )


def test_nothing_is_overwritten(folder: Path) -> None:
    page = new_page(folder)
    page.write_text("mine")
    result = regraft("new", "rule", "mine/fast-silu")
    assert (result.exit_code, page.read_text()) == (2, "mine")
    assert "exists already" in result.output


@pytest.mark.parametrize(
    "name", ["silu", "Mine/silu", "mine/", "mine/a/b", "../mine/silu", "mine/-a"]
)
def test_a_name_is_a_pack_and_a_rule(name: str, folder: Path) -> None:
    result = regraft("new", "rule", name)
    assert result.exit_code == 2 and "PACK/NAME" in result.output
    assert not [*folder.iterdir()]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "return torch.nn.functional.silu(x)",
            "return silu_of(x)",
            "+    return torch.nn.functional.silu(x)",
        ),
        (
            "    return y * torch.sigmoid(x)",
            "    return x * torch.sigmoid(x)",
            "should stay as it is",
        ),
        (
            'reason="is also used"',
            'reason="the moon"',
            "the result of torch.sigmoid is also used at line 6",
        ),
        ("def gate(x", "def gate(x]", "the example is not Python"),
    ],
)
def test_an_example_that_does_not_hold_is_named_with_the_reason(
    old: str, new: str, message: str, folder: Path
) -> None:
    page = new_page(folder)
    edit(page, old, new)
    result = regraft("test", "mine", "--rules", "rules")
    assert result.exit_code == 1
    assert message in result.output and "1 failure" in result.output
    assert "rules/mine/fast-silu.md:" in result.output


def test_a_rule_that_does_not_match_shows_the_nearest_miss(folder: Path) -> None:
    page = new_page(folder)
    edit(page.with_suffix(".rule"), "$x * torch.sigmoid($x)", "$x * torch.sigmoid(2.0 * $x)")
    result = regraft("test", "mine/fast-silu", "--rules", "rules")
    assert result.exit_code == 1 and "the rule leaves the code as it is\n  line " in result.output


def test_a_rule_that_cannot_be_loaded_is_an_error(folder: Path) -> None:
    page = new_page(folder)
    page.with_suffix(".rule").write_text("rule fast-silu\n")
    result = regraft("test", "mine", "--rules", "rules")
    assert result.exit_code == 2 and "fast-silu.rule:" in result.output


def test_the_built_in_pages_hold() -> None:
    assert regraft("test", "adopter", "torch").exit_code == 0


@pytest.mark.parametrize(
    ("line", "number", "ways"),
    [
        ("  opt alt $v{0} * $s{0} | $v{0} + $s{0} -> $v{1}\n", 9, 2**9),
        ("  alt $v{0} * $s{0} | $v{0} + $s{0} | $v{0} - $s{0} -> $v{1}\n", 30, 3**30),
        ("  torch.rsqrt($w{0}) -> $r{0}\n  $v{0} * $r{0} -> $v{1}\n", 12, 3**12),
    ],
)
def test_too_many_combinations_are_refused_at_once(
    line: str, number: int, ways: int, folder: Path
) -> None:
    """Each would be a pattern of its own, and nobody waits for a quarter of a million."""
    regraft("new", "rule", "mine/many")
    path = folder / "rules" / "mine" / "many.rule"
    lines = "".join(line.format(step, step + 1) for step in range(number))
    text = path.read_text().replace(
        "  $x * torch.sigmoid($x) -> $y\n", f"  torch.sigmoid($x) -> $v0\n{lines}"
    )
    path.write_text(text.replace("-> $y", f"-> $v{number}"))
    started = time.process_time()
    result = regraft("test", "mine/many", "--rules", "rules")
    assert time.process_time() - started < 5
    assert result.exit_code == 2
    assert f"can be combined in {ways} ways, more than 256" in result.output
