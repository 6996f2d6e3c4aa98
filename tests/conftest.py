"""Define the fixtures that tests share: a file on disk from text, its structures, and an own
cache."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import sys
import textwrap
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from regraft.rules import load_rules
from regraft.scanning import CompiledRule, compile_rules
from regraft.source.text import SourceFile, parse
from regraft.structure import Body, Module, Structure

NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the cache to a directory of the test, so that it neither reads nor writes the
    user's. pytest would read the names of all directories of before to number a new one."""
    name = f"cache-{next(NUMBERS)}"
    monkeypatch.setenv("REGRAFT_CACHE_DIR", str(tmp_path_factory.mktemp(name, numbered=False)))


@pytest.fixture(autouse=True)
def own_random_numbers() -> None:
    """Seed torch, once something has imported it, so that a test draws the same numbers whichever
    ran before it."""
    if "torch" in sys.modules:
        from regraft.verification.child.random_states import reseed

        reseed(0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the test's own directory the working directory: reproducers are written below it."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a dedented text to a file of the test's own directory."""

    def make(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return make


def source_of(text: str) -> SourceFile:
    """Return a parsed file that is not on disk."""
    source = parse("model.py", textwrap.dedent(text).encode())
    assert isinstance(source, SourceFile), source
    return source


def compiled_rules(*names: str) -> tuple[CompiledRule, ...]:
    """Return built-in rules by their names, compiled."""
    loaded, _ = load_rules(names)
    return compile_rules(loaded)[0]


def body_of(text: str, name: str = "forward") -> tuple[Structure, Body]:
    """Return the structure and body of the function `name`."""
    for structure in Module(source_of(text)).structures():
        for body in structure.bodies:
            if body.name == name:
                return structure, body
    raise LookupError(name)


@pytest.fixture(scope="session")
def transformers() -> Path:
    """Return the folder of the installed transformers package; skip the test without it."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        pytest.skip("transformers is not installed")
    return Path(spec.origin).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that leaves out a part of the slow tests."""
    parser.addoption("--slow-part", metavar="N/M", help="run the N-th of M parts of the slow tests")


def leave_out_slow_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the slow tests that are not in the part `--slow-part`, by a checksum of their
    names; N counts modulo M."""
    part = config.getoption("--slow-part")
    if not part:
        return
    number, count = map(int, part.split("/"))
    selected: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        is_slow = item.get_closest_marker("slow") is not None
        is_other = is_slow and zlib.crc32(item.nodeid.encode()) % count != number % count
        (others if is_other else selected).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = selected


# The device of all tensors that tests make without naming one: `make test-gpu` sets "cuda".
DEVICE = os.environ.get("REGRAFT_TEST_DEVICE", "")


def pytest_configure() -> None:
    """Make the device of the tests PyTorch's default where one is set, for generators of random
    numbers, too."""
    if DEVICE:
        torch = importlib.import_module("torch")
        torch.set_default_device(DEVICE)

        class Generator(torch.Generator):  # type: ignore[misc, name-defined]
            def __new__(cls, device: object = DEVICE) -> Generator:
                generator: Generator = super().__new__(cls, device)
                return generator

        setattr(torch, "Generator", Generator)  # noqa: B010  mypy knows no such attribute


# Tests of Liger's kernels run in Triton's interpreter (`make test-liger`) or on a GPU.
LIGER_MISSING = [
    name for name in ("torch", "triton", "liger_kernel") if importlib.util.find_spec(name) is None
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests, and skip those of Liger's kernels where what they need is missing."""
    leave_out_slow_tests(config, items)
    reason = f"needs {', '.join(LIGER_MISSING)}: pip install -e '.[liger]'" if LIGER_MISSING else ""
    if not reason and os.environ.get("TRITON_INTERPRET") != "1" and not DEVICE.startswith("cuda"):
        reason = "needs Triton's interpreter (make test-liger) or a GPU (make test-gpu)"
    for item in items:
        if reason and "tests/liger/" in item.path.as_posix():
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of kernels that ran, which a test of them must not leave empty."""
    from regraft.ops import liger

    ran: list[str] = []
    call = liger.LigerKernel.__call__

    def counted(self: liger.LigerKernel, *inputs: object) -> object:
        ran.append(self.forward.__qualname__.partition(".")[0])
        return call(self, *inputs)  # type: ignore[arg-type]

    rotary = importlib.import_module("regraft.ops.rotary")
    launch = rotary.launch_rotary

    def turned(*inputs: object) -> object:
        ran.append("rotary")
        return launch(*inputs)

    rms_norm = importlib.import_module("regraft.ops.rms_norm")
    apply = rms_norm._AddRmsNorm.apply

    def added(*inputs: object) -> object:
        ran.append("_AddRmsNorm")
        return apply(*inputs)

    monkeypatch.setattr(liger.LigerKernel, "__call__", counted)
    monkeypatch.setattr(rms_norm._AddRmsNorm, "apply", staticmethod(added))
    monkeypatch.setattr(rotary, "launch_rotary", turned)
    return ran
