"""Lists of the host: lengths, known where all paths that lead here agree on them, and the names that hold a list."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from typing import Any

from regraft.splitting.codes import holds_number
from regraft.splitting.errors import Unsplittable
from regraft.splitting.residual import reads
from regraft.splitting.values import Names, Value, fork, lengths, lists_in

NUMBERS = frozenset({"int", "round", "abs", "bool", "sum", "max", "min"})  # what these give may be one


class Lists(ABC):
    """The names of a function being specialised, and what is known of the lists that they hold."""

    def __init__(self) -> None:
        self.names: Names = {}
        self.ragged: dict[int, list[Any]] = {}  # lists, by their ids, whose lengths differ between the paths here
        self.tied: dict[int, list[Any]] = {}  # lists, by their ids, that another name holds on some of the paths here
        self.given: dict[int, Any] = {}  # lists and dictionaries, by their ids, that the arguments are

    @abstractmethod
    def refuse(self, node: ast.AST, reason: str, kind: type[Unsplittable] = Unsplittable) -> Unsplittable:
        """The error that says what cannot be split, and where."""

    def is_ragged(self, example: Any) -> bool:
        return any(id(one) in self.ragged for one in lists_in(example))

    def has_length(self, value: Value) -> bool:
        """Whether it is a list of the host, under a name, whose length is known."""
        held = isinstance(value.code, ast.Name) and value.code.id in self.names
        return (
            value.kind == "host" and held and isinstance(value.example, list) and id(value.example) not in self.ragged
        )

    def met_lists(self, example: Any, others: list[Any]) -> None:
        """Note the lists in `example`, which stands for all others, unless these are as long."""
        if any(lengths(one) != lengths(example) or self.is_ragged(one) for one in others):
            self.ragged.update((id(one), one) for one in lists_in(example))

    def length_depends(self, code: ast.expr) -> bool:
        """Whether the length of a list depends on a number that data decide, or on the length of another that does."""
        if any(self.is_ragged(self.names[key].example) for key in reads(code) if key in self.names):
            return True
        deciding: list[ast.expr] = []
        for one in ast.walk(code):
            if isinstance(one, ast.Slice):
                deciding.append(one)
            elif isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult):
                deciding += [one] if self.is_list(one.left) or self.is_list(one.right) else []
            elif isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "range":
                deciding += one.args
        return any(self.is_unknown_number(one) for part in deciding for one in ast.walk(part))

    def is_list(self, code: ast.expr) -> bool:
        """Whether code of the host may give a list."""
        if isinstance(code, ast.Name):
            return code.id in self.names and isinstance(self.names[code.id].example, list)
        if isinstance(code, ast.BinOp):
            return self.is_list(code.left) or self.is_list(code.right)
        if isinstance(code, ast.Subscript):
            return self.is_list(code.value)
        if isinstance(code, ast.Call):
            called = code.func.attr if isinstance(code.func, ast.Attribute) else getattr(code.func, "id", "")
            return called in ("list", "sorted", "tolist", "copy")
        return isinstance(code, ast.List)

    def is_unknown_number(self, code: ast.AST) -> bool:
        """Whether it may be a number that data decide, in code of the host."""
        if isinstance(code, ast.Name) and code.id in self.names:
            value = self.names[code.id]
            return value.kind == "host" and isinstance(value.example, int)
        if isinstance(code, ast.Subscript) and not isinstance(code.slice, ast.Slice):
            used = [self.names[key] for key in reads(code.value) if key in self.names]
            return any(one.kind == "host" and holds_number(one.example) for one in used)
        if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute):
            return code.func.attr == "item"
        return isinstance(code, ast.Call) and isinstance(code.func, ast.Name) and code.func.id in NUMBERS

    def check_change(self, node: ast.AST, example: Any) -> None:
        """Refuse to change a list or dictionary that is the caller's, or that is held twice on some paths only."""
        if id(example) in self.given:
            raise self.refuse(node, "what an argument holds is changed here, which the caller would see")
        if id(example) in self.tied:
            raise self.refuse(node, "a list changes that another name holds, too, on some of the paths that lead here")

    def tie(self, paths: list[Names]) -> None:
        """Note the lists that are held twice on some of the paths that meet, and not on others."""
        twins: list[dict[tuple[str, int], set[tuple[str, int]]]] = []
        for names in paths:
            holders: dict[int, set[tuple[str, int]]] = {}
            for key, value in names.items():
                if value.kind == "host":
                    for place, one in enumerate(lists_in(value.example)):
                        holders.setdefault(id(one), set()).add((key, place))
            twins.append({one: several - {one} for several in holders.values() for one in several})
        for key, place in {one for known in twins for one in known}:
            if any(one.get((key, place), set()) != twins[0].get((key, place), set()) for one in twins[1:]):
                here = list(lists_in(self.names[key].example)) if key in self.names else []
                self.tied.update((id(one), one) for one in here[place : place + 1])

    def forked(self, names: Names) -> Names:
        copies: dict[int, Any] = {}
        made = fork(names, copies)
        for known in (self.ragged, self.tied, self.given):
            known.update((id(copy), copy) for key, copy in copies.items() if key in known)
        return made
