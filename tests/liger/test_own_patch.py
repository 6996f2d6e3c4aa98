"""Test Liger's own patch of a model as a variant of `regraft bench`: the original stays
unpatched."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("liger_kernel")
transformers = pytest.importorskip("transformers")
if os.environ.get("TRITON_INTERPRET") != "1" and not torch.cuda.is_available():
    pytest.skip("Liger's kernels need a GPU or TRITON_INTERPRET=1", allow_module_level=True)

from transformers.models.llama import modeling_llama  # noqa: E402

from regraft.benchmarking import BenchError, Options, bench  # noqa: E402
from regraft.benchmarking.liger_patch import liger_patched  # noqa: E402
from regraft.rules import load_rules  # noqa: E402
from regraft.scanning import compile_rules  # noqa: E402

TOKENS = torch.randint(0, 64, (1, 5), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model() -> Any:  # type: ignore[no-untyped-def]
    """Return a small Llama."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(config).eval()


def test_it_only_holds_while_the_patched_copy_runs(model: Any) -> None:  # type: ignore[no-untyped-def]
    before, rotary = model(TOKENS).logits, modeling_llama.apply_rotary_pos_emb
    patched = liger_patched(copy.deepcopy(model))
    assert patched is not None and "apply_rotary_pos_emb" in [
        name for _, name, _, _ in patched.changes
    ]
    with patched.apply_changes():
        assert modeling_llama.apply_rotary_pos_emb is not rotary
    assert modeling_llama.apply_rotary_pos_emb is rotary
    with torch.no_grad():
        torch.testing.assert_close(patched(TOKENS).logits, before)
    assert modeling_llama.apply_rotary_pos_emb is rotary
    assert torch.equal(model(TOKENS).logits, before)


def test_rows_of_a_benchmark(model: Any) -> None:  # type: ignore[no-untyped-def]
    rules, _ = compile_rules(load_rules(["adopter/softmax"])[0])
    how = Options(rounds=6, liger=True, verify=False)
    result = bench(model, [((), {"input_ids": TOKENS})], rules, how)
    assert [(row.name, row.against, row.rules) for row in result.rows] == [
        ("adopter/softmax", "original", ("adopter/softmax",)),
        ("Liger's own patch", "original", ()),
        ("adopter/softmax", "Liger's own patch", ("adopter/softmax",)),
    ]


def test_a_model_that_liger_does_not_patch() -> None:
    how = Options(rounds=6, liger=True, verify=False)
    result = bench(torch.nn.Linear(2, 2), [((torch.ones(2),), {})], (), how)
    assert "Liger has no patch for models of this type" in result.left[-1]


def test_without_a_gpu_or_the_interpreter(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(BenchError, match="run on CUDA, and this model is on cpu"):
        liger_patched(model)
