"""Modes of PyTorch under which calls are compared beside the plain way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

AUTOCAST, INFERENCE, FROZEN = "autocast", "inference mode", "frozen parameters"
DETERMINISTIC, WIDE = "deterministic algorithms", "float64 as the default format"
MODES = (AUTOCAST, INFERENCE, FROZEN, DETERMINISTIC, WIDE)


@contextmanager
def in_conditions(model: Any, mode: str) -> Iterator[None]:
    """Run the body under one of MODES, with a model's parameters frozen in FROZEN; under none where
    `mode` is empty."""
    if mode == FROZEN:
        parameters = [p for p in model.parameters() if p.requires_grad]
        for parameter in parameters:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in parameters:
                parameter.requires_grad_(True)
        return
    with ExitStack() as stack:
        if mode == AUTOCAST:
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
        elif mode == INFERENCE:
            stack.enter_context(torch.inference_mode())
        elif mode == DETERMINISTIC:
            stack.callback(torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode())
            torch.set_deterministic_debug_mode("error")
        elif mode == WIDE:
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float64)
        yield
