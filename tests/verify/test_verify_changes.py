"""Which definitions, lines and branches count as changed."""

import pytest

from regraft.verify.changes import find_changes

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


def changes(old, new):
    text = SOURCE.replace(old, new)
    assert text != SOURCE
    return {c.definition: c for c in find_changes(SOURCE, text)}


def test_replaced_line():
    found = changes(b"y = x + 1", b"y = x + 2")
    assert list(found) == ["A"]
    assert found["A"].lines == (6,)
    assert found["A"].statements == ((6, 6),)


def test_part_of_a_statement_counts_as_the_statement():
    assert changes(b"        + 1", b"        + 2")["g"].statements == ((11, 14),)


def test_import_belongs_to_the_module_only_alone():
    assert list(changes(b"import os", b"import os\nimport sys")) == ["<module>"]
    both = SOURCE.replace(b"import os", b"import os\nimport sys").replace(
        b"x + 1\n        return", b"x\n        return"
    )
    assert [c.definition for c in find_changes(SOURCE, both)] == ["A"]


def test_other_module_statements_count_beside_definitions():
    text = SOURCE.replace(b"y = x + 1", b"y = x") + b"\ng = len\n"
    assert [c.definition for c in find_changes(SOURCE, text)] == ["A", "<module>"]


def test_deleted_line_is_the_line_after():
    assert changes(b"        y = x + 1\n", b"")["A"].lines == (6,)


def test_removed_and_new_definitions():
    text = SOURCE.replace(b"def g(x)", b"def h(x)")
    assert [(c.definition, c.kind) for c in find_changes(SOURCE, text)] == [("h", "function"), ("g", "removed")]


def test_comment_needs_nothing_to_run():
    assert changes(b"        return y", b"        # note\n        return y")["A"].statements == ()


def test_conditional_expression_has_two_arms():
    assert len(changes(b"y = x + 1", b"y = x if x else 1")["A"].arms) == 2


def test_condition_without_else_has_to_be_false_once():
    found = changes(b"        y = x + 1\n", b"        y = x\n        if x:\n            y = 2\n")
    assert [(f.header, f.body) for f in found["A"].fallthroughs] == [((7, 7), (8, 8))]


def test_line_ends_and_marks_do_not_matter():
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
def test_relatives(statement):
    text = FAMILY % statement
    (change,) = find_changes(text, text.replace(b"return self.act", b"return 1 * self.act"))
    assert [(one.name, one.why) for one in change.relatives] == [
        ("B", "inherits from it"),
        ("Builds", "builds it"),
        ("BuildsMore", "builds it"),
        ("ChangesDeep", "can modify it"),
    ]


@pytest.mark.parametrize("statement", [b"self.b.a.other = 1", b"self.b(self.b.a.act)", b"setattr(self.b, 'x', 1)"])
def test_a_class_further_out_that_only_uses_is_no_relative(statement):
    text = FAMILY % statement
    (change,) = find_changes(text, text.replace(b"return self.act", b"return 1 * self.act"))
    assert [one.name for one in change.relatives] == ["B", "Builds", "BuildsMore"]


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
        ("self.scale = 2", "self.scale = 1 + 1", ["Apart", "Below", "Calls", "Reads", "Asks", "Keeps"]),
        ("        return x\n", "        return +x\n", ["Apart", "Below", "Calls", "Reads", "Asks"]),
        ("class A(nn.Module)", "class A(B, nn.Module)", ["Apart", "Below", "Calls", "Reads", "Asks", "Keeps"]),
    ],
    ids=["private", "forward", "constructor", "public", "bases"],
)
def test_an_heir_that_runs_none_of_the_edited_methods_is_no_relative(old, new, relatives):
    changed = HEIRS.replace(old, new, 1)
    (change,) = find_changes(HEIRS.encode(), changed.encode())
    assert [one.name for one in change.relatives] == relatives
