"""Lists of the host: lengths, known if all paths that lead here agree on them, and the names that
hold a list."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from typing import Any

from regraft.splitting.errors import Unsplittable
from regraft.splitting.program.codes import holds_number
from regraft.splitting.program.residual import reads
from regraft.splitting.program.values import Names, Value, fork, list_lengths, lists_in

# functions that may give a number
NUMBER_FUNCTIONS = frozenset({"int", "round", "abs", "bool", "sum", "max", "min"})


class Lists(ABC):
    """Holds the names of a function being specialised, and what is known of the lists that they
    hold."""

    def __init__(self) -> None:
        self.names: Names = {}
        # lists, by their ids, whose lengths differ between the paths here
        self.ragged: dict[int, list[Any]] = {}
        # lists, by their ids, that two names hold on some paths only
        self.partly_aliased: dict[int, list[Any]] = {}
        # lists and dictionaries of the arguments, by their ids
        self.caller_containers: dict[int, Any] = {}

    @abstractmethod
    def refuse(
        self, node: ast.AST, reason: str, kind: type[Unsplittable] = Unsplittable
    ) -> Unsplittable:
        """Return the error that says what cannot be split, and where."""

    def is_ragged(self, example: Any) -> bool:
        """Return whether a list in `example` has different lengths on the paths here."""
        return any(id(inner_list) in self.ragged for inner_list in lists_in(example))

    def has_length(self, value: Value) -> bool:
        """Return whether a value is a list of the host, under a name, whose length is known."""
        has_name = isinstance(value.code, ast.Name) and value.code.id in self.names
        return (
            value.kind == "host"
            and has_name
            and isinstance(value.example, list)
            and id(value.example) not in self.ragged
        )

    def note_ragged(self, example: Any, alternatives: list[Any]) -> None:
        """Note the lists in `example`, which stands for all alternatives, as ragged unless these
        are as long."""
        if any(
            list_lengths(alternative) != list_lengths(example) or self.is_ragged(alternative)
            for alternative in alternatives
        ):
            self.ragged.update((id(inner_list), inner_list) for inner_list in lists_in(example))

    def length_depends(self, code: ast.expr) -> bool:
        """Return whether the length of a list depends on a number that data decide, or on a list
        whose length does."""
        if any(self.is_ragged(self.names[key].example) for key in reads(code) if key in self.names):
            return True
        deciding: list[ast.expr] = []
        for node in ast.walk(code):
            if isinstance(node, ast.Slice):
                deciding.append(node)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                deciding += [node] if self.is_list(node.left) or self.is_list(node.right) else []
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "range"
            ):
                deciding += node.args
        return any(self.is_unknown_number(node) for part in deciding for node in ast.walk(part))

    def is_list(self, code: ast.expr) -> bool:
        """Return whether code of the host may give a list."""
        if isinstance(code, ast.Name):
            return code.id in self.names and isinstance(self.names[code.id].example, list)
        if isinstance(code, ast.BinOp):
            return self.is_list(code.left) or self.is_list(code.right)
        if isinstance(code, ast.Subscript):
            return self.is_list(code.value)
        if isinstance(code, ast.Call):
            function_name = (
                code.func.attr
                if isinstance(code.func, ast.Attribute)
                else getattr(code.func, "id", "")
            )
            return function_name in ("list", "sorted", "tolist", "copy")
        return isinstance(code, ast.List)

    def is_unknown_number(self, code: ast.AST) -> bool:
        """Return whether code of the host may be a number that data decide."""
        if isinstance(code, ast.Name) and code.id in self.names:
            value = self.names[code.id]
            return value.kind == "host" and isinstance(value.example, int)
        if isinstance(code, ast.Subscript) and not isinstance(code.slice, ast.Slice):
            operands = [self.names[key] for key in reads(code.value) if key in self.names]
            return any(
                operand.kind == "host" and holds_number(operand.example) for operand in operands
            )
        if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute):
            return code.func.attr == "item"
        return (
            isinstance(code, ast.Call)
            and isinstance(code.func, ast.Name)
            and code.func.id in NUMBER_FUNCTIONS
        )

    def check_change(self, node: ast.AST, example: Any) -> None:
        """Refuse to change a list or dictionary that is the caller's, or that two names hold on
        some paths only."""
        if id(example) in self.caller_containers:
            raise self.refuse(
                node, "what an argument holds is changed here, which the caller would see"
            )
        if id(example) in self.partly_aliased:
            raise self.refuse(
                node,
                "a list changes that another name holds, too, on some of the paths that lead here",
            )

    def note_partly_aliased(self, paths: list[Names]) -> None:
        """Note the lists that two names hold on some of the paths that meet, and not on others."""
        aliases_by_path: list[dict[tuple[str, int], set[tuple[str, int]]]] = []
        for names in paths:
            holders: dict[int, set[tuple[str, int]]] = {}
            for key, value in names.items():
                if value.kind == "host":
                    for place, inner_list in enumerate(lists_in(value.example)):
                        holders.setdefault(id(inner_list), set()).add((key, place))
            aliases_by_path.append(
                {holder: group - {holder} for group in holders.values() for holder in group}
            )
        for key, place in {holder for aliases in aliases_by_path for holder in aliases}:
            if any(
                aliases.get((key, place), set()) != aliases_by_path[0].get((key, place), set())
                for aliases in aliases_by_path[1:]
            ):
                inner_lists = list(lists_in(self.names[key].example)) if key in self.names else []
                self.partly_aliased.update(
                    (id(inner_list), inner_list) for inner_list in inner_lists[place : place + 1]
                )

    def fork_names(self, names: Names) -> Names:
        """Return the names with containers of their own, of which is known what is known of the
        originals."""
        copies: dict[int, Any] = {}
        forked = fork(names, copies)
        for notes in (self.ragged, self.partly_aliased, self.caller_containers):
            notes.update((id(copy), copy) for key, copy in copies.items() if key in notes)
        return forked
