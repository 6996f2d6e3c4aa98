"""All recipes, and the mutants that they make of the installed packages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mutants import environment
from mutants.core import KINDS, PACKAGES, RIGHT, Files, Mutant, Recipe, draw, mutants_of
from mutants.recipes import (
    by_hand,
    caches,
    configuration,
    exploits,
    masks,
    right,
    sizes,
    syntax_tree,
    triggers,
    values,
)

RECIPES: tuple[Recipe, ...] = (
    *syntax_tree.RECIPES,
    *exploits.RECIPES,
    *triggers.RECIPES,
    *masks.RECIPES,
    *configuration.RECIPES,
    *sizes.RECIPES,
    *caches.RECIPES,
    *values.RECIPES,
    *by_hand.RECIPES,
    *right.RECIPES,
)


def interpreters() -> dict[str, Path]:
    """Return the interpreter of each package's environment; makes the environments the
    first time."""
    return {package: environment.interpreter(package) for package in PACKAGES}


def files(interpreters: dict[str, Path]) -> Files:
    return Files(
        {package: environment.site_packages(python) for package, python in interpreters.items()}
    )


def all_mutants(files: Files, recipes: Iterable[Recipe] = RECIPES) -> tuple[Mutant, ...]:
    """Return every mutant of the suite; names are unique."""
    mutants = {mutant.name: mutant for recipe in recipes for mutant in mutants_of(recipe, files)}
    return tuple(mutants.values())


def select(mutants: Iterable[Mutant], only: str) -> tuple[Mutant, ...]:
    """Return the mutants of a kind or package, or those whose recipe, file or definition fits the
    pattern."""
    if only in (*KINDS, RIGHT):
        return tuple(mutant for mutant in mutants if mutant.recipe.kind == only)
    if only in PACKAGES:
        return tuple(mutant for mutant in mutants if mutant.package == only)
    return tuple(mutant for mutant in mutants if re.search(only, mutant.name))


def sample(mutants: Iterable[Mutant], number: int, seed: int = 0) -> tuple[Mutant, ...]:
    """Draw mutants, as many of each kind as possible, kinds in turn; a larger sample begins with
    the smaller."""
    queues: dict[str, list[Mutant]] = {kind: [] for kind in (*KINDS, RIGHT)}
    for mutant in sorted(mutants, key=lambda mutant: draw(seed, mutant.name)):
        queues[mutant.recipe.kind].append(mutant)
    return tuple(_in_turn(list(queues.values())))[:number]


def _in_turn(queues: Sequence[Sequence[Mutant]]) -> list[Mutant]:
    longest = max(map(len, queues), default=0)
    return [
        queue[position] for position in range(longest) for queue in queues if position < len(queue)
    ]
