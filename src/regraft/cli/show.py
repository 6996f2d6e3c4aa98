"""The commands `regraft show` and `regraft rule`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from regraft.cli.shared_options import (
    paint,
    print_error,
    stop,
)
from regraft.report.terminal import is_terminal

if TYPE_CHECKING:
    from regraft.structure.values_and_nodes import Body, Structure


@click.command()
@click.argument("target", metavar="FILE[::Class[.method]]")
@click.option("--paths", "by_path", is_flag=True, help="One structure for each feasible path.")
def show(target: str, by_path: bool) -> None:
    """Print the structure of a file, a class, or a method in the DSL."""
    from regraft.source.similar_names import suggest
    from regraft.source.text import SourceError, read
    from regraft.structure import Module

    file, _, selector = target.partition("::")
    if not file:
        raise click.UsageError("the path is empty")
    source = read(Path(file))
    if isinstance(source, SourceError):
        print_error(source)
        sys.exit(2)
    name, _, method = selector.partition(".")
    is_printed = False
    try:
        structures = list(Module(source).structures())
        for structure, body in _selected_bodies(structures, name, method):
            is_printed = True
            scope = structure.name if structure.cls is None else f"{structure.name}.{body.name}"
            click.echo("\n".join(_structure_lines(scope, structure, body, by_path)) + "\n")
    except RecursionError:
        stop(f"{file}: nested too deeply to show")
    except ValueError as problem:  # Python refuses to print integers of more than 4,300 digits
        stop(f"{file}: cannot be shown: {problem}")
    if not is_printed:
        stop(
            f"{file}: there is no {selector}{suggest(selector, _selectors(structures))}"
            if selector
            else f"{file}: there is no class or function"
        )


def _selectors(structures: Iterable[Structure]) -> Iterator[str]:
    """Yield the names by which a user selects structures and their methods."""
    for structure in structures:
        yield structure.name
        if structure.cls is not None:
            yield from (f"{structure.name}.{body.name}" for body in structure.bodies)


def _selected_bodies(
    structures: Iterable[Structure], name: str, method: str
) -> Iterator[tuple[Structure, Body]]:
    """Yield the bodies of the class or function `name` and of its `method`; "" for all, then
    without constructors."""
    for structure in structures:
        if name not in ("", structure.name):
            continue
        for body in structure.bodies:
            if method == body.name or (not method and body.name != "__init__"):
                yield structure, body


def _structure_lines(scope: str, structure: Structure, body: Body, by_path: bool) -> Iterator[str]:
    """Yield the lines of a body and of its layers in the DSL, for each feasible path if
    `by_path`."""
    from regraft.dsl import print_node
    from regraft.structure.show import body_nodes, layer_nodes, paths

    yield paint(f"# {scope}", bold=True)
    for node in layer_nodes(structure, body):
        yield print_node(node)
    if not by_path:
        yield from (print_node(node) for node in body_nodes(body))
        return
    body_paths = paths(body)
    if body_paths is None:
        yield "# more paths than can be listed; without --paths the structure shows the guards"
        return
    for number, path in enumerate(body_paths, 1):
        yield paint(
            f"# path {number} of {len(body_paths)}"
            + (f": {path.condition}" if path.condition else ""),
            dim=True,
        )
        yield from (print_node(node) for node in path.nodes)


@click.command("rule")
@click.argument("name")
def rule_command(name: str) -> None:
    """Print a rule's page: what it does, when it applies, and examples."""
    from regraft.report.rule_page import page_of
    from regraft.rules import load_rules

    rules, problems = load_rules([name])
    for problem in problems:
        print_error(problem.error)
    if not rules:
        sys.exit(2)
    for rule in rules:
        page = page_of(rule)
        if is_terminal(sys.stdout):
            from rich.console import Console
            from rich.markdown import Markdown

            Console().print(Markdown(page))
        else:
            click.echo(page)
    sys.exit(2 if problems else 0)
