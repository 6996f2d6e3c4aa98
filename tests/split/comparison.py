"""Compare a split program with the original on calls beyond its examples."""

from __future__ import annotations

from typing import Any

import torch

import regraft
from regraft.splitting.checking.result_difference import difference


def compare_on_calls(kind: Any, **options: Any) -> None:
    """Split a program, a class with a function `inputs` that makes the arguments of a call from a
    number, by its first 12 calls and with `options`; assert equal results on the first 60."""
    torch.manual_seed(0)
    model = kind().eval()
    result = regraft.split(
        model, [kind.inputs(number) for number in range(12)], cache=False, **options
    )
    for number in range(60):
        arguments = kind.inputs(number)
        assert difference(result(*arguments), model(*arguments)) == ""


def attempt(network: Any, call: tuple[Any, ...]) -> Any:
    """Return what a network gives for a call, or the exception that it raises."""
    try:
        return network(*call)
    except Exception as problem:  # noqa: BLE001  (whatever it raises)
        return problem
