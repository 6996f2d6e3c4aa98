"""Record which lines, branches and sides of conditional expressions of a file run."""

from __future__ import annotations

import dis
import importlib.util
import inspect
import os
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from regraft.verification.branch_changes import Arm
from regraft.verification.definition_changes import Change
from regraft.verification.triton_interpreter import interprets_kernels

_EXIT = -1


class Tracer:
    """Traces one file while used as a context manager; other files only cost their call events. The
    former trace function is put back at the end, and what ran is collected over all uses.

    `lines`, `arms` (sides of conditional expressions) and `arcs` (steps from a header to the next
    line) are those that ran. `kernels` names the functions of `regraft.ops` that ran, as evidence
    of the implementation in use; `entered` holds the first lines of the file's functions that ran.
    """

    def __init__(self, filename: str, changes: tuple[Change, ...]) -> None:
        """Start without lines. `filename` is the file to trace; the `changes` say which arms and
        headers of `if` to watch."""
        self.filename = filename
        self.lines: set[int] = set()
        self.arms: set[Arm] = set()
        self.kernels: set[str] = set()
        self._kernels = str(Path(__file__).resolve().parents[2] / "ops") + os.sep
        # files that are neither the traced one nor in `regraft.ops`
        self._foreign: set[str] = set()
        self.entered: set[int] = set()
        self.arcs: set[tuple[int, int]] = set()
        self.changes = changes
        self._arms = tuple({arm for change in changes for arm in change.arms})
        self._offsets: dict[CodeType, dict[int, Arm]] = {}
        self._outer: Any = None
        headers = {
            line
            for change in changes
            for fallthrough in change.fallthroughs
            for line in range(*_inclusive(fallthrough.header))
        }
        self._headers = frozenset(headers)

    def mark_imported(self, code: CodeType) -> None:
        """Add to `lines` the lines that the import of a module runs, those of its class bodies
        included, but not of its functions."""
        self.lines |= {line for _, _, line in code.co_lines() if line}
        for constant in code.co_consts:
            if isinstance(constant, CodeType) and not constant.co_flags & inspect.CO_NEWLOCALS:
                self.mark_imported(constant)

    def save_state(self) -> tuple[frozenset[int], frozenset[Arm], frozenset[tuple[int, int]]]:
        """Return the lines, arms and steps between lines that ran so far."""
        return frozenset(self.lines), frozenset(self.arms), frozenset(self.arcs)

    def restore_state(
        self, state: tuple[frozenset[int], frozenset[Arm], frozenset[tuple[int, int]]]
    ) -> None:
        """Go back to a state that `save_state` returned; `kernels` and `entered` stay."""
        lines, arms, arcs = state
        self.lines, self.arms, self.arcs = set(lines), set(arms), set(arcs)

    def __enter__(self) -> Tracer:
        """Trace this thread and new threads from now on."""
        self._outer = sys.gettrace()
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        """Put the former trace function back, for new threads, too."""
        sys.settrace(self._outer)
        threading.settrace(self._outer)

    def gaps(self, change: Change) -> tuple[tuple[int, str], ...]:
        """Return (line, sentence) for every statement and branch of a change that has not run:
        first statements, then sides of conditional expressions (from Python 3.11 on), then
        conditions that were never false. Duplicates are dropped."""
        sentences = [
            (start, f"line {start} never ran")
            for start, end in change.statements
            if not self._has_run(start, end)
        ]
        for arm in change.arms:
            if arm not in self.arms and sys.version_info >= (3, 11):
                place = f"on line {arm.line}, column {arm.column + 1}"
                sentence = f"the side of the conditional expression {place} never ran"
                sentences.append((arm.line, sentence))
        for fallthrough in change.fallthroughs:
            header, body = fallthrough.header, fallthrough.body
            if self._has_run(*header) and not self._has_fallen_through(header, body):
                line = header[0]
                sentences.append((line, f"the condition on line {line} was never false"))
        return tuple(dict.fromkeys(sentences))

    def _has_run(self, start: int, end: int) -> bool:
        """Return whether any line of a range ran; `end` is included."""
        return any(line in self.lines for line in range(start, end + 1))

    def _has_fallen_through(self, header: tuple[int, int], body: tuple[int, int]) -> bool:
        """Return whether the line after this header of an `if` was, in a recorded step, outside of
        the `if`: its condition was false."""
        statement_lines = range(header[0], body[1] + 1)
        return any(
            header[0] <= start <= header[1] and end not in statement_lines
            for start, end in self.arcs
        )

    def _on_call(self, frame: FrameType, _event: str, _arg: Any) -> Callable[..., Any] | None:
        """Return the trace function for a call in the traced file, None for other files; add
        functions of `regraft.ops` to `kernels` and the first lines of the file's functions to
        `entered`."""
        code = frame.f_code
        filename = code.co_filename
        if filename in self._foreign:
            return None
        if filename != self.filename:
            if filename.startswith(self._kernels):
                self.kernels.add(f"{Path(filename).stem}.{code.co_name}")
            else:
                self._foreign.add(filename)
            return None
        if code.co_flags & inspect.CO_NEWLOCALS:
            self.entered.add(code.co_firstlineno)
        offsets = self._arm_offsets(frame.f_code)
        if offsets:
            frame.f_trace_opcodes = True
        return self._frame_tracer(offsets)

    def _frame_tracer(self, offsets: dict[int, Arm]) -> Callable[..., Any]:
        """Return a trace function for one call of a function, which adds what runs to `lines`,
        `arcs` and `arms`; `offsets` are the arms by instruction."""
        previous = 0

        def on_event(frame: FrameType, event: str, _arg: Any) -> Callable[..., Any]:
            """Add a line that runs to `lines`, an arm whose instruction runs to `arms`, and to
            `arcs` the step from a watched header of an `if` to the next line or the end of the
            call. Returns itself, to be called for the next event."""
            nonlocal previous
            if event == "line":
                line = frame.f_lineno
                self.lines.add(line)
                if previous in self._headers:
                    self.arcs.add((previous, line))
                previous = line
            elif event == "opcode":
                arm = offsets.get(frame.f_lasti)
                if arm is not None:
                    self.arms.add(arm)
            elif event == "return" and previous in self._headers:
                self.arcs.add((previous, _EXIT))
            return on_event

        return on_event

    def _arm_offsets(self, code: CodeType) -> dict[int, Arm]:
        """Return the watched arm of each instruction offset; {} without watched arms, or before
        Python 3.11, whose code objects have no columns. Cached by code object."""
        if not self._arms or sys.version_info < (3, 11):
            return {}
        if code not in self._offsets:
            self._offsets[code] = {
                instruction.offset: arm
                for instruction in dis.get_instructions(code)
                for arm in self._arms
                if _is_inside(instruction.positions, arm)
            }
        return self._offsets[code]


def stop_tracing_kernels(files: Collection[str]) -> None:
    """Change Triton's interpreter, where it is in use, so that it runs without tracing for the rest
    of this process, except for kernels of these files; do nothing where it is not in use.

    Each of its kernels makes many thousands of calls, and a tracer that is told of them takes
    longer than the kernel.
    """
    if not interprets_kernels() or importlib.util.find_spec("triton") is None:
        return
    interpreter = importlib.import_module("triton.runtime.interpreter")
    launch = interpreter.GridExecutor.__call__

    def untraced(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        """Launch a kernel without tracing, unless it belongs to `files`; return the result of the
        launch."""
        outer = sys.gettrace()
        if kernel.fn.__code__.co_filename in files:
            return launch(kernel, *args, **kwargs)
        sys.settrace(None)
        try:
            return launch(kernel, *args, **kwargs)
        finally:
            sys.settrace(outer)

    interpreter.GridExecutor.__call__ = untraced


def _is_inside(positions: Any, arm: Arm) -> bool:
    """Return whether the source position of an instruction lies inside of an arm."""
    if positions is None or positions.lineno is None or positions.col_offset is None:
        return False
    start = (positions.lineno, positions.col_offset)
    end = (positions.end_lineno, positions.end_col_offset)
    return (arm.line, arm.column) <= start and end <= (arm.end_line, arm.end_column)


def _inclusive(span: tuple[int, int]) -> tuple[int, int]:
    """Return the bounds of a `range` over a span whose last line is included."""
    return span[0], span[1] + 1
