"""Find edits whose effect no run shows: renamed variables in a file that reads the frames of its
callers, and other assignments to a variable that a stored generator or lambda reads later."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from regraft.verification.bound_and_read_names import (
    assigned_names,
    bound_names,
    mentioned_names,
    stored_names,
    string_words,
)
from regraft.verification.top_level_definitions import Definition

# Attributes through which a file reads the local variables of other functions.
_FRAMES = frozenset({"f_locals", "gi_frame", "cr_frame", "ag_frame", "co_varnames"})
_SHOWN = 3  # variables that a reason lists
_ASSIGNING = (
    ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor | ast.With | ast.AsyncWith
)


def frame_obstacle(
    old_definition: Definition, new_definition: Definition, trees: tuple[ast.Module, ast.Module]
) -> str:
    """Return the reason why no run can show what an edit changes, or "" if there is none. Reasons:
    the file reads variables of its callers and names differ, or a stored generator or lambda reads
    a variable that is assigned otherwise."""
    if any(map(_reads_frames, trees)):
        renamed = sorted(bound_names(old_definition) ^ bound_names(new_definition))
        if renamed:
            return (
                "the file reads variables of its callers, and only one version has"
                f" {', '.join(renamed[:_SHOWN])}: keep the names"
            )
    old_reads, new_reads = _deferred_reads(old_definition), _deferred_reads(new_definition)
    for key, (line, assignments) in new_reads.items():
        if key in old_reads and old_reads[key][1] != assignments:
            return (
                f"line {line} keeps what reads {key[1]} later, and the edit assigns {key[1]}"
                " otherwise, which no run shows: keep its assignments"
            )
    return ""


def _reads_frames(tree: ast.Module) -> bool:
    """Return whether a file names, also in a string, an attribute of frames that shows local
    variables."""
    return bool(
        _FRAMES.intersection(string_words(tree)) or _FRAMES.intersection(_attribute_names(tree))
    )


def _attribute_names(tree: ast.AST) -> frozenset[str]:
    """Return the names of all attributes in a syntax tree."""
    return frozenset(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def _deferred_reads(definition: Definition) -> dict[tuple[str, str], tuple[int, tuple[str, ...]]]:
    """Return the local variables that a generator or lambda reads which their function stores in an
    attribute, an element or a tuple. Keys are (function, variable); values are the line of that
    statement, and the function's assignments to the variable as dumps."""
    reads = {}
    functions = (
        node
        for node in ast.walk(definition)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    for function in functions:
        for assignment in _lasting_assignments(function):
            for name in sorted(_names_read_later(assignment) & stored_names(function)):
                reads[function.name, name] = assignment.lineno, _assignments(function, name)
    return reads


def _lasting_assignments(function: ast.AST) -> Iterator[ast.Assign]:
    """Yield the assignments (`=`) in a function with a target that is no plain name: an attribute,
    an element or a tuple."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and not all(
            isinstance(target, ast.Name) for target in node.targets
        ):
            yield node


def _names_read_later(assignment: ast.Assign) -> frozenset[str]:
    """Return the variables that generators and lambdas in the value of an assignment mention, and
    which it stores."""
    finished = _finished_readers(assignment)
    readers = [
        node
        for node in ast.walk(assignment.value)
        if isinstance(node, ast.GeneratorExp | ast.Lambda) and node not in finished
    ]
    return frozenset().union(*map(mentioned_names, readers))


def _finished_readers(assignment: ast.Assign) -> tuple[ast.expr, ...]:
    """Return the generator, or the lambda of a `map`, from which an assignment unpacks its values,
    and which has read its variables when these are stored; () where there is none."""
    if not all(isinstance(target, ast.Tuple | ast.List) for target in assignment.targets):
        return ()
    match assignment.value:
        case ast.GeneratorExp():
            return (assignment.value,)
        case ast.Call(func=ast.Name("map"), args=[ast.Lambda() as function, *_]):
            return (function,)
    return ()


def _assignments(function: ast.AST, name: str) -> tuple[str, ...]:
    """Return the statements of a function that assign a variable, as dumps."""
    return tuple(
        ast.dump(node)
        for node in ast.walk(function)
        if isinstance(node, _ASSIGNING) and name in assigned_names(node)
    )
