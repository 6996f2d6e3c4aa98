"""Calls that only say something, such as `print` and `logger.info`: a split network leaves them
out."""

from __future__ import annotations

import ast
import logging
import warnings
from typing import Any

from regraft.splitting.program.value_kinds_and_parts import are_static
from regraft.splitting.program.values import StaticValue, Value
from regraft.splitting.specialising.state import Specialisation

QUESTIONS = ("isEnabledFor", "getEffectiveLevel", "hasHandlers")  # of loggers
LEVELS = ("debug", "info", "warning", "warn", "error", "critical", "exception", "log")


def is_message(function: Any) -> bool:
    """Return whether a function only says something: `print`, `warnings.warn`, and methods of
    loggers that log, also those that log a message once, or ask whether they would."""
    if function is print or function is warnings.warn:
        return True
    function_name = getattr(function, "__name__", "").removesuffix("_once")
    if isinstance(getattr(function, "__self__", None), logging.Logger):
        return function_name in (*LEVELS, *QUESTIONS)
    return function_name in LEVELS and getattr(logging, function_name, None) is function


def leave_out_message(state: Specialisation, node: ast.Call, function: Any) -> StaticValue:
    """Evaluate the arguments of a call that only says something, for what they change, note in
    `state.messages` that the call is left out, and return None as a value; for a question to a
    logger what it answers now. Raises Unsplittable for arguments that cannot be followed, and a
    file that is written to."""
    values = [
        value
        for argument in (*node.args, *(keyword.value for keyword in node.keywords))
        for value in evaluate_parts(state, argument)
    ]
    if function.__name__ in QUESTIONS:
        return state.static(answer_question(state, node, function, values))
    if any(keyword.arg == "file" for keyword in node.keywords):
        raise state.refuse(node, "print() to a file is not supported")
    place = f"{state.frame.path}:{node.lineno}"
    state.messages[f"{place}: {ast.unparse(node.func)}() is left out"] = None
    return state.static(None)


def answer_question(
    state: Specialisation, node: ast.Call, function: Any, values: list[Value]
) -> Any:
    """Return what a logger answers to a question; note in `state.messages` that it is the answer
    when the network is split. Raises Unsplittable for arguments known only at run time."""
    if not are_static(values) or node.keywords:
        raise state.refuse(node, "a logger is asked about a level that is known only at run time")
    place = f"{state.frame.path}:{node.lineno}"
    answer = function(*(value.example for value in values))
    state.messages[f"{place}: {ast.unparse(node.func)}() is {answer}, as it was here"] = None
    return answer


def evaluate_parts(state: Specialisation, argument: ast.expr) -> list[Value]:
    """Return the values from which an argument that is a text is put together: those in an
    f-string, or behind `%` or `+`; of any other argument its value alone. A tensor of several
    values may be part of a text here."""
    if isinstance(argument, ast.JoinedStr):
        parts = [part.value for part in argument.values if isinstance(part, ast.FormattedValue)]
    elif isinstance(argument, ast.Starred):
        parts = [argument.value]
    elif isinstance(argument, ast.BinOp) and is_text(argument.left):
        parts = [argument.left, argument.right]
    else:
        argument.either = True  # type: ignore[attr-defined]
        return [state.evaluate(argument)]
    return [value for part in parts for value in evaluate_parts(state, part)]


def is_text(node: ast.expr) -> bool:
    """Return whether an expression is a text that is written out."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
