"""Test that the printed structure parses back, and that paths are the feasible ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import body_of
from regraft.dsl import parse_fragment, print_fragment, print_node
from regraft.source.text import SourceFile, read
from regraft.structure import Module
from regraft.structure.show import body_nodes, layer_nodes, paths

# A pre-activation residual unit whose batch norms stand under a flag (after the paper's Figure 3).
UNIT = """
from torch import nn

class Unit(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.use_norm = config.use_norm
        self.act1 = nn.ReLU()
        self.conv1 = nn.Conv2d(config.dim, config.dim, kernel_size=3, padding=1, bias=not self.use_norm)
        self.act2 = nn.ReLU()
        self.conv2 = nn.Conv2d(config.dim, config.dim, kernel_size=3, padding=1, bias=not self.use_norm)
        if self.use_norm:
            self.norm1 = nn.BatchNorm2d(config.dim)
            self.norm2 = nn.BatchNorm2d(config.dim)

    def forward(self, x):
        residual = x
        x = self.conv1(self.act1(x))
        if self.use_norm:
            x = self.norm1(x)
        x = self.conv2(self.act2(x))
        if self.use_norm:
            x = self.norm2(x)
        return x + residual
"""  # noqa: E501


def test_paths_of_the_residual_unit_are_two_not_four() -> None:
    _, body = body_of(UNIT)
    unit_paths = paths(body)
    assert unit_paths is not None
    kinds = [
        [print_node(node).split("(")[0].split(".")[-1] for node in path.nodes]
        for path in unit_paths
    ]
    assert kinds == [
        ["ReLU", "Conv2d", "BatchNorm2d", "ReLU", "Conv2d", "BatchNorm2d", kinds[0][-1]],
        ["ReLU", "Conv2d", "ReLU", "Conv2d", kinds[1][-1]],
    ]
    assert [path.condition for path in unit_paths] == ["self.use_norm", "not self.use_norm"]


def test_layers_print_with_their_guards() -> None:
    structure, body = body_of(UNIT)
    text = print_fragment(layer_nodes(structure, body))
    assert "@torch.nn.BatchNorm2d(num_features=config.dim) -> self.norm1 if self.use_norm" in text


@pytest.mark.slow
def test_structures_of_real_files_parse_back(transformers: Path) -> None:
    checked = 0
    for model in ("bert", "llama", "t5", "dpt", "mamba", "wav2vec2", "mixtral"):
        source = read(transformers / "models" / model / f"modeling_{model}.py")
        assert isinstance(source, SourceFile)
        for structure in Module(source).structures():
            fragments = [layer_nodes(structure)]
            for body in structure.bodies:
                fragments.append(body_nodes(body))
                fragments += [path.nodes for path in (paths(body) or ())[:2]]
            for fragment in fragments:
                assert parse_fragment(print_fragment(fragment)) == fragment
                checked += len(fragment)
    assert checked > 1000
