"""Test that training with padding has the losses and gradients of the original models."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import regraft  # noqa: E402


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the kernels whatever the size of the inputs."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")


def gradients(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Return the loss and the gradients of a training step by name."""
    model.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    parameters = {
        name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None
    }
    return {"loss": loss.detach(), **parameters}


def assert_equal_training(model: Any, batch: dict[str, Any]) -> None:
    """Assert that optimizing a model changes neither its loss nor its gradients."""
    before = gradients(model, batch)
    report = regraft.optimize(model, select=["torch/attention"], verify=False)
    assert any("attention" in rule for rule in report.rules), str(report)
    after = gradients(model, batch)
    assert before.keys() == after.keys()
    for name, value in before.items():
        torch.testing.assert_close(
            after[name], value, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_a_language_model_with_left_padding() -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=99,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation="eager",
    )
    model = transformers.LlamaForCausalLM(config)
    ids = torch.randint(0, 99, (4, 64))
    mask = torch.ones_like(ids)
    for row, padding in enumerate((0, 7, 31, 60)):
        mask[row, :padding] = 0
    labels = ids.masked_fill(mask == 0, -100)
    assert_equal_training(model, {"input_ids": ids, "attention_mask": mask, "labels": labels})


@pytest.mark.slow
def test_a_choice_of_padding_only() -> None:
    torch.manual_seed(0)
    config = transformers.RobertaConfig(
        vocab_size=99,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=40,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    model = transformers.RobertaForMultipleChoice(config)
    ids = torch.randint(3, 99, (2, 3, 16))
    ids[1, 2] = config.pad_token_id
    mask = (ids != config.pad_token_id).long()
    assert_equal_training(
        model, {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([0, 1])}
    )
