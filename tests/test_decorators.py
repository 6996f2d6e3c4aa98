"""Test rules whose kernel is a decorator: their restrictions, the code that they mark, and the
reasons against it."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from regraft.dsl import parse_rule
from regraft.fix import proved_fix
from regraft.rules import BUILT_IN, Rule, load_rule
from regraft.scanning import (
    CompiledRule,
    FileReport,
    check_file,
    check_source,
    compile_rules,
    rewrite_file,
)
from regraft.source.text import SourceFile, parse
from regraft.verification import Status, Verdict

HEAD = "import torch\nfrom torch import nn\nfrom transformers.activations import ACT2FN\n\n\n"
SWISH = "class Swish(nn.Module):\n    def forward(self, x):\n        return nn.functional.silu(x)\n"


def hub(name: str) -> CompiledRule:
    """Return a compiled rule of the pack hub."""
    rule = load_rule(BUILT_IN / "hub" / f"{name}.rule")
    assert isinstance(rule, Rule)
    (compiled,), problems = compile_rules([rule])
    assert not problems and compiled.decorates
    return compiled


def examples(name: str) -> list[tuple[str, str]]:
    """Return the pairs of code of a rule's page."""
    page = (BUILT_IN / "hub" / f"{name}.md").read_text("utf-8")
    return re.findall(r"```python before\n(.*?)```\n\n```python after\n(.*?)```", page, re.DOTALL)


def run(code: str, name: str = "activation") -> tuple[FileReport, str]:
    """Return the report and the rewritten text of a code."""
    source = parse("model.py", code.encode())
    assert isinstance(source, SourceFile)
    report = check_source(source, [hub(name)], explain=True)
    return report, rewrite_file(report, [hub(name)])[0].decode()


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (
            "@mine.mark($x) -> $y",
            "a decorator is called, and then with the definition's parameters",
        ),
        (
            "@mine.mark(kind=1)($x) -> $y",
            "a decorator is called, and then with the definition's parameters",
        ),
        ("@mine.mark($x)($x) -> $y", "a decorator takes constants"),
        ("@mine.mark(1)($x, 2) -> $y", "a decorator takes constants"),
        ("@mine.mark(1)($x) -> $y\n  @mine.call($x)", "is given that: @name(_)"),
        ("@mine.mark(1)($x) -> $y\n  mine.call(_)", "is given that: @name(_)"),
        ("mine.mark($x) -> $y\n  @mine.call(_)", "exactly one kernel call"),
    ],
)
def test_what_a_decorator_cannot_say(target: str, problem: str, tmp_path: Path) -> None:
    text = (
        'rule one\n  summary "One"\n  safety exact\nforward\n  torch.sin($x) -> $y\n  =>'
        f" {target}\n"
    )
    syntax = parse_rule(text)
    rule = Rule("mine/one", "mine", syntax, tmp_path / "one.rule", "")  # type: ignore[arg-type]
    _, problems = compile_rules([rule])
    assert problem in problems[0].message


LAST = "        return"
UNMARKED = {
    "a method of another name": (SWISH.replace("forward", "apply"), "only the forward of a class"),
    "a default": (SWISH.replace("x):", "x=None):"), "the parameters of forward are not (x)"),
    "a keyword": (SWISH.replace("x):", "*, x):"), "the parameters of forward are not (x)"),
    "a coroutine": (SWISH.replace("def", "async def"), "the parameters of forward are not (x)"),
    "an effect": (SWISH.replace(LAST, f"        print(x)\n{LAST}"), "does more than to assign"),
    "a stored result": (
        SWISH.replace(LAST, f"        self.kept = x\n{LAST}"),
        "does not always do the same",
    ),
    "another call": (
        SWISH.replace(LAST, f"        y = ACT2FN['gelu'](x)\n{LAST}"),
        "computes something beside",
    ),
    "a condition": (
        SWISH.replace(LAST, f"        if x is None:\n            return x\n{LAST}"),
        "does more than",
    ),
    "a parameter that changed": (
        SWISH.replace(LAST, f"        x = x + 1\n{LAST}"),
        "$x is not the parameter",
    ),
    "a decorated method": (
        SWISH.replace("    def", "    @torch.no_grad()\n    def"),
        "forward has a decorator",
    ),
    "a decorated base": (
        f"@ACT2FN\nclass Base(nn.Module):\n    pass\n\n\n{SWISH.replace('nn.Module', 'Base')}",
        "Base has a decorator already",
    ),
    "an inner function": (
        (
            "def make():\n    def swish(x):\n        return nn.functional.silu(x)\n\n    return"
            " swish\n"
        ),
        "not at the top level",
    ),
    "a script": (f"{SWISH}\n\nswish = torch.jit.script(Swish())\n", "TorchScript may compile"),
}


@pytest.mark.parametrize("name", UNMARKED)
def test_what_is_not_marked(name: str) -> None:
    code, reason = UNMARKED[name]
    report, changed = run(HEAD + code)
    assert changed == HEAD + code
    reasons = [miss.reason for miss in report.misses]
    reasons += [finding.reason for finding in report.findings]
    assert any(reason in text for text in reasons), report


def test_definitions_under_a_condition_keep_their_place() -> None:
    inner = "".join(f"    {line}\n" for line in SWISH.splitlines())
    report, changed = run(f"{HEAD}if ACT2FN:\n{inner}")
    assert '\n    @use_kernel_forward_from_hub("SiLU")\n    class Swish' in changed
    (finding,) = report.findings
    assert (finding.mode, finding.cls, finding.function, finding.also) == (
        "decorate",
        "Swish",
        "forward",
        (),
    )


def test_imports_are_written_as_the_package_writes_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "transformers" / "models" / "mine"
    folder.mkdir(parents=True)
    for directory in (folder, folder.parent, folder.parent.parent):
        (directory / "__init__.py").touch()
    head = (
        "import torch\nfrom torch import nn\n\nfrom ...activations import ACT2FN\nfrom ...utils"
        " import logging\n"
    )
    path = folder / "modeling_mine.py"
    path.write_text(f"{head}\n\n{SWISH}")
    changed = rewrite_file(check_file(path, [hub("activation")]), [hub("activation")])[0].decode()
    added = "from ...integrations import use_kernel_forward_from_hub\nfrom ...utils"
    assert changed.startswith(head.replace("from ...utils", added))


ROTARY = examples("rotary")[0][0]


def test_two_functions_of_one_caller_take_two_rounds() -> None:
    second = ROTARY[ROTARY.index("def apply") : ROTARY.index("class")].replace(
        "apply_rotary_pos_emb", "apply_again"
    )
    code = ROTARY.replace("class Attention", f"{second}class Attention").replace(
        "return apply_rotary_pos_emb(",
        "x = apply_again(x, x, cos, sin)[0]\n        return apply_rotary_pos_emb(",
    )
    _, changed = run(code, "rotary")
    assert changed.count('@use_kernel_forward_from_hub("rotary_pos_emb")') == 2
    assert (
        "@use_kernelized_func(apply_rotary_pos_emb)\n@use_kernelized_func(apply_again)\nclass"
        in changed
    )


def test_a_caller_that_is_not_proved_keeps_the_function_as_it_is() -> None:
    report, _ = run(ROTARY, "rotary")
    assert report.findings[0].also == ("Attention",)

    def verify(code: bytes, confirmed: Collection[str]) -> tuple[Verdict, ...]:
        statuses: tuple[tuple[str, Status], ...] = (
            ("apply_rotary_pos_emb", "proved"),
            ("Attention", "unproven"),
        )
        return tuple(Verdict("model.py", name, (1,), status, "", {}) for name, status in statuses)

    fix = proved_fix(report, [hub("rotary")], verify)
    assert fix.data.decode() == ROTARY and [verdict.definition for verdict in fix.left_out] == [
        "Attention"
    ]


def test_a_model_that_exists_is_not_decorated() -> None:
    nn = pytest.importorskip("torch").nn
    from regraft.live import optimization as live

    with pytest.warns(live.NothingOptimized):
        report = live.optimize(nn.Sequential(nn.Linear(2, 2)), select=["hub"], verify=False)
    assert not report.changes


def loaded(code: str) -> Any:
    """Return the module of an example, with the decorators of the package `kernels`."""
    names = "from kernels import use_kernel_forward_from_hub, use_kernelized_func\n"
    module = types.ModuleType("example")
    exec(re.sub(r"from transformers\.\w+ import .*\n", names, code), vars(module))
    return module


def test_kernels_finds_what_is_marked_and_takes_its_signature() -> None:
    """The package marks the layers by its own check of signatures, with compositions for
    kernels."""
    kernels = pytest.importorskip("kernels")
    pytest.importorskip("torch")
    sys.path.insert(0, str(Path(__file__).parent))
    import torch

    import hub_layers

    called = []

    class Norm(torch.nn.Module):
        def forward(self, hidden_states: Any) -> Any:
            called.append("norm")
            return hub_layers.RMSNorm(hidden_states, self.weight, self.variance_epsilon)

    class Rotary(torch.nn.Module):
        def forward(self, q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
            called.append("rotary")
            return hub_layers.rotary_pos_emb(q, k, cos, sin, unsqueeze_dim)

    class Repository:
        def __init__(self, cls: type) -> None:
            self.load, self.layer_name = (lambda: cls), cls.__name__

    norm, rotary = (
        loaded(examples("rms-norm")[0][1]).Norm(8),
        loaded(examples("rotary")[0][1]).Attention(8),
    )
    half = torch.randn(2, 5, 4)
    table = torch.cat((half, half), dim=-1)
    x = torch.randn(2, 3, 5, 8)
    before = rotary(norm(x), table, table)
    mapping = {"RMSNorm": {"cpu": Repository(Norm)}, "rotary_pos_emb": {"cpu": Repository(Rotary)}}
    with kernels.use_kernel_mapping(mapping, inherit_mapping=False):
        for layer in (norm, rotary):
            kernels.kernelize(layer, device="cpu", mode=kernels.Mode.INFERENCE)
    for ours, theirs in zip(rotary(norm(x), table, table), before, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert called == ["norm", "rotary"]
