"""Evaluation of calls: functions that are followed, operations of regions, and calls of the
host."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.errors import ReadInside
from regraft.splitting.program.codes import MUTATORS, is_display, is_torch
from regraft.splitting.program.records import is_namedtuple, is_record
from regraft.splitting.program.values import Value
from regraft.splitting.specialising.attributes import read_attribute
from regraft.splitting.specialising.builtin import call_builtin, call_math
from regraft.splitting.specialising.dictionaries import update_dictionary
from regraft.splitting.specialising.either import require_tensor
from regraft.splitting.specialising.fields import (
    call_builtin_on_record,
    find_record_method,
    make_record,
    replace_fields,
)
from regraft.splitting.specialising.inlining import inline
from regraft.splitting.specialising.local import as_definition, body_nodes, stand_in
from regraft.splitting.specialising.methods import READING_METHODS, call_method, evaluate_arguments
from regraft.splitting.specialising.objects import construct, invoke, read_object_attribute
from regraft.splitting.specialising.outside import changes_outside
from regraft.splitting.specialising.places import (
    is_scratch,
    read_scratch,
    set_attribute,
    store_scratch,
)
from regraft.splitting.specialising.running import run_code, run_operation
from regraft.splitting.specialising.stand_ins import (
    BOUND_TYPES,
    can_be_made,
    find_special_method,
    get_item_keys,
    holds_local_function,
    is_dict_stand_in,
    is_stand_in,
    make_object,
)
from regraft.splitting.specialising.state import LocalFunction, Specialisation
from regraft.splitting.specialising.tensor_calls import (
    COMPARISONS,
    check_rank,
    check_scalars,
    compare_tensors,
    concatenate_list,
    convert_to_tensor,
    is_predictable,
    module_decides,
    read_single_numbers,
    run_as_operation,
    run_constant_call,
)

TYPE_TESTS = (torch.is_tensor, torch.is_floating_point, torch.is_complex)


def evaluate_call(state: Specialisation, node: ast.Call) -> Value:
    if isinstance(node.func, ast.Attribute):
        base = require_tensor(state, node, state.evaluate(node.func.value), "AttributeError")
        if base.kind == "static" and isinstance(base.example, torch.Tensor):
            if node.func.attr in READING_METHODS:  # weights stay what they are
                return state.static(getattr(base.example, node.func.attr)())
            base = replace(base, kind="tensor")
        if base.kind == "record" and node.func.attr == "_replace":
            return replace_fields(state, node, base, evaluate_arguments(state, node)[1])
        method = find_record_method(state, base, node.func.attr) if base.kind == "record" else None
        if method is not None:
            args, keywords = evaluate_arguments(state, node, either=True)
            return inline(state, node, method, None, [base, *args], keywords)
        if base.kind not in ("static", "record"):
            return call_method(state, node, base, node.func.attr)
        callee = read_attribute(state, node.func, base)
    else:
        callee = state.evaluate(node.func)
    if callee.kind != "static":
        raise state.refuse(node, "what is called here is known only at run time")
    args, keywords = evaluate_arguments(state, node, either=True)
    operands = [*args, *keywords.values()]
    function = callee.example
    has_either = any(operand.kind == "either" for operand in operands)
    is_python = inspect.isfunction(function) or inspect.ismethod(function)
    is_followable = is_python and not is_torch(function)
    if has_either and not (is_followable or is_record(function) or function in (max, min)):
        for operand in operands:
            state.require_one_kind(node, operand)
    object_result = call_on_object(state, node, function, args, keywords)
    if object_result is not None:
        return object_result
    holds_local = any(
        holds_local_function(state, operand.example) for operand in operands
    ) or holds_local_function(state, function)
    has_mutable_record = any(
        operand.kind == "record" and not is_namedtuple(type(operand.example))
        for operand in operands
    )
    code = ast.Call(
        callee.code,
        [operand.code for operand in args],
        [ast.keyword(keyword, value.code) for keyword, value in keywords.items()],
    )
    function_name = getattr(function, "__name__", "")
    if getattr(builtins, function_name, None) is function:
        if holds_local:
            raise state.refuse(
                node, f"{function_name}() of a function that forward makes is not supported"
            )
        return call_builtin(state, node, function_name, operands, code)
    is_host_list = args and isinstance(args[0].example, list) and not is_display(args[0])
    if function in (torch.cat, torch.stack) and is_host_list:
        return concatenate_list(state, node, function, args, keywords)
    if function in (torch.tensor, torch.as_tensor) and is_host_list:
        return run_operation(state, node, *convert_to_tensor(state, node, args, keywords))
    if is_record(function) and function not in state.mutable:
        return make_record(state, node, callee, args, keywords)
    if isinstance(function, torch.nn.Module):
        check_scalars(state, node, operands)
        if (
            holds_local
            or has_mutable_record
            or module_decides(state, node, function, code, operands)
        ):
            return inline(state, node, type(function).forward, function, args, keywords)
        try:
            return run_operation(state, node, code, operands)
        except ReadInside:  # such as AdaptiveLogSoftmaxWithLoss
            return inline(state, node, type(function).forward, function, args, keywords)
    if function in TYPE_TESTS:
        return state.static(run_code(state, node, code).example)
    if function in COMPARISONS and any(operand.kind == "tensor" for operand in operands):
        return compare_tensors(state, node, function, args, keywords)
    if is_torch(function):
        check_scalars(state, node, operands)
        check_rank(state, node, function_name, args, keywords)
        try:
            return run_operation(state, node, read_single_numbers(state, code, operands), operands)
        except ReadInside:
            if not is_python:
                raise
    if function_name in MUTATORS and isinstance(
        getattr(function, "__self__", None), (list, dict, set)
    ):
        raise state.refuse(
            node,
            f"{function_name} changes a {type(function.__self__).__name__} that forward did not"
            " make",
        )
    if (
        not holds_local
        and all(operand.kind == "static" for operand in operands)
        and is_predictable(function)
    ):
        value = None if changes_outside(function) else run_constant_call(state, node, code)
        if value is not None:
            return value
    if getattr(function, "__module__", "") == "math":
        return call_math(state, node, function_name, code, operands)
    needs_source = holds_local or has_mutable_record or has_either
    must_follow = is_torch(function) or needs_source or (is_python and changes_outside(function))
    if inspect.ismethod(function) and isinstance(function.__self__, (torch.nn.Module, type)):
        operation_result = None if must_follow else run_as_operation(state, node, code, operands)
        return operation_result or inline(
            state, node, function.__func__, function.__self__, args, keywords
        )
    if inspect.isfunction(function):
        operation_result = None if must_follow else run_as_operation(state, node, code, operands)
        return operation_result or inline(state, node, function, None, args, keywords)
    if inspect.isclass(function) and can_be_made(state, function):
        return construct(state, node, function, args, keywords)
    raise state.refuse(node, f"the call of {function_name or function!r} cannot be followed")


def call_on_object(
    state: Specialisation,
    node: ast.Call,
    function: Any,
    args: list[Value],
    keywords: dict[str, Value],
) -> Value | None:
    """Call a method of an object that forward makes, or a built-in with one; return None for
    other calls."""
    if function is super:
        return state.static(make_super(state, node, args))
    if is_stand_in(state, function):
        return invoke(
            state, node, find_special_method(state, node, function, "__call__"), args, keywords
        )
    if isinstance(function, BOUND_TYPES) and is_stand_in(state, function.__self__):
        return invoke(state, node, function, args, keywords)
    first_example = args[0].example if args else None
    if function is dict and (not args or is_dict_stand_in(state, first_example)) and len(args) < 2:
        new_dictionary = make_object(state, dict)
        update_dictionary(state, node, new_dictionary.example, *args, **keywords)
        return new_dictionary
    attribute = args[1].example if len(args) > 1 else None
    if function is dataclasses.replace and not is_namedtuple(type(first_example)):
        return replace_fields(state, node, args[0], keywords)
    if (
        function is setattr
        and isinstance(first_example, torch.nn.Module)
        and type(attribute) is str
    ):
        store_scratch(state, node, first_example, attribute, args[2])
        return state.static(None)
    if (
        function in (getattr, hasattr)
        and type(attribute) is str
        and is_scratch(state, first_example, attribute)
    ):
        value = read_scratch(state, node, first_example, attribute)
        return state.static(True) if function is hasattr else value
    record_result = call_builtin_on_record(state, node, function, args, keywords)
    if record_result is not None:
        return record_result
    if not is_stand_in(state, first_example) or any(
        argument.kind != "static" for argument in args[:2]
    ):
        return None
    if function in (isinstance, type, callable):
        return state.static(function(*(argument.example for argument in args)))
    if function is len:
        return invoke(
            state, node, find_special_method(state, node, first_example, "__len__"), [], {}
        )
    if function in (list, tuple, sorted) and is_dict_stand_in(state, first_example):
        keys = get_item_keys(state, node, first_example)
        has_plain_keywords = all(
            value.kind == "static" and isinstance(value.example, (bool, int))
            for value in keywords.values()
        )
        if has_plain_keywords and (function is not sorted or len({*map(type, keys)}) == 1):
            return state.static(
                function(keys, **{key: value.example for key, value in keywords.items()})
            )
    if function in (getattr, hasattr):
        attribute_value = read_object_attribute(state, node, first_example, args[1].example)
        if function is hasattr or (attribute_value is None and len(args) < 3):
            return state.static(attribute_value is not None) if function is hasattr else None
        return attribute_value or args[2]
    if function is setattr:
        set_attribute(state, node, first_example, args[1].example, args[2])
        return state.static(None)
    return None


def make_super(state: Specialisation, node: ast.Call, args: list[Value]) -> Any:
    """Return what `super()` gives in a method."""
    if args:
        return super(*(argument.example for argument in args))
    defining_class = state.frame.scope.get("__class__")
    owner = state.names.get(state.frame.prefix + state.frame.first_parameter)
    if defining_class is None or owner is None or owner.kind != "static":
        raise state.refuse(node, "super() is not supported here")
    return super(defining_class, owner.example)


def evaluate_lambda(state: Specialisation, node: ast.Lambda) -> Value:
    return make_local_function(state, node, as_definition(node))


def make_local_function(
    state: Specialisation, node: ast.Lambda | ast.FunctionDef, definition: ast.FunctionDef
) -> Value:
    """Return a function that forward makes, to be followed where it is called."""
    unsupported_types = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)
    if definition.decorator_list or any(
        isinstance(inner_node, unsupported_types) for inner_node in body_nodes(definition)
    ):
        raise state.refuse(
            node,
            "decorators, generators, global and nonlocal in an inner function are not supported",
        )
    defaults = [state.evaluate(default) for default in node.args.defaults]
    keyword_defaults = [
        state.evaluate(default) for default in node.args.kw_defaults if default is not None
    ]
    if any(value.kind != "static" for value in [*defaults, *keyword_defaults]):
        raise state.refuse(
            node,
            "a default of an inner function that is known only at run time is not supported",
        )
    examples, keyword_examples = (
        [value.example for value in values] for values in (defaults, keyword_defaults)
    )
    function = stand_in(node, examples, keyword_examples, state.frame.scope)
    state.local_functions[function] = LocalFunction(definition, state.frame)
    return state.static(function)
