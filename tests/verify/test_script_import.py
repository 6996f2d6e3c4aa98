"""Test scripts of which a statement fails when they are imported."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from verdicts import verdict_on

from regraft.verification.child.script_import import (
    Script,
    failing_statement,
    load_script,
    script_of,
)

pytestmark = pytest.mark.usefixtures("here")

SCRIPT = """\
import torch
from torch import nn

width = 16
with open("no/such/text.txt") as source:
    text = source.read()
vocab_size = len(set(text))
length = len(text)
scale = 2.0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)

    def forward(self, idx):
        return self.tokens(idx) * scale


model = Model()
for _ in range(10**9):
    raise RuntimeError("the training began")
"""


def imported(folder: Path, text: str) -> Script | None:
    """Return what is known of a script after it was imported without its failing statement."""
    path = folder / "script.py"
    path.write_text(text)
    try:
        exec(compile(text, str(path), "exec"), {"__name__": "script"})
    except (OSError, SystemExit) as error:
        failing = failing_statement(path, error)
        return script_of(load_script(path, "imported_script", failing, "an error"))
    return None


def test_a_script_is_imported_without_what_fails(tmp_path: Path) -> None:
    script = imported(tmp_path, SCRIPT)
    assert script is not None
    assert script.lines == (5, 7, 8, 21, 22)
    assert script.guessed == {"vocab_size": 99}
    assert "lines 5, 7, 8, 21, 22 (an error), vocab_size = 99" in script.summary


def test_a_script_that_exits_is_imported_to_its_end(tmp_path: Path) -> None:
    script = imported(tmp_path, "import sys\n\nsys.exit(1)\nnumber = 3\n")
    assert script is not None
    assert script.lines == (3,)


def test_a_missing_module_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import no_such_module\n")
    assert failing_statement(path, ModuleNotFoundError("no_such_module")) == ""


def test_a_version_without_the_failing_statement_is_no_such_script(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("number = 3\n")
    with pytest.raises(ImportError, match="that this version does not have"):
        load_script(path, "other_script", "Expr()", "an error")


def test_a_change_in_a_script_is_proved_and_says_what_was_left_out(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, SCRIPT, "self.tokens(idx) * scale", "scale * self.tokens(idx)")
    assert verdict.status == "proved", verdict.reason
    domain = verdict.evidence["domain"]
    assert isinstance(domain, dict)
    assert "FileNotFoundError" in domain["import"][0]


def test_a_wrong_change_in_a_script_is_refuted(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, SCRIPT, "* scale", "* 3.0")
    assert verdict.status == "refuted", verdict


def test_a_change_that_lets_another_statement_fail_is_not_proved(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, SCRIPT, 'open("no/such/text.txt")', 'open("other.txt")')
    assert verdict.status != "proved", verdict


@pytest.mark.parametrize(
    "statement",
    [
        "if length > 3:\n    power = 2",
        "for power in (1, 2):\n    pass",
        "def configure():\n    global power\n    power = 2\n\n\nconfigure()",
        "exec(text)",
    ],
)
def test_a_variable_that_left_out_statements_set_is_not_proved(
    tmp_path: Path, statement: str
) -> None:
    text = SCRIPT.replace("scale = 2.0", f"power = 1\n{statement}")
    verdict = verdict_on(tmp_path, text.replace("* scale", "** power"), " ** power", "")
    assert verdict.status != "proved"


def test_a_function_that_left_out_statements_define_again_is_not_proved(tmp_path: Path) -> None:
    text = SCRIPT.replace(
        "scale = 2.0",
        "def scaled(x):\n    return x\n\n\n"
        "if length > 3:\n    def scaled(x):\n        return 2 * x",
    ).replace("return self.tokens(idx) * scale", "return scaled(self.tokens(idx))")
    verdict = verdict_on(tmp_path, text, "scaled(self.tokens(idx))", "self.tokens(idx)")
    assert verdict.status != "proved"


def test_a_dictionary_that_left_out_statements_modify_is_not_proved(tmp_path: Path) -> None:
    text = SCRIPT.replace("scale = 2.0", 'flags = {"power": 1}\nflags.update(power=length)')
    text = text.replace("* scale", '** flags["power"]')
    verdict = verdict_on(tmp_path, text, ' ** flags["power"]', "")
    assert verdict.status != "proved"


def test_changed_lines_with_a_guessed_value_are_not_proved(tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, SCRIPT, "nn.Embedding(vocab_size", "nn.Embedding(99")
    assert verdict.status == "unproven"
    assert "vocab_size" in verdict.reason


@pytest.mark.parametrize("way", ["attribute", "function", "method"])
def test_a_guessed_value_that_changed_lines_read_elsewhere_is_not_proved(
    tmp_path: Path, way: str
) -> None:
    body = "return x * vocab_size / 99"
    text = SCRIPT.replace("scale = 2.0", "scale = 2.0\nfloor = 99.0")
    before, addition = {
        "attribute": ("        self.tokens =", "        self.ratio = vocab_size / floor\n"),
        "function": ("class Model", f"def scaled(x):\n    {body}\n\n\n"),
        "method": ("    def forward", f"    def scaled(self, x):\n        {body}\n\n"),
    }[way]
    text = text.replace(before, addition + before)
    call = {
        "attribute": "self.tokens(idx) * self.ratio",
        "function": "scaled(self.tokens(idx))",
        "method": "self.scaled(self.tokens(idx))",
    }[way]
    text = text.replace("self.tokens(idx) * scale", call)
    verdict = verdict_on(tmp_path, text, call, "self.tokens(idx)")
    assert verdict.status != "proved"


def test_a_change_that_lets_a_later_assignment_fail_is_not_proved(tmp_path: Path) -> None:
    text = SCRIPT.replace(
        "model = Model()",
        "def table(size):\n    return torch.ones(16) * size\n\n\n"
        "bias = torch.ones(16)\nbias = table(1)",
    ).replace("* scale", "+ bias")
    verdict = verdict_on(tmp_path, text, "torch.ones(16) * size", "torch.ones(size, 16)[size]")
    assert verdict.status != "proved"
