"""Methods of dictionaries that forward makes, whose keys are known."""

from __future__ import annotations

import ast
from typing import Any

from regraft.splitting.program.values import Value
from regraft.splitting.specialising.objects import Objects


class Dictionaries(Objects):
    """Evaluates the methods of dictionaries, each by the `dict_` method of its name."""

    def call_native(
        self,
        node: ast.AST,
        owner: Any,
        method_name: str,
        args: list[Value],
        keywords: dict[str, Value],
    ) -> Value:
        """Call a method that a class has from `dict` or `object`."""
        handler = (
            getattr(self, f"dict_{method_name.strip('_')}", None)
            if isinstance(owner, dict)
            else None
        )
        if method_name == "__init__" and not isinstance(owner, dict) and not args and not keywords:
            return self.static(None)
        if handler is None or (keywords and method_name not in ("__init__", "update")):
            raise self.refuse(
                node,
                f"{method_name} of a {type(owner).__name__} that forward makes is not supported",
            )
        if method_name in ("__init__", "update"):
            return self.dict_update(node, owner, *args, **keywords)
        if method_name in ("keys", "values", "items") and not getattr(node, "at_once", False):
            raise self.refuse(
                node, f"{method_name}() that is kept changes with its dictionary; make a list of it"
            )
        if args and args[0].kind != "static":
            raise self.refuse(
                node, "a key of a dictionary that is known only at run time is not supported"
            )
        return handler(node, owner, *args)  # type: ignore[no-any-return]

    def dict_update(self, node: ast.AST, owner: Any, *args: Value, **keywords: Value) -> Value:
        for mapping in args:
            for key, value in self.items_of(node, mapping).items():
                self.set_place(node, owner, ("item", key), value)
        for word, value in keywords.items():
            self.set_place(node, owner, ("item", word), value)
        return self.static(None)

    dict_init = dict_update

    def items_of(self, node: ast.AST, value: Value) -> dict[Any, Value]:
        """Return the items of a dictionary that is known or that forward makes."""
        if self.is_dict_stand_in(value.example):
            return {
                key: self.dict_getitem(node, value.example, self.static(key))
                for key in self.item_keys(node, value.example)
            }
        if value.kind == "static" and isinstance(value.example, dict):
            return {key: self.static(item) for key, item in value.example.items()}
        raise self.refuse(node, "only a dictionary whose keys are known can be taken apart")

    def dict_getitem(self, node: ast.AST, owner: Any, key: Value) -> Value:
        value = self.look_up(node, owner, ("item", key.example))
        if value is None:
            raise self.refuse(node, f"{key.example!r} is no key of this dictionary here")
        return value

    def dict_get(
        self, node: ast.AST, owner: Any, key: Value, default: Value | None = None
    ) -> Value:
        value = self.look_up(node, owner, ("item", key.example))
        return value if value is not None else default or self.static(None)

    def dict_setitem(self, node: ast.AST, owner: Any, key: Value, value: Value) -> Value:
        self.set_place(node, owner, ("item", key.example), value)
        return self.static(None)

    def dict_setdefault(
        self, node: ast.AST, owner: Any, key: Value, value: Value | None = None
    ) -> Value:
        if self.look_up(node, owner, ("item", key.example)) is None:
            self.set_place(node, owner, ("item", key.example), value or self.static(None))
        return self.dict_getitem(node, owner, key)

    def dict_pop(
        self, node: ast.AST, owner: Any, key: Value, default: Value | None = None
    ) -> Value:
        value = (
            self.dict_get(node, owner, key, default)
            if default is not None
            else self.dict_getitem(node, owner, key)
        )
        self.remove_place(node, owner, ("item", key.example))
        return value

    def dict_delitem(self, node: ast.AST, owner: Any, key: Value) -> Value:
        self.dict_pop(node, owner, key)
        return self.static(None)

    def dict_contains(self, node: ast.AST, owner: Any, key: Value) -> Value:
        return self.static(("item", key.example) in self.places(node, owner))

    def dict_len(self, node: ast.AST, owner: Any) -> Value:
        return self.static(len(self.item_keys(node, owner)))

    def dict_keys(self, node: ast.AST, owner: Any) -> Value:
        return self.static(tuple(self.item_keys(node, owner)))

    def dict_values(self, node: ast.AST, owner: Any) -> Value:
        return self.make_tuple([*self.items_of(node, self.static(owner)).values()])

    def dict_items(self, node: ast.AST, owner: Any) -> Value:
        items = self.items_of(node, self.static(owner)).items()
        return self.make_tuple([self.make_tuple([self.static(key), value]) for key, value in items])

    def dict_copy(self, node: ast.AST, owner: Any) -> Value:
        new_dictionary = self.make_object(dict)
        self.dict_update(node, new_dictionary.example, self.static(owner))
        return new_dictionary
