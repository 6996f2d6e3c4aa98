"""Steps of the host as nodes: a branch becomes `If`, a loop `Loop`; what follows a branch that leaves goes into it.

A block ends in one mapping of names, made by its `Exit` on every path and joined where the paths meet; None where it
only raises.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from regraft.splitting.errors import Unsplittable
from regraft.splitting.residual import Branch, HostStep, Loop, RegionStep, Step
from regraft.splitting.single.exits import CODES, END, RESULT, Exit, Found, falling, marked
from regraft.splitting.single.expressions import Expressions
from regraft.splitting.single.graph import Graph
from regraft.splitting.single.inline import Regions
from regraft.splitting.single.join import Disagree, aliases, check_aliases, express, filled, holes, name_of, unify
from regraft.splitting.single.liveness import live, ways
from regraft.splitting.single.loops import check_items, iterate
from regraft.splitting.single.values import UNDEFINED, Const, Names, Number, Value, leaves

Arm = tuple[ast.expr | None, list[Step]]
FEW = 3  # cases that are tested one after the other
DEEPEST = 18  # graphs within graphs; ONNX files are read up to about 30


class Lowering:
    """Makes nodes of steps."""

    def __init__(self, path: str, regions: Regions) -> None:
        self.regions = regions
        self.place = (path, 0)

    def refuse(self, reason: str) -> Unsplittable:
        return Unsplittable(*self.place, f"{reason} cannot be part of a single ONNX file")

    def function(self, steps: list[Step], names: Names, graph: Graph) -> Value:
        """A whole program; what it returns."""
        nothing: frozenset[str] = frozenset()
        leave = Exit(dict.fromkeys(CODES, nothing), lambda way, found, _: {RESULT: found[RESULT]})
        try:
            found = self.block(steps, names, graph, leave)
        except Disagree as problem:
            raise self.refuse(str(problem)) from problem
        if found is None:
            raise self.refuse("a network that only raises")
        return found[RESULT]

    def block(self, steps: list[Step], names: Names, graph: Graph, leave: Exit) -> Found:
        """`names` is changed."""
        for place, given in enumerate(steps):
            step, rest = given, steps[place + 1 :]
            if isinstance(step, HostStep):
                self.place = step.place if step.place[1] else self.place
                statement = step.statement
                if isinstance(statement, ast.Raise):
                    graph.raised = f"{self.place[0]}:{self.place[1]}: {ast.unparse(statement)}"
                    return None
                if isinstance(statement, ast.Assert):
                    step = Branch([(statement.test, []), (None, [raising("AssertionError")])], *self.place[::-1], [])
                elif self.host(statement, names, graph):
                    return leave.finish(type(statement).__name__.lower(), names, graph)
            if isinstance(step, RegionStep):
                self.place = self.regions.place(step.number)
                self.regions.inline(step, names, graph)
            elif isinstance(step, Branch):
                self.place = (step.path, step.line)
                needed = live(rest, leave.needs)
                if all(ways(body) <= {"fall"} for _, body in step.arms) and rest:
                    found = self.branch(step.arms, names, graph, falling(needed))
                    if found is None:
                        return None
                    names.update(found)
                    continue
                return self.parting(step, rest, names, graph, leave)
            elif isinstance(step, Loop):
                found = self.repeated(step, rest, names, graph, leave)
                return None if found is None else self.resume(found, ways([step]), rest, names, graph, leave)
        return leave.finish("fall", names, graph)

    def host(self, statement: ast.stmt, names: Names, graph: Graph) -> bool:
        """One statement of the host; whether it leaves the block."""
        reader = Expressions(graph, names)
        if isinstance(statement, (ast.Break, ast.Continue)):
            return True
        if isinstance(statement, ast.Return):
            names[RESULT] = reader.value(statement.value or ast.Constant(None))
            return True
        if isinstance(statement, ast.Expr):
            reader.value(statement.value)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self.store(statement.targets[0], reader.value(statement.value), names, graph)
        else:
            raise Disagree(ast.unparse(statement))
        return False

    def store(self, target: ast.expr, value: Value, names: Names, graph: Graph) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Tuple):
            parts = Expressions(graph, names).unpacked(value, len(target.elts))
            for one, part in zip(target.elts, parts, strict=True):
                self.store(one, part, names, graph)
        else:
            raise Disagree(f"the assignment to {ast.unparse(target)}")

    # -- branches

    def branch(self, arms: list[Arm], names: Names, graph: Graph, leave: Exit) -> Found:
        """Arms one of which is taken; each ends in what `leave` makes of it."""
        if not arms or arms[0][0] is None:
            return self.block(arms[0][1] if arms else [], names, graph, leave)
        cases, other = numbered(arms)
        if len(cases) > FEW:
            half = len(cases) // 2
            least = ast.Compare(cases[0][0].left, [ast.Lt()], cases[half][0].comparators)
            sides = [
                lambda names, inner: self.branch([*cases[:half], *other], names, inner, leave),
                lambda names, inner: self.branch([*cases[half:], *other], names, inner, leave),
            ]
            return self.either(name_of(graph, Expressions(graph, names).test(least)), sides, names, graph)
        test = Expressions(graph, names).test(arms[0][0])
        if isinstance(test, Const):
            return self.branch([(None, arms[0][1])] if test.value else arms[1:], names, graph, leave)
        sides = [
            lambda names, inner: self.block(arms[0][1], names, inner, leave),
            lambda names, inner: self.branch(arms[1:], names, inner, leave),
        ]
        return self.either(name_of(graph, test), sides, names, graph)

    def either(self, test: str, sides: list[Callable[[Names, Graph], Found]], names: Names, graph: Graph) -> Found:
        """`If`: two sides, each with names of its own."""
        place = self.place
        found = []
        for side in sides:
            inner = graph.child()
            inner.condition = test
            found.append((inner, side(dict(names), inner)))
            self.place = place
        present = [one for _, one in found if one is not None]
        if not present:
            return None
        second = aliases(present)
        templates = joined([{key: one[key] for key in one if key not in second} for one in present], names)
        for one in present:
            check_aliases(one, templates)
        check_items(names, templates)
        made: list[str] = []
        fails = len(present) < len(found) or any(inner.risky for inner, _ in found)
        if fails or any(map(holes, templates.values())):
            count = close(found, templates)
            graph.risky = graph.risky or fails
            made = graph.several("If", [test], count, then_branch=found[0][0], else_branch=found[1][0])
        result = {key: filled(one, made) for key, one in templates.items()}
        return {**result, **{key: result[first] for key, first in second.items()}}

    def parting(self, step: Branch, rest: list[Step], names: Names, graph: Graph, leave: Exit) -> Found:
        """A branch of which some arms leave: the rest belongs to the one that does not."""
        going = [body for _, body in step.arms if "fall" in ways(body)]
        whole = any(test is None for test, _ in step.arms)
        arms = step.arms if whole else [*step.arms, (None, [])]
        if not rest or (len(going) + (not whole) <= 1 and graph.depth < DEEPEST):
            placed = [(test, [*body, *rest] if "fall" in ways(body) else body) for test, body in arms]
            return self.branch(placed, names, graph, leave)
        needs = {**leave.needs, "fall": live(rest, leave.needs)}
        found = self.branch(arms, names, graph, marked(needs))
        return None if found is None else self.resume(found, ways([step]), rest, names, graph, leave)

    def resume(
        self, found: Names, ended: frozenset[str], rest: list[Step], names: Names, graph: Graph, leave: Exit
    ) -> Found:
        """Go on after a block that may have been left: with the rest, or out of this one, too."""
        names.update((key, one) for key, one in found.items() if key != END and one is not UNDEFINED)
        end = found[END]
        if isinstance(end, Const):
            way = next(way for way, code in CODES.items() if code == end.value)
            return self.block(rest, names, graph, leave) if way == "fall" else leave.finish(way, names, graph)
        others = sorted(ended - {"fall"})
        if "fall" not in ended:
            return self.dispatch(others, end, names, graph, leave)
        stays = graph.add("Equal", name_of(graph, end), graph.number(0, "int"))
        sides: list[Callable[[Names, Graph], Found]] = [
            lambda names, inner: self.block(rest, names, inner, leave),
            lambda names, inner: self.dispatch(others, end, names, inner, leave),
        ]
        return self.either(stays, sides, names, graph)

    def dispatch(self, others: list[str], end: Value, names: Names, graph: Graph, leave: Exit) -> Found:
        if len(others) == 1:
            return leave.finish(others[0], names, graph)
        this = graph.add("Equal", name_of(graph, end), graph.number(CODES[others[0]], "int"))
        sides: list[Callable[[Names, Graph], Found]] = [
            lambda names, inner: leave.finish(others[0], names, inner),
            lambda names, inner: self.dispatch(others[1:], end, names, inner, leave),
        ]
        return self.either(this, sides, names, graph)

    def repeated(self, step: Loop, rest: list[Step], names: Names, graph: Graph, leave: Exit) -> Found:
        """A loop, up to what follows it."""
        after = live(rest, leave.needs)
        if step.header is None and ways(step.body) <= {"break", "return"}:  # runs once, and may be left early
            needs = {**leave.needs, "fall": after, "break": after}
            return self.block(step.body, names, graph, marked(needs, {"break": "fall"}))
        return iterate(self.block, step, after, leave.needs, names, graph)


def numbered(arms: list[Arm]) -> tuple[list[tuple[ast.Compare, list[Step]]], list[Arm]]:
    """Arms for whole numbers that one name may hold, in order, and the one that raises for others; else none."""
    cases: list[tuple[ast.Compare, list[Step]]] = []
    for test, body in arms[:-1]:
        if not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and isinstance(test.ops[0], ast.Eq)):
            return [], []
        number = test.comparators[0]
        if not (isinstance(number, ast.Constant) and type(number.value) is int):
            return [], []
        cases.append((test, body))
    names = {ast.unparse(test.left) for test, _ in cases}
    values = [test.comparators[0].value for test, _ in cases]  # type: ignore[attr-defined]
    if len(names) != 1 or len(set(values)) < len(values) or arms[-1][0] is not None or ways(arms[-1][1]):
        return [], []
    return [one for _, one in sorted(zip(values, cases, strict=True), key=lambda pair: pair[0])], arms[-1:]


def raising(name: str) -> HostStep:
    return HostStep(ast.parse(f"raise {name}").body[0])


def joined(present: list[Names], outer: Names) -> Names:
    """The type of each name over the paths that do not raise."""
    templates = {}
    for key in sorted({key for one in present for key in one}):
        try:
            values = [one.get(key, UNDEFINED) for one in present]
            templates[key] = unify(values, outer.get(key, UNDEFINED))
        except Disagree as problem:
            raise Disagree(f"{key}, which is {problem} on different paths,") from problem
    return templates


def close(found: list[tuple[Graph, Found]], templates: Names) -> int:
    """Let each graph give the templates' leaves; how many there are."""
    kinds = [leaf for one in templates.values() for leaf in leaves(one) if not leaf.name]
    if not kinds:  # an `If` has to give something, also where it is there to raise only
        kinds, templates = [Number("", "int")], {RESULT: Number("", "int")}
        found = [(graph, None if names is None else {RESULT: Const(0)}) for graph, names in found]
    for graph, names in found:
        made: list[str] = []
        for key, template in templates.items():
            value = names.get(key, UNDEFINED) if names is not None else None
            made.extend(express(graph, value, template))
        for name, kind in zip(made, kinds, strict=True):
            graph.output(name, kind)
    return len(kinds)
