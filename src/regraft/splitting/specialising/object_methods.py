"""Calls of methods and constructors of objects that forward makes, and reads of their
attributes."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from regraft.splitting.program.record_classes import init_owner, write_init
from regraft.splitting.program.values import Value
from regraft.splitting.specialising.dictionaries import call_native
from regraft.splitting.specialising.followed_code import Frame, LocalFunction
from regraft.splitting.specialising.inlining import inline
from regraft.splitting.specialising.object_changes import check_not_private
from regraft.splitting.specialising.objects_made_in_forward import (
    METHOD_TYPES,
    find_special_method,
    look_up_place,
    make_object,
)
from regraft.splitting.specialising.state import Specialisation


def call_object_method(
    state: Specialisation, node: ast.AST, method: Any, args: list[Value], keywords: dict[str, Value]
) -> Value:
    """Return the value of a call of a bound method of an object that forward makes: one written in
    Python is followed, one that the class inherits from `dict` or `object` is evaluated by
    `call_native`."""
    if inspect.ismethod(method):
        owner = init_owner(type(method.__self__), method.__func__)
        function = method.__func__ if owner is None else make_dataclass_init(state, node, owner)
        return inline(state, node, function, method.__self__, args, keywords)
    return call_native(state, node, method.__self__, method.__name__, args, keywords)


def construct_object(
    state: Specialisation,
    node: ast.AST,
    object_class: type,
    args: list[Value],
    keywords: dict[str, Value],
) -> Value:
    """Return a new object of a class, after following its constructor with these arguments (without
    `self`), whose steps are appended."""
    new_object = make_object(state, object_class)
    state.under_construction.append(new_object)
    call_object_method(
        state,
        node,
        find_special_method(state, node, new_object.example, "__init__"),
        args,
        keywords,
    )
    state.under_construction.pop()
    return new_object


def make_dataclass_init(state: Specialisation, node: ast.AST, object_class: type) -> Any:
    """Return a constructor, as `dataclass` wrote it for a class, whose statements can be followed;
    they are noted in `state.local_functions`."""
    function, definition, scope = write_init(object_class)
    for part in ast.walk(definition):
        ast.copy_location(part, node)
    state.local_functions[function] = LocalFunction(definition, Frame(state.frame.path, scope, ""))
    return function


def read_object_attribute(
    state: Specialisation, node: ast.AST, stand_in: Any, attribute: str
) -> Value | None:
    """Return an attribute of an object that forward makes, what its property gives, or an attribute
    or method of its class; None if there is none. Raises Unsplittable for other descriptors."""
    check_not_private(state, node, attribute)
    object_class = type(stand_in)
    class_attribute = inspect.getattr_static(object_class, attribute, None)
    if isinstance(class_attribute, property):
        if class_attribute.fget is None:
            raise state.refuse(node, f"the property {attribute} cannot be read")
        return inline(state, node, class_attribute.fget, stand_in, [], {})
    value = look_up_place(state, node, stand_in, ("attribute", attribute))
    if value is not None:
        return value
    if attribute == "__class__":
        return state.static(object_class)
    if class_attribute is None or (attribute.startswith("__") and not callable(class_attribute)):
        return None
    if hasattr(type(class_attribute), "__get__") and not isinstance(class_attribute, METHOD_TYPES):
        raise state.refuse(
            node, f"the attribute {attribute} of {object_class.__name__} is a descriptor"
        )
    return state.static(getattr(stand_in, attribute))
