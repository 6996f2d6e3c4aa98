"""Calls: what is followed, what is an operation of a region, what the host does."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.builtin import COMPARISONS, Builtins
from regraft.splitting.codes import (
    MUTATORS,
    held_as,
    holds_number,
    is_single,
    is_torch,
    method_call,
    plain,
    static_display,
)
from regraft.splitting.errors import ReadInside
from regraft.splitting.interpreter import Local, NotRun
from regraft.splitting.local import as_definition, inside, stand_in
from regraft.splitting.objects import BOUND
from regraft.splitting.outside import changes_outside
from regraft.splitting.possible import TRUTHS
from regraft.splitting.probe import observe
from regraft.splitting.records import is_namedtuple, is_record
from regraft.splitting.residual import HostStep, reads
from regraft.splitting.values import SAME, Value, fork, literal, open_sizes

SHAPE_METHODS = frozenset({"dim", "ndimension", "is_floating_point"})
TYPE_QUESTIONS = (torch.is_tensor, torch.is_floating_point, torch.is_complex)
READING_METHODS = frozenset({"item", "tolist"})
HOST_METHODS = frozenset(
    {"append", "extend", "pop", "get", "keys", "values", "items", "insert", "copy", "index", "count", "reverse"}
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
                return self.replaced(node, base, self.operands(node)[1])
            method = self.method_of_record(base, node.func.attr) if base.kind == "record" else None
            if method is not None:
                args, words = self.operands(node, either=True)
                return self.inline(node, method, None, [base, *args], words)
            if base.kind not in ("static", "record"):
                return self.method(node, base, node.func.attr)
            callee = self.attribute_of(node.func, base)
        else:
            callee = self.evaluate(node.func)
        if callee.kind != "static":
            raise self.refuse(node, "what is called here is known only at run time")
        args, words = self.operands(node, either=True)
        operands = [*args, *words.values()]
        function = callee.example
        unsure = any(one.kind == "either" for one in operands)
        python = inspect.isfunction(function) or inspect.ismethod(function)
        follows = python and not is_torch(function)
        if unsure and not (follows or is_record(function) or function in (max, min)):
            for one in operands:
                self.sure(node, one)
        followed = self.of_objects(node, function, args, words)
        if followed is not None:
            return followed
        local = any(self.holds_local(one.example) for one in operands) or self.holds_local(function)
        changeable = any(one.kind == "record" and not is_namedtuple(type(one.example)) for one in operands)
        code = ast.Call(callee.code, [one.code for one in args], [ast.keyword(w, v.code) for w, v in words.items()])
        known_name = getattr(function, "__name__", "")
        if getattr(builtins, known_name, None) is function:
            if local:
                raise self.refuse(node, f"{known_name}() of a function that forward makes is not supported")
            return self.builtin(node, known_name, operands, code)
        whole = args and isinstance(args[0].example, list) and not static_display(args[0])
        if function in (torch.cat, torch.stack) and whole:
            return self.joined(node, function, args, words)
        if function in (torch.tensor, torch.as_tensor) and whole:
            return self.result(node, *self.tensor_of(node, args, words))
        if is_record(function) and function not in self.mutable:
            return self.record(node, callee, args, words)
        if isinstance(function, torch.nn.Module):
            self.only_scalars(node, operands)
            if local or changeable or self.reads_values(node, function, code, operands):
                return self.inline(node, type(function).forward, function, args, words)
            try:
                return self.result(node, code, operands)
            except ReadInside:  # such as AdaptiveLogSoftmaxWithLoss
                return self.inline(node, type(function).forward, function, args, words)
        if function in TYPE_QUESTIONS:
            return self.static(self.run(node, code).example)
        if function in COMPARISONS and any(one.kind == "tensor" for one in operands):
            return self.compared(node, function, args, words)
        if is_torch(function):
            self.only_scalars(node, operands)
            self.check_rank(node, known_name, args, words)
            try:
                return self.result(node, self.with_numbers(code, operands), operands)
            except ReadInside:
                if not python:
                    raise
        if known_name in MUTATORS and isinstance(getattr(function, "__self__", None), (list, dict, set)):
            raise self.refuse(
                node, f"{known_name} changes a {type(function.__self__).__name__} that forward did not make"
            )
        if not local and all(one.kind == "static" for one in operands) and is_predictable(function):
            value = None if changes_outside(function) else self.settled(node, code)
            if value is not None:
                return value
        if getattr(function, "__module__", "") == "math":
            return self.of_numbers(node, known_name, code, operands)
        only_inside = local or changeable or unsure
        followed_only = is_torch(function) or only_inside or (python and changes_outside(function))
        if inspect.ismethod(function) and isinstance(function.__self__, (torch.nn.Module, type)):
            whole_call = None if followed_only else self.unfollowed(node, code, operands)
            return whole_call or self.inline(node, function.__func__, function.__self__, args, words)
        if inspect.isfunction(function):
            whole_call = None if followed_only else self.unfollowed(node, code, operands)
            return whole_call or self.inline(node, function, None, args, words)
        if inspect.isclass(function) and self.can_be_made(function):
            return self.construct(node, function, args, words)
        raise self.refuse(node, f"the call of {known_name or function!r} cannot be followed")

    def of_objects(self, node: ast.Call, function: Any, args: list[Value], words: dict[str, Value]) -> Value | None:
        """Calls of methods of objects that forward makes, and what Python has built in for these."""
        if function is super:
            return self.static(self.above(node, args))
        if self.is_made(function):
            return self.invoke(node, self.special(node, function, "__call__"), args, words)
        if isinstance(function, BOUND) and self.is_made(function.__self__):
            return self.invoke(node, function, args, words)
        first = args[0].example if args else None
        if function is dict and (not args or self.is_made_dict(first)) and len(args) < 2:
            made = self.make(dict)
            self.dict_update(node, made.example, *args, **words)
            return made
        called = args[1].example if len(args) > 1 else None
        if function is dataclasses.replace and not is_namedtuple(type(first)):
            return self.replaced(node, args[0], words)
        if function is setattr and isinstance(first, torch.nn.Module) and type(called) is str:
            self.put_scratch(node, first, called, args[2])
            return self.static(None)
        if function in (getattr, hasattr) and type(called) is str and self.is_scratch(first, called):
            value = self.scratch_value(node, first, called)
            return self.static(True) if function is hasattr else value
        asked = self.asked_of_record(node, function, args, words)
        if asked is not None:
            return asked
        if not self.is_made(first) or any(one.kind != "static" for one in args[:2]):
            return None
        if function in (isinstance, type, callable):
            return self.static(function(*(one.example for one in args)))
        if function is len:
            return self.invoke(node, self.special(node, first, "__len__"), [], {})
        if function in (list, tuple, sorted) and self.is_made_dict(first):
            keys = self.keys(node, first)
            plain_words = all(one.kind == "static" and isinstance(one.example, (bool, int)) for one in words.values())
            if plain_words and (function is not sorted or len({*map(type, keys)}) == 1):
                return self.static(function(keys, **{key: one.example for key, one in words.items()}))
        if function in (getattr, hasattr):
            found = self.attribute(node, first, args[1].example)
            if function is hasattr or (found is None and len(args) < 3):
                return self.static(found is not None) if function is hasattr else None
            return found or args[2]
        if function is setattr:
            self.put_attribute(node, first, args[1].example, args[2])
            return self.static(None)
        return None

    def above(self, node: ast.Call, args: list[Value]) -> Any:
        """What `super()` gives in a method."""
        if args:
            return super(*(one.example for one in args))
        kind = self.frame.scope.get("__class__")
        owner = self.names.get(self.frame.prefix + self.frame.first)
        if kind is None or owner is None or owner.kind != "static":
            raise self.refuse(node, "super() is not supported here")
        return super(kind, owner.example)

    def on_Lambda(self, node: ast.Lambda) -> Value:
        return self.made_function(node, as_definition(node))

    def made_function(self, node: ast.Lambda | ast.FunctionDef, definition: ast.FunctionDef) -> Value:
        """A function that forward makes, to be followed where it is called."""
        refused = (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)
        if definition.decorator_list or any(isinstance(one, refused) for one in inside(definition)):
            raise self.refuse(
                node, "decorators, generators, global and nonlocal in an inner function are not supported"
            )
        defaults = [self.evaluate(one) for one in node.args.defaults]
        words = [self.evaluate(one) for one in node.args.kw_defaults if one is not None]
        if any(one.kind != "static" for one in [*defaults, *words]):
            raise self.refuse(node, "a default of an inner function that is known only at run time is not supported")
        examples, named = ([one.example for one in several] for several in (defaults, words))
        function = stand_in(node, examples, named, self.frame.scope)
        self.local[function] = Local(definition, self.frame)
        return self.static(function)

    def operands(self, node: ast.Call, either: bool = False) -> tuple[list[Value], dict[str, Value]]:
        """Positional and keyword arguments, with `*` and `**` of what is known taken apart.

        either: whether they may be constants on some paths and tensors on others.
        """
        for one in (*node.args, *(word.value for word in node.keywords)) if either else ():
            one.either = True  # type: ignore[attr-defined]
        args: list[Value] = []
        for arg in node.args:
            if not isinstance(arg, ast.Starred):
                args.append(self.number_name(self.evaluate(arg)))
                continue
            several = self.evaluate(arg.value)
            if several.kind == "static" and isinstance(several.example, (tuple, list)):
                args.extend(self.static(one) for one in several.example)
            elif isinstance(several.code, ast.Tuple):
                args.extend(self.sure(arg, self.element(several, place)) for place in range(len(several.code.elts)))
            else:
                elements = self.elements_of_list(arg, several)
                if elements is None:
                    raise self.refuse(arg, "a call with * of something whose length is not known is not supported")
                args.extend(elements)
        words: dict[str, Value] = {}
        for word in node.keywords:
            value = self.number_name(self.evaluate(word.value))
            if word.arg is not None:
                words[word.arg] = value
            elif value.kind == "static" and isinstance(value.example, dict):
                words.update(self.items_of(word.value, value))
            else:
                raise self.refuse(word, "a call with ** of something that is not known is not supported")
        return args, words

    def settled(self, node: ast.Call, code: ast.Call) -> Value | None:
        """What a function of known arguments gives, where that cannot change afterwards."""
        if self.reads(code):
            return None
        example, again = self.run(node, code).example, self.run(node, code).example
        if literal(example) is not None and (type(example) is not type(again) or example != again):
            raise self.refuse(node, "gives something else each time it is called")
        fixed = (torch.dtype, torch.device, torch.nn.Module, type)
        known = literal(example) is not None or isinstance(example, fixed) or inspect.isroutine(example)
        return self.static(example) if known else None

    def unfollowed(self, node: ast.Call, code: ast.Call, operands: list[Value]) -> Value | None:
        """The call of a function that reads no value of a tensor and gives tensors: an operation like any other."""
        containers = any(isinstance(one.example, (list, dict)) and not static_display(one) for one in operands)
        if containers or not any(one.kind == "tensor" for one in operands) or self.decides(code, operands):
            return None
        if self.unsteady(node, code):
            return None
        value = self.run(node, code)
        if value.kind == "tensor":
            return value
        fixed = literal(value.example) is not None and (value.twin is SAME or value.example is value.twin is None)
        return self.static(value.example) if fixed else None

    def only_scalars(self, node: ast.AST, operands: list[Value]) -> None:
        for one in operands:
            plain_number = isinstance(one.example, (int, float, bool)) or isinstance(one.code, ast.Slice)
            if one.kind == "host" and not plain_number and not static_display(one):
                raise self.refuse(node, f"a {type(one.example).__name__} of the host goes into a tensor operation")

    def with_numbers(self, code: ast.Call, operands: list[Value]) -> ast.Call:
        """The call of an operation that reads tensors of one whole number, such as `torch.arange(t)`, with numbers."""
        single = [one for one in operands if is_single(one.example)]
        several = [one for one in operands if any(map(is_single, one.example if one.fields else ()))]
        if not (single or several) or not self.reads(code):
            return code
        numbers = {id(one.code): self.bound(one.code, one).code for one in single}
        for one in several:
            parts = [self.element(one, place) for place in one.fields]
            codes = [self.bound(part.code, part).code if is_single(part.example) else part.code for part in parts]
            numbers[id(one.code)] = ast.Tuple(codes, ast.Load())
        keywords = [ast.keyword(one.arg, numbers.get(id(one.value), one.value)) for one in code.keywords]
        return ast.Call(code.func, [numbers.get(id(one), one) for one in code.args], keywords)

    def reads_values(self, node: ast.AST, module: torch.nn.Module, code: ast.expr, operands: list[Value]) -> bool:
        """Whether a module of somebody's own decides by values of tensors, or by sizes that these decide."""
        own = any(not type(one).__module__.startswith("torch.nn") for one in module.modules())
        return own and (self.decides(code, operands) or self.unsteady(node, code))

    def decides(self, code: ast.expr, operands: list[Value]) -> bool:
        """Whether running it may decide by a value of a tensor, or by a size that these decide and that it gets."""
        sizes = any(one.kind == "host" and one.twin is not SAME and holds_number(one.example) for one in operands)
        return sizes or self.reads(code)

    def reads(self, code: ast.expr) -> bool:
        """Whether running it reads a value of a tensor, assigns an attribute, or fails: it has to be followed."""
        for key in reads(code) & self.names.keys():
            value = self.names[key]
            if value.kind == "host" and holds_number(value.example) and key not in self.sizes:
                return True  # what a number decides need not show in its region, where it is a tensor
        scope = self.scope({key: value.example for key, value in fork(self.names).items()})
        compiled = compile(ast.fix_missing_locations(ast.Expression(code)), self.frame.path, "eval")
        before = len(self.stored)
        try:
            seen = observe(lambda: eval(compiled, scope), (), self.known())
        except (Exception, NotRun):  # noqa: BLE001  (following it says where it fails)
            return True
        finally:
            assigned = self.taken_back(before)
        return seen.reads or assigned

    def method(self, node: ast.Call, base: Value, called: str) -> Value:
        args, words = self.operands(node)
        for one in (*args, *words.values()):
            self.sure(node, one)
        if base.kind == "tensor":
            if called == "item" and self.is_known(base):
                return self.static(base.example.item())
            if called in READING_METHODS:
                example, other = self.read(node, base, lambda one: getattr(one, called)())
                self.met_lists(example, [other])
                among = TRUTHS if type(example) is bool else None  # the tensor's type says so
                return Value("host", example, method_call(self.held(base), called), other, among=among)
            self.only_scalars(node, [*args, *words.values()])
            code = ast.Call(
                ast.Attribute(base.code, called, ast.Load()), [one.code for one in args],
                [ast.keyword(word, value.code) for word, value in words.items()],
            )  # fmt: skip
            if called in ("size", "numel", "nelement"):
                return self.size(node, base, called, [*args, *words.values()])
            if getattr(torch, called, None) in COMPARISONS:
                return self.compared(node, getattr(torch, called), [base, *args], words)
            self.check_rank(node, called, [base, *args], words)
            if called in SHAPE_METHODS:
                return self.static(self.run(node, code).example)
            return self.result(node, self.with_numbers(code, [*args, *words.values()]), [base, *args])
        if called not in HOST_METHODS:
            raise self.refuse(node, f"the method {called} of a value known only at run time is not supported")
        pairs = zip(node.args, args, strict=True) if len(node.args) == len(args) else ()
        args = [self.written(part, one) for part, one in pairs] or args
        codes = [self.held(one) if one.kind == "tensor" else one.code for one in args]
        if any(one.kind == "static" and not plain(one) for one in args) or words:
            raise self.refuse(node, "an object that is not plain data goes into a container")
        code = ast.Call(ast.Attribute(base.code, called, ast.Load()), list(codes), [])
        if called in MUTATORS:
            self.nothing_read(node)
            self.check_change(node, base.example)
        several = args[0].example if args else None
        if called == "extend" and not (isinstance(several, list) or args[0].fields):
            self.met_lists(base.example, [None])
        elif called == "extend":
            self.met_lists(base.example, [base.example, *([several] if self.is_ragged(several) else [])])
        if called == "pop" and id(base.example) in self.ragged and len(base.example) == 1:
            return self.one_like(code, base, base.example[-1])  # the last one stays, as a witness of what it holds
        value = self.run(node, code)
        if called in MUTATORS and value.example is None:
            self.steps.append(HostStep(ast.fix_missing_locations(ast.Expr(code))))
            return self.static(None)
        value = replace(value, kind=held_as(value.example))
        return value if value.example is None else self.held_by_host(value)

    def check_rank(self, node: ast.AST, called: str, args: list[Value], words: dict[str, Value]) -> None:
        """Refuse to take out a dimension if it has one element, where data decide how many it has."""
        if called != "squeeze" or not args or not isinstance(args[0].example, torch.Tensor):
            return
        given = (*args[1:], *words.values())
        wanted = given[0].example if given else range(args[0].example.ndim)
        dims = wanted if isinstance(wanted, (tuple, range)) else (wanted,)
        if {one % max(args[0].example.ndim, 1) for one in dims} & {*open_sizes(args[0])}:
            raise self.refuse(node, "sizes decide how many dimensions there are, which is not supported")

    def one_like(self, code: ast.expr, base: Value, example: Any) -> Value:
        """An element of a list of unknown length whose place the example lacks."""
        return self.held_by_host(Value(held_as(example), example, code, base.other[-1]))

    def nothing_read(self, node: ast.AST) -> None:
        """A list changes: what was evaluated before, but is not used yet, must not read any list."""
        for one in self.waiting():
            whole = {id(part) for part in one.fields.values()} | {id(one.code)}
            read = (part for part in ast.walk(one.code) if isinstance(part, ast.Name) and id(part) not in whole)
            if any(part.id in self.names and holds_list(self.names[part.id].example) for part in read):
                raise self.refuse(node, "a list changes within an expression that reads it, too")


def holds_list(example: Any) -> bool:
    """Whether it is a list or dictionary of the host, or holds one."""
    return isinstance(example, (list, dict)) or (type(example) is tuple and any(map(holds_list, example)))


def is_predictable(function: Any) -> bool:
    """Python functions, which are run twice, functions of math, and methods of plain data."""
    plain = isinstance(getattr(function, "__self__", None), (tuple, str, range, dict, list))
    module = getattr(function, "__module__", "")
    return inspect.isfunction(function) or inspect.ismethod(function) or plain or module == "math"
