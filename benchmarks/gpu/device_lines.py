"""The statements of Regraft's ops that run on CUDA alone: those that no call with tensors on the
CPU can reach.

Conditions are evaluated for a CPU as far as the text says what they are: `x.is_cuda` is False,
`x.device.type` is "cpu", and a call of a function of the ops is one of the values that it can
return on a CPU. What follows a condition that fails there, and functions that are used nowhere
else, run on CUDA alone. (Triton's interpreter, which runs kernels on a CPU, counts as off.)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

UNKNOWN = object()
Values = frozenset[object]
ANYTHING: Values = frozenset([UNKNOWN])
Environment = dict[str, Values]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement: its file, lines and function, and its first line of text."""

    path: Path
    first: int
    last: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.name}:{self.first} in {self.function}: {self.text}"


@dataclass(slots=True)
class File:
    """A file of the ops with its functions and classes by name, and the names it imports from
    others: name → (file, name there)."""

    path: Path
    tree: ast.Module
    definitions: dict[str, FunctionNode | ast.ClassDef] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)


def device_statements(folder: Path, package: str) -> list[Statement]:
    """Return the statements of a package's files that run on CUDA alone."""
    files = {path.stem: read(path, package) for path in sorted(folder.glob("*.py"))}
    summaries = summarise(files)
    regions = {name: set(unreachable_lines(file, files, summaries)) for name, file in files.items()}
    add_private_functions(files, regions)
    return [
        statement
        for name, file in files.items()
        if name != INTERPRETER
        for statement in statements(file)
        if statement.first in regions[name]
    ]


def read(path: Path, package: str) -> File:
    """Parse a file and list its definitions and what it imports from the package."""
    file = File(path, ast.parse(path.read_text("utf-8")))
    for node in file.tree.body:
        if isinstance(node, FunctionNode | ast.ClassDef):
            file.definitions[node.name] = node
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package + "."):
            module = (node.module or "").removeprefix(package + ".")
            for alias in node.names:
                file.imports[alias.asname or alias.name] = (module, alias.name)
    return file


# what a function can return on a CPU: (file, name) → values
INTERPRETER = "triton_interpreter"
IS_INTERPRETING = (INTERPRETER, "is_interpreting")
Summaries = dict[tuple[str, str], Values]


def summarise(files: dict[str, File]) -> Summaries:
    """Return what every function can return on a CPU, more precisely in each round."""
    summaries: Summaries = {IS_INTERPRETING: frozenset([False])}
    while True:
        earlier = dict(summaries)
        for name, file in files.items():
            for function in file.definitions.values():
                key = (name, function.name)
                if isinstance(function, FunctionNode) and key != IS_INTERPRETING:
                    walk = Walk(file, name, summaries)
                    ends = walk.body(function.body, {})
                    values = walk.returned | ({None} if ends else set())
                    summaries[key] = ANYTHING if UNKNOWN in values else frozenset(values)
        if summaries == earlier:
            return summaries


def unreachable_lines(file: File, files: dict[str, File], summaries: Summaries) -> Iterator[int]:
    """Yield the lines of a file that no call reaches on a CPU, by the conditions before them."""
    for node in ast.walk(file.tree):
        if isinstance(node, FunctionNode):
            walk = Walk(file, file.path.stem, summaries)
            walk.body(node.body, {})
            for statement in walk.unreachable:
                yield from range(statement.lineno, (statement.end_lineno or 0) + 1)


@dataclass(slots=True)
class Walk:
    """The evaluation of a function's body for a CPU."""

    file: File
    name: str
    summaries: Summaries
    returned: set[object] = field(default_factory=set)
    unreachable: list[ast.stmt] = field(default_factory=list)

    def body(self, body: Iterable[ast.stmt], names: Environment) -> bool:
        """Evaluate statements; return whether the one after them is reached."""
        is_reached = True
        for statement in body:
            if is_reached:
                is_reached = self.statement(statement, names)
            else:
                self.unreachable.append(statement)
        return is_reached

    def statement(self, node: ast.stmt, names: Environment) -> bool:
        """Evaluate a statement; return whether the next one is reached."""
        if isinstance(node, ast.Return):
            value = frozenset([None]) if node.value is None else self.values(node.value, names)
            self.returned.update(value)
            return False
        if isinstance(node, ast.Raise):
            return False
        if isinstance(node, ast.If):
            return self.branches(node, names)
        if isinstance(node, ast.With):
            return self.body(node.body, names)
        if isinstance(node, ast.For | ast.While | ast.Try):
            return self.unordered(node, names)
        self.bind(node, names)
        return True

    def branches(self, node: ast.If, names: Environment) -> bool:
        """Evaluate both branches of an `if` that the CPU may take."""
        test = truth(self.values(node.test, names))
        outcomes = []
        environments = []
        for outcome, body in ((True, node.body), (False, node.orelse)):
            if test not in (None, outcome):
                self.unreachable.extend(body)
                continue
            inner = dict(names)
            outcomes.append(self.body(body, inner))
            if outcomes[-1]:
                environments.append(inner)
        for name in {name for environment in environments for name in environment}:
            parts = [environment.get(name, ANYTHING) for environment in environments]
            names[name] = frozenset().union(*parts)
        return any(outcomes)

    def unordered(self, node: ast.For | ast.While | ast.Try, names: Environment) -> bool:
        """Evaluate the parts of a loop or `try`, of which any may run, after forgetting what they
        assign."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                names[inner.id] = ANYTHING
        handlers = node.handlers if isinstance(node, ast.Try) else []
        parts = [node.body, node.orelse, *(handler.body for handler in handlers)]
        ends = [self.body(part, dict(names)) for part in parts]
        if isinstance(node, ast.Try):
            return any(ends) and self.body(node.finalbody, names)
        return True

    def bind(self, node: ast.stmt, names: Environment) -> None:
        """Remember the values of the names that a statement assigns."""
        assigned: Environment = {
            inner.id: ANYTHING
            for inner in ast.walk(node)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
        }
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for part, value in pairs:
                if isinstance(part, ast.Name):
                    assigned[part.id] = self.values(value, names)
        names.update(assigned)

    def values(self, node: ast.expr, names: Environment) -> Values:
        """Return what an expression can be on a CPU."""
        if isinstance(node, ast.Constant):
            return frozenset([node.value])
        if isinstance(node, ast.Name):
            return names.get(node.id, ANYTHING)
        if isinstance(node, ast.Attribute):
            return attribute_values(node)
        if isinstance(node, ast.IfExp):
            test = truth(self.values(node.test, names))
            arms = [(True, node.body), (False, node.orelse)]
            taken = [self.values(arm, names) for outcome, arm in arms if test in (None, outcome)]
            return frozenset().union(*taken)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return outcomes(negated(truth(self.values(node.operand, names))))
        if isinstance(node, ast.BoolOp):
            operands = [truth(self.values(operand, names)) for operand in node.values]
            return outcomes(combined(operands, isinstance(node.op, ast.And)))
        if isinstance(node, ast.Compare):
            return outcomes(self.comparison(node, names))
        if isinstance(node, ast.Call):
            return self.call(node, names)
        return ANYTHING

    def comparison(self, node: ast.Compare, names: Environment) -> bool | None:
        """Return the truth of a chain of comparisons; None if it is unknown."""
        operands = [node.left, *node.comparators]
        truths = [
            compared(operator, self.values(left, names), self.elements(right, names))
            if isinstance(operator, ast.In | ast.NotIn)
            else compared(operator, self.values(left, names), self.values(right, names))
            for operator, left, right in zip(node.ops, operands, operands[1:], strict=False)
        ]
        return combined(truths, True)

    def elements(self, node: ast.expr, names: Environment) -> Values:
        """Return what the elements of a display can be."""
        if not isinstance(node, ast.Tuple | ast.List | ast.Set):
            return ANYTHING
        return frozenset().union(*(self.values(element, names) for element in node.elts))

    def call(self, node: ast.Call, names: Environment) -> Values:
        """Return what a call can return: of `all`, `any` and `bool`, or of a function of the
        ops."""
        if not isinstance(node.func, ast.Name):
            return ANYTHING
        name = node.func.id
        if name in ("all", "any") and isinstance(node.args[0], ast.GeneratorExp):
            element = truth(self.values(node.args[0].elt, dict(names)))
            decides = element is (name == "any") or element is False
            return outcomes(element if decides else None)
        if name == "bool" and node.args:
            return outcomes(truth(self.values(node.args[0], names)))
        key = (self.name, name) if name in self.file.definitions else self.file.imports.get(name)
        return ANYTHING if key is None else self.summaries.get(key, ANYTHING)


def attribute_values(node: ast.Attribute) -> Values:
    """Return what an attribute that tells a device is on a CPU."""
    if node.attr == "is_cuda":
        return frozenset([False])
    is_type = node.attr == "type" and ast.unparse(node.value).endswith("device")
    return frozenset(["cpu"]) if is_type else ANYTHING


def truth(values: Values) -> bool | None:
    """Return whether all values are true (True) or false (False); None otherwise."""
    if UNKNOWN in values or not values:
        return None
    truths = {bool(value) for value in values}
    return truths.pop() if len(truths) == 1 else None


def outcomes(value: bool | None) -> Values:
    """Return the values of a truth that may be unknown."""
    return ANYTHING if value is None else frozenset([value])


def negated(value: bool | None) -> bool | None:
    """Return the opposite of a truth that may be unknown."""
    return None if value is None else not value


def combined(truths: list[bool | None], conjunction: bool) -> bool | None:
    """Return the truth of operands that `and` (or `or`) combines."""
    if (not conjunction) in truths:
        return not conjunction
    return None if None in truths else conjunction


def compared(operator: ast.cmpop, left: Values, right: Values) -> bool | None:
    """Return the truth of a comparison of all pairs of values; None if they differ or are
    unknown."""
    if UNKNOWN in left or UNKNOWN in right:
        return None
    if isinstance(operator, ast.In | ast.NotIn):
        results = {value in right for value in left}
    elif isinstance(operator, ast.Eq | ast.Is | ast.NotEq | ast.IsNot):
        results = {first == second for first in left for second in right}
    else:
        return None
    if len(results) != 1:
        return None
    return results.pop() is not isinstance(operator, ast.NotIn | ast.NotEq | ast.IsNot)


def add_private_functions(files: dict[str, File], regions: dict[str, set[int]]) -> None:
    """Add the lines of functions and classes that are used in the regions alone, and in each
    other."""
    public = set(files["__init__"].imports.values())
    uses = definition_uses(files)
    private = {key for key, places in uses.items() if places and key not in public}
    while True:
        used_elsewhere = {
            key
            for key in private
            if any(
                line not in regions[name] and user not in private - {key} and user != key
                for name, line, user in uses[key]
            )
        }
        if not used_elsewhere:
            break
        private -= used_elsewhere
    for name, definition in private:
        node = files[name].definitions[definition]
        regions[name].update(range(node.lineno + 1, (node.end_lineno or 0) + 1))


Place = tuple[str, int, tuple[str, str]]  # file, line, and the definition around it


def definition_uses(files: dict[str, File]) -> dict[tuple[str, str], list[Place]]:
    """Return the places that use each definition by its name."""
    uses: dict[tuple[str, str], list[Place]] = {
        (name, definition): [] for name, file in files.items() for definition in file.definitions
    }
    for name, file in files.items():
        for top in file.tree.body:
            around = (name, getattr(top, "name", ""))
            for node in ast.walk(top):
                if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                    continue
                key = (name, node.id) if node.id in file.definitions else file.imports.get(node.id)
                if key in uses:
                    uses[key].append((name, node.lineno, around))
    return uses


def statements(file: File) -> Iterator[Statement]:
    """Yield the statements in the functions of a file that a run of them takes."""
    lines = file.path.read_text("utf-8").splitlines()
    for function, name in functions(file.tree, ""):
        for node in own_statements(function):
            header = node.body[0].lineno - 1 if isinstance(node, ast.If | ast.For | ast.With) else 0
            last = max(header, node.lineno) if header else (node.end_lineno or node.lineno)
            yield Statement(file.path, node.lineno, last, name, lines[node.lineno - 1].strip())


def functions(node: ast.AST, prefix: str) -> Iterator[tuple[FunctionNode, str]]:
    """Yield the functions in a node, each with its qualified name."""
    for child in ast.iter_child_nodes(node):
        name = f"{prefix}.{child.name}" if hasattr(child, "name") and prefix else ""
        name = name or getattr(child, "name", prefix)
        if isinstance(child, FunctionNode):
            yield child, name
        yield from functions(child, name)


def own_statements(function: FunctionNode) -> Iterator[ast.stmt]:
    """Yield the statements of a function, without docstrings and those of functions in it."""
    pending: list[ast.stmt] = list(function.body)
    while pending:
        node = pending.pop(0)
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_declaration = isinstance(node, ast.AnnAssign) and node.value is None
        if not is_docstring and not is_declaration:
            yield node
        if isinstance(node, FunctionNode | ast.ClassDef):
            continue
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                pending.append(child)
            elif isinstance(child, ast.ExceptHandler):
                pending.extend(child.body)
