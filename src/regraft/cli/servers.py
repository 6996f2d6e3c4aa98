"""The commands `regraft server` and `regraft mcp`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from regraft.cli.shared_options import PATH, stop


@click.command("server")
@click.option("--stdio", is_flag=True, help="Use standard input and output, as it does anyway.")
def server_command(stdio: bool) -> None:
    """Answer an editor by the Language Server Protocol, on standard input and output.

    Editors start it (docs/editors.md). It shows what `regraft check` finds, while you type.
    """
    _require("pygls", "server")
    from regraft.server.handlers import serve

    serve()


@click.command("mcp")
@click.option(
    "--root",
    "roots",
    type=PATH,
    metavar="DIRECTORY",
    multiple=True,
    help="Read and write below this directory, besides the working directory; may be given again.",
)
@click.option("--any-path", is_flag=True, help="Read and write wherever the caller names a path.")
@click.option("--read-only", is_flag=True, help="Never write a file that a tool names.")
def mcp_command(roots: tuple[Path, ...], any_path: bool, read_only: bool) -> None:
    """Answer another program by the Model Context Protocol, on standard input and output.

    The tools are check, explain, fix, verify and bench (docs/mcp.md).
    """
    _require("mcp", "mcp")
    from regraft.server.mcp_server import serve

    for root in roots:
        if not root.is_dir():
            stop(f"--root {root}: there is no such directory")
    serve((Path.cwd(), *roots), any_path=any_path, read_only=read_only)


def _require(package: str, extra: str) -> None:
    """Exit where the package that a command stands on is not installed."""
    if importlib.util.find_spec(package) is None:
        stop(
            f"regraft {extra} needs {package}, which is not installed here:"
            f" pip install 'regraft[{extra}]'"
        )
