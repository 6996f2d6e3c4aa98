"""Test comments that ignore findings, and baselines: what they suppress, what they say, and that
only new findings fail."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import regraft

Write = Callable[[str, str], Path]

CODE = """
import torch


def weights(scores):
    return torch.softmax(scores, dim=-1){softmax}


def gate(x):
    return x * torch.sigmoid(x){silu}
"""


def checked(path: Path, *options: object) -> tuple[int, list[str], list[str], str]:
    """Return exit status, rules, warnings and summary of a check."""
    result = regraft("check", "--all", "--output-format", "concise", *options, path)
    rules = [line.split(" ")[1] for line in result.stdout.splitlines()]
    warnings = [line for line in result.stderr.splitlines() if " warning: " in line]
    return result.returncode, rules, warnings, result.stderr


def test_a_comment_ignores_all_rules_or_those_that_it_names(write: Write) -> None:
    for softmax, silu, expected in (
        ("  # regraft: ignore", "", ["torch/silu"]),
        ("  # noqa: E501  # regraft: ignore[softmax]", "", ["torch/silu"]),
        ("  # regraft: ignore[adopter/softmax, torch/silu] not ours", "", ["torch/silu"]),
        ("", "  #regraft:ignore[torch/*]", ["adopter/softmax"]),
        ("  # regraft: ignore", "  # regraft: ignore[silu]", []),
    ):
        path = write("m.py", CODE.format(softmax=softmax, silu=silu))
        status, rules, _, summary = checked(path)
        assert (status, rules) == (int(bool(expected)), expected)
        assert f"{2 - len(expected)} finding" in summary and "ignored by comments" in summary
        again = checked(path)  # from the cache
        assert (again[0], again[1], again[3]) == (status, rules, summary)


def test_a_comment_stands_on_the_first_or_the_last_line(write: Write) -> None:
    code = """
    import torch

    def weights(scores):
        return torch.softmax({first}
            scores,{middle}
            dim=-1,
        ){last}
    """
    comment = "  # regraft: ignore"
    for place, expected in (("first", 0), ("middle", 1), ("last", 0)):
        texts = {"first": "", "middle": "", "last": "", place: comment}
        _, rules, warnings, _ = checked(write("m.py", code.format(**texts)))
        assert (len(rules), len(warnings)) == (expected, expected)


def test_what_is_ignored_is_not_rewritten(write: Write) -> None:
    path = write("m.py", CODE.format(softmax="  # regraft: ignore[softmax]", silu=""))
    assert regraft("check", "--all", "--fix", "--no-verify", path).returncode == 0
    assert "torch.softmax(scores, dim=-1)  # regraft: ignore[softmax]" in path.read_text()
    assert "sigmoid" not in path.read_text()


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("ignore[sofmax]", "no rule has the name sofmax; did you mean softmax?"),
        ("ignore[torch/gelu]", "unused: torch/gelu finds nothing here"),
        ("ignore softmax", "this comment ignores nothing: write `# regraft: ignore` or"),
        ("ignore[softmax", "this comment ignores nothing"),
        ("ignor", "this comment ignores nothing"),
        ("ignore[]", "this comment names no rule"),
    ],
)
def test_a_comment_that_does_nothing_is_reported(write: Write, comment: str, words: str) -> None:
    path = write("m.py", CODE.format(softmax=f"  # regraft: {comment}", silu=""))
    status, rules, warnings, _ = checked(path)
    assert (status, len(rules), len(warnings)) == (1, 2, 1)
    assert warnings[0].startswith(f"{path}:6:43 warning: ") and words in warnings[0]
    data = json.loads(regraft("check", "--all", "--output-format", "json", path).stdout)
    assert [warning["line"] for warning in data["warnings"]] == [6]


def test_unused_comments_are_reported_only_where_that_is_certain(write: Write) -> None:
    path = write("m.py", "x = 1  # regraft: ignore\ny = 2  # regraft: ignore[liger/rms-norm]\n")
    assert [line.split(": ", 1)[1] for line in checked(path)[2]] == [
        "unused: no rule finds anything here"
    ]
    assert checked(path, "--select", "softmax")[2] == []
    assert "unused: liger/rms-norm" in checked(path, "--select", "liger")[2][0]
    text = 'x = "# regraft: ignore"\n'
    assert checked(write("n.py", text))[2] == []  # a string is no comment


def test_add_ignores_writes_a_comment_for_every_finding(write: Write) -> None:
    code = CODE.format(softmax="  # noqa", silu="  # regraft: ignore[torch/gelu]") + (
        "\n\ndef text(x):\n    return 1 + \\\n        torch.softmax(x, -1) + \\\n        1\n"
    )
    path = write("m.py", code)
    result = regraft("check", "--all", "--add-ignores", path)
    text = path.read_text()
    assert "dim=-1)  # noqa  # regraft: ignore[adopter/softmax]\n" in text
    assert "# regraft: ignore[torch/gelu, torch/silu]\n" in text
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(code))
    assert result.returncode == 2  # a backslash leaves no place
    assert f"{path}:15:9 error: no comment fits on this line" in result.stderr
    assert "3 findings (3 fixable), 1 file, 1 error" in result.stdout
    assert "2 findings ignored by new comments" in result.stdout
    assert checked(path)[1] == ["adopter/softmax"]
    for wrong in ("--fix", "--diff"):
        assert regraft("check", "--all", "--add-ignores", wrong, path).returncode == 2


def test_add_ignores_keeps_line_endings_and_encoding(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    text = "# coding: latin-1\r\nimport torch\r\ndef f(x): return 'é', torch.softmax(x, -1)\r\n"
    path.write_bytes(text.encode("latin-1"))
    assert regraft("check", "--all", "--add-ignores", path).returncode == 0
    comment = "  # regraft: ignore[adopter/softmax]\r\n"
    assert path.read_bytes() == text.replace("-1)\r\n", f"-1){comment}").encode("latin-1")


def test_only_findings_that_the_baseline_lacks_fail(write: Write, tmp_path: Path) -> None:
    path, file = write("m.py", CODE.format(softmax="", silu="")), tmp_path / "regraft.baseline.json"
    result = regraft("baseline", "write", "--all", ".", cwd=tmp_path)
    assert (result.returncode, "2 findings accepted" in result.stdout) == (0, True)
    use = ("--baseline", file)
    assert checked(path, *use)[:2] == (0, [])
    assert checked(path)[:2] == (1, ["adopter/softmax", "torch/silu"])
    # the code moves and gets another layout, and there is a third place like the first
    moved = path.read_text().replace("x * torch.sigmoid(x)", "(x *\n            torch.sigmoid(x))")
    copy = "\n\ndef copy(scores):\n    return torch.softmax(scores, dim=-1)\n"
    path.write_text(moved.replace("import torch\n", "import torch\n\nX = 1\n") + copy)
    status, rules, _, errors = checked(path, *use)
    assert (status, rules) == (1, ["adopter/softmax"])
    assert "2 findings accepted by the baseline" in errors
    assert regraft("check", "--all", "--fix", "--no-verify", *use, path).returncode == 0
    assert path.read_text().count("torch.softmax(") == 1
    shown = regraft("baseline", "show", cwd=tmp_path).stdout.splitlines()
    assert shown[:2] == ["m.py: adopter/softmax in weights", "m.py: torch/silu in gate"]


def test_a_baseline_follows_a_file_that_moves_but_no_copy(write: Write, tmp_path: Path) -> None:
    path = write("m.py", CODE.format(softmax="", silu=""))
    write("regraft.toml", 'baseline = "accepted.json"\n')
    assert regraft("baseline", "write", "--all", path).returncode == 0
    assert checked(tmp_path)[0] == 0
    copy = write("copy.py", path.read_text())
    assert checked(copy)[0] == 1
    path.unlink()
    assert checked(tmp_path)[0] == 0
    assert checked(tmp_path, "--no-baseline")[0] == 1


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "findings": [{"file": "m.py"}]}'],
)
def test_a_baseline_that_is_wrong_is_one_error(write: Write, tmp_path: Path, text: str) -> None:
    path, file = write("m.py", CODE.format(softmax="", silu="")), write("b.json", text)
    result = regraft("check", "--all", "--baseline", file, path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert str(file) in result.stderr
    missing = regraft("check", "--all", "--baseline", tmp_path / "no.json", path)
    assert (missing.returncode, "regraft baseline write" in missing.stderr) == (2, True)


def test_a_baseline_is_not_written_where_a_file_cannot_be_read(
    write: Write, tmp_path: Path
) -> None:
    write("m.py", "def f(:\n")
    assert regraft("baseline", "write", "--all", ".", cwd=tmp_path).returncode == 2
    assert not (tmp_path / "regraft.baseline.json").exists()
