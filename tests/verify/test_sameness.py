"""Definitions with other text that are the same program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from regraft.verify import verify
from regraft.verify.sameness import same_definitions

SAME = {
    "a local variable renamed": ("a = x + 1\n    z = a * a\n    return z", "w = x + 1\n    z = w * w\n    return z"),
    "an else after a return": (
        "if x:\n        return 1\n    return 2",
        "if x:\n        return 1\n    else:\n        return 2",
    ),
    "an else after branches that all return": (
        "if x:\n        y = x\n        return 1 if y else 2\n    return 3",
        "if x:\n        y = x\n        return 1 if y else 2\n    else:\n        return 3",
    ),
    "a conditional expression": (
        "y = 1 if x else 2\n    return y + x",
        "if x:\n        y = 1\n    else:\n        y = 2\n    return y + x",
    ),
    "branches exchanged": (
        "if x:\n        y = 1\n    else:\n        y = 2\n    return y + x",
        "if not x:\n        y = 2\n    else:\n        y = 1\n    return y + x",
    ),
    "a result with a name": ("return x + 1", "result = x + 1\n    return result"),
    "an annotation of a variable": ("y = x + 1\n    return y * x", "y: int = x + 1\n    return y * x"),
    "a comment": ("return x", "# the same\n    return x"),
}
OTHER = {
    "another constant": ("return x + 1", "return x + 2"),
    "operands exchanged": ("return x + y", "return y + x"),
    "a name that is read": ("z = x\n    return locals()", "w = x\n    return locals()"),
    "one variable for two": ("a = x\n    b = y\n    return a + b", "a = x\n    a = y\n    return a + a"),
    "a result in a closure": ("r = x\n    f = lambda: r\n    return r", "f = lambda: r\n    return x"),
    "a default": ("return x", "return x", ("x, y", "x, y=1")),
    "the other branch": ("if x:\n        return 1\n    return 2", "if not x:\n        return 1\n    return 2"),
}


def definition(body: str, arguments: str = "x, y") -> bytes:
    return f"def f({arguments}):\n    {body}\n".encode()


@pytest.mark.parametrize("case", SAME)
def test_the_same_program_is_recognised(case: str) -> None:
    before, after = SAME[case]
    assert same_definitions(definition(before), definition(after)) == {"f"}


@pytest.mark.parametrize("case", OTHER)
def test_another_program_is_none(case: str) -> None:
    before, after, *arguments = OTHER[case]
    first, second = arguments[0] if arguments else ("x, y", "x, y")
    assert not same_definitions(definition(str(before), first), definition(str(after), second))


MESSAGES = {
    "a text": ('raise ValueError("a")', 'raise ValueError("b")', True),
    "a text with a number": ('raise ValueError(f"a {x}")', 'raise ValueError(f"{x} b")', True),
    "another number in a text": ('raise ValueError(f"a {x}")', 'raise ValueError(f"a {y}")', False),
    "another error": ('raise ValueError("a")', 'raise TypeError("a")', False),
    "another text that is no error's": ('return x["a"]', 'return x["b"]', False),
    "an error that is looked into": (
        "try:\n        return x()\n    except ValueError as error:\n        raise KeyError('a') from error",
        "try:\n        return x()\n    except ValueError as error:\n        raise KeyError('b') from error",
        False,
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_texts_of_errors_are_no_results(case: str) -> None:
    before, after, same = MESSAGES[case]
    versions = definition(before), definition(after)
    assert not same_definitions(*versions)
    assert same_definitions(*versions, messages=False) == ({"f"} if same else set())


@pytest.mark.parametrize("reading", ["import sys as s\ng = s._getframe", "from inspect import stack as g"])
def test_a_file_that_reads_the_variables_of_callers_has_none(reading: str) -> None:
    before, after = (f"{reading}\n\n\ndef f(x):\n    {name} = x\n    return g()\n".encode() for name in "yz")
    assert same_definitions(before, after) == frozenset()
    assert same_definitions(*(text.replace(reading.encode(), b"") for text in (before, after))) == {"f"}


def test_a_file_that_reads_source_has_none() -> None:
    text = b"import inspect\n\n\ndef f(x):\n    y = x\n    return inspect.getsource(g), y\n"
    assert not same_definitions(text, text.replace(b"y", b"z"))


def test_the_same_program_is_proved_though_nothing_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        "from torch import nn\n\n\nclass Layer(nn.Module):\n    def __init__(self, secret):\n"
        "        super().__init__()\n        self.layer = secret.make()\n\n"
        "    def forward(self, x):\n        y = self.layer(x)\n        return y * y\n"
    )
    path = tmp_path / "layer.py"
    path.write_text(text)
    (verdict,) = verify(path, re.sub(r"\by\b", "z", text).encode())
    assert (verdict.status, verdict.evidence["same program"]) == ("proved", True), verdict
    (verdict,) = verify(path, text.replace("y * y", "y + y").encode())
    assert verdict.status == "unproven", verdict
