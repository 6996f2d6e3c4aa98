"""Test failures outside the comparison: crashes, hangs, user errors, lines that never run."""

import json
import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

import pytest
from verify_samples import DRIVER, EQUAL, SOURCE, rewritten

from regraft.verification import VerifyError, child_job, verify
from regraft.verification.child_process import Exit, _hangs, _is_asleep, _is_stuck, _processor_time
from regraft.verification.types import INTERNAL

pytest.importorskip("torch")
ROOT = "return self.weight * wide.to(x.dtype)"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the working directory, with a model and a driver."""
    (tmp_path / "model.py").write_text(SOURCE)
    (tmp_path / "driver.py").write_text(DRIVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verdict_on(project: Any, old: Any, new: Any, **options: Any) -> Any:
    """Return the verdict on a changed text."""
    changed = SOURCE.replace(old, new)
    assert changed != SOURCE
    options = {"driver": "driver.py:block", "time_limit": 60, **options}
    (verdict,) = verify(project / "model.py", changed.encode(), **options)
    return verdict


def test_a_busy_machine_is_no_hang() -> None:
    step = {"side": "changed", "time": time.time() - 30, "work": 5.0, "original_seconds": 0.01}
    assert _hangs(step, work=26.0) and _hangs(step, work=5.1), "it works for ever, or sleeps"
    assert not _hangs(step, work=10.0), "others had the machine"
    assert not _hangs(step, work=5.1, is_asleep=False), "others had the whole machine"
    assert _hangs(step, None) and not _hangs(step, None, patience=0.1)
    assert not _hangs({**step, "side": "original"}, work=26.0)
    stuck = {**step, "side": "original", "time": time.time() - 90}
    assert _is_stuck(stuck, work=5.1) and not _is_stuck(stuck, work=30.0)
    assert not _is_stuck({**stuck, "side": "changed"}, work=5.1) and not _is_stuck(stuck, None)
    assert _hangs(step, work=8.0, patience=0.1) and not _hangs(step, work=6.0, patience=0.1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not say")
def test_work_of_a_process() -> None:
    assert abs((_processor_time(os.getpid()) or 0) - time.process_time()) < 0.5
    assert _processor_time(2**22 + 1) is None


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not say")
def test_a_process_that_can_run_is_not_asleep() -> None:
    assert not _is_asleep(2**22 + 1)
    for code, sleeps in (("while True: pass", False), ("import time; time.sleep(600)", True)):
        process = subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{code}"], stdout=-1)
        try:
            assert process.stdout is not None and process.stdout.readline()
            end = time.monotonic() + 60
            while _is_asleep(process.pid) != sleeps and time.monotonic() < end:
                time.sleep(0.05)
            assert all(_is_asleep(process.pid) == sleeps for _ in range(20))
        finally:
            process.kill()
            process.communicate()


def test_nothing_changed(project: Any) -> None:
    assert verify(project / "model.py", SOURCE.encode()) == ()


def test_parent_does_not_import_torch() -> None:
    code = "import sys, regraft.verification; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_branch_that_never_runs_is_unproven(project: Any) -> None:
    new = (
        "if x.is_cuda:\n            return F.rms_norm(x, self.weight.shape, self.weight,"
        f" self.eps)\n        {ROOT}"
    )
    verdict = verdict_on(project, ROOT, new)
    assert verdict.status == "unproven"
    line = SOURCE[: SOURCE.index(ROOT)].count("\n") + 2
    assert f"line {line} never ran" in verdict.reason
    assert line in verdict.evidence["lines not executed"]


@pytest.mark.slow
def test_condition_that_is_never_false_is_unproven(project: Any) -> None:
    new = (
        "if x.dim() > 1:\n            return self.weight * F.rms_norm(x.float(),"
        f" self.weight.shape, None, self.eps).to(x.dtype)\n        {ROOT}"
    )
    verdict = verdict_on(project, ROOT, new)
    assert verdict.status == "unproven"
    assert "was never false" in verdict.reason


@pytest.mark.slow
def test_condition_with_both_sides_is_proved(project: Any) -> None:
    new = (
        "if x.dtype == torch.float32:\n"
        "            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)\n        "
        + ROOT
    )
    verdict = verdict_on(project, ROOT, new)
    assert (verdict.status, verdict.reason) == ("proved", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("import os; os._exit(7)", "exit status 7"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_crash_is_refuted_and_spares_the_others(project: Any, code: str, cause: str) -> None:
    changed = rewritten(EQUAL, ("gelu by hand",)).decode().replace(ROOT, f"{code}\n        {ROOT}")
    results = verify(
        project / "model.py", changed.encode(), driver="driver.py:block", time_limit=60
    )
    verdicts = {v.definition: v for v in results}
    assert verdicts["RootNorm"].status == "refuted"
    assert cause in verdicts["RootNorm"].reason
    assert verdicts["FeedForward"].status == "proved", verdicts["FeedForward"].reason


def test_crash_on_import_is_refuted(project: Any) -> None:
    verdict = verdict_on(project, "import math\n", "import math\nimport os; os._exit(1)\n")
    assert verdict.status == "refuted"
    assert "import" in verdict.reason


def test_changed_version_that_does_not_import_is_refuted(project: Any) -> None:
    verdict = verdict_on(project, ROOT, f"{ROOT}\n\n\nraise ImportError('no such kernel')")
    assert verdict.status == "refuted"
    assert "no such kernel" in verdict.reason


def test_original_that_does_not_import_is_unproven(project: Any) -> None:
    text = "import no_such_package_at_all\n\nno_such_package_at_all.start()\n" + SOURCE
    (project / "model.py").write_text(text)
    changed = text.replace(ROOT, "return (self.weight * wide).to(x.dtype)")
    (verdict,) = verify(
        project / "model.py", changed.encode(), driver="driver.py:block", time_limit=60
    )
    assert verdict.status == "unproven"
    assert "no_such_package_at_all" in verdict.reason


def test_hang_is_refuted_within_the_limit(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regraft.verification.child_process.HANG_SECONDS", 2.0)
    monkeypatch.setattr("regraft.verification.child_process.HANG_FACTOR", 2.0)
    started = time.monotonic()
    verdict = verdict_on(project, ROOT, f"while True: pass\n        {ROOT}", time_limit=12)
    assert verdict.status == "refuted"
    assert "did not return" in verdict.reason
    assert time.monotonic() - started < 4 * 12  # what the limit may take on the clock


@pytest.mark.slow
def test_original_that_hangs_is_unproven(project: Any) -> None:
    (project / "model.py").write_text(
        SOURCE.replace("wide = x.float()", "while x is not None: pass")
    )
    changed = (
        (project / "model.py").read_text().replace(ROOT, "return (self.weight * wide).to(x.dtype)")
    )
    (verdict,) = verify(
        project / "model.py", changed.encode(), driver="driver.py:block", time_limit=2
    )
    assert verdict.status == "unproven"
    assert "time limit" in verdict.reason


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the system does not say")
def test_a_call_in_which_the_original_sleeps_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regraft.verification.child_process.STUCK_SECONDS", 2.0)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(
        "import time\nimport torch\nfrom torch import nn\n\n\nclass Sleepy(nn.Module):\n"
        "    def forward(self, x):\n        if x.isnan().any():\n            time.sleep(600)\n"
        "        return torch.relu(x) * 2\n"
    )
    changed = path.read_text().replace("torch.relu(x)", "x.relu()").encode()
    (verdict,) = verify(path, changed, by_rules=True, time_limit=60)
    assert verdict.status == "proved", verdict.reason
    assert "hung" in str(verdict.evidence["skipped"])


@pytest.mark.slow
def test_what_was_proved_before_the_time_ran_out_stays_proved(tmp_path: Path) -> None:
    head = "import torch\nfrom torch import nn\n"
    good = "\n\nclass Good(nn.Module):\n    def forward(self, x):\n        return x + x\n"
    hung = good.replace("Good", "Hung").replace(
        "return", "while x is not None: pass\n        return"
    )
    path = tmp_path / "model.py"
    path.write_text(head + good + hung)
    changed = path.read_text().replace("x + x", "2 * x").encode()
    verdicts = {verdict.definition: verdict for verdict in verify(path, changed, time_limit=8)}
    assert (verdicts["Good"].status, verdicts["Hung"].status) == ("proved", "unproven")
    assert "time limit" in verdicts["Hung"].reason


@pytest.mark.slow
def test_memory_limit(project: Any) -> None:
    new = f"torch.zeros(2**33)\n        {ROOT}"
    verdict = verdict_on(project, ROOT, new, memory_limit=12 * 2**30)
    assert verdict.status == "refuted"
    assert "memory" in verdict.reason


def test_syntax_error_names_its_place(project: Any) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(project / "model.py", SOURCE.replace("import math", "import math,,").encode())
    assert (caught.value.line, caught.value.file) == (2, str(project / "model.py"))


@pytest.mark.parametrize("side", ["original", "changed"])
def test_text_that_parses_but_does_not_compile(project: Any, side: str) -> None:
    late = SOURCE.replace("import math\n", "import math\nfrom __future__ import annotations\n")
    texts = {"original": SOURCE, "changed": SOURCE.replace("math.sqrt", "math.cbrt"), side: late}
    (project / "model.py").write_text(texts["original"])
    with pytest.raises(VerifyError, match="does not compile") as caught:
        verify(project / "model.py", texts["changed"].encode())
    assert caught.value.line == 3
    (project / "changed.py").write_text(texts["changed"])
    run = subprocess.run(
        [sys.executable, "-m", "regraft", "verify", "model.py", "changed.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, "Traceback" in run.stderr, run.stderr.count("\n")) == (2, False, 1)


def test_changed_text_of_a_file_in_the_root_folder_is_kept_apart(tmp_path: Path) -> None:
    from regraft.verification.child_job import Job
    from regraft.verification.types import Terms

    root = Path(tmp_path.anchor)
    for original in (root / "regraft_test_model.py", root / "regraft_test" / "model.py"):
        job = Job(
            original=original,
            changed=b"x = 1\n",
            changes=(),
            before=(),
            driver=None,
            time_limit=1.0,
            memory_limit=None,
            python="",
            terms=Terms(),
        )
        job._write_request(tmp_path, 1.0, (), [])
        written = Path(json.loads((tmp_path / "request.json").read_text())["changed"])
        assert tmp_path.resolve() in written.parents
        assert written.read_bytes() == b"x = 1\n"


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(VerifyError, match="cannot read"):
        verify(tmp_path / "none.py", b"")


@pytest.mark.parametrize(
    ("present", "missing"), [(False, "torch and numpy: pip install torch numpy"), (True, "numpy: ")]
)
def test_interpreter_without_packages(project: Any, present: bool, missing: str) -> None:
    venv.create(project / "bare", with_pip=False)
    (site,) = (project / "bare").glob("lib/python*/site-packages")
    if present:
        (site / "torch.py").touch()
    with pytest.raises(VerifyError, match=f"verification needs {missing}"):
        verdict_on(
            project,
            ROOT,
            "return wide.to(x.dtype)",
            python=str(project / "bare" / "bin" / "python"),
        )


@pytest.mark.slow
def test_packages_beside_this_one_do_not_shadow_those_of_the_other_interpreter(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regraft.verification import launcher

    # this package as if it were installed: a broken package of the same environment is its
    # neighbour
    shutil.copytree(launcher._PACKAGE, project / "here" / "regraft")
    (project / "here" / "torch.py").write_text("raise ImportError('the wrong one')\n")
    monkeypatch.setattr(launcher, "_PACKAGE", project / "here" / "regraft")
    new = "from regraft.ops import softmax\n        return wide.to(x.dtype) * self.weight"
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert verdict_on(project, ROOT, new).status == "proved"


def test_interpreter_that_is_too_old(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from regraft.verification import launcher

    start = launcher._START.replace(str(launcher.OLDEST), "(9, 0)")
    monkeypatch.setattr(launcher, "_START", start)
    monkeypatch.setattr(launcher, "_idle", [])
    with pytest.raises(VerifyError, match="is older than"):
        verdict_on(project, ROOT, "return wide.to(x.dtype)")


def test_interpreter_that_does_not_exist(project: Any) -> None:
    with pytest.raises(VerifyError, match="cannot start"):
        verdict_on(project, ROOT, "return wide.to(x.dtype)", python=str(project / "nothing"))


def test_bad_driver_is_named(project: Any) -> None:
    with pytest.raises(VerifyError, match="driver"):
        verdict_on(project, ROOT, "return wide.to(x.dtype)", driver="driver.py:nothing")


def test_a_failure_of_the_verifier_is_held_against_nobody(
    project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = Exit(
        "crashed",
        INTERNAL,
        1.0,
        {"side": "changed", "definition": "RootNorm", "what": "x"},
        "MemoryError",
    )
    monkeypatch.setattr(child_job, "run_child", lambda *_: ended)
    verdict = verdict_on(project, ROOT, "return wide.to(x.dtype) * self.weight")
    assert (verdict.status, verdict.reason) == (
        "unproven",
        "the run did not finish: Regraft itself failed, at 'x' (MemoryError)"
        " (verification limits the address space to 8 GiB)",
    )
