"""Small models of a package's families, drawn by a hash of the families' names, and calls that they
accept."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from regraft.verification.child import call_arguments, weights
from regraft.verification.child.drivers import (
    config_shrinking,
    config_trials,
    guessed_values,
    input_guesses,
)
from regraft.verification.child.session import build_seeded

sys.path.insert(0, str(Path(__file__).parent.parent / "proof199"))

import environment

SEARCH_SECONDS = 4.0  # for inputs of one model
SCALES = tuple(one for one in config_shrinking.SCALES if not one.mild)


class NotBuilt(Exception):
    """A family of which no small model runs."""


def load(requirement: str) -> ModuleType:
    """Import a package: the installed one, or that of the environment that the proofs run in."""
    name = requirement.partition("==")[0]
    try:
        package = importlib.import_module(name)
    except ModuleNotFoundError:
        sys.path.append(str(environment.packages(environment.python(requirement))))
        package = importlib.import_module(name)
    if requirement != f"{name}=={package.__version__}":
        raise SystemExit(f"{requirement} is asked for, {package.__version__} is installed")
    if name == "timm":
        package.layers.set_fused_attn(False)  # so that the code of the files runs
    return package


def families(package: ModuleType) -> Iterator[tuple[str, Any]]:
    """A model class of every family, in an order that only depends on the names."""
    found = _of_transformers(package) if package.__name__ == "transformers" else _of_files(package)
    yield from sorted(found, key=lambda one: hashlib.sha256(one[0].encode()).digest())


def _of_transformers(package: ModuleType) -> Iterator[tuple[str, Any]]:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    for family, names in MODEL_MAPPING_NAMES.items():
        name = names if isinstance(names, str) else names[0]
        try:
            yield family, getattr(package, name)
        except (AttributeError, ImportError):  # needs a package that is not installed
            continue


def _of_files(package: ModuleType) -> Iterator[tuple[str, Any]]:
    """The last model of each file below `models`: what others in the file are parts of."""
    models = importlib.import_module(f"{package.__name__}.models")
    for info in pkgutil.walk_packages(models.__path__, f"{models.__name__}."):
        try:
            module = importlib.import_module(info.name)
        except (ImportError, RuntimeError):  # needs a package that is not installed
            continue
        classes = [
            one
            for one in vars(module).values()
            if inspect.isclass(one) and one.__module__ == info.name
        ]
        whole = [one for one in classes if issubclass(one, nn.Module) and _is_model(one)]
        if whole:
            yield info.name.removeprefix(f"{models.__name__}."), whole[-1]


def _is_model(cls: Any) -> bool:
    """Whether a class has what timm's and diffusers' models have and their layers have not."""
    return hasattr(cls, "forward_features") or hasattr(cls, "from_pretrained")


def built(package: ModuleType, model_class: Any) -> tuple[Any, call_arguments.Call]:
    """A small model in evaluation, and a call that it accepts, both the same for every run."""
    for build in _builds(package, model_class):
        try:
            config_trials.refuse_large(build, package)
            model = build_seeded(0, build, package).eval()
            weights.redraw(model, 0)
            return model, _call(package, model)
        except TimeoutError:
            raise
        except Exception:  # noqa: BLE001 - a scale that does not fit; the next one may
            continue
    raise NotBuilt


def _call(package: ModuleType, model: Any) -> call_arguments.Call:
    """Images, which all of timm's models take, or what is found by running the model."""
    if package.__name__ != "timm":
        seconds = 0.0 if package.__name__ == "transformers" else SEARCH_SECONDS
        return input_guesses.find_accepted(model, seconds=seconds).calls(model)(0)[1]
    sizes = [one.img_size for one in model.modules() if hasattr(one, "img_size")]
    size = next((one for one in sizes if one is not None), SCALES[0].image)
    height, width = (size, size) if isinstance(size, int) else size
    images = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(0))
    model(images)
    return call_arguments.Call((images,), {})


def _builds(package: ModuleType, model_class: Any) -> Iterator[Callable[[ModuleType], Any]]:
    """Ways to build a class smaller, by its configuration or its constructor's defaults."""
    if package.__name__ != "transformers":
        for scale in SCALES:
            yield lambda _, scale=scale: model_class(**_arguments(model_class, scale))
        return
    try:
        values = model_class.config_class().to_dict()
    except Exception as error:  # some configurations have no defaults
        raise NotBuilt from error
    for scale in SCALES:
        config = config_trials.make_config(
            model_class.config_class, config_shrinking.shrink(values, scale), config_trials.EAGER
        )
        yield config_trials.build_function(model_class.__name__, config)


def _arguments(model_class: Any, scale: config_shrinking.Scale) -> dict[str, Any]:
    """Arguments of a constructor: its defaults made small, and guesses where it has none."""
    values = {}
    for one in input_guesses.parameters(inspect.signature(model_class)):
        if one.default is one.empty:
            values[one.name] = guessed_values.value_for(one.name, input_guesses.annotation(one))
        elif isinstance(one.default, bool | int | float | str | list | tuple):
            values[one.name] = one.default
    small = config_shrinking.shrink(values, scale)
    return {name: type(value)(small.get(name, value)) for name, value in values.items()}
