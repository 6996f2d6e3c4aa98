"""Test configurations of any kind: which parameters hold them, where their values come from, and
models that are built from them."""

import argparse
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from regraft.source.object_reference import load_source
from regraft.verification import verify

pytest.importorskip("torch")

from torch import nn

from regraft.verification.child import call_arguments
from regraft.verification.child.drivers import (
    config_reads,
    config_shrinking,
    config_sources,
    configuration_objects,
    constructor_guesses,
    values_in_repository,
)

SOURCE = """
import torch
from dataclasses import dataclass
from torch import nn


@dataclass
class NetArgs:
    width: int
    n_heads: int = 6
    n_layers: int = 5
    vocab_size: int = 5000
    ratio: float = 2.0
    bias: bool = False

    def __post_init__(self):
        self.inner = int(self.ratio * self.width)


class Layer(nn.Module):
    def __init__(self, args: NetArgs):
        super().__init__()
        assert args.width % args.n_heads == 0
        self.args = args
        self.up = nn.Linear(args.width, args.inner, bias=args.bias)
        self.down = nn.Linear(args.inner, args.width, bias=args.bias)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, params: NetArgs):
        super().__init__()
        self.table = nn.Embedding(params.vocab_size, params.width)
        self.layers = nn.ModuleList([Layer(params) for _ in range(params.n_layers)])

    def forward(self, tokens):
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x)
        return x
"""


def loaded(folder: Path, text: str, name: str = "loaded") -> ModuleType:
    """Return the module of a text."""
    (folder / f"{name}.py").write_text(text)
    return load_source(folder / f"{name}.py", name)


def first_guess(folder: Path, text: str, name: str) -> dict[str, Any]:
    """Return the first values with which a class of a text can be built."""
    module = loaded(folder, text)
    for guess in constructor_guesses.guesses(getattr(module, name), module, text, (), {}):
        try:
            getattr(module, name)(**guess.values)
        except (AttributeError, TypeError, ValueError, AssertionError):
            continue
        return guess.values
    raise AssertionError("no guess builds it")


TUPLES = """\
from typing import Tuple

import torch.nn as nn


class Windows(nn.Module):
    def __init__(self, dim: int, kernel_size: tuple[int, int, int], feat_size: Tuple[int, int]):
        super().__init__()
        _, height, _ = kernel_size
        self.conv = nn.Conv3d(dim, height * feat_size[1], kernel_size)
"""


def test_a_tuple_of_integers_gets_as_many_as_its_annotation_says(tmp_path: Path) -> None:
    values = first_guess(tmp_path, TUPLES, "Windows")
    assert (len(values["kernel_size"]), len(values["feat_size"])) == (3, 2)
    assert type(values["dim"]) is int


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "status"),
    [("torch.nn.functional.relu(self.up(x))", "proved"), ("torch.abs(self.up(x))", "refuted")],
)
def test_classes_that_take_a_dataclass_are_compared_in_the_model_around_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, status: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    changed = SOURCE.replace("torch.relu(self.up(x))", text)
    verdicts = verify(path, changed.encode(), time_limit=300)
    assert [(v.definition, v.status, v.reason) for v in verdicts if status == "proved"] == [
        ("Layer", "proved", "") for _ in verdicts if status == "proved"
    ]
    if status == "refuted":
        assert verdicts[0].status == "refuted"
        run = subprocess.run(
            [sys.executable, str(verdicts[0].evidence["reproducer"])],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 1 and "Traceback" not in run.stderr, run.stderr
    else:
        assert "Net()" in verdicts[0].evidence["models"]  # type: ignore[operator]


def test_required_fields_come_from_the_repository_or_are_guessed(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("```python\nargs = NetArgs(width=96, n_layers=3)\n```\n")
    small = first_guess(tmp_path, SOURCE, "Layer")["args"]
    assert (small.width % small.n_heads, small.inner) == (0, 2 * small.width)
    module = loaded(tmp_path, SOURCE, "second")
    parameter = constructor_guesses._constructor_parameters(module.Layer)[0]
    config = next(
        config_sources.own_configs(parameter, module.Layer, module, tmp_path / "second.py")
    )
    assert (config.width, config.n_layers, config.n_heads) == (96, 3, 6)


def test_configurations_come_from_variables_of_the_file(tmp_path: Path) -> None:
    text = """
import torch
from torch import nn

class Settings:
    def __init__(self, **fields):
        vars(self).update(fields)

    def __getitem__(self, name):
        return vars(self)[name]

    def to_dict(self):
        return {
            name: value.to_dict() if isinstance(value, Settings) else value
            for name, value in vars(self).items()
        }

namespaces = torch.ops
PRESETS = {
    "other": Settings(depth=3),
    "large": Settings(hidden_size=768, inner=Settings(num_heads=12, mlp_dim=3072)),
}

class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.hidden_size % config.inner["num_heads"] == 0
        self.linear = nn.Linear(config.hidden_size, config.inner["mlp_dim"])
"""
    config = first_guess(tmp_path, text, "Layer")["config"]
    assert type(config).__name__ == "Settings"
    assert config.hidden_size <= 64
    assert config.hidden_size % config.inner["num_heads"] == 0
    assert config.inner["num_heads"] < 12 and config.inner["mlp_dim"] < 3072


@pytest.mark.parametrize("name", ["cfg", "args", "hparams", "opt", "c"])
def test_any_name_whose_attributes_a_constructor_reads_holds_a_configuration(
    tmp_path: Path, name: str
) -> None:
    text = f"""
from torch import nn

class Layer(nn.Module):
    def __init__(self, {name}):
        super().__init__()
        self.one = nn.Linear({name}.n_embd, {name}.hidden_dim)

class Net(nn.Module):
    def __init__(self, {name}, norm):
        super().__init__()
        self.layer = Layer({name})
        self.width = norm.weight.shape[0]
"""
    values = first_guess(tmp_path, text, "Layer")
    assert isinstance(values[name], SimpleNamespace)
    module = loaded(tmp_path, text, "second")
    parameters = constructor_guesses._constructor_parameters(module.Net)
    assert config_sources.config_parameters(parameters, module, text, module.Net) == [name]


def test_modules_of_which_attributes_are_read_are_no_configurations() -> None:
    text = """
class Wrapper(nn.Module):
    def __init__(self, layer, base: nn.Linear, encoder, rank):
        super().__init__()
        self.layer, self.base, self.encoder = layer, base, encoder
        self.down = nn.Linear(layer.in_features, layer.out_features)
        self.up = nn.Linear(base.in_features, base.out_features)
        self.size = encoder.width + encoder.table.weight.shape[0]

    def forward(self, x):
        return self.layer(x)
"""
    assert config_reads.config_names(text) == {"config"}


def test_options_of_a_parser_in_the_repository_give_an_invented_configuration(
    tmp_path: Path,
) -> None:
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "train.py").write_text(
        "import argparse, sys\nsys.exit(3)\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--kernels', '-k', default=[5, 5], nargs='+')\n"
        "parser.add_argument('--n-units', type=int, default=40)\n"
        "parser.add_argument('--gated', action='store_true')\n"
    )
    text = """
from torch import nn
class Net(nn.Module):
    def __init__(self, args):
        super().__init__()
        first, second = args.kernels
        self.layer = nn.Conv1d(args.n_units, args.inner.width, first + second, bias=args.gated)
"""
    values = first_guess(tmp_path, text, "Net")["args"]
    assert (values.kernels, values.gated) == ([5, 5], False)
    assert isinstance(values.inner, SimpleNamespace)


def test_arguments_of_calls_in_the_repository_build_a_class(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "demo.py").write_text(
        "raise SystemExit\nSIDE = 64\nnet = Net(SIDE, depth=(2, 3), act=unknown)\n"
    )
    text = """
from torch import nn
class Net(nn.Module):
    def __init__(self, size, depth, act=None):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(size, size) for _ in range(depth[1])])
"""
    assert first_guess(tmp_path, text, "Net")["depth"] == (2, 2)


@pytest.mark.parametrize(
    ("line", "is_configuration"),
    [
        ("self.layer = nn.Linear(configs.width, 2)", True),
        ("self.layer = nn.Linear(configs.width if configs else 8, 2)", False),
        ("self.layer = nn.Linear(8, 2) if configs is None else configs.layer", False),
        ("self.layer = nn.Linear(8, 2)", False),
    ],
)
def test_an_optional_configuration_is_given_where_nothing_tests_it(
    tmp_path: Path, line: str, is_configuration: bool
) -> None:
    text = f"""
from torch import nn
class Net(nn.Module):
    def __init__(self, size=4, configs=None):
        super().__init__()
        {line}
"""
    values = first_guess(tmp_path, text, "Net")
    assert (values["configs"] is not None) is is_configuration


@dataclass
class Wide:
    width: int = 768
    sizes: tuple[int, ...] = (768, 1536)
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.double = 2 * self.width


class PlainConfig:
    width = 768
    rate = 0.1

    def __init__(self, heads: int, **others: Any) -> None:
        self.heads = heads
        vars(self).update(others)


Pair = namedtuple("Pair", ["width", "heads"])


@pytest.mark.parametrize(
    "config",
    [
        Wide(),
        PlainConfig(12, extra=3),
        Pair(768, 12),
        SimpleNamespace(width=768),
        argparse.Namespace(width=768, inner=Wide()),
    ],
    ids=lambda config: type(config).__name__,
)
def test_configurations_of_all_kinds_are_read_changed_and_shrunk(config: Any) -> None:
    assert configuration_objects.is_config(config)
    assert configuration_objects.fields_of(config)["width"] == 768
    changed = configuration_objects.with_fields(config, {"width": 24})
    assert (changed.width, config.width, type(changed)) == (24, 768, type(config))
    small = config_sources.shrink_config(config, config_shrinking.SCALES[0])
    assert small.width == 48 and config.width == 768
    if isinstance(config, Wide):
        assert (changed.double, small.sizes) == (48, (48, 96))
    if isinstance(config, argparse.Namespace):
        assert small.inner.width == 48
    json_home, name, fields = configuration_objects.recipe_of(config)
    assert (json_home, name, fields["width"]) == (
        type(config).__module__,
        type(config).__name__,
        768,
    )


@pytest.mark.parametrize(
    ("decorator", "bases"), [("@dataclass(frozen=True)", ""), ("", "(NamedTuple)")]
)
def test_configurations_that_cannot_change_get_the_class_of_the_other_version(
    tmp_path: Path, decorator: str, bases: str
) -> None:
    text = (
        "from dataclasses import dataclass\nfrom typing import NamedTuple\n\n"
        f"{decorator}\nclass Sizes{bases}:\n    width: int = 4\n"
    )
    original, changed = loaded(tmp_path, text, "sizes"), loaded(tmp_path, text, "sizes__regraft")
    config = call_arguments.adopt_classes(original.Sizes(8), changed)
    assert isinstance(config, changed.Sizes) and config.width == 8


def test_modules_tensors_and_classes_are_no_configurations() -> None:
    values: tuple[Any, ...] = (nn.Linear(1, 1), nn.Parameter(), Wide, 1, (1, 2), {"width": 1}, None)
    assert not any(map(configuration_objects.is_config, values))


def test_texts_that_do_not_parse_state_nothing(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("")
    (tmp_path / "broken.py").write_text("Net(1")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe Net")
    (tmp_path / "net.py").write_text("class Net: pass\n")
    assert not list(values_in_repository.calls_of("Net", tmp_path / "net.py"))


def test_a_private_field_of_attrs_is_a_parameter_without_its_underscore() -> None:
    attrs = pytest.importorskip("attrs")
    config = attrs.make_class("NetArgs", {"_width": attrs.field(), "depth": attrs.field()})(4, 2)
    assert configuration_objects.fields_of(config) == {"width": 4, "depth": 2}


def test_a_parameter_that_is_multiplied_is_no_configuration() -> None:
    """Diffusion pipelines call a tensor `noise_cfg`, after classifier-free guidance."""
    text = """\
def rescale(noise_cfg, noise_text, options, amount=0.0):
    factor = noise_text.std() / noise_cfg.std()
    if noise_cfg.ndim > options.dimensions:
        return noise_cfg
    return amount * noise_cfg * factor
"""
    assert config_reads.config_names(text) == {"config", "options"}
