"""Run every CUDA branch of Regraft's ops on a fake device, against the composition.

    python benchmarks/gpu/fake.py

Results and gradients have to have the shapes, dtypes and devices of the composition, also under
autocast. Every statement of the ops that runs on CUDA alone has to run, but for refusals (the
composition runs, or an error is raised, which the tests in Triton's interpreter check) and those
named here with a reason. Exits with 1 otherwise.
"""

from __future__ import annotations

import collections
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import fake_device
from device_lines import Statement, device_statements

REFUSALS = ('return "reference"', "return False", "return None", "return 0", "raise ")
DYNAMO = "Dynamo reads the function, and does not run it"
# Functions with statements that no fake device runs, with the reason.
EXCUSED = {
    "compiled_region.run_region": "for regions whose buffers are used up, which none are here",
    "compiled_region._run_compiled": "for calls that torch refuses to compile",
    "compiled_region._without_donation": "for versions of torch without donated buffers",
    "cross_entropy._warps": "for AMD's GPUs",
    "cross_entropy.row_losses": "for rows that Liger does not take",
    "dropout_add_layer_norm._dropout_add_layer_norm": DYNAMO,
    "linear_gelu._linear_gelu": DYNAMO,
    "experts._experts_kernel.reference": "the composition of experts loops over values",
    "linear_sources.LinearSources._are_overwritten": "before an error, for sources that changed",
}
OPS = Path(__file__).parents[2] / "src" / "regraft" / "ops"


class TakenLines:
    """The lines of the files of a folder that run within a `with` block."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.lines: dict[str, set[int]] = {}

    def __enter__(self) -> TakenLines:
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        """Trace the frames of the folder's files only."""
        code: CodeType = frame.f_code
        if not code.co_filename.startswith(self.folder):
            return None
        lines = self.lines.setdefault(Path(code.co_filename).name, set())

        def trace_line(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return trace_line

        return trace_line

    def has(self, statement: Statement) -> bool:
        """Return whether a statement ran."""
        lines = self.lines.get(statement.path.name, set())
        return any(line in lines for line in range(statement.first, statement.last + 1))


def failures(cases: Iterable[tuple[Any, str]]) -> Iterator[str]:
    """Run cases, each under `torch.autocast` with the dtype beside it if there is one; yield a line
    for each that fails."""
    import torch
    from cases import check

    for case, autocast in cases:
        dtype = getattr(torch, autocast or "bfloat16")
        try:
            with torch.autocast("cuda", dtype, enabled=bool(autocast)):
                check(case)
        except Exception as problem:  # noqa: BLE001  whatever it is, the other cases run
            words = f", autocast to {autocast}" if autocast else ""
            yield f"{case.name}{words}: {type(problem).__name__}: {str(problem)[:1000]}"


def excuse(statement: Statement) -> str:
    """Return why a statement need not run on a fake device; "" where it has to."""
    if statement.text.startswith(REFUSALS):
        return "a refusal"
    return EXCUSED.get(f"{statement.path.stem}.{statement.function}", "")


def report_statements(statements: list[Statement], taken: TakenLines) -> int:
    """Print which of the statements ran; return the number of those that have to, and did not."""
    left = [statement for statement in statements if not taken.has(statement)]
    files = collections.Counter(statement.path.name for statement in statements)
    left_files = collections.Counter(statement.path.name for statement in left)
    print(f"{len(statements)} statements run on CUDA alone; {len(statements) - len(left)} ran:")
    for name, count in sorted(files.items()):
        print(f"  {name:32} {count - left_files[name]:4} of {count}")
    excuses = collections.Counter(map(excuse, left))
    for reason, count in sorted(excuses.items()):
        if reason:
            print(f"  {count} did not: {reason}")
    for statement in left:
        if not excuse(statement):
            print(f"FAILED never ran: {statement}")
    return excuses[""]


def checked_cases(folder: Path) -> Iterator[tuple[Any, str]]:
    """Yield the cases, each with the dtype of `torch.autocast` in which it runs, or ""."""
    import torch
    from cases import subject_cases
    from op_cases import op_cases

    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    for case in subject_cases(folder, ("small", "typical", "large"), dtypes):
        yield case, ""
    for case in op_cases():
        yield case, ""
    for autocast in ("bfloat16", "float16"):
        for case in subject_cases(folder, ("small", "typical"), (torch.float32,)):
            yield case, autocast


def main() -> int:
    fake_device.load()
    from cases import VALUE_DEPENDENT
    from environment import print_versions

    print_versions()
    with tempfile.TemporaryDirectory() as folder, fake_device.fake_device():
        cases = list(checked_cases(Path(folder)))
        with TakenLines(OPS) as taken:
            problems = list(failures(cases))
    for problem in problems:
        print(f"FAILED {problem}")
    print(f"{len(cases) - len(problems)} of {len(cases)} calls give what the composition gives")
    for rule, reason in VALUE_DEPENDENT.items():
        print(f"  not {rule}: {reason}")
    missing = report_statements(device_statements(OPS, "regraft.ops"), taken)
    return int(bool(problems) or bool(missing))


if __name__ == "__main__":
    sys.exit(main())
