"""Signatures of both versions are compared parameter by parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

from regraft.verification.child.signature_comparison import signature_difference


def original(x: Any, *, b: int = 1) -> None: ...


def with_required_keyword_before(x: Any, *, a: int, b: int = 1) -> None: ...


def with_required_keyword_behind(x: Any, *, b: int = 1, a: int) -> None: ...


def with_optional_keyword(x: Any, *, a: int = 2, b: int = 1) -> None: ...


def with_another_default(x: Any, *, b: int = 2) -> None: ...


def with_any_keywords(x: Any, *, b: int = 1, **further: Any) -> None: ...


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (original, ""),
        (with_required_keyword_before, "requires a new parameter a"),
        (with_required_keyword_behind, "requires a new parameter a"),
        (with_optional_keyword, ""),
        (with_another_default, "the default of b is 2, not 1"),
        (with_any_keywords, ""),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_difference_of_signatures(changed: Callable[..., None], words: str) -> None:
    difference = signature_difference(original, changed)
    assert words in difference
    assert bool(difference) == bool(words)


def _function_with_size(height: int) -> Callable[..., None]:
    """Return a function with a default of a named tuple that no other function shares."""

    class Size(NamedTuple):
        height: int

    default = Size(height)

    def resize(grid: Any = default) -> None: ...

    return resize


def test_each_version_has_a_named_tuple_of_its_own() -> None:
    original, equal, other = map(_function_with_size, (4, 4, 5))
    assert signature_difference(original, equal) == ""
    assert "Size(height=5), not Size(height=4)" in signature_difference(original, other)
