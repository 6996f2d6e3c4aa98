"""Methods of dictionaries that forward makes, whose keys are known."""

from __future__ import annotations

import ast
from typing import Any

from regraft.splitting.objects import Objects
from regraft.splitting.values import Value


class Dictionaries(Objects):
    """Fills, reads and changes them."""

    def native(self, node: ast.AST, owner: Any, called: str, args: list[Value], words: dict[str, Value]) -> Value:
        """A method that a class has from `dict` or `object`."""
        handler = getattr(self, f"dict_{called.strip('_')}", None) if isinstance(owner, dict) else None
        if called == "__init__" and not isinstance(owner, dict) and not args and not words:
            return self.static(None)
        if handler is None or (words and called not in ("__init__", "update")):
            raise self.refuse(node, f"{called} of a {type(owner).__name__} that forward makes is not supported")
        if called in ("__init__", "update"):
            return self.dict_update(node, owner, *args, **words)
        if called in ("keys", "values", "items") and not getattr(node, "at_once", False):
            raise self.refuse(node, f"{called}() that is kept changes with its dictionary; make a list of it")
        if args and args[0].kind != "static":
            raise self.refuse(node, "a key of a dictionary that is known only at run time is not supported")
        return handler(node, owner, *args)  # type: ignore[no-any-return]

    def dict_update(self, node: ast.AST, owner: Any, *args: Value, **words: Value) -> Value:
        for one in args:
            for key, value in self.items_of(node, one).items():
                self.put_in(node, owner, ("item", key), value)
        for word, value in words.items():
            self.put_in(node, owner, ("item", word), value)
        return self.static(None)

    dict_init = dict_update

    def items_of(self, node: ast.AST, value: Value) -> dict[Any, Value]:
        """The items of a dictionary that is known or was made."""
        if self.is_made_dict(value.example):
            return {
                key: self.dict_getitem(node, value.example, self.static(key)) for key in self.keys(node, value.example)
            }
        if value.kind == "static" and isinstance(value.example, dict):
            return {key: self.static(one) for key, one in value.example.items()}
        raise self.refuse(node, "only a dictionary whose keys are known can be taken apart")

    def dict_getitem(self, node: ast.AST, owner: Any, key: Value) -> Value:
        found = self.look_up(node, owner, ("item", key.example))
        if found is None:
            raise self.refuse(node, f"{key.example!r} is no key of this dictionary here")
        return found

    def dict_get(self, node: ast.AST, owner: Any, key: Value, other: Value | None = None) -> Value:
        found = self.look_up(node, owner, ("item", key.example))
        return found if found is not None else other or self.static(None)

    def dict_setitem(self, node: ast.AST, owner: Any, key: Value, value: Value) -> Value:
        self.put_in(node, owner, ("item", key.example), value)
        return self.static(None)

    def dict_setdefault(self, node: ast.AST, owner: Any, key: Value, value: Value | None = None) -> Value:
        if self.look_up(node, owner, ("item", key.example)) is None:
            self.put_in(node, owner, ("item", key.example), value or self.static(None))
        return self.dict_getitem(node, owner, key)

    def dict_pop(self, node: ast.AST, owner: Any, key: Value, other: Value | None = None) -> Value:
        found = self.dict_get(node, owner, key, other) if other is not None else self.dict_getitem(node, owner, key)
        self.take_out(node, owner, ("item", key.example))
        return found

    def dict_delitem(self, node: ast.AST, owner: Any, key: Value) -> Value:
        self.dict_pop(node, owner, key)
        return self.static(None)

    def dict_contains(self, node: ast.AST, owner: Any, key: Value) -> Value:
        return self.static(("item", key.example) in self.places(node, owner))

    def dict_len(self, node: ast.AST, owner: Any) -> Value:
        return self.static(len(self.keys(node, owner)))

    def dict_keys(self, node: ast.AST, owner: Any) -> Value:
        return self.static(tuple(self.keys(node, owner)))

    def dict_values(self, node: ast.AST, owner: Any) -> Value:
        return self.together([*self.items_of(node, self.static(owner)).values()])

    def dict_items(self, node: ast.AST, owner: Any) -> Value:
        items = self.items_of(node, self.static(owner)).items()
        return self.together([self.together([self.static(key), value]) for key, value in items])

    def dict_copy(self, node: ast.AST, owner: Any) -> Value:
        made = self.make(dict)
        self.dict_update(node, made.example, self.static(owner))
        return made
