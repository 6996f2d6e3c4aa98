"""Names of one value in the outcomes of paths: in a single file they stay names of one value."""

from __future__ import annotations

from regraft.splitting.emitting.single.graph_values import (
    MUTABLE,
    UNDEFINED,
    Items,
    Names,
    NestedList,
    count_occurrences,
)
from regraft.splitting.emitting.single.path_types import Inexpressible, has_unnamed_leaves, is_list


def find_aliases(outcomes: list[Names]) -> dict[str, str]:
    """Return the names that hold the same list object as another name on all paths that assign
    them, each with that other name, which is no alias itself.

    outcomes: the names with their values at the end of each path.
    """
    first_by_alias: dict[str, str] = {}
    keys = sorted(
        {key for names in outcomes for key, value in names.items() if isinstance(value, MUTABLE)}
    )
    for key in keys:
        candidates = (first for first in keys if first != key and first not in first_by_alias)
        for first in candidates:
            if all(is_alias(names, key, first) for names in outcomes):
                aliases = [alias for alias, target in first_by_alias.items() if target == key]
                first_by_alias.update(dict.fromkeys((key, *aliases), first))
                break
    return first_by_alias


def is_alias(names: Names, key: str, first: str) -> bool:
    """Return whether the name `key` has no value, or the very object that the name `first` has."""
    value = names.get(key, UNDEFINED)
    return value is UNDEFINED or value is names.get(first, UNDEFINED)


def check_aliases(names: Names, templates: Names) -> None:
    """Raise Inexpressible for a list in `names` that changes where paths meet and that two names
    hold: each would get its own copy.

    templates: the types of the names where the paths meet; a list changes if its type has leaves
    without a name.
    """
    for key, template in templates.items():
        value = names.get(key, UNDEFINED)
        if (
            isinstance(value, MUTABLE)
            and has_unnamed_leaves(template)
            and not (isinstance(value, Items) and value.kind == "tuple")
        ):
            count = sum(
                count_occurrences(names[name], value) for name in templates if name in names
            )
            if count > 1 and (is_list(value) or isinstance(value, NestedList)):
                raise Inexpressible(f"a list that is held twice ({key})")
