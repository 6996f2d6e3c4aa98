"""Test attention that computes no weights against a layer that does."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from regraft.ops import REFERENCES, attention_without_weights, implementation  # noqa: E402

NAME = "attention_without_weights"
ROWS, KEYS, ENTRIES, HEADS, WIDTH = 3, 17, 2, 4, 8
CAUSAL = torch.ones(ROWS, KEYS, dtype=torch.bool).triu(1)
PADDED = torch.arange(KEYS) >= torch.tensor([[16], [15]])
PER_HEAD = torch.rand(ENTRIES * HEADS, ROWS, KEYS, generator=torch.Generator().manual_seed(0)) > 0.7
PER_HEAD[..., 0] = False
EVERY_KEY = torch.ones(ENTRIES, KEYS, dtype=torch.bool)
LOWEST = torch.finfo(torch.float32).min


def as_bias(mask: Any) -> Any:
    """Return what a boolean mask adds to scores."""
    return torch.zeros(mask.shape).masked_fill(mask, -math.inf)


MASKS: dict[str, Mapping[str, Any]] = {
    "none": {},
    "padding": {"key_padding_mask": PADDED},
    "causal": {"attn_mask": CAUSAL},
    "the hint": {"attn_mask": CAUSAL, "is_causal": True},
    "a wrong hint": {"attn_mask": ~CAUSAL.fliplr(), "is_causal": True},
    "both": {"attn_mask": CAUSAL, "key_padding_mask": PADDED},
    "each head": {"attn_mask": PER_HEAD},
    "each head, padded": {"attn_mask": PER_HEAD, "key_padding_mask": PADDED},
    "numbers": {"attn_mask": torch.linspace(-2, 2, ROWS * KEYS).reshape(ROWS, KEYS)},
    "infinities": {"attn_mask": as_bias(CAUSAL), "key_padding_mask": as_bias(PADDED)},
}
# masks that leave a query without keys, or may do so
WITHOUT_KEYS: dict[str, Mapping[str, Any]] = {
    "padding": {"key_padding_mask": EVERY_KEY},
    "a row": {"attn_mask": CAUSAL | torch.tensor([[True], [False], [False]])},
    "a row of a head": {
        "attn_mask": PER_HEAD | (torch.arange(ENTRIES * HEADS) == 3)[:, None, None]
    },
    "a row by both": {
        "attn_mask": (torch.arange(KEYS) < 16).expand(ROWS, KEYS),
        "key_padding_mask": PADDED,
    },
    "infinities": {"attn_mask": as_bias(torch.ones(ROWS, KEYS, dtype=torch.bool))},
    "the lowest number": {"attn_mask": torch.full((ROWS, KEYS), LOWEST)},
    "not a number": {"attn_mask": torch.full((ROWS, KEYS), math.nan)},
    "infinity": {"attn_mask": torch.full((ROWS, KEYS), math.inf)},
}


@pytest.fixture(autouse=True)
def forced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run kernels for small tensors, too, on the same numbers in every test."""
    monkeypatch.setenv("REGRAFT_KERNELS", "always")
    torch.manual_seed(0)


def inputs(layer: Any, dtype: Any = torch.float32) -> tuple[Any, Any, Any]:
    """Return a query, a key and a value that fit a layer."""
    shapes = ((ROWS, WIDTH), (KEYS, layer.kdim), (KEYS, layer.vdim))
    tensors = [torch.randn(ENTRIES, *shape, dtype=dtype) for shape in shapes]
    tensors = tensors if layer.batch_first else [each.transpose(0, 1) for each in tensors]
    query, key, value = (each.contiguous().requires_grad_() for each in tensors)
    return query, key, value


def compare(layer: Any, tensors: tuple[Any, Any, Any], masks: Mapping[str, Any]) -> None:
    """Assert equal outputs and gradients of the op and its reference."""
    outputs = [op(*tensors, layer, **masks)[0] for op in (attention_without_weights, layer_call)]
    torch.testing.assert_close(*outputs, equal_nan=True)
    leaves = [*tensors, *layer.parameters()]
    slopes = [torch.autograd.grad(output.square().sum(), leaves) for output in outputs]
    for ours, theirs in zip(*slopes, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def layer_call(query: Any, key: Any, value: Any, layer: Any, **masks: Any) -> Any:
    """Return what the model's own call gives."""
    return layer(query, key, value, **masks)


@pytest.mark.parametrize("options", ["", "batch_first", "add_bias_kv", "add_zero_attn", "sizes"])
@pytest.mark.parametrize("masks", MASKS)
def test_output_without_weights(masks: str, options: str) -> None:
    sizes = {"kdim": 6, "vdim": 7} if options == "sizes" else {options: True} if options else {}
    layer = nn.MultiheadAttention(WIDTH, HEADS, **sizes)
    tensors = inputs(layer)
    assert implementation(NAME, *tensors, layer, **MASKS[masks]) == "torch-native"
    assert attention_without_weights(*tensors, layer, **MASKS[masks])[1] is None
    compare(layer, tensors, MASKS[masks])


@pytest.mark.parametrize("is_batched", [True, False])
@pytest.mark.parametrize("masks", MASKS)
def test_attention_to_itself_in_inference(masks: str, is_batched: bool) -> None:
    """The layer has a kernel of its own for this."""
    layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    x = torch.randn(ENTRIES, KEYS, WIDTH) if is_batched else torch.randn(KEYS, WIDTH)
    given = dict(MASKS[masks])
    if "attn_mask" in given:  # as many queries as keys
        given["attn_mask"] = given["attn_mask"][..., torch.arange(KEYS) % ROWS, :]
    if not is_batched:
        given = {name: unbatched(mask) for name, mask in given.items()}
    with torch.no_grad():
        assert implementation(NAME, x, x, x, layer, **given) == "torch-native"
        ours, theirs = (op(x, x, x, layer, **given)[0] for op in OPS)
    torch.testing.assert_close(ours, theirs)


OPS = (attention_without_weights, layer_call)


def unbatched(mask: Any) -> Any:
    """Return the part of a mask for the first entry of a batch."""
    if mask is True:
        return mask
    return mask[0] if mask.shape == PADDED.shape else mask[:HEADS] if mask.dim() == 3 else mask


@pytest.mark.parametrize("masks", WITHOUT_KEYS)
def test_queries_without_keys(masks: str) -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    tensors = inputs(layer)
    assert implementation(NAME, *tensors, layer, **WITHOUT_KEYS[masks]) == "reference"
    compare(layer, tensors, WITHOUT_KEYS[masks])


def test_lowest_numbers_in_inference() -> None:
    layer, masks = nn.MultiheadAttention(WIDTH, HEADS), WITHOUT_KEYS["the lowest number"]
    with torch.no_grad():
        tensors = inputs(layer)
        assert implementation(NAME, *tensors, layer, **masks) == "torch-native"
        torch.testing.assert_close(*(op(*tensors, layer, **masks)[0] for op in OPS))


def test_dropout() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.5)
    tensors = inputs(layer)
    assert implementation(NAME, *tensors, layer) == "reference"
    results = []
    for op in OPS:
        torch.manual_seed(1)
        results.append(op(*tensors, layer)[0])
    assert torch.equal(*results)
    assert implementation(NAME, *tensors, layer.eval()) == "torch-native"


def test_calls_that_are_left_to_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    tensors = inputs(layer)
    assert implementation(NAME, *tensors, layer) == "torch-native"
    for dtype in (torch.bfloat16, torch.float16):
        halves = inputs(layer, dtype)
        assert implementation(NAME, *halves, layer.to(dtype)) == "reference"
        torch.testing.assert_close(*(op(*halves, layer)[0] for op in OPS))
    layer.float()
    with torch.autocast("cpu"):
        assert implementation(NAME, *tensors, layer) == "reference"
    learned = torch.zeros(ROWS, KEYS, requires_grad=True)
    assert implementation(NAME, *tensors, layer, attn_mask=learned) == "reference"
    no_keys = (tensors[0], tensors[1][:0], tensors[2][:0])
    assert implementation(NAME, *no_keys, layer) == "reference"
    torch.testing.assert_close(*(op(*no_keys, layer)[0] for op in OPS))
    subclass = type("Own", (nn.MultiheadAttention,), {})(WIDTH, HEADS)
    assert implementation(NAME, *tensors, subclass) == "reference"
    seen: list[Any] = []
    layer.register_forward_hook(lambda module, inputs, result: seen.append(result[1]))
    attention_without_weights(*tensors, layer)
    assert seen[0].shape == (ENTRIES, ROWS, KEYS)
    plain, x = nn.MultiheadAttention(WIDTH, HEADS), torch.randn(256, 1, WIDTH)
    monkeypatch.delenv("REGRAFT_KERNELS")
    assert implementation(NAME, *tensors, plain) == "reference"  # few scores
    assert implementation(NAME, x, x, x, plain) == "torch-native"


@pytest.mark.parametrize("keys", [1, 2, 5, 15, 16, 17, 31, 33])
@pytest.mark.parametrize("place", range(3))
def test_numbers_that_are_not_finite(place: int, keys: int) -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    for number in (math.nan, math.inf):
        shapes = ((ROWS, ENTRIES, WIDTH), (keys, ENTRIES, WIDTH), (keys, ENTRIES, WIDTH))
        query, key, value = tensors = [torch.randn(shape) for shape in shapes]
        tensors[place][0, 0, 0] = number
        for masks in ({}, MASKS["both"]) if keys == KEYS else ({},):
            ours, theirs = (op(query, key, value, layer, **masks)[0] for op in OPS)
            torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_transformations_of_functions() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS).eval()
    x, tangent = torch.randn(KEYS, ENTRIES, WIDTH), torch.randn(KEYS, ENTRIES, WIDTH)

    def attend(x: Any) -> Any:
        assert implementation(NAME, x, x, x, layer) == "reference"
        return attention_without_weights(x, x, x, layer)[0]

    _, ours = torch.func.jvp(attend, (x,), (tangent,))
    _, theirs = torch.func.jvp(lambda x: layer(x, x, x)[0], (x,), (tangent,))
    torch.testing.assert_close(ours, theirs)
    many = torch.randn(3, KEYS, ENTRIES, WIDTH)
    torch.testing.assert_close(
        torch.func.vmap(attend)(many), torch.stack([layer(x, x, x)[0] for x in many])
    )


def test_errors_of_the_layer() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    tensors = inputs(layer)
    for masks, error in (
        ({"is_causal": True}, RuntimeError),
        ({"attn_mask": CAUSAL[:2]}, RuntimeError),
        ({"attn_mask": CAUSAL.int()}, AssertionError),
        ({"key_padding_mask": PADDED[:1]}, AssertionError),
        ({"attn_mask": CAUSAL.double()}, RuntimeError),
    ):
        messages = []
        for op in (attention_without_weights, layer_call):
            with pytest.raises(error) as raised:
                op(*tensors, layer, **masks)
            messages.append(str(raised.value))
        assert messages[0] == messages[1]


def test_nested_tensors() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    parts = [torch.randn(length, WIDTH) for length in (18, 20)]
    x = torch.nested.nested_tensor(parts)
    with torch.no_grad():
        assert implementation(NAME, x, x, x, layer) == "reference"
        ours = attention_without_weights(x, x, x, layer)[0]
        for part, result in zip(parts, ours.unbind(), strict=True):
            torch.testing.assert_close(result, layer(part, part, part)[0])


def test_the_reference_gives_the_weights() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    weights = REFERENCES[NAME](*inputs(layer), layer, attn_mask=CAUSAL)[1]
    assert weights.shape == (ENTRIES, ROWS, KEYS)


def test_tensors_without_elements_in_memory() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS, device="meta")
    x = torch.empty(KEYS, ENTRIES, WIDTH, device="meta")
    output, _ = attention_without_weights(x, x, x, layer)
    assert output.shape == x.shape


@pytest.mark.parametrize(
    "name", ["softmax", "multi_head_attention_forward", "scaled_dot_product_attention"]
)
def test_functions_that_somebody_replaces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    x = torch.randn(KEYS, ENTRIES, WIDTH)
    assert implementation(NAME, x, x, x, layer) == "torch-native"
    original = getattr(torch.nn.functional, name)

    @functools.wraps(original)
    def watched(*args: Any, **options: Any) -> Any:
        return original(*args, **options)

    monkeypatch.setattr(torch.nn.functional, name, watched)
    assert implementation(NAME, x, x, x, layer) == "reference"


def test_kernels_that_are_forbidden() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    x = torch.randn(KEYS, ENTRIES, WIDTH)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        attention_without_weights(x, x, x, layer)


def test_masks_of_numbers_that_change_before_the_backward_pass() -> None:
    layer = nn.MultiheadAttention(WIDTH, HEADS)
    x = torch.randn(KEYS, ENTRIES, WIDTH, requires_grad=True)
    slopes = []
    for op in (attention_without_weights, layer_call):
        mask = torch.zeros(KEYS, KEYS)
        output = op(x, x, x, layer, attn_mask=mask)[0]
        mask.fill_(1.0)
        slopes.append(torch.autograd.grad(output.square().sum(), x))
    torch.testing.assert_close(*slopes)
