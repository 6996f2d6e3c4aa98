"""Objects and dictionaries that forward makes: each attribute and each item is a name of its own.

An object is known by a stand-in, an instance of its class that was never initialised. The
attributes and items of an object at a point of the program are a tuple of places, which the name of
the object holds; paths that meet have to agree on it.
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

from regraft.splitting.observing.scratch import (
    NewAttribute,
    is_plain,
    is_reassigned,
    remove_attribute,
)
from regraft.splitting.program.codes import name
from regraft.splitting.program.records import Mutable, init_owner, is_namedtuple, write_init
from regraft.splitting.program.residual import reads
from regraft.splitting.program.results import RESERVED_NAMES, form_of
from regraft.splitting.program.values import Names, Value, lists_in, literal
from regraft.splitting.specialising.interpreter import Frame, Interpreter, LocalFunction

Place = tuple[str, Any]  # "attribute" or "item", and its name or key
# types whose instances have a `__self__`
BOUND_TYPES: Any = (
    MethodType,
    BuiltinMethodType,
    MethodWrapperType,
    super,
)
METHOD_TYPES = (
    FunctionType,
    classmethod,
    staticmethod,
    MethodDescriptorType,
    WrapperDescriptorType,
)
ACCESS_METHODS = ("__getattribute__", "__setattr__", "__delattr__")


class Objects(Interpreter):
    """Makes objects, reads and changes what they hold."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        # dataclasses whose objects are followed attribute by attribute
        self.mutable: Collection[type] = ()
        self.stand_ins: dict[int, tuple[int, Any]] = {}  # number and stand-in, by the stand-in's id
        self.under_construction: list[Value] = []  # the objects whose constructors run
        self.results: dict[str, type] = {}  # classes of the objects that forward returns
        # numbers of modules that attributes are assigned to
        self.scratch_numbers: dict[int, int] = {}

    def is_stand_in(self, example: Any) -> bool:
        """Return whether `example` is the stand-in of an object that forward makes."""
        return id(example) in self.stand_ins

    def is_dict_stand_in(self, example: Any) -> bool:
        return isinstance(example, dict) and self.is_stand_in(example)

    def holds_stand_in(self, example: Any) -> bool:
        """Return whether `example` is an object that forward makes, or holds one."""
        if self.is_stand_in(example):
            return True
        if type(example) in (tuple, list):
            return any(map(self.holds_stand_in, example))
        if type(example) is dict:
            return any(map(self.holds_stand_in, example.values()))
        return isinstance(example, BOUND_TYPES) and self.is_stand_in(example.__self__)

    def holds_local_function(self, example: Any) -> bool:
        return self.holds_stand_in(example) or super().holds_local_function(example)

    def make_object(self, object_class: type) -> Value:
        """Return a new object without attributes and items."""
        number = 1 + max((number for number, _ in self.stand_ins.values()), default=0)
        while number in self.taken_numbers:
            number += 1
        stand_in: Any = (dict if issubclass(object_class, dict) else object).__new__(object_class)
        self.stand_ins[id(stand_in)] = number, stand_in
        self.names[f"o{number}"] = self.static(())
        return self.static(stand_in)

    def can_be_made(self, object_class: type) -> bool:
        """Return whether `object_class` is an ordinary class, whose attributes are looked up as
        usual."""
        return (
            type(object_class) in (type, ABCMeta)
            and not inspect.isabstract(object_class)
            and object_class.__new__ in (object.__new__, dict.__new__)
            and all(
                getattr(object_class, method_name)
                in (getattr(object, method_name), getattr(dict, method_name))
                for method_name in ACCESS_METHODS
            )
            and not hasattr(object_class, "__getattr__")
            and isinstance(
                inspect.getattr_static(object_class, "__init__"),
                (FunctionType, WrapperDescriptorType),
            )
        )

    def construct(
        self, node: ast.AST, object_class: type, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """Return a new object, whose constructor is followed."""
        new_object = self.make_object(object_class)
        self.under_construction.append(new_object)
        self.invoke(node, self.special_method(node, new_object.example, "__init__"), args, keywords)
        self.under_construction.pop()
        return new_object

    def record_error(self, node: ast.AST, object_class: type, reason: str) -> BaseException:
        """Return the error for an object that is no record: Mutable if it can be followed attribute
        by attribute."""
        if (
            is_namedtuple(object_class)
            or object_class in self.mutable
            or not self.can_be_made(object_class)
        ):
            return self.refuse(node, reason)
        return Mutable(object_class)

    def invoke(
        self, node: ast.AST, method: Any, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        """Call a method of an object that forward makes."""
        if inspect.ismethod(method):
            owner = init_owner(type(method.__self__), method.__func__)
            function = method.__func__ if owner is None else self.dataclass_init(node, owner)
            return self.inline(node, function, method.__self__, args, keywords)
        return self.call_native(node, method.__self__, method.__name__, args, keywords)

    def dataclass_init(self, node: ast.AST, object_class: type) -> Any:
        """Return the constructor that `dataclass` wrote, with statements to follow."""
        function, definition, scope = write_init(object_class)
        for part in ast.walk(definition):
            ast.copy_location(part, node)
        self.local_functions[function] = LocalFunction(
            definition, Frame(self.frame.path, scope, "")
        )
        return function

    def special_method(self, node: ast.AST, stand_in: Any, method_name: str) -> Any:
        """Return a method such as `__getitem__`, which is looked up in the class."""
        if not isinstance(inspect.getattr_static(type(stand_in), method_name, None), METHOD_TYPES):
            raise self.refuse(node, f"a {type(stand_in).__name__} has no method {method_name}")
        return getattr(stand_in, method_name)

    # -- places

    def name_of(self, stand_in: Any) -> str:
        """Return the name that holds the places of an object."""
        return f"o{self.stand_ins[id(stand_in)][0]}"

    def places(self, node: ast.AST, stand_in: Any) -> tuple[Place, ...]:
        """Return the places of an object; refuse where the paths that lead here disagree on
        them."""
        value = self.names.get(self.name_of(stand_in))
        if value is None or value.kind != "static":
            class_name = type(stand_in).__name__
            raise self.refuse(
                node, f"what this {class_name} holds differs between the paths that lead here"
            )
        return value.example  # type: ignore[no-any-return]

    def item_keys(self, node: ast.AST, stand_in: Any) -> list[Any]:
        """Return the keys of the items of an object."""
        return [key for kind, key in self.places(node, stand_in) if kind == "item"]

    def place_name(self, stand_in: Any, place: Place) -> str:
        """Return the name for a place of an object."""
        kind, key = place
        number = self.stand_ins[id(stand_in)][0]
        is_identifier = (
            isinstance(key, str)
            and key.isidentifier()
            and key.isascii()
            and "__" not in key
            and key[-1] != "_"
        )
        is_index = type(key) is int and key >= 0
        suffix = (
            key if is_identifier else f"0{key}" if is_index else "0x" + repr(key).encode().hex()
        )
        return f"{'o' if kind == 'attribute' else 'd'}{number}_{suffix}"

    def look_up(self, node: ast.AST, stand_in: Any, place: Place) -> Value | None:
        """Return the value in a place; None if the object has no such place."""
        matches = [candidate for candidate in self.places(node, stand_in) if candidate == place]
        if not matches:
            return None
        return self.require_one_type(
            node, place[1], self.names[self.place_name(stand_in, matches[0])]
        )

    def set_place(self, node: ast.AST, stand_in: Any, place: Place, value: Value) -> None:
        """Set a place of an object, which is added if the object has no such place."""
        self.check_change(node, stand_in)
        places = self.places(node, stand_in)
        # 1 and True are one key
        place = next((candidate for candidate in places if candidate == place), place)
        if place not in places:
            if literal(place[1]) is None:
                raise self.refuse(node, f"a {type(place[1]).__name__} as a key is not supported")
            self.note_change(node, self.name_of(stand_in), self.static((*places, place)))
        self.note_change(node, self.place_name(stand_in, place), value)

    def mark_caller_containers(self, node: ast.AST, value: Value) -> None:
        """Note the lists and dictionaries of an argument, which belong to the caller."""
        self.caller_containers.update(
            (id(inner_list), inner_list) for inner_list in lists_in(value.example)
        )
        if self.is_dict_stand_in(value.example):
            self.caller_containers[id(value.example)] = value.example
            for key in self.item_keys(node, value.example):
                self.mark_caller_containers(
                    node, self.look_up(node, value.example, ("item", key)) or value
                )
        for place in value.fields:
            self.mark_caller_containers(node, self.element(value, place))

    def remove_place(self, node: ast.AST, stand_in: Any, place: Place) -> None:
        """Remove a place from an object."""
        self.check_change(node, stand_in)
        remaining = tuple(
            candidate for candidate in self.places(node, stand_in) if candidate != place
        )
        self.note_change(node, self.name_of(stand_in), self.static(remaining))

    def note_change(self, node: ast.AST, key: str, value: Value) -> None:
        """Set a place, which is no local name, to a new value; refuse it if a value not used yet
        reads the place."""
        old_names = {
            candidate
            for candidate in self.names
            if candidate == key or candidate.startswith(f"{key}__")
        }
        if any(
            old_names & reads(waiting.code) for values in self.pending for waiting in values or ()
        ):
            raise self.refuse(
                node, f"{key.partition('_')[2]} changes within an expression that reads it, too"
            )
        self.store_name(key, value)
        self.changed_names |= old_names | {
            candidate
            for candidate in self.names
            if candidate == key or candidate.startswith(f"{key}__")
        }

    def forget_dead_objects(self) -> None:
        """Forget the places of objects that nothing holds any more."""
        self.names = self.live_names(self.names)

    def live_names(self, names: Names) -> Names:
        """Return the names without those of objects that nothing holds any more."""
        numbers = {number for number, _ in self.stand_ins.values()}
        examples_by_number: dict[int, list[Any]] = {}
        unvisited: list[Any] = [value.example for value in self.under_construction]
        unvisited += [value.example for values in self.pending for value in values or ()]
        for key, value in names.items():
            match = re.match(r"[od](\d+)(_|$)", key)
            if match and int(match[1]) in numbers:
                examples_by_number.setdefault(int(match[1]), []).append(value.example)
            else:
                unvisited.append(value.example)
        live_numbers: set[int] = set()
        while unvisited:
            example = unvisited.pop()
            if self.is_stand_in(example):
                number = self.stand_ins[id(example)][0]
                if number not in live_numbers:
                    live_numbers.add(number)
                    unvisited += examples_by_number.get(number, [])
            elif type(example) in (tuple, list, dict):
                unvisited += example.values() if isinstance(example, dict) else example
            elif isinstance(example, BOUND_TYPES):
                unvisited.append(example.__self__)
        dead_prefixes = tuple(
            f"{kind}{number}_"
            for number in examples_by_number.keys() - live_numbers
            for kind in "od"
        )
        return {
            key: value
            for key, value in names.items()
            if not (dead_prefixes and f"{key}_".startswith(dead_prefixes))
        }

    # -- attributes of modules that are variables of a call

    def is_scratch(self, module: Any, attribute: Any) -> bool:
        """Return whether an attribute of a module is a variable of a call."""
        return (
            isinstance(module, torch.nn.Module)
            and (self.paths.get(id(module)), attribute) in self.scratch
        )

    def scratch_name(self, module: torch.nn.Module, attribute: str) -> str:
        """Return the name for an attribute of a module that is a variable of a call."""
        if id(module) not in self.scratch_numbers:
            self.scratch_numbers[id(module)] = self.next_number()
        return f"s{self.scratch_numbers[id(module)]}_{attribute}"

    def scratch_value(self, node: ast.AST, module: torch.nn.Module, attribute: str) -> Value:
        """Return what an attribute of a module holds that is a variable of a call."""
        value = self.names.get(self.scratch_name(module, attribute))
        if value is None:
            raise self.refuse(
                node,
                f"{attribute} is read where this call has not assigned it on every path; what an"
                " earlier call left there is not known (state from call to call is not supported)",
            )
        return self.require_one_type(node, attribute, value)

    def put_scratch(
        self, node: ast.AST, module: torch.nn.Module, attribute: str, value: Value
    ) -> None:
        """Assign to an attribute of a module; raise Found if it is no variable of a call yet."""
        path = self.paths.get(id(module))
        if value.kind == "static" and is_reassigned(module, attribute, value.example):
            return
        is_part = isinstance(value.example, (torch.nn.Module, torch.nn.Parameter))
        if path is None or is_part or not is_plain(module, attribute):
            raise self.refuse(
                node,
                f"assigning to {attribute} of a module is supported where it is a plain attribute"
                " of a part of the network, which its class does not have, and no layer, weight or"
                " buffer",
            )
        if (path, attribute) not in self.scratch:
            raise NewAttribute((path, attribute))
        self.note_change(node, self.scratch_name(module, attribute), value)

    def undo_stores(self, stored_count: int) -> bool:
        """Delete the attributes that code assigned after the first `stored_count`; return whether
        there are any."""
        for attribute in self.stored_attributes[stored_count:]:
            if attribute not in self.scratch:
                raise NewAttribute(attribute)
            remove_attribute(self.model, attribute)
        return len(self.stored_attributes) > stored_count

    # -- operations on objects

    def attribute(self, node: ast.AST, stand_in: Any, attribute: str) -> Value | None:
        """Return an attribute of an object or of its class; None if there is none."""
        self.check_not_private(node, attribute)
        object_class = type(stand_in)
        class_attribute = inspect.getattr_static(object_class, attribute, None)
        if isinstance(class_attribute, property):
            if class_attribute.fget is None:
                raise self.refuse(node, f"the property {attribute} cannot be read")
            return self.inline(node, class_attribute.fget, stand_in, [], {})
        value = self.look_up(node, stand_in, ("attribute", attribute))
        if value is not None:
            return value
        if attribute == "__class__":
            return self.static(object_class)
        if class_attribute is None or (
            attribute.startswith("__") and not callable(class_attribute)
        ):
            return None
        if hasattr(type(class_attribute), "__get__") and not isinstance(
            class_attribute, METHOD_TYPES
        ):
            raise self.refuse(
                node, f"the attribute {attribute} of {object_class.__name__} is a descriptor"
            )
        return self.static(getattr(stand_in, attribute))

    def check_not_private(self, node: ast.AST, attribute: str) -> None:
        """Refuse an attribute such as `__x`, whose name Python mangles by class."""
        if attribute.startswith("__") and not attribute.endswith("__"):
            raise self.refuse(
                node, f"{attribute}, whose name differs from class to class, is not supported"
            )

    def put_attribute(self, node: ast.AST, stand_in: Any, attribute: str, value: Value) -> None:
        self.check_not_private(node, attribute)
        class_attribute = inspect.getattr_static(type(stand_in), attribute, None)
        if hasattr(type(class_attribute), "__set__") and not inspect.ismemberdescriptor(
            class_attribute
        ):
            raise self.refuse(
                node,
                f"assigning to {attribute}, which is a property or another descriptor, is not"
                " supported",
            )
        self.set_place(node, stand_in, ("attribute", attribute), value)

    def truth_of_stand_in(self, node: ast.AST, stand_in: Any) -> bool:
        if self.is_dict_stand_in(stand_in) and type(stand_in).__len__ is dict.__len__:
            return bool(self.item_keys(node, stand_in))
        if hasattr(type(stand_in), "__bool__") or hasattr(type(stand_in), "__len__"):
            raise self.refuse(node, f"the truth of a {type(stand_in).__name__} is not supported")
        return True

    def as_host_display(self, node: ast.AST, value: Value) -> Value:
        """Return the value with dictionaries and objects as the host writes them down, also within
        tuples."""
        if (
            value.kind == "static"
            and self.is_stand_in(value.example)
            and type(value.example) is dict
        ):
            keys = self.item_keys(node, value.example)
            items = [
                self.as_host_display(
                    node, self.names[self.place_name(value.example, ("item", key))]
                )
                for key in keys
            ]
            codes: list[ast.expr | None] = [ast.Constant(key) for key in keys]
            for item in items:
                if item.kind == "lost" or (item.kind == "static" and literal(item.example) is None):
                    raise self.refuse(
                        node, "a dictionary holds something here that the host cannot make"
                    )
            code = ast.Dict(
                codes,
                [self.bind_result(item) if item.kind == "tensor" else item.code for item in items],
            )
            examples = (
                {key: item.example for key, item in zip(keys, items, strict=True)},
                {key: item.second_example for key, item in zip(keys, items, strict=True)},
            )
            return Value("host", examples[0], code, examples[1])
        if value.kind == "record":
            return self.result_object(
                node, value, {key: self.element(value, key) for key in value.fields}
            )
        if value.kind == "static" and self.is_stand_in(value.example):
            field_values = {
                key: self.names[self.place_name(value.example, (kind, key))]
                for kind, key in self.places(node, value.example)
            }
            return self.result_object(node, value, field_values)
        holds_objects = (
            value.kind == "static"
            and type(value.example) is tuple
            and self.holds_stand_in(value.example)
        )
        if holds_objects or (value.fields and value.kind == "host"):
            parts = [
                self.as_host_display(node, self.element(value, place))
                for place in range(len(value.example))
            ]
            elements = [
                self.bind_result(part) if part.kind == "tensor" else part.code for part in parts
            ]
            return replace(value, kind="host", code=ast.Tuple(elements, ast.Load()))
        return value

    def result_object(self, node: ast.AST, value: Value, field_values: dict[Any, Value]) -> Value:
        """Return an object that forward returns as a call of its class, which the host makes with
        its fields."""
        object_class = type(value.example)
        has_identifiers = all(isinstance(key, str) and key.isidentifier() for key in field_values)
        # a mapping holds items, too
        is_made_of_fields = form_of(object_class) != "mapping" or value.kind == "record"
        if (
            form_of(object_class) is None
            or not has_identifiers
            or not is_made_of_fields
            or not object_class.__name__.isidentifier()
        ):
            raise self.refuse(
                node, f"returns a {object_class.__name__}, which the host cannot make"
            )
        if (
            object_class.__name__ in self.variables | RESERVED_NAMES
            or self.results.setdefault(object_class.__name__, object_class) is not object_class
        ):
            raise self.refuse(
                node, f"returns a {object_class.__name__}, while something else has this name, too"
            )
        keywords = []
        for key, field_value in field_values.items():
            part = self.as_host_display(node, self.require_one_type(node, key, field_value))
            if part.kind == "static" and literal(part.example) is None:
                raise self.refuse(
                    node, f"returns a {object_class.__name__} whose {key} the host cannot make"
                )
            keywords.append(
                ast.keyword(key, self.bind_result(part) if part.kind == "tensor" else part.code)
            )
        return Value(
            "host", value.example, ast.Call(name(object_class.__name__), [], keywords), value.twin
        )

    @abstractmethod
    def make_tuple(self, values: list[Value]) -> Value:
        """Return a tuple of the values."""

    @abstractmethod
    def element(self, value: Value, place: Any) -> Value:
        """Return one element of a tuple, or one field of a record."""

    @abstractmethod
    def store_name(self, key: str, value: Value) -> None:
        """Assign to a name as it stands."""

    @abstractmethod
    def inline(
        self,
        node: ast.AST,
        function: Any,
        owner: Any,
        args: list[Value],
        keywords: dict[Any, Value],
    ) -> Value:
        """Specialise the function's statements in the place of its call, and return its result."""

    @abstractmethod
    def call_native(
        self,
        node: ast.AST,
        owner: Any,
        method_name: str,
        args: list[Value],
        keywords: dict[str, Value],
    ) -> Value:
        """Call a method that a class has from `dict` or `object`."""
