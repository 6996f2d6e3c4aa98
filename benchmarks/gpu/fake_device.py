"""A CUDA device without a driver: tensors have shapes, dtypes and a device, and no memory.

`load` has to come before `import torch`; then, within `fake_device()`, tensors are those of
PyTorch's FakeTensorMode on device cuda:0, autograd and `torch.compile` (without Inductor) run on
them, and launches of Triton's kernels are recorded and not run. It takes a C++ compiler, and any
build of PyTorch; the attention kernels that a GPU would run are chosen in a build with CUDA alone.
"""

from __future__ import annotations

import builtins
import ctypes
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

SOURCE = Path(__file__).with_suffix(".cpp")
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "gpu"
OLDEST = (2, 13)  # the oldest PyTorch in which ops run compiled regions
# of an H100 SXM5, as the functions of Liger and PyTorch ask for them
PROPERTIES = SimpleNamespace(
    name="fake H100",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 << 30,
    warp_size=32,
    shared_memory_per_block_optin=232448,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
)


class FakeDeviceError(Exception):
    """No fake device can be had here; one sentence says why."""


def missing() -> str:
    """Return what is missing here for a fake device; "" where nothing is."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    numbers = importlib.metadata.version("torch").split(".")[:2]
    if tuple(map(int, numbers)) < OLDEST:
        return f"the fake device needs PyTorch {'.'.join(map(str, OLDEST))} or later"
    return "" if compiler() else "there is no C++ compiler (g++) to build the fake device"


def compiler() -> str:
    """Return the path of a C++ compiler; "" where there is none."""
    return shutil.which("g++") or shutil.which("c++") or ""


def load() -> None:
    """Compile the fake device and put it into PyTorch, which must not be imported yet.

    Raises FakeDeviceError where something is missing, or PyTorch was imported before.
    """
    if reason := missing():
        raise FakeDeviceError(reason)
    if "torch" in sys.modules:
        raise FakeDeviceError("PyTorch was imported before the fake device")
    origin = importlib.util.find_spec("torch").origin  # type: ignore[union-attr]
    library = ctypes.CDLL(str(build(Path(str(origin)).parent)), mode=ctypes.RTLD_GLOBAL)
    library.register_hooks()
    with without_line(b"Higher priority item already registered"):
        torch: Any = importlib.import_module("torch")
    library.register_guard()
    # what Python asks on its own would start the driver
    torch.cuda.is_available = lambda: False
    # the worker threads of autograd belong to real devices
    torch._C._set_multithreading_enabled(False)


@contextmanager
def without_line(start: bytes) -> Iterator[None]:
    """Leave out of the standard error stream the lines that start with some words: PyTorch says
    that its own hooks come second."""
    stream = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stream, 2)
            os.close(stream)
            file.seek(0)
            for line in file:
                if not line.startswith(start):
                    os.write(2, line)


def build(torch_folder: Path) -> Path:
    """Compile the library for a PyTorch, once, and return its path."""
    version = (torch_folder / "version.py").read_bytes()
    key = hashlib.sha256(SOURCE.read_bytes() + version + str(torch_folder).encode()).hexdigest()
    path = CACHE / f"fake-device-{key[:16]}.so"
    if path.exists():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    includes = [torch_folder / "include", torch_folder / "include/torch/csrc/api/include"]
    if (torch_folder / "lib" / "libtorch_cuda.so").exists():
        includes.append(torch_folder.parent / "triton/backends/nvidia/include")
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        built = Path(folder, "library.so")
        command = [
            compiler(),
            "-std=c++20",
            "-O0",
            "-shared",
            "-fPIC",
            str(SOURCE),
            "-o",
            str(built),
        ]
        command += [f"-I{include}" for include in includes]
        command += [f"-L{torch_folder / 'lib'}", f"-Wl,-rpath,{torch_folder / 'lib'}"]
        command += ["-lc10", "-ltorch_cpu"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise FakeDeviceError(f"the fake device does not compile: {result.stderr[-2000:]}")
        built.replace(path)
    return path


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of a Triton kernel.

    kernel   the JITFunction
    inputs   the arguments by position
    options  the arguments by name: constants of the kernel and options of the compiler
    runs     whether a device would run it; False for the further configurations of an autotuner
    """

    kernel: Any
    inputs: tuple[Any, ...]
    options: dict[str, Any]
    runs: bool

    @property
    def name(self) -> str:
        """The module and the name of the kernel."""
        function = self.kernel.fn
        return f"{function.__module__}.{function.__name__}"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of PyTorch that a device would run: its name and the bytes of its tensors."""

    name: str
    bytes: int


@dataclass(slots=True)
class Record:
    """What a device would do, in order: operations of PyTorch and launches of Triton; the
    values of the device for which the host waits; and how often compiled functions are called."""

    steps: list[Operation | Launch] = field(default_factory=list)
    host_reads: list[str] = field(default_factory=list)
    compiled_calls: int = 0

    @property
    def launches(self) -> list[Launch]:
        """The launches of Triton's kernels."""
        return [each for each in self.steps if isinstance(each, Launch)]


@contextmanager
def fake_device() -> Iterator[Record]:
    """Make tensors on CUDA fake ones, and record what runs on them. `load` comes first."""
    import torch
    from dispatch import Recorder
    from torch._subclasses.fake_tensor import FakeTensorMode

    record = Record()
    with ExitStack() as stack:
        for patch in (*device_patches(torch, record), *ops_patches(torch), *launch_patches(record)):
            stack.enter_context(patch)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(FakeTensorMode())
        stack.enter_context(Recorder(record))
        yield record


def device_patches(torch: Any, record: Record) -> Iterator[Any]:
    """Yield the patches of functions of PyTorch that ask the driver."""
    answers: dict[str, Any] = {
        "device_of": lambda _: nullcontext(),
        "device": lambda _: nullcontext(),
        "is_current_stream_capturing": lambda: False,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_properties": lambda *_: PROPERTIES,
        "get_device_capability": lambda *_: (PROPERTIES.major, PROPERTIES.minor),
        "get_device_name": lambda *_: PROPERTIES.name,
    }
    for name, answer in answers.items():
        yield mock.patch.object(torch.cuda, name, answer)
    compile_function = torch.compile

    def compile_without_inductor(function: Any, **options: Any) -> Any:
        # the graphs of forward and backward pass are made; the code of their kernels is not
        compiled = compile_function(function, backend="aot_eager", dynamic=options.get("dynamic"))

        def call(*arguments: Any, **keywords: Any) -> Any:
            record.compiled_calls += 1
            return compiled(*arguments, **keywords)

        return call

    yield mock.patch.object(torch, "compile", compile_without_inductor)
    yield with_tf32(torch.backends.cuda.matmul)


@contextmanager
def with_tf32(matmul: Any) -> Iterator[None]:
    """Allow TF32, in which Liger's kernels for experts compute float32, for the length of a `with`
    block."""
    allowed, matmul.allow_tf32 = matmul.allow_tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32 = allowed


def ops_patches(torch: Any) -> Iterator[Any]:
    """Yield the patches of Regraft's ops, which tell ordinary tensors by their type, and postpone
    nothing where something observes all operations: here fake tensors are the ordinary ones, and
    what observes them is the device."""
    from torch._subclasses.fake_tensor import FakeTensor

    def plain_type(value: Any) -> Any:
        kind = builtins.type(value)
        if kind is not FakeTensor:
            return kind
        return torch.nn.Parameter if isinstance(value, torch.nn.Parameter) else torch.Tensor

    importlib.import_module("regraft.ops")
    internals = Delegate(torch._C, _len_torch_dispatch_stack=lambda: 0)
    for name, module in list(sys.modules.items()):
        if name.startswith("regraft.ops."):
            yield mock.patch.object(module, "type", plain_type, create=True)
    matmul = sys.modules["regraft.ops.postponed_matmul"]
    yield mock.patch.object(matmul, "torch", Delegate(torch, _C=internals))
    # the sizes that the op saves as a tensor on the CPU are read back as numbers
    experts = sys.modules["regraft.ops.experts"]
    yield mock.patch.object(experts, "torch", Delegate(torch, tensor=real_tensor))


def real_tensor(numbers: Any) -> Any:
    """Return a tensor of numbers that has memory."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        return torch.tensor(numbers)


class Delegate:
    """An object with some attributes of its own, and all others of another one."""

    def __init__(self, target: Any, **attributes: Any) -> None:
        self.__dict__.update(attributes, _target=target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_target"], name)


def launch_patches(record: Record) -> Iterator[Any]:
    """Yield the patches of Triton: a launch is recorded; all configurations of an autotuned kernel
    are, of which the first one stands for the one that would run."""
    if importlib.util.find_spec("triton") is None:
        return
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    def launch(kernel: Any, *inputs: Any, grid: Any, warmup: bool = False, **options: Any) -> None:
        runs = options.pop("further_configuration", False) is False
        bound = {**dict(zip(kernel.arg_names, inputs, strict=False)), **options}
        blocks = grid(bound) if callable(grid) else grid
        if not all(isinstance(number, int) and number > 0 for number in blocks):
            raise ValueError(f"{kernel.fn.__name__} is launched on the grid {blocks}")
        for name, value in bound.items():
            if hasattr(value, "data_ptr") and value.device.type != "cuda":
                raise ValueError(f"{kernel.fn.__name__} gets {name} on {value.device}")
        record.steps.append(Launch(kernel, inputs, options, runs))

    def tune(tuner: Any, *inputs: Any, **options: Any) -> None:
        tuner.nargs = dict(zip(tuner.arg_names, inputs, strict=False))
        for number, configuration in enumerate(tuner.prune_configs(options)):
            further = {"further_configuration": True} if number else {}
            tuner.fn.run(*inputs, **options, **configuration.all_kwargs(), **further)
        tuner.nargs = None

    yield mock.patch.object(JITFunction, "run", launch)
    yield mock.patch.object(Autotuner, "run", tune)
