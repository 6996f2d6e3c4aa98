"""Count, and do not measure, what a GPU would do for the subjects of the rules: operations and
bytes, as written and as rewritten.

    python benchmarks/gpu/counts.py

Both versions run on a fake device. An operation of PyTorch that is no view counts as a launch, and
so does a launch of a Triton kernel; its bytes are those of its arguments and results, each once.
Inductor fuses the operations of a compiled region, which are counted one by one (marked `*`). Host
reads are values for which the host waits in each step. Exits with 1 where a subject does not run.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fake_device
from fake_device import Launch, Operation, Record

SETTINGS = (("typical", "float32"), ("large", "bfloat16"))


@dataclass(frozen=True, slots=True)
class Count:
    """The launches of a step, its bytes, the values that the host reads, and whether a compiled
    region is among it."""

    launches: int
    bytes: int
    host_reads: int
    is_compiled: bool


def count_step(record: Record, version: Any, case: Any) -> Count:
    """Count the second run of a version: what the first one computes for good counts not."""
    from cases import run

    run(version, case)
    steps, reads, regions = len(record.steps), len(record.host_reads), record.compiled_calls
    run(version, case)
    counted = [step for step in record.steps[steps:] if not isinstance(step, Launch) or step.runs]
    return Count(
        len(counted),
        sum(map(bytes_of, counted)),
        len(record.host_reads) - reads,
        record.compiled_calls > regions,
    )


def bytes_of(step: Operation | Launch) -> int:
    """Return the bytes of an operation, or of the tensors among the arguments of a launch."""
    from dispatch import byte_count

    if isinstance(step, Operation):
        return step.bytes
    tensors = {
        id(value): value
        for value in (*step.inputs, *step.options.values())
        if hasattr(value, "element_size")
    }
    return sum(map(byte_count, tensors.values()))


def counts(record: Record, folder: Path) -> Iterator[tuple[Any, Count | str, Count | str]]:
    """Yield each case with the counts of the composition and of the op, or why there are none."""
    import torch
    from cases import LOOPING, subject_cases

    for size, dtype in SETTINGS:
        for case in subject_cases(folder, [size], [getattr(torch, dtype)]):
            ours, plain = case.make()
            try:
                ours_count: Count | str = count_step(record, ours, case)
                plain_count: Count | str = count_step(record, plain, case)
            except Exception as problem:  # noqa: BLE001  whatever it is, the others are counted
                ours_count = plain_count = f"{type(problem).__name__}: {str(problem)[:300]}"
            if LOOPING in case.name and not isinstance(ours_count, str):
                plain_count = "by values"
            yield case, plain_count, ours_count


def words_of(before: Count | str, after: Count) -> str:
    """Return the columns of a row."""
    launches, megabytes = (
        (before, "")
        if isinstance(before, str)
        else (str(before.launches), f"{before.bytes / 1e6:.1f}")
    )
    mark = "*" if after.is_compiled else ""
    return (
        f"{launches:>9} {after.launches:5}{mark:1} {megabytes:>10} {after.bytes / 1e6:10.1f}"
        f" {after.host_reads or '':>6}"
    )


def main() -> int:
    fake_device.load()
    from cases import VALUE_DEPENDENT
    from environment import print_versions

    print_versions()
    print("counted, not measured: launches and MB of a step, as written and as rewritten")
    print(f"{'rule, size, dtype, mode':74} {'launches':>15} {'MB':>22} {'reads':>6}")
    is_broken = False
    with tempfile.TemporaryDirectory() as folder, fake_device.fake_device() as record:
        for case, before, after in counts(record, Path(folder)):
            if isinstance(after, str):
                print(f"FAILED {case.name}: {after}")
                is_broken = True
            else:
                print(f"{case.name:74} {words_of(before, after)}", flush=True)
    for rule, reason in VALUE_DEPENDENT.items():
        print(f"not {rule}: {reason}")
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
