"""Find, in what a call returned, the values that a later call may take back: the keys and values of
the tokens so far, or the state of a recurrent network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

_TYPE = "type of "
_LAST_INDEX = re.compile(r"^(?P<container>.+)\[\d+\]$")


def returned_tuples(outputs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a description and a tuple of two or more tensors of `outputs`, results by path
    (`execution.nested.flatten`): the tuples and lists among them that hold nothing else."""
    elements: dict[str, list[Any]] = {}
    for path, value in outputs.items():
        match = _LAST_INDEX.match(path.removeprefix(_TYPE))
        if match is not None:
            is_element = not path.startswith(_TYPE)
            elements.setdefault(match["container"], []).append(value if is_element else None)
    for path, values in elements.items():
        is_plain = outputs.get(f"{_TYPE}{path}") in ("tuple", "list")
        if is_plain and len(values) > 1 and all(isinstance(v, torch.Tensor) for v in values):
            yield f"{path} of the call without it", tuple(values)


def returned_tensors(outputs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a description and a tensor of `outputs`, results by path, without the first
    tensor, which is the result proper."""
    tensors = [(path, value) for path, value in outputs.items() if isinstance(value, torch.Tensor)]
    for path, value in tensors[1:]:
        yield f"{path} of the call without it", value
