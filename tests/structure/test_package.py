"""Test that base classes and functions of other files of the package are followed without importing
them."""

from __future__ import annotations

from pathlib import Path

import pytest

from regraft.rules import load_rules
from regraft.scanning import check_file, compile_rules, rewrite_file
from regraft.source.text import SourceFile, read
from regraft.structure.module_structures import Module

RULES, _ = compile_rules(load_rules(["adopter"])[0])
LAYERS = """\
import torch
from torch import nn
from .low import inner

LAST = -1


def soft(x, dim):
    return inner(x, dim)


def last(x):
    return torch.softmax(x, LAST)


def by(act):
    return act


class Base(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.dropout = nn.Dropout(0.1)
        self.norm = nn.LayerNorm(d)
"""
LOW = "import torch\n\n\ndef inner(x, dim):\n    return torch.softmax(x, dim)\n"
MODEL = """\
import torch
from torch import nn
from .. import Base
from ..layers import soft, last
import pk.layers as other


class Model(Base):
    def __init__(self, d):
        super().__init__(d)
        self.dense = nn.Linear(d, d)

    def forward(self, x, y):
        x = self.dense(x)
        x = self.dropout(x)
        x = self.norm(x + y)
        x = soft(x, -1)
        x = other.soft(x, dim=-1)
        return last(x)
"""
EXPECTED_RULES = ["dropout-layernorm", "softmax", "softmax"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return the root of a small package."""
    root = tmp_path / "pk"
    (root / "sub").mkdir(parents=True)
    files = {
        "__init__": "from .layers import *\n",
        "layers": LAYERS,
        "low": LOW,
        "sub/__init__": "",
        "sub/m": MODEL,
    }
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)
    return root


def rules(path: Path) -> list[str]:
    """Return the names of the rules that rewrite a file."""
    report = check_file(path, RULES)
    assert report.errors == ()
    return [finding.rule.syntax.name for finding in report.findings if finding.patch is not None]


def test_inherited_layers_and_imported_functions(package: Path) -> None:
    report = check_file(package / "sub" / "m.py", RULES)
    changed, _ = rewrite_file(report, RULES)
    body = changed.decode().partition("self.dense(x)\n")[2].replace("    ", "")
    assert (
        body == "x = dropout_add_layer_norm(x, y, self.norm, self.dropout)\nx = softmax(x)\nx ="
        " softmax(x)\nreturn last(x)\n"
    )
    assert [finding.lines for finding in report.findings] == [
        (15, 16),
        (17,),
        (18,),
    ]  # of this file only
    assert rules(package / "layers.py") == []  # LAST may be another number


def test_neighbours_without_a_package(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(LAYERS.replace("from .low", "from low"))
    (tmp_path / "low.py").write_text(LOW)
    model = MODEL.replace("from .. import", "from layers import").replace(
        "from ..layers", "from layers"
    )
    (tmp_path / "m.py").write_text(
        model.replace("import pk.layers as other", "import layers as other")
    )
    assert rules(tmp_path / "m.py") == EXPECTED_RULES


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("layers.py", "def soft(:\n"),
        ("layers.py", "from .sub.m import Model as Base, soft, last\n"),  # round in a circle
        ("__init__.py", "from . import Base\n"),
        ("low.py", "\0"),
    ],
)
def test_what_cannot_be_followed_stays_unknown(package: Path, name: str, text: str) -> None:
    (package / name).write_text(text)
    assert set(rules(package / "sub" / "m.py")) < set(EXPECTED_RULES)


def test_a_missing_file_stays_unknown(package: Path) -> None:
    (package / "layers.py").unlink()
    assert rules(package / "sub" / "m.py") == []


@pytest.mark.parametrize(
    "code",
    [
        "\n    def rebuild(self):\n        self.norm = None\n",
        "\n    def late(self, name, layer):\n        setattr(self, name, layer)\n",
        "\n    norm = property(lambda self: print())\n",
    ],
)
def test_what_a_base_class_does_to_its_layers_counts(package: Path, code: str) -> None:
    (package / "layers.py").write_text(LAYERS + code)
    source = read(package / "sub" / "m.py")
    assert isinstance(source, SourceFile)
    module = Module(source)
    layers = module.layers(module.classes["Model"])
    assert {layer.type for layer in layers["self.norm"]} == {"torch.nn.LayerNorm", ""}
    assert {layer.type for layer in layers["self.dense"]} == {"torch.nn.Linear"}


def test_a_subclass_of_a_class_with_its_own_name(package: Path) -> None:
    (package / "sub" / "m.py").write_text(
        MODEL.replace("import Base", "import Base as B").replace(
            "class Model(Base)", "class Base(B)"
        )
    )
    assert rules(package / "sub" / "m.py") == EXPECTED_RULES


PASSED = """\
from pk.apply import applied


def model(x, scale):
    def inner(x):
        if x.requires_grad:
            return x
        return torch.softmax(x * scale, -1)
    return applied(inner, x, 2)


def here(x, scale):
    def inner(x):
        return torch.softmax(x * scale, -1)
    return inner(x)
"""


def test_a_local_function_that_another_file_calls_is_not_followed(package: Path) -> None:
    (package / "apply.py").write_text("def applied(fn, x, scale):\n    return fn(x)\n")
    path = package / "uses.py"
    path.write_text("import torch\n" + "\n" * 60 + PASSED)
    source = read(path)
    assert isinstance(source, SourceFile)
    bodies = {structure.name: structure.bodies[0] for structure in Module(source).structures()}
    assert [node.op for node in bodies["model"].nodes if node.op in ("softmax", "call")] == ["call"]
    assert [node.op for node in bodies["here"].nodes if node.op in ("softmax", "call")] == [
        "softmax"
    ]


FACTORIES = """\
from functools import partial

from torch import nn
from .low import Same


def create_conv(channels, same=False, groups=1):
    if same:
        made = Same(channels, channels, 3)
    else:
        made = pad(channels, groups)
    return made


def pad(channels, groups):
    if groups > channels:
        raise ValueError
    return nn.Conv2d(channels, channels, 3, groups=groups)


def activated(norm, act):
    return norm if act is None else partial(norm, act=act)


def again(channels):
    return again(channels - 1) if channels else Same(channels)
"""
FOLDED = ["conv-batchnorm"]
CONVOLVED = """\
from torch import nn
from ..factories import activated, again, create_conv


class Block(nn.Module):
    def __init__(self, channels, norm_layer=nn.BatchNorm2d, act_layer=nn.ReLU, **factory):
        super().__init__()
        norm_act_layer = activated(norm_layer, act_layer)
        self.conv = create_conv(channels, **factory)
        self.bn = norm_act_layer(channels)

    def forward(self, x):
        x = self.conv(x)
        return self.bn(x)
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", FOLDED),
        ("self.conv = create_conv(channels, **factory)", "self.conv = again(channels)", []),
        ("activated(norm_layer, act_layer)", "activated(act_layer, norm_layer)", []),
        ("norm_layer=nn.BatchNorm2d", "norm_layer=nn.GroupNorm", []),
        ("return self.bn(x)", "return self.bn(x) + x", []),
        (
            "activated(norm_layer, act_layer)",
            "activated(nn.GroupNorm, None) if channels else norm_layer",
            FOLDED,
        ),
    ],
)
def test_layers_that_functions_of_other_files_choose(
    package: Path, old: str, new: str, expected: list[str]
) -> None:
    (package / "factories.py").write_text(FACTORIES)
    (package / "sub" / "m.py").write_text(CONVOLVED.replace(old, new))
    assert rules(package / "sub" / "m.py") == expected
    (package / "sub" / "m.py").write_text(
        CONVOLVED.replace(old, new).replace("from ..factories", "from elsewhere")
    )
    assert rules(package / "sub" / "m.py") == []
