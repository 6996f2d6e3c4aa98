"""Test the search for configurations: of models that cannot be built, fields that are needed
together, lengths."""

from pathlib import Path
from typing import Any

import pytest

from regraft.verification import verify

pytest.importorskip("torch")
pytest.importorskip("transformers")

CONFIG = """
import torch
from torch import nn


class TinyConfig:
    def __init__(self, hidden_size=64, table=None, expert=False, scored=False, block_size=64):
        self.hidden_size, self.table, self.expert, self.scored = hidden_size, table or {"rows": 5}, expert, scored
        self.block_size = block_size

    def to_dict(self):
        return dict(vars(self))

    @classmethod
    def from_dict(cls, values):
        READ
        return cls(**{name: values[name] for name in ("hidden_size", "table", "expert", "scored", "block_size")})
"""  # noqa: E501

UNBUILT = """

class Mixer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(config.hidden_size, config.table["rows"])

    def forward(self, states):
        return torch.softmax(self.linear(states), -1)


class Whole(nn.Module):
    config_class = TinyConfig

    def __init__(self, config):
        super().__init__()
        raise ImportError("it needs another package")

    def forward(self, input_ids):
        return input_ids
"""

WHOLE_MODEL = """\
class Whole(nn.Module):
    config_class = TinyConfig

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.words = nn.Embedding(99, config.hidden_size)
"""

TOGETHER = f"""

def scores(states):
    return torch.softmax(states, -1)


{WHOLE_MODEL}
    def forward(self, input_ids):
        states, found = self.words(input_ids), None
        if self.config.expert:
            found = states.flip(-1)
        if self.config.scored and found is not None:
            states = states + scores(found)
        return states
"""

IN_BLOCKS = f"""

class Mixer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.block_size = config.block_size

    def forward(self, states):
        if states.shape[1] <= 5 * self.block_size:
            return states
        blocks = states.unflatten(1, (-1, self.block_size))
        return torch.softmax(blocks, -1).flatten(1, 2)


{WHOLE_MODEL}        self.mixer = Mixer(config)

    def forward(self, input_ids):
        return self.mixer(self.words(input_ids))
"""


def judged(source: Any, read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the verdicts on a changed softmax by definition."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "modeling_tiny.py"
    text = CONFIG.replace("READ", read) + source
    path.write_text(text)
    changed = text.replace("torch.softmax(", "nn.functional.softmax(")
    return {
        verdict.definition: verdict for verdict in verify(path, changed.encode(), time_limit=100)
    }


@pytest.mark.parametrize("read", ["pass", "raise ValueError('no smaller one holds')"])
def test_parts_of_a_model_that_cannot_be_built_take_its_configuration(
    read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = judged(UNBUILT, read, tmp_path, monkeypatch)["Mixer"]
    assert (
        "lines executed" in verdict.evidence["levels"]
        and "inference" in verdict.evidence["drivers"]
    )


def test_two_fields_are_changed_together_where_each_alone_reaches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = judged(TOGETHER, "pass", tmp_path, monkeypatch)["scores"]
    assert verdict.evidence["models"] == ["Whole"], verdict.reason


@pytest.mark.slow
def test_inputs_of_several_blocks_where_the_length_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = judged(IN_BLOCKS, "pass", tmp_path, monkeypatch)["Mixer"]
    assert (verdict.status, verdict.reason) == ("proved", "")
