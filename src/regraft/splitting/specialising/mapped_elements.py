"""`map` and `filter`, as the comprehensions and loops that they stand for."""

from __future__ import annotations

import ast
import builtins
import copy

from regraft.splitting.program.statements import assigned_names
from regraft.splitting.program.use_marks import mark_truth_use
from regraft.splitting.program.values import Value
from regraft.splitting.specialising.comprehensions import evaluate_generator
from regraft.splitting.specialising.state import Specialisation

SCOPES = (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


def evaluate_mapping(state: Specialisation, node: ast.Call) -> Value | None:
    """Return the list of the elements of `map` or `filter`, as of the generator expression that the
    call stands for; None for any other call, and for a function that is neither a path of names nor
    a plain lambda. Raises Unsplittable where nothing uses the elements up at once."""
    parts = read_mapping(state, node)
    if parts is None:
        return None
    parameters, iterable, result, test = parts
    tests = [] if test is None else [test]
    generator = ast.GeneratorExp(result, [ast.comprehension(parameters, iterable, tests, 0)])
    generator.at_once = getattr(node, "at_once", "")  # type: ignore[attr-defined]
    ast.copy_location(generator, node)
    return evaluate_generator(state, ast.fix_missing_locations(generator))


def expand_mapped_loop(state: Specialisation, node: ast.For) -> list[ast.stmt] | None:
    """Return the loop over the elements themselves that a loop over `map` or `filter` stands for;
    None for any other loop."""
    parts = read_mapping(state, node.iter)
    if parts is None:
        return None
    parameters, iterable, result, test = parts
    assignment = ast.copy_location(ast.Assign([node.target], result), node)
    body = [assignment, *node.body]
    if test is not None:
        body = [ast.copy_location(ast.If(test, body, []), node)]
    loop = ast.copy_location(ast.For(parameters, iterable, body, node.orelse), node)
    return [ast.fix_missing_locations(loop)]


def read_mapping(
    state: Specialisation, node: ast.expr
) -> tuple[ast.expr, ast.expr, ast.expr, ast.expr | None] | None:
    """Return, for a call of `map` or `filter`, the target of a loop, what it runs over, the element
    that it gives and the test for it (None: each is given); None for any other expression."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    if not is_call or node.func.id not in ("map", "filter") or node.keywords:  # type: ignore[attr-defined]
        return None
    assert isinstance(node, ast.Call)
    function = state.evaluate(node.func).example
    if function not in (builtins.map, builtins.filter) or len(node.args) < 2:
        return None
    called, *iterables = node.args
    names = [state.unused_name("element") for _ in iterables]
    value = apply_to_names(called, names)
    if value is None or any(isinstance(argument, ast.Starred) for argument in node.args):
        return None
    targets: list[ast.expr] = [ast.Name(key, ast.Store()) for key in names]
    if len(iterables) > 1:
        zipped = ast.Call(ast.Name("zip", ast.Load()), iterables, [])
        return ast.Tuple(targets, ast.Store()), zipped, value, None
    if function is builtins.map:
        return targets[0], iterables[0], value, None
    mark_truth_use(value)
    return targets[0], iterables[0], ast.Name(names[0], ast.Load()), value


def apply_to_names(called: ast.expr, names: list[str]) -> ast.expr | None:
    """Return the expression for the call of a function, a path of names or a lambda, with these
    variables; the variable itself for None. None for other functions, and for a lambda with other
    parameters, or with a scope or an assignment in it."""
    arguments: list[ast.expr] = [ast.Name(key, ast.Load()) for key in names]
    if isinstance(called, ast.Constant) and called.value is None:
        return arguments[0]
    if isinstance(called, ast.Lambda):
        return substitute_parameters(called, names)
    base = called
    while isinstance(base, ast.Attribute):
        base = base.value
    return ast.Call(called, arguments, []) if isinstance(base, ast.Name) else None


def substitute_parameters(called: ast.Lambda, names: list[str]) -> ast.expr | None:
    """Return the body of a lambda with these names for its parameters, in a copy; None where there
    are not as many, plain ones, and for a body with a scope or an assignment in it."""
    parameters = called.args
    plain = [parameter.arg for parameter in parameters.args]
    special = [*parameters.posonlyargs, *parameters.kwonlyargs, *parameters.defaults]
    has_special = bool(special or parameters.vararg or parameters.kwarg)
    if has_special or len(plain) != len(names) or assigned_names(called.body):
        return None
    if any(isinstance(part, SCOPES) for part in ast.walk(called.body)):
        return None
    replacements = dict(zip(plain, names, strict=True))
    body = copy.deepcopy(called.body)
    for part in ast.walk(body):
        if isinstance(part, ast.Name):
            part.id = replacements.get(part.id, part.id)
    return body
