"""Test that texts among inputs vary."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from verdicts import verdict_on  # noqa: E402

from regraft.verification.child.call_arguments import Call  # noqa: E402
from regraft.verification.child.checks.text_variants import (  # noqa: E402
    calls_with_other_texts,
    texts_of,
)

pytestmark = pytest.mark.usefixtures("here")

PARTS = """\
import torch


def parts_of(line: str):
    return [part.lower() for part in line.strip().split("|")]
"""


def test_texts_of_the_code_come_from_constants_and_variables() -> None:
    module = ModuleType("code")
    module.__dict__["PREFIX"] = "module."
    tree = ast.parse('x = PREFIX + "," + f"{name}/{3}"\ny = PREFIX + "' + "long " * 20 + '"')
    assert texts_of(ast.walk(tree), module) == ("module.", ",", "/")


def test_other_texts_have_the_separators_and_words_of_the_code() -> None:
    call = Call(("some", {"some": 1, "b": ["some"]}), {})
    calls = list(calls_with_other_texts(call, (",", "Layer.")))
    texts = [other.args[0] for other in calls]
    assert {"SOME", " some ", "", "a,B,c", " a ,b ,,a", "Layer.some", "LAYER.", "\u00b2,a"} <= {
        *texts
    }
    assert all(other.args[1]["b"] == [other.args[0]] for other in calls if "b" in other.args[1])
    assert {"Layer.some", "b"} in [set(other.args[1]) for other in calls]
    assert texts.count("some") == 2  # in the calls with other keys


def test_a_call_without_texts_has_no_other_texts() -> None:
    assert not list(calls_with_other_texts(Call((1, torch.ones(2)), {"flag": True}), (",",)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [('"|"', '" | "'), (".strip()", ""), (".lower()", ""), ('split("|")', 'split("|", 1)')],
)
def test_wrong_handling_of_texts_is_refuted(tmp_path: Path, before: str, after: str) -> None:
    assert verdict_on(tmp_path, PARTS, before, after).status == "refuted"


@pytest.mark.slow
def test_right_handling_of_texts_is_proved(tmp_path: Path) -> None:
    verdict = verdict_on(
        tmp_path, PARTS, "part.lower() for part in line.strip()", "p for p in line.lower().strip()"
    )
    assert verdict.status == "proved"
