"""Test that a model of transformers on eager attention is also measured with PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn  # noqa: E402

from regraft.benchmarking import Options, as_text, bench, calls_of  # noqa: E402
from regraft.rules import load_rules  # noqa: E402
from regraft.scanning import compile_rules  # noqa: E402

NAME = "attn_implementation='sdpa'"


def llama(attention: str) -> Any:
    """Return a small Llama with this attention."""
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=64,
        use_cache=False,
    )
    config._attn_implementation = attention
    return transformers.LlamaForCausalLM(config)


def measured(model: Any, inputs: Any, packs: tuple[str, ...] = ("adopter/softmax",)) -> Any:
    """Return the result of a benchmark without proof."""
    rules, problems = compile_rules(load_rules(packs, ())[0])
    assert not problems
    return bench(model, calls_of(inputs), rules, Options(rounds=6, verify=False))


@pytest.mark.slow
def test_eager_attention_is_also_measured_as_sdpa() -> None:
    model = llama("eager")
    inputs = {"input_ids": torch.randint(64, (2, 16))}
    result = measured(model, inputs)
    rows = {row.name: row for row in result.rows}
    assert NAME in rows and rows[NAME].rules == () and rows[NAME].differs == ""
    assert (note := result.notes[0]).endswith("for which no Regraft is needed") and NAME in note
    assert model.config._attn_implementation == "eager"
    lines = list(as_text(result, Options(rounds=6), lambda text, **_: text))
    assert note in lines and any(line.startswith(NAME) for line in lines)
    with_rules = [row for row in result.rows if row.name.endswith(f" + {NAME}")]
    assert all(row.rules for row in with_rules)


@pytest.mark.slow
@pytest.mark.parametrize("model", [llama("sdpa"), nn.Linear(16, 4)])
def test_other_models_have_no_such_row(model: Any) -> None:
    inputs = (
        torch.randn(3, 16)
        if isinstance(model, nn.Linear)
        else {"input_ids": torch.randint(64, (2, 16))}
    )
    result = measured(model, inputs)
    assert not any(NAME in row.name for row in result.rows) and not result.notes
