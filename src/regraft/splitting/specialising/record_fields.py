"""Records that forward makes, which are namedtuples and objects of dataclasses: each field is a
value of its own."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
from typing import Any

from regraft.splitting.program.literals import literal
from regraft.splitting.program.record_classes import (
    FIXED,
    fields_of,
    is_namedtuple,
    only_stores_arguments,
)
from regraft.splitting.program.residual_expressions import holds_tensor
from regraft.splitting.program.value_kinds_and_parts import are_static
from regraft.splitting.program.values import RecordValue, StaticValue, Value
from regraft.splitting.specialising.branches import evaluate_truth
from regraft.splitting.specialising.elements import (
    convert_to_tuple,
    get_element,
    make_list,
    make_tuple,
)
from regraft.splitting.specialising.inlining import inline
from regraft.splitting.specialising.object_methods import construct_object, read_object_attribute
from regraft.splitting.specialising.objects_made_in_forward import is_stand_in, record_error
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.values_stored_under_names import store_name


def make_record(
    state: Specialisation,
    node: ast.Call,
    callee: StaticValue,
    args: list[Value],
    keywords: dict[str, Value],
) -> Value:
    """Return the record that a call of a dataclass or namedtuple, `callee`, makes, whose fields are
    values of their own.

    Raises the error of `record_error` for a class whose constructor does more than keep its
    arguments, for arguments that do not fit, and for a field whose default is no constant or
    function.
    """
    record_class = callee.example
    fields = fields_of(record_class)
    if not only_stores_arguments(record_class):
        raise record_error(
            state, node, record_class, f"a {record_class.__name__} does not hold what it is made of"
        )
    field_values = {**dict(zip(fields, args, strict=False)), **keywords}
    example, twin = make_examples(state, node, record_class, field_values)
    for key in fields:
        field_value = getattr(example, key)
        if key not in field_values and literal(field_value) is None and not callable(field_value):
            reason = f"{key} of a {record_class.__name__} is made by its constructor"
            raise record_error(state, node, record_class, reason)
        field_values.setdefault(key, state.static(field_value))
    codes = {key: state.write_for_host(value) for key, value in field_values.items()}
    code = ast.Call(callee.code, [], [ast.keyword(key, codes[key]) for key in fields])
    return RecordValue(example, code, twin)


def make_examples(
    state: Specialisation, node: ast.Call, record_class: Any, field_values: dict[str, Value]
) -> tuple[Any, Any]:
    """Return the record that a class makes of the values of its fields, in both worlds; raise the
    error of `record_error` where it cannot, or where the record does not hold these values."""
    try:
        example = record_class(**{key: value.example for key, value in field_values.items()})
        twin = record_class(**{key: value.second_example for key, value in field_values.items()})
    except Exception as problem:
        reason = f"cannot be made: {type(problem).__name__}: {problem}"
        raise record_error(state, node, record_class, reason) from problem
    if any(
        getattr(example, key, field_values) is not value.example
        for key, value in field_values.items()
    ):
        raise record_error(
            state, node, record_class, f"a {record_class.__name__} does not hold what it is made of"
        )
    return example, twin


def value_of_field(state: Specialisation, node: ast.AST, value: Value, key: str) -> Value | None:
    """Return the value of a field of a record, or of an object that forward makes; None where the
    object lacks it."""
    if isinstance(value, RecordValue):
        return get_element(state, value, key)
    return read_object_attribute(state, node, value.example, key)


def replace_fields(
    state: Specialisation, node: ast.Call, value: Value, keywords: dict[str, Value]
) -> Value:
    """Return a new object like the record or object `value`, with other values for the fields in
    `keywords`, as `dataclasses.replace` does; raise Unsplittable for an object that forward did not
    make."""
    record_class = type(value.example)
    if not (isinstance(value, RecordValue) or is_stand_in(state, value.example)):
        reason = f"a {record_class.__name__} that forward did not make is not supported here"
        raise state.refuse(node, reason)
    init_fields = (
        fields_of(record_class)
        if is_namedtuple(record_class)
        else [field.name for field in dataclasses.fields(record_class) if field.init]
    )
    for key in init_fields:
        field_value = None if key in keywords else value_of_field(state, node, value, key)
        if field_value is not None:
            keywords = {**keywords, key: field_value}
    if record_class in state.mutable:
        return construct_object(state, node, record_class, [], keywords)
    return make_record(state, node, state.static(record_class), [], keywords)


def read_field(state: Specialisation, node: ast.AST, base: RecordValue, attribute: str) -> Value:
    """Return a field of a record, what its property gives, or a constant or method of its class
    with this name; raise the error of `record_error` for other attributes."""
    record_class = type(base.example)
    class_attribute = inspect.getattr_static(record_class, attribute, state)
    if attribute in base.fields:
        return state.require_single_type(node, attribute, get_element(state, base, attribute))
    if isinstance(class_attribute, property) and class_attribute.fget is not None:
        return inline(state, node, class_attribute.fget, None, [base], {})
    if literal(class_attribute) is None and not isinstance(
        class_attribute, (classmethod, staticmethod)
    ):
        raise record_error(
            state,
            node,
            record_class,
            f"{record_class.__name__} has no field {attribute} that is known here",
        )
    return state.static(getattr(record_class, attribute))


def find_record_method(base: RecordValue, attribute: str) -> Any:
    """Return the function that a record's class defines under this name; None if there is none, or
    a field has the name."""
    class_attribute = inspect.getattr_static(type(base.example), attribute, None)
    return (
        class_attribute
        if inspect.isfunction(class_attribute) and attribute not in base.fields
        else None
    )


def call_builtin_on_record(
    state: Specialisation,
    node: ast.AST,
    function: Any,
    args: list[Value],
    keywords: dict[str, Value],
) -> Value | None:
    """Return the value of a built-in of Python (`getattr`, `hasattr`, `isinstance`, `type`, `len`,
    `tuple`, `list`) whose first argument is a record; None for any other call. `setattr` raises the
    error of `record_error`."""
    if not args or not isinstance(args[0], RecordValue):
        return None
    attribute = args[1].example if len(args) > 1 else None
    if type(attribute) is str and function in (getattr, hasattr, setattr):
        return access_field(state, node, function, args[0], attribute, args[2:])
    if keywords or not are_static(args[1:]):
        return None
    if function in (isinstance, type):
        return state.static(function(*(argument.example for argument in args)))
    if is_namedtuple(type(args[0].example)) and function in (len, tuple, list):
        return convert_namedtuple(state, node, function, args[0])
    return None


def access_field(
    state: Specialisation,
    node: ast.AST,
    function: Any,
    record: RecordValue,
    attribute: str,
    defaults: list[Value],
) -> Value:
    """Return the value of getattr() or hasattr() of a record and a known name; raise the error of
    `record_error` for setattr().

    defaults: the third argument of getattr(), if there is one, which is the result where the record
    has no such name.
    """
    record_class = type(record.example)
    if function is setattr:
        raise record_error(state, node, record_class, FIXED)
    exists = attribute in record.fields or hasattr(record_class, attribute)
    if function is hasattr:
        return state.static(exists)
    if not exists and defaults:
        return defaults[0]
    return read_field(state, node, record, attribute)


def convert_namedtuple(
    state: Specialisation, node: ast.AST, function: Any, record: RecordValue
) -> Value:
    """Return the value of `function`, which is len, tuple or list, of a namedtuple: a constant for
    len, else a tuple or list of its fields."""
    if function is len:
        return state.static(len(record.fields))
    parts = [get_element(state, record, place) for place in record.fields]
    return make_list(state, node, parts) if function is list else make_tuple(state, parts)


def operate_on_records(state: Specialisation, node: ast.expr, operands: list[Value]) -> Value:
    """Return the value of an operator with a record, or a list of records, among its operands:
    none of them is None, `not` asks for their truth, and in arithmetic and comparisons a namedtuple
    without tensors counts as a tuple. Raises Unsplittable for other records and operators, also for
    `is` between two objects."""
    is_identity = isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot))
    if is_identity and any(
        isinstance(operand, StaticValue) and operand.example is None for operand in operands
    ):
        return state.static(isinstance(node.ops[0], ast.IsNot))  # type: ignore[attr-defined]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return state.static(not evaluate_truth(state, operands[0]).example)
    if is_identity or not isinstance(node, (ast.BinOp, ast.Compare)):
        raise state.refuse(node, "a list of objects, or whether one is another, is not supported")
    for operand in operands:
        if isinstance(operand, RecordValue):
            check_is_plain_tuple(state, node, operand)
    return operate_on_tuples(state, node, operands)


def check_is_plain_tuple(state: Specialisation, node: ast.AST, record: RecordValue) -> None:
    """Raise Unsplittable for a record as an operand, unless it is a namedtuple without tensors."""
    if not is_namedtuple(type(record.example)) or holds_tensor(record.example):
        raise state.refuse(
            node, f"an operator on a {type(record.example).__name__} is not supported"
        )


def operate_on_tuples(
    state: Specialisation, node: ast.BinOp | ast.Compare, operands: list[Value]
) -> Value:
    """Return the value of an operator in which the namedtuples among the operands are replaced by
    plain tuples, assigned to new names."""
    keys = [state.fresh_name() for _ in operands]
    for key, operand in zip(keys, operands, strict=True):
        store_name(
            state,
            state.frame.prefix + key,
            convert_to_tuple(state, operand) if isinstance(operand, RecordValue) else operand,
        )
    names = [ast.copy_location(ast.Name(key, ast.Load()), node) for key in keys]
    operation = copy.copy(node)
    if isinstance(operation, ast.BinOp):
        operation.left, operation.right = names
    else:
        operation.left, operation.comparators = names[0], list(names[1:])
    return state.evaluate(operation)
