"""Change a model's parameters and dropout rates, and restore them: random weights instead of zeros
and ones, other values for a while."""

from __future__ import annotations

import copy
import dis
import functools
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import nn

from regraft.verification.child.call_variants import move_by_rounding

RATE = 0.25
_READING = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def redraw(model: Any, seed: int) -> None:
    """Set every floating parameter, and every floating buffer of the checkpoint, in place to random
    values that follow from its name, its initial values and the seed.

    Matrices get unit gain, so that activations keep their size through the layers; vectors (norm
    weights, biases, decay rates) move around their initial value and so stay in their domain. Two
    buffers that initialisation makes equal (the frequencies of two encodings) differ afterwards, as
    they may in a checkpoint; zeros in buffers stay zeros, running means aside.
    """
    with torch.no_grad():
        embeddings = {
            id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)
        }
        for name, parameter in model.named_parameters():
            if parameter.is_floating_point() and parameter.numel():
                _redraw_parameter(parameter, _generator(name, seed), id(parameter) in embeddings)
        saved = model.state_dict(keep_vars=True)
        for name, buffer in model.named_buffers():
            _redraw_buffer(name, buffer, _generator(name, seed), is_saved=name in saved)


def _redraw_buffer(name: str, buffer: Any, generator: Any, *, is_saved: bool) -> None:
    """Set a buffer in place to random values around those that it has: running means and variances,
    and other floating buffers of the checkpoint."""
    if name.endswith("running_mean"):
        buffer.add_(_noise(buffer, generator), alpha=0.3)
    elif name.endswith("running_var"):
        buffer.mul_(1 + 0.5 * torch.tanh(_noise(buffer, generator)))
    elif buffer.is_floating_point() and is_saved:
        buffer.mul_(1 + 0.1 * torch.tanh(_noise(buffer, generator)))


def _redraw_parameter(parameter: Any, generator: Any, embedding: bool) -> None:
    """Set a parameter in place to random values: a matrix to unit gain, by its fan-in; a vector, or
    a parameter with infinite values, moves by at most 0.3. NaN, which marks uninitialised elements,
    becomes zero first."""
    noise = _noise(parameter, generator)
    parameter.masked_fill_(parameter.isnan(), 0.0)  # NaN marks uninitialised elements
    if parameter.dim() < 2 or not bool(torch.isfinite(parameter).all()):
        parameter.add_(0.3 * torch.tanh(noise))
        return
    fan_in = 4 if embedding else max(1, parameter.numel() // parameter.shape[0])
    parameter.copy_(noise * fan_in**-0.5)


def _generator(name: str, seed: int) -> Any:
    """Return a random generator that is seeded by a name and a seed."""
    return torch.Generator().manual_seed(zlib.crc32(f"{seed}:{name}".encode()))


def _noise(tensor: Any, generator: Any) -> Any:
    """Return normal random numbers, drawn in float32, in the shape and format of a tensor."""
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.dtype)


@contextmanager
def shrink_parameters(module: Any) -> Iterator[None]:
    """Multiply matrices and biases by 0.01 in the body, so that an epsilon inside a norm is no
    longer negligible; their values are restored at its end."""
    parameters = [
        parameter
        for name, parameter in module.named_parameters()
        if parameter.dim() > 1 or name.endswith("bias")
    ]
    saved = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        for parameter in parameters:
            parameter.mul_(0.01)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, saved_value in zip(parameters, saved, strict=True):
                parameter.copy_(saved_value)


def stable_buffers(module: Any) -> dict[str, Any]:
    """Return by name the buffers of a checkpoint that `redraw` leaves as they are and that have
    other values to take: whole numbers, truth values, and floating-point numbers that are zero; {}
    for a value that is no module."""
    if not isinstance(module, nn.Module):
        return {}
    saved = module.state_dict(keep_vars=True)
    return {
        name: buffer
        for name, buffer in module.named_buffers()
        if name in saved
        and buffer.numel()
        and not name.endswith(("running_mean", "running_var"))
        and (not buffer.is_floating_point() or not bool(buffer.any()))
    }


@contextmanager
def change_buffers(module: Any) -> Iterator[None]:
    """Give `stable_buffers` values in the body that a checkpoint may hold: whole numbers and truth
    values move by a place along the last dimension, counters become 3 more, zeros become random
    numbers up to 0.3 in size. They are restored at its end."""
    saved = {name: buffer.clone() for name, buffer in stable_buffers(module).items()}
    buffers = dict(module.named_buffers())
    with torch.no_grad():
        for name, old_value in saved.items():
            buffers[name].copy_(_other_buffer(name, old_value))
    try:
        yield
    finally:
        with torch.no_grad():
            for name, old_value in saved.items():
                buffers[name].copy_(old_value)


def _other_buffer(name: str, value: Any) -> Any:
    """Return other values for a buffer, as `change_buffers` describes them."""
    if value.is_floating_point():
        return 0.3 * torch.tanh(_noise(value, _generator(name, 0)))
    if value.dim() and value.shape[-1] > 1:
        return value.roll(1, -1)
    return ~value if value.dtype == torch.bool else value + 3


@contextmanager
def change_parameters(module: Any, change: Callable[[str, Any], Any]) -> Iterator[None]:
    """Give floating parameters the values that `change` returns by name and value in the body, and
    restore them at its end; None leaves a parameter alone, another number format is allowed."""
    saved = [(parameter, parameter.data) for parameter in module.parameters()]
    try:
        for name, parameter in module.named_parameters():
            new_value = change(name, parameter.data) if parameter.is_floating_point() else None
            if new_value is not None:
                parameter.data = new_value
        yield
    finally:
        for parameter, saved_value in saved:
            parameter.data = saved_value


def parameters_off_by_rounding(seed: int, dtype: Any = None) -> Callable[[str, Any], Any]:
    """Return a change for `change_parameters` that moves every number by about one unit in its last
    place, in the format `dtype` or its own."""
    return lambda name, value: move_by_rounding(value, _generator(name, seed), dtype)


@contextmanager
def set_dropout_rate(model: Any, rate: float) -> Iterator[None]:
    """Set every dropout rate of a model in the body, and restore them at its end: of dropout
    modules, and of float attributes of modules and configurations whose name contains "drop" or is
    "p".

    Rates with "layer" in their name are 0 meanwhile: layer dropping changes which layers run, not
    their results. A rate of zero stays zero in a module that reads an attribute that it lacks: its
    constructor makes the layer only for a rate above zero.
    """
    rates = list(_dropout_rates(model))
    try:
        for owner, name, _ in rates:
            _assign(owner, name, 0.0 if "layer" in name.lower() else rate)
        yield
    finally:
        for owner, name, old_rate in rates:
            _assign(owner, name, old_rate)


@contextmanager
def set_own_dropout_rate(module: Any, rate: float) -> Iterator[None]:
    """Set the dropout rates that are attributes of one module itself in the body, those for the
    dropping of layers to 0, and restore them at its end."""
    rates = [(name, value) for name, value in vars(module).items() if _is_rate(module, name, value)]
    try:
        for name, _ in rates:
            _assign(module, name, 0.0 if "layer" in name.lower() else rate)
        yield
    finally:
        for name, value in rates:
            _assign(module, name, value)


def _assign(owner: Any, name: str, value: float) -> None:
    """Set an attribute of an object, or an entry of a dictionary."""
    if isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)


def _dropout_rates(model: Any) -> Iterator[tuple[Any, str, float]]:
    """Yield (owner, name, value) for each dropout rate of a model's modules and configurations,
    each owner once. A rate of zero of a module that reads an attribute that it lacks is skipped."""
    visited: set[int] = set()
    for module in model.modules():
        for owner in [module, *_configs_of(module)]:
            if id(owner) in visited or isinstance(owner, str | int | float | None.__class__):
                continue
            visited.add(id(owner))
            values = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
            for name, value in list(values.items()):
                if _is_rate(owner, name, value) and (
                    value or owner is not module or not _lacks_attributes(module)
                ):
                    yield owner, name, value


def _configs_of(module: nn.Module) -> list[Any]:
    """Return the attributes of a module that are named `config` or `..._config`."""
    return [
        value
        for name, value in vars(module).items()
        if name == "config" or name.endswith("_config")
    ]


def _lacks_attributes(module: nn.Module) -> bool:
    """Return whether methods of a module's class read an attribute of `self` that the module
    lacks."""
    cls: Any = type(module)
    return any(not hasattr(module, name) for name in _attributes_read(cls))


@functools.cache
def _attributes_read(cls: type) -> frozenset[str]:
    """Return the attributes that the methods of a class, and of its bases in the same file, read
    from the instance."""
    classes = [base for base in cls.__mro__ if base.__module__ == cls.__module__]
    methods = [
        value.__code__
        for base in classes
        for value in vars(base).values()
        if isinstance(value, FunctionType)
    ]
    instruction_pairs = [
        pair for code in methods for pair in itertools.pairwise(dis.get_instructions(code))
    ]
    return frozenset(
        attribute.argval
        for load, attribute in instruction_pairs
        if load.opname.startswith("LOAD_FAST")
        and load.argval == "self"
        and attribute.opname in _READING
    )


def _is_rate(owner: Any, name: str, value: Any) -> bool:
    """Return whether an attribute of a module or a configuration is a dropout rate: `p` of a
    dropout module, of other owners a float from 0 to below 1 whose name contains "drop", or "p" of
    a module."""
    if isinstance(owner, nn.modules.dropout._DropoutNd):
        return name == "p"
    has_rate_name = "drop" in name.lower() or (name == "p" and isinstance(owner, nn.Module))
    return has_rate_name and isinstance(value, float) and 0 <= value < 1


def copy_model(model: Any) -> Any:
    """Return a deep copy of a model; a tensor that a call left in an attribute or buffer of a
    module (old weight norm, a cache), or in a list or dictionary there, is copied without its
    history, and attributes that cannot be copied, such as locks, are shared with the model. Raises
    what deepcopy raises otherwise."""
    modules = tuple(model.modules()) if isinstance(model, nn.Module) else ()
    values = [value for module in modules for value in vars(module).values()]
    copies: dict[int, Any] = {
        id(value): value.detach().clone()
        for value in itertools.chain(values, *map(_elements, values))
        if isinstance(value, torch.Tensor) and not value.is_leaf
    }
    try:
        return copy.deepcopy(model, dict(copies))
    except TypeError:  # what pickle says of objects without a copy
        shared = {id(value): value for value in values if not _can_be_copied(value)}
        if not shared:
            raise
        return copy.deepcopy(model, {**copies, **shared})


def _elements(value: Any) -> Iterable[Any]:
    """Return the elements of a list or tuple, or the values of a dictionary; () for others."""
    if isinstance(value, dict):
        return tuple(value.values())
    return value if isinstance(value, list | tuple) else ()


def _can_be_copied(value: Any) -> bool:
    """Return whether an attribute of a module has a deep copy; those of tensors, modules and their
    registries are taken for granted."""
    if value is None or isinstance(
        value, bool | int | float | str | dict | torch.Tensor | nn.Module
    ):
        return True
    try:
        copy.deepcopy(value)
    except TypeError:
        return False
    return True
