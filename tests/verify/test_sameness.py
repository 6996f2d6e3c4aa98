"""Test definitions with different texts that are equal programs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from regraft.verification import verify
from regraft.verification.equal_programs import equal_definitions
from regraft.verification.types import Contract

EQUAL_PROGRAMS = {
    "a local variable renamed": (
        "a = x + 1\n    z = a * a\n    return z",
        "w = x + 1\n    z = w * w\n    return z",
    ),
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
    "an annotation of a variable": (
        "y = x + 1\n    return y * x",
        "y: int = x + 1\n    return y * x",
    ),
    "a comment": ("return x", "# the same\n    return x"),
    "a list that a loop fills": (
        "h = [v + x for v in y]\n    return h, x",
        "h = []\n    for v in y:\n        h.append(v + x)\n    return h, x",
    ),
    "two such lists": (
        "h = [v + x for v in y]\n    w = [v for v in h]\n    return h, w",
        "h = []\n    for v in y:\n        h.append(v + x)\n    w = [v for v in h]\n    return h, w",
    ),
}
UNEQUAL_PROGRAMS: dict[str, tuple[str, str] | tuple[str, str, tuple[str, str]]] = {
    "another constant": ("return x + 1", "return x + 2"),
    "operands exchanged": ("return x + y", "return y + x"),
    "a name that is read": ("z = x\n    return locals()", "w = x\n    return locals()"),
    "one variable for two": (
        "a = x\n    b = y\n    return a + b",
        "a = x\n    a = y\n    return a + a",
    ),
    "a result in a closure": (
        "r = x\n    f = lambda: r\n    return r",
        "f = lambda: r\n    return x",
    ),
    "a default": ("return x", "return x", ("x, y", "x, y=1")),
    "a loop's variable that is read later": (
        "v = 0\n    h = [v + x for v in y]\n    return h, v",
        "v = 0\n    h = []\n    for v in y:\n        h.append(v + x)\n    return h, v",
    ),
    "a loop's variable that a comprehension reads": (
        "v = y\n    h = [v + x for v in y]\n    w = [v for v in v]\n    return h, w",
        "v = y\n    h = []\n    for v in y:\n        h.append(v + x)\n"
        "    w = [v for v in v]\n    return h, w",
    ),
    "a list that the loop reads": (
        "h = y\n    h = [v + len(h) for v in y]\n    return h",
        "h = y\n    h = []\n    for v in y:\n        h.append(v + len(h))\n    return h",
    ),
    "a variable that becomes one of the module beside a comprehension": (
        "if x:\n        h = y\n        return h\n    return [h for h in y], h",
        "if x:\n        return y\n    return [h for h in y], h",
    ),
    "a variable whose attribute a generator sets": (
        "h = x\n    x.kept = (y for h.a in y)\n    h = -x\n    return h",
        "h = x\n    x.kept = (y for h.a in y)\n    return -x",
    ),
    "a source that reads the loop's variable": (
        "h = [v for v in v]\n    return h",
        "h = []\n    for v in v:\n        h.append(v)\n    return h",
    ),
    "a source that a pattern binds": (
        "match x:\n        case [*v]:\n            pass\n    h = [v for v in v]\n    return h",
        "match x:\n        case [*v]:\n            pass\n    h = []\n"
        "    for v in v:\n        h.append(v)\n    return h",
    ),
    "a loop that ends early": (
        "h = [v for v in y]\n    return h",
        "h = []\n    for v in y:\n        h.append(v)\n        break\n    return h",
    ),
    "a list that is filled twice": (
        "h = [v for v in y]\n    return h",
        "h = []\n    for v in y:\n        h.append(v)\n        h.append(v)\n    return h",
    ),
    "functions that read the loop's variable": (
        "h = [lambda: v for v in y]\n    return h",
        "h = []\n    for v in y:\n        h.append(lambda: v)\n    return h",
    ),
    "a variable in a generator": (
        "h = x\n    x.kept = (h for _ in y)\n    h = -x\n    return h",
        "h = x\n    x.kept = (h for _ in y)\n    return -x",
    ),
    "a variable in a list": (
        "h = x\n    x.kept = [lambda: h for _ in y]\n    h = -x\n    return h",
        "h = x\n    x.kept = [lambda: h for _ in y]\n    return -x",
    ),
    "a variable that is assigned in a list": (
        "x.f = [(h := a) for a in y]\n    h = x\n    return h",
        "x.f = [(h := a) for a in y]\n    return x",
    ),
    "a variable that becomes one of the module": (
        "if x:\n        h = y\n        return h\n    return h",
        "if x:\n        return y\n    return h",
    ),
    "a generator by a line that never runs": (
        "return 1 if x else 2\n    yield",
        "return 1 if x else 2",
    ),
    "a text with the name of a variable": (
        "z = x\n    return f'{z=}'",
        "w = x\n    return f'{w=}'",
    ),
    "an assertion": ("assert x, 'a'\n    return y", "assert x, 'b'\n    return y"),
    "a variable of an outer function": (
        "def g():\n        nonlocal x\n        x = 1\n    x = y\n    return x",
        "def g():\n        nonlocal x\n        x = 1\n    return y",
    ),
    "a line after the result": (
        "try:\n        z = x\n        return z\n    finally:\n        y.append(z)",
        "try:\n        return x\n    finally:\n        y.append(z)",
    ),
    "the other branch": (
        "if x:\n        return 1\n    return 2",
        "if not x:\n        return 1\n    return 2",
    ),
}


def definition(body: str, arguments: str = "x, y") -> bytes:
    """Return the text of a function."""
    return f"def f({arguments}):\n    {body}\n".encode()


@pytest.mark.parametrize("case", EQUAL_PROGRAMS)
def test_the_same_program_is_recognised(case: str) -> None:
    before, after = EQUAL_PROGRAMS[case]
    assert equal_definitions(definition(before), definition(after)) == {"f"}


@pytest.mark.parametrize("case", UNEQUAL_PROGRAMS)
def test_another_program_is_none(case: str) -> None:
    before, after, (first, second) = (*UNEQUAL_PROGRAMS[case], ("x, y", "x, y"))[:3]
    assert not equal_definitions(definition(before, first), definition(after, second))


MESSAGES = {
    "a text": ('raise ValueError("a")', 'raise ValueError("b")', True),
    "a text with a number": ('raise ValueError(f"a {x}")', 'raise ValueError(f"{x} b")', True),
    "another number in a text": ('raise ValueError(f"a {x}")', 'raise ValueError(f"a {y}")', False),
    "another error": ('raise ValueError("a")', 'raise TypeError("a")', False),
    "an error from a table": ('raise x("a")', 'raise x("b")', False),
    "an error with a result": ('raise StopIteration("a")', 'raise StopIteration("b")', False),
    "an error with two arguments": ('raise ValueError("a", x)', 'raise ValueError("b", x)', False),
    "a builtin name for something else": (
        'ValueError = x\n    raise ValueError("a")',
        'ValueError = x\n    raise ValueError("b")',
        False,
    ),
    "another text that is no error's": ('return x["a"]', 'return x["b"]', False),
    "an error that is looked into": (
        (
            "try:\n        return x()\n    except ValueError as error:\n        raise KeyError('a')"
            " from error"
        ),
        (
            "try:\n        return x()\n    except ValueError as error:\n        raise KeyError('b')"
            " from error"
        ),
        False,
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_texts_of_errors_are_no_results(case: str) -> None:
    before, after, are_equal = MESSAGES[case]
    versions = definition(before), definition(after)
    assert not equal_definitions(*versions)
    assert equal_definitions(*versions, messages=False) == ({"f"} if are_equal else set())


@pytest.mark.parametrize(
    "reading", ["import sys as s\ng = s._getframe", "from inspect import stack as g"]
)
def test_a_file_that_reads_the_variables_of_callers_has_none(reading: str) -> None:
    before, after = (
        f"{reading}\n\n\ndef f(x):\n    {name} = x\n    return g()\n".encode() for name in "yz"
    )
    assert equal_definitions(before, after) == frozenset()
    assert equal_definitions(
        *(text.replace(reading.encode(), b"") for text in (before, after))
    ) == {"f"}


@pytest.mark.parametrize(
    "looking",
    [
        "def __exit__(self, kind, error, trace): ...",
        "import traceback",
        "import sys\nsys.exc_info()",
        "import sys\nsys.excepthook = print",
        "log(exc_info=True)",
        "from a import *",
    ],
)
def test_a_file_that_gets_hold_of_errors_keeps_their_texts(looking: str) -> None:
    versions = [
        f"{looking}\n\n\ndef f(x):\n    raise ValueError('{text}')\n".encode() for text in "ab"
    ]
    assert "f" not in equal_definitions(*versions, messages=False)
    bare = (text.replace(looking.encode(), b"") for text in versions)
    assert equal_definitions(*bare, messages=False) == {"f"}


@pytest.mark.parametrize(
    "reading",
    [
        "from builtins import locals as g",
        "g = locals",
        "import gc\ng = gc.get_referrers",
        "import numexpr as g",
        "def g():\n    return (x for x in ()).gi_frame",
    ],
)
def test_a_file_that_can_read_local_variables_in_another_way_has_none(reading: str) -> None:
    before, after = (
        f"{reading}\n\n\ndef f(x):\n    {name} = x\n    return g()\n".encode() for name in "yz"
    )
    assert equal_definitions(before, after) == frozenset()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from math import floor as g", "from math import ceil as g"),
        ("g = 1\ng = 2", "g = 2\ng = 1"),
        ("g = 1", ""),
        ("from a import g", "from a import g\n\n\ndef len(x): ..."),
        ("from a import g", "from __future__ import annotations\nfrom a import g"),
        ("from a import g", "from a import g\n\n\n@g.register('g')\ndef new(x): ..."),
    ],
    ids=["import", "order", "removed", "builtin", "future", "decorator"],
)
def test_other_surroundings_have_none(before: str, after: str) -> None:
    body = "\n\n\ndef f(x):\n    {0} = g(len(x))\n    return {0} * {0}\n"
    versions = (before + body.format("y")).encode(), (after + body.format("z")).encode()
    assert equal_definitions(*versions) == frozenset()
    renamed = versions[0].replace(b"    y", b"    z").replace(b"return y * y", b"return z * z")
    assert equal_definitions(versions[0], renamed) == {"f"}


def test_one_of_two_definitions_of_a_name_is_none() -> None:
    text = b"async def f(x):\n    return x\n\n\ndef f(x):\n    y = x\n    return y * y\n"
    changed = (
        text.replace(b"return x\n", b"return -x\n")
        .replace(b"y = ", b"z = ")
        .replace(b"y * y", b"z * z")
    )
    assert equal_definitions(text, changed) == frozenset()


def test_annotations_that_stay_texts_count_as_texts() -> None:
    text = b"from __future__ import annotations\n\n\nclass A:\n    x: f(1 + 1)\n"
    assert equal_definitions(text, text.replace(b"1 + 1", b"2")) == frozenset()


def test_a_file_that_reads_source_has_none() -> None:
    text = b"import inspect\n\n\ndef f(x):\n    y = x\n    return inspect.getsource(g), y\n"
    assert not equal_definitions(text, text.replace(b"y", b"z"))


def test_docstrings_are_no_results() -> None:
    versions = definition("return x"), definition('"""Return it."""\n    return x')
    assert not equal_definitions(*versions)
    assert equal_definitions(*versions, messages=False) == {"f"}
    assert not equal_definitions(
        definition("return x"), definition("f'{y}'\n    return x"), messages=False
    )
    read = b"g = f.__doc__\n\n\n"
    assert not equal_definitions(read + versions[0], read + versions[1], messages=False)


CLASS = """\
class A(B):
    def f(self, x{note}):
        {doc}
        {call}.f(x)
"""


def class_text(
    note: str = "", doc: str = "", call: str = "super()", before: str = "", decorator: str = ""
) -> bytes:
    """Return the text of a class."""
    return (before + decorator + CLASS.format(note=note, doc=doc, call=call)).encode()


@pytest.mark.parametrize(
    ("changed", "common", "equal"),
    [
        ({"note": ": int | None"}, {}, True),
        ({"note": ": print()"}, {}, False),
        ({"note": ": int"}, {"decorator": "@register\n"}, False),
        ({"note": ": int"}, {"before": "from typing import get_type_hints\n"}, False),
        ({"call": "super(A, self)"}, {}, True),
        ({"call": "super(B, self)"}, {}, False),
        ({"call": "super(A, x)"}, {}, False),
        ({"call": "super(A, self)"}, {"decorator": "@register\n"}, False),
        ({"call": "super(A, self)"}, {"before": "A = B = object\n"}, False),
        ({"call": "super(A, self)"}, {"before": "globals()['A'] = int\n"}, False),
        ({"call": "super(A, self)"}, {"doc": "self = x"}, False),
    ],
)
def test_annotations_and_the_arguments_of_super_are_no_results(
    changed: dict[str, str], common: dict[str, str], equal: bool
) -> None:
    versions = class_text(**common), class_text(**{**common, **changed})
    assert not equal_definitions(*versions)
    assert equal_definitions(*versions, messages=False) == ({"A"} if equal else set())


@pytest.mark.parametrize(
    ("decorator", "contract", "status"),
    [
        ("cls", "results", "proved"),
        ("cls", "strict", "unproven"),
        ("type(cls.__name__, (cls,), {})", "results", "unproven"),
        ("None", "results", "unproven"),
    ],
)
def test_super_may_name_a_class_that_its_decorator_returns(
    tmp_path: Path, decorator: str, contract: Contract, status: str
) -> None:
    text = f"""\
def register(cls):
    return {decorator}


class B:
    def __init__(self):
        self.x = 1


@register
class A(B):
    def __init__(self):
        super().__init__()
"""
    path = tmp_path / "model.py"
    path.write_text(text)
    changed = text.replace("super().__init__", "super(A, self).__init__").encode()
    (verdict,) = verify(path, changed, contract=contract)
    assert verdict.status == status and "did not finish" not in verdict.reason


def test_super_in_an_inner_function_keeps_its_arguments() -> None:
    text = "class A(B):\n    def f(self):\n        return [{0}.f() for x in self.xs]\n"
    versions = (text.format(call).encode() for call in ("super(A, self)", "super()"))
    assert not equal_definitions(*versions, messages=False)


@pytest.mark.parametrize(
    ("use", "equal"),
    [
        ("import inspect\ng = inspect.signature", True),
        ("from inspect import signature as g", True),
        ("import inspect\ng = getattr(inspect, 'getsource')", False),
        ("import inspect as i\ng = i.signature", False),
        ("from inspect import getsource as g", False),
        ("import inspect\ni = inspect\ng = i.getclosurevars", False),
    ],
)
def test_a_file_that_reads_signatures_alone_reads_no_source(use: str, equal: bool) -> None:
    before, after = (
        f"{use}\n\n\ndef f(x):\n    {name} = x\n    return g({name})\n".encode() for name in "yz"
    )
    assert equal_definitions(before, after) == ({"f"} if equal else set())


@pytest.mark.slow
def test_the_same_program_is_proved_though_nothing_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
