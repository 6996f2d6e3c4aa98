"""The MCP server: another program checks, rewrites, proves and measures by its tools.

Each tool runs a command of Regraft in a process of its own and returns the JSON that the command
prints, so that nothing but the protocol is written here, and a call can be cancelled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations
from pydantic import Field

from regraft import __version__
from regraft.configuration.settings import TargetName
from regraft.server.mcp_commands import Caller, Workspace
from regraft.server.project import RuleChoice
from regraft.server.prover import Request
from regraft.server.tool_arguments import StrictServer
from regraft.server.tool_options import (
    EXPLAINED,
    at_line,
    choice_options,
    repeat_option,
    stated_options,
)

_INSTRUCTIONS = """\
Regraft finds hand-written PyTorch code that an optimized kernel can replace, rewrites it, and \
proves or refutes a rewrite by running both versions. `check` reads source and needs no PyTorch; \
`verify`, `fix` and `bench` run the code that they are about. `verify` also judges changes that \
Regraft did not make: its verdict is "proved", "unproven" with the reason, or "refuted" with a \
counterexample."""
_Path = Annotated[str, Field(description="A path, relative to the working directory of the server")]
_Rules = Annotated[
    list[str] | None,
    Field(
        description="Rules: a pack (`torch`), `pack/rule`, a rule or a pattern; none: as configured"
    ),
]
_Driver = Annotated[
    str | None,
    Field(
        description="The function that builds the model and its calls: FILE.py:FUNCTION or"
        " MODULE:FUNCTION; without one Regraft builds models by itself"
    ),
]
_Seconds = Annotated[
    float | None,
    Field(description="Processor time for each file, in seconds; 300 by default", gt=0),
]
_READ_ONLY = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_RUNS_CODE = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)


class Tools:
    """The tools of the server, on the files of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    async def check(
        self,
        context: Context[Any, Any],
        paths: Annotated[
            list[str] | None, Field(description="Files and folders; none with `source`")
        ] = None,
        source: Annotated[str | None, Field(description="The text of a file instead")] = None,
        filename: Annotated[
            str | None, Field(description="With `source`: the file that the text stands for")
        ] = None,
        select: _Rules = None,
        ignore: _Rules = None,
        target: TargetName | None = None,
        apply_all: Annotated[
            bool, Field(description="Also rules that gain nothing on the target")
        ] = False,
        unsafe: Annotated[
            bool, Field(description="Also rules that change what callers see")
        ] = False,
        explain: Annotated[
            bool, Field(description="Also where rules nearly match, and why they do not")
        ] = False,
    ) -> dict[str, Any]:
        """Find the places in PyTorch source where an optimized kernel can replace hand-written
        code. Returns the JSON report of `regraft check`: findings with their places, worth and
        edits, errors, and totals. Runs no code and writes nothing."""
        workspace = self._workspace
        if bool(paths) == (source is not None):
            raise workspace.refusal("check takes `paths` or the text `source`, one of the two")
        options = choice_options(select, ignore, target, apply_all, unsafe)
        options += ["--explain"] * explain
        if source is not None:
            name = (
                []
                if filename is None
                else ["--stdin-filename", workspace.path(filename, may_be_new=True)]
            )
            arguments = ["check", "-", *name, *options]
        else:
            arguments = ["check", *options, "--", *map(workspace.path, paths or ())]
        return await workspace.run_json(Caller(context), arguments, source)

    async def explain(
        self,
        context: Context[Any, Any],
        rule: Annotated[str | None, Field(description="A rule, such as torch/gelu")] = None,
        path: Annotated[str | None, Field(description="A file instead")] = None,
        line: Annotated[
            int | None, Field(description="With `path`: only what concerns this line, from 1", ge=1)
        ] = None,
        select: _Rules = None,
    ) -> dict[str, Any]:
        """Explain a rule (its page: what it does, when it applies, what it was measured to gain),
        or the places of a file: what could be rewritten, what is withheld and why, where rules
        nearly match and what was not followed. Runs no code."""
        workspace = self._workspace
        if (rule is None) == (path is None):
            raise workspace.refusal("explain takes a `rule` or a `path`, one of the two")
        if rule is not None:
            page = await workspace.run_text(Caller(context), ["rule", "--", rule])
            return {"rule": rule, "page": page}
        options = choice_options(select, None, None, False, False)
        arguments = ["check", "--explain", *options, "--", workspace.path(path or "")]
        report = await workspace.run_json(Caller(context), arguments)
        return {key: at_line(report[key], line) for key in EXPLAINED}

    async def fix(
        self,
        context: Context[Any, Any],
        path: _Path,
        write: Annotated[
            bool, Field(description="Write the file; `regraft undo` takes it back")
        ] = False,
        prove: Annotated[
            bool, Field(description="Rewrite only what running both versions proves")
        ] = True,
        definition: Annotated[
            str, Field(description="Only this class or function; empty for the whole file")
        ] = "",
        unproven: Annotated[
            bool, Field(description="Also rewrite what is neither proved nor refuted")
        ] = False,
        select: _Rules = None,
        ignore: _Rules = None,
        target: TargetName | None = None,
        apply_all: bool = False,
        unsafe: bool = False,
        driver: _Driver = None,
    ) -> dict[str, Any]:
        """Rewrite a file by the rules that apply in it, and return the diff, the new text, what is
        fixed and what is not, and the verdicts. Nothing is written unless `write` is true."""
        workspace = self._workspace
        if write and workspace.read_only:
            raise workspace.refusal("this server was started with --read-only: leave `write` out")
        choice = RuleChoice(
            select=None if select is None else tuple(select),
            ignore=None if ignore is None else tuple(ignore),
            target=target,
            applies_all=apply_all,
            unsafe=unsafe,
        )
        request = Request(
            workspace.path(path),
            definition,
            prove,
            unproven,
            write,
            None if driver is None else workspace.driver(driver),
            choice,
        )
        return workspace.with_counterexamples(await workspace.prove(Caller(context), request))

    async def verify(
        self,
        context: Context[Any, Any],
        original: Annotated[str | None, Field(description="The path of the original")] = None,
        original_text: Annotated[str | None, Field(description="Its text instead")] = None,
        changed: Annotated[str | None, Field(description="The path of the changed version")] = None,
        changed_text: Annotated[str | None, Field(description="Its text instead")] = None,
        diff: Annotated[
            str | None,
            Field(
                description="A unified diff of files below the working directory, instead of both"
            ),
        ] = None,
        driver: _Driver = None,
        effort: Literal["low", "default", "high"] | None = None,
        contract: Annotated[
            Literal["strict", "results"] | None,
            Field(description="results: outputs, gradients and checkpoints alone"),
        ] = None,
        time_limit: _Seconds = None,
    ) -> dict[str, Any]:
        """Run two versions of a Python file side by side, and return a verdict for each changed
        definition: "proved", "unproven" with the reason, or "refuted" with a counterexample (a
        script that shows the difference). Whoever made the change; with `original` alone it is
        Regraft's own rewrite. Both versions run in a sandbox."""
        workspace = self._workspace
        options = stated_options(
            effort=effort,
            contract=contract,
            time_limit=time_limit,
            driver=None if driver is None else workspace.driver(driver),
        )
        has_original = original is not None or original_text is not None
        has_changed = changed is not None or changed_text is not None
        if diff is not None and (has_original or has_changed):
            raise workspace.refusal("verify takes a `diff`, or versions of a file, not both")
        if diff is None and not has_original:
            raise workspace.refusal("verify takes `original` or `original_text`, or a `diff`")
        with workspace.texts() as texts:
            if diff is not None:
                names = [texts.path("change.diff", diff)]
            else:
                names = [workspace.version("original", original, original_text, texts)]
                if has_changed:
                    names.append(workspace.version("changed", changed, changed_text, texts))
            arguments = ["verify", *options, "--", *names]
            document = await workspace.run_json(Caller(context), arguments)
        return workspace.with_counterexamples(document)

    async def bench(
        self,
        context: Context[Any, Any],
        subject: Annotated[
            str,
            Field(
                description="FILE.py:FUNCTION or MODULE:FUNCTION, a function without arguments that"
                " returns (model, inputs)"
            ),
        ],
        packs: _Rules = None,
        ignore: _Rules = None,
        mode: Literal["inference", "training", "both"] = "inference",
        rounds: Annotated[int, Field(description="The most pairs of a comparison", ge=6)] = 20,
        threads: Annotated[int, Field(ge=1, le=1024)] = 1,
        prove: Annotated[bool, Field(description="Measure only what is proved")] = True,
    ) -> dict[str, Any]:
        """Measure what each rule gains for a model on this machine, in time and peak memory.
        Returns the JSON of `regraft bench`. The function and the model run without a sandbox."""
        workspace = self._workspace
        options = ["--mode", mode, "--rounds", str(rounds), "--threads", str(threads)]
        options += ["--verify" if prove else "--no-verify"]
        options += repeat_option("--packs", packs) + repeat_option("--ignore", ignore)
        arguments = ["bench", *options, "--", workspace.driver(subject)]
        return await workspace.run_json(Caller(context), arguments)


def create_server(workspace: Workspace) -> StrictServer:
    """Return the server with its tools."""
    server = StrictServer(
        "regraft", version=__version__, instructions=_INSTRUCTIONS, log_level="WARNING"
    )
    tools = Tools(workspace)
    for tool, hints in (
        (tools.check, _READ_ONLY),
        (tools.explain, _READ_ONLY),
        (tools.fix, _WRITES),
        (tools.verify, _RUNS_CODE),
        (tools.bench, _RUNS_CODE),
    ):
        server.add_strict_tool(tool, hints)
    return server


def serve(roots: Sequence[Path], *, any_path: bool, read_only: bool) -> None:
    """Answer a program on standard input and output until it ends the session.

    roots      folders that hold all files that tools may name; the first is the working directory
    any_path   whether tools may name any file
    read_only  whether no tool may write a file that it names
    """
    workspace = Workspace(
        tuple(Path(os.path.realpath(root)) for root in roots), any_path, read_only
    )
    create_server(workspace).run("stdio")
