"""The options of the tools, as options of commands, and entries of their answers by line."""

from __future__ import annotations

from typing import Any

from regraft.configuration.settings import TargetName

EXPLAINED = ("findings", "near_misses", "not_followed", "errors", "warnings")


def at_line(entries: list[dict[str, Any]], line: int | None) -> list[dict[str, Any]]:
    """Return the entries of a report that concern a line; all without a line."""
    return [entry for entry in entries if line is None or _concerns(entry, line)]


def _concerns(entry: dict[str, Any], line: int) -> bool:
    """Return whether an entry of a report concerns a line; one without a place does."""
    if "start" in entry:
        return bool(entry["start"]["line"] <= line <= entry["end"]["line"])
    return entry["line"] in (0, line)


def choice_options(
    select: list[str] | None,
    ignore: list[str] | None,
    target: TargetName | None,
    apply_all: bool,
    unsafe: bool,
) -> list[str]:
    """Return the options of the command line that choose rules."""
    options = repeat_option("--select", select) + repeat_option("--ignore", ignore)
    options += [] if target is None else ["--target", target]
    return options + ["--all"] * apply_all + ["--unsafe"] * unsafe


def repeat_option(name: str, values: list[str] | None) -> list[str]:
    """Return an option with a list of words; nothing without a list."""
    return [] if values is None else [f"{name}={','.join(values)}"]


def stated_options(**values: object) -> list[str]:
    """Return the options of the command line that state values, without those that are None."""
    return [
        word
        for name, value in values.items()
        if value is not None
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
