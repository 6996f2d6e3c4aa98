"""Statements: both sides of branches are followed, and the values are joined where paths meet."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace
from typing import Any

import torch

from regraft.splitting.program.codes import assign, kind_of, leaf_expressions, name
from regraft.splitting.program.possible import constants_of_all
from regraft.splitting.program.residual import (
    Branch,
    HostStep,
    Step,
    append_before_exit,
    leaves,
    reads,
)
from regraft.splitting.program.values import Names, Value, literal, open_differing_sizes, same_type
from regraft.splitting.specialising.assign import part_name
from regraft.splitting.specialising.either import Cases
from regraft.splitting.specialising.expressions import Choice
from regraft.splitting.specialising.inplace import Changes
from regraft.splitting.specialising.meet import unify

GRADIENT_MODES = (torch.no_grad, torch.enable_grad, torch.inference_mode, torch.set_grad_enabled)


class Statements(Changes):
    """Walks statements; the residual statements go to `steps`."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.call_depth = 0
        # the statements that are specialised by cases now, with the names
        self.cases: set[tuple[int, str]] = set()
        # joined tensors, by the ids of the tensors on each path
        self.joined_values: dict[tuple[int, ...], Value] = {}

    def block(self, statements: list[ast.stmt]) -> None:
        """Specialise statements, up to the first that leaves."""
        for statement in statements:
            if leaves(self.steps):
                return
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Specialise one statement, once for each alternative if a value that it needs has
        several."""
        handler = getattr(self, f"do_{type(node).__name__}", None)
        if handler is None:
            raise self.refuse(
                node, f"{type(node).__name__} is not supported in a network that is split"
            )
        steps, names = list(self.steps), self.fork_names(self.names)
        self.frame.line = getattr(node, "lineno", self.frame.line)
        self.pending.append(None)  # a statement uses the values that it evaluates itself
        try:
            try:
                handler(node)
            except Choice as choice:
                self.steps[:], self.names = list(steps), self.fork_names(names)
                self.specialise_choice(node, choice)
        except Cases as cases:
            self.steps[:], self.names = steps, names
            self.specialise_cases(node, cases.key)
        finally:
            self.pending.pop()
        for step in self.steps[len(steps) :]:
            if isinstance(step, HostStep) and not step.place[1]:
                step.place = self.frame.path, getattr(node, "lineno", 0)

    def specialise_cases(self, node: ast.stmt, key: str) -> None:
        """Specialise a statement twice: where a name holds the constant that it may hold, and where
        it does not."""
        while key and key not in self.names:
            key = self.copied_from.get(key, "")
        if not key:
            raise self.refuse(
                node,
                "something that is None or a number on some of the paths here is not supported"
                " here",
            )
        case = id(node), key
        if case in self.cases or isinstance(node, (ast.For, ast.While)):
            alternatives = (
                f"{self.names[key].instead} on some of the paths that lead here, and something else"
                " on others"
            )
            raise self.refuse(node, f"{key} is {alternatives}; that is not supported here")
        self.cases.add(case)
        sides = [lambda: self.statement(node), lambda: self.statement(node)]
        self.decide(node, self.constant_test(key), sides[0], sides[1], ["", ""])
        self.cases.discard(case)

    def specialise_choice(self, node: ast.stmt, choice: Choice) -> None:
        """Specialise a statement once for each module that the index may choose."""
        index_value = self.evaluate(choice.index)
        index_value = self.read_number(index_value) if index_value.kind == "tensor" else index_value
        index = (
            index_value.code
            if isinstance(index_value.code, ast.Name)
            else self.bind_in_host(index_value).code
        )
        arms: list[tuple[ast.expr | None, list[Step]]] = []
        ends = []
        for key in choice.keys:
            self.chosen_indices[id(choice.index)] = self.static(key)
            test = ast.Compare(index, [ast.Eq()], [ast.Constant(key)])
            steps, after = self.specialise_apart(lambda: self.block([node]), self.names, test)
            arms.append((test, steps))
            ends.append((steps, after))
        del self.chosen_indices[id(choice.index)]
        self.merge(ends)
        text = ast.unparse(choice.index)
        message = ast.parse(f"raise LookupError({ast.unparse(index)})").body[0]
        labels = [*(f"{text} is {key!r}" for key in choice.keys), "no module has this index"]
        self.steps.append(
            Branch([*arms, (None, [HostStep(message)])], node.lineno, self.frame.path, labels)
        )

    # -- joins

    def merge(self, ends: list[tuple[list[Step], Names]], drop_leaving: bool = True) -> None:
        """Set the names after paths that meet; plain values that differ become a variable of the
        host.

        drop_leaving: whether paths that leave are left out.
        """
        ends = [(steps, names) for steps, names in ends if not (drop_leaving and leaves(steps))]
        if not ends:
            return
        unify(self, ends)
        joined: Names = {}
        self.joined_values = {}
        for key in dict.fromkeys(key for _, names in ends for key in names):
            path_values = [(steps, names[key]) for steps, names in ends if key in names]
            if len(path_values) == len(ends):
                joined[key] = self.join(key, path_values)
                if any(value.partial for _, value in path_values):
                    joined[key] = replace(joined[key], partial=True, constant=False)
            elif self.is_variable(key):
                joined.update(self.join_partial(key, path_values))
        self.names = joined
        self.rebuild_tuples([names for _, names in ends])
        self.note_partly_aliased([names for _, names in ends])

    def is_variable(self, key: str) -> bool:
        """Return whether a name is a variable of the source, or an element of one."""
        return bool(name_prefixes(key) & self.reserved_names)

    def join_partial(self, key: str, path_values: list[tuple[list[Step], Value]]) -> Names:
        """Return the joined value, by name, of a variable that some paths do not assign; empty if
        there is none.

        Reading the variable on these paths raises, as it does in the original.
        """
        if name_prefixes(key) & self.deleted_names:
            return {}  # the host still holds it
        value = self.join(key, path_values)
        if value.kind == "static":
            if literal(value.example) is None:
                return {}
            assign_at_end(key, [(steps, value) for steps, _ in path_values])
            value = Value("host", value.example, name(key))
        return {key: replace(value, partial=True, constant=False)}

    def rebuild_tuples(self, path_names: list[Names]) -> None:
        """Rebuild the tuples of equal length from their elements."""
        for key in self.names:
            values = [names[key] for names in path_names if key in names]
            are_split = all(
                self.has_part_names(key, names[key], names) for names in path_names if key in names
            )
            if are_split and len({(type(value.example), *value.fields) for value in values}) == 1:
                partial = any(
                    self.names[part_name(key, place)].partial for place in values[0].fields
                )
                self.names[key] = replace(self.rebuild(key, values[0]), partial=partial)

    def join(self, key: str, path_values: list[tuple[list[Step], Value]]) -> Value:
        """Return the value that a name holds after paths that meet; its kind is "lost" if there is
        none."""
        values = [value for _, value in path_values]
        first = values[0]
        kinds = {value.kind for value in values}
        if all(value.fields for value in values):
            return Value("lost", None, name(key))  # its elements are joined
        if kinds == {"static"} and all(
            same_constant(first.example, value.example) for value in values
        ):
            return first
        longest = max(
            values, key=lambda value: len(value.example) if isinstance(value.example, list) else 0
        )
        if kinds == {"tensor"}:
            return self.join_tensors(key, values)
        if (
            kinds & {"tensor", "either"} and kinds <= {"tensor", "either", "static"}
        ) or self.mixes_none(values):
            return self.join_either(key, path_values)
        are_literal = all(
            value.kind != "static" or literal(value.example) is not None for value in values
        )
        if (
            kinds <= {"static", "host"}
            and are_literal
            and all(same_type(longest, value) for value in values)
        ):
            are_bound = [
                isinstance(value.code, ast.Name) and value.code.id == key for value in values
            ]
            assign_at_end(
                key,
                [
                    path_value
                    for path_value, is_bound in zip(path_values, are_bound, strict=True)
                    if not is_bound
                ],
            )
            self.note_ragged(longest.example, [value.example for value in values])
            truth = any(value.truth for value in values)
            return Value(
                "host",
                longest.example,
                name(key),
                longest.twin,
                among=constants_of_all(values),
                truth=truth,
            )
        return Value("lost", None, name(key))

    def join_tensors(self, key: str, values: list[Value]) -> Value:
        """Join tensors; the dimensions in which their sizes differ are open afterwards."""
        joined = values[0]
        for value in values[1:]:
            if not same_type(joined, value):
                widened = open_differing_sizes(joined, value)
                if widened is None:
                    return Value("lost", None, name(key))
                joined = widened
        if any(value.example is not values[0].example for value in values):
            joined = self.joined_values.setdefault(
                tuple(id(value.example) for value in values), self.merge_aliases(joined, values)
            )
        if joined is not values[0]:
            self.bind_name(key, joined)
        return replace(
            joined.with_name(key),
            constant=all(value is values[0] for value in values) and values[0].constant,
        )

    def join_either(self, key: str, path_values: list[tuple[list[Step], Value]]) -> Value:
        """Join a tensor (or, beside None, a value of the host) on some paths with one constant on
        the others."""
        has_none = self.mixes_none([value for _, value in path_values])
        constant_paths = [
            (steps, value)
            for steps, value in path_values
            if value.kind == "static" and (value.example is None or not has_none)
        ]
        variable_paths = [
            (steps, without_constant(value))
            for steps, value in path_values
            if (steps, value) not in constant_paths
        ]
        constants = [value.example for _, value in constant_paths] + [
            value.instead for _, value in path_values if value.kind == "either"
        ]
        joined = self.join(key, variable_paths)
        first = constants[0]
        is_one_constant = all(same_constant(first, constant) for constant in constants)
        if joined.kind == "static" and literal(joined.example) is not None:
            assign_at_end(key, variable_paths)
            joined = Value("host", joined.example, name(key))
        if (
            joined.kind not in ("host", "tensor")
            or not is_one_constant
            or not (first is None or isinstance(first, (int, float)))
        ):
            return Value("lost", None, name(key))
        assign_at_end(key, constant_paths)
        if joined.kind == "tensor":  # an alias: a change of the tensor need not change this name
            joined = self.merge_aliases(joined, [value for _, value in variable_paths])
        return replace(joined, kind="either", instead=first, constant=False)

    def mixes_none(self, values: list[Value]) -> bool:
        """Return whether some of the values are None, others are not, and the host may hold all."""
        are_none = [value.kind == "static" and value.example is None for value in values]
        has_either = any(value.kind == "either" and value.instead is None for value in values)
        return (has_either or (any(are_none) and not all(are_none))) and not any(
            value.kind in ("record", "lost") for value in values
        )

    def fits_either(self, value: Value, new_value: Value) -> bool:
        """Return whether `new_value` is one of the alternatives of `value`."""
        if new_value.kind == "static":
            return same_constant(value.instead, new_value.example)
        if new_value.kind == "either" and not same_constant(value.instead, new_value.instead):
            return False
        return without_constant(new_value).kind == without_constant(value).kind and same_type(
            value, new_value
        )

    # -- statements

    def do_Pass(self, node: ast.Pass) -> None:
        pass

    def do_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and self.change_in_place(node.value):
            return
        value = self.evaluate(node.value)
        if value.kind == "host":
            self.steps.append(HostStep(ast.fix_missing_locations(ast.Expr(value.code))))

    def do_Assert(self, node: ast.Assert) -> None:
        test = self.truth(self.evaluate(node.test))
        if test.kind != "static":
            self.steps.append(HostStep(ast.fix_missing_locations(ast.Assert(test.code))))
        elif not test.example:  # on a path that no input takes, or where the original raises, too
            self.steps.append(
                HostStep(ast.fix_missing_locations(ast.parse("raise AssertionError").body[0]))
            )

    def do_Raise(self, node: ast.Raise) -> None:
        """Let the host raise one of Python's own errors."""
        call = (
            node.exc
            if isinstance(node.exc, ast.Call)
            else ast.Call(node.exc or name("None"), [], [])
        )
        error_name = (
            call.func.id
            if isinstance(call.func, ast.Name) and call.func.id not in self.globals
            else ""
        )
        error = getattr(builtins, error_name, None)
        if (
            not (isinstance(error, type) and issubclass(error, Exception))
            or call.keywords
            or node.cause
        ):
            raise self.refuse(
                node, "raising anything but an error of Python's own is not supported"
            )
        step_count = len(self.steps)
        arguments = [self.evaluate(argument) for argument in call.args]
        are_literal = all(
            argument.kind in ("static", "host") and literal(argument.example) is not None
            for argument in arguments
        )
        if not are_literal or len(self.steps) > step_count:  # a side that raises gives no samples
            raise self.refuse(node, f"{error_name} of values of tensors is not supported")
        raise_statement = ast.Raise(
            ast.Call(name(error_name), [argument.code for argument in arguments], [])
        )
        self.steps.append(HostStep(ast.fix_missing_locations(raise_statement)))

    def do_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            base = (
                self.evaluate(target.value)
                if isinstance(target, (ast.Attribute, ast.Subscript))
                else None
            )
            if (
                base is not None
                and self.is_stand_in(base.example)
                and isinstance(target, ast.Subscript)
            ):
                key = self.evaluate(target.slice)
                self.invoke(node, self.special_method(node, base.example, "__delitem__"), [key], {})
                continue
            if not isinstance(target, ast.Name) or self.frame.prefix + target.id not in self.names:
                raise self.refuse(node, "del of anything but a local name is not supported")
            del self.names[self.frame.prefix + target.id]
            self.deleted_names.add(self.frame.prefix + target.id)

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        if len(node.targets) > 1 and value.kind != "static":  # the other targets may read the first
            value = self.bind_fresh(value)
        self.pending.append([value] if len(node.targets) > 1 else None)
        for target in node.targets:
            self.store(target, value)
        self.pending.pop()

    def do_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.store_name(self.frame.prefix + node.name, self.make_local_function(node, node))

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.store(node.target, self.evaluate(node.value))

    def do_Return(self, node: ast.Return) -> None:
        if self.call_depth == 0 and isinstance(
            node.value, ast.IfExp
        ):  # both sides may give values of any type
            sides = [
                [ast.copy_location(ast.Return(result), node)]
                for result in (node.value.body, node.value.orelse)
            ]
            self.do_If(ast.copy_location(ast.If(node.value.test, sides[0], sides[1]), node))  # type: ignore[arg-type]
            return
        value = (
            self.evaluate(node.value) if node.value else Value("static", None, ast.Constant(None))
        )
        value = self.as_host_display(node, value) if self.call_depth == 0 else value
        code = self.bind_result(value) if value.kind == "tensor" else value.code
        if self.call_depth == 0:
            if value.kind == "static" and literal(value.example) is None:
                raise self.refuse(
                    node, f"returns a {type(value.example).__name__}, which the host cannot make"
                )
            outside_names = sorted(reads(code) & self.globals.keys())
            if outside_names:
                kind = type(self.globals[outside_names[0]]).__name__
                raise self.refuse(
                    node, f"returns a {kind} within a tuple or list, which the host cannot make"
                )
            if any(
                isinstance(part, ast.Name) and self.is_truth_only(part.id)
                for part in leaf_expressions(code)
            ):
                raise self.refuse(
                    node,
                    "of the value of `and` or `or`, which may be a tensor, only the truth is known",
                )
            self.steps.append(
                HostStep(ast.fix_missing_locations(ast.Return(self.sizes_as_numbers(code))))
            )
            return
        self.keep(f"{self.frame.prefix}result", replace(value, code=code))

    def is_truth_only(self, key: str) -> bool:
        """Return whether only the truth of what a name holds is known."""
        return key in self.names and self.names[key].truth

    def sizes_as_numbers(self, code: ast.expr) -> ast.expr:
        """Return the expression with the sizes that regions compute as Python numbers."""
        if isinstance(code, ast.Tuple):
            return ast.Tuple([self.sizes_as_numbers(element) for element in code.elts], ast.Load())
        if (
            isinstance(code, ast.Call)
            and isinstance(code.func, ast.Name)
            and code.func.id in self.results
        ):
            keywords = [
                ast.keyword(keyword.arg, self.sizes_as_numbers(keyword.value))
                for keyword in code.keywords
            ]
            return ast.Call(code.func, [], keywords)
        if isinstance(code, ast.Name) and code.id in self.size_names:
            return ast.Call(name("int"), [code], [])
        return code

    def do_If(self, node: ast.If) -> None:
        test = self.truth(self.evaluate(node.test))
        if test.kind == "static":
            self.block(node.body if test.example else node.orelse)
            return
        self.decide(node, test, lambda: self.block(node.body), lambda: self.block(node.orelse))

    def do_With(self, node: ast.With) -> None:
        for item in node.items:
            manager = self.evaluate(item.context_expr)
            if not isinstance(manager.example, GRADIENT_MODES) or item.optional_vars is not None:
                raise self.refuse(node, "with is supported for torch.no_grad and its like only")
        self.block(node.body)


def name_prefixes(key: str) -> set[str]:
    """Return a name, and the names of which it may be an element."""
    parts = key.split("__")
    return {"__".join(parts[:count]) for count in range(1, len(parts) + 1)}


def assign_at_end(key: str, path_values: list[tuple[list[Step], Value]]) -> None:
    """Let the host assign each path's value to a name, at the path's end."""
    for steps, value in path_values:
        append_before_exit(steps, HostStep(assign(key, value.code)))


def without_constant(value: Value) -> Value:
    """Return the value as the tensor, or value of the host, that it is where it is not the
    constant."""
    if value.kind != "either":
        return value
    return replace(value, kind=kind_of(value.example))


def same_constant(left: Any, right: Any) -> bool:
    """Return whether both are one object, or equal constants of one type."""
    if left is right:
        return True
    return literal(left) is not None and type(left) is type(right) and repr(left) == repr(right)
