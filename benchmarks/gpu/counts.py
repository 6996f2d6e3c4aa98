"""Count, and do not measure, what a GPU would do for the subjects of the rules, as written and as
rewritten, and for whole models.

    python benchmarks/gpu/counts.py

Both versions run on a fake device. An operation of PyTorch that is no view counts as a launch, and
so does a launch of a Triton kernel; its bytes are those of its arguments and results, each once.
Inductor fuses the operations of a compiled region, which are counted one by one (marked `*`). Host
reads are values for which the host waits in each step. Models are those of targets.py: as they are
built, as `regraft.optimize` rewrites them (with rules of safety `contract`, too: `unsafe`), and as
Liger patches them. Exits with 1 where a subject or model does not run.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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


def count_step(record: Record, step: Callable[[], object]) -> Count:
    """Count the second run of a step: what the first one computes for good counts not."""
    step()
    steps, reads, regions = len(record.steps), len(record.host_reads), record.compiled_calls
    step()
    counted = [each for each in record.steps[steps:] if not isinstance(each, Launch) or each.runs]
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
    from cases import LOOPING, run, subject_cases

    for size, dtype in SETTINGS:
        for case in subject_cases(folder, [size], [getattr(torch, dtype)]):
            ours, plain = case.make()
            try:
                ours_count: Count | str = count_step(record, partial(run, ours, case))
                plain_count: Count | str = count_step(record, partial(run, plain, case))
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


MODELS = ("llama", "qwen3", "bert")
PACKS = ["liger", "torch", "adopter"]
VARIANTS = ("as built", "Regraft", "Regraft, unsafe", "Liger")


def model_variant(name: str, variant: str) -> tuple[Any, dict[str, Any]] | None:
    """Return a model in a variant and its inputs; None where Liger has no patch for it."""
    import targets

    import regraft
    from regraft.benchmarking.liger_patch import liger_patched

    model, call = getattr(targets, name)()
    if variant.startswith("Regraft"):
        is_unsafe = variant.endswith("unsafe")
        regraft.optimize(model, lock=False, verify=False, select=PACKS, unsafe=is_unsafe)
    elif variant == "Liger":
        model = liger_patched(model)
    return None if model is None else (model, call)


def model_counts(record: Record) -> Iterator[tuple[str, Count | str]]:
    """Yield the variants of the models in both modes, each with its count, or why there is none."""
    from regraft.benchmarking.steps import step

    for name, variant in itertools.product(MODELS, VARIANTS):
        built = model_variant(name, variant)
        if built is None:
            continue
        model, call = built
        for training in (False, True):
            label = f"{name}, {variant}, {'training' if training else 'inference'}"
            run_step = step(model.train(training), [((), call)], training)
            try:
                yield label, count_step(record, run_step)
            except Exception as problem:  # noqa: BLE001  whatever it is, the others are counted
                yield label, f"{type(problem).__name__}: {str(problem)[:300]}"


def report_subjects(record: Record) -> int:
    """Print the counts of the subjects; return 1 where there is none."""
    from cases import VALUE_DEPENDENT

    print(f"{'rule, size, dtype, mode':74} {'launches':>15} {'MB':>22} {'reads':>6}")
    is_broken = False
    with tempfile.TemporaryDirectory() as folder:
        for case, before, after in counts(record, Path(folder)):
            if isinstance(after, str):
                print(f"FAILED {case.name}: {after}")
                is_broken = True
            else:
                print(f"{case.name:74} {words_of(before, after)}", flush=True)
    for rule, reason in VALUE_DEPENDENT.items():
        print(f"not {rule}: {reason}")
    return int(is_broken)


def report_models(record: Record) -> int:
    """Print the counts of the models; return 1 where there is none."""
    if importlib.util.find_spec("transformers") is None:
        print("no models: transformers is not installed")
        return 0
    print(f"\n{'model, variant, mode':40} {'launches':>9} {'GB':>9} {'reads':>6}")
    is_broken = False
    for label, count in model_counts(record):
        if isinstance(count, str):
            print(f"FAILED {label}: {count}")
            is_broken = True
        else:
            columns = f"{count.launches:9} {count.bytes / 1e9:9.1f} {count.host_reads or '':>6}"
            print(f"{label:40} {columns}", flush=True)
    return int(is_broken)


def main() -> int:
    fake_device.load()
    from environment import print_versions

    print_versions()
    # Liger and transformers warn of packages that are not installed
    logging.disable(logging.WARNING)
    print("counted, not measured: launches and bytes of a step")
    with fake_device.fake_device() as record:
        return report_subjects(record) | report_models(record)


if __name__ == "__main__":
    sys.exit(main())
