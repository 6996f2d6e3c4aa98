"""Compile every Triton kernel that the shipped rules launch, for GPUs that are not here: the
kernels' registers, spills and shared memory.

    python benchmarks/gpu/kernels.py --target 80

The rules' subjects run on a fake device, which records each launch with its arguments; each kind of
launch is compiled as Triton would compile it for these arguments. Exits with 1 where a kernel does
not compile, or where all configurations of an autotuned kernel need more shared memory than a
block can have.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fake_device
from fake_device import Launch

# bytes of shared memory that a block can have at most, by the compute capability
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/, "Technical Specifications"
SHARED_MEMORY = {80: 163 << 10, 90: 227 << 10}
PREFIX = "liger_kernel.ops."
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


FURTHER = 6  # further configurations that are compiled of each autotuned kernel and its types

# Kernels in the files of those that are launched which no op launches, with the reason.
NOT_LAUNCHED = {
    "fused_moe_kernels._keyed_add": "a function of other kernels",
    "group_norm._group_norm_forward_kernel": "the op's forward pass is PyTorch's",
    "softmax._softmax_multi_block_backward_kernel": "for rows longer than the op takes",
    "softmax._softmax_multi_block_forward_kernel": "for rows longer than the op takes",
    "swiglu._swiglu_backward_kernel_tiled": "for Blackwell GPUs",
    "swiglu._swiglu_forward_kernel_tiled": "for Blackwell GPUs",
    "swiglu._swiglu_fused_gate_up_backward_kernel": "the op gets gate and up apart",
    "swiglu._swiglu_fused_gate_up_forward_kernel": "the op gets gate and up apart",
    "swiglu.silu": "a function of other kernels",
}


class KernelError(Exception):
    """A kernel that does not compile or does not fit; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a compiled kernel uses: registers of a thread, bytes of the thread's stack, to which
    registers spill, and bytes of shared memory of a block."""

    registers: int
    spilled: int
    shared: int


def recorded_launches() -> list[Launch]:
    """Return the launches of the subjects of all rules and of the further calls of ops, one of each
    kind."""
    import torch
    from cases import run, subject_cases
    from op_cases import op_cases

    sizes, dtypes = ("small", "typical", "large"), (torch.float32, torch.bfloat16)
    with tempfile.TemporaryDirectory() as folder, fake_device.fake_device() as record:
        for case in itertools.chain(subject_cases(Path(folder), sizes, dtypes), op_cases()):
            ours, _ = case.make()
            run(ours, case)
    # the last one that is entered stays: a launch that runs, where there is one
    ordered = sorted(record.launches, key=lambda launch: launch.runs)
    kinds = {kind_of(launch): launch for launch in ordered}
    return [kinds[kind] for kind in sorted(kinds)]


def sampled(launches: list[Launch]) -> list[Launch]:
    """Return the launches without most further configurations of autotuned kernels: of each kernel
    and its types, FURTHER of them stay, at equal distances."""
    further: dict[tuple[str, str], list[Launch]] = {}
    for launch in launches:
        if not launch.runs:
            further.setdefault((launch.name, types_of(launch)), []).append(launch)
    sample = {
        id(launch) for group in further.values() for launch in group[:: -(-len(group) // FURTHER)]
    }
    return [launch for launch in launches if launch.runs or id(launch) in sample]


def unlaunched_kernels(launches: list[Launch]) -> list[str]:
    """Return the kernels in the files of launched ones that no launch is of."""
    from triton.runtime.jit import JITFunction

    launched = {launch.name for launch in launches}
    files = {name.rpartition(".")[0] for name in launched}
    kernels = set()
    for file in files:
        for value in vars(sys.modules[file]).values():
            kernel = kernel_in(value)
            if isinstance(kernel, JITFunction) and kernel.fn.__module__ == file:
                kernels.add(f"{file}.{kernel.fn.__name__}")
    return sorted(name.removeprefix(PREFIX) for name in kernels - launched)


def kernel_in(value: Any) -> Any:
    """Return the kernel within what tunes it or computes arguments of it."""
    from triton.runtime.autotuner import Autotuner, Heuristics

    while isinstance(value, Autotuner | Heuristics):
        value = value.fn
    return value


def report_unlaunched(names: list[str]) -> int:
    """Print which kernels are not launched, and why; return 1 where there is no reason."""
    for name in names:
        status = "" if name in NOT_LAUNCHED else "FAILED "
        print(f"{status}{name} is not launched: {NOT_LAUNCHED.get(name, 'no call reaches it')}")
    return int(not set(names) <= set(NOT_LAUNCHED))


def kind_of(launch: Launch) -> tuple[str, ...]:
    """Return what the compilation of a launch depends on: its types, constants and options, and
    which numbers are multiples of 16."""
    constants = {parameter.name for parameter in launch.kernel.params if parameter.is_constexpr}
    words = [launch.name]
    arguments = dict(zip(launch.kernel.arg_names, launch.inputs, strict=False)) | launch.options
    for name, value in sorted(arguments.items()):
        is_runtime = name in launch.kernel.arg_names and name not in constants
        words.append(f"{name}={specialisation(value) if is_runtime else value}")
    return tuple(words)


def specialisation(value: Any) -> str:
    """Return what Triton compiles a kernel anew for, of an argument that is no constant."""
    if hasattr(value, "dtype"):
        return f"pointer to {value.dtype}"
    if isinstance(value, int) and not isinstance(value, bool):
        return "1" if value == 1 else f"{'multiple of 16' if value % 16 == 0 else 'integer'}"
    return type(value).__name__


class NoDriver:
    """The driver of a GPU that is not here, as far as compilation asks for it."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0


def compile_launch(launch: Launch, capability: int) -> Usage:
    """Compile a kernel for the arguments of a launch; raise KernelError where it does not."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver
    from triton.runtime.jit import MockTensor

    driver.set_active(NoDriver(GPUTarget("cuda", capability, 32)))
    inputs = [
        MockTensor(value.dtype, list(value.shape)) if hasattr(value, "dtype") else value
        for value in launch.inputs
    ]
    options = {
        name: MockTensor(value.dtype, list(value.shape)) if hasattr(value, "dtype") else value
        for name, value in launch.options.items()
    }
    try:
        compiled = launch.kernel.warmup(*inputs, grid=(1,), **options)
        usage = usage_of(compiled.asm["cubin"])
    except Exception as problem:
        raise KernelError(f"{type(problem).__name__}: {str(problem)[:500]}") from problem
    return Usage(usage.registers, usage.spilled, max(usage.shared, compiled.metadata.shared))


def usage_of(cubin: bytes) -> Usage:
    """Return what `cuobjdump`, which Triton ships, says of a compiled kernel."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = USAGE.search(output)
    if usage is None:
        raise KernelError(f"cuobjdump says nothing of registers: {output[:200]}")
    registers, stack, shared, local = map(int, usage.groups())
    return Usage(registers, stack + local, shared)


def rows(launches: list[Launch], capability: int) -> Iterator[tuple[Launch, Usage | KernelError]]:
    """Yield each launch with what its kernel uses, or why it does not compile."""
    for launch in launches:
        try:
            yield launch, compile_launch(launch, capability)
        except KernelError as problem:
            yield launch, problem


def named_arguments(launch: Launch) -> dict[str, Any]:
    """Return the arguments of a launch by name, with the options of the compiler."""
    return dict(zip(launch.kernel.arg_names, launch.inputs, strict=False)) | launch.options


def types_of(launch: Launch) -> str:
    """Return the dtypes of the tensors of a launch."""
    values = named_arguments(launch).values()
    dtypes = {str(value.dtype) for value in values if hasattr(value, "dtype")}
    return ", ".join(sorted(dtype.removeprefix("torch.") for dtype in dtypes))


def constants_of(launch: Launch) -> str:
    """Return the numbers among the constants and options of a launch, by which kinds differ."""
    constants = {parameter.name for parameter in launch.kernel.params if parameter.is_constexpr}
    return " ".join(
        f"{name}={value}"
        for name, value in named_arguments(launch).items()
        if (name in constants or name not in launch.kernel.arg_names)
        and (name.startswith(("BLOCK", "num_")) or name in ("casting_mode", "n_cols"))
    )


def report(launches: list[Launch], capability: int) -> int:
    """Print what each kernel uses; return 1 where a kernel does not compile or does not fit."""
    largest = SHARED_MEMORY[capability]
    fits: dict[tuple[str, str], bool] = {}
    is_broken = False
    print(f"{'kernel':44} {'registers':>9} {'spilled':>8} {'shared':>8}  types; constants")
    for launch, usage in rows(launches, capability):
        name = launch.name.removeprefix(PREFIX)
        if isinstance(usage, KernelError):
            print(f"FAILED {name}, {types_of(launch)}; {constants_of(launch)}: {usage}")
            is_broken = True
            continue
        key = (launch.name, types_of(launch))
        fits[key] = fits.get(key, False) or usage.shared <= largest
        note = "" if usage.shared <= largest else "  (does not fit: Triton skips it)"
        print(
            f"{name:44} {usage.registers:9} {usage.spilled:8} {usage.shared:8} "
            f" {types_of(launch)}; {constants_of(launch)}{note}",
            flush=True,
        )
    for (name, types), does_fit in fits.items():
        if not does_fit:
            print(f"FAILED {name}, {types}: no configuration fits in {largest} bytes")
    return int(is_broken or not all(fits.values()))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--target", type=int, choices=sorted(SHARED_MEMORY), required=True)
    target = parser.parse_args().target
    fake_device.load()
    from environment import print_versions

    print_versions()
    launches = recorded_launches()
    chosen = sampled(launches)
    counts = collections.Counter(launch.name for launch in launches)
    print(
        f"{len(chosen)} of {len(launches)} kinds of launches of {len(counts)} kernels, compiled"
        f" for sm_{target}, in bytes; the others are configurations of autotuned kernels"
    )
    is_lacking = report_unlaunched(unlaunched_kernels(launches))
    return report(chosen, target) or is_lacking


if __name__ == "__main__":
    sys.exit(main())
