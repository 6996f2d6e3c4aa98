"""Latency of dynamic networks: eager and split, interleaved in one process, one thread, batch 1.

Usage: python benchmarks/dynamic/run.py NETWORKS.py [--compile]

where NETWORKS.py has NAMES and build(name, n) -> (model, calls).
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import platform
import statistics
import time

import onnxruntime
import torch

import regraft


def fastest(variants: dict, calls: list, repeats: int = 40) -> dict[str, float]:
    """Median over the inputs of the minimum over `repeats`, in milliseconds."""
    best = {name: [float("inf")] * len(calls) for name in variants}
    for _ in range(repeats):
        for number, call in enumerate(calls):
            for name, run in variants.items():
                start = time.perf_counter()
                run(*call)
                best[name][number] = min(best[name][number], time.perf_counter() - start)
    return {name: statistics.median(times) * 1e3 for name, times in best.items()}


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("networks")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    spec = importlib.util.spec_from_file_location("networks", options.networks)
    networks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(networks)
    print(f"{datetime.date.today()}, {platform.machine()}, Python {platform.python_version()}, ", end="")
    print(f"torch {torch.__version__}, ONNX Runtime {onnxruntime.__version__}, one thread, batch 1, milliseconds")
    ratios = []
    for name in networks.NAMES:
        model, calls = networks.build(name, 12)
        made = regraft.split(model, calls)
        variants = {"eager": model, "split": made}
        if options.compile:
            variants["compile"] = torch.compile(model)
        for run in variants.values():
            for call in calls:
                run(*call)
        times = fastest(variants, calls)
        ratios.append(times["eager"] / times["split"])
        shown = "  ".join(f"{key} {value:.3f}" for key, value in times.items())
        report = made.report
        print(f"{name:10} {shown}  eager/split {ratios[-1]:.2f}  sub-networks {report.subnetworks}  ", end="")
        print(
            f"sides run {report.sides_run}/{report.sides}  equal on {report.inputs_checked}  build {report.seconds} s"
        )
    print(f"geometric mean eager/split {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
