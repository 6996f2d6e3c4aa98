"""The notation of structures and rules: `parser` turns text into the types of `syntax`, `printer`
the reverse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regraft.dsl.printer import (
    print_condition,
    print_fragment,
    print_node,
    print_operand,
    print_rule,
    print_transformation,
)
from regraft.dsl.syntax import Fragment, RuleSyntax, SyntaxProblem, Transformation

if TYPE_CHECKING:
    from regraft.dsl.parser import parse_fragment, parse_rule, parse_transformation

__all__ = [
    "Fragment",
    "RuleSyntax",
    "SyntaxProblem",
    "Transformation",
    "parse_fragment",
    "parse_rule",
    "parse_transformation",
    "print_condition",
    "print_fragment",
    "print_node",
    "print_operand",
    "print_rule",
    "print_transformation",
]


def __getattr__(name: str) -> Any:
    """Return a parsing function, which is imported on first use because printing needs no Lark."""
    if name in ("parse_fragment", "parse_rule", "parse_transformation"):
        from regraft.dsl import parser

        return getattr(parser, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
