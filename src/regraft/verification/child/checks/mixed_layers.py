"""Build whole models of which one layer is in another number format, as models are that keep a
layer in float32."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch import nn

from regraft.verification.child.checks.comparison_domain import domain_of
from regraft.verification.child.checks.decoding_models import build_original, is_accepted
from regraft.verification.child.checks.format_variants import MIXED
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.session import Session

_LAYERS = 3  # the most layers of a definition that are in another format, in turn


def with_a_layer_in_bfloat16(
    subject: Subject, definitions: tuple[str, ...], session: Session
) -> Iterator[Subject]:
    """Yield a subject with one layer in bfloat16, for each of the first `_LAYERS` layers of the
    first instance of each changed definition that names formats, where the original runs so. Such
    subjects have no recipe, since no reproducer builds them. Nothing for changes by rules."""
    for name in definitions:
        for path in _layers_of(name, subject, session):
            mixed = replace(
                subject,
                name=f"{subject.name} with {path} in bfloat16",
                build=_builder(subject, path),
                recipe={},
            )
            if is_accepted(build_original(mixed, session), mixed.calls(0)[-1]):
                yield mixed


def _layers_of(definition: str, subject: Subject, session: Session) -> list[str]:
    """Return the paths of the first `_LAYERS` layers with floating parameters in the first instance
    of a definition in a model; [] where the definition does not name formats in either version, or
    has no instance in the model."""
    cls = getattr(session.original, definition, None)
    if MIXED not in domain_of(definition, session).formats or not isinstance(cls, type):
        return []
    model = build_original(subject, session)
    instances = (path for path, module in model.named_modules() if isinstance(module, cls))
    paths = (
        f"{path}.{name}".lstrip(".")
        for path in itertools.islice(instances, 1)
        for name, child in model.get_submodule(path).named_children()
        if any(parameter.is_floating_point() for parameter in child.parameters())
    )
    return list(itertools.islice(paths, _LAYERS))


def _builder(subject: Subject, path: str) -> Any:
    """Return a function that builds the model of a subject from a version of the file, with the
    layer at a path in bfloat16."""

    def build(module: ModuleType) -> nn.Module:
        """Return the model. Raises what its constructor raises."""
        model: nn.Module = subject.build(module)
        model.get_submodule(path).to(torch.bfloat16)
        return model

    return build
