"""Test hand-made rewrites of real modeling files: right ones are proved, wrong ones refuted."""

import time
from pathlib import Path
from typing import Any

import pytest

from regraft.verification import verify

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
MODELS = Path(transformers.__file__).parent / "models"


def source(model: Any) -> Any:
    """Return the path of a model's file; skip the test without it."""
    path = MODELS / model / f"modeling_{model}.py"
    if not path.exists():
        pytest.skip(f"{path.name} is not part of this transformers")
    return path


def run(path: Any, *replacements: Any) -> Any:
    """Return the verdicts on replaced texts; skip the test if a text is not there."""
    text = path.read_text(encoding="utf-8")
    for definition, old, new in replacements:
        start = text.index(f"\n{definition}") + 1
        end = text.find("\n\n\n", start)
        body = text[start:end]
        if old not in body:
            pytest.skip(f"{definition} of this transformers is written in another way")
        text = text[:start] + body.replace(old, new) + text[end:]
    started = time.monotonic()
    verdicts = {v.definition: v for v in verify(path, text.encode(), time_limit=120)}
    assert time.monotonic() - started < 150
    return verdicts


NORM = "self.LayerNorm(hidden_states + input_tensor)"
FUNCTIONAL = (
    "nn.functional.layer_norm(input_tensor + hidden_states, self.LayerNorm.normalized_shape,"
    " self.LayerNorm.weight, self.LayerNorm.bias, {eps})"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the test's own directory the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_bert_equal_rewrites() -> None:
    activation = "hidden_states = self.intermediate_act_fn(hidden_states)"
    versioned = (
        "if isinstance(self.intermediate_act_fn, type(ACT2FN['gelu'])):\n"
        "            hidden_states = self.intermediate_act_fn(hidden_states.contiguous())\n"
        "        else:\n"
        f"            {activation}"
    )
    verdicts = run(
        source("bert"),
        ("class BertSelfOutput", NORM, "self.LayerNorm(input_tensor + hidden_states)"),
        ("class BertIntermediate", activation, versioned),
        (
            "def eager_attention_forward",
            "    attn_output = torch.matmul(attn_weights, value)",
            "    attn_output = attn_weights @ value",
        ),
    )
    assert {name: (v.status, v.reason) for name, v in verdicts.items()} == dict.fromkeys(
        verdicts, ("proved", "")
    )
    assert len(verdicts) == 3


@pytest.mark.slow
def test_bert_wrong_rewrites() -> None:
    verdicts = run(
        source("bert"),
        ("class BertSelfOutput", NORM, FUNCTIONAL.format(eps="1e-5")),
        ("class BertOutput", NORM, "self.LayerNorm(hidden_states)"),
        ("class BertPooler", "hidden_states[:, 0]", "hidden_states[:, -1]"),
        ("def eager_attention_forward", "dim=-1", "dim=-2"),
    )
    assert {name: v.status for name, v in verdicts.items()} == dict.fromkeys(verdicts, "refuted")
    assert len(verdicts) == 4


@pytest.mark.slow
def test_llama_equal_rewrites() -> None:
    verdicts = run(
        source("llama"),
        (
            "class LlamaRMSNorm",
            "self.weight * hidden_states.to(input_dtype)",
            "hidden_states.to(input_dtype) * self.weight",
        ),
        (
            "class LlamaMLP",
            "self.act_fn(self.gate_proj(x)) * self.up_proj(x)",
            "self.up_proj(x) * self.act_fn(self.gate_proj(x))",
        ),
        ("def rotate_half", "torch.cat((-x2, x1), dim=-1)", "torch.cat((x2.neg(), x1), -1)"),
    )
    assert {name: (v.status, v.reason) for name, v in verdicts.items()} == dict.fromkeys(
        verdicts, ("proved", "")
    )
    assert len(verdicts) == 3


@pytest.mark.slow
def test_llama_wrong_rewrites() -> None:
    verdicts = run(
        source("llama"),
        ("class LlamaRMSNorm", "+ self.variance_epsilon", "+ 1e-5"),
        (
            "class LlamaMLP",
            "self.act_fn(self.gate_proj(x)) * self.up_proj(x)",
            "self.gate_proj(x) * self.act_fn(self.up_proj(x))",
        ),
        ("def rotate_half", "torch.cat((-x2, x1), dim=-1)", "torch.cat((x2, -x1), dim=-1)"),
    )
    assert {name: v.status for name, v in verdicts.items()} == dict.fromkeys(verdicts, "refuted")
    assert len(verdicts) == 3


RELATIVES = """import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel


class NotThere(BaseException):
    pass


class ToyConfig(PretrainedConfig):
    model_type = "toy"

    def __init__(self, vocab_size=99, hidden_size=32, swapped=False, codes="none", **kwargs):
        self.vocab_size, self.hidden_size, self.swapped, self.codes = vocab_size, hidden_size, swapped, codes
        super().__init__(**kwargs)


class Mlp(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.up, self.down = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Plain(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.mlp = Mlp(size)

    def forward(self, x):
        return x + self.mlp(x)


class Swapped(Plain):
    def forward(self, x):
        return self.mlp(x) - x


class Codes(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.mlp = Mlp(size)

    def encode(self, x):
        return self.mlp(x).round()


class ToyModel(PreTrainedModel):
    config_class = ToyConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layer = (Swapped if config.swapped else Plain)(config.hidden_size)
        self.codes = Codes(config.hidden_size)
        self.post_init()

    def forward(self, input_ids, pixel_values=None):
        if pixel_values is not None:
            raise NotThere("the library that reads images is missing")
        x = self.layer(self.embed(input_ids))
        return x + self.codes.encode(x)
"""  # noqa: E501


@pytest.mark.slow
def test_relatives_behind_a_flag_and_those_that_are_never_called_are_run(tmp_path: Path) -> None:
    path = tmp_path / "modeling_toy.py"
    path.write_text(RELATIVES)
    (verdict,) = verify(
        path,
        RELATIVES.replace("torch.relu(self.up(x))", "self.up(x).relu()").encode(),
        time_limit=100,
    )
    assert (verdict.definition, verdict.status, verdict.reason) == ("Mlp", "proved", "")
    wrong = RELATIVES.replace("torch.relu(self.up(x))", "self.up(x).relu() * 1.001")
    (verdict,) = verify(path, wrong.encode(), time_limit=100)
    assert verdict.status == "refuted"


@pytest.mark.slow
def test_a_function_that_a_variation_of_the_model_calls_is_compared_at_length() -> None:
    verdicts = run(
        source("vit_mae"),
        (
            "def eager_attention_forward",
            "attn_weights + attention_mask",
            "attn_weights + attention_mask.masked_fill("
            'attention_mask <= torch.finfo(attention_mask.dtype).min, float("-inf"))',
        ),
    )
    verdict = verdicts["eager_attention_forward"]
    assert verdict.status == "refuted" and "mask: left padding" in verdict.reason
