"""Make inputs for a model from the names in its forward signature and the sizes in its configuration."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from regraft.verify.child.replay import Plan, Target, execute
from regraft.verify.child.tree import Call

SIZES = ((1, 5), (3, 8))


class _Sizes:
    """Looks sizes up in a configuration and those nested in it."""

    def __init__(self, config: Any) -> None:
        nested = [value for key, value in sorted(vars(config).items()) if key.endswith("config") and value is not None]
        self._places = [config, *nested]

    def get(self, names: tuple[str, ...], default: int) -> int:
        for place in self._places:
            for name in names:
                value = getattr(place, name, None)
                value = value[0] if isinstance(value, list | tuple) and value else value
                if isinstance(value, int) and not isinstance(value, bool):
                    return value
        return default


def find_calls(model: Any) -> Callable[[int], tuple[Call, ...]]:
    """Return the calls by seed that the model accepts: two sizes, and one with labels where that works.

    Raises ValueError with the first choice's error where the model accepts none.
    """
    accepted = _accepted(model)
    reasons = []
    for names in _choices(model, accepted):
        error = next(filter(None, (_error(model, _call(model, names, size, 0)) for size in SIZES)), None)
        if error is None:
            labels = _labels(model, names, accepted)
            return lambda seed: _calls(model, names, labels, seed)
        reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
    raise ValueError(f"no inputs could be made that it accepts: {reasons[0]}")


def _calls(model: Any, names: tuple[str, ...], labels: tuple[str, ...], seed: int) -> tuple[Call, ...]:
    made = [_call(model, names, size, seed) for size in SIZES]
    return (*made, *(_with_labels(made[-1], model, labels, seed) for _ in labels[:1]))


def extra_calls(model: Any, calls: Callable[[int], tuple[Call, ...]]) -> Iterator[Callable[[int], tuple[Call, ...]]]:
    """Yield calls that ask for more: returned attentions, hidden states, cached keys, a plain tuple."""
    accepted = [*_accepted(model), "output_attentions", "output_hidden_states", "use_cache", "return_dict"]
    for name, value in (
        ("output_attentions", True),
        ("output_hidden_states", True),
        ("use_cache", True),
        ("use_cache", False),
        ("return_dict", False),
    ):

        def more(seed: int, name: str = name, value: bool = value) -> tuple[Call, ...]:
            return tuple(Call(c.args, {**c.kwargs, name: value}, f"{c.label}, {name}={value}") for c in calls(seed))

        if name in accepted and _runs(model, more(0)[0]):
            yield more


def without_mask(calls: Callable[[int], tuple[Call, ...]]) -> Callable[[int], tuple[Call, ...]]:
    """Return the calls without their masks."""

    def bare(seed: int) -> tuple[Call, ...]:
        return tuple(
            Call(c.args, {k: v for k, v in c.kwargs.items() if "mask" not in k}, f"{c.label}, no mask")
            for c in calls(seed)
        )

    return bare


def _accepted(model: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(model.forward).parameters)


def _choices(model: Any, accepted: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    known = tuple(name for name in accepted if name in _MAKERS)
    required = tuple(n for n, p in inspect.signature(model.forward).parameters.items() if p.default is p.empty)
    required = tuple(n for n in required if n in _MAKERS)
    main = getattr(model, "main_input_name", "input_ids")
    text = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask", "token_type_ids")
    yield known
    yield tuple(n for n in known if n in text or n in required)
    yield tuple(n for n in known if n in ("pixel_values", "input_features", "input_values") or n in required)
    yield tuple(n for n in known if n in (main, "attention_mask") or n in required)
    yield tuple(n for n in known if n in (main, "decoder_input_ids") or n in required)
    yield tuple(n for n in known if n == main or n in required)


def _error(model: Any, call: Call) -> BaseException | None:
    return execute(Target(model), call, Plan(gradients=False)).error


def _runs(model: Any, call: Call) -> bool:
    return _error(model, call) is None


def _call(model: Any, names: tuple[str, ...], size: tuple[int, int], seed: int) -> Call:
    generator = torch.Generator().manual_seed(1000 * seed + size[0])
    sizes = _Sizes(model.config)
    values = {name: _MAKERS[name](size, sizes, generator) for name in names}
    return Call((), values, f"batch {size[0]}, length {size[1]}")


def _ids(size: tuple[int, int], sizes: _Sizes, generator: Any) -> Any:
    return torch.randint(3, max(4, sizes.get(("vocab_size",), 99) - 12), size, generator=generator)


def _mask(size: tuple[int, int], _sizes: _Sizes, _generator: Any) -> Any:
    mask = torch.ones(size, dtype=torch.long)
    if size[0] > 1:
        mask[1, -2:] = 0
    return mask


def _types(size: tuple[int, int], sizes: _Sizes, generator: Any) -> Any:
    return torch.randint(0, max(1, sizes.get(("type_vocab_size",), 1)), size, generator=generator)


def _pixels(size: tuple[int, int], sizes: _Sizes, generator: Any) -> Any:
    side = sizes.get(("image_size", "img_size", "input_size"), 32)
    return torch.randn(size[0], sizes.get(("num_channels", "in_channels"), 3), side, side, generator=generator)


def _spectrum(size: tuple[int, int], sizes: _Sizes, generator: Any) -> Any:
    length = 2 * sizes.get(("max_source_positions",), 32)
    return torch.randn(size[0], sizes.get(("num_mel_bins", "feature_size"), 80), length, generator=generator)


def _wave(size: tuple[int, int], _sizes: _Sizes, generator: Any) -> Any:
    return torch.randn(size[0], 800 * size[1], generator=generator)


def _boxes(size: tuple[int, int], _sizes: _Sizes, generator: Any) -> Any:
    corners = torch.randint(0, 30, (*size, 2), generator=generator)
    return torch.cat([corners, corners + torch.randint(1, 30, (*size, 2), generator=generator)], -1)


_MAKERS: dict[str, Callable[[tuple[int, int], _Sizes, Any], Any]] = {
    "input_ids": _ids,
    "attention_mask": _mask,
    "token_type_ids": _types,
    "decoder_input_ids": _ids,
    "decoder_attention_mask": _mask,
    "pixel_values": _pixels,
    "input_features": _spectrum,
    "input_values": _wave,
    "bbox": _boxes,
}


def _labels(model: Any, names: tuple[str, ...], accepted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the kind of labels that the model takes, as a tuple of none or one."""
    for kind in ("tokens", "classes", "span", "both"):
        call = _with_labels(_call(model, names, SIZES[-1], 0), model, (kind,), 0)
        if set(call.kwargs) <= set(accepted) and _runs(model, call):
            return (kind,)
    return ()


def _with_labels(call: Call, model: Any, kinds: tuple[str, ...], seed: int) -> Call:
    generator = torch.Generator().manual_seed(seed)
    batch, length = SIZES[-1]
    words = torch.randint(0, int(getattr(model.config, "num_labels", 2)), (batch, length), generator=generator)
    tokens = _ids((batch, length), _Sizes(model.config), generator)
    flat = words[:, 0].clone()
    logits = "num_labels" if "Token" in type(model).__name__ else "vocab_size"
    wide = tokens if logits == "vocab_size" else words
    wide = wide.masked_fill(torch.zeros_like(wide, dtype=torch.bool).index_fill(1, torch.tensor([0]), True), -100)
    values = {
        "tokens": {"labels": wide},
        "classes": {"labels": flat},
        "span": {"start_positions": flat, "end_positions": flat + 1},
        "both": {"labels": wide, "next_sentence_label": flat},
    }[kinds[0]]
    return Call(call.args, {**call.kwargs, **values}, f"{call.label}, labels")
