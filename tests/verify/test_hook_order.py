"""Test that hooks on submodules run in the order of the original."""

from __future__ import annotations

from pathlib import Path

import pytest

from regraft.rules import load_rules
from regraft.scanning import check_file, compile_rules, rewrite_file
from regraft.verification import verify
from regraft.verification.types import ORDER

pytest.importorskip("torch")

from regraft.verification.child.call_observation import first_reordered_pair

MLP = """
from torch import nn


class Mlp(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(dim, hidden), nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.down(self.act(self.gate(x)) * self.up(x))
"""  # noqa: E501
RETURN = "return self.down(self.act(self.gate(x)) * self.up(x))"


@pytest.mark.slow
def test_a_layer_that_is_called_later_is_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mlp.py"
    path.write_text(MLP, encoding="utf-8")
    later = MLP.replace(
        RETURN, "g, u = self.gate(x), self.up(x)\n        return self.down(self.act(g) * u)"
    )
    loss = "order of hooks: hooks on 'act' run after those on 'up', in the original before them"
    (verdict,) = verify(path, later.encode())
    assert (verdict.status, verdict.evidence["losses"]) == ("proved", [loss])
    (verdict,) = verify(path, later.encode(), keep=["order"])
    assert (verdict.status, verdict.reason) == (
        "unproven",
        f"it loses what --keep asks for: {loss}",
    )


@pytest.mark.slow
def test_the_rule_of_gated_activations_keeps_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mlp.py"
    path.write_text(MLP, encoding="utf-8")
    rules, _ = compile_rules(load_rules(["liger/gated-activation"], [])[0])
    changed, applied = rewrite_file(check_file(path, rules), rules)
    assert len(applied) == 1
    (verdict,) = verify(path, changed)
    assert verdict.status == "proved", verdict
    losses = verdict.evidence["losses"]
    assert isinstance(losses, list)
    assert not [loss for loss in losses if loss.startswith(ORDER)]


def test_only_what_ran_in_both_is_ordered() -> None:
    assert first_reordered_pair(["a", "b", "c"], ["b", "c", "a"]) == ("a", "b")
    assert first_reordered_pair(["a", "b", "c"], ["c"]) is None
    assert first_reordered_pair(["a", "c"], ["a", "b", "c"]) is None
