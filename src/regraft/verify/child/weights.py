"""Make a model's weights and dropout rates say something: drawn values instead of zeros and ones."""

from __future__ import annotations

import copy
import dis
import functools
import itertools
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import nn

from regraft.verify.child.variants import rounded_otherwise

RATE = 0.25
_READING = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def redraw(model: Any, seed: int) -> None:
    """Give every floating parameter, and every floating buffer of the checkpoint, a value of its own.

    Matrices get unit gain, so that activations keep their size through the layers; vectors (norm weights, biases,
    decay rates) move around their initial value and so stay in their domain. Two buffers that initialisation makes
    equal (the frequencies of two encodings) differ afterwards, as they may in a checkpoint; zeros stay zeros.
    """
    with torch.no_grad():
        embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)}
        for name, parameter in model.named_parameters():
            if parameter.is_floating_point() and parameter.numel():
                _redraw_parameter(parameter, _generator(name, seed), id(parameter) in embeddings)
        saved = model.state_dict(keep_vars=True)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(_noise(buffer, _generator(name, seed)), alpha=0.3)
            elif name.endswith("running_var"):
                buffer.mul_(1 + 0.5 * torch.tanh(_noise(buffer, _generator(name, seed))))
            elif buffer.is_floating_point() and name in saved:
                buffer.mul_(1 + 0.1 * torch.tanh(_noise(buffer, _generator(name, seed))))


def _redraw_parameter(parameter: Any, generator: Any, embedding: bool) -> None:
    noise = _noise(parameter, generator)
    parameter.masked_fill_(parameter.isnan(), 0.0)  # nobody initialised it
    if parameter.dim() < 2 or not bool(torch.isfinite(parameter).all()):
        parameter.add_(0.3 * torch.tanh(noise))
        return
    fan_in = 4 if embedding else max(1, parameter.numel() // parameter.shape[0])
    parameter.copy_(noise * fan_in**-0.5)


def _generator(name: str, seed: int) -> Any:
    return torch.Generator().manual_seed(zlib.crc32(f"{seed}:{name}".encode()))


def _noise(tensor: Any, generator: Any) -> Any:
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.dtype)


@contextmanager
def small(module: Any) -> Iterator[None]:
    """Shrink matrices and biases for a while, so that an epsilon inside a norm is no longer negligible."""
    chosen = [p for name, p in module.named_parameters() if p.dim() > 1 or name.endswith("bias")]
    kept = [p.detach().clone() for p in chosen]
    with torch.no_grad():
        for parameter in chosen:
            parameter.mul_(0.01)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, old in zip(chosen, kept, strict=True):
                parameter.copy_(old)


@contextmanager
def changed(module: Any, change: Callable[[str, Any], Any]) -> Iterator[None]:
    """Give parameters other values, in another number format perhaps, for a while; None leaves a parameter alone."""
    kept = [(parameter, parameter.data) for parameter in module.parameters()]
    try:
        for name, parameter in module.named_parameters():
            new = change(name, parameter.data) if parameter.is_floating_point() else None
            if new is not None:
                parameter.data = new
        yield
    finally:
        for parameter, old in kept:
            parameter.data = old


def off_by_one_rounding(seed: int) -> Callable[[str, Any], Any]:
    """Return a change for `changed` that moves every number by about one unit in its last place."""
    return lambda name, value: rounded_otherwise(value, _generator(name, seed))


@contextmanager
def dropout_rate(model: Any, rate: float) -> Iterator[None]:
    """Set every dropout rate of a model for a while: dropout modules, and float attributes named after dropping.

    Layer dropping stays off: it changes which layers run, not what they compute. So does a rate of zero in a module
    that reads what it has not: its constructor makes the layer only where there is a rate.
    """
    places = list(_rates(model))
    try:
        for owner, name, _ in places:
            _assign(owner, name, 0.0 if "layer" in name.lower() else rate)
        yield
    finally:
        for owner, name, old in places:
            _assign(owner, name, old)


def _assign(owner: Any, name: str, value: float) -> None:
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def _rates(model: Any) -> Iterator[tuple[Any, str, float]]:
    seen: set[int] = set()
    for module in model.modules():
        configs = [value for key, value in vars(module).items() if key == "config" or key.endswith("_config")]
        for owner in [module, *configs]:
            if id(owner) in seen or isinstance(owner, str | int | float | None.__class__):
                continue
            seen.add(id(owner))
            values = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
            for name, value in list(values.items()):
                if _is_rate(owner, name, value) and (value or owner is not module or not _lacks(module)):
                    yield owner, name, value


def _lacks(module: nn.Module) -> bool:
    """Whether methods of a module read an attribute that it does not have."""
    cls: Any = type(module)
    return any(not hasattr(module, name) for name in _read(cls))


@functools.cache
def _read(cls: type) -> frozenset[str]:
    """The attributes that the methods of a class, and of its bases in the same file, read of the instance."""
    own = [base for base in cls.__mro__ if base.__module__ == cls.__module__]
    methods = [value.__code__ for base in own for value in vars(base).values() if isinstance(value, FunctionType)]
    steps = [step for code in methods for step in itertools.pairwise(dis.get_instructions(code))]
    return frozenset(
        attribute.argval
        for one, attribute in steps
        if one.opname.startswith("LOAD_FAST") and one.argval == "self" and attribute.opname in _READING
    )


def _is_rate(owner: Any, name: str, value: Any) -> bool:
    if isinstance(owner, nn.modules.dropout._DropoutNd):
        return name == "p"
    named = "drop" in name.lower() or (name == "p" and isinstance(owner, nn.Module))
    return named and isinstance(value, float) and 0 <= value < 1


def copied(model: Any) -> Any:
    """Return a deep copy; a tensor that a call left in the model (old weight norm) is copied without its history."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    left = (value for module in modules for value in vars(module).values() if isinstance(value, torch.Tensor))
    return copy.deepcopy(model, {id(one): one.detach().clone() for one in left if not one.is_leaf})
