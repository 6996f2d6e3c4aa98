"""Constants written as expressions of Python."""

from __future__ import annotations

import ast
import math
from typing import Any

import torch


def literal(value: Any) -> ast.expr | None:
    """Return the expression that writes a value down: None, a truth value, number or string, or a
    tuple (a torch.Size, too) or list of these. Return None for any other value, for NaN, complex
    numbers and instances of subclasses."""
    if value is None or type(value) in (bool, int, float, str):
        if type(value) is float and not math.isfinite(value):
            return infinity(value)
        return ast.parse(repr(value), mode="eval").body
    if type(value) in (tuple, list, torch.Size):
        elements = [literal(element) for element in value]
        if all(element is not None for element in elements):
            display_type = ast.Tuple if isinstance(value, tuple) else ast.List
            return display_type(
                [element for element in elements if element is not None], ast.Load()
            )
    return None


def infinity(value: float) -> ast.expr | None:
    """Return the expression for plus or minus infinity, which Python writes as a number that is too
    large; None for NaN."""
    if math.isnan(value):
        return None
    number = ast.Constant(math.inf)
    return number if value > 0 else ast.UnaryOp(ast.USub(), number)
