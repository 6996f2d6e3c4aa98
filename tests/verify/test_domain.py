"""Test changes that act outside of the first inputs: sizes, values, masks, modes, fields,
caches."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verdicts import verdict_on

from regraft.verification import verify

torch = pytest.importorskip("torch")

from regraft.verification.child.call_arguments import Call  # noqa: E402
from regraft.verification.child.call_outcomes import Target  # noqa: E402
from regraft.verification.child.checks import comparison_domain, fitting_values  # noqa: E402
from regraft.verification.child.checks.code_constants import Constants  # noqa: E402
from regraft.verification.child.checks.mask_variants import PATTERNS, masked_calls  # noqa: E402
from regraft.verification.child.checks.optional_values import optional_value_calls  # noqa: E402
from regraft.verification.child.checks.size_variants import BATCH, LONG, resized_calls  # noqa: E402
from regraft.verification.child.checks.value_variants import UNDEFINED, valued_calls  # noqa: E402
from regraft.verification.child.torch_modes import MODES  # noqa: E402

pytestmark = pytest.mark.usefixtures("here")

NORM = """\
import torch
from torch import nn

LIMIT = 96


class Norm(nn.Module):
    def __init__(self, dim=16, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * scale * self.weight
"""
RETURN = "return x * scale * self.weight"
WRONG = {
    "a long input": f"{RETURN} * (1 - 0.1 * (x.shape[1] > LIMIT))",
    "a batch of more than 16": f"{RETURN} * (1 - 0.1 * (x.shape[0] > 16))",
    "a length that is long": f"{RETURN} * (1 + max(0, x.shape[1] - 250))",
    "automatic mixed precision": f"{RETURN} * (1 + 0.1 * torch.is_autocast_enabled('cpu'))",
    "inference mode": f"{RETURN} * (1 + 0.1 * torch.is_inference_mode_enabled())",
    "a frozen weight": f"{RETURN} * (1 + 0.1 * (not self.weight.requires_grad))",
    "float64": f"{RETURN} * (1 + 0.1 * (x.dtype == torch.float64))",
    "float64 through float32": "return (x * scale * self.weight).float().to(x.dtype)",
    "NaN": "return torch.nan_to_num(x * scale * self.weight)",
    "large values": "return x.clamp(-5e4, 5e4) * scale * self.weight",
}
RIGHT = {
    "another order": "return self.weight * (x * scale)",
    "a condition without effect": (
        f"{RETURN} * 2 / (2 + (x.shape[1] > LIMIT) - (x.shape[1] > LIMIT))"
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_change_that_acts_under_other_conditions_is_refuted(case: str, tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, NORM, RETURN, WRONG[case])
    assert verdict.status == "refuted", verdict


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_change_is_proved_and_names_its_domain(case: str, tmp_path: Path) -> None:
    verdict = verdict_on(tmp_path, NORM, RETURN, RIGHT[case])
    assert verdict.status == "proved", verdict
    domain: Any = verdict.evidence["domain"]
    assert set(domain["modes"]) == set(MODES)
    assert {"sizes", "values"} <= domain.keys()


WINDOWS = """\
import torch
from torch import nn


def windows(x, size: tuple[int, int]):
    b, h, w, c = x.shape
    x = x.view(b, h // size[0], size[0], w // size[1], size[1], c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size[0], size[1], c)


class Windows(nn.Module):
    def __init__(self, dim=6, size=2):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, 1)
        self.size = (size, size)

    def forward(self, pixel_values: torch.Tensor):
        return windows(self.proj(pixel_values).permute(0, 2, 3, 1), self.size)
"""
ENCODINGS = """\
import torch
from torch import nn


class Encoding(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.frequencies = nn.Buffer(1 / 10 ** torch.arange(dim))

    def forward(self, x):
        return (x[..., None] * self.frequencies).sin()


class Encodings(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Encoding(), Encoding()

    def forward(self, x: torch.Tensor):
        return torch.cat([self.first(x[..., :2]), self.second(x[..., 2:])], -1)
"""


@pytest.mark.parametrize(
    ("text", "before", "after", "words"),
    [
        pytest.param(
            WINDOWS,
            "h // size[0], size[0]",
            "h // size[1], size[1]",
            "size=(1, 2)",
            id="unequal sizes",
        ),
        pytest.param(
            ENCODINGS,
            "self.second(",
            "self.first(",
            "",
            id="buffers that the checkpoint tells apart",
        ),
    ],
)
def test_what_is_equal_by_chance_is_made_different(
    text: str, before: str, after: str, words: str, tmp_path: Path
) -> None:
    verdict = verdict_on(tmp_path, text, before, after)
    assert verdict.status == "refuted", verdict
    assert words in verdict.reason


def test_a_file_that_replaces_what_compares_is_refuted(tmp_path: Path) -> None:
    patched = f"{RETURN} * 1.01\n\n\ntorch.equal = lambda first, second: True"
    path = tmp_path / "norm.py"
    path.write_text(NORM)
    verdicts = verify(path, NORM.replace(RETURN, patched).encode(), effort="default")
    assert all(verdict.status == "refuted" for verdict in verdicts)
    assert "replaces torch.equal" in verdicts[0].reason


def test_a_file_that_replaces_functions_when_it_runs_is_refuted(tmp_path: Path) -> None:
    after = "torch.testing.assert_close = _close\n        return x * scale * self.weight"
    text = NORM + "\n\ndef _close(*args, **kwargs):\n    return True\n"
    verdict = verdict_on(tmp_path, text, RETURN, after)
    assert (verdict.status, "replaces torch.testing.assert_close" in verdict.reason) == (
        "refuted",
        True,
    ), verdict


LLAMA = {
    "left padding": (
        "attn_weights = attn_weights + attention_mask",
        "attn_weights = attn_weights + attention_mask * (attention_mask[..., -1, :1] > -1)",
    ),
    "the second step from a cache": (
        "attn_weights = torch.matmul(query, key_states.transpose(2, 3)) * scaling",
        (
            "attn_weights = torch.matmul(query, key_states.transpose(2, 3)) * scaling\n"
            "    attn_weights = attn_weights * (1 + 0.1 * (key.shape[2] > query.shape[2] + 3))"
        ),
    ),
    "a field of the configuration": (
        "self.act_fn = ACT2FN[config.hidden_act]",
        "self.act_fn = nn.SiLU()",
    ),
    "an epsilon": ("torch.rsqrt(variance + self.variance_epsilon)", "torch.rsqrt(variance + 1e-6)"),
    "shared heads of keys": (
        "return hidden_states.reshape(batch, num_key_value_heads * n_rep, slen, head_dim)",
        (
            "return hidden_states.transpose(1, 2).reshape(batch, num_key_value_heads * n_rep, slen,"
            " head_dim)"
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", LLAMA)
def test_changes_of_a_language_model(case: str, transformers: Path, tmp_path: Path) -> None:
    path = transformers / "models" / "llama" / "modeling_llama.py"
    before, after = LLAMA[case]
    text = path.read_text("utf-8")
    assert before in text
    (verdict,) = verify(path, text.replace(before, after, 1).encode(), effort="default")
    assert verdict.status == "refuted", verdict


def test_masks_of_all_patterns_keep_their_shape_and_format() -> None:
    additive, marks = torch.zeros(2, 1, 4, 6), torch.ones(2, 6, dtype=torch.long)
    keep = torch.ones(2, 6, dtype=torch.bool)
    call = Call(
        (), {"attention_mask": additive, "mask": marks, "key_mask": keep, "x": torch.zeros(2, 6)}
    )
    calls = list(masked_calls(call, call.kwargs))
    assert len(calls) == 2 * len(PATTERNS)  # a boolean mask may say what stays or what is left out
    for changed_call in calls:
        assert torch.equal(changed_call.kwargs["x"], call.kwargs["x"])
        for name in ("attention_mask", "mask", "key_mask"):
            mask, before = changed_call.kwargs[name], call.kwargs[name]
            assert (mask.shape, mask.dtype) == (before.shape, before.dtype)
            assert (
                not torch.equal(mask, before)
                or (name == "key_mask" and "left out" not in changed_call.label) is False
            )
    full = next(
        changed_call for changed_call in calls if "a row fully masked" in changed_call.label
    )
    assert bool((full.kwargs["attention_mask"][1] == torch.finfo(torch.float32).min).all())
    assert not full.kwargs["mask"][1].any()


def test_a_batch_changes_by_itself_where_it_equals_the_channels() -> None:
    call = Call((torch.randn(3, 3, 8, 8), torch.zeros(3)), {})
    calls = list(resized_calls(call, Constants(), features=False))
    shapes = {
        changed_call.label: [tuple(tensor.shape) for tensor in changed_call.args]
        for changed_call in calls
    }
    assert shapes["3 -> 8 in the batch only"] == [(8, 3, 8, 8), (8,)]
    assert shapes["3 -> 8 in every dimension of that size"] == [(8, 8, 8, 8), (8,)]
    other = list(resized_calls(Call((torch.randn(2, 3, 8, 8),), {}), Constants(), features=False))
    assert not any(changed_call.label.endswith("batch only") for changed_call in other)


def test_sizes_change_in_every_tensor_and_number() -> None:
    call = Call((torch.randn(3, 8, 32), torch.zeros(3, 8, dtype=torch.long), 8), {})
    calls = list(resized_calls(call, Constants(sizes=(64,)), features=False))
    shapes = {tuple(changed_call.args[0].shape) for changed_call in calls}
    assert {
        (BATCH, 8, 32),
        (3, LONG, 32),
        (3, 63, 32),
        (3, 64, 32),
        (3, 65, 32),
        (65, 8, 32),
    } <= shapes
    assert all(shape[-1] == 32 for shape in shapes)
    longer = next(changed_call for changed_call in calls if changed_call.args[0].shape[1] == 65)
    assert (longer.args[1].shape[1], longer.args[2]) == (65, 65)


def test_values_lie_around_constants() -> None:
    call = Call((torch.randn(4, 8), torch.arange(8)), {})
    calls = list(valued_calls(call, Constants(sizes=(7,), values=(7.0,)), None))
    around = calls[0].args[0]
    assert all(bool((around == value).any()) for value in (6.0, 7.0, 8.0))
    integers = [set(changed_call.args[1].tolist()) for changed_call in calls]
    assert any({6, 7, 8} <= numbers for numbers in integers)
    assert any(-1 in numbers for numbers in integers)
    assert sum(changed_call.beyond == UNDEFINED for changed_call in calls) == 3
    assert (
        sum(
            changed_call.beyond == UNDEFINED
            for changed_call in valued_calls(call, Constants(), None, not_finite=())
        )
        == 0
    )


def test_tokens_that_stand_for_no_word_are_tried_among_words() -> None:
    model = SimpleNamespace(padding_idx=7, config=SimpleNamespace(eos_token_id=5, hidden_size=32))
    call = Call((torch.full((2, 8), 90), torch.ones(2, 8, dtype=torch.long)), {})
    calls = [
        changed_call
        for changed_call in valued_calls(call, Constants(), model)
        if "_id" in changed_call.label
    ]
    assert [changed_call.label for changed_call in calls] == [
        "values: padding_idx 7",
        "values: eos_token_id 5",
    ]
    assert all(
        bool((changed_call.args[0] == 90).any() and (changed_call.args[1] == 1).all())
        for changed_call in calls
    )
    assert bool((calls[0].args[0] == 7).any())
    calls = list(valued_calls(Call((torch.ones(2),), {}), Constants(), model, not_finite=()))
    assert not any("_id" in changed_call.label for changed_call in calls)


HAND_WRITTEN = """\
import math
import torch
from torch import nn


class GELU(nn.Module):
    def forward(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "status"),
    [
        ("torch.nn.functional.gelu(x)", "proved"),
        ("x * (0.5 + 0.5 * torch.erf(x / math.sqrt(2.0)))", "proved"),
        ("x.clamp(max=1e30) * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))", "refuted"),
    ],
)
def test_infinity_is_tried_except_in_a_gelu(
    after: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(HAND_WRITTEN)
    before = "x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))"
    (verdict,) = verify(tmp_path / "net.py", HAND_WRITTEN.replace(before, after).encode())
    assert verdict.status == status, verdict.reason


GATE = """\
from torch import nn


class Gate(nn.Module):
    def forward(self, x):
        return x * (x > 0.3)
"""


@pytest.mark.parametrize("limit", ["0.3", "0.5"])
def test_a_limit_is_tried_at_its_exact_value(
    limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = GATE.replace("0.3", limit)
    (tmp_path / "net.py").write_text(text)
    (verdict,) = verify(tmp_path / "net.py", text.replace(">", ">=").encode())
    assert verdict.status == "refuted", verdict.reason


def test_no_infinity_is_tried_before_a_gelu() -> None:
    """A layer may make infinity, for which PyTorch's GELU gives NaN, of minus infinity."""
    assert [name for name, _ in comparison_domain._not_finite_numbers({"gelu"}, set())] == ["NaN"]
    assert len(comparison_domain._not_finite_numbers({"softmax"}, {"exp"})) == 2
    assert len(comparison_domain._not_finite_numbers({"softmax"}, {"softmax"})) == 3


def test_an_image_may_attend_to_a_sequence() -> None:
    call = Call((torch.randn(2, 8, 4, 4),), {})
    shapes = [tuple(value.shape) for _, value in fitting_values.tensors_like(call, "context", [8])]
    assert shapes[0] == (2, 7, 8)
    assert (2, 8, 4, 4) in shapes


class Crossed(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch is untyped here
    """Turns queries and keys by positions, of which it takes both or none."""

    def __init__(self) -> None:
        super().__init__()
        self.head_dim = 4

    def forward(
        self,
        x: Any,
        places: tuple[torch.Tensor, torch.Tensor] | None = None,  # type: ignore[name-defined]
        key_places: tuple[torch.Tensor, torch.Tensor] | None = None,  # type: ignore[name-defined]
    ) -> Any:
        queries = keys = x.unflatten(-1, (2, 4))
        if places is not None:
            if key_places is None:
                raise ValueError("the positions of keys must be given")
            queries = queries * places[0].unsqueeze(2) + places[1].unsqueeze(2)
            keys = keys * key_places[0].unsqueeze(2)
        return queries @ keys.transpose(-1, -2)


def test_positions_of_queries_and_keys_are_given_together() -> None:
    call = Call((torch.randn(3, 7, 8),), {})
    model = Crossed()
    calls = list(optional_value_calls(call, Target(model)))
    given = [{**call.kwargs} for call in calls]
    assert given and all(set(kwargs) == {"places", "key_places"} for kwargs in given)
    assert given[0]["places"][0].shape == (1, 7, 4)


def test_further_features_have_a_width_that_another_layer_takes() -> None:
    layers = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(5, 8)])
    widths = fitting_values.feature_widths(layers)
    assert set(widths) == {5, 8}
    tensors = fitting_values.tensors_like(Call((torch.randn(2, 7, 8),), {}), "sounds", widths)
    assert (2, 7, 5) in [tuple(value.shape) for _, value in tensors]


class Recalls(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch is untyped here
    """Takes a memory, and a mask that only matters with it."""

    def forward(self, x: Any, memory: Any = None, memory_mask: Any = None) -> Any:
        if memory is None:
            return x
        scores = x @ memory.transpose(-1, -2)
        if memory_mask is not None:
            scores = scores + memory_mask
        return scores.softmax(-1) @ memory


def test_the_mask_of_a_memory_is_given_with_it() -> None:
    call = Call((torch.randn(3, 7, 8),), {})
    calls = list(optional_value_calls(call, Target(Recalls())))
    masked = [call for call in calls if call.kwargs.get("memory_mask") is not None]
    assert masked and all(call.kwargs["memory"] is not None for call in masked)
    assert "memory given" in masked[0].label and "memory_mask given" in masked[0].label
