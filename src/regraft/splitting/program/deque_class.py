"""A `collections.deque` as a class of Python, whose methods specialisation follows."""

from __future__ import annotations

import collections
from typing import Any


class Deque:
    """Does what a deque does, on a list.

    stands_for: the class that it stands for, where a network asks for the class of an object.
    """

    stands_for = collections.deque

    def __init__(self, iterable: Any = (), maxlen: int | None = None) -> None:
        self.items: list[Any] = []
        self.items.extend(iterable)
        self.maxlen = maxlen
        self.drop_first()

    def drop_first(self) -> None:
        """Remove the first items beyond `maxlen`."""
        if self.maxlen is not None:
            del self.items[: max(0, len(self.items) - self.maxlen)]

    def append(self, item: Any) -> None:
        """Add an item at the end."""
        self.items.append(item)
        self.drop_first()

    def appendleft(self, item: Any) -> None:
        """Add an item at the front; the last items beyond `maxlen` go."""
        self.items.insert(0, item)
        if self.maxlen is not None:
            del self.items[self.maxlen :]

    def extend(self, iterable: Any) -> None:
        """Add items at the end."""
        self.items.extend(iterable)
        self.drop_first()

    def pop(self) -> Any:
        """Remove and return the last item; raise IndexError without one."""
        return self.items.pop()

    def popleft(self) -> Any:
        """Remove and return the first item; raise IndexError without one."""
        return self.items.pop(0)

    def clear(self) -> None:
        """Remove all items."""
        del self.items[:]

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, item: Any) -> bool:
        return item in self.items

    def __getitem__(self, index: int) -> Any:
        return self.items[index]

    def __setitem__(self, index: int, item: Any) -> None:
        self.items[index] = item
