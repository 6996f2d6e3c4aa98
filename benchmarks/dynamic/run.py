"""Latency of dynamic networks: eager, split and as a single file, one thread, batch 1.

Usage: python benchmarks/dynamic/run.py NETWORKS.py... [--only NAME...] [--compile] [--compiler
NAME...]
       or with --batch SAMPLES [--compiler NAME...]

The variants of a network are interleaved in one process, which no other network has run in: what
`torch.compile` and runtimes leave behind of the networks before slows the next ones down.

Each NETWORKS.py has NAMES and build(name, n) -> (model, calls), and may have UNSEEN, what split
does with sides that no input takes.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.util
import multiprocessing
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time

import onnxruntime
import torch

import regraft
import regraft.splitting


def fastest(
    variants: dict, calls: list, repeats: int = 40, clock=time.perf_counter
) -> dict[str, float]:
    """Median over the inputs of the minimum over `repeats`, in milliseconds of a clock."""
    best = {name: [float("inf")] * len(calls) for name in variants}
    for _ in range(repeats):
        for number, call in enumerate(calls):
            for name, run in variants.items():
                start = clock()
                run(*call)
                best[name][number] = min(best[name][number], clock() - start)
    return {name: statistics.median(times) * 1e3 for name, times in best.items()}


def split(networks, model, calls, **options):
    """The network split as its file asks for."""
    return regraft.split(model, calls, unseen=getattr(networks, "UNSEEN", "refuse"), **options)


def refusal(problem: regraft.Unsplittable) -> str:
    return f"refused: {pathlib.Path(problem.path).name}:{problem.line}: {problem.reason[:160]}"


def as_file(model, calls, networks):
    """The network as one ONNX file, or why it is refused."""
    try:
        return split(networks, model, calls, cache=False, single_file=True)
    except regraft.Unsplittable as problem:
        return refusal(problem)


def shown_file(single) -> str:
    if isinstance(single, str):
        return single
    size = single.path.stat().st_size / 1024
    at = len(single.report.at_threshold)
    return f"equal on {single.report.inputs_checked}, at a threshold {at}, {size:.0f} KiB"


def built(compiler: str, made) -> str:
    return f"{compiler}: islands {len(made.report.islands)}, build {made.report.seconds} s"


@torch.no_grad()
def measure(name: str, networks, options) -> dict[str, float] | None:
    """Split one network, compare, measure, print a line; eager divided by each variant, None where
    it is refused."""
    model, calls = networks.build(name, 24)
    started = time.process_time()
    try:
        made = split(networks, model, calls)
    except regraft.Unsplittable as problem:
        print(f"{name:20} {refusal(problem)}", flush=True)
        return None
    build = time.process_time() - started
    started = time.perf_counter()
    split(networks, model, calls)
    again = time.perf_counter() - started
    variants, notes = {"eager": model, "split": made}, []
    single = as_file(model, calls, networks)
    if not isinstance(single, str):
        variants["single"] = single
    if options.compile:
        variants["compile"] = torch.compile(model)
    for compiler in options.compiler:
        try:
            other = split(networks, model, calls, compiler=compiler, cache=False)
        except regraft.Unsplittable as problem:
            notes.append(f"{compiler} refused: {problem.reason[-160:]}")
            continue
        variants[compiler] = other
        notes.append(built(compiler, other))
    calls = [tuple(call) for call in calls[:12]]
    for run in variants.values():
        for call in calls:
            run(*call)
    times = fastest(variants, calls)
    report = made.report
    weights = sum(
        one.numel() * one.element_size() for one in [*model.parameters(), *model.buffers()]
    )
    size = sum(one.stat().st_size for one in made.directory.iterdir() if one.is_file())
    shown = "  ".join(f"{key} {value:7.3f}" for key, value in times.items())
    print(
        f"{name:20} {shown}  eager/split {times['eager'] / times['split']:5.2f}  sub-networks"
        f" {report.subnetworks:2}  models {report.models:2}  islands {len(report.islands)}  sides"
        f" run {report.sides_run}/{report.sides}  equal on {report.inputs_checked}  at a threshold"
        f" {len(report.at_threshold)}"
        + (f"  within rounding {len(report.rounding)}" if report.rounding else "")
        + f"  analysis {report.analysis:.2f} s, build {report.seconds:5.2f} s (CPU {build:.2f} s),"
        f" from the cache {again:.2f} s  size/weights {size / weights:.2f} (of"
        f" {weights / 1024:.0f} KiB)  single file {shown_file(single)}"
        + "".join(f"  {one}" for one in notes),
        flush=True,
    )
    return {key: times["eager"] / one for key, one in times.items()}


@torch.no_grad()
def measure_batch(name: str, networks, options) -> dict[str, float] | None:
    """Milliseconds for a batch whose samples decide for themselves, against the same samples one by
    one."""
    model, calls = networks.build(name, 24)
    try:
        made = split(networks, model, calls, cache=False)
        batched = split(networks, model, calls, cache=False, batched=True)
        others = {
            one: split(networks, model, calls, cache=False, batched=True, compiler=one)
            for one in options.compiler
        }
    except regraft.Unsplittable as problem:
        print(f"{name:20} {refusal(problem)}", flush=True)
        return None
    calls = calls[: options.batch]
    whole = tuple(torch.cat(column) for column in zip(*calls, strict=True))
    variants = {
        "eager": lambda: [model(*call) for call in calls],
        "split": lambda: [made(*call) for call in calls],
        "batched": lambda: batched(*whole),
        **{key: functools.partial(one, *whole) for key, one in others.items()},
    }
    notes = [built(*one) for one in others.items()]
    times = fastest(variants, [()])
    shown = "  ".join(f"{key} {value:7.3f}" for key, value in times.items())
    print(
        f"{name:20} {shown}  eager/batched {times['eager'] / times['batched']:5.2f}  split/batched"
        f" {times['split'] / times['batched']:5.2f}  equal on {batched.report.inputs_checked}  one"
        f" by one {len(batched.report.one_by_one)} of {batched.report.subnetworks}"
        + "".join(f"  {one}" for one in notes),
        flush=True,
    )
    return {key: times["eager"] / one for key, one in times.items()}


def loaded(path: str):
    """The module of a file of networks."""
    spec = importlib.util.spec_from_file_location(f"networks_{pathlib.Path(path).stem}", path)
    networks = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = networks
    spec.loader.exec_module(networks)
    return networks


def measured(path: str, name: str, options) -> dict[str, float] | None:
    """One network, in a process of its own."""
    torch.set_num_threads(1)
    return (measure_batch if options.batch else measure)(name, loaded(path), options)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--compiler", nargs="+", default=[])
    parser.add_argument("--batch", type=int, default=0)
    options = parser.parse_args()
    cache = tempfile.TemporaryDirectory()  # empty at first, so that every network is built once
    os.environ["REGRAFT_CACHE_DIR"] = cache.name
    print_head(f"one thread, batch {options.batch or 1}, milliseconds")
    names = [(path, name) for path in options.networks for name in loaded(path).NAMES]
    jobs = [(path, name, options) for path, name in names if name in (options.only or [name])]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        ratios = processes.starmap(measured, jobs, chunksize=1)
    print_means(ratios)


def print_head(conditions: str) -> None:
    """Print the day, the machine, the versions and the conditions of what is measured."""
    print(
        f"{datetime.date.today()}, {platform.machine()}, Python {platform.python_version()}, torch"
        f" {torch.__version__}, ONNX Runtime {onnxruntime.__version__}, {conditions}"
    )


def print_means(ratios: list[dict[str, float] | None]) -> None:
    """Print how many networks are split, and the geometric mean of each variant's ratios; those of
    a network that is refused are None."""
    split = [ratio for ratio in ratios if ratio is not None]
    print(f"split {len(split)} of {len(ratios)}; geometric means, eager divided by: ", end="")
    for key in dict.fromkeys(key for ratio in split for key in ratio if key != "eager"):
        values = [ratio[key] for ratio in split if key in ratio]
        print(f"{key} {statistics.geometric_mean(values):.2f} ({len(values)} networks)", end="  ")
    print()


if __name__ == "__main__":
    main()
