"""Test the set of definitions, lines and branches that count as changed."""

from pathlib import Path
from typing import Any

import pytest

from regraft.verification import verify
from regraft.verification.definition_changes import find_changes
from regraft.verification.module_level import have_equal_surroundings

SOURCE = b"""import os


class A:
    def f(self, x):
        y = x + 1
        return y


def g(x):
    return (
        x
        + 1
    )
"""


def changes(old: Any, new: Any) -> Any:
    """Return the changes of a replaced text by definition."""
    text = SOURCE.replace(old, new)
    assert text != SOURCE
    return {c.definition: c for c in find_changes(SOURCE, text)}


def test_replaced_line() -> None:
    changes_by_name = changes(b"y = x + 1", b"y = x + 2")
    assert list(changes_by_name) == ["A"]
    assert changes_by_name["A"].lines == (6,)
    assert changes_by_name["A"].statements == ((6, 6),)


def test_part_of_a_statement_counts_as_the_statement() -> None:
    assert changes(b"        + 1", b"        + 2")["g"].statements == ((11, 14),)


def test_import_belongs_to_the_module_only_alone() -> None:
    assert list(changes(b"import os", b"import os\nimport sys")) == ["<module>"]
    both = SOURCE.replace(b"import os", b"import os\nimport sys").replace(
        b"x + 1\n        return", b"x\n        return"
    )
    assert [c.definition for c in find_changes(SOURCE, both)] == ["A"]


def test_other_module_statements_count_beside_definitions() -> None:
    text = SOURCE.replace(b"y = x + 1", b"y = x") + b"\ng = len\n"
    assert [c.definition for c in find_changes(SOURCE, text)] == ["A", "<module>"]


def test_deleted_line_is_the_line_after() -> None:
    assert changes(b"        y = x + 1\n", b"")["A"].lines == (6,)


def test_removed_and_new_definitions() -> None:
    text = SOURCE.replace(b"def g(x)", b"def h(x)")
    assert [(c.definition, c.kind) for c in find_changes(SOURCE, text)] == [
        ("h", "function"),
        ("g", "removed"),
    ]


def test_comment_needs_nothing_to_run() -> None:
    assert changes(b"        return y", b"        # note\n        return y")["A"].statements == ()


def test_conditional_expression_has_two_arms() -> None:
    assert len(changes(b"y = x + 1", b"y = x if x else 1")["A"].arms) == 2


def test_condition_without_else_has_to_be_false_once() -> None:
    changes_by_name = changes(
        b"        y = x + 1\n", b"        y = x\n        if x:\n            y = 2\n"
    )
    assert [(f.header, f.body) for f in changes_by_name["A"].fallthroughs] == [((7, 7), (8, 8))]


def test_line_ends_and_marks_do_not_matter() -> None:
    assert find_changes(SOURCE, SOURCE.replace(b"\n", b"\r\n")) == ()


FAMILY = b"""
class A(Module):
    def forward(self, x):
        return self.act(self.dense(x))


Alias = A


class B(Alias):
    pass


def make():
    return A()


class Builds(Module):
    def __init__(self):
        self.a = make()


class BuildsMore(Builds):
    def train(self, mode=True):
        return self


class Asks(Module):
    def check(self, module):
        return isinstance(module, (A, B))


class BuildsNoMore(Builds):
    prefix = "b"


class Uses(Module):
    def __init__(self):
        self.b = Builds()
        self.act = self.dense = None
        self.b.a.unrelated = 1


class ChangesDeep(Module):
    def __init__(self):
        self.b = Builds()
        %s


class Stranger(Module):
    def __init__(self):
        self.other.act = None
"""


@pytest.mark.parametrize(
    "statement",
    [
        b"self.b.a.act = None",
        b"block = self.b.a; block.act = None",
        b"setattr(self.b.a, 'act', None)",
        b"setattr(self.b.a, name, None)",
        b"self.b.a.dense[0] = None",
        b"self.b.a._modules['act'] = None",
        b"self.b.a.forward = None",
        b"self.b.a.dense.append(None)",
        b"del self.b.a.act",
        b"self.b.a.add_module('act', None)",
        b"self.b.a.dense.register_forward_hook(None)",
        b"weight_norm(self.b.a.dense)",
    ],
    ids=bytes.decode,
)
def test_relatives(statement: Any) -> None:
    text = FAMILY % statement
    (change,) = find_changes(text, text.replace(b"return self.act", b"return 1 * self.act"))
    assert [(relative.name, relative.why) for relative in change.relatives] == [
        ("B", "inherits from it"),
        ("Builds", "builds it"),
        ("BuildsMore", "builds it"),
        ("ChangesDeep", "can modify it"),
    ]


@pytest.mark.parametrize(
    "statement", [b"self.b.a.other = 1", b"self.b(self.b.a.act)", b"setattr(self.b, 'x', 1)"]
)
def test_a_class_further_out_that_only_uses_is_no_relative(statement: Any) -> None:
    text = FAMILY % statement
    (change,) = find_changes(text, text.replace(b"return self.act", b"return 1 * self.act"))
    assert [relative.name for relative in change.relatives] == ["B", "Builds", "BuildsMore"]


ANNOTATED = """\
class A(Module):
    def forward(self, x):
        return self.act(x)


%s


class User%s:
    %s
    def __call__(self, a: A, x) -> A | None:
        first: A = a
        %s
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("", "", "", "return first(x)"), []),
        (("", "", "", "first.act = None"), ["can modify it"]),
        (("", "", "", "return A()(x)"), ["builds it"]),
        (("", "", "@inject", "return first(x)"), ["builds it"]),
        (("", "(metaclass=Injector)", "", "return first(x)"), ["builds it"]),
        (("def build(f): return f.__annotations__", "", "", "return first(x)"), ["builds it"]),
        (("FIELD = 'annotation'", "", "", "return first(x)"), ["builds it"]),
    ],
)
def test_a_class_that_names_another_in_annotations_alone_does_not_build_it(
    words: Any, expected: Any
) -> None:
    text = (ANNOTATED % words).encode()
    (change,) = find_changes(text, text.replace(b"return self.act", b"return 1 * self.act"))
    assert [relative.why for relative in change.relatives if relative.name == "User"] == expected


HEIRS = '''class A(nn.Module):
    def __init__(self):
        self.scale = 2

    def _scores(self, x):
        return x * self.scale

    def weigh(self, x):
        return x

    def forward(self, x):
        return self._scores(x) + 1


class Apart(A):
    """The forward pass alone is another."""

    def forward(self, x):
        """No _scores here."""
        return self.weigh(x)


class Below(Apart):
    pass


class Calls(A):
    def forward(self, x):
        return super().forward(x)


class Reads(A):
    def forward(self, x):
        return self._scores(x)


class Asks(A):
    def forward(self, x):
        return getattr(self, "_scores")(x)


class Keeps(A):
    def weigh(self, x):
        return x + 1
'''


@pytest.mark.parametrize(
    ("old", "new", "relatives"),
    [
        ("x * self.scale", "self.scale * x", ["Below", "Calls", "Reads", "Asks", "Keeps"]),
        ("self._scores(x) + 1", "1 + self._scores(x)", ["Below", "Calls", "Keeps"]),
        (
            "self.scale = 2",
            "self.scale = 1 + 1",
            ["Apart", "Below", "Calls", "Reads", "Asks", "Keeps"],
        ),
        ("        return x\n", "        return +x\n", ["Apart", "Below", "Calls", "Reads", "Asks"]),
        (
            "class A(nn.Module)",
            "class A(B, nn.Module)",
            ["Apart", "Below", "Calls", "Reads", "Asks", "Keeps"],
        ),
    ],
    ids=["private", "forward", "constructor", "public", "bases"],
)
def test_an_heir_that_runs_none_of_the_edited_methods_is_no_relative(
    old: str, new: str, relatives: Any
) -> None:
    changed = HEIRS.replace(old, new, 1)
    (change,) = find_changes(HEIRS.encode(), changed.encode())
    assert [relative.name for relative in change.relatives] == relatives


AROUND = b"""import math
import torch
from math import floor as whole
from torch.nn.functional import gelu as act

SCALE = 1.0
SCALE = 2.0


def f(x, scale=SCALE):
    return len(x) * scale


class A:
    def g(self, x):
        return act(x) * whole(2.5) * math.pi


A.power = 2.0
if SCALE > 1:
    def h(x):
        return x
"""
UNJUDGED = {
    "a statement removed": (
        b"A.power = 2.0\n",
        b"",
        "line 19 of the original, `A.power = 2.0`, is gone",
    ),
    "a first assignment removed": (b"SCALE = 2.0\n", b"", "`SCALE = 2.0`, is gone"),
    "another value": (
        b"SCALE = 2.0",
        b"SCALE = 3.0",
        "line 7, `SCALE = 3.0`, replaces `SCALE = 2.0` of the original",
    ),
    "an import removed": (b"import math\n", b"", "line 1 of the original, `import math`, is gone"),
    "an import of something else": (
        b"floor as whole",
        b"ceil as whole",
        "import ceil as whole`, replaces",
    ),
    "an import over a name": (
        b"import torch\n",
        b"import torch\nfrom a import act\n",
        "import act`, is not in",
    ),
    "an import over a builtin": (
        b"import torch\n",
        b"import torch\nfrom a import len\n",
        "import len`, is not in",
    ),
    "an import of all names": (
        b"import torch\n",
        b"import torch\nfrom a import *\n",
        "import *`, is not in",
    ),
    "an import from the future": (
        b"import math\n",
        b"from __future__ import division\nimport math\n",
        "__future__",
    ),
    "an import that hides the module": (
        b"import math\n",
        b"import math\nfrom a import __getattr__\n",
        "__getattr__",
    ),
    "imports exchanged": (
        b"import math\nimport torch\n",
        b"import torch\nimport math\n",
        "has another place",
    ),
    "a definition moved": (
        b"SCALE = 2.0\n\n\ndef f(x, scale=SCALE):\n    return len(x) * scale\n",
        b"\n\ndef f(x, scale=SCALE):\n    return len(x) * scale\n\n\nSCALE = 2.0\n",
        "has another place than in the original: move it back",
    ),
    "another condition of a definition": (
        b"if SCALE > 1:",
        b"if SCALE < 1:",
        "`if SCALE < 1: ...`, replaces",
    ),
    "a call": (
        b"A.power = 2.0\n",
        b"A.power = 2.0\ntorch.set_num_threads(2)\n",
        "set_num_threads(2)`, is not in",
    ),
    "a definition over an import": (
        b"A.power",
        b"def act(x):\n    return x\n\n\nA.power",
        "definition of act, is",
    ),
    "a definition a second time": (
        b"A.power",
        b"class A:\n    pass\n\n\nA.power",
        "definition of A, is not in",
    ),
    "a definition over a builtin": (
        b"A.power",
        b"def len(x):\n    return x\n\n\nA.power",
        "definition of len, is",
    ),
    "a name that nothing reads": (
        b"SCALE = 1.0",
        b"NEW = 3\nSCALE = 1.0",
        "nothing in the file reads NEW",
    ),
    "another encoding": (
        b"import math\n",
        b"# coding: latin-1\nimport math\n",
        "is read as iso-8859-1",
    ),
}
HARMLESS = {
    "a comment": (b"import math\n", b"# numbers\nimport math\n"),
    "a blank line": (b"SCALE = 2.0\n", b"\nSCALE = 2.0\n"),
    "documentation": (b"import math\n", b'"""Numbers."""\nimport math\n'),
    "formatting": (b"SCALE = 2.0", b"SCALE = (\n    2.0\n)"),
    "an import": (b"import torch\n", b"import torch\nfrom regraft.ops import softmax\n"),
    "an import of a package": (b"import torch\n", b"import torch\nimport regraft.ops\n"),
    "a part of a package": (b"import torch\n", b"import torch\nimport torch.nn.functional\n"),
    "a name in an import": (b"floor as whole", b"floor as whole, ceil"),
    "the names of an import one by one": (b"import math\nimport torch", b"import math, torch"),
    "a new definition": (b"A.power", b"def new(x):\n    return x\n\n\nA.power"),
}


@pytest.mark.parametrize("case", UNJUDGED)
@pytest.mark.parametrize("alone", [False, True])
def test_what_the_module_level_does_is_a_change_with_a_reason(case: str, alone: bool) -> None:
    old, new, reason = UNJUDGED[case]
    changed = AROUND.replace(old, new, 1)
    changed = (
        changed if alone else changed.replace(b"return len(x) * scale", b"return scale * len(x)")
    )
    (module_change,) = [
        change for change in find_changes(AROUND, changed) if change.kind == "module"
    ]
    assert reason in module_change.obstacle
    assert module_change.lines
    assert not have_equal_surroundings(AROUND, changed)


@pytest.mark.parametrize("case", HARMLESS)
def test_what_leaves_the_module_level_as_it_was_is_no_change_beside_others(case: str) -> None:
    changed = AROUND.replace(*HARMLESS[case])
    assert changed != AROUND
    assert have_equal_surroundings(AROUND, changed)
    edited = changed.replace(b"return len(x) * scale", b"return scale * len(x)")
    assert {change.definition for change in find_changes(AROUND, edited)} <= {"f", "new"}
    assert not any(change.obstacle for change in find_changes(AROUND, changed))


def test_a_comment_alone_is_a_change_of_the_text() -> None:
    (change,) = find_changes(AROUND, AROUND.replace(b"import math\n", b"# numbers\nimport math\n"))
    assert (change.kind, change.statements, change.obstacle) == ("text", (), "")


def test_a_new_value_is_judged_by_the_lines_that_read_it() -> None:
    changed = AROUND.replace(b"SCALE = 1.0", b"FACTOR = 3\nSCALE = 1.0")
    changed = changed.replace(b"(x) * scale", b"(x) * scale * FACTOR")
    _, change = find_changes(AROUND, changed)
    assert (change.definition, change.obstacle) == ("<module>", "")
    assert change.statements == ((6, 6), (12, 12))
    assert [(relative.name, relative.why) for relative in change.relatives] == [
        ("f", "reads what the module level sets")
    ]


@pytest.mark.parametrize(
    "text",
    [
        b"def f(x):\n    return softmax(x)\n",
        b"from a import *\n\n__all__ = ['f', 'softmax']\n",
        b"def f(x):\n    return globals()['softmax'](x)\n",
        b"def f(x):\n    global softmax\n    softmax = x\n",
        b"class A:\n    softmax = softmax\n",
        b"try:\n    from a import softmax\nexcept ImportError:\n    pass\n",
    ],
    ids=["read", "exported", "by text", "set", "in a class", "under a condition"],
)
def test_an_import_of_a_name_that_the_original_uses_counts(text: bytes) -> None:
    added = b"from regraft.ops import softmax\n"
    (change,) = find_changes(text, text + added)
    assert "`from regraft.ops import softmax`, is not in the original" in change.obstacle
    local = b"def f(softmax):\n    return softmax\n"
    assert have_equal_surroundings(local, added + local)


def test_documentation_that_the_file_reads_counts() -> None:
    text = b'"""Two."""\n\n\ndef f(x):\n    return x * len(__doc__)\n'
    assert not have_equal_surroundings(text, text.replace(b"Two", b"Three"))


def test_a_removed_statement_is_not_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    text = (
        "from torch import nn\n\n\nclass Block(nn.Module):\n    power = 1.0\n\n    def"
        " __init__(self, width: int = 16):\n        super().__init__()\n        self.linear ="
        " nn.Linear(width, width)\n\n    def forward(self, x):\n        return"
        " self.linear(x).tanh() * self.power\n\n\nBlock.power = 2.0\n"
    )
    path = tmp_path / "block.py"
    path.write_text(text)
    (verdict,) = verify(path, text.replace("\n\n\nBlock.power = 2.0", "").encode(), effort="low")
    assert verdict.status in ("unproven", "refuted"), verdict
    assert "Block.power" in verdict.reason


KEEPS = b"""
class A:
    def forward(self, x):
        h = x + 1
        self.kept = (h for _ in range(3))
        h = -h
        return h
"""


def test_an_edit_of_what_a_kept_generator_reads_is_seen_by_no_run() -> None:
    (change,) = find_changes(
        KEEPS, KEEPS.replace(b"        h = -h\n        return h", b"        return -h")
    )
    assert "line 5 keeps what reads h later, and the edit assigns h otherwise" in change.obstacle
    (change,) = find_changes(KEEPS, KEEPS.replace(b"        return h", b"        return +h"))
    assert not change.obstacle
    local = KEEPS.replace(b"self.kept", b"kept")
    (change,) = find_changes(local, local.replace(b"-h", b"h"))
    assert not change.obstacle


@pytest.mark.parametrize(
    ("value", "is_read_later"),
    [
        ("(h + i for i in range(2))", False),
        ("map(lambda i: h + i, range(2))", False),
        ("((lambda: h) for _ in range(2))", True),
        ("map(lambda i: (lambda: h), range(2))", True),
        ("(1, (h for _ in range(2)))", True),
        ("(1, lambda: h)", True),
    ],
)
def test_what_an_assignment_unpacks_has_read_its_variables(value: str, is_read_later: bool) -> None:
    text = KEEPS.replace(b"self.kept = (h for _ in range(3))", f"a, b = {value}".encode())
    (change,) = find_changes(
        text, text.replace(b"        h = -h\n        return h", b"        return -h")
    )
    assert bool(change.obstacle) == is_read_later


@pytest.mark.parametrize("reading", [b"frame.f_locals", b"getattr(frame, 'f_locals')"])
def test_another_name_of_a_variable_is_seen_by_what_reads_frames(reading: bytes) -> None:
    text = (
        b"def gate(frame):\n    return "
        + reading
        + b"\n\n\ndef f(x):\n    factor = 2\n    return x * factor\n"
    )
    (change,) = find_changes(text, text.replace(b"factor", b"scale"))
    assert (
        "reads variables of its callers, and only one version has factor, scale" in change.obstacle
    )
    (change,) = find_changes(text, text.replace(b"x * factor", b"factor * x"))
    assert not change.obstacle
    blind = text.replace(reading, b"frame")
    (change,) = find_changes(blind, blind.replace(b"factor", b"scale"))
    assert not change.obstacle
