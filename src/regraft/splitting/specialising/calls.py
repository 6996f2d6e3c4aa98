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
from regraft.splitting.observing.probe import observe
from regraft.splitting.program.codes import (
    MUTATORS,
    holds_number,
    is_display,
    is_literal,
    is_single_integer,
    is_torch,
    kind_of,
    method_call,
)
from regraft.splitting.program.possible import TRUTHS
from regraft.splitting.program.records import is_namedtuple, is_record
from regraft.splitting.program.residual import HostStep, reads
from regraft.splitting.program.values import SAME, Names, Value, fork, literal, open_dimensions
from regraft.splitting.specialising.builtin import COMPARISONS, Builtins
from regraft.splitting.specialising.interpreter import LocalFunction, NotRun
from regraft.splitting.specialising.local import as_definition, body_nodes, stand_in
from regraft.splitting.specialising.objects import BOUND_TYPES
from regraft.splitting.specialising.outside import changes_outside

SHAPE_METHODS = frozenset({"dim", "ndimension", "is_floating_point"})
TYPE_TESTS = (torch.is_tensor, torch.is_floating_point, torch.is_complex)
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


class Calls(Builtins):
    """Evaluates calls."""

    def on_Call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            base = self.as_tensor(node, self.evaluate(node.func.value), "AttributeError")
            if base.kind == "static" and isinstance(base.example, torch.Tensor):
                if node.func.attr in READING_METHODS:  # weights stay what they are
                    return self.static(getattr(base.example, node.func.attr)())
                base = replace(base, kind="tensor")
            if base.kind == "record" and node.func.attr == "_replace":
                return self.replace_fields(node, base, self.operands(node)[1])
            method = self.method_of_record(base, node.func.attr) if base.kind == "record" else None
            if method is not None:
                args, keywords = self.operands(node, either=True)
                return self.inline(node, method, None, [base, *args], keywords)
            if base.kind not in ("static", "record"):
                return self.call_method(node, base, node.func.attr)
            callee = self.attribute_of(node.func, base)
        else:
            callee = self.evaluate(node.func)
        if callee.kind != "static":
            raise self.refuse(node, "what is called here is known only at run time")
        args, keywords = self.operands(node, either=True)
        operands = [*args, *keywords.values()]
        function = callee.example
        has_either = any(operand.kind == "either" for operand in operands)
        is_python = inspect.isfunction(function) or inspect.ismethod(function)
        is_followable = is_python and not is_torch(function)
        if has_either and not (is_followable or is_record(function) or function in (max, min)):
            for operand in operands:
                self.require_one_kind(node, operand)
        object_result = self.call_on_object(node, function, args, keywords)
        if object_result is not None:
            return object_result
        holds_local = any(
            self.holds_local_function(operand.example) for operand in operands
        ) or self.holds_local_function(function)
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
                raise self.refuse(
                    node, f"{function_name}() of a function that forward makes is not supported"
                )
            return self.call_builtin(node, function_name, operands, code)
        is_host_list = args and isinstance(args[0].example, list) and not is_display(args[0])
        if function in (torch.cat, torch.stack) and is_host_list:
            return self.concatenate_list(node, function, args, keywords)
        if function in (torch.tensor, torch.as_tensor) and is_host_list:
            return self.result(node, *self.tensor_from_list(node, args, keywords))
        if is_record(function) and function not in self.mutable:
            return self.make_record(node, callee, args, keywords)
        if isinstance(function, torch.nn.Module):
            self.check_scalars(node, operands)
            if (
                holds_local
                or has_mutable_record
                or self.module_decides(node, function, code, operands)
            ):
                return self.inline(node, type(function).forward, function, args, keywords)
            try:
                return self.result(node, code, operands)
            except ReadInside:  # such as AdaptiveLogSoftmaxWithLoss
                return self.inline(node, type(function).forward, function, args, keywords)
        if function in TYPE_TESTS:
            return self.static(self.run(node, code).example)
        if function in COMPARISONS and any(operand.kind == "tensor" for operand in operands):
            return self.compare_tensors(node, function, args, keywords)
        if is_torch(function):
            self.check_scalars(node, operands)
            self.check_rank(node, function_name, args, keywords)
            try:
                return self.result(node, self.read_single_numbers(code, operands), operands)
            except ReadInside:
                if not is_python:
                    raise
        if function_name in MUTATORS and isinstance(
            getattr(function, "__self__", None), (list, dict, set)
        ):
            raise self.refuse(
                node,
                f"{function_name} changes a {type(function.__self__).__name__} that forward did not"
                " make",
            )
        if (
            not holds_local
            and all(operand.kind == "static" for operand in operands)
            and is_predictable(function)
        ):
            value = None if changes_outside(function) else self.constant_result(node, code)
            if value is not None:
                return value
        if getattr(function, "__module__", "") == "math":
            return self.call_math(node, function_name, code, operands)
        needs_source = holds_local or has_mutable_record or has_either
        must_follow = (
            is_torch(function) or needs_source or (is_python and changes_outside(function))
        )
        if inspect.ismethod(function) and isinstance(function.__self__, (torch.nn.Module, type)):
            operation_result = None if must_follow else self.run_as_operation(node, code, operands)
            return operation_result or self.inline(
                node, function.__func__, function.__self__, args, keywords
            )
        if inspect.isfunction(function):
            operation_result = None if must_follow else self.run_as_operation(node, code, operands)
            return operation_result or self.inline(node, function, None, args, keywords)
        if inspect.isclass(function) and self.can_be_made(function):
            return self.construct(node, function, args, keywords)
        raise self.refuse(node, f"the call of {function_name or function!r} cannot be followed")

    def call_on_object(
        self, node: ast.Call, function: Any, args: list[Value], keywords: dict[str, Value]
    ) -> Value | None:
        """Call a method of an object that forward makes, or a built-in with one; return None for
        other calls."""
        if function is super:
            return self.static(self.super_object(node, args))
        if self.is_stand_in(function):
            return self.invoke(
                node, self.special_method(node, function, "__call__"), args, keywords
            )
        if isinstance(function, BOUND_TYPES) and self.is_stand_in(function.__self__):
            return self.invoke(node, function, args, keywords)
        first_example = args[0].example if args else None
        if (
            function is dict
            and (not args or self.is_dict_stand_in(first_example))
            and len(args) < 2
        ):
            new_dictionary = self.make_object(dict)
            self.dict_update(node, new_dictionary.example, *args, **keywords)
            return new_dictionary
        attribute = args[1].example if len(args) > 1 else None
        if function is dataclasses.replace and not is_namedtuple(type(first_example)):
            return self.replace_fields(node, args[0], keywords)
        if (
            function is setattr
            and isinstance(first_example, torch.nn.Module)
            and type(attribute) is str
        ):
            self.put_scratch(node, first_example, attribute, args[2])
            return self.static(None)
        if (
            function in (getattr, hasattr)
            and type(attribute) is str
            and self.is_scratch(first_example, attribute)
        ):
            value = self.scratch_value(node, first_example, attribute)
            return self.static(True) if function is hasattr else value
        record_result = self.builtin_on_record(node, function, args, keywords)
        if record_result is not None:
            return record_result
        if not self.is_stand_in(first_example) or any(
            argument.kind != "static" for argument in args[:2]
        ):
            return None
        if function in (isinstance, type, callable):
            return self.static(function(*(argument.example for argument in args)))
        if function is len:
            return self.invoke(node, self.special_method(node, first_example, "__len__"), [], {})
        if function in (list, tuple, sorted) and self.is_dict_stand_in(first_example):
            keys = self.item_keys(node, first_example)
            has_plain_keywords = all(
                value.kind == "static" and isinstance(value.example, (bool, int))
                for value in keywords.values()
            )
            if has_plain_keywords and (function is not sorted or len({*map(type, keys)}) == 1):
                return self.static(
                    function(keys, **{key: value.example for key, value in keywords.items()})
                )
        if function in (getattr, hasattr):
            attribute_value = self.attribute(node, first_example, args[1].example)
            if function is hasattr or (attribute_value is None and len(args) < 3):
                return self.static(attribute_value is not None) if function is hasattr else None
            return attribute_value or args[2]
        if function is setattr:
            self.put_attribute(node, first_example, args[1].example, args[2])
            return self.static(None)
        return None

    def super_object(self, node: ast.Call, args: list[Value]) -> Any:
        """Return what `super()` gives in a method."""
        if args:
            return super(*(argument.example for argument in args))
        defining_class = self.frame.scope.get("__class__")
        owner = self.names.get(self.frame.prefix + self.frame.first_parameter)
        if defining_class is None or owner is None or owner.kind != "static":
            raise self.refuse(node, "super() is not supported here")
        return super(defining_class, owner.example)

    def on_Lambda(self, node: ast.Lambda) -> Value:
        return self.make_local_function(node, as_definition(node))

    def make_local_function(
        self, node: ast.Lambda | ast.FunctionDef, definition: ast.FunctionDef
    ) -> Value:
        """Return a function that forward makes, to be followed where it is called."""
        unsupported_types = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)
        if definition.decorator_list or any(
            isinstance(inner_node, unsupported_types) for inner_node in body_nodes(definition)
        ):
            raise self.refuse(
                node,
                "decorators, generators, global and nonlocal in an inner function are not"
                " supported",
            )
        defaults = [self.evaluate(default) for default in node.args.defaults]
        keyword_defaults = [
            self.evaluate(default) for default in node.args.kw_defaults if default is not None
        ]
        if any(value.kind != "static" for value in [*defaults, *keyword_defaults]):
            raise self.refuse(
                node,
                "a default of an inner function that is known only at run time is not supported",
            )
        examples, keyword_examples = (
            [value.example for value in values] for values in (defaults, keyword_defaults)
        )
        function = stand_in(node, examples, keyword_examples, self.frame.scope)
        self.local_functions[function] = LocalFunction(definition, self.frame)
        return self.static(function)

    def operands(
        self, node: ast.Call, either: bool = False
    ) -> tuple[list[Value], dict[str, Value]]:
        """Return positional and keyword arguments, with `*` and `**` of what is known taken apart.

        either: whether an argument may be a constant on some paths and a tensor on others.
        """
        for argument in (
            (*node.args, *(keyword.value for keyword in node.keywords)) if either else ()
        ):
            argument.either = True  # type: ignore[attr-defined]
        args: list[Value] = []
        for arg in node.args:
            if not isinstance(arg, ast.Starred):
                args.append(self.bind_number(self.evaluate(arg)))
                continue
            sequence = self.evaluate(arg.value)
            if sequence.kind == "static" and isinstance(sequence.example, (tuple, list)):
                args.extend(self.static(element) for element in sequence.example)
            elif isinstance(sequence.code, ast.Tuple):
                args.extend(
                    self.require_one_kind(arg, self.element(sequence, place))
                    for place in range(len(sequence.code.elts))
                )
            else:
                elements = self.elements_of_list(arg, sequence)
                if elements is None:
                    raise self.refuse(
                        arg, "a call with * of something whose length is not known is not supported"
                    )
                args.extend(elements)
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.bind_number(self.evaluate(keyword.value))
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif value.kind == "static" and isinstance(value.example, dict):
                keywords.update(self.items_of(keyword.value, value))
            else:
                raise self.refuse(
                    keyword, "a call with ** of something that is not known is not supported"
                )
        return args, keywords

    def constant_result(self, node: ast.Call, code: ast.Call) -> Value | None:
        """Return the value of a call with static arguments; None if it may change afterwards."""
        if self.has_to_be_followed(code):
            return None
        example, second_example = self.run(node, code).example, self.run(node, code).example
        if literal(example) is not None and (
            type(example) is not type(second_example) or example != second_example
        ):
            raise self.refuse(node, "gives something else each time it is called")
        immutable_types = (torch.dtype, torch.device, torch.nn.Module, type)
        is_immutable = (
            literal(example) is not None
            or isinstance(example, immutable_types)
            or inspect.isroutine(example)
        )
        return self.static(example) if is_immutable else None

    def run_as_operation(
        self, node: ast.Call, code: ast.Call, operands: list[Value]
    ) -> Value | None:
        """Run a function that reads no tensor's value and gives tensors as one operation; else
        return None."""
        has_containers = any(
            isinstance(operand.example, (list, dict)) and not is_display(operand)
            for operand in operands
        )
        if (
            has_containers
            or not any(operand.kind == "tensor" for operand in operands)
            or self.may_decide(code, operands)
        ):
            return None
        if self.depends_on_sizes(node, code):
            return None
        value = self.run(node, code)
        if value.kind == "tensor":
            return value
        is_constant = literal(value.example) is not None and (
            value.twin is SAME or value.example is value.twin is None
        )
        return self.static(value.example) if is_constant else None

    def check_scalars(self, node: ast.AST, operands: list[Value]) -> None:
        """Refuse a container of the host as an operand of a tensor operation."""
        for operand in operands:
            is_plain_number = isinstance(operand.example, (int, float, bool)) or isinstance(
                operand.code, ast.Slice
            )
            if operand.kind == "host" and not is_plain_number and not is_display(operand):
                raise self.refuse(
                    node,
                    f"a {type(operand.example).__name__} of the host goes into a tensor operation",
                )

    def read_single_numbers(self, code: ast.Call, operands: list[Value]) -> ast.Call:
        """Return the call with numbers for one-integer tensors that are read, such as in
        `torch.arange(t)`."""
        integer_tensors = [operand for operand in operands if is_single_integer(operand.example)]
        sequences = [
            operand
            for operand in operands
            if any(map(is_single_integer, operand.example if operand.fields else ()))
        ]
        if not (integer_tensors or sequences) or not self.has_to_be_followed(code):
            return code
        numbers = {
            id(operand.code): self.slice_bound(operand.code, operand).code
            for operand in integer_tensors
        }
        for sequence in sequences:
            parts = [self.element(sequence, place) for place in sequence.fields]
            codes = [
                (
                    self.slice_bound(part.code, part).code
                    if is_single_integer(part.example)
                    else part.code
                )
                for part in parts
            ]
            numbers[id(sequence.code)] = ast.Tuple(codes, ast.Load())
        keywords = [
            ast.keyword(keyword.arg, numbers.get(id(keyword.value), keyword.value))
            for keyword in code.keywords
        ]
        return ast.Call(
            code.func, [numbers.get(id(argument), argument) for argument in code.args], keywords
        )

    def module_decides(
        self, node: ast.AST, module: torch.nn.Module, code: ast.expr, operands: list[Value]
    ) -> bool:
        """Return whether a module beyond torch.nn decides by values of tensors, or by sizes that
        values decide."""
        is_custom = any(
            not type(submodule).__module__.startswith("torch.nn") for submodule in module.modules()
        )
        return is_custom and (self.may_decide(code, operands) or self.depends_on_sizes(node, code))

    def may_decide(self, code: ast.expr, operands: list[Value]) -> bool:
        """Return whether the code may decide by a tensor's value, or by an operand's size that
        values decide."""
        has_open_numbers = any(
            operand.kind == "host" and operand.twin is not SAME and holds_number(operand.example)
            for operand in operands
        )
        return has_open_numbers or self.has_to_be_followed(code)

    def has_to_be_followed(self, code: ast.expr) -> bool:
        """Return whether running the code reads a value of a tensor, assigns an attribute, or
        fails."""
        for key in reads(code) & self.names.keys():
            value = self.names[key]
            if value.kind == "host" and holds_number(value.example) and key not in self.size_names:
                return (
                    True  # a number is a tensor in its region, where what it decides need not show
                )
        scope = self.scope(
            {key: value.example for key, value in {**self.names, **self.copies_read(code)}.items()}
        )
        compiled = compile(ast.fix_missing_locations(ast.Expression(code)), self.frame.path, "eval")
        stored_count = len(self.stored_attributes)
        try:
            observation = observe(lambda: eval(compiled, scope), self.constant_tensors(code))
        except (Exception, NotRun):  # noqa: BLE001  (following it says where it fails)
            return True
        finally:
            has_assigned = self.undo_stores(stored_count)
        return observation.reads or has_assigned

    def copies_read(self, code: ast.expr) -> Names:
        """Return the names that the code may reach, with containers of their own."""
        read = reads(code) & self.names.keys()
        reaches_all = any(self.holds_local_function(self.names[key].example) for key in read)
        return fork({key: self.names[key] for key in (self.names if reaches_all else read)})

    def call_method(self, node: ast.Call, base: Value, method_name: str) -> Value:
        """Call a method of a tensor, or of a value that the host computes."""
        args, keywords = self.operands(node)
        for operand in (*args, *keywords.values()):
            self.require_one_kind(node, operand)
        if base.kind == "tensor":
            if method_name == "item" and self.is_constant_tensor(base):
                return self.static(base.example.item())
            if method_name in READING_METHODS:
                example, second_example = self.read_in_worlds(
                    node, base, lambda tensor: getattr(tensor, method_name)()
                )
                self.note_ragged(example, [second_example])
                # the tensor's type decides that, not its value
                among = TRUTHS if type(example) is bool else None
                return Value(
                    "host",
                    example,
                    method_call(self.bind_result(base), method_name),
                    second_example,
                    among=among,
                )
            self.check_scalars(node, [*args, *keywords.values()])
            code = ast.Call(
                ast.Attribute(base.code, method_name, ast.Load()),
                [argument.code for argument in args],
                [ast.keyword(keyword, value.code) for keyword, value in keywords.items()],
            )
            if method_name in ("size", "numel", "nelement"):
                return self.call_size(node, base, method_name, [*args, *keywords.values()])
            if getattr(torch, method_name, None) in COMPARISONS:
                return self.compare_tensors(
                    node, getattr(torch, method_name), [base, *args], keywords
                )
            self.check_rank(node, method_name, [base, *args], keywords)
            if method_name in SHAPE_METHODS:
                return self.static(self.run(node, code).example)
            return self.result(
                node, self.read_single_numbers(code, [*args, *keywords.values()]), [base, *args]
            )
        if method_name not in HOST_METHODS:
            raise self.refuse(
                node, f"the method {method_name} of a value known only at run time is not supported"
            )
        pairs = zip(node.args, args, strict=True) if len(node.args) == len(args) else ()
        args = [
            self.display_new_dictionary(argument_node, argument)
            for argument_node, argument in pairs
        ] or args
        codes = [
            self.bind_result(argument) if argument.kind == "tensor" else argument.code
            for argument in args
        ]
        if (
            any(argument.kind == "static" and not is_literal(argument) for argument in args)
            or keywords
        ):
            raise self.refuse(node, "an object that is not plain data goes into a container")
        code = ast.Call(ast.Attribute(base.code, method_name, ast.Load()), list(codes), [])
        if method_name in MUTATORS:
            self.check_no_list_read(node)
            self.check_change(node, base.example)
        extension = args[0].example if args else None
        if method_name == "extend" and not (isinstance(extension, list) or args[0].fields):
            self.note_ragged(base.example, [None])
        elif method_name == "extend":
            self.note_ragged(
                base.example, [base.example, *([extension] if self.is_ragged(extension) else [])]
            )
        if method_name == "pop" and id(base.example) in self.ragged and len(base.example) == 1:
            # the last element stays, to show the type of the elements
            return self.element_like(code, base, base.example[-1])
        value = self.run(node, code)
        if method_name in MUTATORS and value.example is None:
            self.steps.append(HostStep(ast.fix_missing_locations(ast.Expr(code))))
            return self.static(None)
        value = replace(value, kind=kind_of(value.example))
        return value if value.example is None else self.bind_in_host(value)

    def check_rank(
        self, node: ast.AST, method_name: str, args: list[Value], keywords: dict[str, Value]
    ) -> None:
        """Refuse to take out dimensions of one element where the data decide how many elements they
        have."""
        if method_name != "squeeze" or not args or not isinstance(args[0].example, torch.Tensor):
            return
        options = (*args[1:], *keywords.values())
        requested = options[0].example if options else range(args[0].example.ndim)
        dims = requested if isinstance(requested, (tuple, range)) else (requested,)
        if {dim % max(args[0].example.ndim, 1) for dim in dims} & {*open_dimensions(args[0])}:
            raise self.refuse(
                node, "sizes decide how many dimensions there are, which is not supported"
            )

    def element_like(self, code: ast.expr, base: Value, example: Any) -> Value:
        """Return an element of a list of unknown length whose place the example lacks."""
        return self.bind_in_host(Value(kind_of(example), example, code, base.second_example[-1]))

    def check_no_list_read(self, node: ast.AST) -> None:
        """Refuse the change of a list if a value that was evaluated before, but is not used yet,
        reads a list."""
        for value in self.pending_values():
            own_codes = {id(part) for part in value.fields.values()} | {id(value.code)}
            name_nodes = (
                part
                for part in ast.walk(value.code)
                if isinstance(part, ast.Name) and id(part) not in own_codes
            )
            if any(
                part.id in self.names and holds_list(self.names[part.id].example)
                for part in name_nodes
            ):
                raise self.refuse(node, "a list changes within an expression that reads it, too")


def holds_list(example: Any) -> bool:
    """Return whether `example` is a list or dictionary of the host, or a tuple that holds one."""
    return isinstance(example, (list, dict)) or (
        type(example) is tuple and any(map(holds_list, example))
    )


def is_predictable(function: Any) -> bool:
    """Return whether it is a Python function, which is run twice, a function of math, or a method
    of plain data."""
    is_data_method = isinstance(
        getattr(function, "__self__", None), (tuple, str, range, dict, list)
    )
    module = getattr(function, "__module__", "")
    return (
        inspect.isfunction(function)
        or inspect.ismethod(function)
        or is_data_method
        or module == "math"
    )
