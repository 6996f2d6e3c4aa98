"""Test models that a function of their file builds, and flags that only the modules themselves
hold."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from regraft.source.object_reference import load_source
from regraft.verification import verify

pytest.importorskip("torch")

from torch import nn

from regraft.verification.child.drivers import (
    calls_in_file,
    class_instances,
    guessed_instances,
    model_builders,
    module_flags,
)
from regraft.verification.child.drivers.class_instances import Failure
from regraft.verification.child.evidence_record import Ledger

SOURCE = """
import torch
from torch import nn


class Quick:
    here = True


class Stages(nn.Module):
    def __init__(self, plan, head=None):
        super().__init__()
        (first, second), activation = plan
        self.first, self.second = nn.Conv2d(3, first, 3), nn.Linear(first, second)
        self.act, self.fused = activation(), Quick.here

    def train(self, mode=True):
        super().train(mode)

    def forward(self, x):
        y = self.second(self.first(x).mean((2, 3)))
        if self.fused:
            return self.act(y)
        y = self.act(y)
        return torch.softmax(y, -1)


def _plan():
    return (6, 4), nn.GELU


def stages(pretrained=False, **kwargs) -> Stages:
    return Stages(_plan(), **kwargs)


def other(size, **kwargs) -> Stages:
    return Stages((size, size), **kwargs)
"""


DRIVER = """
import torch


def build_stages(module):
    return module.stages(), [torch.randn(2, 3, 8, 8)]
"""


@pytest.mark.slow
@pytest.mark.parametrize("driver", [None, "driver.py:build_stages"])
@pytest.mark.parametrize(
    ("text", "status"), [("y.softmax(-1)", "proved"), ("torch.softmax(y, 0)", "refuted")]
)
def test_what_a_function_builds_is_compared_with_its_flags_turned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, status: str, driver: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "stages.py"
    path.write_text(SOURCE)
    (tmp_path / "driver.py").write_text(DRIVER)
    changed = SOURCE.replace("torch.softmax(y, -1)", text).encode()
    verdicts = verify(path, changed, driver=driver, time_limit=60)
    assert [(verdict.definition, verdict.status) for verdict in verdicts] == [("Stages", status)]
    if status == "refuted":
        reproducer = verdicts[0].evidence["reproducer"]
        assert isinstance(reproducer, str)
        run = subprocess.run(
            [sys.executable, reproducer],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 1 and "Traceback" not in run.stderr, run.stderr
    else:
        models = verdicts[0].evidence["models"]
        assert isinstance(models, list)
        assert any("self.fused=False" in label for label in models)


def loaded(folder: Path, text: str) -> ModuleType:
    """Return the module of a text."""
    (folder / "loaded.py").write_text(text)
    return load_source(folder / "loaded.py", "loaded")


def test_functions_that_need_nothing_and_return_a_model_tell_what_it_is_given(
    tmp_path: Path,
) -> None:
    text = """
from torch import nn
from typing import Optional

class Net(nn.Module):
    def __init__(self, width, act=nn.ReLU, depth=(2, 2), *more, **kwargs):
        raise RuntimeError("is not built")

class Wide(Net):
    def __init__(self, width):
        raise RuntimeError("is not built")

def small(**kwargs) -> "Net":
    return Net(**{"width": 48, "extra": 1, **kwargs})

def assigned(width=64):
    try:
        net = Net(width)
    except Exception:
        net = None
    return net

def wide() -> Net:
    return Wide(8)

def failing() -> Net:
    raise ValueError("no file")

def needing(width) -> Net:
    return Net(width)

def _made(variant, cls, **kwargs):
    return cls(**kwargs)

def _create(variant, **kwargs):
    return _made(variant, Net, **kwargs)

def helped(**kwargs):
    return _create("helped", **{"width": 24, **kwargs})

def count() -> int:
    return Net(3)

def download():
    raise SystemExit("was called")
"""
    builders_by_name = {
        builder.name: builder
        for builder in model_builders.builders(loaded(tmp_path, text), Ledger(tmp_path, (), 0.0))
    }
    assert set(builders_by_name) == {"small", "assigned", "wide", "helped"}
    assert builders_by_name["helped"].values["width"] == 24
    assert (
        builders_by_name["small"].values == {"width": 48, "depth": (2, 2), "extra": 1}
        and builders_by_name["small"].takes is None
    )
    assert builders_by_name["small"].overrides({"width": 8, "depth": (2, 2), "extra": 1}) == {
        "width": 8
    }
    assert builders_by_name["assigned"].overrides({"width": 8, "depth": (1,)}) == {"width": 8}
    assert (
        builders_by_name["wide"].cls.__name__ == "Wide"
        and builders_by_name["wide"].overrides({"width": 4}) == {}
    )


def test_only_truths_that_the_text_reads_are_turned(tmp_path: Path) -> None:
    module = loaded(tmp_path, SOURCE)
    model = module.stages()
    vars(model).update(unread=True, many=3)
    text = "if self.fused and self.many and self.training:"
    assert list(module_flags.inverted_flags(model, module, module, text)) == [("self.fused", False)]
    assert (
        module_flags.with_flags(lambda namespace: namespace.stages(), {"self.fused": False})(
            module
        ).fused
        is False
    )


def test_flags_that_the_changed_version_lacks_are_not_turned(tmp_path: Path) -> None:
    text = "FAST = True\n\n\nclass Layer:\n    fused = True\n"
    original = loaded(tmp_path, text)
    model = nn.Identity()
    reads = "if FAST and Layer.fused:"

    def flags(changed_text: str) -> list[tuple[str, bool]]:
        changed = loaded(tmp_path, changed_text)
        return list(module_flags.inverted_flags(model, original, changed, reads))

    assert sorted(flags(text)) == [("FAST", False), ("Layer.fused", False)]
    assert flags("class Layer:\n    fused = True\n") == [("Layer.fused", False)]
    assert flags("FAST = True\n") == [("FAST", False)]


PLANNED = """
import torch
from torch import nn


class Whole(nn.Module):
    def __init__(self, plan, base_width=64):
        super().__init__()
        assert base_width == 64, "no other base width"
        self.layers = nn.Sequential(*(nn.Linear(a, b) for a, b in plan))

    def forward(self, x):
        return self.layers(x) * 2


class Steps(nn.Module):
    def __init__(self, plan, num_heads=None):
        super().__init__()
        assert 8 % num_heads == 0
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in plan)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return torch.softmax(x, -1)


def whole(**kwargs) -> Whole:
    return Whole([(8, 4), (4, 6)], **kwargs)
"""


@pytest.mark.slow
def test_lists_of_one_class_are_tried_for_others_and_what_is_unset_gets_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(PLANNED)
    changed = PLANNED.replace("torch.softmax(x, -1)", "x.softmax(-1)").replace(
        "self.layers(x) * 2", "2 * self.layers(x)"
    )
    verdicts = {
        verdict.definition: verdict for verdict in verify(path, changed.encode(), time_limit=100)
    }
    assert {name: verdict.reason for name, verdict in verdicts.items()} == {
        "Whole": "",
        "Steps": "",
    }


def test_a_parameter_that_an_error_names_is_left_to_the_function() -> None:
    values = {"base_width": 8, "depth": 2}
    unbuilt = class_instances.not_built_message(values)
    assert (
        guessed_instances._blamed_parameter(
            f"{unbuilt}AssertionError: BasicBlock has no other base width", values
        )
        == "base_width"
    )
    assert (
        guessed_instances._blamed_parameter(
            f"{unbuilt}TypeError: got multiple values for argument 'depth'", values
        )
        == "depth"
    )
    assert guessed_instances._blamed_parameter(f"{unbuilt}ValueError: depths differ", values) == ""


def test_the_smallest_of_the_values_that_fail_alike_is_searched_first() -> None:
    """A deeper model runs more operations before the same error."""

    def failed(operations: int, text: str) -> tuple[Failure, Any]:
        """Return a failure of a class that was built, with a guess."""
        return Failure(True, "", operations, ValueError(text)), object()

    small, deep = failed(10, "expected 4, got 3"), failed(30, "expected 4, got 3")
    other, further = failed(20, "wanted width 32"), failed(20, "wanted width 64")
    unbuilt: tuple[Failure, Any] = (Failure(False, "", 99, ValueError("depths differ")), object())
    ordered = guessed_instances.furthest_first([unbuilt, small, other, deep, further])
    assert ordered == [other, further, small, deep, unbuilt]


CHOOSING = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, activation=None, norm=None):
        super().__init__()
        self.projection, self.act = nn.Linear(dim, dim), activation()
        self.norm = norm() if norm is not None else nn.Identity()

    def forward(self, x):
        return self.act(torch.softmax(self.projection(self.norm(x)), -1) - 0.1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "status"),
    [("self.projection(self.norm(x)).softmax(-1)", "proved"), ("self.norm(x)", "refuted")],
)
def test_a_class_of_activations_is_given_where_the_constructor_makes_one(
    text: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(CHOOSING)
    changed = CHOOSING.replace("torch.softmax(self.projection(self.norm(x)), -1)", text)
    (verdict,) = verify(path, changed.encode(), time_limit=100)
    assert (verdict.status, verdict.reason if status == "proved" else "") == (status, "")


STATED = """
import torch
from torch import nn


def widths():
    return [16, 32]


class Plain(nn.Module):
    factor = 1

    def __init__(self, planes):
        super().__init__()
        self.linear = nn.Linear(planes, planes)

    def forward(self, x):
        return torch.softmax(self.linear(x), -1) + x


class Double(Plain):
    factor = 2


class Net(nn.Module):
    def __init__(self, block, depth, block_planes):
        super().__init__()
        self.blocks = nn.Sequential(*[block(block_planes[0]) for _ in range(depth)])
        self.head = nn.Linear(block_planes[0], block_planes[1] * block.factor)

    def forward(self, x):
        return torch.softmax(self.head(self.blocks(x)), -1)


def build(kind, **options):
    return Net(Double if kind else Plain, 2, widths(), **options)


def build_plain(kind):
    if kind == 1:
        return Net(Plain, 2, widths())
    return Net(Double, depth=kind, block_planes=widths())
"""


def test_arguments_that_a_file_gives_its_classes_are_read(tmp_path: Path) -> None:
    module = loaded(tmp_path, STATED)
    stated = [*calls_in_file.stated_arguments(module.Net, module, STATED)]
    assert stated == [
        {"block": module.Plain, "depth": 2, "block_planes": [16, 32]},
        {"block": module.Double, "block_planes": [16, 32]},
    ]
    assert [*calls_in_file.stated_arguments(module.Plain, module, STATED)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "status"),
    [("self.head(self.blocks(x)).softmax(-1)", "proved"), ("self.blocks(x)", "refuted")],
)
def test_a_class_of_blocks_is_given_where_the_file_gives_it(
    text: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(STATED)
    changed = STATED.replace("torch.softmax(self.head(self.blocks(x)), -1)", text)
    (verdict,) = verify(path, changed.encode(), time_limit=100, by_rules=True)
    assert (verdict.status, verdict.reason if status == "proved" else "") == (status, "")
    if status == "proved":
        assert "block=Plain" in str(verdict.evidence["models"])
