"""Lowering of the host's steps to nodes: a branch becomes `If`, a loop `Loop`.

The steps after a branch with an arm that leaves the block are put into the other arm. A block ends
in one mapping of names, which its `Exit` makes on every path, and which is joined where the paths
meet; the mapping is None where the block only raises.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from regraft.splitting.emitting.single.aliases import check_aliases, find_aliases
from regraft.splitting.emitting.single.block_exits import (
    EXIT_CODE,
    EXIT_CODES,
    RESULT,
    Exit,
    Outcome,
    coded_exit,
    fallthrough_exit,
)
from regraft.splitting.emitting.single.expression_lowering import Expressions
from regraft.splitting.emitting.single.graph import Graph
from regraft.splitting.emitting.single.graph_values import UNDEFINED, Const, Names, Value
from regraft.splitting.emitting.single.host_branches import (
    Arm,
    add_branches,
    drop_aliases,
    join_types,
    sort_integer_arms,
)
from regraft.splitting.emitting.single.liveness import exit_ways, live_names
from regraft.splitting.emitting.single.loop_lowering import add_loop, check_iterated
from regraft.splitting.emitting.single.optional_values import narrow_names
from regraft.splitting.emitting.single.path_types import Inexpressible, fill_template, name_of
from regraft.splitting.emitting.single.region_inlining import Regions
from regraft.splitting.errors import Unsplittable
from regraft.splitting.program.residual import Branch, HostStep, Loop, RegionStep, Step
from regraft.splitting.program.statements import (
    Assign,
    Break,
    Check,
    Continue,
    Evaluate,
    Raise,
    Return,
    Statement,
    StoreItem,
    Unpack,
    raise_message,
    write_statement,
)

Side = Callable[[Names, Graph], Outcome]  # lowers a side of a branch
MAX_LINEAR_CASES = 3  # more cases are searched by halving them
# graphs within graphs below which steps are put into an arm; ONNX files are read up to about 30
MAX_INLINE_DEPTH = 18


class Lowering:
    """Lowers steps of the host to nodes of graphs. `place`: file and line of the current step,
    which errors name."""

    def __init__(self, place: tuple[str, int], regions: Regions) -> None:
        self.regions = regions
        self.place = place

    def refuse(self, reason: str) -> Unsplittable:
        """Return the error for something at the current place that ONNX cannot express."""
        return Unsplittable(*self.place, f"{reason} cannot be part of a single ONNX file")

    def lower_program(self, steps: list[Step], names: Names, graph: Graph) -> Value:
        """Add the nodes of a whole program to `graph`; return the value of its result. Raises
        Unsplittable for what ONNX cannot express, and for a program that only raises.

        names: the inputs' values by name, which gets the program's variables.
        """
        no_names: frozenset[str] = frozenset()
        leave = Exit(
            dict.fromkeys(EXIT_CODES, no_names),
            lambda way, names_at_end, _: {RESULT: names_at_end[RESULT]},
        )
        try:
            outcome = self.lower_block(steps, names, graph, leave)
        except Inexpressible as problem:
            raise self.refuse(str(problem)) from problem
        if outcome is None:
            raise self.refuse("a network that only raises")
        return outcome[RESULT]

    def lower_block(self, steps: list[Step], names: Names, graph: Graph, leave: Exit) -> Outcome:
        """Add the nodes of steps, and of the exit after them, to `graph`; return the names that the
        exit gives, None if all paths raise.

        `names` is changed by the assignments of the steps. Raises Inexpressible.
        """
        for position, source_step in enumerate(steps):
            step, next_steps = source_step, steps[position + 1 :]
            if isinstance(step, HostStep):
                self.place = step.place if step.place[1] else self.place
                statement = step.statement
                if isinstance(statement, Raise):
                    text = write_statement(statement)
                    graph.raise_text = f"{self.place[0]}:{self.place[1]}: {text}"
                    return None
                if isinstance(statement, Check):
                    step = self.branch_of_check(statement)
                elif self.lower_statement(statement, names, graph):
                    return leave.finish(type(statement).__name__.lower(), names, graph)
            if isinstance(step, RegionStep):
                self.place = self.regions.place(step.number)
                self.regions.inline(step, names, graph)
            elif isinstance(step, Branch):
                self.place = (step.path, step.line)
                needed = live_names(next_steps, leave.needs)
                if all(exit_ways(body) <= {"fall"} for _, body in step.arms) and next_steps:
                    outcome = self.lower_branch(step.arms, names, graph, fallthrough_exit(needed))
                    if outcome is None:
                        return None
                    names.update(outcome)
                    continue
                return self.lower_leaving_branch(step, next_steps, names, graph, leave)
            elif isinstance(step, Loop):
                outcome = self.lower_loop(step, next_steps, names, graph, leave)
                return (
                    None
                    if outcome is None
                    else self.resume(outcome, exit_ways([step]), next_steps, names, graph, leave)
                )
        return leave.finish("fall", names, graph)

    def branch_of_check(self, statement: Check) -> Branch:
        """Return a check as a branch at the current place that raises AssertionError, or ValueError
        with the check's message, where the test does not hold."""
        path, line = self.place
        error = Raise(ast.Name("AssertionError", ast.Load()))
        if statement.message:
            error = raise_message("ValueError", statement.message)
        arms: list[Arm] = [(statement.test, []), (None, [HostStep(error)])]
        return Branch(arms, line, path, [])

    def lower_statement(self, statement: Statement, names: Names, graph: Graph) -> bool:
        """Add the nodes of one statement of the host to `graph`, and change `names` as it does;
        return whether it leaves the block (return, break, continue). Raises Inexpressible for
        `base[index] = value` of what is no list."""
        reader = Expressions(graph, names)
        match statement:
            case Assign(target, value):
                names[target] = reader.evaluate_optional(value)
            case Unpack(targets, value):
                parts = reader.unpack(reader.evaluate(value), len(targets))
                names.update(zip(targets, parts, strict=True))
            case StoreItem(base, index, value):
                new_value = reader.evaluate_optional(value)
                if reader.store_item(reader.evaluate(base), index, new_value) is None:
                    raise Inexpressible(f"the assignment {write_statement(statement)}")
            case Evaluate(value):
                reader.evaluate(value)
            case Return(value):
                names[RESULT] = reader.evaluate_optional(value)
        return isinstance(statement, (Return, Break, Continue))

    # -- branches

    def lower_branch(self, arms: list[Arm], names: Names, graph: Graph, leave: Exit) -> Outcome:
        """Lower a branch whose arms end as `leave` says; return the names where they meet, None if
        all raise.

        Where a test is known, only its arm is lowered. More than three comparisons of one name with
        ints are searched by halving them.
        """
        if not arms or arms[0][0] is None:
            return self.lower_block(arms[0][1] if arms else [], names, graph, leave)
        cases, default_arms = sort_integer_arms(arms)
        if len(cases) > MAX_LINEAR_CASES:
            return self.lower_by_halves(cases, default_arms, names, graph, leave)
        first_test = arms[0][0]
        test = Expressions(graph, names).evaluate_truth(first_test)
        if isinstance(test, Const):
            return self.lower_branch(
                [(None, arms[0][1])] if test.value else arms[1:], names, graph, leave
            )
        sides = [
            lambda names, inner: self.lower_block(
                arms[0][1], narrow_names(names, first_test, True), inner, leave
            ),
            lambda names, inner: self.lower_branch(
                arms[1:], narrow_names(names, first_test, False), inner, leave
            ),
        ]
        return self.add_if(name_of(graph, test), sides, names, graph)

    def lower_by_halves(
        self,
        cases: list[tuple[ast.Compare, list[Step]]],
        default_arms: list[Arm],
        names: Names,
        graph: Graph,
        leave: Exit,
    ) -> Outcome:
        """Lower a branch that compares a name with ints, `cases` sorted by these, as a branch on
        the half in which the name's value is; `default_arms` belong to both halves."""
        half = len(cases) // 2
        is_in_first_half = ast.Compare(cases[0][0].left, [ast.Lt()], cases[half][0].comparators)
        first, second = [*cases[:half], *default_arms], [*cases[half:], *default_arms]
        test = Expressions(graph, names).evaluate_truth(is_in_first_half)
        sides: list[Side] = [
            lambda names, inner: self.lower_branch(first, names, inner, leave),
            lambda names, inner: self.lower_branch(second, names, inner, leave),
        ]
        return self.add_if(name_of(graph, test), sides, names, graph)

    def add_if(self, test: str, sides: list[Side], names: Names, graph: Graph) -> Outcome:
        """Lower two sides, each on its own copy of the names, and add an `If` on the bool named
        `test`, unless it would do nothing; return the names with their values after it, None if
        both sides raise. Raises Inexpressible where the sides give a name values of different
        types, or copies of one list. `names` stays."""
        lowered_sides = self.lower_sides(test, sides, names, graph)
        present = [outcome for _, outcome in lowered_sides if outcome is not None]
        if not present:
            return None
        first_by_alias = find_aliases(present)
        distinct = [drop_aliases(outcome, first_by_alias) for outcome in present]
        templates = join_types(distinct, names)
        for outcome in present:
            check_aliases(outcome, templates)
        check_iterated(names, templates)
        outputs = add_branches(graph, test, lowered_sides, templates)
        result = {key: fill_template(template, outputs) for key, template in templates.items()}
        return {**result, **{key: result[first] for key, first in first_by_alias.items()}}

    def lower_sides(
        self, test: str, sides: list[Side], names: Names, graph: Graph
    ) -> list[tuple[Graph, Outcome]]:
        """Lower each side into a new graph within `graph`, on a copy of the names; return the
        graphs, each with the names at its end (None where it raises), in the order of the sides."""
        place = self.place
        lowered_sides = []
        for side in sides:
            inner = graph.new_child()
            inner.condition = test
            lowered_sides.append((inner, side(dict(names), inner)))
            self.place = place
        return lowered_sides

    def lower_leaving_branch(
        self, step: Branch, next_steps: list[Step], names: Names, graph: Graph, leave: Exit
    ) -> Outcome:
        """Lower a branch with arms that leave the block, and the steps after it; return the names
        at the end of the block, None if all paths raise.

        Where one arm at most falls through, the steps after it are put into this arm; else the arms
        give a code for the way they ended, and `resume` tests it.
        """
        falling_arms = [body for _, body in step.arms if "fall" in exit_ways(body)]
        has_else = any(test is None for test, _ in step.arms)
        arms = step.arms if has_else else [*step.arms, (None, [])]
        if not next_steps or (
            len(falling_arms) + (not has_else) <= 1 and graph.depth < MAX_INLINE_DEPTH
        ):
            extended_arms = [
                (test, [*body, *next_steps] if "fall" in exit_ways(body) else body)
                for test, body in arms
            ]
            return self.lower_branch(extended_arms, names, graph, leave)
        needs = {**leave.needs, "fall": live_names(next_steps, leave.needs)}
        outcome = self.lower_branch(arms, names, graph, coded_exit(needs))
        return (
            None
            if outcome is None
            else self.resume(outcome, exit_ways([step]), next_steps, names, graph, leave)
        )

    def resume(
        self,
        outcome: Names,
        possible_ways: frozenset[str],
        next_steps: list[Step],
        names: Names,
        graph: Graph,
        leave: Exit,
    ) -> Outcome:
        """Lower what follows a branch or loop whose end gave an exit code: `next_steps` where it
        was "fall", else the same way out of this block. Return the names at the end of this block,
        None if all paths raise.

        outcome: the names at the end of the branch or loop, with the code; `names` gets their
        values. possible_ways: the ways in which it may have ended.
        """
        names.update(
            (key, value)
            for key, value in outcome.items()
            if key != EXIT_CODE and value is not UNDEFINED
        )
        exit_code = outcome[EXIT_CODE]
        if isinstance(exit_code, Const):
            way = next(way for way, code in EXIT_CODES.items() if code == exit_code.value)
            return (
                self.lower_block(next_steps, names, graph, leave)
                if way == "fall"
                else leave.finish(way, names, graph)
            )
        leaving_ways = sorted(possible_ways - {"fall"})
        if "fall" not in possible_ways:
            return self.dispatch_exits(leaving_ways, exit_code, names, graph, leave)
        falls_through = graph.add("Equal", name_of(graph, exit_code), graph.number(0, "int"))
        sides: list[Side] = [
            lambda names, inner: self.lower_block(next_steps, names, inner, leave),
            lambda names, inner: self.dispatch_exits(leaving_ways, exit_code, names, inner, leave),
        ]
        return self.add_if(falls_through, sides, names, graph)

    def dispatch_exits(
        self, leaving_ways: list[str], exit_code: Value, names: Names, graph: Graph, leave: Exit
    ) -> Outcome:
        """Leave the block in the one of `leaving_ways` whose code `exit_code` is at run time, by
        nested `If`s; return the names that `leave` gives then."""
        if len(leaving_ways) == 1:
            return leave.finish(leaving_ways[0], names, graph)
        is_first_way = graph.add(
            "Equal", name_of(graph, exit_code), graph.number(EXIT_CODES[leaving_ways[0]], "int")
        )
        sides: list[Side] = [
            lambda names, inner: leave.finish(leaving_ways[0], names, inner),
            lambda names, inner: self.dispatch_exits(
                leaving_ways[1:], exit_code, names, inner, leave
            ),
        ]
        return self.add_if(is_first_way, sides, names, graph)

    def lower_loop(
        self, step: Loop, next_steps: list[Step], names: Names, graph: Graph, leave: Exit
    ) -> Outcome:
        """Lower a loop, but not the steps after it; return the names that are needed after it, with
        its exit code, None if all paths raise.

        A `while True` that ends in its first iteration on every path needs no `Loop`.
        """
        after = live_names(next_steps, leave.needs)
        if step.header is None and exit_ways(step.body) <= {
            "break",
            "return",
        }:  # runs once, and may be left early
            needs = {**leave.needs, "fall": after, "break": after}
            return self.lower_block(step.body, names, graph, coded_exit(needs, {"break": "fall"}))
        return add_loop(self.lower_block, step, after, leave.needs, names, graph)
