"""Test models that ask for groups of processes and for a CUDA device, where there is neither."""

from pathlib import Path

import pytest

from regraft.verification import verify

torch = pytest.importorskip("torch")

GROUPS = """
import torch

_GROUP = None


def get_model_parallel_group():
    assert _GROUP is not None, "model parallel group is not initialized"
    return _GROUP


def initialize_model_parallel(size):
    global _GROUP
    _GROUP = torch.distributed.new_group(list(range(size)))
"""

SOURCE = """
import torch
from torch import nn

import groups


class Divided(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        parts = torch.distributed.get_world_size(groups.get_model_parallel_group())
        self.weight = nn.Parameter(torch.randn(width // parts, width))

    def forward(self, x):
        y = x @ self.weight.t()
        torch.distributed.all_reduce(y.detach(), group=groups.get_model_parallel_group())
        return torch.relu(y)
"""

CACHED = """
import torch
from torch import nn


class Cached(nn.Module):
    def __init__(self, width: int = 8):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.cache = torch.zeros(16, width).cuda()

    def forward(self, x):
        return torch.relu(self.layer(x) + self.cache[: x.shape[1]])
"""


@pytest.mark.parametrize(
    ("after", "status"),
    [("return y.relu()", "proved"), ("return torch.relu(y) + 1e-2", "refuted")],
)
def test_layers_of_a_group_run_in_one_process(tmp_path: Path, after: str, status: str) -> None:
    (tmp_path / "groups.py").write_text(GROUPS)
    path = tmp_path / "layers.py"
    path.write_text(SOURCE)
    changed = SOURCE.replace("return torch.relu(y)", after).encode()
    (outcome,) = verify(path, changed, by_rules=True)
    assert outcome.status == status, outcome.reason
    assert "process groups of one process" in str(outcome.evidence["domain"])


def test_changes_by_hand_need_more_than_a_group_of_one(tmp_path: Path) -> None:
    (tmp_path / "groups.py").write_text(GROUPS)
    path = tmp_path / "layers.py"
    path.write_text(SOURCE)
    reduction = next(line for line in SOURCE.splitlines(True) if "all_reduce" in line)
    (outcome,) = verify(path, SOURCE.replace(reduction, "").encode())
    assert outcome.status == "unproven"


@pytest.mark.skipif(torch.cuda.is_available(), reason="the tensors move to the CUDA device")
@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ("torch.relu(", "torch.nn.functional.relu(", "proved"),
        ("torch.relu(", "torch.tanh(", "refuted"),
        ("self.layer(x)", "self.layer(x).cuda()", "unproven"),
        ("torch.zeros(16, width).cuda()", "torch.zeros(16, width)", "unproven"),
    ],
)
def test_tensors_stay_on_the_cpu_where_both_versions_move_them(
    tmp_path: Path, before: str, after: str, status: str
) -> None:
    path = tmp_path / "model.py"
    path.write_text(CACHED)
    (outcome,) = verify(path, CACHED.replace(before, after).encode(), by_rules=True)
    assert outcome.status == status, outcome.reason
    kept = "tensors stay on the CPU" in str(outcome.evidence["domain"])
    assert kept == (status != "unproven")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the tensors move to the CUDA device")
def test_changes_by_hand_run_on_the_device_that_they_name(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(CACHED)
    (outcome,) = verify(path, CACHED.replace("torch.relu(", "torch.nn.functional.relu(").encode())
    assert outcome.status == "unproven"
