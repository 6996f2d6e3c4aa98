"""Test rewriting: the soundness conditions of every rule, and the shape of the result."""

from __future__ import annotations

import ast
import textwrap

import pytest

from conftest import compiled_rules, source_of
from regraft.rules import load_rules
from regraft.scanning import CompiledRule, check_source, compile_rules, rewrite_file
from regraft.scanning.fixpoint import MOST_FINDINGS, MOST_ROUNDS
from regraft.source import text
from regraft.source.text import SourceFile, parse

HEAD = """import torch
import torch.nn.functional as F
from torch import nn


class M(nn.Module):
    def __init__(self, dim, act):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.bn = nn.BatchNorm1d(dim)
        self.drop = nn.Dropout(0.1)
        self.act = TABLE[act]
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.GELU())

    def forward(self, x, r):
"""


@pytest.fixture(scope="module")
def rules() -> tuple[CompiledRule, ...]:
    """Return all built-in rules, compiled."""
    loaded, problems = load_rules()
    compiled, compile_problems = compile_rules(loaded)
    assert not problems
    assert not compile_problems
    return compiled


def rewritten(rules: tuple[CompiledRule, ...], body: str) -> tuple[str, tuple[str, ...]]:
    """Return the forward after all rewrites, and the reasons of the withheld ones."""
    source = source_of(
        HEAD + "".join(f"        {line}\n" if line else "\n" for line in body.split("\n"))
    )
    report = check_source(source, rules)
    changed, _ = rewrite_file(report, rules)
    rewritten_source = parse("model.py", changed)
    assert isinstance(rewritten_source, SourceFile)
    assert all(
        finding.patch is None for finding in check_source(rewritten_source, rules).findings
    ), "a second run changes something"
    tail = changed.decode().split("    def forward(self, x, r):\n", 1)[1]
    lines = [line.removeprefix("        ") for line in tail.splitlines()]
    return "\n".join(lines), tuple(
        finding.reason for finding in report.findings if finding.patch is None
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # the removed assignments give their names back
        (
            "x = self.drop(x)\nx = x + r\nreturn self.norm(x)",
            "return dropout_add_layer_norm(x, r, self.norm, self.drop)",
        ),
        # an inner statement keeps what the rule does not cover
        (
            "h = self.drop(self.fc(x))\nreturn self.norm(r + h)",
            "h = self.fc(x)\nreturn dropout_add_layer_norm(h, r, self.norm, self.drop)",
        ),
        # also of what is unpacked, under the first of its names
        (
            "v, x = self.fc(x).chunk(2, dim=-1)\nr = r + 1\nreturn torch.sigmoid(x) * v + r",
            "v = self.fc(x)\nr = r + 1\nreturn gated_halves(v, -1) + r",
        ),
        (
            "(v, g) = self.fc(\n    x,\n).chunk(2, dim=1)\ng = torch.sigmoid(g)\nreturn v * g",
            "v = self.fc(\n    x,\n)\nreturn gated_halves(v, 1)",
        ),
        # an expression without a name moves into the call
        (
            "return self.norm(self.drop(x) + r.mean(0))",
            "return dropout_add_layer_norm(x, r.mean(0), self.norm, self.drop)",
        ),
        # comments stay
        (
            "h = self.drop(x)  # why\n# more\ny = self.norm(h + r)  # end\nreturn y",
            (
                "# why\n# more\ny = dropout_add_layer_norm(x, r, self.norm, self.drop)  #"
                " end\nreturn y"
            ),
        ),
        # a condition at run time: the original is the other branch
        (
            "h = self.fc(x)\nh = self.act(h)\nreturn h",
            (
                "if is_gelu(self.act):\n    h = linear_gelu(x, self.fc)\nelse:\n"
                "    h = self.fc(x)\n    h = self.act(h)\nreturn h"
            ),
        ),
        # one call of several layers
        ("return self.mlp(x)", "return sequential(x, self.mlp)"),
        (
            "return r + self.mlp((x + r))[:, 0]",
            "return r + sequential(x + r, self.mlp)[:, 0]",
        ),
        # the input's evaluation may replace the container, or select another one
        (
            "return self.mlp(self.prepare(x))",
            "return sequential(container=self.mlp, x=self.prepare(x))",
        ),
        ("return self.mlp(x.relu())", "return sequential(x.relu(), self.mlp)"),
        ("mlp = self.mlp\nreturn mlp(r(x))", "mlp = self.mlp\nreturn sequential(r(x), mlp)"),
        (
            "global mlp\nmlp = self.mlp\nreturn mlp(r(x))",
            "global mlp\nmlp = self.mlp\nreturn sequential(container=mlp, x=r(x))",
        ),
        # a branch that follows: the other one gets what has moved
        (
            "h = self.drop(x)\nh = h + r  # why\n\nif r.any():\n    h = self.norm(h)\nreturn h",
            (
                "# why\n\nif r.any():\n    h = dropout_add_layer_norm(x, r, self.norm, self.drop)\n"
                "else:\n    h = self.drop(x)\n    h = h + r\nreturn h"
            ),
        ),
        (
            (
                "h = self.fc(\n    x\n)\nif r is None:\n    # nothing\n    r = h\nelse:\n    return"
                " self.bn(h)\nreturn r"
            ),
            (
                "if r is None:\n    # nothing\n    h = self.fc(\n        x\n    )\n    r ="
                " h\nelse:\n    return linear_batch_norm(x, self.fc, self.bn)\nreturn r"
            ),
        ),
        (
            "h = self.fc(x)\nif r is None:\n    return self.bn(h)\nreturn h",
            (
                "if r is None:\n    return linear_batch_norm(x, self.fc, self.bn)\nelse:\n    h ="
                " self.fc(x)\nreturn h"
            ),
        ),
        # with a return there is no need for `else`
        (
            "return self.act(self.fc(x))",
            (
                "if is_gelu(self.act):\n    return linear_gelu(x, self.fc)\nreturn"
                " self.act(self.fc(x))"
            ),
        ),
        # parentheses that the kernel call does not need go, those of calls stay
        (
            (
                "y = (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)).to(r.dtype)\n"
                "return str(torch.softmax(y, -1)), (torch.softmax(r, -1))"
            ),
            ("y = rms_normalize(x, 1e-6).to(r.dtype)\nreturn str(softmax(y)), softmax(r)"),
        ),
        (
            "y = (\n    (torch.softmax(x, -1)) * 2\n    +\n    (torch.softmax(r, -1))\n)\nreturn y",
            "y = (\n    softmax(x) * 2\n    +\n    softmax(r)\n)\nreturn y",
        ),
        (
            (
                "y = (\n    str\n    (torch.softmax(x, -1)), str  # =\n"
                "    (torch.softmax(r, -1))\n)\nreturn y"
            ),
            "y = (\n    str\n    (softmax(x)), str  # =\n    (softmax(r))\n)\nreturn y",
        ),
        # two rules on the same lines
        (
            "x = self.drop(F.gelu(self.fc(x)))\nreturn self.norm(x + r).softmax(-1)",
            (
                "x = linear_gelu(x, self.fc)\nreturn softmax(dropout_add_layer_norm(x, r,"
                " self.norm, self.drop))"
            ),
        ),
        # dead support goes, live support stays
        (
            (
                "d = x.dtype\nx = x.to(torch.float32)\n"
                "x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)\nreturn x.to(d)"
            ),
            "return rms_normalize(x, 1e-6, casting='rounded')",
        ),
        (
            (
                "d = x.dtype\nx = x.to(torch.float32)\n"
                "x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)\nreturn x.to(d), d"
            ),
            "d = x.dtype\nreturn rms_normalize(x, 1e-6, casting='rounded'), d",
        ),
        # it depends on the branch: where the other one was not taken
        (
            "h = self.drop(x)\nif r is None:\n    h = h + 1\nreturn self.norm(h + r)",
            (
                "if r is not None:\n    return dropout_add_layer_norm(x, r, self.norm, self.drop)\n"
                "h = self.drop(x)\nif r is None:\n    h = h + 1\nreturn self.norm(h + r)"
            ),
        ),
        (
            "if r is None:\n    return x\n\nelse:\n    x = torch.softmax(x, dim=-1)\nreturn x",
            "if r is None:\n    return x\n\nelse:\n    x = softmax(x)\nreturn x",
        ),
    ],
)
def test_rewrites(rules: tuple[CompiledRule, ...], before: str, after: str) -> None:
    changed, withheld = rewritten(rules, before)
    assert changed == after
    assert withheld == ()


def test_a_rewrite_in_place_goes_before_one_that_keeps_a_second_version() -> None:
    """Attention with a bias under a flag has a kernel without the bias, or postponed scores."""
    body = (
        "s = (q @ k.transpose(-2, -1)) * self.scale\nif self.biased:\n    s = s + self.bias\n"
        "return s.softmax(-1) @ v"
    )
    model = (
        "from torch import nn\n\nclass Attention(nn.Module):\n"
        "    def __init__(self, biased):\n        super().__init__()\n"
        "        self.scale, self.biased = 0.5, biased\n"
        "        self.bias = nn.Parameter(torch.zeros(1, 8, 8))\n\n"
        "    def forward(self, q, k, v):\n" + textwrap.indent(body, " " * 8) + "\n"
    )
    source = source_of("import torch\n" + model)

    def rewritten_by(*names: str) -> str:
        """Return the file as rules rewrite it."""
        rules = compiled_rules(*names)
        return rewrite_file(check_source(source, rules), rules)[0].decode()

    alone = rewritten_by("adopter/bert-attention")
    assert "attention(q, k, v, mask=self.bias, scale=self.scale)" in alone
    assert alone.count("if self.biased:") == 2
    both = rewritten_by("adopter/bert-attention", "torch/attention")
    assert both == rewritten_by("torch/attention")
    assert "postponed_matmul(q, k.transpose(-2, -1)) * self.scale" in both


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("h = self.mlp(x)\nh += r\nreturn h", "the result is changed in place afterwards"),
        *(
            (f"h = self.mlp(x)\n{lines}\nreturn h", "the result is changed in place afterwards")
            for lines in (
                "y = self.drop(h)\ny += r",
                "y = h.contiguous().to(r.dtype)\ny.mul_(2)",
                "y = h if r.any() else x\nif r.all():\n    y = r\ny += 1",
            )
        ),
        ("return f'{self.mlp(x)}'", "inside an f-string"),
        ("return self.mlp(\n    # why\n    x\n)", "a comment stands inside the code"),
        (
            "h = self.drop(x)\nself.cache(r)\nreturn self.norm(h + r)",
            "stands between the nodes and may have effects",
        ),
        ("h = self.drop(x)\nr[0] = 1\nreturn self.norm(h + r)", "may have effects"),
        (
            "h = self.drop(x)\nif r.any():\n    h = self.norm(h + r)\n    return h\nreturn r",
            "in different branches",
        ),
        # what would move into the other branch cannot, or not all of it
        (
            "h = self.fc(x)\nz = 1\nif r.any():\n    h = F.gelu(h)\nreturn h, z",
            "in different branches",
        ),
        (
            "h = self.fc(x)\nif (z := r.any()):\n    h = F.gelu(h)\nreturn h, z",
            "in different branches",
        ),
        ("h = self.fc(x)\nif self.cache(r):\n    h = F.gelu(h)\nreturn h", "may have effects"),
        (
            (
                "h = self.fc(x)\nif r.any():\n    return self.bn(h)\nelif x.any():\n    return"
                " r\nreturn h"
            ),
            "lines of its own",
        ),
        ("h = self.fc(x)\nif r.any(): h = F.gelu(h)\nreturn h", "lines of its own"),
        (
            "h = self.fc(x + r)\nif r.any():\n    return self.bn(h)\nreturn h",
            "more than the rule covers",
        ),
        ("h = self.fc(x)\nif r is None:\n    h = self.act(h)\nreturn h", "in different branches"),
        ("return F.softmax(\n    x,  # scores\n    dim=-1,\n)", "a comment stands inside"),
        ("return f'{F.softmax(x, dim=-1)}'", "inside an f-string"),
        ("h = self.drop(x); h = h + r\nreturn self.norm(h)", "share a line"),
        (
            "F = x\nreturn F * torch.sigmoid(F)",
            "F is a local variable here",
        ),
        ("return self.norm(self.drop(h := x) + r)", "the statement holds a NamedExpr"),
        (
            "h = self.drop((z := self.fc(x)))\nreturn self.norm(h + r) + z",
            "an inner statement holds a NamedExpr",
        ),
        (
            "h, z = self.drop(x), 1\nreturn self.norm(h + r)",
            "an inner step is part of another statement",
        ),
        ("while self.act(self.fc(x)).any():\n    x = x + 1\nreturn x", "in the head of a while"),
    ],
)
def test_withheld_with_the_reason(rules: tuple[CompiledRule, ...], body: str, reason: str) -> None:
    changed, withheld = rewritten(rules, body)
    assert changed == body
    assert len(withheld) == 1
    assert reason in withheld[0]
    assert "line" in withheld[0]


@pytest.mark.parametrize(
    "body",
    [
        "h = self.drop(x) + r\nreturn self.norm(h) + h",  # the sum is used again
        # dropped once, used three times
        "h = self.drop(x)\nfor _ in range(3):\n    r = self.norm(h + r)\nreturn r",
        # leaves through the join
        "h = x\nif r is None:\n    h = self.fc(x)\n    y = F.gelu(h)\nreturn h",
        "h = self.drop(x)\nh += r\nreturn self.norm(h)",  # in place: others may see it
        # another name for h
        "h = self.fc(x)\nif r.any():\n    y = F.gelu(h)\nelse:\n    y = h\nreturn y",
        "return self.norm(self.drop(x) - r)",
        # made before the branch, needed after it or for its test
        "h = self.fc(x)\nif r.any():\n    y = F.gelu(h)\nreturn h",
        "h = self.fc(x)\nif h.any():\n    h = F.gelu(h)\nreturn h",
        # the test may have another result the second time
        (
            "if self.on:\n    h = self.fc(x)\n    y = F.gelu(h)\n    self.cache(y)\n    if not"
            " self.on:\n        y = h\nreturn y"
        ),
        "return self.norm(torch.add(self.drop(x), r, alpha=2))",
        "return self.norm(F.dropout(x, 0.1, self.training, inplace=True) + r)",
        "return torch.softmax(x, 1)",
        "return torch.softmax(x, dim=self.dim)",
        "return F.relu(self.fc(x))",
        "h = self.drop(x)\ny = self.norm(h + r)\ndel h\nreturn y",  # `del h` needs h
        "global h\nh = self.drop(x)\nreturn self.norm(h + r)",  # others read h
        # values that are read on the way out, or at a time of their own
        (
            "h = r\nfor i in range(3):\n    if i == 1:\n        h = self.fc(x)\n        y ="
            " F.gelu(h)\n        break\nreturn h"
        ),
        (
            "h = r\nfor i in range(3):\n    if i == 1:\n        h = self.fc(x)\n        y ="
            " F.gelu(h)\n        continue\nreturn h"
        ),
        "try:\n    h = self.fc(x)\n    y = F.gelu(h)\nexcept ValueError:\n    y = h\nreturn y",
        "with suppress():\n    h = self.fc(x)\n    y = F.gelu(h)\nreturn h",
        "f = lambda: h\nh = self.fc(x)\ny = F.gelu(h)\nreturn f()",
        "h = self.fc(x)\ny = F.gelu(h)\nreturn lambda a=h: a",
        "g = (h for _ in range(2))\nh = self.fc(x)\ny = F.gelu(h)\nreturn list(g)",
        "h = self.fc(x)\ny = F.gelu(h)\nreturn locals()",
        # moving into a comprehension would repeat it
        "h = self.drop(x)\nreturn [self.norm(h + one) for one in r]",
        # a nested function changes the dimension
        "d = -1\ndef c():\n    nonlocal d\n    d = 0\nc()\nreturn F.softmax(x, dim=d)",
    ],
)
def test_look_alikes_are_left_alone(rules: tuple[CompiledRule, ...], body: str) -> None:
    changed, withheld = rewritten(rules, body)
    assert changed == body
    assert withheld == ()


def test_a_subclass_with_another_layer_protects_the_method(rules: tuple[CompiledRule, ...]) -> None:
    source = source_of(
        HEAD
        + "        return F.gelu(self.fc(x))\n\n\nclass N(M):\n    def __init__(self):\n"
        + "        self.fc = nn.Bilinear(1, 2, 3)\n"
    )
    report = check_source(source, rules, explain=True)
    assert report.findings == ()
    assert any("subclass N builds self.fc" in miss.reason for miss in report.misses)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "import torch\n\n@torch.jit.script\ndef f(x):\n    return torch.softmax(x, -1)\n",
            "TorchScript",
        ),
        (
            "if flag:\n    import torch\n\ndef f(x):\n    return torch.softmax(x, -1)\n",
            "under a condition",
        ),
    ],
)
def test_withheld_for_the_whole_function(
    rules: tuple[CompiledRule, ...], code: str, reason: str
) -> None:
    report = check_source(source_of(code), rules)
    assert [finding.patch for finding in report.findings] == [None]
    assert reason in report.findings[0].reason


@pytest.mark.parametrize(
    "change",
    [
        "setattr(self, 'soft', nn.Identity())",
        "self.add_module('soft', nn.Identity())",
        "self._modules['soft'] = nn.Identity()",
    ],
)
def test_layers_that_change_by_other_means_are_given_whole(
    rules: tuple[CompiledRule, ...], change: str
) -> None:
    """The kernel looks at the layer when the model runs, and calls what is not a plain softmax."""
    code = (
        HEAD.replace(
            "        self.mlp =",
            f"        self.soft = nn.Softmax(-1)\n        {change}\n        self.mlp =",
        )
        + "        return self.soft(x)\n"
    )
    (finding,) = check_source(source_of(code), rules).findings
    assert finding.patch is not None
    assert [edit.text for edit in finding.patch.edits] == ["softmax(x, layer=self.soft)"]


def test_attributes_are_read_again_after_a_call(rules: tuple[CompiledRule, ...]) -> None:
    changed, _ = rewritten(
        rules, "a = self.h\nself.step()\nreturn self.norm(self.drop(self.h) + a)"
    )
    assert "self.h, a, self.norm" in changed


@pytest.mark.parametrize(
    "module",
    [
        "from torch.nn.functional import *\ndef softmax(x, dim): return x\n",
        "import torch.nn.functional as F\nF, _ = Mine, 0\nsoftmax = F.softmax\n",
        (
            "from torch.nn.functional import softmax\ndef f():\n    global softmax\n    softmax ="
            " None\n"
        ),
    ],
)
def test_names_that_the_module_rebinds_are_not_trusted(
    rules: tuple[CompiledRule, ...], module: str
) -> None:
    assert (
        check_source(
            source_of(module + "def g(x):\n    return softmax(x, dim=-1)\n"), rules
        ).findings
        == ()
    )


def test_files_without_torch_are_left_alone(rules: tuple[CompiledRule, ...]) -> None:
    assert check_source(source_of("def f(x):\n    return x.softmax(-1)\n"), rules).findings == ()


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ("import torch\n", "import torch\nfrom regraft.ops import softmax\n"),
        (
            "import os\n\nimport torch\nfrom zlib import crc32\n",
            "import torch\nfrom regraft.ops import softmax\nfrom zlib",
        ),
        (
            '"""Doc."""\nfrom __future__ import annotations\nimport torch\n',
            "annotations\nimport torch\nfrom regraft.ops import softmax\n",
        ),
        (
            "import torch\nfrom regraft.ops import is_gelu\n",
            "from regraft.ops import is_gelu, softmax\n",
        ),
        ("import torch\nsoftmax = 3\n", "from regraft.ops import softmax as regraft_softmax\n"),
        ("import torch\r\n", "import torch\r\nfrom regraft.ops import softmax\r\n"),
    ],
)
def test_imports_are_added_once_in_place(
    rules: tuple[CompiledRule, ...], imports: str, expected: str
) -> None:
    newline = "\r\n" if "\r\n" in imports else "\n"
    code = (
        imports
        + "def f(x):\n    return torch.softmax(x, -1)\n\ndef g(x):\n    return x.softmax(-1)\n".replace(  # noqa: E501
            "\n", newline
        )
    )
    source = parse("m.py", code.encode())
    assert isinstance(source, SourceFile)
    changed, applied = rewrite_file(check_source(source, rules), rules)
    assert len(applied) == 2
    assert expected in changed.decode()
    assert changed.decode().count("regraft.ops") == 1
    ast.parse(changed)


def test_tabs_bom_crlf_and_missing_final_newline_survive(rules: tuple[CompiledRule, ...]) -> None:
    code = (
        "\ufeffimport torch\r\nif True:\r\n\tdef f(x):\r\n\t\ts = 'ü'; y = x\r\n\t\treturn"
        " torch.softmax(y, -1)"
    )
    source = parse("m.py", code.encode())
    assert isinstance(source, SourceFile)
    changed = rewrite_file(check_source(source, rules), rules)[0].decode()
    assert changed == code.replace("torch.softmax(y, -1)", "softmax(y)").replace(
        "import torch\r\n", "import torch\r\nfrom regraft.ops import softmax\r\n"
    )
    assert text.diff("m.py", code.encode(), changed.encode()).count("\n+") == 3


@pytest.mark.parametrize(
    "layers", ["nn.Linear(4, 4), nn.GELU()", "nn.Linear(4, 4), nn.BatchNorm1d(4)"]
)
def test_a_container_that_a_function_calls_is_not_taken_apart(
    rules: tuple[CompiledRule, ...], layers: str
) -> None:
    source = source_of(
        "from torch import nn\n\n\ndef run(net, x):\n    return net(x)\n\n\n"
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.net = nn.Sequential({layers})\n\n"
        "    def forward(self, x):\n        return run(self.net, x)\n"
    )
    report = check_source(source, rules)
    assert [finding.patch for finding in report.findings] == [None]
    assert "inside one nn.Sequential call" in report.findings[0].reason


def test_deep_expressions_are_rewritten_in_part_and_in_time() -> None:
    """A chain of hundreds of calls takes seconds; what is left of it are findings with reasons."""
    loaded, _ = load_rules(["softmax"])
    compiled, _ = compile_rules(loaded)
    chain = "x" + ".softmax(-1)" * 300
    source = parse("deep.py", f"import torch\ndef f(x):\n    return {chain}\n".encode())
    assert isinstance(source, SourceFile)
    report = check_source(source, compiled)
    deep = [finding for finding in report.findings if not finding.fixable]
    assert len(report.findings) == 300
    assert {finding.reason for finding in deep} == {
        "the expression is nested more than 40 levels deep (line 3)"
    }
    rewritten, applied = rewrite_file(report, compiled)
    ast.parse(rewritten)
    assert MOST_ROUNDS <= len(applied) <= MOST_ROUNDS + 10
    assert rewritten.count(b"softmax(") == 300


def test_rounds_of_very_many_findings_are_fewer() -> None:
    loaded, _ = load_rules(["softmax"])
    compiled, _ = compile_rules(loaded)
    chain = "x" + ".softmax(-1)" * 300
    text = f"import torch\ndef f(x):\n    return {chain}\ndef g(x):\n    return {chain}\n"
    source = parse("deep.py", text.encode())
    assert isinstance(source, SourceFile)
    report = check_source(source, compiled)
    rewritten, applied = rewrite_file(report, compiled)
    ast.parse(rewritten)
    rounds = MOST_FINDINGS // 600
    assert 2 * rounds <= len(applied) <= 2 * rounds + 10
