"""Test generated programs: analysis never crashes, and every rewritten program parses."""

from __future__ import annotations

import ast
import random

import pytest
from pysource_codegen import generate

from regraft.dsl import parse_fragment, print_fragment
from regraft.rules import load_rules
from regraft.scanning import check_source, compile_rules, rewrite_file
from regraft.source.text import SourceFile, parse
from regraft.structure import Module
from regraft.structure.show import body_nodes, layer_nodes, paths

COMPILED, _ = compile_rules(load_rules()[0])


@pytest.mark.parametrize("seed", range(60))
def test_any_program_is_analysed(seed: int) -> None:
    code = "import torch\nfrom torch import nn\n" + generate(seed, node_limit=400, depth_limit=8)
    source = parse("generated.py", code.encode("utf-8", "surrogatepass"))
    if not isinstance(source, SourceFile):
        pytest.skip("not valid source text")
    report = check_source(source, COMPILED)
    assert report.errors == ()
    ast.parse(rewrite_file(report, COMPILED)[0])
    for structure in Module(source).structures():
        layer_nodes(structure)
        for body in structure.bodies:
            body_nodes(body)
            paths(body)


STATEMENTS = [
    "x = self.drop(x)",
    "x = self.fc(x)",
    "r = x",
    "x = x + r",
    "r = r + x",
    "x = self.norm(x)",
    "x = self.act(x)",
    "x = F.gelu(x)",
    "x = torch.softmax(x, -1)",
    "x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)",
    "x = self.norm(self.drop(x) + r)",
    "r = self.act(self.fc(x))",
    "x, r = r, x",
    "x += r",
    "self.cache(x)",
    "x = x.to(torch.float32)",
    "d = x.dtype",
    "x = x.to(d)",
    "x = self.bn(x)",
    "r = self.bn(self.fc(x))",
    "x = self.dropped(x)",
    "x = self.finish(self.drop(x), r)",
    "r = soft(x, -1)",
    "x, r = swap(x, r)",
    "x = act(self.fc(x))",
    "q = self.fc(x)",
    "k = self.fc2(x)",
    "v = self.fc3(x)",
    "r = q * k + v",
    "r = self.fc(x) * self.fc2(x) - self.fc3(x)",
]
HEAD = """import torch
import torch.nn.functional as F
from torch import nn


def soft(x, dim, other=None):
    if other is not None:
        return other
    return F.softmax(x, dim=dim)


def swap(x, r):
    return r, x


def act(h):
    return F.gelu(h)


class M(nn.Module):
    def __init__(self, dim, act):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.fc2 = nn.Linear(dim, dim)
        self.fc3 = nn.Linear(dim, dim, bias=False)
        self.norm = nn.LayerNorm(dim)
        self.bn = nn.BatchNorm1d(dim)
        self.drop = nn.Dropout(0.0)
        self.act = TABLE[act]

    def cache(self, x):
        self.seen = x.sum()

    def dropped(self, x):
        return self.drop(x)

    def finish(self, x, r):
        self.seen = r.sum()
        return self.norm(x + r)

    def forward(self, x, r):
        d = x.dtype
        q = k = v = x
"""


def program(seed: int) -> str:
    """Return a random program."""
    generator = random.Random(seed)
    lines: list[str] = []
    opened: list[bool] = []  # whether each open block is an `if` that may get an `else`
    depth = 0
    for _ in range(generator.randint(4, 14)):
        if depth < 2 and generator.random() < 0.15:
            opened.append(generator.random() < 0.5)
            lines.append(
                "    " * depth + ("if r[0, 0] > 0:" if opened[-1] else "for _ in range(2):")
            )
            depth += 1
            lines.append("    " * depth + generator.choice(STATEMENTS))
        else:
            lines.append("    " * depth + generator.choice(STATEMENTS))
            if depth and generator.random() < 0.4:
                depth -= 1
                if opened.pop() and generator.random() < 0.5:
                    lines.append("    " * depth + "else:")
                    depth += 1
                    opened.append(False)
                    lines.append("    " * depth + generator.choice(STATEMENTS))
    lines.append("return x, r")
    return HEAD + "".join(f"        {line}\n" for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 400, 100))
def test_rewritten_random_programs_compute_the_same(start: int) -> None:
    """Original and rewritten text run against each other: an end-to-end test of soundness."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    rewritten = 0
    for seed in range(start, start + 100):
        code = program(seed)
        source = parse("m.py", code.encode())
        assert isinstance(source, SourceFile)
        report = check_source(source, COMPILED)
        changed, applied = rewrite_file(report, COMPILED)
        rewritten += len(applied)
        for act in ("gelu", "relu"):
            results = []
            for text in (code, changed.decode()):
                names = {"TABLE": {"gelu": torch.nn.GELU(), "relu": torch.nn.ReLU()}}
                exec(compile(text, "m.py", "exec"), names)
                torch.manual_seed(seed)
                model = names["M"](8, act).train(seed % 2 == 0)  # type: ignore[operator]
                x, r = torch.randn(9, 8), torch.randn(9, 8)
                with torch.no_grad():
                    outputs = model(x, r)
                results.append(
                    (*outputs, x, r, getattr(model, "seen", torch.zeros(())), *model.buffers())
                )
            for actual, expected in zip(*results, strict=True):
                torch.testing.assert_close(
                    actual,
                    expected,
                    rtol=1e-4,
                    atol=1e-5,
                    equal_nan=True,
                    msg=lambda m, c=code: f"{c}\n{m}",
                )
    assert rewritten > 50


def test_structures_of_random_programs_parse_back() -> None:
    for seed in range(50):
        source = parse("m.py", program(seed).encode())
        assert isinstance(source, SourceFile)
        for structure in Module(source).structures():
            for body in structure.bodies:
                nodes = body_nodes(body)
                assert parse_fragment(print_fragment(nodes)) == nodes
