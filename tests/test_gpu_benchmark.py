"""Test the GPU suites without a device: steps are resumed and skipped with a reason, a mistake in a
CUDA branch makes its step fail, and the device's lines are those that a CPU does not reach."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
GPU = ROOT / "benchmarks" / "gpu"


def load(name: str) -> ModuleType:
    """Return a module of the suites."""
    spec = importlib.util.spec_from_file_location(f"gpu_{name}", GPU / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    path = list(sys.path)
    sys.path.insert(0, str(GPU))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = path
    return module


RUN = load("run")
LINES = load("device_lines")
MISSING = RUN.skip_reason(RUN.chosen_steps("fake")[0], "")
needs_fake_device = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def step(name: str, code: str, **options: object) -> object:
    """Return a step that runs some code."""
    return RUN.Step(name, "", ("-c", code), needs_device=False, **options)


@pytest.fixture(autouse=True)
def nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let steps that need no device run, whether or not a fake device can be built."""
    monkeypatch.setattr(RUN.fake_device, "missing", str)


def test_steps_that_ended_are_not_run_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    note = f"open({str(log)!r}, 'a').write('x'); print('told')"
    good, bad = step("good", note), step("bad", f"{note}; raise SystemExit(3)")
    results = tmp_path / "results"
    outcomes = RUN.run_steps([bad, good], results)
    assert [outcome.status for outcome in outcomes.values()] == ["FAILED", "passed"]
    assert outcomes["bad"].reason == "exit status 3" and RUN.summarise(outcomes) == 1
    assert (results / "good.txt").read_text().splitlines()[1:] == ["told"]
    again = RUN.run_steps([bad, good], results)
    assert log.read_text() == "xx" and RUN.summarise(again) == 1
    (results / "bad.txt").unlink()
    RUN.run_steps([bad, good], results)
    assert log.read_text() == "xxx"


def test_a_step_that_was_cut_off_begins_again(tmp_path: Path) -> None:
    (tmp_path / "cut.partial").write_text("half")
    (tmp_path / "odd.txt").write_text("half")
    outcomes = RUN.run_steps([step("cut", "print(1)"), step("odd", "print(2)")], tmp_path)
    assert RUN.summarise(outcomes) == 0
    assert (tmp_path / "cut.txt").read_text().splitlines()[1:] == ["1"]
    assert (tmp_path / "odd.txt").read_text().splitlines()[1:] == ["2"]
    assert not list(tmp_path.glob("*.partial"))


def test_a_step_ends_at_its_limit_and_keeps_what_it_printed(tmp_path: Path) -> None:
    code = "print('begun', flush=True); import time; time.sleep(60)"
    outcome = RUN.run_step(step("slow", code, limit=2), tmp_path)
    assert str(outcome) == "FAILED: did not end within 2 s"
    assert (tmp_path / "slow.txt").read_text().splitlines() == [f"# {outcome}", "begun"]


def test_steps_for_a_device_are_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RUN, "no_device_reason", lambda: "there is no CUDA device")
    on_device = RUN.Step("device", "", ("-c", "raise SystemExit(1)"))
    lacking = step("lacking", "raise SystemExit(1)", needs=("no_such_package",))
    monkeypatch.setattr(RUN.fake_device, "missing", lambda: "there is no C++ compiler")
    fake = step("fake", "raise SystemExit(1)")
    outcomes = RUN.run_steps([on_device, lacking, fake], tmp_path)
    assert str(outcomes["fake"]) == "skipped: there is no C++ compiler"
    assert str(outcomes["device"]) == "skipped: there is no CUDA device"
    assert str(outcomes["lacking"]) == "skipped: no_such_package is not installed"
    assert not list(tmp_path.iterdir()) and RUN.summarise(outcomes) == 0


def test_there_is_a_reason_without_a_device() -> None:
    pytest.importorskip("torch")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", RUN.NO_DEVICE]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "without CUDA" in result.stdout or "no CUDA device" in result.stdout


def test_steps_are_chosen_by_name() -> None:
    assert [chosen.name for chosen in RUN.chosen_steps("counts,kernels")] == [
        "kernels-80",
        "kernels-90",
        "counts",
    ]
    assert RUN.chosen_steps("") == list(RUN.STEPS)
    with pytest.raises(ValueError, match="unknown step kernel;"):
        RUN.chosen_steps("kernel")


def test_every_step_has_its_program_and_ends_in_time() -> None:
    assert len({each.name for each in RUN.STEPS}) == len(RUN.STEPS)
    for each in RUN.STEPS:
        assert each.limit <= 480
        assert each.arguments[0] == "-m" or (ROOT / each.arguments[0]).is_file()
        paths = [word for word in each.arguments if word.startswith("tests/")]
        assert all((ROOT / path).exists() for path in paths)


OPS = """
    import torch
    from ops.kernels import launch, library


    def fits(x, y):
        fits = all(t.is_cuda for t in (x, y)) and x.dim() > 1
        return fits and library() is not None


    def implementation(x, y):
        if x.dtype == torch.int64:
            return "reference"
        return "kernel" if fits(x, y) else "native"


    def op(x, y):
        if implementation(x, y) != "kernel":
            return x + y
        total = through_kernel(x, y)
        return total


    def through_kernel(x, y):
        return launch(x, y)


    def other(x):
        device = x.device.type
        if device == "cpu":
            result = shared(x)
        elif device in ("cuda", "xpu"):
            result = launch(x, x)
        else:
            raise ValueError(device)
        if library() is None:
            return result
        return shared(result)


    def shared(x):
        return x
"""
KERNELS = """
    def launch(x, y):
        def run():
            return x
        return run()


    def library():
        return None
"""


def test_lines_of_the_device_are_those_that_no_call_on_a_cpu_reaches(tmp_path: Path) -> None:
    import textwrap

    (tmp_path / "__init__.py").write_text("from ops.sums import op as op, other as other\n")
    (tmp_path / "sums.py").write_text(textwrap.dedent(OPS))
    (tmp_path / "kernels.py").write_text(textwrap.dedent(KERNELS))
    statements = LINES.device_statements(tmp_path, "ops")
    assert sorted(f"{each.function}: {each.text}" for each in statements) == [
        "launch.run: return x",
        "launch: def run():",
        "launch: return run()",
        "op: return total",
        "op: total = through_kernel(x, y)",
        'other: elif device in ("cuda", "xpu"):',
        "other: raise ValueError(device)",
        "other: result = launch(x, x)",
        "other: return shared(result)",
        "through_kernel: return launch(x, y)",
    ]


MISTAKES = """
import sys
sys.path.insert(0, {folder!r})
import fake_device
fake_device.load()
import torch
torch.set_num_threads(1)
import fake, op_cases
from regraft.ops import liger, row_softmax as _
call = liger.LigerKernel.__call__
plants = dict(
    none=call,
    dtype=lambda kernel, *inputs: call(kernel, *inputs).double(),
    shape=lambda kernel, *inputs: call(kernel, *inputs)[..., :1],
    device=lambda kernel, *inputs: torch.empty_like(inputs[0], device="cpu", requires_grad=True),
)
with fake_device.fake_device() as record:
    for name, plant in plants.items():
        liger.LigerKernel.__call__ = plant
        cases = [case for case in op_cases.other_cases() if case.name.startswith("row_softmax")]
        assert len(cases) == 1
        print(name, *fake.failures([(cases[0], '')]), sep=": ")
    names = sorted({{launch.name.rpartition(".")[2] for launch in record.launches}})
    print(*names)
"""


@pytest.mark.slow
@needs_fake_device
def test_a_mistake_in_a_cuda_branch_is_noticed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-c", MISTAKES.format(folder=str(GPU))]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not result.returncode, result.stderr[-2000:]
    none, dtype, shape, device, kernels = result.stdout.splitlines()
    assert none == "none"
    assert dtype.startswith("dtype: row_softmax") and "the op gives float64[4, 8, 8192]" in dtype
    assert shape.startswith("shape: row_softmax") and "the op gives float32[4, 8, 1]" in shape
    assert device.startswith("device: row_softmax") and "on cpu" in device
    assert "_softmax_single_block_forward_kernel" in kernels


def test_a_statement_that_never_ran_is_noticed(tmp_path: Path) -> None:
    fake = load("fake")
    path = tmp_path / "op.py"
    refusal, branch = (
        fake.Statement(path, 1, 1, "op", text) for text in ('return "reference"', "x = launch(x)")
    )
    taken = fake.TakenLines(tmp_path)
    assert fake.report_statements([refusal, branch], taken) == 1
    taken.lines["op.py"] = {1}
    assert fake.report_statements([refusal, branch], taken) == 0


@pytest.mark.parametrize("name", ["llama", "qwen3", "bert"])
def test_models_have_a_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    models = load("targets")
    monkeypatch.setattr(models, "CUDA", torch.device("cpu"))
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    monkeypatch.setattr(models, "WIDE", sizes | {"num_attention_heads": 4, "vocab_size": 70})
    tokens = models.torch.randint
    monkeypatch.setattr(
        models.torch,
        "randint",
        lambda low, high, size, **options: tokens(low, high, (1, 4), **options),
    )
    config = models.transformers.BertConfig
    monkeypatch.setattr(
        models.transformers,
        "BertConfig",
        lambda **fields: config(**{**fields, "num_hidden_layers": 1, "hidden_size": 48}),
    )
    model, call = getattr(models, name)()
    output = model(**call)
    assert next(model.parameters()).dtype == torch.bfloat16
    assert output[0].requires_grad and (name == "bert") == (output[0].dim() == 3)


WRONG_KERNEL = """
import sys
sys.path.insert(0, {folder!r})
import torch
torch.set_num_threads(1)
import liger_kernels
from regraft.ops import liger
call = liger.LigerKernel.__call__
liger_kernels.KERNELS = [each for each in liger_kernels.KERNELS if each.name == "swiglu"]
for factor in (1.0, 1.0001):
    liger.LigerKernel.__call__ = lambda kernel, *inputs: call(kernel, *inputs) * factor
    print(*liger_kernels.lines(torch.device("cpu"), [(4, 16)]))
"""


@pytest.mark.slow
@needs_fake_device
def test_a_kernel_with_wrong_results_does_not_pass() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", WRONG_KERNEL.format(folder=str(GPU))]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not result.returncode, result.stderr[-2000:]
    right, wrong = result.stdout.splitlines()
    assert right.startswith("swiglu")
    assert wrong.startswith("FAILED swiglu") and "further from float64" in wrong
