"""Mutants that are written for one place of one file."""

from __future__ import annotations

from mutants.core import Recipe

RECIPES: tuple[Recipe, ...] = ()
