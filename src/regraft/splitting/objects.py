"""Objects and dictionaries that forward makes: each attribute and each item is a name of its own.

An object is known by a stand-in, an instance of its class that was never initialised. What it has at a point of the
program is a tuple of places, which the name of the object holds and which paths that meet have to agree on.
"""

from __future__ import annotations

import ast
import inspect
import re
from abc import ABCMeta, abstractmethod
from collections.abc import Collection
from dataclasses import replace
from types import (
    BuiltinMethodType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from regraft.splitting.codes import name
from regraft.splitting.interpreter import Frame, Interpreter, Local
from regraft.splitting.records import Mutable, init_owner, is_namedtuple, made_init
from regraft.splitting.residual import reads
from regraft.splitting.results import TAKEN, form_of
from regraft.splitting.scratch import Found, is_plain, is_there, take_off
from regraft.splitting.values import Names, Value, lists_in, literal

Place = tuple[str, Any]  # "attribute" or "item", and its name or key
BOUND: Any = (MethodType, BuiltinMethodType, MethodWrapperType, super)  # what has a `__self__`
METHODS = (FunctionType, classmethod, staticmethod, MethodDescriptorType, WrapperDescriptorType)
OWN_ACCESS = ("__getattribute__", "__setattr__", "__delattr__")


class Objects(Interpreter):
    """Makes objects, reads and changes what they hold."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.mutable: Collection[type] = ()  # dataclasses whose objects are followed attribute by attribute
        self.made: dict[int, tuple[int, Any]] = {}  # number and stand-in, by the stand-in's id
        self.under_way: list[Value] = []  # objects whose constructors run
        self.results: dict[str, type] = {}  # classes of the objects that forward returns
        self.scratched: dict[int, int] = {}  # numbers of modules that attributes are assigned to

    def is_made(self, example: Any) -> bool:
        return id(example) in self.made

    def is_made_dict(self, example: Any) -> bool:
        return isinstance(example, dict) and self.is_made(example)

    def holds_made(self, example: Any) -> bool:
        """Whether it is an object that forward makes, or holds one."""
        if self.is_made(example):
            return True
        if type(example) in (tuple, list):
            return any(map(self.holds_made, example))
        if type(example) is dict:
            return any(map(self.holds_made, example.values()))
        return isinstance(example, BOUND) and self.is_made(example.__self__)

    def holds_local(self, example: Any) -> bool:
        return self.holds_made(example) or super().holds_local(example)

    def make(self, kind: type) -> Value:
        """A new object without attributes and items."""
        number = 1 + max((number for number, _ in self.made.values()), default=0)
        while number in self.numbers:
            number += 1
        stand_in: Any = (dict if issubclass(kind, dict) else object).__new__(kind)
        self.made[id(stand_in)] = number, stand_in
        self.names[f"o{number}"] = self.static(())
        return self.static(stand_in)

    def can_be_made(self, kind: type) -> bool:
        """Whether it is an ordinary class, whose attributes are looked up as usual."""
        return (
            type(kind) in (type, ABCMeta)
            and not inspect.isabstract(kind)
            and kind.__new__ in (object.__new__, dict.__new__)
            and all(getattr(kind, one) in (getattr(object, one), getattr(dict, one)) for one in OWN_ACCESS)
            and not hasattr(kind, "__getattr__")
            and isinstance(inspect.getattr_static(kind, "__init__"), (FunctionType, WrapperDescriptorType))
        )

    def construct(self, node: ast.AST, kind: type, args: list[Value], words: dict[str, Value]) -> Value:
        made = self.make(kind)
        self.under_way.append(made)
        self.invoke(node, self.special(node, made.example, "__init__"), args, words)
        self.under_way.pop()
        return made

    def no_record(self, node: ast.AST, kind: type, reason: str) -> BaseException:
        """What to raise where an object cannot be known field by field: it may be, attribute by attribute."""
        if is_namedtuple(kind) or kind in self.mutable or not self.can_be_made(kind):
            return self.refuse(node, reason)
        return Mutable(kind)

    def invoke(self, node: ast.AST, method: Any, args: list[Value], words: dict[str, Value]) -> Value:
        """The call of a method of an object that forward makes."""
        if inspect.ismethod(method):
            owner = init_owner(type(method.__self__), method.__func__)
            function = method.__func__ if owner is None else self.made_init(node, owner)
            return self.inline(node, function, method.__self__, args, words)
        return self.native(node, method.__self__, method.__name__, args, words)

    def made_init(self, node: ast.AST, kind: type) -> Any:
        """The constructor that `dataclass` wrote, with statements to follow."""
        function, definition, scope = made_init(kind)
        for one in ast.walk(definition):
            ast.copy_location(one, node)
        self.local[function] = Local(definition, Frame(self.frame.path, scope, ""))
        return function

    def special(self, node: ast.AST, stand_in: Any, called: str) -> Any:
        """A method such as `__getitem__`, which is looked up in the class."""
        if not isinstance(inspect.getattr_static(type(stand_in), called, None), METHODS):
            raise self.refuse(node, f"a {type(stand_in).__name__} has no method {called}")
        return getattr(stand_in, called)

    # -- places

    def name_of(self, stand_in: Any) -> str:
        return f"o{self.made[id(stand_in)][0]}"

    def places(self, node: ast.AST, stand_in: Any) -> tuple[Place, ...]:
        found = self.names.get(self.name_of(stand_in))
        if found is None or found.kind != "static":
            kind = type(stand_in).__name__
            raise self.refuse(node, f"what this {kind} holds differs between the paths that lead here")
        return found.example  # type: ignore[no-any-return]

    def keys(self, node: ast.AST, stand_in: Any) -> list[Any]:
        return [key for kind, key in self.places(node, stand_in) if kind == "item"]

    def under(self, stand_in: Any, place: Place) -> str:
        """The name for a place of an object."""
        kind, key = place
        number = self.made[id(stand_in)][0]
        plain = isinstance(key, str) and key.isidentifier() and key.isascii() and "__" not in key and key[-1] != "_"
        small = type(key) is int and key >= 0
        shown = key if plain else f"0{key}" if small else "0x" + repr(key).encode().hex()
        return f"{'o' if kind == 'attribute' else 'd'}{number}_{shown}"

    def look_up(self, node: ast.AST, stand_in: Any, place: Place) -> Value | None:
        """What is in a place, if it is there."""
        same = [one for one in self.places(node, stand_in) if one == place]
        if not same:
            return None
        return self.whole(node, place[1], self.names[self.under(stand_in, same[0])])

    def put_in(self, node: ast.AST, stand_in: Any, place: Place, value: Value) -> None:
        self.check_change(node, stand_in)
        places = self.places(node, stand_in)
        place = next((one for one in places if one == place), place)  # 1 and True are one key
        if place not in places:
            if literal(place[1]) is None:
                raise self.refuse(node, f"a {type(place[1]).__name__} as a key is not supported")
            self.note_change(node, self.name_of(stand_in), self.static((*places, place)))
        self.note_change(node, self.under(stand_in, place), value)

    def give(self, node: ast.AST, value: Value) -> None:
        """Note the lists and dictionaries of an argument, which belong to the caller."""
        self.given.update((id(one), one) for one in lists_in(value.example))
        if self.is_made_dict(value.example):
            self.given[id(value.example)] = value.example
            for key in self.keys(node, value.example):
                self.give(node, self.look_up(node, value.example, ("item", key)) or value)
        for place in value.fields:
            self.give(node, self.element(value, place))

    def take_out(self, node: ast.AST, stand_in: Any, place: Place) -> None:
        self.check_change(node, stand_in)
        left = tuple(one for one in self.places(node, stand_in) if one != place)
        self.note_change(node, self.name_of(stand_in), self.static(left))

    def note_change(self, node: ast.AST, key: str, value: Value) -> None:
        """A new value for a place, which is no local name: what was evaluated before must not read it."""
        old = {one for one in self.names if one == key or one.startswith(f"{key}__")}
        if any(old & reads(one.code) for several in self.pending for one in several or ()):
            raise self.refuse(node, f"{key.partition('_')[2]} changes within an expression that reads it, too")
        self.store_name(key, value)
        self.changed |= old | {one for one in self.names if one == key or one.startswith(f"{key}__")}

    def collect(self) -> None:
        """Forget what the objects hold that nothing holds any more."""
        self.names = self.live(self.names)

    def live(self, names: Names) -> Names:
        """Names without those of objects that nothing holds any more."""
        numbers = {number for number, _ in self.made.values()}
        held: dict[int, list[Any]] = {}
        waiting: list[Any] = [one.example for one in self.under_way]
        waiting += [one.example for several in self.pending for one in several or ()]
        for key, value in names.items():
            found = re.match(r"[od](\d+)(_|$)", key)
            if found and int(found[1]) in numbers:
                held.setdefault(int(found[1]), []).append(value.example)
            else:
                waiting.append(value.example)
        live: set[int] = set()
        while waiting:
            one = waiting.pop()
            if self.is_made(one):
                number = self.made[id(one)][0]
                if number not in live:
                    live.add(number)
                    waiting += held.get(number, [])
            elif type(one) in (tuple, list, dict):
                waiting += one.values() if isinstance(one, dict) else one
            elif isinstance(one, BOUND):
                waiting.append(one.__self__)
        dead = tuple(f"{kind}{number}_" for number in held.keys() - live for kind in "od")
        return {key: value for key, value in names.items() if not (dead and f"{key}_".startswith(dead))}

    # -- attributes of modules that are variables of a call

    def is_scratch(self, module: Any, called: Any) -> bool:
        return isinstance(module, torch.nn.Module) and (self.paths.get(id(module)), called) in self.scratch

    def scratch_name(self, module: torch.nn.Module, called: str) -> str:
        if id(module) not in self.scratched:
            self.scratched[id(module)] = self.next_number()
        return f"s{self.scratched[id(module)]}_{called}"

    def scratch_value(self, node: ast.AST, module: torch.nn.Module, called: str) -> Value:
        found = self.names.get(self.scratch_name(module, called))
        if found is None:
            raise self.refuse(
                node, f"{called} is read where this call has not assigned it on every path; what an earlier call left"
                " there is not known (state from call to call is not supported)"
            )  # fmt: skip
        return self.whole(node, called, found)

    def put_scratch(self, node: ast.AST, module: torch.nn.Module, called: str, value: Value) -> None:
        path = self.paths.get(id(module))
        if value.kind == "static" and is_there(module, called, value.example):
            return
        held = isinstance(value.example, (torch.nn.Module, torch.nn.Parameter))
        if path is None or held or not is_plain(module, called):
            raise self.refuse(
                node, f"assigning to {called} of a module is supported where it is a plain attribute of a part of the"
                " network, which its class does not have, and no layer, weight or buffer"
            )  # fmt: skip
        if (path, called) not in self.scratch:
            raise Found((path, called))
        self.note_change(node, self.scratch_name(module, called), value)

    def taken_back(self, known: int) -> bool:
        """Whether code that was run has assigned attributes, after the first few; they are taken off again."""
        for attribute in self.stored[known:]:
            if attribute not in self.scratch:
                raise Found(attribute)
            take_off(self.model, attribute)
        return len(self.stored) > known

    # -- what programs do with objects

    def attribute(self, node: ast.AST, stand_in: Any, called: str) -> Value | None:
        """An attribute of an object or of its class, if there is one."""
        self.not_private(node, called)
        kind = type(stand_in)
        of_class = inspect.getattr_static(kind, called, None)
        if isinstance(of_class, property):
            if of_class.fget is None:
                raise self.refuse(node, f"the property {called} cannot be read")
            return self.inline(node, of_class.fget, stand_in, [], {})
        found = self.look_up(node, stand_in, ("attribute", called))
        if found is not None:
            return found
        if called == "__class__":
            return self.static(kind)
        if of_class is None or (called.startswith("__") and not callable(of_class)):
            return None
        if hasattr(type(of_class), "__get__") and not isinstance(of_class, METHODS):
            raise self.refuse(node, f"the attribute {called} of {kind.__name__} is a descriptor")
        return self.static(getattr(stand_in, called))

    def not_private(self, node: ast.AST, called: str) -> None:
        if called.startswith("__") and not called.endswith("__"):
            raise self.refuse(node, f"{called}, whose name differs from class to class, is not supported")

    def put_attribute(self, node: ast.AST, stand_in: Any, called: str, value: Value) -> None:
        self.not_private(node, called)
        of_class = inspect.getattr_static(type(stand_in), called, None)
        if hasattr(type(of_class), "__set__") and not inspect.ismemberdescriptor(of_class):
            raise self.refuse(
                node, f"assigning to {called}, which is a property or another descriptor, is not supported"
            )
        self.put_in(node, stand_in, ("attribute", called), value)

    def made_truth(self, node: ast.AST, stand_in: Any) -> bool:
        if self.is_made_dict(stand_in) and type(stand_in).__len__ is dict.__len__:
            return bool(self.keys(node, stand_in))
        if hasattr(type(stand_in), "__bool__") or hasattr(type(stand_in), "__len__"):
            raise self.refuse(node, f"the truth of a {type(stand_in).__name__} is not supported")
        return True

    def display(self, node: ast.AST, value: Value) -> Value:
        """Dictionaries as the host writes them down, also within tuples."""
        if value.kind == "static" and self.is_made(value.example) and type(value.example) is dict:
            keys = self.keys(node, value.example)
            items = [self.display(node, self.names[self.under(value.example, ("item", key))]) for key in keys]
            codes: list[ast.expr | None] = [ast.Constant(key) for key in keys]
            for one in items:
                if one.kind == "lost" or (one.kind == "static" and literal(one.example) is None):
                    raise self.refuse(node, "a dictionary holds something here that the host cannot make")
            code = ast.Dict(codes, [self.held(one) if one.kind == "tensor" else one.code for one in items])
            examples = ({key: one.example for key, one in zip(keys, items, strict=True)},
                        {key: one.other for key, one in zip(keys, items, strict=True)})  # fmt: skip
            return Value("host", examples[0], code, examples[1])
        if value.kind == "record":
            return self.as_result(node, value, {key: self.element(value, key) for key in value.fields})
        if value.kind == "static" and self.is_made(value.example):
            held = {key: self.names[self.under(value.example, (kind, key))]
                    for kind, key in self.places(node, value.example)}  # fmt: skip
            return self.as_result(node, value, held)
        several = value.kind == "static" and type(value.example) is tuple and self.holds_made(value.example)
        if several or (value.fields and value.kind == "host"):
            parts = [self.display(node, self.element(value, place)) for place in range(len(value.example))]
            elements = [self.held(one) if one.kind == "tensor" else one.code for one in parts]
            return replace(value, kind="host", code=ast.Tuple(elements, ast.Load()))
        return value

    def as_result(self, node: ast.AST, value: Value, held: dict[Any, Value]) -> Value:
        """An object that forward returns, which the host makes of what it holds."""
        kind = type(value.example)
        plain = all(isinstance(key, str) and key.isidentifier() for key in held)
        made = form_of(kind) != "mapping" or value.kind == "record"  # of the fields, else of items, too
        if form_of(kind) is None or not plain or not made or not kind.__name__.isidentifier():
            raise self.refuse(node, f"returns a {kind.__name__}, which the host cannot make")
        if kind.__name__ in self.variables | TAKEN or self.results.setdefault(kind.__name__, kind) is not kind:
            raise self.refuse(node, f"returns a {kind.__name__}, while something else has this name, too")
        words = []
        for key, one in held.items():
            part = self.display(node, self.whole(node, key, one))
            if part.kind == "static" and literal(part.example) is None:
                raise self.refuse(node, f"returns a {kind.__name__} whose {key} the host cannot make")
            words.append(ast.keyword(key, self.held(part) if part.kind == "tensor" else part.code))
        return Value("host", value.example, ast.Call(name(kind.__name__), [], words), value.twin)

    @abstractmethod
    def together(self, values: list[Value]) -> Value:
        """A tuple of values, as they stand."""

    @abstractmethod
    def element(self, value: Value, place: Any) -> Value:
        """One element of a tuple, or one field of a record."""

    @abstractmethod
    def store_name(self, key: str, value: Value) -> None:
        """Assign to a name as it stands."""

    @abstractmethod
    def inline(self, node: ast.AST, function: Any, owner: Any, args: list[Value], words: dict[Any, Value]) -> Value:
        """The function's statements in the place of its call."""

    @abstractmethod
    def native(self, node: ast.AST, owner: Any, called: str, args: list[Value], words: dict[str, Value]) -> Value:
        """A method that a class has from `dict` or `object`."""
