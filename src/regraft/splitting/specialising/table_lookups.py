"""Calls of `get` of a dictionary of numbers or texts that is known before the call, by a key known
only at run time."""

from __future__ import annotations

import ast
from typing import Any

from regraft.splitting.program.literals import literal
from regraft.splitting.program.type_patterns import fit_one_variable
from regraft.splitting.program.values import HostValue, StaticValue, Value, convert_to_host
from regraft.splitting.specialising.call_operands import Call
from regraft.splitting.specialising.code_running import run_code
from regraft.splitting.specialising.constant_tables import DICTIONARIES, table_display
from regraft.splitting.specialising.objects_made_in_forward import holds_stand_in
from regraft.splitting.specialising.state import Specialisation

PLAIN_TYPES = (bool, int, float, str)


def get_from_table(state: Specialisation, call: Call) -> Value | None:
    """Return the value of `table.get(key, default)`, which the host looks up; None for any other
    call. Raise Unsplittable where default and elements are no numbers or texts of one type."""
    table: Any = getattr(call.function, "__self__", None)
    if type(table) not in DICTIONARIES or call.function_name != "get" or call.keywords:
        return None
    if not call.args or type(call.args[0].example) not in PLAIN_TYPES:
        return None
    if not isinstance(call.args[0], HostValue) or holds_stand_in(state, table):
        return None
    display, default = table_display(table), write_default(call.args[1:])
    elements = [StaticValue(element, ast.Constant(None)) for element in table.values()]
    if (
        display is None
        or default is None
        or not all(fit_one_variable(default, each) for each in elements)
    ):
        raise state.refuse(
            call.node,
            "get() of a dictionary by a key known only at run time takes a default of the type of"
            " all elements, numbers or texts; write `d[key] if key in d else ...`",
        )
    key = state.bind_in_host(call.args[0])
    function = ast.Attribute(display, "get", ast.Load())
    return convert_to_host(
        run_code(state, call.node, ast.Call(function, [key.code, default.code], []))
    )


def write_default(arguments: list[Value]) -> Value | None:
    """Return the default of a call of `get`, with an expression that the host can read; None where
    there is none, or it is no number or text."""
    if len(arguments) != 1 or type(arguments[0].example) not in PLAIN_TYPES:
        return None
    default: Any = arguments[0]
    if isinstance(default, StaticValue):
        code = literal(default.example)
        return None if code is None else default.with_code(code)
    return default if isinstance(default, HostValue) else None
