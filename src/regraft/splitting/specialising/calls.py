"""Evaluation of calls: functions that are followed, operations of regions, and calls of the
host."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable
from dataclasses import replace

import numpy
import torch

from regraft.splitting.program.record_classes import is_record
from regraft.splitting.program.residual_expressions import (
    holds_tensor,
    is_integer_scalar,
    is_torch,
    name,
)
from regraft.splitting.program.value_kinds_and_parts import are_static, has_kind
from regraft.splitting.program.values import (
    NO_TWIN,
    EitherValue,
    HostValue,
    RecordValue,
    StaticValue,
    TensorValue,
    Value,
)
from regraft.splitting.specialising.attributes import read_attribute
from regraft.splitting.specialising.builtin_calls import call_builtin
from regraft.splitting.specialising.call_operands import ITERATING_BUILTINS, Call, takes_either
from regraft.splitting.specialising.changing_calls import (
    call_in_place,
    call_with_out,
    check_changed_container,
)
from regraft.splitting.specialising.code_running import run_operation
from regraft.splitting.specialising.constant_tables import choose_truths
from regraft.splitting.specialising.deciding_modules import has_to_be_followed, run_as_operation
from regraft.splitting.specialising.either_values import require_tensor
from regraft.splitting.specialising.followed_code import LocalFunction
from regraft.splitting.specialising.generators import is_generator, read_at_once
from regraft.splitting.specialising.inlining import inline
from regraft.splitting.specialising.lasting_effects import changes_outside
from regraft.splitting.specialising.local_functions import (
    as_definition,
    body_nodes,
    make_stand_in_function,
)
from regraft.splitting.specialising.mapped_elements import evaluate_mapping
from regraft.splitting.specialising.method_calls import (
    READING_METHODS,
    call_method,
    evaluate_arguments,
)
from regraft.splitting.specialising.module_calls import call_mode_change, call_module
from regraft.splitting.specialising.number_builtins import call_math
from regraft.splitting.specialising.object_calls import call_on_object
from regraft.splitting.specialising.object_methods import construct_object
from regraft.splitting.specialising.objects_made_in_forward import (
    can_construct,
    holds_local_function,
    read_sequence,
)
from regraft.splitting.specialising.print_and_log_calls import is_message, leave_out_message
from regraft.splitting.specialising.record_fields import (
    find_record_method,
    make_record,
    replace_fields,
)
from regraft.splitting.specialising.sorting import call_with_key
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.sums_and_extremes import find_extreme_position
from regraft.splitting.specialising.table_lookups import get_from_table
from regraft.splitting.specialising.tensor_calls import (
    concatenate_list,
    convert_to_tensor,
    is_predictable,
    run_constant_call,
)
from regraft.splitting.specialising.torch_calls import call_comparison, call_torch, call_type_test
from regraft.splitting.specialising.typed_constructors import get_constructed_dtype, takes_size


def evaluate_call(state: Specialisation, node: ast.Call) -> Value:
    """Return the value of a call: of a method of a record, of a method of a tensor or of a value of
    the host (`call_method`), or of a function or method that is known now (`call_function`).
    Reading methods of a static tensor are evaluated at once."""
    mapped = evaluate_mapping(state, node)
    if mapped is not None:
        return mapped
    node = read_at_once(state, node)
    if not isinstance(node.func, ast.Attribute):
        return call_function(state, node, state.evaluate(node.func))
    base = require_tensor(state, node, state.evaluate(node.func.value), "AttributeError")
    if isinstance(base, StaticValue) and isinstance(base.example, torch.Tensor):
        if node.func.attr in READING_METHODS:  # weights stay what they are
            return state.static(getattr(base.example, node.func.attr)())
        base = TensorValue(base.example, base.code, partial=base.partial)
    if isinstance(base, RecordValue):
        value = call_record_method(state, node, base, node.func.attr)
        if value is not None:
            return value
    elif not isinstance(base, StaticValue):
        return call_method(state, node, base, node.func.attr)
    return call_function(state, node, read_attribute(state, node.func, base))


def call_record_method(
    state: Specialisation, node: ast.Call, base: RecordValue, method_name: str
) -> Value | None:
    """Return the value of a call of a method that the class of a record defines, or of `_replace`
    of a namedtuple; None if the class has no such method."""
    if method_name == "_replace":
        return replace_fields(state, node, base, evaluate_arguments(state, node)[1])
    method = find_record_method(base, method_name)
    if method is None:
        return None
    args, keywords = evaluate_arguments(state, node, either=True)
    return inline(state, node, method, None, [base, *args], keywords)


def call_function(state: Specialisation, node: ast.Call, callee: Value) -> Value:
    """Return the value of a call of a known function: what `call_on_object`, or else the first of
    CALL_HANDLERS that has one, gives. Raise Unsplittable for a callee known only at run time, and a
    call that no handler can follow; raise Cases for an argument of two kinds that the function
    cannot take."""
    if not isinstance(callee, StaticValue):
        raise state.refuse(node, "what is called here is known only at run time")
    if is_message(callee.example):
        return leave_out_message(state, node, callee.example)
    args, keywords = evaluate_arguments(state, node, either=True)
    function = callee.example
    choose_truths(state, node, function, keywords)
    if any(function is builtin for builtin in ITERATING_BUILTINS):
        args = [read_sequence(state, node, argument) for argument in args]
    operands = [*args, *keywords.values()]
    has_either = has_kind(operands, EitherValue)
    if has_either and not takes_either(function):
        args, keywords = read_either_numbers(state, callee, args, keywords)
        operands = [*args, *keywords.values()]
        has_either = has_kind(operands, EitherValue)
        for operand in operands:
            state.require_single_kind(node, operand)
    object_result = call_on_object(state, node, function, args, keywords)
    if object_result is not None:
        return object_result
    holds_local = any(
        holds_local_function(state, example)
        for example in (*(operand.example for operand in operands), function)
    )
    call = Call(node, callee, args, keywords, holds_local, has_either)
    for handler in CALL_HANDLERS:
        value = handler(state, call)
        if value is not None:
            return value
    raise state.refuse(node, f"the call of {call.function_name or function!r} cannot be followed")


def read_either_numbers(
    state: Specialisation, callee: StaticValue, args: list[Value], keywords: dict[str, Value]
) -> tuple[list[Value], dict[str, Value]]:
    """Return the arguments of a function of torch, with a number that the host reads in the place
    of each that is a whole number on some paths and a tensor of one on the others, where torch has
    to know the tensor's value, as in `F.one_hot(x, max(t, 4))`; any others as they are."""
    code = ast.Call(
        callee.code,
        [argument.code for argument in args],
        [ast.keyword(keyword, value.code) for keyword, value in keywords.items()],
    )
    if not is_torch(callee.example) or not has_to_be_followed(state, code):
        return args, keywords
    numbers = [read_either_number(state, value) for value in args]
    return numbers, {key: read_either_number(state, value) for key, value in keywords.items()}


def read_either_number(state: Specialisation, value: Value) -> Value:
    """Return the whole number that a value is on some paths, or a tensor of one on the others, as a
    number that the host reads, under a new name; any other value as it is."""
    is_whole = isinstance(value, EitherValue) and type(value.instead) is int
    if not is_whole or not is_integer_scalar(value.example):
        return value
    numbers = int(value.example), int(value.second_example)
    code = ast.Call(name("int"), [value.code], [])
    twin = NO_TWIN if numbers[0] == numbers[1] else numbers[1]
    return state.bind_in_host(HostValue(numbers[0], code, twin))


# Each of the following evaluates some calls, and returns None for any other.


def call_python_builtin(state: Specialisation, call: Call) -> Value | None:
    """Return the value of a call of a built-in function of Python; None for another function.
    Raises Unsplittable where the network's own functions or objects are arguments."""
    if getattr(builtins, call.function_name, None) is not call.function:
        return None
    if call.function in (callable, isinstance) and are_static(call.operands):
        return state.static(call.function(*(operand.example for operand in call.args)))
    if call.function in (max, min, sorted) and "key" in call.keywords:
        return call_with_key(state, call.node, call.function, call.args, call.keywords)
    if call.holds_local:
        raise state.refuse(
            call.node,
            f"{call.function_name}() of a function that forward makes is not supported",
        )
    return call_builtin(state, call.node, call.function_name, call.operands, call.code)


def call_on_host_list(state: Specialisation, call: Call) -> Value | None:
    """Return the value of `torch.tensor`, `as_tensor`, `cat` or `stack` of a list that the host
    holds; None for other calls."""
    if not call.takes_host_list:
        return None
    if call.function in (torch.cat, torch.stack):
        return concatenate_list(state, call.node, call.function, call.args, call.keywords)
    if call.function in (torch.tensor, torch.as_tensor):
        code, operands = convert_to_tensor(state, call.node, call.args, call.keywords)
        return run_operation(state, call.node, code, operands)
    return None


def call_typed_constructor(state: Specialisation, call: Call) -> Value | None:
    """Return the value of a call of `torch.LongTensor` or its like, as of `torch.empty` for a size
    and of `torch.tensor` for values; None for other functions and arguments."""
    dtype = get_constructed_dtype(call.function)
    of_size = None if dtype is None else takes_size(state, call.node, call.args)
    if of_size is None or call.keywords:
        return None
    function = torch.empty if of_size else torch.tensor
    callee = state.static(function, state.alias_global(function.__name__, function))
    general_call = replace(call, callee=callee, keywords={"dtype": state.static(dtype)})
    value = call_on_host_list(state, general_call)
    return call_torch(state, general_call) if value is None else value


def call_record_class(state: Specialisation, call: Call) -> Value | None:
    """Return the record that a call of a dataclass or namedtuple makes; None for other classes, and
    for those whose objects change."""
    if not is_record(call.function) or call.function in state.mutable:
        return None
    return make_record(state, call.node, call.callee, call.args, call.keywords)


def call_on_constants(state: Specialisation, call: Call) -> Value | None:
    """Return the value of a call whose arguments are all known, by running it; None where they are
    not, and for a function that may give another result at the next call or changes something
    outside."""
    has_constants = are_static(call.operands)
    if call.holds_local or not has_constants or not is_predictable(call.function):
        return None
    return (
        None if changes_outside(call.function) else run_constant_call(state, call.node, call.code)
    )


def call_function_of_math(state: Specialisation, call: Call) -> Value | None:
    """Return the number that a function of `math` gives, under a new name of the host; None for
    another function."""
    if getattr(call.function, "__module__", "") != "math":
        return None
    return call_math(state, call.node, call.function_name, call.code, call.operands)


def call_numpy_position(state: Specialisation, call: Call) -> Value | None:
    """Return the number that `numpy.argmax` or `numpy.argmin` gives for a list or tuple that holds
    tensors; None for other functions, other operands, and with further arguments."""
    if call.function not in (numpy.argmax, numpy.argmin) or len(call.operands) != 1:
        return None
    sequence = call.args[0] if call.args else None
    if not isinstance(sequence, HostValue) or not holds_tensor(sequence.example):
        return None
    return find_extreme_position(state, call.node, call.function_name, sequence)


def follow_function(state: Specialisation, call: Call) -> Value | None:
    """Return the value of a call of a function written in Python, or of a method of a module or
    class: as one operation if it can be, else followed; None for any other callee, such as a method
    of an object from outside. Raises Unsplittable for a generator function."""
    function = call.function
    if is_generator(state, getattr(function, "__func__", function)):
        raise state.refuse(
            call.node,
            "a generator is supported where a loop, a comprehension, list, sum or the like uses it"
            " up at once: make a list of it",
        )
    is_method = inspect.ismethod(function) and isinstance(
        function.__self__, (torch.nn.Module, type)
    )
    if not is_method and not inspect.isfunction(function):
        return None
    value = None
    if not has_to_follow(call):
        value = run_as_operation(state, call.node, call.code, call.operands)
    if value is not None:
        return value
    owner = function.__self__ if is_method else None
    followed = function.__func__ if is_method else function
    return inline(state, call.node, followed, owner, call.args, call.keywords)


def has_to_follow(call: Call) -> bool:
    """Return whether a function written in Python cannot be run as one operation: it is one of
    torch, an argument has to be followed, or it changes something outside."""
    needs_source = call.holds_local or call.has_mutable_record or call.has_either
    return is_torch(call.function) or needs_source or changes_outside(call.function)


def make_instance(state: Specialisation, call: Call) -> Value | None:
    """Return the object that a call of an ordinary class makes, whose constructor is followed; None
    for what is no such class."""
    if not inspect.isclass(call.function) or not can_construct(call.function):
        return None
    return construct_object(state, call.node, call.function, call.args, call.keywords)


CALL_HANDLERS: tuple[Callable[[Specialisation, Call], Value | None], ...] = (
    call_python_builtin,
    call_on_host_list,
    call_typed_constructor,
    call_record_class,
    call_mode_change,
    call_in_place,
    call_with_out,
    call_module,
    call_type_test,
    call_comparison,
    call_torch,
    check_changed_container,
    get_from_table,
    call_on_constants,
    call_function_of_math,
    call_numpy_position,
    follow_function,
    make_instance,
)


def evaluate_lambda(state: Specialisation, node: ast.Lambda) -> Value:
    """Return the value of a lambda (`make_local_function`), whose body is followed where it is
    called."""
    return make_local_function(state, node, as_definition(node))


def make_local_function(
    state: Specialisation, node: ast.Lambda | ast.FunctionDef, definition: ast.FunctionDef
) -> Value:
    """Return the value of a lambda or inner function, which is noted in `state.local_functions` and
    followed where it is called. Raises Unsplittable for decorators, generators, global names, and
    defaults known only at run time.

    definition: its statements; `node`: the lambda or function itself.
    """
    unsupported_types = (ast.Await, ast.Global)
    if definition.decorator_list or any(
        isinstance(inner_node, unsupported_types) for inner_node in body_nodes(definition)
    ):
        raise state.refuse(node, "decorators and global in an inner function are not supported")
    defaults = [state.evaluate(default) for default in node.args.defaults]
    keyword_defaults = [
        state.evaluate(default) for default in node.args.kw_defaults if default is not None
    ]
    if not are_static([*defaults, *keyword_defaults]):
        reason = "a default of an inner function that is known only at run time is not supported"
        raise state.refuse(node, reason)
    examples, keyword_examples = (
        [value.example for value in values] for values in (defaults, keyword_defaults)
    )
    function = make_stand_in_function(node, examples, keyword_examples, state.frame.scope)
    state.local_functions[function] = LocalFunction(definition, state.frame)
    return state.static(function)
