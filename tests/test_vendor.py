"""Test the vendored module: it holds only the requested functions, and has equal results without
Regraft."""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from pathlib import Path

import pytest

from regraft import __version__
from regraft.rewriting.vendored_source import (
    BEGINNING,
    _defined_names,
    vendor_source,
    vendored_names,
)
from regraft.rules import load_rules
from regraft.rules.kernel_signatures import OPS, exported_ops
from regraft.scanning.check import check_text
from regraft.scanning.compiled_rules import compile_rules

ALL = (
    "conv_batch_norm",
    "dropout_add_layer_norm",
    "is_gelu",
    "linear_batch_norm",
    "linear_gelu",
    "linear_qkv",
    "softmax",
)

# Runs beside a vendored module that must do without Regraft, and prints what it computes.
PROGRAM = """
import sys
BLOCK
import torch
from torch import nn
from MODULE import conv_batch_norm, dropout_add_layer_norm, is_gelu, linear_batch_norm, linear_gelu, softmax
torch.manual_seed(0)
x, norm, linear = torch.randn(3, 8), nn.LayerNorm(8), nn.Linear(8, 4)
norm.register_forward_hook(lambda *_: print("hook"))
torch.manual_seed(1)
print(dropout_add_layer_norm(x, x, norm, p=0.5, training=True).tolist())
print(dropout_add_layer_norm(x, x, nn.LayerNorm(8), p=0.5, training=False).tolist())
print(dropout_add_layer_norm(x, x, nn.LayerNorm(8), nn.Dropout(0.5)).tolist())
print(linear_gelu(x, linear, nn.GELU()).tolist())
print(linear_gelu(x, linear).tolist(), linear_gelu(x, linear, approximate="tanh").tolist(), softmax(x).tolist())
print([is_gelu(one) for one in (nn.GELU(), nn.GELU("tanh"), nn.functional.gelu, nn.ReLU())])
conv, transposed = nn.Conv1d(8, 4, 1), nn.ConvTranspose1d(4, 4, 2)
first, second = nn.BatchNorm1d(4).eval(), nn.BatchNorm1d(4)
with torch.no_grad():
    print(conv_batch_norm(conv_batch_norm(torch.randn(2, 8, 30), conv, first), transposed, first).tolist())
    print(linear_batch_norm(torch.randn(9, 8), linear, first).tolist(), linear_batch_norm(x, linear, second).tolist())
model = lambda x: linear_gelu(x, linear) if is_gelu(nn.functional.gelu) else x
print(torch.compile(model, fullgraph=True, backend="eager")(x).tolist())
"""  # noqa: E501


def names(text: str) -> set[str]:
    """Return the names of a module's functions."""
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.slow
def test_it_computes_the_same_without_regraft(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "regraft_ops.py").write_text(vendor_source(ALL))
    printed = []
    for module, block in (("regraft_ops", 'sys.modules["regraft"] = None'), ("regraft.ops", "")):
        code = PROGRAM.replace("MODULE", module).replace("BLOCK", block)
        run = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        printed.append(run.stdout)
    assert printed[0] == printed[1]
    assert printed[0].startswith("hook\n")
    assert "[True, False, True, False]" in printed[0]


@pytest.mark.parametrize("name", ALL)
def test_each_op_alone_is_complete(name: str) -> None:
    pytest.importorskip("torch")
    namespace: dict[str, object] = {"__name__": "regraft_ops"}
    exec(compile(vendor_source([name]), "regraft_ops.py", "exec"), namespace)
    assert callable(namespace[name])
    tree = ast.parse(vendor_source([name]))
    used = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    local = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    local |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    assert used - local <= {*namespace, *vars(builtins)}


def test_only_what_is_asked_for() -> None:
    assert names(vendor_source(["softmax"])) == {
        "softmax",
        "softmax_reference",
        "softmax_implementation",
        "is_plain",
        "is_hooked",
        "is_defined_in",
    }
    assert names(vendor_source(["is_gelu"])) == {
        "is_gelu",
        "is_plain",
        "is_hooked",
        "is_defined_in",
        "_called_attribute",
        "_calls_its_attribute",
        "_is_overridden",
        "_shape",
        "_stays_constant",
    }
    both = vendor_source(["linear_gelu", "dropout_add_layer_norm"])
    assert names(both) >= {"linear_gelu", "is_gelu", "dropout_add_layer_norm"}
    assert "import inspect" not in vendor_source(["softmax", "dropout_add_layer_norm"])
    assert both.count("def is_plain(") == both.count("import functools") == 1
    assert vendor_source(ALL) == vendor_source(ALL[::-1]) == vendor_source((*ALL, "softmax"))


def test_header_and_imports() -> None:
    text = vendor_source(ALL)
    assert text.startswith(BEGINNING)
    assert f"Regraft {__version__} (Apache-2.0)" in text
    modules = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name) or ""
        for node in ast.parse(text).body
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert not any(module.startswith("regraft") for module in modules)
    assert {module.partition(".")[0] for module in modules} - set(sys.stdlib_module_names) == {
        "torch"
    }
    assert ast.get_docstring(ast.parse(text))


def test_a_vendored_module_has_no_findings() -> None:
    rules, _ = compile_rules(load_rules(["*/*"])[0])
    text = vendor_source(sorted(exported_ops()))
    assert check_text("regraft_ops.py", text.encode(), rules).findings == ()
    other = text.replace(BEGINNING, '"""Operations of ')
    assert check_text("model.py", other.encode(), rules).findings


def test_an_unknown_op() -> None:
    with pytest.raises(KeyError, match="no op is called soft_max"):
        vendor_source(["softmax", "soft_max"])


def test_the_files_of_the_ops_share_no_names() -> None:
    """Merging them into one file would otherwise mix them up."""
    owners: dict[str, list[str]] = {}
    for path in OPS.glob("*.py"):
        for node in ast.parse(path.read_bytes()).body if path.name != "__init__.py" else ():
            for name in _defined_names(node):
                owners.setdefault(name, []).append(path.name)
    assert [name for name, files in owners.items() if len(files) > 1] == []


@pytest.mark.slow
def test_a_vendored_module_defines_all_that_it_uses() -> None:
    for name in sorted(exported_ops()):
        tree = ast.parse(vendor_source([name]))
        bound = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
                bound.add(node.name or "")
            elif isinstance(node, ast.Import | ast.ImportFrom):
                bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        read = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        assert read - bound - {*dir(builtins)} == set(), name


def test_names_of_a_model_and_of_a_vendored_module() -> None:
    model = b"from regraft_ops import softmax, is_gelu as g\nimport torch\n"
    assert vendored_names(model) == ("is_gelu", "softmax")
    assert vendored_names(b"from .regraft_ops import linear_gelu\n") == ("linear_gelu",)
    assert vendored_names(vendor_source(["linear_gelu"]).encode()) == ("is_gelu", "linear_gelu")
    assert vendored_names(b"from somewhere import softmax\n") == ()
