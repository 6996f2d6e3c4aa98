"""The arguments of the tools of the MCP server: a server that refuses unknown and wrong ones in a
sentence for each, with what the tool takes instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import ValidationError

from regraft.source.similar_names import suggest

_MOST_CHARACTERS = 60  # of a wrong value in a message
_EXPECTED = {  # by the kind of error that pydantic states
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "an object",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "list_type": "a list",
    "string_type": "a text",
}


class StrictServer(MCPServer[Any]):
    """A server of tools that refuses arguments which a tool does not have: a misspelt `select`
    would else check with other rules than the caller means."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._names: dict[str, tuple[str, ...]] = {}

    def add_strict_tool(self, function: Callable[..., Any], hints: ToolAnnotations) -> None:
        """Add a function as a tool, with its parameters but `context`."""
        parameters = inspect.signature(function).parameters
        self._names[function.__name__] = tuple(name for name in parameters if name != "context")
        self.add_tool(function, annotations=hints)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; raise ToolError for an unknown tool, and for wrong arguments."""
        if name not in self._names:
            raise ToolError(f"there is no tool {name}; there are {', '.join(self._names)}")
        if problems := [*_unknown_arguments(arguments, self._names[name])]:
            raise ToolError(f"{name}: {'; '.join(problems)}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            raise ToolError(f"{name}: {'; '.join(_wrong_values(error.__cause__))}") from error


def _unknown_arguments(arguments: Mapping[str, Any], names: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each argument that a tool does not have."""
    for argument in arguments:
        if argument not in names:
            hint = suggest(argument, names, form="`{}`", otherwise=f"it takes {', '.join(names)}")
            yield f"there is no argument `{argument}`{hint}"


def _wrong_values(error: ValidationError) -> Iterator[str]:
    """Yield a sentence for each argument whose value a tool does not take."""
    for problem in error.errors(include_url=False):
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "missing":
            yield f"the argument `{name}` is missing"
            continue
        value = repr(problem["input"])
        if len(value) > _MOST_CHARACTERS:
            value = f"{value[:_MOST_CHARACTERS]}…"
        yield f"`{name}` has to be {_expected(problem['type'], problem)}; it is {value}"


def _expected(kind: str, problem: Mapping[str, Any]) -> str:
    """Return what an argument has to be, after the kind of error that pydantic states."""
    context = problem.get("ctx", {})
    if kind == "literal_error":
        return f"one of {context['expected']}".replace("'", "")
    if kind == "greater_than":
        return f"greater than {context['gt']}"
    if kind == "greater_than_equal":
        return f"at least {context['ge']}"
    if kind == "less_than_equal":
        return f"at most {context['le']}"
    return _EXPECTED.get(kind) or str(problem["msg"]).removeprefix("Input should be ")
