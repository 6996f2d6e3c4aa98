"""Build a part and then change its layers, as users of a model do: one layer more or less in a
list, or a head with one more output."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from regraft.source.qualified_names import dotted
from regraft.verification.child.checks.changes_by_version import versions_of
from regraft.verification.child.checks.code_constants import changed_nodes
from regraft.verification.child.drivers.driver_protocol import Subject
from regraft.verification.child.drivers.layer_replacement import (
    LONGER,
    SHORTER,
    WIDER,
    LayerChange,
)
from regraft.verification.child.drivers.standalone_parts import Part, accepts
from regraft.verification.child.session import Session, build_seeded

_MOST_CHANGES = 8  # the most changes of one part


def subjects_with_other_layers(part: Part, session: Session) -> Iterator[Subject]:
    """Yield subjects of the part with each other number of layers in the lists that changed lines
    mention, and with one more output of the layers whose attributes they read, where the original
    accepts it and while there is time. Nothing for changes by rules, which keep both."""
    if session.by_rules:
        return
    paths = _paths_in_changed_lines(part.definition, session)
    model = build_seeded(0, part.build, session.original) if paths else nn.Module()
    for path, change in itertools.islice(_changes(model, paths), _MOST_CHANGES):
        changed_part = replace(part, layer_change=(path, change))
        if session.ledger.is_late():
            return
        if accepts(changed_part, session):
            yield changed_part.subject(f"with {change} in {path}")


def _changes(model: Any, paths: frozenset[str]) -> Iterator[LayerChange]:
    """Yield the changes of those layers of a model that are at one of the `paths`: a list of two or
    more layers gets shorter and longer, a layer of which lines read an attribute wider."""
    for path, layer in model.named_modules():
        if path not in paths:
            continue
        if isinstance(layer, nn.ModuleList | nn.Sequential) and len(layer) > 1:
            yield from ((path, SHORTER), (path, LONGER))
        elif type(layer) in (nn.Linear, nn.Embedding) and _has_longer(paths, path):
            yield path, WIDER


def _has_longer(paths: Iterable[str], path: str) -> bool:
    """Return whether one of some paths is that of an attribute of the object at `path`."""
    return any(longer.startswith(f"{path}.") for longer in paths)


def _paths_in_changed_lines(definition: str, session: Session) -> frozenset[str]:
    """Return the dotted paths from `self` that the changed lines of a definition read in either
    version, without the `self`: "fc" and "fc.out_features"."""
    paths = {
        path
        for change, module in versions_of(definition, session)
        for node in changed_nodes(change, module)
        if isinstance(node, ast.Attribute)
        for root, path in filter(None, (dotted(node),))
        if root == "self"
    }
    return frozenset(paths)
