"""Hand-made rewrites of real modeling files: right ones are proved, wrong ones refuted."""

import time
from pathlib import Path

import pytest

from regraft.verify import verify

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
MODELS = Path(transformers.__file__).parent / "models"


def source(model):
    path = MODELS / model / f"modeling_{model}.py"
    if not path.exists():
        pytest.skip(f"{path.name} is not part of this transformers")
    return path


def run(path, *replacements):
    text = path.read_text(encoding="utf-8")
    for definition, old, new in replacements:
        start = text.index(f"\n{definition}") + 1
        end = text.find("\n\n\n", start)
        body = text[start:end]
        if old not in body:
            pytest.skip(f"{definition} of this transformers is written in another way")
        text = text[:start] + body.replace(old, new) + text[end:]
    started = time.monotonic()
    found = {v.definition: v for v in verify(path, text.encode(), time_limit=120)}
    assert time.monotonic() - started < 60
    return found


NORM = "self.LayerNorm(hidden_states + input_tensor)"
FUNCTIONAL = (
    "nn.functional.layer_norm(input_tensor + hidden_states, self.LayerNorm.normalized_shape, self.LayerNorm.weight, "
    "self.LayerNorm.bias, {eps})"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_bert_equal_rewrites():
    activation = "hidden_states = self.intermediate_act_fn(hidden_states)"
    versioned = (
        "if isinstance(self.intermediate_act_fn, type(ACT2FN['gelu'])):\n"
        "            hidden_states = self.intermediate_act_fn(hidden_states.contiguous())\n"
        "        else:\n"
        f"            {activation}"
    )
    found = run(
        source("bert"),
        ("class BertSelfOutput", NORM, "self.LayerNorm(input_tensor + hidden_states)"),
        ("class BertIntermediate", activation, versioned),
        (
            "def eager_attention_forward",
            "    attn_output = torch.matmul(attn_weights, value)",
            "    attn_output = attn_weights @ value",
        ),
    )
    assert {name: (v.status, v.reason) for name, v in found.items()} == dict.fromkeys(found, ("proved", ""))
    assert len(found) == 3


def test_bert_wrong_rewrites():
    found = run(
        source("bert"),
        ("class BertSelfOutput", NORM, FUNCTIONAL.format(eps="1e-5")),
        ("class BertOutput", NORM, "self.LayerNorm(hidden_states)"),
        ("class BertPooler", "hidden_states[:, 0]", "hidden_states[:, -1]"),
        ("def eager_attention_forward", "dim=-1", "dim=-2"),
    )
    assert {name: v.status for name, v in found.items()} == dict.fromkeys(found, "refuted")
    assert len(found) == 4


def test_llama_equal_rewrites():
    found = run(
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
    assert {name: (v.status, v.reason) for name, v in found.items()} == dict.fromkeys(found, ("proved", ""))
    assert len(found) == 3


def test_llama_wrong_rewrites():
    found = run(
        source("llama"),
        ("class LlamaRMSNorm", "+ self.variance_epsilon", "+ 1e-5"),
        (
            "class LlamaMLP",
            "self.act_fn(self.gate_proj(x)) * self.up_proj(x)",
            "self.gate_proj(x) * self.act_fn(self.up_proj(x))",
        ),
        ("def rotate_half", "torch.cat((-x2, x1), dim=-1)", "torch.cat((x2, -x1), dim=-1)"),
    )
    assert {name: v.status for name, v in found.items()} == dict.fromkeys(found, "refuted")
    assert len(found) == 3
