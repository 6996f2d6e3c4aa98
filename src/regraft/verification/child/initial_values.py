"""Compare the random initial values of a model over several seeds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from regraft.execution.compare import as_strided
from regraft.verification.child.comparison_terms import Difference
from regraft.verification.child.result_comparison import close

_VALUES = 20_000  # values of each tensor from which on no more models are built
_MOST, _FEWEST = 64, 4  # models of either version
_SECONDS = 3.0  # of processor time, after which no more models are built
_FALSE_ALARM = 1e-9  # chance that equal distributions are called different
_LONGEST = 500_000  # elements of a tensor from which on it is left to the mean and spread

Build = Callable[[int], tuple[Any, Any]]


def initial_difference(
    original: Any, changed: Any, build: Build, *, brief: bool = False
) -> Difference | None:
    """Return the first difference of tensors with random initial values between two models that
    were made with one seed, or None.

    Numbers may be drawn in another order. So where values differ, both models are built with
    further seeds (`build` returns them): elements that the original always starts alike must have
    these values, the same numbers must not be drawn for another result, and all values together
    must have one distribution. There are `_FEWEST` seeds if `brief`, or if they take `_SECONDS` of
    processor time.
    """
    state = original.state_dict()
    names = list(_names_of_other_values(state, changed.state_dict()))
    if not names:
        return None
    fewest = min(state[name].numel() for name in names)
    count = _FEWEST if brief else max(_FEWEST, min(_MOST, math.ceil(_VALUES / fewest)))
    samples: dict[str, list[tuple[Any, Any]]] = {name: [] for name in names}
    deadline = time.process_time() + _SECONDS
    for seed in range(count):
        first, second = (model.state_dict() for model in build(seed))
        for name in names:
            samples[name].append((_numbers(first[name]), _numbers(second[name])))
        if seed == _FEWEST - 1 and (difference := _difference_of(samples)):
            return difference
        if seed >= _FEWEST and time.process_time() > deadline:
            break
    return _difference_of(samples)


def _difference_of(samples: Mapping[str, list[tuple[Any, Any]]]) -> Difference | None:
    """Return the first difference of initial values by name, each a list of pairs of the values in
    both versions, or None."""
    for name, pairs in samples.items():
        sentence = _describe_difference(
            torch.stack([first for first, _ in pairs]), torch.stack([second for _, second in pairs])
        )
        if sentence:
            return Difference(name, f"{name} {sentence}")
    return None


def _names_of_other_values(
    original: Mapping[str, Any], changed: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the names of tensors of equal shape whose values under one seed are not close."""
    for name, value in original.items():
        counterpart = changed.get(name)
        if not isinstance(value, torch.Tensor) or not isinstance(counterpart, torch.Tensor):
            continue
        is_comparable = value.shape == counterpart.shape and 0 < value.numel() <= _LONGEST
        if is_comparable and not starts_alike(value, counterpart):
            yield name


def starts_alike(value: Any, counterpart: Any) -> bool:
    """Return whether two tensors of one shape hold close initial values, also where these are
    tiny: the factor 1e-6 of a new layer is not zero. True where one of them is on the device
    "meta" and so has no values."""
    if value.is_meta or counterpart.is_meta:
        return True  # there are no values
    first, second = _numbers(value), _numbers(counterpart)
    scale = float(torch.stack([first, second]).abs().max()) if first.numel() else 0.0
    return close(first / scale, second / scale) if 0.0 < scale < 1.0 else close(first, second)


def _numbers(value: Any) -> Any:
    """Return the elements of a tensor in float64, in one row, of complex ones the real and the
    imaginary part; zeros for NaN, which marks those that are not initialised."""
    plain = as_strided(value.detach())
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    return plain.double().flatten().nan_to_num()


def _describe_difference(original: Any, changed: Any) -> str:
    """Return in words how the initial values of a tensor differ, by samples of shape (models,
    elements), or "" where they may be drawn in another order only."""
    is_fixed = (original == original[:1]).all(0)
    if not starts_alike(original[:, is_fixed], changed[:, is_fixed]):
        return "starts with other values than the original's at places that are not random"
    original, changed = original[:, ~is_fixed].flatten(), changed[:, ~is_fixed].flatten()
    if not original.numel() or starts_alike(original, changed):
        return ""
    order = original.argsort(stable=True)
    is_distinct = original[order].unique().numel() > original.numel() // 2
    if is_distinct and original.numel() >= 2 * _FEWEST and bool((changed[order].diff() >= 0).all()):
        return "starts with other values, computed from the same random numbers"
    if _are_apart(original, changed):
        return "starts with values of another distribution"
    return ""


def _are_apart(first: Any, second: Any) -> bool:
    """Return whether the largest distance between the distribution functions of two samples is
    one that samples of one distribution reach with a chance of `_FALSE_ALARM` only (Kolmogorov and
    Smirnov)."""
    places = torch.cat([first, second])
    shares = [
        torch.searchsorted(sample.sort().values, places, right=True) / sample.numel()
        for sample in (first, second)
    ]
    distance = float((shares[0] - shares[1]).abs().max())
    return distance > math.sqrt(-math.log(_FALSE_ALARM / 2) / first.numel())
