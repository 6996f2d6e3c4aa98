"""Arguments of calls, and calls of methods of tensors and of values that the host computes."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import torch

from regraft.splitting.program.possible_constants import TRUTHS
from regraft.splitting.program.residual import HostStep
from regraft.splitting.program.residual_expressions import (
    MUTATORS,
    holds_tensor,
    is_static_object,
    method_call,
)
from regraft.splitting.program.statements import Evaluate
from regraft.splitting.program.value_kinds_and_parts import are_static
from regraft.splitting.program.values import (
    ComputedValue,
    HostValue,
    StaticValue,
    TensorValue,
    Value,
    convert_to_host,
)
from regraft.splitting.specialising.code_running import (
    is_constant_tensor,
    read_in_worlds,
    run_code,
    run_operation,
)
from regraft.splitting.specialising.dictionaries import list_items
from regraft.splitting.specialising.elements import get_element, list_elements, take_elements
from regraft.splitting.specialising.host_displays import write_codes, write_new_dictionary
from regraft.splitting.specialising.host_sets import call_set_method
from regraft.splitting.specialising.list_lengths_and_aliases import (
    check_change,
    check_no_list_read,
    is_ragged,
    note_ragged,
)
from regraft.splitting.specialising.list_splits import take_parts
from regraft.splitting.specialising.objects_made_in_forward import read_sequence
from regraft.splitting.specialising.sorting import sort_list
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.tensor_calls import (
    COMPARISONS,
    call_size,
    check_scalars,
    check_squeeze,
    compare_tensors,
    read_single_numbers,
)
from regraft.splitting.specialising.typed_constructors import takes_size
from regraft.splitting.specialising.values_stored_under_names import (
    bind_number,
    index_elements,
    take_missing_element,
)

# methods whose result the type of a tensor decides, not its values
SHAPE_METHODS = frozenset({"dim", "ndimension", "is_floating_point"})

# methods by which the host reads a tensor
READING_METHODS = frozenset({"item", "tolist"})

# methods of values that the host computes
HOST_METHODS = frozenset(
    {
        "append",
        "extend",
        "pop",
        "get",
        "keys",
        "values",
        "items",
        "insert",
        "copy",
        "index",
        "count",
        "reverse",
        "sort",
    }
)


def evaluate_arguments(
    state: Specialisation, node: ast.Call, either: bool = False
) -> tuple[list[Value], dict[str, Value]]:
    """Return the values of a call's positional and keyword arguments, with `*` and `**` of what is
    known taken apart; raise Unsplittable for them of what is not.

    either: whether an argument may be a constant on some paths and a tensor on others; the
    arguments in `node` are marked so.
    """
    if either:
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            argument.either = True  # type: ignore[attr-defined]
    args: list[Value] = []
    for arg in node.args:
        if isinstance(arg, ast.Starred):
            args.extend(evaluate_starred_argument(state, arg))
        else:
            args.append(bind_number(state, state.evaluate(arg)))
    keywords: dict[str, Value] = {}
    for keyword in node.keywords:
        value = bind_number(state, state.evaluate(keyword.value))
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        elif isinstance(value, StaticValue) and isinstance(value.example, dict):
            keywords.update(list_items(state, keyword.value, value))
        else:
            raise state.refuse(
                keyword, "a call with ** of something that is not known is not supported"
            )
    return args, keywords


def evaluate_starred_argument(state: Specialisation, arg: ast.Starred) -> list[Value]:
    """Return the elements of an argument such as `*rows`; raise Unsplittable if their number is not
    known."""
    sequence = read_sequence(state, arg, state.evaluate(arg.value))
    if isinstance(sequence, StaticValue) and isinstance(sequence.example, (tuple, list)):
        return [state.static(element) for element in sequence.example]
    if isinstance(sequence.code, ast.Tuple):
        return [
            state.require_single_kind(arg, get_element(state, sequence, place))
            for place in range(len(sequence.code.elts))
        ]
    if isinstance(sequence, TensorValue):
        elements = take_region_elements(state, arg, sequence)
    else:
        elements = index_elements(state, arg, sequence)
    if elements is None:
        raise state.refuse(
            arg, "a call with * of something whose length is not known is not supported"
        )
    return elements


def take_region_elements(
    state: Specialisation, arg: ast.Starred, sequence: TensorValue
) -> list[Value] | None:
    """Return the elements of a tuple or tensor that a region computes, under names of their own,
    and note them as pending; None for a tensor whose length is not known."""
    if isinstance(sequence.example, torch.Tensor):
        rows = list_elements(state, arg, sequence)
        elements = rows and [state.bind_if_tensor(row) for row in rows]
    else:
        elements = take_elements(state, arg, sequence)
    if elements is not None and state.pending[-1] is not None:
        state.pending[-1].extend(elements)
    return elements


@dataclass(frozen=True)
class MethodCall:
    """A call of a method: the value that has it, its name, and the arguments."""

    node: ast.Call
    base: Value
    method_name: str
    args: list[Value]
    keywords: dict[str, Value]

    @property
    def operands(self) -> list[Value]:
        """Return the positional and the keyword arguments."""
        return [*self.args, *self.keywords.values()]


def call_method(state: Specialisation, node: ast.Call, base: Value, method_name: str) -> Value:
    """Return the value of a call of a method of a tensor, or of a value that the host computes;
    raise Cases for an argument that is a constant on some paths only."""
    call = MethodCall(node, base, method_name, *evaluate_arguments(state, node))
    for operand in call.operands:
        state.require_single_kind(node, operand)
    if isinstance(base, TensorValue):
        return call_tensor_method(state, call)
    if type(base.example) is set and not call.keywords:
        return call_set_method(state, node, base, method_name, call.args)
    if type(base.example) is list and method_name == "sort" and "key" in call.keywords:
        return sort_list(state, node, base, call.keywords)
    return call_host_method(state, call)


def call_tensor_method(state: Specialisation, call: MethodCall) -> Value:
    """Return the value of a call of a method of a tensor: `item` and `tolist` as a read by the
    host, sizes, comparisons of whole tensors and questions of its type as such, any other as one
    operation of a region."""
    node, base, method_name = call.node, call.base, call.method_name
    if method_name in READING_METHODS:
        return read_values(state, call)
    parts = take_parts(state, node, method_name, [base, *call.args], call.keywords)
    if parts is not None:
        return parts
    if method_name == "new":
        method_name = choose_new_method(state, call)
    check_scalars(state, node, call.operands)
    code = ast.Call(
        ast.Attribute(base.code, method_name, ast.Load()),
        [argument.code for argument in call.args],
        [ast.keyword(keyword, value.code) for keyword, value in call.keywords.items()],
    )
    if method_name in ("size", "numel", "nelement"):
        return call_size(state, node, base, method_name, call.operands)
    tensor_operands = [base, *call.args]
    if getattr(torch, method_name, None) in COMPARISONS:
        function = getattr(torch, method_name)
        return compare_tensors(state, node, function, tensor_operands, call.keywords)
    check_squeeze(state, node, method_name, tensor_operands, call.keywords)
    if method_name in SHAPE_METHODS:
        return state.static(run_code(state, node, code).example)
    operation = read_single_numbers(state, code, call.operands)
    return run_operation(state, node, operation, tensor_operands)


def choose_new_method(state: Specialisation, call: MethodCall) -> str:
    """Return the method that does what `x.new(...)` does: `new_empty` for a size, `new_tensor` for
    a list or tuple of values, else `new` itself."""
    of_size = takes_size(state, call.node, call.args)
    return "new" if of_size is None else "new_empty" if of_size else "new_tensor"


def read_values(state: Specialisation, call: MethodCall) -> Value:
    """Return the value of `x.item()` or `x.tolist()`, by which the host reads a tensor; `item()` of
    a tensor that no input decides is a constant."""
    base, method_name = call.base, call.method_name
    if method_name == "item" and is_constant_tensor(state, base):
        return state.static(base.example.item())
    example, second_example = read_in_worlds(
        state, call.node, base, lambda tensor: getattr(tensor, method_name)()
    )
    note_ragged(state, example, [second_example])
    # the tensor's type decides that, not its value
    among = TRUTHS if type(example) is bool else None
    code = method_call(state.bind_result(base), method_name)
    return HostValue(example, code, second_example, among=among)


def call_host_method(state: Specialisation, call: MethodCall) -> Value:
    """Return the result of a method of a value that the host computes, under a new name, to which a
    step of the host assigns it; for a method that changes a list and gives None the step is the
    call alone. The example's list changes, too.

    Raises Unsplittable for methods outside HOST_METHODS, keywords, objects as arguments, and the
    change of a container that something else may see.
    """
    node, base, method_name = call.node, call.base, call.method_name
    if method_name not in HOST_METHODS:
        raise state.refuse(
            node, f"the method {method_name} of a value known only at run time is not supported"
        )
    args = write_new_dictionaries(state, call)
    codes = write_codes(state, args)
    options = sort_options(state, call) if method_name == "sort" else []
    if (call.keywords and not options) or any(is_static_object(argument) for argument in args):
        raise state.refuse(node, "an object that is not plain data goes into a container")
    code = ast.Call(ast.Attribute(base.code, method_name, ast.Load()), codes, options)
    if method_name in MUTATORS:
        check_no_list_read(state, node, base)
        check_change(state, node, base.example)
    if method_name == "extend":
        note_extension(state, base, args[0])
    if method_name == "pop" and id(base.example) in state.ragged and len(base.example) == 1:
        # the last element stays, to show the type of the elements
        return take_missing_element(state, code, base, base.example[-1])
    value = run_code(state, node, code)
    if value.example is None:
        return finish_without_result(state, call, value, code)
    return state.bind_in_host(
        value if isinstance(value.example, torch.Tensor) else convert_to_host(value)
    )


def write_new_dictionaries(state: Specialisation, call: MethodCall) -> list[Value]:
    """Return the positional arguments of a call, those that are dictionary displays as displays of
    the host; all unchanged where an argument has a star."""
    if len(call.node.args) != len(call.args):
        return call.args
    return [
        write_new_dictionary(state, argument_node, argument)
        for argument_node, argument in zip(call.node.args, call.args, strict=True)
    ]


def sort_options(state: Specialisation, call: MethodCall) -> list[ast.keyword]:
    """Return the keyword `reverse` of `list.sort`, if it is written; raise Unsplittable for a key,
    for `reverse` known only at run time, and for a list of tensors."""
    if set(call.keywords) - {"reverse"} or not are_static(call.keywords.values()):
        raise state.refuse(call.node, "sort() takes a constant reverse only")
    if holds_tensor(call.base.example):
        raise state.refuse(call.node, "sort() of tensors is not supported")
    return [ast.keyword(key, value.code) for key, value in call.keywords.items()]


def note_extension(state: Specialisation, base: Value, extension: Value) -> None:
    """Note the list `base` as ragged (of unknown length) if `extend` adds an unknown number of
    elements: from a list of unknown length, or from what is no list and not known one by one."""
    if isinstance(extension, StaticValue) and isinstance(extension.example, (list, tuple)):
        return
    if not (isinstance(extension.example, list) or extension.fields):
        note_ragged(state, base.example, [None])
        return
    ragged_extensions = [extension.example] if is_ragged(state, extension.example) else []
    note_ragged(state, base.example, [base.example, *ragged_extensions])


def finish_without_result(
    state: Specialisation, call: MethodCall, value: ComputedValue, code: ast.Call
) -> Value:
    """Return the None that a method gives: a constant if the method changes its list, which the
    host then does in a step of its own, else a value of the host."""
    if call.method_name not in MUTATORS:
        return convert_to_host(value)
    state.steps.append(HostStep(Evaluate(code)))
    return state.static(None)
