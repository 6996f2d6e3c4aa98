"""Calls of objects that forward makes and of their methods, and of built-in functions with them."""

from __future__ import annotations

import ast
import collections
import dataclasses
import operator
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from regraft.splitting.program.deque_class import Deque
from regraft.splitting.program.record_classes import is_namedtuple
from regraft.splitting.program.value_kinds_and_parts import are_static
from regraft.splitting.program.values import StaticValue, Value
from regraft.splitting.specialising.dictionaries import update_dictionary
from regraft.splitting.specialising.object_changes import (
    is_scratch,
    read_scratch,
    set_attribute,
    store_scratch,
)
from regraft.splitting.specialising.object_methods import (
    call_object_method,
    construct_object,
    read_object_attribute,
)
from regraft.splitting.specialising.objects_made_in_forward import (
    BOUND_TYPES,
    find_special_method,
    get_item_keys,
    is_dict_stand_in,
    is_stand_in,
    make_object,
    read_sequence,
)
from regraft.splitting.specialising.record_fields import call_builtin_on_record, replace_fields
from regraft.splitting.specialising.state import Specialisation


@dataclass(frozen=True)
class ObjectCall:
    """A call whose first argument may be an object that forward makes."""

    node: ast.Call
    function: Any
    args: list[Value]
    keywords: dict[str, Value]

    @property
    def first(self) -> Any:
        """Return the first argument in the example; None if there is none."""
        return self.args[0].example if self.args else None

    @property
    def second(self) -> Any:
        """Return the second argument in the example; None if there is none."""
        return self.args[1].example if len(self.args) > 1 else None


Handler = Callable[[Specialisation, ObjectCall], Value | None]


def call_on_object(
    state: Specialisation,
    node: ast.Call,
    function: Any,
    args: list[Value],
    keywords: dict[str, Value],
) -> Value | None:
    """Return the value of a call that has to do with objects that forward makes: of such an object,
    of its method, or of a built-in with it as the first argument; also `super`, `dict`,
    `dataclasses.replace`, attribute functions of modules, and built-ins of records. Return None for
    any other call."""
    if is_stand_in(state, function):
        method = find_special_method(state, node, function, "__call__")
        return call_object_method(state, node, method, args, keywords)
    if isinstance(function, BOUND_TYPES) and is_stand_in(state, function.__self__):
        return call_object_method(state, node, function, args, keywords)
    call = ObjectCall(node, function, args, keywords)
    value = dispatch(FUNCTIONS, state, call)
    if value is not None:
        return value
    value = call_builtin_on_record(state, node, function, args, keywords)
    if value is not None:
        return value
    are_known = are_static(args[:2])
    if not are_known or not is_stand_in(state, call.first):
        return None
    return dispatch(FUNCTIONS_OF_STAND_INS, state, call)


def dispatch(table: dict[Any, Handler], state: Specialisation, call: ObjectCall) -> Value | None:
    """Return the value that the table's handler for a call's function gives; None if there is no
    handler or it declines."""
    if not isinstance(call.function, (type, FunctionType, BuiltinFunctionType)):
        return None  # what has no hash, perhaps
    handler = table.get(call.function)
    return handler(state, call) if handler is not None else None


# Each of the following evaluates the functions to which a table maps it, and returns None for
# arguments that need nothing special.


def call_super(state: Specialisation, call: ObjectCall) -> Value:
    """Return the object that `super()` gives in a method."""
    return state.static(make_super(state, call.node, call.args))


def make_super(state: Specialisation, node: ast.Call, args: list[Value]) -> Any:
    """Return the object that `super()` gives in the method that is followed, of `args` if there are
    some; raise Unsplittable for `super()` without arguments where the class or the owner is not
    known."""
    if args:
        return super(*(argument.example for argument in args))
    defining_class = state.frame.scope.get("__class__")
    owner = state.names.get(state.frame.prefix + state.frame.first_parameter)
    if defining_class is None or owner is None or not isinstance(owner, StaticValue):
        raise state.refuse(node, "super() is not supported here")
    return super(defining_class, owner.example)


def make_new_dictionary(state: Specialisation, call: ObjectCall) -> Value | None:
    """Return a new dictionary for dict() of nothing, of keywords or of a dictionary that forward
    makes; None for other arguments."""
    if len(call.args) > 1 or (call.args and not is_dict_stand_in(state, call.first)):
        return None
    new_dictionary = make_object(state, dict)
    update_dictionary(state, call.node, new_dictionary.example, *call.args, **call.keywords)
    return new_dictionary


def make_deque(state: Specialisation, call: ObjectCall) -> Value:
    """Return the object that stands for a new `collections.deque`."""
    args = [read_sequence(state, call.node, argument) for argument in call.args]
    return construct_object(state, call.node, Deque, args, call.keywords)


def make_item_getter(state: Specialisation, call: ObjectCall) -> Value | None:
    """Return the function that `operator.itemgetter` of constants gives; None for others."""
    if not are_static(call.args):
        return None
    return state.static(operator.itemgetter(*(argument.example for argument in call.args)))


def replace_dataclass(state: Specialisation, call: ObjectCall) -> Value | None:
    """Return the new object of dataclasses.replace(), which raises Unsplittable for an object that
    forward did not make; None for a namedtuple."""
    if is_namedtuple(type(call.first)):
        return None
    return replace_fields(state, call.node, call.args[0], call.keywords)


def set_module_attribute(state: Specialisation, call: ObjectCall) -> Value | None:
    """Store the attribute for setattr() of a module with a constant name, and return the value of
    the call, the constant None; return no value (None) for other objects and names.

    Raises NewAttribute for an attribute that is no variable of a call yet.
    """
    if not isinstance(call.first, torch.nn.Module) or type(call.second) is not str:
        return None
    store_scratch(state, call.node, call.first, call.second, call.args[2])
    return state.static(None)


def read_module_attribute(state: Specialisation, call: ObjectCall) -> Value | None:
    """Return the value of getattr() or hasattr() of an attribute of a module that is a variable of
    a call; None for other attributes. Raise Unsplittable where this call has not assigned the
    attribute on every path."""
    if type(call.second) is not str or not is_scratch(state, call.first, call.second):
        return None
    value = read_scratch(state, call.node, call.first, call.second)
    return state.static(True) if call.function is hasattr else value


def call_on_class(state: Specialisation, call: ObjectCall) -> Value:
    """Return the value of `isinstance`, `type` or `callable` of an object that forward makes, whose
    stand-in is an instance of its class, or of one that stands for its class."""
    original_class = getattr(type(call.first), "stands_for", None)
    if original_class is not None:
        return state.static(
            call.function(original_class(), *(argument.example for argument in call.args[1:]))
        )
    return state.static(call.function(*(argument.example for argument in call.args)))


def measure_object(state: Specialisation, call: ObjectCall) -> Value:
    """Return the value of len() of an object by a call of its `__len__`."""
    method = find_special_method(state, call.node, call.first, "__len__")
    return call_object_method(state, call.node, method, [], {})


def collect_keys(state: Specialisation, call: ObjectCall) -> Value | None:
    """Return the value of list(), tuple() or sorted() of a dictionary that forward makes: its keys
    are known.

    Returns None for other arguments, for keywords other than constant whole numbers and truth
    values, and for sorted() of keys of several types.
    """
    if not is_dict_stand_in(state, call.first):
        return None
    keys = get_item_keys(state, call.node, call.first)
    has_plain_keywords = all(
        isinstance(value, StaticValue) and isinstance(value.example, (bool, int))
        for value in call.keywords.values()
    )
    have_one_type = call.function is not sorted or len({*map(type, keys)}) == 1
    if not has_plain_keywords or not have_one_type:
        return None
    options = {key: value.example for key, value in call.keywords.items()}
    return state.static(call.function(keys, **options))


def get_object_attribute(state: Specialisation, call: ObjectCall) -> Value | None:
    """Return the value of getattr() or hasattr() of an object that forward makes; None where
    getattr() has no default and the object lacks the attribute."""
    value = read_object_attribute(state, call.node, call.first, call.args[1].example)
    if call.function is hasattr:
        return state.static(value is not None)
    if value is None and len(call.args) < 3:
        return None
    return value or call.args[2]


def set_object_attribute(state: Specialisation, call: ObjectCall) -> Value:
    """Store the attribute for setattr() of an object; return the constant None. Raise Unsplittable
    for descriptors."""
    set_attribute(state, call.node, call.first, call.args[1].example, call.args[2])
    return state.static(None)


FUNCTIONS: dict[Any, Handler] = {
    super: call_super,
    collections.deque: make_deque,
    dict: make_new_dictionary,
    operator.itemgetter: make_item_getter,
    dataclasses.replace: replace_dataclass,
    setattr: set_module_attribute,
    getattr: read_module_attribute,
    hasattr: read_module_attribute,
}
FUNCTIONS_OF_STAND_INS: dict[Any, Handler] = {
    isinstance: call_on_class,
    type: call_on_class,
    callable: call_on_class,
    len: measure_object,
    list: collect_keys,
    tuple: collect_keys,
    sorted: collect_keys,
    getattr: get_object_attribute,
    hasattr: get_object_attribute,
    setattr: set_object_attribute,
}
