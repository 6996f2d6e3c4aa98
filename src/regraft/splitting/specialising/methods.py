"""Calls of methods of tensors and of values that the host computes."""

from __future__ import annotations

import ast
from dataclasses import replace

import torch

from regraft.splitting.program.codes import MUTATORS, is_literal, kind_of, method_call
from regraft.splitting.program.possible import TRUTHS
from regraft.splitting.program.residual import HostStep
from regraft.splitting.program.values import Value
from regraft.splitting.specialising.dictionaries import list_items
from regraft.splitting.specialising.displays import write_new_dictionary
from regraft.splitting.specialising.elements import get_element
from regraft.splitting.specialising.lists import (
    check_change,
    check_no_list_read,
    is_ragged,
    note_ragged,
)
from regraft.splitting.specialising.running import (
    is_constant_tensor,
    read_in_worlds,
    run_code,
    run_operation,
)
from regraft.splitting.specialising.state import Specialisation
from regraft.splitting.specialising.tensor_calls import (
    COMPARISONS,
    call_size,
    check_rank,
    check_scalars,
    compare_tensors,
    read_single_numbers,
)
from regraft.splitting.specialising.variables import (
    bind_number,
    index_elements,
    take_missing_element,
)

SHAPE_METHODS = frozenset({"dim", "ndimension", "is_floating_point"})


READING_METHODS = frozenset({"item", "tolist"})


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
    }
)


def evaluate_arguments(
    state: Specialisation, node: ast.Call, either: bool = False
) -> tuple[list[Value], dict[str, Value]]:
    """Return positional and keyword arguments, with `*` and `**` of what is known taken apart.

    either: whether an argument may be a constant on some paths and a tensor on others.
    """
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)) if either else ():
        argument.either = True  # type: ignore[attr-defined]
    args: list[Value] = []
    for arg in node.args:
        if not isinstance(arg, ast.Starred):
            args.append(bind_number(state, state.evaluate(arg)))
            continue
        sequence = state.evaluate(arg.value)
        if sequence.kind == "static" and isinstance(sequence.example, (tuple, list)):
            args.extend(state.static(element) for element in sequence.example)
        elif isinstance(sequence.code, ast.Tuple):
            args.extend(
                state.require_one_kind(arg, get_element(state, sequence, place))
                for place in range(len(sequence.code.elts))
            )
        else:
            elements = index_elements(state, arg, sequence)
            if elements is None:
                raise state.refuse(
                    arg, "a call with * of something whose length is not known is not supported"
                )
            args.extend(elements)
    keywords: dict[str, Value] = {}
    for keyword in node.keywords:
        value = bind_number(state, state.evaluate(keyword.value))
        if keyword.arg is not None:
            keywords[keyword.arg] = value
        elif value.kind == "static" and isinstance(value.example, dict):
            keywords.update(list_items(state, keyword.value, value))
        else:
            raise state.refuse(
                keyword, "a call with ** of something that is not known is not supported"
            )
    return args, keywords


def call_method(state: Specialisation, node: ast.Call, base: Value, method_name: str) -> Value:
    """Call a method of a tensor, or of a value that the host computes."""
    args, keywords = evaluate_arguments(state, node)
    for operand in (*args, *keywords.values()):
        state.require_one_kind(node, operand)
    if base.kind == "tensor":
        if method_name == "item" and is_constant_tensor(state, base):
            return state.static(base.example.item())
        if method_name in READING_METHODS:
            example, second_example = read_in_worlds(
                state, node, base, lambda tensor: getattr(tensor, method_name)()
            )
            note_ragged(state, example, [second_example])
            # the tensor's type decides that, not its value
            among = TRUTHS if type(example) is bool else None
            return Value(
                "host",
                example,
                method_call(state.bind_result(base), method_name),
                second_example,
                among=among,
            )
        check_scalars(state, node, [*args, *keywords.values()])
        code = ast.Call(
            ast.Attribute(base.code, method_name, ast.Load()),
            [argument.code for argument in args],
            [ast.keyword(keyword, value.code) for keyword, value in keywords.items()],
        )
        if method_name in ("size", "numel", "nelement"):
            return call_size(state, node, base, method_name, [*args, *keywords.values()])
        if getattr(torch, method_name, None) in COMPARISONS:
            return compare_tensors(
                state, node, getattr(torch, method_name), [base, *args], keywords
            )
        check_rank(state, node, method_name, [base, *args], keywords)
        if method_name in SHAPE_METHODS:
            return state.static(run_code(state, node, code).example)
        return run_operation(
            state,
            node,
            read_single_numbers(state, code, [*args, *keywords.values()]),
            [base, *args],
        )
    if method_name not in HOST_METHODS:
        raise state.refuse(
            node, f"the method {method_name} of a value known only at run time is not supported"
        )
    pairs = zip(node.args, args, strict=True) if len(node.args) == len(args) else ()
    args = [
        write_new_dictionary(state, argument_node, argument) for argument_node, argument in pairs
    ] or args
    codes = [
        state.bind_result(argument) if argument.kind == "tensor" else argument.code
        for argument in args
    ]
    if any(argument.kind == "static" and not is_literal(argument) for argument in args) or keywords:
        raise state.refuse(node, "an object that is not plain data goes into a container")
    code = ast.Call(ast.Attribute(base.code, method_name, ast.Load()), list(codes), [])
    if method_name in MUTATORS:
        check_no_list_read(state, node)
        check_change(state, node, base.example)
    extension = args[0].example if args else None
    if method_name == "extend" and not (isinstance(extension, list) or args[0].fields):
        note_ragged(state, base.example, [None])
    elif method_name == "extend":
        note_ragged(
            state,
            base.example,
            [base.example, *([extension] if is_ragged(state, extension) else [])],
        )
    if method_name == "pop" and id(base.example) in state.ragged and len(base.example) == 1:
        # the last element stays, to show the type of the elements
        return take_missing_element(state, code, base, base.example[-1])
    value = run_code(state, node, code)
    if method_name in MUTATORS and value.example is None:
        state.steps.append(HostStep(ast.fix_missing_locations(ast.Expr(code))))
        return state.static(None)
    value = replace(value, kind=kind_of(value.example))
    return value if value.example is None else state.bind_in_host(value)
