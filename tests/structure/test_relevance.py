"""Test that the choice of functions to lower never changes the findings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conftest import source_of
from regraft.rules import load_rules
from regraft.scanning import Finding, check_source, compile_rules
from regraft.source.text import SourceFile, parse
from regraft.structure import Module
from regraft.structure.relevant_functions import Need, Relevance
from test_generated import program

RULES, _ = compile_rules(load_rules()[0])
CORPUS = sorted((Path(__file__).parent.parent / "corpus").glob("*.py"))
HEAD = """
    import torch
    import torch.nn.functional as F
    from torch import nn
    from torch.nn.functional import softmax as sm
    from transformers.activations import ACT2FN
    from transformers.activations import ACT2FN as TABLE
    shrink = nn.Softmax
"""


def rows(findings: tuple[Finding, ...]) -> list[tuple[object, ...]]:
    """Return the comparable parts of findings."""
    return [
        (
            finding.rule.id,
            finding.cls,
            finding.function,
            finding.start,
            finding.mode,
            finding.guard,
            finding.reason,
        )
        for finding in findings
    ]


def both(source: SourceFile) -> list[tuple[object, ...]]:
    """Return the findings of a file, after checking that analysing every function yields them,
    too."""
    finding_rows = rows(check_source(source, RULES).findings)
    assert finding_rows == rows(check_source(source, RULES, explain=True).findings)
    return finding_rows


def operations(source: SourceFile) -> set[str]:
    """Return the operations of a file, after checking that each alone keeps the functions with
    it."""
    module = Module(source)
    filters: dict[str, Relevance] = {}
    for structure in module.structures():
        around = {body.name: body.node for body in structure.bodies}
        for body in structure.bodies:
            for op in body.index.keys() - {"call"}:
                if op.startswith("py."):
                    continue
                relevance = filters.setdefault(op, Relevance(module, [frozenset({Need(op)})]))
                outer = body.name.split(".")[0]
                assert relevance.may_match(structure.cls, around[outer]), (
                    f"{structure.name}.{outer} for {op}"
                )
                assert body.name == outer or relevance.may_match(None, body.node), (
                    f"{structure.name}.{body.name} for {op}"
                )
    return set(filters)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_corpus(path: Path) -> None:
    source = parse(str(path), path.read_bytes())
    if sys.version_info < (3, 11) and b"except*" in path.read_bytes():
        pytest.skip("syntax of Python 3.11")
    assert isinstance(source, SourceFile)
    both(source)
    operations(source)


@pytest.mark.slow
def test_random_programs() -> None:
    sources = [source_of(program(seed)) for seed in range(1000, 1200)]
    assert sum(len(both(source)) for source in sources) > 100
    assert {"softmax", "gelu", "batch_norm"} <= {
        op for source in sources for op in operations(source)
    }


@pytest.mark.slow
def test_real_files(transformers: Path) -> None:
    for path in sorted((transformers / "models").glob("*/modeling_*.py"))[::25]:
        source = parse(str(path), path.read_bytes())
        assert isinstance(source, SourceFile)
        both(source)
        operations(source)


@pytest.mark.parametrize(
    "code",
    [
        # names of the operation
        "def f(x):\n    return sm(x, dim=-1)",
        "def f(x):\n    from torch import softmax as own\n    return own(x, dim=-1)",
        "def f(x):\n    ſoftmax = F.softmax\n    return x.softmax(-1)",
        "def f(x):\n    return F.ſoftmax(x, dim=-1)",  # Python reads it as F.softmax
        "def f(x): return F.softmax(x, dim=-1)",
        "def f(x):\n    own = F.softmax\n    return own(x, dim=-1)",
        # what a function makes
        "def f(x):\n    return nn.Softmax(dim=-1)(x)",
        "def f(x):\n    return shrink(dim=-1)(x)",
        "def f(x):\n    act = nn.Softmax(-1)\n    return act(x)",
        "def f(x):\n    acts = [nn.Softmax(-1), nn.ReLU()]\n    return acts[0](x)",
        "def make():\n    return nn.Softmax(-1)\n\ndef f(x):\n    return make()(x)",
        "def apply(g, x):\n    return g(x)\n\ndef f(x):\n    return apply(nn.Softmax(-1), x)",
        (
            "class A:\n    def forward(self, x):\n        self.act = nn.Softmax(-1)\n        return"
            " self.act(x)"
        ),
        # what a function inlines
        (
            "def g(x):\n    return h(x)\n\ndef h(x):\n    return sm(x, dim=-1)\n\ndef f(x):\n   "
            " return g(x)"
        ),
        "def f(x):\n    def g(y):\n        return sm(y, dim=-1)\n    return g(x)",
    ],
)
def test_softmax_in_disguise(code: str) -> None:
    source = parsed(code)
    both(source)
    assert "softmax" in operations(source)


@pytest.mark.parametrize(
    ("build", "call"),
    [
        ("self.act = nn.GELU()", "self.act(h)"),
        ("self.act = F.gelu", "self.act(h)"),
        ("self.act = ACT2FN[name]", "self.act(h)"),
        ('self.act = TABLE["gelu"]', "self.act(h)"),
        ("self.act = UNKNOWN[name]", "self.act(h)"),
        ("self.act = nn.GELU() if name else nn.ReLU()", "self.act(h)"),
        ("self.inner = self.act = nn.GELU()", "self.inner(h)"),
        ("self.acts = nn.ModuleList([nn.GELU() for _ in range(2)])", "self.acts[0](h)"),
        ("self.acts = nn.Sequential(nn.GELU())", "self.acts(h)"),
        ("self.body.act = nn.GELU()", "self.body.act(h)"),
        ("self.build()", "self.built(h)"),
        ("pass", 'TABLE["gelu"](h)'),
        ("pass", "UNKNOWN[self.name](h)"),
        ("pass", "self.picked()(h)"),
        ("pass", "self.through(nn.GELU(), h)"),
    ],
)
def test_an_activation_in_disguise(build: str, call: str) -> None:
    code = f"""
class Base(nn.Module):
    def __init__(self, dim, name):
        super().__init__()
        self.projection = nn.Linear(dim, dim)
        {build}

    def build(self):
        self.built = nn.GELU()

class A(Base):
    def picked(self):
        return ACT2FN[self.name]

    def through(self, act, h):
        return act(h)

    def forward(self, x):
        h = self.projection(x)
        return {call}
"""
    source = parsed(code)
    finding_rows = both(source)
    assert finding_rows or "gelu" in operations(source)


def parsed(code: str) -> SourceFile:
    """Return the parsed file of a code behind the common head."""
    text = source_of(HEAD).text.decode() + "\n" + code + "\n"
    source = parse("model.py", text.encode())
    assert isinstance(source, SourceFile), source
    return source


def test_operations_in_place() -> None:
    code = "def loss(hot, index):\n    return hot.scatter_(1, index, 1)"
    module = Module(parsed(code))
    relevance = Relevance(module, [frozenset({Need("scatter")})])
    (structure,) = module.structures()
    assert relevance.may_match(None, structure.bodies[0].node)
