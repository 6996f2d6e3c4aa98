"""The command `regraft rules`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from regraft.cli.command_settings import CONFIG, NO_CONFIG, is_stated, settings_of
from regraft.cli.shared_options import (
    DIRECTORIES,
    TARGET,
    output_format,
    paint,
    print_error,
)

if TYPE_CHECKING:
    from regraft.rules import Rule


@click.command("rules")
@DIRECTORIES
@TARGET
@CONFIG
@NO_CONFIG
@output_format("text", "json")
def rules_command(
    directories: Sequence[Path], target: str, config: Path | None, no_config: bool, form: str
) -> None:
    """List all rules: name, safety, what it finds, and what it needs to be on.

    `regraft rule NAME` prints the page of one. Exits with 2 when a rule cannot be loaded.
    """
    from regraft.rules import BUILT_IN, Rule, load_rule
    from regraft.rules.loading import check_directories, rule_paths

    ((settings, _),) = settings_of((Path(),), config, no_config)
    target = target if is_stated("target") else settings.target
    roots = (BUILT_IN, *settings.rules, *directories)
    loaded = [load_rule(path) for _, path in sorted(rule_paths(roots).items())]
    rows = [_row(rule, target) for rule in loaded if isinstance(rule, Rule)]
    problems = [*check_directories(roots)]
    problems += [problem for rule in loaded if not isinstance(rule, Rule) for problem in rule]
    for problem in problems:
        print_error(problem.error)
    if form == "json":
        click.echo(json.dumps(rows, indent=1))
    else:
        width = max((len(row["rule"]) for row in rows), default=0)
        for row in rows:
            condition = f" ({row['condition']})" if row["condition"] else ""
            name = paint(row["rule"].ljust(width), fg="cyan")
            click.echo(f"{name}  {row['safety']:10}  {row['summary']}{condition}")
    sys.exit(2 if problems else 0)


def _row(rule: Rule, target: str) -> dict[str, Any]:
    """Return what is listed of a rule; `condition` says what turns on a rule that is off for a
    target."""
    from regraft.rules.package_requirements import requirement
    from regraft.rules.worth import TARGETS, chosen_target, worth_of

    packages = [requirement(need) for need in rule.syntax.needs if need.package != "torch"]
    worths = {target: worth_of(rule, target) for target in TARGETS}
    worth = worths[chosen_target(target)]
    condition = "off: its own name turns it on" if rule.syntax.off else ""
    if packages and not condition:
        condition = f"with --select; needs {', '.join(packages)}"
    if not condition and worth is not None and worth.objection:
        condition = f"with --all or --select; {worth.objection}"
    return {
        "rule": rule.id,
        "pack": rule.pack,
        "safety": rule.syntax.safety,
        "summary": rule.syntax.summary,
        "on": not condition,
        "condition": condition,
        "worth": {target: worth.verdict for target, worth in worths.items() if worth is not None},
    }
